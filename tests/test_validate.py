"""Per rule a plan that is allowed and one, differing in one fact, that is refused by that rule.

Here the rules for a job by itself, for nodes, and for a plan as a whole; those for who shares a GPU have a file of their own.
"""

import pytest
from builders import gpu, job, jobs, node, policy, snapshot, table
from judged import A, B, both, findings, on_two, plan_of, seen

from planner import validate
from planner.model import Carryover, Throttle, Until
from planner.plan import Deferred, Objective, Reservation, Terms
from planner.policy import PredictorSpec, Quota

# ---- form ----


def test_a_job_is_decided_exactly_once():
    state = on_two(job(id="a"), job(id="b"))
    assert seen(state, {"a": [A]}) == set()
    assert seen(state, {"a": [A]}, deferred=[]) == {"decided once"}
    assert seen(state, {"a": [A], "b": [B]}, preempted=("a",)) == {"decided once"}
    assert seen(state, {"a": [A], "stranger": [B]}) == {"decided once"}


def test_places_exist_and_nodes_are_those_of_the_gpus():
    state = on_two(job(id="a"))
    assert seen(state, {"a": ["n0/7"]}) == {"places exist"}
    assert seen(state, {"a": [A]}, said={"a": {"nodes": ("n1",)}}) == {"places exist"}


def test_a_finding_names_job_place_and_numbers():
    (finding,) = findings(on_two(job(id="big", gpu_memory_mib=50_000)), {"big": [A]})
    assert (finding.rule, finding.place) == ("memory", A)
    assert str(finding) == "big need 50000 MiB together, n0/0 can give 40960 MiB"


# ---- what a job asked for ----


def test_a_gang_gets_all_its_gpus_each_once_or_none():
    state = on_two(job(id="a", gpus=2))
    assert seen(state, {"a": [A, B]}) == set()
    assert seen(state, {"a": [A]}) == {"gang"}
    assert "gang" in seen(state, {"a": [A, A]})


def test_a_job_without_gpus_gets_one_node():
    state = snapshot([node(1, name="n0"), node(1, name="n1")], [job(id="a", gpus=0)])
    assert seen(state, {"a": ["n0"]}) == set()
    assert "gang" in seen(state, {"a": ["n0", "n1"]})


def test_a_gang_is_on_one_model():
    def mixed(model):
        return snapshot([node([gpu(), gpu(model=model)], name="n0")], [job(id="a", gpus=2)])

    assert seen(mixed("a100-40gb"), {"a": [A, B]}) == set()
    assert seen(mixed("v100-32gb"), {"a": [A, B]}) == {"one model"}


@pytest.mark.parametrize(
    ("models", "broken"), [(["a100-40gb"], set()), (["v100-32gb"], {"models"}), ([], set())]
)
def test_a_job_runs_on_models_it_allows(models, broken):
    assert seen(on_two(job(id="a", gpu_models=models)), {"a": [A]}) == broken


@pytest.mark.parametrize(("models", "broken"), [(["1g.5gb"], set()), ([], {"models"})])
def test_a_mig_instance_takes_only_jobs_that_name_it(models, broken):
    mig = gpu(node="n0", slot="0:1g.5gb:0", model="1g.5gb", memory_mib=4864)
    state = snapshot([node([mig], name="n0")], [job(id="a", gpu_memory_mib=4000, gpu_models=models)])
    assert seen(state, {"a": [mig.id]}) == broken


def two_nodes(gang, size=2):
    return snapshot([node(size, name="n0"), node(size, name="n1")], [gang])


def test_by_default_a_gang_is_on_as_few_nodes_as_the_largest_allows():
    spread = {"a": ["n0/0", "n1/0"]}
    assert seen(two_nodes(job(id="a", gpus=2), size=1), spread) == set()
    assert seen(two_nodes(job(id="a", gpus=2), size=2), spread) == {"nodes"}
    assert seen(two_nodes(job(id="a", gpus=2, max_nodes=2), size=2), spread) == set()


def test_the_largest_node_is_counted_in_gpus_that_the_gang_could_take():
    big = node([gpu(memory_mib=16_384)] * 2, name="n2")
    spread = {"a": ["n0/0", "n1/0"]}
    for need, broken in ((8_000, {"nodes"}), (20_000, set())):
        nodes = [node(1, name="n0"), node(1, name="n1"), big]
        assert seen(snapshot(nodes, [job(id="a", gpus=2, gpu_memory_mib=need)]), spread) == broken


