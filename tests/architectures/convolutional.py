"""Image classifiers, written from the papers that introduced them."""

from __future__ import annotations

from collections.abc import Callable

from layers import Net, Tensor

VGG = {
    11: [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0],
    16: [64, 64, 0, 128, 128, 0, *[256] * 3, 0, *[512] * 3, 0, *[512] * 3, 0],
    19: [64, 64, 0, 128, 128, 0, *[256] * 4, 0, *[512] * 4, 0, *[512] * 4, 0],
}
RESNET = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def classified(net: Net, x: Tensor, classes: int = 1000) -> Net:
    """The mean of each channel, and a dense layer."""
    net.output(net.linear(net.flat(net.average(x)), classes))
    return net


def dense_head(net: Net, x: Tensor, *widths: int) -> Net:
    """Dense layers with ReLU between them."""
    x = net.flat(x)
    for width in widths:
        x = net.act(net.linear(x, width))
    net.output(net.linear(x, 1000))
    return net


def vgg(depth: int) -> Net:
    """Simonyan and Zisserman 2015, table 1."""
    net = Net(f"vgg{depth}")
    x = net.input(3, 224, 224)
    for width in VGG[depth]:
        x = net.act(net.conv(x, width, 3, bias=True)) if width else net.pool(x, 2, 2)
    return dense_head(net, x, 4096, 4096)


def alexnet() -> Net:
    """Krizhevsky 2014 ("One weird trick"), the single-column form."""
    net = Net("alexnet")
    x = net.act(net.conv(net.input(3, 224, 224), 64, 11, 4, 2, bias=True))
    x = net.act(net.conv(net.pool(x, 3, 2), 192, 5, bias=True))
    x = net.pool(x, 3, 2)
    for width in (384, 256, 256):
        x = net.act(net.conv(x, width, 3, bias=True))
    return dense_head(net, net.pool(x, 3, 2), 4096, 4096)


def overfeat() -> Net:
    """Sermanet et al. 2014, table 1 (the fast model)."""
    net = Net("overfeat")
    x = net.act(net.conv(net.input(3, 231, 231), 96, 11, 4, 0, bias=True))
    x = net.act(net.conv(net.pool(x, 2, 2), 256, 5, 1, 0, bias=True))
    x = net.pool(x, 2, 2)
    for width in (512, 1024, 1024):
        x = net.act(net.conv(x, width, 3, bias=True))
    return dense_head(net, net.pool(x, 2, 2), 3072, 4096)


def googlenet() -> Net:
    """Szegedy et al. 2015, table 1, with batch normalisation and without the auxiliary classifiers."""
    net = Net("googlenet")

    def inception(x: Tensor, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> Tensor:
        return net.concat(
            net.block(x, one, 1),
            net.block(net.block(x, three[0], 1), three[1], 3),
            net.block(net.block(x, five[0], 1), five[1], 5),
            net.block(net.pool(x, 3, 1, 1), pooled, 1),
        )

    x = net.pool(net.block(net.input(3, 224, 224), 64, 7, stride=2), 3, 2, 1)
    x = net.pool(net.block(net.block(x, 64, 1), 192, 3), 3, 2, 1)
    x = inception(x, 64, (96, 128), (16, 32), 32)
    x = net.pool(inception(x, 128, (128, 192), (32, 96), 64), 3, 2, 1)
    x = inception(x, 192, (96, 208), (16, 48), 64)
    x = inception(x, 160, (112, 224), (24, 64), 64)
    x = inception(x, 128, (128, 256), (24, 64), 64)
    x = inception(x, 112, (144, 288), (32, 64), 64)
    x = net.pool(inception(x, 256, (160, 320), (32, 128), 128), 3, 2, 1)
    x = inception(x, 256, (160, 320), (32, 128), 128)
    return classified(net, inception(x, 384, (192, 384), (48, 128), 128))


def inception3() -> Net:
    """Szegedy et al. 2016, table 1 and figures 5 to 7, without the auxiliary classifier."""
    net = Net("inception3")

    def chain(x: Tensor, *layers: tuple[int, int | tuple[int, int]]) -> Tensor:
        for width, kernel in layers:
            x = net.block(x, width, kernel)
        return x

    def averaged(x: Tensor) -> Tensor:
        return net.pool(x, 3, 1, 1, op="AveragePool")

    x = net.block(net.input(3, 299, 299), 32, 3, stride=2, pad=0)
    x = net.pool(net.block(net.block(x, 32, 3, pad=0), 64, 3), 3, 2)
    x = net.pool(net.block(net.block(x, 80, 1), 192, 3, pad=0), 3, 2)
    for pooled in (32, 64, 64):
        five, three = chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3))
        x = net.concat(net.block(x, 64, 1), five, three, net.block(averaged(x), pooled, 1))
    halved = net.block(chain(x, (64, 1), (96, 3)), 96, 3, stride=2, pad=0)
    x = net.concat(net.block(x, 384, 3, stride=2, pad=0), halved, net.pool(x, 3, 2))
    for width in (128, 160, 160, 192):
        one = chain(x, (width, 1), (width, (1, 7)), (192, (7, 1)))
        two = chain(x, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7)))
        x = net.concat(net.block(x, 192, 1), one, two, net.block(averaged(x), 192, 1))
    one = net.block(net.block(x, 192, 1), 320, 3, stride=2, pad=0)
    two = net.block(chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192, 3, stride=2, pad=0)
    x = net.concat(one, two, net.pool(x, 3, 2))
    for _ in range(2):
        one, two = net.block(x, 384, 1), chain(x, (448, 1), (384, 3))
        wide = [net.block(part, 384, kernel) for part in (one, two) for kernel in ((1, 3), (3, 1))]
        x = net.concat(net.block(x, 320, 1), *wide, net.block(averaged(x), 192, 1))
    return classified(net, x)


