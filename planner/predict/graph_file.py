"""An ONNX model made ready for reading: shapes without unknowns, weights reduced to their dims.

Weights stay unread, in the file or beside it; only small tensors are looked at, because a Reshape's target or a Resize's
scale decides shapes. A dynamic dimension gets the size that the caller gives; a batch size that the file holds fixed is
replaced, and where the graph contradicts the new one (a Reshape with the old one inside), the features are scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.predict.graph_shapes import ACCEPTED, SMALL, consistent, graphs, inferred, whole_shape
from planner.predict.operators import Shape
from planner.quantities import shown

if TYPE_CHECKING:
    import onnx

#: protobuf's limit for one message; larger models keep their weights in other files.
LONGEST_RANGE = 10_000_000
MAX_BYTES = 2**31 - 1
#: How exporters call the batch dimension; it need not be the first.
BATCH_NAMES = frozenset({"b", "batch", "batch_size", "batchsize", "bs", "n"})


@dataclass
class Opened:
    """A model whose shapes are known as far as they can be.

    ``weights``: (element type, dims) of each; ``scale_to``: the batch size to scale to, if the graph refuses it.
    """

    proto: onnx.ModelProto
    batch: int
    weights: list[tuple[str, int, Shape]]
    scale_to: int | None = None


def opened(
    source: Path | str | onnx.ModelProto, batch: int | None, dims: Mapping[str, int], where: str
) -> Opened:
    """Read and prepare a model. Raises InputError as ``graph.features`` does."""
    for key, value in (("batch", batch), *dims.items()):
        if value is not None and value < 1:
            raise InputError(f"{where}: {key}", f"got {value}", "a whole number from 1")
    folder = Path(source).parent if isinstance(source, Path | str) else None
    model = _loaded(source, where)
    said = _forget_shapes(model.graph)
    _hoist_constants(model)
    weights = _set_weights_aside(model, folder, where)
    found, fixed = _set_dims(model.graph, batch, dims, where)
    if batch is None or found == batch:
        return Opened(inferred(model, said if fixed else {}, where), found, weights)
    other = inferred(_with_batch(model, found, batch), {}, where)
    if consistent(other.graph):
        return Opened(other, batch, weights)
    return Opened(inferred(model, said, where), found, weights, scale_to=batch)


def _loaded(source: Path | str | onnx.ModelProto, where: str) -> onnx.ModelProto:
    """A copy of the model, its own functions written out."""
    try:
        import onnx
        import onnx.inliner
    except ImportError:
        raise InputError(
            where,
            "ONNX files need the package onnx, which is not installed",
            "pip install onnx",
        ) from None
    model = onnx.ModelProto()
    if isinstance(source, Path | str):
        model = _parsed(Path(source), where)
    else:
        model.CopyFrom(source)
    if not model.graph.node:
        raise InputError(where, "the graph has no operators", ACCEPTED)
    _check_ranges(model.graph, where)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # a checker's, which onnx does not document
            raise InputError(where, f"its functions cannot be written out: {error}", ACCEPTED) from None
    return model


def _check_ranges(graph: onnx.GraphProto, where: str) -> None:
    """Refuse a Range of constants so long that inferring shapes, which makes it, would take all memory."""
    from onnx import numpy_helper

    constants = {t.name: t for t in graph.initializer if not t.external_data}
    constants |= {
        n.output[0]: n.attribute[0].t
        for n in graph.node
        if n.op_type == "Constant" and n.output and n.attribute
    }
    for node in graph.node:
        if node.op_type == "Range" and len(node.input) == 3 and all(i in constants for i in node.input):
            first, last, step = (float(numpy_helper.to_array(constants[i]).ravel()[0]) for i in node.input)
            if step and (last - first) / step > LONGEST_RANGE:
                raise InputError(
                    where,
                    f"an operator Range makes {(last - first) / step:.1e} numbers",
                    f"up to {LONGEST_RANGE:,}",
                )


def _parsed(path: Path, where: str) -> onnx.ModelProto:
    import onnx

    try:
        if path.is_dir():
            raise InputError(where, "it is a folder", ACCEPTED)
        if path.exists() and not path.is_file():
            raise InputError(where, "it is no regular file", ACCEPTED)
        if path.stat().st_size > MAX_BYTES:
            raise InputError(where, "it is larger than 2 GiB", "a model with its weights in other files")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(where, "no such file", ACCEPTED) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, reason[:1].lower() + reason[1:], "a file that can be read") from None
    if not data:
        raise InputError(where, "the file is empty", ACCEPTED)
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf's DecodeError, whose home differs by version
        raise InputError(where, "it is no ONNX model, or only a part of one", ACCEPTED) from None
    if model.ir_version < 1 or not model.HasField("graph"):
        raise InputError(where, "it holds no ONNX graph", ACCEPTED)
    return model


def _hoist_constants(model: onnx.ModelProto) -> None:
    """Constant operators with a tensor become initialisers: many exporters write weights so."""
    for graph in graphs(model.graph):
        rest = []
        for node in graph.node:
            tensors = [a.t for a in node.attribute if a.name == "value"] if node.op_type == "Constant" else []
            for tensor in tensors:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = node.output[0]
            if not tensors:
                rest.append(node)
        if len(rest) < len(graph.node):
            kept = [type(node).FromString(node.SerializeToString()) for node in rest]
            del graph.node[:]
            graph.node.extend(kept)


def _set_weights_aside(
    model: onnx.ModelProto, folder: Path | None, where: str
) -> list[tuple[str, int, Shape]]:
    """Name, element type and dims of all weights; the large ones leave the model, which knows their shapes still."""
    from onnx import helper

    found: list[tuple[str, int, Shape]] = []
    for graph in graphs(model.graph):
        small = []
        for tensor in graph.initializer:
            dims = tuple(tensor.dims)
            if min(dims, default=0) < 0:
                raise InputError(
                    f"{where}: {tensor.name}", f"its dims are {shown(dims)}", "whole numbers from 0"
                )
            found.append((tensor.name, tensor.data_type, dims))
            if tensor.data_location == tensor.EXTERNAL and _may_decide_shapes(tensor):
                _fetch(tensor, folder, where)
            if tensor.data_location != tensor.EXTERNAL and prod(dims) <= SMALL:
                small.append(tensor)
            else:
                graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))
        for sparse in graph.sparse_initializer:
            found.append((sparse.values.name, sparse.values.data_type, tuple(sparse.dims)))
        if len(small) < len(graph.initializer):
            kept = [type(tensor).FromString(tensor.SerializeToString()) for tensor in small]
            del graph.initializer[:]
            graph.initializer.extend(kept)
    return found


def _may_decide_shapes(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in (tensor.INT64, tensor.INT32) and prod(tensor.dims) <= SMALL


def _fetch(tensor: onnx.TensorProto, folder: Path | None, where: str) -> None:
    """Read a small tensor from the file beside the model."""
    from onnx.external_data_helper import load_external_data_for_tensor

    location = next((e.value for e in tensor.external_data if e.key == "location"), "")
    accepted = "a path to the model, with its data beside it"
    if folder is None:
        raise InputError(f"{where}: {tensor.name}", "its data is in another file", accepted)
    try:
        load_external_data_for_tensor(tensor, str(folder))
    except Exception:  # onnx raises its own kinds, OSError or ValueError, by its version
        raise InputError(
            f"{where}: {tensor.name}", f"its data, in {shown(location)}, cannot be read", accepted
        ) from None
    tensor.data_location = tensor.DEFAULT


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Inputs that are no weights; old files list those too."""
    weights = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.value_info}
    return [
        value for value in graph.input if value.name not in weights and value.type.HasField("tensor_type")
    ]


