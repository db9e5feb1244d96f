"""A plan and a receipt as pages.

Rows come in the order of the cluster's GPUs, so that neighbours stand together; waiting jobs come costliest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from planner.model import Snapshot
from planner.plan import (
    REASONS,
    Action,
    Assignment,
    AttemptRecord,
    Deferred,
    Plan,
    Predicted,
    Receipt,
    Solve,
    Terms,
)
from planner.quantities import counted
from planner.report.page import Block, Facts, Grid, Lines, Page, columns
from planner.report.units import UNKNOWN, duration, factor, gpu_time, memory, places, share

STATES: tuple[Literal["start", "stay", "move"], ...] = ("start", "stay", "move")
OUTCOMES: dict[Literal["done", "dry_run", "stale", "refused"], str] = {
    "done": "done",
    "dry_run": "would be done",
    "stale": "stale",
    "refused": "refused",
}
#: An engine's outcomes that a person should hear about: always, or where the plan is not proven the best.
WRONG, WEAK = ("failed", "rejected", "anomaly"), ("skipped", "no_answer")
PROVEN = "optimal"
#: Costs and bounds are rounded to a thousandth.
ROUNDED = 0.01
#: So many nodes are named in one line.
SOME = 5


def plan_page(plan: Plan) -> Page:
    """Everything a plan says: how good it is, what runs where, what waits and why."""
    blocks: list[Block] = [Facts(tuple(_summary(plan)))]
    if plan.assignments:
        blocks.append(_assignments(plan))
    if plan.preempted:
        blocks.append(Lines("Stopped to make room", plan.preempted, style="bold yellow"))
    if plan.deferred:
        blocks.append(_deferred(plan.deferred))
    if plan.reservations:
        rows = tuple((r.job_id, places(r.gpu_ids), duration(r.from_s)) for r in plan.reservations)
        blocks.append(Grid("Reserved", columns("job", "GPUs", "from, in"), rows, style="bold cyan"))
    notes = tuple(_attempt_note(a) for a in plan.solve.attempts if _is_noteworthy(a, plan.solve.status))
    if notes:
        blocks.append(Lines("Engines", notes))
    if plan.warnings:
        blocks.append(Lines("Warnings", plan.warnings, style="bold yellow"))
    return tuple(blocks)


def _summary(plan: Plan) -> Iterable[tuple[str, str]]:
    yield "plan", f"{plan.name}  {plan.id}".strip()
    yield "jobs", _job_counts(plan)
    if plan.predicted.requested_share_milli:
        yield "placed", _placed(plan.predicted)
    if plan.deferred:
        yield "waiting", _reason_counts(plan.deferred)
    if plan.inputs and (closed := _closed(plan.inputs.snapshot)):
        yield "closed", closed
    yield "solver", _solver(plan)
    horizon = f" over {duration(plan.inputs.policy.horizon_s)}" if plan.inputs else ""
    yield "objective", f"{gpu_time(plan.objective.total_gpu_s)} GPU-seconds of progress lost{horizon}"
    yield (
        "terms",
        ", ".join(f"{name} {gpu_time(getattr(plan.objective.terms, name))}" for name in Terms.model_fields),
    )
    yield "bound", _bound(plan)
    yield "predicted", _predicted(plan)


def _job_counts(plan: Plan) -> str:
    does = Counter(a.state for a in plan.assignments)
    parts = [f"{does[state]:,} {state}" for state in STATES if does[state] or state == "start"]
    if plan.preempted:
        parts.append(f"{len(plan.preempted):,} stop")
    return ", ".join([*parts, f"{len(plan.deferred):,} wait"])


def _reason_counts(deferred: tuple[Deferred, ...]) -> str:
    number = Counter(d.reason for d in deferred)
    return ", ".join(f"{reason} {number[reason]:,}" for reason in REASONS if number[reason])


def _solver(plan: Plan) -> str:
    solve = plan.solve
    how = (
        f"proven optimal{_prover(solve, plan.objective.total_gpu_s)}"
        if solve.status == PROVEN
        else solve.status
    )
    text = f"{solve.solver}, {how} after {duration(solve.wall_s)}, seed {solve.seed}"
    if solve.deterministic:
        return f"{text}, deterministic"
    return text if solve.status == PROVEN else f"{text} (another run may answer differently)"


def _prover(solve: Solve, total_gpu_s: float) -> str:
    """Which engine proved the plan the best, where it is not the one that found it."""
    proofs = [a.solver for a in solve.attempts if a.status == PROVEN]
    proofs += [a.solver for a in solve.attempts if (a.bound_gpu_s or 0) >= total_gpu_s - ROUNDED]
    if not proofs or solve.solver in proofs:
        return ""
    return " by the lower bound" if proofs[0] == "bound" else f" by {proofs[0]}"


def _bound(plan: Plan) -> str:
    solve = plan.solve
    if solve.bound is None:
        return "none known"
    return f"{gpu_time(solve.bound)}, gap {share(solve.gap)}, served gap {share(solve.served_gap)}"


def _predicted(plan: Plan) -> str:
    p = plan.predicted
    goodput = UNKNOWN if p.goodput_gpus is None else f"{p.goodput_gpus:.2f} GPUs"
    utilisation = UNKNOWN if p.gpu_utilisation_pct is None else f"{p.gpu_utilisation_pct:.0f} %"
    return (
        f"makespan {duration(p.makespan_s)}, slowdown mean {factor(p.mean_slowdown)} max {factor(p.max_slowdown)}, "
        f"goodput {goodput}, GPU utilisation {utilisation}{_basis(p)}"
    )


def _basis(p: Predicted) -> str:
    """What the slowdowns of the plan's sharing pairs rest on, where there is a table."""
    if not p.pairs_from_table + p.pairs_from_fallback:
        return ""
    return (
        f", slowdowns of {p.pairs_from_table} pairs from the table and {p.pairs_from_fallback} by a formula"
    )


