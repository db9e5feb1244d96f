"""The engine that always has an answer: best fit by marginal cost, in many orders, the best plan kept.

Running jobs stay. Each queued job in turn goes where it adds the least to the objective, or waits if that is
cheaper. The order decides much of the outcome and none is best everywhere (tight hosts want big demands first, big
gangs want whole nodes first), so a few sensible ones are tried, and then drawn ones: either the best so far with some
jobs moved up or down, or a new mixture. The first pass always runs to its end; the others while time is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from solvers.check import objective, violations
from solvers.facts import Facts
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.sharing import Sharing
from solvers.spots import cheapest
from solvers.state import State

#: Jobs between two looks at the clock.
STRIDE = 64
#: Orders tried at most, and the part of the limit that they may use: improving a plan is for other engines.
PASSES = 48
PART = 0.25
#: Seconds that a job takes in a pass, guessed high.
JOB_S = 0.0006


def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """The best of the base plan, a valid hint, and a pass in each order; a limit of 0 s means one pass."""
    start = time.monotonic()
    best = problem.base
    lowest = objective(problem, best).total
    if hint is not None and not violations(problem, hint):
        best, lowest = _better(problem, best, lowest, hint, report)
    facts = Facts(problem)
    sharing = Sharing(facts)
    ranks = Ranks(facts, limits.seed)
    passes = 0
    for _ in range(_most_passes(problem, limits)):
        rank = ranks.draw()
        state = one_pass(
            facts, sharing, np.argsort(-rank, kind="stable").tolist(), _deadline(start, limits, passes)
        )
        if state is None:
            break
        passes += 1
        ranks.learn(rank, state.total)
        if state.total < lowest:
            best, lowest = _better(problem, best, lowest, tuple(state.placed), report)
    wall_s = time.monotonic() - start
    return Solution(
        "greedy", Status.FEASIBLE, best, lowest, None, wall_s, f"{passes} order{'s' if passes != 1 else ''}"
    )


def _most_passes(problem: Problem, limits: Limits) -> int:
    """In deterministic mode the number of passes must not depend on the clock, so it goes by the queue's length."""
    if limits.wall_s <= 0:
        return 1
    if limits.deterministic:
        return max(1, min(PASSES, int(PART * limits.wall_s / (JOB_S * max(1, problem.jobs)))))
    return PASSES


def _deadline(start: float, limits: Limits, passes: int) -> float | None:
    """None for the first pass, which is always finished."""
    if not passes:
        return None
    return start + limits.wall_s * (1.0 if limits.deterministic else PART)


def _better(
    problem: Problem, best: Placed, lowest: int, placed: Placed, report: Report
) -> tuple[Placed, int]:
    """The better of two plans by the referee's count, told to whoever listens."""
    total = objective(problem, placed).total
    if total >= lowest:
        return best, lowest
    report(placed, total, None)
    return placed, total


def one_pass(facts: Facts, sharing: Sharing, order: Sequence[int], deadline: float | None) -> State | None:
    """Place the queued jobs in this order; None if the deadline came first."""
    state = State(facts, sharing)
    state.load(facts.problem.base)
    refused: dict[int, float] = {}
    for turn, j in enumerate(order):
        if deadline is not None and not turn % STRIDE and time.monotonic() > deadline:
            return None
        if facts.problem.home[j] is None:
            decide(state, j, refused)
    return state


def decide(state: State, j: int, refused: dict[int, float]) -> bool:
    """Place an open job where it costs least or let it wait; is it placed?

    ``refused`` holds the least cost at which a job of a class found a place but rather waited. Costs hardly
    ever fall while a plan fills up, so that a job like it need not look again.
    """
    facts = state.facts
    waiting = state.waiting(j)
    kind = facts.classes[j]
    typical = not (facts.never.get(j) or facts.budget_of.get(j) or len(facts.windowed))
    if typical and refused.get(kind, -1.0) >= waiting:
        state.defer(j)
        return False
    bid = cheapest(state, j, facts.everything)
    if bid is not None and bid.cost < waiting:
        state.put(j, bid.spot)
        return True
    state.defer(j)
    if typical:
        refused[kind] = np.inf if bid is None else bid.cost
    return False


class Ranks:
    """Draws the ranks of all jobs, highest first; knows the best drawn so far."""

    def __init__(self, facts: Facts, seed: int) -> None:
        self.fixed = fixed_ranks(facts)
        self.numbers = np.random.default_rng(seed)
        self.worth = np.log(np.maximum(1, facts.problem.wait_cost + _lateness(facts)))
        self.demand = np.log(_demand(facts.problem))
        self.gpus = np.log(np.maximum(facts.problem.job_gpus, 1))
        self.best = self.fixed[0]
        self.lowest: int | None = None
        self.drawn = 0

    def draw(self) -> np.ndarray:
        """The next fixed ranks, then in turns the best ones disturbed and new ones."""
        self.drawn += 1
        if self.drawn <= len(self.fixed):
            return self.fixed[self.drawn - 1]
        if self.drawn % 4 == 0 or self.drawn < 2 * len(self.fixed):
            return self._mixture()
        noise = self.numbers.normal(0, self.numbers.choice([0.05, 0.15, 0.4]), len(self.best))
        return self.best + noise * (
            self.numbers.random(len(self.best)) < self.numbers.choice([0.1, 0.3, 1.0])
        )

    def learn(self, rank: np.ndarray, total: int) -> None:
        """Remember ranks that led to the lowest total."""
        if self.lowest is None or total < self.lowest:
            self.best, self.lowest = rank, total

    def _mixture(self) -> np.ndarray:
        """Worth by a mean of GPUs and largest demand, with noise."""
        by_demand, by_gpus = self.numbers.uniform(0, 1.2), self.numbers.uniform(-0.3, 0.3)
        noise = self.numbers.uniform(-0.3, 0.3, len(self.worth))
        rank: np.ndarray = (
            self.worth - by_demand * self.demand + (by_demand - 1 + by_gpus) * self.gpus + noise
        )
        return rank


def fixed_ranks(facts: Facts) -> list[np.ndarray]:
    """Worth a GPU, worth by the largest demand, priority alone, big gangs first, big demands first."""
    problem = facts.problem
    gpus = np.log(np.maximum(problem.job_gpus, 1))
    worth = np.log(np.maximum(1, problem.wait_cost + _lateness(facts)))
    demand = _demand(problem)
    return [
        worth - gpus,
        worth - np.log(demand),
        np.log(np.maximum(1, problem.wait_cost)) - gpus,
        worth + 20 * gpus,
        worth + 20 * np.log(demand),
    ]


def _lateness(facts: Facts) -> np.ndarray:
    """What the makespan term would charge for each job alone, were it deferred."""
    problem = facts.problem
    late: np.ndarray = np.maximum(0, problem.deferred_end - facts.earliest_makespan) * problem.makespan_cost
    return late


def _demand(problem: Problem) -> np.ndarray:
    """The largest part of the cluster's GPUs, GPU memory, cores or host memory that each job asks for."""
    asked = (
        (problem.job_gpus, problem.gpu_max_tenants.sum()),
        (problem.job_gpus * problem.memory_mib.min(1, initial=2**40), problem.gpu_memory_mib.sum()),
        (problem.cpu_milli, problem.node_cpu_milli.sum()),
        (problem.host_memory_mib, problem.node_memory_mib.sum()),
    )
    parts = np.array([demand / max(1, int(offer)) for demand, offer in asked])
    most: np.ndarray = np.maximum(parts.max(0), 1e-12)
    return most
