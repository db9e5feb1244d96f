"""Why a job waits, what would start it, and why it runs where it does.

Reasons are asked of a placement that the test chooses, through the real formulation: per reason a case in which it is
given and one, differing in one fact, in which it is not. Fixes are asked of whole plans.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
from builders import gpu, job, node, policy, snapshot
from problems import random_problem

from planner import explain, predict
from planner.epoch import checked_plan
from planner.explain.choosing import spot_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.formulate import formulate
from planner.model import Throttle
from planner.plan import REASONS, Deferred
from planner.policy import InterferenceSpec, PredictorSpec, Quota, TableRow
from solvers import greedy
from solvers.check import objective, violations
from solvers.problem import Limits


def table(*pairs):
    rows = tuple(TableRow(gpu_model="a100-40gb", profile=a, beside=b, slowdown=s) for a, b, s in pairs)
    return PredictorSpec(interference=InterferenceSpec(kind="table", rows=rows))


def told(state, where=(), *, predictor=None, edited=None, **rules):
    """Reason and detail of every job that waits, excluded ones too, if jobs go ``where`` (id -> GPUs or a node)."""
    rules = policy(**{"max_reservations": 0, **rules})
    f = formulate(state, predict.forecast(state, rules, predictor or PredictorSpec()), rules)
    if edited is not None:
        f = replace(f, problem=replace(f.problem, **edited(f.problem)))
    index = {name: g for g, name in enumerate(f.gpu_ids)} | {name: v for v, name in enumerate(f.node_names)}
    named = {state.jobs[i].id: j for j, i in enumerate(f.jobs)}
    placed = list(f.problem.home)
    for job_id, places in dict(where).items():
        placed[named[job_id]] = tuple(sorted(index[p] for p in places))
    assert violations(f.problem, tuple(placed)) == ()
    out = {state.jobs[e.job].id: (e.reason, e.detail) for e in f.excluded}
    return out | {
        state.jobs[f.jobs[j]].id: (reason, detail) for j, reason, detail in explain.reasons(f, tuple(placed))
    }


def reason(state, where=(), who="a", **given):
    return told(state, where, **given)[who][0]


def detail(state, where=(), who="a", **given):
    return told(state, where, **given)[who][1]


A, B = "n0/0", "n0/1"


def one_gpu(*the_jobs, **fields):
    return snapshot([node(1, name="n0", **fields)], the_jobs)


def busy(**facts):
    """A running job that fills its GPU."""
    return job(**{"id": "busy", "running_on": [A], "shareable": False, **facts})


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
        assert "1 hold memory of processes that nobody manages" in detail(state)


# ---- budgets ----


@pytest.mark.parametrize(("gpus", "said"), [(1, "quota"), (2, "not_chosen")])
def test_a_quota_without_room_is_named_with_its_numbers(gpus, said):
    state = snapshot([node(2, name="n0")], [job(id=i, user="x") for i in "ab"])
    given = {"who": "b", "quotas": [Quota(user="x", gpus=gpus)]}
    assert reason(state, {"a": [A]}, **given) == said
    if said == "quota":
        assert "user x, 1 GPUs without what ran already, 0 are left; it needs 1" in detail(
            state, {"a": [A]}, **given
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


def before_a_gang(**facts):
    """GPU 0 runs for 1000 s more (p90 1250 s), a gang of two waits for both, and ``a`` could use GPU 1 until then."""
    running = busy(duration_s=1_000)
    return snapshot(
        [node(2, name="n0")], [running, job(id="gang", gpus=2), job(id="a", shareable=False, **facts)]
    )


@pytest.mark.parametrize(
    ("duration", "said"), [(1_000, "not_chosen"), (1_001, "reserved"), (None, "reservation_window")]
)
def test_a_job_that_would_end_too_late_for_a_reservation_is_kept_out(duration, said):
    assert reason(before_a_gang(duration_s=duration), max_reservations=1) == said
    assert reason(before_a_gang(duration_s=duration), max_reservations=0) == "not_chosen"


def test_the_reservations_holder_and_times_are_named():
    kept = told(before_a_gang(), max_reservations=1)
    assert kept["a"][1] == (
        "it would fit on n0/1, which is reserved for gang from 1250 s on; this job would end after 4500 s (p90)"
    )
    assert kept["gang"] == ("reserved", "n0/0, n0/1 are kept for it from 1250 s on")


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
            "GPUs are free (1), but it needs 2048 MiB of host memory; "
            "of the one node 1 is short of host memory (at most 1024 MiB free)"
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
        assert "does not beat 1.98 with one fewer" in detail(state, {"x": [A], "y": [A]}, **given)


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
        "needs 1 GPU; of 1 suitable GPUs 1 are in use and have no room for it",
    )
    assert reason(one_gpu(busy(shareable=True), job(id="a"))) == "not_chosen"


def test_closed_gpus_are_counted():
    state = snapshot([node(1, name="n0"), node(1, name="n1", schedulable=False)], [busy(), job(id="a")])
    assert detail(state).endswith("of 2 suitable GPUs 1 are in use and have no room for it, 1 are closed")


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


def filled(problem):
    """A placement made by starting jobs one after the other where ``spot_for`` would."""
    placed = list(problem.base)
    for j in range(problem.jobs):
        if placed[j] is None and j % 2:
            placed[j] = spot_for(Ledger(Survey(problem, tuple(placed))), j)
            if violations(problem, tuple(placed)):
                placed[j] = None  # a budget or a link; not what is looked at here
    return tuple(placed)


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


# ---- fixes ----


def planning(predictor=None):
    """Plan with the greedy alone; the same checks as in an epoch."""

    def plan(state, rules):
        f = formulate(state, predict.forecast(state, rules, predictor or PredictorSpec()), rules)
        return checked_plan(
            f, greedy.solve(f.problem, Limits(wall_s=9), None, lambda *_: None), "2026-01-01T00:00:00Z"
        )

    return plan


def fix_of(state, who="a", *, predictor=None, seconds=5.0, **rules):
    plan = planning(predictor)(state, policy(**{"max_reservations": 0, **rules}))
    assert who in {d.job_id for d in plan.deferred}
    found = explain.fixes(plan, planning(predictor), time.monotonic() + seconds).get(who)
    return None if found is None else found.change


def test_less_memory_is_the_most_that_still_fits():
    taken = (34_000, 30_000, 39_000)
    running = [
        job(id=f"r{i}", running_on=[f"n0/{i}"], gpu_memory_mib=m, gpu_utilisation_pct=10)
        for i, m in enumerate(taken)
    ]
    state = snapshot(
        [node(3, name="n0")], [*running, job(id="a", gpu_memory_mib=20_000, gpu_utilisation_pct=10)]
    )
    assert fix_of(state) == "gpu_memory_mib: 10460"  # 40,960 - 30,000 - 500


def test_no_change_is_claimed_for_a_job_that_starts_without_one():
    plan = planning()(one_gpu(job(id="a")), policy())
    late = plan.model_copy(
        update={"assignments": (), "deferred": (Deferred(job_id="a", reason="not_chosen", detail=""),)}
    )
    assert explain.fixes(late, planning(), time.monotonic() + 5) == {}


def test_another_gpu_model_is_named():
    nodes = [node(1, name="n0"), node(1, name="n1", model="v100-32gb", memory_mib=32_768)]
    state = snapshot(nodes, [busy(), job(id="a", gpu_models=["a100-40gb"], shareable=False)])
    assert fix_of(state) == "gpu_models: + v100-32gb"


def test_a_higher_cap_is_the_smallest_that_works():
    state = one_gpu(
        job(id="r", profile="x", running_on=[A]), job(id="a", profile="y", gpu_memory_mib=1, duration_s=None)
    )
    spec = table(("x", "y", 1.2), ("y", "x", 2.8))
    assert fix_of(state, predictor=spec) == "max_slowdown: 3 (policy)"


def test_a_known_duration_that_ends_before_a_reservation():
    state = before_a_gang(duration_s=None)
    assert fix_of(state, max_reservations=1, max_tenants=1) == "duration_s: 1000"


def test_a_quota_is_raised_by_what_the_job_needs():
    state = snapshot([node(2, name="n0")], [job(id="r", user="x", running_on=[A]), job(id="a", user="x")])
    assert fix_of(state, quotas=[Quota(user="x", gpus=1)], max_tenants=1) == "quota of user x: 2"


def test_nothing_is_claimed_where_nothing_works():
    assert fix_of(one_gpu(busy(), job(id="a"))) is None


def test_nothing_is_claimed_when_time_is_up():
    state = snapshot([node(2, name="n0")], [job(id="r", user="x", running_on=[A]), job(id="a", user="x")])
    assert fix_of(state, quotas=[Quota(user="x", gpus=1)], max_tenants=1, seconds=0) is None


def on_node(name, *sizes, movable=True):
    """Running gangs of these sizes, side by side from GPU 0 on."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        job(
            id=f"{name}{n}",
            gpus=n,
            running_on=[f"{name}/{g}" for g in range(at, at + n)],
            movable=movable,
            shareable=False,
        )
        for at, n in zip(starts, sizes, strict=True)
    ]


