"""Odd but legal inputs: each gets a plan that both referees accept, never an error of our own."""

import pytest
from builders import gpu, job, jobs, node, policy, snapshot

from planner.epoch import plan_epoch
from planner.errors import InputError
from planner.model import Throttle
from planner.policy import PredictorSpec, Weights


def planned(nodes, the_jobs, predictor=None, **rules):
    rules = {"time_limit_s": 0.3, "deterministic": True, **rules}
    return plan_epoch(snapshot(nodes, the_jobs), policy(**rules), predictor or PredictorSpec())


def started(plan):
    return {a.job_id: a for a in plan.assignments if a.state != "stay"}


def test_beside_a_resident_that_mps_would_refuse_nobody_starts():
    stray = job(id="r", gpu_memory_mib=20_000, running_on="n0/0")
    plan = planned([node(2, name="n0", sharing="mps")], [stray, *jobs(2, gpu_memory_mib=1000)])
    assert [a.gpu_ids for a in started(plan).values()] == [("n0/1",)] * 2


def test_beside_a_resident_on_a_model_that_it_did_not_allow_nobody_starts():
    stray = job(id="r", gpu_models="t4", running_on="n0/0")
    plan = planned([node(1, name="n0")], [stray, job()])
    assert started(plan) == {}


def test_a_job_without_cpus_waits_until_an_overcommitted_host_has_room():
    running = job(id="r", cpus=16, running_on="n0/0", preemptible=True)
    keen = [job(id=i, priority=100, shareable=False) for i in "ab"]
    plan = planned([node(2, name="n0", cpus=8)], [running, *keen], max_moves=1)
    assert plan.preempted == ("r",)
    assert {a.wave for a in started(plan).values()} == {1}


def test_a_held_jobs_throttle_counts_for_its_group():
    group = [job(throttle=Throttle(group="g", max_running=2)) for _ in range(2)]
    held = job(state="held", throttle=Throttle(group="g", max_running=1))
    assert len(started(planned([node(4)], [*group, held]))) == 1


def test_whole_and_sharded_cards_of_a_node_are_counted_apart():
    cards = [gpu(), gpu(), gpu(shards=4), gpu(shards=4)]
    [a] = planned([node(cards), node(cards)], [job(gpus=4)]).assignments
    assert len(a.nodes) == 2


def test_the_fastest_card_that_could_take_a_share_counts_even_if_its_memory_is_unknown():
    speed = PredictorSpec(speed={"*": {"h100-80gb": 1.0, "a100-40gb": 0.5}})
    nodes = [node(1, model="h100-80gb", memory_mib=None, schedulable=False), node(1)]
    [a] = planned(nodes, [job(gpu_share_milli=500, gpu_memory_mib=None)], speed).assignments
    assert a.finish_s == 7200


def test_a_mig_instance_on_an_mps_node_is_one_tenants_whole():
    card = gpu(node="n0", slot="0:1g.5gb:0", model="a100-40gb:1g.5gb", memory_mib=5000)
    ask = job(gpu_memory_mib=4000, gpu_models="a100-40gb:1g.5gb")
    assert len(started(planned([node([card], name="n0", sharing="mps")], [ask]))) == 1


@pytest.mark.parametrize("hair", [1.001, 2.01, 4.35, 16.1, 19.999])
def test_thousandths_are_not_lost_to_binary_fractions(hair):
    assert len(started(planned([node(1, cpus=hair)], [job(cpus=hair)]))) == 1


def test_a_service_without_gpus_that_never_ends_does_not_drown_the_gpu_jobs():
    service = job(id="svc", gpus=0, duration_s=1_000_000_000)
    nodes, pair = [node(8) for _ in range(64)], jobs(2, duration_s=600)
    plan = planned(nodes, [service, *pair])
    assert len(started(plan)) == 3
    assert plan.objective.terms.makespan == planned(nodes, pair).objective.terms.makespan


@pytest.mark.parametrize(
    "rules",
    [
        {"horizon_s": 1e10, "weights": Weights(waiting=1000)},
        {"age_s": 1e-9},
    ],
)
def test_a_policy_whose_costs_no_integer_holds_is_refused_in_one_line(rules):
    old = job(submitted_s=-1e6, priority=100)
    with pytest.raises(
        InputError, match=r"^policy: horizon_s, age_s, .* make a cost of .*; accepted: at most"
    ):
        planned([node(1)], [old], **rules)


def test_of_two_overdue_jobs_the_place_in_the_file_does_not_decide():
    x, y = (
        job(id="x", submitted_s=-100, gpu_utilisation_pct=100),
        job(id="y", submitted_s=-100, priority=100, gpu_utilisation_pct=100),
    )
    costs = {
        planned([node(1)], order, max_wait_s=50, solver="cp-sat").objective.total_gpu_s
        for order in ([x, y], [y, x])
    }
    assert len(costs) == 1
