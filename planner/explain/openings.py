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


@dataclass(frozen=True)
class Fit:
    """How many GPUs a job can get at once, in its shape unless said otherwise."""

    clear: int
    clear_on_any_host: int  # if hosts had room without end
    clear_anywhere: int  # of one kind, wherever they lie
    room: int
    if_known: int  # if nothing unknown, of it or of tenants, stood in the way


class Survey:
    """A placement looked over once, for questions about one more job.

    ``kept`` (G,) marks GPUs that are closed only to keep a reservation: they count as open here, and
    ``places.open_now`` takes them away again. ``wishes`` (J,) marks jobs that share with nobody by their own wish; the
    others that are to be alone are so because something is not known. Without it all are taken at their word.
    """

    def __init__(
        self,
        problem: Problem,
        placed: Placed,
        kept: np.ndarray | None = None,
        wishes: np.ndarray | None = None,
    ) -> None:
        self.problem, self.placed = problem, placed
        closed = problem.gpu_closed.astype(bool)
        self.kept = np.zeros(problem.gpus, bool) if kept is None else kept & closed
        self.wishes = problem.alone.astype(bool) if wishes is None else wishes
        self.room: Room = room_under(problem, placed, closed & ~self.kept, self.wishes)
        self.slots: Slots = slots_of(problem)
        # Only these can take anybody: dropping the rest makes a full cluster quick to survey.
        self.gpus = np.flatnonzero(self.room.open & ~self.room.guarded)
        #: These could, if nothing about anybody were unknown.
        self.could = np.flatnonzero(self.room.open & ~self.room.firm)
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
        self._if_known: dict[int, np.ndarray] = {}

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

    def openings_number(self, job: int) -> int:
        """The same for jobs that share their openings."""
        return self._numbered_openings(job)[0]

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
            self.wishes.item(job),
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
        if p.alone.item(job):
            suitable = suitable & empty & (p.gpu_shared_outside[g] == 0)
        fits = (p.memory_mib[job][self.kind] <= room.free_mib[g]) & (
            p.share[job][self.kind] <= room.free_share[g]
        )
        has_room = suitable & consent & fits
        clear = self.neighbours.admits(job, has_room)
        if job in self.avoids:
            clear = clear & ~np.isin(g, list(self.avoids[job]))
        return Openings(has_room, clear)

    def consenting(self, job: int) -> np.ndarray:
        """GPUs of a suitable kind and node whose tenants, if any, share with this job's owner; over ``gpus``."""
        p, g, group = self.problem, self.gpus, self.room.group
        suitable = (p.speed_milli[job] > 0)[self.kind] & p.node_sets[p.node_set.item(job)][self.node]
        return suitable & ((group[g] == NOBODY) | (group[g] == p.share_group.item(job)))

    def if_known(self, job: int) -> np.ndarray:
        """GPUs that jobs like this one could enter if nothing were unknown; a mask over ``could``.

        Where a figure is known it counts; slowdowns are looked at only beside tenants of whom all is known.
        """
        number, openings = self._numbered_openings(job)
        if number not in self._if_known:
            self._if_known[number] = self._find_if_known(job, openings)
        return self._if_known[number]

    def _find_if_known(self, job: int, openings: Openings) -> np.ndarray:
        p, g, room = self.problem, self.could, self.room
        clear = np.zeros(p.gpus, bool)
        clear[self.gpus] = openings.clear
        if self.wishes.item(job):
            return clear[g]
        kind, used = p.gpu_kind[g], room.count[g] > 0
        # A job of unknown memory needs some.
        need = np.maximum(p.memory_mib[job][kind], used & p.alone.item(job))
        fits = (need <= room.free_mib[g]) & (p.share[job][kind] <= room.free_share[g])
        consent = (room.group[g] == NOBODY) | (room.group[g] == p.share_group.item(job))
        suits = fits & consent & ~(self.kept[g] & used)
        suits &= (p.speed_milli[job] > 0)[kind] & p.node_sets[p.node_set.item(job)][p.gpu_node[g]]
        if job in self.avoids:
            suits &= ~np.isin(g, list(self.avoids[job]))
        return suits if p.alone.item(job) else clear[g] | (suits & room.guarded[g])

    def _unknowns_matter(self, job: int) -> bool:
        own = self.problem.alone.item(job) and not self.wishes.item(job)
        return bool(own) or len(self.could) > len(self.gpus)

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
        known = fit
        if self._unknowns_matter(job):
            counts = np.minimum(self.slots.counts(self.if_known(job), self.could), limit)
            known = most_together(shape, counts, self.slots)
        return Fit(
            clear=fit,
            clear_on_any_host=most_together(shape, clear, self.slots),
            clear_anywhere=int(kinds.max()),
            room=most_together(shape, room, self.slots),
            if_known=known,
        )
