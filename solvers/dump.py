"""A problem to one file and back, so that what an engine once did can be done again elsewhere.

A problem holds a function for its interference rows; the file holds the rows themselves, all that any engine
could ask for if they are few, and otherwise those asked for so far. A loaded problem answers from these and
raises for any other, rather than inventing a slowdown. The file is an ``.npz`` of plain arrays, one of which
is text in JSON; no part of it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from itertools import combinations_with_replacement
from math import comb
from pathlib import Path
from typing import Any, cast

import numpy as np

from solvers.problem import Budget, Interference, Placed, Problem

SCHEMA = "solvers.problem/1"
#: More rows than this are not built only to be saved.
MOST_ROWS = 20_000

_ARRAYS = tuple(f.name for f in fields(Problem) if f.type == "np.ndarray")
_PLAIN = tuple(f.name for f in fields(Problem) if f.name not in (*_ARRAYS, "interference"))


def save(problem: Problem, path: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a problem, with words of JSON ``about`` it; a file is there whole or not at all."""
    rows = _rows(problem)
    text = {
        "schema": SCHEMA,
        "about": dict(about or {}),
        "interference": {"types": problem.interference.types, "models": problem.interference.models}
        | {"worst_milli": problem.interference.worst_milli},
        "plain": {name: getattr(problem, name) for name in _PLAIN},
    }
    arrays = {name: getattr(problem, name) for name in _ARRAYS}
    longest = max((len(co) for _, co in rows), default=0)
    arrays["row_key"] = np.array(
        [(model, *co, *[-1] * (longest - len(co))) for model, co in rows], np.int64
    ).reshape(len(rows), 1 + longest)
    arrays["row_milli"] = np.array(list(rows.values()), np.int64).reshape(
        len(rows), problem.interference.types
    )
    arrays["text"] = np.frombuffer(json.dumps(text, default=_jsonable).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path) -> Problem:
    """The problem in a file; ValueError says in one line what is wrong with a file that holds none."""
    try:
        arrays, text = _read(path)
        values: dict[str, Any] = {name: arrays[name] for name in _ARRAYS} | text["plain"]
        values["home"] = placement(values["home"])
        values["never"] = tuple((i, j) for i, j in values["never"])
        values["budgets"] = tuple(map(_budget, values["budgets"]))
        return Problem(**values, interference=_interference(arrays, **text["interference"]))
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: not a saved problem: {what}") from error


def about(path: Path) -> dict[str, Any]:
    """The words that were saved with a problem."""
    words: dict[str, Any] = _read(path)[1]["about"]
    return words


def digest(problem: Problem) -> str:
    """A name for a problem's arrays; two problems of one name differ at most in their interference."""
    text = hashlib.sha256(json.dumps([getattr(problem, name) for name in _PLAIN], default=_jsonable).encode())
    for name in _ARRAYS:
        text.update(np.ascontiguousarray(getattr(problem, name)).tobytes())
    return text.hexdigest()


def placement(spots: list[list[int] | None]) -> Placed:
    """A placement from its JSON form."""
    return tuple(None if spot is None else tuple(spot) for spot in spots)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    text = json.loads(arrays.pop("text").tobytes())
    if text["schema"] != SCHEMA:
        raise ValueError(f"its schema is {text['schema']!r}, this version reads {SCHEMA!r}")
    return arrays, text


def _jsonable(value: object) -> object:
    """What JSON does not know: budgets, and NumPy's integers."""
    return asdict(value) if isinstance(value, Budget) else int(cast("int", value))


def _budget(values: dict[str, Any]) -> Budget:
    return Budget(**values | {"jobs": tuple(values["jobs"]), "amounts": tuple(values["amounts"])})


def _interference(
    arrays: dict[str, np.ndarray], *, types: int, models: int, worst_milli: int
) -> Interference:
    saved: dict[tuple[int, tuple[int, ...]], np.ndarray] = {
        (model, tuple(a for a in co if a >= 0)): row
        for (model, *co), row in zip(arrays["row_key"].tolist(), arrays["row_milli"], strict=True)
    }

    def row(model: int, co: tuple[int, ...]) -> np.ndarray:
        if (model, co) not in saved:
            raise LookupError(
                f"the slowdowns on kind {model} beside types {co} were not saved with the problem"
            )
        return saved[model, co]

    return Interference(types, models, row, worst_milli)


def _rows(problem: Problem) -> dict[tuple[int, tuple[int, ...]], np.ndarray]:
    """Every row that an engine could need, if they are few; those already built in any case."""
    crowds = [(model, *_crowd(problem, model)) for model in range(problem.interference.models)]
    count = sum(comb(len(types) + k - 1, k) for _, types, most in crowds for k in range(1, most + 1) if types)
    for model, co in _multisets(crowds) if count <= MOST_ROWS else ():
        problem.interference.row(model, co)
    return dict(sorted(problem.interference.kept().items()))


def _crowd(problem: Problem, model: int) -> tuple[list[int], int]:
    """The types that may run on a kind beside others, and how many others a job there can have at most."""
    shares = (problem.speed_milli[:, model] > 0) & (problem.job_gpus > 0)
    tenants = problem.gpu_max_tenants[problem.gpu_kind == model].max(initial=0)
    # Residents may already be more than the limit admits.
    homes = [spot for j, spot in enumerate(problem.home) if spot and problem.job_gpus[j]]
    crowded = max((sum(g in spot for spot in homes) for g in {g for spot in homes for g in spot}), default=0)
    most = min(int(max(tenants, crowded + 1)), int(shares.sum())) - 1
    return np.unique(problem.job_type[shares]).tolist(), max(most, 0)


def _multisets(crowds: list[tuple[int, list[int], int]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for model, types, most in crowds:
        for k in range(1, most + 1):
            for co in combinations_with_replacement(types, k):
                yield model, co
