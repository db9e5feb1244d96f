"""The makespan first, everything else second: a search over thresholds on the predicted ends.

A threshold turns "nobody ends later" into rules that every engine knows already. A job's end grows with its slowdown, so
a threshold is a cap on that for each job and kind; a kind on which the job is late even alone is closed to it; and a job
that would end too late if it were deferred waits at a price above all else. The least threshold for which a plan is
found comes from a bisection, in which plans count by their real ends; then the usual objective is minimised within it.

Source: the threshold method for bottleneck assignment (Burkard, Dell'Amico, Martello: Assignment Problems, SIAM 2009,
chapter 6), with sets of tenants for pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from solvers import engines
from solvers.check import ends, objective, violations
from solvers.in_time import NEVER, Filter
from solvers.problem import Attempt, Limits, Placed, Problem, Solution, Status
from solvers.run import Progress
from solvers.run import solve as run

#: Thresholds tried at most, each one's share of the time limit, and the least time in which an engine says something; in
#: deterministic mode the clock must not end it on a busy machine.
PROBES = 12
PROBE_SHARE = 0.04
PROBE_S = 0.25
SURE_PROBE_S = 1.0
#: So many shares for the threshold whose failure ends the search.
LAST_SHARES = 3
#: What the bisection leaves for the last threshold, whatever its runs really take.
FINAL_SHARE = 0.5
#: Where links make caps inexact, the run within the last threshold leaves time for another by the strict rules.
INEXACT_SHARE = 0.9


@dataclass(frozen=True)
class Shortest(Solution):
    """A solution with its makespan and a proven lower bound on that of every plan, both in ticks."""

    makespan: int = 0
    least_makespan: int = 0


def within(problem: Problem, ticks: int, *, strict: bool = False) -> Problem | None:
    """The problem with a threshold on the ends, or None if some job can meet it by no means: every plan ends later.

    Jobs, GPUs and nodes keep their numbers. A plan is valid exactly if it is valid in the original and no placed job
    ends after ``ticks``, with two exceptions. In both the result allows more, so that what bounds its objective also
    bounds that of every plan within the threshold; a plan found is judged by its real ends.

    * A cap holds for a job and a kind, but a gang's end depends on its links too. The cap is that of the fastest link
      which its GPUs may have. ``strict`` takes the slowest, and keeps such a gang on a node whose GPUs are all linked, if
      there is one: then plans are in time, but some are left out, and a bound is none.
    * A running job that is late only beside others who run may not be refused, as one of them may leave. Newcomers that
      would make it late are.

    A running job that is late where it is in any case is queued in the result, its move paid for. A job that would end
    after ``ticks`` if it were deferred has a ``wait_cost`` above all other costs together, as far as integers allow; so
    has one that may be moved but not stopped. All else costs what it costs in the original.
    """
    return Filter(problem).within(ticks, strict=strict)


def lower_bound(problem: Problem, most: int) -> int:
    """Ticks that no plan's makespan is below; ``most`` is the makespan of a plan.

    No job ends earlier than at its best; and the jobs that would end too late if they were deferred need GPUs on which
    they end in time, all at once.
    """
    return Filter(problem).least_makespan(most)


def makespan(problem: Problem, placed: Placed) -> int:
    """The largest known end in ticks, 0 if none is known."""
    return max((end for end in ends(problem, placed) if end is not None), default=0)


def solve(
    problem: Problem,
    limits: Limits | None = None,
    *,
    engine: str = engines.AUTO,
    hint: Placed | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    save_anomaly: Path | None = None,
    stop: Callable[[], bool] | None = None,
    bound: bool = True,
) -> Shortest:
    """The shortest makespan that is found, and the best plan within it; parameters and errors as ``solvers.solve``.

    The objective is the problem's own. The bound is one on plans of at most that makespan; longer ones may cost less.
    In deterministic mode every run has a fixed share of the limit.
    """
    search = _Search(problem, limits or Limits(), engine, on_progress, save_anomaly, stop)
    search.first(hint)
    search.bisect()
    return search.finish(bound)


class _Search:
    """One solve under way: the best plan so far, and the makespans that are left to try."""

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        engine: str,
        on_progress: Callable[[Progress], None] | None,
        save_anomaly: Path | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._problem, self._limits, self._engine = problem, limits, engine
        self._on_progress, self._save_anomaly = on_progress, save_anomaly
        self._stop = stop or (lambda: False)
        self._began = time.monotonic()
        self._planned_s = limits.wall_s  # not given away yet; counts in deterministic mode
        self._filter = Filter(problem)
        self._least = 0
        self._deferred_ends = np.unique(problem.deferred_end)
        # The order of plans: makespan, objective.
        self._best: tuple[int, int] = (NEVER, NEVER)
        self._placed: Placed = problem.base
        self._by = "base"
        self._attempts: list[Attempt] = []
        self._notes: list[str] = []

    def first(self, hint: Placed | None) -> None:
        """The greedy's plan, the hint if that is shorter; and the makespan that no plan is below."""
        limits = replace(self._limits, wall_s=0.0)
        self._take(run(self._problem, limits, engine=engines.GREEDY, bound=False))
        if hint is not None:
            self._take(Solution("hint", Status.FEASIBLE, hint))
        self._least = self._filter.least_makespan(self._best[0])

    def bisect(self) -> None:
        """Lower the makespan: to the least that nothing excludes, as it is often reached, then to a tick less in turn with halves.

        A tick less has the weakest rules: where nothing is found for that, nothing would be for less.
        """
        low, wall_s = self._least, self._limits.wall_s
        share_s = max(PROBE_SHARE * wall_s, SURE_PROBE_S if self._limits.deterministic else PROBE_S)
        for probe in range(PROBES):
            high, spare_s = self._best[0] - 1, self._left_s() - FINAL_SHARE * wall_s
            if low > high or self._stop() or spare_s < min(PROBE_S, wall_s / 4):
                return
            last = bool(probe % 2)
            ticks = high if last else self._middle(low, high) if probe else low
            self._probe(ticks, max(0.0, min(share_s * (LAST_SHARES if last else 1), spare_s)))
            if self._best[0] > ticks:
                low = max(ticks + 1, self._least)

    def _middle(self, low: int, high: int) -> int:
        """Of the ends of deferred jobs the middle one; between two of them no fewer jobs have to be placed."""
        known = self._deferred_ends
        known = known[(known >= low) & (known <= high)]
        return int(known[(len(known) - 1) // 2]) if len(known) else (low + high) // 2

    def _probe(self, ticks: int, share_s: float) -> None:
        """Look for a plan within a threshold; where a gang's links alone make the best one late, by the strict rules too."""
        found = self._run(ticks, share_s, brief=True)
        if self._best[0] <= ticks or found is None:
            return
        most = self._filter.costs(ticks)[1]
        if found.bound is not None and found.bound > most:
            self._least = max(self._least, ticks + 1)
        elif found.objective is not None and found.objective <= most and not self._filter.is_exact(ticks):
            self._run(ticks, share_s, strict=True, brief=True)

    def finish(self, bound: bool) -> Shortest:
        """The rest of the time for the objective within the shortest makespan."""
        ticks, exact, found = self._best[0], self._filter.is_exact(self._best[0]), None
        if not self._stop():
            share_s = self._left_s() * (1 if exact else INEXACT_SHARE)
            found = self._run(ticks, share_s, bound=bound)
        late = (
            found is not None and found.placed is not None and makespan(self._problem, found.placed) > ticks
        )
        if late and not exact and not self._stop():
            self._run(ticks, self._left_s(), strict=True)
        return self._answer(ticks, None if found is None else found.bound)

    def _answer(self, ticks: int, bound: int | None) -> Shortest:
        """The best plan, with a bound that holds within a threshold; one that the plan contradicts is none."""
        (reached, cost), least = self._best, min(self._least, self._best[0])
        bound = None if bound is None or bound > cost else bound
        known = "the least there is" if reached == least else f"at least {least} in any plan"
        about = f"makespan {reached} ticks, {known}; the bound is on plans of at most {ticks} ticks"
        return Shortest(
            engine=self._by,
            status=Status.OPTIMAL if reached == least and cost == bound else Status.FEASIBLE,
            placed=self._placed,
            objective=cost,
            bound=bound,
            wall_s=time.monotonic() - self._began,
            note="; ".join(dict.fromkeys([about, *filter(None, self._notes)])),
            attempts=tuple(self._attempts),
            makespan=reached,
            least_makespan=least,
        )

    def _run(
        self,
        ticks: int,
        share_s: float,
        *,
        strict: bool = False,
        brief: bool = False,
        bound: bool = False,
    ) -> Solution | None:
        """The engines on the problem within a threshold, None if that admits nothing. Brief is until a plan is in time."""
        narrow = self._filter.within(ticks, strict=strict)
        if narrow is None:
            return None
        most = self._filter.costs(ticks)[1]
        in_time = False

        def heard(progress: Progress) -> None:
            nonlocal in_time
            in_time = in_time or (progress.objective is not None and progress.objective <= most)
            if self._on_progress is not None and not brief:
                self._on_progress(progress)

        # In deterministic mode a run is not told to stop by the clock, which guards the whole and not each share.
        sure = self._limits.deterministic
        guard_s = self._limits.grace_s + (self._limits.wall_s if sure else 0.0)
        found = run(
            narrow,
            replace(self._limits, wall_s=share_s, grace_s=guard_s),
            engine=self._engine,
            hint=None if brief else self._placed,  # a late plan is no good start
            on_progress=heard,
            save_anomaly=self._save_anomaly,
            stop=(lambda: self._stop() or in_time) if brief and not sure else self._stop,
            bound=bound,
        )
        self._planned_s -= share_s
        self._take(found)
        if not brief:
            self._keep(found, most, strict)
        return found

    def _keep(self, found: Solution, most: int, strict: bool) -> None:
        """What a run on the final threshold says for the record; a cost with a penalty is none of the plan's."""
        self._notes.append(found.note)
        for attempt in found.attempts:
            late = attempt.objective is not None and attempt.objective > most
            attempt = replace(attempt, objective=None if late else attempt.objective)
            self._attempts.append(replace(attempt, bound=None) if strict else attempt)

    def _take(self, found: Solution) -> None:
        """The plan of a run, if it ends sooner than the best or as soon at less cost."""
        if found.placed is None or violations(self._problem, found.placed):
            return  # within a threshold a job that may only be moved can be stopped
        key = makespan(self._problem, found.placed), objective(self._problem, found.placed).total
        if key < self._best:
            self._best, self._placed, self._by = key, found.placed, found.engine

    def _left_s(self) -> float:
        clock_s = self._began + self._limits.wall_s - time.monotonic()
        return max(0.0, self._planned_s if self._limits.deterministic else clock_s)
