"""Tables of pairs for tests: made up and seeded, or the part of the public data set that a test asks for.

The made-up jobs take turns on a GPU: beside a job that keeps it busy for a part v of its time, one that does so for u loses
u v, but for some noise. So the answer is known, and the public rows need not be copied.
"""

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("forge", "kiln", "loom", "mill", "press", "tower")
SIZES = (16, 64)
GPUS = ("k80", "v100")

#: Slowdown of a job that is busy for u of its time, beside one that is for v.
Rule = Callable[[float, float], float]


def turns(u: float, v: float) -> float:
    """Two jobs that take turns."""
    return 1 + u * v


def hinge(u: float, v: float) -> float:
    """1 / slowdown falls by half of what the sum is above one."""
    return 1 / (1 - 0.5 * max(0.0, u + v - 1))


@dataclass(frozen=True)
class Tables:
    """Where the tables are."""

    pairs: Path
    profiles: Path


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """A CSV file with the columns of the first row."""
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def made_up(
    folder: Path,
    *,
    seed: int = 0,
    noise: float = 0.01,
    rule: Rule = turns,
    names: tuple[str, ...] = NAMES,
    gpus: tuple[str, ...] = GPUS,
) -> Tables:
    """Tables of all pairs of a few jobs, each of some batch sizes: pairs.csv and profiles.csv."""
    rng = np.random.default_rng(seed)
    busy = {(n, b): float(rng.uniform(0.1, 1)) for n in names for b in SIZES}
    alone = [
        {
            "gpu_type": gpu,
            "model": name,
            "batch": batch,
            "amp": 0,
            "iso_tput": round((1 + i) * 100 / batch**0.5, 4),
            "tput_unit": "steps/s",
            "gpu_util_pct": round(100 * u, 1),
            "gmem_util_pct": round(50 * u, 1),
            "gmem_mib": 1000 + 10 * batch,
        }
        for i, gpu in enumerate(gpus)
        for (name, batch), u in busy.items()
    ]
    pairs = []
    for gpu in gpus:
        for a, b in combinations_with_replacement(busy, 2):
            slow = [
                max(1.0, rule(busy[x], busy[y]) + float(rng.normal(0, noise))) for x, y in ((a, b), (b, a))
            ]
            pairs.append(
                {"gpu_type": gpu, "job_a": a[0], "batch_a": a[1], "amp_a": 0}
                | {"job_b": b[0], "batch_b": b[1], "amp_b": 0}
                | {"slowdown_a": round(slow[0], 5), "slowdown_b": round(slow[1], 5)}
            )
    return Tables(write(folder / "pairs.csv", pairs), write(folder / "profiles.csv", alone))


def public_pairs(data: Path, folder: Path, source: str) -> Tables:
    """The pairs that one project measured, and all profiles of the data set."""
    with (data / "interference_pairs.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == source]
    return Tables(write(folder / f"{source}.csv", rows), data / "job_profiles.csv")
