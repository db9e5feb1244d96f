"""What a gang loses to its links: by hand, in a plan and its checks, and as it was fitted."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import communication as benchmark
import pytest
from builders import job, jobs, node, policy, snapshot
from judged import seen

from planner import predict, scenario
from planner.epoch import plan_epoch
from planner.formulate import formulate
from planner.policy import Links, PredictedJob, PredictorSpec, UsageSpec
from planner.predict import coefficients, usage
from planner.predict.catalogue import find
from planner.predict.communication import Coefficients, default, factor, gradient_bytes, links
from planner.validate import problems_of

#: 100 ms alone and 1 GB of gradients; a GB/s takes 1 s for what two GPUs exchange, 2 x 1/2 GB.
STEP_MS, GB = 100.0, 1e9
SLOW = Coefficients(nvlink_gb_s=100, pcie_gb_s=10, network_gb_s=1)
SHIPPED = PredictorSpec(usage=UsageSpec(path="shipped"))

# -- factors by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "gb_s", "overlap", "expected"),
    [
        (1, 1, 0, 1.0),  # nobody to exchange with
        (2, 10, 0, 2.0),  # 1 GB at 10 GB/s: 100 ms
        (4, 10, 0, 2.5),  # 2 x 3/4 GB: 150 ms
        (8, 10, 0, 2.75),
        (4, 10, 0.9, 1.9),  # 60 of the 150 ms are hidden behind 2/3 x 100 ms
        (4, 10, 1, 1 + 1.5 - 2 / 3),
        (2, 20, 1, 1.0),  # 50 ms, all of it hidden
    ],
)
def test_a_step_takes_the_exchange_longer_that_its_backward_pass_does_not_hide(gpus, gb_s, overlap, expected):
    assert factor(STEP_MS, GB, gpus, gb_s, overlap=overlap) == pytest.approx(expected)


def test_of_very_many_gpus_each_sends_the_gradients_twice():
    assert factor(STEP_MS, GB, 10**9, 10) == pytest.approx(3.0)


def test_more_bytes_and_gpus_cost_more_and_bandwidth_and_longer_steps_less():
    for values, larger in (
        ([factor(STEP_MS, b * GB, 4, 10) for b in (0.1, 1, 2)], True),
        ([factor(STEP_MS, GB, n, 10) for n in (2, 3, 8)], True),
        ([factor(STEP_MS, GB, 4, b) for b in (1, 10, 100)], False),
        ([factor(s, GB, 4, 10) for s in (10, 100, 1000)], False),
    ):
        assert all((b > a) is larger for a, b in pairwise(values))


def test_mixed_precision_halves_the_gradients():
    features = find("resnet50").at(64)
    assert gradient_bytes(features, mixed=False) == features.parameter_bytes == 4 * features.parameters
    assert gradient_bytes(features, mixed=True) == 2 * features.parameters


def test_each_class_of_link_has_its_factor_in_thousandths():
    assert links(STEP_MS, GB, 2, SLOW) == Links(nvlink=1.1, pcie=2.0, network=11.0)
    assert links(STEP_MS, GB / 3, 2, SLOW) == Links(nvlink=1.033, pcie=1.333, network=4.333)
    hidden = dataclasses.replace(SLOW, overlap=1.0)
    assert links(STEP_MS, GB, 2, hidden) == Links(nvlink=1.0, pcie=1.333, network=10.333)


def test_links_never_get_faster_from_nvlink_to_pcie_to_the_network_nor_costlier_than_a_factor_may_be():
    upside_down = Coefficients(nvlink_gb_s=10, pcie_gb_s=100, network_gb_s=50)
    assert links(STEP_MS, GB, 2, upside_down) == Links(nvlink=2.0, pcie=2.0, network=2.0)
    assert links(1.0, GB, 2, SLOW) == Links(nvlink=11.0, pcie=100.0, network=100.0)


def test_a_step_is_the_gpus_and_the_hosts_time_where_they_do_not_overlap():
    features = find("resnet50").at(32)
    busy = usage.BusyModel(launch_us=10, wait_ms=1, sample_ms=0.5, sharpness=1)
    step_ms = busy.step_ms(features, "v100", "adam", mixed=False)
    used = busy.utilisation_pct(features, "v100", "adam", mixed=False) / 100
    kernels = 20 + features.operators * (3 + 2)  # of the step; of three passes and the updates
    assert step_ms * (1 - used) == pytest.approx(kernels * 0.01 + 1 + 0.5 * 32)


# -- what is predicted of a job ----------------------------------------------------------------------


def predicted(one, *nodes):
    state = snapshot(list(nodes) or [node(4, model="v100-32gb", memory_mib=32768)], [one])
    return predict.forecast(state, policy(), SHIPPED)


def gang(**fields):
    return job(**{"gpus": 2, "profile": "vgg19:32", "gpu_memory_mib": None, **fields})


def on(gpu_model):
    return node(4, model=gpu_model, memory_mib=24000)


def by_hand(name, batch, gpu_model, gpus, *, mixed=False):
    c, features = default(), find(name).at(batch)
    step = c.step * usage.default().busy.step_ms(features, gpu_model, "adam", mixed=mixed)
    return links(step, features.parameter_bytes / (2 if mixed else 1), gpus, c)


@pytest.mark.parametrize("amp", [False, True])
def test_a_gang_of_a_known_architecture_has_its_own_factors(amp):
    profile = "vgg19:32+amp" if amp else "vgg19:32"
    found = predicted(gang(gpus=4, profile=profile)).jobs[0].links
    assert found == by_hand("vgg19", 32, "v100-32gb", 4, mixed=amp)
    assert 1 < found.nvlink < found.pcie < found.network


def test_many_parameters_and_short_steps_lose_most():
    large, small = (predicted(gang(profile=p)).jobs[0].links for p in ("vgg19:16", "squeezenet:256"))
    assert large.network > 2 > 1.1 > small.network > 1
    longer = predicted(gang(profile="vgg19:64")).jobs[0].links
    assert longer.network < large.network


@pytest.mark.parametrize(
    "fields", [{"gpus": 1}, {"profile": "abacus:32"}, {"profile": "vgg19"}, {"profile": None}]
)
def test_others_have_none(fields):
    assert predicted(gang(**fields)).jobs[0].links is None


def test_of_several_gpu_models_the_fastest_that_it_accepts_decides():
    both = on("k80"), on("v100-32gb")
    assert predicted(gang(), *both).jobs[0].links == by_hand("vgg19", 32, "v100-32gb", 2)
    only = gang(gpu_models=("k80",))
    assert predicted(only, *both).jobs[0].links == by_hand("vgg19", 32, "k80", 2)


def test_gangs_that_accept_different_gpu_models_are_told_apart():
    both = [gang(), gang(gpu_models=("k80",)), gang(gpus=4)]
    found = predict.forecast(snapshot([on("k80"), on("v100-32gb")], both), policy(), SHIPPED).jobs
    expected = [("v100-32gb", 2), ("k80", 2), ("v100-32gb", 4)]
    assert [f.links for f in found] == [by_hand("vgg19", 32, *e) for e in expected]


def test_a_gpu_model_of_unknown_peaks_that_it_accepts_leaves_them_unknown():
    both = on("abacus"), on("v100-32gb")
    assert predicted(gang(), *both).jobs[0].links is None
    assert predicted(gang(gpu_models=("v100-32gb",)), *both).jobs[0].links is not None


def test_a_gang_that_declares_its_usage_keeps_it_and_is_not_told_to_be_unknown():
    told = predicted(gang(gpu_memory_mib=9000, gpu_utilisation_pct=70))
    found = told.jobs[0]
    assert found.links == by_hand("vgg19", 32, "v100-32gb", 2)
    assert (found.gpu_memory_mib, found.gpu_utilisation_pct, told.warnings) == (9000, 70, ())
    unknown = predicted(gang(profile="abacus", gpu_memory_mib=9000, gpu_utilisation_pct=70))
    assert unknown.warnings == ()


def test_a_plan_file_holds_them_but_a_job_made_smaller_has_none():
    told = predicted(gang(id="g"))
    again = predict.forecast(snapshot(jobs=[gang(id="g")]), policy(), told.predictor)
    assert again.jobs[0].links == told.jobs[0].links is not None
    single = predict.forecast(snapshot(jobs=[gang(id="g", gpus=1)]), policy(), told.predictor)
    assert single.jobs[0].links is None


# -- in a plan ---------------------------------------------------------------------------------------

TWO_GANGS = """
schema: planner.scenario/1
cluster:
  nodes:
    - {{name: pcie, gpus: {{model: v100-32gb, count: 2, memory_mib: 32768}}}}
    - {{name: nvlink, gpus: {{model: v100-32gb, count: 2, memory_mib: 32768}}, links: [[0, 1]]}}
