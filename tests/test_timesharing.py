"""Time sharing against a Markov chain of jobs at one GPU, and what else the formulas of interference take in."""

from dataclasses import replace

import numpy as np
import pytest
from builders import job
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan import JobForecast
from planner.policy import InterferenceSpec
from planner.predict import coefficients, timesharing
from planner.predict.interference import Tenant, build, slowdown, tenant_of
from planner.predict.timesharing import EXACT, slowdowns

# -- the queue ---------------------------------------------------------------------------------------


def one(own, others, contention=1.0):
    """Slowdown of one victim."""
    return float(slowdowns(np.array([own]), others, contention)[0])


@pytest.mark.parametrize(("u", "v"), [(0.5, 0.5), (1, 1), (0.3, 0.9), (0, 1), (1, 0), (0.2, 0)])
def test_two_jobs_slow_each_other_down_by_the_product_of_their_shares(u, v):
    assert one(u, [v]) == pytest.approx(1 + u * v)
    assert one(u, [v], 0.5) == pytest.approx(1 + 0.5 * u * v)


def test_jobs_that_always_need_the_gpu_run_at_a_part_of_their_speed_each():
    for n in (2, 3, 5):
        assert one(1, [1] * (n - 1)) == pytest.approx(n)


def test_a_job_alone_beside_idle_ones_or_without_contention_is_not_slowed():
    assert one(0.9, []) == 1
    assert one(0.9, [0, 0, 0]) == 1
    assert one(0.0, [1, 1]) == 1
    assert one(1.0, [1] * 3, 0.0) == one(1.0, [1] * (EXACT + 1), 0.0) == 1


def test_an_unknown_share_of_a_neighbour_is_unknown_for_all_and_of_a_victim_for_it():
    assert np.isnan(slowdowns(np.array([0.2, 0.3]), [0.5, float("nan")], 1.0)).all()
    found = slowdowns(np.array([0.2, np.nan]), [0.5], 1.0)
    assert (found[0], np.isnan(found[1])) == (pytest.approx(1.1), True)


