"""Learned slowdowns: trees that predict as scikit-learn does, jobs as numbers, spreads, and measures worked by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.predict.fit_pairs import Data, fit_model, spread
from planner.predict.learned import SLOWEST, Ask, Encoder, Entry, Fitted, Spread
from planner.predict.pairs import Alone, Work
from planner.predict.scores import Predicted, area_under_roc, measures, rank_correlation, scores_of
from planner.predict.trees import Trees, grow
from planner.predict.works import Works

# -- trees -------------------------------------------------------------------------------------------


def rows(n=300, seed=0, unknown=0.2):
    """Features, a fifth of them unknown, and what falls with the first and rises with the second."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = -np.tanh(x[:, 0]) + 0.5 * x[:, 1] + np.sin(3 * x[:, 2]) + 0.1 * rng.normal(size=n)
    x[rng.random(x.shape) < unknown] = np.nan
    return x, y


@pytest.fixture(scope="module")
def grown():
    """Trees that fall with the first feature and rise with the second."""
    pytest.importorskip("sklearn")
    return grow(*rows(), [-1, 1, 0, 0], rounds=60)


@pytest.mark.parametrize("seed", range(4))
def test_exported_trees_predict_as_scikit_learn_does(monkeypatch, seed):
    ensemble = pytest.importorskip("sklearn.ensemble")
    kept = []

    class Kept(ensemble.HistGradientBoostingRegressor):
        def __init__(self, **options):
            super().__init__(**options)
            kept.append(self)

    monkeypatch.setattr(ensemble, "HistGradientBoostingRegressor", Kept)
    x, y = rows(seed=seed)
    x[:, 3] = [np.nan, 1.0, 1.0] * 100  # where unknown or not is all that can be told
    y += np.isnan(x[:, 3])
    trees = grow(x, y, [-1, 1, 0, 0], rounds=50, leaf=5)
    splits = np.repeat(trees.threshold.reshape(-1, 1), 4, axis=1)  # what is at a threshold goes left
    asked = np.concatenate([x, 10 * rows(seed=seed + 100)[0], splits, np.full((1, 4), np.nan)])
    assert trees.predict(asked) == pytest.approx(kept[0].predict(asked), abs=1e-12)
    assert np.ptp(trees.predict(asked)) > 1


finite = st.floats(-5, 5)
row = st.lists(finite | st.just(float("nan")), min_size=4, max_size=4)


def test_trees_are_monotone_where_they_must_be(grown):
    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(row=row, a=finite, b=finite)
    def holds(row, a, b):
        low, high = sorted((a, b))
        x = np.array([row] * 4)
        x[0, 0], x[1, 0], x[2, 1], x[3, 1] = low, high, low, high
        found = grown.predict(x)
        assert found[0] >= found[1] - 1e-12
        assert found[2] <= found[3] + 1e-12

    holds()


def test_trees_that_need_not_be_monotone_are_not(grown):
    x = np.zeros((50, 4))
    x[:, 2] = np.linspace(-2, 2, 50)
    step = np.diff(grown.predict(x))
    assert step.min() < -0.1 and step.max() > 0.1


def test_a_column_that_is_unknown_everywhere_changes_nothing():
    pytest.importorskip("sklearn")
    x, y = rows()
    blank = np.column_stack([x, np.full(len(x), np.nan)])
    without, beside = grow(x, y, [0] * 4, rounds=20), grow(blank, y, [0] * 5, rounds=20)
    assert (beside.predict(blank) == without.predict(x)).all()
    known = np.column_stack([x, np.linspace(-9, 9, len(x))])  # it is known later
    assert (beside.predict(known) == without.predict(x)).all()


def test_trees_read_from_their_json_predict_the_same(grown):
    again = Trees.of_json(json.loads(json.dumps(grown.as_json(), allow_nan=False)))
    x = rows(seed=9)[0]
    assert (again.predict(x) == grown.predict(x)).all()
    assert again.predict(np.zeros((0, 4))).shape == (0,)


# -- jobs as numbers ---------------------------------------------------------------------------------


def entry(name="loom", use=50.0, *, gpu="t4", bandwidth=20.0, memory=1000.0, step_s=1.0):
    return Entry(gpu, Work(name, batch=8, mixed=False), Alone(use, bandwidth, memory, step_s))


def encoder():
    works = Works({}, ())
    width = len(works.columns)
    return Encoder(works, ("t4",), np.zeros(width), np.ones(width))


