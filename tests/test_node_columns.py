"""Columns of whole nodes cost what the referee charges, and a plan's columns give the plan back.

``alone`` turns a column back into a plan: exactly its jobs, on one node of its shape, beside everybody who runs.
"""

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
from boards import VARIANTS, board_of, drawn, few
from problems import HOUR, job, make, node, random_problem

from solvers import node_columns
from solvers.check import ends, objective, violations
from solvers.contents import Contents
from solvers.facts import Facts
from solvers.kernels.tables import LATE_STEPS, late_caps
from solvers.node_columns import Column, NodeColumns, parts_of
from solvers.node_generation import Generator
from solvers.node_master import plan_of
from solvers.problem import NETWORK, NVLINK

variants = pytest.mark.parametrize("variant", VARIANTS)


def columns_of(problem, seed=0):
    return NodeColumns(Facts(problem), Contents(problem), Facts(problem).earliest_makespan, seed)


@lru_cache(maxsize=20)
def generated(variant, seed, rounds=4):
    """A generator after a few rounds; nobody may change it."""
    problem = drawn(variant, seed)
    found = Generator(Facts(problem), Contents(problem), Facts(problem).earliest_makespan, seed, 1)
    found.run(None, rounds, 0.0)
    return found


def alone(made, column):
    """The plan that has exactly a column's jobs on the first node of its shape."""
    plan, taken, v = list(made.problem.home), {}, made.nodes[column.shape][0]
    for c, places in column.holds:
        i = taken[c] = taken.get(c, -1) + 1
        plan[made.members[c][i]] = tuple(sorted(made.gpus_of[v][at] for at in places))
    return tuple(plan)


def charge(problem, plan, last):
    """What the referee charges, without waiting, and with every end after ``last`` instead of only the latest."""
    terms = objective(problem, plan)
    late = sum(max(0, end - last) for end in ends(problem, plan) if end is not None)
    return terms.total - terms.waiting - terms.makespan + problem.makespan_cost * late


def settled(problem, seed=0, steps=400):
    """A plan by ruin and recreate, on its board."""
    board = board_of(problem, problem.base, seed=seed)
    board.sweep()
    board.improve(few(steps), 0.3)
    return board


# ---- what a column costs ----


@variants
@pytest.mark.parametrize("seed", range(2))
def test_a_column_costs_what_the_referee_charges(variant, seed):
    """The newcomers, what they open, and what they cost those who run; gangs as parts, each on one node."""
    made = generated(variant, seed).columns
    cut, last = made.cut, Facts(made.problem).earliest_makespan
    before = charge(cut, cut.home, last)
    assert max(len(column.holds) for column in made.columns) > 3
    for column in made.columns:
        plan = alone(made, column)
        assert {fault.rule for fault in violations(cut, plan)} <= {"window"}
        assert charge(cut, plan, last) - before == column.cost


@pytest.mark.parametrize("seed", range(4))
def test_without_gangs_over_nodes_the_referee_of_the_whole_problem_says_the_same(seed):
    problem = random_problem(seed, 40, 24, residents=0.2, nodes_of=4, gangs=False)
    last = Facts(problem).earliest_makespan
    found = Generator(Facts(problem), Contents(problem), last, seed, 1)
    found.run(None, 2, 0.0)
    before = charge(problem, problem.home, last)
    for column in found.columns.columns:
        plan = alone(found.columns, column)
        assert violations(problem, plan) == ()
        started = [j for j, spot in enumerate(plan) if spot and not problem.home[j]]
        late = sum(max(0, int(problem.deferred_end[j]) - last) for j in started) * problem.makespan_cost
        assert charge(problem, plan, last) - before == column.cost - late


