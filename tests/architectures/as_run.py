"""Architectures as two published collections of measurements ran them, where they are not the papers' own.

MISO (Li et al., SoCC 2022) trained Keras' examples; Lucid (Hu et al., ASPLOS 2023) trained PyTorch models. Written from what
their training programs set: sizes, lengths and widths. Sequences of free length have the data's mean length.
"""

from __future__ import annotations

from convolutional import _eighth, _excited
from layers import INT64, Net, Tensor


def time_series(length: int = 500, heads: int = 4, width: int = 256) -> Net:
    """A Transformer on one number a step (FordA): four blocks, heads of 256, inner convolutions of 4."""
    net = Net("timeseries")
    x = net.input(length, 1)
    for _ in range(4):
        y = net.layer_norm(_attended(net, x, heads, width))
        x = net.add(y, x)
        y = net.linear(net.act(net.linear(x, 4)), 1)
        x = net.add(net.layer_norm(y), x)
    mean = net.node("ReduceMean", [x, net.constant([2])], (length,), keepdims=0)
    net.output(net.linear(net.act(net.linear(mean, 128)), 2))
    return net


def _attended(net: Net, x: Tensor, heads: int, width: int) -> Tensor:
    """Attention whose heads have a width of their own."""
    length = x.shape[0]

    def project(*order: int) -> Tensor:
        return net.transpose(net.reshape(net.linear(x, heads * width), length, heads, width), *order)

    scores = net.matmul(project(2, 1, 3), project(2, 3, 1))
    scores = net.node("Div", [scores, net.scalar(width**0.5)], scores.shape)
    dropped = net.mul(net.act(scores, "Softmax", axis=-1), scores)  # dropout: a mask of the same size
    mixed = net.matmul(dropped, project(2, 1, 3))
    return net.linear(net.reshape(net.transpose(mixed, 2, 1, 3), length, heads * width), x.shape[-1])


def text_convolutions(length: int = 200) -> Net:
    """20 Newsgroups: words of 100 numbers, three convolutions of 128 over five words, pooled; 20,002 words."""
    net = Net("newsgroups")
    x = net.embedding(net.input(length, kind=INT64), net.weight(20_002, 100), 100)
    x = net.reshape(net.transpose(x, 2, 1), 100, length, 1)
    for last in (False, False, True):
        x = net.act(net.conv(x, 128, (5, 1), pad=0, bias=True))
        if last:
            x = net.node("GlobalMaxPool", [x], (128, 1, 1))
        else:
            rows = (x.shape[1] - 5) // 5 + 1
            x = net.node("MaxPool", [x], (128, rows, 1), kernel_shape=[5, 1], strides=[5, 1])
    net.output(net.linear(net.act(net.linear(net.flat(x), 128)), 20))
    return net


def message_passing(atoms: int = 24, bonds: int = 76, width: int = 64) -> Net:
    """Gilmer et al. 2017 on BBBP: four steps of an edge network and a GRU, then a Transformer layer; a sample is a molecule."""
    net = Net("mpnn")
    edges, x = net.input(bonds, 7), net.input(atoms, width)
    pairs = net.input(bonds, atoms)  # who is whose neighbour, one row a bond
    for _ in range(4):
        kernel = net.reshape(net.linear(edges, width * width), bonds, width, width)
        near = net.reshape(net.matmul(pairs, x), bonds, width, 1)
        message = net.reshape(net.matmul(kernel, near), bonds, width)
        x = _updated(net, net.matmul(net.transpose(pairs, 2, 1), message), x)
    x = net.layer_norm(net.add(x, _attended(net, x, 8, 64)))
    y = net.linear(net.act(net.linear(x, 512)), width)
    x = net.layer_norm(net.add(x, y))
    mean = net.node("ReduceMean", [x, net.constant([1])], (width,), keepdims=0)
    net.output(net.act(net.linear(net.act(net.linear(mean, 512)), 1), "Sigmoid"))
    return net


def _updated(net: Net, message: Tensor, state: Tensor) -> Tensor:
    """A GRU cell."""
    width = state.shape[-1]
    gate = net.act(net.add(net.linear(message, width), net.linear(state, width)), "Sigmoid")
    reset = net.act(net.add(net.linear(message, width), net.linear(state, width)), "Sigmoid")
    fresh = net.add(net.linear(message, width), net.mul(reset, net.linear(state, width)))
    return net.add(net.mul(gate, state), net.act(fresh, "Tanh"))


def speech(frames: int = 1000) -> Net:
    """DeepSpeech2 of Keras' example on LJSpeech: 193 bins, five bidirectional GRU layers of 512, 32 letters."""
    net = Net("speech")
    x = net.input(1, frames, 193)
    x = net.act(net.norm(net.conv(x, 32, (11, 41), (2, 2))))
    x = net.act(net.norm(net.conv(x, 32, (11, 21), (1, 2))))
    channels, steps, bins = x.shape
    x = net.reshape(net.transpose(x, 2, 1, 3), steps, channels * bins)
    for _ in range(5):
        x = net.recurrent(x, 512, op="GRU", both=True)
    x = net.act(net.linear(x, 1024))
    net.output(net.act(net.linear(x, 32), "Softmax", axis=-1))
    return net


SMALL_MOBILENET3 = [
    # kernel, expanded, out, squeeze, hard swish, stride
    (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
    (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
    (5, 576, 96, 1, 1, 1),
]  # fmt: skip


def mobilenet3_small() -> Net:
    """Howard et al. 2019, table 2 (small)."""
    net = Net("mobilenetv3small")
    x = net.act(net.conv_norm(net.input(3, 224, 224), 16, 3, stride=2), "HardSwish")
    for kernel, middle, out, squeeze, hard, stride in SMALL_MOBILENET3:
        kind = "HardSwish" if hard else "Relu"
        y = x if middle == x.shape[0] else net.act(net.conv_norm(x, middle, 1), kind)
        y = net.act(net.conv_norm(y, middle, kernel, stride=stride, groups=middle), kind)
        if squeeze:
            y = _excited(net, y, _eighth(middle / 4), net.act, "HardSigmoid")
        y = net.conv_norm(y, out, 1)
        x = net.add(x, y) if x.shape == y.shape else y
    x = net.average(net.act(net.conv_norm(x, 576, 1), "HardSwish"))
    net.output(net.linear(net.act(net.linear(net.flat(x), 1024), "HardSwish"), 1000))
    return net


def efficientnet_variant() -> Net:
    """The small EfficientNet that Lucid ran at 32 x 32: no stride in the stem, gates on the block's output."""
    net = Net("efficientnet")
    x = net.block(net.input(3, 32, 32), 32, 3)
    plan = [
        (1, 16, 1, 2),
        (6, 24, 2, 1),
        (6, 40, 2, 2),
        (6, 80, 3, 2),
        (6, 112, 3, 1),
        (6, 192, 4, 2),
        (6, 320, 1, 2),
    ]
    for expand, out, count, first in plan:
        for number in range(count):
            stride = 1 if number else first
            middle = expand * x.shape[0]
            y = net.block(net.block(x, middle, 1), middle, 3, stride=stride, groups=middle)
            y = net.conv_norm(y, out, 1)
            short = y
            if stride == 1:
                short = x if x.shape == y.shape else net.conv_norm(x, out, 1)
            x = net.add(_excited(net, y, out // 16, net.act, "Sigmoid"), short)
    net.output(net.linear(net.flat(x), 10))
    return net
