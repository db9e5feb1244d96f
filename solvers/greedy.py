"""The engine that always has an answer: best fit by marginal cost, in several orders, the best plan kept.

Running jobs stay. Each queued job in turn goes where it adds the least to the objective, or waits if that is
cheaper. One order decides much of the outcome and none is best everywhere (tight hosts want big demands first, big
gangs want whole nodes first), so several are tried. The first always runs to its end; the others while time is left.
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


def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """The best of the base plan, a valid hint, and a pass in each order; a limit of 0 s means one pass."""
    start = time.monotonic()
    best = problem.base
    lowest = objective(problem, best).total
    if hint is not None and not violations(problem, hint):
        best, lowest = _better(problem, best, lowest, hint, report)
    facts = Facts(problem)
    sharing = Sharing(facts)
    passes = 0
    for order in orders(facts):
        deadline = start + limits.wall_s if passes else None
        state = one_pass(facts, sharing, order, deadline)
        if state is None:
            break
        passes += 1
        if state.total < lowest:
            best, lowest = _better(problem, best, lowest, tuple(state.placed), report)
    wall_s = time.monotonic() - start
    return Solution("greedy", Status.FEASIBLE, best, lowest, None, wall_s, f"{passes} orders")


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
            _decide(state, j, refused)
    return state


def _decide(state: State, j: int, refused: dict[int, float]) -> None:
    """Place a job where it costs least or let it wait.

    ``refused`` holds the least cost at which a job of a class found a place but rather waited. Costs hardly
    ever fall while a plan fills up, so that a job like it need not look again.
    """
    facts = state.facts
    waiting = state.waiting(j)
    kind = facts.classes[j]
    typical = not (facts.never.get(j) or facts.budget_of.get(j) or len(facts.windowed))
    if typical and refused.get(kind, -1.0) >= waiting:
        state.defer(j)
        return
    bid = cheapest(state, j, facts.everything)
    if bid is not None and bid.cost < waiting:
        state.put(j, bid.spot)
        return
    state.defer(j)
    if typical:
        refused[kind] = np.inf if bid is None else bid.cost


def orders(facts: Facts) -> list[list[int]]:
    """Sequences of all jobs, each good for another kind of queue; equal keys keep their place."""
    problem = facts.problem
    if not problem.jobs:
        return [[]]
    n = np.maximum(problem.job_gpus, 1)
    late = np.maximum(0, problem.deferred_end - facts.earliest_makespan) * problem.makespan_cost
    urgency = (problem.wait_cost + late) / n
    demand = _demand(problem)
    gain = problem.wait_cost + late
    keys = (
        (-urgency,),
        (-problem.wait_cost / n,),
        (-n, -urgency),
        (-gain / demand,),
        (-demand, -urgency),
        (problem.job_gpus == 0, -(problem.wait_cost / n).round(-5), -demand),
    )
    return [np.lexsort(key[::-1]).tolist() for key in keys]


def _demand(problem: Problem) -> np.ndarray:
    """The largest part of the cluster's GPUs, GPU memory, cores or host memory that each job asks for."""
    memory = (
        problem.memory_mib.min(1, initial=0)
        if problem.memory_mib.shape[1] == 0
        else problem.memory_mib.min(1)
    )
    asked = (
        (problem.job_gpus, problem.gpu_max_tenants.sum()),
        (problem.job_gpus * memory, problem.gpu_memory_mib.sum()),
        (problem.cpu_milli, problem.node_cpu_milli.sum()),
        (problem.host_memory_mib, problem.node_memory_mib.sum()),
    )
    parts = np.array([demand / max(1, int(offer)) for demand, offer in asked])
    most: np.ndarray = np.maximum(parts.max(0), 1e-12)
    return most
