"""Plans with broken rules made valid: who goes, and that no more go than must."""

import numpy as np
import pytest
from boards import VARIANTS, drawn, scattered
from problems import job, make, node

from solvers.check import violations
from solvers.mend import mended
from solvers.problem import Budget


def test_only_newcomers_that_break_a_rule_are_left_out_of_a_plan_from_columns():
    """A gang too late for the reservation goes, its neighbours stay; one of two goes where there is room for one."""
    nodes = [node(2, until_s=100), node(1, max_tenants=1), node(1)]
    jobs = [
        job(2, remaining_p90_s=101),
        job(remaining_p90_s=100),
        job(remaining_p90_s=100),
        job(),
        job(),
        job(home=(3,)),
    ]
    problem = make(nodes, jobs)
    plan = ((0, 1), (0,), (1,), (2,), (2,), (3,))
    left = mended(problem, plan)
    assert left[:3] == (None, (0,), (1,)) and left[5] == (3,)
    assert sorted(left[3:5], key=str) == [(2,), None]
    assert mended(problem, left) == left


def test_of_those_who_draw_on_a_budget_the_last_go():
    budgets = (Budget("quota", "a", 5, (0, 2, 3), (3, 3, 2)), Budget("quota", "b", 9, (1,), (9,)))
    problem = make([node(4)], [job()] * 4, budgets=budgets)
    assert mended(problem, ((0,), (1,), (2,), (3,))) == ((0,), (1,), None, (3,))


def test_running_jobs_go_home_where_they_may_not_move_or_are_too_many():
    jobs = [job(home=(0,), movable=True), job(home=(1,)), job(home=(2,), movable=True), job(home=(3,))]
    problem = make([node(8)], jobs, max_moves=1)
    assert mended(problem, ((4,), (5,), (6,), None)) == ((4,), (1,), (2,), (3,))


def test_a_plan_for_other_jobs_is_the_base_plan():
    problem = make([node(1)], [job(home=(0,)), job()])
    for plan in (((0,),), (None,) * 3, ("a", None)):
        assert mended(problem, plan) == problem.base
    assert mended(problem, ((0,), (7,))) == ((0,), None)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_few_jobs_put_anywhere_are_most_of_what_goes(variant, seed):
    problem = drawn(variant, seed)
    rng = np.random.default_rng(seed)
    valid = scattered(problem, seed)
    plan = list(valid)
    for j in rng.permutation(problem.jobs)[:4].tolist():
        n, most = int(problem.job_gpus[j]), problem.gpus if problem.job_gpus[j] else problem.nodes
        plan[j] = tuple(sorted(rng.choice(most, max(n, 1), replace=False).tolist())) if n <= most else None
    left = mended(problem, tuple(plan))
    assert violations(problem, left) == ()
    new = [j for j, spot in enumerate(valid) if spot != problem.home[j]]
    assert sum(left[j] == valid[j] for j in new) >= len(new) - 12