def test_gpus_per_node_is_kept_on_each_node():
    gang = job(id="a", gpus=4, gpus_per_node=2)
    assert seen(two_nodes(gang, 3), {"a": ["n0/0", "n0/1", "n1/0", "n1/1"]}) == set()
    assert seen(two_nodes(gang, 3), {"a": ["n0/0", "n0/1", "n0/2", "n1/1"]}) == {"per node"}


@pytest.mark.parametrize(("rack", "broken"), [("r1", set()), ("r2", {"labels"})])
def test_nodes_have_the_labels_a_job_asks_for(rack, broken):
    state = on_two(job(id="a", node_labels={"rack": "r1"}), labels={"rack": rack})
    assert seen(state, {"a": [A]}) == broken


# ---- whether it may start or move ----


@pytest.mark.parametrize(
    ("nodes", "carryover", "broken"),
    [
        ({}, {}, set()),
        ({"schedulable": False}, {}, {"open places"}),
        ({"gpus": [gpu(healthy=False)]}, {}, {"open places"}),
        ({"gpus": [gpu(unmanaged_memory_mib=None)]}, {}, {"open places"}),
        ({}, {"quarantines": [Until(name="n0", until_s=10)]}, {"open places"}),
        ({}, {"quarantines": [Until(name="n0", until_s=-1)]}, set()),
    ],
)
def test_newcomers_go_only_where_new_jobs_are_taken(nodes, carryover, broken):
    nodes = [node(**{"gpus": 1, "name": "n0", **nodes})]
    state = snapshot(nodes, [job(id="a")], carryover=Carryover(**carryover))
    assert seen(state, {"a": [A]}) == broken


def test_a_job_that_runs_on_a_closed_node_stays():
    assert seen(on_two(job(id="a", running_on=[A]), schedulable=False), {"a": [A]}) == set()


@pytest.mark.parametrize("fact", [{"state": "held"}, {"depends_on": ["b"]}])
def test_held_jobs_and_jobs_that_wait_for_others_do_not_start(fact):
    assert seen(on_two(job(id="a"), job(id="b")), {"a": [A]}) == set()
    assert seen(on_two(job(id="a", **fact), job(id="b")), {"a": [A]}) == {"ready"}


def moving(**facts):
    return on_two(job(id="a", running_on=[A], **facts))


def test_a_running_job_moves_only_if_movable_and_within_max_moves():
    assert seen(moving(movable=True), {"a": [B]}, rules=policy(max_moves=1)) == set()
    assert seen(moving(movable=False), {"a": [B]}, rules=policy(max_moves=1)) == {"running"}
    assert seen(moving(movable=True), {"a": [B]}, rules=policy(max_moves=0)) == {"running"}


def test_a_running_job_is_stopped_only_if_preemptible():
    stop = {"preempted": ("a",), "rules": policy(max_moves=1)}
    assert seen(moving(preemptible=True), {}, **stop) == set()
    assert seen(moving(movable=True), {}, **stop) == {"running"}
    assert seen(moving(preemptible=True), {}) == {"running"}  # runs, and is said to wait


@pytest.mark.parametrize(("until_s", "broken"), [(-1, set()), (60, {"running"})])
def test_a_job_is_not_moved_in_its_cooldown(until_s, broken):
    state = snapshot(
        [node(2, name="n0")],
        [job(id="a", running_on=[A], movable=True)],
        carryover=Carryover(cooldowns=[Until(name="a", until_s=until_s)]),
    )
    assert seen(state, {"a": [B]}, rules=policy(max_moves=1)) == broken


def test_start_stay_and_move_are_said_as_they_are():
    state, rules = moving(movable=True), policy(max_moves=1)
    assert seen(state, {"a": [B]}, rules=rules, said={"a": {"state": "start"}}) == {"states"}
    assert seen(state, {"a": [B]}, rules=rules, said={"a": {"moved_from": (B,)}}) == {"states"}


# ---- hosts ----


@pytest.mark.parametrize(("cpus", "broken"), [(4.0, set()), (3.999, {"hosts"})])
def test_cores_are_counted_in_thousandths(cpus, broken):
    assert both(job(cpus=2), job(cpus=2), at=(A, B), cpus=cpus) == broken


def test_a_gangs_host_demand_is_split_by_gpus_and_rounded_up():
    gang = job(id="a", gpus=3, max_nodes=2, host_memory_mib=100)
    for here, broken in (67, set()), (66, {"hosts"}):  # 2 of 3 GPUs: 66.7
        nodes = [node(2, name="n0", host_memory_mib=here), node(1, name="n1", host_memory_mib=34)]
        assert seen(snapshot(nodes, [gang]), {"a": ["n0/0", "n0/1", "n1/0"]}) == broken