def _set_dims(
    graph: onnx.GraphProto, batch: int | None, dims: Mapping[str, int], where: str
) -> tuple[int, bool]:
    """Give dynamic dimensions their sizes; the batch size, and whether all were fixed before."""
    axes = [
        (value.name, axis, dim)
        for value in _inputs(graph)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    _check_shapes(graph, where)
    dynamic = [(name, axis, dim) for name, axis, dim in axes if dim.dim_value < 1]
    named = any(dim.dim_param.lower() in BATCH_NAMES for _, _, dim in dynamic)
    batched, used = False, set()
    for name, axis, dim in dynamic:
        key = dim.dim_param or f"{name}[{axis}]"
        is_batch = dim.dim_param.lower() in BATCH_NAMES or (axis == 0 and not (named and dim.dim_param))
        if key not in dims and (batch is None or not is_batch):
            raise InputError(
                f"{where}: input {shown(name)}",
                f"dimension {axis} ({key}) is dynamic",
                "--batch N" if is_batch else f"--dim {key}=N",
            )
        batched |= is_batch and key not in dims
        used.add(key)
        dim.dim_value = dims.get(key) or batch or 1
    if unused := sorted(dims.keys() - used):
        names = ", ".join(sorted(used)) or "none: every dimension is fixed"
        raise InputError(
            f"{where}: dimension {shown(unused[0])}", "the inputs have no such dynamic one", names
        )
    if batched and batch is not None:
        return batch, False
    return next((dim.dim_value for _, axis, dim in axes if axis == 0), batch or 1), not dynamic


def _check_shapes(graph: onnx.GraphProto, where: str) -> None:
    for value in _inputs(graph):
        if not value.type.tensor_type.HasField("shape"):
            raise InputError(
                f"{where}: input {shown(value.name)}", "it has no shape", "inputs with their dimensions"
            )


def _forget_shapes(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Drop what the file says of shapes inside, which other sizes of the inputs would contradict; and give it back."""
    said: dict[str, onnx.ValueInfoProto] = {}
    for part in graphs(graph):
        for value in (*part.value_info, *part.output):
            if whole_shape(value) is not None:
                said[value.name] = type(value).FromString(value.SerializeToString())
        del part.value_info[:]
        for output in part.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")
    return said


def _with_batch(model: onnx.ModelProto, found: int, batch: int) -> onnx.ModelProto:
    """A copy in which the inputs' first dimension has another size."""
    other = type(model).FromString(model.SerializeToString())
    for value in _inputs(other.graph):
        dim = value.type.tensor_type.shape.dim
        if dim and dim[0].dim_value == found:
            dim[0].dim_value = batch
    return other
