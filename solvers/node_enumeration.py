"""All columns of a node whose reduced cost is within a limit, found exactly.

A linear program over the contents of single GPUs bounds what a node can hold at given prices. Branch and bound on it decides which
gangs are on the node and between which slowdowns each is, as fractions of gangs and means of slowdowns are what makes it weak. In a leaf
the duals charge every content its reduced cost, and every item left out its shadow price, so that contents are put together item by item
and all that passes the limit is cut off (column enumeration by reduced cost: Baldacci, Christofides and Mingozzi 2008).
"""

from __future__ import annotations

import heapq
import time
from itertools import combinations

import highspy
import numpy as np

from solvers.node_filling import SLACK, Bounded, Branch, Filling
from solvers.node_items import STAY, Column, Content, Node, TooLarge

#: Residents of a node that may all stay or leave, at most.
MOST_STAYS = 10
#: Costs are solved in units of this many milli-GPU-seconds.
UNIT = 10_000.0
#: Steps of putting contents together between two looks at the clock.
LOOK = 256
#: They take as long as so many linear programs.
LOOK_WORK = 5
#: And as many steps as this, what one set of contents costs on a node.
OFFER = 20
#: A gang's slowdowns are told apart until they matter less than this part of what the limit leaves.
SPREAD = 2.0
#: Where good columns are looked for first: parts of what lies between the bound and the limit.
PARTS = (0.3, 1.0)


class OutOfTime(Exception):
    """The deadline has passed."""


