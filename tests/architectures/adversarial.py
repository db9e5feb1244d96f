"""Generative adversarial networks. The graph holds what one training step runs: generators and discriminators."""

from __future__ import annotations

from layers import Net, Tensor


def dcgan() -> Net:
    """Radford et al. 2016, figure 1: 64 x 64 images."""
    net = Net("dcgan")
    x = net.input(100, 1, 1)
    x = net.act(net.norm(net.transposed(x, 512, 4, 1, 0)))
    for width in (256, 128, 64):
        x = net.act(net.norm(net.transposed(x, width, 4, 2, 1)))
    made = net.act(net.transposed(x, 3, 4, 2, 1), "Tanh")
    net.output(_judged(net, made, [64, 128, 256, 512]))
    return net


def _judged(net: Net, x: Tensor, widths: list[int]) -> Tensor:
    for number, width in enumerate(widths):
        x = net.conv(x, width, 4, 2, 1)
        x = net.act(net.norm(x) if number else x, "LeakyRelu", alpha=0.2)
    return net.act(net.conv(x, 1, 4, 1, 0), "Sigmoid")


def cyclegan() -> Net:
    """Zhu et al. 2017, appendix 7.2: two generators of nine residual blocks, two 70 x 70 PatchGAN discriminators."""
    net = Net("cyclegan")
    for _ in range(2):
        net.output(_patches(net, _translated(net, net.input(3, 256, 256))))
    return net


def _translated(net: Net, x: Tensor) -> Tensor:
    def block(x: Tensor, width: int, kernel: int, stride: int = 1) -> Tensor:
        return net.act(net.instance_norm(net.conv(x, width, kernel, stride, bias=True)))

    x = block(block(block(x, 64, 7), 128, 3, 2), 256, 3, 2)
    for _ in range(9):
        y = net.instance_norm(net.conv(block(x, 256, 3), 256, 3, bias=True))
        x = net.add(x, y)
    for width in (128, 64):
        x = net.act(net.instance_norm(net.transposed(x, width, 3, 2, 1, 1, bias=True)))
    return net.act(net.conv(x, 3, 7, bias=True), "Tanh")


def _patches(net: Net, x: Tensor) -> Tensor:
    for number, (width, stride) in enumerate(((64, 2), (128, 2), (256, 2), (512, 1))):
        x = net.conv(x, width, 4, stride, 1, bias=True)
        x = net.act(net.instance_norm(x) if number else x, "LeakyRelu", alpha=0.2)
    return net.conv(x, 1, 4, 1, 1, bias=True)
