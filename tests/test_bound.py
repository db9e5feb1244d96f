"""The bound is never above what any plan costs, and is not far below where the answer can be worked out by hand."""

import numpy as np
import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node, random_problem

from solvers import greedy
from solvers.bound import _options, lower_bound
from solvers.check import objective
from solvers.facts import Facts
from solvers.problem import Budget, Limits

#: What the bound gives away to rounding: four a job and one.
ROUNDING = 100


def silent(*_):
    """Nobody listens."""


def near(bound, value):
    """Not above the value, and below it by rounding only."""
    return value - ROUNDING <= bound <= value


@pytest.mark.parametrize("seed", range(40))
def test_it_is_never_above_the_optimum(seed):
    problem = tiny(seed, jobs=5)
    best, _ = optimum(problem)
    assert lower_bound(problem) <= best


@pytest.mark.parametrize("seed", range(70, 90))
def test_no_prices_lift_it_above_the_optimum(seed):
    problem = tiny(seed, jobs=6)
    best, placed = optimum(problem)
    terms = objective(problem, placed)
    avoidable = best - terms.makespan - terms.fragmentation
    opened = sum(problem.gpu_open_cost.clip(min=0)) + sum(problem.node_used_cost.clip(min=0))
    assert at_random_prices(problem, seed) <= avoidable + opened + ROUNDING


def at_random_prices(problem, seed):
    """The highest of the bounds, without its fixed part, at 30 sets of prices drawn without any sense."""
    options = _options(Facts(problem))
    rng = np.random.default_rng(seed)
    scale = np.array([HOUR / max(row.capacity, 1.0) for row in options.rows])
    drawn = rng.exponential(1.0, (30, len(scale))) * (rng.random((30, len(scale))) < 0.5)
    return max(options.value(scale * prices) for prices in drawn)


VARIED = [
    {},
    {"residents": 0.3, "windows": True, "oddities": True},
    {"additive": False, "cpu_only": True, "budgets": True},
    {"gate": False, "never": True, "residents": 0.5, "hosts": "loose"},
    {"oddities": True, "cpu_only": True, "max_tenants": 6, "types": 4, "makespan": 0},
]


@pytest.mark.parametrize("seed", range(15))
def test_it_is_never_above_a_plan(seed):
    problem = random_problem(seed, 50, 28, **VARIED[seed % 5])
    plan = greedy.solve(problem, Limits(wall_s=1, deterministic=True), None, silent)
    assert 0 <= lower_bound(problem) <= plan.objective


#: Only the end of such a job costs anything; it does not pay to let it wait.
ENDS = {"unit_locality": 0, "deferred_end": 999}

# Two jobs of an hour each, of which the whole or a part must wait.
BY_HAND = {
    "both run": (make([node(2)], [job()] * 2), 0),
    "alone": (make([node(1)], [job(alone=True)] * 2), HOUR),
    "tenants": (make([node(1, max_tenants=1)], [job()] * 2), HOUR),
    "memory, 1.6 of them fit": (make([node(1)], [job(memory_mib=50_000)] * 2), 0.4 * HOUR),
    "share, 1.6 of them fit": (make([node(1)], [job(share=625)] * 2), 0.4 * HOUR),
    "cores, 1.6 of them fit": (make([node(2, cpu_milli=8000)], [job(cpu_milli=5000)] * 2), 0.4 * HOUR),
    "host memory": (make([node(2, host_memory_mib=80)], [job(host_memory_mib=50)] * 2), 0.4 * HOUR),
    "cores of nodes without GPUs": (make([node(0, cpu_milli=8)], [job(0, cpu_milli=8)] * 2, kinds=1), HOUR),
    "budget": (make([node(2)], [job()] * 2, budgets=(Budget("quota", "a", 1, (0, 1), (1, 1)),)), HOUR),
    "no kind": (make([node(2)], [job(speed_milli=0)] * 2), 2 * HOUR),
    "closed": (make([node(2, closed=True)], [job()] * 2), 2 * HOUR),
    "closed node": (make([node(2, node_closed=True)], [job()] * 2), 2 * HOUR),
    "slower": (make([node(2)], [job(speed_milli=800)] * 2), 0.4 * HOUR),
    "beside one another at 1.25": (make([node(1)], [job()] * 2, slowdown=1250), 0.4 * HOUR),
    "beside one another not at all": (make([node(1)], [job(cap_milli=1200)] * 2, slowdown=1250), HOUR),
    "over PCIe": (make([node(2, links=(0, 1))], [job(2, link_milli=(1000, 1250, 9000))]), 0.4 * HOUR),
    "over the network": (
        make([node(1), node(1)], [job(2, max_nodes=2, link_milli=(1000, 1100, 1250))]),
        0.4 * HOUR,
    ),
    "an end": (make([node(1)], [job(work=7000, deferred_end=50)], makespan_cost=10), 70),
    "an end over PCIe": (
        make(
            [node(2, links=(0, 1))],
            [job(2, work=7000, link_milli=(1000, 2000, 9000), **ENDS)],
            makespan_cost=10_000,
        ),
        140_000,
    ),
    "an end over the network": (
        make(
            [node(1), node(1)],
            [job(2, max_nodes=2, work=7000, link_milli=(1000, 1100, 3000), **ENDS)],
            makespan_cost=10_000,
        ),
        210_000,
    ),
    "an end over PCIe, as the other node is closed": (
        make(
            [
                node(2, links=(0, 0)),
                node(2, node_closed=True, links=(1, 1)),
                node(2, closed=True, links=(2, 2)),
                node(2, links=(3, 4)),
            ],
            [job(2, work=7000, link_milli=(1000, 2000, 9000), **ENDS, node_set=1)],
            makespan_cost=10_000,
            node_sets=[[True] * 4, [False, True, True, True]],
        ),
        140_000,
    ),
    "an end of a job that may stay over the network": (
        make(
            [node(2), node(2)],
            [job(2, home=(0, 2), max_nodes=1, work=7000, link_milli=(1000, 1100, 3000), **ENDS)],
            makespan_cost=10_000,
        ),
        210_000,
    ),
    "a running job": (make([node(1, max_tenants=1)], [job(home=(0,), speed_milli=600)]), 0.4 * HOUR),
    "residents over the memory": (make([node(1)], [job(home=(0,), memory_mib=60_000)] * 2), 0),
    "residents over the cores": (make([node(2, cpu_milli=1)], [job(home=(0,), cpu_milli=9)] * 2), 0),
    "residents over the tenants": (make([node(1, max_tenants=1)], [job(home=(0,))] * 3), 0),
    "residents on a closed GPU": (make([node(1, closed=True)], [job(home=(0,))]), 0),
    "opened": (make([node(2, open_cost=7, used_cost=4)], [job()], fragmentation_base=5), 5 + 7 + 2),
    "a reward for opening": (make([node(1, open_cost=-7)], [job()], fragmentation_base=9), 2),
    "nothing": (make([node(1)], [], fragmentation_base=3), 3),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_it_is_what_is_worked_out_by_hand(case):
    problem, value = BY_HAND[case]
    assert near(lower_bound(problem), value)


@pytest.mark.parametrize("case", BY_HAND)
def test_no_prices_lift_it_above_what_is_worked_out_by_hand(case):
    problem, value = BY_HAND[case]
    assert not problem.jobs or at_random_prices(problem, 0) <= value + ROUNDING


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_cluster_without_nodes_has_a_bound(gpus):
    problem = make([], [job(gpus, cpu_milli=1000, wait_cost=HOUR)], node_sets=[[]])
    assert near(lower_bound(problem), HOUR)
