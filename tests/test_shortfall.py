"""Which nodes a plan leaves furthest behind: by prices and costs worked out by hand."""

import numpy as np
import pytest
from problems import HOUR, job, make, node

from solvers.contents import Contents
from solvers.facts import Facts
from solvers.kernels.board import Board
from solvers.shortfall import LEAST, PART, Shortfall


def board_of(problem, placed=None):
    facts = Facts(problem)
    blank = Board(facts, Contents(problem), facts.earliest_makespan)
    return facts, blank.again(problem.base if placed is None else placed, 0)


def behind(problem, placed, price):
    facts, board = board_of(problem, placed)
    return Shortfall(facts, np.array(price, float)).of(board).tolist()


def test_a_node_is_behind_by_what_the_best_of_its_shape_earns_more():
    """Prices less costs: 700 and 400 on the first, 900 - 0 on the second, nothing on the third."""
    jobs = [job(), job(), job(2), job()]
    problem = make([node(2), node(2), node(2)], jobs)
    assert behind(problem, ((0,), (1,), (2, 3), None), [700, 400, 900, 5000]) == [0, 200, 1100]


def test_a_gang_over_two_nodes_earns_for_each_what_it_has_there():
    problem = make([node(2), node(2), node(2)], [job(3, max_nodes=2)])
    assert behind(problem, ((0, 1, 2),), [900]) == [0, 300, 600]


def test_only_nodes_of_one_shape_are_compared():
    problem = make([node(2), node(2), node(1), node(2, kind=1)], [job(2)])
    assert behind(problem, ((0, 1),), [900]) == [0, 900, 0, 0]


def test_what_a_job_loses_counts_against_its_node():
    """At half the speed the job loses half an hour."""
    problem = make([node(1), node(1)], [job(speed_milli=500), job()])
    assert behind(problem, ((0,), (1,)), [HOUR, HOUR]) == [HOUR // 2, 0]


def test_a_job_whose_price_nobody_knows_has_the_mean_of_those_like_it():
    jobs = [job(), job(), job(), job(wait_cost=3), job(2)]
    problem = make([node(1)] * 4 + [node(2), node(2)], jobs)
    plan = ((0,), (1,), (2,), (3,), (4, 5))
    price = [100, 500, np.nan, np.nan, np.nan]
    assert behind(problem, plan, price) == [400, 0, 200, 200, 0, 0]


def test_jobs_without_gpus_earn_nothing():
    problem = make([node(1), node(1)], [job(0), job()])
    assert behind(problem, ((0,), (1,)), [np.nan, 300]) == [300, 0]


@pytest.mark.parametrize("nodes", [3, 200])
def test_the_worst_are_a_part_of_all_nodes_and_never_too_few(nodes):
    problem = make([node(1)] * nodes, [job() for _ in range(nodes - 2)])
    facts, board = board_of(problem, tuple((g,) for g in range(nodes - 2)))
    worst = Shortfall(facts, np.full(nodes - 2, 100.0)).worst(board, board.pool)
    assert len(worst) == min(nodes, max(LEAST, round(PART * nodes)))
    assert set(worst[:2].tolist()) == {nodes - 2, nodes - 1}


def test_only_the_nodes_asked_about_are_among_the_worst():
    problem = make([node(1)] * 40, [job()])
    facts, board = board_of(problem, ((0,),))
    some = np.arange(0, 40, 3)
    assert set(Shortfall(facts, np.array([100.0])).worst(board, some).tolist()) <= set(some.tolist()) - {0}
