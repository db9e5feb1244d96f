"""Why a job waits where the unknown, somebody's wish, the hosts or this plan's own starts are in its way."""

import pytest
from builders import gpu, job, node, snapshot, table
from problems import random_problem
from telling import A, B, busy, detail, filled, one_gpu, reason, told

from planner.explain.displaced import Base
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.policy import Quota
from solvers.check import violations

# ---- unknown ----


@pytest.mark.parametrize(
    ("fact", "rules", "said"),
    [
        ({"gpu_memory_mib": None}, {}, "unknown_memory"),
        ({"gpu_utilisation_pct": None}, {}, "unknown_memory"),
        ({"gpu_memory_mib": None}, {"max_tenants": 1}, "waiting_capacity"),  # nobody shares
        ({"shareable": False}, {}, "waiting_capacity"),  # it is alone by its own wish
        ({}, {}, "not_chosen"),
    ],
)
def test_a_job_that_could_share_if_it_were_known_says_so(fact, rules, said):
    state = one_gpu(busy(shareable=True), job(id="a", **fact))
    assert reason(state, **rules) == said


def test_a_job_of_unknown_memory_is_not_kept_off_whole_free_gpus():
    state = snapshot([node(2, name="n0")], [busy(shareable=True), job(id="a", gpu_memory_mib=None)])
    assert reason(state) == "not_chosen"


@pytest.mark.parametrize(("used", "said"), [(0, "not_chosen"), (1, "waiting_capacity")])
def test_a_job_of_unknown_memory_is_not_put_where_strangers_hold_some(used, said):
    state = snapshot(
        [node([gpu(unmanaged_memory_mib=used)], name="n0")],
        [job(id="a", gpu_memory_mib=None, shareable=False)],
    )
    assert reason(state) == said
    if used:
        assert "the only suitable GPU is in use by processes that nobody manages" in detail(state)


UNSAID = {"gpu_utilisation_pct": None}
ALONE = "no GPU is free for it alone, and "


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ({}, UNSAID, ("unknown_memory", "it may not share n0/0 with r: the GPU utilisation of r is not known")),
        (UNSAID, {}, ("unknown_memory", ALONE + "it may not share n0/0 with r: the GPU utilisation of a is not known")),
        (UNSAID, UNSAID, ("unknown_memory", ALONE + "it may not share n0/0 with r: the GPU utilisation of a and r is not known")),
        ({"gpu_memory_mib": None}, UNSAID, ("unknown_memory", ALONE + "it may not share n0/0 with r: the GPU memory of a and the GPU utilisation of r are not known")),
        ({}, {"shareable": False}, ("waiting_capacity", "needs 1 GPU; the only suitable GPU is in use by running jobs; r does not share n0/0 (shareable: false)")),
        ({}, {"exclusive": True}, ("waiting_capacity", "needs 1 GPU; the only suitable GPU is in use by running jobs; r does not share n0/0 (exclusive: true)")),
        ({"shareable": False}, UNSAID, ("waiting_capacity", "needs 1 GPU; the only suitable GPU is in use by running jobs; it does not share (shareable: false)")),
        # what is known of memory rules sharing out, whatever the rest is
        ({"gpu_memory_mib": 40_000}, UNSAID, ("waiting_capacity", "needs 1 GPU; the only suitable GPU is in use by running jobs")),
        ({"gpu_memory_mib": 40_000}, {}, ("waiting_capacity", "needs 1 GPU; the only suitable GPU is in use by running jobs; it needs 40000 MiB of GPU memory, the most left on one of them is 32460 MiB")),
    ],
)  # fmt: skip
def test_who_keeps_whom_from_sharing_and_why(mine, theirs, said):
    assert told(one_gpu(job(id="r", running_on=[A], **theirs), job(id="a", **mine)))["a"] == said


def test_alike_jobs_of_unknown_utilisation_name_each_other_in_an_empty_cluster():
    state = one_gpu(job(id="a", **UNSAID), job(id="b", **UNSAID))
    assert told(state, {"a": [A]})["b"] == (
        "unknown_memory",
        "no GPU is free for it alone, and it may not share n0/0 with a: the GPU utilisation of b and a is not known",
    )
    assert reason(state, {"a": [A]}, who="b", max_tenants=1) == "not_chosen"


