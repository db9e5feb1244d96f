"""Features of a deep-learning job from its ONNX graph, without running it.

Horus (Yeung et al., HotCloud 2020) predicts a job's GPU utilisation from its computation graph: FLOPs, parameters,
activations, batch size, number and kinds of operators. Only shapes are needed, so weights are never read: a model may
keep them in other files, or have none. One FLOP is one floating-point operation; a multiply-add is two. Values count
as 4 bytes (fp32) wherever they are floating, because that is how most jobs train; ``weight_bytes`` says what the
file holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.predict import element, operators
from planner.predict.graph_file import Opened, opened
from planner.predict.graph_shapes import ACCEPTED, bodies, graphs, types, used
from planner.quantities import counted

if TYPE_CHECKING:
    import onnx

#: Operators whose FLOPs are told apart; attention is two matrix products, mostly.
OPERATOR_KINDS = {
    "conv": ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"),
    "matmul": ("Attention", "Einsum", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"),
    "recurrent": ("GRU", "LSTM", "RNN"),
}


@dataclass(frozen=True)
class Features:
    """One forward pass at ``batch``; bytes are of fp32 values except in ``weight_bytes``.

    ``activation_bytes`` are the operators' outputs that the gradient needs, ``traffic_bytes`` what all operators
    read and write if nothing stays in a cache, and ``weight_traffic_bytes`` the part of it that does not grow with
    the batch. ``operators`` counts those that run something: one kernel launch each. ``depth`` is the longest path in
    such operators. ``operator_counts`` counts all, also those that only give a shape a new form.
    """

    batch: int
    flops: int
    flops_by_operator: dict[str, int]
    parameters: int
    parameter_bytes: int
    weight_bytes: dict[str, int]
    activation_bytes: int
    largest_activation_bytes: int
    input_bytes: int
    output_bytes: int
    traffic_bytes: int
    weight_traffic_bytes: int
    operators: int
    operator_counts: dict[str, int]
    depth: int
    unknown_operators: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def flop_shares(self) -> dict[str, float]:
        """Parts of the FLOPs in convolutions, matrix products, recurrent operators and all others; sum 1, or 0."""
        sums = dict.fromkeys((*OPERATOR_KINDS, "other"), 0)
        for op, value in self.flops_by_operator.items():
            sums[next((kind for kind, ops in OPERATOR_KINDS.items() if op in ops), "other")] += value
        return {kind: value / self.flops if self.flops else 0.0 for kind, value in sums.items()}

    def scaled(self, batch: int) -> Features:
        """The same pass with another batch size, where all but the weights grows with it."""

        def grown(value: int) -> int:
            return round(value * batch / self.batch)

        by_operator = {op: grown(value) for op, value in self.flops_by_operator.items()}
        return replace(
            self,
            batch=batch,
            flops=sum(by_operator.values()),
            flops_by_operator=by_operator,
            activation_bytes=grown(self.activation_bytes),
            largest_activation_bytes=grown(self.largest_activation_bytes),
            input_bytes=grown(self.input_bytes),
            output_bytes=grown(self.output_bytes),
            traffic_bytes=self.weight_traffic_bytes + grown(self.traffic_bytes - self.weight_traffic_bytes),
        )


def features(
    source: Path | str | onnx.ModelProto,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    where: str | None = None,
) -> Features:
    """Features of a model or of the file that holds it.

    Parameters
    ----------
    batch
        Samples in one pass. None: as the file says.
    dims
        Sizes of other dynamic dimensions, by name, or as ``input[axis]`` where the file does not name them.
    where
        What an error calls the model. None: its path.

    Raises
    ------
    InputError
        The file is no ONNX model, a dynamic dimension has no size, or nothing in it depends on an input.
    """
    where = where or (str(source) if isinstance(source, Path | str) else "the ONNX model")
    try:
        model = opened(source, batch=batch, dims=dict(dims or {}), where=where)
        found = _read(model)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        # protobuf checks little: names that are no text, operators that lack inputs, tensors that lack values.
        raise InputError(where, f"the graph is damaged: {error}", ACCEPTED) from None
    if found.operators == 0:
        raise InputError(where, "no operator computes anything from an input", "the graph of a model")
    if model.scale_to is None:
        return found
    note = f"the graph holds the batch size {found.batch} fixed: scaled linearly to {model.scale_to}"
    return replace(found.scaled(model.scale_to), notes=(*found.notes, note))


@dataclass(frozen=True)
class _Value:
    """A tensor. ``owner``: index of the operator's output that holds its memory, None for inputs and weights."""

    shape: operators.Shape | None
    itemsize: int  # bytes of one element in training
    floating: bool
    constant: bool  # the same in each pass once the shapes are known
    weight: bool = False
    depth: int = 0
    owner: int | None = None
    number: int | None = None  # what a whole number's tensor holds, as a loop's trip count

    @property
    def bytes(self) -> int:
        return operators.size(self.shape) * self.itemsize


