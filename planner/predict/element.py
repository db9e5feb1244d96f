"""ONNX element types: their names, which are floating, and how large one element is in a file and in training."""

from __future__ import annotations

import re
from math import prod

#: Values that are floating train as fp32, unless a job says otherwise.
FLOAT_BYTES = 4
NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "UNDEFINED": "unknown"}
#: Where the name does not end in the number of bits.
BITS = {"bool": 8, "complex64": 64, "complex128": 128}


def name(kind: int) -> str:
    """An element type in lower case, with its bits: float32, bfloat16, float8e4m3fn, int64."""
    from onnx import TensorProto

    known = TensorProto.DataType.Name(kind) if kind in TensorProto.DataType.values() else "UNDEFINED"
    return NAMES.get(known, known.lower())


def is_floating(kind: int) -> bool:
    """Also where the type is not known: most values of a model are."""
    return name(kind).startswith(("float", "bfloat", "complex", "unknown"))


def bits(kind: int) -> int:
    """Bits that a file needs for an element; 0 for text, and where the type is not known."""
    called = name(kind)
    digits = re.match(r"(?:b?float|u?int)(\d+)", called)
    return BITS.get(called) or (int(digits[1]) if digits else 0)


def stored_bytes(kind: int, dims: tuple[int, ...]) -> int:
    """Bytes of a tensor in a file; elements of less than a byte share one."""
    return (prod(dims) * bits(kind) + 7) // 8


def training_bytes(kind: int) -> int:
    """Bytes of one element while training."""
    return FLOAT_BYTES if is_floating(kind) else (bits(kind) + 7) // 8
