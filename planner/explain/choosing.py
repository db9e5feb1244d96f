"""Where a waiting job would start now, if it had to: the place that costs least, as far as a quick look can tell.

The look adds up, GPU by GPU and for many at a time, what the job's coming would cost it, its neighbours and the
makespan; ``joining`` then states the exact costs of the place that is chosen.
"""

from __future__ import annotations

import numpy as np

from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.explain.places import beside, open_mask
from planner.explain.shape import most_together, shape_of
from solvers.problem import MILLI, PPM, Spot


def spot_for(ledger: Ledger, job: int) -> Spot | None:
    """A place where the job fits now, GPUs or for a job without GPUs a node; None if there is none."""
    view = ledger.survey
    if not view.problem.job_gpus.item(job):
        return node_for(view, job)
    mask = open_mask(view, job)
    nuisance = np.zeros(len(view.gpus))
    at = np.flatnonzero(mask)
    nuisance[at] = nuisance_gpu_s(ledger, job, at)
    return cheapest_spot(view, job, mask, nuisance)


def cheapest_spot(view: Survey, job: int, mask: np.ndarray, nuisance: np.ndarray) -> Spot | None:
    """GPUs of ``mask`` (over ``view.gpus``) in the job's shape that cost least together; None if there are none."""
    p, shape = view.problem, shape_of(view.problem, job)
    nuisance = np.where(mask, nuisance, np.inf)
    counts = np.minimum(view.slots.counts(mask, view.gpus), view.hosts(job)[view.slots.node])
    best: tuple[float, Spot] | None = None
    for kind in np.unique(view.slots.kind[counts > 0]).tolist():
        of_kind = np.where(view.slots.kind == kind, counts, 0)
        if most_together(shape, of_kind, view.slots) >= shape.gpus:
            spot, cost = _take(view, job, nuisance, of_kind)
            cost += (1 - p.speed_milli.item(job, kind) / MILLI) * p.unit_speed.item(job)
            if len(spot) == shape.gpus and (best is None or cost < best[0]):
                best = cost, spot
    return None if best is None else best[1]


def nuisance_gpu_s(ledger: Ledger, job: int, at: np.ndarray) -> np.ndarray:
    """Roughly what starting the job on each GPU would cost, in the Problem's units; shape (len(at),)."""
    view = ledger.survey
    p, seats = view.problem, view.neighbours.seats
    slow = beside(view, job, at)
    speed = p.speed_milli[job, view.kind[at]] / MILLI
    cost = p.unit_interference.item(job) * speed * (1 - MILLI / slow) / max(1, p.job_gpus.item(job))
    shared = np.flatnonzero(view.neighbours.content_of[at] >= 0)
    there = at[shared]
    if len(there):
        contents = view.neighbours.content_of[there]
        who = np.maximum(seats.job[there], 0)
        taken = seats.job[there] >= 0
        before = view.neighbours.now(contents)
        after = view.neighbours.theirs(p.job_type.item(job), contents)
        v = np.maximum(1, p.speed_milli[who, view.kind[there][:, None]])
        lost = p.unit_interference[who] * v / MILLI * (MILLI / before - MILLI / after)
        end = p.work[who] * after / (v * PPM) * MILLI
        late = p.makespan_cost * np.maximum(0, np.where(p.work[who] >= 0, end, 0) - ledger.latest_end)
        cost[shared] += np.where(taken, lost, 0).sum(axis=1) + np.where(taken, late, 0).max(axis=1)
    return cost


def _take(view: Survey, job: int, nuisance: np.ndarray, counts: np.ndarray) -> tuple[Spot, float]:
    """The GPUs that cost least, on as few nodes as the job must have."""
    shape = shape_of(view.problem, job)
    each = shape.per_node
    if not each and (shape.equal or shape.same_index):
        each = _even(counts, shape.gpus, shape.max_nodes)
    slot_of = view.slots.of_gpu[view.gpus]
    order = np.argsort(nuisance, kind="stable")
    order = order[np.isfinite(nuisance[order])]
    spot: list[int] = []
    cost = 0.0
    while len(spot) < shape.gpus:
        wanted = each or shape.gpus - len(spot)
        slot = _best_slot(slot_of, nuisance, order, counts, wanted)
        if slot < 0:
            break
        here = order[slot_of[order] == slot][: min(wanted, int(counts[slot]))]
        spot += view.gpus[here].tolist()
        cost += float(nuisance[here].sum())
        counts = np.where(np.arange(len(counts)) == slot, 0, counts)
    return tuple(sorted(spot)), cost


def _best_slot(
    slot_of: np.ndarray, nuisance: np.ndarray, order: np.ndarray, counts: np.ndarray, wanted: int
) -> int:
    """The cheapest slot that gives all that is wanted; else the one that gives most; -1 if none gives any."""
    if not counts.any():
        return -1
    enough = counts >= wanted
    if not enough.any():
        return int(np.argmax(counts))
    if wanted == 1:
        fits = order[enough[slot_of[order]]]
        return int(slot_of[fits[0]]) if len(fits) else -1
    by_slot = order[np.argsort(slot_of[order], kind="stable")]
    slots = slot_of[by_slot]
    rank = np.arange(len(slots)) - np.searchsorted(slots, slots)
    taken = by_slot[rank < wanted]
    cost = np.bincount(slot_of[taken], weights=nuisance[taken], minlength=len(counts))
    return int(np.argmin(np.where(enough, cost, np.inf)))


def _even(counts: np.ndarray, n: int, max_nodes: int) -> int:
    """The number on each node of the fewest nodes that give all."""
    ranked = np.sort(counts)[::-1]
    fits = (
        n // t for t in range(1, min(max_nodes, len(ranked)) + 1) if n % t == 0 and ranked[t - 1] >= n // t
    )
    return next(fits, n)


def node_for(view: Survey, job: int) -> Spot | None:
    """The node with most cores left among those that can take a job without GPUs."""
    p, room = view.problem, view.room
    fits = room.node_open & p.node_sets[p.node_set.item(job)]
    fits = fits & (p.cpu_milli.item(job) <= room.node_cpu_free)
    fits = fits & (p.host_memory_mib.item(job) <= room.node_memory_free)
    if p.node_alone.item(job):
        fits = fits & (room.node_jobs == 0)
    nodes = np.flatnonzero(fits)
    return (int(nodes[np.argmax(room.node_cpu_free[nodes])]),) if len(nodes) else None
