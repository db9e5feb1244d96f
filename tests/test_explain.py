"""Why a job waits: the first reason that holds, and the sentence with its numbers.

Reasons are asked of a placement that the test chooses, through the real formulation: per reason a case in which it is
given and one, differing in one fact, in which it is not.
"""

import numpy as np
import pytest
from builders import job, node, snapshot, table
from problems import random_problem
from telling import A, B, before_a_gang, busy, detail, filled, one_gpu, reason, told

from planner.explain.choosing import spot_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.model import Throttle
from planner.plan import REASONS
from planner.policy import Quota
from solvers.check import objective, violations

# ---- never ----


@pytest.mark.parametrize(
    ("fact", "said"), [({"state": "held"}, "held"), ({"depends_on": ["b"]}, "dependency"), ({}, "not_chosen")]
)
def test_held_and_dependent_jobs_say_so(fact, said):
    assert reason(one_gpu(job(id="a", **fact), job(id="b"))) == said


def test_three_gpus_on_a_node_of_two_never_fit_however_many_may_share_each():  # field case 41
    state = snapshot(
        [node(2, name="n0", max_tenants=4)], [job(id="a", gpus=3, max_nodes=1), job(id="b", gpus=2)]
    )
    assert told(state)["a"] == (
        "never_fits",
        "needs 3 GPUs of one model on 1 node; the largest node offers 2",
    )
    assert reason(state, who="b") == "not_chosen"


def test_more_memory_than_mps_gives_each_tenant_never_fits():  # field case 66
    state = one_gpu(job(id="a", gpu_memory_mib=6_000), memory_mib=46_068, sharing="mps", max_tenants=10)
    assert reason(state) == "never_fits"
    assert "at most 4606 MiB" in detail(state)


def test_sixteen_on_eight_never_fit_eight_when_all_are_busy_wait_and_four_and_four_are_fragments():  # field case 98
    def asked(n, taken, nodes=1):
        running = [
            job(id=f"r{v}", gpus=taken, running_on=[f"n{v}/{i}" for i in range(taken)], shareable=False)
            for v in range(nodes)
            if taken
        ]
        gang = job(id="a", gpus=n, max_nodes=1, shareable=False)
        return told(snapshot([node(8, name=f"n{v}") for v in range(nodes)], [*running, gang]))["a"]

    assert asked(16, 0)[0] == "never_fits"
    assert asked(8, 8)[0] == "waiting_capacity"
    assert asked(8, 4, nodes=2) == (
        "fragmented",
        "needs 8 GPUs of one model on one node; 8 are free, as 4+4",
    )
    assert asked(8, 0)[0] == "not_chosen"


def test_a_problem_made_elsewhere_is_judged_against_its_empty_cluster_too():
    def short_of_cores(problem):
        return {"node_cpu_milli": np.full(problem.nodes, 1_500)}

    state = one_gpu(job(id="a", cpus=2), cpus=8)
    assert told(state, edited=short_of_cores)["a"] == (
        "never_fits",
        "it needs 2 CPUs; the largest node has 1.5 CPUs",
    )


def test_a_gang_that_only_the_backend_keeps_from_running_is_unsupported():
    state = snapshot([node(2, name="n0"), node(2, name="n1")], [job(id="a", gpus=3, max_nodes=2)])
    assert reason(state) == "not_chosen"
    said = told(state, edited=lambda _: {"equal_per_node": True})["a"]
    assert said == (
        "unsupported",
        "the backend files needs the same number of GPUs on every node; its 3 GPUs cannot be divided so",
    )


# ---- budgets ----


@pytest.mark.parametrize(("gpus", "said"), [(1, "quota"), (2, "not_chosen")])
def test_a_quota_without_room_is_named_with_its_numbers(gpus, said):
    state = snapshot([node(2, name="n0")], [job(id=i, user="x") for i in "ab"])
    given = {"who": "b", "quotas": [Quota(user="x", gpus=gpus)]}
    assert reason(state, {"a": [A]}, **given) == said
    if said == "quota":
        assert detail(state, {"a": [A]}, **given) == (
            "the quota of user x is 1 GPU: this plan gives 1 to others, none is left; it needs 1"
        )


