"""What ``sacct --parsable2`` prints -> ``History``: one record a job, its steps and what never ran counted.

For example ``sacct -aPX -S now-30days -o JobIDRaw,User,Account,JobName,Partition,AllocTRES,ReqTRES,Submit,Start,ElapsedRaw,State,TimelimitRaw``.
The times are local ones without a zone; only how far they are apart counts, so they are read as if in UTC.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.predict.history import Dropped, Ended, History, Record, collected, needed, number
from planner.quantities import counted, seconds, shown, slurm_time
from planner.tables import Row, read_text

#: Of each row of names one column must be there.
NEEDED = (("JobIDRaw", "JobID"), ("ElapsedRaw", "Elapsed"), ("AllocTRES", "ReqTRES"), ("State",))
UNKNOWN = ("", "Unknown", "None", "N/A", "(null)", "INVALID")
#: https://slurm.schedmd.com/sacct.html, "JOB STATE CODES". None: it does not run yet.
STATES: dict[str, Ended | None] = {
    "COMPLETED": "completed",
    "COMPLETING": "running",
    "RUNNING": "running",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "RESIZING": "running",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    # The system ended these four: like those that met their limit, they would have run on.
    "PREEMPTED": "timeout",
    "NODE_FAIL": "timeout",
    "BOOT_FAIL": "timeout",
    "REQUEUED": "timeout",
    "PENDING": None,
    "CONFIGURING": None,
    "REVOKED": None,
    "RESV_DEL_HOLD": None,
    "REQUEUE_HOLD": None,
    "REQUEUE_FED": None,
    "SPECIAL_EXIT": None,
}


def read(path: Path) -> History:
    """Read a table with columns parted by ``|``.

    Raises
    ------
    InputError
        The header lacks a needed column, a line is too short, or a cell cannot be meant.
    """
    lost: Counter[str] = Counter()
    return collected(path, _jobs(path, lost), _record, lost)


def _jobs(path: Path, lost: Counter[str]) -> Iterator[tuple[int, Row]]:
    """Rows of jobs with the line each stands on; steps (``123.batch``) are counted and left out."""
    header: list[str] | None = None
    for line, text in enumerate(read_text(path).splitlines(), start=1):
        cells = [cell.strip() for cell in text.split("|")]
        if not any(cells):
            continue
        if header is None:
            header = _header(path, line, cells)
            continue
        if len(cells) < len(header):
            raise InputError(
                f"{path}: line {line}", counted(len(cells), "cell"), f"{len(header)}, as in the header"
            )
        if len(cells) > len(header):  # sacct does not quote: nobody knows which cell is which
            lost["with a | in a cell"] += 1
            continue
        row = {k: v for k, v in zip(header, cells, strict=True) if v not in UNKNOWN}
        if "." in _first(row, NEEDED[0]):
            lost["of a step"] += 1
        else:
            yield line, row


def _header(path: Path, line: int, cells: list[str]) -> list[str]:
    where = f"{path}: line {line}"
    for names in NEEDED:
        if not set(names) & set(cells):
            raise InputError(
                where, f"no column {' or '.join(names)}", "what sacct --parsable2 prints, with its header"
            )
    twice = next((c for c, n in Counter(cells).items() if n > 1), None)
    if twice is not None:
        raise InputError(where, f"two columns {shown(twice)}", "each column once")
    return cells


def _first(row: Row, names: tuple[str, ...]) -> str:
    """The first of the cells that is known, or nothing."""
    return next((row[name] for name in names if name in row), "")


def _record(row: Row, where: str) -> Record:
    ended = _state(row, where)
    gpus, model = _gpus(_first(row, NEEDED[2]), where)
    return Record(
        gpus=gpus,
        duration_s=needed(_elapsed(row, where), "Elapsed"),
        job=_first(row, NEEDED[0]) or None,
        user=row.get("User"),
        account=row.get("Account"),
        name=row.get("JobName"),
        queue=row.get("Partition"),
        gpu_model=model,
        submitted_s=_time(row, "Submit", where),
        started_s=_time(row, "Start", where),
        ended=ended,
        time_limit_s=_limit(row, where),
    )


def _state(row: Row, where: str) -> Ended:
    """``CANCELLED by 1000`` is CANCELLED, ``COMPLETED+`` was cut."""
    found = needed(row.get("State"), "State")
    said = found.split()[0]
    word = (
        next((s for s in STATES if s.startswith(said[:-1])), said)
        if said.endswith("+") and len(said) > 3
        else said
    )
    if word not in STATES:  # a newer Slurm's; one job that cannot be read is no reason to learn from none
        raise Dropped(f"in a state that is not known ({word[:40]})")
    state = STATES[word]
    if state is None:
        raise Dropped("that had not started")
    return state


def _gpus(tres: str, where: str) -> tuple[int, str | None]:
    """GPUs and their model from ``cpu=8,gres/gpu=2,gres/gpu:a100=2``.

    Without the plain count, the counts of the models are summed; with two models, none is named.
    """
    counts: dict[str, int] = {}
    for item in tres.split(","):
        name, _, value = item.partition("=")
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            if not value.isdecimal():
                raise InputError(f"{where}: TRES", f"got {shown(item)}", "gres/gpu=2 or gres/gpu:a100=2")
            counts[name.partition(":")[2]] = int(value)
    models = [name for name in counts if name]
    gpus = counts.get("", sum(counts.values()))
    return gpus, canonical_model(models[0]) if len(models) == 1 else None


def _elapsed(row: Row, where: str) -> float | None:
    """``[DD-]HH:MM:SS``, or seconds."""
    if "ElapsedRaw" in row:
        return number(row, "ElapsedRaw", where)
    if "Elapsed" not in row:
        return None
    try:
        if ":" in row["Elapsed"]:
            return seconds(row["Elapsed"])
    except ValueError:
        pass
    raise InputError(f"{where}: Elapsed", f"got {shown(row['Elapsed'])}", "[DD-]HH:MM:SS")


def _limit(row: Row, where: str) -> float | None:
    """Minutes or ``[DD-]HH:MM:SS``; None where there is no limit."""
    key = "TimelimitRaw" if "TimelimitRaw" in row else "Timelimit"
    try:
        limit = slurm_time(row[key]) if key in row else None
    except ValueError as error:
        raise InputError(f"{where}: {key}", *str(error).split("; accepted: ", 1)) from None
    return None if limit is None or math.isinf(limit) else limit


def _time(row: Row, key: str, where: str) -> float | None:
    if key not in row:
        return None
    try:
        return datetime.fromisoformat(row[key]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(
            f"{where}: {key}", f"got {shown(row[key])}", "a time such as 2024-01-31T08:00:00"
        ) from None
