"""What a solve leaves for the next: that it survives the way to it, is used there, and is never trusted."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from boards import VARIANTS, drawn
from problems import HOUR, job, make, node
from random_problems import random_problem

import solvers
from solvers import patterns
from solvers.check import objective, violations
from solvers.child import apart
from solvers.contents import Contents
from solvers.facts import Facts
from solvers.node_columns import NodeColumns
from solvers.parts import _cut
from solvers.patterns_bound import pattern_bound
from solvers.problem import Limits
from solvers.warm import Warm, from_plain, plain

FIXED = Limits(wall_s=3.0, deterministic=True)


def silent(*_):
    """A report that nobody hears."""


def solved(problem, limits=FIXED, hint=None, **more):
    return patterns.solve(problem, limits, hint, silent, **more)


def columns_of(problem, last=None):
    facts = Facts(problem)
    return NodeColumns(facts, Contents(problem), facts.earliest_makespan if last is None else last)


def test_it_is_numbered_anew_and_goes_through_json():
    warm = Warm((1.5, None, 3.0), (0.5,), 2.0, (4, -1, 5), ((0, ((4, (0, 1)),)), (2, ((5, (3,)), (5, (3,))))))
    moved = warm.renumbered([2, None, 0, 1], [2, None])
    assert moved == Warm((3.0, None, 1.5, None), (0.5,), 2.0, (5, -1, 4, -1), ((0, ((5, (3,)), (5, (3,)))),))
    assert from_plain(json.loads(json.dumps(plain(warm)))) == warm
    assert from_plain(plain(None)) is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_solve_leaves_prices_and_columns_that_hold_in_the_same_problem(variant):
    problem = drawn(variant, 0)
    engine = patterns.Engine(problem, FIXED, silent)
    warm = engine.run(None).warm
    assert len(warm.job_price) == len(warm.job_class) == problem.jobs
    assert any(price for price in warm.job_price)
    made = columns_of(problem, engine.blank.last)  # ends decide who is of a class
    kept = set(warm.columns)
    count = made.adopt(warm)
    assert 0.95 * len(kept) <= count <= len(kept)  # a plan may have jobs that end late, a column may not
    assert set(made.contents(range(len(made.columns)))) <= kept
    assert made.adopt(warm) == 0


def test_adopted_columns_cost_what_they_cost_where_they_were_made():
    problem = drawn("odd, running, reserved", 1)
    first, second = columns_of(problem), columns_of(problem)
    answer = solved(problem)
    first.adopt(answer.warm)
    second.adopt(replace(answer.warm, columns=answer.warm.columns[::-1]))
    assert {column.key: column.cost for column in first.columns} == {
        column.key: column.cost for column in second.columns
    }
    assert len({column.cost for column in first.columns}) > 5


def of_two_jobs(holds, jobs=2, **facts):
    """How many columns with these contents a node of two GPUs adopts."""
    problem = make([node(2, **facts), node(1)], [job(memory_mib=20_000), job(2, type=1)][:jobs])
    made = columns_of(problem)
    number = (0, 1)[:jobs]
    return made.adopt(Warm((None,) * jobs, (), 0.0, number, tuple((0, content) for content in holds)))


@pytest.mark.parametrize(("before", "after"), [(8, 1), (4, 2), (1, 2), (2, 8)])
def test_columns_of_jobs_that_ask_for_other_numbers_of_gpus_are_not_adopted(before, after):
    def queue(gpus):
        return make([node(8), node(8)], [job(gpus, alone=True, wait_cost=HOUR * gpus) for _ in range(6)])

    warm = solved(queue(before)).warm
    assert warm.columns
    made = columns_of(queue(after))
    spots = made.board.table("SPOT").copy()
    assert made.adopt(warm.renumbered(list(range(6)), [0, 1])) == 0
    assert (made.board.table("SPOT") == spots).all()
    again = columns_of(queue(before))
    odd = [(9, held) for _, held in warm.columns[:1]]
    odd += [(0, tuple((c, tuple(-1 - i for i in at)) for c, at in held)) for _, held in warm.columns[:1]]
    assert again.adopt(replace(warm, columns=tuple(odd))) == 0


def test_only_columns_whose_rules_hold_are_adopted():
    one, gang, both = ((0, (0,)),), ((1, (0, 1)),), ((0, (0,)), (1, (0, 1)))
    assert of_two_jobs([one, gang, both]) == 3
    assert of_two_jobs([one, gang, both], memory_mib=19_000) == 1  # the gang needs little
    assert of_two_jobs([one, gang, both], max_tenants=1) == 2
    assert of_two_jobs([one, gang, both], jobs=1) == 1
    assert of_two_jobs([((0, (2,)),), ((0, (0,)), (0, (1,)))]) == 0  # no third GPU, no second job
    assert of_two_jobs([one], closed=True) == 0


def test_prices_of_an_earlier_solve_give_a_good_bound_at_once():
    problem = random_problem(3, 120, 64)
    cold = pattern_bound(problem, time.monotonic() + 60, rounds=30)
    warm = pattern_bound(problem, time.monotonic() + 60, prices=cold.prices, rounds=0)
    none = pattern_bound(problem, time.monotonic() + 60, rounds=0)
    assert none.bound < warm.bound
    assert warm.bound >= cold.bound * (1 - 1e-9)


def test_a_changed_queue_begins_where_the_last_one_ended():
    """Three of sixty jobs go and their places are taken."""
    problem = random_problem(5, 60, 28)
    last = solved(problem)
    stay = [j for j in range(60) if j not in (3, 17, 40)]
    changed = _cut(problem, np.array(stay), np.arange(problem.nodes)).problem
    hint = tuple(last.placed[j] for j in stay)
    warm = last.warm.renumbered(stay, range(problem.nodes))
    brief = replace(FIXED, wall_s=0.5)
    begun = solved(changed, brief, hint, warm=warm)
    cold = solved(changed, brief)
    assert violations(changed, begun.placed) == ()
    assert begun.objective <= objective(changed, hint).total
    assert begun.objective < cold.objective
    assert begun.bound > cold.bound


@pytest.mark.parametrize("workers", [1, 2])
def test_after_a_change_of_the_queue_steps_are_mostly_on_the_nodes_furthest_behind(workers, monkeypatch):
    """Three in four turns look at few nodes, the fourth at all; in the end the board looks at all again."""
    problem = random_problem(4, 300, 160)
    last = solved(problem, replace(FIXED, wall_s=0.5))
    engine = patterns.Engine(problem, Limits(wall_s=30, workers=workers), silent, warm=last.warm)
    board = engine._board(last.placed, 0)
    pools = []
    monkeypatch.setattr(
        patterns.Board,
        "restrict",
        lambda self, nodes, set_it=patterns.Board.restrict: (pools.append(len(nodes)), set_it(self, nodes)),
    )
    engine._improve(board, 4 * patterns.TURN, engine.known.ends_at)
    everything = len(board.pool)
    assert len(pools) == 5 and pools[3:] == [everything] * 2 and max(pools[:3]) < everything / 2


def test_it_comes_back_from_a_child_process():
    problem = random_problem(1, 40, 16)
    ending = apart(patterns.solve, problem, FIXED, None, ends_at=time.monotonic() + 60)
    assert ending.answer.warm == solved(problem).warm


def test_a_solve_hands_on_what_its_engine_left_or_what_it_was_given():
    problem = random_problem(1, 40, 16)
    left = solvers.solve(problem, FIXED, engine="patterns").warm
    assert any(left.job_price)
    assert solvers.solve(problem, Limits(wall_s=0), engine="greedy", warm=left).warm == left


def test_what_belongs_to_another_number_of_jobs_is_refused():
    with pytest.raises(ValueError, match="prices of 1 jobs, the problem has 2"):
        solvers.solve(make([node(1)], [job(), job()]), warm=Warm((None,), (), 0.0, (-1,), ()))


def test_a_hint_that_breaks_a_rule_is_used_without_the_jobs_in_the_way():
    problem = make([node(1, max_tenants=1), node(1)], [job(wait_cost=HOUR + j) for j in range(3)])
    found = solvers.solve(problem, Limits(wall_s=1), engine="greedy", hint=((0,), (0,), (1,)))
    hint = next(one for one in found.attempts if one.engine == "hint")
    assert (hint.objective, hint.note) == (HOUR, "without 1 jobs that would break a rule")
