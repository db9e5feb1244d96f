"""The next state of a cluster under a plan, worked out as a value.

Each action is judged against the state as it is at its turn: the job must still be there and ask for what it asked for, and its GPUs
must be healthy and hold nobody but the neighbours that the plan knows of. All of them together must then keep the rules that
the plan kept, in this state (``recheck``). What fails that is *stale* and left out,
together with all that counted on it. What is in place already is done, so that applying twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.backends.recheck import objections, others
from planner.edit import changed
from planner.model import Carryover, Gpu, Job, Reserved, Snapshot, Until
from planner.plan import Action, Assignment, Plan, Reservation
from planner.quantities import SECONDS_LIMIT

#: Facts about a job that change while it waits or runs, without changing what it asks for.
MAY_CHANGE = {"running_on", "started_s", "progress", "priority", "submitted_s"}


@dataclass
class _State:
    """The jobs while actions are carried out; tenants by GPU id or node name."""

    snapshot: Snapshot
    jobs: dict[str, Job]
    refused: dict[str, str]
    tenants: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.jobs.values():
            for place in job.running_on:
                self.tenants.setdefault(place, set()).add(job.id)

    def put(self, job: Job, **update: object) -> None:
        """Replace a job, keeping the tenants true; the new value is validated."""
        for place in job.running_on:
            self.tenants[place].discard(job.id)
        new = changed(job, **update)
        for place in new.running_on:
            self.tenants.setdefault(place, set()).add(new.id)
        self.jobs[new.id] = new


def transition(state: Snapshot, plan: Plan) -> tuple[Snapshot, tuple[Action, ...]]:
    """The state after the plan, and what was done or left out, in the order of waves."""
    refused: dict[str, str] = {}
    while True:  # each round refuses one more, or is the last
        s = _State(state, dict(state.job_by_id), refused)
        actions = _carried_out(s, plan)
        changing = [a for a in actions if a.outcome == "done" and not a.detail]
        begun = [a.job_id for a in changing if a.verb in ("start", "move")]
        stay = [j.id for j in s.jobs.values() if j.running and j.id not in set(begun)]
        running = {job_id: s.jobs[job_id].running_on for job_id in [*stay, *begun]}
        stopped = [a.job_id for a in changing if a.verb == "preempt"]
        more = objections(state, plan, running, stopped) if begun or stopped else {}
        if not more:
            break
        refused |= more
    actions += [_reserve(s, r) for r in plan.reservations]
    jobs = tuple(s.jobs[j.id] for j in state.jobs)
    return changed(state, jobs=jobs, carryover=_carried(state, plan, actions)), tuple(actions)


def _carried_out(s: _State, plan: Plan) -> list[Action]:
    """All actions on jobs, wave by wave, but for those that were refused."""
    expected = _expected(plan)
    actions = [_preempt(s, plan, job_id) for job_id in plan.preempted]
    for a in sorted(plan.assignments, key=lambda a: a.wave):  # stable: the plan's order within a wave
        if a.state != "stay":
            actions.append(_place(s, plan, a, expected))
    return actions


def _expected(plan: Plan) -> dict[str, set[str]]:
    """The tenants that the plan gives each GPU or node."""
    found: dict[str, set[str]] = {}
    for a in plan.assignments:
        for place in a.gpu_ids or a.nodes:
            found.setdefault(place, set()).add(a.job_id)
    return found


def _preempt(s: _State, plan: Plan, job_id: str) -> Action:
    job = s.jobs.get(job_id)
    if job is None:
        return Action(job_id=job_id, verb="preempt", outcome="stale", detail="the job is gone")
    if not job.running:
        return Action(job_id=job_id, verb="preempt", detail="it runs no more")
    if job_id in s.refused:
        return Action(job_id=job_id, verb="preempt", outcome="stale", detail=s.refused[job_id])
    was = job.running_on
    s.put(job, running_on=(), started_s=None, progress=_progress(plan, job))
    return Action(job_id=job_id, verb="preempt", gpu_ids=was)


def _progress(plan: Plan, job: Job) -> float | None:
    """What is done of a job that stops, by the forecast that the plan rested on."""
    forecasts = plan.inputs.forecast.jobs if plan.inputs else ()
    remaining = next((f.remaining_s for f in forecasts if f.job_id == job.id), None)
    if remaining is None or not job.duration_s:
        return job.progress
    return min(1.0, max(0.0, 1 - remaining / job.duration_s))


def _place(s: _State, plan: Plan, a: Assignment, expected: dict[str, set[str]]) -> Action:
    spot = a.gpu_ids or a.nodes
    job = s.jobs.get(a.job_id)
    verb = "move" if a.state == "move" else "start"
    said = {"job_id": a.job_id, "verb": verb, "gpu_ids": spot, "wave": a.wave}
    if job is not None and set(job.running_on) == set(spot):
        return Action(**said, detail="it runs there already")
    why = _stale_job(plan, job, a) or _stale_places(s, plan, a.job_id, spot, expected)
    why = why or (_host_short(s, job, spot) if job else None) or s.refused.get(a.job_id)
    if job is None or why:
        return Action(**said, outcome="stale", detail=why or "")
    started = job.started_s if job.running else _moment(s.snapshot, a.start_s or 0)
    s.put(job, running_on=spot, started_s=started)
    return Action(**said)


def _moment(state: Snapshot, after_s: float) -> float:
    """So many seconds from now, or as near as the clock can say."""
    return max(-SECONDS_LIMIT, min(state.now_s + after_s, SECONDS_LIMIT))


def _stale_job(plan: Plan, job: Job | None, a: Assignment) -> str | None:
    """Why the job is not the one that was planned, or None."""
    if job is None:
        return "the job is gone"
    if a.state == "move" and set(job.running_on) != set(a.moved_from or ()):
        return f"it runs no more on {', '.join(a.moved_from or ())}"
    if a.state == "start" and job.running:
        return f"it is not pending: it runs on {', '.join(job.running_on)}"
    if job.state == "held":
        return "it is held"
    planned = plan.inputs.snapshot.job_by_id.get(job.id) if plan.inputs else None
    keys = [
        k
        for k in Job.model_fields
        if k not in MAY_CHANGE and planned and getattr(job, k) != getattr(planned, k)
    ]
    return f"it asks for something else now: {', '.join(keys)}" if keys else None


def _stale_places(
    s: _State, plan: Plan, job_id: str, spot: tuple[str, ...], expected: dict[str, set[str]]
) -> str | None:
    """Why the GPUs (or the node) cannot be given out any more, or None."""
    cluster = s.snapshot.cluster
    for place in spot:
        gpu = cluster.gpu_by_id.get(place)
        node = cluster.node_by_name.get(gpu.node if gpu else place)
        if node is None or (gpu is None and place not in cluster.node_by_name):
            return f"{place} is gone"
        if not node.schedulable:
            return f"node {node.name} takes no jobs now"
        strangers = sorted(s.tenants.get(place, set()) - expected.get(place, set()) - {job_id})
        if gpu and strangers:
            return f"{place} is not free: {', '.join(strangers)}"
        why = _stale_gpu(gpu, plan) if gpu else None
        if why:
            return why
    return None


def _stale_gpu(gpu: Gpu, plan: Plan) -> str | None:
    if not gpu.healthy:
        return f"{gpu.id} is unhealthy"
    planned = plan.inputs.snapshot.cluster.gpu_by_id.get(gpu.id) if plan.inputs else None
    if planned is None:
        return None
    if gpu.unmanaged_memory_mib != planned.unmanaged_memory_mib:
        before, now = planned.unmanaged_memory_mib, gpu.unmanaged_memory_mib
        if now is None or before is None or now > before:
            return f"{gpu.id} has {_mib(now)} in unmanaged use, {_mib(before)} when planned"
    changed = (gpu.model, gpu.memory_mib, gpu.shards) != (planned.model, planned.memory_mib, planned.shards)
    return f"{gpu.id} is not the GPU it was" if changed else None


def _host_short(s: _State, job: Job, spot: tuple[str, ...]) -> str | None:
    """Which node no longer has the cores or the memory for its part of the job, or None."""
    by_id, by_name = s.snapshot.cluster.gpu_by_id, s.snapshot.cluster.node_by_name
    nodes = {place: by_name[by_id[place].node if place in by_id else place] for place in spot}
    for node in {n.name: n for n in nodes.values()}.values():
        here = {g.id for g in node.gpus} | {node.name}
        others = {j for place in here for j in s.tenants.get(place, ())} - {job.id}
        asks = [_part(s.jobs[j], s.jobs[j].running_on, here) for j in others] + [_part(job, spot, here)]
        if node.cpus is not None and sum(c for c, _ in asks) > 1000 * node.cpus + 1e-6:
            return f"node {node.name} has too few cores free now"
        if node.host_memory_mib is not None and sum(m for _, m in asks) > node.host_memory_mib:
            return f"node {node.name} has too little memory free now"
    return None


def _part(job: Job, spot: tuple[str, ...], here: set[str]) -> tuple[int, int]:
    """Milli-CPUs and MiB that a job takes of one node: split by GPUs, rounded up."""
    count, all_ = sum(place in here for place in spot), len(spot)
    return -(-job.cpu_milli * count // all_), -(-job.host_memory_mib * count // all_)


def _mib(amount: int | None) -> str:
    return "an unknown amount" if amount is None else f"{amount} MiB"


def _reserve(s: _State, r: Reservation) -> Action:
    said = {"job_id": r.job_id, "verb": "reserve", "gpu_ids": r.gpu_ids}
    job = s.jobs.get(r.job_id)
    gone = [g for g in r.gpu_ids if g not in s.snapshot.cluster.gpu_by_id]
    if job is None or gone:
        return Action(**said, outcome="stale", detail=f"{gone[0]} is gone" if job else "the job is gone")
    return Action(**said, detail="it runs by now" if job.running else "")


def _carried(state: Snapshot, plan: Plan, actions: list[Action]) -> Carryover:
    """What the next epoch must know: this plan, its reservations, and which jobs have just moved."""
    now, done = state.now_s, {(a.job_id, a.verb) for a in actions if a.outcome == "done" and not a.detail}
    kept = tuple(
        Reserved(job_id=r.job_id, gpu_ids=r.gpu_ids, from_s=_moment(state, r.from_s))
        for r in plan.reservations
        if (r.job_id, "reserve") in done
    )
    rest_s = plan.inputs.policy.cooldown_s if plan.inputs else 0
    moved = [job for job, verb in sorted(done) if verb in ("move", "preempt")]
    cooling = tuple(
        Until(name=job, until_s=_moment(state, rest_s), why=f"moved by plan {plan.id}") for job in moved
    )
    still = tuple(c for c in state.carryover.cooldowns if c.until_s > now and c.name not in moved)
    return changed(
        state.carryover,
        reservations=kept + others(state, plan),
        cooldowns=still + cooling,
        evicted_for=_evicted(state, plan, {job for job, verb in done if verb == "preempt"}),
        last_plan=plan.id,
    )


def _evicted(state: Snapshot, plan: Plan, stopped: set[str]) -> dict[str, str]:
    """Who was stopped and whom that made room for; forgotten once one of the two runs or is gone."""
    before = plan.inputs.snapshot.job_by_id if plan.inputs else {}
    places = {job: set(before[job].running_on) for job in sorted(stopped) if job in before}
    heirs = [(a.job_id, {*a.gpu_ids, *a.nodes}) for a in plan.assignments if a.state != "stay"]
    heirs += [(r.job_id, set(r.gpu_ids)) for r in plan.reservations]
    found = {job: heir for job, held in places.items() for heir, taken in reversed(heirs) if taken & held}
    queued = {j.id for j in state.jobs if not j.running}
    old = {a: b for a, b in state.carryover.evicted_for.items() if {a, b} <= queued}
    return {**old, **found}
