"""Single changes that might start a waiting job: to the job, to the policy, or to one budget. Each is planned before it is said.

A *ladder* holds changes of one kind, mildest first: the first that works is the smallest that does. Where the steps are
many (amounts of memory), they are searched by halving, because less never fits worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from planner import edit
from planner.model import Job, Snapshot, Throttle
from planner.plan import Plan
from planner.policy import Policy

CAPS = (2.5, 3.0, 4.0, 6.0, None)
PRIORITIES = (2, 4, 8, 16, 32, 64, 100)
UTILISATIONS = (100, 75, 50, 25, 10)


@dataclass(frozen=True)
class Change:
    """One changed input, made when it is wanted, and the words for it; ``freed`` jobs are to be placed anew with it."""

    what: str
    detail: str
    make: Callable[[], tuple[Snapshot, Policy]]
    freed: tuple[str, ...] = ()
    move_cost_gpu_s: float = 0
    parts: Callable[[], tuple[Change, ...]] = (
        tuple  # the same with one member less, for changes that have members
    )


@dataclass(frozen=True)
class Ladder:
    """Changes of one kind, mildest first; ``halving``: if one works, so do all after it."""

    changes: tuple[Change, ...]
    halving: bool = False


@dataclass(frozen=True)
class Situation:
    """The job, and the inputs in which everything the plan decided is a fact."""

    job: Job
    plan: Plan
    snapshot: Snapshot
    policy: Policy


def ladders(s: Situation) -> Iterator[Ladder]:
    """All kinds of change that apply to the job, the likeliest first."""
    yield from _released(s)
    yield from _budgets(s)
    yield from _known(s)
    yield from _shape(s)
    yield from _models(s)
    yield from _memory(s)
    yield from _caps(s)
    yield from _consent(s)
    yield from _hosts(s)
    yield from _priority(s)


def _job(s: Situation, what: str, detail: str, **fields: Any) -> Change:
    return Change(what, detail, lambda: (edit.with_job(s.snapshot, s.job.id, **fields), s.policy))


def _policy(s: Situation, what: str, detail: str, **fields: Any) -> Change:
    return Change(what, detail, lambda: (s.snapshot, edit.with_policy(s.policy, fields)))


def _released(s: Situation) -> Iterator[Ladder]:
    if s.job.state == "held":
        yield Ladder((_job(s, "state: ready", "if it were released", state="ready"),))
    elif s.job.depends_on:
        detail = f"if it did not wait for {', '.join(s.job.depends_on)}"
        yield Ladder((_job(s, "depends_on: []", detail, depends_on=()),))


def _budgets(s: Situation) -> Iterator[Ladder]:
    """The quota, licence count or throttle that is in the way, raised by what the job needs."""
    size = s.job.gpus * (s.job.gpu_share_milli or 1000) / 1000
    for i, quota in enumerate(s.policy.quotas):
        key, owner = quota.owner
        if getattr(s.job, key) == owner:
            used = sum(
                j.gpus * (j.gpu_share_milli or 1000) / 1000
                for j in s.snapshot.jobs
                if j.running and getattr(j, key) == owner
            )
            if used + size > quota.gpus:
                raised = edit.changed(quota, gpus=used + size)
                quotas = (*s.policy.quotas[:i], raised, *s.policy.quotas[i + 1 :])
                what = f"quota of {key} {owner}: {used + size:g}"
                yield Ladder((_policy(s, what, f"with a quota of {used + size:g} GPUs", quotas=quotas),))
    for name, count in s.job.licences.items():
        used_count = sum(j.licences.get(name, 0) for j in s.snapshot.jobs if j.running)
        if used_count + count > s.snapshot.cluster.licences.get(name, 0):
            yield Ladder((_licensed(s, name, used_count + count),))
    if s.job.throttle is not None:
        yield Ladder((_throttled(s, s.job.throttle.group),))


def _licensed(s: Situation, name: str, count: int) -> Change:
    def make() -> tuple[Snapshot, Policy]:
        cluster = edit.changed(s.snapshot.cluster, licences={**s.snapshot.cluster.licences, name: count})
        return edit.changed(s.snapshot, cluster=cluster), s.policy

    return Change(f"licences {name}: {count}", f"with {count} licences {name}", make)


def _throttled(s: Situation, group: str) -> Change:
    mine = [j for j in s.snapshot.jobs if j.throttle is not None and j.throttle.group == group]
    most = 1 + sum(j.running for j in mine)

    def make() -> tuple[Snapshot, Policy]:
        looser = {j.id: edit.changed(j, throttle=Throttle(group=group, max_running=most)) for j in mine}
        return edit.changed(s.snapshot, jobs=tuple(looser.get(j.id, j) for j in s.snapshot.jobs)), s.policy

    return Change(f"throttle of {group}: {most}", f"if {most} jobs of {group} might run", make)


def _known(s: Situation) -> Iterator[Ladder]:
    """What is not known about it, stated: the largest value that would do."""
    job = s.job
    if job.duration_s is None and s.plan.reservations:
        until = sorted({r.from_s / (1 + s.policy.duration_margin) for r in s.plan.reservations}, reverse=True)
        steps = [(d, f"if it were known to take at most {d:.0f} s") for d in map(int, until) if d > 0]
        yield Ladder(tuple(_job(s, f"duration_s: {d}", text, duration_s=d) for d, text in steps))
    if job.gpu_utilisation_pct is None and job.gpu_share_milli is None and job.gpus:
        text = "if its utilisation were known to be at most {} %"
        yield Ladder(
            tuple(
                _job(s, f"gpu_utilisation_pct: {u}", text.format(u), gpu_utilisation_pct=u)
                for u in UTILISATIONS
            )
        )


def _shape(s: Situation) -> Iterator[Ladder]:
    """Spread over more nodes."""
    job = s.job
    if job.gpus > 1:
        more = [n for n in (2, 3, 4) if n > (job.max_nodes or 1) and n <= job.gpus]
        yield Ladder(
            tuple(_job(s, f"max_nodes: {n}", f"split over at most {n} nodes", max_nodes=n) for n in more)
        )
    if job.gpus_per_node:
        yield Ladder((_job(s, "gpus_per_node: null", "with any number on each node", gpus_per_node=None),))
    if job.node_labels:
        yield Ladder((_job(s, "node_labels: {}", "on nodes with any labels", node_labels={}),))


def _models(s: Situation) -> Iterator[Ladder]:
    """Another GPU model; each is a kind of its own, because none is milder than another."""
    if not s.job.gpu_models:
        return
    whole = dict.fromkeys(g.model for g in s.snapshot.cluster.gpus if not g.is_mig or s.job.gpus == 1)
    for model in whole:
        if model not in s.job.gpu_models:
            models = (*s.job.gpu_models, model)
            yield Ladder((_job(s, f"gpu_models: + {model}", f"on {model}", gpu_models=models),))


def _memory(s: Situation) -> Iterator[Ladder]:
    """Less GPU memory, by what GPUs have free or hold at all; the most that works."""
    job = s.job
    if not job.gpus or job.gpu_share_milli is not None or job.id in s.snapshot.carryover.memory_peaks:
        return
    steps = [m for m in free_mib(s) if 0 < m < (job.gpu_memory_mib or 2**50)]
    if job.gpu_memory_mib is None:
        text = "if it were known to need at most {} MiB a GPU"
    else:
        text = "with {less} MiB less a GPU ({} MiB)"
    changes = (
        _job(
            s,
            f"gpu_memory_mib: {m}",
            text.format(m, less=(job.gpu_memory_mib or 0) - m),
            gpu_memory_mib=m,
        )
        for m in steps
    )
    yield Ladder(tuple(changes), halving=True)


def free_mib(s: Situation) -> list[int]:
    """What GPUs have left beside their tenants, and what they hold when empty, largest first."""
    needs = {f.job_id: f.gpu_memory_mib for f in (s.plan.inputs.forecast.jobs if s.plan.inputs else ())}
    used: dict[str, int] = {}
    for j in s.snapshot.jobs:
        for place in j.running_on if j.gpus else ():
            used[place] = used.get(place, 0) + (needs.get(j.id) or j.gpu_memory_mib or 0)
    found: set[int] = set()
    for node in s.snapshot.cluster.nodes:
        margin = s.policy.memory_margin_mib if node.isolation == "none" else 0
        tenants = node.max_tenants or s.policy.max_tenants
        for g in node.gpus:
            if g.memory_mib is None:
                continue
            whole = int(g.memory_mib * node.memory_factor)
            free = whole - (g.unmanaged_memory_mib or 0)
            found.add(free - used[g.id] - margin if g.id in used else free)
            if node.sharing == "mps" and tenants:
                found.add(whole // tenants)
    return sorted((m for m in found if m > 0), reverse=True)


def _caps(s: Situation) -> Iterator[Ladder]:
    """A higher cap on slowdowns, the job's own if that is the tighter one."""
    own, policy = s.job.max_slowdown, s.policy.max_slowdown
    if own is not None:
        levels = [c for c in (1.5, 2.0, *CAPS) if c is None or c > own]
        yield Ladder(
            tuple(
                _job(
                    s, f"max_slowdown: {_null(c)} (job)", f"with a slowdown cap of {_cap(c)}", max_slowdown=c
                )
                for c in levels
            )
        )
    if policy is not None:
        levels = [c for c in CAPS if c is None or c > policy]
        yield Ladder(
            tuple(
                _policy(
                    s,
                    f"max_slowdown: {_null(c)} (policy)",
                    f"with a slowdown cap of {_cap(c)} for all",
                    max_slowdown=c,
                )
                for c in levels
            )
        )


