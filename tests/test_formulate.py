"""What the objective charges and the rules allow, on cases that can be worked out by hand.

H is 3600 s, priorities are 1 and horizon, weights and caps are the policy's defaults unless a test says otherwise.
"""

import pytest
from builders import gpu, job, jobs, node, policy, snapshot

from planner import predict
from planner.formulate import formulate
from planner.model import Carryover, Throttle, Until
from planner.policy import InterferenceSpec, PredictorSpec, Quota, TableRow, Weights
from solvers.check import objective, violations

H = 3600


def measured(*pairs, **options):
    rows = tuple(TableRow(gpu_model="a100-40gb", profile=a, beside=b, slowdown=s) for a, b, s in pairs)
    return PredictorSpec(interference=InterferenceSpec(kind="table", rows=rows, **options))


def problem_of(the_jobs, *, nodes=None, predictor=None, state=None, **rules):
    state = state or snapshot(nodes, the_jobs)
    rules = policy(**rules)
    return formulate(state, predict.forecast(state, rules, predictor or PredictorSpec()), rules)


def cost(formulated, placed):
    """Terms of a placement that breaks no rule, in GPU-seconds; None if it breaks one."""
    if violations(formulated.problem, placed):
        return None
    terms = objective(formulated.problem, placed)
    return {name: getattr(terms, name) / 1000 for name in vars(terms)} | {"total": terms.total / 1000}


def best_of_two(mutual, **rules):
    """Two equal jobs and one GPU: what is cheapest of sharing and of one waiting."""
    pair = [job(profile="a"), job(profile="b")]
    f = problem_of(pair, predictor=measured(("a", "b", mutual[0]), ("b", "a", mutual[1])), **rules)
    both, one = cost(f, ((0,), (0,))), min(cost(f, ((0,), None))["total"], cost(f, (None, (0,)))["total"])
    return "share" if both is not None and both["total"] < one else "wait"


@pytest.mark.parametrize(
    ("mutual", "cap", "expected"),
    [
        ((1.9, 1.9), None, "share"),  # speeds sum to 1.05
        ((2.1, 2.1), None, "wait"),  # 0.95
        ((1.2, 2.5), None, "share"),  # 0.83 + 0.40
        ((1.9, 1.9), 2.0, "share"),
        ((1.2, 2.5), 2.0, "wait"),  # 2.5 passes the cap
    ],
)
def test_equal_jobs_share_exactly_when_their_speeds_add_up_to_more_than_one(mutual, cap, expected):
    assert best_of_two(mutual, max_slowdown=cap) == expected


def test_interference_charges_the_progress_lost_over_the_horizon():
    pair = [job(profile="a"), job(profile="b")]
    f = problem_of(pair, predictor=measured(("a", "b", 1.25), ("b", "a", 1.6)))
    # 3600 x (1 - 1/1.25) + 3600 x (1 - 1/1.6) = 720 + 1350
    assert cost(f, ((0,), (0,)))["interference"] == 2070


def test_waiting_grows_with_time_in_the_queue_and_with_priority():
    state = snapshot(None, [job(priority=4, submitted_s=-10_800, duration_s=None)])
    f = problem_of(None, state=state, age_s=21_600)
    assert cost(f, (None,))["waiting"] == 4 * H * 1.5


def test_alpha_prefers_short_jobs_within_its_bounds():
    three = [job(duration_s=d) for d in (900, 3600, 3600 * 40)]
    f = problem_of(three, alpha=0.5, weights=Weights(makespan=0))
    # the median is 3600: (3600/900)^0.5 = 2, 1, and (1/40)^0.5 = 0.158 held to 1/4
    assert [c / 1000 for c in f.problem.wait_cost] == [2 * H, H, H / 4]


def test_an_unknown_duration_is_neutral_in_waiting_and_makespan():
    f = problem_of([job(duration_s=None), job(duration_s=3600)], alpha=0.5)
    assert f.problem.wait_cost[0] == H * 1000
    assert f.problem.work[0] == -1
    assert f.problem.deferred_end[0] == -1


