"""What the placing engines look up again and again about one Problem, worked out once.

Three kinds of things: job facts as plain Python lists (a list answers a scalar question ten times faster than
an array), the cost of a job as a straight line in its lost share ``R = 1 - 1000 / s``, and the *groups* of GPUs
that a gang may take on one node. Nothing here changes while a plan is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, PPM, Problem

#: A size (thousandths) that no job has: the gate's interval for "never".
NO_SIZE = 2**31 - 1


@dataclass(frozen=True)
class View:
    """A part of the cluster that a query looks at: GPUs, their nodes, and the groups a gang may take.

    A group is a set of GPUs of one kind on one node: a link group (``link`` NVLINK), or all of them (PCIE).
    ``slots`` holds positions in ``gpus``, padded with ``len(gpus)``.
    """

    nodes: np.ndarray  # (v,)
    gpus: np.ndarray  # (g,)
    node_of: np.ndarray  # (g,) position in nodes
    kind: np.ndarray  # (g,)
    slots: np.ndarray  # (b, w)
    group_node: np.ndarray  # (b,) position in nodes
    group_kind: np.ndarray  # (b,)
    group_link: np.ndarray  # (b,)
    whole: np.ndarray  # (b,) the group is all of a node's GPUs of its kind
    everything: bool


class Facts:
    """Lists, straight-line costs and groups of one Problem; see the module."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.jobs, self.gpus, self.nodes = problem.jobs, problem.gpus, problem.nodes
        self.kinds = problem.speed_milli.shape[1]
        self.job_gpus: list[int] = problem.job_gpus.tolist()
        self.gpu_node: list[int] = problem.gpu_node.tolist()
        self.gpu_kind: list[int] = problem.gpu_kind.tolist()
        self.never = _partners(problem)
        self.budget_of = _budgets_of(problem)
        self.budget_room = [b.capacity for b in problem.budgets]
        self.windowed = np.flatnonzero(problem.gpu_until_s >= 0)
        self.window_set = set(self.windowed.tolist())
        self.has_shares = bool(problem.share.any())
        self.has_groups = bool(problem.jobs) and bool((problem.share_group != problem.share_group[0]).any())
        self.has_node_alone = bool(problem.node_alone.any())
        self.open_nodes = problem.node_sets & ~np.asarray(problem.node_closed, bool)

    def __getattr__(self, name: str) -> Any:
        """A job fact as a list, made when it is first asked for: all of them together are most of the memory."""
        if name not in _LISTS:
            raise AttributeError(name)
        value = getattr(self.problem, name).tolist()
        setattr(self, name, value)
        return value

    # Declared for mypy: every name of _LISTS.
    job_type: list[int]
    size_milli: list[int]
    unit_speed: list[int]
    unit_interference: list[int]
    unit_locality: list[int]
    wait_cost: list[int]
    move_cost: list[int]
    work: list[int]
    deferred_end: list[int]
    remaining_p90_s: list[int]
    cpu_milli: list[int]
    host_memory_mib: list[int]
    max_nodes: list[int]
    gpus_per_node: list[int]
    node_set: list[int]
    alone: list[bool]
    node_alone: list[bool]
    share_group: list[int]
    movable: list[bool]
    preemptible: list[bool]
    link_milli: list[list[int]]
    speed_milli: list[list[int]]
    memory_mib: list[list[int]]
    share: list[list[int]]
    cap_milli: list[list[int]]

    @cached_property
    def classes(self) -> list[int]:
        """A number for each job; jobs of one number differ only in what waiting costs them, and in their ends."""
        return _classes(self.problem)

    @cached_property
    def fixed_cost(self) -> np.ndarray:
        """Cost of a placed job without a neighbour, shape (J, M, 3) by kind and link; inf where it may not run."""
        p = self.problem
        v = p.speed_milli[:, :, None].astype(float) / MILLI
        linked = 1 - MILLI / p.link_milli[:, None, :].astype(float)
        cost = p.unit_speed[:, None, None] * (1 - v) + p.unit_locality[:, None, None] * v * linked
        return np.where(v > 0, cost, np.inf)

    @cached_property
    def slope(self) -> np.ndarray:
        """What a placed job's cost rises with R, shape (J, M, 3)."""
        p = self.problem
        v = p.speed_milli[:, :, None].astype(float) / MILLI
        linked = 1 - MILLI / p.link_milli[:, None, :].astype(float)
        units = p.unit_interference[:, None, None] - p.unit_locality[:, None, None] * linked
        slope: np.ndarray = v * units
        return slope

    @cached_property
    def cap_lost(self) -> list[list[float]]:
        """The caps as lost shares R, a hair wider than exact so that rounding refuses nothing."""
        lost: list[list[float]] = (1 - MILLI / self.problem.cap_milli.astype(float) + 1e-12).tolist()
        return lost

    @cached_property
    def same_by_kind(self) -> list[tuple[bool, bool]]:
        """For each job: is its memory, is its cap the same on all kinds?"""
        p = self.problem
        memory = (p.memory_mib == p.memory_mib[:, :1]).all(1) & (p.share == p.share[:, :1]).all(1)
        caps = (p.cap_milli == p.cap_milli[:, :1]).all(1)
        return list(zip(memory.tolist(), caps.tolist(), strict=True))

    @cached_property
    def least_memory(self) -> np.ndarray:
        """The least memory that a job of each type needs on each kind, shape (A, M); huge if none may go there."""
        p = self.problem
        least = np.full((p.interference.types, self.kinds), np.iinfo(np.int64).max)
        wandering = [j for j in range(p.jobs) if p.job_gpus[j] and (p.home[j] is None or p.movable[j])]
        need = np.where(p.speed_milli > 0, p.memory_mib, np.iinfo(np.int64).max)[wandering]
        np.minimum.at(least, p.job_type[wandering], need)
        return least

    @cached_property
    def kind_memory(self) -> list[int]:
        """The largest GPU of each kind."""
        most = np.zeros(self.kinds, np.int64)
        np.maximum.at(most, self.problem.gpu_kind, self.problem.gpu_memory_mib)
        out: list[int] = most.tolist()
        return out

    @cached_property
    def links(self) -> np.ndarray:
        """May the job be linked like this on this kind, shape (J, M, 3)? By the sizes of link groups and nodes alone."""
        p = self.problem
        queued = np.array([home is None for home in p.home], bool)
        may = np.zeros((p.jobs, self.kinds, 3), bool)
        shut = (p.gpu_closed != 0) | (p.node_closed[p.gpu_node] != 0)
        for q in range(len(p.node_sets)):
            mine = queued & (p.node_set == q)
            room = _rooms(p, self.kinds, ~shut & p.node_sets[q, p.gpu_node])
            may[mine] = p.job_gpus[mine, None, None] <= room
        may[~queued] = p.job_gpus[~queued, None, None] <= _rooms(p, self.kinds, np.ones(p.gpus, bool))
        may[:, :, NETWORK] &= (p.max_nodes > 1)[:, None] | ~queued[:, None]
        may[p.job_gpus <= 1] = [True, False, False]
        for j in np.flatnonzero(~queued & (p.job_gpus > 1)).tolist():
            home = p.home[j] or ()
            may[j] &= bool(p.movable[j])
            may[j, p.gpu_kind[home[0]], link_class(p, home)] = True  # whatever it sits on, it may stay
        return may

    @cached_property
    def earliest_makespan(self) -> int:
        """No plan's makespan is shorter: every job ends somewhere, and none earlier than at its best."""
        p = self.problem
        work = p.work[:, None].astype(float)
        speed = np.where(p.job_gpus == 0, MILLI, np.where(p.speed_milli > 0, p.speed_milli, 0).T).T
        # A gang too large for a link group, or for a node, ends later by the factor of the slower link.
        link = np.where(self.links, p.link_milli[:, None, :].astype(float), np.inf).min(2)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where((speed > 0) & (work >= 0), np.ceil(work * link / (speed * MILLI) - 1e-6), np.inf)
        best = ends.min(1, initial=np.inf)
        for j, home in enumerate(p.home):
            # A resident may sit on a kind that would no longer take it, and then its end is not known.
            if home is not None and self.job_gpus[j] and p.speed_milli[j, p.gpu_kind[home[0]]] <= 0:
                best[j] = 0
        best = np.where(p.work >= 0, best, 0)
        stays = np.array([self.must_run(j) for j in range(p.jobs)], bool)
        deferred = np.where(stays, np.inf, np.maximum(p.deferred_end, 0))
        best = np.minimum(best, deferred)
        return int(best[np.isfinite(best)].max(initial=0))

    def must_run(self, j: int) -> bool:
        """A running job that may not be preempted."""
        return self.problem.home[j] is not None and not self.preemptible[j]

    @cached_property
    def latest_end(self) -> np.ndarray:
        """An end that no placement of the job passes, in ticks, shape (J,)."""
        p = self.problem
        cap = np.minimum(p.cap_milli.max(1, initial=MILLI), max(p.interference.worst_milli, MILLI))
        slowest = np.where(p.speed_milli > 0, p.speed_milli, MILLI).min(1, initial=MILLI)
        ends = p.work * 1.0 * cap * p.link_milli.max(1) / (slowest * float(PPM))
        return np.where(p.work >= 0, np.ceil(ends), -1)

    @cached_property
    def latest_ends(self) -> list[float]:
        """The same as a list."""
        ends: list[float] = self.latest_end.tolist()
        return ends

    # ---- views ----

    @cached_property
    def everything(self) -> View:
        """The whole cluster as one view."""
        p = self.problem
        slots, meta = _groups(p, range(p.nodes), self._gpus_of)
        return View(
            nodes=np.arange(p.nodes),
            gpus=np.arange(p.gpus),
            node_of=p.gpu_node,
            kind=p.gpu_kind,
            slots=slots,
            everything=True,
            **meta,
        )

    @cached_property
    def _gpus_of(self) -> list[np.ndarray]:
        by_node = np.argsort(self.problem.gpu_node, kind="stable")
        return np.split(by_node, np.cumsum(np.bincount(self.problem.gpu_node, minlength=self.nodes))[:-1])

    @cached_property
    def gpus_of(self) -> list[list[int]]:
        """The GPUs of each node."""
        return [gpus.tolist() for gpus in self._gpus_of]

    def view(self, nodes: list[int]) -> View:
        """A view of a few nodes."""
        parts = [self._gpus_of[v] for v in nodes]
        gpus = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        place = {g: i for i, g in enumerate(gpus.tolist())}
        slots, meta = _groups(self.problem, nodes, self._gpus_of, place)
        return View(
            nodes=np.array(nodes),
            gpus=gpus,
            node_of=np.repeat(np.arange(len(nodes)), [len(part) for part in parts]),
            kind=self.problem.gpu_kind[gpus],
            slots=slots,
            everything=False,
            **meta,
        )


