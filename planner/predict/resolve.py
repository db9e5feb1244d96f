"""A fitted model of slowdowns as the table of pairs that one epoch needs.

A plan carries what it rests on; a table of the kinds of work in the queue is small, exact and readable, a model is neither.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.policy import InterferenceSpec, TableRow
from planner.predict.ask_pairs import load_fitted
from planner.predict.learned import Ask, Entry, Fitted
from planner.quantities import counted

if TYPE_CHECKING:
    from planner.model import Snapshot
    from planner.policy import Policy

#: Slowdowns in the table have four digits after the point, rounded up.
DIGITS = 1e4


def as_table(
    spec: InterferenceSpec, snapshot: Snapshot, policy: Policy
) -> tuple[InterferenceSpec, tuple[str, ...]]:
    """The specification of a fitted model as that of a table, and what is to be said about it.

    All directed pairs of the profiles that most jobs have, up to the policy's interference_types, on every GPU model of the
    cluster that the model was fitted on; mean or p90 as the policy says.

    Raises
    ------
    InputError
        The model cannot be read, or is none.
    """
    upper = policy.slowdown_quantile == "p90"
    path = Path(spec.path or "")
    model = _loaded(str(path), path.stat().st_mtime_ns if path.exists() else 0)
    counts = Counter(j.profile for j in snapshot.jobs if j.profile is not None and j.gpus)
    there = sorted({g.model for g in snapshot.cluster.gpus})
    fitted = {g: m for g in there if (m := model.measured_as(g)) is not None}
    works = model.encoder.works
    known = {p for p in counts if any(works.by_name(p, m) is not None for m in fitted.values())}
    strange = sorted(set(counts) - known) if fitted else []
    chosen = [p for p, _ in counts.most_common() if p in known][: policy.interference_types]
    rows = [
        row
        for gpu, as_gpu in fitted.items()
        for row in _rows(model, gpu, as_gpu, chosen, _sharing(snapshot, gpu), upper)
    ]
    table = spec.model_copy(
        update={
            "kind": "table",
            "path": None,
            "rows": tuple(rows),
            "rows_from": f"{path.name}, {model.digest}",
        }
    )
    return table, tuple(_warnings(strange, counts, [g for g in there if g not in fitted], spec.fallback))


def _sharing(snapshot: Snapshot, gpu: str) -> str | None:
    """How the GPUs of a model are shared; None if not all the same way."""
    ways = {n.sharing for n in snapshot.cluster.nodes if any(g.model == gpu for g in n.gpus)}
    return ways.pop() if len(ways) == 1 else None


def _rows(
    model: Fitted, gpu: str, as_gpu: str, profiles: list[str], sharing: str | None, upper: bool
) -> list[TableRow]:
    works = model.encoder.works
    named = {p: work for p in profiles if (work := works.by_name(p, as_gpu)) is not None}
    entries = [Entry(as_gpu, work, works.profiles[as_gpu, work]) for work in named.values()]
    asks = [Ask(v, (o,), sharing) for v in entries for o in entries]
    names = [(v, o) for v in named for o in named]
    speeds = model.speeds(asks)
    used = model.slow_speeds(asks, speeds) if upper else speeds
    return [
        TableRow.model_construct(
            gpu_model=gpu, profile=v, beside=o, slowdown=math.ceil(DIGITS / s - 1e-6) / DIGITS
        )
        for (v, o), s in zip(names, used.tolist(), strict=True)
    ]


@lru_cache(maxsize=4)
def _loaded(path: str, changed: int) -> Fitted:
    """A model, read again when its file has changed."""
    del changed
    return load_fitted(path)


def _warnings(strange: list[str], counts: Counter[str], gpus: list[str], fallback: str) -> list[str]:
    out = []
    if strange:
        jobs = sum(counts[p] for p in strange)
        names = ", ".join(strange[:4]) + (f" and {len(strange) - 4} more" if len(strange) > 4 else "")
        out.append(
            f"the model of slowdowns knows no profile {names} ({counted(jobs, 'job')}): {fallback} is used beside them"
        )
    if gpus:
        out.append(f"the model of slowdowns was not fitted on {', '.join(gpus)}: {fallback} is used there")
    return out
