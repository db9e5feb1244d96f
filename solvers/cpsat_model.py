"""The variables of the job-level program in CP-SAT, and the way from a placement to them and back.

Each cell of GPUs alike chooses one column for each of its GPUs. Jobs with one GPU pay in the column, a gang
chooses one mode and pays there, so that every cost, end and window is a constant and nothing needs a big-M but a
node whose residents break its limits already. Every variable knows its value in a given placement, which is
its hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar, LinearExpr

from solvers.columns import may_enter, may_leave, may_use_node
from solvers.modes import Gang, Mode, Tables
from solvers.problem import Placed, Problem
from solvers.twins import in_order
from solvers.view import View

Value = Callable[[View], int]
#: A variable, or the constant of what is certain.
Sure = IntVar | int


class Program:
    """The model and its variables; ``solvers.cpsat_rules`` and ``solvers.cpsat_terms`` fill it.

    Attributes
    ----------
    y
        For each cell and column the number of GPUs that have it.
    new, home
        For each job the cell, slowdown and variable of the columns that it enters, or stays in.
    stay
        For each job whether it stays; a constant where that is certain.
    at
        For each job the nodes that it may enter, and whether it does.
    counts
        For each gang, node and number of GPUs whether it has exactly that many there.
    modes
        For each gang the modes as a newcomer and those at home, and whether it is in one.
    """

    def __init__(self, problem: Problem, tables: Tables) -> None:
        self.problem = problem
        self.tables = tables
        self.model = cp_model.CpModel()
        self.values: list[tuple[IntVar, Value]] = []
        self.constant = problem.fragmentation_base
        self.costs: dict[int, tuple[IntVar, int]] = {}
        self.divisor = 1  # what all costs share, taken out of the objective
        self.jobs = range(problem.jobs)
        self.nodes = range(problem.nodes)

        self.stay = [self._stay_variable(j) for j in self.jobs]
        self.y = [
            [self._column_variable(c, i) for i in range(len(cell.columns))]
            for c, cell in enumerate(tables.cells)
        ]
        self.new, self.home = self._by_tenant()
        self.counts = {gang.job: self._count_variables(gang) for gang in tables.gangs}
        self.at = [self._node_variables(j) for j in self.jobs]
        self.modes = {gang.job: self._mode_variables(gang) for gang in tables.gangs}

    # ---- variables ----

    def bool_var(self, name: str, value: Value) -> IntVar:
        """A yes or no, with its value in any placement."""
        return self.int_var(0, 1, name, value)

    def int_var(self, low: int, high: int, name: str, value: Value) -> IntVar:
        """A number, with its value in any placement."""
        var = self.model.new_int_var(low, high, name)
        self.values.append((var, value))
        return var

    def _stay_variable(self, j: int) -> Sure:
        """1 if a running job stays."""
        if not may_leave(self.problem, j):
            return int(self.problem.home[j] is not None)
        return self.bool_var(f"stay[{j}]", lambda view: view.stays(j))

    def _column_variable(self, c: int, i: int) -> IntVar:
        """How many GPUs of the cell have the column."""
        cell = self.tables.cells[c]
        most = min([len(cell.gpus), *(self.problem.job_gpus.item(j) for j in cell.columns[i].new)])
        return self.int_var(0, most, f"y[{c},{i}]", lambda view: view.chosen(c, i))

    def _by_tenant(self) -> tuple[list[list[tuple[int, int, IntVar]]], list[list[tuple[int, int, IntVar]]]]:
        """For each job the cell, slowdown and variable of the columns that it enters or stays in."""
        new: list[list[tuple[int, int, IntVar]]] = [[] for _ in self.jobs]
        home: list[list[tuple[int, int, IntVar]]] = [[] for _ in self.jobs]
        for c, cell in enumerate(self.tables.cells):
            for column, y in zip(cell.columns, self.y[c], strict=True):
                for i, (j, s) in enumerate(zip(column.tenants, column.slowdown, strict=True)):
                    (home if i < len(column.stay) else new)[j].append((c, s, y))
        return new, home

    def _count_variables(self, gang: Gang) -> dict[int, dict[int, IntVar]]:
        """1 if the gang enters node v with exactly q GPUs."""
        j = gang.job
        return {
            v: {
                q: self.bool_var(f"count[{j},{v},{q}]", lambda view, v=v, q=q: int(view.count(j, v) == q))  # type: ignore[misc]
                for q in sizes
            }
            for v, sizes in gang.counts.items()
        }

    def _node_variables(self, j: int) -> dict[int, IntVar]:
        """1 if the job is a newcomer on node v."""
        n = self.problem.job_gpus.item(j)
        if n == 0:
            allowed = may_enter(self.problem, j)
            nodes = [
                v
                for v in self.nodes
                if allowed and may_use_node(self.problem, j, v) and (v,) != self.problem.home[j]
            ]
        else:
            nodes = sorted({self.tables.cells[c].node for c, _, _ in self.new[j]})
        if n > 1:
            nodes = [v for v in nodes if v in self.counts[j]]
        return {
            v: self.bool_var(f"at[{j},{v}]", lambda view, v=v: int(view.count(j, v) > 0))  # type: ignore[misc]
            for v in nodes
        }

    def _mode_variables(self, gang: Gang) -> tuple[list[tuple[Mode, IntVar]], list[tuple[Mode, IntVar]]]:
        """1 if the gang runs in the mode, as a newcomer or at home."""
        j = gang.job
        go = [
            (mode, self.bool_var(f"go[{j},{i}]", lambda view, m=mode: view.enters(j) * view.runs_as(j, m)))  # type: ignore[misc]
            for i, mode in enumerate(gang.go)
        ]
        stay = [
            (mode, self.bool_var(f"rest[{j},{i}]", lambda view, m=mode: view.stays(j) * view.runs_as(j, m)))  # type: ignore[misc]
            for i, mode in enumerate(gang.stay)
        ]
        return go, stay

    def enters(self, j: int) -> list[IntVar]:
        """Variables of which one is 1 if the job is a newcomer."""
        if self.problem.job_gpus.item(j) > 1:
            return [var for _, var in self.modes[j][0]]
        return list(self.at[j].values())

    def charge(self, var: Sure, cost: int) -> None:
        """Add to the objective what a variable costs."""
        if isinstance(var, int):
            self.constant += var * cost
        else:
            _, before = self.costs.get(var.index, (var, 0))
            self.costs[var.index] = (var, before + cost)

    # ---- there and back ----

    def on_node(self, j: int, v: int) -> Iterator[tuple[int, IntVar]]:
        """Cells and variables of the columns that a newcomer enters on a node."""
        return ((c, y) for c, _, y in self.new[j] if self.tables.cells[c].node == v)

    def hint(self, placed: Placed) -> None:
        """Start from this placement: every variable is hinted, and no older hint is left."""
        view = View(self.problem, self.tables, in_order(self.problem, placed))
        self.model.clear_hints()  # type: ignore[no-untyped-call]  # the library forgot to type it
        for var, value in self.values:
            self.model.add_hint(var, value(view))

    def placement(self, value: Callable[[IntVar], int]) -> Placed:
        """The placement that these values mean; GPUs alike are given out in the order of the columns."""
        spots: dict[int, list[int]] = {}
        for cell, ys in zip(self.tables.cells, self.y, strict=True):
            gpus = iter(cell.gpus)
            for column, y in zip(cell.columns, ys, strict=True):
                for g in [next(gpus) for _ in range(value(y))]:
                    for j in column.new:
                        spots.setdefault(j, []).append(g)
        for j in self.jobs:
            if self.problem.job_gpus.item(j) == 0:
                spots |= {job: [v] for v, at in self.at[j].items() for job in [j] if value(at)}
        stays = [var if isinstance(var, int) else value(var) for var in self.stay]
        return tuple(
            self.problem.home[j] if stays[j] else tuple(sorted(spots[j])) if j in spots else None
            for j in self.jobs
        )


def weighted(terms: Iterable[tuple[Sure, int]]) -> LinearExpr:
    """Variables and constants with their factors."""
    terms = list(terms)
    variables = [(var, factor) for var, factor in terms if not isinstance(var, int)]
    constant = sum(var * factor for var, factor in terms if isinstance(var, int))
    return (
        LinearExpr.weighted_sum([var for var, _ in variables], [factor for _, factor in variables]) + constant
    )


def difference(plus: list[IntVar], minus: list[IntVar]) -> LinearExpr:
    """The sum of some variables less that of others."""
    return weighted([*((var, 1) for var in plus), *((var, -1) for var in minus)])