def inception4() -> Net:
    """Szegedy et al. 2017, figures 3 to 9."""
    net = Net("inception4")

    def chain(x: Tensor, *layers: tuple[int, int | tuple[int, int]]) -> Tensor:
        for width, kernel in layers:
            x = net.block(x, width, kernel)
        return x

    def averaged(x: Tensor) -> Tensor:
        return net.pool(x, 3, 1, 1, op="AveragePool")

    def halved(x: Tensor, width: int) -> Tensor:
        return net.block(x, width, 3, stride=2, pad=0)

    x = chain(net.block(halved(net.input(3, 299, 299), 32), 32, 3, pad=0), (64, 3))
    x = net.concat(net.pool(x, 3, 2), halved(x, 96))
    one = net.block(chain(x, (64, 1)), 96, 3, pad=0)
    two = net.block(chain(x, (64, 1), (64, (7, 1)), (64, (1, 7))), 96, 3, pad=0)
    x = net.concat(one, two)
    x = net.concat(halved(x, 192), net.pool(x, 3, 2))
    for _ in range(4):
        one, two = chain(x, (64, 1), (96, 3)), chain(x, (64, 1), (96, 3), (96, 3))
        x = net.concat(net.block(averaged(x), 96, 1), net.block(x, 96, 1), one, two)
    x = net.concat(net.pool(x, 3, 2), halved(x, 384), halved(chain(x, (192, 1), (224, 3)), 256))
    for _ in range(7):
        one = chain(x, (192, 1), (224, (1, 7)), (256, (7, 1)))
        two = chain(x, (192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1)))
        x = net.concat(net.block(averaged(x), 128, 1), net.block(x, 384, 1), one, two)
    one = halved(chain(x, (192, 1)), 192)
    two = halved(chain(x, (256, 1), (256, (1, 7)), (320, (7, 1))), 320)
    x = net.concat(net.pool(x, 3, 2), one, two)
    for _ in range(3):
        one, two = net.block(x, 384, 1), chain(x, (384, 1), (448, (1, 3)), (512, (3, 1)))
        wide = [net.block(part, 256, kernel) for part in (one, two) for kernel in ((1, 3), (3, 1))]
        x = net.concat(net.block(averaged(x), 256, 1), net.block(x, 256, 1), *wide)
    return classified(net, x)


def resnet(depth: int, side: int = 224, *, groups: int = 1, per_group: int = 64) -> Net:
    """He et al. 2016, table 1; with groups in the middle layer, ResNeXt (Xie et al. 2017).

    For 32 x 32 inputs, the first layer is a 3 x 3 one without stride or pooling, as is usual with CIFAR-10.
    """
    net = Net(f"resnet{depth}")
    large = side > 64
    x = net.input(3, side, side)
    x = net.pool(net.block(x, 64, 7, stride=2), 3, 2, 1) if large else net.block(x, 64, 3)
    for stage, blocks in enumerate(RESNET[depth]):
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            out = (64 if depth == 18 else 256) << stage
            middle = groups * per_group << stage
            if depth == 18:
                y = net.conv_norm(net.block(x, out, 3, stride=stride), out, 3)
            else:
                y = net.block(net.block(x, middle, 1), middle, 3, stride=stride, groups=groups)
                y = net.conv_norm(y, out, 1)
            short = x if x.shape == y.shape else net.conv_norm(x, out, 1, stride=stride)
            x = net.act(net.add(y, short))
    return classified(net, x, 1000 if large else 10)