def told(ask):
    made = encoder()
    return dict(zip(made.columns, made.features([ask])[0].tolist(), strict=True))


def test_features_are_the_victim_the_sum_and_the_largest_of_the_others_and_what_they_come_to():
    beside = (
        entry("mill", 30.0, bandwidth=5.0),
        entry("kiln", 40.0, bandwidth=9.0, memory=3000.0, step_s=np.e),
    )
    found = told(Ask(entry(), beside))
    assert {k: found[k] for k in ("victim:utilisation_pct", "sum:utilisation_pct", "max:utilisation_pct", "sum:memory_mib", "max:memory_mib", "max:bandwidth_pct")} == {
        "victim:utilisation_pct": 50, "sum:utilisation_pct": 70, "max:utilisation_pct": 40,
        "sum:memory_mib": 4000, "max:memory_mib": 3000, "max:bandwidth_pct": 9,
    }  # fmt: skip
    assert {k: found[k] for k in ("total_utilisation", "excess_utilisation", "product_utilisation", "total_bandwidth", "steps_ratio", "gpu_bandwidth_gb_s")} == {
        "total_utilisation": 120, "excess_utilisation": 20, "product_utilisation": 35, "total_bandwidth": 34,
        "steps_ratio": pytest.approx(-1), "gpu_bandwidth_gb_s": 320,
    }  # fmt: skip


def test_no_excess_is_zero_and_what_is_unknown_of_one_job_is_unknown_of_the_sum():
    assert told(Ask(entry(), (entry("mill", 50.0),)))["excess_utilisation"] == 0
    found = told(Ask(entry(gpu="abacus"), (entry("mill"), entry("kiln", None))))
    unknown = {k for k, v in found.items() if np.isnan(v)}
    assert {"sum:utilisation_pct", "max:utilisation_pct", "total_utilisation", "excess_utilisation", "product_utilisation", "gpu_bandwidth_gb_s"} <= unknown  # fmt: skip
    assert not {"victim:utilisation_pct", "sum:memory_mib", "total_bandwidth"} & unknown


def test_more_contention_may_never_mean_more_speed():
    made = encoder()
    falls = {c for c, m in zip(made.columns, made.monotone, strict=True) if m == -1}
    assert falls == {
        "sum:utilisation_pct", "max:utilisation_pct", "sum:bandwidth_pct", "max:bandwidth_pct",
        "total_utilisation", "excess_utilisation", "product_utilisation", "total_bandwidth",
    }  # fmt: skip


def test_no_asks_have_no_rows():
    made = encoder()
    assert made.features([]).shape == (0, len(made.columns))
    assert made.jobs([]).z.shape == (0, len(made.mean))
    assert encoder().cells([])[1].gpu.shape == (0,)


def test_jobs_are_standardised_held_within_four_deviations_and_at_the_mean_where_unknown():
    plain = encoder()
    made = replace(plain, mean=np.full(len(plain.mean), 40.0), deviation=np.full(len(plain.mean), 2.0))
    z = made.jobs([entry(use=43.0, bandwidth=None, memory=90.0)]).z[0]
    assert z[:3].tolist() == [1.5, 0, 4]


def test_cells_number_each_job_once_and_a_strange_gpu_model_minus_one():
    a, b = entry("a"), entry("b")
    elsewhere = entry("a", gpu="v100")
    jobs, cells = encoder().cells([Ask(a, (b,)), Ask(b, (a,)), Ask(elsewhere, (b, a))])
    assert [w.name for w in jobs.works] == ["a", "b", "a"]
    assert (cells.gpu.tolist(), cells.victim.tolist(), cells.beside.tolist()) == (
        [0, 0, -1],
        [0, 1, 2],
        [1, 0, 1],
    )


# -- fitted ------------------------------------------------------------------------------------------