def _null(cap: float | None) -> str:
    return "null" if cap is None else f"{cap:g}"


def _cap(cap: float | None) -> str:
    return "no limit" if cap is None else f"{cap:g}"


def _consent(s: Situation) -> Iterator[Ladder]:
    """Share after all."""
    if not s.job.shareable:
        yield Ladder((_job(s, "shareable: true", "if it might share a GPU", shareable=True),))
    if s.job.exclusive:
        yield Ladder((_job(s, "exclusive: false", "if its nodes might be shared", exclusive=False),))


def _hosts(s: Situation) -> Iterator[Ladder]:
    """Fewer cores, or less host memory."""
    for key, unit in (("cpus", "CPUs"), ("host_memory_mib", "MiB of host memory")):
        asked = getattr(s.job, key)
        if asked:
            parts = [asked * part / 4 for part in (3, 2, 1)]
            values = [int(v) if key == "host_memory_mib" else v for v in parts]
            yield Ladder(
                tuple(
                    _job(s, f"{key}: {v:g}", f"with {v:g} instead of {asked:g} {unit}", **{key: v})
                    for v in values
                )
            )


def _priority(s: Situation) -> Iterator[Ladder]:
    """A higher priority."""
    higher = [p for p in PRIORITIES if p > s.job.priority]
    yield Ladder(tuple(_job(s, f"priority: {p}", f"with priority {p}", priority=p) for p in higher))