def mobilenet2(side: int = 224) -> Net:
    """Sandler et al. 2018, table 2; for 32 x 32 inputs the first two strides of two are one."""
    net = Net("mobilenetv2")
    large = side > 64
    x = net.relu6(net.conv_norm(net.input(3, side, side), 32, 3, stride=2 if large else 1))
    plan = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for expand, out, count, stride in plan:
        for number in range(count):
            step = stride if number == 0 and (large or out != 24) else 1
            y, middle = x, expand * x.shape[0]
            if expand > 1:
                y = net.relu6(net.conv_norm(y, middle, 1))
            y = net.relu6(net.conv_norm(y, middle, 3, stride=step, groups=middle))
            y = net.conv_norm(y, out, 1)
            x = net.add(x, y) if x.shape == y.shape else y
    return classified(net, net.relu6(net.conv_norm(x, 1280, 1)), 1000 if large else 10)


def _excited(net: Net, x: Tensor, squeezed: int, inner: Callable[[Tensor], Tensor], gate: str) -> Tensor:
    """Squeeze and excitation (Hu et al. 2018): each channel weighed by what all of them hold."""
    y = inner(net.conv(net.average(x), squeezed, 1, bias=True))
    return net.mul(x, net.act(net.conv(y, x.shape[0], 1, bias=True), gate))


