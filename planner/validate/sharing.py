"""Rules about the jobs on one GPU: who may be together, and whether it is worth it.

They bind only on GPUs with a newcomer: residents that already break a rule are left alone, but nobody joins them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from planner.model import Gpu, Node
from planner.validate.scene import ROUNDING, Finding, Occupant, Scene

#: The sum without a newcomer may pass the sum with it by this part of it: the solver's types round a tenant's
#: utilisation up to 5 points, which moves two slowdowns that are compared by different amounts.
TYPE_ROUNDING = 0.10


def tenants(scene: Scene) -> Iterator[Finding]:
    """No more jobs on a GPU than its node, or else the policy, allows; one on a MIG instance."""
    for gpu, node, there in scene.entered_gpus:
        limit = scene.max_tenants(gpu, node)
        if limit is not None and len(there) > limit:
            yield _at(
                gpu,
                "tenants",
                f"{len(there)} jobs on {gpu.id} ({_names(there)}), at most {limit} may share it",
            )


def consent(scene: Scene) -> Iterator[Finding]:
    """A job shares only if it may and enough is known of it, and is not put where strangers hold memory."""
    for gpu, _, there in scene.entered_gpus:
        for o in there:
            if not o.alone:
                continue
            if len(there) > 1:
                why = (
                    "may not share"
                    if not o.job.shareable or o.job.exclusive
                    else "is not known well enough to share"
                )
                yield _at(
                    gpu, "consent", f"job {o.job.id} {why} and is beside {_names(there, o)} on {gpu.id}", o
                )
            if o.newcomer and gpu.unmanaged_memory_mib:
                text = f"job {o.job.id} is to be alone, {gpu.unmanaged_memory_mib} MiB of {gpu.id} are used by others"
                yield _at(gpu, "consent", text, o)


def scope(scene: Scene) -> Iterator[Finding]:
    """With share_across user or account, only jobs of one known user or account share a GPU."""
    key = scene.policy.share_across
    if key == "all":
        return
    for gpu, _, there in scene.shared_gpus:
        owners = {getattr(o.job, key) for o in there}
        if len(owners) > 1 or None in owners:
            text = f"jobs of different or unknown {key}s share {gpu.id}: {_names(there)}"
            yield _at(gpu, "scope", text)


def memory(scene: Scene) -> Iterator[Finding]:
    """The tenants' memory fits beside what others use, with the margin where nothing holds two or more to theirs."""
    for gpu, node, there in scene.entered_gpus:
        needs = [scene.memory_mib(o, gpu) for o in there]
        capacity = scene.capacity_mib(gpu)
        if capacity is None:
            # A share needs no figure: shares of one GPU never pass 1000, whatever its memory is.
            if any(n is not None for n in needs):
                yield _at(
                    gpu,
                    "memory",
                    f"{gpu.id} does not say how much memory it has; {_names(there)} ask for some",
                )
            continue
        margin = scene.margin_mib(node) if len(there) > 1 else 0
        room = max(0, capacity - (gpu.unmanaged_memory_mib or 0)) - margin
        used = sum(n or 0 for n in needs)
        if used > room:
            text = f"{_names(there)} need {used} MiB together, {gpu.id} can give {room} MiB"
            yield _at(gpu, "memory", text + (f" (a margin of {margin} MiB is kept)" if margin else ""))


def mps(scene: Scene) -> Iterator[Finding]:
    """Under MPS each tenant gets at most the GPU's memory divided by the number of tenants allowed."""
    for gpu, node, there in scene.entered_gpus:
        limit, capacity = scene.max_tenants(gpu, node), scene.capacity_mib(gpu)
        if node.sharing != "mps" or limit is None or capacity is None:
            continue
        for o in there:
            need = scene.memory_mib(o, gpu) or 0
            if need > capacity // limit:
                text = f"job {o.job.id} needs {need} MiB, MPS on {gpu.id} gives each of {limit} at most {capacity // limit} MiB"
                yield _at(gpu, "mps", text, o)


def shares(scene: Scene) -> Iterator[Finding]:
    """Declared shares of a GPU add up to at most 1000; on a divided GPU the tokens to at most its shards."""
    for gpu, _, there in scene.entered_gpus:
        if gpu.shards is None:
            used, room, unit = sum(o.job.gpu_share_milli or 0 for o in there), 1000, "thousandths"
        else:
            used, room, unit = sum(_tokens(scene, o, gpu) for o in there), gpu.shards, "shards"
        if used > room:
            yield _at(gpu, "shares", f"{_names(there)} take {used} {unit} of {gpu.id}, it has {room}")