def test_a_slower_model_charges_speed_and_links_charge_locality():
    nodes = [node(2, model="a100-40gb"), node(2, model="v100-32gb", memory_mib=32768)]
    predictor = PredictorSpec(speed={"*": {"v100-32gb": 0.5}})
    f = problem_of([job(gpus=2)], nodes=nodes, predictor=predictor)
    fast, slow = cost(f, ((0, 1),)), cost(f, ((2, 3),))
    # no links are stated, so the pair is linked by PCIe: k = 1.05
    assert fast["speed"] == 0
    assert fast["locality"] == pytest.approx(2 * H * (1 - 1 / 1.05), abs=0.01)
    assert slow["speed"] == 2 * H * 0.5
    assert slow["locality"] == pytest.approx(2 * H * 0.5 * (1 - 1 / 1.05), abs=0.01)


def test_an_nvlink_group_costs_nothing_and_two_nodes_most():
    nodes = [node(4, links=((0, 1), (2, 3))), node(4)]
    f = problem_of([job(gpus=2, max_nodes=2)], nodes=nodes)
    nvlink, pcie, network = (cost(f, (spot,))["locality"] for spot in ((0, 1), (1, 2), (0, 4)))
    assert (nvlink, pcie) == (0, pytest.approx(2 * H * (1 - 1 / 1.05), abs=0.01))
    assert network == pytest.approx(2 * H * (1 - 1 / 1.2), abs=0.01)


def test_the_makespan_term_is_the_weight_times_h_times_gpus_when_the_end_is_the_fluid_bound():
    f = problem_of([job(duration_s=7200)])
    # T = 7200 / 1 GPU; alone it ends at T: m G H = 0.5 x 3600
    assert cost(f, ((0,),))["makespan"] == 0.5 * H


@pytest.mark.parametrize("duration", [60, 600, 3600, 86_400, 3_000_000])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_no_job_is_deferred_because_of_the_makespan_term_however_long_it_is(duration, cap):
    """Deferring a job never ends it earlier than any placement that is open to it: beside another, slower, split."""
    nodes = [node(2), node(2, model="v100-32gb", memory_mib=32_768), node(2)]
    slow = PredictorSpec(
        interference=measured(("a", "b", 1.5), ("b", "a", 1.1)).interference,
        speed={"*": {"v100-32gb": 0.3}},
    )
    single = [job(profile="a", duration_s=duration), job(profile="b", duration_s=600)]
    f = problem_of(single, nodes=nodes, predictor=slow, max_slowdown=cap)
    for spot in ((0,), (2,)):
        assert cost(f, (spot, (0,)))["makespan"] <= cost(f, (None, (0,)))["makespan"]
    gang = [job(profile="a", gpus=2, max_nodes=2, duration_s=duration), single[1]]
    f = problem_of(gang, nodes=nodes, predictor=slow, max_slowdown=cap)
    for spot in ((0, 1), (2, 3), (1, 5)):
        assert cost(f, (spot, (0,)))["makespan"] <= cost(f, (None, (0,)))["makespan"]


def test_fragmentation_is_smaller_than_any_difference_that_matters():
    nodes = [node(4), node(4)]
    f = problem_of([job(), job()], nodes=nodes)
    together, apart = cost(f, ((0,), (1,))), cost(f, ((0,), (4,)))
    assert apart["fragmentation"] - together["fragmentation"] > 0
    assert apart["fragmentation"] < H / 1000 * 2
    # one shared GPU on utilisations that fit together is tidier still
    assert cost(f, ((0,), (0,)))["fragmentation"] == together["fragmentation"]


def test_packing_spread_opens_another_gpu_where_binpack_fills_one():
    half = [job(gpu_share_milli=500, gpu_memory_mib=None) for _ in range(2)]
    nodes = [node(2)]
    f = problem_of(half, nodes=nodes, packing="spread")
    assert cost(f, ((0,), (1,)))["total"] < cost(f, ((0,), (0,)))["total"]
    f = problem_of(half, nodes=nodes)
    assert cost(f, ((0,), (1,)))["total"] >= cost(f, ((0,), (0,)))["total"]


