"""The engine that proves: whole nodes as columns, all of them that a better plan could be made of.

A plan is a column for every node. Column generation with exact pricing gives prices and a bound; every column whose reduced cost
is within what lies between the bound and the best plan known is enumerated, and the program over these is solved in whole
numbers: its optimum is the optimum, or there is nothing better than the plan known (Baldacci, Christofides and Mingozzi 2008).
Branched on are the latest end (a range costs its least end, and the lateness of the longest job), and which jobs wait.

Whatever is not a matter of single nodes is relaxed or decided in whole numbers at the end, and the referee has the last word: an
answer is called optimal only if what it costs is no more than the bound.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import replace
from itertools import count

from solvers.bound import lower_bound
from solvers.check import ends, objective, violations
from solvers.facts import Facts
from solvers.makespan_ranges import Part, Ranges
from solvers.node_enumeration import OutOfTime
from solvers.node_items import Column, TooLarge
from solvers.node_program import Program, Range
from solvers.patterns_bound import Prices, pattern_bound
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.search import solve as search

NAME = "columns"
#: Jobs beyond which the method is hopeless.
MOST_JOBS = 128
#: The part of the limit, and seconds at most, for the first plan.
FIRST, FIRST_S = 0.1, 0.5
#: The part of the limit for the bound by patterns and ranges of the makespan.
BEGIN = 0.1
#: Seconds for a plan from the columns of the linear program.
CHOICE_S = 1.0
#: Before all columns are enumerated, the bound is this close, as a part of what lies between program and target.
CLOSELY = 0.05
#: It is tried from this part of the cost on, with so much work (in linear programs).
ENOUGH, ENUMERATION = 1.5e-3, 3000
#: Steps are halved if it is more, down to this part of the cost; else the next one is longer by a factor.
LEAST_STEP, STRIDE = 1e-4, 2.0
#: Later than any end.
NEVER = 2**40


def refusal(problem: Problem) -> str:
    """Why this method does not take a problem, in one line; empty if it does."""
    if problem.jobs > MOST_JOBS:
        return f"{problem.jobs} jobs, more than {MOST_JOBS}"
    links: dict[int, set[int]] = {}
    for v, link in zip(problem.gpu_node.tolist(), problem.gpu_link.tolist(), strict=True):
        links.setdefault(link, set()).add(v)
    if any(len(nodes) > 1 for link, nodes in links.items() if link >= 0):
        return "a link group over several nodes"
    for j, home in enumerate(problem.home):
        if home and problem.job_gpus[j] and len(set(problem.gpu_node[list(home)].tolist())) > 1:
            return f"job {j} runs on several nodes"
    return ""


def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """Prove the best plan within the limit, or bound it; a problem that the method is not made for is skipped."""
    why = refusal(problem)
    if why:
        return Solution(NAME, Status.SKIPPED, note=why)
    return _Engine(problem, limits, report).run(hint)


def _first_plan(problem: Problem, limits: Limits, start: Placed) -> Placed | None:
    """What a short search makes of a plan."""
    short = replace(limits, wall_s=min(FIRST_S, FIRST * limits.wall_s))
    return search(problem, short, start, lambda *_: None).placed


class _Engine:
    """One solve under way."""

    def __init__(self, problem: Problem, limits: Limits, report: Report) -> None:
        self.problem, self.limits, self.report = problem, limits, report
        self.began = time.monotonic()
        self.deadline = self.began + limits.wall_s
        self.best: Placed = problem.base
        self.total = objective(problem, problem.base).total
        self.enumerated = 0
        self.reached = -math.inf
        self.number = count(1)
        self.step = ENOUGH
        self.program: Program | None = None
        self.prices: Prices | None = None

    def run(self, hint: Placed | None) -> Solution:
        """A first plan, then ranges of the latest end, the most promising first."""
        self._first(hint)
        note = ""
        heap = self._begun()
        floor = self._bound(heap)
        self.report(None, None, min(floor, self.total))
        try:
            while heap and heap[0].bound <= self.total - 1:
                self._range(heap)
                self.report(None, None, min(self.total, self._bound(heap)))
        except (OutOfTime, TooLarge) as error:
            note = f"stopped: {error}" if str(error) else "out of time"
        bound = min(self.total, max(floor, self._bound(heap)))
        status = Status.OPTIMAL if self.total <= bound else Status.FEASIBLE
        return Solution(
            NAME, status, self.best, self.total, bound, time.monotonic() - self.began,
            f"{self.enumerated} columns enumerated" + (f", {note}" if note else ""),
        )  # fmt: skip

    def _begun(self) -> list[Range]:
        """Ranges of the latest end as the bound by patterns has them."""
        p, until = self.problem, min(self.deadline, time.monotonic() + BEGIN * self.limits.wall_s)
        # A bound of the whole may charge a lateness that is forced: only what the rest costs tells how late pays.
        rest, whole = lower_bound(replace(p, makespan_cost=0)), lower_bound(p)
        found = pattern_bound(p, until)
        self.prices = None if found is None else found.prices
        earliest = Facts(p).earliest_makespan if p.makespan_cost else 0
        parts = [Part(earliest, NEVER, rest, whole if found is None else max(whole, found.bound))]
        if found is not None and p.makespan_cost:
            ranges = Ranges(p, found)
            ranges.run(self.total, until)
            parts = ranges.parts()
        heap = []
        for low, high, without, bound in parts:
            prompt = max(without, rest) + p.makespan_cost * low
            heap.append(Range(float(max(bound, whole, prompt)), next(self.number), low, high, float(prompt)))
        heapq.heapify(heap)
        return heap

    def _bound(self, heap: list[Range]) -> int:
        """What no plan is below: a float's bound is of a whole number."""
        return math.ceil(min([float(self.total), *(one.bound for one in heap)]) - 1e-3)

    def _first(self, hint: Placed | None) -> None:
        """The hint or the base plan, and what a short search makes of it."""
        self._keep(hint)
        self._keep(_first_plan(self.problem, self.limits, self.best))

    def _keep(self, placed: Placed | None) -> None:
        """Remember and report a plan if it is valid and better."""
        if placed is None or violations(self.problem, placed):
            return
        total = objective(self.problem, placed).total
        if total < self.total or (total == self.total and self.best is self.problem.base):
            self.best, self.total = placed, total
            self.report(placed, total, None)

    def _range(self, heap: list[Range]) -> None:
        """Bound the plans whose latest end is in the most promising range; split it, or find its best plan."""
        top = heapq.heappop(heap)
        self.reached = top.bound
        left = [top]
        try:
            left = self._split(top)
        finally:
            for one in left:
                bound = self.reached if one is top else one.bound
                heapq.heappush(heap, replace(one, bound=bound, number=next(self.number)))

    def _split(self, top: Range) -> list[Range]:
        """What is left of a range."""
        p, low = self.problem, top.low
        paid = p.fragmentation_base + p.makespan_cost * low
        high = self._tight(top)
        target = float(self.total - paid)
        program = Program(p, top, high, self.deadline)
        if self.program is not None:
            program.take_over(self.program)
        elif self.prices is not None:
            program.begin(self.prices)
        for v in range(p.nodes):
            program.learn([(j, spot) for j, spot in enumerate(self.best) if spot is not None], v)
        self.program = program
        try:
            program.run(target, enough=ENOUGH * self.total)
        finally:
            self.reached = bound = max(top.bound, paid + program.bound)
        if bound > self.total - 1:
            return []
        soon = min(self.deadline, time.monotonic() + CHOICE_S)
        self._keep(program.choice(list(program.columns.values())).run(soon, self.limits.seed).placed)
        if bound > self.total - 1:
            return []
        tight, cut = self._tight(top), self._cut(low, high)
        if cut is not None and cut <= tight:
            return [replace(top, bound=bound, high=cut - 1), self._later(top, bound, cut, tight)]
        if cut is not None:  # who may wait no longer makes a difference
            return [replace(top, bound=bound, high=tight)]
        top = replace(top, bound=bound, high=high)
        j = program.undecided()
        if j is not None:
            return [replace(top, must=top.must | {j}), replace(top, out=top.out | {j})]
        return self._whole(top, program, paid)

    def _later(self, top: Range, bound: float, low: int, high: int) -> Range:
        """The later part of a range."""
        floor = top.floor + self.problem.makespan_cost * (low - top.low)
        return replace(top, bound=max(bound, floor), low=low, high=high, floor=floor)

    def _tight(self, of: Range) -> int:
        """The latest end that a plan of a range pays for and is still better than the best."""
        if not self.problem.makespan_cost:
            return of.high
        return min(of.high, of.low + int((self.total - 1 - of.floor) // self.problem.makespan_cost))

    def _cut(self, low: int, high: int) -> int | None:
        """The first end after the least that waiting alone decides: a range is split there."""
        late = self.problem.deferred_end
        between = late[(late > low) & (late <= high)]
        return int(between.min()) if self.problem.makespan_cost and len(between) else None

    def _enumerated(self, program: Program, target: float, floor: float) -> tuple[list[Column], float]:
        """Every column of plans that cost less than a goal, and the goal: as near the target as takes little work."""
        while True:
            program.run(target, CLOSELY, self.step * self.total)
            goal = min(target, max(program.bound, floor) + self.step * self.total)
            columns = program.every(goal, ENUMERATION if self.step > LEAST_STEP else math.inf)
            if columns is not None:
                self.step *= STRIDE
                return columns, goal
            self.step /= 2

    def _whole(self, top: Range, program: Program, paid: int) -> list[Range]:
        """Whole numbers over all columns that a better plan could use."""
        p, target = self.problem, float(self.total - paid)
        columns, goal = self._enumerated(program, target, top.bound - paid)
        self.enumerated += len(columns)
        found = program.choice(columns).run(self.deadline, self.limits.seed)
        self._keep(found.placed)
        if found.bound == -math.inf:
            raise OutOfTime
        self.reached = bound = max(top.bound, paid + min(found.bound, goal))
        if found.bound >= goal and goal < target:  # there is nothing as cheap as that
            return [replace(top, bound=bound)]
        if found.placed is None or bound > self.total - 1:
            return []
        last = max((e for e in ends(p, found.placed) if e is not None), default=0)
        if not p.makespan_cost or not top.low < last <= top.high:
            raise TooLarge("whole nodes make no plan, as a rule is not a matter of nodes")
        return [replace(top, bound=bound, high=last - 1), self._later(top, bound, last, top.high)]
