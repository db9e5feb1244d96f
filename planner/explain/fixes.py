"""The cheapest single change that would start a waiting job, each candidate planned before it is claimed.

What the plan decided is made a fact first: its jobs run where it puts them and stay there. A change counts if planning
again then starts the job while, unchanged, it does not. A *fresh* change, such as a priority, is planned on the inputs as
they were instead. Among the changes that count, the one whose plan costs least is given. These quick plans tell that the
job would start, no more: what the change costs, and who then waits, is said only where all was planned again as the plan
itself was (``fix_and_cost``). No claim is made that was not planned; where time runs out, there is no claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from planner import edit
from planner.errors import PlannerError
from planner.explain.changes import Change, Ladder, Situation, ladders
from planner.explain.declare import declarations
from planner.explain.levers import Make
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
#: Most seconds in which all is planned again with the one change that is given.
REPLAN_S = 5.0
#: Seconds a job to forecast, formulate and check a plan, measured on two slow cores.
READING_S = 2e-4


def fixes(plan: Plan, replan: Replan, deadline: float) -> dict[str, Fix]:
    """Fixes of the costliest deferred jobs, as far as ``deadline`` (``time.monotonic``) allows; job id -> fix."""
    if plan.inputs is None or time.monotonic() + 2 * replan_s(plan) > deadline:
        return {}
    search = Search.of(plan, replan, deadline)
    costliest = sorted(plan.deferred, key=lambda d: (-d.cost_gpu_s, d.job_id))[:MOST_JOBS]
    found = {d.job_id: search.cheapest(d.job_id) for d in costliest if not search.late}
    return {job_id: _fix(*fix) for job_id, fix in found.items() if fix is not None}


def fix_and_cost(plan: Plan, replan: Replan, deadline: float, job_id: str) -> Fix | None:
    """The fix of one job, and of all planned again with it: who then waits, and how much more that plan costs.

    Planned with the plan's own solver, after ``deadline``, which is for finding the fix.
    """
    search = Search.of(plan, replan, deadline)
    found = search.cheapest(job_id)
    return None if found is None else search.with_cost(*found, job_id)


def _fix(change: Change, needs: str) -> Fix:
    others = ", though others may then wait" if change.fresh else ""
    return Fix(change=change.what, detail=change.detail + others + needs)


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
    def was(self) -> tuple[Snapshot, Policy]:
        """The inputs as they were."""
        inputs = self.plan.inputs
        assert inputs is not None
        return inputs.snapshot, inputs.policy

    @property
    def late(self) -> bool:
        """The deadline has passed."""
        return time.monotonic() >= self.deadline

    def cheapest(self, job_id: str) -> tuple[Change, str] | None:
        """The cheapest change that starts the job, and the moves that would do instead, in words.

        None if no change does, or none was found in time.
        """
        if self.base is None:
            self.base = self._planned((self.snapshot, self.policy))
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
        instead = moves is not None and moves is not best
        return best[1], f"; without that it {moves[1].detail}" if moves and instead else ""

    def with_cost(self, change: Change, needs: str, job_id: str) -> Fix:
        """The fix, with what all planned again as the plan itself was tells of it."""
        limit_s = min(self.was[1].time_limit_s, REPLAN_S)
        plan = self._planned(self.was, limit_s, change.asked or change.make)
        if plan is None:
            return _fix(change, needs)
        if not runs(plan, job_id):
            only = "in a quick plan" if change.fresh else "if the plan's jobs stay where it puts them"
            detail = f"{change.detail}{needs}, {only}; with all planned again, it still waits"
            return Fix(change=change.what, detail=detail)
        now = {a.job_id for a in plan.assignments}
        waiting = [a.job_id for a in self.plan.assignments if a.job_id not in now]
        others = f", but {listed(waiting)} would then wait" if waiting else ""
        cost = self._more(plan, self.plan) if change.fresh else _total(plan) - _total(self.plan)
        return Fix(change=change.what, detail=change.detail + others + needs, extra_cost_gpu_s=round(cost, 3))

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
        if change.fresh:
            plan = self._planned(self.was, self.fresh_s, change.make)
        else:
            plan = self._planned((self.snapshot, self.policy), 0, change.make)
        if plan is None or self.base is None or not all(runs(plan, j) for j in (job_id, *change.freed)):
            return None
        if change.fresh:
            return self._fresh_cost(plan, job_id)
        return _total(plan) - _total(self.base) + change.move_cost_gpu_s

    def _fresh_cost(self, plan: Plan, job_id: str) -> float | None:
        """What a quick plan of changed inputs costs more; None if the unchanged ones start the job anyway."""
        if self.fresh_base is None:
            self.fresh_base = self._planned(self.was, self.fresh_s)
        if self.fresh_base is None or runs(self.fresh_base, job_id):
            return None
        return self._more(plan, self.fresh_base)

    def _more(self, plan: Plan, other: Plan) -> float:
        """What the plan costs more than the other by the weights as they were."""
        if self.formulated is None:
            assert self.plan.inputs is not None
            self.formulated = formulate(self.was[0], self.plan.inputs.forecast, self.was[1])
        f = self.formulated
        costs = [objective(f.problem, placed_of(f, p)).total for p in (plan, other)]
        return (costs[0] - costs[1]) / MILLI

    def _planned(
        self, inputs: tuple[Snapshot, Policy], time_s: float = 0, make: Make | None = None
    ) -> Plan | None:
        try:
            snapshot, policy = make(*inputs) if make is not None else inputs
            return self.replan(snapshot, edit.changed(policy, time_limit_s=time_s))
        except (PlannerError, ValueError):
            return None  # an edit that makes no valid input, or no valid plan, is no fix


def _total(plan: Plan) -> float:
    return plan.objective.total_gpu_s


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
