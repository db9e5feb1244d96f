"""Measured pairs of jobs on one GPU, and the jobs' profiles alone, from CSV tables.

A pair is a row: two jobs on one GPU, with the throughput of each alone and beside the other. The measured columns may be
empty: such a row asks for a prediction. A job is told by its name, data set, batch size and precision; what it uses
alone (utilisation, memory, throughput on each GPU model) comes from the profiles, and a job that has none keeps None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.quantities import shown
from planner.tables import Row, read_csv

#: What a row needs for a prediction.
NEEDED = ("gpu_type", "job_a", "job_b")
#: What a row needs for a fit; a slowdown or the throughputs it is made of.
SLOWDOWN = ("slowdown_a", "slowdown_b")
PROFILE_NEEDED = ("gpu_type", "model")
#: How the two jobs got their turns on the GPU.
SHARING = ("time-slice", "mps")
#: Speeds beside another job that were measured above the speed alone are noise.
FASTEST = 1.0
#: Beyond these a number is no measurement, and its square or its inverse may be none at all.
SMALLEST, LARGEST = 1e-9, 1e12


@dataclass(frozen=True)
class Work:
    """A kind of work: what tells it from others. ``batch`` None: it has none; ``mixed`` None: not said."""

    name: str
    dataset: str = ""
    batch: int | None = None
    mixed: bool | None = None

    @property
    def key(self) -> str:
        """One text for it: ``name[/dataset][:batch][+amp]``."""
        data = f"/{self.dataset}" if self.dataset else ""
        size = f":{self.batch}" if self.batch is not None else ""
        return f"{self.name}{data}{size}{'+amp' if self.mixed else ''}"

    @classmethod
    def of_key(cls, key: str) -> Work:
        """What ``key`` says, as far as it can be read."""
        whole, amp, _ = key.strip().partition("+amp")
        name, _, size = whole.rpartition(":") if ":" in whole else (whole, "", "")
        if not size.isdecimal():
            name, size = whole, ""
        name, _, dataset = name.partition("/")
        return cls(name, dataset, int(size) if size else None, bool(amp))


@dataclass(frozen=True)
class Alone:
    """What a job uses on one GPU model when it has it for itself. None: unknown."""

    utilisation_pct: float | None = None
    bandwidth_pct: float | None = None
    memory_mib: float | None = None
    step_s: float | None = None  # time of one step of ``batch`` samples


@dataclass(frozen=True)
class Pair:
    """Two jobs on one GPU. Slowdowns are run time beside / alone, at least 1; None: not measured."""

    line: int
    source: str
    gpu_model: str
    a: Work
    b: Work
    alone_a: Alone
    alone_b: Alone
    slowdown_a: float | None
    slowdown_b: float | None
    feasible: bool | None  # None: not said
    sharing: str | None = None  # time-slice or mps; None: not said
    raw: str = field(default="", compare=False)


Profiles = dict[tuple[str, Work], Alone]  # (GPU model, work)


def read_profiles(path: Path) -> Profiles:
    """Jobs alone on one GPU; rows of several GPUs are left out.

    Columns: gpu_type, model; dataset, batch, amp, gpus, iso_tput, tput_unit, gpu_util_pct, gmem_util_pct, gmem_mib,
    which may be empty. Of two rows for the same work, what the first leaves unknown comes from the second.

    Raises
    ------
    InputError
        A column is missing, or a cell is no number of its kind.
    """
    profiles: Profiles = {}
    for line, row in read_csv(path, needed=PROFILE_NEEDED):
        at = f"{path}: line {line}"
        if (number(row, "gpus", at, least=1) or 1) > 1:
            continue
        work = _work(row, at, "model", "dataset", "batch", "amp")
        key = (_gpu(row, at), work)
        rate = number(row, "iso_tput", at)
        found = Alone(
            utilisation_pct=number(row, "gpu_util_pct", at, most=100),
            bandwidth_pct=number(row, "gmem_util_pct", at, most=100),
            memory_mib=number(row, "gmem_mib", at),
            step_s=_step_s(rate, row.get("tput_unit", ""), work.batch),
        )
        profiles[key] = joined(profiles.get(key), found)
    return profiles


def read_pairs(path: Path, profiles: Profiles, *, measured: bool) -> list[Pair]:
    """Rows of a table of pairs, in the order of the file.

    Parameters
    ----------
    profiles
        What is known of the jobs alone; the rows' own iso_tput_a and iso_tput_b fill in a throughput.
    measured
        Every row must say its slowdowns (or its throughputs beside each other), or be infeasible.

    Raises
    ------
    InputError
        A column is missing, a cell is no number of its kind, or a row that must be measured is not.
    """
    rows = read_csv(path, needed=NEEDED)
    pairs = [_pair(row, f"{path}: line {line}", line, profiles) for line, row in rows]
    if not pairs:
        raise InputError(str(path), "it has no rows", "a header line and at least one pair")
    if measured:
        for pair in pairs:
            if pair.feasible is not False and (pair.slowdown_a is None or pair.slowdown_b is None):
                side = "slowdown_a" if pair.slowdown_a is None else "slowdown_b"
                raise InputError(
                    f"{path}: line {pair.line}: {side}",
                    "the pair is not measured",
                    "a slowdown of at least 0.2, the throughputs iso_tput and col_tput, or feasible = 0",
                )
    return pairs


def _pair(row: Row, at: str, line: int, profiles: Profiles) -> Pair:
    gpu = _gpu(row, at)
    works = [_work(row, at, *(f"{k}_{side}" for k in ("job", "dataset", "batch", "amp"))) for side in "ab"]
    for side in "ab":
        if (number(row, f"gpus_{side}", at, least=1) or 1) > 1:
            raise InputError(f"{at}: gpus_{side}", f"got {row[f'gpus_{side}']}", "1: pairs are on one GPU")
    rates = [number(row, f"iso_tput_{side}", at) for side in "ab"]
    unit = row.get("tput_unit", "")
    alone = [
        joined(profiles.get((gpu, w)), Alone(step_s=_step_s(rate, unit, w.batch)))
        for w, rate in zip(works, rates, strict=True)
    ]
    feasible = _flag(row, "feasible", at)
    slowdowns = [
        None if feasible is False else _slowdown(row, side, at, rate)
        for side, rate in zip("ab", rates, strict=True)
    ]
    return Pair(
        line=line,
        source=row.get("source", ""),
        gpu_model=gpu,
        a=works[0],
        b=works[1],
        alone_a=alone[0],
        alone_b=alone[1],
        slowdown_a=slowdowns[0],
        slowdown_b=slowdowns[1],
        feasible=feasible,
        sharing=_sharing(row, at),
        raw="|".join(f"{k}={v}" for k, v in sorted(row.items())),
    )


def _slowdown(row: Row, side: str, at: str, alone: float | None) -> float | None:
    """Said, or made of the throughputs; speeds above the speed alone are held to it."""
    said = number(row, f"slowdown_{side}", at, least=0.2)
    if said is None:
        beside = number(row, f"col_tput_{side}", at)
        if not beside or not alone:
            return None
        said = alone / beside
    return max(1 / FASTEST, said)


def _sharing(row: Row, at: str) -> str | None:
    said = row.get("sharing")
    if said not in (None, *SHARING):
        raise InputError(f"{at}: sharing", f"got {shown(said)}", " or ".join(SHARING))
    return said


def _gpu(row: Row, at: str) -> str:
    if "gpu_type" not in row:
        raise _missing(at, "gpu_type")
    return str(canonical_model(row["gpu_type"]))


def _work(row: Row, at: str, name: str, dataset: str, batch: str, amp: str) -> Work:
    if name not in row:
        raise _missing(at, name)
    size = number(row, batch, at, least=1)
    if size is not None and size != int(size):
        raise InputError(f"{at}: {batch}", f"got {row[batch]}", "a whole number")
    return Work(row[name], row.get(dataset, ""), None if size is None else int(size), _flag(row, amp, at))


def _step_s(rate: float | None, unit: str, batch: int | None) -> float | None:
    """Seconds of a step: rates are in steps a second, or in samples a second where the unit says so."""
    if not rate:
        return None
    return (batch or 1) / rate if unit.lower().startswith("sample") else 1 / rate


def joined(first: Alone | None, second: Alone) -> Alone:
    """What the first leaves unknown from the second."""
    if first is None:
        return second
    return Alone(
        *(x if x is not None else y for x, y in zip(_fields(first), _fields(second), strict=True)),
    )


def _fields(alone: Alone) -> Iterable[float | None]:
    return (alone.utilisation_pct, alone.bandwidth_pct, alone.memory_mib, alone.step_s)


def _flag(row: Row, key: str, at: str) -> bool | None:
    value = number(row, key, at)
    if value is None:
        return None
    if value not in (0, 1):
        raise InputError(f"{at}: {key}", f"got {shown(row[key])}", "0 or 1")
    return bool(value)


def number(row: Row, key: str, at: str, *, least: float = 0, most: float = LARGEST) -> float | None:
    """A cell as a finite number within its range; None if it is empty."""
    if key not in row:
        return None
    try:
        value = float(row[key])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and least <= value <= most):
        upper = f", at most {most:g}" if most < LARGEST or value > most else ""
        raise InputError(f"{at}: {key}", f"got {shown(row[key])}", f"a number of at least {least:g}{upper}")
    if 0 < value < SMALLEST:
        raise InputError(f"{at}: {key}", f"got {shown(row[key])}", f"0, or at least {SMALLEST:g}")
    return value


def _missing(at: str, key: str) -> InputError:
    return InputError(f"{at}: {key}", "the cell is empty", "a name")