def test_a_profile_that_the_table_lacks_is_named():
    state = one_gpu(job(id="r", running_on=[A]), job(id="a", profile="z", gpu_utilisation_pct=None))
    said = detail(state, predictor=table(("x", "y", 1.2)))
    assert said.endswith("the GPU utilisation of a is not known (the interference table has no profile z)")


def test_an_unknown_neighbour_is_no_excuse_where_the_pair_must_never_share():
    state = one_gpu(job(id="r", running_on=[A], **UNSAID), job(id="a", never_with=["r"]))
    assert reason(state) == "waiting_capacity"


# ---- hosts ----


@pytest.mark.parametrize(
    ("elsewhere", "need", "said"),
    [
        ("full", 15, "waiting_capacity"),  # memory is free where no GPU is
        ("open", 15, "fragmented"),  # 10 and 6 are, with a GPU each
        ("open", 17, "waiting_capacity"),
        ("open", 10, "not_chosen"),
    ],
)
def test_fragments_are_counted_on_the_nodes_that_have_gpus_for_the_job(elsewhere, need, said):
    taken = 2 if elsewhere == "full" else 1
    running = job(id="r", gpus=taken, running_on=[f"n1/{i}" for i in range(taken)], shareable=False)
    nodes = [
        node(1, name="n0", host_memory_mib=10),
        node(2, name="n1", host_memory_mib=6 if taken == 1 else 99),
    ]
    state = snapshot(nodes, [running, job(id="a", host_memory_mib=need, shareable=False)])
    # 99 MiB would be enough on n1, were a GPU free there; without that it never fits
    if elsewhere == "open":
        big = node(1, name="n2", host_memory_mib=99)
        held = job(id="s", running_on=["n2/0"], shareable=False, host_memory_mib=80)
        state = snapshot([*nodes, big], [running, held, job(id="a", host_memory_mib=need, shareable=False)])
    assert reason(state) == said


def test_the_sentence_names_what_the_hosts_are_short_of():
    nodes = [node(1, name=f"n{v}", host_memory_mib=10, cpus=8) for v in range(2)]
    running = [
        job(id="r", gpus=0, cpus=1, host_memory_mib=4, running_on=["n0"]),
        job(id="s", gpus=0, cpus=4, host_memory_mib=8, running_on=["n1"]),
    ]
    asked = {"cpus": 5, "host_memory_mib": 7, "shareable": False}
    assert told(snapshot(nodes, [*running, job(id="a", **asked)]))["a"] == (
        "fragmented",
        "2 GPUs would do, but it needs 5 CPUs and 7 MiB of host memory; of these nodes the best has 6 of the 8 MiB of free host memory",
    )
    asked["host_memory_mib"] = 9
    assert told(snapshot(nodes, [*running, job(id="a", **asked)]))["a"] == (
        "waiting_capacity",
        "2 GPUs would do, but it needs 5 CPUs and 9 MiB of host memory and the 2 nodes with those GPUs together have 8 MiB of host memory left",
    )


# ---- this plan's own starts ----


def rivals(**running):
    """p2 takes a GPU of two that p1 would need both of; running, if any, holds one already."""
    the_jobs = [job(id="r", running_on=[A], shareable=False)] if running else []
    return snapshot(
        [node(2, name="n0")],
        [*the_jobs, job(id="p1", gpus=2, shareable=False), job(id="p2", priority=3, shareable=False)],
    )


def test_what_this_plan_gives_to_others_is_told_from_what_runs():
    given = {"who": "p1", "weights": {"makespan": 0, "locality": 0}}
    assert told(rivals(), {"p2": [B]}, weights=given["weights"])["p1"] == (
        "not_chosen",
        "needs 2 GPUs of one model on one node; beside the running jobs alone it would fit on n0/0, n0/1, but this plan "
        "starts p2 there, which gains 10800 GPU-s by that; this job would gain 7200 GPU-s",
    )
    assert told(rivals(r=1), {"p2": [B]}, weights=given["weights"])["p1"] == (
        "waiting_capacity",
        "needs 2 GPUs of one model on one node; of 2 suitable GPUs 1 is in use by running jobs and 1 is given to "
        "another job in this plan; it does not share (shareable: false)",
    )


