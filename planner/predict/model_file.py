"""A fitted model as a file: JSON, versioned, with what it was fitted on and how well it does.

A model from other units, of another kind or from a newer planner is refused with what was found and what is accepted;
nothing in such a file is ever run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from planner.errors import InputError
from planner.model import Noun
from planner.quantities import shown
from planner.tables import read_text

SCHEMA = "planner.model"
VERSION = 1
Kind = Literal["interference", "usage", "duration"]
#: What every number in a model and in the tables it was fitted on is measured in.
UNITS = {"memory": "MiB", "time": "s", "utilisation": "%", "slowdown": "run time beside / alone"}


class Training(Noun):
    """What a model was fitted on."""

    digest: str = Field(description="sha256 over the rows that were used")
    rows: int = Field(ge=0)
    files: tuple[str, ...] = Field((), description="names, without folders")
    about: str = Field("", description="where the rows come from, and how the fit was made")


class Score(Noun):
    """How far predictions were off on rows that the fit had not seen."""

    split: str
    group: str = Field("all", description="a GPU model or a family of models")
    method: str
    rows: int
    values: dict[str, float | None] = Field(description="measure -> value")


class ModelFile(Noun):
    """The envelope; ``parameters`` is the business of the method that wrote it."""

    schema_: str = Field(f"{SCHEMA}/{VERSION}", alias="schema")
    kind: Kind
    method: str
    units: dict[str, str] = Field(default_factory=lambda: dict(UNITS))
    columns: tuple[str, ...] = Field((), description="features, in the order of the parameters")
    training: Training
    scores: tuple[Score, ...] = ()
    parameters: dict[str, Any]

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )


def digest(lines: Iterable[str]) -> str:
    """sha256 of the rows, in any order, because the order of a table says nothing."""
    whole = hashlib.sha256()
    for line in sorted(lines):
        whole.update(line.encode() + b"\n")
    return f"sha256:{whole.hexdigest()}"


def text_of(model: ModelFile) -> str:
    """The file's text; the same model gives the same bytes."""
    # Not in pydantic's JSON mode, which turns NaN and infinity into null.
    return json.dumps(model.model_dump(), allow_nan=False, sort_keys=True) + "\n"


def load(path: Path | str, kind: Kind, methods: tuple[str, ...]) -> ModelFile:
    """Read a model of this kind, made by one of ``methods``.

    Raises
    ------
    InputError
        It cannot be read, is no model, is of another kind, of other units or of a newer version.
    """
    return parsed(read_text(Path(path)), str(path), kind, methods)


def parsed(text: str, where: str, kind: Kind, methods: tuple[str, ...]) -> ModelFile:
    """A model from the text of its file. Raises InputError as ``load`` does."""
    accepted = f"a model written by planner fit {kind}"
    try:
        raw = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise InputError(where, "it is not JSON", accepted) from None
    if not isinstance(raw, dict):
        raise InputError(where, "it holds no JSON object", accepted)
    _check_schema(raw.get("schema"), where, accepted)
    for key, found, allowed in (
        ("kind", raw.get("kind"), (kind,)),
        ("method", raw.get("method"), methods),
        ("units", raw.get("units"), (UNITS,)),
    ):
        if found not in allowed:
            raise InputError(f"{where}: {key}", f"got {shown(found)}", " or ".join(map(str, allowed)))
    try:
        return ModelFile.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {key}", first["msg"], accepted) from None


def _no_number(name: str) -> float:
    """Python reads NaN and Infinity; JSON has no such numbers."""
    raise ValueError(name)


def _check_schema(found: object, where: str, accepted: str) -> None:
    name, _, version = str(found).partition("/")
    if name != SCHEMA or not version.isdecimal() or len(version) > 9:
        raise InputError(f"{where}: schema", f"got {shown(found)}", accepted)
    if int(version) > VERSION:
        raise InputError(
            f"{where}: schema", f"version {version}, made by a newer planner", f"up to {SCHEMA}/{VERSION}"
        )
