"""What the rules say of a plan's actions in the state as it is now.

The rules are those of ``planner.validate``, the one place that knows what a start depends on. Here a state is made into a plan for
them: everything that runs stays, and the actions that seem fine are its starts and moves. Forecasts are made anew from the state. A finding is laid on one action
at a time, so that no more is left out than has to be; the caller takes that out and asks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from planner import predict
from planner.model import Reserved, Snapshot
from planner.plan import Assignment, Plan, Reservation
from planner.policy import Policy
from planner.validate import Finding, hosts, jobs, sharing
from planner.validate.scene import Occupant, Scene, scene_of

#: What is wrong with a job itself, wherever the others are.
OF_A_JOB = (
    jobs.gang, jobs.one_model, jobs.models, jobs.node_count, jobs.per_node, jobs.labels, jobs.open_places, jobs.ready,
    jobs.running, hosts.reservations,
)  # fmt: skip
#: What is wrong with those who are at one place.
OF_A_PLACE = (
    sharing.tenants, sharing.consent, sharing.scope, sharing.memory, sharing.mps, sharing.shares,
    sharing.never_together, sharing.slowdown_cap, sharing.wall_time, sharing.gate, hosts.hosts, hosts.exclusive,
)  # fmt: skip
#: What is wrong with jobs that count together, wherever they are.
OF_MANY = (hosts.quotas, hosts.licences, hosts.throttles)


def objections(
    state: Snapshot, plan: Plan, running: Mapping[str, tuple[str, ...]], preempted: Iterable[str]
) -> dict[str, str]:
    """Jobs that must not start, move or be stopped, and why; none, and the actions may be carried out.

    ``running`` is where each job would be, those that start or move in the order in which they do.
    """
    if plan.inputs is None:
        return {}
    policy, predictor = plan.inputs.policy, plan.inputs.forecast.predictor
    stopped = tuple(preempted)
    after = plan.model_copy(
        update={
            "assignments": tuple(_there(state, job_id, spot) for job_id, spot in running.items()),
            "deferred": (),
            "preempted": stopped,
            "reservations": tuple(_kept_free(state, plan, running)),
        }
    )
    scene = scene_of(after, state, predict.forecast(state, policy, predictor), policy)
    acting = {o.job.id for o in scene.newcomers} | set(stopped)
    found = {f.job: f.text for rule in OF_A_JOB for f in rule(scene) if f.job and f.job in acting}
    if not found:
        found = dict(_at_places(scene, (f for rule in OF_A_PLACE for f in rule(scene))))
    if not found:
        found = _beyond_budgets(scene, policy)
    return found


def others(state: Snapshot, plan: Plan) -> tuple[Reserved, ...]:
    """Reservations in the state that the plan neither knew of nor makes, of jobs that still wait."""
    known = plan.inputs.snapshot.carryover.reservations if plan.inputs else ()
    own = {(r.job_id, r.gpu_ids) for r in known} | {(r.job_id, r.gpu_ids) for r in plan.reservations}
    waiting = {j.id for j in state.jobs if not j.running}
    return tuple(
        r for r in state.carryover.reservations if r.job_id in waiting and (r.job_id, r.gpu_ids) not in own
    )


def _there(state: Snapshot, job_id: str, spot: tuple[str, ...]) -> Assignment:
    if not state.job_by_id[job_id].gpus:
        return Assignment.model_construct(job_id=job_id, gpu_ids=(), nodes=spot)
    by_id = state.cluster.gpu_by_id
    nodes = dict.fromkeys(by_id[g].node for g in spot)
    return Assignment.model_construct(job_id=job_id, gpu_ids=spot, nodes=tuple(nodes))


def _kept_free(state: Snapshot, plan: Plan, running: Collection[str]) -> Iterator[Reservation]:
    yield from (r for r in plan.reservations if r.job_id not in running)
    for r in others(state, plan):
        if r.job_id not in running:
            yield Reservation(job_id=r.job_id, gpu_ids=r.gpu_ids, from_s=r.from_s - state.now_s)


def _at_places(scene: Scene, findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    """One action for each place where something is wrong: the job that it is said of if that acts, else the last to come."""
    first: dict[str, Finding] = {}
    for f in findings:
        first.setdefault(f.place or "", f)
    order = {o.job.id: i for i, o in enumerate(scene.newcomers)}
    for place, f in first.items():
        there = scene.on_gpu.get(place) or scene.on_node.get(place) or []
        came = sorted((o.job.id for o in there if o.newcomer), key=order.__getitem__)
        if f.job and f.job in came:
            yield f.job, f.text
        elif f.rule == "exclusive":  # of a job that is there: nobody may come
            yield from ((job_id, f.text) for job_id in came)
        elif came:
            yield came[-1], f.text


def _beyond_budgets(scene: Scene, policy: Policy) -> dict[str, str]:
    """The starts that find nothing left, where quotas, licences or throttles are overrun; who comes first is served."""
    texts = [f.text for rule in OF_MANY for f in rule(scene)]
    if not texts:
        return {}
    room = _rooms(scene, policy)
    found: dict[str, str] = {}
    used: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for o in sorted(scene.occupants.values(), key=lambda o: o.newcomer):  # stable: in their order
        asks = {k: amount for k, amount in _asks(o).items() if amount and k in room}
        short = [k for k, amount in asks.items() if used[k] + amount > room[k] + 1e-9]
        if short and not o.job.running:
            found[o.job.id] = f"nothing is left for it of the {' '.join(short[0])}"
        else:
            for k, amount in asks.items():
                used[k] += amount
    return found


def _asks(o: Occupant) -> dict[tuple[str, ...], float]:
    """What a job counts as, in every budget that could be stated."""
    asks: dict[tuple[str, ...], float] = {("licences", name): n for name, n in o.job.licences.items()}
    if o.job.throttle is not None:
        asks["throttle", o.job.throttle.group] = 1
    for key in ("queue", "user", "account"):
        owner = getattr(o.job, key)
        if owner is not None:
            asks["quota of", key, owner] = o.size
    return asks


def _rooms(scene: Scene, policy: Policy) -> dict[tuple[str, ...], float]:
    """What each budget allows; a licence that the cluster does not have allows nothing."""
    rooms: dict[tuple[str, ...], float] = {}
    for o in scene.occupants.values():
        rooms.update(
            {("licences", name): scene.snapshot.cluster.licences.get(name, 0) for name in o.job.licences}
        )
    for quota in policy.quotas:
        key = ("quota of", *quota.owner)
        rooms[key] = min(quota.gpus, rooms.get(key, quota.gpus))
    for job in scene.snapshot.jobs:
        if job.throttle is not None:
            group = ("throttle", job.throttle.group)
            rooms[group] = min(job.throttle.max_running, rooms.get(group, job.throttle.max_running))
    return rooms
