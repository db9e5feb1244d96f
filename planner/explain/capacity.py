"""The sentences about room: GPUs that lie apart, hosts that are short, who has the rest. Text only; nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.explain.displaced import gpu_s
from planner.explain.sentences import are, gpus, host_need, host_offer, places, wants
from planner.explain.shape import Shape, host_limit, shape_of, split_sentence
from planner.explain.unknowns import listed, refusers
from solvers.problem import MILLI

if TYPE_CHECKING:
    from planner.explain.displaced import Displaced
    from planner.explain.joining import Joining
    from planner.explain.reasons import Case
    from solvers.problem import Spot


# ---- shape ----


def scattered(case: Case, job: int) -> str:
    """``needs 8 GPUs of one model on one node; 8 are free, as 4+4``."""
    view = case.survey
    counts = view.slots.counts(view.openings(job).clear, view.gpus)
    best = np.bincount(view.slots.kind, weights=counts).argmax()
    of_kind = counts[view.slots.kind == best]
    return f"{wants(case, job)}; {are(int(of_kind.sum()))} free, as {split_sentence(of_kind)}"


def hosts_in_all(case: Case, job: int) -> str:
    """What the hosts of the GPUs it could have are short of, all together; empty if they have enough."""
    need = case.job(job)
    counts, nodes = _hosts_with_gpus(case, job)
    p, room = case.survey.problem, case.survey.room
    over = (room.node_cpu_free[nodes] < 0) | (room.node_memory_free[nodes] < 0)
    if over.all():
        hosts = "on that node" if len(nodes) == 1 else "on each of their nodes"
        return f"{_would_do(counts)}, but what runs {hosts} already has more cores or memory than there are, so nothing is added"
    nodes = nodes[~over]
    have = (
        (int(np.maximum(0, room.node_cpu_free[nodes]).sum()), p.cpu_milli.item(job)),
        (int(np.maximum(0, room.node_memory_free[nodes]).sum()), p.host_memory_mib.item(job)),
    )
    short = [have[0][0] < have[0][1], have[1][0] < have[1][1]]
    if not any(short):
        return ""
    left = [f"{have[0][0] / MILLI:g} CPUs"] * short[0] + [f"{have[1][0]} MiB of host memory"] * short[1]
    hosts = "that node has" if len(nodes) == 1 else f"the {len(nodes)} nodes with those GPUs together have"
    return f"{_would_do(counts)}, but {host_need(need)} and {hosts} {' and '.join(left)} left"


def scattered_hosts(case: Case, job: int) -> str:
    """The hosts of the GPUs it could have have enough cores and memory together, but not where the GPUs lie."""
    p, room = case.survey.problem, case.survey.room
    counts, nodes = _hosts_with_gpus(case, job)
    cpu, memory = np.maximum(0, room.node_cpu_free[nodes]), np.maximum(0, room.node_memory_free[nodes])
    shape, best = shape_of(p, job), []
    if _too_few(cpu, p.cpu_milli.item(job), counts, shape):
        best.append(f"{cpu.max() / MILLI:g} of the {cpu.sum() / MILLI:g} free CPUs")
    if _too_few(memory, p.host_memory_mib.item(job), counts, shape):
        best.append(f"{memory.max()} of the {memory.sum()} MiB of free host memory")
    text = f"{_would_do(counts)}, but {host_need(case.job(job))}"
    if best:
        return f"{text}; of these nodes the best has {' and '.join(best)}"
    offers = [
        host_offer(cpu[v : v + 1], memory[v : v + 1], case.job(job)) for v in (cpu.argmax(), memory.argmax())
    ]
    return f"{text}; the node with most CPUs has {offers[0]}, the one with most memory {offers[1]}"


def _too_few(free: np.ndarray, demand: int, counts: np.ndarray, shape: Shape) -> bool:
    """With this resource alone no allowed number of these nodes could take the job."""
    on_each = np.sort(np.minimum(counts, host_limit(free, demand, shape.gpus)))[::-1]
    return int(on_each[: shape.max_nodes].sum()) < shape.gpus


def _hosts_with_gpus(case: Case, job: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the model that has most GPUs open to the job: how many there are on each node, and which nodes."""
    view = case.survey
    counts = view.slots.counts(view.openings(job).clear, view.gpus)
    best = np.bincount(view.slots.kind, weights=counts).argmax()
    at = np.flatnonzero((view.slots.kind == best) & (counts > 0))
    return counts[at], view.slots.node[at]


def _would_do(counts: np.ndarray) -> str:
    total = int(counts.sum())
    spread = f", as {split_sentence(counts)}," if 1 < len(counts) < total else ""
    return f"{gpus(total)}{spread} would do"


