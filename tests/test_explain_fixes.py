"""What would start a waiting job: the least change, planned before it is claimed. Asked of whole plans."""

import time

import pytest
from builders import job, node, policy, snapshot, table
from telling import A, before_a_gang, busy, fix_of, one_gpu, planning, whole_fix

from planner import explain
from planner.epoch import plan_epoch, replan_with
from planner.model import Throttle
from planner.plan import AttemptRecord, Deferred, Fix
from planner.policy import PredictorSpec, Quota


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
    assert fix_of(state, predictor=spec) == "max_slowdown: 2.8 (policy)"


def test_a_known_duration_that_ends_before_a_reservation():
    state = before_a_gang(duration_s=None)
    assert fix_of(state, max_reservations=1, max_tenants=1) == "duration_s: 1000"


@pytest.mark.parametrize("quota", [2, 3])
def test_a_quota_is_the_least_that_starts_the_job_though_others_then_wait(quota):
    state = snapshot(
        [node(8, name="n0")],
        [job(id=i, gpus=n, user="x", shareable=False) for i, n in (("a", 4), ("one", 1))],
    )
    found = whole_fix(state, quotas=[Quota(user="x", gpus=quota)])
    assert (found.change, found.detail) == (
        "quota of user x: 4",
        "with a quota of 4 GPUs, though others may then wait",
    )


def test_licences_and_throttles_are_raised_by_the_least_too():
    licensed = [job(id=i, licences={"l": n}, shareable=False) for i, n in (("a", 3), ("one", 1))]
    assert fix_of(snapshot([node(2, name="n0")], licensed, licences={"l": 2})) == "licences l: 3"
    group = Throttle(group="g", max_running=0)
    throttled = [job(id=i, throttle=group, shareable=False) for i in "ab"]
    assert fix_of(snapshot([node(2, name="n0")], throttled)) == "throttle of g: 1"


@pytest.mark.parametrize(("priority", "least"), [(3, 5), (7, 10)])
def test_a_priority_is_the_least_of_a_few_that_starts_the_job(priority, least):
    state = one_gpu(job(id="a", shareable=False), job(id="b", priority=priority, shareable=False))
    found = whole_fix(state)
    assert (found.change, found.detail) == (
        f"priority: {least}",
        f"with priority {least}, though others may then wait",
    )


# ---- what a change costs, and who then waits ----


def test_what_a_change_costs_is_said_only_where_all_was_planned_again():
    state = one_gpu(job(id="a", shareable=False), job(id="b", priority=3, shareable=False))
    plan = planning()(state, policy(max_reservations=0, weights={"makespan": 0}))
    assert whole_fix(state, weights={"makespan": 0}).extra_cost_gpu_s is None
    said = explain.explain_job(plan, "a", planning()).fix
    assert (said.change, said.detail) == ("priority: 5", "with priority 5, but b would then wait")
    # By the priorities as they were: b's waiting, 3 x 3600, instead of a's, 3600.
    assert said.extra_cost_gpu_s == 7200


def test_what_a_move_gains_is_planned_with_the_move_allowed():
    running = job(id="r", running_on=[A], shareable=False, movable=True, checkpoint_s=30, restart_s=10)
    new = job(id="a", gpus=2, gpus_per_node=2, priority=2, shareable=False)
    state = snapshot([node(2, name="n0"), node(1, name="n1")], [running, new])
    weights = {"makespan": 0, "fragmentation": 0, "locality": 0}
    rules = policy(max_reservations=0, max_moves=0, solver="cp-sat", weights=weights)
    plan = plan_epoch(state, rules, PredictorSpec(), fixes=False)
    said = explain.explain_job(plan, "a", replan_with(PredictorSpec())).fix
    # The move's 40 instead of a's waiting, 2 x 2 x 3600.
    assert said == Fix(change="max_moves: 1", detail="needs 1 move: r elsewhere", extra_cost_gpu_s=-14360)


def explained_by(replan):
    """The fix of a job that a quota of its user keeps waiting, if all planned again is planned by ``replan``."""
    state = snapshot([node(2, name="n0")], [job(id="r", user="x", running_on=[A]), job(id="a", user="x")])
    rules = policy(max_reservations=0, max_tenants=1, quotas=[Quota(user="x", gpus=1)], time_limit_s=2)
    plan = planning()(state, rules)
    return explain.explain_job(plan, "a", replan(plan)).fix


@pytest.mark.parametrize(("limit_s", "again_s"), [(2, 2), (60, 5)])
def test_all_is_planned_again_by_the_plans_solver_for_at_most_five_seconds(limit_s, again_s):
    state = one_gpu(job(id="a", shareable=False), job(id="b", priority=3, shareable=False))
    rules = policy(max_reservations=0, time_limit_s=limit_s, solver="search", max_moves=3)
    asked = []

    def replan(state, rules):
        asked.append(rules)
        return planning()(state, rules)

    explain.explain_job(planning()(state, rules), "a", replan)
    assert asked[-1] == rules.model_copy(update={"time_limit_s": again_s})


