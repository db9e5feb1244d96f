"""What one ONNX operator costs: arithmetic from its shapes, what it moves, and what training keeps of it.

A multiply-add counts as two FLOPs and exp, erf, sqrt and the like as one, so a published count of multiply-adds
(often called "FLOPs", or MACs) is about half of ours. Normalisations count as in training, where statistics are
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One operator with what is known of its inputs and outputs; None: left out, or of unknown shape."""

    op: str
    attributes: Mapping[str, Any]
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]

    def input(self, index: int) -> Shape | None:
        """Shape of an input; None also where the operator has no such input."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def size_in(self) -> int:
        """Elements of the first input; 0 if unknown."""
        return size(self.input(0))

    @property
    def size_out(self) -> int:
        """Elements of the first output; 0 if unknown."""
        return size(self.outputs[0]) if self.outputs else 0


def size(shape: Shape | None) -> int:
    """Elements of a tensor; 0 if its shape is unknown."""
    return 0 if shape is None else prod(shape)


#: The output is the input under another shape: nothing runs and nothing is stored.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
#: Known as soon as the shapes are; a graph computes shapes with them.
OF_SHAPES = frozenset({"Shape", "Size"})
#: Values that come from nowhere, but anew in each pass.
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
#: Moved or chosen, not computed.
MOVES = RANDOM | frozenset(
    {
        "Cast", "CastLike", "CenterCropPad", "Compress", "Concat", "ConstantOfShape", "DepthToSpace", "Expand",
        "EyeLike", "Gather", "GatherElements", "GatherND", "NonZero", "OneHot", "Pad", "Range", "ReverseSequence",
        "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Tile", "Transpose", "Trilu",
        "Unique", "Where",
    }
)  # fmt: skip
#: Of their first input these read only what they give out.
READ_WHAT_THEY_GIVE = frozenset({"Compress", "Gather", "GatherElements", "GatherND", "Slice", "Split"})
#: FLOPs per element of the output.
ELEMENTWISE = {
    **dict.fromkeys(
        (
            "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd",
            "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Cos", "Cosh", "Div", "Dropout", "Equal", "Erf", "Exp",
            "Floor", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Mod", "Mul",
            "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Tan",
            "Tanh", "ThresholdedRelu", "Xor",
        ),
        1,
    ),
    **dict.fromkeys(("Clip", "LeakyRelu", "PRelu", "Shrink", "Softsign"), 2),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), 2),
    **dict.fromkeys(("Elu", "Softplus"), 3),
    **dict.fromkeys(("Celu", "HardSigmoid", "Selu", "Sigmoid"), 4),
    **dict.fromkeys(("Gelu", "HardSwish", "LogSoftmax", "Mish", "Softmax", "Swish"), 5),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "InstanceNormalization"), 8),
    **dict.fromkeys(("LayerNormalization", "LpNormalization", "MeanVarianceNormalization"), 8),
    "RMSNormalization": 5,
}  # fmt: skip
#: FLOPs per element of the input.
REDUCTIONS = {
    **dict.fromkeys(("ArgMax", "ArgMin", "CumSum", "GlobalAveragePool", "GlobalMaxPool", "Hardmax"), 1),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "TopK"), 1),
    **dict.fromkeys(("GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"), 2),
    "ReduceLogSumExp": 2,
}
#: With integers these are index arithmetic: no floating-point operation.
INDEX_ARITHMETIC = ELEMENTWISE.keys() | REDUCTIONS.keys() | {"Max", "Min", "Sum", "Mean"}
#: FLOPs per hidden unit and step beside the matrix products: gates and state, a function as in ELEMENTWISE.
RECURRENT = {"GRU": 2 * 4 + 1 + 5, "LSTM": 3 * 4 + 2 * 1 + 4, "RNN": 1}
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}

#: The gradient needs none of the inputs.
INPUTS_NOT_KEPT = (
    (MOVES - {"Where"}) | OF_SHAPES | VIEWS
    | {
        "Add", "And", "ArgMax", "ArgMin", "AveragePool", "Ceil", "Dropout", "Equal", "Exp", "Floor", "GlobalAveragePool",
        "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "LogSoftmax", "Mean", "Neg", "Not", "Or", "Reciprocal",
        "ReduceMean", "ReduceSum", "Relu", "Resize", "Round", "Sigmoid", "Sign", "Softmax", "Sqrt", "Sub", "Sum",
        "Tanh", "Upsample", "Xor",
    }
)  # fmt: skip
#: The gradient needs the output.
OUTPUT_KEPT = frozenset(
    {"Exp", "GRU", "LogSoftmax", "LSTM", "RNN", "Reciprocal", "Relu", "Sigmoid", "Softmax", "Sqrt", "Tanh"}
)


def known(op: str) -> bool:
    """There is a rule for the operator."""
    return any(op in rules for rules in (VIEWS, OF_SHAPES, MOVES, ELEMENTWISE, REDUCTIONS, RULES))


def flops(call: Call) -> int:
    """FLOPs of one run; an operator without a rule counts as elementwise, one an output element."""
    if call.op in VIEWS or call.op in OF_SHAPES or call.op in MOVES:
        return 0
    if call.op in RULES:
        return RULES[call.op](call)
    if call.op in REDUCTIONS:
        return REDUCTIONS[call.op] * call.size_in
    return ELEMENTWISE.get(call.op, 1) * call.size_out


def kept_inside(call: Call) -> int:
    """Elements that training keeps and that are no output: gates of a recurrent operator and its cell states."""
    extra = {"LSTM": 5, "GRU": 4}.get(call.op, 0)
    steps = prod((call.input(0) or (0,))[:2])
    return extra * steps * _directions(call) * _hidden(call) if extra else 0


def _convolution(call: Call, weight: int = 1, bias: int = 2) -> int:
    """Each output element: the products of its window over the channels of its group, and the bias."""
    window = prod((call.input(weight) or (0, 0))[1:])
    return call.size_out * (2 * window + (call.input(bias) is not None))


def _transposed_convolution(call: Call) -> int:
    """Each input element meets the whole window of its group's outputs; and the bias."""
    window = prod((call.input(1) or (0, 0))[1:])
    return 2 * call.size_in * window + (call.size_out if call.input(2) is not None else 0)


