"""The linear program over columns, by column generation with exact pricing, and every column that a better plan can use.

    minimise  sum over columns of cost x  +  sum over jobs of wait y
    subject to  columns with a job + y = 1;  columns of a shape = its nodes;  budgets;  moves

Prices of jobs and rents of nodes are its duals. With the least reduced cost of each shape they give a bound (Lagrange).
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import highspy
import numpy as np

from solvers.node_choice import Choice
from solvers.node_enumeration import Enumerator
from solvers.node_items import PART, STAY, WHOLE, Column, Node, TooLarge
from solvers.node_shapes import inhabited, shapes
from solvers.patterns_bound import Prices
from solvers.problem import MILLI, Problem

#: Columns of a shape that are too many.
MOST_COLUMNS = 20_000
#: Columns taken of a shape in one round of column generation.
BATCH = 60
#: Costs are solved in units of this many milli-GPU-seconds.
UNIT = 10_000.0
#: Linear programs after which pricing is content with what it has: at first, and at most after it was with nothing.
PATIENCE, MOST_PATIENCE = 100, 1600
#: The part of the way to the best duals so far at which columns are priced.
INWARD = 0.7
#: Close enough to the program's value: in milli-GPU-seconds, and as a part of what lies between that and the target.
CLOSE, CLOSE_PART = 500.0, 0.4
#: A job that waits for a part between this and the rest is undecided.
UNDECIDED = 0.02


@dataclass(frozen=True, order=True)
class Range:
    """Plans whose latest end is from ``low`` to ``high`` ticks; none of them that is better than the best known costs less than ``bound``."""

    bound: float
    number: int
    low: int
    high: int
    floor: float  # the same before anybody's lateness is charged
    must: frozenset[int] = frozenset()  # jobs that run
    out: frozenset[int] = frozenset()  # jobs that wait


@dataclass(frozen=True, eq=False)
class Duals:
    """Rents of shapes (S,), prices of jobs (J,) and, at most 0, of budgets and moves (budgets + 1,)."""

    rents: np.ndarray
    job: np.ndarray
    scarce: np.ndarray

    def towards(self, inner: Duals, part: float) -> Duals:
        """A part of the way to other duals; what is cut off here is cut off at the outer ones if the inner are feasible.

        (Wentges 1997.)
        """
        pairs = (self.rents, inner.rents), (self.job, inner.job), (self.scarce, inner.scarce)
        return Duals(*((1 - part) * outer + part * other for outer, other in pairs))


class Program:
    """The linear program over columns for the plans of a range, in which nobody ends after ``last``."""

    def __init__(self, problem: Problem, of: Range, last: int, deadline: float) -> None:
        speed = problem.speed_milli.copy()
        speed[sorted(of.out)] = 0
        problem = replace(problem, speed_milli=speed)
        self.problem, self.deadline = problem, deadline
        open_to = np.vstack([problem.node_sets, problem.node_closed])
        self.shapes, self.nodes = shapes(problem, range(problem.nodes), open_to, inhabited(problem))
        longest = _longest(problem)
        self.made = [
            Enumerator(Node(problem, nodes[0], last, of.low, longest), k)
            for k, nodes in enumerate(self.nodes)
        ]
        late = (problem.deferred_end > last) & (problem.makespan_cost > 0)
        runs = np.array([home is not None for home in problem.home], bool)
        keeps = runs & ~(np.asarray(problem.preemptible, bool) & (problem.max_moves > 0))
        must = late | keeps
        must[sorted(of.must)] = True
        wait = problem.wait_cost + np.where(runs, problem.move_cost, 0)
        if longest >= 0:
            lateness = max(0, int(problem.deferred_end[longest]) - of.low)
            wait[longest] += 0 if must[longest] else problem.makespan_cost * lateness
        # Who may not wait does so in the linear program at a price that no plan would pay.
        never = 4 * int(wait.max(initial=0)) + 4 * int(UNIT)
        self.wait = np.where(must, never, wait).astype(float)
        self.must = must
        self.runs = runs
        self.columns: dict[object, Column] = {}
        self.bound = -math.inf
        self.patience = PATIENCE
        self.point: Duals | None = None  # where the bound is from
        self.first: Duals | None = None  # where to look for one first
        self._start()

    def _start(self) -> None:
        """Rows: jobs, shapes, budgets, moves; columns: who waits."""
        p = self.problem
        jobs, budgets = p.jobs, len(p.budgets)
        lp = self.lp = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
        for option, setting in (("output_flag", False), ("threads", 1), ("presolve", "off")):
            lp.setOptionValue(option, setting)
        self.amount = np.zeros((budgets, jobs))
        for b, budget in enumerate(p.budgets):
            for j, amount in zip(budget.jobs, budget.amounts, strict=True):
                self.amount[b, j] += amount if p.home[j] is None else 0
        capacity = np.array([b.capacity for b in p.budgets], float)
        sizes = np.array([len(nodes) for nodes in self.nodes], float)
        inf = highspy.kHighsInf
        self.high = np.r_[np.ones(jobs), sizes, capacity, float(p.max_moves)]
        low = np.r_[np.ones(jobs), sizes, np.full(budgets + 1, -inf)]
        m = len(self.high)
        lp.addRows(m, low, self.high, 0, np.zeros(m, np.int32), np.zeros(0, np.int32), np.zeros(0))
        for j in range(jobs):
            rows, values = [j], [1.0]
            if self.runs[j]:
                rows, values = [j, m - 1], [1.0, 1.0]
            lp.addCol(self.wait[j] / UNIT, 0.0, inf, len(rows), np.array(rows, np.int32), np.array(values))
        for made in self.made:
            self.add(made.quiet)

    def add(self, columns: list[Column]) -> int:
        """Bring columns in; how many are new or cheaper than before."""
        p, new = self.problem, 0
        for column in columns:
            known = self.columns.get(column.key)
            if known is not None and known.cost <= column.cost:
                continue
            self.columns[column.key] = column
            made = self.made[column.shape]
            held: dict[int, float] = defaultdict(float)
            held[p.jobs + column.shape] = 1.0
            for i in column.items:
                item, weight = made.node.items[i], float(made.weight[i])
                held[item.job] += weight
                for b in np.flatnonzero(self.amount[:, item.job]).tolist():
                    held[p.jobs + len(self.nodes) + b] += weight * self.amount[b, item.job]
                if self.runs[item.job] and item.role != STAY:
                    held[len(self.high) - 1] += weight
            cost = made.reduced(column, np.zeros(len(made.node.items)))
            rows = np.array(sorted(held), np.int32)
            self.lp.addCol(
                cost / UNIT,
                0.0,
                highspy.kHighsInf,
                len(rows),
                rows,
                np.array([held[r] for r in rows.tolist()]),
            )
            new += 1
        return new

    def begin(self, prices: Prices) -> None:
        """Begin where another relaxation has its bound from; there, who runs and has no price is where it is in any case."""
        job = np.where(self.runs & np.isnan(prices.job), self.wait, np.nan_to_num(prices.job))
        job += prices.budget @ self.amount
        self.first = Duals(np.zeros(len(self.nodes)), job, -np.r_[prices.budget, prices.move])

    def take_over(self, old: Program) -> None:
        """Bring in another program's columns as far as they are allowed here, and begin where its bound is from."""
        self.first = old.point or old.first
        for column in old.columns.values():
            made, before = self.made[column.shape], old.made[column.shape].node.items
            items = [before[i] for i in column.items]
            numbers = [made.number.get((item.job, item.role, item.kind, item.gpus)) for item in items]
            known = [i for i in numbers if i is not None]
            if len(known) == len(numbers):
                same = made.holding(dict(zip(known, column.spots, strict=True)))
                self.add([] if same is None else [same])

    def learn(self, placed: list[tuple[int, tuple[int, ...]]], v: int) -> None:
        """Bring in what a node holds: jobs and all their GPUs, or their node, of which those on node v count."""
        p, k = self.problem, int(self.shapes[v])
        made = self.made[k]
        away = dict(zip(np.flatnonzero(p.gpu_node == v).tolist(), made.node.gpus, strict=True))
        on: dict[int, tuple[int, ...]] = {}
        for j, spot in placed:
            here = tuple(g for g in spot if p.gpu_node[g] == v) if p.job_gpus[j] else ()
            if not here and (p.job_gpus[j] or spot != (v,)):
                continue
            role = STAY if spot == p.home[j] else PART if p.job_gpus[j] != len(here) else WHOLE
            i = made.number.get((j, role, int(p.gpu_kind[here[0]]) if here else -1, len(here)))
            if i is None:
                return
            on[i] = tuple(sorted(away[g] for g in here))
        column = made.holding(on)
        self.add([] if column is None else [column])

    def solve(self) -> Duals:
        """The duals of the linear program over the columns so far."""
        self.lp.run()
        dual = np.array(self.lp.getSolution().row_dual) * UNIT
        jobs, shapes = self.problem.jobs, len(self.nodes)
        return self._clipped(Duals(dual[jobs : jobs + shapes], dual[:jobs], dual[jobs + shapes :]))

    def _clipped(self, duals: Duals) -> Duals:
        """Duals at which waiting costs no less than its price, and nobody is paid for using up what is scarce."""
        scarce = np.minimum(duals.scarce, 0.0)
        # A waiting job that runs pays for its move as well.
        job = np.minimum(duals.job, self.wait - np.where(self.runs, scarce[-1], 0.0))
        return Duals(duals.rents, job, scarce)

    def _prices(self, duals: Duals) -> list[np.ndarray]:
        """Prices of the items of each shape."""
        prices = []
        for made in self.made:
            each = []
            for i, item in enumerate(made.node.items):
                price = duals.job[item.job] + float(duals.scarce[:-1] @ self.amount[:, item.job])
                price += duals.scarce[-1] if self.runs[item.job] and item.role != STAY else 0.0
                each.append(float(made.weight[i]) * price)
            prices.append(np.array(each))
        return prices

    def _value(self, duals: Duals) -> float:
        """The bound of duals, if no column of a shape has a reduced cost below its rent."""
        jobs, shapes = self.problem.jobs, len(self.nodes)
        sizes = self.high[jobs : jobs + shapes]
        return float(duals.job.sum() + duals.scarce @ self.high[jobs + shapes :] + duals.rents @ sizes)

    def run(self, target: float, close: float = CLOSE_PART, enough: float = 0.0) -> bool:
        """Find the bound for plans that cost less than the target, and columns for it; False if it is no closer than enough.

        It need not come closer to the target than enough, nor to the linear program than a part of what lies between the
        two.

        Raises
        ------
        OutOfTime
            The bound may still be better than before.
        """
        if self.point is None and self.first is not None:
            self._price(self._clipped(self.first), empty=True)
        inward = INWARD
        while self.bound < target - enough:
            outer = self.solve()
            value = self._value(outer)
            if value - self.bound <= max(CLOSE, close * (target - value)):
                return False
            inner = self.point or outer
            before = self.bound
            new = self._price(outer.towards(inner, inward), inward > 0)
            if not new and self.bound <= before and not inward:
                return False
            inward = INWARD if new else inward - 0.35 if inward > 0.4 else 0.0
        return True

    def _price(self, at: Duals, empty: bool) -> int:
        """Bring in columns whose reduced cost is below their rents, and bound; how many are new.

        There may be more than none, unless it may come back empty-handed.
        """
        new, prices = 0, self._prices(at)
        for k, made in enumerate(self.made):
            new += self.add(
                made.best(prices[k], at.rents[k] - 1.0, BATCH, self.deadline, self.patience, empty)
            )
        if not new:
            self.patience = min(2 * self.patience, MOST_PATIENCE)
        point = replace(at, rents=np.array([made.least for made in self.made]))
        bound = self._value(point)
        if bound > self.bound:
            self.bound, self.point = bound, point
        return new

    def undecided(self) -> int | None:
        """The queued job whose waiting is a fraction that costs the most, None if all of them wait or run."""
        queued = ~self.runs & ~self.must & (self.problem.job_gpus > 0)
        waits = np.clip(np.array(self.lp.getSolution().col_value)[: self.problem.jobs], 0, 1)
        part = np.where(queued, np.minimum(waits, 1 - waits), 0.0)
        worth = np.where(part > UNDECIDED, part * self.wait, 0.0)
        return int(worth.argmax()) if worth.any() else None

    def choice(self, columns: list[Column]) -> Choice:
        """The program over some columns in whole numbers."""
        return Choice(self.problem, self.made, self.nodes, self.wait, self.must, columns)

    def every(self, target: float, patience: float) -> list[Column] | None:
        """Every column that a plan cheaper than the target can use, after ``run``; None if it is too much work.

        Raises
        ------
        OutOfTime, TooLarge
        """
        columns: list[Column] = []
        assert self.point is not None
        prices = self._prices(self.point)
        for k, made in enumerate(self.made):
            # The other nodes cost at least their rents, so no node of a better plan is further above its own.
            limit = self.point.rents[k] + max(0.0, target - self.bound)
            found, whole = made.run(prices[k], limit, MOST_COLUMNS, self.deadline, patience, True)
            if not whole and made.patience < 0:
                return None
            if not whole:
                raise TooLarge(f"more than {MOST_COLUMNS} columns of a shape")
            columns += found
        return columns


def _longest(p: Problem) -> int:
    """The job that most likely decides the makespan: it ends last if all run at their best; -1 if there is none."""
    if not p.makespan_cost or not (p.work >= 0).any():
        return -1
    speed = np.where(p.job_gpus > 0, p.speed_milli.max(1, initial=1), MILLI)
    return int((np.maximum(p.work, 0) / np.maximum(speed, 1)).argmax())