# -- memory and shares -------------------------------------------------------------------------------


def placed_on_one_gpu(the_jobs, nodes, **rules):
    """Largest number of the jobs that may be on GPU 0 together."""
    f = problem_of(the_jobs, nodes=nodes, max_tenants=None, **rules)
    fits = 0
    for n in range(1, f.problem.jobs + 1):
        if cost(f, tuple((0,) if i < n else None for i in range(f.problem.jobs))) is not None:
            fits = n
    return fits


def light(count, **fields):
    return jobs(count, **{"gpu_utilisation_pct": 0, **fields})


def test_requests_never_pass_the_card():
    card = [node(memory_mib=46_068, isolation="memory")]
    assert placed_on_one_gpu(light(24, gpu_memory_mib=2000), card) == 23
    card = [node(memory_mib=24_576, isolation="memory")]
    assert placed_on_one_gpu(light(3, gpu_memory_mib="12Gi"), card) == 2


def test_the_margin_is_kept_where_two_share_without_isolation():
    fenced, open_ = node(memory_mib=24_576, isolation="memory"), node(memory_mib=24_576)
    pair = light(2, gpu_memory_mib=12_288)
    assert placed_on_one_gpu(pair, [fenced]) == 2
    assert placed_on_one_gpu(pair, [open_]) == 1
    assert placed_on_one_gpu(pair, [open_], memory_margin_mib=0) == 2


def test_a_job_alone_may_fill_the_card_exactly():
    assert placed_on_one_gpu([job(gpu_memory_mib="80Gi")], [node(memory_mib=81_920)]) == 1
    f = problem_of([job(gpu_memory_mib="81Gi")], nodes=[node(memory_mib=81_920)])
    assert [e.reason for e in f.excluded] == ["never_fits"]


def test_memory_that_strangers_use_is_not_offered():
    def offered(unmanaged):
        return [node([gpu(memory_mib=24_576, unmanaged_memory_mib=unmanaged)], isolation="memory")]

    assert placed_on_one_gpu([job(gpu_memory_mib=3576)], offered(21_000)) == 1
    assert placed_on_one_gpu([job(gpu_memory_mib=3577)], offered(21_000)) == 0
    assert placed_on_one_gpu([job(gpu_memory_mib=1)], offered(None)) == 0  # unknown use: nobody joins
    assert placed_on_one_gpu([job(gpu_memory_mib=3576, shareable=False)], offered(21_000)) == 0


def test_a_card_that_does_not_report_its_memory_takes_no_memory_request():
    unknown = [node(memory_mib=None)]
    assert [e.reason for e in problem_of([job(gpu_memory_mib=1)], nodes=unknown).excluded] == ["never_fits"]
    assert placed_on_one_gpu([job(gpu_memory_mib=None)], unknown) == 1
    share = {"gpu_memory_mib": None, "gpu_utilisation_pct": None}
    assert placed_on_one_gpu(jobs(3, gpu_share_milli=400, **share), unknown) == 2  # shares need no figure


def test_shares_are_shares_of_memory_and_compute():
    def share(milli):
        return job(gpu_share_milli=milli, gpu_memory_mib=None, gpu_utilisation_pct=None)

    assert placed_on_one_gpu([share(600), share(600)], [node()]) == 1
    assert placed_on_one_gpu([share(600), share(400)], [node()]) == 2
    assert placed_on_one_gpu([share(500), share(500)], [node(memory_mib=40_961)]) == 2
    assert placed_on_one_gpu([share(333)] * 1 + [share(333), share(334)], [node()]) == 3