def _gemm(call: Call) -> int:
    a = call.input(0) or (0, 0)
    inner = a[0] if call.attributes.get("transA") else a[-1]
    return call.size_out * (2 * inner + (call.input(2) is not None))


def _matmul(call: Call) -> int:
    return 2 * call.size_out * (call.input(0) or (0,))[-1]


def _einsum(call: Call) -> int:
    """One multiply-add for each combination of the letters; more than two operands: a product for each further."""
    equation = call.attributes["equation"]
    equation = (equation.decode() if isinstance(equation, bytes) else equation).replace(" ", "")
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, call.inputs, strict=False):
        if shape is None:
            return 0
        for letter, extent in zip(_letters(term, len(shape)), shape, strict=False):
            sizes[letter] = max(extent, sizes.get(letter, 1))
    return prod(sizes.values()) * (2 * (len(terms) - 1) or 1)


def _letters(term: str, rank: int) -> list[str]:
    """The indices of one operand; an ellipsis stands for numbered ones, counted from the right."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    free = rank - len(before) - len(after)
    return [*before, *(f"{n}" for n in reversed(range(free))), *after]


def _directions(call: Call) -> int:
    return (call.input(1) or (0,))[0]


def _hidden(call: Call) -> int:
    return (call.input(2) or (0,))[-1]


def _recurrent(call: Call) -> int:
    """Products with the input's and the state's weights, then gates, in each step, direction and sequence."""
    steps = prod((call.input(0) or (0,))[:2])
    products = 2 * (size(call.input(1)) + size(call.input(2))) + size(call.input(3))
    gates = GATES[call.op] + RECURRENT[call.op]  # the two products of a gate are added
    return steps * (products + gates * _directions(call) * _hidden(call))


def _attention(call: Call) -> int:
    """Scores of each query with each key, their softmax, and the mix of values; heads are a dimension, or stated."""
    queries, keys, past = call.input(0), call.input(1), call.input(4)
    given = call.outputs[0]
    if queries is None or keys is None or given is None or len(queries) < 3:
        return 0
    heads = queries[1] if len(queries) == 4 else call.attributes.get("q_num_heads", 1)
    seen = keys[-2] + (past[-2] if past is not None else 0)
    return seen * (
        2 * size(queries) + 2 * size(given) + ELEMENTWISE["Softmax"] * queries[0] * heads * queries[-2]
    )


def _pool(call: Call) -> int:
    return call.size_out * prod(call.attributes.get("kernel_shape", ()))


def _combined(call: Call) -> int:
    """Sum, Max and the like of several tensors."""
    return call.size_out * max(1, len(call.inputs) - 1)


def _resize(call: Call) -> int:
    """Nearest copies; linear weighs two neighbours in each resized dimension and cubic four."""
    mode = call.attributes.get("mode", b"nearest")
    taps = {"linear": 2, "cubic": 4}.get(mode.decode() if isinstance(mode, bytes) else mode)
    source, target = call.input(0), call.outputs[0]
    if taps is None or source is None or target is None:
        return 0
    neighbours = taps ** sum(a != b for a, b in zip(source, target, strict=False))
    return call.size_out * (2 * neighbours - 1)


def _local_response(call: Call) -> int:
    """Squares of a window of channels, their sum, and a power and a quotient."""
    return call.size_out * (2 * int(call.attributes.get("size", 1)) + 3)


RULES: dict[str, Callable[[Call], int]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "Conv": _convolution,
    "ConvInteger": lambda call: _convolution(call, bias=4),
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LRN": _local_response,
    "LSTM": _recurrent,
    "LpPool": lambda call: 2 * _pool(call),
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Max": _combined,
    "MaxPool": _pool,
    "Mean": _combined,
    "Min": _combined,
    "QLinearConv": lambda call: _convolution(call, weight=3, bias=8),
    "QLinearMatMul": _matmul,
    "RNN": _recurrent,
    "Resize": _resize,
    "Sum": _combined,
    "Upsample": _resize,
}
