"""The cheapest single change that would start a waiting job, each candidate planned before it is claimed.

What the plan decided is made a fact first: its jobs run where it puts them and stay there. A change counts if planning
again then starts the job while, unchanged, it does not. A *fresh* change, such as a priority, is planned on the inputs as
they were instead, and the jobs that then wait are named. Among the changes that count, the one whose plan costs
least is given. No claim is made that was not planned; where time runs out, there is no claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from planner import edit
from planner.errors import PlannerError
from planner.explain.changes import Change, Ladder, Situation, ladders
from planner.explain.declare import declarations
from planner.explain.moves import move_ladder
from planner.explain.terms import placed_of
from planner.explain.unknowns import listed
from planner.formulate import Formulated, formulate
from planner.model import Job, Snapshot
from planner.plan import Fix, Plan
from planner.policy import Policy
from solvers.check import objective
from solvers.problem import MILLI

Replan = Callable[[Snapshot, Policy], Plan]
#: Deferred jobs for which a plan looks for fixes.
MOST_JOBS = 20
#: Part of the time for fixes that one plan of inputs as they were may take, and the most seconds of it. Beside a
#: settled plan the greedy will do; where others may be displaced, it often finds no way.
FRESH_SHARE, FRESH_S = 0.05, 0.5
#: Seconds a job to forecast, formulate and check a plan, measured on two slow cores.
READING_S = 2e-4


def fixes(plan: Plan, replan: Replan, deadline: float) -> dict[str, Fix]:
    """Fixes of the costliest deferred jobs, as far as ``deadline`` (``time.monotonic``) allows; job id -> fix."""
    if plan.inputs is None or time.monotonic() + 2 * replan_s(plan) > deadline:
        return {}
    search = Search.of(plan, replan, deadline)
    costliest = sorted(plan.deferred, key=lambda d: (-d.cost_gpu_s, d.job_id))[:MOST_JOBS]
    found = {d.job_id: search.fix(d.job_id) for d in costliest if not search.late}
    return {job_id: fix for job_id, fix in found.items() if fix is not None}


@dataclass
class Search:
    """A plan made fact, planned again without a change to compare with, and the time that is left."""

    plan: Plan
    replan: Replan
    deadline: float
    snapshot: Snapshot
    policy: Policy
    base: Plan | None = None
    fresh_base: Plan | None = None
    formulated: Formulated | None = None
    fresh_s: float = 0
    fresh_plans: dict[str, Plan] = field(default_factory=dict)  # by the change

    @classmethod
    def of(cls, plan: Plan, replan: Replan, deadline: float) -> Search:
        """Start a search; ``plan`` carries its inputs."""
        assert plan.inputs is not None
        policy = edit.changed(plan.inputs.policy, max_moves=0)
        fresh_s = min(FRESH_S, FRESH_SHARE * (deadline - time.monotonic()), policy.time_limit_s)
        return cls(
            plan,
            replan,
            deadline,
            settled(plan, plan.inputs.snapshot),
            policy,
            fresh_s=max(0, fresh_s),
        )

    @property
    def late(self) -> bool:
        """The deadline has passed."""
        return time.monotonic() >= self.deadline

    def fix(self, job_id: str) -> Fix | None:
        """The cheapest change that starts the job; None if none does, or none was found in time."""
        if self.base is None:
            self.base = self._planned(lambda: (self.snapshot, self.policy))
        self.fresh_plans.clear()
        if self.base is None or runs(self.base, job_id):
            return None
        situation = Situation(self.snapshot.job_by_id[job_id], self.plan, self.snapshot, self.policy)
        moves = self._fewest(self._climb(move_ladder(situation), job_id), job_id)
        best = moves
        for ladder in chain(ladders(situation), declarations(situation)):
            found = self._climb(ladder, job_id)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
            if self.late:
                break
        if best is None:
            return None
        detail = best[1].detail + self._who_waits(best[1])
        if moves is not None and moves is not best:
            detail += f"; without that it {moves[1].detail}"
        return Fix(change=best[1].what, detail=detail, extra_cost_gpu_s=round(best[0], 3))

    def _climb(self, ladder: Ladder, job_id: str) -> tuple[float, Change] | None:
        """The mildest change of the ladder that works, and what it costs more."""
        if ladder.halving:
            return self._halve(ladder.changes, job_id)
        for change in ladder.changes:
            if self.late:
                return None
            cost = self._extra_cost(change, job_id)
            if cost is not None:
                return cost, change
        return None

    def _fewest(self, found: tuple[float, Change] | None, job_id: str) -> tuple[float, Change] | None:
        """A set of moves none of which can be left out: each is left out once, and the rest planned.

        Not all small sets are tried before larger ones, so that what is said to be needed is checked here.
        """
        if found is None:
            return None
        for part in found[1].parts():
            if self.late:
                return None  # unchecked
            cost = self._extra_cost(part, job_id)
            if cost is not None:
                return self._fewest((cost, part), job_id)
        return found

    def _halve(self, changes: tuple[Change, ...], job_id: str) -> tuple[float, Change] | None:
        low, high, best = 0, len(changes) - 1, None
        while low <= high and not self.late:
            # The strongest change first: if that does not work, none does.
            middle = high if best is None else (low + high) // 2
            cost = self._extra_cost(changes[middle], job_id)
            if cost is not None:
                best, high = (cost, changes[middle]), middle - 1
            elif best is None:
                return None
            else:
                low = middle + 1
        return best

    def _extra_cost(self, change: Change, job_id: str) -> float | None:
        """What the plan with the change costs more; None if it does not start the job and place all it freed."""
        plan = self._planned(change.make, self.fresh_s if change.fresh else 0)
        if plan is None or self.base is None or not all(runs(plan, j) for j in (job_id, *change.freed)):
            return None
        if change.fresh:
            self.fresh_plans[change.what] = plan
            return self._fresh_cost(plan, job_id)
        return plan.objective.total_gpu_s - self.base.objective.total_gpu_s + change.move_cost_gpu_s

    def _fresh_cost(self, plan: Plan, job_id: str) -> float | None:
        """What a plan of changed inputs costs more by the weights as they were; None if it started the job anyway."""
        inputs = self.plan.inputs
        assert inputs is not None
        if self.fresh_base is None:
            self.fresh_base = self._planned(lambda: (inputs.snapshot, inputs.policy), self.fresh_s)
            self.formulated = formulate(inputs.snapshot, inputs.forecast, inputs.policy)
        if self.fresh_base is None or self.formulated is None or runs(self.fresh_base, job_id):
            return None
        costs = [
            objective(self.formulated.problem, placed_of(self.formulated, p)).total
            for p in (plan, self.fresh_base)
        ]
        return (costs[0] - costs[1]) / MILLI

    def _who_waits(self, change: Change) -> str:
        """The jobs that wait for a fresh change and would start without it."""
        plan = self.fresh_plans.get(change.what) if change.fresh else None
        if plan is None or self.fresh_base is None:
            return ""
        now = {a.job_id for a in plan.assignments}
        waiting = [a.job_id for a in self.fresh_base.assignments if a.job_id not in now]
        return f", but {listed(waiting)} would then wait" if waiting else ""

    def _planned(self, make: Callable[[], tuple[Snapshot, Policy]], time_s: float = 0) -> Plan | None:
        try:
            snapshot, policy = make()
            return self.replan(snapshot, edit.changed(policy, time_limit_s=time_s))
        except (PlannerError, ValueError):
            return None  # an edit that makes no valid input, or no valid plan, is no fix


def replan_s(plan: Plan) -> float:
    """About how long planning again takes: the quickest engine that answered, and reading and checking the jobs."""
    walls = [a.wall_s for a in plan.solve.attempts if a.objective_gpu_s is not None]
    jobs = len(plan.assignments) + len(plan.deferred)
    return min(walls, default=0) + jobs * READING_S


def runs(plan: Plan, job_id: str) -> bool:
    """The plan gives the job a place."""
    return any(a.job_id == job_id for a in plan.assignments)


def settled(plan: Plan, snapshot: Snapshot) -> Snapshot:
    """The snapshot in which the plan's jobs run where it puts them and stay; those it stops wait, held."""
    places = {a.job_id: a.gpu_ids or a.nodes for a in plan.assignments}
    return edit.changed(
        snapshot, jobs=tuple(_settled(j, places, plan, snapshot.now_s) for j in snapshot.jobs)
    )


def _settled(job: Job, places: dict[str, tuple[str, ...]], plan: Plan, now_s: float) -> Job:
    if job.id in plan.preempted:
        return edit.changed(job, running_on=(), started_s=None, state="held")
    if job.id not in places:
        return job
    started = job.started_s if job.running else now_s
    return edit.changed(
        job, running_on=places[job.id], started_s=started, movable=False, preemptible=False, state="ready"
    )