def test_shares_that_add_up_to_one_gpu_do_not_slow_each_other():
    shares = [job(gpu_share_milli=s, gpu_memory_mib=None, gpu_utilisation_pct=None) for s in (333, 333, 334)]
    f = problem_of(shares, max_tenants=None)
    assert cost(f, ((0,), (0,), (0,)))["interference"] == 0


def test_an_mps_server_divides_the_card_between_its_clients():
    mps = [node(memory_mib=46_068, sharing="mps", max_tenants=10)]
    assert placed_on_one_gpu([job(gpu_memory_mib=4606)], mps) == 1
    [out] = problem_of([job(gpu_memory_mib=6000)], nodes=mps).excluded
    assert out.reason == "never_fits"
    assert "4606 MiB" in out.detail


def test_oversubscription_is_given_only_where_it_is_stated():
    pair = light(2, gpu_memory_mib=24_000)
    assert placed_on_one_gpu(pair, [node(isolation="memory")]) == 1
    assert placed_on_one_gpu(pair, [node(isolation="memory", memory_factor=1.2)]) == 2


def test_shards_are_tokens():
    card = [node([gpu(shards=4)])]
    small = light(3, gpu_memory_mib=10_000)  # one of four shards is 10,240 MiB
    assert placed_on_one_gpu(small, card, memory_margin_mib=0) == 3
    larger = light(3, gpu_memory_mib=11_000)  # two shards each
    assert placed_on_one_gpu(larger, card, memory_margin_mib=0) == 2


def test_a_mig_instance_is_for_one_job_that_names_it():
    instance = gpu(slot="0:1g.5gb:0", model="a100-40gb:1g.5gb", memory_mib=4864, node="n0")
    nodes = [node([instance], name="n0")]
    asks = job(gpu_models=["a100-40gb:1g.5gb"], gpu_memory_mib=4000)
    assert placed_on_one_gpu([asks], nodes) == 1
    assert problem_of([job(gpu_memory_mib=4000)], nodes=nodes).excluded[0].reason == "never_fits"


@pytest.mark.parametrize("unknown", ["gpu_memory_mib", "gpu_utilisation_pct"])
def test_a_job_with_an_unknown_runs_alone_or_not_at_all(unknown):
    pair = [job(**{unknown: None}), job(gpu_utilisation_pct=1)]
    f = problem_of(pair)
    assert cost(f, ((0,), None)) is not None
    assert cost(f, ((0,), (0,))) is None


# -- consent, scope, time ----------------------------------------------------------------------------


def test_sharing_needs_the_consent_of_both():
    assert placed_on_one_gpu([job(), job()], [node()]) == 2
    assert placed_on_one_gpu([job(), job(shareable=False)], [node()]) == 1


def test_sharing_across_users_is_the_policys_choice():
    pair = [job(user="ada", gpu_utilisation_pct=1), job(user="bob", gpu_utilisation_pct=1)]
    assert placed_on_one_gpu(pair, [node()], share_across="user") == 1
    assert placed_on_one_gpu(pair, [node()], share_across="all") == 2
    unknown = [job(gpu_utilisation_pct=1), job(gpu_utilisation_pct=1)]
    assert placed_on_one_gpu(unknown, [node()], share_across="user") == 1


def test_never_with_names_jobs_or_profiles():
    assert placed_on_one_gpu([job(id="x"), job(never_with="x")], [node()]) == 1
    assert placed_on_one_gpu([job(profile="bert"), job(never_with="bert")], [node()]) == 1
    assert placed_on_one_gpu([job(profile="bert"), job(never_with="vgg")], [node()]) == 2


def test_a_job_shares_only_if_its_wall_time_is_safe():
    def pair(limit):
        # the first: 1000 s, p95 1250 s; slowdown 1.4, p95 1.5: 1875 s
        return [
            job(profile="a", duration_s=1000, time_limit_s=limit, gpu_utilisation_pct=10),
            job(profile="b", duration_s=1000),
        ]

    for limit, fits in ((1876, 2), (1874, 1)):
        f = problem_of(pair(limit), predictor=measured(("a", "b", 1.4), ("b", "a", 1.4)))
        both = cost(f, ((0,), (0,)))
        assert (both is not None) == (fits == 2)


