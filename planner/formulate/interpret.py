"""Solution -> Plan: names instead of indices, the unrounded prediction beside the rounded objective."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from planner.formulate.jobs import JobView
from planner.formulate.reserve import link_of
from planner.formulate.waves import waves
from planner.plan import (
    Assignment,
    AttemptRecord,
    Deferred,
    Inputs,
    Objective,
    Plan,
    Predicted,
    Reservation,
    Solve,
    Terms,
)
from planner.predict.interference import InterferenceModel, Tenant, build, tenant_of
from planner.quantities import counted
from solvers.problem import MILLI

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.formulate.contract import Formulated
    from planner.plan import Reason
    from solvers.problem import Placed, Solution
    from solvers.problem import Terms as SolverTerms

    State = Literal["start", "stay", "move"]
    Reasons = Sequence[tuple[int, Reason, str]]


def interpret(
    formulated: Formulated,
    solution: Solution,
    reasons: Reasons,
    *,
    terms: SolverTerms,
    base_cost: int,
    made_at: str,
) -> Plan:
    """The plan that a verified solution stands for.

    ``terms`` is the referee's objective of ``solution.placed``, ``base_cost`` that of starting nothing.
    """
    placed = solution.placed
    if placed is None:
        raise ValueError("a plan needs placements")
    reading = _Reading.of(formulated, placed)
    assignments = tuple(_assignment(reading, j) for j in reading.placed_in_order)
    deferred = _deferred(formulated, reasons)
    preempted = tuple(
        reading.job_id(j)
        for j, home in enumerate(formulated.problem.home)
        if home is not None and placed[j] is None
    )
    reservations = tuple(
        Reservation(job_id=reading.job_id(j), gpu_ids=tuple(formulated.gpu_ids[g] for g in spot), from_s=at)
        for j, spot, at in formulated.reservations
        if placed[j] is None
    )
    inputs = Inputs(
        snapshot=formulated.snapshot,
        forecast=formulated.forecast,
        policy=formulated.policy,
        backend=formulated.capabilities.name,
    )
    return Plan(
        id=plan_id(inputs, assignments, deferred, preempted, reservations),
        name=formulated.snapshot.name,
        made_at=made_at,
        assignments=assignments,
        deferred=deferred,
        preempted=preempted,
        reservations=reservations,
        objective=_objective(terms),
        solve=_solve(formulated, solution, terms.total, base_cost),
        predicted=_predicted(reading, assignments),
        warnings=_warnings(reading, solution, assignments),
        inputs=inputs,
    )


def plan_id(
    inputs: Inputs,
    assignments: tuple[Assignment, ...],
    deferred: tuple[Deferred, ...],
    preempted: tuple[str, ...],
    reservations: tuple[Reservation, ...],
) -> str:
    """Hash of the inputs, and of all that is decided or foretold of each job.

    Left out is what two runs that decide alike may differ in: times of day, wall seconds, and the fixes, of which as
    many are found as there is time for.
    """
    jobs = [
        [_hashed(dict(a)) for a in assignments],
        [_hashed(dict(d, fix=None)) for d in deferred],
    ]
    kept = [(r.job_id, r.gpu_ids, r.from_s) for r in reservations]
    whole = [json.loads(inputs.model_dump_json()), *jobs, preempted, kept]
    text = json.dumps(whole, separators=(",", ":"), sort_keys=True)  # mappings have no order
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _hashed(row: dict[str, Any]) -> list[Any]:
    """Values as a file gives them back: 120 and 120.0 are one number there."""
    return [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in row.values()]


@dataclass(frozen=True)
class _Reading:
    """A placement with the predictions behind it."""

    f: Formulated
    placed: Placed
    model: InterferenceModel
    tenants: dict[int, list[int]]  # GPU -> problem jobs
    start_wave: dict[int, int]
    leave_wave: dict[int, int]

    @classmethod
    def of(cls, f: Formulated, placed: Placed) -> _Reading:
        tenants: dict[int, list[int]] = {}
        for j, spot in enumerate(placed):
            for g in spot or () if f.problem.job_gpus[j] else ():
                tenants.setdefault(g, []).append(j)
        start, leave = waves(f.problem, placed)
        return cls(f, placed, build(f.forecast.predictor.interference), tenants, start, leave)

    @property
    def placed_in_order(self) -> list[int]:
        return [j for j, spot in enumerate(self.placed) if spot is not None]

    def job_id(self, j: int) -> str:
        return self.f.snapshot.jobs[self.f.jobs[j]].id

    def tenant(self, j: int) -> Tenant:
        i = self.f.jobs[j]
        return tenant_of(self.f.snapshot.jobs[i], self.f.forecast.jobs[i])

    def gpu_model(self, g: int) -> str:
        return self.f.kinds[int(self.f.problem.gpu_kind[g])].model

    def others(self, j: int, g: int) -> list[int]:
        return [i for i in self.tenants[g] if i != j]

    def slowdown(self, j: int, spot: tuple[int, ...]) -> float | None:
        """Unrounded, at its slowest GPU; None if nothing is known."""
        if not self.f.problem.job_gpus[j]:
            return 1.0
        worst = 1.0
        for g in spot:
            others = self.others(j, g)
            if others:
                s = float(
                    self.model.slowdowns(
                        self.gpu_model(g), [self.tenant(j)], [self.tenant(i) for i in others]
                    )[0]
                )
                if s != s:  # NaN: residents that nothing is known of
                    return None
                worst = max(worst, s)
        return worst

    def rate(self, j: int, spot: tuple[int, ...], slowdown: float | None) -> float | None:
        """Progress against running alone on the fastest allowed model."""
        if slowdown is None:
            return None
        if not self.f.problem.job_gpus[j]:
            return 1.0
        p = self.f.problem
        v = int(p.speed_milli[j, int(p.gpu_kind[spot[0]])])
        k = int(p.link_milli[j, link_of(p, spot)])
        return v / (slowdown * k) if v else None


def _assignment(r: _Reading, j: int) -> Assignment:
    problem, spot, home = r.f.problem, r.placed[j] or (), r.f.problem.home[j]
    job, forecast = r.f.snapshot.jobs[r.f.jobs[j]], r.f.forecast.jobs[r.f.jobs[j]]
    state: State = "start" if home is None else "stay" if home == spot else "move"
    slowdown = r.slowdown(j, spot)
    rate = r.rate(j, spot, slowdown)
    gpus = bool(problem.job_gpus[j])
    neighbours = sorted({i for g in spot for i in r.others(j, g)}) if gpus else []
    start = _start_s(r, j, state)
    p90 = None if slowdown is None else 1 + (slowdown - 1) * (1 + r.f.policy.beyond_plan)
    nodes = sorted({int(problem.gpu_node[g]) for g in spot}) if gpus else list(spot)
    return Assignment.model_construct(
        job_id=job.id,
        gpu_ids=tuple(r.f.gpu_ids[g] for g in spot) if gpus else (),
        nodes=tuple(r.f.node_names[v] for v in nodes),
        state=state,
        start_s=start,
        slowdown=None if slowdown is None else round(slowdown, 6),
        slowdown_p90=None if p90 is None else round(p90, 6),
        finish_s=_finish_s(start, forecast.remaining_s, rate),
        finish_p90_s=_finish_s(start, forecast.remaining_p90_s, r.rate(j, spot, p90)),
        moved_from=tuple(job.running_on) if state == "move" else None,
        wave=r.start_wave.get(j, 0),
        leaves_wave=r.leave_wave.get(j),
        neighbours=tuple(r.job_id(i) for i in neighbours),
        gpu_memory_mib=int(problem.memory_mib[j, int(problem.gpu_kind[spot[0]])]) or None if gpus else None,
        memory_source=forecast.memory_source,
        fenced=_fenced(r, spot) if neighbours else None,
    )


def _finish_s(start_s: float | None, remaining_s: float | None, rate: float | None) -> float | None:
    """What runs already ends its remaining time from now."""
    if remaining_s is None or rate is None:
        return None
    return round(max(0.0, start_s or 0.0) + remaining_s / rate, 3)


def _start_s(r: _Reading, j: int, state: State) -> float | None:
    """A later wave starts when the moves before it have written their checkpoints."""
    job = r.f.snapshot.jobs[r.f.jobs[j]]
    if state == "stay":
        return None if job.started_s is None else round(job.started_s - r.f.snapshot.now_s, 3)
    default = r.f.policy.checkpoint_s
    pause = dict.fromkeys(range(r.start_wave.get(j, 0)), 0.0)
    for i, wave in r.leave_wave.items():
        mover = r.f.snapshot.jobs[r.f.jobs[i]]
        if wave in pause:
            pause[wave] = max(pause[wave], default if mover.checkpoint_s is None else mover.checkpoint_s)
    own = 0.0
    if state == "move":
        own = (default if job.checkpoint_s is None else job.checkpoint_s) + (
            r.f.policy.restart_s if job.restart_s is None else job.restart_s
        )
    return round(float(sum(pause.values()) + own), 3)


def _fenced(r: _Reading, spot: tuple[int, ...]) -> bool:
    nodes = r.f.snapshot.cluster.nodes
    return all(nodes[int(r.f.problem.gpu_node[g])].isolation == "memory" for g in spot)


def _deferred(f: Formulated, reasons: Reasons) -> tuple[Deferred, ...]:
    rows = [(e.job, e.reason, e.detail, 0.0) for e in f.excluded]
    rows += [
        (f.jobs[j], reason, detail, int(f.problem.wait_cost[j]) / MILLI) for j, reason, detail in reasons
    ]
    return tuple(
        Deferred.model_construct(
            job_id=f.snapshot.jobs[i].id, reason=reason, detail=detail, fix=None, cost_gpu_s=cost
        )
        for i, reason, detail, cost in sorted(rows, key=lambda row: row[0])
    )


def _objective(terms: SolverTerms) -> Objective:
    return Objective(
        total_gpu_s=terms.total / MILLI,
        terms=Terms(**{name: getattr(terms, name) / MILLI for name in Terms.model_fields}),
    )


def gap(best: int, bound: int | None, reference: int) -> float | None:
    """(best - bound) / reference; 0/0 is 0, None without a bound or where the reference says nothing."""
    if bound is None:
        return None
    if best == bound:
        return 0.0
    return None if reference <= 0 else round((best - bound) / reference, 6)


def _solve(f: Formulated, solution: Solution, total: int, base_cost: int) -> Solve:
    bound = solution.bound
    return Solve(
        solver=solution.engine,
        status=str(solution.status),
        bound=None if bound is None else bound / MILLI,
        gap=gap(total, bound, total),
        served_gap=gap(total, bound, 0 if bound is None else base_cost - bound),
        wall_s=round(solution.wall_s, 3),
        seed=f.policy.seed,
        deterministic=f.policy.deterministic,
        attempts=tuple(
            AttemptRecord(
                solver=a.engine,
                status=str(a.status),
                objective_gpu_s=None if a.objective is None else a.objective / MILLI,
                bound_gpu_s=None if a.bound is None else a.bound / MILLI,
                wall_s=round(a.wall_s, 3),
                note=a.note,
            )
            for a in solution.attempts
        ),
    )


def _predicted(r: _Reading, assignments: tuple[Assignment, ...]) -> Predicted:
    p = r.f.problem
    # As in the objective's term: a job without GPUs has no part in it.
    ends = [a.finish_s for a in assignments if a.finish_s is not None and a.gpu_ids]
    ends += [
        int(p.deferred_end[j]) * r.f.tick_s
        for j, spot in enumerate(r.placed)
        if spot is None and p.deferred_end[j] >= 0
    ]
    slowdowns = [a.slowdown for a in assignments if a.slowdown is not None and a.gpu_ids]
    goodput = 0.0
    for j, a in zip(r.placed_in_order, assignments, strict=True):
        goodput += (r.rate(j, r.placed[j] or (), a.slowdown) or 0) * int(p.size_milli[j]) / MILLI
    table, fallback = _pairs(r)
    sizes = [
        JobView(i, j, r.f.forecast.jobs[i], Tenant(None, None), False).size_milli
        for i, j in enumerate(r.f.snapshot.jobs)
    ]
    return Predicted(
        makespan_s=round(max(ends), 3) if ends else None,
        mean_slowdown=round(sum(slowdowns) / len(slowdowns), 6) if slowdowns else None,
        max_slowdown=max(slowdowns, default=None),
        goodput_gpus=round(goodput, 6),
        gpu_utilisation_pct=_utilisation(r),
        requested_share_milli=sum(sizes),
        allocated_share_milli=int(sum(p.size_milli[j] for j in r.placed_in_order)),
        pairs_from_table=table,
        pairs_from_fallback=fallback,
    )


def _pairs(r: _Reading) -> tuple[int, int]:
    """Directed sharing pairs whose slowdown was measured, and the others (none without a table)."""
    if r.f.forecast.predictor.interference.kind != "table":
        return 0, 0
    measured = total = 0
    for g, jobs in r.tenants.items():
        for j in jobs if len(jobs) > 1 else ():
            for i in r.others(j, g):
                total += 1
                measured += r.model.is_measured(r.gpu_model(g), r.tenant(j), r.tenant(i))
    return measured, total - measured


def _utilisation(r: _Reading) -> float | None:
    """Mean over the GPUs open or in use of the tenants' summed utilisation, at most 100 each; None if one is unknown."""
    total = 0.0
    for jobs in r.tenants.values():
        known = [r.tenant(j).utilisation_pct for j in jobs]
        if None in known:
            return None
        total += min(100.0, sum(u for u in known if u is not None))
    # A closed GPU counts if somebody is on it.
    gpus = len(set(np.flatnonzero(~r.f.problem.gpu_closed).tolist()) | set(r.tenants))
    return round(total / gpus, 3) if gpus else None


