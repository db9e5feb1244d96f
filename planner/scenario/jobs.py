"""Jobs of a scenario: from a table in a file of its own, and copies written out."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from planner.errors import InputError
from planner.model import Job, Throttle
from planner.quantities import refused, shown
from planner.scenario.complaints import Key, Loc, checked, dotted
from planner.scenario.files import COPIES_LIMIT, Copies, JobTable
from planner.scenario.text import read_plain
from planner.tables import nearest, read_csv

COLUMNS = tuple(Copies.model_fields)
FORMATS = ".csv, .parquet or .json"


def _types(annotation: Any) -> set[Any]:
    """The types that an annotation is made of, without what checks them."""
    if get_origin(annotation) is Annotated:
        return _types(get_args(annotation)[0])
    inner = [_types(argument) for argument in get_args(annotation)]
    return {get_origin(annotation) or annotation}.union(*inner)


def _columns(*types: Any) -> frozenset[str]:
    """The job's columns that hold one of the types."""
    return frozenset(k for k, f in Copies.model_fields.items() if _types(f.annotation) & set(types))


FLAGS = _columns(bool)
LISTS = _columns(tuple)
JSONS = _columns(dict, Throttle)
NUMBERS = _columns(int, float) - JSONS
ACCEPTED_LIST = 'values with ; between them (t4;a10), or a JSON list (["t4", "a10"])'


def read_jobs(path: Path) -> tuple[tuple[Job, ...], Key]:
    """The jobs of a CSV, Parquet or JSON file, and how to name a place in it; a blank cell means unknown.

    In a cell of text, several values have ``;`` between them or are a JSON list, and a mapping is JSON.
    """
    raw, key = _raw(path)
    return checked(JobTable, raw, str(path), key=key).root, key


def _raw(path: Path) -> tuple[list[Any], Key]:
    """What stands in each row."""
    kind = path.suffix.lower()
    if kind == ".csv":
        lines_and_rows = read_csv(path, needed=("id",), known=COLUMNS)
        lines = [line for line, _ in lines_and_rows]
        key = _in_table("line", lambda row: lines[row])
        return _cells(path, [row for _, row in lines_and_rows], key, COLUMNS), key
    if kind == ".parquet":
        key = _in_table("row", lambda row: row + 1)
        return _cells(path, _parquet(path), key, LISTS | JSONS), key
    if kind == ".json":
        raw = read_plain(path)
        if not isinstance(raw, list):
            raise InputError(str(path), f"got {shown(raw)}", "a list of jobs")
        return raw, dotted
    raise InputError(str(path), "not a table of jobs by its name", FORMATS)


def _cells(
    path: Path, rows: Sequence[Mapping[str, Any]], key: Key, columns: Container[str]
) -> list[dict[str, Any]]:
    """The rows with text in these columns as the values it stands for."""
    found: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        values = dict(row)
        for k, text in row.items():
            try:
                values[k] = _cell(k, text) if k in columns and isinstance(text, str) else text
            except ValueError as error:
                said, _, accepted = str(error).partition("; accepted: ")
                raise InputError(f"{path}: {key((i, k))}", said, accepted) from None
        found.append(values)
    return found


def _in_table(word: str, number: Callable[[int], int]) -> Key:
    """Say where in a table: ``line 3, gpus``."""

    def key(loc: Loc) -> str:
        if not loc or not isinstance(loc[0], int):
            return dotted(loc)
        column = dotted(loc[1:])
        return f"{word} {number(loc[0])}" + (f", {column}" if column else "")

    return key


def _cell(column: str, text: str) -> Any:
    """A CSV cell as the value it stands for; what is none stays text, for the column's own error."""
    if column in FLAGS:
        return {"true": True, "false": False}.get(text.lower(), text)
    if column in LISTS:
        return _list(text)
    if column in JSONS:
        return _json(text, text)
    return _number(text) if column in NUMBERS else text


def _json(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def _list(text: str) -> list[Any]:
    """Several values in one cell. Other signs between them are refused: ``t4,a10`` is no GPU model."""
    values = _json(text, None) if text.startswith("[") else [part.strip() for part in text.split(";")]
    if not isinstance(values, list) or (text[0] != "[" and ("," in text or "|" in text)):
        raise refused(text, ACCEPTED_LIST)
    return values


def _number(text: str) -> int | float | str:
    """A number if it is one; ``1500m`` and ``2h`` are for the column's own parser."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _parquet(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet file; null and NaN are unknown."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            columns: dict[str, list[Any]] = pq.read_table(file).to_pydict()
    except FileNotFoundError:
        raise InputError(str(path), "no such file") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition(". ")[0].rpartition("': ")[2]
        raise InputError(
            str(path), f"not Parquet: {reason[:120] or 'unreadable'}", "a Parquet file"
        ) from None
    if "id" not in columns:
        raise InputError(str(path), "no column id", "the columns id, ...")
    for name in columns:
        if name not in COLUMNS:
            raise InputError(str(path), f"unknown column {shown(name)}{nearest(name, COLUMNS)}")
    blank = dict.fromkeys(columns)
    rows = [dict(blank) for _ in columns["id"]]
    for name, cells in columns.items():
        for row, cell in zip(rows, cells, strict=True):
            row[name] = cell
    return [{k: v for k, v in row.items() if v is not None and v == v} for row in rows]


def copies(specs: Sequence[Job]) -> tuple[list[Job], list[int]]:
    """Every job written out, and for each the place of its spec.

    Raises
    ------
    ValueError
        If there would be more than the limit.
    """
    total = sum(spec.count if isinstance(spec, Copies) else 1 for spec in specs)
    if total > COPIES_LIMIT:
        raise ValueError(f"{total} jobs; accepted: at most {COPIES_LIMIT}")
    jobs: list[Job] = []
    origin: list[int] = []
    for i, spec in enumerate(specs):
        if isinstance(spec, Copies):
            told = {k: getattr(spec, k) for k in spec.model_fields_set if k != "count"}
            jobs += [Job(**{**told, "id": f"{spec.id}-{n}"}) for n in range(spec.count)]
            origin += [i] * spec.count
        else:
            jobs.append(spec)
            origin.append(i)
    return jobs, origin