@dataclass
class _Tally:
    """Sums over the operators seen so far."""

    flops: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unshaped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)  # bytes of each output of an operator
    kept: set[int] = field(default_factory=set)  # indices into outputs
    kept_inside: int = 0
    largest: int = 0
    traffic: int = 0
    weight_traffic: int = 0
    operators: int = 0


def _read(model: Opened) -> Features:
    """Walk the graph and add up."""
    graph = model.proto.graph
    found = types(graph)
    scope = {name: _weight(kind, dims) for name, kind, dims in model.weights}
    inputs = {v.name: _typed(found, v.name) for v in graph.input if v.name not in scope}
    tally = _Tally()
    depth = _walk(graph, scope | inputs, tally, times=1)
    if tally.unshaped:
        missing = counted(len(tally.unshaped), "value")
        tally.notes.append(f"{missing} of unknown shape counted as empty, first {tally.unshaped[0]}")
    trained = _parameters(model)
    return Features(
        batch=model.batch,
        flops=tally.flops.total(),
        flops_by_operator=_sorted(tally.flops),
        parameters=sum(prod(dims) for _, dims in trained),
        parameter_bytes=sum(element.stored_bytes(kind, dims) for kind, dims in trained),
        weight_bytes=_bytes_by_type(model),
        activation_bytes=sum(tally.outputs[index] for index in tally.kept) + tally.kept_inside,
        largest_activation_bytes=tally.largest,
        input_bytes=sum(value.bytes for value in inputs.values()),
        output_bytes=sum(_typed(found, value.name).bytes for value in graph.output),
        traffic_bytes=tally.traffic,
        weight_traffic_bytes=tally.weight_traffic,
        operators=tally.operators,
        operator_counts=_sorted(tally.counts),
        depth=depth,
        unknown_operators=_sorted(tally.unknown),
        notes=tuple(dict.fromkeys(tally.notes)),
    )


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return {name: counter[name] for name in sorted(counter) if counter[name]}


