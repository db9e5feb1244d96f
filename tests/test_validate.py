"""Per rule a plan that is allowed and one, differing in one fact, that is refused by that rule.

Plans are made by hand from where the jobs go; ``seen`` gives the rules that a plan breaks. What a plan says of
itself (slowdowns, ends, neighbours) is filled in so that only the fact in question can be wrong; the tests of those
figures state them by hand.
"""

import pytest
from builders import gpu, job, jobs, node, policy, snapshot

from planner import predict, validate
from planner.model import Carryover, Throttle, Until
from planner.plan import Assignment, Deferred, Objective, Plan, Reservation, Solve, Terms
from planner.policy import InterferenceSpec, PredictorSpec, Quota, TableRow
from planner.validate.scene import scene_of

FREE = Objective(total_gpu_s=0, terms=Terms())


def table(*pairs, model="a100-40gb"):
    """Measured slowdowns: (victim, beside, slowdown)."""
    rows = tuple(TableRow(gpu_model=model, profile=a, beside=b, slowdown=s) for a, b, s in pairs)
    return PredictorSpec(interference=InterferenceSpec(kind="table", rows=rows))


def plan_of(state, where, *, rules=None, predictor=None, said=None, objective=FREE, **fields):
    """The plan that puts jobs ``where`` (id -> GPUs, or a node for a job without); the others wait, or are stopped."""
    rules, said = rules or policy(), said or {}
    forecast = predict.forecast(state, rules, predictor or PredictorSpec())
    gpus = state.cluster.gpu_by_id
    decided = {*where, *fields.get("preempted", ())}
    base = {
        "id": "p",
        "made_at": "2026-01-01T00:00:00Z",
        "deferred": [
            Deferred(job_id=j.id, reason="not_chosen", detail="") for j in state.jobs if j.id not in decided
        ],
        "objective": objective,
        "solve": Solve(solver="hand", status="feasible"),
        **fields,
    }
    bare = []
    for job_id, places in where.items():
        j = state.job_by_id.get(job_id)
        on = tuple(p for p in places if p in gpus)
        nodes = tuple(dict.fromkeys(gpus[p].node for p in on)) or tuple(places)
        running = () if j is None else j.running_on
        state_of = "start" if not running else "stay" if set(running) == set(places) else "move"
        bare.append(
            Assignment(
                job_id=job_id,
                gpu_ids=tuple(places) if j is None or j.gpus else (),
                nodes=nodes,
                state=state_of,
                moved_from=running if state_of == "move" else None,
            )
        )
    try:
        scene = scene_of(Plan(assignments=bare, **base), state, forecast, rules)
    except KeyError:  # a place or job that does not exist: the form is what is tested
        return Plan(assignments=bare, **base), forecast, rules
    filled = [a.model_copy(update={**figures(scene, a), **said.get(a.job_id, {})}) for a in bare]
    return Plan(assignments=filled, **base), forecast, rules


def figures(scene, a):
    o, s = scene.occupants[a.job_id], scene.slowdown(scene.occupants[a.job_id])
    there = sorted({p.job.id for g in a.gpu_ids for p in scene.on_gpu[g] if p is not o})
    left = o.forecast.remaining_s
    return {
        "slowdown": s,
        "slowdown_p90": None if s is None else 1 + (s - 1) * 1.25,
        "finish_s": None if s is None or left is None else left * s * scene.stretch(o),
        "neighbours": tuple(there),
        "fenced": all(scene.snapshot.cluster.node_by_name[n].isolation == "memory" for n in o.on)
        if there
        else None,
    }


def findings(state, where, **given):
    plan, forecast, rules = plan_of(state, where, **given)
    return validate.problems_of(plan, state, forecast, rules)


def seen(state, where, **given):
    return {f.rule for f in findings(state, where, **given)}


A, B = "n0/0", "n0/1"


def on_two(*the_jobs, **fields):
    """One node with two GPUs, and the jobs."""
    return snapshot([node(2, name="n0", **fields)], the_jobs)


def both(a, b, *, at=(A, A), rules=None, predictor=None, **fields):
    """Rules broken by putting two jobs on GPUs of one node."""
    state = on_two(a, b, **fields)
    return seen(state, {a.id: [at[0]], b.id: [at[1]]}, rules=rules, predictor=predictor)


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


# ---- who may share a GPU ----


def test_tenants_are_at_most_the_nodes_or_else_the_policys():
    pair = jobs(2)
    assert both(*pair, rules=policy(max_tenants=2)) == set()
    assert both(*pair, rules=policy(max_tenants=1)) == {"tenants"}
    assert both(*pair, rules=policy(max_tenants=1), max_tenants=2) == set()
    assert both(*pair, rules=policy(max_tenants=2), max_tenants=1) == {"tenants"}


