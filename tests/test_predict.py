"""Forecasts: what is known is used with its margin, what is unknown stays None."""

import math

import pytest
from builders import job, policy, snapshot

from planner import predict
from planner.model import Carryover
from planner.policy import InterferenceSpec, PredictorSpec, TableRow
from planner.predict.interference import Tenant, build, slowdown


def forecast_of(one, *, now_s=0.0, peaks=None, **rules):
    carried = Carryover(memory_peaks={one.id: peaks} if peaks is not None else {})
    state = snapshot(jobs=[one], now_s=now_s, carryover=carried)
    return predict.forecast(state, policy(**rules), PredictorSpec()).jobs[0]


def test_a_declared_memory_figure_is_used_as_it_is():
    found = forecast_of(job(gpu_memory_mib=8000))
    assert (found.gpu_memory_mib, found.memory_source) == (8000, "declared")


def test_a_measured_peak_with_its_margin_replaces_a_smaller_declared_figure():
    found = forecast_of(job(gpu_memory_mib=8000), peaks=9000, memory_peak_margin=0.1)
    assert (found.gpu_memory_mib, found.memory_source) == (9900, "measured")


def test_a_measured_peak_below_the_declared_figure_changes_nothing():
    assert forecast_of(job(gpu_memory_mib=8000), peaks=7000).memory_source == "declared"


def test_unknown_memory_and_utilisation_stay_unknown():
    found = forecast_of(job(gpu_memory_mib=None, gpu_utilisation_pct=None, duration_s=None))
    assert found.gpu_memory_mib is None
    assert found.gpu_utilisation_pct is None
    assert found.remaining_s is None
    assert found.remaining_p90_s is None


def test_a_declared_share_bounds_the_utilisation():
    found = forecast_of(job(gpu_share_milli=300, gpu_utilisation_pct=80))
    assert found.gpu_utilisation_pct == 30


def test_a_share_stands_for_an_unknown_utilisation():
    found = forecast_of(job(gpu_share_milli=300, gpu_utilisation_pct=None))
    assert (found.gpu_utilisation_pct, found.utilisation_source) == (30, "share")


def test_remaining_time_takes_off_the_progress_that_is_known():
    running = job(duration_s=7200, progress=0.25, running_on=["n0/0"])
    assert forecast_of(running).remaining_s == 5400


def test_remaining_time_takes_off_the_time_run_where_progress_is_unknown():
    running = job(duration_s=7200, started_s=0, running_on=["n0/0"])
    assert forecast_of(running, now_s=1000).remaining_s == 6200


def test_remaining_time_is_never_below_one_epoch():
    running = job(duration_s=7200, started_s=0, running_on=["n0/0"])
    assert forecast_of(running, now_s=9000, epoch_s=300).remaining_s == 300


def test_the_time_limit_bounds_the_upper_value_of_the_remaining_time():
    assert forecast_of(job(duration_s=1000), duration_margin=0.5).remaining_p90_s == 1500
    assert forecast_of(job(duration_s=1000, time_limit_s=1200), duration_margin=0.5).remaining_p90_s == 1200
    assert forecast_of(job(duration_s=None, time_limit_s=1200)).remaining_p90_s == 1200


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (60, [40], 1.0),  # the sum is 100: flat up to there
        (100, [100], 2.0),  # excess 100 points, half of the pressure is the other's: 1 + 1 x 2 x 1/2
        (90, [60], 1 + 0.5 * 2 * 60 / 150),  # directed: the busier one feels less ...
        (60, [90], 1 + 0.5 * 2 * 90 / 150),  # ... and the other more
        (50, [50, 50], 1 + 0.5 * 2 * 100 / 150),  # set-wise: no pair of these passes 100
    ],
)
def test_the_hinge_is_flat_to_the_threshold_then_linear_and_directed(own, others, expected):
    model = build(InterferenceSpec(kind="utilisation"))
    found = slowdown(model, "a100-40gb", Tenant(None, own), [Tenant(None, u) for u in others])
    assert found == pytest.approx(expected)


