"""What guides a search, found beside it: the bound, whose prices say what jobs are worth, and a plan from contents of single GPUs."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from solvers.bound import lower_bound
from solvers.incumbent import Incumbent
from solvers.makespan_ranges import Ranges
from solvers.memory import trim
from solvers.patterns_bound import Found, Prices, pattern_bound
from solvers.problem import Placed, Problem
from solvers.sliced import sliced
from solvers.warm import Warm

#: The part of the limit by which the bound should be done, and that where one thread does everything in turn.
BOUND_BY, BOUND_ALONE = 0.6, 0.25
#: In deterministic mode, rounds for the bound for each second of the limit.
BOUND_ROUNDS_PER_S = 2
#: There, what else is done is what a machine at half of an ordinary one's speed can do in this part of the limit, each.
SHARE = 0.2
#: What slices take, in seconds and seconds a node; and a range of the makespan, in seconds and seconds a job.
SLICED_S, RANGE_S = (0.2, 0.0025), (0.1, 0.001)
#: Jobs beyond which ranges of the makespan lift the bound by too little, and their part of the limit each time.
RANGED_JOBS, RANGES = 1500, 0.1
#: Nodes from which a plan from slices is better than a sweep, and the part of the limit by which it has to be there.
SLICED_NODES, SLICED_BY = 64, 0.9

#: Nodes from which it is worth waiting for, and when it should be there: after so many seconds, and one more for so many nodes.
WAITING_NODES, WAITED_S, WAITED_NODES_PER_S = 200, 2.0, 200


class Guide:
    """The guidance of one solve.

    Attributes
    ----------
    prices : Prices or None
        Those of the bound; before it is found, those of an earlier solve.
    placed : Placed or None
        A plan from slices; GPUs may be left free.
    trouble : str
        What went wrong in a thread, for the record.
    """

    def __init__(self, problem: Problem, known: Incumbent, warm: Warm | None, workers: int) -> None:
        self.problem, self.known, self.limits = problem, known, known.limits
        self.by = BOUND_BY if workers > 1 else BOUND_ALONE
        self.prices = None if warm is None else _prices(warm)
        self.warm = warm is not None
        self.found: Found | None = None
        self.placed: Placed | None = None
        self.trouble = ""
        self._ranges: Ranges | None = None

    @property
    def job_prices(self) -> np.ndarray | None:
        """What the bound of this very problem charges jobs, shape (J,), once it is known."""
        return None if self.found is None else self.found.prices.job

    def is_worth_waiting_for(self) -> bool:
        """Is the cluster so large that a search cannot keep up with a plan from slices, and is there time for that?"""
        nodes, wall_s = self.problem.nodes, self.limits.wall_s
        soon = WAITED_S + nodes / WAITED_NODES_PER_S <= SLICED_BY * wall_s
        return nodes >= WAITING_NODES and soon and not self.warm

    def beside(self, find: Callable[[], None]) -> threading.Thread:
        """Call a method in a thread of its own; a search without guidance is better than none."""

        def work() -> None:
            try:
                find()
            except Exception as error:
                self.trouble = f", no more guidance ({type(error).__name__}: {error})"
            trim()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def find(self) -> None:
        """The bound; on large clusters then a plan from slices."""
        wall_s, fixed = self.limits.wall_s, self.limits.deterministic
        if self.known.bound is None:
            # It is soon there, and at times the higher: it prices the cores of jobs without GPUs.
            self.known.bounded(lower_bound(self.problem))
        self.found = pattern_bound(
            self.problem,
            self.known.ends_at if fixed else self.known.began + self.by * wall_s,
            prices=self.prices,
            rounds=1 + int(BOUND_ROUNDS_PER_S * wall_s) if fixed else None,
            report=self.known.bounded,
        )
        if self.found is None:
            return
        self.prices = self.found.prices
        self.known.bounded(self.found.bound)
        planned_s = SLICED_S[0] + SLICED_S[1] * self.problem.nodes
        in_time = not fixed or planned_s <= SHARE * wall_s
        if self.problem.nodes >= SLICED_NODES and in_time and not self.warm:
            trim()
            until = self.known.ends_at if fixed else self.known.began + SLICED_BY * wall_s
            if self.found.master is not None:
                self.placed = sliced(self.problem, self.found.master, until)
        self.found = replace(self.found, master=None)

    def sharpen(self) -> None:
        """Lift the bound by ranges of the makespan, given the best plan so far."""
        p, best, fixed = self.problem, self.known.best, self.limits.deterministic
        if self.found is None or best is None or not p.makespan_cost or p.jobs > RANGED_JOBS:
            return
        if self._ranges is None:
            self._ranges = Ranges(p, self.found)
        until = time.monotonic() + RANGES * self.limits.wall_s
        deadline = self.known.ends_at if fixed else min(until, self.known.ends_at)
        most = int(SHARE * self.limits.wall_s / (RANGE_S[0] + RANGE_S[1] * p.jobs)) if fixed else None
        self.known.bounded(self._ranges.run(best.total, deadline, most))


def _prices(warm: Warm) -> Prices:
    """Prices as the bound has them."""
    job = [math.nan if price is None else price for price in warm.job_price]
    return Prices(np.array(job), np.array(warm.budget_price), warm.move_price)
