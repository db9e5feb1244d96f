"""Reservations: who gets one, which GPUs, from when, and who may still use them."""

import pytest
from builders import job, node, policy, snapshot

from planner import predict
from planner.formulate import formulate
from planner.model import Carryover, Reserved
from planner.policy import Links, PredictorSpec, Quota
from solvers.check import violations


def problem_of(the_jobs, nodes=None, carryover=None, **rules):
    state = snapshot(nodes or [node(4, name="n0")], the_jobs, carryover=carryover or Carryover())
    rules = policy(**{"duration_margin": 0, **rules})
    # links cost nothing, so that a gang's end is its duration
    predictor = PredictorSpec(links=Links(nvlink=1, pcie=1, network=1))
    return formulate(state, predict.forecast(state, rules, predictor), rules)


def runs(*gpus, left_s, **fields):
    return job(gpus=len(gpus), running_on=[f"n0/{g}" for g in gpus], duration_s=left_s, **fields)


def reserved(formulated):
    return [(int(j), spot, at) for j, spot, at in formulated.reservations]


def test_a_blocked_gang_gets_the_gpus_that_are_free_earliest():
    f = problem_of([runs(0, left_s=4000), runs(1, left_s=1000), runs(2, left_s=2000), job(gpus=2)])
    # GPU 3 is free now, GPU 1 after 1000 s
    assert reserved(f) == [(3, (1, 3), 1000.0)]


def test_the_end_that_counts_is_the_p90_end_under_the_slowdown_it_has_now():
    pair = [job(running_on=["n0/0"], duration_s=1000, gpu_utilisation_pct=80) for _ in range(2)]
    f = problem_of(
        [*pair, job(gpus=1, duration_s=9000, running_on=["n0/1"]), job(gpus=2)],
        [node(2, name="n0")],
        duration_margin=0.5,
    )
    # 80 + 80 %: slowdown 1.6; p90 of the last one: 13,500 s
    assert reserved(f) == [(3, (0, 1), 13_500.0)]


def test_a_gang_that_fits_now_needs_no_reservation():
    assert reserved(problem_of([runs(0, left_s=1000), job(gpus=2)])) == []


def test_the_gang_that_costs_most_while_it_waits_comes_first():
    held = [runs(0, 1, 2, left_s=1000)]
    f = problem_of([*held, job(gpus=2), job(gpus=2, priority=5)])
    assert [j for j, _, _ in reserved(f)] == [2]
    assert reserved(problem_of([*held, job(gpus=2)], max_reservations=0)) == []


def test_jobs_past_the_longest_wait_come_first_oldest_first():
    queue = [job(submitted_s=-5000), job(submitted_s=-9000), job(gpus=2, priority=9, submitted_s=0)]
    f = problem_of([runs(0, 1, 2, 3, left_s=1000), *queue], max_wait_s=4000, max_reservations=2)
    assert [j for j, _, _ in reserved(f)] == [2, 1]
    f = problem_of([runs(0, 1, 2, 3, left_s=1000), *queue], max_wait_s=None)
    assert [j for j, _, _ in reserved(f)] == [3]


def test_a_reservation_of_the_last_epoch_is_kept_before_new_ones_are_made():
    queue = [job(gpus=2), job(gpus=2, priority=5)]
    kept = Carryover(reservations=(Reserved(job_id=queue[0].id, gpu_ids=("n0/0", "n0/3"), from_s=900),))
    f = problem_of([runs(0, 1, 2, left_s=1000), *queue], carryover=kept)
    assert [j for j, _, _ in reserved(f)] == [1]


def test_nothing_is_reserved_on_gpus_whose_end_is_unknown():
    f = problem_of([runs(0, 1, 2, left_s=None), job(gpus=2)])
    assert reserved(f) == []


