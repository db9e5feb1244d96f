"""The feasible tenant sets ("columns") of every GPU: the variables of the job-level program.

Every rule of ``solvers.problem`` that looks at one GPU is settled here, once, by leaving out the sets that
break it; an exact engine then chooses one column for each GPU and only has to join GPUs into gangs, nodes and
budgets. GPUs that no rule tells apart form a *cell* (within one node and link group), and a column is chosen a
number of times in a cell, so that interchangeable GPUs cost nothing. A gang's slowest GPU, its links and its
window need more than one GPU: see ``solvers.modes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.problem import MILLI, PPM, Problem, Spot


@dataclass(frozen=True)
class Column:
    """A tenant set: residents that stay, newcomers, and the slowdown of each in that order."""

    stay: tuple[int, ...]
    new: tuple[int, ...]
    slowdown: tuple[int, ...]

    @property
    def tenants(self) -> tuple[int, ...]:
        """All of them, aligned with ``slowdown``."""
        return self.stay + self.new


@dataclass(frozen=True)
class Cell:
    """GPUs of one node and link group that no rule tells apart, and their columns."""

    gpus: Spot
    node: int
    link: int
    kind: int
    until_s: int
    holder: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class _Alike:
    """All that decides which columns a GPU has."""

    kind: int
    memory_mib: int
    margin_mib: int
    share: int
    max_tenants: int
    until_s: int
    holder: int
    cpu_milli: int
    host_mib: int
    residents: Spot
    entrants: Spot


class TooManyError(Exception):
    """There are more columns than the caller wants to hear about."""


def estimate(problem: Problem, cap: int) -> int | None:
    """Number of columns of the job-level program, None if it would take the work of more than ``cap`` to know."""
    try:
        return sum(len(cell.columns) for cell in cells(problem, cap))
    except TooManyError:
        return None


def cells(problem: Problem, cap: int | None = None) -> tuple[Cell, ...]:
    """All cells with their columns, in the order of their first GPUs; raises TooManyError beyond ``cap``."""
    groups = _group(problem)
    entry = _entry(problem, groups, cap)
    rules = _Rules(problem, cap)
    found: list[Cell] = []
    for (gpus, residents), enters in zip(groups.items(), entry, strict=True):
        g = gpus[0]
        alike = _alike(problem, g, residents, tuple(np.flatnonzero(enters).tolist()))
        cell = Cell(
            gpus=gpus,
            node=problem.gpu_node.item(g),
            link=problem.gpu_link.item(g),
            kind=alike.kind,
            until_s=alike.until_s,
            holder=alike.holder,
            columns=rules.columns(alike),
        )
        found.append(cell)
    return tuple(found)


# ---- what a job may do ----


def may_leave(problem: Problem, j: int) -> bool:
    """A running job that can do anything but stay."""
    return problem.home[j] is not None and problem.max_moves > 0 and not problem.is_fixed(j)


def may_enter(problem: Problem, j: int) -> bool:
    """A job that can be a newcomer somewhere: a queued one, or a running one that may move."""
    return problem.home[j] is None or (may_leave(problem, j) and bool(problem.movable[j]))


def may_wait(problem: Problem, j: int) -> bool:
    """A job that can be None: a queued one, or a running one that may be preempted."""
    return problem.home[j] is None or (may_leave(problem, j) and bool(problem.preemptible[j]))


def node_demand(problem: Problem, j: int, count: int) -> tuple[int, int]:
    """Milli-CPUs and MiB of host memory that ``count`` of the job's GPUs take from their node."""
    n = problem.job_gpus.item(j)
    cpu, memory = problem.cpu_milli.item(j), problem.host_memory_mib.item(j)
    return (-(-cpu * count // n), -(-memory * count // n)) if n else (cpu, memory)


def may_use_node(problem: Problem, j: int, v: int) -> bool:
    """A newcomer may use the node as far as node and job alone decide it."""
    cpu, memory = node_demand(problem, j, 1)
    return (
        problem.node_sets.item(problem.node_set.item(j), v)
        and not problem.node_closed.item(v)
        and cpu <= problem.node_cpu_milli.item(v)
        and memory <= problem.node_memory_mib.item(v)
    )


# ---- what a placed job costs ----


def price(problem: Problem, j: int, kind: int, slowdown: int, link: int) -> int:
    """Speed, interference and locality of a placed job."""
    v, k = _speed(problem, j, kind), problem.link_milli.item(j, link)
    alone, beside, linked = MILLI * v, MILLI * v * MILLI // slowdown, v * 10**9 // (slowdown * k)
    cost = (PPM - alone) * problem.unit_speed.item(j) // PPM
    cost += (alone - beside) * problem.unit_interference.item(j) // PPM
    return int(cost + (beside - linked) * problem.unit_locality.item(j) // PPM)


def end(problem: Problem, j: int, kind: int, slowdown: int, link: int) -> int | None:
    """The tick at which a placed job ends, None if nobody knows."""
    work, v = problem.work.item(j), _speed(problem, j, kind)
    if work < 0 or v <= 0:
        return None
    return int(-(-work * slowdown * problem.link_milli.item(j, link) // (v * PPM)))


def window_s(problem: Problem, j: int, kind: int, slowdown: int, link: int) -> int | None:
    """Seconds until a newcomer is out of the way of a reservation, None if nobody knows."""
    remaining, v = problem.remaining_p90_s.item(j), _speed(problem, j, kind)
    if remaining < 0 or v <= 0:
        return None
    return int(-(-remaining * slowdown * problem.link_milli.item(j, link) // (MILLI * v)))


def _speed(problem: Problem, j: int, kind: int) -> int:
    return int(problem.speed_milli.item(j, kind)) if problem.job_gpus.item(j) else MILLI


# ---- cells ----


def _group(problem: Problem) -> dict[Spot, Spot]:
    """GPUs alike -> their residents, in the order of the first GPUs."""
    residents: dict[int, list[int]] = {}
    for j, home in enumerate(problem.home):
        for g in home or () if problem.job_gpus.item(j) else ():
            residents.setdefault(g, []).append(j)
    facts = np.stack(
        [
            *(
                problem.gpu_node,
                problem.gpu_link,
                problem.gpu_kind,
                problem.gpu_memory_mib,
                problem.gpu_margin_mib,
            ),
            *(problem.gpu_share, problem.gpu_max_tenants, problem.gpu_closed, problem.gpu_shared_outside),
            *(problem.gpu_until_s, problem.gpu_holder, problem.gpu_open_cost),
            problem.gpu_index if problem.same_index else np.zeros(problem.gpus, np.int64),
        ],
        axis=1,
    ).tolist()
    alike: dict[tuple[int, ...], list[int]] = {}
    for g, row in enumerate(facts):
        alike.setdefault((*row, *residents.get(g, ())), []).append(g)
    return {tuple(gpus): tuple(residents.get(gpus[0], ())) for gpus in alike.values()}


def _alike(problem: Problem, g: int, residents: Spot, entrants: Spot) -> _Alike:
    v = problem.gpu_node.item(g)
    return _Alike(
        kind=problem.gpu_kind.item(g),
        memory_mib=problem.gpu_memory_mib.item(g),
        margin_mib=problem.gpu_margin_mib.item(g),
        share=problem.gpu_share.item(g),
        max_tenants=problem.gpu_max_tenants.item(g),
        until_s=problem.gpu_until_s.item(g),
        holder=problem.gpu_holder.item(g),
        cpu_milli=problem.node_cpu_milli.item(v),
        host_mib=problem.node_memory_mib.item(v),
        residents=residents,
        entrants=entrants,
    )


def _entry(problem: Problem, groups: dict[Spot, Spot], cap: int | None) -> list[np.ndarray]:
    """For each cell the jobs that may be newcomers there, shape (J,) bool."""
    enters = np.array([may_enter(problem, j) for j in range(problem.jobs)], bool) & (problem.job_gpus > 0)
    entry: list[np.ndarray] = []
    total = 0
    for gpus, residents in groups.items():
        allowed = enters & _fits_alone(problem, gpus[0])
        for j in residents:  # who has one GPU and leaves it does not come back to it
            allowed[j] &= problem.job_gpus[j] > 1
        total += int(allowed.sum())
        if cap is not None and total > cap:
            raise TooManyError
        entry.append(allowed)
    _drop_hopeless_gangs(problem, list(groups), entry)
    return entry


def _fits_alone(problem: Problem, g: int) -> np.ndarray:
    """Jobs that the rules of one GPU and its node admit without company, shape (J,)."""
    v, m = problem.gpu_node.item(g), problem.gpu_kind.item(g)
    if problem.gpu_closed[g] or problem.node_closed[v] or problem.gpu_max_tenants[g] < 1:
        return np.zeros(problem.jobs, bool)
    n = np.maximum(problem.job_gpus, 1)
    admitted: np.ndarray = (
        (problem.speed_milli[:, m] > 0)
        & problem.node_sets[problem.node_set, v]
        & (problem.memory_mib[:, m] <= problem.gpu_memory_mib[g])
        & (problem.share[:, m] <= problem.gpu_share[g])
        & (problem.cap_milli[:, m] >= MILLI)
        & ~(problem.alone & problem.gpu_shared_outside[g])
        & (-(-problem.cpu_milli // n) <= problem.node_cpu_milli[v])
        & (-(-problem.host_memory_mib // n) <= problem.node_memory_mib[v])
    )
    return admitted


def _drop_hopeless_gangs(problem: Problem, groups: list[Spot], entry: list[np.ndarray]) -> None:
    """A gang enters a node only if that node can give it a number of GPUs that it may take there."""
    cell_node = [problem.gpu_node.item(gpus[0]) for gpus in groups]
    for j in np.flatnonzero(problem.job_gpus > 1).tolist():
        offers: dict[int, int] = {}
        for v, gpus, allowed in zip(cell_node, groups, entry, strict=True):
            offers[v] = offers.get(v, 0) + (len(gpus) if allowed[j] else 0)
        counts = node_counts(problem, j, offers)
        for v, allowed in zip(cell_node, entry, strict=True):
            allowed[j] &= bool(counts.get(v))


def node_counts(problem: Problem, j: int, offers: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """Numbers of GPUs that a gang may take on each node, given how many each node offers it."""
    n, most, wanted = problem.job_gpus.item(j), problem.max_nodes.item(j), problem.gpus_per_node.item(j)
    largest = max(offers.values(), default=0)
    sizes = [
        q for q in range(1, min(n, largest) + 1) if q == n or (most > 1 and n - q <= (most - 1) * largest)
    ]
    if wanted > 0:
        sizes = [q for q in sizes if q == wanted and n % q == 0 and n // q <= most]
    if problem.equal_per_node or problem.same_index:
        sizes = [q for q in sizes if n % q == 0 and n // q <= most]
    return {v: tuple(q for q in sizes if q <= offer) for v, offer in offers.items()}


# ---- columns ----


class _Rules:
    """The rules for one GPU, with the jobs' facts as plain lists, and the columns found so far."""

    def __init__(self, problem: Problem, cap: int | None) -> None:
        self.problem = problem
        self.left = cap
        self.caps = problem.cap_milli.tolist()
        self.types = problem.job_type.tolist()
        self.sizes = problem.size_milli.tolist()
        self.fixed = [home is not None and not may_leave(problem, j) for j, home in enumerate(problem.home)]
        self.friends = _friends(problem)
        self.needs = [_needs(problem, kind) for kind in range(problem.speed_milli.shape[1])]
        self.beside: dict[tuple[int, int, Spot], int] = {}
        self.known: dict[_Alike, tuple[Column, ...]] = {}

    def columns(self, gpu: _Alike) -> tuple[Column, ...]:
        """All columns of a GPU, enumerated once for GPUs alike."""
        if gpu not in self.known:
            self.known[gpu] = tuple(
                column for stay in self._stays(gpu) for column in self._grow(gpu, stay, (), gpu.entrants)
            )
        else:
            self._count(len(self.known[gpu]))
        return self.known[gpu]

    def _count(self, more: int) -> None:
        if self.left is not None:
            self.left -= more
            if self.left < 0:
                raise TooManyError

    def _stays(self, gpu: _Alike) -> Iterator[Spot]:
        """Sets of residents that may be left: all but up to max_moves of those that may leave."""
        chosen: list[tuple[Spot, int]] = [((), 0)]
        for j in gpu.residents:
            kept = [((*stay, j), gone) for stay, gone in chosen]
            left = [] if self.fixed[j] else [(s, n + 1) for s, n in chosen if n < self.problem.max_moves]
            chosen = kept + left
            self._count(len(left))
        return (stay for stay, _ in chosen)

    def _grow(self, gpu: _Alike, stay: Spot, new: Spot, pool: Spot) -> Iterator[Column]:
        """The set itself if it is allowed, then every larger one; rules that only tighten prune."""
        # A set of many tenants takes as long to judge as several of the usual two or three.
        self._count(max(1, len(stay + new) ** 2 // 9))
        slowdown = self._slowdown(gpu.kind, stay + new)
        if not new or self._allowed(gpu, stay, new, slowdown):
            yield Column(stay, new, slowdown)
        # Who does not fit now fits no larger set either.
        pool = self._fitting(gpu, stay + new, pool)
        for i, j in enumerate(pool):
            yield from self._grow(gpu, stay, (*new, j), pool[i + 1 :])

    def _fitting(self, gpu: _Alike, tenants: Spot, pool: Spot) -> Spot:
        """Jobs of the pool beside which the tenants keep all rules that a larger set can only break as well."""
        if len(tenants) >= gpu.max_tenants:
            return ()
        welcome = -1
        for i, j in enumerate(tenants):
            if i and not welcome >> j & 1:
                return ()  # residents that do not agree take nobody in
            welcome &= self.friends[j]
        needs = self.needs[gpu.kind]
        room = (gpu.memory_mib - (gpu.margin_mib if tenants else 0), gpu.share, gpu.cpu_milli, gpu.host_mib)
        memory, share, cpu, host = (have - sum(needs[j][i] for j in tenants) for i, have in enumerate(room))
        return tuple(
            j
            for j in pool
            if welcome >> j & 1
            and (need := needs[j])[0] <= memory
            and need[1] <= share
            and need[2] <= cpu
            and need[3] <= host
        )

    def _slowdown(self, kind: int, tenants: Spot) -> Spot:
        if len(tenants) == 1:
            return (MILLI,)
        types = tuple(self.types[j] for j in tenants)
        return tuple(self._beside(kind, a, types[:i] + types[i + 1 :]) for i, a in enumerate(types))

    def _beside(self, kind: int, victim: int, co: Spot) -> int:
        key = (kind, victim, co)
        if key not in self.beside:
            self.beside[key] = self.problem.interference.slowdown(kind, victim, co)
        return self.beside[key]

    def _allowed(self, gpu: _Alike, stay: Spot, new: Spot, slowdown: Spot) -> bool:
        """Rules that a larger set may keep again: slowdown, gate, window."""
        tenants = stay + new
        if any(s > self.caps[j][gpu.kind] for j, s in zip(tenants, slowdown, strict=True)):
            return False
        if self.problem.gate and len(tenants) > 1 and not self._gate(gpu.kind, tenants, new, slowdown):
            return False
        return gpu.until_s < 0 or all(
            self._in_window(gpu, j, s) for j, s in zip(new, slowdown[len(stay) :], strict=True)
        )

    def _gate(self, kind: int, tenants: Spot, new: Spot, slowdown: Spot) -> bool:
        """More progress than the largest member alone, and no less than without any newcomer."""
        progress = self._progress(tenants, slowdown)
        if progress <= PPM * max(self.sizes[j] for j in tenants):
            return False
        for i in new:
            rest = tuple(j for j in tenants if j != i)
            if progress < self._progress(rest, self._slowdown(kind, rest)):
                return False
        return True

    def _progress(self, tenants: Spot, slowdown: Spot) -> int:
        return sum(self.sizes[j] * (10**9 // s) for j, s in zip(tenants, slowdown, strict=True))

    def _in_window(self, gpu: _Alike, j: int, slowdown: int) -> bool:
        """Whether the newcomer can end in time; with the best of its links if it is a gang."""
        if gpu.holder == j:
            return True
        links = range(3) if self.problem.job_gpus.item(j) > 1 else range(1)
        ends = [window_s(self.problem, j, gpu.kind, slowdown, link) for link in links]
        return any(e is not None and e <= gpu.until_s for e in ends)


def _friends(problem: Problem) -> list[int]:
    """For each job the jobs that it may share a GPU with, as bits: consent, never and alone."""
    loners = (problem.alone | problem.node_alone).tolist()
    groups: dict[int, int] = {}
    for j, group in enumerate(problem.share_group.tolist()):
        groups[group] = groups.get(group, 0) | (0 if loners[j] else 1 << j)
    friends = [
        0 if loners[j] else groups[group] & ~(1 << j) for j, group in enumerate(problem.share_group.tolist())
    ]
    for a, b in problem.never:
        friends[a] &= ~(1 << b)
        friends[b] &= ~(1 << a)
    return friends


def _needs(problem: Problem, kind: int) -> list[tuple[int, int, int, int]]:
    """Each job's GPU memory, share, milli-CPUs and host memory for one GPU of a kind."""
    hosts = (node_demand(problem, j, 1) for j in range(problem.jobs))
    memory, share = problem.memory_mib[:, kind].tolist(), problem.share[:, kind].tolist()
    return [(m, s, *host) for m, s, host in zip(memory, share, hosts, strict=True)]