def scattered_share(case: Case, job: int) -> str | None:
    """A declared share that is free in total but on no GPU; None if that is not so."""
    view = case.survey
    p, g = view.problem, view.gpus
    need = p.share[job][view.kind] if p.job_gpus.item(job) else np.zeros(len(g), np.int64)
    usable = view.consenting(job) & (need > 0) & (view.room.free_share[g] > 0)
    if not usable.any():
        return None
    free, need = view.room.free_share[g][usable], need[usable]
    if (free / need).sum() < p.job_gpus.item(job) or (free >= need).all():
        return None
    whole = p.gpu_share[g][usable]
    most, total = int((free * MILLI // whole).max()), int((free * MILLI // whole).sum())
    asked = case.job(job).gpu_share_milli or 0
    return f"needs {asked}/1000 of {gpus(p.job_gpus.item(job))}; {total}/1000 are free in all, at most {most} on one"


def scattered_host(case: Case, job: int) -> str | None:
    """Cores and memory that all open nodes have together, but no node alone; None if that is not so."""
    p, room = case.survey.problem, case.survey.room
    nodes = room.node_open & p.node_sets[p.node_set.item(job)]
    cpu, memory = np.maximum(0, room.node_cpu_free[nodes]), np.maximum(0, room.node_memory_free[nodes])
    need = case.job(job)
    if cpu.sum() < p.cpu_milli.item(job) or memory.sum() < p.host_memory_mib.item(job):
        return None
    if p.node_alone.item(job):
        return None
    return f"{host_need(need)} on one node; the freest nodes have {host_offer(cpu, memory, need)}, spread over {len(cpu)} nodes"


def host_in_use(case: Case, job: int) -> str:
    """No node has the cores and memory."""
    p, room = case.survey.problem, case.survey.room
    nodes = room.node_open & p.node_sets[p.node_set.item(job)]
    offer = host_offer(room.node_cpu_free[nodes], room.node_memory_free[nodes], case.job(job))
    return f"{host_need(case.job(job))} on one node; at most {offer} are free"


# ---- in use, or not chosen ----


def in_use(case: Case, job: int) -> str:
    """How many GPUs would suit, who has them, and what else keeps it off."""
    view = case.survey
    p, room = view.problem, view.room
    suits = (p.speed_milli[job][p.gpu_kind] > 0) & p.node_sets[p.node_set.item(job)][p.gpu_node]
    own = p.gpu_closed.astype(bool) | p.node_closed.astype(bool)[p.gpu_node]
    used, empty = suits & ~own & (room.count > 0), suits & ~own & (room.count == 0)
    starts = case.base.starts
    strange = empty & (p.gpu_shared_outside != 0)
    if not p.alone.item(job):  # beside strangers it may run, where they leave it the memory
        strange &= p.memory_mib[job][p.gpu_kind] > room.free_mib
    said: tuple[tuple[np.ndarray, str, str], ...] = (
        (used & ~starts, "in use by running jobs", "in use by running jobs"),
        (used & starts, "given to another job in this plan", "given to other jobs in this plan"),
        (suits & own, "closed", "closed"),
        (strange, "in use by processes that nobody manages", "in use by processes that nobody manages"),
        (empty & ~strange, "free", "free"),
    )
    many = [f"{are(n)} {one if n == 1 else more}" for mask, one, more in said if (n := int(mask.sum()))]
    total = int(suits.sum())
    if total == 1:
        text = f"the only suitable GPU {many[0].removeprefix('1 ')}"
    else:
        text = f"of {total} suitable GPUs {listed(many, most=len(many))}"
    why = refusers(case, job) if used.any() else ""
    return f"{wants(case, job)}; {text}" + (f"; {why}" if why else _memory_left(case, job, used))


def _memory_left(case: Case, job: int, used: np.ndarray) -> str:
    """The most GPU memory left on one GPU in use, if that is too little."""
    p, room = case.survey.problem, case.survey.room
    need = p.memory_mib[job][p.gpu_kind]
    at = np.flatnonzero(used & room.open & ~room.guarded)
    if not len(at) or (need[at] <= room.free_mib[at]).any():
        return ""
    best = at[np.argmax(room.free_mib[at])]
    left = max(0, int(room.free_mib[best]))
    return f"; it needs {need[best]} MiB of GPU memory, the most left on one of them is {left} MiB"


def given_away(case: Case, job: int, found: Displaced | None, short: str) -> str:
    """It would fit beside the running jobs, and these starts of the plan, which gain more, are in the way."""
    with_gpus = case.survey.problem.job_gpus.item(job)
    need = short or (wants(case, job) if with_gpus else host_need(case.job(job)))
    if found is None or not found.jobs:
        return (
            f"{need}; beside the running jobs alone it would fit, but the other starts of this plan gain more"
        )
    where = places(case, found.spot) if with_gpus else case.formulated.node_names[found.spot[0]]
    whom = listed([case.name(j) for j in found.jobs])
    gains = "which gains" if len(found.jobs) == 1 else "which together gain"
    theirs, mine = gpu_s(found.theirs), gpu_s(case.base.gain(job, found))
    head = f"{need}; beside the running jobs alone it would fit on {where}, but this plan starts {whom} there, {gains}"
    if found.theirs >= case.base.gain(job, found):
        return f"{head} {theirs} by that; this job would gain {mine}"
    return f"{head} {theirs}; this job would gain {mine}, but the makespan, neighbours or the end of the search decided"


def fits_now(case: Case, job: int, spot: Spot | None) -> str:
    """What starting at the place would cost against waiting."""
    p = case.survey.problem
    wait = p.wait_cost.item(job) / MILLI
    if spot is None:
        return f"waiting costs {wait:.0f} GPU-s"
    where = places(case, spot) if p.job_gpus.item(job) else case.formulated.node_names[spot[0]]
    joining = case.ledger.joining(job, spot)
    text = f"it would fit on {where}; starting there would cost {joining.total / MILLI:.0f} GPU-s{_split(joining)}, waiting costs {wait:.0f}"
    return (
        text if joining.total >= p.wait_cost.item(job) else f"{text}; the search ended before it was placed"
    )


def _split(joining: Joining) -> str:
    parts = [
        f"{amount / MILLI:.0f} {what}"
        for amount, what in (
            (joining.own, "its own loss"),
            (joining.theirs, "its neighbours'"),
            (joining.rest, "makespan and fragmentation"),
        )
        if amount
    ]
    return f" ({', '.join(parts)})" if len(parts) > 1 else ""
