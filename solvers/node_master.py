"""The linear program over node columns, and plans rounded from it.

    minimise  sum over columns of cost x  -  sum over classes and steps of wait y
    subject to  columns of a shape <= its nodes;  sum of y of a class <= what columns hold of it;  0 <= y <= members of a step

A step is a group of a class's members whose waiting costs much the same. The duals of the class rows are the prices of the
column generation; the program over the columns found is no bound, only a guide (Dantzig and Wolfe 1960; diving heuristics
for column generation: Sadykov et al., INFORMS J. Comput. 2019).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import highspy
import numpy as np

from solvers.node_columns import Column, NodeColumns
from solvers.problem import Placed

#: Prices (C,), amounts used (C,), shapes, columns to begin from -> columns.
Generate = Callable[[np.ndarray, np.ndarray, list[int], list[int]], list[Column]]

#: Steps that a class's waiting costs are grouped into.
GROUPS = 6
#: Columns in the program from which a plan is dived for.
DIVE_COLUMNS = 1500
#: The part of the nodes left that is fixed at once when no column is whole.
FIXED_AT_ONCE = 0.12


class Master:
    """The program under way; ``prices`` (C,) and ``rents`` (S,) are its duals, ``value`` (K,) its columns."""

    def __init__(self, made: NodeColumns) -> None:
        self.made = made
        self.shapes, self.classes = len(made.nodes), made.classes
        self.supply = np.array([len(members) for members in made.members], float)
        self.nodes = np.array([len(nodes) for nodes in made.nodes], float)
        self.scale = max(1.0, float(made.worth.max(initial=1)) / 1e4)
        self.columns: list[int] = []
        self.lp = _program(self.nodes, np.zeros(self.classes))
        self.steps = _steps(made)
        self.first = self.add_supply(self.lp)
        self.prices, self.rents = np.zeros(self.classes), np.zeros(self.shapes)
        self.value = np.zeros(0)
        self.objective = 0.0

    def add(self, columns: range) -> None:
        """Bring in columns by their number and solve again."""
        new = [self.made.columns[i] for i in columns]
        _add(self.lp, new, [self.coefficients(column) for column in new], self.shapes, self.scale)
        self.columns += columns
        self.solve()

    def coefficients(self, column: Column) -> dict[int, float]:
        """What a column holds of each class, in whole jobs."""
        held: dict[int, float] = {}
        for c, _ in column.holds:
            held[c] = held.get(c, 0.0) + 1.0 / self.made.split_into[c]
        return held

    def solve(self) -> None:
        """Duals and values as they are now."""
        self.lp.run()
        solution = self.lp.getSolution()
        duals = np.maximum(0.0, -np.array(solution.row_dual)) * self.scale
        self.rents, self.prices = duals[: self.shapes], duals[self.shapes :]
        self.value = np.array(solution.col_value)[self.first :]
        self.objective = float(self.lp.getInfo().objective_function_value) * self.scale

    def best_columns(self) -> list[int]:
        """The numbers of the columns worth rounding, those in use first."""
        order = np.argsort(-self.value, kind="stable")[:DIVE_COLUMNS].tolist()
        return [self.columns[i] for i in order]

    def restricted(self, numbers: list[int]) -> highspy.Highs:
        """The same program over some of the columns, not solved yet."""
        lp = _program(self.nodes, np.zeros(self.classes))
        self.add_supply(lp)
        columns = [self.made.columns[i] for i in numbers]
        _add(lp, columns, [self.coefficients(column) for column in columns], self.shapes, self.scale)
        return lp

    def add_supply(self, lp: highspy.Highs) -> int:
        """The steps of every class, as columns before all others; how many they are."""
        rows: list[int] = []
        cost: list[float] = []
        upper: list[float] = []
        for c, steps in enumerate(self.steps):
            for wait, count in steps:
                rows.append(self.shapes + c)
                cost.append(-wait / self.scale)
                upper.append(float(count))
        n = len(rows)
        if n:
            lp.addCols(
                n, np.array(cost), np.zeros(n), np.array(upper), n, np.arange(n, dtype=np.int32),
                np.array(rows, dtype=np.int32), np.ones(n),
            )  # fmt: skip
        return n


def _steps(made: NodeColumns) -> list[list[tuple[float, int]]]:
    """Mean waiting cost and number of members of the groups of each class, falling."""
    out = []
    for members in made.members:
        groups = np.array_split(made.worth[members].astype(float), min(GROUPS, len(members)))
        out.append([(float(group.mean()), len(group)) for group in groups])
    return out


def _program(nodes: np.ndarray, supply: np.ndarray) -> highspy.Highs:
    """Rows only: nodes of the shapes, then what is left of the classes."""
    lp = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("presolve", "off"),
        ("simplex_strategy", 4),
    ):
        lp.setOptionValue(option, setting)
    n = len(nodes) + len(supply)
    none = np.zeros(0, dtype=np.int32)
    lp.addRows(
        n,
        np.full(n, -highspy.kHighsInf),
        np.r_[nodes, supply],
        0,
        np.zeros(n, dtype=np.int32),
        none,
        np.zeros(0),
    )
    return lp


def _add(
    lp: highspy.Highs, columns: list[Column], held: list[dict[int, float]], shapes: int, scale: float
) -> None:
    """Columns in bulk."""
    starts: list[int] = []
    rows: list[int] = []
    values: list[float] = []
    cost: list[float] = []
    for column, of in zip(columns, held, strict=True):
        starts.append(len(rows))
        rows += [column.shape, *(shapes + c for c in of)]
        values += [1.0, *(-amount for amount in of.values())]
        cost.append(column.cost / scale)
    n = len(columns)
    if n:
        lp.addCols(
            n, np.array(cost, float), np.zeros(n), np.full(n, highspy.kHighsInf), len(rows),
            np.array(starts, dtype=np.int32), np.array(rows, dtype=np.int32), np.array(values),
        )  # fmt: skip


class Dive:
    """A choice of columns, one for every node, found by fixing and solving again.

    Whole values are taken first, then by and by the largest fractions. A gang that has got one of its parts gets the others
    at once, because a part alone is worth nothing. After each step columns are generated for the jobs that are left: the
    old ones hold jobs that are gone (diving with column generation: Sadykov et al., INFORMS J. Comput. 2019).

    Parameters
    ----------
    generate
        Makes columns, given the prices of the classes, how much of each class is used, the shapes with nodes left, and the
        columns in use; None to dive in the columns there are.
    """

    def __init__(self, master: Master, generate: Generate | None = None) -> None:
        self.master, self.made, self.generate = master, master.made, generate
        self.picked = master.best_columns()
        self.held = [master.coefficients(self.made.columns[i]) for i in self.picked]
        self.lp = master.restricted(self.picked)
        self.lp.setOptionValue("simplex_strategy", 1)  # dual: only bounds change from one program to the next
        self.left, self.used = master.nodes.copy(), np.zeros(master.classes)
        self.chosen: list[int] = []
        self.partial: dict[tuple[int, int], float] = {}  # (class, GPU kind) of gangs: parts chosen
        self.value, self.reduced = np.zeros(0), np.zeros(0)
        self.prices = np.zeros(master.classes)

    def run(self, deadline: float) -> list[int]:
        """Numbers of columns with repetitions."""
        while self.left.sum() > 0:
            self._solve()
            if self.generate is not None and self.chosen and time.monotonic() < deadline:
                self._grow(self.generate)
            before = len(self.chosen)
            self._take_whole()
            hurry = time.monotonic() > deadline
            if len(self.chosen) == before or hurry:
                self._take_largest(
                    int(self.left.sum()) if hurry else int(FIXED_AT_ONCE * self.left.sum()) + 1
                )
            if len(self.chosen) == before:
                break
            self._complete()
        return self.chosen

    def _grow(self, generate: Generate) -> None:
        """Columns for what is left, and the program solved with them."""
        shapes = np.flatnonzero(self.left > 0).tolist()
        starts = [self.picked[at] for at in np.flatnonzero(self.value > 1e-6).tolist()]
        new, known = [], set(self.picked)
        for column in generate(self.prices, self.used, shapes, starts):
            self.made.add(column)
            number = self.made.number[column.key]
            if number not in known:
                known.add(number)
                new.append(number)
        if new:
            columns = [self.made.columns[i] for i in new]
            held = [self.master.coefficients(column) for column in columns]
            _add(self.lp, columns, held, self.master.shapes, self.master.scale)
            self.picked += new
            self.held += held
            self._solve()

    def _solve(self) -> None:
        rows = self.master.shapes + self.master.classes
        bounds = np.r_[self.left, self.used].tolist()
        for row in range(rows):  # HiGHS has all rows at once only in newer versions
            self.lp.changeRowBounds(row, -highspy.kHighsInf, bounds[row])
        self.lp.run()
        solution = self.lp.getSolution()
        self.value = np.array(solution.col_value)[self.master.first :]
        self.reduced = np.array(solution.col_dual)[self.master.first :]
        duals = np.array(solution.row_dual)[self.master.shapes :]
        self.prices = np.maximum(0.0, -duals) * self.master.scale

    def _fits(self, at: int) -> bool:
        return self.left[self.made.columns[self.picked[at]].shape] >= 1 and all(
            self.used[c] + amount <= self.master.supply[c] + 1e-9 for c, amount in self.held[at].items()
        )

    def _take(self, at: int) -> None:
        column = self.made.columns[self.picked[at]]
        self.left[column.shape] -= 1
        for c, amount in self.held[at].items():
            self.used[c] += amount
            if self.made.split_into[c] > 1:
                key = c, self.made.kind_of_shape[column.shape]
                self.partial[key] = self.partial.get(key, 0) + amount * self.made.split_into[c]
        self.chosen.append(self.picked[at])

    def _take_whole(self) -> None:
        for at in np.flatnonzero(self.value >= 1 - 1e-6).tolist():
            for _ in range(int(self.value[at] + 1e-6)):
                if self._fits(at):
                    self._take(at)

    def _take_largest(self, want: int) -> None:
        for at in np.argsort(-self.value, kind="stable").tolist():
            if self.value[at] < 1e-6 or not want:
                break
            if self._fits(at):
                self._take(at)
                want -= 1

    def _complete(self) -> None:
        """The missing parts of gangs, from the columns that cost the program least."""
        for _ in range(4):
            missing = [key for key, count in self.partial.items() if count % self.made.split_into[key[0]]]
            for c, kind in missing:
                able = [
                    at
                    for at, held in enumerate(self.held)
                    if c in held
                    and self.made.kind_of_shape[self.made.columns[self.picked[at]].shape] == kind
                    and self._fits(at)
                ]
                if able:
                    self._take(min(able, key=lambda at: (-self.value[at], self.reduced[at])))
            if not missing:
                return


def plan_of(made: NodeColumns, chosen: list[int]) -> Placed:
    """Real nodes and jobs for the columns chosen; parts of a gang without a partner are left out.

    Budgets are kept. Reservations are not looked at, and a GPU's gate may not hold without a job that is left out.
    """
    problem = made.problem
    free = [list(reversed(nodes)) for nodes in made.nodes]
    waiting = [list(reversed(members)) for members in made.members]
    room = [budget.capacity for budget in problem.budgets]
    parts: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
    placed: list[tuple[int, ...] | None] = list(problem.home)
    for number in chosen:
        column = made.columns[number]
        if not free[column.shape]:
            continue
        v = free[column.shape].pop()
        for c, places in column.holds:
            gpus = [made.gpus_of[v][i] for i in places]
            if made.split_into[c] > 1:
                indices = sorted(problem.gpu_index[gpus].tolist()) if problem.same_index else ()
                key = c, made.kind_of_shape[column.shape], *indices
                parts.setdefault(key, []).append((v, gpus))
            elif (j := _next(made, waiting[c], room)) is not None:
                placed[j] = tuple(sorted(gpus))
    for (c, *_), of in parts.items():
        for gpus in _joined(of, made.split_into[c]):
            if (j := _next(made, waiting[c], room)) is not None:
                placed[j] = tuple(sorted(gpus))
    return tuple(placed)


def _next(made: NodeColumns, waiting: list[int], room: list[int]) -> int | None:
    """The next member of a class for whom there is room in the budgets, and less room after it."""
    while waiting:
        j = waiting.pop()
        drawn = made.budget_of.get(j, [])
        if all(room[b] >= amount for b, amount in drawn):
            for b, amount in drawn:
                room[b] -= amount
            return j
    return None


def _joined(parts: list[tuple[int, list[int]]], into: int) -> list[list[int]]:
    """As many gangs of so many parts, each part on a node of its own, as there can be; parts are dealt node by node."""
    on: dict[int, list[list[int]]] = {}
    for v, gpus in parts:
        on.setdefault(v, []).append(gpus)
    count = len(parts) // into
    while sum(min(count, len(there)) for there in on.values()) < count * into:
        count -= 1
    # A node's parts follow each other and are no more than the gangs, so no gang gets two of them.
    dealt = [gpus for there in on.values() for gpus in there[:count]][: count * into]
    return [[g for gpus in dealt[i::count] for g in gpus] for i in range(count)]
