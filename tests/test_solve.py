"""The real engines behind the one door, on problems that once went wrong elsewhere."""

from dataclasses import replace

import pytest

import solvers
from solvers import Limits, Status, check, engines
from tests.problems import HOUR, job, make, node, random_problem

EXACT = ("cp-sat", "highs", "cbc")
LIMITS = Limits(wall_s=20.0, workers=1)


def told(solution):
    """All that a solution says, but for wall seconds."""
    attempts = tuple(replace(attempt, wall_s=0) for attempt in solution.attempts)
    return repr(replace(solution, wall_s=0, attempts=attempts))


def attempt(solution, engine):
    (found,) = [a for a in solution.attempts if a.engine == engine]
    return found


def test_every_engine_places_two_jobs_that_fit(solve):
    assert None not in solve(make([node(2)], [job(alone=True), job(alone=True)])).placed


def test_every_engine_answers_for_an_empty_queue_and_for_no_gpus(solve):
    assert solve(make([node(1)])).placed == ()
    assert solve(make([], [job()], kinds=1)).placed == (None,)


@pytest.mark.parametrize("name", ["auto", *EXACT])
@pytest.mark.parametrize("seed", range(3))
def test_small_problems_are_proven_optimal(name, seed):
    problem = random_problem(seed, 6, 3)
    found = solvers.solve(problem, LIMITS, engine=name)
    assert (found.status, found.bound) == (Status.OPTIMAL, found.objective)
    assert found.note == ""


def test_costs_too_large_for_a_model_give_the_greedys_plan_and_a_message():
    huge = make([node(1)], [job(wait_cost=2**62 + i, unit_speed=2**62 + i) for i in range(6)])
    found = solvers.solve(huge, LIMITS, engine="cp-sat")
    assert (found.engine, found.status) == ("greedy", Status.FEASIBLE)
    assert found.placed is not None and check.violations(huge, found.placed) == ()
    assert found.note.startswith("cp-sat failed: invalid model: ")


def test_a_second_solve_may_start_from_another_hint():
    problem = make([node(2)], [job(alone=True), job(alone=True), job(alone=True, wait_cost=2 * HOUR)])
    first = solvers.solve(problem, LIMITS, engine="cp-sat", hint=((0,), (1,), None))
    second = solvers.solve(problem, LIMITS, engine="cp-sat", hint=(None, (0,), (1,)))
    assert [attempt(found, "cp-sat").status for found in (first, second)] == [Status.OPTIMAL] * 2
    assert first.objective == second.objective


@pytest.mark.parametrize("name", ["auto", *engines.ENGINES])
def test_a_deterministic_solve_says_the_same_every_time(name):
    problem = random_problem(7, 8, 4)
    limits = Limits(wall_s=4.0, deterministic=True, seed=5)
    assert len({told(solvers.solve(problem, limits, engine=name)) for _ in range(3)}) == 1
