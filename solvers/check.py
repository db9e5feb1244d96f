"""The referee: which rules a placement breaks, and what it costs.

Both are written straight from the docstring of ``solvers.problem`` in plain Python integers and share
no code with the engines, so that an engine's mistake cannot hide here as well. One function a rule, in
the words of the program; whatever an engine claims is measured again with :func:`objective`.

A moved job is a newcomer everywhere it goes, also on GPUs and nodes that it keeps: it starts again there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from solvers.measure import State, arrange, ceil_div, ends, objective, slowdowns, slowdowns_on
from solvers.problem import MILLI, PPM, Placed, Problem

__all__ = ["Violation", "ends", "objective", "slowdowns", "violations"]


@dataclass(frozen=True)
class Violation:
    """One broken rule; ``job``, ``gpu`` and ``node`` are None where none is meant."""

    rule: str
    job: int | None
    gpu: int | None
    node: int | None
    text: str


def violations(problem: Problem, placed: Placed) -> tuple[Violation, ...]:
    """Every broken rule; a malformed placement is reported as such and judged no further."""
    malformed = tuple(_form(problem, placed))
    if malformed:
        return malformed
    state = arrange(problem, placed)
    return tuple(violation for rule in _RULES for violation in rule(state))


def _form(problem: Problem, placed: Placed) -> Iterator[Violation]:
    """A placement is one None or one ascending tuple of indices for each job."""
    if not isinstance(placed, tuple) or len(placed) != problem.jobs:
        yield Violation(
            "placement", None, None, None, f"not a tuple with one entry for each of {problem.jobs} jobs"
        )
        return
    for j, spot in enumerate(placed):
        if spot is None:
            continue
        limit = problem.gpus if problem.job_gpus.item(j) else problem.nodes
        if not isinstance(spot, tuple) or not spot or any(type(i) is not int for i in spot):
            yield Violation("placement", j, None, None, f"job {j}: {spot!r} is not a tuple of indices")
        elif not all(0 <= i < limit for i in spot):
            yield Violation("placement", j, None, None, f"job {j}: {spot} passes 0 to {limit - 1}")
        elif any(a >= b for a, b in pairwise(spot)):
            yield Violation("gang", j, None, None, f"job {j}: {spot} is not ascending without repetition")


# ---- rules for a job; a job that stays is left alone ----


def _gang(state: State) -> Iterator[Violation]:
    """It gets all its n GPUs, distinct, or none. A job with n = 0 gets one node."""
    for j, spot in state.entering():
        n = state.problem.job_gpus.item(j)
        if len(spot) != max(n, 1):
            text = (
                f"job {j} wants {n} GPUs and gets {len(spot)}"
                if n
                else f"job {j} gets {len(spot)} nodes, not 1"
            )
            yield Violation("gang", j, None, None, text)


def _kind(state: State) -> Iterator[Violation]:
    """All its GPUs are of one kind, on which its speed is above zero."""
    for j, spot in state.entering():
        if state.problem.job_gpus.item(j) == 0:
            continue
        kinds = sorted({state.problem.gpu_kind.item(g) for g in spot})
        if len(kinds) > 1:
            yield Violation("kind", j, None, None, f"job {j} is on GPUs of kinds {kinds}")
        elif state.problem.speed_milli.item(j, kinds[0]) <= 0:
            yield Violation("kind", j, spot[0], None, f"job {j} cannot run on GPUs of kind {kinds[0]}")


def _nodes(state: State) -> Iterator[Violation]:
    """At most max_nodes nodes of its node set, with the asked number and index of GPUs on each."""
    problem = state.problem
    for j, spot in state.entering():
        indices: dict[int, list[int]] = {}
        if problem.job_gpus.item(j) == 0:
            indices = {v: [] for v in spot}
        for g in () if problem.job_gpus.item(j) == 0 else spot:
            indices.setdefault(problem.gpu_node.item(g), []).append(problem.gpu_index.item(g))
        for v in indices:
            if not problem.node_sets.item(problem.node_set.item(j), v):
                yield Violation("nodes", j, None, v, f"node {v} is not in the node set of job {j}")
        if len(indices) > problem.max_nodes.item(j):
            text = f"job {j} is on {len(indices)} nodes, at most {problem.max_nodes.item(j)} are allowed"
            yield Violation("nodes", j, None, None, text)
        if problem.job_gpus.item(j):
            yield from _per_node(problem, j, indices)


def _per_node(problem: Problem, j: int, indices: dict[int, list[int]]) -> Iterator[Violation]:
    """Exactly gpus_per_node on each node, the same number on each, the same gpu_index set on each."""
    counts = {v: len(there) for v, there in indices.items()}
    wanted = problem.gpus_per_node.item(j)
    if wanted > 0 and any(count != wanted for count in counts.values()):
        yield Violation("nodes", j, None, None, f"job {j} wants {wanted} GPUs on each node and gets {counts}")
    if problem.equal_per_node and len(set(counts.values())) > 1:
        yield Violation("nodes", j, None, None, f"job {j} gets unequal numbers of GPUs: {counts}")
    if problem.same_index and len({tuple(sorted(there)) for there in indices.values()}) > 1:
        yield Violation("nodes", j, None, None, f"job {j} gets unequal GPU indices: {indices}")


def _running(state: State) -> Iterator[Violation]:
    """A running job stays unless movable, is not None unless preemptible; at most max_moves change."""
    problem, changed = state.problem, 0
    for j, home in enumerate(problem.home):
        spot = state.placed[j]
        if home is None or spot == home:
            continue
        changed += 1
        if spot is None and not problem.preemptible.item(j):
            yield Violation("running", j, None, None, f"job {j} runs and may not be preempted")
        elif spot is not None and not problem.movable.item(j):
            yield Violation("running", j, None, None, f"job {j} runs and may not be moved")
    if changed > problem.max_moves:
        text = f"{changed} running jobs are moved or preempted, at most {problem.max_moves} may be"
        yield Violation("running", None, None, None, text)


# ---- rules for a GPU with tenants S; they bind only if S holds a newcomer ----


def _closed(state: State) -> Iterator[Violation]:
    """No newcomer on a closed GPU."""
    for g, _ in state.entered_gpus():
        if state.problem.gpu_closed.item(g):
            yield Violation("closed", None, g, None, f"GPU {g} is closed to newcomers")


def _tenants(state: State) -> Iterator[Violation]:
    """The number of tenants is at most gpu_max_tenants."""
    for g, jobs in state.entered_gpus():
        limit = state.problem.gpu_max_tenants.item(g)
        if len(jobs) > limit:
            yield Violation(
                "tenants", None, g, None, f"GPU {g} has {len(jobs)} tenants, at most {limit} may share it"
            )


def _alone(state: State) -> Iterator[Violation]:
    """A job that is to be alone has no co-tenant and does not enter where outsiders hold memory."""
    for g, jobs in state.entered_gpus():
        for j in jobs:
            if not state.problem.alone.item(j):
                continue
            if len(jobs) > 1:
                yield Violation("alone", j, g, None, f"job {j} is to be alone and shares GPU {g}")
            if j in state.newcomers and state.problem.gpu_shared_outside.item(g):
                yield Violation("alone", j, g, None, f"job {j} is to be alone and GPU {g} is shared outside")


def _memory(state: State) -> Iterator[Violation]:
    """The memory of the tenants is at most the GPU's, less the margin if there are two or more."""
    problem = state.problem
    for g, jobs in state.entered_gpus():
        used = sum(problem.memory_mib.item(j, problem.gpu_kind.item(g)) for j in jobs)
        room = problem.gpu_memory_mib.item(g) - (problem.gpu_margin_mib.item(g) if len(jobs) > 1 else 0)
        if used > room:
            yield Violation("memory", None, g, None, f"tenants need {used} MiB, GPU {g} offers {room} MiB")