def test_a_job_that_all_planned_again_lets_wait_is_not_said_to_cost_anything():
    def stubborn(plan):
        return lambda state, rules: plan if rules.time_limit_s else planning()(state, rules)

    found = explained_by(stubborn)
    assert (found.change, found.extra_cost_gpu_s) == ("quota of user x: 2", None)
    assert found.detail == (
        "with a quota of 2 GPUs, if the plan's jobs stay where it puts them; with all planned again, it still waits"
    )
    assert explained_by(lambda _: planning()).detail == "with a quota of 2 GPUs"


# ---- of how many jobs, and in what time ----


def many_waiting(n):
    """One GPU is busy; each of n jobs could share it if it might, and the later ones wait at a higher cost."""
    running = job(id="r", running_on=[A], gpu_memory_mib=1, gpu_utilisation_pct=1)
    return one_gpu(
        running,
        *(
            job(id=f"w{i}", gpu_memory_mib=1, gpu_utilisation_pct=1, priority=1 + i / 8, shareable=False)
            for i in range(n)
        ),
    )


def test_fixes_are_found_for_the_twenty_costliest_deferred_jobs():
    plan = planning()(many_waiting(25), policy(max_reservations=0))
    assert len(plan.deferred) == 25
    found = explain.fixes(plan, planning(), time.monotonic() + 60)
    assert set(found) == {f"w{i}" for i in range(5, 25)}


@pytest.mark.parametrize("seconds", [-1, 19])
def test_no_fix_is_looked_for_where_the_deadline_leaves_no_time_to_plan_twice(seconds):
    plan = planning()(many_waiting(2), policy(max_reservations=0))
    took = AttemptRecord(solver="greedy", status="feasible", objective_gpu_s=1, wall_s=10)
    plan = plan.model_copy(update={"solve": plan.solve.model_copy(update={"attempts": (took,)})})

    def never(*_):
        raise AssertionError("planned again")

    assert explain.fixes(plan, never, time.monotonic() + seconds) == {}


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ({"time_limit_s": 10}, True),
        ({"time_limit_s": 0}, False),
        ({"time_limit_s": 10, "deterministic": True}, False),
    ],
)
def test_an_epoch_looks_for_fixes_for_a_tenth_of_its_time_if_the_clock_may_decide(rules, found, monkeypatch):
    left = []

    def told(plan, replan, deadline):
        left.append(deadline - time.monotonic())
        return {"w0": Fix(change="x", detail="y")}

    monkeypatch.setattr(explain, "fixes", told)
    plan = plan_epoch(many_waiting(1), policy(max_reservations=0, solver="greedy", **rules), PredictorSpec())
    assert [d.fix is not None for d in plan.deferred] == [found]
    assert [0 < s <= 1 for s in left] == [True] * found


UNSAID = {"gpu_utilisation_pct": None}


@pytest.mark.parametrize(
    ("a", "r", "change", "detail"),
    [
        (UNSAID, UNSAID, "gpu_utilisation_pct of a and r: 100", "if the GPU utilisation of a and r were declared as at most 100 %"),
        (UNSAID, {"gpu_utilisation_pct": 40}, "gpu_utilisation_pct: 100", "if its GPU utilisation were declared as at most 100 %"),
        ({"gpu_utilisation_pct": 95}, UNSAID, "gpu_utilisation_pct of r: 100", "if the GPU utilisation of r were declared as at most 100 %"),
        (
            {"gpu_memory_mib": None, **UNSAID},
            {"gpu_memory_mib": None, **UNSAID},
            "gpu_memory_mib of a and r: 20230; gpu_utilisation_pct of a and r: 100",
            "if the GPU memory of a and r were declared as at most 20230 MiB and the GPU utilisation of a and r were "
            "declared as at most 100 %",
        ),
    ],
)  # fmt: skip
def test_what_is_not_known_of_the_job_or_of_those_in_its_way_is_declared(a, r, change, detail):
    found = whole_fix(one_gpu(job(id="r", running_on=[A], **r), job(id="a", **a)))
    assert (found.change, found.detail) == (change, detail)


def test_a_gang_is_spread_over_the_fewest_nodes_that_do():
    nodes = [node(2, name=f"n{v}") for v in range(4)] + [node(6, name="full")]
    busy6 = job(id="r", gpus=6, running_on=[f"full/{i}" for i in range(6)], shareable=False)
    state = snapshot(nodes, [busy6, job(id="a", gpus=6, shareable=False)])
    assert fix_of(state) == "max_nodes: 3"


@pytest.mark.parametrize(("key", "left"), [("cpus", 5), ("host_memory_mib", 1_024)])
def test_host_resources_are_lowered_to_what_is_left(key, left):
    shape = {key: 8 * left}
    running = job(id="r", running_on=[A], shareable=False, **{key: 7 * left})
    state = snapshot(
        [node(2, name="n0", **shape)], [running, job(id="a", shareable=False, **{key: 2 * left})]
    )
    assert fix_of(state) == f"{key}: {left}"


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