def test_the_hinge_never_passes_its_cap():
    model = build(InterferenceSpec(kind="utilisation", cap=1.5))
    assert slowdown(model, "a100-40gb", Tenant(None, 100), [Tenant(None, 100)]) == 1.5


def test_an_unknown_utilisation_is_not_an_idle_gpu():
    model = build(InterferenceSpec())
    assert slowdown(model, "a100-40gb", Tenant(None, 50), [Tenant(None, None)]) is None
    assert not model.knows(Tenant("resnet", None))


def table(*rows):
    listed = tuple(TableRow(gpu_model=m, profile=a, beside=b, slowdown=s) for m, a, b, s in rows)
    return build(InterferenceSpec(kind="table", fallback="utilisation", rows=listed))


def test_a_table_is_directed_and_per_gpu_model():
    model = table(("v100-16gb", "a", "b", 1.5), ("v100-16gb", "b", "a", 1.1))
    a, b = Tenant("a", 10), Tenant("b", 10)
    assert slowdown(model, "v100-16gb", a, [b]) == 1.5
    assert slowdown(model, "v100-16gb", b, [a]) == pytest.approx(1.1)
    assert slowdown(model, "a100-40gb", a, [b]) == 1.0  # not in the table: what utilisation predicts


def test_excesses_of_a_table_add_for_three_or_more():
    model = table(("t4", "a", "b", 1.5), ("t4", "a", "c", 1.2))
    found = slowdown(model, "t4", Tenant("a", 10), [Tenant("b", 10), Tenant("c", 10)])
    assert found == pytest.approx(1.7)


def test_a_measured_pair_of_few_observations_is_drawn_towards_the_prediction():
    """The hinge says 1 + 1 x 2 x 1/2 = 2 of two busy jobs; one measurement of 1.4 counts 1 and the hinge 2."""

    def said(**fields):
        row = TableRow(gpu_model="t4", profile="a", beside="b", slowdown=1.4, **fields)
        spec = InterferenceSpec(kind="table", fallback="utilisation", rows=(row,), shrinkage=2)
        return slowdown(build(spec), "t4", Tenant("a", 100), [Tenant("b", 100)])

    assert said() == 1.4
    assert said(observations=1) == pytest.approx((1 * 1.4 + 2 * 2.0) / 3)
    assert said(observations=6) == pytest.approx((6 * 1.4 + 2 * 2.0) / 8)
    unknown = TableRow(gpu_model="t4", profile="a", beside="b", slowdown=1.4, observations=1)
    model = build(InterferenceSpec(kind="table", rows=(unknown,)))
    assert slowdown(model, "t4", Tenant("a", None), [Tenant("b", None)]) == 1.4  # nothing to be drawn towards


def test_an_empty_slowdown_in_a_table_means_must_not_share():
    model = table(("t4", "a", "b", None))
    assert slowdown(model, "t4", Tenant("a", 10), [Tenant("b", 10)]) is None


def test_a_pair_that_is_not_in_the_table_falls_back_to_utilisation():
    model = table(("t4", "a", "b", 1.5))
    a, stranger = Tenant("a", 80), Tenant("x", 60)
    assert slowdown(model, "t4", a, [stranger]) == pytest.approx(1 + 0.4 * 2 * 60 / 140)
    assert not model.is_measured("t4", a, stranger)
    assert slowdown(model, "t4", a, [Tenant("x", None)]) is None


def test_nothing_is_slower_than_alone_and_nobody_alone_is_slowed():
    model = build(InterferenceSpec())
    assert slowdown(model, "t4", Tenant(None, 100), []) == 1.0
    assert math.isclose(slowdown(model, "t4", Tenant(None, 0), [Tenant(None, 0)]), 1.0)
