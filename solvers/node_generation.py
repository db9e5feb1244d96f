"""Column generation over nodes: the program over the columns so far gives prices, and prices give new columns."""

from __future__ import annotations

import time

import numpy as np

from solvers.contents import Contents
from solvers.facts import Facts
from solvers.node_columns import Column, NodeColumns
from solvers.node_master import Dive, Master
from solvers.threads import in_parallel

#: In a round of column generation: columns tried of each shape, and steps for each.
TRIES, STEPS = 8, 10
#: Steps for each on the way down, where fewer columns have to do.
DIVE_STEPS = 30
#: Shapes priced in a round.
SHAPES = 12
#: The part of the old prices in the next, and when to stop: so many rounds without so large a gain.
SMOOTH, STALLED, TOLERANCE = 0.8, 12, 1e-5


class Generator:
    """Column generation: the program over the columns so far gives prices, and prices give new columns."""

    def __init__(self, facts: Facts, contents: Contents, last: int, seed: int, workers: int) -> None:
        self.columns = NodeColumns(facts, contents, last, seed)
        self.boards = [self.columns.board]
        self.boards += [self.columns.board.again(facts.problem.home, i) for i in range(1, workers)]
        self.master = Master(self.columns)
        self.round = self.turn = 0  # of the program; and of all pricing

    def run(self, job_prices: np.ndarray | None, rounds: int | None, until: float) -> None:
        """Until a time, a number of rounds, or until nothing gets better."""
        made, master = self.columns, self.master
        master.add(range(len(master.columns), len(made.columns)))
        smooth = master.prices if job_prices is None else self._class_prices(job_prices)
        best, stalled, done = np.inf, 0, 0
        while (done < rounds if rounds is not None else time.monotonic() < until) and stalled < STALLED:
            self._round((smooth, master.prices), until if rounds is None else np.inf)
            master.add(range(len(master.columns), len(made.columns)))
            smooth = SMOOTH * smooth + (1 - SMOOTH) * master.prices
            cost = master.objective + made.all_wait
            stalled = stalled + 1 if cost > best * (1 - TOLERANCE) else 0
            best = min(best, cost)
            done += 1
            self.round += 1
            self.turn += 1

    def _round(self, prices: tuple[np.ndarray, np.ndarray], until: float) -> None:
        """New columns of every shape, at the smoothed prices and at those of the program."""
        made, master = self.columns, self.master
        used = np.flatnonzero(master.value > 1e-6).tolist()
        mine: dict[int, list[Column]] = {}
        for i in used:
            column = made.columns[master.columns[i]]
            mine.setdefault(column.shape, []).append(column)
        charged = [prices[(self.turn + i) % 2] for i in range(2)]
        for column in self._priced(charged, self._some(list(range(len(made.nodes)))), mine, STEPS, until):
            made.add(column)

    def _priced(
        self,
        prices: list[np.ndarray],
        shapes: list[int],
        mine: dict[int, list[Column]],
        steps: int,
        until: float,
    ) -> list[Column]:
        """Columns of some shapes, each begun from one of ``mine`` or from nothing; threads take the prices in turn."""
        tasks = []
        for shape in shapes:
            starts = mine.get(shape, [])
            for i in range(TRIES):
                start = starts[(self.turn * TRIES + i) * 7 % len(starts)] if starts and i else None
                tasks.append((shape, start))
        shares = [tasks[i :: len(self.boards)] for i in range(len(self.boards))]
        found: list[list[Column]] = [[] for _ in self.boards]

        def work(i: int) -> None:
            self.columns.charge(self.boards[i], prices[i % len(prices)])
            for shape, start in shares[i]:
                if time.monotonic() < until:
                    found[i].append(self.columns.price(self.boards[i], shape, steps, start))

        in_parallel(work, len(self.boards))
        return [column for columns in found for column in columns]

    def dive(self, until: float) -> list[int]:
        """A choice of columns for all nodes, with columns generated on the way down."""

        def generate(
            prices: np.ndarray, used: np.ndarray, shapes: list[int], starts: list[int]
        ) -> list[Column]:
            mine: dict[int, list[Column]] = {}
            for column in (self.columns.columns[i] for i in starts):
                mine.setdefault(column.shape, []).append(column)
            for board in self.boards:
                self.columns.block(board, used)
            self.turn += 1
            return self._priced([prices], self._some(shapes), mine, DIVE_STEPS, until)

        try:
            return Dive(self.master, generate).run(until)
        finally:
            for board in self.boards:
                self.columns.block(board, None)

    def _some(self, shapes: list[int]) -> list[int]:
        """All shapes if they are few, else some in turn: those of nodes with running jobs may be thousands."""
        count = len(shapes)
        if count <= SHAPES:
            return shapes
        return [shapes[(self.turn * SHAPES + i) % count] for i in range(SHAPES)]

    def _class_prices(self, job_prices: np.ndarray) -> np.ndarray:
        first = [members[0] for members in self.columns.members]
        return np.nan_to_num(job_prices[first]) if first else np.zeros(0)