def _placed(p: Predicted) -> str:
    """How much of what all jobs ask for is given."""
    given, asked = (f"{milli / 1000:,.10g}" for milli in (p.allocated_share_milli, p.requested_share_milli))
    part = share(p.allocated_share_milli / p.requested_share_milli)
    return f"{given} of the {asked} {'GPU' if asked == '1' else 'GPUs'} asked for ({part})"


def _closed(snapshot: Snapshot) -> str:
    """The GPUs that take no new job, by why not; empty if all do."""
    quarantined = {q.name for q in snapshot.carryover.quarantines if q.until_s > snapshot.now_s}
    found: dict[str, list[str]] = {}
    for node in snapshot.cluster.nodes:
        for gpu in node.gpus:
            if not node.schedulable:
                found.setdefault("drained", []).append(gpu.id)
            elif node.name in quarantined:
                found.setdefault("quarantined", []).append(gpu.id)
            elif not gpu.healthy:
                found.setdefault("unhealthy", []).append(gpu.id)
            elif gpu.unmanaged_memory_mib is None:
                found.setdefault("in unknown use", []).append(gpu.id)
    return ", ".join(f"{counted(len(ids), 'GPU')} {why} ({_some_places(ids)})" for why, ids in found.items())


def _some_places(gpu_ids: list[str]) -> str:
    nodes = places(gpu_ids).split(" ")
    return " ".join(nodes[:SOME]) + (f" and {len(nodes) - SOME} more" if len(nodes) > SOME else "")


def _assignments(plan: Plan) -> Grid:
    order = {g.id: i for i, g in enumerate(plan.inputs.snapshot.cluster.gpus)} if plan.inputs else {}
    models = {g.id: g.model for g in plan.inputs.snapshot.cluster.gpus} if plan.inputs else {}
    waves = any(a.wave for a in plan.assignments)

    def place(a: Assignment) -> tuple[int, tuple[str, ...]]:
        return min((order.get(g, len(order)) for g in a.gpu_ids), default=len(order)), a.nodes

    names = ["GPUs", "job", "does", *(["wave>"] if waves else []), *(["model??"] if models else [])]
    names += ["memory/GPU>??", "source???", "slowdown>?", "p90>???", "ends after>", "p90>?", "beside"]
    rows = []
    for a in sorted(plan.assignments, key=place):
        head = [
            places(a.gpu_ids) or ", ".join(a.nodes),
            a.job_id,
            _does(a),
            *([str(a.wave)] if waves else []),
        ]
        if models:
            head.append(models.get(a.gpu_ids[0], "") if a.gpu_ids else "")
        rows.append((*head, *_figures(a)))
    return Grid("Runs", columns(*names), tuple(rows), style="bold green")


def _does(a: Assignment) -> str:
    return f"move from {places(a.moved_from)}" if a.moved_from else a.state


def _figures(a: Assignment) -> tuple[str, ...]:
    beside = ", ".join(a.neighbours) + (" (not fenced)" if a.neighbours and a.fenced is False else "")
    asks = memory(a.gpu_memory_mib) if a.gpu_ids else ""
    slowed = factor(a.slowdown), factor(a.slowdown_p90)
    return asks, a.memory_source or "", *slowed, duration(a.finish_s), duration(a.finish_p90_s), beside


def _deferred(deferred: tuple[Deferred, ...]) -> Grid:
    costliest = sorted(deferred, key=lambda d: -d.cost_gpu_s)
    rows = tuple((d.job_id, d.reason, d.detail, _fix(d), gpu_time(d.cost_gpu_s)) for d in costliest)
    names = columns("job", "reason", "detail", "would start", "waiting costs>")
    return Grid("Waits", names, rows, style="bold magenta")


def _fix(d: Deferred) -> str:
    return d.fix.detail if d.fix else ""


def _is_noteworthy(attempt: AttemptRecord, plan_status: str) -> bool:
    """It says why an engine did not help; one that was to give a bound and did has helped."""
    weak = attempt.status in WEAK and plan_status != PROVEN and attempt.bound_gpu_s is None
    return bool(attempt.note) and (attempt.status in WRONG or weak)


def _attempt_note(attempt: AttemptRecord) -> str:
    return f"{attempt.solver} {attempt.status}: {attempt.note}"


def receipt_page(receipt: Receipt) -> Page:
    """What was done, would be done, or was left out because the cluster had changed."""
    number = Counter(a.outcome for a in receipt.actions)
    counts = ", ".join(f"{number[key]:,} {text}" for key, text in OUTCOMES.items() if number[key])
    facts = (("plan", receipt.plan_id), ("back end", receipt.backend), ("actions", counts or "none"))
    blocks: list[Block] = [Facts(facts)]
    if receipt.actions:
        rows = tuple(_action(a) for a in receipt.actions)
        blocks.append(Grid("Actions", columns("wave>", "job", "action", "GPUs", "outcome", "detail"), rows))
    if receipt.warnings:
        blocks.append(Lines("Warnings", receipt.warnings, style="bold yellow"))
    return tuple(blocks)


def _action(a: Action) -> tuple[str, ...]:
    return str(a.wave), a.job_id, a.verb, places(a.gpu_ids), OUTCOMES[a.outcome], a.detail


def left_out(receipt: Receipt) -> str | None:
    """One sentence on the stale and refused actions, or None."""
    stale = sum(a.outcome in ("stale", "refused") for a in receipt.actions)
    if not stale:
        return None
    return f"{counted(stale, 'action')} left out, because the cluster is no longer what the plan was made for"