_LISTS = (
    "job_gpus",
    "job_type",
    "size_milli",
    "unit_speed",
    "unit_interference",
    "unit_locality",
    "wait_cost",
    "move_cost",
    "work",
    "deferred_end",
    "remaining_p90_s",
    "cpu_milli",
    "host_memory_mib",
    "max_nodes",
    "gpus_per_node",
    "node_set",
    "alone",
    "node_alone",
    "share_group",
    "movable",
    "preemptible",
    "link_milli",
    "speed_milli",
    "memory_mib",
    "share",
    "cap_milli",
)


def _rooms(problem: Problem, kinds: int, usable: np.ndarray) -> np.ndarray:
    """The most usable GPUs (shape (G,), bool) of each kind in a link group, on a node and in all, shape (M, 3)."""
    room = np.zeros((kinds, 3), np.int64)
    for kind in range(kinds):
        mine = usable & (problem.gpu_kind == kind)
        links = problem.gpu_link[mine & (problem.gpu_link >= 0)]
        room[kind, NVLINK] = np.unique(links, return_counts=True)[1].max(initial=0)
        room[kind, PCIE] = np.bincount(problem.gpu_node[mine], minlength=1).max(initial=0)
        room[kind, NETWORK] = mine.sum()
    return room


def _partners(problem: Problem) -> dict[int, set[int]]:
    """Who must never share with whom."""
    partners: dict[int, set[int]] = {}
    for a, b in problem.never:
        partners.setdefault(a, set()).add(b)
        partners.setdefault(b, set()).add(a)
    return partners