@pytest.mark.parametrize(("have", "said"), [(1, "licence"), (2, "not_chosen")])
def test_a_licence_that_is_out_is_named(have, said):
    state = snapshot(
        [node(2, name="n0")], [job(id=i, licences={"matlab": 1}) for i in "ab"], licences={"matlab": have}
    )
    assert reason(state, {"a": [A]}, who="b") == said


@pytest.mark.parametrize(("most", "said"), [(1, "throttle"), (2, "not_chosen")])
def test_a_throttle_is_named(most, said):
    the_jobs = [job(id=i, throttle=Throttle(group="array", max_running=most)) for i in "ab"]
    assert reason(snapshot([node(2, name="n0")], the_jobs), {"a": [A]}, who="b") == said


# ---- reservations ----


@pytest.mark.parametrize(
    ("duration", "said"), [(1_000, "not_chosen"), (1_001, "reserved"), (None, "reservation_window")]
)
def test_a_job_that_would_end_too_late_for_a_reservation_is_kept_out(duration, said):
    assert reason(before_a_gang(duration_s=duration), max_reservations=1) == said
    assert reason(before_a_gang(duration_s=duration), max_reservations=0) == "not_chosen"


def test_the_reservations_holder_and_times_are_named():
    kept = told(before_a_gang(), max_reservations=1)
    assert kept["a"][1] == (
        "it would fit on n0/1, which is reserved for gang from 1250 s on (p90 of the jobs there); this job would end after 4500 s (p90)"
    )
    assert kept["gang"] == (
        "reserved",
        "n0/0, n0/1 are kept for it from 1250 s on, when the jobs there are to end (p90)",
    )


def test_a_window_that_no_job_holds_is_a_reservation_window():
    def closing(problem):
        return {"gpu_until_s": np.full(problem.gpus, 600)}

    assert reason(one_gpu(job(id="a")), edited=closing) == "reservation_window"
    assert reason(one_gpu(job(id="a", duration_s=300)), edited=closing) == "not_chosen"


@pytest.mark.parametrize("duration", [300, None])
def test_nothing_joins_a_job_that_holds_a_reserved_gpu(duration):
    running = [
        job(id="r", running_on=[A], duration_s=1_000),
        job(id="s", running_on=[B], shareable=False, duration_s=1_000),
    ]
    state = snapshot(
        [node(2, name="n0")], [*running, job(id="gang", gpus=2), job(id="a", duration_s=duration)]
    )
    assert told(state, max_reservations=1)["a"] == (
        "reserved",
        "it would fit on n0/0, but a job there holds GPUs of a reservation and nothing is added beside it",
    )
    assert reason(state, max_reservations=0) == "not_chosen"


# ---- shape ----


@pytest.mark.parametrize(("max_nodes", "said"), [(1, "fragmented"), (2, "not_chosen")])
def test_enough_gpus_on_too_many_nodes_are_fragments(max_nodes, said):
    running = [job(id=f"r{v}", running_on=[f"n{v}/0"], shareable=False) for v in range(2)]
    gang = job(id="a", gpus=2, max_nodes=max_nodes)
    state = snapshot([node(2, name="n0"), node(2, name="n1")], [*running, gang])
    assert reason(state) == said


@pytest.mark.parametrize(("need", "said"), [(1_024, "not_chosen"), (2_048, "waiting_capacity")])
def test_a_free_gpu_whose_host_memory_is_full_is_named(need, said):  # field case 53
    state = snapshot(
        [node(2, name="n0", host_memory_mib=9_216)],
        [
            job(id="r", running_on=[A], host_memory_mib=8_192),
            job(id="a", host_memory_mib=need, shareable=False),
        ],
    )
    assert reason(state) == said
    if said == "waiting_capacity":
        assert detail(state) == (
            "1 GPU would do, but it needs 2048 MiB of host memory and that node has 1024 MiB of host memory left"
        )


