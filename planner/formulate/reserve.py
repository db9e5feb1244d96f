"""Which waiting jobs GPUs are kept for, which GPUs, and from when on.

First the jobs that waited longer than ``max_wait_s``, oldest first; then those that held a reservation in the last
epoch, so that what was freed for them is not given away; then the blocked gang that costs most. Each
gets the GPUs that are free earliest by the running jobs' p90 ends. Other jobs may still use those GPUs if they are
sure to end before (backfill); beside a running job that holds one of them nothing is added, because that would
delay its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.formulate.jobs import JobView, fits_on, host_room
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE

if TYPE_CHECKING:
    from planner.policy import Policy
    from solvers.problem import Problem

Reservation = tuple[int, tuple[int, ...], float]


def with_reservations(
    problem: Problem, views: list[JobView], queued_s: np.ndarray, policy: Policy, carried: frozenset[str]
) -> tuple[Problem, tuple[Reservation, ...]]:
    """The problem with its windows, and (job, GPUs, seconds from now) of each reservation."""
    picked: list[Reservation] = []
    if policy.max_reservations:
        state = _Ends.of(problem)
        ready: dict[Any, bool] = {}
        for j, overdue in _candidates(problem, views, queued_s, policy, carried):
            if len(picked) == policy.max_reservations:
                break
            if not overdue and _fits_now(problem, views[j], j, state, ready):
                continue
            found = _earliest(problem, views[j], j, state)
            if found is not None:
                picked.append((j, *found))
                state.taken[list(found[0])] = True
    return _close(problem, picked), tuple(picked)


def _candidates(
    problem: Problem, views: list[JobView], queued_s: np.ndarray, policy: Policy, carried: frozenset[str]
) -> list[tuple[int, bool]]:
    """Queued jobs in the order in which they may get a reservation, and whether they waited too long."""
    queued = [j for j in range(problem.jobs) if problem.home[j] is None and problem.job_gpus[j] > 0]
    no_room = {j for b in problem.budgets for j, a in zip(b.jobs, b.amounts, strict=True) if a > b.capacity}
    queued = [j for j in queued if j not in no_room]
    late = policy.max_wait_s
    overdue = [j for j in queued if late is not None and queued_s[j] > late]
    overdue.sort(key=lambda j: (-queued_s[j], -int(problem.wait_cost[j]), _content(views[j])))
    kept = {j for j in queued if views[j].job.id in carried}
    gangs = [j for j in queued if (problem.job_gpus[j] > 1 or j in kept) and j not in set(overdue)]
    gangs.sort(key=lambda j: (j not in kept, -int(problem.wait_cost[j]), _content(views[j])))
    return [(j, True) for j in overdue] + [(j, False) for j in gangs]


def _content(view: JobView) -> str:
    """What a job asks for, then its name: new names never change which of two different jobs comes first."""
    return view.job.model_dump_json(exclude={"id"}) + view.job.id


@dataclass(frozen=True)
class _Ends:
    """When residents are gone by their p90 ends, seconds from now; inf where that is unknown."""

    gpu_free_s: np.ndarray  # (G,)
    rows: np.ndarray  # one row a resident and node: node, end, milli-CPUs, MiB; (R, 4) float
    taken: np.ndarray  # (G,) bool, reserved already

    @classmethod
    def of(cls, problem: Problem) -> _Ends:
        free = np.where(problem.gpu_closed, np.inf, 0.0)
        tenants: dict[int, list[int]] = {}
        for j, home in enumerate(problem.home):
            for g in home or () if problem.job_gpus[j] else ():
                tenants.setdefault(g, []).append(j)
        rows = []
        for j, home in enumerate(problem.home):
            if home is None:
                continue
            end = _end_p90(problem, j, home, tenants)
            n = int(problem.job_gpus[j])
            if n:
                np.maximum.at(free, list(home), end)
            nodes, counts = np.unique(
                problem.gpu_node[list(home)] if n else np.array(home), return_counts=True
            )
            for v, k in zip(nodes, counts, strict=True):
                part = k / n if n else 1.0
                rows.append(
                    (v, end, np.ceil(problem.cpu_milli[j] * part), np.ceil(problem.host_memory_mib[j] * part))
                )
        return cls(free, np.array(rows, float).reshape(-1, 4), np.zeros(problem.gpus, bool))

    def host_free(self, problem: Problem, at_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Free milli-CPUs and MiB of each node at a time, and whether a resident is left there; (V,) each."""
        left = self.rows[self.rows[:, 1] > at_s]
        node = left[:, 0].astype(np.int64)
        size = problem.nodes
        cpu = problem.node_cpu_milli - np.bincount(node, left[:, 2], size).astype(np.int64)
        memory = problem.node_memory_mib - np.bincount(node, left[:, 3], size).astype(np.int64)
        return cpu, memory, np.bincount(node, minlength=size) > 0


def _end_p90(problem: Problem, j: int, home: tuple[int, ...], tenants: dict[int, list[int]]) -> float:
    if problem.remaining_p90_s[j] < 0:
        return np.inf
    if problem.job_gpus[j] == 0:
        return float(problem.remaining_p90_s[j])
    kind = int(problem.gpu_kind[home[0]])
    speed = int(problem.speed_milli[j, kind])
    s = max(
        problem.interference.slowdown(
            int(problem.gpu_kind[g]),
            int(problem.job_type[j]),
            (int(problem.job_type[i]) for i in tenants[g] if i != j),
        )
        for g in home
    )
    if speed == 0 or s > problem.interference.worst_milli:
        return np.inf  # it runs where the rules would not have put it: nothing is known of its end
    k = int(problem.link_milli[j, link_of(problem, home)])
    return float(problem.remaining_p90_s[j]) * s * k / (MILLI * speed)


