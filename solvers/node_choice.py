"""Whole columns for nodes: the best plan that columns make, proven by CP-SAT in integers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solvers.node_enumeration import Enumerator
from solvers.node_items import PART, STAY, Column
from solvers.problem import NETWORK, Placed, Problem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True)
class Found:
    """The best plan of whole columns, None if there is none, and what none costs less than."""

    placed: Placed | None
    bound: float


class Choice:
    """The program in whole numbers over some columns.

    Parameters
    ----------
    made, nodes
        Of each shape, its enumerator and its nodes.
    wait
        What waiting costs each job, shape (J,).
    must
        Jobs that may not wait, shape (J,).
    """

    def __init__(
        self, problem: Problem, made: Sequence[Enumerator], nodes: list[list[int]], wait: np.ndarray,
        must: np.ndarray, columns: list[Column],
    ) -> None:  # fmt: skip
        from ortools.sat.python import cp_model  # 50 MiB, so only where it is used

        self.problem, self.made, self.nodes, self.columns = problem, made, nodes, columns
        self.model = cp_model.CpModel()
        self.take = [self.model.new_int_var(0, len(nodes[c.shape]), "") for c in columns]
        self.whole: dict[int, list[Any]] = defaultdict(list)
        self.parts: dict[int, list[tuple[int, int, int]]] = defaultdict(
            list
        )  # of a job: column, item, slowdown
        moved: list[Any] = []
        for at, column in enumerate(columns):
            slow = dict(column.parts)
            for i in column.items:
                item = made[column.shape].node.items[i]
                if item.role == PART:
                    self.parts[item.job].append((at, i, slow[i]))
                    continue
                self.whole[item.job].append(self.take[at])
                if item.role != STAY and problem.home[item.job] is not None:
                    moved.append(self.take[at])
        cost = [column.cost * x for column, x in zip(columns, self.take, strict=True)]
        for j in range(problem.jobs):
            waits = self.model.new_bool_var("")
            self.model.add(sum(self.whole[j]) + sum(self._split(j, cost)) + waits == 1)
            if must[j]:
                self.model.add(waits == 0)
            cost.append(int(wait[j]) * waits)
            if problem.home[j] is not None:
                moved.append(waits)
            self.whole[j] = [1 - waits]
        for k, some in enumerate(nodes):
            here = [x for column, x in zip(columns, self.take, strict=True) if column.shape == k]
            self.model.add(sum(here) == len(some))
        self.model.add(sum(moved) <= problem.max_moves)
        for budget in problem.budgets:
            used = [
                amount * self.whole[j][0]
                for j, amount in zip(budget.jobs, budget.amounts, strict=True)
                if problem.home[j] is None
            ]
            self.model.add(sum(used) <= budget.capacity)
        self.model.minimize(sum(cost))

    def _split(self, j: int, cost: list[Any]) -> list[cp_model.IntVar]:
        """Ways of a gang to be on several nodes: all parts on one kind, charged as its slowest GPU is."""
        ways: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for at, i, slow in self.parts[j]:
            item = self.made[self.columns[at].shape].node.items[i]
            ways[item.kind, item.gpus if self.problem.equal_per_node else 0].append((at, i, slow))
        chosen, most = [], int(self.problem.max_nodes[j])
        for parts in ways.values():
            on = self.model.new_bool_var("")
            chosen.append(on)
            items = [self.made[self.columns[at].shape].node.items[i] for at, i, _ in parts]
            gpus = sum(item.gpus * self.take[at] for item, (at, _, _) in zip(items, parts, strict=True))
            self.model.add(gpus == int(self.problem.job_gpus[j]) * on)
            self.model.add(sum(self.take[at] for at, _, _ in parts) <= most)
            levels = sorted({slow for _, _, slow in parts})
            at_level = [self.model.new_bool_var("") for _ in levels]
            self.model.add(sum(at_level) == on)
            node = self.made[self.columns[parts[0][0]].shape].node
            for n, level in enumerate(levels):
                cost.append(node.cost(items[0], level, NETWORK) * at_level[n])
                slower = [self.take[at] for at, _, slow in parts if slow > level]
                self.model.add(sum(slower) + most * sum(at_level[: n + 1]) <= most)
        return chosen

    def run(self, deadline: float, seed: int = 0) -> Found:
        """Solve it, if it can be by the deadline to the end; else the bound is none."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.0, deadline - time.monotonic())
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = seed
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return Found(None, np.inf)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Found(None, -np.inf)
        whole = status == cp_model.OPTIMAL
        return Found(self._placed(solver), float(round(solver.objective_value)) if whole else -np.inf)

    def _placed(self, solver: cp_model.CpSolver) -> Placed:
        """The plan that the columns chosen make."""
        p = self.problem
        spots: list[list[int]] = [[] for _ in range(p.jobs)]
        free = [list(nodes) for nodes in self.nodes]
        for column, x in zip(self.columns, self.take, strict=True):
            node = self.made[column.shape].node
            for _ in range(solver.value(x)):
                v = free[column.shape].pop()
                away = dict(zip(node.gpus, np.flatnonzero(p.gpu_node == v).tolist(), strict=True))
                for i, spot in zip(column.items, column.spots, strict=True):
                    job = node.items[i].job
                    spots[job] += [away[g] for g in spot] if p.job_gpus[job] else [v]
        return tuple(tuple(sorted(spot)) if spot else None for spot in spots)
