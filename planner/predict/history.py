"""A table of jobs that have run -> ``History``: one record a job, with every row that was left out counted by cause.

Three forms are told apart by their header: the project's own columns, Philly's trace, and what ``sacct --parsable2``
prints (see ``sacct``). A cell that is empty is unknown; one that cannot be meant is an error, because a wrong number
would be believed for weeks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.predict import model_file
from planner.quantities import COUNT_LIMIT, MEMORY_LIMIT_MIB, SECONDS_LIMIT, shown
from planner.tables import Row, nearest, read_csv, read_text

T = TypeVar("T")
Ended = Literal["completed", "failed", "cancelled", "timeout", "running"]
ENDINGS: tuple[Ended, ...] = Ended.__args__  # type: ignore[attr-defined]  # typing.Literal keeps its values there
#: After these a job would have run on: what it ran is a lower bound. One that was cancelled gave its GPUs back.
CENSORED = ("timeout", "running")
NEEDED = ("duration_s", "gpus")
COLUMNS = (
    *("job", "user", "account", "name", "digest", "queue", "gpus", "gpu_model"),
    *("submitted_s", "started_s", "duration_s", "ended", "time_limit_s"),
    *("gpu_memory_peak_mib", "gpu_utilisation_pct"),
)
PHILLY_COLUMNS = ("job_id", "submit_s", "duration_s", "num_gpus", "vc")

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Seven or more hexadecimal digits that stand alone, letters and figures both; words such as "facade" stay.
HASH = re.compile(r"(?<![0-9a-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}(?![0-9a-z])")
#: Numbers next to each other are one: a date, a time, a version, "3_of_8" but for its word.
NUMBERS = re.compile(r"\[[\d#,:%\s-]*\]|[\d#]+(?:[-_.:/+ ]*t?[\d#]+)*")


class Record(NamedTuple):
    """One job that ran, or runs. None: unknown."""

    gpus: int
    duration_s: float  # s; of a job that was cut off or runs, what it has run
    job: str | None = None
    user: str | None = None
    account: str | None = None
    name: str | None = None
    digest: str | None = None
    queue: str | None = None
    gpu_model: str | None = None
    submitted_s: float | None = None
    started_s: float | None = None
    ended: Ended | None = None
    time_limit_s: float | None = None
    gpu_memory_peak_mib: float | None = None
    gpu_utilisation_pct: float | None = None

    @property
    def came_s(self) -> float | None:
        """When it was first known."""
        return self.started_s if self.submitted_s is None else self.submitted_s

    @property
    def began_s(self) -> float | None:
        """When it started; where only its submission is known, it is taken to have started then."""
        return self.submitted_s if self.started_s is None else self.started_s

    @property
    def censored(self) -> bool:
        """Its duration is only a lower bound."""
        return self.ended in CENSORED


@dataclass(frozen=True)
class History:
    """Jobs in the order of their table, and how many rows were left out, by cause."""

    records: tuple[Record, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def as_of(self, time_s: float) -> History:
        """What was known then: later jobs are not there, and those that ran are cut off at that time.

        Jobs without a time are taken to be older.
        """
        known = (_as_of(record, time_s) for record in self.records)
        return History(tuple(r for r in known if r is not None), {}, self.files)

    def training(self, about: str) -> model_file.Training:
        """What a model fitted on these records says of them; the digest does not depend on their order."""
        lines = ("\t".join(map(str, record)) for record in self.records)
        return model_file.Training(
            digest=model_file.digest(lines), rows=len(self.records), files=self.files, about=about
        )


class Dropped(Exception):
    """A row that says nothing; its text is the cause."""


def read(path: Path | str) -> History:
    """Read a history table.

    Raises
    ------
    InputError
        The file cannot be read, lacks a needed column, or holds a number that cannot be meant.
    """
    path = Path(path)
    header = next((line for line in read_text(path).splitlines() if line.strip()), "")
    if "|" in header:
        from planner.predict import sacct

        return sacct.read(path)
    names = {cell.strip() for cell in header.split(",")}
    if {"vc", "num_gpus"} <= names:
        return collected(path, read_csv(path, needed=PHILLY_COLUMNS), _philly)
    return collected(path, read_csv(path, needed=NEEDED, known=COLUMNS), _record)


def collected(
    path: Path,
    rows: Iterable[tuple[int, Row]],
    make: Callable[[Row, str], Record],
    lost: Counter[str] | None = None,
) -> History:
    """The records of the rows; ``make`` gets a row and where it stands."""
    records: list[Record] = []
    dropped = Counter() if lost is None else lost
    for line, row in rows:
        try:
            records.append(checked(make(row, f"{path}: line {line}")))
        except Dropped as cause:
            dropped[str(cause)] += 1
    return History(tuple(records), dict(sorted(dropped.items())), (path.name,))


def checked(record: Record) -> Record:
    """The record if it tells of a job on GPUs. Raises Dropped."""
    if record.gpus == 0:
        raise Dropped("without GPUs")
    if record.duration_s == 0:
        raise Dropped("with a duration of 0")
    if (
        record.submitted_s is not None
        and record.started_s is not None
        and record.started_s < record.submitted_s
    ):
        raise Dropped("that started before it was submitted")
    return record


def number(row: Row, key: str, where: str, limit: float = SECONDS_LIMIT, least: float = 0) -> float | None:
    """A finite number between ``least`` and ``limit``; None for an empty cell."""
    if key not in row:
        return None
    try:
        value = float(row[key])
    except ValueError:
        value = float("nan")
    if not least <= value <= limit:
        raise InputError(
            f"{where}: {key}", f"got {shown(row[key])}", f"a number from {least:.0f} to {limit:.0f}"
        )
    return value


def whole(row: Row, key: str, where: str) -> int | None:
    """A whole number, not negative."""
    value = number(row, key, where, COUNT_LIMIT)
    if value is not None and value != int(value):
        raise InputError(f"{where}: {key}", f"got {shown(row[key])}", "a whole number, 0 or more")
    return None if value is None else int(value)


def needed(value: T | None, key: str) -> T:
    """The value; a row without it is dropped."""
    if value is None:
        raise Dropped(f"without {key}")
    return value


def _record(row: Row, where: str) -> Record:
    model = row.get("gpu_model")
    return Record(
        gpus=needed(whole(row, "gpus", where), "gpus"),
        duration_s=needed(number(row, "duration_s", where), "duration_s"),
        job=row.get("job"),
        user=row.get("user"),
        account=row.get("account"),
        name=row.get("name"),
        digest=row.get("digest"),
        queue=row.get("queue"),
        gpu_model=None if model is None else canonical_model(model),
        submitted_s=number(row, "submitted_s", where, least=-SECONDS_LIMIT),
        started_s=number(row, "started_s", where, least=-SECONDS_LIMIT),
        ended=_ending(row, where),
        time_limit_s=number(row, "time_limit_s", where),
        gpu_memory_peak_mib=number(row, "gpu_memory_peak_mib", where, MEMORY_LIMIT_MIB),
        gpu_utilisation_pct=number(row, "gpu_utilisation_pct", where, 100),
    )


def _ending(row: Row, where: str) -> Ended | None:
    found = row.get("ended")
    known = next((e for e in ENDINGS if e == found), None)
    if found is not None and known is None:
        raise InputError(
            f"{where}: ended", f"got {shown(found)}{nearest(found, ENDINGS)}", ", ".join(ENDINGS)
        )
    return known


def _philly(row: Row, where: str) -> Record:
    """The trace says when a job was submitted and how long it ran, not how long it waited."""
    return Record(
        gpus=needed(whole(row, "num_gpus", where), "num_gpus"),
        duration_s=needed(number(row, "duration_s", where), "duration_s"),
        job=row.get("job_id"),
        account=row.get("vc"),
        submitted_s=number(row, "submit_s", where, least=-SECONDS_LIMIT),
    )


def _as_of(record: Record, time_s: float) -> Record | None:
    """The record as it stood then; None: it was not there or had not started."""
    began = record.began_s
    if began is None or began + record.duration_s <= time_s:
        return record
    if began >= time_s:
        return None
    return record._replace(
        duration_s=time_s - began, ended="running", gpu_memory_peak_mib=None, gpu_utilisation_pct=None
    )


@lru_cache(maxsize=65_536)
def normalised(name: str) -> str:
    """A job's name without what changes from run to run: ``Train_ResNet_0042`` -> ``train_resnet_#``.

    Numbers, dates, array indices, hashes and UUIDs become ``#``. Applied twice it changes nothing more.
    """
    plain = HASH.sub("#", UUID.sub("#", name.strip().lower()))
    return NUMBERS.sub("#", plain)
