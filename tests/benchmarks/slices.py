"""A baseline for ``solve.py``: plans from contents of single GPUs, rounded and filled up, without ruin and recreate.

    python tests/benchmarks/slices.py [--sizes 50x28 200x128] [--seeds 0 1 2 3 4] [--limit 10] [--at 10 30]
        [--tenants 2] [--load 1.3] [--out results.json]

The published kind of method for packing at scale: a linear program over what one GPU may hold, by column generation; the
same columns in whole numbers (rounded; by HiGHS; by CP-SAT); real GPUs and jobs for each choice; jobs without which the
makespan would grow pushed in; and a greedy for what is left over. Time that remains goes into other parts of the hosts and
other orders of the greedy. The instances, the figures and their units are those of ``solve.py``, whose ``--table`` shows
results of both. Only instances where nothing runs yet; the bound is ``pattern_bound`` alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from slices_whole import better
from solve import SIZES, Measured, News, Row, bench, figures, queue_only

from solvers import Placed, Problem, Solution
from solvers.check import objective
from solvers.greedy import Ranks, decide
from solvers.patterns_bound import pattern_bound
from solvers.problem import Status
from solvers.sharing import Sharing
from solvers.slice_packing import plan
from solvers.slices import Slices
from solvers.state import State
from solvers.urgent import Urgent

#: Seconds, in limits: large clusters take longer.
TIMES = (1, 3)
#: Parts of the limit by which the bound has to be done, and of what is left then for whole numbers.
BOUND_BY, WHOLE = 0.5, 0.6
#: Less time than that is not worth starting branch and bound.
WHOLE_AT_LEAST_S = 0.5
#: Orders of the jobs that are left.
ORDERS = 48
#: What a pool's nodes may hold of their cores and memory all together, tried in turn: no packing uses them up. Chosen by the
#: gaps of 200x128, 1000x512 and 20000x8192, seeds 0 and 1.
HOST_PARTS = (0.94, 0.97, 0.91, 1.0)


class Baseline:
    """One solve: what is best so far, and all news on the way."""

    def __init__(self, problem: Problem, limit_s: float, seed: int) -> None:
        self.problem, self.limit_s, self.seed = problem, limit_s, seed
        self.began = time.monotonic()
        self.base = self.best = objective(problem, problem.base).total
        self.placed: Placed = problem.base
        self.news: list[News] = []

    def until(self, part: float) -> float:
        """The moment at which that part of the limit is used up."""
        return self.began + part * self.limit_s

    def heard(self, best: int | None, bound: int | None) -> None:
        """Note what is known from now on."""
        self.news.append(News(time.monotonic() - self.began, best, bound))

    def keep(self, total: int, placed: Placed) -> None:
        """Keep a plan if it is the best."""
        if total < self.best:
            self.best, self.placed = total, placed
            self.heard(total, None)

    def run(self) -> Measured:
        """The whole solve."""
        found = pattern_bound(
            self.problem, self.until(BOUND_BY), report=lambda bound: self.heard(None, bound)
        )
        assert found is not None, "the deadline has not passed at the beginning"
        assert found.master is not None
        slices = Slices(self.problem, found.master)
        urgent, last = Urgent(slices.facts), slices.facts.earliest_makespan
        begun: list[tuple[int, Placed]] = []
        for chosen in self._choices(slices):
            packed = urgent.among(plan(slices, chosen, last))
            total, filled = next(self._filled(slices, packed, 0.0))
            self.keep(total, filled)
            begun.append((total, packed))
        _, packed = min(begun, key=lambda one: one[0])
        for total, filled in self._filled(slices, packed, self.until(1.0)):
            self.keep(total, filled)
        wall_s = time.monotonic() - self.began
        solution = Solution("slices", Status.FEASIBLE, self.placed, self.best, found.bound, wall_s)
        return Measured(
            solution, self.placed, self.best, (*self.news, News(wall_s, self.best, found.bound)), self.base
        )

    def _choices(self, slices: Slices) -> Iterator[np.ndarray]:
        """Numbers of slices for some parts of the hosts: rounded, then what branch and bound makes of that."""
        for turn, part in enumerate(HOST_PARTS):
            began = time.monotonic()
            program = slices.program(part)
            fractional = program.relaxed(max(1.0, self.until(1.0) - began))
            first = slices.rounded(program, fractional)
            yield first[: len(slices.slices)]
            # As long as this took, so long takes the next.
            left_s = self.until(1.0) - time.monotonic() - (time.monotonic() - began)
            if left_s < 0:
                return
            seconds = WHOLE * left_s / (len(HOST_PARTS) - turn)
            if seconds >= WHOLE_AT_LEAST_S:
                yield better(program, seconds, self.seed, first)[: len(slices.slices)]

    def _filled(self, slices: Slices, placed: Placed, until: float) -> Iterator[tuple[int, Placed]]:
        """Objective and plan for one order of the jobs left after another, while there is time; one in any case."""
        sharing = Sharing(slices.facts)
        ranks = Ranks(slices.facts, self.seed)
        for turn in range(ORDERS):
            if turn and time.monotonic() > until:
                return
            state = State(slices.facts, sharing)
            state.load(placed)
            rank, refused = ranks.draw(), dict[int, float]()
            for j in np.argsort(-rank, kind="stable").tolist():
                if state.placed[j] is None:
                    decide(state, j, refused)
            filled = tuple(state.placed)
            total = objective(self.problem, filled).total
            ranks.learn(rank, total)
            yield total, filled


def one(size: str, seed: int, given: argparse.Namespace) -> Row:
    """One size and seed, in this process."""
    problem = queue_only(size, seed, given)
    return figures(problem, Baseline(problem, given.limit, seed).run(), given.at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="jobs x GPUs")
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--limit", type=float, default=10.0, help="seconds a solve")
    parser.add_argument(
        "--at",
        nargs="+",
        type=float,
        help="seconds at which gaps are shown [default: the limit and thrice that]",
    )
    parser.add_argument("--tenants", type=int, help="jobs that may share a GPU; the policy's if not given")
    parser.add_argument("--load", type=float, help="GPUs asked for over GPUs there are, at most")
    parser.add_argument("--out", type=Path, help="JSON file of all figures")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    # What the table of ``solve.py`` looks for as well.
    parser.set_defaults(engine="slices", running=0.0, change=0.0)
    given = parser.parse_args()
    given.at = given.at or [time * given.limit for time in TIMES]
    if given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]), given)))
    else:
        bench(given, __file__)


if __name__ == "__main__":
    main()