@pytest.mark.parametrize(
    ("share", "said"), [(400, "not_chosen"), (600, "fragmented"), (900, "waiting_capacity")]
)
def test_shares_that_are_free_only_in_pieces_are_fragments(share, said):
    parts = {"gpu_memory_mib": None, "gpu_utilisation_pct": None}
    running = [job(id=f"r{i}", running_on=[f"n0/{i}"], gpu_share_milli=600, **parts) for i in range(2)]
    state = snapshot([node(2, name="n0")], [*running, job(id="a", gpu_share_milli=share, **parts)])
    assert reason(state) == said
    if said == "fragmented":
        assert detail(state) == "needs 600/1000 of 1 GPU; 800/1000 are free in all, at most 400 on one"


@pytest.mark.parametrize(("cpus", "said"), [(4, "not_chosen"), (6, "fragmented"), (9, "waiting_capacity")])
def test_a_job_without_gpus_names_cores(cpus, said):
    running = [job(id=f"r{v}", gpus=0, cpus=6, running_on=[f"n{v}"]) for v in range(2)]
    nodes = [node(0, name=f"n{v}", cpus=10) for v in range(2)]
    assert reason(snapshot(nodes, [*running, job(id="a", gpus=0, cpus=cpus)])) == said


# ---- neighbours ----


def beside(mutual, **rules):
    state = one_gpu(job(id="r", profile="x", running_on=[A]), job(id="a", profile="y"))
    return told(state, predictor=table(("x", "y", mutual[0]), ("y", "x", mutual[1])), **rules)["a"]


def test_room_beside_a_job_that_would_suffer_is_interference():
    assert beside((1.5, 1.5))[0] == "not_chosen"
    assert beside((1.2, 2.5)) == (
        "interference",
        "there is room on n0/0, but beside r it would take 2.5 times as long, allowed is 2",
    )
    assert beside((2.5, 1.2))[1].endswith("but r there would take 2.5 times as long, allowed is 2")
    assert beside((1.2, 2.5), max_slowdown=None)[0] == "not_chosen"


def test_the_gate_and_pairs_that_never_share_are_interference():
    assert beside((2.1, 2.1), max_slowdown=None)[0] == "interference"
    assert beside((2.1, 2.1), max_slowdown=None, sharing_gate=False)[0] == "not_chosen"
    assert beside((1.2, None))[1] == "there is room on n0/0, but it must not share a GPU with r"
    for never, said in ([], "not_chosen"), (["r"], "interference"):
        assert reason(one_gpu(job(id="r", running_on=[A]), job(id="a", never_with=never))) == said


@pytest.mark.parametrize(("excess", "said"), [(0.05, "not_chosen"), (0.35, "interference")])
def test_a_third_job_that_lowers_the_progress_of_all_is_interference(excess, said):
    # three at 1.1 each progress by 2.7; else 1/1.7 + 2/1.4 = 2.02 is not better than two at 1.01
    pairs = [(a, b, 1.01) for a in "xy" for b in "xy"]
    pairs += [("z", p, 1 + excess) for p in "xy"] + [
        (p, "z", 1 + excess + 0.2 * (excess > 0.1)) for p in "xy"
    ]
    state = one_gpu(*(job(id=p, profile=p, gpu_utilisation_pct=10) for p in "xyz"))
    given = {"who": "z", "predictor": table(*pairs)}
    assert reason(state, {"x": [A], "y": [A]}, **given) == said
    if said == "interference":
        assert "as much as 1.87 GPUs, without one of them as much as 1.98" in detail(
            state, {"x": [A], "y": [A]}, **given
        )


@pytest.mark.parametrize(("limit", "said"), [(None, "not_chosen"), (4_600, "interference")])
def test_a_time_limit_that_sharing_would_break_is_interference(limit, said):
    state = one_gpu(job(id="r", profile="x", running_on=[A]), job(id="a", profile="y", time_limit_s=limit))
    given = {"predictor": table(("x", "y", 1.2), ("y", "x", 1.4))}
    assert reason(state, **given) == said
    if said == "interference":
        assert "it would pass its time limit" in detail(state, **given)


def test_a_gpu_in_use_without_room_is_waited_for():
    assert told(one_gpu(busy(), job(id="a")))["a"] == (
        "waiting_capacity",
        "needs 1 GPU; the only suitable GPU is in use by running jobs; busy does not share n0/0 (shareable: false)",
    )
    assert reason(one_gpu(busy(shareable=True), job(id="a"))) == "not_chosen"