def data(n=14, *, gpus=("t4",), seed=0):
    """Jobs that take turns, all pairs."""
    rng = np.random.default_rng(seed)
    use = rng.uniform(10, 100, n)
    asks, speed, pair = [], [], []
    for g in gpus:
        made = [entry(f"w{i:02}", float(u), gpu=g, bandwidth=float(u) / 2) for i, u in enumerate(use)]
        for i in range(n):
            for j in range(i, n):
                asks += [Ask(made[i], (made[j],)), Ask(made[j], (made[i],))]
                speed += [1 / (1 + use[i] * use[j] / 1e4)] * 2
                pair += [len(pair) // 2] * 2
    return Data(tuple(asks), np.array(speed), np.array(pair))


@pytest.fixture(scope="module")
def learned():
    """Trees alone, of one GPU model."""
    pytest.importorskip("sklearn")
    return fit_model(data(), {}, "learned")


SPREADS = {"known": Spread(0.02, 0.1, 1.0), "unknown": Spread(0.05, 0.3, 1.5)}


def test_a_busier_neighbour_never_means_less_slowdown(learned):
    percent = st.floats(0, 100)

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(own=percent, others=st.lists(percent, min_size=1, max_size=3), more=st.floats(0, 50))
    def holds(own, others, more):
        asks = [
            Ask(entry("w00", own), tuple(entry("w01", u) for u in uses))
            for uses in (others, [others[0] + more, *others[1:]])
        ]
        before, after = learned.speeds(asks)
        assert after <= before + 1e-12

    holds()


def test_a_learned_model_tells_busy_neighbours_from_idle_ones(learned):
    idle, busy = learned.speeds([Ask(entry("w00", 80), (entry("w01", u),)) for u in (10, 90)])
    assert idle - busy > 0.2


def test_a_blend_lies_between_its_parts_by_its_share():
    pytest.importorskip("sklearn")
    whole = fit_model(data(8), {}, "blend")
    whole = replace(whole, trees=replace(whole.trees, base=whole.trees.base - 0.1))
    asks = data(8).asks[:6]

    def speeds(known):
        return replace(whole, share={"known": known, "unknown": 0.0}).speeds(asks)

    assert speeds(0.25) == pytest.approx(0.25 * speeds(1.0) + 0.75 * speeds(0.0))
    assert np.abs(speeds(1.0) - speeds(0.0)).max() > 0.05


@pytest.fixture(scope="module")
def alike():
    """Likeness alone, of one GPU model, with spreads."""
    return replace(fit_model(data(10), {}, "similarity"), spread=SPREADS)


def test_a_pair_is_known_if_both_jobs_and_the_gpu_model_were_measured(alike):
    w0, w1, new = entry("w00"), entry("w01"), entry("new")
    asks = [Ask(w0, (w1,)), Ask(w0, (new,)), Ask(new, (w0,)), Ask(w0, (w1, new)), Ask(replace(w0, gpu_model="v100"), (replace(w1, gpu_model="v100"),))]  # fmt: skip
    assert alike.groups(asks) == ["known", "unknown", "unknown", "unknown", "unknown"]


def test_speeds_are_held_between_the_slowest_and_one(alike):
    far = replace(alike, similarity=replace(alike.similarity, speed=np.linspace(-3, 4, 110)))
    found = far.speeds(data(10).asks)
    assert (found.min(), found.max()) == (SLOWEST, 1.0)


def test_slow_speeds_are_never_above_the_mean_and_follow_the_group_and_the_gpu_model(alike):
    asks = [Ask(entry("w00"), (entry("w01"),)), Ask(entry("new"), (entry("w01"),))]
    mean = np.array([0.8, 0.8])
    # Known: 0.02 + 0.1 x 0.2 = 0.04 below; unknown: 1.5 (0.05 + 0.3 x 0.2) = 0.165 below.
    assert alike.slow_speeds(asks, mean) == pytest.approx([0.76, 0.635])
    own = replace(alike, spread=SPREADS | {"known t4": Spread(0.1, 0.0, 1.0)})
    assert own.slow_speeds(asks, mean) == pytest.approx([0.7, 0.635])


@pytest.mark.parametrize("method", ["blend", "learned", "similarity"])
def test_a_fitted_model_read_from_its_json_predicts_the_same(method):
    if method != "similarity":
        pytest.importorskip("sklearn")
    whole = replace(fit_model(data(8), {}, method), spread=SPREADS)
    again = Fitted.of_json(method, json.loads(json.dumps(whole.as_json(), allow_nan=False)))
    asks = [*data(8).asks, Ask(entry("new"), (entry("w00", None),))]
    speeds = whole.speeds(asks)
    assert (again.speeds(asks) == speeds).all()
    assert (again.slow_speeds(asks, speeds) == whole.slow_speeds(asks, speeds)).all()


def test_the_json_of_a_model_does_not_depend_on_the_order_of_a_set(alike):
    known = [Work(f"w{i}", batch=8, mixed=m) for i in range(30) for m in (None, False)]
    told = replace(alike, known=frozenset(known)).as_json()["known"]
    assert told == sorted(told, key=lambda w: (Work(*w).key, w[3] is None))


# -- spreads -----------------------------------------------------------------------------------------


@settings(max_examples=200, derandomize=True)
@given(
    base=st.floats(0.01, 0.3), growth=st.floats(0, 2), quantile=st.floats(-2, 3), a=st.floats(SLOWEST, 1), b=st.floats(SLOWEST, 1)
)  # fmt: skip
def test_the_slow_speed_is_never_above_the_mean_and_lies_further_off_the_more_is_lost(
    base, growth, quantile, a, b
):
    slow, fast = sorted((a, b))
    below = Spread(base, growth, quantile).below(np.array([slow, fast]))
    assert SLOWEST <= below[0] <= slow and SLOWEST <= below[1] <= fast
    if below[0] > SLOWEST:
        assert slow - below[0] >= fast - below[1] - 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_one_in_ten_is_below_the_slow_speed(seed):
    rng = np.random.default_rng(seed)
    said = rng.uniform(0.4, 1, 4000)
    true = said + rng.normal(size=4000) * (0.01 + 0.2 * (1 - said))
    found = spread(said[:2000], true[:2000])
    below = (true[2000:] < found.below(said[2000:])).mean()
    assert below == pytest.approx(0.1, abs=0.025)
    # The error grows with the loss: the mean of |normal| is 0.8 deviations.
    assert found.growth == pytest.approx(0.16, abs=0.04)
    halves = [(true < found.below(said))[which].mean() for which in (said < 0.7, said >= 0.7)]
    assert halves == pytest.approx([0.1, 0.1], abs=0.03)


def test_predictions_that_are_all_right_or_all_alike_have_a_spread_too():
    exact = spread(np.array([0.5, 0.7, 1.0]), np.array([0.5, 0.7, 1.0]))
    assert exact.below(np.array([0.8])) == pytest.approx([0.8], abs=1e-6)
    alike = spread(np.full(9, 0.8), 0.8 - np.linspace(0, 0.08, 9))
    assert alike.below(np.array([0.8])) == pytest.approx([0.72])


def test_predictions_that_are_too_low_are_not_raised():
    found = spread(np.linspace(0.5, 0.9, 20), np.full(20, 1.0))
    assert (found.below(np.array([0.6, 0.8])) == [0.6, 0.8]).all()


# -- scores ------------------------------------------------------------------------------------------


def test_measures_worked_by_hand():
    speed, true = np.array([0.9, 0.6, 0.7]), np.array([1.0, 0.5, 0.7])
    slow = np.array([0.8, 0.55, 0.7])
    # Slowed a lot: the second and third, of whom the model says least and second least.
    assert measures(speed, true, slow) == {
        "mae_speed": pytest.approx(0.2 / 3),
        "bias": pytest.approx(0.0),
        "rank": pytest.approx(1.0),
        "auc": 1.0,
        "beyond_p90": pytest.approx(1 / 3),
    }
    assert measures(speed, true)["beyond_p90"] is None


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order_ties_half():
    score, positive = np.array([3.0, 1.0, 2.0, 1.0]), np.array([True, True, False, False])
    # Of four pairs (positive, negative): 3 > 2, 3 > 1, 1 < 2, 1 = 1.
    assert area_under_roc(score, positive) == pytest.approx(2.5 / 4)
    assert area_under_roc(score, np.ones(4, bool)) is None
    assert area_under_roc(score, np.zeros(4, bool)) is None


def test_rank_correlation_looks_at_the_order_only():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert rank_correlation(x, np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx(-1)
    assert rank_correlation(x, np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    assert rank_correlation(x, np.ones(4)) is None
    assert rank_correlation(x[:1], x[:1]) is None


def test_scores_are_of_all_rows_of_each_gpu_model_and_of_each_victims_name():
    asks = [Ask(entry("a", gpu=g), (entry("b", gpu=g),)) for g in ("t4", "v100", "t4")]
    said = Predicted("m", asks, np.array([0.5, 0.9, np.nan]), np.array([0.6, 0.6, 0.1]), None)
    found = {
        (s.split, s.group): (s.rows, round(s.values["mae_speed"], 9)) for s in scores_of("random", [said])
    }
    assert found == {
        ("random", "all"): (2, 0.2),
        ("random", "GPU t4"): (1, 0.1),
        ("random", "GPU v100"): (1, 0.3),
        ("random", "model a"): (2, 0.2),
    }
    silent = replace(said, speed=np.full(3, np.nan))
    assert scores_of("random", [silent]) == []
