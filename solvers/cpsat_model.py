"""The job-level program in CP-SAT, rule by rule in the words of ``solvers.problem``.

Each cell of GPUs alike chooses one column for each of its GPUs. Jobs with one GPU pay in the column, a gang
chooses one mode and pays there, so that every cost, end and window is a constant and nothing needs a big-M but a
node whose residents break its limits already. Every variable knows its value in a given placement, which is
its hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import gcd

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar, LinearExpr

from solvers.columns import end, may_enter, may_leave, may_use_node, may_wait, node_demand, price
from solvers.modes import Gang, Mode, Tables
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, Placed, Problem
from solvers.view import View

Value = Callable[[View], int]
#: A variable, or the constant of what is certain.
Sure = IntVar | int


class Program:
    """The model, its variables, and the way back to a placement."""

    def __init__(self, problem: Problem, tables: Tables) -> None:
        self.problem = problem
        self.tables = tables
        self.model = cp_model.CpModel()
        self.values: list[tuple[IntVar, Value]] = []
        self.constant = problem.fragmentation_base
        self._costs: dict[int, tuple[IntVar, int]] = {}
        self._jobs = range(problem.jobs)
        self._nodes = range(problem.nodes)

        self.stay = [self._stay_variable(j) for j in self._jobs]
        self.y = [
            [self._column_variable(c, i) for i in range(len(cell.columns))]
            for c, cell in enumerate(tables.cells)
        ]
        self.new, self.home = self._by_tenant()
        self.counts = {gang.job: self._count_variables(gang) for gang in tables.gangs}
        self.at = [self._node_variables(j) for j in self._jobs]
        self.modes = {gang.job: self._mode_variables(gang) for gang in tables.gangs}

        self._columns()
        self._residents()
        self._placed_once()
        for gang in tables.gangs:
            self._gang(gang)
            self._levels(gang)
            self._counts(gang)
            self._links(gang)
            self._window(gang)
        self._host()
        self._whole_node()
        self._budgets()
        self._max_moves()
        self._waiting_and_moves()
        self._running_cost()
        self._makespan()
        self._fragmentation()
        self.divisor = self._minimize()

    # ---- variables ----

    def _bool(self, name: str, value: Value) -> IntVar:
        return self._int(0, 1, name, value)

    def _int(self, low: int, high: int, name: str, value: Value) -> IntVar:
        var = self.model.new_int_var(low, high, name)
        self.values.append((var, value))
        return var

    def _stay_variable(self, j: int) -> Sure:
        """1 if a running job stays."""
        if not may_leave(self.problem, j):
            return int(self.problem.home[j] is not None)
        return self._bool(f"stay[{j}]", lambda view: view.stays(j))

    def _column_variable(self, c: int, i: int) -> IntVar:
        """How many GPUs of the cell have the column."""
        cell = self.tables.cells[c]
        most = min([len(cell.gpus), *(self.problem.job_gpus.item(j) for j in cell.columns[i].new)])
        return self._int(0, most, f"y[{c},{i}]", lambda view: view.chosen(c, i))

    def _by_tenant(self) -> tuple[list[list[tuple[int, int, IntVar]]], list[list[tuple[int, int, IntVar]]]]:
        """For each job the cell, slowdown and variable of the columns that it enters or stays in."""
        new: list[list[tuple[int, int, IntVar]]] = [[] for _ in self._jobs]
        home: list[list[tuple[int, int, IntVar]]] = [[] for _ in self._jobs]
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
                q: self._bool(f"count[{j},{v},{q}]", lambda view, v=v, q=q: int(view.count(j, v) == q))  # type: ignore[misc]
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
                for v in self._nodes
                if allowed and may_use_node(self.problem, j, v) and (v,) != self.problem.home[j]
            ]
        else:
            nodes = sorted({self.tables.cells[c].node for c, _, _ in self.new[j]})
        if n > 1:
            nodes = [v for v in nodes if v in self.counts[j]]
        return {
            v: self._bool(f"at[{j},{v}]", lambda view, v=v: int(view.count(j, v) > 0))  # type: ignore[misc]
            for v in nodes
        }

    def _mode_variables(self, gang: Gang) -> tuple[list[tuple[Mode, IntVar]], list[tuple[Mode, IntVar]]]:
        """1 if the gang runs in the mode, as a newcomer or at home."""
        j = gang.job
        go = [
            (mode, self._bool(f"go[{j},{i}]", lambda view, m=mode: view.enters(j) * view.runs_as(j, m)))  # type: ignore[misc]
            for i, mode in enumerate(gang.go)
        ]
        stay = [
            (mode, self._bool(f"rest[{j},{i}]", lambda view, m=mode: view.stays(j) * view.runs_as(j, m)))  # type: ignore[misc]
            for i, mode in enumerate(gang.stay)
        ]
        return go, stay

    def _enters(self, j: int) -> list[IntVar]:
        """Variables of which one is 1 if the job is a newcomer."""
        if self.problem.job_gpus.item(j) > 1:
            return [var for _, var in self.modes[j][0]]
        return list(self.at[j].values())

    # ---- rules ----

    def _columns(self) -> None:
        """Every GPU has exactly one tenant set."""
        for cell, ys in zip(self.tables.cells, self.y, strict=True):
            self.model.add(LinearExpr.sum(ys) == len(cell.gpus))

    def _residents(self) -> None:
        """A job that stays is a tenant of all its home's GPUs, one that leaves of none."""
        for j in self._jobs:
            if isinstance(self.stay[j], int):
                continue
            for c in {c for c, _, _ in self.home[j]}:
                ys = [y for d, _, y in self.home[j] if d == c]
                self.model.add(LinearExpr.sum(ys) == len(self.tables.cells[c].gpus) * self.stay[j])

    def _placed_once(self) -> None:
        """A job stays, is a newcomer in one place, or is None if it may be."""
        for j in self._jobs:
            total = _sum([(self.stay[j], 1), *((var, 1) for var in self._enters(j))])
            if may_wait(self.problem, j):
                self.model.add(total <= 1)
            else:
                self.model.add(total == 1)
            if self.problem.job_gpus.item(j) == 1:
                for v, at in self.at[j].items():
                    self.model.add(LinearExpr.sum([y for _, y in self._on_node(j, v)]) == at)

    def _gang(self, gang: Gang) -> None:
        """A gang gets all its GPUs, of one kind."""
        go, stay = self.modes[gang.job]
        if stay:
            self.model.add(LinearExpr.sum([var for _, var in stay]) == self.stay[gang.job])
        for kind in {mode.kind for mode, _ in go}:
            gpus = [(y, 1) for c, _, y in self.new[gang.job] if self.tables.cells[c].kind == kind]
            modes = [(var, -gang.size) for mode, var in go if mode.kind == kind]
            self.model.add(_sum(gpus + modes) == 0)

    def _levels(self, gang: Gang) -> None:
        """The slowest GPU decides: none is slower than the mode says, and one is as slow."""
        go, stay = self.modes[gang.job]
        for modes, columns in ((go, self.new[gang.job]), (stay, self.home[gang.job])):
            cells = sorted({c for c, _, _ in columns})
            for c in cells:
                kind = self.tables.cells[c].kind if modes is go else None
                most = min(gang.size, len(self.tables.cells[c].gpus))
                for level in sorted({s for d, s, _ in columns if d == c}):
                    slow = [(y, 1) for d, s, y in columns if d == c and s >= level]
                    allowed = [
                        (var, -most) for m, var in modes if m.slowdown >= level and kind in (None, m.kind)
                    ]
                    self.model.add(_sum(slow + allowed) <= 0)
            for mode, var in modes:
                there = [
                    y
                    for c, s, y in columns
                    if s == mode.slowdown and (modes is stay or self.tables.cells[c].kind == mode.kind)
                ]
                self.model.add(LinearExpr.sum(there) >= var)

    def _counts(self, gang: Gang) -> None:
        """On how many nodes, and with how many GPUs on each."""
        problem, j, counts = self.problem, gang.job, self.counts[gang.job]
        for v, at in self.at[j].items():
            self.model.add(LinearExpr.sum(list(counts[v].values())) == at)
            gpus = [(y, 1) for _, y in self._on_node(j, v)]
            self.model.add(_sum([*gpus, *((var, -q) for q, var in counts[v].items())]) == 0)
        for c, _, y in self.new[j]:
            if self.tables.cells[c].node not in counts:
                self.model.add(y == 0)
        if self.at[j]:
            self.model.add(LinearExpr.sum(list(self.at[j].values())) <= problem.max_nodes.item(j))
        if problem.equal_per_node or problem.same_index:
            self._equal_counts(gang)
        if problem.same_index:
            self._same_index(gang)

    def _equal_counts(self, gang: Gang) -> None:
        """The same number of GPUs on each node."""
        counts = self.counts[gang.job]
        each: dict[int, IntVar] = {}
        for q in sorted({q for sizes in gang.counts.values() for q in sizes}):
            each[q] = self._bool(
                f"each[{gang.job},{q}]",
                lambda view, q=q: int(any(view.count(gang.job, v) == q for v in gang.counts)),  # type: ignore[misc]
            )
            for of_node in counts.values():
                if q in of_node:
                    self.model.add_implication(of_node[q], each[q])
        self.model.add(LinearExpr.sum(list(each.values())) <= 1)

    def _same_index(self, gang: Gang) -> None:
        """The same gpu_index set on each node."""
        j, cells = gang.job, self.tables.cells
        index_of = [self.problem.gpu_index.item(cell.gpus[0]) for cell in cells]
        taken = {
            index: self._bool(f"index[{j},{index}]", lambda view, i=index: view.has_index(j, i))  # type: ignore[misc]
            for index in sorted(set(index_of))
        }
        for v, at in self.at[j].items():
            for index, var in taken.items():
                here = [y for c, y in self._on_node(j, v) if index_of[c] == index]
                self.model.add(_sum([*((y, 1) for y in here), (var, -1), (at, -1)]) >= -1)
                self.model.add(LinearExpr.sum(here) <= var)

    def _links(self, gang: Gang) -> None:
        """Link class 0 in one link group, 1 in one node, 2 otherwise."""
        j, n = gang.job, gang.size
        go = self.modes[j][0]
        inside: dict[int, IntVar] = {}
        for link, cells in gang.groups.items():
            inside[link] = self._bool(f"inside[{j},{link}]", lambda view, c=cells: view.inside(j, c))  # type: ignore[misc]
            gpus = [(y, 1) for c, _, y in self.new[j] if c in cells]
            self.model.add(_sum([*gpus, (inside[link], -n)]) >= 0)
            outside = [(var, 1 - n) for _, var in go]
            self.model.add(_sum([*gpus, *outside, (inside[link], -1)]) <= 0)
        whole = [of_node[n] for of_node in self.counts[j].values() if n in of_node]
        of_class = {i: [var for mode, var in go if mode.link == i] for i in (NVLINK, PCIE, NETWORK)}
        self.model.add(_minus(of_class[NVLINK], list(inside.values())) == 0)
        self.model.add(_minus(of_class[PCIE], whole) <= 0)
        self.model.add(_sum([*((var, 1) for var in of_class[NETWORK] + whole)]) <= 1)
        self.model.add(_minus(whole, of_class[NVLINK] + of_class[PCIE]) <= 0)
        self._groups_in_nodes(gang, inside)

    def _groups_in_nodes(self, gang: Gang, inside: dict[int, IntVar]) -> None:
        """A gang in one of a node's link groups is on that node; implied, and tightens the relaxation."""
        for v, of_node in self.counts[gang.job].items():
            groups = [
                var
                for link, var in inside.items()
                if {self.tables.cells[c].node for c in gang.groups[link]} == {v}
            ]
            if groups and gang.size in of_node:
                self.model.add(LinearExpr.sum(groups) <= of_node[gang.size])

    def _window(self, gang: Gang) -> None:
        """A newcomer on a reserved GPU that it does not hold ends before the reservation."""
        for c in sorted({c for c, _, _ in self.new[gang.job]}):
            cell = self.tables.cells[c]
            if cell.until_s < 0 or cell.holder == gang.job:
                continue
            most = min(gang.size, len(cell.gpus))
            in_time = [
                (var, -most)
                for mode, var in self.modes[gang.job][0]
                if mode.window_s is not None and mode.window_s <= cell.until_s
            ]
            here = [(y, 1) for d, _, y in self.new[gang.job] if d == c]
            self.model.add(_sum(here + in_time) <= 0)

    def _host(self) -> None:
        """The cores and memory of a node's jobs are at most the node's, if a newcomer uses it."""
        for v in self._nodes:
            entered = [at for of_job in self.at for node, at in of_job.items() if node == v]
            if not entered:
                continue
            for part, room in enumerate(
                (self.problem.node_cpu_milli.item(v), self.problem.node_memory_mib.item(v))
            ):
                residents = list(self._resident_demand(v, part))
                excess = sum(demand for _, demand in residents) - room
                demands = residents + list(self._newcomer_demand(v, part))
                if excess > 0:
                    used = self._bool(f"entered[{v},{part}]", lambda view, v=v: view.entered(v))  # type: ignore[misc]
                    self.model.add_max_equality(used, entered)
                    demands.append((used, excess))
                    room += excess
                self.model.add(_sum(demands) <= room)

    def _resident_demand(self, v: int, part: int) -> Iterator[tuple[Sure, int]]:
        for j, home in enumerate(self.problem.home):
            if home is None:
                continue
            n = self.problem.job_gpus.item(j)
            count = sum(self.problem.gpu_node.item(g) == v for g in home) if n else int(v in home)
            if count:
                yield self.stay[j], node_demand(self.problem, j, count)[part]

    def _newcomer_demand(self, v: int, part: int) -> Iterator[tuple[Sure, int]]:
        for j, of_job in enumerate(self.at):
            if v not in of_job:
                continue
            if j in self.counts:
                for q, var in self.counts[j][v].items():
                    yield var, node_demand(self.problem, j, q)[part]
            else:
                yield of_job[v], node_demand(self.problem, j, 1)[part]

    def _whole_node(self) -> None:
        """A job that wants whole nodes shares no node with any other, unless both only stay."""
        for v in self._nodes:
            new = [(j, of_job[v]) for j, of_job in enumerate(self.at) if v in of_job]
            here = [(j, self.stay[j]) for j, _ in enumerate(self.problem.home) if self._is_home(j, v)]
            for a, at in new:
                for b, other in [*((b, o) for b, o in new if b > a), *((b, o) for b, o in here if b != a)]:
                    if self.problem.node_alone.item(a) or self.problem.node_alone.item(b):
                        self.model.add(_sum([(at, 1), (other, 1)]) <= 1)

    def _is_home(self, j: int, v: int) -> bool:
        home = self.problem.home[j] or ()
        if self.problem.job_gpus.item(j) == 0:
            return v in home
        return any(self.problem.gpu_node.item(g) == v for g in home)

    def _budgets(self) -> None:
        """The amounts of the queued jobs placed are at most the capacity."""
        for budget in self.problem.budgets:
            placed = [
                (var, amount)
                for j, amount in zip(budget.jobs, budget.amounts, strict=True)
                if self.problem.home[j] is None
                for var in self._enters(j)
            ]
            self.model.add(_sum(placed) <= budget.capacity)

    def _max_moves(self) -> None:
        """At most max_moves running jobs are moved or preempted."""
        stays = [var for var in self.stay if not isinstance(var, int)]
        self.model.add(len(stays) - LinearExpr.sum(stays) <= self.problem.max_moves)

    # ---- terms ----

    def _charge(self, var: Sure, cost: int) -> None:
        if isinstance(var, int):
            self.constant += var * cost
        else:
            _, before = self._costs.get(var.index, (var, 0))
            self._costs[var.index] = (var, before + cost)

    def _waiting_and_moves(self) -> None:
        """Waiting if None, moves if a running job does not stay."""
        for j in self._jobs:
            waiting = self.problem.wait_cost.item(j)
            self.constant += waiting
            for var in [self.stay[j], *self._enters(j)]:
                self._charge(var, -waiting)
            if self.problem.home[j] is not None:
                self.constant += self.problem.move_cost.item(j)
                self._charge(self.stay[j], -self.problem.move_cost.item(j))

    def _running(self, j: int) -> Iterator[tuple[Sure, int, int | None]]:
        """Each way to be placed, with its cost and its end."""
        problem, n = self.problem, self.problem.job_gpus.item(j)
        if n > 1:
            go, stay = self.modes[j]
            yield from ((var, mode.cost, mode.end) for mode, var in [*go, *stay])
        elif n == 1:
            for c, s, y in [*self.new[j], *self.home[j]]:
                kind = self.tables.cells[c].kind
                yield y, price(problem, j, kind, s, NVLINK), end(problem, j, kind, s, NVLINK)
        else:
            for var in [self.stay[j], *self.at[j].values()]:
                yield var, price(problem, j, 0, MILLI, NVLINK), end(problem, j, 0, MILLI, NVLINK)

    def _running_cost(self) -> None:
        """Speed, interference and locality of the placed jobs."""
        for j in self._jobs:
            for var, cost, _ in self._running(j):
                self._charge(var, cost)

    def _makespan(self) -> None:
        """The largest end over all jobs."""
        if self.problem.makespan_cost == 0:
            return
        top = 0
        latest = []
        for j in self._jobs:
            deferred = max(self.problem.deferred_end.item(j), 0)
            ways = [(var, e or 0) for var, _, e in self._running(j)]
            placed = [(self.stay[j], -deferred), *((var, -deferred) for var in self._enters(j))]
            latest.append((deferred, ways + placed))
            top = max([top, deferred, *(e for _, e in ways)])
        last = self._int(0, top, "last_end", lambda view: view.last_end())
        for deferred, terms in latest:
            self.model.add(last >= _sum(terms) + deferred)
        self._charge(last, self.problem.makespan_cost)

    def _fragmentation(self) -> None:
        """Each node with a GPU in use, each GPU with a tenant."""
        for v in self._nodes:
            cost = self.problem.node_used_cost.item(v)
            cells = [c for c, cell in enumerate(self.tables.cells) if cell.node == v]
            if cost == 0 or not cells:
                continue
            used = self._bool(f"used[{v}]", lambda view, v=v: view.used(v))  # type: ignore[misc]
            busy = [list(self._busy(c)) for c in cells]
            for c, ys in zip(cells, busy, strict=True):
                self.model.add(LinearExpr.sum(ys) <= len(self.tables.cells[c].gpus) * used)
            self.model.add(LinearExpr.sum([y for ys in busy for y in ys]) >= used)
            self._charge(used, cost)
        for c, cell in enumerate(self.tables.cells):
            for y in self._busy(c):
                self._charge(y, self.problem.gpu_open_cost.item(cell.gpus[0]))

    def _busy(self, c: int) -> Iterator[IntVar]:
        """Variables of the columns with a tenant."""
        for column, y in zip(self.tables.cells[c].columns, self.y[c], strict=True):
            if column.tenants:
                yield y

    def _minimize(self) -> int:
        """Minimise the sum of the terms, divided by what all its factors share."""
        divisor = gcd(*(cost for _, cost in self._costs.values())) or 1
        self.model.minimize(_sum([(var, cost // divisor) for var, cost in self._costs.values()]))
        return divisor

    # ---- there and back ----

    def _on_node(self, j: int, v: int) -> Iterator[tuple[int, IntVar]]:
        """Cells and variables of the columns that a newcomer enters on a node."""
        return ((c, y) for c, _, y in self.new[j] if self.tables.cells[c].node == v)

    def hint(self, placed: Placed) -> None:
        """Start from this placement: every variable is hinted, and no older hint is left."""
        view = View(self.problem, self.tables, placed)
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
        for j in self._jobs:
            if self.problem.job_gpus.item(j) == 0:
                spots |= {job: [v] for v, at in self.at[j].items() for job in [j] if value(at)}
        stays = [var if isinstance(var, int) else value(var) for var in self.stay]
        return tuple(
            self.problem.home[j] if stays[j] else tuple(sorted(spots[j])) if j in spots else None
            for j in self._jobs
        )


def _sum(terms: Iterable[tuple[Sure, int]]) -> LinearExpr:
    """Variables and constants with their factors."""
    terms = list(terms)
    variables = [(var, factor) for var, factor in terms if not isinstance(var, int)]
    constant = sum(var * factor for var, factor in terms if isinstance(var, int))
    return (
        LinearExpr.weighted_sum([var for var, _ in variables], [factor for _, factor in variables]) + constant
    )


def _minus(plus: list[IntVar], minus: list[IntVar]) -> LinearExpr:
    return _sum([*((var, 1) for var in plus), *((var, -1) for var in minus)])
