"""Time into GPU-seconds: what waiting costs, when jobs would end, and the scale of the makespan term.

Everything is charged as a rate over one horizon. Remaining times enter only through ``alpha``, the makespan term,
reservations and moves; an unknown one is neutral in all of them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.errors import InputError
from solvers.problem import MILLI, PPM, UNCAPPED

if TYPE_CHECKING:
    from planner.policy import Policy

#: Above these, in milli-GPU-seconds, the integers of the program could overflow: what a placed job loses is multiplied
#: by a million on the way, and the costs of all jobs are added up.
MOST_FOR_A_JOB = 2.0**62 / PPM
MOST_FOR_ALL = 2.0**60
#: With no known work there is no makespan term; any tick will do.
TICK_WITHOUT_WORK_S = 1.0
#: A makespan of the fluid bound has this many ticks.
TICKS = 1000


@dataclass(frozen=True)
class Load:
    """What the costs depend on, job by job; NaN where unknown. Shapes (J,)."""

    gpus: np.ndarray  # size in GPUs, shares as declared, cpu_only_gpus without GPUs
    occupied: np.ndarray  # the same, but 0 without GPUs
    priority: np.ndarray
    remaining_s: np.ndarray
    queued_s: np.ndarray
    running: np.ndarray  # bool


@dataclass(frozen=True)
class Charges:
    """What the terms charge, in milli-GPU-seconds, integers; arrays have shape (J,)."""

    unit_speed: np.ndarray
    unit_interference: np.ndarray
    unit_locality: np.ndarray
    wait_cost: np.ndarray
    move_cost: np.ndarray
    epsilon: int
    makespan_cost: int  # a tick
    tick_s: float


def charges(load: Load, policy: Policy, pause_s: np.ndarray, gpus: int, open_gpus: int) -> Charges:
    """All costs of an epoch; ``pause_s`` is how long a move stops each job, shape (J,).

    Raises
    ------
    InputError
        The policy's numbers make costs that the program's integers cannot hold.
    """
    w = policy.weights
    fluid = fluid_bound_s(load, open_gpus)
    waiting = waiting_gpu_s(load, policy, fluid) * MILLI
    unit = load.priority * load.gpus * policy.horizon_s * MILLI
    pause = load.priority * load.gpus * pause_s * MILLI
    parts = [unit * w.speed, unit * w.interference, unit * w.locality, waiting * w.waiting, pause * w.moves]
    makespan = w.makespan * open_gpus * policy.horizon_s if fluid else 0.0
    _fit(parts, makespan)
    speed, interference, locality, wait, move = (np.rint(part).astype(np.int64) for part in parts)
    queued = np.rint(waiting[~load.running]).astype(np.int64)
    return Charges(
        unit_speed=speed,
        unit_interference=interference,
        unit_locality=locality,
        wait_cost=wait,
        move_cost=move,
        epsilon=int(epsilon_milli(queued, gpus) * w.fragmentation),
        makespan_cost=round(makespan),
        tick_s=(fluid or TICK_WITHOUT_WORK_S * TICKS) / TICKS,
    )


def _fit(parts: list[np.ndarray], makespan: float) -> None:
    one = max(float(part.max(initial=0)) for part in parts[:3])  # the units; the rest is only added up
    total = sum(float(part.sum()) for part in parts) + makespan * TICKS
    if one > MOST_FOR_A_JOB or total > MOST_FOR_ALL or not np.isfinite(total):
        raise InputError(
            "policy",
            "horizon_s, age_s, the weights and the jobs' priorities together make a cost of "
            f"{max(one, total) / MILLI:.1e} GPU-seconds",
            f"at most {MOST_FOR_A_JOB / MILLI:.0e} for running one job and {MOST_FOR_ALL / MILLI:.0e} for all jobs",
        )


def fluid_bound_s(load: Load, open_gpus: int) -> float | None:
    """T: all known GPU work spread evenly over the schedulable GPUs; None if there is none."""
    known = ~np.isnan(load.remaining_s)
    work = float((load.occupied[known] * load.remaining_s[known]).sum())
    return work / open_gpus if open_gpus and work > 0 else None


def waiting_gpu_s(load: Load, policy: Policy, fluid_s: float | None) -> np.ndarray:
    """Cost of deferring each job, in GPU-seconds, before the policy's weight; shape (J,).

    w n H x (1 + time in queue / age_s) x clip((R / remaining)^alpha, 1/4, 4) x (1 + m min(1, remaining / T)^2).
    """
    cost = load.priority * load.gpus * policy.horizon_s * (1 + load.queued_s / policy.age_s)
    queue = load.remaining_s[~load.running]
    known = queue[~np.isnan(queue)]
    if policy.alpha and len(known):
        ratio = (np.median(known) / load.remaining_s) ** policy.alpha
        cost = cost * np.where(np.isnan(ratio), 1, np.clip(ratio, 0.25, 4))
    if fluid_s:
        long = np.minimum(1, np.nan_to_num(load.remaining_s, nan=0) / fluid_s)
        cost = cost * (1 + policy.weights.makespan * long**2)
    return cost


def list_schedule_s(load: Load, open_gpus: int, order: np.ndarray, epoch_s: float) -> np.ndarray:
    """End of each queued job if the queue were run in ``order`` on anonymous GPUs, seconds; NaN unknown; (J,).

    A job of unknown length occupies its GPUs for the median of the known ones. A queued job that is deferred cannot
    start before the next epoch.
    """
    end = np.full(len(load.gpus), np.nan)
    known = load.remaining_s[~np.isnan(load.remaining_s)]
    typical = float(np.median(known)) if len(known) else epoch_s
    length = np.where(np.isnan(load.remaining_s), typical, load.remaining_s)
    free = [0.0] * open_gpus
    running = np.flatnonzero(load.running & (load.occupied > 0))
    for j in (*running, *order):
        starts = 0.0 if load.running[j] else epoch_s
        if open_gpus and load.occupied[j] > 0:
            width = min(open_gpus, max(1, round(float(np.ceil(load.occupied[j])))))
            taken = [heapq.heappop(free) for _ in range(width)]
            # A share of a GPU keeps it busy for that share of the time.
            busy = length[j] * load.occupied[j] / width
            if not load.running[j]:
                starts = max(starts, taken[-1])
            for at in taken:
                heapq.heappush(free, max(at, 0 if load.running[j] else taken[-1]) + busy)
        if not np.isnan(load.remaining_s[j]):
            end[j] = starts + load.remaining_s[j]
    return end


def latest_offered_s(
    remaining_s: np.ndarray,
    speed_milli: np.ndarray,
    cap_milli: np.ndarray,
    link_milli: np.ndarray,
    worst_milli: int,
) -> np.ndarray:
    """The latest end of any placement a job may be given now, seconds; NaN unknown; (J,).

    A deferred job's end is never below it, so that deferring never shortens the makespan.
    """
    worst = np.where(cap_milli >= UNCAPPED, worst_milli, np.minimum(cap_milli, worst_milli))
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(speed_milli > 0, worst / np.maximum(speed_milli, 1), 1.0)
    return remaining_s * stretch.max(axis=1, initial=1.0) * link_milli.max(axis=1) / MILLI


def epsilon_milli(waiting_milli: np.ndarray, gpus: int) -> int:
    """Fragmentation's unit: over all GPUs, opened and left idle, a thousandth of the smallest job's cost.

    Only staying below the smallest job's cost would not do: on a cluster of two GPUs that still buys a fifth of a job's
    progress for a GPU kept closed, and jobs would share for the sake of tidiness. On clusters so large that a
    thousandth rounds to nothing one milli-GPU-second is used, as long as the sum stays below that cost.
    """
    if not len(waiting_milli) or not gpus:
        return 0
    smallest, places = int(waiting_milli.min()), 2 * gpus + 1
    return max(smallest // (1000 * places), int(smallest > places))
