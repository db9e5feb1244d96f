"""One epoch: snapshot -> forecast -> problem -> solution -> plan, checked twice before anyone sees it.

Planning is a pure function of its arguments (but for the clock in ``made_at`` and the solver's wall time), so the
same epoch runs live, as a dry run, in replay and in simulation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from planner import explain, predict, validate
from planner.errors import EngineMissing, PlanRejected
from planner.formulate import Capabilities, Formulated, formulate, interpret
from planner.plan import Plan
from planner.quantities import counted
from solvers import EngineUnavailable, Limits, solve, thresholds
from solvers.check import objective, violations
from solvers.problem import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner.model import Snapshot
    from planner.policy import Policy, PredictorSpec
    from solvers import Progress as SolverProgress
    from solvers import Solution
    from solvers.problem import Placed

#: Part of the time limit that finding fixes for the costliest deferred jobs may take.
FIX_SHARE = 0.1
#: Address space of the engines' process.
ENGINE_MEMORY_MIB = 8192


@dataclass(frozen=True)
class Progress:
    """What is known while an engine works; GPU-seconds."""

    engine: str
    incumbent_gpu_s: float | None
    bound_gpu_s: float | None
    elapsed_s: float = 0.0

    @property
    def gap(self) -> float | None:
        """(incumbent - bound) / incumbent."""
        if self.incumbent_gpu_s is None or self.bound_gpu_s is None or self.incumbent_gpu_s <= 0:
            return None
        return (self.incumbent_gpu_s - self.bound_gpu_s) / self.incumbent_gpu_s


def plan_epoch(
    snapshot: Snapshot,
    policy: Policy,
    predictor: PredictorSpec,
    *,
    capabilities: Capabilities | None = None,
    made_at: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    fixes: bool = True,
    bound: bool = True,
    anomalies: Path | None = None,
    near: Plan | None = None,
) -> Plan:
    """Plan one epoch.

    Parameters
    ----------
    made_at
        ISO 8601 time for the plan; now if None.
    fixes
        Look for the cheapest change that would start the costliest deferred jobs. Never in deterministic
        mode, because how many are found depends on the clock.
    bound
        Look for a lower bound; not needed where only what starts is asked.
    anomalies
        Folder for the models on which an engine was wrong.
    near
        A plan of nearly the same inputs, to begin from.

    Raises
    ------
    EngineMissing
        The policy's solver is not known or not installed.
    PlanRejected
        The checks refuse the plan; this is a defect of the planner.
    """
    began = time.monotonic()
    forecast = predict.forecast(snapshot, policy, predictor)
    formulated = formulate(snapshot, forecast, policy, capabilities)
    look_for_fixes = fixes and not policy.deterministic and policy.time_limit_s > 0
    limit_s = policy.time_limit_s * (1 - FIX_SHARE if look_for_fixes else 1)
    if not policy.deterministic:  # there, limits become iterations, which must not depend on the clock
        limit_s = max(0.0, limit_s - (time.monotonic() - began))
    hint = None if near is None else explain.placed_of(formulated, near)
    solution = _solved(formulated, limit_s, on_progress, stop, anomalies, bound, hint)
    made_at = made_at or datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    plan = checked_plan(formulated, solution, made_at)
    if isinstance(solution, thresholds.Shortest):
        told = _makespan_told(solution, formulated.tick_s)
        plan = plan.model_copy(update={"warnings": (*plan.warnings, told)})
    if look_for_fixes and plan.deferred and not (stop is not None and stop()):
        plan = _with_fixes(plan, predictor, capabilities)
    return plan


def checked_plan(formulated: Formulated, solution: Solution, made_at: str) -> Plan:
    """The plan of a solution that both referees accept."""
    problem, placed = formulated.problem, solution.placed
    if placed is None:
        raise PlanRejected("the solver gave no placements")
    broken = violations(problem, placed)
    if broken:
        raise PlanRejected(f"the solver's answer breaks {counted(len(broken), 'rule')}: {broken[0].text}")
    plan = interpret(
        formulated,
        solution,
        explain.reasons(formulated, placed),
        terms=objective(problem, placed),
        base_cost=objective(problem, problem.base).total,
        made_at=made_at,
    )
    findings = validate.problems_of(plan, formulated.snapshot, formulated.forecast, formulated.policy)
    if findings:
        raise PlanRejected(f"the plan fails {counted(len(findings), 'check')}: {findings[0]}")
    return plan


def replan_with(
    predictor: PredictorSpec, capabilities: Capabilities | None = None, near: Plan | None = None
) -> Callable[[Snapshot, Policy], Plan]:
    """A function that plans a changed snapshot or policy again, within its time limit, without looking for fixes.

    It begins from the plan ``near`` the change, so that what differs is due to the change and not to less time.
    """

    def replan(snapshot: Snapshot, policy: Policy) -> Plan:
        return plan_epoch(
            snapshot, policy, predictor, capabilities=capabilities, fixes=False, bound=False, near=near
        )

    return replan


def _solved(
    formulated: Formulated,
    limit_s: float,
    on_progress: Callable[[Progress], None] | None,
    stop: Callable[[], bool] | None,
    anomalies: Path | None,
    bound: bool,
    hint: Placed | None,
) -> Solution:
    policy = formulated.policy
    limits = Limits(
        wall_s=limit_s, deterministic=policy.deterministic, seed=policy.seed, memory_mib=ENGINE_MEMORY_MIB
    )

    def heard(p: SolverProgress) -> None:
        if on_progress is not None:
            on_progress(Progress(p.engine, _gpu_s(p.objective), _gpu_s(p.bound), p.elapsed_s))

    chosen = thresholds.solve if policy.makespan_first else solve
    try:
        return chosen(
            formulated.problem,
            limits,
            engine=policy.solver,
            hint=hint,
            on_progress=heard if on_progress is not None else None,
            save_anomaly=anomalies,
            stop=stop,
            bound=bound,
        )
    except EngineUnavailable as error:
        raise EngineMissing(str(error)) from error


def _makespan_told(solution: thresholds.Shortest, tick_s: float) -> str:
    """How short the makespan is, and what its coming first means for the bound."""
    if not solution.makespan:
        return "makespan_first: no job's end is known, so all plans are equal in it"
    reached, least = (round(ticks * tick_s) for ticks in (solution.makespan, solution.least_makespan))
    shortest = (
        "no plan's is shorter"
        if solution.least_makespan >= solution.makespan
        else f"no plan's is below {least} s"
    )
    return f"makespan_first: the makespan is at most {reached} s, {shortest}; the bound is on plans that are as short"


def _gpu_s(milli: int | None) -> float | None:
    return None if milli is None else milli / MILLI


def _with_fixes(plan: Plan, predictor: PredictorSpec, capabilities: Capabilities | None) -> Plan:
    assert plan.inputs is not None
    deadline = time.monotonic() + plan.inputs.policy.time_limit_s * FIX_SHARE
    found = explain.fixes(plan, replan_with(predictor, capabilities), deadline)
    deferred = tuple(
        d.model_copy(update={"fix": found[d.job_id]}) if d.job_id in found else d for d in plan.deferred
    )
    return plan.model_copy(update={"deferred": deferred})
