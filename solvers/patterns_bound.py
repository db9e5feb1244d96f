"""A lower bound from GPU contents and whole-node gangs, better the longer it may take.

The bound of ``solvers.relaxation`` at prices that are the duals of ``solvers.patterns_master``, smoothed towards the best so far
(Wentges 1997). Whatever ends it, what it has is a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solvers.movers import settle
from solvers.patterns_master import Master
from solvers.problem import Problem
from solvers.relaxation import Duals, Pricing, Relaxation

#: Stop when better prices could lift the bound by no more than this part of what it is above the unavoidable.
GAP = 2e-4
#: The part of the new duals in the next prices, far from the end and near it.
STEP, NEAR = 0.5, 0.9
CLOSE = 2e-3
#: Rounds of pricing who may leave, and the gap from which on that is worth while.
SETTLE, SETTLED = 2, 0.05
#: Rounds in which bound and program may come closer by less than the gap.
PATIENCE = 6


@dataclass(frozen=True, eq=False)
class Prices:
    """What running a job is charged, in milli-GPU-seconds; a warm start for the next time.

    Attributes
    ----------
    job
        Shape (J,); NaN for jobs without a price (no GPUs, or they can only stay).
    budget
        Per unit of each budget, shape (budgets,).
    move
        Per move or preemption.
    """

    job: np.ndarray
    budget: np.ndarray
    move: float


@dataclass(frozen=True)
class Found:
    """A bound, the prices that give it, and how it came about."""

    bound: int
    prices: Prices
    rounds: int
    seconds: float
    closed: bool  # no prices would give a much better one
    end: int  # ticks of the makespan that it charges
    master: Master | None = (
        None  # the linear program with all its columns, tens of MiB; who may leave stays in it
    )


def pattern_bound(
    problem: Problem,
    deadline: float,
    *,
    prices: Prices | None = None,
    rounds: int | None = None,
    report: Callable[[int], None] | None = None,
) -> Found | None:
    """The best bound by a deadline, on the clock of ``time.monotonic``; None if it comes too soon for any.

    Parameters
    ----------
    prices
        Where to begin: the prices of an earlier call, for these jobs (the mean of a row's known prices counts).
    rounds
        Rounds of the linear program at most; with a deadline that is far enough, the clock then decides nothing.
    report
        Told of every better bound.
    """
    began = time.monotonic()
    if began >= deadline:
        return None
    search = _Search(Relaxation(problem), report, began)
    warm = None if prices is None else _warm(search.relaxed, prices)
    search.attempt(search.relaxed.zero() if warm is None else warm)
    search.run(deadline, warm, rounds)
    return search.found()


class _Search:
    """The best prices so far."""

    def __init__(self, relaxed: Relaxation, report: Callable[[int], None] | None, began: float) -> None:
        self.relaxed, self.report, self.began = relaxed, report, began
        self.best: Duals | None = None
        self.bound = -np.inf
        self.rounds = 0
        self.closed = False
        self.master: Master | None = None
        # Prices of the queue are found as if everybody stayed; those who may leave are priced after them.
        self.leave = bool(relaxed.kin.rows.runs.any())
        self.calm = Relaxation(replace(relaxed.problem, max_moves=0)) if self.leave else relaxed

    def attempt(self, duals: Duals) -> Pricing:
        """Evaluate prices; keep them if they are the best."""
        pricing = self.relaxed.at(duals)
        if pricing.bound > self.bound:
            self.bound, self.best = pricing.bound, duals
            if self.report:
                self.report(int(np.floor(self.bound)))
        return pricing

    def attempt_calm(self, duals: Duals, settled: bool) -> Pricing:
        """The same for prices found as if everybody stayed, once they are any good."""
        if not self.leave:
            return self.attempt(duals)
        pricing = self.calm.at(duals)
        if settled:
            self.settle(duals)
        return pricing

    def settle(self, duals: Duals) -> None:
        """Price who may leave, given the prices of the queue: from no prices on, as bad ones would lead to worse."""
        rows, calm = self.relaxed.kin.rows, np.r_[duals.row, 0.0]
        queue = calm[self.calm.kin.rows.of[rows.first]]
        whole = Duals(np.where(rows.runs, 0.0, queue), duals.budget, 0.0)
        for _ in range(SETTLE):
            whole = settle(self.relaxed, whole, self.attempt(whole))
        self.attempt(whole)

    def run(self, deadline: float, warm: Duals | None, rounds: int | None) -> None:
        """Rounds of the linear program until it can hardly lift the bound."""
        master = self.master = Master(self.calm)
        centre = None
        if warm is not None:
            centre = self._calm_prices(warm)
            master.add(self.calm.at(centre))
        for part in STARTS:
            if time.monotonic() < deadline:
                master.add(self.calm.at(_flat(self.calm, part)))
        best, cost, step, idle, gap = -np.inf, np.inf, STEP, 0, np.inf
        while time.monotonic() < deadline and (rounds is None or self.rounds < rounds):
            duals = master.solve(deadline - time.monotonic())
            if duals is None:
                break
            trial = duals if centre is None else centre.towards(duals, step)
            pricing = self.attempt_calm(trial, settled=gap < SETTLED or self.rounds % 5 == 4)
            self.rounds += 1
            new = master.add(pricing)
            # Of what the plan decides: the longest job may be most of the cost.
            scale = max(abs(max(best, pricing.bound) - self.calm.fixed), 1.0)
            better = pricing.bound > best + GAP * scale or master.cost < cost - GAP * scale
            idle, cost = 0 if better else idle + 1, master.cost
            if pricing.bound > best:
                best, centre = pricing.bound, trial
            gap = (master.value - best) / scale
            if gap <= GAP or idle == PATIENCE or (not new and step == 1.0):
                self.closed = True
                break
            step = 1.0 if not new else STEP if gap > CLOSE else NEAR
        if self.leave and centre is not None:
            self.settle(centre)

    def _calm_prices(self, duals: Duals) -> Duals:
        """The prices of the queue alone."""
        row = duals.row[self.relaxed.kin.rows.of[self.calm.kin.rows.first]]
        return Duals(row, duals.budget, 0.0)

    def found(self) -> Found:
        """The best so far."""
        assert self.best is not None
        kin = self.relaxed.kin
        job = np.r_[self.best.row * kin.rows.gpus, np.nan][kin.rows.of]
        prices = Prices(job, self.best.budget, self.best.move)
        return Found(
            bound=int(np.floor(self.bound)),
            prices=prices,
            rounds=self.rounds,
            seconds=time.monotonic() - self.began,
            closed=self.closed,
            end=self.relaxed.end,
            master=self.master,
        )


#: Parts of the mean waiting cost at which the first columns are worth adding.
STARTS = (0.4, 0.7, 1.0)


def _flat(relaxed: Relaxation, part: float) -> Duals:
    """A part of the mean waiting cost of each row."""
    rows, p = relaxed.kin.rows, relaxed.problem
    total = np.bincount(rows.of[rows.of >= 0], p.wait_cost[rows.of >= 0], len(rows))
    return Duals(part * total / np.maximum(rows.jobs * rows.gpus, 1), np.zeros(len(p.budgets)), 0.0)


def _warm(relaxed: Relaxation, prices: Prices) -> Duals:
    """The prices of the rows: the mean of their jobs', 0 where none is known."""
    rows = relaxed.kin.rows
    known = (rows.of >= 0) & np.isfinite(prices.job)
    total = np.bincount(rows.of[known], prices.job[known], len(rows))
    jobs = np.bincount(rows.of[known], minlength=len(rows))
    budget = prices.budget if len(prices.budget) == len(relaxed.problem.budgets) else relaxed.zero().budget
    return Duals(np.maximum(total / np.maximum(jobs * rows.gpus, 1), 0), budget, max(prices.move, 0.0))