def test_a_job_without_gpus_counts_whole_on_its_node():
    for memory, broken in (10, set()), (11, {"hosts"}):
        state = snapshot(
            [node(1, name="n0", host_memory_mib=10)], [job(id="a", gpus=0, host_memory_mib=memory)]
        )
        assert seen(state, {"a": ["n0"]}) == broken


@pytest.mark.parametrize(("exclusive", "broken"), [(False, set()), (True, {"exclusive"})])
def test_an_exclusive_job_has_its_node_to_itself(exclusive, broken):
    assert both(job(exclusive=exclusive), job(), at=(A, B)) == broken


# ---- budgets ----


@pytest.mark.parametrize(("gpus", "broken"), [(2, set()), (1.5, {"quotas"})])
def test_a_quota_holds_what_runs_and_what_starts(gpus, broken):
    rules = policy(quotas=[Quota(user="x", gpus=gpus)])
    state = on_two(job(id="a", user="x", running_on=[A]), job(id="b", user="x"), job(id="c", user="y"))
    assert seen(state, {"a": [A], "c": [B]}, rules=policy(quotas=[Quota(user="x", gpus=0)])) == set()
    assert seen(state, {"a": [A], "b": [B]}, rules=rules) == broken


@pytest.mark.parametrize(
    ("have", "broken"), [({"matlab": 2}, set()), ({"matlab": 1}, {"licences"}), ({}, {"licences"})]
)
def test_licences_are_not_given_out_twice(have, broken):
    state = snapshot([node(2, name="n0")], [job(id=i, licences={"matlab": 1}) for i in "ab"], licences=have)
    assert seen(state, {"a": [A], "b": [B]}) == broken


@pytest.mark.parametrize(("most", "broken"), [(2, set()), (1, {"throttles"})])
def test_a_throttled_group_runs_no_more_at_once(most, broken):
    throttle = Throttle(group="array", max_running=most)
    assert both(job(throttle=throttle), job(throttle=throttle), at=(A, B)) == broken


# ---- reservations ----


def reserved(new, gpu_id=A, from_s=4_600, residents=()):
    state = on_two(new, job(id="gang", gpus=2), *residents)
    kept = [Reservation(job_id="gang", gpu_ids=(A, B), from_s=from_s)]
    where = {new.id: [gpu_id], **{r.id: list(r.running_on) for r in residents}}
    return seen(state, where, reservations=kept)


def test_a_newcomer_on_a_reserved_gpu_ends_before_the_reservation():
    # p90 of 3600 s is 4500 s
    assert reserved(job(id="a")) == set()
    assert reserved(job(id="a"), from_s=4_400) == {"reservations"}
    assert reserved(job(id="a", duration_s=None)) == {"reservations"}


def test_nobody_joins_a_job_that_holds_a_reserved_gpu():
    resident = job(id="r", running_on=[A])
    assert reserved(job(id="a"), B, residents=[resident]) == set()
    assert reserved(job(id="a"), A, residents=[resident]) == {"reservations"}


# ---- waves ----


def test_a_gpu_is_given_out_only_after_its_old_tenant_is_gone():
    state = on_two(job(id="a", running_on=[A], movable=True), job(id="b", gpu_memory_mib=40_000))
    where, rules = {"a": [B], "b": [A]}, policy(max_moves=1)
    later = {"a": {"leaves_wave": 0}, "b": {"wave": 1}}
    assert seen(state, where, rules=rules, said=later) == set()
    assert seen(state, where, rules=rules, said={"a": {"leaves_wave": 0}}) == {"waves"}


def test_two_jobs_change_places_only_if_one_is_parked():
    state = on_two(*(job(id=i, running_on=[g], movable=True) for i, g in (("a", A), ("b", B))))
    where, rules = {"a": [B], "b": [A]}, policy(max_moves=2)
    parked = {"a": {"leaves_wave": 0, "wave": 2}, "b": {"leaves_wave": 1, "wave": 1}}
    assert seen(state, where, rules=rules, said=parked) == set()
    assert seen(state, where, rules=rules) == {"waves"}


def test_no_wave_overcommits_a_host():  # field case 94
    state = snapshot(
        [node(2, name="n0", host_memory_mib=100), node(1, name="n1")],
        [job(id="a", running_on=[A], movable=True, host_memory_mib=80), job(id="b", host_memory_mib=80)],
    )
    where, rules = {"a": ["n1/0"], "b": [B]}, policy(max_moves=1)
    assert seen(state, where, rules=rules, said={"b": {"wave": 1}}) == set()
    assert seen(state, where, rules=rules) == {"waves"}