def chain(busy):
    """Slowdown of each job of a closed queue with processor sharing, from its Markov chain.

    State: who is at the GPU. Alone, a job is there for u and elsewhere for 1 - u of a time unit, so that it
    comes back once in each; beside others, it comes back less often by its slowdown.
    """
    n = len(busy)
    rates = np.zeros((1 << n, 1 << n))
    for state in range(1 << n):
        there = state.bit_count()
        for i, u in enumerate(busy):
            rates[state, state ^ (1 << i)] = 1 / u / there if state >> i & 1 else 1 / (1 - u)
    rates -= np.diag(rates.sum(1))
    balance = np.vstack([rates.T, np.ones(1 << n)])
    share = np.linalg.lstsq(balance, np.append(np.zeros(1 << n), 1.0), rcond=None)[0]
    served = [
        sum(share[s] / u / s.bit_count() for s in range(1 << n) if s >> i & 1) for i, u in enumerate(busy)
    ]
    return 1 / np.array(served)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_slowdowns_are_those_of_the_markov_chain(n, seed):
    busy = np.random.default_rng(seed).uniform(0.05, 0.95, n).tolist()
    found = [one(u, busy[:i] + busy[i + 1 :]) for i, u in enumerate(busy)]
    assert found == pytest.approx(chain(busy), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_fixed_point_is_near_the_exact_value_and_not_below_it(seed):
    """Within 5 % of the slowdown, for up to seven neighbours."""
    rng = np.random.default_rng(seed)
    for n in range(2, EXACT + 1):
        busy = rng.uniform(0, 1, n).tolist()
        exact = 1 + sum(timesharing._exact(tuple(busy), 1.0))
        near = 1 + sum(timesharing._fixed_point(busy, 1.0))
        assert exact - 1e-9 <= near <= 1.05 * exact


def test_many_neighbours_go_by_the_fixed_point():
    busy = [0.6] * (EXACT + 1)
    assert one(0.5, busy) == pytest.approx(1 + 0.5 * sum(timesharing._fixed_point(busy, 1.0)))
    assert sum(timesharing._fixed_point(busy, 1.0)) == pytest.approx(
        sum(timesharing._fixed_point(busy, 1.0)), rel=1e-9
    )


part = st.floats(0, 1)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(own=part, others=st.lists(part, min_size=1, max_size=EXACT + 1), new=part, felt=part, data=st.data())
def test_a_busier_or_another_neighbour_never_means_less_slowdown(own, others, new, felt, data):
    before = one(own, others, felt)
    assert 1 <= before <= 1 + own * len(others) + 1e-9
    assert one(own, [*others, new], felt) >= before - 1e-6
    at = data.draw(st.integers(0, len(others) - 1))
    busier = [max(new, u) if i == at else u for i, u in enumerate(others)]
    assert one(own, busier, felt) >= before - 1e-6
    assert one(max(own, new), others, felt) >= before - 1e-9


def test_the_order_of_the_neighbours_does_not_matter():
    assert one(0.4, [0.9, 0.1, 0.5]) == pytest.approx(one(0.4, [0.5, 0.9, 0.1]), rel=1e-12)


# -- the model ---------------------------------------------------------------------------------------


def busy(use, *, share=False):
    return Tenant(None, use, share=share)


def model(**fields):
    return build(InterferenceSpec(kind="time-sharing", **{"contention": 1.0, **fields}))


def felt(victim, *others, gpu="t4", **fields):
    return slowdown(model(**fields), gpu, victim, others)


def test_the_model_takes_utilisations_in_percent_a_cap_and_a_margin():
    assert felt(busy(50), busy(60)) == pytest.approx(1.3)
    assert felt(busy(100), busy(100), cap=1.7) == 1.7
    assert felt(busy(50), busy(60), margin=0.5) == pytest.approx(1.45)
    assert felt(busy(50), busy(60), contention=0.5) == pytest.approx(1.15)


def test_an_unknown_utilisation_is_not_an_idle_gpu():
    assert felt(busy(50), busy(None)) is None
    assert felt(busy(None), busy(50)) is None
    assert felt(busy(50, share=True), busy(30, share=True), busy(None)) is None
    assert not model().knows(busy(None))


def test_declared_shares_that_add_up_to_a_gpu_do_not_disturb_each_other_and_larger_ones_do():
    half, forty, sixty = (busy(u, share=True) for u in (50, 40, 60))
    assert felt(half, half) == 1
    assert felt(half, sixty) == pytest.approx(1.3)
    assert felt(forty, busy(30, share=True), busy(30, share=True)) == 1
    three = felt(forty, forty, forty)
    assert three == pytest.approx(one(0.4, [0.4, 0.4]))


def test_a_job_without_a_share_disturbs_and_feels_those_with_one():
    half, free = busy(50, share=True), busy(40)
    assert felt(half, free) == felt(free, half) == pytest.approx(1.2)
    assert felt(half, half, free) == pytest.approx(1.2)
    assert felt(free, half, half) == pytest.approx(one(0.4, [0.5, 0.5]))


def test_victims_of_both_kinds_are_answered_in_their_order():
    victims = [busy(50, share=True), busy(50), busy(70, share=True), busy(None)]
    found = model().slowdowns("t4", victims, [busy(50, share=True)])
    assert found[:3] == pytest.approx([1, 1.25, 1.35])
    assert np.isnan(found[3])


def test_contention_is_that_of_the_gpu_model_unless_it_is_said():
    told = coefficients.interference()["parameters"]
    assert told["contention"]
    for name, value in told["contention"].items():
        assert 0 <= value <= 1
        assert felt(busy(50), busy(50), gpu=name, contention=None) == pytest.approx(1 + 0.25 * value)
    assert coefficients.contention_of("abacus") == told["contention_elsewhere"]
    assert coefficients.contention_of("abacus:1g.5gb") == told["contention_elsewhere"]
    k80 = told["contention"]["k80"]
    assert coefficients.contention_of("Tesla K80") == k80 != told["contention_elsewhere"]


# -- the hinge, and its bandwidth and CPUs -----------------------------------------------------------


def hinge(victim, *others, **fields):
    return slowdown(build(InterferenceSpec(kind="utilisation", **fields)), "t4", victim, others)


def wide(use, bandwidth=None, cpus=None):
    return Tenant(None, use, bandwidth_pct=bandwidth, cpus=cpus)


def test_bandwidth_slows_from_its_own_threshold():
    # The sum is 140: 40 points of excess, of which a victim of 60 feels twice 80 / 140.
    assert hinge(wide(10, 60), wide(10, 80)) == pytest.approx(1 + 0.4 * 2 * 80 / 140)
    assert hinge(wide(10, 20), wide(10, 80)) == 1
    assert hinge(wide(10, 60), wide(10, 80), bandwidth_threshold_pct=140) == 1
    assert hinge(wide(10, 60), wide(10, 60), bandwidth_slope=0.5) == pytest.approx(1.1)


def test_the_more_contended_of_utilisation_and_bandwidth_decides():
    both = hinge(wide(90, 60), wide(90, 60))
    assert both == hinge(wide(90), wide(90)) == pytest.approx(1.8)
    assert hinge(wide(60, 90), wide(60, 90)) == pytest.approx(1.8)


def test_unknown_bandwidth_slows_nobody():
    assert hinge(wide(90, 90), wide(30, None)) == hinge(wide(90), wide(30)) == pytest.approx(1.1)


def test_cpus_slow_beyond_the_cores_of_a_gpu_and_are_added():
    assert hinge(wide(10, cpus=6), wide(10, cpus=6), cores_per_gpu=8) == pytest.approx(1.5)
    assert hinge(wide(10, cpus=4), wide(10, cpus=4), cores_per_gpu=8) == 1
    assert hinge(wide(10, cpus=6), wide(10, cpus=6), cores_per_gpu=8, cpu_slope=0.5) == pytest.approx(1.25)
    assert hinge(wide(90, cpus=6), wide(90, cpus=6), cores_per_gpu=8) == pytest.approx(2.3)
    assert hinge(wide(10, cpus=60), wide(10, cpus=60)) == 1


def test_the_hinge_takes_its_margin_on_the_whole_excess_and_its_cap_after_it():
    said = {"cores_per_gpu": 8, "margin": 0.5}
    assert hinge(wide(90, cpus=6), wide(90, cpus=6), **said) == pytest.approx(1 + 1.3 * 1.5)
    assert hinge(wide(90, cpus=6), wide(90, cpus=6), cap=1.9, **said) == 1.9


# -- tenants -----------------------------------------------------------------------------------------


def test_a_tenant_is_what_a_job_and_its_forecast_say():
    told = job(profile="loom", gpus=2, cpus=12, gpu_bandwidth_pct=35, gpu_share_milli=300)
    found = tenant_of(told, JobForecast(job_id=told.id, gpu_utilisation_pct=25))
    assert found == Tenant("loom", 25, share=True, bandwidth_pct=35, cpus=6)


def test_what_is_not_said_of_a_job_is_unknown():
    told = job(gpu_utilisation_pct=None)
    assert tenant_of(told, JobForecast(job_id=told.id)) == Tenant(None, None)
    without = job(gpus=0, cpus=8)
    assert tenant_of(without, JobForecast(job_id=without.id)).cpus is None


def test_models_say_what_they_look_at():
    """Jobs that differ in nothing else may be planned as one kind."""
    base = Tenant("loom", 60, share=False, bandwidth_pct=50, cpus=5)
    other = {"profile": "mill", "share": True, "bandwidth_pct": 90, "cpus": 9}
    for spec in (
        InterferenceSpec(kind="utilisation"),
        InterferenceSpec(kind="utilisation", cores_per_gpu=8),
        InterferenceSpec(kind="time-sharing"),
    ):
        made = build(spec)
        beside = [replace(base, share=True, utilisation_pct=40)]
        before = slowdown(made, "t4", base, beside)
        changes = {
            key for key, value in other.items() if slowdown(made, "t4", replace(base, **{key: value}), beside) != before
        }  # fmt: skip
        assert changes == made.uses
