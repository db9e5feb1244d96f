"""What the empty cluster would offer a waiting job, and what is open to it now, reservations considered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.explain.openings import Survey
from planner.explain.shape import host_limit, most_together, shape_of
from solvers.problem import MILLI, NVLINK


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
    # A speed says that the kind's whole memory would do; what strangers use of a GPU now may be free another day.
    suitable = (
        (p.speed_milli[job][p.gpu_kind] > 0) & allowed[p.gpu_node] & (p.share[job][p.gpu_kind] <= p.gpu_share)
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
    s = int(beside(view, job, np.array([position]))[0])
    v = max(1, p.speed_milli.item(job, int(view.kind[position])))
    return -(-p.remaining_p90_s.item(job) * s * p.link_milli.item(job, NVLINK) // (MILLI * v))


def beside(view: Survey, job: int, positions: np.ndarray) -> np.ndarray:
    """The job's slowdown on each of the positions of ``view.gpus``."""
    contents = view.neighbours.content_of[positions]
    slow = np.full(len(positions), MILLI)
    there = contents >= 0
    slow[there] = view.neighbours.mine(view.problem.job_type.item(job), contents[there])
    return slow


def open_now(view: Survey, job: int) -> int:
    """How many of its GPUs the job could have now, reservations and hosts considered."""
    if not view.kept_from(job):
        return view.fit(job).clear
    counts = view.slots.counts(open_mask(view, job), view.gpus)
    return most_together(
        shape_of(view.problem, job), np.minimum(counts, view.hosts(job)[view.slots.node]), view.slots
    )
