"""Jobs to interference types: what the interference model may tell apart, rounded so that there are few.

A type is a profile that the model knows, with the utilisation rounded up to 5 points. A declared share is kept exact
as long as there is room for its own type, because shares that add up to one GPU must not be rounded into
contention. With more types than the policy allows, the rounding gets coarser and is said in a warning.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.predict.interference import InterferenceModel, Tenant
from planner.quantities import counted
from solvers.problem import FORBIDDEN, MILLI, Interference

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.formulate.contract import Kind
    from planner.formulate.jobs import JobView
    from planner.policy import Policy

    Row = Callable[[int, tuple[int, ...]], np.ndarray]

#: A type that no model predicts anything for: its jobs share with nobody.
NOTHING_KNOWN = Tenant(None, None)
#: (step for declared shares, step for everything else), percent points; the finest that fits is used.
STEPS = ((0.1, 5), (5, 5), (10, 10), (25, 25), (100, 100))


@dataclass(frozen=True)
class Types:
    """The types of an epoch; ``of_job`` has shape (J,)."""

    of_job: np.ndarray
    names: tuple[str, ...]
    tenants: tuple[Tenant, ...]
    interference: Interference
    warnings: tuple[str, ...] = ()


def interference_types(
    views: list[JobView], kinds: tuple[Kind, ...], model: InterferenceModel, policy: Policy
) -> Types:
    """Types of all jobs, and their slowdowns as an integer table that is built where it is needed."""
    known = [model.profile_known(v.job.profile) for v in views]
    for share_step, step in STEPS:
        tenants = [_tenant(v, k, share_step, step, model.uses) for v, k in zip(views, known, strict=True)]
        if len(set(tenants)) <= policy.interference_types:
            break
    told_apart = tenants
    if len(set(tenants)) > policy.interference_types:
        tenants = _most_common(tenants, policy.interference_types)
    numbers: dict[Tenant, int] = {}
    of_job = np.array([numbers.setdefault(t, len(numbers)) for t in tenants], np.int64)
    kept = tuple(numbers)
    return Types(
        of_job,
        tuple(_name(t) for t in kept),
        kept,
        Interference(len(kept), len(kinds), _rows(kept, kinds, model), math.ceil(model.cap * MILLI)),
        _warnings(told_apart, tenants, step, policy.interference_types),
    )


def _warnings(told_apart: list[Tenant], tenants: list[Tenant], step: float, most: int) -> tuple[str, ...]:
    out = []
    if step > STEPS[0][1]:
        out.append(f"utilisations are rounded up to {step} points to keep to {most} types")
    lost = sum(t != before for t, before in zip(tenants, told_apart, strict=True))
    if lost:
        out.append(
            f"{counted(lost, 'job')} of rare profiles {'shares' if lost == 1 else 'share'} with nobody, to keep to {most} types"
        )
    return tuple(out)


def _tenant(view: JobView, known: bool, share_step: float, step: float, uses: frozenset[str]) -> Tenant:
    """The job's tenant without what the model does not look at, its percentages rounded up."""
    whole = view.tenant
    by = share_step if view.forecast.utilisation_source == "share" else step
    return Tenant(
        whole.profile if known else None,
        _rounded(whole.utilisation_pct, by),
        share=whole.share and "share" in uses,
        bandwidth_pct=_rounded(whole.bandwidth_pct, step) if "bandwidth_pct" in uses else None,
        cpus=None if whole.cpus is None or "cpus" not in uses else math.ceil(whole.cpus),
    )


def _rounded(percent: float | None, by: float) -> float | None:
    return None if percent is None else min(100.0, round(math.ceil(percent / by - 1e-9) * by, 1))


def _most_common(tenants: list[Tenant], most: int) -> list[Tenant]:
    """The rarest types are not told apart; nothing can be predicted for what is left of them, so they do not share."""
    counts = Counter(tenants)
    keep = set(sorted(counts, key=lambda t: (-counts[t], str(t)))[: max(0, most - 1)])
    return [t if t in keep else NOTHING_KNOWN for t in tenants]


def _name(tenant: Tenant) -> str:
    use = "?" if tenant.utilisation_pct is None else f"{tenant.utilisation_pct:g}%"
    return f"{tenant.profile} {use}" if tenant.profile else use


def _rows(tenants: tuple[Tenant, ...], kinds: tuple[Kind, ...], model: InterferenceModel) -> Row:
    def row(kind: int, co: tuple[int, ...]) -> np.ndarray:
        predicted = model.slowdowns(kinds[kind].model, tenants, [tenants[c] for c in co])
        with np.errstate(invalid="ignore"):
            milli = np.ceil(predicted * MILLI - 1e-6)  # rounded up: a cap is never passed by rounding
        return np.where(np.isnan(milli), FORBIDDEN, np.maximum(MILLI, milli)).astype(np.int64)

    return row
