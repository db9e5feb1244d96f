"""A plan whose nodes are divided among several boards: each improves its own, and together they are one valid plan."""

from dataclasses import replace

import numpy as np
import pytest
from boards import (
    VARIANTS,
    board_of,
    by_greedy,
    check,
    drawn,
    few,
    guarded,
    passed_over,
    scattered,
    untouched,
)
from problems import HOUR, job, make, node

from solvers.check import objective, violations
from solvers.facts import Facts
from solvers.kernels import layout as o
from solvers.kernels import ruin
from solvers.problem import Budget

variants = pytest.mark.parametrize("variant", VARIANTS)
seeds = pytest.mark.parametrize("seed", range(2))
counts = pytest.mark.parametrize("parts", [2, 3])


def nodes_of(problem, j, spot):
    return {problem.gpu_node.item(g) for g in spot or ()} if problem.job_gpus[j] else set(spot or ())


def changed(before, after):
    return [j for j, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


@counts
@variants
@seeds
def test_the_parts_together_are_one_valid_plan_that_costs_no_more(parts, variant, seed):
    """Not more than the board's own total, that is: of several late ends the program charges one."""
    problem = drawn(variant, seed)
    board = board_of(problem, scattered(problem, seed), seed=seed)
    board.improve(few(100), 0.3)
    for turn in range(2):
        dealt = board.split(parts, turn)
        before, begun = board.placed(), board.total
        for part in dealt:
            assert passed_over(part) == []
            part.improve(few(100), 0.3)
            assert passed_over(part) == []
        plan = board.gather(dealt)
        assert violations(problem, plan) == ()
        assert board.placed() == before
        board = board.again(plan, turn)
        check(board)
        assert board.total <= begun
        assert board.total - begun == sum(part.total - begun for part in dealt)


@counts
@variants
@seeds
def test_no_part_touches_what_is_anothers(parts, variant, seed):
    """Neither nodes nor jobs, even where there are fewer nodes than parts; running jobs are only the first's."""
    problem = drawn(variant, seed)
    plan = scattered(problem, seed)
    board = board_of(problem, plan, seed=seed)
    dealt = board.split(parts, seed)
    owned = np.array([part.mine for part in dealt])
    assert (owned.sum(0) == 1).all()
    nodes = np.array([part.table("MINE") for part in dealt])
    assert (nodes.sum(0) == 1).all()
    for i, part in enumerate(dealt):
        part.improve(few(200), 0.5)
        after = part.placed()
        for j in changed(plan, after):
            assert part.mine[j]
            assert i == 0 or problem.home[j] is None
            for v in nodes_of(problem, j, plan[j]) | nodes_of(problem, j, after[j]):
                assert nodes[i, v]


@counts
@seeds
def test_a_gang_over_several_nodes_keeps_them_together(parts, seed):
    problem = make([node(2) for _ in range(6)], [job(4, max_nodes=2) for _ in range(3)])
    plan = ((0, 1, 2, 3), (2, 3, 6, 7), None)
    for part in board_of(problem, plan).split(parts, seed):
        mine = part.table("MINE").tolist()
        assert mine[0] == mine[1] == mine[3]
        assert part.mine[0] == part.mine[1] == mine[0]


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_part_without_nodes_does_nothing(parts):
    problem = make([node(1)], [job() for _ in range(4)])
    board = board_of(problem, (None,) * 4)
    dealt = board.split(parts, 0)
    for part in dealt:
        part.improve(40, 0.3)
    empty = [part for part in dealt if not part.table("MINE").any()]
    assert len(empty) == parts - 1
    assert all(part.placed() == (None,) * 4 for part in empty)
    assert violations(problem, board.gather(dealt)) == ()


@pytest.mark.parametrize("parts", [2, 3])
@seeds
def test_budgets_and_moves_are_kept_by_all_parts_together(parts, seed):
    """Every job draws on the quota, of which a half is left; two of four running jobs may move."""
    running = [job(home=(g,), movable=True, preemptible=True, wait_cost=HOUR // 9) for g in range(4)]
    queued = [job(alone=True, wait_cost=(2 + j) * HOUR) for j in range(12)]
    budget = Budget("quota", "a", 6, tuple(range(4, 16)), (1,) * 12)
    problem = make([node(2) for _ in range(6)], [*running, *queued], max_moves=2, budgets=(budget,))
    board = board_of(problem, (*problem.base[:4], (4,), (6,), (8,), *[None] * 9))
    for turn in range(4):
        dealt = board.split(parts, 10 * seed + turn)
        for part in dealt:
            part.improve(200, 0.3)
        board = board.again(board.gather(dealt), turn)
        check(board)
    placed = [spot for spot in board.placed()[4:] if spot is not None]
    assert len(placed) == 6


@pytest.mark.parametrize("parts", [2, 3])
@variants
def test_a_part_stays_within_its_tables(parts, variant):
    problem = drawn(variant, 4)
    board = board_of(problem, by_greedy(problem))
    for part in board.split(parts, 1):
        twin, masks = guarded(part)
        for one in (part, twin):
            ruin.run(one.a, one.f, few(400), 0.5)
        assert untouched(twin, masks)
        assert twin.placed() == part.placed()


def test_what_a_part_gives_up_it_may_place_again():
    """Jobs of one class wait and run on 4 of 8 nodes; each part takes its own off, and puts the costliest back."""
    jobs = [job(alone=True, wait_cost=HOUR + j) for j in range(24)]
    board = board_of(make([node(1) for _ in range(8)], jobs), (*[(g,) for g in range(4)], *[None] * 20))
    for part in board.split(2, 5):
        for _ in range(40):
            part.improve(1, 0.0)
            assert passed_over(part) == []


@variants
def test_equal_seeds_divide_equally_and_others_do_not(variant):
    problem = drawn(variant, 5)
    board = board_of(problem, by_greedy(problem))
    first, again, other = (board.split(2, seed) for seed in (1, 1, 2))
    for one, two in zip(first, again, strict=True):
        one.improve(few(100), 0.3)
        two.improve(few(100), 0.3)
    assert [part.placed() for part in first] == [part.placed() for part in again]
    assert [part.mine.tolist() for part in first] != [part.mine.tolist() for part in other]


def test_the_costliest_to_wait_of_a_part_comes_first():
    """Of 40 jobs of one class each part places the costliest of its own in its two places."""
    jobs = [job(alone=True, wait_cost=HOUR + j) for j in range(40)]
    problem = make([node(1) for _ in range(4)], jobs)
    board = board_of(problem, (None,) * 40)
    for part in board.split(2, 3):
        part.improve(400, 0.0)
        placed = [j for j, spot in enumerate(part.placed()) if spot is not None]
        places = int(part.table("MINE").sum())
        assert placed == np.flatnonzero(part.mine)[-places:].tolist()


def test_parts_ask_for_states_and_the_whole_knows_them():
    problem = replace(drawn("plain", 6), makespan_cost=0)
    board = board_of(problem, problem.base, eager=0)
    dealt = board.split(2, 0)
    for _ in range(4):
        for part in dealt:
            part.improve(few(100), 0.3)
    plan = board.gather(dealt)
    whole = board.again(plan, 0)
    check(whole)
    assert whole.objective() == objective(problem, plan).total
    assert whole.objective() < objective(problem, problem.base).total
    assert Facts(problem).jobs == len(plan) == len(board.mine)
    assert not any(part.a[o.ASKED] for part in dealt)