@pytest.mark.parametrize(("movable", "fix"), [(True, "max_moves: 2"), (False, None)])
def test_free_gpus_scattered_over_three_nodes_need_two_moves(movable, fix):  # field case 84
    running = [*on_node("A", 4, 2, 1, movable=movable), *on_node("B", 4, 2, movable=movable)]
    running += on_node("C", 4, 2, 1, movable=movable)
    new = job(id="new", gpus=4, shareable=False, gpus_per_node=4)
    state = snapshot([node(8, name=name) for name in "ABC"], [*running, new])
    plan = planning()(state, policy(max_reservations=0, max_moves=1))
    said = explain.explain_job(plan, "new", planning(), 20)
    assert (said.reason, said.detail) == ("fragmented", "needs 4 GPUs, 4 on each node; 4 are free, as 2+1+1")
    if movable:
        assert said.fix is not None
        assert "needs 2 moves" in said.fix.detail
    else:
        assert said.fix is None or "move" not in said.fix.detail


# ---- a placed job ----


def explained(state, who="a", predictor=None, **rules):
    plan = planning(predictor)(state, policy(**{"max_reservations": 0, **rules}))
    return explain.explain_job(plan, who)


def test_a_placed_job_names_its_neighbours_and_what_each_term_costs_it():
    spec = table(("x", "y", 1.25), ("y", "x", 1.6))
    said = explained(
        one_gpu(job(id="r", profile="x", running_on=[A]), job(id="a", profile="y", duration_s=None)),
        predictor=spec,
        weights={"makespan": 0},
    )
    assert (said.decision, said.gpu_ids, said.slowdown) == ("start", (A,), 1.6)
    assert [(n.job_id, n.gpu_ids, n.profile, n.slowdown) for n in said.neighbours] == [("r", (A,), "x", 1.25)]
    # 3600 x (1 - 1/1.6)
    assert said.costs == explain.job.Share(interference=1350, speed=0, locality=0, waiting_avoided=3600)
    assert said.memory == (
        "8000 MiB a GPU (declared); 500 MiB are kept free beside others (nothing holds tenants to theirs)"
    )


