"""Single changes that might start a waiting job: to the job, to the policy, or to one budget. Each is planned before it is said.

A *ladder* holds changes of one kind, mildest first: the first that works is the smallest that does. Where the steps are
many (amounts of memory, caps, quotas), they are searched by halving, because a stronger change seldom does less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner import edit
from planner.explain.levers import (
    CAPS,
    PRIORITIES,
    Make,
    held,
    host_values,
    size,
    steps,
    with_licences,
    with_quota,
    with_throttle,
)
from planner.model import Job, Snapshot
from planner.plan import Inputs, Plan
from planner.policy import Policy


@dataclass(frozen=True)
class Change:
    """One changed input, made when it is wanted, and the words for it; ``freed`` jobs are to be placed anew with it.

    ``fresh``: tried on the inputs as they were, where other jobs may start or wait than in the plan. ``asked``: what
    ``what`` says, made to the inputs as they were, where that is not what ``make`` tries beside the settled plan.
    """

    what: str
    detail: str
    make: Make
    freed: tuple[str, ...] = ()
    move_cost_gpu_s: float = 0
    fresh: bool = False
    asked: Make | None = None
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

    @property
    def inputs(self) -> Inputs:
        """What the plan was made from."""
        assert self.plan.inputs is not None
        return self.plan.inputs


def ladders(s: Situation) -> Iterator[Ladder]:
    """All kinds of change that apply to the job, the likeliest first."""
    yield from _released(s)
    yield from _budgets(s)
    yield from _lasting(s)
    yield from _shape(s)
    yield from _models(s)
    yield from _memory(s)
    yield from _caps(s)
    yield from _consent(s)
    yield from _hosts(s)
    yield from _priority(s)


def _job(s: Situation, what: str, detail: str, **fields: Any) -> Change:
    return Change(what, detail, lambda snapshot, p: (edit.with_job(snapshot, s.job.id, **fields), p))


def _policy(what: str, detail: str, **fields: Any) -> Change:
    return Change(what, detail, lambda snapshot, p: (snapshot, edit.with_policy(p, fields)))


def _released(s: Situation) -> Iterator[Ladder]:
    if s.job.state == "held":
        yield Ladder((_job(s, "state: ready", "if it were released", state="ready"),))
    elif s.job.depends_on:
        detail = f"if it did not wait for {', '.join(s.job.depends_on)}"
        yield Ladder((_job(s, "depends_on: []", detail, depends_on=()),))


def _budgets(s: Situation) -> Iterator[Ladder]:
    """The quota, licence count or throttle that is in the way, raised by as little as does."""
    job, before = s.job, s.inputs.snapshot
    for i, quota in enumerate(s.policy.quotas):
        key, owner = quota.owner
        if getattr(job, key) != owner:
            continue

        def mine(j: Job, key: str = key, owner: str = owner) -> float:
            return size(j) if getattr(j, key) == owner else 0

        least, enough = held(before, mine) + size(job), held(s.snapshot, mine) + size(job)
        if enough > quota.gpus:
            values = [v for v in (*steps(least, enough), enough) if v > quota.gpus]
            said = (f"quota of {key} {owner}: {{:g}}", "with a quota of {:g} GPUs")
            yield _raised(values, enough, said, partial(with_quota, i))
    for name, wanted in job.licences.items():

        def using(j: Job, name: str = name) -> float:
            return j.licences.get(name, 0)

        have = before.cluster.licences.get(name, 0)
        least, enough = held(before, using) + wanted, held(s.snapshot, using) + wanted
        if enough > have:
            values = [v for v in (*steps(least, enough), enough) if v > have]
            said = (f"licences {name}: {{:g}}", f"with {{:g}} licences {name}")
            yield _raised(values, enough, said, partial(with_licences, name))
    if job.throttle is not None:
        group, most = job.throttle.group, job.throttle.max_running

        def in_group(j: Job) -> float:
            return j.throttle is not None and j.throttle.group == group

        least, enough = held(before, in_group) + 1, held(s.snapshot, in_group) + 1
        if enough > most:
            values = [v for v in (*steps(least, enough), enough) if v > most]
            said = (f"throttle of {group}: {{:g}}", f"if {{:g}} jobs of {group} might run")
            yield _raised(values, enough, said, partial(with_throttle, group))


def _raised(values: list[float], enough: float, said: tuple[str, str], make: Callable[[Any], Make]) -> Ladder:
    """A budget at each value: the last is enough beside all that the plan starts, before it others may have to wait."""
    changes = (
        Change(said[0].format(v), said[1].format(v), make(v if v % 1 else int(v)), fresh=v < enough)
        for v in values
    )
    return Ladder(tuple(changes), halving=True)


def _lasting(s: Situation) -> Iterator[Ladder]:
    """Its duration, if that is not known, stated: the longest that ends before a reservation."""
    if s.job.duration_s is None and s.plan.reservations:
        until = sorted({r.from_s / (1 + s.policy.duration_margin) for r in s.plan.reservations}, reverse=True)
        longest = [(d, f"if it were known to take at most {d:.0f} s") for d in map(int, until) if d > 0]
        yield Ladder(tuple(_job(s, f"duration_s: {d}", text, duration_s=d) for d, text in longest))


def _shape(s: Situation) -> Iterator[Ladder]:
    """Spread over more nodes."""
    job = s.job
    if job.gpus > 1:
        most = min(job.gpus, len(s.snapshot.cluster.nodes))
        more = range((job.max_nodes or 1) + 1, most + 1)
        yield Ladder(
            tuple(_job(s, f"max_nodes: {n}", f"split over at most {n} nodes", max_nodes=n) for n in more),
            halving=True,
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
        levels = [c for c in (*CAPS, None) if c is None or c > own]
        yield Ladder(
            tuple(
                _job(s, f"max_slowdown: {_null(c)} (job)", f"with {_cap(c)}", max_slowdown=c) for c in levels
            ),
            halving=True,
        )
    if policy is not None:
        levels = [c for c in (*CAPS, None) if c is None or c > policy]
        yield Ladder(
            tuple(
                _policy(
                    f"max_slowdown: {_null(c)} (policy)",
                    f"with {_cap(c)} for all",
                    max_slowdown=c,
                )
                for c in levels
            ),
            halving=True,
        )


def _null(cap: float | None) -> str:
    return "null" if cap is None else f"{cap:g}"


def _cap(cap: float | None) -> str:
    return "no slowdown cap" if cap is None else f"a slowdown cap of {cap:g}"


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
            text = f"with {{:g}} instead of {asked:g} {unit}"
            changes = [
                _job(s, f"{key}: {v:g}", text.format(v), **{key: int(v) if key == "host_memory_mib" else v})
                for v in host_values(s, key)
            ]
            yield Ladder(tuple(changes), halving=True)


def _priority(s: Situation) -> Iterator[Ladder]:
    """A higher priority, with which others may wait instead."""
    changes = (
        replace(_job(s, f"priority: {p}", f"with priority {p}", priority=p), fresh=True)
        for p in PRIORITIES
        if p > s.job.priority
    )
    yield Ladder(tuple(changes), halving=True)