def _budgets_of(problem: Problem) -> dict[int, list[tuple[int, int]]]:
    """The budgets that a queued job draws on, with the amount."""
    drawn: dict[int, list[tuple[int, int]]] = {}
    for b, budget in enumerate(problem.budgets):
        for j, amount in zip(budget.jobs, budget.amounts, strict=True):
            if problem.home[j] is None:
                drawn.setdefault(j, []).append((b, amount))
    return drawn


def _classes(problem: Problem) -> list[int]:
    """A number for each job; jobs of one number differ only in what waiting costs them, and in their ends."""
    if not problem.jobs:
        return []
    columns = [
        getattr(problem, name).reshape(problem.jobs, -1).astype(np.int64)
        for name in _LISTS
        if name not in {"wait_cost", "work", "deferred_end", "remaining_p90_s", "movable", "preemptible"}
    ]
    classes: list[int] = numbered(np.hstack(columns)).tolist()
    return classes


def numbered(rows: np.ndarray) -> np.ndarray:
    """A number for each distinct row of integers, ascending as the rows do; shape (rows,).

    Column after column, which is several times as fast as to compare whole rows.
    """
    number = np.zeros(len(rows), np.int64)
    for column in rows.T:
        if len(rows) and (column != column[0]).any():
            rank = np.unique(column, return_inverse=True)[1].ravel()
            number = np.unique(number * (rank.max() + 1) + rank, return_inverse=True)[1].ravel()
    return number


