"""Ruin and recreate: take some jobs of a few nodes away, put them and some that wait back better.

A step looks at few GPUs, so there are hundreds a second at any size. It is kept if the objective did not rise;
that it may stay level lets the plan drift out of corners. Running jobs take part if they may move, as long as no
more than ``max_moves`` are away from home.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field

import numpy as np

from solvers import greedy
from solvers.check import objective, violations
from solvers.facts import Facts, View
from solvers.problem import Limits, Placed, Problem, Report, Solution, Spot, Status
from solvers.sharing import Sharing
from solvers.spots import cheapest, stay
from solvers.state import State
from solvers.terms import Bid

#: Steps per second of the limit in deterministic mode: few enough that the clock does not end the run first.
STEPS_PER_S = 120
#: Parts of the GPUs not seen when a job is put back, drawn for each job.
OVERLOOK = (0.0, 0.0, 0.05, 0.25)
#: Nodes looked at in a step, drawn.
NODES = (1, 2, 2, 3, 3, 4)
#: How often everything on the nodes is taken away, how many jobs else, and how many that wait join in.
ALL_OF_A_NODE = 0.05
FEW = (1, 2, 2, 3, 3, 4, 5, 6, 8)
WAITING = 16
#: How often a running job moves although it would do better to stay: it may make room.
LEAVE_HOME = 0.25
#: The largest part of the time left for the last fill.
LAST_FILL = 0.1
#: Seconds between two reports.
REPORT_S = 0.2


def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """Improve the hint if it is valid, else the greedy's plan, until the limit."""
    start = time.monotonic()
    if hint is None or violations(problem, hint):
        first = greedy.solve(problem, limits, None, report)
        hint = first.placed
    if hint is None:
        hint = problem.base
    facts = Facts(problem)
    search = Search(State(facts, Sharing(facts)), hint, limits.seed)
    # A deterministic search is over after its steps, whatever the clock says; whoever started it guards the time.
    fixed = limits.deterministic
    most = int(STEPS_PER_S * limits.wall_s) if fixed else None
    search.run(math.inf if fixed else start + limits.wall_s, most, report)
    placed = tuple(search.state.placed)
    note = f"{search.steps} steps, {search.gains} gains"
    total = objective(problem, placed).total
    return Solution("search", Status.FEASIBLE, placed, total, None, time.monotonic() - start, note)


@dataclass
class Ruin:
    """The jobs of one step, where they were, and where they may go."""

    view: View
    jobs: list[int]
    before: dict[int, Spot | None] = field(default_factory=dict)


