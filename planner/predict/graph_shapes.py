"""Shapes of an ONNX graph's values, as far as they can be told.

onnx infers most of them. What it leaves open is worked out here where the graph computes it from shapes (exporters
write a flattening as a chain of Shape, Gather, Div and Concat), and guessed for operators that onnx does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from planner.errors import InputError
from planner.predict.operators import OF_SHAPES, Shape, known, size

if TYPE_CHECKING:
    import onnx

ACCEPTED = "a model file written by an ONNX exporter"
#: Tensors up to this many elements may decide shapes and are read.
SMALL = 1024
#: Each pass settles at least one operator in a chain of those that onnx does not know.
PASSES = 100
#: Operators of which graphs compute shapes; none of them makes much out of little.
FOLDED = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Floor", "Gather", "Greater",
        "Identity", "Less", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMin", "ReduceProd",
        "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all that its operators hold: branches and loop bodies."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that an operator holds."""
    found = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.HasField("g") else []
        found += attribute.graphs
    return found


def inferred(model: onnx.ModelProto, said: Mapping[str, onnx.ValueInfoProto], where: str) -> onnx.ModelProto:
    """The model with all shapes that onnx can tell; operators that it does not know pass their input's on."""
    from onnx import helper, shape_inference

    domains = {entry.domain for entry in model.opset_import}
    for domain in sorted({node.domain for node in model.graph.node} - domains - {""}):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    tried: set[str] = set()
    for _ in range(PASSES):
        try:
            model = shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
        except Exception as error:  # onnx raises its own kinds, RuntimeError or ValueError, by its version
            reason = " ".join(str(error).split())[:200]
            raise InputError(where, f"onnx cannot follow its shapes: {reason}", ACCEPTED) from None
        if _all_known(model.graph):
            break
        if _folded(model):
            continue
        guesses = _guesses(model.graph, said, tried)
        if not guesses:
            break
        tried |= {value.name for value in guesses}
        model.graph.value_info.extend(guesses)
    return model


def _all_known(graph: onnx.GraphProto) -> bool:
    values, wanted = types(graph), used(graph)
    return all(
        values.get(name, (0, None))[1] is not None
        for node in graph.node
        for name in node.output
        if name in wanted
    )


def _folded(model: onnx.ModelProto) -> int:
    """Work out what the graph computes from shapes, as far as onnx has not; how many operators became constants."""
    from onnx import helper, numpy_helper

    values = types(model.graph)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    count = 0
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    constants[node.output[0]] = numpy_helper.to_array(attribute.t)
            continue
        result = _evaluated(model, node, constants, values)
        if result is not None:
            constants[node.output[0]] = result
            tensor = numpy_helper.from_array(result, node.output[0])
            node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=tensor))
            count += 1
    return count


def _evaluated(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    constants: Mapping[str, np.ndarray],
    values: Mapping[str, tuple[int, Shape | None]],
) -> np.ndarray | None:
    """What one small operator gives; None if its inputs are not known."""
    if node.op_type not in FOLDED or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
        return None
    feeds: dict[str, np.ndarray] = {name: constants[name] for name in node.input if name in constants}
    shape = values.get(node.input[0], (0, None))[1] if node.op_type in OF_SHAPES else None
    if shape is not None:
        # Only the shape is looked at, and this array of any size takes no room.
        feeds = {node.input[0]: np.broadcast_to(np.float32(0), shape)}
    elif node.op_type == "ConstantOfShape" and any(prod(map(int, f.flat)) > SMALL for f in feeds.values()):
        return None
    if len(feeds) < len({name for name in node.input if name}):
        return None
    result = _run(node, feeds, model)
    return result if result is not None and result.size <= SMALL else None


def _run(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], model: onnx.ModelProto) -> np.ndarray | None:
    """Run one operator by onnx's own reference; None where it cannot."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    anything = helper.make_tensor_type_proto(0, None)
    inputs = [helper.make_value_info(name, anything) for name in feeds]
    graph = helper.make_graph([node], "one", inputs, [helper.make_value_info(node.output[0], anything)])
    try:
        one = helper.make_model(graph, opset_imports=list(model.opset_import))
        with np.errstate(all="ignore"):
            return np.asarray(next(iter(ReferenceEvaluator(one).run(None, dict(feeds)))))
    except Exception:  # the reference raises whatever its operators do; what it cannot tell stays open
        return None


def _guesses(
    graph: onnx.GraphProto, said: Mapping[str, onnx.ValueInfoProto], tried: set[str]
) -> list[onnx.ValueInfoProto]:
    """Shapes where onnx has none: what the file says, else what the operator's kind suggests."""
    from onnx import helper

    values = types(graph)
    found = []
    for node in graph.node:
        missing = [name for name in node.output if name and values.get(name, (0, None))[1] is None]
        for name in missing if not tried.issuperset(missing) else ():
            if name in said:
                found.append(said[name])
                continue
            kind, shape = _suggested(node, list(node.output).index(name), values)
            if shape is not None:
                found.append(helper.make_tensor_value_info(name, kind, shape))
    return found


def _suggested(
    node: onnx.NodeProto, index: int, values: Mapping[str, tuple[int, Shape | None]]
) -> tuple[int, Shape | None]:
    """A loop gives what its body carries on; operators that onnx does not know are like their first input."""
    if node.op_type == "Loop" and index < len(node.input) - 2:
        body = bodies(node)[0]
        return types(body).get(body.output[1 + index].name, (0, None))
    foreign = not known(node.op_type) or node.domain not in ("", "ai.onnx")
    if node.input and (foreign or node.op_type.endswith("Normalization")):
        return values.get(node.input[0], (0, None))
    return 0, None


def types(graph: onnx.GraphProto) -> dict[str, tuple[int, Shape | None]]:
    """Element type and shape of each value of a graph; None for a shape that is not known whole."""
    found: dict[str, tuple[int, Shape | None]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if found.get(value.name, (0, None))[1] is None:
            found[value.name] = (value.type.tensor_type.elem_type, whole_shape(value))
    return found | {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}


def whole_shape(value: onnx.ValueInfoProto) -> Shape | None:
    tensor = value.type.tensor_type
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    return dims if tensor.HasField("shape") and min(dims, default=0) >= 0 else None


def used(graph: onnx.GraphProto) -> set[str]:
    """Names that something looks at; a Dropout's mask, for one, often is not."""
    inside = {name for part in graphs(graph) for node in part.node for name in node.input}
    return inside | {value.name for value in graph.output}


def consistent(graph: onnx.GraphProto) -> bool:
    """Every output that is used has a shape, and every Reshape keeps the number of elements."""
    values = {name: shape for name, (_, shape) in types(graph).items()}
    reshapes = [node for node in graph.node if node.op_type == "Reshape"]
    return _all_known(graph) and all(
        size(values.get(node.input[0])) == size(values.get(node.output[0])) for node in reshapes
    )