def test_a_node_that_runs_a_job_already_is_charged_for_slowing_it_down():
    """At 1250 a job loses a fifth, the newcomer and the resident alike; the GPU is open, and so is the node."""
    nodes = [node(1, open_cost=7, used_cost=70)]
    jobs = [job(home=(0,)), job()]
    made = columns_of(make(nodes, jobs, slowdown=1250, max_moves=1))
    made.charge(made.board, np.array([HOUR]))
    column = made.price(made.board, 0, 20, None)
    assert column == Column(0, ((0, (0,)),), HOUR // 5 + HOUR // 5)


def test_a_price_is_what_leaving_a_job_out_costs():
    """A job that loses a quarter to its GPU is worth a price above HOUR / 4, and no other."""
    made = columns_of(make([node(1)], [job(speed_milli=750)]))
    for price, worth in ((HOUR / 4 + 1, True), (HOUR / 4 - 1, False), (0.0, False)):
        made.charge(made.board, np.array([price]))
        column = made.price(made.board, 0, 20, None)
        assert bool(column.holds) is worth
        assert column.cost == (HOUR // 4 if worth else 0)


def test_a_part_of_a_gang_is_worth_its_part_of_the_price():
    """Half a gang loses HOUR, a quarter of its 4 GPUs: it is worth a price above 2 HOUR for the gang, and no other."""
    made = columns_of(make([node(4)] * 2, [job(8, max_nodes=2, speed_milli=750)]))
    for price, worth in ((2 * HOUR + 2, True), (2 * HOUR - 2, False)):
        made.charge(made.board, np.array([price]))
        assert bool(made.price(made.board, 0, 20, None).holds) is worth


def test_a_job_is_in_no_column_of_a_kind_on_which_it_would_be_late():
    """At half speed it ends at tick 20; the other, which is the last to end anywhere, ends at tick 15."""
    ends = {"work": 10_000, "speed_milli": (1000, 500)}, {"work": 15_000, "speed_milli": (1000, 1000)}
    jobs = [job(deferred_end=99, **given) for given in ends]
    made = columns_of(make([node(1), node(1, kind=1)], jobs, makespan_cost=1))
    made.charge(made.board, np.full(2, 9.0 * HOUR))
    late = int(made.class_of[0])
    found = [{c for c, _ in made.price(made.board, shape, 50, None).holds} for shape in (0, 1)]
    assert late in found[0] and late not in found[1]


def test_running_jobs_are_where_they_were_after_every_price():
    found = generated("everything", 0)
    assert found.columns.board.placed() == found.columns.problem.home
    moved = generated("rewards for opening", 1)
    assert moved.columns.problem.max_moves and moved.columns.board.placed() == moved.columns.problem.home


def test_prices_begun_from_a_column_find_nothing_worse():
    """From an old column, no steps give back its jobs and its cost."""
    found = generated("plain", 0)
    made = found.columns
    made.charge(made.board, found.master.prices)
    for column in made.columns[:40]:
        assert made.price(made.board, column.shape, 0, column) == column


# ---- gangs over nodes ----


def test_a_gang_is_cut_into_the_fewest_parts_that_fit_and_are_allowed():
    nodes = [node(8)] * 4
    wide = partial(job, max_nodes=4)
    jobs = [wide(16), wide(24), wide(8), wide(16, gpus_per_node=4), job(16), wide(32), wide(18, max_nodes=3)]
    assert parts_of(make(nodes, jobs)).tolist() == [2, 3, 1, 4, 1, 4, 3]
    running = [wide(16, home=tuple(range(16)))]
    assert parts_of(make(nodes, running)).tolist() == [1]


@pytest.mark.parametrize("slowdown", [1000, 1270])
def test_the_parts_of_a_gang_cost_what_the_gang_costs(slowdown):
    """Alone, or each part beside a job: 2 parts, 3 terms, each rounded down once by part and once by unit."""
    gang = {"unit_speed": 16 * HOUR + 1, "unit_interference": 16 * HOUR + 3, "unit_locality": 16 * HOUR + 5}
    jobs = [
        job(16, max_nodes=2, speed_milli=870, link_milli=(1000, 1050, 1210), **gang),
        job(16, type=1, max_nodes=2),
    ]
    problem = make([node(8, open_cost=11, used_cost=13)] * 2, jobs, slowdown=slowdown)
    everywhere = tuple(range(16))
    for plan in ((everywhere, None), (everywhere, everywhere)):
        made = columns_of(problem)
        made.learn(plan, board_of(problem, plan).table("COST"))
        assert len(made.columns) == 1
        cut = alone(made, made.columns[0])
        parts = 2 * (charge(made.cut, cut, 0) - charge(made.cut, made.problem.home, 0))
        whole = charge(problem, plan, 0)
        assert whole - 2 * 3 * 2 <= parts <= whole
        assert whole - 2 <= 2 * made.columns[0].cost <= whole


def test_the_parts_of_gangs_are_put_together_on_different_nodes():
    """One part on each of two nodes and two on a third: only one way makes two gangs of them."""
    problem = make([node(8)] * 3, [job(16, max_nodes=2)] * 2)
    made = columns_of(problem)
    one, two = Column(0, ((0, tuple(range(8))),), 0), Column(0, ((0, tuple(range(8))),) * 2, 0)
    for column in (one, two):
        made.add(column)
    for chosen in ([0, 0, 1], [0, 1, 0], [1, 0, 0]):
        plan = plan_of(made, chosen)
        assert violations(problem, plan) == ()
        assert all(plan)
    assert plan_of(made, [0]) == plan_of(made, [1]) == (None, None)
    for chosen in ([0, 0], [1, 0], [0, 1]):
        plan = plan_of(made, chosen)
        assert violations(problem, plan) == ()
        assert sum(spot is not None for spot in plan) == 1


def test_the_parts_of_a_gang_have_the_same_indices_where_they_must():
    problem = make([node(8)] * 4, [job(12, max_nodes=2)] * 2, same_index=True)
    made = columns_of(problem)
    for first in (0, 2):
        made.add(Column(0, ((0, tuple(range(first, first + 6))),), 0))
    assert plan_of(made, [0, 1]) == (None, None)
    plan = plan_of(made, [0, 1, 1, 0])
    assert all(plan) and violations(problem, plan) == ()


# ---- columns of a plan ----


@pytest.mark.parametrize("given", [{}, {"additive": False}, {"gate": False}, {"types": 4}, {"nodes_of": 4}])
@pytest.mark.parametrize("seed", range(3))
def test_the_columns_of_a_plan_give_the_plan_back(given, seed):
    """Jobs of a class may change places, and those who wait are then those who can."""
    problem = random_problem(seed, 50, 40, makespan=0, **given)
    board = settled(problem, seed)
    made = columns_of(problem)
    made.learn(board.placed(), board.table("COST"))
    chosen = [number for v in range(problem.nodes) for number in _lying_on(made, board.placed(), v)]
    plan = plan_of(made, chosen)
    assert violations(problem, plan) == ()
    before, after = objective(problem, board.placed()), objective(problem, plan)
    assert after.waiting <= before.waiting
    assert replace(after, waiting=0) == replace(before, waiting=0)
    parts = made.parts[[j for j, spot in enumerate(plan) if spot]].sum()
    cost = sum(made.columns[number].cost for number in chosen)
    assert after.total - after.waiting - 3 * parts <= cost <= after.total - after.waiting


def _lying_on(made, plan, v):
    """The number of the column that a plan has on a node, none for an empty node."""
    holds = []
    for j, spot in enumerate(plan):
        at = tuple(made.place_of[g] for g in spot or () if made.problem.gpu_node[g] == v)
        if at and made.class_of[j] >= 0:
            holds.append((int(made.class_of[j]), at))
    key = int(made.shape[v]), tuple(sorted(holds))
    return [i for i, column in enumerate(made.columns) if column.key == key]


def test_nothing_is_learned_from_a_node_whose_running_jobs_are_elsewhere():
    """The newcomer fits only because the resident has gone."""
    jobs = [job(home=(0,), movable=True, alone=True), job(alone=True)]
    problem = make([node(1)] * 3, jobs, max_moves=1)
    made = columns_of(problem)
    assert made.learn(((1,), (0,)), np.zeros(2, np.int64)) == 0
    assert made.learn(((0,), (1,)), np.zeros(2, np.int64)) == 1


def test_what_newcomers_cost_a_running_gang_is_shared_by_its_nodes():
    """A fifth of 4 GPUs for an hour is lost by the gang, half of it on each node, and the newcomers' own fifth."""
    jobs = [job(4, home=(0, 1, 2, 3), max_nodes=2), job(2), job(2)]
    problem = make([node(2)] * 2, jobs, slowdown=1250)
    plan = ((0, 1, 2, 3), (0, 1), (2, 3))
    made = columns_of(problem)
    assert made.learn(plan, board_of(problem, plan).table("COST")) == 2
    assert [column.cost for column in made.columns] == [4 * HOUR // 5 // 2 + 2 * HOUR // 5] * 2


def test_columns_know_contents_that_were_found_elsewhere(monkeypatch):
    """With no state built beforehand, a column learned from a plan can still be begun from, at its cost."""
    monkeypatch.setattr(node_columns, "Contents", partial(Contents, eager=0))
    problem = random_problem(3, 40, 16, nodes_of=4, max_tenants=4, types=6, hosts="loose", makespan=0)
    board = settled(problem)
    found = Generator(Facts(problem), Contents(problem), 0, 0, 2)
    made = found.columns
    made.learn(board.placed(), board.table("COST"))
    assert max(board.table("TENANTS")) > 2
    for scratch in found.boards:
        made.charge(scratch, np.zeros(made.classes))
        for column in list(made.columns):
            assert made.price(scratch, column.shape, 0, column) == column


# ---- shapes ----

SAME = {"gpus": 2, "cpu_milli": 8000, "host_memory_mib": 9000}
DIFFERENT = {
    "gpus": 3, "kind": 1, "memory_mib": 70_000, "margin_mib": 1, "share": 900, "max_tenants": 2, "closed": (True, False),
    "shared_outside": True, "until_s": (-1, 5), "open_cost": 1, "cpu_milli": 7000, "host_memory_mib": 8000, "used_cost": 1,
    "links": -1,
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_nodes_that_differ_in_anything_are_of_different_shapes(name):
    other = SAME | {name: DIFFERENT[name]}
    made = columns_of(make([node(**SAME), node(**other), node(**SAME), node(**other)], [job()], kinds=2))
    # Members of a class end at different times, so a node with a reservation is on its own.
    assert made.shape.tolist() == [0, 1, 0, 2 if name == "until_s" else 1]


def test_nodes_for_other_jobs_other_indices_and_other_links_are_of_other_shapes():
    problem = make([node(3)] * 3, [job()], node_sets=[[True, True, True], [True, True, False]])
    assert columns_of(problem).shape.tolist() == [0, 0, 1]
    problem = make([node(3)] * 2, [job()])
    index = replace(problem, gpu_index=np.array([0, 1, 2, 0, 2, 1]))
    assert columns_of(index).shape.tolist() == [0, 1]
    links = make([node(3, links=(0, 0, 1)), node(3, links=(4, 4, 2)), node(3, links=(0, 1, 1))], [job()])
    assert columns_of(links).shape.tolist() == [0, 0, 1]


def test_a_node_with_running_jobs_is_a_shape_of_its_own_and_a_closed_one_is_none():
    jobs = [job(home=(0,)), job(0, home=(1,)), job()]
    made = columns_of(make([node(1)] * 4 + [node(1, node_closed=True), node(0)], jobs))
    assert made.shape.tolist() == [0, 1, 2, 2, -1, -1]


# ---- ends ----


@pytest.mark.parametrize("seed", range(4))
def test_a_job_within_its_late_caps_ends_in_time_and_the_next_step_would_be_late(seed):
    problem = random_problem(seed, 60, 24, makespan=0.5, oddities=seed % 2 == 1)
    last = Facts(problem).earliest_makespan // (1 + seed % 3)
    worst, seen = problem.interference.worst_milli, set()
    caps = late_caps(Facts(problem), last)
    for j in np.flatnonzero(problem.work >= 0).tolist():
        wide = NETWORK if problem.max_nodes[j] > 1 else NETWORK - 1
        k = int(problem.link_milli[j, wide if problem.job_gpus[j] > 1 else NVLINK])
        for m, cap in enumerate(caps[j].tolist()):
            if problem.speed_milli[j, m]:
                own = min(int(problem.cap_milli[j, m]), worst)
                slow = min(cap, own)
                after = next((step for step in LATE_STEPS if step > cap), None)
                assert not cap or _end(problem, j, m, slow, k) <= last
                assert slow == own or after is None or _end(problem, j, m, after, k) > last
                seen.add((cap == 0, slow == own))
    assert len(seen) == 3


def _end(problem, j, m, s, k):
    return -(-int(problem.work[j]) * s * k // (int(problem.speed_milli[j, m]) * 10**6))


@variants
def test_nobody_in_a_column_ends_late(variant):
    made = generated(variant, 0).columns
    last = Facts(made.problem).earliest_makespan
    assert columns_of(made.problem).all_wait == made.worth[made.class_of >= 0].sum()
    for column in made.columns:
        plan = alone(made, column)
        whole = replace(made.cut, work=made.problem.work)
        for j, end in enumerate(ends(whole, plan)):
            assert (
                made.problem.home[j] or not plan[j] or end is None or end <= last or not whole.makespan_cost
            )
