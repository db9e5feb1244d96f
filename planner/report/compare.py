"""What changed from one plan or snapshot to the next.

A difference is a list of changes, one a job, each with both sides; a plan's difference also has the objectives. Two plans of
different queues compare as well: a job that only one of them knows has appeared or gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from planner.model import Job, Node, Noun, Snapshot
from planner.plan import Plan, Terms
from planner.report.page import Block, Facts, Grid, Page, columns
from planner.report.units import gpu_time, places

Change = Literal["appeared", "gone", "started", "stopped", "moved", "reason", "changed"]
ORDER: tuple[Change, ...] = ("started", "moved", "stopped", "reason", "changed", "appeared", "gone")
Places = Mapping[str, tuple[tuple[str, ...], str]]


class JobChange(Noun):
    """A job whose place, reason or request differs."""

    job_id: str
    change: Change
    before: str | None = None
    after: str | None = None


class Difference(Noun):
    """All changes from a first file to a second."""

    kind: Literal["plan", "snapshot"]
    before: str
    after: str
    jobs: tuple[JobChange, ...] = ()
    nodes: tuple[JobChange, ...] = ()
    objective_before_gpu_s: float | None = None
    objective_after_gpu_s: float | None = None
    objective_delta_gpu_s: float | None = None
    terms_delta_gpu_s: Terms | None = None


def plans_differ(a: Plan, b: Plan) -> Difference:
    """From plan ``a`` to plan ``b``."""
    delta = {t: getattr(b.objective.terms, t) - getattr(a.objective.terms, t) for t in Terms.model_fields}
    return Difference(
        kind="plan",
        before=a.id,
        after=b.id,
        jobs=_changes(_plan_places(a), _plan_places(b)),
        objective_before_gpu_s=a.objective.total_gpu_s,
        objective_after_gpu_s=b.objective.total_gpu_s,
        objective_delta_gpu_s=b.objective.total_gpu_s - a.objective.total_gpu_s,
        terms_delta_gpu_s=Terms.model_validate(delta),
    )


def snapshots_differ(a: Snapshot, b: Snapshot) -> Difference:
    """From snapshot ``a`` to snapshot ``b``: jobs that started, stopped, moved, came, went or asked for something else."""
    changes = _changes({j.id: _now(j) for j in a.jobs}, {j.id: _now(j) for j in b.jobs})
    asked = _asked_otherwise(a.job_by_id, b.job_by_id, {c.job_id for c in changes})
    jobs = tuple(sorted((*changes, *asked), key=lambda c: ORDER.index(c.change)))
    return Difference(kind="snapshot", before=a.name, after=b.name, jobs=jobs, nodes=_nodes(a, b))


def _plan_places(plan: Plan) -> Places:
    """Job -> its place (GPUs or node), or an empty place and why it waits."""
    runs = {a.job_id: (a.gpu_ids or a.nodes, "") for a in plan.assignments}
    stops = {job: ((), "preempted") for job in plan.preempted}
    return {**runs, **stops, **{d.job_id: ((), d.reason) for d in plan.deferred}}


def _now(job: Job) -> tuple[tuple[str, ...], str]:
    return job.running_on, "" if job.running else job.state


def _changes(a: Places, b: Places) -> tuple[JobChange, ...]:
    found = []
    for job in dict.fromkeys((*a, *b)):
        change = _change(a.get(job), b.get(job))
        if change:
            found.append(
                JobChange(job_id=job, change=change, before=_side(a.get(job)), after=_side(b.get(job)))
            )
    return tuple(sorted(found, key=lambda c: ORDER.index(c.change)))


def _change(a: tuple[tuple[str, ...], str] | None, b: tuple[tuple[str, ...], str] | None) -> Change | None:
    if a is None:
        return "appeared"
    if b is None:
        return "gone"
    if bool(a[0]) != bool(b[0]):
        return "started" if b[0] else "stopped"
    if set(a[0]) != set(b[0]):
        return "moved"
    return "reason" if a[1] != b[1] else None


def _side(place: tuple[tuple[str, ...], str] | None) -> str | None:
    if place is None:
        return None
    return places(place[0]) if place[0] else place[1]


def _asked_otherwise(a: Mapping[str, Job], b: Mapping[str, Job], told: set[str]) -> tuple[JobChange, ...]:
    both = [(a[i], b[i]) for i in a if i in b and i not in told]
    pairs = [
        (x.id, _fields_that_differ(x, y, {"running_on", "started_s", "progress"})) for x, y in both if x != y
    ]
    return tuple(JobChange(job_id=i, change="changed", after=", ".join(keys)) for i, keys in pairs if keys)


def _fields_that_differ(a: Noun, b: Noun, but: set[str]) -> list[str]:
    return [k for k in type(a).model_fields if k not in but and getattr(a, k) != getattr(b, k)]


def _nodes(a: Snapshot, b: Snapshot) -> tuple[JobChange, ...]:
    old: Mapping[str, Node] = a.cluster.node_by_name
    new: Mapping[str, Node] = b.cluster.node_by_name
    found = [JobChange(job_id=n, change="gone") for n in old if n not in new]
    found += [JobChange(job_id=n, change="appeared") for n in new if n not in old]
    for name in old:
        keys = _fields_that_differ(old[name], new[name], set()) if name in new else []
        if keys:
            found.append(JobChange(job_id=name, change="changed", after=", ".join(keys)))
    return tuple(found)


def difference_page(d: Difference) -> Page:
    """A difference for people."""
    facts = [("from", d.before), ("to", d.after)]
    if d.objective_delta_gpu_s is not None and d.terms_delta_gpu_s is not None:
        total = f"{gpu_time(d.objective_before_gpu_s)} to {gpu_time(d.objective_after_gpu_s)} GPU-seconds"
        facts.append(("objective", f"{total} ({_signed(d.objective_delta_gpu_s)})"))
        deltas = {t: getattr(d.terms_delta_gpu_s, t) for t in Terms.model_fields}
        facts.append(("terms", ", ".join(f"{t} {_signed(x)}" for t, x in deltas.items() if x) or "the same"))
    facts.append(("changes", str(len(d.jobs) + len(d.nodes)) if d.jobs or d.nodes else "none"))
    blocks: list[Block] = [Facts(tuple(facts))]
    for title, changes in (("Jobs", d.jobs), ("Nodes", d.nodes)):
        rows = tuple((c.job_id, c.change, c.before or "", c.after or "") for c in changes)
        if rows:
            blocks.append(Grid(title, columns(title[:-1].lower(), "change", "before", "after"), rows))
    return tuple(blocks)


def _signed(gpu_seconds: float) -> str:
    return f"+{gpu_time(gpu_seconds)}" if gpu_seconds > 0 else gpu_time(gpu_seconds)
