"""Rules about nodes and the whole cluster: hosts, budgets, reservations, and the order in which moves happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.model import Node
from planner.validate.scene import ROUNDING, Finding, Occupant, Scene


def milli_cpus(cpus: float) -> int:
    """Thousandths of a core a node has; a hair is added, so that 0.57 cores are 570."""
    return int(cpus * 1000 + 1e-6)


def host_part(demand: int, count: int, gpus: int) -> int:
    """A job's demand on a node with ``count`` of its GPUs, rounded up; all of it for a job without GPUs."""
    return -(-demand * count // gpus) if gpus else demand


def hosts(scene: Scene) -> Iterator[Finding]:
    """The cores and memory of the jobs on a node, split by GPUs and rounded up, are at most the node's."""
    for node, there in scene.entered_nodes:
        parts = [(o, o.on[node.name]) for o in there]
        yield from _over(node, parts, "")


def _over(node: Node, parts: list[tuple[Occupant, int]], when: str) -> Iterator[Finding]:
    names = ", ".join(o.job.id for o, _ in parts)
    if node.cpus is not None:
        used = sum(host_part(o.job.cpu_milli, count, o.job.gpus) for o, count in parts)
        if used > milli_cpus(node.cpus):
            text = f"{names} need {used / 1000:g} CPUs on {node.name}, it has {node.cpus:g}{when}"
            yield Finding("hosts", text, place=node.name)
    if node.host_memory_mib is not None:
        used = sum(host_part(o.job.host_memory_mib, count, o.job.gpus) for o, count in parts)
        if used > node.host_memory_mib:
            text = (
                f"{names} need {used} MiB of host memory on {node.name}, it has {node.host_memory_mib}{when}"
            )
            yield Finding("hosts", text, place=node.name)


def exclusive(scene: Scene) -> Iterator[Finding]:
    """An exclusive job has its nodes to itself."""
    for node, there in scene.entered_nodes:
        for o in there:
            if o.job.exclusive and len(there) > 1:
                others = ", ".join(p.job.id for p in there if p is not o)
                text = f"job {o.job.id} is exclusive and shares {node.name} with {others}"
                yield Finding("exclusive", text, o.job.id, node.name)


# ---- budgets: they bind only if a queued job that counts starts ----


def quotas(scene: Scene) -> Iterator[Finding]:
    """The GPUs of a queue's, user's or account's jobs stay within its quota."""
    for quota in scene.policy.quotas:
        key, owner = quota.owner
        used = _used([(o, o.size) for o in scene.occupants.values() if getattr(o.job, key) == owner])
        if used > quota.gpus + 1e-9:
            yield Finding("quotas", f"{key} {owner} would use {used:g} GPUs, its quota is {quota.gpus:g}")


def licences(scene: Scene) -> Iterator[Finding]:
    """No more licences are in use than the cluster has."""
    have = scene.snapshot.cluster.licences
    users: dict[str, list[tuple[Occupant, float]]] = {}
    for o in scene.occupants.values():
        for name, count in o.job.licences.items():
            users.setdefault(name, []).append((o, count))
    for name, those in users.items():
        used = _used(those)
        if used > have.get(name, 0):
            yield Finding(
                "licences", f"{used:g} licences {name} would be in use, there are {have.get(name, 0)}"
            )


def throttles(scene: Scene) -> Iterator[Finding]:
    """No more jobs of a throttled group run at once than the tightest limit stated for it."""
    most: dict[str, int] = {}
    for job in scene.snapshot.jobs:
        if job.throttle is not None:
            known = most.get(job.throttle.group, job.throttle.max_running)
            most[job.throttle.group] = min(known, job.throttle.max_running)
    running: dict[str, list[tuple[Occupant, float]]] = {}
    for o in scene.occupants.values():
        if o.job.throttle is not None:
            running.setdefault(o.job.throttle.group, []).append((o, 1))
    for group, those in running.items():
        used = _used(those)
        if used > most[group]:
            yield Finding("throttles", f"{used:g} jobs of {group} would run, at most {most[group]} may")


def _used(those: list[tuple[Occupant, float]]) -> float:
    """What jobs amount to together; 0 if none of them is started by this plan."""
    started = any(amount and not o.job.running for o, amount in those)
    return sum(amount for _, amount in those) if started else 0


# ---- reservations ----


def reservations(scene: Scene) -> Iterator[Finding]:
    """Newcomers on reserved GPUs end (p90) before the reservation; nobody joins a job that holds one of them."""
    for r in scene.plan.reservations:
        if r.job_id in scene.occupants:
            yield Finding("reservations", f"{r.job_id} runs and still holds a reservation", r.job_id)
            continue
        for g in r.gpu_ids:
            there = scene.on_gpu.get(g, [])
            for o in there:
                if o.newcomer and o.job.id != r.job_id:
                    yield from _late(scene, o, g, r.from_s, r.job_id)
                if not o.newcomer:
                    yield from _joined(scene, o, g, r.job_id)


def _late(scene: Scene, o: Occupant, gpu: str, from_s: float, holder: str) -> Iterator[Finding]:
    left, s, stretch = o.forecast.remaining_p90_s, scene.slowdown(o), scene.stretch(o)
    head = f"{gpu} is reserved for {holder} from {from_s:g} s"
    if left is None or s is None:
        yield Finding("reservations", f"{head}, and nobody knows when job {o.job.id} ends", o.job.id, gpu)
    elif left * s * stretch > from_s * (1 + ROUNDING / scene.speed(o)) + 1:
        text = f"{head}, job {o.job.id} would end after {left * s * stretch:.0f} s (p90)"
        yield Finding("reservations", text, o.job.id, gpu)


def _joined(scene: Scene, resident: Occupant, gpu: str, holder: str) -> Iterator[Finding]:
    for g in resident.assignment.gpu_ids:
        for o in scene.on_gpu[g]:
            if o.newcomer:
                text = (
                    f"job {o.job.id} joins {resident.job.id} on {g}, which holds {gpu}, reserved for {holder}"
                )
                yield Finding("reservations", text, o.job.id, g)


# ---- the order of moves ----


def waves(scene: Scene) -> Iterator[Finding]:
    """Carried out wave by wave, no GPU is given out before its old tenant is gone and no host is overcommitted."""
    leaving = _leaving(scene)
    starting: dict[int, list[Occupant]] = {}
    for o in scene.newcomers:
        starting.setdefault(o.assignment.wave, []).append(o)
        left = leaving.get(o.job.id, o.assignment.wave)
        if o.job.running and left > o.assignment.wave:
            text = f"job {o.job.id} starts in wave {o.assignment.wave} and leaves its old place only in wave {left}"
            yield Finding("waves", text, o.job.id)
    if not leaving and set(starting) <= {0}:
        return
    held = _Held(scene, leaving)
    for wave in sorted({*starting, *leaving.values()}):
        yield from held.start(starting.get(wave, []), wave)
        held.leave(job for job, w in leaving.items() if w == wave)


def _leaving(scene: Scene) -> dict[str, int]:
    """The wave at whose end each moved or stopped job is gone from its old place."""
    found = dict.fromkeys(scene.plan.preempted, 0)
    for o in scene.newcomers:
        if o.job.running:
            wave = o.assignment.leaves_wave
            found[o.job.id] = o.assignment.wave if wave is None else wave
    return found


class _Held:
    """What is in use while the waves go on: old places until they are left, new ones from their wave on."""

    def __init__(self, scene: Scene, leaving: dict[str, int]) -> None:
        self.scene = scene
        self.old: dict[str, set[str]] = {}  # GPU -> jobs that are still there and will leave
        self.node: dict[str, list[tuple[Occupant, int]]] = {}
        self.ghosts = {job_id: _ghost(scene, job_id) for job_id in leaving}
        for job_id, ghost in self.ghosts.items():
            for g in ghost.job.running_on if ghost.job.gpus else ():
                self.old.setdefault(g, set()).add(job_id)
        stay = [o for o in scene.occupants.values() if not o.newcomer]
        for o in [*stay, *self.ghosts.values()]:
            for name, count in o.on.items():
                self.node.setdefault(name, []).append((o, count))

    def start(self, those: list[Occupant], wave: int) -> Iterator[Finding]:
        """Start a wave's jobs; each is a finding if its place is not free yet."""
        for o in those:
            for g in o.assignment.gpu_ids:
                for other in sorted(self.old.get(g, set()) - {o.job.id}):
                    text = f"job {o.job.id} starts on {g} in wave {wave}, before {other} is gone"
                    yield Finding("waves", text, o.job.id, g)
            for name, count in o.on.items():
                self.node.setdefault(name, []).append((o, count))
        nodes = self.scene.snapshot.cluster.node_by_name
        for name in sorted({n for o in those for n in o.on}):
            for found in _over(nodes[name], self.node[name], f" (in wave {wave})"):
                yield Finding("waves", found.text, place=name)

    def leave(self, job_ids: Iterable[str]) -> None:
        """Take jobs from their old places."""
        for job_id in job_ids:
            ghost = self.ghosts[job_id]
            for g in ghost.job.running_on if ghost.job.gpus else ():
                self.old[g].discard(job_id)
            for name in ghost.on:
                self.node[name] = [(o, n) for o, n in self.node[name] if o is not ghost]


def _ghost(scene: Scene, job_id: str) -> Occupant:
    """A leaving job as it stands at its old place."""
    job = scene.snapshot.job_by_id[job_id]
    on: dict[str, int] = {}
    for place in job.running_on:
        name = scene.snapshot.cluster.gpu_by_id[place].node if job.gpus else place
        on[name] = on.get(name, 0) + (1 if job.gpus else 0)
    return Occupant.at_home(job, on)
