"""``jit``: compile a function and keep what was compiled, or leave it as it is where numba is not installed.

Where it is kept, see ``cache``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from solvers.kernels.cache import SWITCH, folder_of

#: Arrays of one axis that lie in one piece, as ``_signature`` knows them by name.
Ints = np.ndarray
Floats = np.ndarray
F = TypeVar("F", bound=Callable[..., Any])


def _numba() -> Any:
    """The compiler, told where to keep its work; None without it."""
    if os.environ.get(SWITCH):
        return None
    try:
        import numba
    except ImportError:
        return None
    return numba


NUMBA = _numba()
COMPILED = NUMBA is not None


def _signature(function: F) -> Any:
    """The types of the kernels' own annotations, so that each is compiled once; None where there are others."""
    names = {
        "Ints": NUMBA.int64[::1], "Floats": NUMBA.float64[::1], "int": NUMBA.int64, "float": NUMBA.float64,
        "bool": NUMBA.boolean, "None": NUMBA.void,
    }  # fmt: skip
    hints = dict(function.__annotations__)
    result = names.get(hints.pop("return", "None"))
    types = [names.get(hint) for hint in hints.values()]
    return None if result is None or None in types else result(*types)


def jit(function: F) -> F:
    """The function compiled, without Python's objects, and with division as numpy's: nobody divides by zero."""
    if NUMBA is None:
        return function
    signature, folder = (
        _signature(function),
        folder_of(Path(function.__code__.co_filename), NUMBA.__version__),
    )
    # Kernels that only touch arrays they are given need no reference counts.
    options = {"nogil": True, "error_model": "numpy", "_nrt": signature is None, "cache": folder is not None}
    before = NUMBA.config.CACHE_DIR
    NUMBA.config.CACHE_DIR = str(folder or "")
    try:
        return cast("F", NUMBA.njit(*([signature] if signature else []), **options)(function))
    finally:
        NUMBA.config.CACHE_DIR = before
