"""The table of contents: every multiset of tenants has the slowdowns that the interference table says."""

import threading
from collections import Counter
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from boards import VARIANTS, board_of, by_greedy, check, drawn, few
from brute import tiny
from problems import job, make, node, random_problem

from solvers import contents as module
from solvers import dump
from solvers.contents import UNKNOWN, Contents, below
from solvers.problem import MILLI

variants = pytest.mark.parametrize("variant", VARIANTS)


def without(types, a):
    rest = list(types)
    rest.remove(a)
    return tuple(rest)


def agrees(table, interference):
    """Step and slow of every state, and everything below it is there too."""
    for (kind, types), s in table.of.items():
        assert table.keys[s] == (kind, types)
        for a in range(table.types):
            slow = interference.slowdown(kind, a, without(types, a)) if a in types else 0
            assert table.slow[s, a] == slow
            joined = table.of.get((kind, tuple(sorted((*types, a)))), UNKNOWN)
            assert table.step[s, a] == joined
        assert all((kind, without(types, a)) in table.of for a in types)


@pytest.mark.parametrize("additive", [True, False])
def test_every_multiset_has_the_slowdowns_of_the_interference_table(additive):
    """Six tenants of four types on four kinds."""
    problem = random_problem(3, 40, 28, max_tenants=6, types=4, additive=additive)
    table = Contents(problem)
    agrees(table, problem.interference)
    for kind in np.unique(problem.gpu_kind).tolist():
        able = np.unique(problem.job_type[problem.speed_milli[:, kind] > 0]).tolist()
        for size in range(7):
            for types in combinations_with_replacement(able, size):
                assert (kind, types) in table.of


@pytest.mark.parametrize("seed", range(40))
def test_tables_that_follow_no_rule_are_known_as_well(seed):
    """A slowdown of its own for every set, some of them forbidden."""
    problem = tiny(seed)
    agrees(Contents(problem), problem.interference)


@variants
def test_what_runs_is_known_from_the_start(variant):
    problem = drawn(variant, 1)
    table = Contents(problem, eager=0)
    on = Counter(g for j, home in enumerate(problem.home) if problem.job_gpus[j] for g in home or ())
    for g in on:
        here = [
            problem.job_type.item(j)
            for j, home in enumerate(problem.home)
            if problem.job_gpus[j] and g in (home or ())
        ]
        assert (problem.gpu_kind.item(g), tuple(sorted(here))) in table.of
    agrees(table, problem.interference)


@variants
def test_a_table_built_where_it_is_asked_for_serves_as_well(variant):
    problem = drawn(variant, 2)
    board = board_of(problem, problem.base, eager=0)
    begun = board.contents.states
    for _ in range(8):
        board.improve(few(100), 0.3)
        check(board)
    whole = Contents(problem)
    assert begun < board.contents.states <= whole.states
    assert board.contents.of.keys() <= whole.of.keys()
    agrees(board.contents, problem.interference)
    assert sum(spot is not None for spot in board.placed()) > sum(spot is not None for spot in problem.base)


def test_a_lazy_table_leads_to_about_as_good_a_plan():
    problem = drawn("plain", 0)
    totals = []
    for eager in (0, None):
        board = board_of(problem, problem.base, eager=eager)
        for _ in range(40):
            board.improve(few(100), 0.3)
        totals.append(board.total)
    assert totals[0] <= 1.05 * totals[1]


def test_states_asked_for_on_one_board_serve_all_that_share_the_table():
    """The second board asks for nothing, and is handed a plan that needs what the first one had built."""
    problem = drawn("plain", 0)
    blank = board_of(problem, problem.base, eager=0)
    first, second = blank.again(problem.base, 1), blank.again(problem.base, 2)
    for _ in range(6):
        first.improve(few(100), 0.3)
    plan = first.placed()
    third = blank.again(plan, 3)
    assert third.placed() == plan
    check(third)
    second.improve(1, 0.3)
    second.grow()
    assert len(second.table("STEP")) == len(blank.again(plan, 4).table("STEP"))


def test_a_plan_from_elsewhere_brings_its_own_states():
    problem = drawn("plain", 3)
    board = board_of(problem, by_greedy(problem), eager=0)
    check(board)
    board.improve(few(200), 0.3)
    check(board)