def link_of(problem: Problem, spot: tuple[int, ...]) -> int:
    """Index into ``link_milli`` of a placement's slowest link."""
    if len(spot) <= 1:
        return NVLINK
    groups = {int(g) for g in problem.gpu_link[list(spot)]}
    if len(groups) == 1 and -1 not in groups:
        return NVLINK
    return PCIE if len({int(v) for v in problem.gpu_node[list(spot)]}) == 1 else NETWORK


def _eligible(problem: Problem, j: int, kind: int, state: _Ends) -> np.ndarray:
    ok = (problem.gpu_kind == kind) & ~state.taken & problem.node_sets[problem.node_set[j]][problem.gpu_node]
    ok &= problem.gpu_memory_mib >= problem.memory_mib[j, kind]
    if problem.alone[j]:
        ok &= ~problem.gpu_shared_outside
    return ok


def _room(
    problem: Problem, view: JobView, j: int, eligible: np.ndarray, state: _Ends, at_s: float
) -> np.ndarray:
    """GPUs of the job that each node can take at a time; (V,)."""
    cpu, memory, occupied = state.host_free(problem, at_s)
    free = eligible & (state.gpu_free_s <= at_s)
    count = np.bincount(problem.gpu_node[free], minlength=problem.nodes)
    room = np.minimum(count, host_room(view.job, cpu, memory))
    return np.where(occupied, 0, room) if problem.node_alone[j] else room


def _fits_now(problem: Problem, view: JobView, j: int, state: _Ends, ready: dict[Any, bool]) -> bool:
    key = (
        view.job.gpus, view.job.cpu_milli, view.job.host_memory_mib, view.job.gpus_per_node, int(problem.node_set[j]),
        int(problem.max_nodes[j]), bool(problem.alone[j]), bool(problem.node_alone[j]),
        problem.speed_milli[j].tobytes(), problem.memory_mib[j].tobytes(), state.taken.tobytes() if state.taken.any() else b"",
    )  # fmt: skip
    if key not in ready:
        most = int(problem.max_nodes[j])
        ready[key] = any(
            fits_on(
                view.job,
                _room(problem, view, j, _eligible(problem, j, int(m), state), state, 0.0),
                most,
                problem.equal_per_node,
            )
            for m in np.flatnonzero(problem.speed_milli[j])
        )
    return ready[key]


def _earliest(problem: Problem, view: JobView, j: int, state: _Ends) -> tuple[tuple[int, ...], float] | None:
    """The GPUs that the job can have earliest, and when; None if that is not known."""
    best: tuple[tuple[int, ...], float] | None = None
    for m in (int(m) for m in np.flatnonzero(problem.speed_milli[j])):
        eligible = _eligible(problem, j, m, state)
        ends = np.concatenate(([0.0], state.gpu_free_s[eligible], state.rows[:, 1]))
        times = np.unique(ends[np.isfinite(ends)])
        low, high = 0, len(times)
        while low < high:
            middle = (low + high) // 2
            room = _room(problem, view, j, eligible, state, times[middle])
            if fits_on(view.job, room, int(problem.max_nodes[j]), problem.equal_per_node):
                high = middle
            else:
                low = middle + 1
        if low < len(times) and (best is None or times[low] < best[1]):
            room = _room(problem, view, j, eligible, state, times[low])
            best = (
                _take(problem, j, room, eligible & (state.gpu_free_s <= times[low]), state),
                float(times[low]),
            )
    return best


def _take(problem: Problem, j: int, room: np.ndarray, free: np.ndarray, state: _Ends) -> tuple[int, ...]:
    """GPUs for the job on the nodes with most room, those that are free first."""
    n, per_node = int(problem.job_gpus[j]), int(problem.gpus_per_node[j])
    most = int(problem.max_nodes[j])
    nodes = np.argsort(-room, kind="stable")[:most]
    if not per_node and problem.equal_per_node:
        per_node = next(n // t for t in range(1, most + 1) if n % t == 0 and (room >= n // t).sum() >= t)
    # Of the nodes that would do alone, the fullest: it leaves the roomier ones whole.
    enough = np.flatnonzero(room >= n)
    if len(enough) and per_node in (0, n):
        nodes = enough[np.argsort(room[enough], kind="stable")[:1]]
    spot: list[int] = []
    for v in nodes:
        wanted = min(n - len(spot), per_node or int(room[v]))
        here = np.flatnonzero(free & (problem.gpu_node == v))
        spot += [int(g) for g in here[np.argsort(state.gpu_free_s[here], kind="stable")[:wanted]]]
    return tuple(sorted(spot))


def _close(problem: Problem, picked: list[Reservation]) -> Problem:
    """Windows on the reserved GPUs; nothing is added beside a running job that holds one of them.

    Only the job that they are kept for may come to a GPU in use at once: if moves make room, it need not wait.
    """
    if not picked:
        return problem
    until, holder = problem.gpu_until_s.copy(), problem.gpu_holder.copy()
    closed = problem.gpu_closed.copy()
    held: set[int] = set()
    for j, spot, at_s in picked:
        until[list(spot)] = int(at_s)
        holder[list(spot)] = j
        held.update(spot)
    for i, home in enumerate(problem.home):
        if home is not None and problem.job_gpus[i] and held.intersection(home):
            for g in home:
                if g in held:
                    until[g] = 0
                else:
                    closed[g] = True
    return replace(problem, gpu_until_s=until, gpu_holder=holder, gpu_closed=closed)