@pytest.mark.parametrize(
    "fact", [{"shareable": False}, {"gpu_memory_mib": None}, {"gpu_utilisation_pct": None}]
)
def test_a_job_without_consent_or_not_known_well_runs_alone(fact):
    assert both(job(), job()) == set()
    assert "consent" in both(job(**fact), job())
    assert both(job(**fact), job(), at=(A, B)) == set()


def test_a_share_is_enough_to_know_a_job():
    assert both(job(gpu_memory_mib=None, gpu_utilisation_pct=None, gpu_share_milli=500), job()) == set()


@pytest.mark.parametrize(("used", "broken"), [(0, set()), (1, {"consent"})])
def test_a_job_that_runs_alone_is_not_put_where_strangers_hold_memory(used, broken):
    state = snapshot([node([gpu(unmanaged_memory_mib=used)], name="n0")], [job(id="a", gpu_memory_mib=None)])
    assert seen(state, {"a": [A]}) == broken


@pytest.mark.parametrize("key", ["user", "account"])
def test_sharing_stays_within_one_user_or_account(key):
    def pair(a, b, across):
        return both(job(**{key: a}), job(**{key: b}), rules=policy(share_across=across))

    assert pair("x", "x", key) == set()
    assert pair("x", "y", "all") == set()
    assert pair("x", "y", key) == {"scope"}
    assert pair(None, None, key) == {"scope"}


# ---- memory ----


@pytest.mark.parametrize(("need", "broken"), [(20_230, set()), (20_231, {"memory"})])
def test_two_jobs_fit_in_memory_with_the_margin(need, broken):
    # 2 x 20,230 + 500 = 40,960
    assert both(*jobs(2, gpu_memory_mib=need)) == broken


def test_the_margin_counts_only_for_two_or_more_and_without_isolation():
    assert seen(on_two(job(id="a", gpu_memory_mib=40_960)), {"a": [A]}) == set()
    pair = jobs(2, gpu_memory_mib=20_480)
    assert both(*pair, isolation="memory") == set()
    assert both(*pair) == {"memory"}


def test_three_of_twelve_gib_do_not_fit_on_24_gib():  # field case 57
    three = jobs(3, gpu_memory_mib=12_000, gpu_utilisation_pct=10)
    state = snapshot([node(1, name="n0", memory_mib=24_576)], three)
    assert seen(state, {j.id: [A] for j in three[:2]}) == set()
    assert seen(state, {j.id: [A] for j in three}) == {"memory"}


@pytest.mark.parametrize(("factor", "broken"), [(1.2, set()), (1, {"memory"})])
def test_oversubscription_only_where_stated(factor, broken):
    assert both(*jobs(2, gpu_memory_mib=24_000), memory_factor=factor) == broken


@pytest.mark.parametrize(("used", "broken"), [(21_000, set()), (21_001, {"memory"})])
def test_memory_that_strangers_use_is_not_given_away(used, broken):  # field case 61
    state = snapshot(
        [node([gpu(memory_mib=24_576, unmanaged_memory_mib=used)], name="n0")],
        [job(id="a", gpu_memory_mib=3_576)],
    )
    assert seen(state, {"a": [A]}) == broken


@pytest.mark.parametrize(("need", "broken"), [(None, set()), (1, {"memory"})])
def test_a_gpu_that_does_not_say_its_memory_takes_no_job_that_asks_for_some(need, broken):  # field case 63
    state = snapshot([node(1, name="n0", memory_mib=None)], [job(id="a", gpu_memory_mib=need)])
    assert seen(state, {"a": [A]}) == broken


@pytest.mark.parametrize(("peak", "broken"), [(20_000, set()), (40_000, {"memory"})])
def test_a_measured_peak_counts_with_its_margin(peak, broken):
    state = snapshot([node(1, name="n0")], [job(id="a")], carryover=Carryover(memory_peaks={"a": peak}))
    assert seen(state, {"a": [A]}) == broken


@pytest.mark.parametrize(("need", "broken"), [(4_606, set()), (6_000, {"mps"})])
def test_under_mps_each_tenant_gets_its_part_of_the_memory(need, broken):  # field case 66
    state = snapshot(
        [node(1, name="n0", memory_mib=46_068, sharing="mps", max_tenants=10)],
        [job(id="a", gpu_memory_mib=need)],
    )
    assert seen(state, {"a": [A]}) == broken


@pytest.mark.parametrize(("share", "broken"), [(500, set()), (600, {"shares"})])
def test_declared_shares_stay_within_one_gpu(share, broken):  # field case 70
    pair = jobs(2, gpu_share_milli=share, gpu_memory_mib=None, gpu_utilisation_pct=20)
    assert both(*pair) - {"memory"} == broken


