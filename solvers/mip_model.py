"""The job-level program in PuLP, for CBC, for HiGHS, and for a file that any other solver reads.

The same columns and modes as ``solvers.cpsat_model``, but the rows are written once more and on their own, so
that the two models can disagree and be caught. Whatever is certain is left out rather than fixed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pulp

from solvers.columns import end, may_enter, may_leave, may_use_node, may_wait, node_demand, price
from solvers.modes import Gang, Mode, Tables
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, Placed, Problem

Var = Any  # pulp.LpVariable; the library ships no types
Row = list[tuple[Var, int]]


@dataclass(frozen=True)
class Ways:
    """The ways in which one job can be placed: variables that add up to 1 if it is.

    Attributes
    ----------
    certain
        The job stays whatever happens, and costs or loads nothing that could be chosen.
    on
        Node -> number of GPUs there -> variables of which one is 1 if it has that many there.
    """

    enter: Row = field(default_factory=list)
    stay: Row = field(default_factory=list)
    certain: bool = False
    on: dict[int, dict[int, list[Var]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )


class MipProgram:
    """The PuLP model of a problem, and the way back to a placement."""

    def __init__(self, problem: Problem, tables: Tables) -> None:
        self.problem = problem
        self.tables = tables
        self.gangs = {gang.job: gang for gang in tables.gangs}
        self.lp = pulp.LpProblem("placement", pulp.LpMinimize)
        self.costs: dict[str, int] = defaultdict(int)
        self.vars: dict[str, Var] = {}
        self.constant = problem.fragmentation_base
        self.y = [
            [self._whole(f"y_{c}_{i}", len(cell.gpus)) for i in range(len(cell.columns))]
            for c, cell in enumerate(tables.cells)
        ]
        self.ways = [self._ways(j) for j in range(problem.jobs)]
        self._rows()

    def _rows(self) -> None:
        for cell, ys in zip(self.tables.cells, self.y, strict=True):
            self._row([(y, 1) for y in ys], "==", len(cell.gpus))
        for j in range(self.problem.jobs):
            self._one_job(j)
        for gang in self.tables.gangs:
            self._shape(gang)
            self._links(gang)
        for v in range(self.problem.nodes):
            self._node(v)
        for budget in self.problem.budgets:
            pairs = [
                (j, a)
                for j, a in zip(budget.jobs, budget.amounts, strict=True)
                if self.problem.home[j] is None
            ]
            self._row([(var, a) for j, a in pairs for var, _ in self.ways[j].enter], "<=", budget.capacity)
        self._moves()
        self._makespan()
        self._fragmentation()

    # ---- variables ----

    def _whole(self, name: str, most: int = 1) -> Var:
        return self._variable(name, 0, most, pulp.LpInteger)

    def _variable(self, name: str, low: int, high: int | None, kind: str) -> Var:
        add = getattr(self.lp, "add_variable", pulp.LpVariable)  # PuLP 3.3 renamed it for 4.0
        self.vars[name] = add(name, low, high, kind)
        return self.vars[name]

    def _ways(self, j: int) -> Ways:
        """The variables of one job."""
        n, home = self.problem.job_gpus.item(j), self.problem.home[j]
        ways = Ways(certain=home is not None and not may_leave(self.problem, j))
        if home is not None and not ways.certain:
            ways.stay.append((self._whole(f"stay_{j}"), 1))
        if n > 1:
            gang = self.gangs[j]
            ways.enter.extend((self._whole(f"go_{j}_{i}"), 1) for i in range(len(gang.go)))
            for v, sizes in gang.counts.items():
                for q in sizes:
                    ways.on[v][q].append(self._whole(f"count_{j}_{v}_{q}"))
        elif n == 1:
            for c, _, y in self._columns_of(j, new=True):
                ways.enter.append((y, 1))
                ways.on[self.tables.cells[c].node][1].append(y)
        elif may_enter(self.problem, j):
            for v in range(self.problem.nodes):
                if may_use_node(self.problem, j, v) and home != (v,):
                    ways.on[v][1].append(self._whole(f"place_{j}_{v}"))
                    ways.enter.append((ways.on[v][1][0], 1))
        return ways

    def _columns_of(self, j: int, *, new: bool) -> list[tuple[int, int, Var]]:
        """Cell, slowdown and variable of each column in which the job is a newcomer, or stays."""
        return [
            (c, s, y)
            for c, cell in enumerate(self.tables.cells)
            for column, y in zip(cell.columns, self.y[c], strict=True)
            for t, s in zip(column.tenants, column.slowdown, strict=True)
            if t == j and (j in column.new) == new
        ]

    # ---- rows ----

    def _row(self, terms: Iterable[tuple[Var, int]], sense: str, right: int) -> None:
        """One linear row; a row without variables is left out if it holds, as it does here."""
        left: dict[Any, int] = defaultdict(int)
        for var, factor in terms:
            left[var] += factor
        if left:
            how = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}[sense]
            self.lp += pulp.LpConstraint(pulp.LpAffineExpression(left.items()), how, rhs=right)

    def _pay(self, var: Var, cost: int) -> None:
        self.costs[var.name] += cost

    def _one_job(self, j: int) -> None:
        """It stays, enters or is None if it may be; each choice has its cost."""
        ways, problem = self.ways[j], self.problem
        home_columns = self._columns_of(j, new=False)
        for var, _ in ways.stay:
            for c in {c for c, _, _ in home_columns}:
                gpus = [(y, 1) for d, _, y in home_columns if d == c]
                self._row([*gpus, (var, -len(self.tables.cells[c].gpus))], "==", 0)
            self._pay(var, -problem.move_cost.item(j))
            self.constant += problem.move_cost.item(j)
        if not ways.certain:
            self._row([*ways.enter, *ways.stay], "<=" if may_wait(problem, j) else "==", 1)
            self.constant += problem.wait_cost.item(j)
            for var, _ in [*ways.enter, *ways.stay]:
                self._pay(var, -problem.wait_cost.item(j))
        for var, cost, _ in self._runs(j):
            if var is None:
                self.constant += cost
            else:
                self._pay(var, cost)

    def _runs(self, j: int) -> list[tuple[Var | None, int, int | None]]:
        """Each way to run with its cost and end; without a variable if it is certain."""
        problem, n = self.problem, self.problem.job_gpus.item(j)
        if n > 1:
            return [(var, mode.cost, mode.end) for mode, var in self._modes(j)]
        if n == 1:
            columns = self._columns_of(j, new=True) + self._columns_of(j, new=False)
            kinds = [self.tables.cells[c].kind for c, _, _ in columns]
            return [
                (y, price(problem, j, m, s, NVLINK), end(problem, j, m, s, NVLINK))
                for m, (_, s, y) in zip(kinds, columns, strict=True)
            ]
        same = price(problem, j, 0, MILLI, NVLINK), end(problem, j, 0, MILLI, NVLINK)
        choices: list[Var | None] = [var for var, _ in self.ways[j].enter + self.ways[j].stay]
        return [(var, *same) for var in choices + [None] * self.ways[j].certain]

    def _modes(self, j: int) -> list[tuple[Mode, Var]]:
        gang = self.gangs[j]
        go = [(mode, self.vars[f"go_{j}_{i}"]) for i, mode in enumerate(gang.go)]
        return go + [(mode, self._rest(j, i)) for i, mode in enumerate(gang.stay)]

    def _rest(self, j: int, i: int) -> Var:
        name = f"rest_{j}_{i}"
        return self.vars[name] if name in self.vars else self._whole(name)

    def _shape(self, gang: Gang) -> None:
        """All GPUs or none, of one kind, on the allowed nodes; the slowest GPU gives the mode."""
        j, n = gang.job, gang.size
        go = [(mode, self.vars[f"go_{j}_{i}"]) for i, mode in enumerate(gang.go)]
        rest = [(mode, self._rest(j, i)) for i, mode in enumerate(gang.stay)]
        new, old = self._columns_of(j, new=True), self._columns_of(j, new=False)
        for kind in {mode.kind for mode in gang.go}:
            gpus = [(y, 1) for c, _, y in new if self.tables.cells[c].kind == kind]
            self._row(gpus + [(var, -n) for mode, var in go if mode.kind == kind], "==", 0)
        if rest:
            stay = self.ways[j].stay
            self._row(
                [*((var, 1) for _, var in rest), *((var, -1) for var, _ in stay)], "==", 0 if stay else 1
            )
        for kind in {mode.kind for mode in gang.go}:
            of_kind = [(mode, var) for mode, var in go if mode.kind == kind]
            self._slowest(gang, of_kind, [x for x in new if self.tables.cells[x[0]].kind == kind])
        self._slowest(gang, rest, old)
        for c, _, y in new:
            cell = self.tables.cells[c]
            if cell.node not in gang.counts:
                self._row([(y, 1)], "<=", 0)
            if cell.until_s >= 0 and cell.holder != j:
                late = [m for m, _ in go if m.window_s is None or m.window_s > cell.until_s]
                # A GPU of a gang that ends too late is not one of the reserved ones.
                self._row([(y, 1), *((var, n) for m, var in go if m in late)], "<=", n)
        self._nodes(gang, new)

    def _slowest(
        self, gang: Gang, modes: list[tuple[Mode, Var]], columns: list[tuple[int, int, Var]]
    ) -> None:
        """No GPU is slower than the mode's slowdown and at least one is as slow."""
        for c in {c for c, _, _ in columns}:
            most = min(gang.size, len(self.tables.cells[c].gpus))
            for level in {s for d, s, _ in columns if d == c}:
                slow = [(y, 1) for d, s, y in columns if d == c and s >= level]
                self._row([*slow, *((var, -most) for m, var in modes if m.slowdown >= level)], "<=", 0)
        for mode, var in modes:
            self._row([(var, -1), *((y, 1) for _, s, y in columns if s == mode.slowdown)], ">=", 0)

    def _nodes(self, gang: Gang, new: list[tuple[int, int, Var]]) -> None:
        """The number of GPUs on each node is one of the allowed ones, on at most max_nodes nodes."""
        j, problem = gang.job, self.problem
        on = self.ways[j].on
        for v, sizes in on.items():
            gpus = [(y, 1) for c, _, y in new if self.tables.cells[c].node == v]
            self._row([*gpus, *((var, -q) for q, [var] in sizes.items())], "==", 0)
            self._row([(var, 1) for [var] in sizes.values()], "<=", 1)
        here = [(q, var) for sizes in on.values() for q, [var] in sizes.items()]
        self._row([(var, 1) for _, var in here], "<=", problem.max_nodes.item(j))
        if not (problem.equal_per_node or problem.same_index):
            return
        each = {q: self._whole(f"each_{j}_{q}") for q in sorted({q for q, _ in here})}
        self._row([(var, 1) for var in each.values()], "<=", 1)
        for q, var in here:
            self._row([(var, 1), (each[q], -1)], "<=", 0)
        if problem.same_index:
            self._indices(gang, new)

    def _indices(self, gang: Gang, new: list[tuple[int, int, Var]]) -> None:
        """On two nodes that it uses, the gang has the same gpu_index or does not have it."""
        cells, index = self.tables.cells, self.problem.gpu_index
        for v, sizes in self.ways[gang.job].on.items():
            for w, others in self.ways[gang.job].on.items():
                for i in set(index.tolist()) if v != w else ():
                    mine = [(y, 1) for c, _, y in new if cells[c].node == v and index[cells[c].gpus[0]] == i]
                    its = [(y, -1) for c, _, y in new if cells[c].node == w and index[cells[c].gpus[0]] == i]
                    used = [(var, 1) for of in (sizes, others) for [var] in of.values()]
                    self._row([*mine, *its, *used], "<=", 2)

    def _links(self, gang: Gang) -> None:
        """Class 0 if one link group has all of it, else 1 if one node has, else 2."""
        j, n = gang.job, gang.size
        new = self._columns_of(j, new=True)
        go = [self.vars[f"go_{j}_{i}"] for i in range(len(gang.go))]
        inside: Row = []
        for link, cells in gang.groups.items():
            group = self._whole(f"inside_{j}_{link}")
            inside.append((group, -1))
            gpus = [(y, 1) for c, _, y in new if c in cells]
            self._row([*gpus, (group, -n)], ">=", 0)
            self._row([*gpus, (group, -1), *((var, 1 - n) for var in go)], "<=", 0)
        whole = [(var, 1) for sizes in self.ways[j].on.values() if n in sizes for var in sizes[n]]

        def of_class(link: int, sign: int) -> Row:
            return [(var, sign) for mode, var in zip(gang.go, go, strict=True) if mode.link == link]

        self._row([*of_class(NVLINK, 1), *inside], "==", 0)
        self._row([*of_class(NVLINK, -1), *of_class(PCIE, -1), *whole], "<=", 0)
        self._row([*of_class(PCIE, -1), *whole], ">=", 0)
        self._row([*of_class(NETWORK, 1), *whole], "<=", 1)

    def _node(self, v: int) -> None:
        """Host cores and memory, and jobs that want whole nodes."""
        problem = self.problem
        new = {j: sizes for j, ways in enumerate(self.ways) for sizes in [ways.on.get(v)] if sizes}
        home = {j: count for j in range(problem.jobs) for count in [self._at_home(j, v)] if count}
        if not new:
            return
        for part, room in enumerate((problem.node_cpu_milli.item(v), problem.node_memory_mib.item(v))):
            load: Row = []
            for j, sizes in new.items():
                load += [
                    (var, node_demand(problem, j, q)[part]) for q, these in sizes.items() for var in these
                ]
            certain = 0
            for j, count in home.items():
                demand = node_demand(problem, j, count)[part]
                certain += demand if self.ways[j].certain else 0
                load += [(var, demand) for var, _ in self.ways[j].stay]
            self._room(v, part, load, certain, room)
        for a in new:
            for b in {*new, *home} - {a}:
                if problem.node_alone.item(a) or problem.node_alone.item(b):
                    self._apart(v, a, b)

    def _room(self, v: int, part: int, load: Row, certain: int, room: int) -> None:
        """The load fits, unless residents alone pass the room and no newcomer comes."""
        stays = {var.name for ways in self.ways for var, _ in ways.stay}
        excess = certain + sum(demand for var, demand in load if var.name in stays) - room
        if excess <= 0:
            self._row(load, "<=", room - certain)
            return
        entered = self._whole(f"entered_{v}_{part}")
        for ways in self.ways:
            for these in ways.on[v].values() if v in ways.on else ():
                for var in these:
                    self._row([(var, 1), (entered, -int(var.upBound))], "<=", 0)
        self._row([*load, (entered, excess)], "<=", room - certain + excess)

    def _apart(self, v: int, a: int, b: int) -> None:
        """Newcomer a and job b are not both on the node."""
        here = [(var, 1) for these in self.ways[a].on[v].values() for var in these]
        if v in self.ways[b].on:
            there = [(var, 1) for these in self.ways[b].on[v].values() for var in these]
            self._row(here + there, "<=", 1)
        if self._at_home(b, v):
            self._row(here + self.ways[b].stay, "<=", 0 if self.ways[b].certain else 1)

    def _at_home(self, j: int, v: int) -> int:
        """The job's GPUs on its home node, 1 for a job without."""
        home = self.problem.home[j] or ()
        if self.problem.job_gpus.item(j) == 0:
            return int(v in home)
        return sum(self.problem.gpu_node.item(g) == v for g in home)

    def _moves(self) -> None:
        """At most max_moves running jobs leave their homes."""
        stays = [pair for ways in self.ways for pair in ways.stay]
        self._row(stays, ">=", len(stays) - self.problem.max_moves)

    def _makespan(self) -> None:
        """The last end is no earlier than the end of any job."""
        if self.problem.makespan_cost == 0:
            return
        last = self._variable("last_end", 0, None, pulp.LpContinuous)
        self._pay(last, self.problem.makespan_cost)
        for j, ways in enumerate(self.ways):
            late = 0 if ways.certain else max(0, self.problem.deferred_end.item(j))
            sure = [e or 0 for var, _, e in self._runs(j) if var is None]
            ends = [(var, -(e or 0)) for var, _, e in self._runs(j) if var is not None]
            placed = [(var, late) for var, _ in ways.enter + ways.stay]
            self._row([(last, 1), *ends, *placed], ">=", max([late, *sure]))

    def _fragmentation(self) -> None:
        """Nodes with a GPU in use and GPUs with a tenant."""
        by_node: dict[int, list[Row]] = defaultdict(list)
        for cell, ys in zip(self.tables.cells, self.y, strict=True):
            busy = [(y, 1) for column, y in zip(cell.columns, ys, strict=True) if column.tenants]
            for y, _ in busy:
                self._pay(y, self.problem.gpu_open_cost.item(cell.gpus[0]))
            by_node[cell.node].append(busy)
        for v, rows in by_node.items():
            if self.problem.node_used_cost.item(v) == 0:
                continue
            used = self._whole(f"used_{v}")
            self._pay(used, self.problem.node_used_cost.item(v))
            gpus = sum(len(cell.gpus) for cell in self.tables.cells if cell.node == v)
            busy = [pair for row in rows for pair in row]
            self._row([*busy, (used, -gpus)], "<=", 0)
            self._row([*busy, (used, -1)], ">=", 0)

    # ---- the objective and the way back ----

    def minimize(self, scale: float = 1.0) -> None:
        """Set the objective, in the problem's units times ``scale``; a fixed variable carries the constant."""
        one = self.vars["one"] if "one" in self.vars else self._variable("one", 1, 1, pulp.LpContinuous)
        terms = [(self.vars[name], cost * scale) for name, cost in self.costs.items() if cost]
        self.lp.setObjective(pulp.LpAffineExpression([*terms, (one, self.constant * scale)]))

    def placement(self, value: Callable[[Var], int]) -> Placed:
        """The placement that these values mean."""
        spots: dict[int, list[int]] = defaultdict(list)
        for cell, ys in zip(self.tables.cells, self.y, strict=True):
            chosen = [column for column, y in zip(cell.columns, ys, strict=True) for _ in range(value(y))]
            for g, column in zip(cell.gpus, chosen, strict=False):
                for j in column.new:
                    spots[j].append(g)
        for j, ways in enumerate(self.ways):
            if ways.certain or any(value(var) for var, _ in ways.stay):
                spots[j] = list(self.problem.home[j] or ())
            elif self.problem.job_gpus.item(j) == 0:
                spots[j] = [v for v, sizes in ways.on.items() for var in sizes[1] if value(var)]
        return tuple(tuple(sorted(spots[j])) or None for j in range(self.problem.jobs))
