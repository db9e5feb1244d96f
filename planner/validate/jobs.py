"""Rules about one job: is it decided once, does it get what it asked for, may it start or move at all?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from planner.model import Job, Snapshot
from planner.plan import JobForecast, Plan
from planner.validate.scene import Finding, Occupant, Scene, could_take

# ---- form: without it nothing else can be judged ----


def decided_once(plan: Plan, snapshot: Snapshot) -> Iterator[Finding]:
    """Every job is decided exactly once: it runs, waits or is stopped."""
    decided = Counter(a.job_id for a in plan.assignments)
    decided.update(d.job_id for d in plan.deferred)
    decided.update(plan.preempted)
    for job in snapshot.jobs:
        times = decided.pop(job.id, 0)
        if times != 1:
            yield Finding("decided once", f"job {job.id} is decided {times} times, not once", job.id)
    for stranger in decided:
        yield Finding("decided once", f"job {stranger} is not in the snapshot", stranger)


def places_exist(plan: Plan, snapshot: Snapshot) -> Iterator[Finding]:
    """GPUs and nodes of an assignment exist, and its nodes are those of its GPUs."""
    gpus, nodes = snapshot.cluster.gpu_by_id, snapshot.cluster.node_by_name
    for a in plan.assignments:
        missing = [p for p in a.gpu_ids if p not in gpus] + [p for p in a.nodes if p not in nodes]
        for place in missing:
            yield Finding(
                "places exist", f"job {a.job_id} is put on {place}, which does not exist", a.job_id, place
            )
        if not missing and a.gpu_ids and set(a.nodes) != {gpus[g].node for g in a.gpu_ids}:
            text = f"job {a.job_id} names nodes {', '.join(a.nodes)}, its GPUs are elsewhere"
            yield Finding("places exist", text, a.job_id)
    for r in plan.reservations:
        for place in [p for p in r.gpu_ids if p not in gpus]:
            text = f"{place}, reserved for {r.job_id}, does not exist"
            yield Finding("places exist", text, r.job_id, place)


# ---- what it asked for; a job that stays is left alone ----


def gang(scene: Scene) -> Iterator[Finding]:
    """A job gets all its GPUs, each once, or none; a job without GPUs gets one node."""
    for o in scene.newcomers:
        ids, wanted = o.assignment.gpu_ids, o.job.gpus
        if len(ids) != wanted:
            yield _of(o, "gang", f"wants {wanted} GPUs and gets {len(ids)}")
        elif len(set(ids)) < len(ids):
            yield _of(o, "gang", "gets one GPU twice")
        elif not wanted and len(o.assignment.nodes) != 1:
            yield _of(o, "gang", f"wants no GPU and gets {len(o.assignment.nodes)} nodes, not one")


def one_model(scene: Scene) -> Iterator[Finding]:
    """All GPUs of a gang are of one model."""
    gpus = scene.snapshot.cluster.gpu_by_id
    for o in scene.newcomers:
        models = sorted({gpus[g].model for g in o.assignment.gpu_ids}) if o.job.gpus > 1 else ()
        if len(models) > 1:
            yield _of(o, "one model", f"is spread over {', '.join(models)}")


def models(scene: Scene) -> Iterator[Finding]:
    """A job runs only on models that it allows, and on a MIG instance only if it names its model."""
    gpus = scene.snapshot.cluster.gpu_by_id
    for o in scene.newcomers:
        for g in o.assignment.gpu_ids:
            model = gpus[g].model
            if o.job.gpu_models and model not in o.job.gpu_models:
                yield _of(o, "models", f"allows {', '.join(o.job.gpu_models)}, {g} is {model}", g)
            elif gpus[g].is_mig and (model not in o.job.gpu_models or o.job.gpus > 1):
                yield _of(o, "models", f"is put on the MIG instance {g} and did not ask for one {model}", g)


def node_count(scene: Scene) -> Iterator[Finding]:
    """A gang is on at most max_nodes nodes; by default as few as the largest allowed node makes possible."""
    limits: dict[object, int] = {}
    for o in scene.newcomers:
        if len(o.on) <= 1:
            continue
        labels = tuple(sorted(o.job.node_labels.items()))
        key = (
            o.job.gpus, o.job.max_nodes, o.job.gpus_per_node, o.job.gpu_models, o.job.gpu_share_milli,
            o.forecast.gpu_memory_mib, labels,
        )  # fmt: skip
        limit = limits.get(key)
        if limit is None:
            limit = limits[key] = _most_nodes(scene, o.job, o.forecast)
        if len(o.on) > limit:
            yield _of(o, "nodes", f"is on {len(o.on)} nodes, at most {limit} are allowed")


def _most_nodes(scene: Scene, job: Job, forecast: JobForecast) -> int:
    if job.max_nodes is not None:
        return job.max_nodes
    if job.gpus_per_node:
        return job.gpus // job.gpus_per_node
    largest = 0
    for node in scene.snapshot.cluster.nodes:
        if _has_labels(job, node.labels):
            alike = Counter(
                (g.model, g.memory_mib, g.shards)
                for g in node.gpus
                if could_take(scene, job, forecast, g, node)
            )
            largest = max(largest, *alike.values(), 0)
    return -(-job.gpus // largest) if largest else 1


def per_node(scene: Scene) -> Iterator[Finding]:
    """With gpus_per_node, exactly so many GPUs on each node that the job uses."""
    for o in scene.newcomers:
        wanted = o.job.gpus_per_node
        for node, count in o.on.items() if wanted else ():
            if count != wanted and o.job.gpus:
                yield _of(o, "per node", f"wants {wanted} GPUs on each node and gets {count} on {node}", node)


def labels(scene: Scene) -> Iterator[Finding]:
    """A job's nodes have the labels that it asks for."""
    nodes = scene.snapshot.cluster.node_by_name
    for o in scene.newcomers:
        for name in o.on if o.job.node_labels else ():
            if not _has_labels(o.job, nodes[name].labels):
                wanted = ", ".join(f"{k}={v}" for k, v in sorted(o.job.node_labels.items()))
                yield _of(o, "labels", f"asks for nodes with {wanted}, {name} is none", name)