def _share(state: State) -> Iterator[Violation]:
    """The shares of the tenants are at most the GPU's."""
    problem = state.problem
    for g, jobs in state.entered_gpus():
        used, room = (
            sum(problem.share.item(j, problem.gpu_kind.item(g)) for j in jobs),
            problem.gpu_share.item(g),
        )
        if used > room:
            yield Violation("share", None, g, None, f"tenants take a share of {used}, GPU {g} offers {room}")


def _consent(state: State) -> Iterator[Violation]:
    """All tenants have the same share group, if there are two or more."""
    for g, jobs in state.entered_gpus():
        groups = sorted({state.problem.share_group.item(j) for j in jobs})
        if len(groups) > 1:
            yield Violation("consent", None, g, None, f"tenants of GPU {g} are of share groups {groups}")


def _never(state: State) -> Iterator[Violation]:
    """No pair of never is among the tenants."""
    for a, b in state.problem.never:
        for g in sorted(set(state.placed[a] or ()) & set(state.placed[b] or ())):
            jobs = state.tenants.get(g, [])
            if a in jobs and b in jobs and not state.newcomers.isdisjoint(jobs):
                yield Violation("never", a, g, None, f"jobs {a} and {b} must never share and are on GPU {g}")


def _slowdown(state: State) -> Iterator[Violation]:
    """The slowdown of each tenant is at most its cap."""
    problem = state.problem
    for g, _ in state.entered_gpus():
        for j, s in state.slowdown[g].items():
            cap = problem.cap_milli.item(j, problem.gpu_kind.item(g))
            if s > cap:
                yield Violation(
                    "slowdown", j, g, None, f"job {j} slows down to {s} on GPU {g}, its cap is {cap}"
                )


