"""A small language for architectures: layers in, an ONNX model with shapes and without weights out.

Shapes leave the batch out. Weights have dims and no values, because only shapes matter here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import onnx
from onnx import TensorProto, helper

OPSET = 20
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Tensor:
    """A value of the graph, and its shape without the batch."""

    name: str
    shape: tuple[int, ...]


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """The same in both dimensions, unless given for each."""
    return (value, value) if isinstance(value, int) else value


class Net:
    """A graph under construction; every method adds a layer and gives its output."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def model(self) -> onnx.ModelProto:
        """The graph so far."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

    def input(self, *shape: int, kind: int = FLOAT) -> Tensor:
        """An input with its batch in front."""
        name = f"input{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        return Tensor(name, shape)

    def output(self, x: Tensor) -> None:
        """Declare a result."""
        self.outputs.append(helper.make_tensor_value_info(x.name, FLOAT, ["batch", *x.shape]))

    def weight(self, *dims: int) -> str:
        """A learnt tensor, of which only the dims are given."""
        self.weights.append(TensorProto(name=f"w{len(self.weights)}", data_type=FLOAT, dims=dims))
        return self.weights[-1].name

    def constant(self, values: list[int] | list[float], kind: int = INT64) -> str:
        """A tensor of one dimension whose values matter."""
        self.weights.append(helper.make_tensor(f"c{len(self.weights)}", kind, [len(values)], values))
        return self.weights[-1].name

    def scalar(self, value: float) -> str:
        """A constant without dimensions."""
        self.weights.append(helper.make_tensor(f"c{len(self.weights)}", FLOAT, [], [value]))
        return self.weights[-1].name

    def node(
        self, op: str, inputs: list[Tensor | str], shape: tuple[int, ...], **attributes: object
    ) -> Tensor:
        """Any operator with one output."""
        name = f"t{len(self.nodes)}"
        names = [x.name if isinstance(x, Tensor) else x for x in inputs]
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        return Tensor(name, shape)

    # Convolutional

    def conv(
        self,
        x: Tensor,
        out: int,
        kernel: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        pad: int | tuple[int, int] | None = None,
        *,
        groups: int = 1,
        bias: bool = False,
    ) -> Tensor:
        """Convolution; pad None keeps the size at stride 1."""
        k, s = pair(kernel), pair(stride)
        p = (k[0] // 2, k[1] // 2) if pad is None else pair(pad)
        size = tuple((n + 2 * q - m) // t + 1 for n, q, m, t in zip(x.shape[1:], p, k, s, strict=True))
        weights = [self.weight(out, x.shape[0] // groups, *k), *([self.weight(out)] if bias else [])]
        return self.node(
            "Conv", [x, *weights], (out, *size), kernel_shape=k, strides=s, pads=[*p, *p], group=groups
        )

    def transposed(
        self, x: Tensor, out: int, kernel: int, stride: int, pad: int, more: int = 0, *, bias: bool = False
    ) -> Tensor:
        """Transposed convolution; ``more``: added to the output's size."""
        size = tuple((n - 1) * stride - 2 * pad + kernel + more for n in x.shape[1:])
        weights = [self.weight(x.shape[0], out, kernel, kernel), *([self.weight(out)] if bias else [])]
        return self.node(
            "ConvTranspose",
            [x, *weights],
            (out, *size),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            output_padding=[more] * 2,
        )

    def norm(self, x: Tensor) -> Tensor:
        """Batch normalisation."""
        return self.node("BatchNormalization", [x, *(self.weight(x.shape[0]) for _ in range(4))], x.shape)

    def instance_norm(self, x: Tensor) -> Tensor:
        """Instance normalisation."""
        return self.node("InstanceNormalization", [x, *(self.weight(x.shape[0]) for _ in range(2))], x.shape)

    def act(self, x: Tensor, op: str = "Relu", **attributes: object) -> Tensor:
        """An activation."""
        return self.node(op, [x], x.shape, **attributes)

    def relu6(self, x: Tensor) -> Tensor:
        """ReLU capped at 6."""
        return self.node("Clip", [x, self.scalar(0), self.scalar(6)], x.shape)

    def swish(self, x: Tensor) -> Tensor:
        """x times sigmoid(x)."""
        return self.mul(x, self.act(x, "Sigmoid"))

    def conv_norm(self, x: Tensor, out: int, kernel: int | tuple[int, int], **options: object) -> Tensor:
        """Convolution and batch normalisation."""
        return self.norm(self.conv(x, out, kernel, **options))  # type: ignore[arg-type]

    def block(self, x: Tensor, out: int, kernel: int | tuple[int, int], **options: object) -> Tensor:
        """Convolution, batch normalisation, ReLU."""
        return self.act(self.conv_norm(x, out, kernel, **options))

    def pool(
        self, x: Tensor, kernel: int, stride: int, pad: int = 0, *, op: str = "MaxPool", up: bool = False
    ) -> Tensor:
        """Pooling; ``up``: a window that is not full counts too."""
        rounded = ceil if up else int
        size = tuple(rounded((n + 2 * pad - kernel) / stride) + 1 for n in x.shape[1:])
        return self.node(
            op,
            [x],
            (x.shape[0], *size),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            ceil_mode=int(up),
        )

    def average(self, x: Tensor) -> Tensor:
        """The mean of each channel, one by one."""
        return self.node("GlobalAveragePool", [x], (x.shape[0], 1, 1))

    # Shapes and sums

    def flat(self, x: Tensor) -> Tensor:
        """One dimension."""
        return self.node("Flatten", [x], (prod(x.shape),), axis=1)

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        """Another shape of the same elements."""
        return self.node("Reshape", [x, self.constant([-1, *shape])], shape)

    def transpose(self, x: Tensor, *order: int) -> Tensor:
        """Dimensions in another order, counted with the batch as 0, which stays."""
        return self.node("Transpose", [x], tuple(x.shape[n - 1] for n in order), perm=[0, *order])

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Sum."""
        return self.node("Add", [a, b], max(a.shape, b.shape, key=prod))

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """Product, element by element."""
        return self.node("Mul", [a, b], max(a.shape, b.shape, key=prod))

    def concat(self, *parts: Tensor) -> Tensor:
        """Channels, or the first dimension, side by side."""
        first = sum(part.shape[0] for part in parts)
        return self.node("Concat", list(parts), (first, *parts[0].shape[1:]), axis=1)

    def join(self, *parts: Tensor) -> Tensor:
        """The last dimension side by side."""
        last = sum(part.shape[-1] for part in parts)
        return self.node("Concat", list(parts), (*parts[0].shape[:-1], last), axis=-1)

    def split(self, x: Tensor, *sizes: int) -> list[Tensor]:
        """Channels in parts."""
        name = f"t{len(self.nodes)}"
        parts = [Tensor(f"{name}_{n}", (size, *x.shape[1:])) for n, size in enumerate(sizes)]
        names = [part.name for part in parts]
        self.nodes.append(helper.make_node("Split", [x.name, self.constant(list(sizes))], names, axis=1))
        return parts

    # Dense and sequences

    def linear(self, x: Tensor, out: int, *, bias: bool = True) -> Tensor:
        """A dense layer on the last dimension."""
        if len(x.shape) == 1:
            weights = [self.weight(out, x.shape[0]), *([self.weight(out)] if bias else [])]
            return self.node("Gemm", [x, *weights], (out,), transB=1)
        y = self.node("MatMul", [x, self.weight(x.shape[-1], out)], (*x.shape[:-1], out))
        return self.node("Add", [y, self.weight(out)], y.shape) if bias else y

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Matrix product of the last two dimensions."""
        return self.node("MatMul", [a, b], (*a.shape[:-1], b.shape[-1]))

    def embedding(self, ids: Tensor, table: str, width: int) -> Tensor:
        """A row of the table for each index."""
        return self.node("Gather", [table, ids], (*ids.shape, width), axis=0)

    def layer_norm(self, x: Tensor) -> Tensor:
        """Layer normalisation of the last dimension."""
        dims = x.shape[-1]
        return self.node("LayerNormalization", [x, self.weight(dims), self.weight(dims)], x.shape, axis=-1)

    def attention(self, x: Tensor, memory: Tensor, heads: int) -> Tensor:
        """Multi-head attention (Vaswani et al. 2017) of x on memory."""
        width, per_head = x.shape[-1], x.shape[-1] // heads

        def project(source: Tensor, *order: int) -> Tensor:
            y = self.reshape(self.linear(source, width), source.shape[0], heads, per_head)
            return self.transpose(y, *order)

        scores = self.matmul(project(x, 2, 1, 3), project(memory, 2, 3, 1))
        scores = self.node("Div", [scores, self.scalar(per_head**0.5)], scores.shape)
        mixed = self.matmul(self.act(scores, "Softmax", axis=-1), project(memory, 2, 1, 3))
        return self.linear(self.reshape(self.transpose(mixed, 2, 1, 3), *x.shape), width)

    def recurrent(self, x: Tensor, hidden: int, *, op: str = "LSTM", both: bool = False) -> Tensor:
        """LSTM or GRU over the first dimension of x; its output of every step."""
        steps, width = x.shape
        directions, gates = 1 + both, {"LSTM": 4, "GRU": 3}[op]
        inner = self.node("Transpose", [x], x.shape, perm=[1, 0, 2])
        weights = [self.weight(directions, gates * hidden, size) for size in (width, hidden)]
        weights.append(self.weight(directions, 2 * gates * hidden))
        shape = (steps, directions, hidden)
        direction = "bidirectional" if both else "forward"
        y = self.node(op, [inner, *weights], shape, hidden_size=hidden, direction=direction)
        y = self.node("Transpose", [y], shape, perm=[2, 0, 1, 3])
        return self.reshape(y, steps, directions * hidden)
