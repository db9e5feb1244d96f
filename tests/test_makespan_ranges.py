"""The bound by ranges of the makespan: above no plan's cost, and lifted where jobs have to run or end late."""

from dataclasses import replace

import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node, random_problem

from solvers.check import objective
from solvers.makespan_ranges import Ranges
from solvers.patterns import solve
from solvers.patterns_bound import pattern_bound
from solvers.problem import Limits

#: A moment that the tests do not reach.
LATER = 1e12
#: What the bound gives away to rounding and to prices that are not quite the best.
ROUNDING = 100


def dear(seed, jobs=5):
    """A tiny problem whose makespan costs as much as all else."""
    problem = tiny(seed, jobs)
    return replace(problem, makespan_cost=max(problem.makespan_cost, HOUR // 40))


def ranges(problem):
    """The ranges of a problem and the bound that they begin with."""
    found = pattern_bound(problem, LATER)
    return Ranges(problem, found), found.bound


@pytest.mark.parametrize("seed", range(200))
def test_it_is_never_above_the_optimum(seed):
    problem = dear(seed)
    best = optimum(problem)[0]
    # It is never above what is known, so only worse plans show it to be too high.
    known = (2 * best, best + best // 10 + 1, objective(problem, problem.base).total)[seed % 3]
    whole, begun = ranges(problem)
    assert begun <= whole.run(known, LATER) <= best


@pytest.mark.parametrize("seed", range(200, 220))
def test_a_better_plan_takes_it_further_and_never_above_the_optimum(seed):
    problem = dear(seed)
    best = optimum(problem)[0]
    whole, reached = ranges(problem)
    for cost in (2 * best, best + best // 20, best):
        bound = whole.run(cost, LATER, most=3)
        assert bound <= best
        assert bound >= reached or bound == cost
        reached = bound


def test_it_is_lifted_by_who_must_run_to_end_in_time():
    # Waiting is cheaper than running at half the speed, but ends later; prices of GPUs alone charge the cheaper and the sooner.
    slow = job(work=1_000_000, deferred_end=4000, wait_cost=HOUR // 10, speed_milli=500)
    problem = make([node(2)], [slow, slow], makespan_cost=HOUR // 1000)
    whole, begun = ranges(problem)
    best = optimum(problem)[0]
    assert begun < best - HOUR // 2
    assert whole.run(best, LATER) >= best - ROUNDING


def test_waiting_jobs_that_end_too_late_are_priced_into_it():
    # One GPU, nobody shares: one of the two waits, and its end is that of the plan. The price of a GPU alone knows only the waiting.
    jobs = [job(work=100_000, deferred_end=900 + i, alone=True, wait_cost=HOUR) for i in range(2)]
    problem = make([node(1)], jobs, makespan_cost=HOUR // 100)
    whole, begun = ranges(problem)
    best = optimum(problem)[0]
    assert begun < best - 700 * (HOUR // 100)
    assert best - ROUNDING <= whole.run(2 * best, LATER) <= best


def test_no_plan_is_better_if_none_is_in_the_ranges():
    problem = dear(3)
    best = optimum(problem)[0]
    whole, begun = ranges(problem)
    assert whole.run(begun, LATER) == begun <= best


def test_it_ends_where_plans_are_paid_for():
    """Opening a GPU earns more than all jobs cost."""
    problem = make(
        [node(1, open_cost=-5 * HOUR)], [job(work=100_000, deferred_end=900)], makespan_cost=HOUR // 100
    )
    whole, begun = ranges(problem)
    best = optimum(problem)[0]
    assert best < 0
    assert begun <= whole.run(best, LATER) <= whole.run(best + HOUR, LATER) <= best + HOUR
    assert whole.run(best, LATER) <= best


def test_it_stops_at_the_number_told():
    problem = replace(random_problem(1, 30, 16, nodes_of=4), makespan_cost=HOUR // 100)
    whole, begun = ranges(problem)
    cost = objective(problem, problem.base).total
    assert whole.run(cost, LATER, most=0) == begun
    assert whole.run(cost, 0.0) == begun
    assert whole.run(cost, LATER, most=2) <= whole.run(cost, LATER)


def test_the_engine_reports_it():
    jobs = [job(work=100_000, deferred_end=900 + i, alone=True, wait_cost=HOUR) for i in range(2)]
    problem = make([node(1)], jobs, makespan_cost=HOUR // 100)
    best = optimum(problem)[0]
    for limits in (Limits(wall_s=1, workers=2), Limits(wall_s=4, deterministic=True)):
        found = solve(problem, limits, None, lambda *_: None)
        assert found.objective == best and found.bound >= best - ROUNDING
