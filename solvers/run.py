"""One problem to the best verified answer within one wall-clock budget.

The greedy runs first, in this process, so that there is always a plan to fall back on; every other engine runs
in a child process that is ended at its limit plus a small grace. Each starts from the best plan so far,
and the first proof of optimality ends the solve. ``solvers.record`` judges what they say.

In deterministic mode the engines' limits are fixed shares of the budget, whatever the clock says, and the engines
turn them into iterations; the clock then only guards.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from solvers import engines
from solvers.child import End, Ending, Heard, apart
from solvers.columns import estimate
from solvers.engines import EngineUnavailable
from solvers.mend import mended
from solvers.problem import Limits, Placed, Problem, Solution, Status
from solvers.record import Record, claim_of, summary
from solvers.warm import Warm
from solvers.workers import workers

log = logging.getLogger(__name__)

#: With less time than this, an engine is not started.
WORTH_S = 0.1
#: The bound's share of the time that is left, and that time when the limit is 0.
BOUND_SHARE = 0.15
BOUND_AT_ZERO_S = 2.0
#: Unless it is asked for by name, an exact engine is tried only with this many columns for each second of the
#: limit: CP-SAT improved on the search with 1,000 columns in 2 s, and had no plan with 8,000 after 12 s.
COLUMNS_PER_S = 1_000
#: What can be built and read in a second.
COLUMNS_BUILT_PER_S = 10_000
#: The search before an exact engine takes a second for so many columns, up to this share of the time.
COLUMNS_PER_SEARCH_S = 2_000
SEARCH_SHARE = 0.5
#: The pattern engine takes a second to start; below this limit, or where an exact model is tiny, it is not used.
PATTERNS_S = 3.0
#: The same where there is a plan to begin with, which then needs no more than filling up.
HINTED_S = 0.5
TINY_COLUMNS = 1_000
#: With an exact model of more columns, this much of the time goes to the pattern engine first.
PATTERNS_SHARE = 0.5
#: With no more jobs and GPUs than these, and not a tiny model, the column engine proves; its first plan gets this share.
PROVABLE_JOBS, PROVABLE_GPUS = 40, 32
PROVABLE_SHARE = 0.15
#: With more jobs, the pattern engine has its first plan before the greedy.
GREEDY_JOBS = 6_000
#: At a limit of 0 a bound is looked for only up to this many columns.
CHEAP = 2_000


@dataclass(frozen=True)
class Progress:
    """What an engine claims while it runs, for the eyes only; the bound is the best of all engines."""

    engine: str
    objective: int | None
    bound: int | None
    elapsed_s: float


@dataclass(frozen=True)
class _Step:
    """Engines of which the first that works is used, and its share of the time left, at most ``most_s``.

    A model is built with at most ``columns_per_s`` columns for each second of the limit. A spare step is for time that the others leave over; if there is none, that is not worth a word.
    """

    engines: tuple[str, ...]
    share: float = 1.0
    most_s: float = math.inf
    seed: int = 0
    spare: bool = False
    columns_per_s: int = COLUMNS_BUILT_PER_S


def solve(
    problem: Problem,
    limits: Limits | None = None,
    *,
    engine: str = engines.AUTO,
    hint: Placed | None = None,
    warm: Warm | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    save_anomaly: Path | None = None,
    stop: Callable[[], bool] | None = None,
    bound: bool = True,
) -> Solution:
    """The best verified answer that the engines find.

    Parameters
    ----------
    engine
        ``auto`` or one of ``engines.names()``; the greedy runs in any case.
    hint
        A placement to start from, such as the last epoch's. What breaks a rule is taken out.
    warm
        What the last epoch's solution has left (``Solution.warm``), in this problem's numbers.
    save_anomaly
        Folder for the models on which an engine was wrong; None saves none.
    stop
        Asked several times a second; once it says yes, the best verified plan so far is returned.
    bound
        Look for a lower bound before the engines; without one a quick answer is quicker still.

    Raises
    ------
    EngineUnavailable
        The engine does not exist, or a library that it needs is not installed.
    ValueError
        A limit is negative or not a number, or ``warm`` is of another number of jobs.
    """
    if warm is not None and len(warm.job_price) != problem.jobs:
        raise ValueError(f"warm has prices of {len(warm.job_price)} jobs, the problem has {problem.jobs}")
    limits = _checked(limits or Limits())
    steps = _steps(engine)
    run = _Run(problem, limits, Record(problem, save_anomaly), on_progress, stop, warm)
    hinted = run.hint(hint)
    if engine == engines.AUTO:
        steps = run.automatic(hinted)
    patterns = any(engines.PATTERNS in step.engines for step in steps[:1])
    run.start(hinted, briefly=patterns)
    if bound and not patterns:  # the pattern engine looks for one of its own
        run.bound()
    for step in steps:
        run.first_of(step)
    run.fall_back()
    return run.solution([name for step in steps for name in step.engines] if engine != engines.AUTO else ())


def _steps(engine: str) -> tuple[_Step, ...]:
    """What a name stands for, loaded once, so that an engine that is missing is told before any work."""
    if engine in (engines.AUTO, engines.GREEDY):
        return ()
    if engine not in engines.FIRST_OF:
        engines.load(engine)
        return (_Step((engine,)),)
    candidates = engines.FIRST_OF[engine]
    refusals = [refusal for refusal in map(engines.refusal, candidates) if refusal]
    if len(refusals) == len(candidates):
        raise EngineUnavailable("; ".join(refusals))
    return (_Step(candidates),)


def _checked(limits: Limits) -> Limits:
    """The limits with the number of workers settled, or ValueError."""
    for name, value in (("time limit", limits.wall_s), ("grace", limits.grace_s)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"the {name} must be a number of seconds >= 0, got {value}")
    for name, count in (("workers", limits.workers), ("memory limit in MiB", limits.memory_mib)):
        if count is not None and count < 1:
            raise ValueError(f"the {name} must be >= 1, got {count}")
    count = 1 if limits.deterministic else limits.workers or workers()
    return replace(limits, workers=count)


class _Run:
    """One solve under way: the clock, the record, and who listens."""

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        record: Record,
        on_progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
        warm: Warm | None,
    ) -> None:
        self._problem = problem
        self._warm = warm
        self._limits = limits
        self._record = record
        self._on_progress = on_progress
        self._stop = stop or (lambda: False)
        self._began = time.monotonic()
        self._ends_at = self._began + limits.wall_s
        self._planned_s = limits.wall_s  # not given away yet; counts in deterministic mode
        self._estimates: dict[int, int | None] = {}
        self._greedy_tried = False

    def hint(self, hint: Placed | None) -> bool:
        """Take the hint, without what breaks a rule; is there anything of it?"""
        if hint is None or not self._limits.wall_s:
            return False
        cost, fault = self._record.verify(hint)
        left = mended(self._problem, hint) if fault else hint
        if left == self._problem.base:
            if fault:
                self._record.note("hint", Status.SKIPPED, fault)
            return False
        gone = sum(a != b for a, b in zip(left, hint, strict=True))
        note = f"without {gone} jobs that would break a rule" if gone else ""
        self._record.take(Solution("hint", Status.FEASIBLE, left, note=note), 0.0, cost)
        return True

    def start(self, hinted: bool, briefly: bool) -> None:
        """A plan to fall back on: the greedy's, the hint if that is better, the base plan if need be.

        Briefly is with one order only, and not at all where the pattern engine has its first plan sooner, or a hint.
        """
        sooner = briefly and engines.compiled() and (hinted or self._problem.jobs > GREEDY_JOBS)
        if not sooner:
            self._greedy(self._record.placed, replace(self._limits, wall_s=0.0) if briefly else self._limits)
        if self._record.best is None:
            self._record.take(Solution("base", Status.FEASIBLE, self._problem.base), 0.0)

    def fall_back(self) -> None:
        """The greedy after all, where nobody has found more than the base plan."""
        if not self._greedy_tried and self._record.placed == self._problem.base and not self._stop():
            self._greedy(None, replace(self._limits, wall_s=0.0))

    def _greedy(self, hint: Placed | None, limits: Limits) -> None:
        """The greedy in this process; whatever goes wrong in it, what it had found counts."""
        began, heard = time.monotonic(), Heard()
        self._greedy_tried = True

        def report(placed: Placed | None, objective: int | None, bound: int | None) -> None:
            nonlocal heard
            heard = heard if placed is None else Heard(placed, objective, bound)
            self._show(engines.GREEDY, Heard(placed, objective, bound))

        try:
            answer = engines.load(engines.GREEDY)(self._problem, limits, hint, report)
        except Exception as error:
            note = f"{type(error).__name__}: {error}"
            log.exception("the greedy failed")
            answer = Solution(engines.GREEDY, Status.FAILED, heard.placed, heard.objective, note=note)
        self._record.take(answer, time.monotonic() - began)
        self._show(engines.GREEDY, Heard())

    def bound(self) -> None:
        """A lower bound, in a child like any engine: HiGHS leaves threads behind that a fork would miss."""
        cheap = self._limits.wall_s > 0 or self._columns(CHEAP) is not None
        if self._over() or not cheap:
            return
        if refusal := engines.refusal(engines.BOUND):
            self._record.note(engines.BOUND, Status.SKIPPED, refusal)
            return
        left_s = self._left_s() if self._limits.wall_s > 0 else BOUND_AT_ZERO_S
        share_s = max(BOUND_SHARE * left_s, min(left_s, WORTH_S))
        ending = self._apart(engines.BOUND, share_s, self._limits.seed, grace_s=0.0)
        if ending.end is End.LATE:
            self._record.note(
                engines.BOUND, Status.SKIPPED, "not found in its share of the time", ending.wall_s
            )
        else:
            self._record.take(claim_of(engines.BOUND, ending), ending.wall_s)

    def automatic(self, hinted: bool) -> tuple[_Step, ...]:
        """A short search for a good hint, an exact engine if the problem is small enough, and a search again."""
        exact = _Step((engines.EXACT,), columns_per_s=COLUMNS_PER_S)
        cap = self._cap(engines.EXACT, exact)
        columns = 0 if cap is None else self._columns(cap)
        least_s = HINTED_S if hinted else PATTERNS_S
        patterns = self._limits.wall_s >= least_s and columns != 0 and engines.compiled()
        tiny = columns is not None and columns <= TINY_COLUMNS
        if patterns and not tiny and self._provable():
            engines.preload(engines.PATTERNS)
            return (
                _Step((engines.PATTERNS,), PROVABLE_SHARE),
                _Step((engines.COLUMNS,)),
                replace(exact, spare=True),
                _Step((engines.PATTERNS,), seed=1, spare=True),
            )
        if patterns and columns is None:
            return (_Step((engines.PATTERNS,)),)
        if patterns and not tiny:
            engines.preload(engines.PATTERNS)  # it runs twice
            return (
                _Step((engines.PATTERNS,), PATTERNS_SHARE),
                exact,
                _Step((engines.PATTERNS,), seed=1, spare=True),
            )
        return (
            _Step((engines.SEARCH,), SEARCH_SHARE, (columns or 0) / COLUMNS_PER_SEARCH_S),
            exact,
            _Step((engines.SEARCH,), seed=1, spare=True),
        )

    def _provable(self) -> bool:
        """May the column engine have a chance? Where the clock must not count, its limits of time rule it out."""
        p = self._problem
        small = p.jobs <= PROVABLE_JOBS and p.gpus <= PROVABLE_GPUS
        return small and not self._limits.deterministic

    def first_of(self, step: _Step) -> None:
        """Try a step's engines in order until one of them works."""
        for engine in step.engines:
            if self._over():
                return
            refusal = engines.refusal(engine) or self._no_time(step) or self._no_room(engine, step)
            share_s = min(step.share * self._left_s(), step.most_s)
            if refusal:
                self._record.note(engine, Status.SKIPPED, refusal)
            elif share_s < WORTH_S:
                return
            else:
                ending = self._apart(engine, share_s, self._limits.seed + step.seed, self._limits.grace_s)
                self._record.take(claim_of(engine, ending), ending.wall_s)
                if self._record.attempts[-1].status not in (Status.FAILED, Status.SKIPPED):
                    return

    def _no_time(self, step: _Step) -> str:
        return "no time left" if self._left_s() < WORTH_S and not step.spare else ""

    def _no_room(self, engine: str, step: _Step) -> str:
        """Whether an engine's model would be too large; known before it is built."""
        cap = self._cap(engine, step)
        if cap is None or self._columns(cap) is not None:
            return ""
        return f"not built: its model is estimated at more than {cap:,} columns, the most for this time limit"

    def _cap(self, engine: str, step: _Step) -> int | None:
        cap = engines.ENGINES[engine].cap
        return None if cap is None else min(cap, round(step.columns_per_s * self._limits.wall_s))

    def _apart(self, engine: str, share_s: float, seed: int, grace_s: float) -> Ending:
        """An engine in a child, from the best plan so far, until it has reached the bound or its limit."""
        known = self._record.bound

        def enough(heard: Heard) -> bool:
            self._show(engine, heard)
            if heard.placed is None or heard.objective is None or known is None or heard.objective > known:
                return False
            return self._record.verify(heard.placed)[0] == known

        # In deterministic mode iterations end an engine; the clock guards the whole, not its share.
        ends_at = self._ends_at if self._limits.deterministic else time.monotonic() + share_s
        self._planned_s -= share_s
        ending = apart(
            engines.load(engine, self._warm),
            self._problem,
            replace(self._limits, wall_s=share_s, seed=seed),
            self._record.placed,
            ends_at=max(ends_at, time.monotonic()) + grace_s,
            enough=enough,
            stop=self._stop,
        )
        if ending.answer is not None and ending.answer.warm is not None:
            self._warm = ending.answer.warm
        return ending

    def _left_s(self) -> float:
        clock_s = self._ends_at - time.monotonic()
        return self._planned_s if self._limits.deterministic and clock_s > 0 else clock_s

    def _over(self) -> bool:
        return self._record.proven or self._stop()

    def _columns(self, cap: int | None) -> int | None:
        """The estimated size of the exact engines' model, None above the cap."""
        if cap is None:
            return None
        if cap not in self._estimates:
            self._estimates[cap] = estimate(self._problem, cap)
        return self._estimates[cap]

    def _show(self, engine: str, heard: Heard) -> None:
        if self._on_progress is None:
            return
        costs = [cost for cost in (heard.objective, self._record.cost) if cost is not None]
        bounds = [bound for bound in (heard.bound, self._record.bound) if bound is not None]
        elapsed_s = time.monotonic() - self._began
        self._on_progress(Progress(engine, min(costs, default=None), max(bounds, default=None), elapsed_s))

    def solution(self, asked_for: Iterable[str]) -> Solution:
        """The best verified answer with all that was tried, and a note on those asked for that were not."""
        best = self._record.best
        status = Status.OPTIMAL if self._record.proven else Status.FEASIBLE
        return Solution(
            engine=best.engine if best else "none",
            status=status if best else Status.NO_ANSWER,
            placed=self._record.placed,
            objective=self._record.cost,
            bound=self._record.bound,
            wall_s=time.monotonic() - self._began,
            note=summary(self._record.attempts, asked_for),
            attempts=tuple(self._record.attempts),
            warm=self._warm,
        )
