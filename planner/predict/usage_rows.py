"""Measured jobs alone on one GPU, with the features of their graphs: what a model of usage is fitted to and judged on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.predict.catalogue import find, plain
from planner.predict.graph import Features
from planner.predict.memory import NUMBERS, Training
from planner.predict.pairs import PROFILE_NEEDED, number
from planner.predict.usage import PEAK_TFLOPS
from planner.quantities import shown
from planner.tables import Row, read_csv

#: The optimiser a family is usually trained with, where a table does not say: momentum for image classifiers, Adam for the rest.
USUAL: dict[str, Training] = {"cnn": "momentum"}
ELSE: Training = "adam"


@dataclass(frozen=True)
class Measured:
    """A job alone on one GPU. None: not measured."""

    name: str  # of the architecture: rows of one name are left out together
    family: str
    gpu_model: str
    features: Features
    training: Training | None
    mixed: bool
    utilisation_pct: float | None
    memory_mib: float | None
    tensorflow: bool = False
    bare: bool = False  # memory is the framework's own count, without the context
    source: str = ""
    raw: str = ""


#: (source, model) -> the graph of one sample and the optimiser, where a source's programs are not the catalogue's.
Works = Mapping[tuple[str, str], tuple[Features, Training]]


def read_rows(path: Path, works: Works | None = None) -> tuple[tuple[Measured, ...], dict[str, int]]:
    """Jobs of a table of profiles, and the names that are not in the catalogue, with how many rows have them.

    Columns: gpu_type, model; dataset, batch, amp, gpus, gpu_util_pct, gmem_mib, source, optimizer (sgd, momentum, adam, or none
    for inference) and framework (tensorflow, or anything else), which may be empty. Rows of several GPUs, without a batch size, or
    with neither memory nor utilisation measured are left out; of two rows for one job the first counts. Utilisation of a GPU model
    whose peaks are not known says nothing and does not count as measured.

    Raises
    ------
    InputError
        A column is missing, or a cell is none of what it may be.
    """
    rows: dict[tuple[object, ...], Measured] = {}
    unknown: Counter[str] = Counter()
    for line, row in read_csv(path, needed=PROFILE_NEEDED):
        at = f"{path}: line {line}"
        batch = _whole(row, "batch", at)
        if batch is None or (_whole(row, "gpus", at) or 1) > 1:
            continue
        memory = number(row, "gmem_mib", at) or None
        busy = number(row, "gpu_util_pct", at, most=100)
        busy = busy if canonical_model(row.get("gpu_type", "")) in PEAK_TFLOPS else None
        if busy is None and memory is None:
            continue
        found = _measured(row, at, batch, busy, memory, works or {})
        if found is None:
            unknown[row["model"]] += 1
            continue
        key = (
            found.source,
            found.name,
            row.get("dataset"),
            found.gpu_model,
            batch,
            found.mixed,
            found.training,
        )
        rows.setdefault(key, found)
    return tuple(rows.values()), dict(sorted(unknown.items()))


def _measured(
    row: Row, at: str, batch: int, busy: float | None, memory: float | None, works: Works
) -> Measured | None:
    """None: the architecture is not known."""
    for key in PROFILE_NEEDED:
        if key not in row:
            raise InputError(f"{at}: {key}", "the cell is empty", "a name")
    source, name = row.get("source", ""), row["model"]
    architecture = find(name, row.get("dataset"))
    if (source, name) in works:
        one, usual = works[source, name]
    elif architecture is not None:
        one, usual = architecture.one, USUAL.get(architecture.family, ELSE)
    else:
        return None
    return Measured(
        name=plain(name),
        family=architecture.family if architecture else "other",
        gpu_model=str(canonical_model(row["gpu_type"])),
        features=one.scaled(batch),
        training=_training(row, at, usual),
        mixed=bool(number(row, "amp", at, most=1)),
        utilisation_pct=busy,
        memory_mib=memory,
        tensorflow=plain(row.get("framework", "")) == "tensorflow",
        source=source,
        raw="|".join(f"{k}={v}" for k, v in sorted(row.items())),
    )


def _training(row: Row, at: str, usual: Training) -> Training | None:
    told = row.get("optimizer", usual).lower()
    if told == "none":
        return None
    for name in NUMBERS:
        if told == name:
            return name
    raise InputError(f"{at}: optimizer", f"got {shown(told)}", f"{', '.join(NUMBERS)} or none")


def _whole(row: Row, key: str, at: str) -> int | None:
    value = number(row, key, at, least=1)
    if value is not None and value != int(value):
        raise InputError(f"{at}: {key}", f"got {shown(row[key])}", "a whole number")
    return None if value is None else int(value)
