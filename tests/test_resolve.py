"""A fitted model in a plan: the table of what is in the queue, what is said of the rest, and a plan that needs no model."""

import json
import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from builders import job, node, policy, snapshot
from measured import NAMES, made_up

from planner import predict
from planner.epoch import plan_epoch
from planner.errors import InputError
from planner.policy import InterferenceSpec, PredictorSpec
from planner.predict.fit_pairs import fit_files
from planner.predict.model_file import text_of
from planner.validate import problems_of


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of likeness, in its file: eight kinds of work, each of k80 and v100."""
    folder = tmp_path_factory.mktemp("model")
    made = made_up(folder, names=NAMES[:4])
    path = folder / "pairs.json"
    path.write_text(text_of(fit_files(made.pairs, made.profiles, "similarity")))
    return path


def queue(*profiles, gpus=("k80",), **fields):
    """A job of each profile, and a node of each GPU model."""
    nodes = [node(model=m, memory_mib=16000) for m in gpus]
    return snapshot(nodes, [job(profile=p, **fields) for p in profiles])


def forecast(model, state, fallback="time-sharing", **rules):
    spec = InterferenceSpec(kind="model", path=str(model), fallback=fallback)
    return predict.forecast(state, policy(**rules), PredictorSpec(interference=spec))


def table(model, state, **rules):
    return forecast(model, state, **rules).predictor.interference


def rows(spec):
    return {(r.gpu_model, r.profile, r.beside): r.slowdown for r in spec.rows}


# -- the table ---------------------------------------------------------------------------------------


def test_a_model_becomes_a_table_of_all_pairs_of_the_queue_on_the_gpus_there(model):
    found = forecast(model, queue("kiln:16", "Loom:64", gpus=("v100", "k80")))
    spec = found.predictor.interference
    names = ("kiln:16", "Loom:64")
    assert set(rows(spec)) == set(product(("k80", "v100"), names, names))
    assert min(rows(spec).values()) >= 1 < max(rows(spec).values())
    assert (spec.kind, spec.path, spec.fallback, found.warnings) == ("table", None, "time-sharing", ())
    assert spec.rows_from.startswith("pairs.json, sha256:")


def test_rows_are_what_the_model_was_fitted_on(model):
    """Measured without much noise, so that they are predicted nearly as they were."""
    found = rows(table(model, queue("kiln:16", "loom:64", gpus=("v100",))))
    lines = (model.parent / "pairs.csv").read_text().splitlines()
    measured = next(x.split(",") for x in lines if x.startswith("v100,kiln,16,0,loom,64,0,"))
    assert found["v100", "kiln:16", "loom:64"] == pytest.approx(float(measured[-2]), abs=0.05)
    assert found["v100", "loom:64", "kiln:16"] == pytest.approx(float(measured[-1]), abs=0.05)


def test_rows_of_the_p90_are_never_below_those_of_the_mean(model):
    state = queue(*(f"{n}:16" for n in NAMES[:4]))
    mean, upper = (table(model, state, slowdown_quantile=q) for q in ("mean", "p90"))
    assert rows(mean).keys() == rows(upper).keys()
    assert all(rows(upper)[k] >= v for k, v in rows(mean).items())
    assert sum(rows(upper)[k] > v for k, v in rows(mean).items()) > 10
    assert (mean.margin, upper.margin) == (0, policy().slowdown_margin)


def test_a_job_without_gpus_or_without_a_profile_has_no_row(model):
    state = snapshot([node(model="k80")], [job(profile="kiln:16", gpus=0), job(profile=None), job(profile="mill:16")])  # fmt: skip
    found = forecast(model, state)
    assert set(rows(found.predictor.interference)) == {("k80", "mill:16", "mill:16")}
    assert found.warnings == ()


def test_only_the_most_common_profiles_have_rows_where_there_are_too_many(model):
    state = queue("kiln:16", "kiln:64", "kiln:64", "loom:16", "loom:16", "loom:16", "nobody", "nobody", "nobody", "nobody")  # fmt: skip
    found = rows(table(model, state, interference_types=2))
    assert Counter(victim for _, victim, _ in found) == {"loom:16": 2, "kiln:64": 2}


def test_profiles_that_the_model_does_not_know_are_told_with_their_jobs(model):
    found = forecast(model, queue("kiln:16", "saw", "saw", "kiln"), fallback="utilisation")
    assert set(rows(found.predictor.interference)) == {("k80", "kiln:16", "kiln:16")}
    assert found.warnings == (
        "the model of slowdowns knows no profile kiln, saw (3 jobs): utilisation is used beside them",
    )


def test_many_strange_profiles_are_told_in_one_line(model):
    (said,) = forecast(model, queue(*(f"saw{i}" for i in range(6)))).warnings
    assert said == "the model of slowdowns knows no profile saw0, saw1, saw2, saw3 and 2 more (6 jobs): time-sharing is used beside them"  # fmt: skip


def test_a_gpu_model_that_the_model_was_not_fitted_on_is_told_and_has_no_rows(model):
    found = forecast(model, queue("kiln:16", gpus=("k80", "t4", "l4")))
    assert {gpu for gpu, _, _ in rows(found.predictor.interference)} == {"k80"}
    assert found.warnings == ("the model of slowdowns was not fitted on l4, t4: time-sharing is used there",)


def test_a_file_that_changes_is_read_again(model, tmp_path):
    path = tmp_path / "m.json"
    whole = json.loads(model.read_text())
    said = set()
    for second, digest in enumerate(("first", "other")):
        whole["training"]["digest"] = digest
        path.write_text(json.dumps(whole))
        os.utime(path, (second, second))
        said.add(table(path, queue("kiln:16")).rows_from)
    assert said == {"m.json, first", "m.json, other"}


@pytest.mark.parametrize("text", [None, "{}", "no"])
def test_a_model_that_cannot_be_read_is_refused(tmp_path, text):
    path = tmp_path / "m.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"m\.json: "):
        forecast(path, queue("kiln:16"))


# -- other kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["utilisation", "time-sharing"])
def test_a_formula_has_the_margin_of_the_p90_and_nothing_else(kind):
    predictor = PredictorSpec(interference=InterferenceSpec(kind=kind))
    mean = predict.forecast(queue("a"), policy(), predictor)
    assert (mean.predictor, mean.warnings) == (predictor, ())
    upper = predict.forecast(queue("a"), policy(slowdown_quantile="p90", slowdown_margin=0.4), predictor)
    assert upper.predictor.interference == predictor.interference.model_copy(update={"margin": 0.4})


# -- plans -------------------------------------------------------------------------------------------

SCENARIO = """
schema: planner.scenario/1
cluster: {nodes: [{name: "n[0-1]", gpus: {model: v100, count: 1, memory_mib: 16000}}]}
jobs:
- {id: a, gpu_memory_mib: 4000, gpu_utilisation_pct: 40, duration_s: 3600, profile: "kiln:16", count: 2}
- {id: b, gpu_memory_mib: 4000, gpu_utilisation_pct: 40, duration_s: 3600, profile: "loom:16", count: 2}
- {id: c, gpu_memory_mib: 4000, gpu_utilisation_pct: 40, duration_s: 3600, profile: saw}
policy: {time_limit_s: 0, slowdown_quantile: QUANTILE}
predictor: {interference: {kind: model, path: pairs.json, cap: 3}}
"""


@pytest.mark.parametrize("quantile", ["mean", "p90"])
def test_a_plan_made_with_a_model_is_valid_and_carries_a_table_in_its_place(ran, scenario, model, quantile):
    scenario(SCENARIO.replace("QUANTILE", quantile))
    Path("pairs.json").write_text(model.read_text())
    assert ran("plan", "s.yaml", "--out", "plan.json")[0] == 0
    raw = json.loads(Path("plan.json").read_text())
    assert (
        "the model of slowdowns knows no profile saw (1 job): time-sharing is used beside them"
        in raw["warnings"]
    )
    told = raw["inputs"]["forecast"]["predictor"]["interference"]
    assert (told["kind"], told.get("path")) == ("table", None)
    assert told["rows_from"].startswith("pairs.json, sha256:")
    names = ("kiln:16", "loom:16")
    assert {(r["profile"], r["beside"]) for r in told["rows"]} == set(product(names, names))
    Path("pairs.json").unlink()  # the plan does not need it
    assert ran("explain", "plan.json", "a-0")[0] == 0


@pytest.mark.parametrize("quantile", ["mean", "p90"])
def test_a_plan_of_a_model_states_the_slowdowns_of_its_table(model, quantile):
    state = snapshot([node(model="v100", memory_mib=16000)], [job(profile=p, gpu_memory_mib=4000) for p in ("kiln:16", "loom:16")])  # fmt: skip
    spec = PredictorSpec(interference=InterferenceSpec(kind="model", path=str(model)))
    rules = policy(time_limit_s=0, slowdown_quantile=quantile)
    plan = plan_epoch(state, rules, spec)
    found = predict.forecast(state, rules, spec)
    assert problems_of(plan, state, found, rules) == ()
    both = rows(found.predictor.interference)
    said = sorted(a.slowdown for a in plan.assignments)
    expected = sorted(both["v100", x, y] for x, y in (("kiln:16", "loom:16"), ("loom:16", "kiln:16")))
    assert said == pytest.approx(expected, abs=0.002)
    assert expected[0] > 1
    beyond = 1.25 if quantile == "mean" else 1.0  # of the p90 nothing lies beyond it
    assert [a.slowdown_p90 - 1 for a in plan.assignments] == pytest.approx(
        [(a.slowdown - 1) * beyond for a in plan.assignments]
    )


@pytest.mark.parametrize("spec", ["{kind: model}", "{kind: model, path: ''}", "{kind: model, path: p.json, rows: [{gpu_model: t4, profile: a, beside: b, slowdown: 1}]}"])  # fmt: skip
def test_a_model_without_a_path_or_with_rows_is_refused(load, spec):
    text = SCENARIO.replace("QUANTILE", "mean").replace("{kind: model, path: pairs.json, cap: 3}", spec)
    with pytest.raises(InputError) as error:
        load(text)
    assert "predictor.interference: " in str(error.value)
    assert "path: model.json, written by planner fit interference" in str(error.value)


def test_a_plan_of_a_model_whose_file_is_missing_is_one_line_and_exit_2(ran, scenario):
    scenario(SCENARIO.replace("QUANTILE", "mean"))
    assert ran("plan", "s.yaml") == (2, "", "planner: pairs.json: no such file\n")


def test_a_gpu_model_that_was_measured_without_its_memory_size_is_the_same(model):
    sized = table(model, queue("kiln:16", "loom:64", gpus=("v100-16gb",)))
    plain = table(model, queue("kiln:16", "loom:64", gpus=("v100",)))
    assert {(a, b): s for (_, a, b), s in rows(sized).items()} == {
        (a, b): s for (_, a, b), s in rows(plain).items()
    }
    assert {r.gpu_model for r in sized.rows} == {"v100-16gb"}
    assert table(model, queue("kiln:16", "loom:64", gpus=("v100-16gb:1g.5gb",))).rows == ()