def _has_labels(job: Job, labels: dict[str, str]) -> bool:
    return all(labels.get(k) == v for k, v in job.node_labels.items())


# ---- whether it may start or move ----


def open_places(scene: Scene) -> Iterator[Finding]:
    """Newcomers go only to healthy, fully understood GPUs, on nodes that take jobs and are not in quarantine."""
    now, cluster = scene.snapshot.now_s, scene.snapshot.cluster
    quarantined = {q.name: q for q in scene.snapshot.carryover.quarantines if q.until_s > now}
    shut = {n.name for n in cluster.nodes if not n.schedulable}
    for o in scene.newcomers:
        for name in o.on:
            if name in shut:
                yield _of(o, "open places", f"is put on {name}, which takes no new jobs", name)
            elif name in quarantined:
                text = f"is put on {name}, in quarantine until {quarantined[name].until_s:g} s"
                yield _of(o, "open places", text, name)
        for g in o.assignment.gpu_ids:
            if not cluster.gpu_by_id[g].healthy:
                yield _of(o, "open places", f"is put on {g}, which is not healthy", g)
            elif cluster.gpu_by_id[g].unmanaged_memory_mib is None:
                yield _of(
                    o,
                    "open places",
                    f"is put on {g}, whose memory is used by others nobody knows how much",
                    g,
                )


def ready(scene: Scene) -> Iterator[Finding]:
    """A held job does not start, nor does one that waits for other jobs."""
    for o in scene.newcomers:
        if o.job.running:
            continue
        if o.job.state == "held":
            yield _of(o, "ready", "is held and would start")
        elif o.job.depends_on:
            yield _of(o, "ready", f"waits for {', '.join(o.job.depends_on)} and would start")


def running(scene: Scene) -> Iterator[Finding]:
    """A running job stays, moves only if movable and not in its cooldown, is stopped only if preemptible."""
    now = scene.snapshot.now_s
    cooling = {c.name: c for c in scene.snapshot.carryover.cooldowns if c.until_s > now}
    moved = [o.job for o in scene.newcomers if o.job.running]
    stopped = [scene.snapshot.job_by_id[j] for j in scene.plan.preempted]
    waiting = [scene.snapshot.job_by_id[d.job_id] for d in scene.plan.deferred]
    for job in moved:
        if not job.movable:
            yield Finding("running", f"job {job.id} runs, may not be moved and would be", job.id)
    for job in stopped:
        if not job.running:
            yield Finding("running", f"job {job.id} is stopped and does not run", job.id)
        elif not job.preemptible:
            yield Finding("running", f"job {job.id} runs, may not be stopped and would be", job.id)
    for job in waiting:
        if job.running:
            yield Finding("running", f"job {job.id} runs and is said to wait", job.id)
    for job in (*moved, *stopped):
        if job.id in cooling:
            text = (
                f"job {job.id} was moved lately and may not be disturbed until {cooling[job.id].until_s:g} s"
            )
            yield Finding("running", text, job.id)
    if len(moved) + len(stopped) > scene.policy.max_moves:
        text = f"{len(moved) + len(stopped)} running jobs are moved or stopped, max_moves is {scene.policy.max_moves}"
        yield Finding("running", text)


def states(scene: Scene) -> Iterator[Finding]:
    """An assignment says start, stay or move as it is, and a move says from where."""
    for o in scene.occupants.values():
        state = "stay" if not o.newcomer else "move" if o.job.running else "start"
        if o.assignment.state != state:
            yield _of(o, "states", f"is said to {o.assignment.state}; it would {state}")
        elif set(o.assignment.moved_from or ()) != (set(o.job.running_on) if state == "move" else set()):
            yield _of(
                o, "states", f"is said to come from {', '.join(o.assignment.moved_from or ('nowhere',))}"
            )


def _of(o: Occupant, rule: str, text: str, place: str | None = None) -> Finding:
    return Finding(rule, f"job {o.job.id} {text}", o.job.id, place)
