"""The sentences behind the reasons: what the job needs, what there is, who is in the way. Text only; nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.explain.places import beside, end_s, open_mask
from planner.explain.shape import host_limit, shape_of, split_sentence
from solvers.problem import MILLI

if TYPE_CHECKING:
    from planner.explain.joining import Joining
    from planner.explain.reasons import Case
    from planner.model import Job
    from solvers.problem import Budget, Spot

#: Nodes whose host resources are not counted offer more than this.
UNCOUNTED = 2**40


def job_id(case: Case, job: int) -> str:
    """The id of a job of the Problem."""
    return _job(case, job).id


def _job(case: Case, job: int) -> Job:
    return case.formulated.snapshot.jobs[case.formulated.jobs[job]]


def gpus(n: int) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{n} GPU{'' if n == 1 else 's'}"


def places(case: Case, spot: Spot | list[int], most: int = 4) -> str:
    """GPU ids, the first few of them."""
    names = [case.formulated.gpu_ids[g] for g in spot]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def wants(case: Case, job: int) -> str:
    """``needs 8 GPUs on one node``."""
    shape = shape_of(case.survey.problem, job)
    if shape.per_node:
        return f"needs {gpus(shape.gpus)}, {shape.per_node} on each node"
    if shape.gpus == 1:
        return "needs 1 GPU"
    nodes = "one node" if shape.max_nodes == 1 else f"at most {shape.max_nodes} nodes"
    return f"needs {gpus(shape.gpus)} of one model on {nodes}"


def largest_offer(case: Case, job: int, most: int) -> str:
    """What the empty cluster offers at most."""
    p, view = case.survey.problem, case.survey
    need = _job(case, job)
    if not p.job_gpus.item(job):
        return f"{host_need(need)}; the largest node has {_host_offer(p.node_cpu_milli, p.node_memory_mib, need)}"
    suitable = p.speed_milli[job][p.gpu_kind] > 0
    if not suitable.any():
        return f"no GPU of the cluster can take it: {wants(case, job)}{_gpu_need(case, job)}"
    counts = view.slots.counts(suitable, np.arange(p.gpus))
    if (
        most < counts.max(initial=0)
        and shape_of(p, job).max_nodes == 1
        and counts.max() >= p.job_gpus.item(job)
    ):
        return f"{host_need(need)}; the largest node has {_host_offer(p.node_cpu_milli, p.node_memory_mib, need)}"
    return f"{wants(case, job)}; the largest offer of the whole cluster, empty and healthy, is {most}"


def _gpu_need(case: Case, job: int) -> str:
    memory = int(case.survey.problem.memory_mib[job].max(initial=0))
    models = _job(case, job).gpu_models
    return (f" with {memory} MiB" if memory else "") + (f" of model {', '.join(models)}" if models else "")


def form(case: Case, n: int) -> str:
    """What the backend cannot express."""
    same = case.survey.problem.same_index
    what = "the same GPU indices on every node" if same else "the same number of GPUs on every node"
    return f"the backend {case.formulated.capabilities.name} needs {what}; its {gpus(n)} cannot be divided so"


def unknown(case: Case, job: int) -> str:
    """What is not known about a job that would like to share; empty if it is alone for another reason."""
    need, forecast = _job(case, job), case.formulated.forecast.jobs[case.formulated.jobs[job]]
    if not need.shareable or need.exclusive:
        return ""
    if forecast.gpu_memory_mib is None and need.gpu_share_milli is None:
        return "its GPU memory is not known"
    return "neither its utilisation nor a known profile is stated"


def could_share(n: int, missing: str) -> str:
    """A job that is alone only because something is not known."""
    return f"{missing}, so it needs {gpus(n)} for itself and none free enough is left; known, it could share"


def budget(found: Budget, amount: int, left: int) -> str:
    """``of the quota of queue nlp, 8 GPUs without what ran already, 2 are left; it needs 4``."""
    scale, unit = (MILLI, " GPUs") if found.kind == "quota" else (1, "")
    return (
        f"of the {found.kind} of {found.name}, {found.capacity / scale:g}{unit} without what ran already, "
        f"{max(0, left) / scale:g} are left; it needs {amount / scale:g}"
    )


# ---- reservations ----


def own_reservation(case: Case, job: int) -> str:
    """The reservation that the job holds."""
    kept, from_s = case.held_for[job]
    return f"{places(case, list(kept))} are kept for it from {from_s:g} s on"


def blocking_window(case: Case, job: int) -> int:
    """A GPU that would do and is kept for another."""
    view = case.survey
    kept = view.openings(job).clear & ~open_mask(view, job)
    return int(view.gpus[np.flatnonzero(kept)[0]])


def window(case: Case, job: int, gpu: int) -> str:
    """For whom and until when a GPU is kept, and why this job cannot use it before."""
    view = case.survey
    p, name = view.problem, case.formulated.gpu_ids[gpu]
    holder, until = p.gpu_holder.item(gpu), p.gpu_until_s.item(gpu)
    if view.kept[gpu]:
        return f"it would fit on {name}, but a job there holds GPUs of a reservation and nothing is added beside it"
    whom = f"reserved for {job_id(case, holder)}" if holder >= 0 else "closed"
    head = f"it would fit on {name}, which is {whom} from {until} s on"
    if p.remaining_p90_s.item(job) < 0:
        return f"{head}; how long this job takes is not known"
    end = end_s(view, job, int(np.flatnonzero(view.gpus == gpu)[0]))
    return f"{head}; this job would end after {end} s (p90)"


# ---- shape ----


def scattered(case: Case, job: int) -> str:
    """``needs 8 GPUs of one model on one node; 8 are free, as 4+4``."""
    view = case.survey
    counts = view.slots.counts(view.openings(job).clear, view.gpus)
    best = np.bincount(view.slots.kind, weights=counts).argmax()
    of_kind = counts[view.slots.kind == best]
    return f"{wants(case, job)}; {int(of_kind.sum())} are free, as {split_sentence(of_kind)}"


def hosts_short(case: Case, job: int) -> str:
    """Enough GPUs, but their hosts are short of cores or memory: how many of them, and what those have."""
    view, need = case.survey, _job(case, job)
    p, shape = view.problem, shape_of(view.problem, job)
    counts = view.slots.counts(view.openings(job).clear, view.gpus)
    on_each = shape.per_node or (shape.gpus if shape.max_nodes == 1 else 1)
    nodes = np.unique(view.slots.node[counts >= min(on_each, counts.max())])
    cpu, memory = view.room.node_cpu_free[nodes], view.room.node_memory_free[nodes]
    few_cpus = cpu[host_limit(cpu, p.cpu_milli.item(job), shape.gpus) < on_each]
    little_memory = memory[host_limit(memory, p.host_memory_mib.item(job), shape.gpus) < on_each]
    short = (
        [f"{_are(few_cpus)} short of CPUs (at most {few_cpus.max() / MILLI:g} free)"] if len(few_cpus) else []
    )
    if len(little_memory):
        short.append(f"{_are(little_memory)} short of host memory (at most {little_memory.max()} MiB free)")
    hosts = f"of the {len(nodes)} nodes" if len(nodes) > 1 else "of the one node"
    return f"GPUs are free ({split_sentence(counts)}), but {host_need(need)}; {hosts} {' and '.join(short)}"


def _are(nodes: np.ndarray) -> str:
    return f"{len(nodes)} {'is' if len(nodes) == 1 else 'are'}"


def host_need(job: Job) -> str:
    """``it needs 8 CPUs and 65536 MiB of host memory``."""
    parts = [f"{job.cpus:g} CPUs"] if job.cpus else []
    parts += [f"{job.host_memory_mib} MiB of host memory"] if job.host_memory_mib else []
    return f"it needs {' and '.join(parts) or 'a node'}"


def _host_offer(cpu: np.ndarray, memory: np.ndarray, job: Job) -> str:
    most_cpu, most_memory = int(cpu.max(initial=0)), int(memory.max(initial=0))
    parts = [f"{most_cpu / MILLI:g} CPUs"] if job.cpus and most_cpu < UNCOUNTED else []
    parts += [f"{most_memory} MiB of host memory"] if job.host_memory_mib and most_memory < UNCOUNTED else []
    return " and ".join(parts) or "nothing"


def scattered_share(case: Case, job: int) -> str | None:
    """A declared share that is free in total but on no GPU; None if that is not so."""
    view = case.survey
    p, g = view.problem, view.gpus
    need = p.share[job][view.kind] if p.job_gpus.item(job) else np.zeros(len(g), np.int64)
    usable = view.openings(job).sharing & (need > 0) & (view.room.free_share[g] > 0)
    if not usable.any():
        return None
    free, need = view.room.free_share[g][usable], need[usable]
    if (free / need).sum() < p.job_gpus.item(job) or (free >= need).all():
        return None
    whole = p.gpu_share[g][usable]
    most, total = int((free * MILLI // whole).max()), int((free * MILLI // whole).sum())
    asked = _job(case, job).gpu_share_milli or 0
    return f"needs {asked}/1000 of {gpus(p.job_gpus.item(job))}; {total}/1000 are free in all, at most {most} on one"


def scattered_host(case: Case, job: int) -> str | None:
    """Cores and memory that all open nodes have together, but no node alone; None if that is not so."""
    p, room = case.survey.problem, case.survey.room
    nodes = room.node_open & p.node_sets[p.node_set.item(job)]
    cpu, memory = np.maximum(0, room.node_cpu_free[nodes]), np.maximum(0, room.node_memory_free[nodes])
    need = _job(case, job)
    if cpu.sum() < p.cpu_milli.item(job) or memory.sum() < p.host_memory_mib.item(job):
        return None
    if p.node_alone.item(job):
        return None
    return f"{host_need(need)} on one node; the freest nodes have {_host_offer(cpu, memory, need)}, spread over {len(cpu)} nodes"


def host_in_use(case: Case, job: int) -> str:
    """No node has the cores and memory."""
    p, room = case.survey.problem, case.survey.room
    nodes = room.node_open & p.node_sets[p.node_set.item(job)]
    offer = _host_offer(room.node_cpu_free[nodes], room.node_memory_free[nodes], _job(case, job))
    return f"{host_need(_job(case, job))} on one node; at most {offer} are free"


# ---- neighbours ----


def neighbours(case: Case, job: int) -> str:
    """The least disturbing place that has room, and the rule that it breaks."""
    view = case.survey
    openings = view.openings(job)
    blocked = np.flatnonzero(openings.room & ~openings.clear)
    best = int(blocked[np.argmin(beside(view, job, blocked))])
    gpu = int(view.gpus[best])
    return f"there is room on {case.formulated.gpu_ids[gpu]}, but {_breach(case, job, best, gpu)}"


def _breach(case: Case, job: int, position: int, gpu: int) -> str:
    view = case.survey
    verdict = view.neighbours.verdict(job, position)
    there = " and ".join(job_id(case, j) for j in view.room.tenants[gpu])
    value, limit = f"{verdict.value / MILLI:.4g}", f"{verdict.limit / MILLI:.4g}"
    if verdict.breach == "forbidden":
        return f"it must not share a GPU with {there}"
    if verdict.breach == "own cap":
        return f"beside {there} it would take {value} times as long, allowed is {_cap(case, job, limit)}"
    if verdict.breach == "their cap":
        victim = verdict.victim
        return f"{job_id(case, victim)} there would take {value} times as long, allowed is {_cap(case, victim, limit)}"
    if verdict.breach == "gate":
        return f"with {there} it would progress by {value} GPUs' worth in all, which does not beat {limit} with one fewer"
    return f"it may never share a GPU with one of {there}"


def _cap(case: Case, job: int, limit: str) -> str:
    """A cap, and where it comes from if it is tighter than the stated ones."""
    stated = [c for c in (case.formulated.policy.max_slowdown, _job(case, job).max_slowdown) if c is not None]
    by_time = float(limit) < min(stated, default=float("inf")) - 0.001
    return f"{limit} (it would pass its time limit)" if by_time else limit


# ---- in use, or not chosen ----


def in_use(case: Case, job: int) -> str:
    """How many GPUs would suit, and what keeps it off each."""
    view = case.survey
    p, room = view.problem, view.room
    suits = (p.speed_milli[job][p.gpu_kind] > 0) & p.node_sets[p.node_set.item(job)][p.gpu_node]
    own = p.gpu_closed.astype(bool) | p.node_closed.astype(bool)[p.gpu_node]
    closed, used = suits & own, suits & ~own & (room.count > 0)
    free = int((suits & ~own & (room.count == 0)).sum())
    parts = [f"of {int(suits.sum())} suitable GPUs {int(used.sum())} are in use and have no room for it"]
    parts += [f"{int(closed.sum())} are closed"] if closed.any() else []
    strange = (
        int((suits & ~own & (room.count == 0) & (p.gpu_shared_outside != 0)).sum())
        if p.alone.item(job)
        else 0
    )
    parts += [f"{strange} hold memory of processes that nobody manages"] if strange else []
    parts += [f"{free - strange} are free"] if free > strange else []
    return f"{wants(case, job)}; {', '.join(parts)}"


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
