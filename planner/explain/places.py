"""Three questions about one waiting job: what the empty cluster would offer, what is open now, and where it would start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.explain.openings import Survey
from planner.explain.shape import host_limit, most_together, shape_of
from solvers.problem import MILLI, NVLINK, Spot


def empty_fit(view: Survey, job: int) -> tuple[int, int]:
    """GPUs that the job could get on the empty, healthy cluster, and if the backend could express any form.

    For a job without GPUs 1 if some node is large enough, else 0.
    """
    p = view.problem
    n = p.job_gpus.item(job)
    allowed = p.node_sets[p.node_set.item(job)]
    hosts = np.minimum(
        host_limit(p.node_cpu_milli, p.cpu_milli.item(job), max(n, 1)),
        host_limit(p.node_memory_mib, p.host_memory_mib.item(job), max(n, 1)),
    )
    if n == 0:
        fits = bool((allowed & (hosts >= 1)).any())
        return int(fits), int(fits)
    suitable = (
        (p.speed_milli[job][p.gpu_kind] > 0)
        & allowed[p.gpu_node]
        & (p.memory_mib[job][p.gpu_kind] <= p.gpu_memory_mib)
        & (p.share[job][p.gpu_kind] <= p.gpu_share)
    )
    counts = np.minimum(view.slots.counts(suitable, np.arange(p.gpus)), hosts[view.slots.node])
    shape = shape_of(p, job)
    most = most_together(shape, counts, view.slots)
    free_form = replace(shape, equal=False, same_index=False)
    return most, most_together(free_form, counts, view.slots) if most < n else most


def open_mask(view: Survey, job: int) -> np.ndarray:
    """Of the GPUs that the job could enter, those whose reservations it does not delay; over ``view.gpus``."""
    p, clear = view.problem, view.openings(job).clear
    until = p.gpu_until_s[view.gpus]
    bound = (until >= 0) & (p.gpu_holder[view.gpus] != job)
    late = bound & clear
    if p.remaining_p90_s.item(job) >= 0:
        for i in np.flatnonzero(late).tolist():
            late[i] = end_s(view, job, i) > until[i]
    return clear & ~late & ~view.kept[view.gpus]


def end_s(view: Survey, job: int, position: int) -> int:
    """When the job would end (p90) on ``view.gpus[position]``, over the fastest links."""
    p = view.problem
    content = int(view.neighbours.content_of[position])
    s = MILLI if content < 0 else view.neighbours.verdict(job, content).slowdown_milli
    v = max(1, p.speed_milli.item(job, int(view.kind[position])))
    return -(-p.remaining_p90_s.item(job) * s * p.link_milli.item(job, NVLINK) // (MILLI * v))


def open_now(view: Survey, job: int) -> int:
    """How many of its GPUs the job could have now, reservations and hosts considered."""
    if not ((view.problem.gpu_until_s >= 0).any() or view.kept.any()):
        return view.fit(job).clear
    counts = view.slots.counts(open_mask(view, job), view.gpus)
    return most_together(
        shape_of(view.problem, job), np.minimum(counts, view.hosts(job)[view.slots.node]), view.slots
    )


def spot_for(view: Survey, job: int) -> Spot | None:
    """A place where the job would fit now: the least disturbing GPUs on the nodes with most of them; None if none."""
    p, n = view.problem, view.problem.job_gpus.item(job)
    if n == 0:
        return _node_for(view, job)
    mask = open_mask(view, job)
    counts = np.minimum(view.slots.counts(mask, view.gpus), view.hosts(job)[view.slots.node])
    shape = shape_of(p, job)
    for kind in sorted(np.unique(view.slots.kind).tolist(), key=lambda m: -p.speed_milli.item(job, m)):
        of_kind = np.where(view.slots.kind == kind, counts, 0)
        if most_together(shape, of_kind, view.slots) >= n:
            return _take(view, job, mask, of_kind)
    return None


def _take(view: Survey, job: int, mask: np.ndarray, counts: np.ndarray) -> Spot:
    shape = shape_of(view.problem, job)
    each = shape.per_node or (
        _even(counts, shape.gpus, shape.max_nodes) if shape.equal or shape.same_index else 0
    )
    spot: list[int] = []
    for slot in np.argsort(-counts, kind="stable").tolist():
        wanted = min(shape.gpus - len(spot), each or int(counts[slot]))
        if wanted <= 0:
            break
        here = np.flatnonzero(mask & (view.slots.of_gpu[view.gpus] == slot))
        here = here[np.argsort([_disturbance(view, job, i) for i in here.tolist()], kind="stable")]
        spot += view.gpus[here[:wanted]].tolist()
    return tuple(sorted(spot))


def _even(counts: np.ndarray, n: int, max_nodes: int) -> int:
    """The number on each node of the fewest nodes that give all."""
    ranked = np.sort(counts)[::-1]
    return next((n // t for t in range(1, max_nodes + 1) if n % t == 0 and ranked[t - 1] >= n // t), n)


def _disturbance(view: Survey, job: int, position: int) -> int:
    content = int(view.neighbours.content_of[position])
    return MILLI if content < 0 else view.neighbours.verdict(job, content).slowdown_milli


def _node_for(view: Survey, job: int) -> Spot | None:
    """The node with most cores left among those that can take a job without GPUs."""
    p, room = view.problem, view.room
    fits = room.node_open & p.node_sets[p.node_set.item(job)]
    fits = fits & (p.cpu_milli.item(job) <= room.node_cpu_free)
    fits = fits & (p.host_memory_mib.item(job) <= room.node_memory_free)
    if p.node_alone.item(job):
        fits = fits & (room.node_jobs == 0)
    nodes = np.flatnonzero(fits)
    return (int(nodes[np.argmax(room.node_cpu_free[nodes])]),) if len(nodes) else None