jobs:
  - {{id: first, gpus: 2, profile: "{first}", duration_s: 3600, max_nodes: 1}}
  - {{id: second, gpus: 2, profile: "{second}", duration_s: 3600, max_nodes: 1}}
policy: {{max_tenants: 1, deterministic: true, time_limit_s: 2, solver: {solver}}}
predictor: {{usage: {{path: {model}}}, links: {{pcie: 1.3, network: 1.5}}}}
"""
LARGE, SMALL = "vgg19:16", "squeezenet:256"


def two_gangs(tmp_path, first, second, *, model="shipped", solver="cp-sat"):
    text = TWO_GANGS.format(first=first, second=second, model=model, solver=solver)
    read = scenario.load(tmp_path / "gangs.yaml", text)
    return plan_epoch(read.snapshot, read.policy, read.predictor)


@pytest.mark.parametrize("solver", ["cp-sat", "greedy", "highs"])
def test_nvlink_goes_to_the_gang_that_needs_it(tmp_path, solver):
    for first, second, nodes in (
        (LARGE, SMALL, {"first": ("nvlink",), "second": ("pcie",)}),
        (SMALL, LARGE, {"first": ("pcie",), "second": ("nvlink",)}),
    ):
        plan = two_gangs(tmp_path, first, second, solver=solver)
        assert {a.job_id: a.nodes for a in plan.assignments} == nodes
        # Of 2 GPUs for an hour each loses 1 - 1/k. The small one hardly cares, though the common factor of PCIe is 1.3.
        own = {j.job_id: j.links for j in plan.inputs.forecast.jobs}
        large, small = (own[i] for i in sorted(nodes, key=nodes.get))
        assert small.pcie < 1.02 < 1.5 < large.pcie
        lost = 2 - 1 / large.nvlink - 1 / small.pcie
        assert plan.objective.terms.locality == pytest.approx(7200 * lost, rel=1e-3)


def test_without_a_model_both_have_the_common_factor(tmp_path):
    plan = two_gangs(tmp_path, LARGE, SMALL, model="null")
    # One of them is on the node without NVLink: 1 - 1/1.3 of 2 GPUs for 3600 s.
    assert plan.objective.terms.locality == pytest.approx(7200 * (1 - 1 / 1.3), rel=1e-3)


def test_a_plan_whose_ends_are_by_the_jobs_own_factors_is_valid_and_no_other(tmp_path):
    plan = two_gangs(tmp_path, LARGE, SMALL)
    given = plan.inputs.snapshot, plan.inputs.forecast, plan.inputs.policy
    own = {j.job_id: j.links for j in plan.inputs.forecast.jobs}
    by_job = {a.job_id: a for a in plan.assignments}
    assert by_job["first"].finish_s == pytest.approx(3600 * own["first"].nvlink, rel=1e-3)
    assert by_job["second"].finish_s == pytest.approx(3600 * own["second"].pcie, rel=1e-3)
    assert not problems_of(plan, *given)
    common = by_job["second"].model_copy(update={"finish_s": 3600 * 1.3})
    other = plan.model_copy(update={"assignments": (by_job["first"], common)})
    assert [(f.rule, f.job) for f in problems_of(other, *given)] == [("ends", "second")]


def known(**own):
    return PredictorSpec(predicted={name: PredictedJob(links=factors) for name, factors in own.items()})


def test_the_check_takes_the_link_of_the_gpus_from_the_jobs_own_factors():
    own = known(a=Links(nvlink=1.5, pcie=2.0, network=3.0))
    nodes = [node(2, name="n0", links=((0, 1),)), node(2, name="n1")]
    state = snapshot(nodes, [job(id="a", gpus=2, max_nodes=2)])
    for where, right in ((["n0/0", "n0/1"], 1.5), (["n1/0", "n1/1"], 2.0), (["n0/0", "n1/0"], 3.0)):
        for said in (1.0, 1.05, 1.2, 1.5, 2.0, 3.0):
            found = seen(state, {"a": where}, predictor=own, said={"a": {"finish_s": 3600 * said}})
            assert found == (set() if said == right else {"ends"})


def problem(nodes, the_jobs, spec):
    state, rules = snapshot(nodes, the_jobs), policy(max_slowdown=None)
    return formulate(state, predict.forecast(state, rules, spec), rules).problem


def test_the_program_has_each_jobs_own_factors_and_the_common_ones_for_the_rest():
    three = [job(id=i, gpus=2, max_nodes=2) for i in "abc"]
    own = known(
        a=Links(nvlink=1.001, pcie=1.5, network=4.25), c=Links(nvlink=1.0, pcie=1.0, network=1.0)
    ).model_copy(update={"links": Links(nvlink=1.1, pcie=1.2, network=1.3)})
    found = problem([node(2), node(2)], three, own).link_milli
    assert found.tolist() == [[1001, 1500, 4250], [1100, 1200, 1300], [1000, 1000, 1000]]


def test_no_jobs_have_no_factors():
    assert problem([node(2)], [], known()).link_milli.shape == (0, 3)


@pytest.mark.parametrize(
    ("nodes", "own", "cap"),
    [
        # p95 is 3600 x 1.25 = 4500 s; 9000 s leave 1 + (9000 / (4500 k) - 1) / 1.25
        ((1, 1), True, 1200),  # k 1.6
        ((1, 1), False, 1533),  # k 1.2, the common one
        ((2, 2), True, 1480),  # it never leaves a node: k 1.25
    ],
)
def test_the_time_limit_is_kept_over_the_jobs_own_network(nodes, own, cap):
    own = known(a=Links(nvlink=1.0, pcie=1.25, network=1.6)) if own else PredictorSpec()
    found = problem([node(n) for n in nodes], [job(id="a", gpus=2, time_limit_s=9000)], own)
    assert found.cap_milli[0].tolist() == [cap]


def test_gangs_share_only_where_their_own_network_leaves_the_time():
    # Two GPUs on two nodes; both gangs need 3600 s x 1.25 x slowdown x factor within 9000 s. Shared: 1.3 (mean), 1.375 (p95).
    pair = jobs(2, gpus=2, time_limit_s=9000, gpu_utilisation_pct=50)
    spec = PredictorSpec.model_validate({"interference": {"kind": "time-sharing", "contention": 1.0}})
    for network, together in ((1.2, True), (1.6, False)):
        said = known(**{j.id: Links(nvlink=1, pcie=1, network=network) for j in pair}).predicted
        state, rules = snapshot([node(1), node(1)], pair), policy(time_limit_s=2, deterministic=True)
        plan = plan_epoch(state, rules, spec.model_copy(update={"predicted": said}))
        assert (len(plan.assignments) == 2) is together


# -- the shipped coefficients ------------------------------------------------------------------------


def test_the_shipped_coefficients_say_where_they_come_from():
    whole = coefficients.links()
    assert set(whole) == {"about", "coefficients", "digest"}
    assert whole["digest"].startswith("sha256:")
    assert "MIT" in whole["about"]
    c = default()
    assert 0 < c.network_gb_s < c.pcie_gb_s < c.nvlink_gb_s
    assert 0 <= c.overlap <= 1
    assert c.step > 0


@pytest.fixture(scope="module")
def gangs(data_dir):
    return benchmark.read(data_dir / "job_profiles.csv")


def test_the_fit_gives_the_shipped_coefficients(gangs):
    assert benchmark.text_of(benchmark.fitted(gangs), gangs) == benchmark.SHIPPED.read_text(encoding="utf-8")


def test_models_left_out_are_told_better_than_by_one_factor_for_all(gangs):
    apart = benchmark.apart(gangs)
    ring, constant = (benchmark.left_out(apart, fit) for fit in (benchmark.ring([0.0]), benchmark.constant))
    for model in ring:
        assert benchmark.median({model: ring[model]}) < 0.2 < benchmark.median({model: constant[model]})


def test_a_site_states_its_own_bandwidths():
    gang = [job(id="g", gpus=2, profile="vgg16:16")]

    def network(**stated):
        spec = PredictorSpec(usage=UsageSpec(path="shipped", **stated))
        found = predict.forecast(snapshot([node(2)], gang), policy(), spec).jobs[0].links
        return found.network

    assert network() == network(network_gb_s=default().network_gb_s)
    assert network(network_gb_s=12, pcie_gb_s=12) < 0.5 * network()