def test_closed_gpus_are_counted():
    state = snapshot([node(1, name="n0"), node(1, name="n1", schedulable=False)], [busy(), job(id="a")])
    assert "of 2 suitable GPUs 1 is in use by running jobs and 1 is closed" in detail(state)


def test_what_fits_and_was_not_chosen_says_what_it_would_cost():
    state = one_gpu(
        job(id="r", profile="x", running_on=[A], priority=10), job(id="a", profile="y", duration_s=None)
    )
    said = detail(state, predictor=table(("x", "y", 1.9), ("y", "x", 1.9)), weights={"makespan": 0})
    # its own loss 3600 x (1 - 1/1.9) = 1705, the other's ten times that, waiting 3600
    assert said == (
        "it would fit on n0/0; starting there would cost 18758 GPU-s (1705 its own loss, 17053 its neighbours'), "
        "waiting costs 3600"
    )


# ---- order ----


def test_the_first_reason_that_holds_is_given():
    """Each job below has this reason and a later one as well."""
    two = {"gpus": 2, "max_nodes": 1}
    for said, state, given in (
        ("held", one_gpu(job(id="a", state="held", depends_on=["x"])), {}),
        ("dependency", one_gpu(job(id="a", gpus=9, depends_on=["x"])), {}),
        ("never_fits", one_gpu(job(id="a", user="x", **two)), {"quotas": [Quota(user="x", gpus=0)]}),
        (
            "unknown_memory",
            one_gpu(busy(shareable=True), job(id="a", user="x", gpu_memory_mib=None)),
            {"quotas": [Quota(user="x", gpus=0)]},
        ),
        (
            "quota",
            snapshot([node(1, name="n0")], [job(id="a", user="x", licences={"l": 2})], licences={"l": 1}),
            {"quotas": [Quota(user="x", gpus=0)]},
        ),
        (
            "licence",
            snapshot(
                [node(1, name="n0")],
                [job(id="a", licences={"l": 2}, throttle=Throttle(group="g", max_running=0))],
                licences={"l": 1},
            ),
            {},
        ),
        ("throttle", one_gpu(busy(), job(id="a", throttle=Throttle(group="g", max_running=0))), {}),
        (
            "fragmented",
            snapshot(
                [node(2, name="n0"), node(1, name="n1")],
                [job(id="r", running_on=[A], gpu_utilisation_pct=100), job(id="a", gpu_utilisation_pct=100, **two)],
            ),
            {"max_slowdown": 1.1},
        ),
    ):  # fmt: skip
        assert (reason(state, **given), said) == (said, said)


def test_reasons_keep_their_order():
    assert REASONS == (
        "held", "dependency", "never_fits", "unsupported", "unknown_memory", "quota", "licence", "throttle",
        "reservation_window", "reserved", "fragmented", "interference", "waiting_capacity", "not_chosen",
    )  # fmt: skip


# ---- the referee agrees ----


@pytest.mark.parametrize("seed", range(12))
def test_where_a_job_is_said_to_fit_it_fits_at_the_stated_cost_and_nowhere_else_if_it_does_not(seed):
    p = random_problem(
        seed,
        24,
        10,
        nodes_of=3,
        residents=0.3,
        oddities=True,
        never=True,
        cpu_only=True,
        windows=seed % 2 == 0,
    )
    placed = filled(p)
    ledger, before = Ledger(Survey(p, placed)), objective(p, placed)
    for j in (j for j, spot in enumerate(placed) if spot is None and p.home[j] is None):
        spot = spot_for(ledger, j)
        if spot is not None:
            after = (*placed[:j], spot, *placed[j + 1 :])
            rules = {v.rule for v in violations(p, after)} - {v.rule for v in violations(p, placed)}
            assert rules <= {"window"}  # its links may make it later than the quick look assumes
            added = objective(p, after).total - before.total + int(p.wait_cost[j])
            assert ledger.joining(j, spot).total == added
        elif p.job_gpus[j] == 1:
            old = len(violations(p, placed))
            for g in range(p.gpus):
                assert len(violations(p, (*placed[:j], (g,), *placed[j + 1 :]))) > old