def _gate(state: State) -> Iterator[Violation]:
    """Sharing makes more progress than the largest tenant, and than without any one newcomer."""
    problem = state.problem
    for g, jobs in state.entered_gpus() if problem.gate else ():
        if len(jobs) < 2:
            continue
        progress = _progress(problem, state.slowdown[g])
        if progress <= PPM * max(problem.size_milli.item(j) for j in jobs):
            yield Violation(
                "gate", None, g, None, f"tenants of GPU {g} progress less than the largest of them alone"
            )
        without: dict[tuple[int, int], int] = {}  # by type and size: jobs alike in both leave the same behind
        for i in sorted(state.newcomers.intersection(jobs)):
            alike = problem.job_type.item(i), problem.size_milli.item(i)
            if alike not in without:
                rest = slowdowns_on(problem, problem.gpu_kind.item(g), [j for j in jobs if j != i])
                without[alike] = _progress(problem, rest)
            if progress < without[alike]:
                yield Violation("gate", i, g, None, f"GPU {g} would progress more without job {i}")


def _progress(problem: Problem, slowdown: dict[int, int]) -> int:
    """The sum of size * 1 / s over the tenants."""
    return sum(problem.size_milli.item(j) * (10**9 // s) for j, s in slowdown.items())


def _window(state: State) -> Iterator[Violation]:
    """A newcomer on a reserved GPU that it does not hold ends before the reservation."""
    problem = state.problem
    for j, spot in state.entering():
        effect, remaining = state.effects[j], problem.remaining_p90_s.item(j)
        if effect is None or effect.speed <= 0 or problem.job_gpus.item(j) == 0:
            continue
        end = ceil_div(remaining * effect.slowdown * effect.link_factor, MILLI * effect.speed)
        for g in spot:
            until = problem.gpu_until_s.item(g)
            if until >= 0 and problem.gpu_holder.item(g) != j and not (remaining >= 0 and end <= until):
                when = f"after {end} s" if remaining >= 0 else "nobody knows when"
                yield Violation(
                    "window", j, g, None, f"job {j} ends {when}, GPU {g} is reserved from {until} s"
                )


# ---- rules for a node; they bind only if a newcomer uses it ----


def _host(state: State) -> Iterator[Violation]:
    """The cores and memory of its jobs, by GPUs and rounded up, are at most the node's."""
    problem = state.problem
    rows = (
        ("milli-CPUs", problem.cpu_milli, problem.node_cpu_milli),
        ("MiB of host memory", problem.host_memory_mib, problem.node_memory_mib),
    )
    for v, jobs in state.entered_nodes():
        for unit, demand, offer in rows:
            used = sum(_split(demand.item(j), count, problem.job_gpus.item(j)) for j, count in jobs.items())
            if used > offer.item(v):
                yield Violation(
                    "host", None, None, v, f"jobs need {used} {unit}, node {v} offers {offer.item(v)}"
                )


def _split(demand: int, count: int, n: int) -> int:
    """The part of a job's demand that falls on a node with ``count`` of its n GPUs."""
    return ceil_div(demand * count, n) if n else demand


def _closed_node(state: State) -> Iterator[Violation]:
    """No newcomer on a closed node."""
    for v, _ in state.entered_nodes():
        if state.problem.node_closed.item(v):
            yield Violation("closed node", None, None, v, f"node {v} is closed to newcomers")


def _whole_node(state: State) -> Iterator[Violation]:
    """A job that wants whole nodes shares no node with any other job."""
    for v, jobs in state.entered_nodes():
        for j in jobs:
            if len(jobs) > 1 and state.problem.node_alone.item(j):
                yield Violation("whole node", j, None, v, f"job {j} wants node {v} for itself")


# ---- rules for the whole ----


def _budget(state: State) -> Iterator[Violation]:
    """The amounts of the queued jobs placed are at most the capacity."""
    problem = state.problem
    for budget in problem.budgets:
        used = sum(
            amount
            for j, amount in zip(budget.jobs, budget.amounts, strict=True)
            if problem.home[j] is None and state.placed[j] is not None
        )
        if used > budget.capacity:
            text = f"{budget.kind} {budget.name}: {used} used of {budget.capacity}"
            yield Violation("budget", None, None, None, text)


# fmt: off
_RULES = (
    _gang, _kind, _nodes, _running,
    _closed, _tenants, _alone, _memory, _share, _consent, _never, _slowdown, _gate, _window,
    _host, _closed_node, _whole_node,
    _budget,
)
# fmt: on
