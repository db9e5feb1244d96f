"""First plans: a sweep fills every node in turn, and jobs without GPUs begin where cores and memory are left."""

import numpy as np
import pytest
from boards import VARIANTS, board_of, check, drawn, few, scattered
from brute import tiny
from problems import HOUR, job, make, node

from solvers.check import violations
from solvers.problem import Budget

variants = pytest.mark.parametrize("variant", VARIANTS)


@variants
@pytest.mark.parametrize("seed", range(2))
def test_a_sweep_fills_what_is_empty_and_takes_nothing_away(seed, variant):
    problem = drawn(variant, seed)
    for plan in (problem.base, scattered(problem, seed)):
        board = board_of(problem, plan, seed=seed)
        before = board.total
        board.sweep()
        check(board)
        assert board.total < before
        assert all(new == old for old, new in zip(plan, board.placed(), strict=True) if old is not None)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if VARIANTS[name].get("cpu_only")])
@pytest.mark.parametrize("seed", range(3))
def test_jobs_without_gpus_begin_wherever_that_pays(variant, seed):
    """After that none of those that wait may begin anywhere, or would cost less there."""
    problem = drawn(variant, seed)
    board = board_of(problem, problem.base, seed=seed)
    before = board.placed()
    board.place_hostless()
    check(board)
    plan = board.placed()
    bare = np.flatnonzero(problem.job_gpus == 0).tolist()
    assert [j for j in range(problem.jobs) if plan[j] != before[j] and j not in bare] == []
    for j in bare:
        assert before[j] in (None, plan[j])
        for v in range(problem.nodes) if plan[j] is None and problem.home[j] is None else ():
            other = (*plan[:j], (v,), *plan[j + 1 :])
            later = board_of(problem, other)
            assert violations(problem, other) != () or later.total >= board.total
    assert any(plan[j] is not None and problem.home[j] is None for j in bare)


@pytest.mark.parametrize("seed", range(60))
def test_jobs_without_gpus_begin_where_they_may_in_a_tiny_problem(seed):
    problem = tiny(seed)
    board = board_of(problem, problem.base)
    before = board.total
    board.place_hostless()
    check(board)
    assert board.total <= before
    for _ in range(few(4)):
        board.improve(5, 0.3)
        board.place_hostless()
        check(board)


def test_jobs_without_gpus_leave_nodes_with_gpus_alone_if_they_can():
    """The second does not fit beside the first on the node without GPUs; the third may use that one only, and is full."""
    nodes = [node(1, cpu_milli=9), node(0, cpu_milli=5)]
    jobs = [job(0, cpu_milli=3), job(0, cpu_milli=3, wait_cost=HOUR // 2), job(0, cpu_milli=3, node_set=1)]
    problem = make(nodes, [*jobs[:2], {**jobs[2], "wait_cost": 1}], node_sets=[[True, True], [False, True]])
    board = board_of(problem, (None,) * 3)
    board.place_hostless()
    assert board.placed() == ((1,), (0,), None)


def test_a_sweep_keeps_to_the_budgets_even_for_the_urgent():
    """Three jobs hold up the makespan; the quota is for two."""
    jobs = [job(work=1000, deferred_end=90) for _ in range(3)]
    budget = Budget("quota", "a", 2, (0, 1, 2), (1, 1, 1))
    board = board_of(make([node(4)], jobs, makespan_cost=HOUR, budgets=(budget,)), (None,) * 3)
    board.sweep()
    check(board)
    assert sum(spot is not None for spot in board.placed()) == 2