def _groups(
    problem: Problem, nodes: Any, gpus_of: list[np.ndarray], place: dict[int, int] | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Slots and facts of the groups on some nodes; the link groups of a node come before the whole."""
    rows: list[list[int]] = []
    facts: list[tuple[int, int, int, bool]] = []
    kinds, links = problem.gpu_kind, problem.gpu_link
    for at, v in enumerate(nodes):
        by_kind: dict[int, dict[int, list[int]]] = {}
        for g in gpus_of[v].tolist():
            by_kind.setdefault(int(kinds[g]), {}).setdefault(int(links[g]), []).append(g)
        for kind, by_link in by_kind.items():
            whole = len(by_link) == 1 and min(by_link) >= 0
            for link, members in by_link.items():
                if link >= 0:
                    rows.append(members)
                    facts.append((at, kind, NVLINK, whole))
            if not whole:
                rows.append(sorted(g for members in by_link.values() for g in members))
                facts.append((at, kind, PCIE, True))
    pad = len(place) if place is not None else problem.gpus
    width = max(map(len, rows), default=1)
    slots = np.full((len(rows), width), pad)
    for row, members in enumerate(rows):
        slots[row, : len(members)] = members if place is None else [place[g] for g in members]
    table = np.array(facts, np.int64).reshape(-1, 4)
    names = ("group_node", "group_kind", "group_link")
    return slots, {**dict(zip(names, table.T, strict=False)), "whole": table[:, 3].astype(bool)}


def link_class(problem: Problem, spot: tuple[int, ...]) -> int:
    """NVLINK within one link group, PCIE within one node, else NETWORK."""
    if len(spot) <= 1:
        return NVLINK
    link = problem.gpu_link[spot[0]]
    if link >= 0 and all(problem.gpu_link[g] == link for g in spot):
        return NVLINK
    return PCIE if len({int(problem.gpu_node[g]) for g in spot}) == 1 else NETWORK
