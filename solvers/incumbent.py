"""The best plan and bound of one solve while several threads look for better ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from solvers.problem import Limits, Placed, Report

#: Seconds between two reports, and the part of the limit, and seconds at most, at whose end every better plan is reported.
REPORT_S, LAST, LAST_S = 0.25, 0.05, 0.3


@dataclass(frozen=True)
class Best:
    """The best plan so far and its cost."""

    total: int
    placed: Placed


class Incumbent:
    """What is known, and until when there is time to know better; whatever ends the solve, it has been reported."""

    def __init__(self, limits: Limits, report: Report, bound: int | None) -> None:
        self.limits, self.report = limits, report
        self.began = time.monotonic()
        self.ends_at = self.began + limits.wall_s
        self.bound = bound
        self.best: Best | None = None
        self._last_s = min(LAST_S, LAST * limits.wall_s)
        self._told_at = 0.0
        self._ended = False
        self._lock = threading.Lock()

    def left(self) -> float:
        """Seconds until the limit."""
        return self.ends_at - time.monotonic()

    def over(self) -> bool:
        """Is there no time left, or nothing left to find?"""
        return self.left() <= 0 or (
            self.bound is not None and self.best is not None and self.best.total <= self.bound
        )

    def bounded(self, bound: int) -> None:
        """Report a bound if it is the largest."""
        with self._lock:
            if not self._ended:  # the answer is out: its bound is the last word
                self.bound = bound if self.bound is None else max(bound, self.bound)
                self.report(None, None, self.bound)

    def keep(self, total: int, plan: Callable[[], Placed], at_once: bool = False) -> None:
        """Remember and report a better plan: now and then, unless the clock must not decide or it is the last for now."""
        now = time.monotonic()
        with self._lock:
            if self.best is not None and total >= self.best.total:
                return
            soon = self.best is not None and now - self._told_at < REPORT_S and self.left() > self._last_s
            if soon and not (at_once or self.limits.deterministic):
                return
            self.best = Best(total, plan())
            self._told_at = now
            self.report(self.best.placed, total, None)

    def end(self) -> Best:
        """Nothing is reported from now on; the best plan."""
        with self._lock:
            self._ended = True
            assert self.best is not None, "the first plan is kept before anything else"
            return self.best
