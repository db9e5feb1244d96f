"""Columns for a set-partitioning program over nodes: what one node may hold as a whole, rules and costs exact.

A gang over several nodes is cut into equal parts, one a node, each charged its part of the gang's cost, so that every
column lies on one node; whoever uses the columns puts the parts together again. Columns are found by ruin and recreate on
one empty node, with the price of a job's class as the cost of leaving the job out; a node with running jobs is a shape of
its own and keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from solvers.contents import Contents
from solvers.facts import Facts
from solvers.kernels import layout as o
from solvers.kernels.board import Board
from solvers.kernels.place import ask, holds, node_holds, put, take
from solvers.kernels.tables import late_caps
from solvers.node_shapes import inhabited, shapes
from solvers.problem import MILLI, NETWORK, Placed, Problem
from solvers.warm import Content, Warm

#: A price above which a job is not worth more; keeps sums of integers small.
MOST_PRICE = 2**50


@dataclass(frozen=True)
class Column:
    """What a node of a shape holds: classes with positions of their GPUs on the node, and what that costs."""

    shape: int
    holds: tuple[tuple[int, tuple[int, ...]], ...]
    cost: int

    @property
    def key(self) -> tuple[int, tuple[tuple[int, tuple[int, ...]], ...]]:
        """What tells columns apart."""
        return self.shape, self.holds


def parts_of(problem: Problem) -> np.ndarray:
    """Into how many equal parts, one a node, each queued gang is cut; shape (J,)."""
    largest = int(np.bincount(problem.gpu_node, minlength=1).max(initial=1))
    parts = np.ones(problem.jobs, np.int64)
    for j in np.flatnonzero(problem.job_gpus > largest).tolist():
        n = int(problem.job_gpus[j])
        most = min(int(problem.max_nodes[j]), n)
        each = int(problem.gpus_per_node[j])
        fitting = (q for q in range(-(-n // largest), most + 1) if n % q == 0 and each in (0, n // q))
        parts[j] = next(fitting, 1) if problem.home[j] is None else 1
    return parts


def cut(facts: Facts, parts: np.ndarray, last: int) -> Problem:
    """The problem in which one job stands for a part of each gang that is cut, and where nobody may end late."""
    problem = facts.problem
    caps = np.where(facts.problem.work[:, None] >= 0, late_caps(facts, last), problem.cap_milli)
    queued = np.array([home is None for home in problem.home], bool)[:, None]
    many = parts > 1
    part = np.maximum(parts, 1)
    link = problem.link_milli.copy()
    link[many] = link[many][:, NETWORK : NETWORK + 1]
    return replace(
        problem,
        job_gpus=problem.job_gpus // part,
        unit_speed=problem.unit_speed // part,
        unit_interference=problem.unit_interference // part,
        unit_locality=problem.unit_locality // part,
        cpu_milli=-(-problem.cpu_milli // part),
        host_memory_mib=-(-problem.host_memory_mib // part),
        max_nodes=np.where(many, 1, problem.max_nodes),
        link_milli=link,
        deferred_end=np.full(problem.jobs, -1),
        work=np.where(queued[:, 0], -1, problem.work),
        cap_milli=np.where(queued, np.minimum(problem.cap_milli, caps), problem.cap_milli),
        speed_milli=np.where(queued & (caps < MILLI), 0, problem.speed_milli),
        budgets=(),
        max_moves=0,
    )


class NodeColumns:
    """Shapes of nodes, classes of jobs, and the columns found so far for them.

    Attributes
    ----------
    shape : ndarray, shape (V,)
        The shape of each node, -1 for a node that takes nobody.
    supply : list of ndarray
        For each class, the costs of waiting of the members' parts, falling.
    """

    def __init__(self, whole: Facts, contents: Contents, last: int, seed: int = 0) -> None:
        problem = self.problem = whole.problem
        self.parts = parts_of(problem)
        self.cut = cut(whole, self.parts, last)
        self.budget_of = whole.budget_of
        facts = Facts(self.cut)
        self.board = Board(facts, contents, last, seed)
        self.board.load(problem.home)
        self.sitting_cost = self.board.table("COST").copy()
        self.resident = self.board.table("TENANTS") > 0
        self.in_use = self.board.table("NODE_GPUS") > 0
        self.classes = int(self.board.a[o.CLASS_COUNT])
        self.class_of = self.board.table("CLASS").copy()
        self.shape, self.nodes = _shapes(facts)
        self.gpus_of = facts.gpus_of
        self.place_of = {g: i for gpus in self.gpus_of for i, g in enumerate(gpus)}
        self.members = self._members(last)
        self.split_into = [int(self.parts[members[0]]) for members in self.members]
        self.kind_of_shape = [int(problem.gpu_kind[self.gpus_of[nodes[0]][0]]) for nodes in self.nodes]
        self.number: dict[object, int] = {}
        self.columns: list[Column] = []

    def _members(self, last: int) -> list[list[int]]:
        """Jobs of each class, the costliest to wait first."""
        p = self.problem
        worth = p.wait_cost + np.maximum(0, p.deferred_end - last) * p.makespan_cost
        rows: list[list[int]] = [[] for _ in range(self.classes)]
        for j in np.lexsort((np.arange(p.jobs), -worth)).tolist():
            if self.class_of[j] >= 0:
                rows[int(self.class_of[j])].append(j)
        self.worth = worth
        self.all_wait = float(worth[self.class_of >= 0].sum())
        return rows

    def add(self, column: Column) -> bool:
        """Keep a column; False if it is known."""
        if column.key in self.number:
            return False
        self.number[column.key] = len(self.columns)
        self.columns.append(column)
        return True

    def learn(self, placed: Placed, costs: np.ndarray) -> int:
        """Columns of a plan's nodes on which all that runs is at home; ``costs`` are the jobs' own. How many are new."""
        p = self.problem
        on: list[list[tuple[int, tuple[int, ...], int]]] = [[] for _ in range(p.nodes)]
        for j, spot in enumerate(placed):
            if spot is None or self.class_of[j] < 0:
                continue
            by_node: dict[int, list[int]] = {}
            for g in spot:
                by_node.setdefault(int(p.gpu_node[g]), []).append(self.place_of[g])
            if all(len(places) * self.parts[j] == p.job_gpus[j] for places in by_node.values()):
                for v, places in by_node.items():
                    on[v].append((int(self.class_of[j]), tuple(places), int(costs[j]) // len(by_node)))
        new, (slowed, at_home) = 0, self._residents(placed, costs)
        for v, content in enumerate(on):
            if content and self.shape[v] >= 0 and at_home[v]:
                used = {self.gpus_of[v][i] for _, at, _ in content for i in at}
                cost = sum(c for _, _, c in content) + int(slowed[v]) + self._opening(v, used)
                new += self.add(
                    Column(int(self.shape[v]), tuple(sorted((c, at) for c, at, _ in content)), cost)
                )
        return new

    def adopt(self, warm: Warm) -> int:
        """Columns of an earlier problem that still hold; how many are new."""
        now = {old: int(new) for old, new in zip(warm.job_class, self.class_of, strict=True) if new >= 0}
        size = [int(self.cut.job_gpus[members[0]]) for members in self.members]
        new = 0
        for v, held in warm.columns:
            content = tuple(sorted((now[c], at) for c, at in held if c in now))
            # A job may ask for more GPUs than it did, and a node may have fewer.
            fits = len(content) == len(held) and 0 <= v < len(self.gpus_of) and self.shape[v] >= 0
            fits = fits and all(
                len(at) == len(set(at)) == size[c] and set(at) <= set(range(len(self.gpus_of[v])))
                for c, at in content
            )
            if fits:
                column = self._built(Column(int(self.shape[v]), content, 0))
                new += column is not None and self.add(column)
        return new

    def _built(self, column: Column) -> Column | None:
        """The column as its node can hold it, with its cost; None if a rule is broken, or not all of it could be put."""
        board, v = self.board, self.nodes[column.shape][0]
        self._set(board, column, v)
        built = self._read(board, column.shape, v)
        rules = [node_holds(board.a, board.f, v), *(holds(board.a, board.f, g) for g in self.gpus_of[v])]
        self._clear(board, v)
        return built if built.holds == column.holds and all(rules) else None

    def contents(self, numbers: Iterable[int]) -> tuple[Content, ...]:
        """Columns by number, as another problem can have them."""
        some = (self.columns[i] for i in numbers)
        return tuple((self.nodes[column.shape][0], column.holds) for column in some if column.holds)

    def _residents(self, placed: Placed, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What newcomers cost the running jobs of each node, and whether all those are at home; shapes (V,)."""
        p = self.problem
        slowed, at_home = np.zeros(p.nodes, np.int64), np.ones(p.nodes, bool)
        for j, home in enumerate(p.home):
            if home is None:
                continue
            for spot in (home, placed[j] or ()):
                nodes = np.unique(p.gpu_node[list(spot)]) if p.job_gpus[j] else np.array(spot, np.int64)
                at_home[nodes] &= placed[j] == home
            if placed[j] == home:
                slowed[nodes] += (int(costs[j]) - int(self.sitting_cost[j])) // len(nodes)
        return slowed, at_home

    def _opening(self, v: int, gpus: Iterable[int]) -> int:
        """What opening these GPUs of a node costs, beyond those that residents have opened."""
        fresh = [g for g in gpus if not self.resident[g]]
        cost = int(self.problem.gpu_open_cost[fresh].sum())
        return cost + (0 if self.in_use[v] or not fresh else int(self.problem.node_used_cost[v]))

    def price(self, board: Board, shape: int, steps: int, start: Column | None) -> Column:
        """A column of a shape that is worth much at the prices charged, begun from an old one or from nothing."""
        v = self.nodes[shape][0]
        board.restrict(np.array([v]))
        if start is not None:
            self._set(board, start, v)
        board.improve(steps, 0.0)
        column = self._read(board, shape, v)
        self._clear(board, v)
        return column

    def _set(self, board: Board, column: Column, v: int) -> None:
        """Put a column's jobs on a scratch board's node, as far as it knows what they are to each other."""
        placed = board.table("PLACED")
        for c, places in column.holds:
            j = next((j for j in self.members[c] if not placed[j]), None)
            if j is None:
                continue
            gpus = sorted(self.gpus_of[v][p] for p in places)
            if self.cut.speed_milli[j, self.kind_of_shape[column.shape]] > 0 and self._knows(board, j, gpus):
                at = int(board.table("SPOT_AT")[j])
                board.table("SPOT")[at : at + len(gpus)] = gpus
                put(board.a, board.f, j)

    def _knows(self, board: Board, j: int, gpus: list[int]) -> bool:
        """Has a scratch board the states and the room for a job on these GPUs? States found elsewhere are fetched."""
        kind, width = int(self.cut.job_type[j]), int(board.a[o.WIDTH])
        if (board.table("TENANTS")[gpus] + 1 >= width).any():
            return False
        for last in (False, True):
            states = board.table("STATE")[gpus]
            unknown = states[board.table("STEP")[states * board.a[o.TYPES] + kind] < 0].tolist()
            if not unknown or last:
                return not unknown
            for state in unknown:
                ask(board.a, state, kind)
            board.grow()
        return True

    def charge(self, board: Board, prices: np.ndarray) -> None:
        """On a scratch board, leaving a job out costs its class's price."""
        worth = np.zeros(len(self.class_of), np.int64)
        queued = self.class_of >= 0
        worth[queued] = np.rint(
            np.clip(prices[self.class_of[queued]] / self.parts[queued], 0, MOST_PRICE)
        ).astype(np.int64)
        wait, cost = board.table("WAIT"), board.table("COST")
        wait[: len(worth)][queued] = worth[queued]
        cost[: len(worth)][queued] = worth[queued]
        board.a[o.TOTAL] = int(cost[: len(worth)].sum())

    def block(self, board: Board, used: np.ndarray | None) -> None:
        """On a scratch board, nobody takes so many members of each class, shape (C,); None lets all come again."""
        placed = board.table("PLACED")
        for c, members in enumerate(self.members):
            placed[members] = 0
            if used is not None:
                placed[members[: int(used[c] + 1e-6)]] = 1
        board.table("FIRST")[:] = 0

    def _here(self, board: Board, v: int) -> tuple[list[int], list[int]]:
        """Jobs on a node of a scratch board: queued ones, and those that run."""
        tenants, tenant, width = board.table("TENANTS"), board.table("TENANT"), int(board.a[o.WIDTH])
        jobs = {int(tenant[g * width + i]) for g in self.gpus_of[v] for i in range(int(tenants[g]))}
        return sorted(j for j in jobs if self.class_of[j] >= 0), [j for j in jobs if self.class_of[j] < 0]

    def _read(self, board: Board, shape: int, v: int) -> Column:
        spot, at, cost = board.table("SPOT"), board.table("SPOT_AT"), board.table("COST")
        queued, running = self._here(board, v)
        holds, used = [], set()
        for j in queued:
            gpus = spot[at[j] : at[j] + int(self.cut.job_gpus[j])].tolist()
            holds.append((int(self.class_of[j]), tuple(self.place_of[g] for g in gpus)))
            used.update(gpus)
        total = int(cost[queued].sum() + (cost[running] - self.sitting_cost[running]).sum())
        return Column(shape, tuple(sorted(holds)), total + self._opening(v, used))

    def _clear(self, board: Board, v: int) -> None:
        for j in self._here(board, v)[0]:
            take(board.a, board.f, j)


def _shapes(facts: Facts) -> tuple[np.ndarray, list[list[int]]]:
    """Shapes of the nodes with GPUs that take somebody; those with residents or reserved GPUs are apart."""
    p = facts.problem
    reserved = np.zeros(p.nodes, bool)
    reserved[p.gpu_node[p.gpu_until_s >= 0]] = True
    nodes = [v for v, gpus in enumerate(facts.gpus_of) if gpus and facts.open_nodes[:, v].any()]
    return shapes(p, nodes, facts.open_nodes, inhabited(p) | reserved)