def test_what_a_slower_gpu_and_slower_links_cost_is_told_apart():
    spec = PredictorSpec(speed={"*": {"v100-32gb": 0.5}})
    nodes = [node(2, name="n0", model="v100-32gb", memory_mib=32_768), node(1, name="n1")]
    said = explained(snapshot(nodes, [job(id="a", gpus=2)]), predictor=spec)
    # 2 x 3600 x 0.5, and 2 x 3600 x 0.5 x (1 - 1/1.05)
    assert said.costs is not None
    assert (said.costs.speed, said.costs.locality) == (3600, pytest.approx(171.429))


@pytest.mark.parametrize(("memory", "spread"), [(None, False), (100, True)])
def test_a_constraint_that_forces_spreading_is_named(memory, spread):  # field case 90
    nodes = [node(4, name="n0", host_memory_mib=memory), node(4, name="n1")]
    running = job(id="r", running_on=[A], shareable=False, host_memory_mib=80)
    said = explained(snapshot(nodes, [running, job(id="a", shareable=False, host_memory_mib=80)]))
    assert said.nodes == (("n1",) if spread else ("n0",))
    assert (said.spread is not None) == spread
    if said.spread:
        assert "need 160 MiB of host memory on n0, it has 100 (rule: hosts)" in said.spread


def test_a_job_that_fills_a_node_in_use_was_not_spread():
    nodes = [node(4, name="n0", host_memory_mib=100), node(4, name="n1"), node(4, name="n2")]
    running = [job(id=f"r{v}", running_on=[f"n{v}/0"], shareable=False, host_memory_mib=80) for v in range(2)]
    said = explained(snapshot(nodes, [*running, job(id="a", shareable=False, host_memory_mib=80)]))
    assert (said.nodes, said.spread) == (("n1",), None)


def test_an_unknown_job_is_a_key_error():
    with pytest.raises(KeyError):
        explained(one_gpu(job(id="a")), who="b")


def test_sentences_are_plain():
    lines = explained(one_gpu(job(id="a"))).lines
    assert lines[0] == "a starts on n0/0"
    assert all("\n" not in line for line in lines)


def test_nothing_is_known_of_a_gpu_without_memory_but_the_job_runs():
    state = snapshot([node([gpu(memory_mib=None)], name="n0")], [job(id="a", gpu_memory_mib=None)])
    assert explained(state).memory == "its GPU memory is not known, so it has its GPUs for itself"