# -- what is left out, and limits --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "held"}, "held"),
        ({"depends_on": "first"}, "dependency"),
        ({"depends_on": "nobody"}, "dependency"),
        ({"gpus": 16}, "never_fits"),
        ({"gpu_models": "h100-80gb"}, "never_fits"),
        ({"node_labels": {"rack": "r9"}}, "never_fits"),
        ({"host_memory_mib": 2000}, "never_fits"),
        ({"licences": {"matlab": 1}}, "licence"),
        ({"state": "held", "gpus": 16}, "held"),
        ({"licences": {"matlab": 1}, "gpus": 16}, "never_fits"),
    ],
)
def test_jobs_that_nothing_could_start_are_left_out_with_the_first_reason(fields, reason):
    f = problem_of([job(id="first"), job(**fields)], nodes=[node(8, host_memory_mib=1000)])
    assert [e.reason for e in f.excluded] == [reason]
    assert f.problem.jobs == 1


def test_a_queue_that_is_empty_and_a_cluster_without_gpus_still_make_a_problem():
    assert problem_of([], nodes=[node(4)]).problem.jobs == 0
    f = problem_of([job(), job()], nodes=[])
    assert [e.reason for e in f.excluded] == ["never_fits", "never_fits"]
    f = problem_of([job(), job(gpus=0)], nodes=[node(0)])
    assert [e.reason for e in f.excluded] == ["never_fits"]
    assert f.problem.jobs == 1


def test_quotas_licences_and_throttles_take_off_what_runs_already():
    running = job(
        queue="q", licences={"x": 1}, throttle=Throttle(group="a", max_running=2), running_on=["n0/0"]
    )
    waiting = [
        job(queue="q", licences={"x": 1}, throttle=Throttle(group="a", max_running=2)) for _ in range(3)
    ]
    state = snapshot([node(4, name="n0")], [running, *waiting], licences={"x": 3})
    f = problem_of(None, state=state, quotas=(Quota(queue="q", gpus=2),))
    assert {b.kind: b.capacity for b in f.problem.budgets} == {"quota": 1000, "licence": 2, "throttle": 1}


def test_an_unhealthy_gpu_and_a_drained_or_quarantined_node_take_nothing_new():
    carried = Carryover(quarantines=(Until(name="q", until_s=100, why="admission errors"),))
    nodes = [
        node([gpu(healthy=False), gpu()], name="a"),
        node(1, name="d", schedulable=False),
        node(1, name="q"),
    ]
    state = snapshot(nodes, [job()], carryover=carried)
    f = problem_of(None, state=state)
    assert list(f.problem.gpu_closed) == [True, False, True, True]
    later = state.model_copy(update={"now_s": 200.0})
    assert not problem_of(None, state=later).problem.gpu_closed[3]


def test_residents_that_overcommit_a_gpu_are_planned_around():
    pair = [job(gpu_memory_mib=30_000, running_on=["n0/0"]) for _ in range(2)]
    f = problem_of(None, state=snapshot([node(2, name="n0")], [*pair, job(gpu_memory_mib=1)]))
    assert cost(f, ((0,), (0,), (1,))) is not None
    assert cost(f, ((0,), (0,), (0,))) is None


def test_moves_need_the_policys_leave_and_the_end_of_the_cooldown():
    runs = job(movable=True, running_on=["n0/0"])

    def can_move(carried=None, **rules):
        state = snapshot([node(2, name="n0")], [runs], carryover=carried or Carryover())
        return bool(problem_of(None, state=state, **rules).problem.movable[0])

    assert not can_move()
    assert can_move(max_moves=1)
    cooling = Carryover(cooldowns=(Until(name=runs.id, until_s=10),))
    assert not can_move(cooling, max_moves=1)


