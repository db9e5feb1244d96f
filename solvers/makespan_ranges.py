"""The bound by patterns, better where the makespan costs: by ranges of the latest end.

A plan that ends early keeps the rules of a threshold (jobs run, and not too slowly: see ``solvers.in_time``), which lift the bound; a
plan that ends late pays for its makespan. Ranges of the latest end are split where the bound is the least, until that gains little
(branch and bound on the makespan).
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from solvers.in_time import Filter
from solvers.patterns_bound import Found, Prices, pattern_bound
from solvers.problem import Problem

#: Stop when so many bounds in a row gained less than this part of the best cost.
PATIENCE, GAIN = 4, 1e-4
#: Go on when the best plan has become better by this part.
RETRY = 1e-3
#: Later than any end.
NEVER = 2**61


@dataclass(frozen=True, order=True)
class _Range:
    """Plans that end from ``low`` to ``high`` ticks: none costs less than ``bound``, nor less than ``rest`` without its makespan."""

    bound: int
    number: int
    low: int
    high: int
    rest: int = field(compare=False)
    prices: Prices = field(compare=False)
    priced: int = field(compare=False, default=NEVER)  # the threshold that ``rest`` is for


class Part(NamedTuple):
    """A range of the makespan in ticks, what plans in it cost at least without their makespan, and what they cost."""

    low: int
    high: int
    rest: int
    bound: int


class Ranges:
    """The ranges of one Problem whose makespan costs; they may be split further whenever a better plan is known.

    Parameters
    ----------
    found
        The bound by patterns of all plans; its prices begin those of the ranges.
    """

    def __init__(self, problem: Problem, found: Found) -> None:
        self._filter, self._cost = Filter(problem), int(problem.makespan_cost)
        self._ends = np.unique(problem.deferred_end)
        self._number = count(1)
        self._stalled = NEVER  # the best cost at which there was little left to gain
        rest = found.bound - self._cost * found.end
        self._heap = [_Range(found.bound, 0, found.end, NEVER, rest, found.prices)]

    def run(self, best: int, deadline: float, most: int | None = None) -> int:
        """A bound of all plans by a deadline, never more than the cost of the best plan known.

        Parameters
        ----------
        best
            That cost; plans that are no better do not matter.
        deadline
            On the clock of ``time.monotonic``.
        most
            Ranges bounded, at most; with a deadline that is far enough, the clock then decides nothing.
        """
        if best > self._stalled - RETRY * abs(self._stalled):
            return self._least(best)
        heap, gain = self._heap, GAIN * abs(best)
        idle, done, reached = 0, 0, self._least(best)
        while self._least(best) < best and idle < PATIENCE and done != most and time.monotonic() < deadline:
            high = self._tight(heap[0], best)
            if high < heap[0].priced:
                one = self._priced(replace(heapq.heappop(heap), high=high), best, deadline)
                if one is not None:
                    heapq.heappush(heap, one)
                done, idle = done + 1, idle + 1
                if self._least(best) > reached + gain:
                    idle, reached = 0, self._least(best)
            elif high > heap[0].low and (high - heap[0].low) * self._cost > gain:
                for part in self._halves(heapq.heappop(heap)):
                    heapq.heappush(heap, part)
            else:
                idle = PATIENCE  # all depends on one that is too narrow to split
        if idle >= PATIENCE:
            self._stalled = best
        return self._least(best)

    def parts(self) -> list[Part]:
        """The ranges so far, those together in which the same jobs have to run; plans in none are no better than the best known."""
        found: list[Part] = []
        for one in sorted(self._heap, key=lambda one: one.low):
            if found and one.low not in self._ends:
                low, _, rest, bound = found.pop()
                found.append(Part(low, one.high, min(rest, one.rest), min(bound, one.bound)))
            else:
                found.append(Part(one.low, one.high, one.rest, one.bound))
        return found

    def _least(self, best: int) -> int:
        return min(best, self._heap[0].bound) if self._heap else best

    def _tight(self, of: _Range, best: int) -> int:
        """The latest end that a plan of a range can pay for and still be better."""
        return min(of.high, (best - 1 - of.rest) // self._cost)

    def _priced(self, of: _Range, best: int, deadline: float) -> _Range | None:
        """A range with the bound of plans that keep its threshold, None if there are none; who has to run waits for all of the best cost."""
        narrow = self._filter.within(of.high, strict=False, penalty=best)
        if narrow is None:
            return None
        found = pattern_bound(narrow, deadline, prices=of.prices)
        if found is None:
            return of
        low, rest = max(of.low, found.end), max(of.rest, found.bound - self._cost * found.end)
        bound = max(of.bound, rest + self._cost * low)
        return replace(of, bound=bound, low=low, rest=rest, prices=found.prices, priced=of.high)

    def _halves(self, of: _Range) -> tuple[_Range, _Range]:
        """Two ranges, parted where a job that waits would end if there is such an end: before it, that job has to run."""
        middle = (of.low + of.high + 1) // 2
        ends = self._ends[(self._ends > of.low) & (self._ends <= of.high)]
        at = int(ends[np.abs(ends - middle).argmin()]) if len(ends) else middle
        later = max(of.bound, of.rest + self._cost * at)
        return (
            replace(of, number=next(self._number), high=at - 1),
            replace(of, number=next(self._number), low=at, bound=later),
        )