def _eighth(value: float) -> int:
    """The nearest multiple of eight, not more than a tenth below."""
    near = max(8, int(value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


MOBILENET3 = [
    # kernel, expanded, out, squeeze, hard swish, stride
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
    (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1),
    (5, 960, 160, 1, 1, 1),
]  # fmt: skip


def mobilenet3(side: int = 224) -> Net:
    """Howard et al. 2019, table 1 (large); for 32 x 32 inputs the first two strides of two are one."""
    net = Net("mobilenetv3")
    large = side > 64
    x = net.act(net.conv_norm(net.input(3, side, side), 16, 3, stride=2 if large else 1), "HardSwish")
    for kernel, middle, out, squeeze, hard, stride in MOBILENET3:
        kind = "HardSwish" if hard else "Relu"
        step = stride if large or middle != 64 else 1
        y = x if middle == x.shape[0] else net.act(net.conv_norm(x, middle, 1), kind)
        y = net.act(net.conv_norm(y, middle, kernel, stride=step, groups=middle), kind)
        if squeeze:
            y = _excited(net, y, _eighth(middle / 4), net.act, "HardSigmoid")
        y = net.conv_norm(y, out, 1)
        x = net.add(x, y) if x.shape == y.shape else y
    x = net.average(net.act(net.conv_norm(x, 960, 1), "HardSwish"))
    x = net.act(net.linear(net.flat(x), 1280), "HardSwish")
    net.output(net.linear(x, 1000 if large else 10))
    return net


def efficientnet(side: int = 224) -> Net:
    """Tan and Le 2019, table 1 (B0); for 32 x 32 inputs the first two strides of two are one."""
    net = Net("efficientnetb0")
    large = side > 64
    x = net.swish(net.conv_norm(net.input(3, side, side), 32, 3, stride=2 if large else 1))
    plan = [
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]  # fmt: skip
    for expand, out, count, stride, kernel in plan:
        for number in range(count):
            step = stride if number == 0 and (large or out != 24) else 1
            y, middle = x, expand * x.shape[0]
            if expand > 1:
                y = net.swish(net.conv_norm(y, middle, 1))
            y = net.swish(net.conv_norm(y, middle, kernel, stride=step, groups=middle))
            y = net.conv_norm(_excited(net, y, max(1, x.shape[0] // 4), net.swish, "Sigmoid"), out, 1)
            x = net.add(x, y) if x.shape == y.shape else y
    return classified(net, net.swish(net.conv_norm(x, 1280, 1)), 1000 if large else 10)


def mnasnet() -> Net:
    """Tan et al. 2019, figure 7, in the form without squeeze and excitation (B1)."""
    net = Net("mnasnet")
    x = net.block(net.input(3, 224, 224), 32, 3, stride=2)
    x = net.conv_norm(net.block(x, 32, 3, groups=32), 16, 1)
    plan = [
        (3, 24, 3, 2, 3),
        (3, 40, 3, 2, 5),
        (6, 80, 3, 2, 5),
        (6, 96, 2, 1, 3),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]
    for expand, out, count, stride, kernel in plan:
        for number in range(count):
            middle = expand * x.shape[0]
            y = net.block(x, middle, 1)
            y = net.block(y, middle, kernel, stride=1 if number else stride, groups=middle)
            y = net.conv_norm(y, out, 1)
            x = net.add(x, y) if x.shape == y.shape else y
    return classified(net, net.block(x, 1280, 1))


def densenet() -> Net:
    """Huang et al. 2017, table 1 (DenseNet-121, growth 32)."""
    net = Net("densenet121")
    x = net.pool(net.block(net.input(3, 224, 224), 64, 7, stride=2), 3, 2, 1)
    for stage, layers in enumerate((6, 12, 24, 16)):
        if stage:
            x = net.conv(net.act(net.norm(x)), x.shape[0] // 2, 1)
            x = net.pool(x, 2, 2, op="AveragePool")
        for _ in range(layers):
            y = net.conv(net.act(net.norm(x)), 128, 1)
            x = net.concat(x, net.conv(net.act(net.norm(y)), 32, 3))
    return classified(net, net.act(net.norm(x)))


def squeezenet() -> Net:
    """Iandola et al. 2016, section 3.3, in its later form with early pooling (1.1)."""
    net = Net("squeezenet")

    def fire(x: Tensor, squeezed: int, expanded: int) -> Tensor:
        y = net.act(net.conv(x, squeezed, 1, bias=True))
        return net.concat(*(net.act(net.conv(y, expanded, kernel, bias=True)) for kernel in (1, 3)))

    x = net.act(net.conv(net.input(3, 224, 224), 64, 3, 2, 0, bias=True))
    x = net.pool(x, 3, 2, up=True)
    x = net.pool(fire(fire(x, 16, 64), 16, 64), 3, 2, up=True)
    x = net.pool(fire(fire(x, 32, 128), 32, 128), 3, 2, up=True)
    for width in (48, 48, 64, 64):
        x = fire(x, width, 4 * width)
    net.output(net.flat(net.average(net.act(net.conv(x, 1000, 1, bias=True)))))
    return net


def shufflenet2() -> Net:
    """Ma et al. 2018, table 5 (1.0x): half of the channels pass, then the halves are shuffled."""
    net = Net("shufflenetv2")
    x = net.pool(net.block(net.input(3, 224, 224), 24, 3, stride=2), 3, 2, 1)

    def branch(y: Tensor, out: int, stride: int) -> Tensor:
        y = net.block(y, out, 1)
        return net.block(net.conv_norm(y, out, 3, stride=stride, groups=out), out, 1)

    for out, count in ((116, 4), (232, 8), (464, 4)):
        half = out // 2
        for number in range(count):
            if number:
                kept, rest = net.split(x, half, half)
                x = net.concat(kept, branch(rest, half, 1))
            else:
                side = net.conv_norm(x, x.shape[0], 3, stride=2, groups=x.shape[0])
                x = net.concat(net.block(side, half, 1), branch(x, half, 2))
            _, height, width = x.shape
            shuffled = net.transpose(net.reshape(x, 2, half, height, width), 2, 1, 3, 4)
            x = net.reshape(shuffled, out, height, width)
    return classified(net, net.block(x, 1024, 1))


def dpn92() -> Net:
    """Chen et al. 2017, table 1: a residual path and a dense path side by side; normalised before each convolution."""
    net = Net("dpn92")

    def conv(x: Tensor, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Tensor:
        return net.conv(net.act(net.norm(x)), out, kernel, stride, groups=groups)

    x = net.pool(net.block(net.input(3, 224, 224), 64, 7, stride=2), 3, 2, 1)
    for stage, (blocks, more) in enumerate(((3, 16), (4, 32), (20, 24), (3, 128))):
        out, middle = 256 << stage, 96 << stage
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            if number == 0:
                residual, dense = net.split(conv(x, out + 2 * more, 1, stride), out, 2 * more)
            y = conv(conv(x, middle, 1), middle, 3, stride, 32)
            summed, grown = net.split(conv(y, out + more, 1), out, more)
            residual, dense = net.add(residual, summed), net.concat(dense, grown)
            x = net.concat(residual, dense)
    return classified(net, net.act(net.norm(x)))


def pyramidnet(depth: int = 110, widening: int = 48) -> Net:
    """Han et al. 2017: every block is a little wider; the shortcut's missing channels are zeros. For CIFAR-10."""
    net = Net("pyramidnet")
    blocks = (depth - 2) // 6
    x = net.norm(net.conv(net.input(3, 32, 32), 16, 3))
    for number in range(3 * blocks):
        out = int(16 + widening * (number + 1) / (3 * blocks))
        stride = 2 if number in (blocks, 2 * blocks) else 1
        y = net.conv(net.norm(x), out, 3, stride)
        y = net.norm(net.conv(net.act(net.norm(y)), out, 3))
        short = x if stride == 1 else net.pool(x, 2, 2, op="AveragePool")
        zeros = net.constant([0, 0, 0, 0, 0, out - x.shape[0], 0, 0])
        x = net.add(y, net.node("Pad", [short, zeros], y.shape))
    return classified(net, net.act(net.norm(x)), 10)