@pytest.mark.parametrize(("share", "broken"), [(500, set()), (501, {"shares"})])
def test_shards_are_tokens_and_a_started_one_counts(share, broken):  # field case 25
    state = snapshot(
        [node([gpu(shards=4)], name="n0")],
        [job(id=i, gpu_share_milli=share, gpu_memory_mib=100, gpu_utilisation_pct=10) for i in "ab"],
    )
    assert seen(state, {"a": [A], "b": [A]}) - {"memory"} == broken


# ---- interference ----


@pytest.mark.parametrize("named", ["b", "Beta"])
def test_never_with_holds_in_both_directions_by_id_and_by_profile(named):
    a, b = job(id="a", never_with=[named]), job(id="b", profile="Beta")
    assert both(a, b, at=(A, B)) == set()
    assert both(a, b) == {"never together"}
    assert both(b, a) == {"never together"}
    assert both(job(id="c"), b) == set()


def test_jobs_that_were_taken_apart_do_not_meet_again():
    for pair, broken in (("a", "b"), {"never together"}), (("a", "c"), set()):
        state = snapshot(
            [node(1, name="n0")], [job(id="a"), job(id="b")], carryover=Carryover(never_pairs=[pair])
        )
        assert seen(state, {"a": [A], "b": [A]}) == broken


def sharing(mutual, rules=None, **facts):
    """Two jobs on one GPU with measured slowdowns in both directions."""
    spec = table(("x", "y", mutual[0]), ("y", "x", mutual[1]))
    return both(job(profile="x", **facts), job(profile="y"), rules=rules, predictor=spec)


def test_no_slowdown_passes_the_policys_or_the_jobs_cap():
    assert sharing((1.9, 1.9)) == set()
    assert sharing((1.2, 2.5)) == {"slowdown"}
    assert sharing((1.2, 2.5), policy(max_slowdown=None)) == set()
    assert sharing((1.5, 1.2), max_slowdown=1.5) == set()
    assert sharing((1.5, 1.2), max_slowdown=1.4) == {"slowdown"}


def test_a_pair_that_must_not_share_does_not():
    assert sharing((1.2, None)) == {"slowdown"}


@pytest.mark.parametrize(("mutual", "broken"), [((1.9, 1.9), set()), ((2.1, 2.1), {"gate"})])
def test_equal_jobs_share_only_if_their_speeds_add_up_to_more_than_one(mutual, broken):
    assert sharing(mutual, policy(max_slowdown=None)) == broken
    assert sharing(mutual, policy(max_slowdown=None, sharing_gate=False)) == set()


def test_a_gang_counts_whole_at_the_gate():
    spec = table(("x", "y", 1.9), ("y", "x", 1.9))
    state = snapshot([node(2, name="n0")], [job(id="g", gpus=2, profile="x"), job(id="a", profile="y")])
    # 2/1.9 + 1/1.9 = 1.58 does not beat the gang's 2
    assert seen(state, {"g": [A, B], "a": [A]}, predictor=spec) == {"gate"}


def test_a_newcomer_that_lowers_the_sum_is_refused():
    # with all three 3 / 1.7 = 1.76; with two of them 2 / 1.05 = 1.9; with excesses 0.05 that add, 2.73
    for excess, broken in (0.35, {"gate"}), (0.05, set()):
        pairs = [(a, b, 1.05) for a in "xy" for b in "xy"]
        pairs += [
            ("x", "z", 1 + 2 * excess),
            ("y", "z", 1 + 2 * excess),
            ("z", "x", 1 + excess),
            ("z", "y", 1 + excess),
        ]
        three = [job(id=p, profile=p, gpu_utilisation_pct=10) for p in "xyz"]
        state = snapshot([node(1, name="n0")], three)
        assert seen(state, {p: [A] for p in "xyz"}, predictor=table(*pairs)) == broken


@pytest.mark.parametrize(("limit", "broken"), [(None, set()), (7_000, set()), (6_000, {"wall time"})])
def test_sharing_never_breaks_a_time_limit(limit, broken):
    # p95 duration 3600 x 1.25 = 4500, p95 slowdown 1 + 0.4 x 1.25 = 1.5: 6750 s
    assert sharing((1.4, 1.2), time_limit_s=limit) == broken


def test_residents_that_break_a_rule_are_left_alone_but_nobody_joins_them():
    old = [job(id=i, running_on=[A], gpu_memory_mib=30_000) for i in "ab"]
    state = on_two(*old, job(id="c", gpu_memory_mib=10, gpu_utilisation_pct=1))
    stay = {"a": [A], "b": [A]}
    assert seen(state, stay) == set()
    assert seen(state, {**stay, "c": [B]}) == set()
    assert seen(state, {**stay, "c": [A]}) == {"memory"}


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