class Search:
    """A plan under improvement."""

    def __init__(self, state: State, placed: Placed, seed: int) -> None:
        self.state, self.facts = state, state.facts
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        state.load(placed)
        state.defer_all()
        self.deferred = [j for j, spot in enumerate(placed) if spot is None]
        self.place_of = {j: i for i, j in enumerate(self.deferred)}
        self.steps = self.gains = 0
        self._views: dict[tuple[int, ...], View] = {}
        # Nodes that could ever take a newcomer, or have one.
        self.nodes = np.flatnonzero(self.facts.open_nodes.any(0)).tolist()

    def run(self, deadline: float, most: int | None, report: Report) -> None:
        """Steps until the deadline, and at most ``most``."""
        began = time.monotonic()
        told, told_at = self.state.total, 0.0
        self.fill(deadline)
        # The last fill takes about as long as the first: steps leave room that those who wait have not seen.
        stop = deadline - min(time.monotonic() - began, LAST_FILL * max(0.0, deadline - began))
        while self.nodes and (most is None or self.steps < most):
            now = time.monotonic()
            if now >= stop:
                break
            self.step()
            if self.state.total < told and now - told_at > REPORT_S:
                told, told_at = self.state.total, now
                report(tuple(self.state.placed), told, None)
        self.fill(deadline)
        if self.state.total < told:
            report(tuple(self.state.placed), self.state.total, None)

    def fill(self, deadline: float) -> None:
        """Start every queued job that waits although it would cost less to start it, the costliest first."""
        refused: dict[int, float] = {}
        changed: list[int] = []
        for turn, j in enumerate(sorted(self.deferred, key=lambda j: (-self.state.waiting(j), j))):
            if not turn % greedy.STRIDE and time.monotonic() > deadline:
                break
            if self.state.problem.home[j] is None and self._start(j, refused):
                changed.append(j)
        self._sort_out(changed)

    def _start(self, j: int, refused: dict[int, float]) -> bool:
        before = self.state.total
        self.state.reopen(j)
        if not greedy.decide(self.state, j, refused):
            return False
        if self.state.total <= before:
            return True
        self.state.take(j)
        self.state.defer(j)
        return False

    def step(self) -> bool:
        """One ruin and recreate; was it kept?"""
        self.steps += 1
        before = self.state.total
        ruin = self._ruin()
        for j in ruin.jobs:
            if self.state.placed[j] is not None:
                self.state.take(j)
            else:
                self.state.reopen(j)
        self._recreate(ruin)
        if self._is_lawful(ruin) and self.state.total <= before:
            self.gains += self.state.total < before
            self._sort_out(ruin.jobs)
            return True
        self._undo(ruin)
        return False

    # ---- ruin ----

    def _ruin(self) -> Ruin:
        nodes = self._pick_nodes()
        view = self._view(nodes)
        inside = set(nodes)
        there = sorted({j for v in nodes for j in self.state.on_node[v]})
        loose = self._thin([j for j in there if self._may_leave(j, inside)])
        jobs = loose + self._draw_deferred(WAITING + len(loose) // 2)
        return Ruin(view, jobs, {j: self.state.placed[j] for j in jobs})

    def _thin(self, loose: list[int]) -> list[int]:
        """Mostly a few of the jobs that could leave; of those that run no more than may move."""
        draw = self.random
        runs = [j for j in loose if self.state.problem.home[j] is not None]
        spared = draw.sample(runs, max(0, len(runs) - draw.randint(0, self.state.problem.max_moves)))
        loose = [j for j in loose if j not in spared]
        if draw.random() < ALL_OF_A_NODE:
            return loose
        return draw.sample(loose, min(len(loose), draw.choice(FEW)))

    def _pick_nodes(self) -> tuple[int, ...]:
        """A few nodes: fewer give more steps a second, more let gangs span and jobs move round corners."""
        count = min(len(self.nodes), self.random.choice(NODES))
        return tuple(sorted(self.random.sample(self.nodes, count)))

    def _view(self, nodes: tuple[int, ...]) -> View:
        view = self._views.get(nodes)
        if view is None:
            if len(self._views) > 4096:
                self._views.clear()
            view = self._views[nodes] = self.facts.view(list(nodes))
        return view

    def _may_leave(self, j: int, inside: set[int]) -> bool:
        """May this job be taken away, and is all of it (and its home) inside?"""
        spot, home = self.state.placed[j], self.state.problem.home[j]
        if home is not None and not (self.facts.movable[j] or self.facts.preemptible[j]):
            return False
        if home is not None and not self.state.problem.max_moves:
            return False
        return inside.issuperset(self._nodes_of(j, spot)) and inside.issuperset(self._nodes_of(j, home))

    def _nodes_of(self, j: int, spot: Spot | None) -> list[int]:
        if spot is None:
            return []
        return [self.facts.gpu_node[g] for g in spot] if self.facts.job_gpus[j] else list(spot)

    def _draw_deferred(self, count: int) -> list[int]:
        """Some that wait: of three times as many drawn, those for whom a GPU's wait costs most."""
        pool = self.deferred
        if len(pool) > count:
            pool = self.random.sample(pool, min(len(pool), 3 * count))
            f = self.facts
            pool.sort(key=lambda j: -f.wait_cost[j] / max(1, f.job_gpus[j]) * self.random.uniform(0.5, 1.5))
        return [j for j in pool[:count] if self.state.problem.home[j] is None]

    # ---- recreate ----

    def _recreate(self, ruin: Ruin) -> None:
        refused: dict[int, float] = {}
        for j in self._order(ruin.jobs):
            waiting = self.state.waiting(j)
            kind = self.facts.classes[j]
            if refused.get(kind, -1.0) >= waiting and self.state.problem.home[j] is None:
                self.state.defer(j)
                continue
            bid = self._bid(j, ruin.view)
            if bid is not None and (bid.cost < waiting or self.facts.must_run(j)):
                self.state.put(j, bid.spot)
                continue
            self.state.defer(j)
            if not self.facts.never.get(j) and not self.facts.budget_of.get(j):
                refused[kind] = np.inf if bid is None else bid.cost

    def _bid(self, j: int, view: View) -> Bid | None:
        overlook = self.random.choice(OVERLOOK)
        bid = cheapest(self.state, j, view, overlook=overlook, rng=self.numbers)
        if self.state.problem.home[j] is None:
            return bid
        home = stay(self.state, j, view)
        if home is None or bid is None:
            return home or bid
        return bid if bid.cost < home.cost or self.random.random() < LEAVE_HOME else home

    def _order(self, jobs: list[int]) -> list[int]:
        """Costly waits first, with noise; at times big gangs or big demands first.

        Who must run comes before all, or after all: then room is made for one that waits.
        """
        f, draw = self.facts, self.random
        gang, host = draw.choice((0.0, 0.0, 1.0)), draw.choice((0.0, 0.0, 0.3))
        shaken, run_first = draw.random() < 0.1, draw.random() < 0.6

        def key(j: int) -> tuple[bool, float]:
            n = max(1, f.job_gpus[j])
            worth = 1.0 if shaken else self.state.waiting(j) / n
            worth *= draw.uniform(0.6, 1.4)
            weight = n**gang * (1 + f.cpu_milli[j] / n / 1000) ** host
            return f.must_run(j) != run_first, -worth * weight

        return sorted(jobs, key=key)

    # ---- keep or undo ----

    def _is_lawful(self, ruin: Ruin) -> bool:
        """Running jobs run and move as they may, and GPUs that lost a tenant are still well shared."""
        state = self.state
        if state.moved > state.problem.max_moves:
            return False
        if any(state.placed[j] is None and self.facts.must_run(j) for j in ruin.jobs):
            return False
        left = {g for j in ruin.jobs if self.facts.job_gpus[j] for g in ruin.before[j] or ()}
        return all(state.holds(g) for g in sorted(left))

    def _sort_out(self, jobs: list[int]) -> None:
        """Keep the list of those that wait."""
        for j in jobs:
            waits = self.state.placed[j] is None
            if waits and j not in self.place_of:
                self.place_of[j] = len(self.deferred)
                self.deferred.append(j)
            elif not waits and j in self.place_of:
                at, last = self.place_of.pop(j), self.deferred.pop()
                if last != j:
                    self.deferred[at] = last
                    self.place_of[last] = at

    def _undo(self, ruin: Ruin) -> None:
        changed = [j for j in ruin.jobs if self.state.placed[j] != ruin.before[j]]
        for j in changed:
            if self.state.placed[j] is not None:
                self.state.take(j)
        for j in ruin.jobs:
            spot = ruin.before[j]
            if spot is None:
                self.state.defer(j)
            elif self.state.placed[j] is None:
                self.state.put(j, spot)
