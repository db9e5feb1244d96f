"""A program in whole numbers, with rows and rooms, and its linear relaxation by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np


@dataclass
class Program:
    """Minimise cost over whole numbers from 0 to ``most``, each row of ``rows`` at most its ``room``."""

    cost: list[float] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    room: list[float] = field(default_factory=list)

    def variable(self, cost: float, most: int) -> int:
        """A new variable's number."""
        self.cost.append(cost)
        self.most.append(most)
        return len(self.cost) - 1

    def row(self, terms: dict[int, float], room: float) -> None:
        """A new constraint."""
        if terms:
            self.rows.append(terms)
            self.room.append(room)

    def engine(self, seconds: float) -> highspy.Highs:
        """HiGHS with the program loaded."""
        engine = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
        engine.setOptionValue("output_flag", False)
        engine.setOptionValue("threads", 1)
        engine.setOptionValue("time_limit", max(seconds, 0.01))
        n = len(self.cost)
        none = np.zeros(0, np.int32)
        high = np.array(self.most, float)
        cost = np.array(self.cost)
        engine.addCols(n, cost, np.zeros(n), high, 0, np.zeros(n, np.int32), none, np.zeros(0))
        start = np.cumsum([0] + [len(terms) for terms in self.rows[:-1]]).astype(np.int32)
        index = np.array([i for terms in self.rows for i in terms], np.int32)
        value = np.array([a for terms in self.rows for a in terms.values()], float)
        low = np.full(len(self.rows), -highspy.kHighsInf)
        engine.addRows(len(self.rows), low, np.array(self.room, float), len(index), start, index, value)
        return engine

    def relaxed(self, seconds: float) -> np.ndarray | None:
        """The linear program's solution, None if there was no time for it."""
        engine = self.engine(seconds)
        engine.run()
        if engine.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return np.array(engine.getSolution().col_value)
