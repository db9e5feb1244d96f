"""The linear program whose duals are the prices: jobs that run, in steps of what waiting costs them, and contents that hold them.

Its columns are contents of a GPU (beside others that may differ) and whole nodes filled by gangs. It is never read as a
bound, so steps, rounding, missing columns, and looking at a sample of the GPUs on which something runs only make prices worse.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from solvers.relaxation import Duals, Pricing, Relaxation

#: Primal simplex, because columns come and rows stay.
OPTIONS: dict[str, bool | int | str] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "simplex_strategy": 4,
}
#: Steps of the waiting cost among the jobs of one row.
STEPS = 32
#: Offerings of a pool looked at: those with most GPUs stand for the others.
SAMPLE = 16
#: Budgets that get a price, those most exceeded by what is asked.
BUDGETS = 40
#: Columns added a round: contents and whole nodes for each pool; contents for each offering at least.
CONTENTS, NODES, FEW = 120, 40, 2
#: Times that one row may occur among the columns added in a round.
OFTEN = 6
#: Contents and sets of whole-node gangs looked at in a round for each pool.
LOOK = 1500
#: The part of a content's worth by which it may fall short of paying for itself.
NEARLY = 0.02

Column = dict[int, float]


class Master:
    """The program so far, with rows: GPUs held by each row of jobs at least as many as run; then pool by pool the GPUs of
    each offering, cores and host memory; then budgets. Whoever runs stays, so the relaxation must allow no moves.
    """

    def __init__(self, relaxed: Relaxation) -> None:
        self.relaxed = relaxed
        problem = relaxed.problem
        per_gpu = problem.wait_cost / np.maximum(problem.job_gpus, 1)
        self.unit = max(1.0, float(np.median(per_gpu))) if problem.jobs else 1.0
        self.sample = [_sample(pool.counts) for pool in relaxed.kin.pools]
        self.budgets = _exceeded(relaxed)
        self.engine = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
        for option, value in OPTIONS.items():
            self.engine.setOptionValue(option, value)
        self.seen: set[tuple[Any, ...]] = set()
        self.columns = 0
        self.objective = np.inf
        self.pool_row: list[int] = []
        self.crowd_row: dict[
            tuple[int, int], int
        ] = {}  # of an offering: slots, memory and share of its crowds
        self.crowd_place = {p: n for n, p in enumerate(relaxed.table.crowd.content.tolist())}
        present = relaxed.at(relaxed.zero())
        self._add_rows()
        self._add_steps()
        for k, sample in enumerate(self.sample):
            for i, _ in sample:
                # What is there if nobody comes or leaves, so that there is a solution to begin with.
                self._add_contents(present, k, i, relaxed.blocks[k].there[i : i + 1], 1)
                self._add_crowd(present, k, i)

    # ---- rows and jobs ----

    def _add_rows(self) -> None:
        relaxed, inf = self.relaxed, highspy.kHighsInf
        rows, problem = relaxed.kin.rows, relaxed.problem
        low, high = [0.0] * len(rows), [inf] * len(rows)
        for k, pool in enumerate(relaxed.kin.pools):
            self.pool_row.append(len(low))
            for i, count in self.sample[k]:
                # Residents that cannot leave are always there.
                empty = not relaxed.kin.offerings[pool.offerings[i]].residents
                low.append(-inf if empty else count * pool.nodes)
                high.append(count * pool.nodes)
            low += [-inf, -inf]
            high += [pool.nodes * float(room > 0) for room in (pool.cpu_milli, pool.memory_mib)]
        for k, sample in enumerate(self.sample):
            for i, _ in sample:
                if self._crowd_of(k, i) is not None:
                    self.crowd_row[k, i] = len(low)
                    low += [-inf] * 3
                    high += [0.0] * 3
        self.budget_row = len(low)
        low += [-inf] * len(self.budgets)
        high += [float(problem.budgets[b].capacity > 0) for b in self.budgets]
        none = np.zeros(0, np.int32)
        n = len(low)
        self.engine.addRows(n, np.array(low), np.array(high), 0, np.zeros(n, np.int32), none, np.zeros(0))

    def _add_steps(self) -> None:
        """Jobs that run, in GPUs: each row's jobs by what waiting costs them, in a few steps."""
        jobs, problem = self.relaxed.jobs, self.relaxed.problem
        drawn = np.zeros((len(jobs.job), len(self.budgets)))
        for i, b in enumerate(self.budgets):
            at, amount = jobs.drawn[b]
            np.add.at(drawn[:, i], at, amount / max(problem.budgets[b].capacity, 1))
        costs: list[float] = []
        columns: list[Column] = []
        upper: list[float] = []
        for run in _alike(jobs.row, drawn, jobs.wait / np.maximum(jobs.gpus, 1)):
            for step in np.array_split(run, min(len(run), STEPS)):
                gpus = float(jobs.gpus[step].sum())
                costs.append(-float(jobs.wait[step].sum()) / gpus / self.unit)
                upper.append(gpus)
                column = {int(jobs.row[run[0]]): -1.0}
                for i in np.flatnonzero(drawn[step[0]]).tolist():
                    column[self.budget_row + i] = float(drawn[step, i].sum()) / gpus
                columns.append(column)
        self._add(costs, columns, upper)

    # ---- columns ----

    def add(self, pricing: Pricing) -> int:
        """Columns worth most at these prices; how many are new."""
        before = self.columns
        for k, sample in enumerate(self.sample):
            blocks, host = self.relaxed.blocks[k], pricing.pools[k].host
            most = max(FEW, 2 * CONTENTS // len(sample) if len(sample) > 1 else CONTENTS)
            look = max(LOOK // len(sample), 4 * most)
            for i, _ in sample:
                b = int(blocks.members[blocks.starts[i]])
                contents = self._best(pricing, host, int(blocks.lows[b]), int(blocks.highs[b]), look)
                self._add_contents(pricing, k, i, contents, most)
            if blocks.groups is not None:
                self._add_nodes(pricing, k)
        return self.columns - before

    def _best(self, pricing: Pricing, host: np.ndarray, low: int, high: int, look: int) -> np.ndarray:
        """The contents worth most after paying for cores and host memory."""
        here = slice(low, high)
        net = pricing.content[here] - host[0] * pricing.cpu[here] - host[1] * pricing.memory[here]
        look = min(look, len(net))
        top = np.argpartition(-net, look - 1)[:look]
        # Where cores or host memory are what is scarce, nothing is worth more than what stays there, alone: the first.
        top = top[net[top] >= net[0] - NEARLY * pricing.content[here].max(initial=0.0)]
        best: np.ndarray = top[np.argsort(-net[top], kind="stable")] + low
        return best

    def _add_contents(self, pricing: Pricing, k: int, i: int, contents: np.ndarray, most: int) -> None:
        """Columns of the pool's offering ``i``: the first new ones of these contents, no row too often."""
        t = self.relaxed.table
        at = self.pool_row[k] + [place for place, _ in self.sample[k]].index(i)
        entries = pricing.entry[t.slots[contents]]
        fresh = [
            (p, key[3:], there)
            for p, taken, there in zip(
                contents.tolist(), entries.tolist(), self.relaxed.row_of[entries].tolist(), strict=True
            )
            if len(key := (k, i, p, *(e for e in taken if e < len(t.row)))) > 3 and key not in self.seen
        ]
        columns = []
        for p, taken, _ in _varied(fresh, most):
            self.seen.add((k, i, p, *taken))
            columns.append(self._content(k, i, at, p, taken))
        self._add([cost / self.unit for cost, _ in columns], [column for _, column in columns])

    def _content(self, k: int, i: int, at: int, p: int, taken: tuple[int, ...]) -> tuple[float, Column]:
        """Cost and column of a GPU with a content, or of one of a crowd; who else is there comes with the crowd."""
        t = self.relaxed.table
        crowd = self.crowd_place.get(p)
        if crowd is None:
            column = {at: 1.0}
            cost = float(t.opening[p]) + sum(self._take(column, e, 1.0) for e in taken)
            self._use_host(column, k, float(t.cpu[p]), float(t.memory[p]))
        else:
            row = self.crowd_row[k, i]
            column = {row + r: float(x) for r, x in enumerate(t.crowd.fill[crowd]) if x}
            cost = self._take(column, taken[0], 1.0)
            self._use_host(column, k, float(t.crowd.cpu[crowd]), float(t.crowd.memory[crowd]))
        return cost, column

    def _take(self, column: Column, entry: int, times: float) -> float:
        """Enter who takes a slot so many times, and what that costs."""
        t = self.relaxed.table
        row = int(t.row[entry])
        if row >= 0:
            column[row] = column.get(row, 0.0) + times
        return times * float(t.cost[entry])

    def _use_host(self, column: Column, k: int, cpu: float, memory: float) -> None:
        pool = self.relaxed.kin.pools[k]
        at = self.pool_row[k] + len(self.sample[k])
        for i, (use, room) in enumerate(((cpu, pool.cpu_milli), (memory, pool.memory_mib))):
            if use > 0:
                column[at + i] = use / room if room > 0 else use

    def _crowd_of(self, k: int, i: int) -> int | None:
        """The first content that stands for a crowd of those that an offering has if everybody stays."""
        blocks, crowd = self.relaxed.blocks[k], self.relaxed.table.crowd.content
        b = int(blocks.members[blocks.starts[i]])
        at = int(np.searchsorted(crowd, blocks.lows[b]))
        return int(crowd[at]) if at < len(crowd) and crowd[at] < blocks.highs[b] else None

    def _add_crowd(self, pricing: Pricing, k: int, i: int) -> None:
        """A GPU with a crowd: its slots, memory and share, and those who are there anyway."""
        p = self._crowd_of(k, i)
        if p is None:
            return
        t = self.relaxed.table
        n, row = self.crowd_place[p], self.crowd_row[k, i]
        column = {self.pool_row[k] + [place for place, _ in self.sample[k]].index(i): 1.0}
        column |= dict.fromkeys(range(row, row + 3), -1.0)
        cost = float(t.opening[p])
        cost += sum(
            self._take(column, e, 1.0) for e in pricing.entry[t.slots[p, 1:]].tolist() if e < len(t.row)
        )
        self._use_host(column, k, float(t.cpu[p] - t.crowd.cpu[n]), float(t.memory[p] - t.crowd.memory[n]))
        self._add([cost / self.unit], [column])

    def _add_nodes(self, pricing: Pricing, k: int) -> None:
        """Whole nodes of the sets of gangs that are worth most, no gang too often."""
        groups, worth = self.relaxed.blocks[k].groups, pricing.pools[k]
        assert groups is not None
        costs: list[float] = []
        columns: list[Column] = []
        used: dict[int, int] = {}
        for g in np.argsort(-worth.groups, kind="stable")[:LOOK].tolist():
            if len(costs) == NODES or worth.groups[g] <= 0:
                break
            big = int(groups.bigs[g])
            parts = zip(worth.picks[g].tolist(), worth.parts[g].tolist(), strict=True)
            mixed = [(p, x) for p, x in parts if p >= 0 and x > 1e-9]
            # Parts that do not add up leave GPUs on which the gangs have no room.
            if big and sum(x for _, x in mixed) > 1 - 1e-6:
                self._add_node(pricing, k, big, mixed, used, costs, columns)
        self._add(costs, columns)

    def _add_node(
        self,
        pricing: Pricing,
        k: int,
        big: int,
        mixed: list[tuple[int, float]],
        used: dict[int, int],
        costs: list[float],
        columns: list[Column],
    ) -> None:
        """A node whose GPUs hold these parts of contents, with the gangs, which pay for their slowest GPU."""
        t, count, at = self.relaxed.table, float(self.relaxed.kin.pools[k].counts[0]), self.pool_row[k]
        slowest = [
            min((pricing.slot[t.slots[p, i]], int(t.slots[p, i])) for p, _ in mixed)[1] for i in range(big)
        ]
        gangs = pricing.entry[slowest].tolist()
        rows = t.row[gangs].tolist()
        others = [[e for e in pricing.entry[t.slots[p, big:]].tolist() if e < len(t.row)] for p, _ in mixed]
        key = (k, *((p, round(x, 4), *e) for (p, x), e in zip(mixed, others, strict=True)), *gangs)
        if key in self.seen or any(used.get(r, 0) >= OFTEN for r in rows):
            return
        self.seen.add(key)
        for r in rows:
            used[r] = used.get(r, 0) + 1
        column = {at: count, at + 1: 1.0, at + 2: 1.0}
        cost = sum(self._take(column, e, count) for e in gangs)
        for (p, x), entries in zip(mixed, others, strict=True):
            cost += x * count * float(t.opening[p])
            cost += sum(self._take(column, e, x * count) for e in entries)
        costs.append(cost / self.unit)
        columns.append(column)

    def _add(
        self,
        costs: list[float],
        columns: list[Column],
        upper: list[float] | None = None,
    ) -> None:
        n = len(costs)
        if not n:
            return
        self.columns += n
        start = np.cumsum([0] + [len(c) for c in columns[:-1]]).astype(np.int32)
        index = np.array([r for c in columns for r in c], np.int32)
        value = np.array([x for c in columns for x in c.values()], float)
        high = np.array(upper, float) if upper else np.full(n, highspy.kHighsInf)
        self.engine.addCols(n, np.array(costs, float), np.zeros(n), high, len(index), start, index, value)

    # ---- duals ----

    def solve(self, seconds: float) -> Duals | None:
        """The duals of the present columns, None if the solver has none."""
        self.engine.setOptionValue("time_limit", self.engine.getRunTime() + max(seconds, 0.01))
        self.engine.run()
        dual = np.array(self.engine.getSolution().row_dual)
        optimal = self.engine.getModelStatus() == highspy.HighsModelStatus.kOptimal
        if not optimal or len(dual) != self.budget_row + len(self.budgets) or not np.isfinite(dual).all():
            return None
        self.objective = float(self.engine.getInfo().objective_function_value)
        problem = self.relaxed.problem
        budget = np.zeros(len(problem.budgets))
        for b, price in zip(self.budgets, dual[self.budget_row :].tolist(), strict=True):
            budget[b] = max(-price, 0.0) * self.unit / max(problem.budgets[b].capacity, 1)
        row = np.maximum(dual[: len(self.relaxed.kin.rows)], 0) * self.unit
        return Duals(row, budget, 0.0)

    @property
    def cost(self) -> float:
        """What the program costs less than if all waited."""
        return self.objective * self.unit

    @property
    def value(self) -> float:
        """What the program costs, to compare with the bound; inf if it looks at a sample, whose cost says little."""
        pools = self.relaxed.kin.pools
        if any(len(s) < len(pool.counts) for s, pool in zip(self.sample, pools, strict=True)):
            return np.inf
        jobs = self.relaxed.jobs
        waits = jobs.wait[np.isfinite(jobs.wait) & (jobs.row >= 0)].sum()
        free = np.minimum(jobs.wait, jobs.run)[jobs.row < 0].sum()
        return float(self.relaxed.fixed + self.cost + waits + free)


def _sample(counts: tuple[int, ...]) -> list[tuple[int, float]]:
    """Offerings with most GPUs and how many GPUs each stands for."""
    some = np.sort(np.argsort(-np.array(counts), kind="stable")[:SAMPLE])
    scale = sum(counts) / max(sum(counts[i] for i in some), 1)
    return [(int(i), counts[i] * scale) for i in some]


def _exceeded(relaxed: Relaxation) -> list[int]:
    """Budgets that could bind, those most exceeded by what is asked of them."""
    asked = [float(amount.sum()) for _, amount in relaxed.jobs.drawn]
    capacity = [max(budget.capacity, 0) for budget in relaxed.problem.budgets]
    binding = [b for b, total in enumerate(asked) if total > capacity[b]]
    return sorted(binding, key=lambda b: (capacity[b] / asked[b], b))[:BUDGETS]


def _alike(row: np.ndarray, drawn: np.ndarray, per_gpu: np.ndarray) -> list[np.ndarray]:
    """Jobs of one row that draw the same from budgets, by what waiting costs each GPU."""
    group = np.unique(drawn, axis=0, return_inverse=True)[1].reshape(len(row)) if drawn.size else 0 * row
    order = np.lexsort((per_gpu, group, row))
    order = order[row[order] >= 0]
    key = np.stack([row[order], group[order]], 1)
    cuts = np.flatnonzero((key[1:] != key[:-1]).any(1)) + 1
    return [run for run in np.split(order, cuts) if len(run)]


def _varied(
    fresh: list[tuple[int, tuple[int, ...], list[int]]], most: int
) -> list[tuple[int, tuple[int, ...], list[int]]]:
    """The first of these contents (with who takes them, and rows), no row too often unless there are too few others."""
    used: dict[int, int] = {}
    chosen, others = [], []
    for content in fresh:
        rows = [r for r in content[2] if r >= 0]
        if any(used.get(r, 0) >= OFTEN for r in rows):
            others.append(content)
            continue
        chosen.append(content)
        if len(chosen) == most:
            return chosen
        for r in rows:
            used[r] = used.get(r, 0) + 1
    return chosen + others[: max(0, most // 2 - len(chosen))]