def test_threads_may_ask_at_the_same_time():
    problem = drawn("plain", 4)
    blank = board_of(problem, problem.base, eager=0)
    boards = [blank.again(problem.base, seed) for seed in range(4)]

    def improve(board):
        for _ in range(10):
            board.improve(few(40), 0.3)

    threads = [threading.Thread(target=improve, args=(board,)) for board in boards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for board in boards:
        board.grow()  # what the others asked for last
        check(board)
    agrees(blank.contents, problem.interference)
    assert len(blank.contents.of) == len(blank.contents.keys)


def test_no_more_states_are_built_than_there_may_be(monkeypatch):
    """Contents of six tenants are asked for again and again; the search goes on with what there is."""
    monkeypatch.setattr(module, "MOST", 150)
    problem = drawn("six tenants, no makespan", 0)
    board = board_of(problem, problem.base)
    for _ in range(10):
        board.improve(few(200), 0.3)
    assert 100 < board.contents.states <= 150
    check(board)


def test_the_most_depends_on_the_number_of_types(monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 260)
    problem = drawn("plain", 0)
    table = Contents(problem)
    assert table.most == 260 // 26
    assert table.states <= table.most


def test_a_tenant_more_may_need_many_states():
    """Seven tenants of seven types have 128 multisets below them, each of which an eighth may join."""
    jobs = [job(type=t, home=(0,)) for t in range(7)]
    problem = make([node(1, max_tenants=8)], [*jobs, job(type=7)], types=8, slowdown=1001)
    table = Contents(problem, eager=0)
    assert table.states == below(range(7)) == 128
    full = table.of[0, tuple(range(7))]
    table.most = 255
    assert table.grow([(full, 7)]) == 0
    table.most = 256
    assert table.grow([(full, 7)]) == 128
    agrees(table, problem.interference)


def test_the_number_of_multisets_below_one():
    for types in ((), (0,), (0, 0), (0, 1, 1), (0, 0, 1, 1, 2)):
        subsets = {c for size in range(len(types) + 1) for c in combinations(types, size)}
        assert below(types) == len(subsets)


def test_residents_of_too_many_types_on_one_gpu_are_refused():
    """20 tenants of as many types have a million multisets below them; of one type they have 21."""
    crowd = [job(type=t, home=(0,)) for t in range(20)]
    with pytest.raises(ValueError, match="GPU 0 has 20 tenants of 20 types"):
        Contents(make([node(1)], crowd))
    alike = make([node(1)], [{**one, "type": 0} for one in crowd])
    assert Contents(alike).states == 21


def test_many_tenants_of_one_type_are_not_all_listed():
    """Whoever lets any number share a GPU gets no table as long as the queue."""
    problem = make([node(1, max_tenants=10**6)], [job() for _ in range(500)])
    assert Contents(problem).states == module.MOST_TENANTS + 1


def test_kinds_without_gpus_and_jobs_without_a_kind_cost_nothing():
    jobs = [job(0, type=0), job(type=1, speed_milli=(1000, 0)), job(type=2, speed_milli=(0, 0))]
    table = Contents(make([node(1)], jobs, kinds=2))
    assert set(table.of) == {(0, ()), (1, ()), (0, (1,))}


@variants
@pytest.mark.parametrize("seed", range(2))
def test_only_slowdowns_that_are_saved_with_a_problem_are_asked_for(variant, seed, tmp_path):
    problem = drawn(variant, seed, jobs=20)
    dump.save(problem, tmp_path / "p.npz")
    back = dump.load(tmp_path / "p.npz")
    board = board_of(back, back.base)
    board.improve(few(200), 0.3)
    check(board)
    agrees(Contents(back, eager=0), problem.interference)


def test_two_jobs_on_gpus_for_three_tenants_ask_for_no_third(tmp_path):
    """A saved problem has no slowdown of a job beside two others if there are but two."""
    pair = make([node(2)], [job(type=0), job(type=1)], slowdown={(0, 1): 1300, (1, 0): 1500})
    dump.save(pair, tmp_path / "p.npz")
    assert max(len(types) for _, types in Contents(dump.load(tmp_path / "p.npz")).of) == 2


def test_a_problem_without_jobs_or_gpus_has_the_empty_contents():
    assert Contents(make()).of == {(0, ()): 0}
    assert Contents(replace(make([node(2)], [job(0)]), max_moves=1)).states == 1
    assert Contents(make([node(1)], [job()])).slow[1, 0] == MILLI