def _warnings(r: _Reading, solution: Solution, assignments: tuple[Assignment, ...]) -> tuple[str, ...]:
    f = r.f
    out = [*f.snapshot.warnings, *f.forecast.warnings, *f.warnings]
    unfenced = sum(a.fenced is False for a in assignments)
    if unfenced:
        out.append(
            f"{counted(unfenced, 'job')} {'shares' if unfenced == 1 else 'share'} a GPU on which nothing holds tenants to their memory (not fenced)"
        )
    out += _oversubscribed(r)
    stopped = solution.status != "optimal" and solution.engine != "greedy"
    if stopped and not f.policy.deterministic:
        out.append(
            "the solve ended at its time limit; another run may give another plan (see --deterministic)"
        )
    return tuple(dict.fromkeys(out))


def _oversubscribed(r: _Reading) -> list[str]:
    p, gpus = r.f.problem, r.f.snapshot.cluster.gpus
    over = []
    for g, jobs in r.tenants.items():
        memory = gpus[g].memory_mib
        need = int(sum(p.memory_mib[j, int(p.gpu_kind[g])] for j in jobs))
        if memory is not None and memory < need <= int(p.gpu_memory_mib[g]):
            over.append(
                f"{gpus[g].id} is given out beyond its memory: {need} of {memory} MiB (memory_factor)"
            )
    return over
