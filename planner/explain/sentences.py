"""The sentences behind the reasons: what the job needs, what there is, who is in the way. Text only; nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.explain.places import beside, end_s, open_mask
from planner.explain.shape import shape_of
from planner.explain.unknowns import listed
from solvers.problem import MILLI

if TYPE_CHECKING:
    from planner.explain.reasons import Case
    from planner.model import Job
    from solvers.problem import Budget, Spot

#: Nodes whose host resources are not counted offer more than this.
UNCOUNTED = 2**40


def gpus(n: float) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{n:g} GPU{'' if n == 1 else 's'}"


def are(n: int) -> str:
    """``1 is``, ``2 are``, ``none is``."""
    return f"{n or 'none'} {'is' if n < 2 else 'are'}"


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
    need = case.job(job)
    if not p.job_gpus.item(job):
        return (
            f"{host_need(need)}; the largest node has {host_offer(p.node_cpu_milli, p.node_memory_mib, need)}"
        )
    suitable = p.speed_milli[job][p.gpu_kind] > 0
    if not suitable.any():
        return f"no GPU of the cluster can take it: {wants(case, job)}{_gpu_need(case, job)}"
    counts = view.slots.counts(suitable, np.arange(p.gpus))
    if (
        most < counts.max(initial=0)
        and shape_of(p, job).max_nodes == 1
        and counts.max() >= p.job_gpus.item(job)
    ):
        return (
            f"{host_need(need)}; the largest node has {host_offer(p.node_cpu_milli, p.node_memory_mib, need)}"
        )
    return f"{wants(case, job)}; the largest offer of the whole cluster, empty and healthy, is {most}"


def host_need(job: Job) -> str:
    """``it needs 8 CPUs and 65536 MiB of host memory``."""
    parts = [f"{job.cpus:g} CPUs"] if job.cpus else []
    parts += [f"{job.host_memory_mib} MiB of host memory"] if job.host_memory_mib else []
    return f"it needs {' and '.join(parts) or 'a node'}"


def host_offer(cpu: np.ndarray, memory: np.ndarray, job: Job) -> str:
    """The most cores and memory that one node has, of those the job asks for."""
    most_cpu, most_memory = int(cpu.max(initial=0)), int(memory.max(initial=0))
    parts = [f"{most_cpu / MILLI:g} CPUs"] if job.cpus and most_cpu < UNCOUNTED else []
    parts += [f"{most_memory} MiB of host memory"] if job.host_memory_mib and most_memory < UNCOUNTED else []
    return " and ".join(parts) or "nothing"


def _gpu_need(case: Case, job: int) -> str:
    memory = int(case.survey.problem.memory_mib[job].max(initial=0))
    models = case.job(job).gpu_models
    return (f" with {memory} MiB" if memory else "") + (f" of model {', '.join(models)}" if models else "")


def form(case: Case, n: int) -> str:
    """What the backend cannot express."""
    same = case.survey.problem.same_index
    what = "the same GPU indices on every node" if same else "the same number of GPUs on every node"
    return f"the backend {case.formulated.capabilities.name} needs {what}; its {gpus(n)} cannot be divided so"


def budget(case: Case, found: Budget, amount: int, left: int) -> str:
    """``the quota of queue nlp is 8 GPUs: running jobs hold 4, this plan gives others 2, and 2 are left; it needs 4``."""
    scale = MILLI if found.kind == "quota" else 1
    total = _allowed(case, found)
    head = {
        "quota": f"the quota of {found.name} is {gpus(total / scale)}",
        "licence": f"the cluster has {total} of the licence {found.name}",
        "throttle": f"at most {total} of the group {found.name} may run at once",
    }[found.kind]
    if amount > total and found.kind == "quota":
        return f"never under the quota of {found.name} (needs {amount / scale:g}, quota {total / scale:g})"
    held, given = total - found.capacity, found.capacity - left
    parts = [f"running jobs hold {held / scale:g}"] if held > 0 else []
    parts += [f"this plan gives {given / scale:g} to others"] if given > 0 else []
    free = max(0, left) / scale
    parts += [f"{'none' if not free else f'{free:g}'} {'is' if free <= 1 else 'are'} left"]
    return f"{head}: {', '.join(parts)}; it needs {amount / scale:g}"


def _allowed(case: Case, found: Budget) -> int:
    """What a budget allows in all, running jobs included, in its own units."""
    f = case.formulated
    if found.kind == "quota":
        return min(int(q.gpus * MILLI) for q in f.policy.quotas if " ".join(q.owner) == found.name)
    if found.kind == "licence":
        return f.snapshot.cluster.licences[found.name]
    return min(
        j.throttle.max_running for j in f.snapshot.jobs if j.throttle and j.throttle.group == found.name
    )


# ---- reservations ----


def own_reservation(case: Case, job: int) -> str:
    """The reservation that the job holds."""
    kept, from_s = case.held_for[job]
    verb = "is" if len(kept) == 1 else "are"
    return f"{places(case, list(kept))} {verb} kept for it from {from_s:.0f} s on, when the jobs there are to end (p90)"


def blocking_window(case: Case, job: int) -> int:
    """A GPU that would do and is kept for another."""
    view = case.survey
    kept = view.openings(job).clear & ~open_mask(view, job)
    return int(view.gpus[np.flatnonzero(kept)[0]])


def joinable(case: Case, gpu: int) -> bool:
    """Whether anybody could still come to a GPU that is kept: no job there holds a reservation."""
    view = case.survey
    return not (view.kept[gpu] or (gpu in case.in_use and view.problem.gpu_until_s[gpu] == 0))


def window(case: Case, job: int, gpu: int) -> str:
    """For whom and until when a GPU is kept, and why this job cannot use it before."""
    view = case.survey
    p, name = view.problem, case.formulated.gpu_ids[gpu]
    holder, until = p.gpu_holder.item(gpu), p.gpu_until_s.item(gpu)
    if not joinable(case, gpu):
        return f"it would fit on {name}, but a job there holds GPUs of a reservation and nothing is added beside it"
    whom = f"reserved for {case.name(holder)}" if holder >= 0 else "closed"
    by = " (p90 of the jobs there)" if holder >= 0 and until > 0 else ""
    head = f"it would fit on {name}, which is {whom} from {until} s on{by}"
    if p.remaining_p90_s.item(job) < 0:
        return f"{head}; how long this job takes is not known"
    end = end_s(view, job, int(np.flatnonzero(view.gpus == gpu)[0]))
    return f"{head}; this job would end after {end} s (p90)"


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
    there = listed([case.name(j) for j in view.room.tenants[gpu]])
    value, limit = f"{verdict.value / MILLI:.4g}", f"{verdict.limit / MILLI:.4g}"
    if verdict.breach == "forbidden":
        return f"it must not share a GPU with {there}"
    if verdict.breach == "own cap":
        return f"beside {there} it would take {value} times as long, allowed is {_cap(case, job, limit)}"
    if verdict.breach == "their cap":
        victim = verdict.victim
        return f"{case.name(victim)} there would take {value} times as long, allowed is {_cap(case, victim, limit)}"
    if verdict.breach == "too little":
        return (
            f"sharing with {there} would get less done: together as much as {value} GPUs, "
            f"the largest job alone as much as {gpus(float(limit))}"
        )
    if verdict.breach == "gate":
        return (
            f"sharing with {there} would get less done: all of them as much as {value} GPUs, "
            f"without one of them as much as {limit}"
        )
    return f"it may never share a GPU with one of {there}"


def _cap(case: Case, job: int, limit: str) -> str:
    """A cap, and where it comes from if it is tighter than the stated ones."""
    stated = [c for c in (case.formulated.policy.max_slowdown, case.job(job).max_slowdown) if c is not None]
    by_time = float(limit) < min(stated, default=float("inf")) - 0.001
    return f"{limit} (it would pass its time limit)" if by_time else limit
