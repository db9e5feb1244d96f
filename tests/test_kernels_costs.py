"""What a plan costs on a board: the same as the referee says, whatever the plan."""

import numpy as np
import pytest
from boards import (
    VARIANTS,
    anyhow,
    board_of,
    by_greedy,
    check,
    drawn,
    faults,
    few,
    overcharge,
    scattered,
    span,
    total,
)
from brute import tiny
from problems import job, make, node

from solvers.facts import Facts
from solvers.kernels import layout as o
from solvers.problem import FORBIDDEN

variants = pytest.mark.parametrize("variant", VARIANTS)
WIDE = 0.3


@variants
@pytest.mark.parametrize("seed", range(2))
def test_a_board_says_what_the_referee_says_of_a_plan(variant, seed):
    problem = drawn(variant, seed)
    for plan in (problem.base, by_greedy(problem), scattered(problem, seed)):
        latest = span(problem, plan)
        for last in (0, Facts(problem).earliest_makespan, latest, latest + 7):
            board = board_of(problem, plan, last)
            check(board)
            assert board.makespan() == max(last, latest)


@pytest.mark.parametrize("seed", range(60))
def test_a_board_says_what_the_referee_says_of_any_placement(seed):
    """Too many tenants, forbidden neighbours, residents that may not go: nothing is in the way of counting."""
    problem = tiny(seed)
    for k in range(12):
        plan = anyhow(problem, 100 * seed + k)
        board = board_of(problem, plan, 0)
        assert board.placed() == plan
        assert board.objective() == total(problem, plan)
        assert board.total - board.objective() == overcharge(problem, plan, 0)
        assert faults(board) == []


def test_an_end_after_the_granted_makespan_is_charged_to_each_job():
    """Ends at 5, 7 and 9 of 10 ticks each; with 6 granted, the board charges 1 and 3 of them."""
    jobs = [job(work=1000 * end) for end in (5, 7, 9)]
    problem = make([node(3)], jobs, makespan_cost=10)
    board = board_of(problem, ((0,), (1,), (2,)), 6)
    assert board.total == 60 + 10 + 30
    assert board.objective() == total(problem, board.placed()) == 90


def test_an_end_just_after_a_tick_is_the_next_one():
    """7 ticks and the thousand-millionth part of one: 1000 * 1013 * 1017 = 30201 * 34111... is not a whole number of them."""
    factor = (1001, 1001, 1001)
    work = next(w for w in range(10**6, 10**7) if w * 1001 * 1001 % 10**9 == 1)
    problem = make([node(1)], [job(work=work, link_milli=factor)] * 2, slowdown=1001, makespan_cost=10**6)
    check(board_of(problem, ((0,), (0,)), 0))


def test_an_end_beyond_all_numbers_costs_much_and_no_less():
    problem = make(
        [node(1)],
        [job(work=10**9, home=(0,)), job(work=10**9, home=(0,))],
        slowdown=FORBIDDEN,
        makespan_cost=10,
    )
    assert board_of(problem, problem.base, 0).objective() == total(problem, problem.base)


def test_a_job_without_gpus_is_charged_for_its_end_its_move_and_its_links():
    """It runs on node 0 and ends at 12 ticks, deferred at 8; a move costs 5, waiting 100."""
    given = {"work": 10_000, "deferred_end": 8, "move_cost": 5, "wait_cost": 100, "link_milli": (1200,) * 3}
    one = job(0, home=(0,), unit_locality=600, movable=True, preemptible=True, **given)
    problem = make([node(1), node(1)], [one], makespan_cost=10, max_moves=1)
    lost = 600 * (10**6 - 10**9 // 1200) // 10**6
    for plan, cost, moved in ((((0,),), 120 + lost, 0), (((1,),), 125 + lost, 1), ((None,), 185, 1)):
        board = board_of(problem, plan, 0)
        assert board.objective() == total(problem, plan) == cost
        assert board.a[o.MOVED] == moved
        check(board_of(problem, plan, 8))


def test_more_tenants_than_are_looked_at_can_be_loaded():
    """26 tenants that came from elsewhere on a GPU that takes 30; the search stops at 24."""
    problem = make([node(1, max_tenants=30), node(1)], [job() for _ in range(40)], slowdown=1001, gate=False)
    board = board_of(problem, tuple((0,) for _ in range(26)) + (None,) * 14)
    check(board)
    for _ in range(5):
        board.improve(20, WIDE)
        check(board)


@variants
def test_a_board_knows_nothing_of_the_plan_of_another(variant):
    problem = drawn(variant, 5)
    first = board_of(problem, by_greedy(problem))
    before = first.a.copy(), first.f.copy()
    other = first.again(problem.base, 1)
    other.improve(few(100), WIDE)
    assert np.array_equal(first.a, before[0])
    assert np.array_equal(first.f, before[1])
    check(other)
