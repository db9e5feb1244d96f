"""The engine for clusters of any size: node columns and compiled ruin and recreate, beside a bound from patterns.

One thread improves a plan from the start (the hint, or one swept together node by node). Another finds the bound, whose
prices start the column generation over whole nodes; plans are rounded from that program, and improved in turn. Then all
threads improve the best plan, each its own nodes, dealt anew every round, and columns are generated again from what they
found. Whatever ends it, the best plan so far has been reported.
"""

from __future__ import annotations

import math
import time
from functools import cached_property

import numpy as np

from solvers.check import objective
from solvers.contents import Contents
from solvers.facts import Facts
from solvers.guide import SHARE, Guide
from solvers.incumbent import Incumbent
from solvers.kernels.board import Board
from solvers.mend import mended
from solvers.node_generation import Generator
from solvers.node_master import plan_of
from solvers.node_rounding import MOST_NODES, Rounding
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.shortfall import Shortfall
from solvers.threads import in_parallel
from solvers.warm import Warm

#: Steps of ruin and recreate between two looks at the clock, per thread.
CHUNK = 50
#: In deterministic mode, for each second of the limit: few enough that the clock does not end the run first.
STEPS_PER_S, ROUNDS_PER_S = 200, 2
#: There, columns take so many seconds a node.
COLUMNS_S = 0.01
#: After a change of the queue, steps on the nodes furthest behind before these are others, and every so many turns on all.
TURN, ALL_EVERY = 500, 4
#: Part of steps that begin with a gang over several nodes.
WIDE = 0.25
#: Seconds of a round on divided nodes, one more for so many jobs; and how many are put together again in a second.
ROUND_S, ROUND_JOBS_PER_S, GATHERED_PER_S = 0.7, 10_000, 80_000
#: With fewer nodes than this for each thread, every thread has all of them and the better plan counts.
NODES_EACH = 8
#: The part of the limit for columns, dive, race of plans, and rounds.
COLUMNS, DIVE, RACE, CYCLE = 0.3, 0.1, 0.08, 0.15
#: The part of the limit for branch and bound over columns, and seconds below which it is not worth starting.
ROUND, ROUND_AT_LEAST_S = 0.07, 1.5
#: Columns are not worth generating with less than this part of the limit left for what is made of them.
AFTER = 0.3
#: Nor in less time than it takes the program to get better than ruin and recreate alone.
COLUMNS_AT_LEAST_S, NODES_PER_COLUMN_S = 1.0, 500
#: Dives at most, where one takes so little time that there is room for several.
DIVES = 8
#: Steps for each node that a dive left empty, or that a hint left room on, before all nodes are improved.
STEPS_AN_EMPTY_NODE, STEPS_A_FILLED_NODE = 12, 12
#: Rounds that gain no more than this part have stalled; then exact repairs get this part of the limit, and each so long.
STALLED, REPAIR, REPAIR_S = 1e-4, 0.08, 1.0
#: Restarts then get this part, each so many steps for a node; the makespans granted to them beyond the earliest, in turn.
RESTART, STEPS_A_RESTARTED_NODE, GRANTS = 0.1, 1000, (0.0, 0.02, 0.05, 0.01, 0.1, 0.03)
#: Where the search waits for its guide, it looks so often.
WAIT_S = 0.1
#: A hint of this limit or a longer one is compared with a plan from nothing.
SWEEP_S = 3.0


def solve(
    problem: Problem,
    limits: Limits,
    hint: Placed | None,
    report: Report,
    *,
    checked: bool = False,
    bound: int | None = None,
    warm: Warm | None = None,
) -> Solution:
    """Improve the hint, or a first plan of its own, until the limit; with a bound.

    Parameters
    ----------
    checked
        The hint is known to break no rule.
    bound
        A lower bound that is known, and has been reported.
    warm
        What an earlier solve has left.
    """
    engine = Engine(problem, limits, report, bound, warm)
    engine.checked = checked
    return engine.run(hint)


