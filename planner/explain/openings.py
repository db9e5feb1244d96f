"""Where one more job could still go under a placement: by room, and by what its neighbours would suffer.

Two levels are kept apart so that thousands of waiting jobs cost little. Which *GPUs* a job could enter depends on few
facts, so alike jobs share one :class:`Openings`; memory and share enter only by their rank among the free amounts.
Whether enough of those GPUs lie together also depends on the hosts and the gang's shape: one :class:`Fit` each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.explain.beside import Neighbours
from planner.explain.room import NOBODY, Room, room_under
from planner.explain.shape import Shape, Slots, host_limit, most_together, shape_of, slots_of
from solvers.problem import Placed, Problem


@dataclass(frozen=True)
class Openings:
    """GPUs that jobs of one class could enter; masks over ``Survey.gpus``."""

    room: np.ndarray  # memory, share, tenants and consent are fine
    clear: np.ndarray  # and so are slowdowns, gate and pairs that never share
    sharing: (
        np.ndarray
    )  # it could enter if memory and slowdowns were no question (for jobs that are to be alone)


@dataclass(frozen=True)
class Fit:
    """How many GPUs a job can get at once, in its shape unless said otherwise."""

    clear: int
    clear_on_any_host: int  # if hosts had room without end
    clear_anywhere: int  # of one kind, wherever they lie
    room: int
    sharing: int


class Survey:
    """A placement looked over once, for questions about one more job.

    ``kept`` (G,) marks GPUs that are closed only to keep a reservation: they count as open here, and
    ``places.open_now`` takes them away again.
    """

    def __init__(self, problem: Problem, placed: Placed, kept: np.ndarray | None = None) -> None:
        self.problem, self.placed = problem, placed
        closed = problem.gpu_closed.astype(bool)
        self.kept = np.zeros(problem.gpus, bool) if kept is None else kept & closed
        self.room: Room = room_under(problem, placed, closed & ~self.kept)
        self.slots: Slots = slots_of(problem)
        # Only these can take anybody: dropping the rest makes a full cluster quick to survey.
        self.gpus = np.flatnonzero(self.room.open & ~self.room.guarded)
        self.kind = problem.gpu_kind[self.gpus]
        self.node = problem.gpu_node[self.gpus]
        self.neighbours = Neighbours(problem, placed, self.room, self.gpus)
        self.memory_rank = self._ranks(problem.memory_mib, self.room.free_mib)
        self.share_rank = self._ranks(problem.share, self.room.free_share)
        self.avoids = self._avoided()
        self.reserved = (problem.gpu_until_s[self.gpus] >= 0) | self.kept[self.gpus]
        self._reserved: dict[int, bool] = {}
        self._openings: dict[tuple[object, ...], tuple[int, Openings]] = {}
        self._number_of: dict[int, tuple[int, Openings]] = {}
        self._likeness: dict[int, tuple[int, ...]] = {}
        self._fits: dict[tuple[int, ...], Fit] = {}

    def _ranks(self, need: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Each need as its rank among what the GPUs of each kind have free; shape (J, M)."""
        ranks = np.zeros(need.shape, np.int64)
        for m in range(need.shape[1]):
            ranks[:, m] = np.searchsorted(np.unique(free[self.gpus][self.kind == m]), need[:, m])
        return ranks

    def _avoided(self) -> dict[int, set[int]]:
        """GPUs that a job must not enter because of who is there."""
        avoided: dict[int, set[int]] = {}
        for a, b in self.problem.never:
            for one, other in ((a, b), (b, a)):
                if self.placed[one] is None and self.placed[other] and self.problem.job_gpus.item(other):
                    avoided.setdefault(one, set()).update(self.placed[other] or ())
        return avoided

    def openings(self, job: int) -> Openings:
        """Where jobs like this one could go."""
        return self._numbered_openings(job)[1]

    def _numbered_openings(self, job: int) -> tuple[int, Openings]:
        p = self.problem
        found = self._number_of.get(job)
        if found is not None:
            return found
        key = (
            (p.speed_milli[job] > 0).tobytes(),
            self.memory_rank[job].tobytes(),
            self.share_rank[job].tobytes(),
            p.cap_milli[job].tobytes(),
            p.job_type.item(job),
            p.size_milli.item(job),
            p.share_group.item(job),
            p.node_set.item(job),
            p.alone.item(job),
            p.node_alone.item(job),
            job if job in self.avoids else -1,
        )
        kept = self._openings.get(key)
        if kept is None:
            kept = self._openings[key] = (len(self._openings), self._find(job))
        self._number_of[job] = kept
        return kept

    def _find(self, job: int) -> Openings:
        p, g, room = self.problem, self.gpus, self.room
        empty = room.count[g] == 0
        suitable = (p.speed_milli[job] > 0)[self.kind] & p.node_sets[p.node_set.item(job)][self.node]
        if p.node_alone.item(job):
            suitable &= room.node_jobs[self.node] == 0
        consent = (room.group[g] == NOBODY) | (room.group[g] == p.share_group.item(job))
        sharing = suitable & consent
        if p.alone.item(job):
            suitable = suitable & empty & (p.gpu_shared_outside[g] == 0)
        fits = (p.memory_mib[job][self.kind] <= room.free_mib[g]) & (
            p.share[job][self.kind] <= room.free_share[g]
        )
        has_room = suitable & consent & fits
        clear = self.neighbours.admits(job, has_room)
        if job in self.avoids:
            clear = clear & ~np.isin(g, list(self.avoids[job]))
        return Openings(has_room, clear, sharing)

    def hosts(self, job: int) -> np.ndarray:
        """GPUs of the job that each node's cores and memory are enough for; shape (V,)."""
        n = self.problem.job_gpus.item(job)
        return np.minimum(
            host_limit(self.room.node_cpu_free, self.problem.cpu_milli.item(job), n),
            host_limit(self.room.node_memory_free, self.problem.host_memory_mib.item(job), n),
        )

    def likeness(self, job: int) -> tuple[int, ...]:
        """Jobs of one likeness could go to the same places in the same shape, reservations apart."""
        known = self._likeness.get(job)
        if known is not None:
            return known
        p = self.problem
        known = self._likeness[job] = (
            self._numbered_openings(job)[0],
            p.job_gpus.item(job),
            p.max_nodes.item(job),
            p.gpus_per_node.item(job),
            p.cpu_milli.item(job),
            p.host_memory_mib.item(job),
        )
        return known

    def kept_from(self, job: int) -> bool:
        """Some of the GPUs that the job could enter are kept for a reservation; over the job's likeness."""
        number, openings = self._numbered_openings(job)
        known = self._reserved.get(number)
        if known is None:
            known = self._reserved[number] = bool((openings.clear & self.reserved).any())
        return known

    def fit(self, job: int) -> Fit:
        """How many of its GPUs a job that needs GPUs could get."""
        key = self.likeness(job)
        kept = self._fits.get(key)
        if kept is None:
            kept = self._fits[key] = self._fit(job, self.openings(job), shape_of(self.problem, job))
        return kept

    def _fit(self, job: int, openings: Openings, shape: Shape) -> Fit:
        clear = self.slots.counts(openings.clear, self.gpus)
        limit = self.hosts(job)[self.slots.node]
        held = np.minimum(clear, limit)
        kinds = np.bincount(self.slots.kind, weights=clear) if len(clear) else np.zeros(1)
        fit = most_together(shape, held, self.slots)
        if fit >= shape.gpus:
            return Fit(fit, fit, fit, fit, fit)
        room = np.minimum(self.slots.counts(openings.room, self.gpus), limit)
        sharing = np.minimum(self.slots.counts(openings.sharing, self.gpus), limit)
        return Fit(
            clear=fit,
            clear_on_any_host=most_together(shape, clear, self.slots),
            clear_anywhere=int(kinds.max()),
            room=most_together(shape, room, self.slots),
            sharing=most_together(shape, sharing, self.slots),
        )
