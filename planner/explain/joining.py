"""What it would cost to start one more job at a place: its own loss, its neighbours', and the makespan's.

The same terms as the program's, worked out only for the jobs that would notice, so that it is cheap enough to
state for every waiting job.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from planner.explain.openings import Survey
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, PPM, Problem, Spot

Costs = tuple[int, int]  # cost and end of a job


@dataclass(frozen=True)
class Joining:
    """Costs in milli-GPU-seconds, weighted; ``theirs`` is what the job's coming adds to its neighbours' costs."""

    own: int
    theirs: int
    rest: int  # makespan and fragmentation
    slowdown_milli: int
    link_milli: int

    @property
    def total(self) -> int:
        """What starting would add."""
        return self.own + self.theirs + self.rest


@dataclass(frozen=True)
class _Place:
    """What a job of some type would find at a place: its slowdown, and what its coming changes for the others."""

    mine: int
    theirs: int
    ends: dict[int, int]  # of the neighbours
    opening: int


class Ledger:
    """Costs of starting one more job under a surveyed placement."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.problem: Problem = survey.problem
        self._places: dict[tuple[int, Spot], _Place] = {}
        self._used_nodes = frozenset(survey.problem.gpu_node[survey.room.count > 0].tolist())

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        """End and job, latest first; jobs of unknown end left out."""
        ends = []
        for j, spot in enumerate(self.survey.placed):
            if spot is None:
                end = self.problem.deferred_end.item(j)
            elif self.problem.job_gpus.item(j):
                end = self._cost(j, spot, self._slowdown(j, spot))[1]
            else:
                end = self.problem.work.item(j) if self.problem.work.item(j) < 0 else self._alone_end(j)
            if end >= 0:
                ends.append((end, j))
        return sorted(ends, reverse=True)

    @property
    def latest_end(self) -> int:
        """The latest end as things stand, in ticks; 0 if none is known."""
        return self._ends[0][0] if self._ends else 0

    def _alone_end(self, job: int) -> int:
        return -(
            -self.problem.work.item(job) * MILLI * self.problem.link_milli.item(job, NVLINK) // (MILLI * PPM)
        )

    def own(self, job: int) -> int:
        """What a placed job loses where it is: speed, interference and locality."""
        spot = self.survey.placed[job] or ()
        return self._cost(job, spot, self._slowdown(job, spot))[0] if self.problem.job_gpus.item(job) else 0

    def joining(self, job: int, spot: Spot) -> Joining:
        """What starting the job at ``spot`` would add; ``spot`` holds GPUs, or one node for a job without."""
        p = self.problem
        if not p.job_gpus.item(job):
            return Joining(0, 0, self._makespan({job: self._alone_end(job)}), MILLI, MILLI)
        there = self._at(p.job_type.item(job), spot)
        own, end = self._cost(job, spot, there.mine)
        rest = self._makespan({job: end, **there.ends}) + there.opening
        return Joining(own, there.theirs, rest, there.mine, p.link_milli.item(job, self._link(job, spot)))

    def _at(self, job_type: int, spot: Spot) -> _Place:
        """What any job of a type would find and cause at a place; worked out once."""
        kept = self._places.get((job_type, spot))
        if kept is not None:
            return kept
        tenants, placed = self.survey.room.tenants, self.survey.placed
        mine = max(self._beside(job_type, g, tenants[g]) for g in spot)
        ends, theirs = {}, 0
        for other in sorted({t for g in spot for t in tenants[g]}):
            home = placed[other] or ()
            before, _ = self._cost(other, home, self._slowdown(other, home))
            after, ends[other] = self._cost(other, home, self._slowdown(other, home, job_type, spot))
            theirs += after - before
        kept = self._places[job_type, spot] = _Place(mine, theirs, ends, self._opening(spot))
        return kept

    def _beside(self, job_type: int, gpu: int, others: tuple[int, ...], more: tuple[int, ...] = ()) -> int:
        """Slowdown of a job of a type beside others, and types ``more``, on a GPU."""
        if not others and not more:
            return MILLI
        p = self.problem
        types = [p.job_type.item(o) for o in others]
        return p.interference.slowdown(p.gpu_kind.item(gpu), job_type, [*types, *more])

    def _slowdown(self, job: int, spot: Spot, more: int | None = None, where: Spot = ()) -> int:
        """Slowdown of a placed job at its slowest GPU, with one tenant of type ``more`` on the GPUs ``where``."""
        tenants, job_type = self.survey.room.tenants, self.problem.job_type.item(job)
        slowest = MILLI
        for g in spot:
            others = tuple(t for t in tenants[g] if t != job)
            added = (more,) if more is not None and g in where else ()
            slowest = max(slowest, self._beside(job_type, g, others, added))
        return slowest

    def _link(self, job: int, spot: Spot) -> int:
        p = self.problem
        groups = {p.gpu_link.item(g) for g in spot}
        if p.job_gpus.item(job) <= 1 or (len(groups) == 1 and min(groups) >= 0):
            return NVLINK
        return PCIE if len({p.gpu_node.item(g) for g in spot}) == 1 else NETWORK

    def _cost(self, job: int, spot: Spot, slowdown: int) -> Costs:
        """Speed, interference and locality of a placed job, and its end in ticks (-1: unknown)."""
        p = self.problem
        v = p.speed_milli.item(job, p.gpu_kind.item(spot[0]))
        k = p.link_milli.item(job, self._link(job, spot))
        alone, beside, linked = MILLI * v, MILLI * v * MILLI // slowdown, v * 10**9 // (slowdown * k)
        cost = (
            (PPM - alone) * p.unit_speed.item(job) // PPM
            + (alone - beside) * p.unit_interference.item(job) // PPM
            + (beside - linked) * p.unit_locality.item(job) // PPM
        )
        work = p.work.item(job)
        return cost, -(-work * slowdown * k // (v * PPM)) if work >= 0 and v > 0 else -1

    def _makespan(self, changed: dict[int, int]) -> int:
        """What the makespan term gains or loses if these jobs end otherwise."""
        if not self.problem.makespan_cost:
            return 0
        before = self.latest_end
        unchanged = next((end for end, j in self._ends if j not in changed), 0)
        return self.problem.makespan_cost * (max(unchanged, *changed.values(), 0) - before)

    def _opening(self, spot: Spot) -> int:
        """Fragmentation: GPUs and nodes that would come into use."""
        p, count = self.problem, self.survey.room.count
        cost = sum(p.gpu_open_cost.item(g) for g in spot if not count[g])
        for v in {p.gpu_node.item(g) for g in spot}:
            if v not in self._used_nodes:
                cost += p.node_used_cost.item(v)
        return cost