def _parameters(model: Opened) -> list[tuple[int, operators.Shape]]:
    """Type and dims of what training learns: tensors of floats, or of small integers from two dimensions on.

    Not scalars, which are constants, and not the running statistics of batch normalisation.
    """
    statistics = {
        name
        for graph in graphs(model.proto.graph)
        for node in graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    found = []
    for name, kind, dims in model.weights:
        quantised = len(dims) > 1 and element.name(kind).endswith(("int8", "int4", "int2"))
        if dims and name not in statistics and (element.is_floating(kind) or quantised):
            found.append((kind, dims))
    return found


def _bytes_by_type(model: Opened) -> dict[str, int]:
    found: Counter[str] = Counter()
    for _, kind, dims in model.weights:
        found[element.name(kind)] += element.stored_bytes(kind, dims)
    return _sorted(found)


def _weight(kind: int, dims: operators.Shape) -> _Value:
    floating = element.is_floating(kind)
    return _Value(
        dims, element.training_bytes(kind), floating, constant=True, weight=floating and len(dims) > 0
    )


def _typed(found: Mapping[str, tuple[int, operators.Shape | None]], name: str) -> _Value:
    kind, shape = found.get(name, (0, None))
    return _Value(shape, element.training_bytes(kind), element.is_floating(kind), constant=False)


def _walk(graph: onnx.GraphProto, scope: dict[str, _Value], tally: _Tally, times: int) -> int:
    """Add up the operators of a graph, which runs ``times``; its longest path."""
    found, wanted = types(graph), used(graph)
    scope.update(_numbers(graph))
    deepest = 0
    for node in graph.node:
        inputs = [scope.get(name) if name else None for name in node.input]
        given = [value for value in inputs if value is not None]
        outputs = [_typed(found, name) if name else None for name in node.output]
        held = bodies(node)
        free = not held and node.op_type not in operators.RANDOM
        if node.op_type in operators.OF_SHAPES or (free and all(value.constant for value in given)):
            outputs = [value and replace(value, constant=True) for value in outputs]
        else:
            depth = max((value.depth for value in given), default=0)
            tally.counts[node.op_type] += times
            tally.unshaped += [n for n in node.output if n in wanted and found.get(n, (0, None))[1] is None]
            if held:
                depth += _run_bodies(node, inputs, scope, tally, times)
                owners: Sequence[int | None] = [None] * len(outputs)
            elif node.op_type in operators.VIEWS and given:
                owners = [given[0].owner] * len(outputs)
            else:
                depth += 1
                owners = _run(node, inputs, outputs, tally, times)
            outputs = [
                value and replace(value, depth=depth, owner=owner)
                for value, owner in zip(outputs, owners, strict=True)
            ]
            deepest = max(deepest, depth)
        scope.update((n, v) for n, v in zip(node.output, outputs, strict=True) if v is not None)
    return deepest


def _run(
    node: onnx.NodeProto,
    inputs: Sequence[_Value | None],
    outputs: Sequence[_Value | None],
    tally: _Tally,
    times: int,
) -> list[int]:
    """Add one operator to the tally; where its outputs' memory is counted."""
    op = node.op_type
    call = _call(node, inputs, outputs)
    if not (operators.known(op) and node.domain in ("", "ai.onnx")):
        tally.unknown[op] += times
    computes = outputs[0] is None or outputs[0].floating or op not in operators.INDEX_ARITHMETIC
    tally.flops[op] += times * operators.flops(call) * computes
    tally.operators += times
    sizes = [0 if value is None else value.bytes for value in outputs]
    owners = list(range(len(tally.outputs), len(tally.outputs) + len(sizes)))
    tally.outputs += [times * size for size in sizes]
    tally.largest = max(tally.largest, *sizes, 0)
    tally.traffic += times * sum(sizes)
    for index, value in enumerate(inputs):
        if value is None:
            continue
        partly = index == 0 and op in operators.READ_WHAT_THEY_GIVE
        read = times * (sum(sizes) if partly else value.bytes)
        tally.traffic += read
        tally.weight_traffic += read if value.constant and not partly else 0
        if value.owner is not None and _gradient_needs(op, inputs, index):
            tally.kept.add(value.owner)
    if op in operators.OUTPUT_KEPT and owners:
        tally.kept.add(owners[0])
    tally.kept_inside += times * element.FLOAT_BYTES * operators.kept_inside(call)
    return owners


def _call(
    node: onnx.NodeProto, inputs: Sequence[_Value | None], outputs: Sequence[_Value | None]
) -> operators.Call:
    from onnx import helper

    attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    before, after = (
        tuple(None if value is None else value.shape for value in values) for values in (inputs, outputs)
    )
    return operators.Call(node.op_type, attributes, before, after)


def _gradient_needs(op: str, inputs: Sequence[_Value | None], index: int) -> bool:
    """Backward, an operator uses this input's value."""
    if op in ("Mul", "Div"):  # a factor that is not learnt needs no gradient
        other = inputs[1 - index]
        return other is None or other.weight or not other.constant
    return op not in operators.INPUTS_NOT_KEPT and (op != "Where" or index == 0)


def _run_bodies(
    node: onnx.NodeProto, inputs: Sequence[_Value | None], scope: dict[str, _Value], tally: _Tally, times: int
) -> int:
    """Add what an If, Loop or Scan holds; the longest path through it."""
    trips = _trips(node, inputs)
    if trips is None:
        tally.notes.append(f"{node.op_type}: each body counted once")
    deepest = 0
    for body in bodies(node):
        inner = {**scope, **{value.name: _typed(types(body), value.name) for value in body.input}}
        deepest = max(deepest, _walk(body, inner, tally, times * (trips or 1)) * (trips or 1))
        results = [inner[value.name].owner for value in body.output if value.name in inner]
        tally.kept.update(owner for owner in results if owner is not None)
    return deepest


def _numbers(graph: onnx.GraphProto) -> dict[str, _Value]:
    """The weights that are one whole number."""
    from onnx import numpy_helper

    return {
        tensor.name: replace(
            _weight(tensor.data_type, tuple(tensor.dims)), number=int(numpy_helper.to_array(tensor).item())
        )
        for tensor in graph.initializer
        if tensor.data_type in (tensor.INT64, tensor.INT32) and prod(tensor.dims) == 1
    }


def _trips(node: onnx.NodeProto, inputs: Sequence[_Value | None]) -> int | None:
    """How often a body runs, if the graph tells: a Loop's first input, the length of a Scan's last."""
    if node.op_type == "Loop" and inputs and inputs[0] is not None:
        return inputs[0].number
    attributes = {a.name: a for a in node.attribute}
    if node.op_type != "Scan" or not inputs or inputs[-1] is None or inputs[-1].shape is None:
        return None
    axes = attributes["scan_input_axes"].ints if "scan_input_axes" in attributes else ()
    return inputs[-1].shape[axes[-1] if axes else 0]