def test_of_those_in_its_way_the_cheapest_to_displace_are_named():
    starts = [job(id=f"s{p}", priority=p, shareable=False) for p in (4, 2, 3)]
    state = snapshot([node(3, name="n0")], [*starts, job(id="a", shareable=False)])
    said = detail(state, {"s4": ["n0/0"], "s2": ["n0/1"], "s3": ["n0/2"]}, weights={"makespan": 0})
    assert said.endswith(
        "fit on n0/1, but this plan starts s2 there, which gains 7200 GPU-s by that; this job would gain 3600 GPU-s"
    )


def test_a_start_elsewhere_on_the_node_that_holds_the_host_memory_is_named():
    state = snapshot(
        [node(2, name="n0", host_memory_mib=10)],
        [
            job(id="s", host_memory_mib=8, priority=2, shareable=False),
            job(id="a", host_memory_mib=8, shareable=False),
        ],
    )
    assert told(state, {"s": [A]}, weights={"makespan": 0})["a"] == (
        "not_chosen",
        "1 GPU would do, but it needs 8 MiB of host memory and that node has 2 MiB of host memory left; beside the running jobs "
        "alone it would fit on n0/1, but this plan starts s there, which gains 7200 GPU-s by that; this job would gain 3600 GPU-s",
    )


def test_a_job_without_gpus_is_told_who_has_its_cores():
    state = snapshot([node(0, name="n0", cpus=4)], [job(id=i, gpus=0, cpus=3) for i in "sa"])
    assert told(state, {"s": ["n0"]}, weights={"makespan": 0})["a"] == (
        "not_chosen",
        "it needs 3 CPUs; beside the running jobs alone it would fit on n0, but this plan starts s there, "
        "which gains 360 GPU-s by that; this job would gain 360 GPU-s",
    )


# ---- limits ----


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (4, "never under the quota of user x (needs 4, quota 3)"),
        (
            2,
            "the quota of user x is 3 GPUs: running jobs hold 1, this plan gives 1 to others, 1 is left; it needs 2",
        ),
    ],
)
def test_a_quota_says_who_has_it_and_never_where_never(need, said):
    the_jobs = [
        job(id="r", user="x", running_on=[A]),
        job(id="s", user="x"),
        job(id="a", gpus=need, user="x"),
    ]
    state = snapshot([node(8, name="n0")], the_jobs)
    assert told(state, {"s": [B]}, quotas=[Quota(user="x", gpus=3)])["a"] == ("quota", said)


@pytest.mark.parametrize("seed", range(12))
def test_without_the_starts_named_the_job_fits_at_the_place_named(seed):
    p = random_problem(seed, 30, 10, nodes_of=3, residents=0.2, oddities=True, never=True, cpu_only=True)
    placed = filled(p)
    survey = Survey(p, placed)
    base = Base(survey, Ledger(survey), survey.kept, survey.wishes)
    old, found = {(v.rule, v.job, v.gpu, v.node) for v in violations(p, placed)}, 0
    for j in (j for j, spot in enumerate(placed) if spot is None and p.home[j] is None):
        if base.fits(j):
            taken = base.displaced(j)
            assert taken is not None
            found += 1
            after = [None if i in taken.jobs else spot for i, spot in enumerate(placed)]
            after[j] = taken.spot
            new = {(v.rule, v.job, v.gpu, v.node) for v in violations(p, tuple(after))} - old
            assert {rule for rule, *_ in new} <= {"budget"}
        elif p.job_gpus[j] == 1:
            alone = len(violations(p, p.base))
            for g in range(p.gpus):
                assert len(violations(p, (*p.base[:j], (g,), *p.base[j + 1 :]))) > alone
    assert found


def test_a_gpu_whose_memory_strangers_use_is_not_one_that_never_fits():
    """The card is large enough; what nobody manages may be gone another day."""
    state = snapshot(
        [node([gpu(unmanaged_memory_mib=3000)], name="n0")], [job(id="a", gpu_memory_mib=40_000)]
    )
    assert (reason(state), detail(state)) == (
        "waiting_capacity",
        "needs 1 GPU; the only suitable GPU is in use by processes that nobody manages",
    )


def test_a_host_that_its_own_jobs_overcommit_is_in_use_and_no_made_up_number_is_shown():
    running = job(id="r", cpus=22, running_on="n0/0")
    state = snapshot([node(3, name="n0", cpus=8)], [running, job(id="a")])
    assert (reason(state), detail(state)) == (
        "waiting_capacity",
        "3 GPUs would do, but what runs on that node already has more cores or memory than there are, so nothing is added",
    )