class Enumerator:
    """Finds columns of one shape at any prices."""

    def __init__(self, node: Node, shape: int) -> None:
        self.node, self.shape = node, shape
        self.contents, items = node.contents, node.items
        self.gangs = [i for i, gang in enumerate(node.is_gang) if gang]
        self.gang_of = {i: at for at, i in enumerate(self.gangs)}
        self.need = np.array([items[i].gpus for i in self.gangs], np.int64)
        self.weight = np.array([node.weight(item) for item in items])
        self.sizes = [len(gpus) for gpus in node.classes]
        self.cls = np.array([c.cls for c in self.contents], np.int64)
        self.cost = np.array([c.cost for c in self.contents], float)
        self.base_cost = float(min(0, node.problem.node_used_cost[node.v]))
        self.room = np.array(
            [node.problem.node_cpu_milli[node.v], node.problem.node_memory_mib[node.v]], float
        )
        self.by_items = {(c.cls, tuple(sorted(c.items))): c for c in self.contents}
        self.number = {(item.job, item.role, item.kind, item.gpus): i for i, item in enumerate(items)}
        self._pairs()
        self._program()
        self.quiet = self._quiet()
        self.least = -np.inf

    def _pairs(self) -> None:
        """Items of contents as pairs, and the levels of the gangs' slowdowns with what each costs at least."""
        node = self.node
        pairs = [(c, i) for c, content in enumerate(self.contents) for i in content.items]
        self.pair_content, self.pair_item = np.array(pairs, np.int64).reshape(-1, 2).T
        slows = [set[int]() for _ in self.gangs]
        for content in self.contents:
            for i, s in content.gangs:
                slows[self.gang_of[i]].add(s)
        self.levels = [sorted(of) for of in slows]
        self.envelope = np.zeros((len(self.gangs), max(map(len, self.levels), default=0) + 1))
        for g, i in enumerate(self.gangs):
            item = node.items[i]
            costs = [min(node.cost(item, s, k) for k in item.links) for s in self.levels[g]]
            least = np.minimum.accumulate(np.array(costs[::-1], float))[::-1]
            # Three terms are rounded down, so a part may cost that much less than its share.
            self.envelope[g, : len(costs)] = least * self.weight[i]
        gangs = [(c, self.gang_of[i], s) for c, content in enumerate(self.contents) for i, s in content.gangs]
        self.gang_content = np.array([c for c, _, _ in gangs], np.int64)
        self.gang_at = np.array([g for _, g, _ in gangs], np.int64)
        self.gang_level = np.array([self.levels[g].index(s) for _, g, s in gangs], np.int64)

    def _program(self) -> None:
        """Rows: GPUs of each class, each item, cores, host memory; columns: contents, then a lack of each gang."""
        node, n = self.node, len(self.contents)
        lp = self.lp = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
        for option, setting in (("output_flag", False), ("threads", 1), ("presolve", "off")):
            lp.setOptionValue(option, setting)
        classes, items = len(self.sizes), len(node.items)
        self.rows_low = np.r_[np.array(self.sizes, float), np.zeros(items), [-highspy.kHighsInf] * 2]
        self.rows_high = np.r_[np.array(self.sizes, float), np.ones(items), self.room]
        self.rows_high[classes + np.array(self.gangs, np.int64)] = self.need
        self.item_cpu = np.array([item.cpu / max(1, item.gpus) for item in node.items])
        self.item_memory = np.array([item.memory / max(1, item.gpus) for item in node.items])
        none, zero = np.zeros(0, np.int32), np.zeros(0)
        m = len(self.rows_low)
        lp.addRows(m, self.rows_low, self.rows_high, 0, np.zeros(m, np.int32), none, zero)
        self.upper = np.array([1.0 if c.cls < 0 else float(self.sizes[c.cls]) for c in self.contents])
        self.use = np.stack(
            [
                np.bincount(self.pair_content, per[self.pair_item], n)
                for per in (self.item_cpu, self.item_memory)
            ]
        )
        starts, rows, values = list[int](), list[int](), list[float]()
        for c, content in enumerate(self.contents):
            starts.append(len(rows))
            rows += [content.cls] * (content.cls >= 0) + [classes + i for i in content.items]
            values += [1.0] * ((content.cls >= 0) + len(content.items))
            rows += [classes + items, classes + items + 1]
            values += self.use[:, c].tolist()
        for i in self.gangs:
            starts.append(len(rows))
            rows.append(classes + i)
            values.append(1.0)
        total = n + len(self.gangs)
        lp.addCols(
            total, np.zeros(total), np.zeros(total), np.r_[self.upper, self.need], len(rows),
            np.array(starts, np.int32), np.array(rows, np.int32), np.array(values),
        )  # fmt: skip

    def _quiet(self) -> list[Column]:
        """Columns without a newcomer, which no rule can forbid."""
        items = self.node.items
        stays = [i for i, item in enumerate(items) if item.role == STAY]
        if len(stays) > MOST_STAYS:
            raise TooLarge(f"node {self.node.v} has {len(stays)} running jobs")
        found = []
        for r in range(len(stays) + 1):
            for some in combinations(stays, r):
                contents = [Content(-1, (i,), 0, ()) for i in some if not items[i].gpus]
                for cls, gpus in enumerate(self.node.classes):
                    here = tuple(i for i in some if items[i].gpus and gpus[0] in items[i].home)
                    one = self.node.content(cls, gpus[0], here)
                    contents += [one] * len(gpus) if one is not None else []
                if sum(c.cls >= 0 for c in contents) == len(self.node.gpus):
                    column = self.node.column(self.shape, contents)
                    found += [] if column is None else [column]
        return found

    def holding(self, on: dict[int, tuple[int, ...]]) -> Column | None:
        """The column with these items on these GPUs, None if there is none (it may be cheaper elsewhere on the node)."""
        held: dict[int, list[int]] = {g: [] for g in self.node.gpus}
        contents = []
        for i, gpus in on.items():
            for g in gpus:
                held[g].append(i)
            if not gpus:
                contents.append(self.by_items.get((-1, (i,))))
        for cls, members in enumerate(self.node.classes):
            contents += [self.by_items.get((cls, tuple(sorted(held[g])))) for g in members]
        known = [c for c in contents if c is not None]
        return self.node.column(self.shape, known) if len(known) == len(contents) else None

    # ---- prices ----

    def reduced(self, column: Column, price: np.ndarray) -> float:
        """A column's cost less the prices (I,) of its items; parts are charged their share."""
        items = self.node.items
        parts = sum(self.weight[i] * self.node.cost(items[i], s, items[i].links[0]) for i, s in column.parts)
        return float(column.cost + parts - price[list(column.items)].sum())

    def run(
        self,
        price: np.ndarray,
        limit: float,
        most: int,
        deadline: float,
        patience: float = np.inf,
        empty: bool = False,
    ) -> tuple[list[Column], bool]:
        """Columns with a reduced cost up to the limit, and whether these are all.

        It stops at ``most`` columns, and after ``patience`` linear programs with any, or with none as well. No column has a reduced cost below
        ``least`` or below the limit, whichever is less.
        """
        self.start(price)
        self.limit, self.most, self.deadline = limit, most, deadline
        self.patience, self.empty = patience, empty
        self.found: dict[object, Column] = {}
        self.steps = 0
        for column in self.quiet:
            if self.reduced(column, price) <= limit:
                self.found[column.key] = column
        heap = [(-np.inf, 0, self._root())]
        number, cut = 0, np.inf
        while heap and len(self.found) < self.most:
            self.look(1)
            branch = heapq.heappop(heap)[2]
            bounded = self._bound(branch)
            if bounded.bound > limit + SLACK:
                continue
            children = self._children(branch, bounded)
            if not children:
                self._fill(branch, bounded)
                cut = bounded.bound if len(self.found) >= self.most else cut
            for child in children:
                number -= 1
                heapq.heappush(heap, (bounded.bound, number, child))
        found = list(self.found.values())
        reduced = min((self.reduced(column, price) for column in found), default=np.inf)
        self.least = min(limit, reduced, cut, heap[0][0] if heap else np.inf) - SLACK
        return found, not heap and len(self.found) < self.most

    def best(
        self, price: np.ndarray, limit: float, most: int, deadline: float, patience: float, empty: bool
    ) -> list[Column]:
        """Some columns with a reduced cost up to the limit, if there are any: good ones first; none has less than ``least``."""
        self.start(price)
        bound = self._bound(self._root()).bound
        least = min([bound, *(self.reduced(column, price) for column in self.quiet)]) - SLACK
        found: list[Column] = []
        for part in PARTS if bound < limit else ():
            if not found:
                found, _ = self.run(price, bound + part * (limit - bound), most, deadline, patience, empty)
                least = max(least, self.least)
        self.least = least
        return found

    def start(self, price: np.ndarray) -> None:
        """Charge new prices (I,)."""
        self.price = price
        paid = np.where(self.node.is_gang, 0.0, price)[self.pair_item]
        self.single = self.cost - np.bincount(self.pair_content, paid, len(self.contents))

    def _root(self) -> Branch:
        gangs = len(self.gangs)
        return Branch((-1,) * gangs, (0,) * gangs, tuple(len(levels) - 1 for levels in self.levels))

    def look(self, work: int) -> None:
        """A look at the clock, after work that counts as so many linear programs."""
        if time.monotonic() > self.deadline:
            raise OutOfTime
        self.patience -= work
        if self.patience < 0 and (self.found or self.empty):
            self.most = 0

    def _fill(self, branch: Branch, bounded: Bounded) -> None:
        """All of a leaf."""
        low = {i: branch.low[g] for g, i in enumerate(self.gangs) if branch.on[g] == 1}

        def charge(i: int, slow: int) -> float:
            g = self.gang_of[i]
            level = max(self.levels[g].index(slow), low[i])
            return float(self.envelope[g, level]) / int(self.need[g])

        least = {
            i: float(self.envelope[self.gang_of[i], level]) / self.node.items[i].gpus
            for i, level in low.items()
        }
        budget = self.limit + SLACK - bounded.bound
        Filling(self.node, least, charge, budget, bounded, self._offer, self._go_on).run()

    def _offer(self, contents: list[Content]) -> None:
        """Keep what contents make of a node if it is within the limit."""
        self.steps += OFFER
        column = self.node.column(self.shape, contents)
        if column is None or self.reduced(column, self.price) > self.limit:
            return
        known = self.found.get(column.key)
        if known is None or column.cost < known.cost:
            self.found[column.key] = column

    def _go_on(self) -> bool:
        """Are there too few columns yet?"""
        self.steps += 1
        if self.steps >= LOOK:
            self.steps = 0
            self.look(LOOK_WORK)
        return len(self.found) < self.most

    def _bound(self, branch: Branch) -> Bounded:
        """The linear program of a branch; its bound is worked out from the duals alone."""
        n, classes, items = len(self.contents), len(self.sizes), len(self.node.items)
        on, low, high = (np.array(each, np.int64) for each in (branch.on, branch.low, branch.high))
        g = self.gang_at
        cost, upper = self.single.copy(), self.upper.copy()
        if len(g):
            charge = self.envelope[g, np.maximum(self.gang_level, low[g])] - self.price[self.gangs][g]
            cost += np.bincount(self.gang_content, charge / self.need[g], n)
            upper[self.gang_content[(on[g] == 0) | (self.gang_level > high[g])]] = 0.0
        every = np.arange(n + len(self.gangs), dtype=np.int32)
        lack = 4 * (np.abs(self.envelope).max(initial=0.0) + np.abs(self.price).max(initial=0.0) + UNIT)
        costs = np.r_[cost, np.full(len(self.gangs), lack)] / UNIT
        self.lp.changeColsCost(len(every), every, costs)
        self.lp.changeColsBounds(len(every), every, np.zeros(len(every)), np.r_[upper, self.need])
        low_rows = self.rows_low.copy()
        for at, i in enumerate(self.gangs):
            low_rows[classes + i] = self.need[at] if branch.on[at] == 1 else 0.0
            self.lp.changeRowBounds(classes + i, low_rows[classes + i], self.rows_high[classes + i])
        self.lp.run()
        solution = self.lp.getSolution()
        dual = np.array(solution.row_dual) * UNIT
        dual[-2:] = np.minimum(dual[-2:], 0.0)
        item = dual[classes : classes + items]
        open_rows = low_rows[classes : classes + items] == 0.0
        item[open_rows] = np.minimum(item[open_rows], 0.0)
        reduced = cost - np.bincount(self.pair_content, item[self.pair_item], n) - dual[-2:] @ self.use
        allowed = upper > 0
        rent = np.zeros(classes)
        for cls in range(classes):
            here = allowed & (self.cls == cls)
            rent[cls] = reduced[here].min(initial=np.inf) if here.any() else np.inf
        reduced = np.where(allowed, reduced - np.r_[rent, 0.0][self.cls], np.inf)
        free = (self.cls < 0) & allowed
        bound = self.base_cost + float(rent @ self.sizes) + float(np.minimum(reduced[free], 0).sum())
        lacking = np.minimum(lack - item[self.gangs], 0) @ self.need if len(self.gangs) else 0.0
        bound += float(
            item
            @ np.where(
                item > 0, low_rows[classes : classes + items], self.rows_high[classes : classes + items]
            )
        )
        bound += float(dual[-2:] @ self.room) + float(lacking)
        return Bounded(bound, reduced, -item, -dual[-2:], np.array(solution.col_value)[:n])

    def _children(self, branch: Branch, bounded: Bounded) -> list[Branch]:
        """Two branches, the likelier last; none if contents can be put together as it is."""
        if not self.gangs:
            return []
        value = bounded.value[self.gang_content]
        share = np.bincount(self.gang_at, value, len(self.gangs)) / self.need
        undecided = [g for g in range(len(self.gangs)) if branch.on[g] < 0]
        if undecided:
            g = max(undecided, key=lambda g: min(share[g], 1 - share[g]))
            out = Branch(_set(branch.on, g, 0), branch.low, branch.high)
            into = Branch(_set(branch.on, g, 1), branch.low, branch.high)
            return [out, into] if share[g] > 0.5 else [into, out]
        left = SPREAD * max(self.limit - bounded.bound, 0.0)
        for g in (g for g in range(len(self.gangs)) if branch.on[g] == 1):
            low, high = branch.low[g], branch.high[g]
            costs = self.envelope[g]
            if low == high or costs[high] - costs[low] <= left:
                continue
            middle = costs[low] + (costs[high] - costs[low]) / 2
            cut = (
                int(
                    np.clip(
                        np.searchsorted(costs[low : high + 1], middle, side="right") - 1, 0, high - low - 1
                    )
                )
                + low
            )
            lower = Branch(branch.on, branch.low, _set(branch.high, g, cut))
            upper = Branch(branch.on, _set(branch.low, g, cut + 1), branch.high)
            return [upper, lower]
        return []


def _set(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