def _tokens(scene: Scene, o: Occupant, gpu: Gpu) -> int:
    """Shards for the larger of the job's share and its memory; a started shard counts whole."""
    shards, capacity = gpu.shards or 0, scene.capacity_mib(gpu)
    by_share = -(-(o.job.gpu_share_milli or 0) * shards // 1000)
    by_memory = -(-(scene.memory_mib(o, gpu) or 0) * shards // capacity) if capacity else 0
    return max(1, by_share, by_memory)


def never_together(scene: Scene) -> Iterator[Finding]:
    """Jobs that name each other, by id or profile, or that were taken apart before, do not share."""
    apart = {frozenset(pair) for pair in scene.snapshot.carryover.never_pairs}
    for gpu, _, there in scene.shared_gpus:
        for a, b in permutations(there, 2):
            named = _names_it(scene, a, b)
            if named or (a.job.id < b.job.id and frozenset((a.job.id, b.job.id)) in apart):
                why = "may never share with" if named else "was taken apart from"
                yield _at(gpu, "never together", f"job {a.job.id} {why} {b.job.id}; both are on {gpu.id}", a)


def _names_it(scene: Scene, a: Occupant, b: Occupant) -> bool:
    """An id stands for that job where there is one, else the name is a profile."""
    by_id = scene.snapshot.job_by_id
    return any(name == (b.job.id if name in by_id else b.job.profile) for name in a.job.never_with)


def slowdown_cap(scene: Scene) -> Iterator[Finding]:
    """No tenant is slowed down past its own or the policy's cap, and each slowdown is predicted."""
    for gpu, _, there in scene.shared_gpus:
        predicted = scene.slowdowns_on(gpu)
        for o in there:
            s = predicted[o.job.id]
            if s is None:
                text = f"job {o.job.id} must not share with {_names(there, o)}, or nothing is known of it, on {gpu.id}"
                yield _at(gpu, "slowdown", text, o)
                continue
            cap = min(
                (c for c in (scene.policy.max_slowdown, o.job.max_slowdown) if c is not None), default=None
            )
            if cap is not None and s > cap + ROUNDING:
                text = f"job {o.job.id} would be slowed down {s:.3f} times on {gpu.id}, allowed are {cap:g}"
                yield _at(gpu, "slowdown", text, o)


def wall_time(scene: Scene) -> Iterator[Finding]:
    """A job shares only if its p95 duration times its p95 slowdown fits its time limit, or sharing costs it nothing."""
    for gpu, _, there in scene.shared_gpus:
        predicted = scene.slowdowns_on(gpu)
        for o in there:
            s, left, upper = predicted[o.job.id], _time_left(scene, o), o.forecast.remaining_p95_s
            if s is None or left is None or upper is None or s <= 1 + ROUNDING:
                continue
            took = upper * (1 + (s - 1) * (1 + scene.policy.beyond_plan)) * scene.stretch(o)
            if took > left * (1 + ROUNDING / scene.speed(o)) + 1:
                text = f"job {o.job.id} would take up to {took:.0f} s at a slowdown of {s:.3f} on {gpu.id}"
                yield _at(gpu, "wall time", f"{text}, its time limit leaves {left:.0f} s", o)


def _time_left(scene: Scene, o: Occupant) -> float | None:
    if o.job.time_limit_s is None:
        return None
    if not o.job.running or o.job.started_s is None:
        return o.job.time_limit_s
    return o.job.time_limit_s - max(0.0, scene.snapshot.now_s - o.job.started_s)


def gate(scene: Scene) -> Iterator[Finding]:
    """Sharing makes more progress than the largest tenant alone would, and than without any one newcomer."""
    coarse = len(scene.tenants) > scene.policy.interference_types
    for gpu, node, there in scene.shared_gpus if scene.policy.sharing_gate else ():
        together = _progress(scene, gpu, there)
        if together is None:
            continue  # a tenant that must not share is a finding already
        largest = max(o.size for o in there)
        if together <= largest * (1 - ROUNDING):
            text = f"{_names(there)} on {gpu.id} would progress by {together:.3f} GPUs together"
            yield _at(gpu, "gate", f"{text}, the largest alone by {largest:g}")
        elif len(there) > 2 and not coarse:
            yield from _better_without(scene, gpu, node, there, together)


def _better_without(
    scene: Scene, gpu: Gpu, node: Node, there: list[Occupant], together: float
) -> Iterator[Finding]:
    for out in there:
        rest = _progress(scene, gpu, [o for o in there if o is not out]) if out.newcomer else None
        if rest is not None and rest > together * (1 + TYPE_ROUNDING):
            text = f"{_names(there)} on {gpu.id} would progress by {together:.3f} GPUs"
            yield _at(gpu, "gate", f"{text}, without {out.job.id} by {rest:.3f}", out)


def _progress(scene: Scene, gpu: Gpu, there: list[Occupant]) -> float | None:
    predicted = scene.slowdowns(gpu.model, there)
    each = [(o.size, predicted[o.job.id]) for o in there]
    return None if any(s is None for _, s in each) else sum(size / s for size, s in each if s)


def _names(there: list[Occupant], but: Occupant | None = None) -> str:
    return ", ".join(o.job.id for o in there if o is not but)


def _at(gpu: Gpu, rule: str, text: str, o: Occupant | None = None) -> Finding:
    return Finding(rule, text, o.job.id if o else None, gpu.id)