# ---- what a plan says of itself ----


def test_terms_sum_to_the_total():
    state = on_two(job(id="a"))
    terms = Terms(interference=2, speed=1)
    assert seen(state, {"a": [A]}, objective=Objective(total_gpu_s=3, terms=terms)) == set()
    assert seen(state, {"a": [A]}, objective=Objective(total_gpu_s=4, terms=terms)) == {"objective"}


def test_the_waiting_term_is_what_the_deferred_jobs_cost():
    state, wait = on_two(job(id="a")), Objective(total_gpu_s=7, terms=Terms(waiting=7))
    for cost, broken in (7, set()), (6, {"waiting"}):
        late = [Deferred(job_id="a", reason="not_chosen", detail="", cost_gpu_s=cost)]
        assert seen(state, {}, deferred=late, objective=wait) == broken


def test_slowdown_and_end_follow_from_the_forecast():
    pair = [job(id="x", profile="x"), job(id="y", profile="y")]
    state, spec = on_two(*pair), table(("x", "y", 1.5), ("y", "x", 1.25))
    right = {"slowdown": 1.5, "slowdown_p90": 1.625, "finish_s": 5_400.0}  # 3600 x 1.5
    where = {"x": [A], "y": [A]}
    assert seen(state, where, predictor=spec, said={"x": right}) == set()
    assert seen(state, where, predictor=spec, said={"x": {**right, "slowdown": 1.4}}) >= {"slowdowns"}
    assert seen(state, where, predictor=spec, said={"x": {**right, "slowdown_p90": 1.7}}) == {"slowdowns"}
    assert seen(state, where, predictor=spec, said={"x": {**right, "finish_s": 3_600.0}}) == {"ends"}


def test_the_end_counts_gpu_speed_and_links():
    spec = PredictorSpec(speed={"*": {"v100-32gb": 0.5}})
    nodes = [node(1, name="n0"), node(2, name="n1", model="v100-32gb", memory_mib=32_768)]
    # 3600 s / 0.5 x 1.05 over PCIe
    state = snapshot(nodes, [job(id="a", gpus=2)])
    where = {"a": ["n1/0", "n1/1"]}
    # a gang of two fits on no A100 node here, but A100 is an allowed model
    assert seen(state, where, predictor=spec, said={"a": {"finish_s": 7_560.0}}) == set()
    assert seen(state, where, predictor=spec, said={"a": {"finish_s": 7_200.0}}) == {"ends"}


def test_the_end_of_a_job_of_unknown_length_is_unknown():
    state = on_two(job(id="a", duration_s=None))
    assert seen(state, {"a": [A]}) == set()
    assert seen(state, {"a": [A]}, said={"a": {"finish_s": 5.0}}) == {"ends"}


def test_neighbours_and_fences_are_as_stated():
    state, where = on_two(job(id="a"), job(id="b")), {"a": [A], "b": [A]}
    assert seen(state, where, said={"a": {"neighbours": ()}}) == {"neighbours"}
    assert seen(state, where, said={"a": {"fenced": True}}) == {"neighbours"}


@pytest.mark.parametrize(("said", "broken"), [(8_000, set()), (7_999, {"memory figures"})])
def test_the_stated_memory_is_not_below_the_need(said, broken):
    assert seen(on_two(job(id="a")), {"a": [A]}, said={"a": {"gpu_memory_mib": said}}) == broken


# ---- all of them ----


def test_every_rule_says_what_it_is():
    assert all(
        rule.__doc__ and rule.__doc__.rstrip().endswith(".") for rule in (*validate.FORM, *validate.RULES)
    )


@pytest.mark.slow
def test_twenty_thousand_jobs_on_8192_gpus_are_checked():  # in 1 to 2 s on two cores
    the_jobs = jobs(20_000, gpu_memory_mib=9_000, gpu_utilisation_pct=30, cpus=2)
    nodes = [node(8, name=f"n{i}", cpus=64) for i in range(1024)]
    state = snapshot(nodes, the_jobs)
    ids = [g.id for g in state.cluster.gpus]
    where = {j.id: [ids[i % 8192]] for i, j in enumerate(the_jobs[:16_384])}
    plan, forecast, rules = plan_of(state, where)
    assert validate.problems_of(plan, state, forecast, rules) == ()