def test_a_gang_over_its_quota_gets_no_reservation():
    f = problem_of([runs(0, 1, 2, left_s=1000), job(gpus=2, queue="q")], quotas=(Quota(queue="q", gpus=1),))
    assert reserved(f) == []


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"duration_s": 900}, True),
        ({"duration_s": 1001}, False),
        ({"duration_s": None}, False),
        ({"duration_s": None, "time_limit_s": 900}, True),  # it is ended at its limit
    ],
)
def test_backfill_uses_a_reserved_gpu_only_if_it_is_sure_to_end_before(fields, allowed):
    f = problem_of([runs(0, 1, 2, left_s=1000), job(gpus=2, priority=9), job(**fields)])
    [(holder, spot, _)] = reserved(f)
    assert (holder, 3 in spot) == (1, True)
    found = violations(f.problem, (f.problem.home[0], None, (3,)))
    assert (not found) == allowed


def test_backfill_counts_the_slowdown_of_what_it_would_share_with():
    queue = [job(duration_s=900, gpu_utilisation_pct=80), job(duration_s=900, gpu_utilisation_pct=40)]
    f = problem_of([runs(0, 1, 2, left_s=1000), job(gpus=2, priority=9), *queue])
    # 80 + 40 %: the second runs at 1 + 0.2 x 2 x 80/120 = 1.27: 1140 s
    home = f.problem.home[0]
    assert not violations(f.problem, (home, None, (3,), None))
    assert {v.rule for v in violations(f.problem, (home, None, (3,), (3,)))} == {"window"}


def test_nothing_is_added_beside_a_job_that_holds_a_reserved_gpu():
    holder = runs(0, 1, left_s=1000, gpu_utilisation_pct=10)
    other = runs(2, left_s=3000, gpu_utilisation_pct=10)
    small = job(duration_s=300, gpu_utilisation_pct=10)
    f = problem_of([holder, other, job(gpus=2), small])
    assert reserved(f) == [(2, (0, 3), 1000.0)]
    home = f.problem.home
    # GPU 1 is not reserved, but a neighbour there would delay the job that holds GPU 0
    assert {v.rule for v in violations(f.problem, (home[0], home[1], None, (1,)))} == {"closed"}
    assert not violations(f.problem, (home[0], home[1], None, (2,)))
    assert not violations(f.problem, (home[0], home[1], None, (3,)))


def test_a_job_that_holds_a_reservation_may_start_at_once_where_a_move_makes_room():
    blocked = job(gpus=3, gpus_per_node=3)
    mover = runs(2, left_s=1000, movable=True)
    f = problem_of(
        [runs(3, left_s=4000), mover, blocked], [node(4, name="n0"), node(1, name="n1")], max_moves=1
    )
    assert reserved(f) == [(2, (0, 1, 2), 1000.0)]
    home = f.problem.home
    assert not violations(f.problem, (home[0], (4,), (0, 1, 2)))
    # Nobody else may take the place that was left.
    small = job(duration_s=300)
    g = problem_of(
        [runs(3, left_s=4000), mover, blocked, small], [node(4, name="n0"), node(1, name="n1")], max_moves=1
    )
    assert {v.rule for v in violations(g.problem, (home[0], (4,), None, (2,)))} == {"window"}


def test_host_memory_counts_for_when_a_gang_can_start():
    hog = job(gpus=1, running_on=["n0/0"], duration_s=5000, host_memory_mib=900)
    f = problem_of([hog, job(gpus=2, host_memory_mib=200)], [node(4, name="n0", host_memory_mib=1000)])
    [(_, _, at)] = reserved(f)
    assert at == 5000.0


def test_a_gang_over_several_nodes_waits_for_all_of_them():
    nodes = [node(2, name="n0"), node(2, name="n1"), node(2, name="n2")]
    busy = [
        job(gpus=2, duration_s=d, running_on=[f"{n}/0", f"{n}/1"])
        for n, d in (("n0", 1000), ("n1", 3000), ("n2", 2000))
    ]
    f = problem_of([*busy, job(gpus=4)], nodes)
    assert reserved(f) == [(3, (0, 1, 4, 5), 2000.0)]
