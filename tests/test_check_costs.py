"""The referee's costs, ends and slowdowns, worked out by hand."""

import pytest
from problems import HOUR, job, make, node

from solvers.check import ends, objective, slowdowns, violations
from solvers.problem import Terms


def test_a_deferred_job_costs_its_waiting_and_nothing_else():
    assert objective(make([node(1)], [job(), job(2)]), (None, None)) == Terms(waiting=3 * HOUR)


def test_speed_interference_and_locality_add_up_to_the_whole_loss():
    # v = 0.8, s = 1.25, k = 1.6 (two nodes): speed 0.2, interference 0.8 - 0.64 = 0.16, locality 0.64 - 0.4 = 0.24;
    # times the gang's 2 * 3,600,000. The neighbour on GPU 1 loses 0.2 of its hour.
    gang = job(2, speed_milli=800, max_nodes=2, link_milli=(1000, 1300, 1600))
    problem = make([node(1), node(1)], [gang, job()], slowdown=1250)
    assert objective(problem, ((0, 1), (1,))) == Terms(
        speed=1_440_000, interference=1_152_000 + 720_000, locality=1_728_000
    )


def test_every_part_is_rounded_down_by_itself():
    # v = 1, s = 1.5: b = 1,000,000 * 1000 // 1500 = 666,666, so 333,334 ppm of 10 -> 3; locality 666,666 - 10**12 // (1500 * 1100)
    # = 666,666 - 606,060 = 60,606 ppm of 100 -> 6.
    facts = {"unit_interference": 10, "unit_locality": 100, "link_milli": (1100, 1100, 1100)}
    problem = make([node(1)], [job(**facts), job(unit_interference=0)], slowdown=1500)
    assert objective(problem, ((0,), (0,))) == Terms(interference=3, locality=6)


@pytest.mark.parametrize(
    ("links", "placed", "locality"),
    [
        ([0, 0], (0, 1), 0),  # one link group
        ([0, 1], (0, 1), 720_000),  # one node: 1 - 1/1.25 = 0.2 of half the unit
        ([-1, -1], (0, 1), 720_000),  # no group is not a common group
        ([0, 0], (0, 2), 1_440_000),  # two nodes at 1/1.6667: 0.4
    ],
)
def test_locality_follows_the_slowest_link_between_the_gpus(links, placed, locality):
    gang = job(2, max_nodes=2, link_milli=(1000, 1250, 1_667), unit_locality=HOUR)
    problem = make([node(2, links=links), node(1)], [gang])
    assert objective(problem, (placed,)).locality == pytest.approx(locality, abs=1_000)


def test_a_gang_runs_at_its_slowest_gpu():
    table = {(0, 1): 1100, (0, 2): 1700}
    problem = make([node(2)], [job(2, type=0), job(type=1), job(type=2)], slowdown=table)
    assert slowdowns(problem, ((0, 1), (0,), (1,))) == (1700, 1000, 1000)
    assert slowdowns(problem, ((0, 1), (0,), None)) == (1100, 1000, None)


def test_makespan_is_the_latest_end_of_placed_and_deferred_jobs():
    # 90 ticks of work at 1.5 and speed 0.9: 150; 10.001 ticks round up to 11; deferred 140.
    def three(deferred_end):
        jobs = [
            job(work=90_000, speed_milli=900, type=0),
            job(work=10_001, type=1),
            job(deferred_end=deferred_end),
        ]
        return make([node(2)], jobs, slowdown={(0, 1): 1500}, makespan_cost=7)

    assert ends(three(140), ((0,), (1,), None)) == (100, 11, 140)
    assert ends(three(140), ((0,), (0,), None)) == (150, 11, 140)
    assert ends(three(-1), (None, (0,), None)) == (None, 11, None)
    assert objective(three(140), ((0,), (1,), None)).makespan == 980
    assert objective(three(140), ((0,), (0,), None)).makespan == 1050
    assert objective(three(-1), (None, None, None)).makespan == 0


def test_moving_and_preempting_cost_and_staying_does_not():
    jobs = [
        job(home=(0,), movable=True, move_cost=5),
        job(home=(1,), preemptible=True, move_cost=7, wait_cost=1),
    ]
    problem = make([node(3)], jobs, max_moves=2)
    assert objective(problem, ((0,), (1,))) == Terms()
    assert objective(problem, ((2,), (1,))) == Terms(moves=5)
    assert objective(problem, ((2,), None)) == Terms(moves=12, waiting=1)


def test_fragmentation_counts_nodes_with_a_gpu_in_use_and_gpus_with_a_tenant():
    nodes = [node(2, used_cost=100, open_cost=-3), node(1, used_cost=1000, open_cost=1)]
    problem = make(nodes, [job(), job(), job(0)], fragmentation_base=10_000)
    assert objective(problem, (None, None, None)).fragmentation == 10_000
    assert objective(problem, ((0,), (0,), (1,))).fragmentation == 10_097  # a job without GPUs opens nothing
    assert objective(problem, ((0,), (1,), None)).fragmentation == 10_094
    assert objective(problem, ((0,), (2,), None)).fragmentation == 11_098


def test_a_job_without_gpus_costs_nothing_when_placed_and_its_end_counts():
    problem = make([node(1)], [job(0, work=2_000)], makespan_cost=1)
    assert objective(problem, ((0,),)) == Terms(makespan=2)


@pytest.mark.slow
def test_a_large_plan_is_judged_quickly():
    """20,000 jobs on 8,192 GPUs; no clock is asserted, a slow referee shows in the durations."""
    problem = make([node(8) for _ in range(1024)], [job() for _ in range(20_000)], slowdown=1100)
    placed = tuple((j // 2,) if j < 16_384 else None for j in range(20_000))
    assert violations(problem, placed) == ()
    assert objective(problem, placed).waiting == (20_000 - 16_384) * HOUR
