"""The order of a plan: no GPU is given out before its old tenant is gone, whatever the moves."""

import pytest
from builders import job, node, policy, snapshot

from planner import predict
from planner.formulate import formulate
from planner.formulate.waves import host_demand, waves
from planner.policy import PredictorSpec


def order(placed, the_jobs, nodes=None):
    state = snapshot(nodes or [node(4, name="n0")], the_jobs)
    rules = policy(max_moves=9)
    problem = formulate(state, predict.forecast(state, rules, PredictorSpec()), rules).problem
    return waves(problem, placed)


def runs(*gpus, **fields):
    return job(gpus=len(gpus), running_on=[f"n0/{g}" for g in gpus], movable=True, preemptible=True, **fields)


def test_without_moves_all_start_at_once():
    assert order(((0,), (1,), (2,)), [runs(0), job(), job()]) == ({1: 0, 2: 0}, {})


def test_a_job_waits_a_wave_for_the_gpu_that_a_mover_leaves():
    # job 0 moves from 0 to 1, job 1 starts on 0
    assert order(((1,), (0,)), [runs(0), job()]) == ({0: 0, 1: 1}, {0: 0})


def test_a_chain_of_moves_takes_a_wave_each():
    assert order(((1,), (2,), (0,)), [runs(0), runs(1), job()]) == ({1: 0, 0: 1, 2: 2}, {1: 0, 0: 1})


def test_a_stopped_job_leaves_first():
    assert order((None, (0,)), [runs(0), job()]) == ({1: 1}, {0: 0})


def test_of_two_jobs_that_change_places_one_is_parked():
    starts, leaves = order(((1,), (0,)), [runs(0), runs(1)])
    assert leaves[0] < starts[0]  # parked
    assert leaves[1] == starts[1] == 1


def test_host_memory_that_a_mover_still_holds_is_waited_for():
    nodes = [node(2, name="n0", host_memory_mib=100), node(2, name="n1")]
    moved = runs(0, host_memory_mib=80)
    assert order(((2,), (1,)), [moved, job(host_memory_mib=80)], nodes)[0] == {0: 0, 1: 1}
    assert order(((2,), (1,)), [moved, job(host_memory_mib=20)], nodes)[0] == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("spot", "expected"), [((0, 1, 2), {0: (1000, 10)}), ((0, 1, 4), {0: (667, 7), 1: (334, 4)})]
)
def test_host_demand_is_split_by_gpus_and_rounded_up(spot, expected):
    state = snapshot([node(4), node(4)], [job(gpus=3, max_nodes=2, cpus=1, host_memory_mib=10)])
    problem = formulate(state, predict.forecast(state, policy(), PredictorSpec()), policy()).problem
    assert host_demand(problem, 0, spot) == expected