def test_a_move_costs_the_checkpoint_and_the_restart():
    runs = job(gpus=2, priority=3, movable=True, checkpoint_s=30, running_on=["n0/0", "n0/1"])
    f = problem_of(None, state=snapshot([node(4, name="n0")], [runs]), max_moves=1, restart_s=20)
    assert cost(f, ((2, 3),))["moves"] == 3 * 2 * 50


def test_max_nodes_defaults_to_as_few_as_the_largest_allowed_node_makes_possible():
    nodes = [node(8), node(4, model="t4", memory_mib=15_360), node(4, model="t4", memory_mib=15_360)]

    def most(**fields):
        return int(problem_of([job(**fields)], nodes=nodes).problem.max_nodes[0])

    assert most(gpus=8) == 1
    assert most(gpus=8, gpu_models="t4") == 2
    assert most(gpus=4, gpus_per_node=2, gpu_models="t4") == 2
    assert most(gpus=2, max_nodes=2) == 2


def test_few_types_are_made_coarser_and_said():
    many = [job(gpu_utilisation_pct=u) for u in range(1, 61)]
    f = problem_of(many, interference_types=4)
    assert len(f.types) <= 4
    assert "rounded up to 25 points" in f.warnings[0]
    assert problem_of(many).types == tuple(f"{u}%" for u in range(5, 61, 5))


def test_profiles_that_are_too_rare_for_a_type_share_with_nobody():
    rows = [("a", "a", 1.1), ("a", "b", None), ("b", "a", None), *((f"p{i}", "a", 1.1) for i in range(6))]
    queue = [job(profile="a"), job(profile="a"), *(job(profile=p) for p in ("b", "p0", "p1", "p2"))]
    f = problem_of(queue, predictor=measured(*rows), interference_types=2)
    assert len(f.types) == 2
    assert "4 jobs of rare profiles share with nobody" in f.warnings[-1]
    both = [(0,) if i in {0, 1} else None for i in range(6)]
    assert cost(f, tuple(both)) is not None  # two of the common profile still share
    for other in range(2, 6):
        assert cost(f, tuple((0,) if i in {0, other} else None for i in range(6))) is None


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ({"cpus": 20}, "needs 20 CPUs; the largest node has 8"),
        ({"cpus": 4, "host_memory_mib": 9000}, "needs 9000 MiB of host memory; the largest node has 8000 MiB"),
        ({"cpus": 20, "host_memory_mib": 9000}, "needs 20 CPUs and 9000 MiB of host memory; the largest node has 8 CPUs and 8000 MiB"),
        ({"cpus": 6, "host_memory_mib": 6000}, "needs 6 CPUs and 6000 MiB of host memory; no node has both"),
        ({"cpus": 4, "host_memory_mib": 4000}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_host_that_is_too_small_is_told_by_what_it_lacks(gpus, asks, says):
    """A node without GPUs of its own does not count for a job that needs one."""
    nodes = [node(cpus=8, host_memory_mib=4000), node(cpus=4, host_memory_mib=8000)]
    nodes += [node(0, cpus=64, host_memory_mib=64_000)] if gpus else []
    excluded = problem_of([job(gpus=gpus, **asks)], nodes=nodes).excluded
    assert [e.detail for e in excluded] == ([says] if says else [])


def test_what_a_node_does_not_state_is_not_told():
    """Cores are counted on one node and not on the other, memory on neither."""
    pair = [node(cpus=8), node(cpus=4)]
    (excluded,) = problem_of([job(cpus=20, host_memory_mib=10**6)], nodes=pair).excluded
    assert excluded.detail == "needs 20 CPUs; the largest node has 8"
    gang = job(gpus=2, cpus=20, max_nodes=2)
    (excluded,) = problem_of([gang], nodes=[node(cpus=8), node()]).excluded
    assert excluded.detail == "needs 20 CPUs; the largest node has 8"


def test_a_job_of_which_nothing_is_known_is_not_called_rare():
    f = problem_of([job(profile="x", gpu_utilisation_pct=None), job()])
    assert [w for w in f.warnings if "rare" in w] == []