class Engine:
    """One solve under way."""

    def __init__(
        self,
        problem: Problem,
        limits: Limits,
        report: Report,
        bound: int | None = None,
        warm: Warm | None = None,
    ) -> None:
        self.problem, self.limits, self.warm = problem, limits, warm
        self.known = Incumbent(limits, report, bound)
        self.workers = 1 if limits.deterministic else max(1, limits.workers or 1)
        self.facts = Facts(problem)
        self.guide = Guide(problem, self.known, warm, self.workers)
        self.behind = None if self.guide.prices is None else Shortfall(self.facts, self.guide.prices.job)
        self.checked = False
        self.steps = self.rounded = self.repairs = self.restarts = 0
        self.made: Generator | None = None
        self.hostless = bool((problem.job_gpus == 0).any())

    @cached_property
    def contents(self) -> Contents:
        """Built by the thread that searches, while another is at the bound already."""
        return Contents(self.problem)

    @cached_property
    def blank(self) -> Board:
        """An empty plan, of which all others are copies."""
        return Board(self.facts, self.contents, self.facts.earliest_makespan, self.limits.seed)

    def run(self, hint: Placed | None) -> Solution:
        """The whole solve."""
        if self.limits.deterministic or self.workers == 1:
            self._alone(hint)
        else:
            self._together(hint)
        return self._solution()

    def _first(self, hint: Placed | None) -> Board:
        """A sweep over the nodes, or the hint filled up if that is better."""
        boards = []
        if hint is not None and hint != self.problem.base:
            boards.append(self._filled(hint if self.checked else mended(self.problem, hint)))
            self._keep(boards[-1])
        if not boards or self.limits.wall_s >= SWEEP_S:
            boards.append(self._filled(self.problem.base))
            self._keep(boards[-1])
        return min(boards, key=lambda one: one.objective())

    def _filled(self, placed: Placed) -> Board:
        """A plan with more jobs started, node by node; then the nodes where they came are improved."""
        board = self._board(placed, 0)
        board.sweep()
        if placed != self.problem.base:
            came = [a or () for a, b in zip(board.placed(), placed, strict=True) if a != b]
            nodes = np.unique(self.problem.gpu_node[np.array([g for spot in came for g in spot], np.int64)])
            board.improve_on(np.intersect1d(nodes, board.pool), STEPS_A_FILLED_NODE, 0.5)
        board.place_hostless()
        return board

    def _sliced(self) -> list[Board]:
        """The plan from slices with its free GPUs filled, if there is one."""
        placed = self.guide.placed
        if placed is None or self.known.over():
            return []
        board = self._board(placed, 1)
        board.sweep()
        board.place_hostless()
        self._keep(board)
        return [board]

    def _board(self, placed: Placed, seed: int) -> Board:
        board = self.blank.again(placed, seed)
        board.value(self.guide.job_prices)
        return board

    def _granted(self, board: Board, steps: int | None) -> Board:
        """Grant the makespan that was reached, if that serves the plan better than to go on charging every late job."""
        reached = board.makespan()
        if not self.problem.makespan_cost or reached <= board.last:
            return board
        blank = Board(self.facts, self.contents, reached, self.limits.seed)
        boards = [board, blank.again(board.placed(), 1)]
        for one in boards:
            self._improve(one, steps, time.monotonic() + RACE / 2 * self.limits.wall_s)
        best = min(boards, key=lambda one: one.objective())
        if best is not board:
            self.blank = blank
        return best

    # ---- one thread ----

    def _alone(self, hint: Placed | None) -> None:
        """Everything in turn, by numbers of iterations where the clock must not decide."""
        board = self._first(hint)
        fixed = self.limits.deterministic
        steps = max(1, int(STEPS_PER_S * self.limits.wall_s)) if fixed else None
        self.guide.find()
        board.value(self.guide.job_prices)
        board = min([board, *self._sliced()], key=lambda one: one.objective())
        self._improve(board, steps // 3 if steps else None, self.known.began + 0.5 * self.limits.wall_s)
        board = self._granted(board, steps // 10 if steps else None)
        rounded = self._from_columns(board, int(ROUNDS_PER_S * self.limits.wall_s) if fixed else None)
        for other in rounded:
            self._improve(other, steps // 6 if steps else None, time.monotonic() + RACE * self.limits.wall_s)
        board = min([board, *rounded], key=lambda one: one.objective())
        self._keep(board, at_once=True)
        self.guide.sharpen()
        self._improve(board, steps // 2 if steps else None, self.known.ends_at)
        self._keep(board, at_once=True)

    def _improve(self, board: Board, steps: int | None, until: float) -> None:
        """Ruin and recreate for so many steps or until a time."""
        done = 0
        while not self.known.over() and (done < steps if steps is not None else time.monotonic() < until):
            if done % TURN == 0:
                self._turn(board)
            board.improve(CHUNK, WIDE)
            done += CHUNK
            self._keep(board)
        board.restrict(board.pool)
        self.steps += done

    def _turn(self, board: Board) -> None:
        """After a change of the queue, look mostly at the nodes that it has left furthest behind."""
        if self.behind is not None:
            own = board.pool[board.table("MINE")[board.pool] > 0]
            everywhere = board.steps // TURN % ALL_EVERY == ALL_EVERY - 1
            board.restrict(own if everywhere else self.behind.worst(board, own))

    # ---- several threads ----

    def _together(self, hint: Placed | None) -> None:
        """The bound beside a search; then columns, a dive and rounds on the best plan, again and again."""
        thread = self.guide.beside(self.guide.find)
        board = self._first(hint)
        while thread.is_alive() and not self.known.over():
            if self.guide.is_worth_waiting_for():
                thread.join(WAIT_S)  # it needs Python's lock and the memory more than the search does
            else:
                self._improve(board, CHUNK if self.behind is None else TURN, self.known.ends_at)
        board = min([board, *self._sliced()], key=lambda one: one.objective())
        board = self._granted(board, None)
        self._keep(board, at_once=True)
        while not self.known.over():
            board = self._race([board, *self._from_columns(board, None)])
            self._keep(board, at_once=True)
            if not thread.is_alive():
                thread = self.guide.beside(self.guide.sharpen)
            before, until = board.objective(), time.monotonic() + max(2.0, CYCLE * self.limits.wall_s)
            while not self.known.over() and time.monotonic() < until:
                board = self._round(board)
            if board.objective() > before * (1 - STALLED) and len(board.pool) <= MOST_NODES:
                board = self._restarted(self._repaired(board))
            self._keep(board, at_once=True)

    def _race(self, boards: list[Board]) -> Board:
        """Improve several plans for a while, each thread one after the other; the best."""
        if len(boards) == 1:
            return boards[0]
        each_s = RACE * self.limits.wall_s / math.ceil(len(boards) / self.workers)

        def work(i: int) -> None:
            for board in boards[i :: self.workers]:
                self._improve(board, None, min(self.known.ends_at, time.monotonic() + each_s))

        in_parallel(work, self.workers)
        return min(boards, key=lambda board: board.objective())

    def _repaired(self, board: Board) -> Board:
        """The plan with some GPUs after others planned again exactly, for as long as that helps."""
        from solvers.repair import TURNS, pick, repair  # CP-SAT takes 50 MiB, so only where it is used

        placed, until = board.placed(), time.monotonic() + REPAIR * self.limits.wall_s
        turn = last = self.repairs
        while not self.known.over() and time.monotonic() < until and turn < last + len(TURNS):
            seconds = min(REPAIR_S, self.known.left())
            better = repair(self.problem, placed, pick(self.facts, placed, turn), seconds, turn, self.workers)
            turn += 1
            if better is not None:
                placed, last = better, turn
        self.repairs = turn
        repaired = self._board(placed, turn)
        return min((board, repaired), key=lambda one: one.objective())

    def _restarted(self, board: Board) -> Board:
        """The best of the plan and of some from nothing, each with another makespan granted: there may be a better valley."""
        until = time.monotonic() + RESTART * self.limits.wall_s
        made: list[tuple[Board, Board]] = [(self.blank, board)]

        def work(_: int) -> None:
            while not self.known.over() and time.monotonic() < until:
                turn, self.restarts = self.restarts, self.restarts + 1
                last = int(self.facts.earliest_makespan * (1 + GRANTS[turn % len(GRANTS)]))
                blank = Board(self.facts, self.contents, last, self.limits.seed + turn)
                fresh = blank.again(self.problem.base, turn)
                fresh.value(self.guide.job_prices)
                fresh.sweep()
                self._improve(fresh, STEPS_A_RESTARTED_NODE * len(fresh.pool), until)
                made.append((blank, fresh))

        in_parallel(work, self.workers)
        self.blank, best = min(made, key=lambda one: one[1].objective())
        best.place_hostless()
        return best

    def _round(self, board: Board) -> Board:
        """All threads at once, each on its own nodes; then everything is put together again."""
        divided = len(board.pool) >= NODES_EACH * self.workers
        parts = board.split(self.workers if divided else 1, self.steps)
        while len(parts) < self.workers:
            parts += board.split(1, self.steps + len(parts))
        jobs = self.problem.jobs
        ends_at = self.known.ends_at - jobs / GATHERED_PER_S
        until = min(ends_at, time.monotonic() + ROUND_S + jobs / ROUND_JOBS_PER_S)

        def work(i: int) -> None:
            while time.monotonic() < until:
                self._turn(parts[i])
                for _ in range(TURN // CHUNK):
                    if time.monotonic() < until:
                        parts[i].improve(CHUNK, WIDE)

        in_parallel(work, len(parts))
        self.steps += sum(part.steps for part in parts) - len(parts) * board.steps
        plan = board.gather(parts) if divided else min(parts, key=lambda part: part.total).placed()
        parts.clear()  # tens of MiB each on large clusters
        joined = self._board(plan, self.steps)
        kept = joined if joined.objective() <= board.objective() else board
        self._keep(kept)
        return kept

    # ---- bound and columns ----

    def _from_columns(self, board: Board, rounds: int | None) -> list[Board]:
        """Plans rounded from the program over node columns, the board's among them; none if there is no time for it."""
        most_s = min(COLUMNS * self.limits.wall_s, self.known.left() - AFTER * self.limits.wall_s)
        least_s = COLUMNS_AT_LEAST_S + len(board.pool) / NODES_PER_COLUMN_S
        if rounds is not None:
            most_s, least_s = SHARE * self.limits.wall_s, COLUMNS_S * len(board.pool)
        if self.known.over() or most_s < least_s:
            return []
        until = time.monotonic() + most_s
        if self.made is None:
            self.made = Generator(self.facts, self.contents, self.blank.last, self.limits.seed, self.workers)
            if self.warm is not None:
                self.made.columns.adopt(self.warm)
        self.made.columns.learn(board.placed(), board.table("COST"))
        prices = None if self.guide.prices is None or self.rounded else self.guide.prices.job
        self.made.run(prices, rounds, until)
        self.rounded += 1
        if not self.made.master.columns or self.known.left() <= 0:
            return []
        choices = self._choices(self.made, rounds is not None)
        return [self._rounded_board(plan_of(self.made.columns, chosen)) for chosen in choices]

    def _choices(self, made: Generator, deterministic: bool) -> list[list[int]]:
        """Choices of columns: of a dive, on small clusters of several, and of branch and bound if it has time to be better."""
        if deterministic:
            return [made.dive(math.inf)]
        few = made.master.nodes.sum() <= MOST_NODES
        began = time.monotonic()
        until = began + DIVE * self.limits.wall_s
        choices = [made.dive(until)]
        each_s = time.monotonic() - began
        while few and len(choices) < DIVES and time.monotonic() + each_s < until:
            choices.append(made.dive(until))
        seconds = ROUND * self.limits.wall_s
        if not few or seconds < ROUND_AT_LEAST_S:
            return choices
        rounding = Rounding(made.master, self.limits.seed)
        found: list[list[int] | None] = [None, None]

        def work(i: int) -> None:
            found[i] = rounding.by_highs(seconds) if i == 0 else rounding.by_cpsat(seconds, choices[0])

        in_parallel(work, 2)
        return [*choices, *(choice for choice in found if choice)]

    def _rounded_board(self, placed: Placed) -> Board:
        """A plan made of columns, with the nodes filled that it leaves empty."""
        board = self._board(mended(self.problem, placed), self.rounded)
        empty = [v for v in board.pool.tolist() if not board.table("NODE_GPUS")[v]]
        board.improve_on(np.array(empty, np.int64), STEPS_AN_EMPTY_NODE, 0.5)
        board.place_hostless()
        return board

    # ---- what is known ----

    def _keep(self, board: Board, at_once: bool = False) -> None:
        self.known.keep(board.objective(), board.placed, at_once)

    def _solution(self) -> Solution:
        if self.hostless and self.known.best is not None:
            board = self._board(self.known.best.placed, 0)
            board.place_hostless()
            self._keep(board, at_once=True)
        best = self.known.end()
        columns = len(self.made.columns.columns) if self.made else 0
        done = f"{self.steps} steps, {columns} columns, {self.rounded} roundings"
        return Solution(
            "patterns",
            Status.FEASIBLE,
            best.placed,
            objective(self.problem, best.placed).total,
            self.known.bound,
            time.monotonic() - self.known.began,
            f"{done}, {self.repairs} repairs, {self.restarts} restarts{self.guide.trouble}",
            warm=self._left_over(),
        )

    def _left_over(self) -> Warm | None:
        """Prices and the best columns, for the next solve."""
        prices, made = self.guide.prices, self.made
        if prices is None:
            return None
        numbers = [] if made is None else made.master.best_columns() or range(len(made.columns.columns))
        return Warm(
            job_price=tuple(None if math.isnan(price) else price for price in prices.job.tolist()),
            budget_price=tuple(prices.budget.tolist()),
            move_price=float(prices.move),
            job_class=tuple(made.columns.class_of.tolist())
            if made is not None
            else (-1,) * self.problem.jobs,
            columns=made.columns.contents(numbers) if made is not None else (),
        )
