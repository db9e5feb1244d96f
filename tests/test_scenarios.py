"""Every scenario that ships is loaded, planned and validated, and shows what its ``about`` promises."""

from collections import defaultdict
from pathlib import Path

import pytest

from planner.edit import with_policy
from planner.epoch import plan_epoch
from planner.formulate.interpret import plan_id
from planner.plan import Plan
from planner.scenario import load
from planner.validate import problems_of

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
#: Short, and the same in every run.
QUICK = {"time_limit_s": 4, "deterministic": True}


@pytest.fixture(scope="module")
def planned():
    """Plan a scenario, or one of its variants, once."""
    made = {}

    def plan(name, variant=None):
        if (name, variant) not in made:
            scenario = load(SCENARIOS / f"{name}.yaml")
            changes = next((v.policy for v in scenario.variants if v.name == variant), {})
            policy = with_policy(scenario.policy, {**changes, **QUICK})
            made[name, variant] = plan_epoch(scenario.snapshot, policy, scenario.predictor)
        return made[name, variant]

    return plan


def on(plan):
    """Job -> its GPUs, or its node."""
    return {a.job_id: a.gpu_ids or a.nodes for a in plan.assignments}


def waits(plan):
    """Job -> why it waits."""
    return {d.job_id: d.reason for d in plan.deferred}


def tenants(plan):
    """The jobs of each GPU that is in use."""
    found = defaultdict(set)
    for a in plan.assignments:
        for gpu in a.gpu_ids:
            found[gpu].add(a.job_id)
    return list(found.values())


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_scenario_is_planned_and_its_plan_is_valid(path, planned):
    scenario = load(path)
    assert scenario.about
    plan = planned(path.stem)
    inputs = plan.inputs
    assert not problems_of(plan, inputs.snapshot, inputs.forecast, inputs.policy)
    again = Plan.model_validate_json(plan.model_dump_json())
    decisions = (again.assignments, again.deferred, again.preempted, again.reservations)
    assert plan_id(again.inputs, *decisions) == plan.id  # or apply would refuse the file
    decided = {*on(plan), *waits(plan), *plan.preempted}
    assert decided == {j.id for j in scenario.snapshot.jobs}


def test_quickstart_shows_sharing_a_refused_pair_nvlink_and_a_reason(planned):
    plan = planned("quickstart")
    where = on(plan)
    assert where["bert-1"] == where["bert-2"]
    assert where["gpt-2"] in {("a0/0", "a0/1"), ("a0/2", "a0/3"), ("a1/0", "a1/1"), ("a1/2", "a1/3")}
    assert waits(plan) == {"dpn": "interference", "huge": "never_fits"}
    assert plan.solve.status == "optimal"


def test_horus_pairs_puts_light_families_beside_heavy_ones(planned):
    plan = planned("horus-pairs")
    heavy = ("dpn", "resnet", "vgg", "transformer")
    pairs = [jobs for jobs in tenants(plan) if len(jobs) > 1]
    assert pairs
    assert all(sum(job.startswith(heavy) for job in pair) == 1 for pair in pairs)
    assert (plan.predicted.pairs_from_fallback, plan.predicted.pairs_from_table > 0) == (0, True)


def test_host_limits_puts_the_smaller_job_on_the_smaller_node(planned):
    plan = planned("host-limits")
    nodes = {a.job_id: a.nodes for a in plan.assignments}
    assert nodes == {"x": ("small",), "y": ("big",)}
    assert (plan.deferred[0].reason, "CPUs" in plan.deferred[0].detail) == ("not_chosen", True)


def test_gang_and_fragmentation_needs_two_moves(planned):
    plan = planned("gang-and-fragmentation")
    waves = {a.job_id: (a.wave, a.nodes) for a in plan.assignments if a.state != "stay"}
    assert waves == {"one-0": (0, ("n2",)), "two-1": (1, ("n0",)), "new": (2, ("n1",))}
    one_move = planned("gang-and-fragmentation", "one move only")
    assert waits(one_move) == {"new": "fragmented"}
    assert not [a for a in one_move.assignments if a.state == "move"]


def test_reservation_backfill_lets_only_the_short_job_go_first(planned):
    plan = planned("reservation-backfill")
    assert [(r.job_id, len(r.gpu_ids)) for r in plan.reservations] == [("gang", 8)]
    assert set(on(plan)) == {"old", "short"}
    assert waits(plan)["long"] == "reserved"


def test_shards_are_given_out_once(planned):
    plan = planned("shards")
    assert sorted(j.split("-")[0] for j in on(plan)) == ["half", "tenth", "tenth"]
    assert list(waits(plan).values()) == ["not_chosen"]


def test_mig_gives_an_instance_to_one_job_that_names_it(planned):
    plan = planned("mig")
    small = [gpus for job, gpus in on(plan).items() if job.startswith("small")]
    assert sorted(small) == [("m0/0:1g.5gb:0",), ("m0/0:1g.5gb:1",)]
    assert on(plan)["any"] == ("m0/1",)
    assert len(waits(plan)) == 1


def test_shares_never_pass_a_gpu(planned):
    plan = planned("shares")
    kinds = sorted(sorted(job.split("-")[0] for job in jobs) for jobs in tenants(plan))
    assert kinds == [["large", "small"], ["large", "small"]]
    assert [job.split("-")[0] for job in waits(plan)] == ["large"]


def test_quotas_and_licences_are_kept_while_gpus_are_free(planned):
    plan = planned("quotas-and-licences")
    assert sorted((job.split("-")[0], why) for job, why in waits(plan).items()) == [
        ("array", "throttle"),
        ("nlp", "quota"),
        ("tool", "licence"),
    ]
    assert len(tenants(plan)) < 8


def test_wall_time_is_worth_more_than_sharing(planned):
    plan = planned("wall-time")
    where = on(plan)
    assert where["roomy"] == where["roomy-other"]
    assert waits(plan) == {"tight-other": "interference"}


def test_unknown_memory_runs_alone(planned):
    plan = planned("unknown-memory")
    assert sorted(map(len, tenants(plan))) == [1, 1]
    assert list(waits(plan).values()) == ["unknown_memory"]


def test_never_with_keeps_two_jobs_apart(planned):
    plan = planned("never-with")
    assert sorted(map(len, tenants(plan))) == [1, 2]
    assert on(plan)["ours"] != on(plan)["theirs"]


def test_running_and_movable_moves_only_who_may(planned):
    plan = planned("running-and-movable")
    assert [(a.job_id, a.moved_from) for a in plan.assignments if a.state == "move"] == [("mover", ("r0/1",))]
    assert plan.objective.terms.moves == 90


def test_cpu_only_takes_cores_of_one_node(planned):
    plan = planned("cpu-only")
    assert [a.nodes for a in plan.assignments if not a.gpu_ids] == [("c1",)]
    assert len(waits(plan)) == 1


def test_max_wait_decides_who_gets_the_reservation(planned):
    assert [r.job_id for r in planned("max-wait").reservations] == ["patient"]
    assert [r.job_id for r in planned("max-wait", "no limit").reservations] == ["weighty"]


def test_packing_decides_between_gpus_that_are_as_good(planned):
    assert on(planned("packing-spread"))["small"] == ("p0/1",)
    assert on(planned("packing-spread", "binpack"))["small"] == ("p0/0",)


def test_unmanaged_memory_is_not_given_out(planned):
    plan = planned("unmanaged-memory")
    assert on(plan) == {"fits": ("x0/0",)}
    assert list(waits(plan)) == ["waits"]
