"""The greedy places what may be placed, refuses what a rule refuses, and always hands over a valid plan."""

from dataclasses import replace

import numpy as np
import pytest
from problems import HOUR, job, make, node, random_problem

from solvers import greedy
from solvers.check import objective, violations
from solvers.facts import Facts
from solvers.problem import Budget, Limits, Status
from solvers.sharing import Sharing
from solvers.state import State


def silent(*_):
    """Nobody listens."""


def plan(problem, wall_s=1.0, seed=0, hint=None):
    """The greedy's plan in deterministic mode, which the referee accepts and which is no worse than nothing."""
    limits = Limits(wall_s=wall_s, deterministic=True, seed=seed)
    answer = greedy.solve(problem, limits, hint, silent)
    assert answer.status == Status.FEASIBLE
    assert violations(problem, answer.placed) == ()
    assert answer.objective == objective(problem, answer.placed).total
    assert answer.objective <= objective(problem, problem.base).total
    return answer.placed


def started(problem):
    """How many queued jobs the greedy places."""
    return sum(a is not None and b is None for a, b in zip(plan(problem), problem.home, strict=True))


def pair(slowdown=1000, gpu=None, one=None, two=None, **rest):
    """Two jobs and one GPU."""
    two = one if two is None else two
    return make([node(1, **(gpu or {}))], [job(**(one or {})), job(**(two or {}))], slowdown=slowdown, **rest)


def gang(nodes, count, *, problem=None, **facts):
    """One gang and some nodes."""
    return make(nodes, [job(count, **facts)], **(problem or {}))


def crowd(milli):
    """Three jobs on a GPU: two beside each other run at 1.2, three at ``milli``."""

    def slowdown(_kind, _victim, co):
        return {1: 1200, 2: milli}[len(co)]

    return make([node(1)], [job(wait_cost=3 * HOUR)] * 3, slowdown=slowdown)


BESIDE = {(0, 1): 1200, (1, 0): 2500}

