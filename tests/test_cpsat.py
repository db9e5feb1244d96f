"""The CP-SAT engine: its hints, its word and its limits."""

from dataclasses import replace

import numpy as np
import pytest
from brute import optimum, tiny
from ortools.sat.python import cp_model
from problems import HOUR, job, make, node, random_problem

from solvers import cpsat
from solvers.check import Violation, objective, violations
from solvers.problem import Budget, Limits, Status
from solvers.twins import OF_JOBS, in_order, twins

LIMITS = Limits(wall_s=60, deterministic=True)


def silent(placed, cost, bound):
    pass


@pytest.mark.parametrize("seed", range(25))
def test_the_hint_of_a_plan_is_that_plan_in_every_variable(seed):
    problem = tiny(seed)
    least, placed = optimum(problem)
    program = cpsat.build(problem)
    for plan, cost in ((placed, least), (problem.base, objective(problem, problem.base).total)):
        program.hint(plan)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.fix_variables_to_their_hinted_value = True
        assert solver.status_name(solver.solve(program.model)) == "OPTIMAL"
        assert solver.objective_value * program.divisor + program.constant == cost
        assert program.placement(solver.value) == in_order(problem, plan)


def with_twins(problem):
    """The same problem, but its first four jobs, all queued, are equal in everything."""
    same = {name: getattr(problem, name).copy() for name in OF_JOBS}
    for values in same.values():
        values[:4] = values[0]
    return replace(problem, **same, never=(), budgets=(), gpu_holder=np.full(problem.gpus, -1))


@pytest.mark.parametrize("seed", range(16))
def test_the_order_of_twins_cuts_no_optimum_off(seed):
    problem = with_twins(tiny(seed))
    least, placed = optimum(problem)
    assert twins(problem)[0][:4] == (0, 1, 2, 3)
    for hint in (placed, placed[3::-1] + placed[4:], None):
        found = cpsat.solve(problem, LIMITS, hint, silent)
        assert (found.status, found.objective) == (Status.OPTIMAL, least)
    program = cpsat.build(problem)
    program.hint(placed[3::-1] + placed[4:])
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.status_name(solver.solve(program.model)) == "OPTIMAL"


def test_jobs_are_twins_only_if_nothing_tells_them_apart():
    def found(*jobs, **rest):
        return twins(make([node(2)], jobs, **rest))

    assert found(job(), job(), job(2)) == ((0, 1),)
    assert found(job(), job(wait_cost=1)) == ()
    assert found(job(), job(home=(0,))) == ()
    assert found(job(), job(), job(), never=((0, 2),)) == ()
    assert found(job(), job(), budgets=(Budget("quota", "a", 1, (0,), (1,)),)) == ()
    assert found(job(), job(), budgets=(Budget("quota", "a", 1, (0, 1), (1, 1)),)) == ((0, 1),)
    assert twins(make([node(2, holder=1)], [job(), job()])) == ()


def test_a_second_hint_replaces_the_first():
    problem = tiny(1)
    program = cpsat.build(problem)
    program.hint(problem.base)
    program.hint(optimum(problem)[1])
    hinted = list(program.model.proto.solution_hint.vars)
    assert sorted(hinted) == list(range(len(program.model.proto.variables)))
    assert program.model.validate() == ""


def test_the_objective_is_divided_by_what_its_costs_share():
    jobs = [job(wait_cost=6 * HOUR, unit_speed=4 * HOUR, speed_milli=500) for _ in range(2)]
    assert cpsat.build(make([node(1)], jobs)).divisor % HOUR == 0


def test_an_invalid_model_is_a_failure_with_the_reason():
    huge = [job(wait_cost=2**62 - i) for i in range(3)]
    found = cpsat.solve(make([node(1)], huge), LIMITS, None, silent)
    assert (found.status, found.placed) == (Status.FAILED, None)
    assert found.note.startswith("invalid model: ")


def test_a_claim_of_infeasible_is_an_anomaly():
    program = cpsat.build(tiny(0))
    program.model.add_bool_or([])
    solver = cp_model.CpSolver()
    found = cpsat._solution(program, solver, solver.solve(program.model), 0.0)
    assert (found.status, found.placed, found.bound) == (Status.ANOMALY, None, None)


def test_a_plan_that_the_referee_refuses_is_rejected(monkeypatch):
    fault = Violation("memory", None, 0, None, "too much")
    monkeypatch.setattr(cpsat, "violations", lambda problem, placed: (fault,))
    found = cpsat.solve(tiny(0), LIMITS, None, silent)
    assert (found.status, found.objective, found.note) == (Status.REJECTED, None, "too much")


def test_a_cost_that_the_referee_does_not_find_is_an_anomaly():
    program = cpsat.build(tiny(0))
    program.constant += 1
    solver = cp_model.CpSolver()
    found = cpsat._solution(program, solver, solver.solve(program.model), 0.0)
    assert (found.status, found.bound) == (Status.ANOMALY, None)


def test_what_is_reported_is_verified_and_gets_better():
    problem, news = random_problem(0, 8, 8, nodes_of=4), []
    found = cpsat.solve(problem, LIMITS, None, lambda *told: news.append(told))
    incumbents = [(placed, cost) for placed, cost, _ in news if placed is not None]
    assert all(
        violations(problem, placed) == () and objective(problem, placed).total == cost
        for placed, cost in incumbents
    )
    assert [cost for _, cost in incumbents] == sorted({cost for _, cost in incumbents}, reverse=True)
    assert incumbents[-1][1] == found.objective
    assert all(bound <= found.objective for _, _, bound in news if bound is not None)


@pytest.mark.parametrize("seed", range(12))
def test_a_bound_never_passes_the_optimum_however_early_it_stops(seed):
    problem = tiny(seed)
    found = cpsat.solve(problem, Limits(wall_s=0.001, workers=1), None, silent)
    assert found.bound is None or found.bound <= optimum(problem)[0]


def test_the_same_input_gives_the_same_plan():
    problem = random_problem(3, 12, 12, nodes_of=4)
    limits = Limits(wall_s=1.0, deterministic=True, seed=5)
    runs = [cpsat.solve(problem, limits, None, silent) for _ in range(3)]
    assert len({(run.placed, run.bound) for run in runs}) == 1


def test_nothing_to_place_and_nowhere_to_place_it_are_problems_too():
    assert cpsat.solve(make([node(1)], []), LIMITS, None, silent).placed == ()
    found = cpsat.solve(make([], [job(), job(0)]), LIMITS, None, silent)
    assert (found.status, found.placed, found.objective) == (Status.OPTIMAL, (None, None), 2 * HOUR)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_twelve_jobs_on_twelve_gpus_are_proven_in_ten_seconds(seed):
    problem = random_problem(seed, 12, 12, nodes_of=4)
    assert cpsat.solve(problem, Limits(wall_s=10), None, silent).status is Status.OPTIMAL