TWINS = {
    "memory": (pair(one={"memory_mib": 40_000}), pair(one={"memory_mib": 40_001})),
    "margin": (
        pair(gpu={"margin_mib": 500}, one={"memory_mib": 39_750}),
        pair(gpu={"margin_mib": 501}, one={"memory_mib": 39_750}),
    ),
    "margin is not for one alone": (
        make([node(1, margin_mib=500)], [job(memory_mib=80_000)]),
        make([node(1, margin_mib=500)], [job(memory_mib=80_001)]),
    ),
    "tenants": (pair(gpu={"max_tenants": 2}), pair(gpu={"max_tenants": 1})),
    "share": (pair(one={"share": 500}), pair(one={"share": 501})),
    "alone": (pair(), pair(two={"alone": True})),
    "consent": (pair(two={"share_group": 0}), pair(two={"share_group": 1})),
    "never": (pair(), pair(never=((0, 1),))),
    "slowdown": (pair(1500, one={"cap_milli": 1500}), pair(1500, one={"cap_milli": 1499})),
    "gate, equal jobs": (pair(1900), pair(2100, one={"wait_cost": 2 * HOUR})),
    "gate, directed": (
        pair(BESIDE, two={"type": 1}, one={"type": 0}),
        pair(
            {(0, 1): 1700, (1, 0): 2500}, one={"wait_cost": 3 * HOUR}, two={"type": 1, "wait_cost": 3 * HOUR}
        ),
    ),
    "gate, without one more": (crowd(1700), crowd(1900)),
    "gate off": (
        pair(2100, one={"wait_cost": 3 * HOUR}, gate=False),
        pair(2100, one={"wait_cost": 3 * HOUR}),
    ),
    "closed": (make([node(1)], [job()]), make([node(1, closed=True)], [job()])),
    "shared outside": (
        make([node(1, shared_outside=True)], [job(alone=False)]),
        make([node(1, shared_outside=True)], [job(alone=True)]),
    ),
    "kind": (make([node(1)], [job(speed_milli=500)]), make([node(1)], [job(speed_milli=0)])),
    "window": (
        make([node(1, until_s=3600)], [job(remaining_p90_s=3600)]),
        make([node(1, until_s=3600)], [job(remaining_p90_s=3601)]),
    ),
    "window, unknown end": (
        make([node(1, until_s=3600)], [job(remaining_p90_s=1)]),
        make([node(1, until_s=3600)], [job(remaining_p90_s=-1)]),
    ),
    "window, its holder": (
        make([node(1, until_s=3600, holder=0)], [job(remaining_p90_s=9999)]),
        make([node(1, until_s=3600, holder=1)], [job(remaining_p90_s=9999)]),
    ),
    "window, slowed down later": (
        pair(1500, gpu={"until_s": 5400}, one={"remaining_p90_s": 3600}),
        pair(1500, gpu={"until_s": 5399}, one={"remaining_p90_s": 3600}),
    ),
    "host cores": (
        make([node(2, cpu_milli=8000)], [job(cpu_milli=4000)] * 2),
        make([node(2, cpu_milli=7999)], [job(cpu_milli=4000)] * 2),
    ),
    "host memory": (
        make([node(2, host_memory_mib=8000)], [job(host_memory_mib=4000)] * 2),
        make([node(2, host_memory_mib=7999)], [job(host_memory_mib=4000)] * 2),
    ),
    "host, split and rounded up": (
        gang([node(2, cpu_milli=667), node(1, cpu_milli=334)], 3, cpu_milli=1000, max_nodes=2),
        gang([node(2, cpu_milli=667), node(1, cpu_milli=333)], 3, cpu_milli=1000, max_nodes=2),
    ),
    "no GPU": (
        make([node(1, cpu_milli=1000)], [job(0, cpu_milli=1000)]),
        make([node(1, cpu_milli=999)], [job(0, cpu_milli=1000)]),
    ),
    "closed node": (make([node(1)], [job()]), make([node(1, node_closed=True)], [job()])),
    "node set": (make([node(1)], [job()], node_sets=[[True]]), make([node(1)], [job()], node_sets=[[False]])),
    "whole node": (
        make([node(2)], [job(), job(node_alone=False)]),
        make([node(2)], [job(), job(node_alone=True)]),
    ),
    "budget": (
        make([node(2)], [job()] * 2, budgets=(Budget("quota", "a", 2, (0, 1), (1, 1)),)),
        make([node(2)], [job()] * 2, budgets=(Budget("quota", "a", 1, (0, 1), (1, 1)),)),
    ),
    "gang": (gang([node(4)], 4), gang([node(3)], 4)),
    "gang of one kind": (gang([node(2)], 2), gang([node(2, kind=(0, 1))], 2)),
    "nodes": (gang([node(2), node(2)], 4, max_nodes=2), gang([node(2), node(2)], 4, max_nodes=1)),
    "unequal parts": (
        gang([node(3), node(1)], 4, max_nodes=2),
        gang([node(3), node(1)], 4, max_nodes=2, problem={"equal_per_node": True}),
    ),
    "unequal parts on few nodes": (
        gang([node(2), node(1), node(1)], 4, max_nodes=3),
        gang([node(2), node(1), node(1)], 4, max_nodes=2),
    ),
    "GPUs a node": (
        gang([node(2), node(2)], 4, max_nodes=4, gpus_per_node=2),
        gang([node(2), node(1), node(1), node(1)], 4, max_nodes=4, gpus_per_node=2),
    ),
    "same indices": (
        gang(
            [node(3, closed=(1, 0, 0)), node(3, closed=(0, 0, 0))],
            4,
            max_nodes=2,
            problem={"same_index": True},
        ),
        gang(
            [node(3, closed=(1, 0, 0)), node(3, closed=(0, 0, 1))],
            4,
            max_nodes=2,
            problem={"same_index": True},
        ),
    ),
    "residents that break a rule": (
        make([node(1)], [job(memory_mib=50_000, home=(0,)), job(memory_mib=30_000)]),
        make([node(1)], [job(memory_mib=90_000, home=(0,)), job(memory_mib=0)]),
    ),
    "worth more than waiting": (
        make([node(2, max_tenants=1)], [job(), job(wait_cost=HOUR // 2, speed_milli=501)]),
        make([node(2, max_tenants=1)], [job(), job(wait_cost=HOUR // 2, speed_milli=500)]),
    ),
}


@pytest.mark.parametrize("rule", TWINS)
def test_one_job_more_starts_where_the_rule_allows_it(rule):
    allowed, refused = TWINS[rule]
    assert started(allowed) == started(refused) + 1


def test_of_24_jobs_23_fit_in_the_memory_of_one_gpu():
    # 23 * 2,000 = 46,000 <= 46,068 < 24 * 2,000
    card = node(1, memory_mib=46_068, max_tenants=99)
    assert started(make([card], [job(memory_mib=2000, wait_cost=9 * HOUR)] * 24)) == 23


def test_two_of_three_jobs_of_half_a_gpu_start_in_any_order():
    for seed in range(5):
        problem = make([node(1, memory_mib=24_576)], [job(memory_mib=12_288)] * 3)
        assert sum(spot is not None for spot in plan(problem, seed=seed)) == 2


def test_sixteen_halves_take_eight_gpus_two_by_two():
    placed = plan(make([node(8)], [job(memory_mib=40_000)] * 16))
    assert np.bincount([g for spot in placed for g in spot]).tolist() == [2] * 8


def test_a_small_job_leaves_the_large_node_to_the_large_job():
    # 53 and 31 cores, 30 and 50 asked for: only the small job on the small node leaves room for the other.
    for gpus in (0, 1):
        jobs = [job(gpus, cpu_milli=30_000), job(gpus, cpu_milli=50_000)]
        placed = plan(make([node(1, cpu_milli=53_000), node(1, cpu_milli=31_000)], jobs))
        assert placed == ((1,), (0,))


def test_of_two_gangs_of_100_nodes_one_starts_whole():
    placed = plan(make([node(1, max_tenants=1)] * 100, [job(100, max_nodes=100)] * 2))
    assert sorted(len(spot or ()) for spot in placed) == [0, 100]


def test_single_gpus_leave_the_pair_of_gpus_to_the_pair():
    cluster = [node(2, max_tenants=1), node(1, max_tenants=1), node(1, max_tenants=1)]
    placed = plan(make(cluster, [job(2, max_nodes=2), job(2)]))
    assert placed == ((2, 3), (0, 1))


def test_a_job_that_fits_does_not_wait_for_one_that_does_not():
    assert started(make([node(4)], [job(8, max_nodes=1), job(2)])) == 1


def test_a_gang_prefers_one_link_group():
    cluster = [node(4, links=(0, 1, 0, 1))]
    assert plan(make(cluster, [job(2, link_milli=(1000, 1300, 1500))]))[0] in {(0, 2), (1, 3)}


def test_ten_declared_shares_fill_one_gpu():
    card = node(1, max_tenants=50)
    assert started(make([card], [job(share=100, wait_cost=HOUR)] * 12, types=1)) == 10


def test_a_longest_job_is_placed_rather_than_deferred_for_its_end():
    # Alone it ends at tick 1,000, deferred at 5,000: with the makespan term it goes before the costlier job.
    long = job(work=10**6, deferred_end=5000, alone=True)
    short = job(work=1000, deferred_end=10, wait_cost=5 * HOUR, alone=True)
    assert plan(make([node(1)], [short, long], makespan_cost=HOUR)) == (None, (0,))
    assert plan(make([node(1)], [short, long], makespan_cost=0)) == ((0,), None)


def test_running_jobs_stay():
    problem = make([node(1), node(1)], [job(home=(0,), movable=True), job()], slowdown=1900, max_moves=1)
    assert plan(problem) == ((0,), (1,))


def test_nothing_to_place_and_nowhere_to_place_it():
    assert plan(make([node(1)], [])) == ()
    assert plan(make([], [job(), job(0)], kinds=1)) == (None, None)


def test_a_better_valid_hint_is_kept_and_an_invalid_one_is_not():
    problem = make([node(1, max_tenants=1)], [job(), job(wait_cost=2 * HOUR)])
    assert plan(problem, hint=((0,), (0,))) == (None, (0,))
    assert plan(replace(problem, max_moves=0), hint=(None, (0,))) == (None, (0,))


def test_a_limit_of_nothing_gives_one_order():
    answer = greedy.solve(random_problem(0, 40, 16), Limits(wall_s=0), None, silent)
    assert answer.note == "1 order"
    assert any(spot is not None for spot in answer.placed)


VARIED = [
    {},
    {"residents": 0.3, "windows": True, "oddities": True},
    {"additive": False, "cpu_only": True, "budgets": True},
    {"gate": False, "never": True, "residents": 0.5, "hosts": "loose"},
    {"oddities": True, "cpu_only": True, "windows": True, "max_tenants": 5, "types": 4, "makespan": 0},
]


@pytest.mark.parametrize("seed", range(25))
def test_the_referee_accepts_every_pass_and_counts_the_same(seed):
    jobs, gpus = [(6, 3), (14, 6), (40, 16), (70, 28)][seed % 4]
    facts = Facts(random_problem(seed, jobs, gpus, **VARIED[seed % 5]))
    sharing = Sharing(facts)
    for rank in greedy.fixed_ranks(facts)[:3]:
        state = greedy.one_pass(facts, sharing, np.argsort(-rank).tolist(), None)
        placed = tuple(state.placed)
        assert violations(facts.problem, placed) == ()
        assert state.total == objective(facts.problem, placed).total


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_is_valid_and_the_same_again(seed):
    problem = random_problem(seed, 50, 28, **VARIED[seed])
    assert plan(problem, seed=seed) == plan(problem, seed=seed)


def test_put_and_take_leave_no_trace():
    facts = Facts(random_problem(3, 40, 16, **VARIED[1]))
    full = greedy.one_pass(facts, Sharing(facts), range(40), None)
    fresh = State(facts, Sharing(facts))
    for j, spot in enumerate(full.placed):
        if spot is not None:
            full.take(j)
    for name in ("memory_room", "share_room", "empty", "open_cost", "cpu_room", "host_room", "node_cost"):
        assert (getattr(full, name) == getattr(fresh, name)).all(), name
    full.refresh(facts.everything)
    assert (full.least == fresh.least).all() and not full.added.any() and not full.lost.any()
    assert (full.total_of_jobs, full.fragmentation, full.moved) == (
        fresh.total_of_jobs,
        fresh.fragmentation,
        fresh.moved,
    )


@pytest.mark.slow
def test_20000_jobs_on_8192_gpus():
    problem = random_problem(0, 20_000, 8192)
    answer = greedy.solve(problem, Limits(wall_s=0), None, silent)
    assert violations(problem, answer.placed) == ()
    assert answer.objective < objective(problem, problem.base).total / 2
