"""Fitting the model of usage: known coefficients come back, left-out jobs stay out, and the shipped model is MISO's alone.

The last part needs the data set of measured jobs, and skips when it is absent.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import random
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.predict.catalogue import find
from planner.predict.fit_usage import (
    RANDOM,
    UNSEEN,
    context_of_regions,
    fit,
    fit_files,
    fit_model,
    folds,
    left_out,
)
from planner.predict.memory import MemoryModel
from planner.predict.model_file import parsed, text_of
from planner.predict.usage import FILE, BusyModel, UsageModel, default, signature
from planner.predict.usage_rows import Measured, read_rows

ROOT = Path(__file__).resolve().parent.parent
PROFILES = ROOT.parent / "shared" / "data" / "job_profiles.csv"

NAMES = (
    "resnet18",
    "resnet50",
    "vgg16",
    "densenet121",
    "mobilenetv2",
    "bert",
    "gpt2",
    "transformer",
    "lm",
    "dcgan",
)
TRUE = UsageModel(
    MemoryModel(context_mib=900, kept=1.3, mixed=0.5, passing=2.6),
    BusyModel(work=2.0, kernel_us=4, launch_us=14, wait_ms=2, sample_ms=0.03, sharpness=2),
)


def jobs(model=TRUE, noise=0.0, names=NAMES, gpu="v100", seed=1):
    """What a model says of architectures at several batch sizes, as if it had been measured."""
    chance = random.Random(seed)
    rows = []
    for name in names:
        for batch in (8, 32, 128):
            for mixed in (False, True):
                f = find(name).at(batch)
                said = model.predict(f, gpu, training="adam", mixed=mixed)
                memory = said.memory_mib * math.exp(chance.gauss(0, noise))
                busy = min(100.0, said.utilisation_pct * math.exp(chance.gauss(0, noise)))
                rows.append(Measured(name, find(name).family, gpu, f, "adam", mixed, busy, memory))
    return rows


def errors(model, rows):
    """Relative, of memory; in points, of utilisation."""
    told = [model.predict(r.features, r.gpu_model, training=r.training, mixed=r.mixed) for r in rows]
    memory = [abs(u.memory_mib / r.memory_mib - 1) for u, r in zip(told, rows, strict=True)]
    busy = [abs(u.utilisation_pct - r.utilisation_pct) for u, r in zip(told, rows, strict=True)]
    return max(memory), max(busy)


def test_the_coefficients_that_made_the_jobs_tell_jobs_of_other_architectures():
    unseen = jobs(names=("inception3", "googlenet", "mnasnet"))
    memory, busy = errors(UsageModel(), unseen)
    assert memory > 0.15 and busy > 10  # the defaults are off
    memory, busy = errors(fit_model(jobs()), unseen)
    assert memory < 0.03 and busy < 2.5


def test_a_job_measured_wrongly_hardly_moves_the_fit():
    rows = jobs(noise=0.02)
    wrong = dataclasses.replace(rows[0], memory_mib=20 * rows[0].memory_mib, utilisation_pct=1.0)
    clean, dirty = fit_model(rows), fit_model([wrong, *rows[1:]])
    assert dirty.memory.context_mib == pytest.approx(clean.memory.context_mib, rel=0.05)
    assert dirty.busy.work == pytest.approx(clean.busy.work, rel=0.05)


def test_what_the_jobs_say_nothing_of_stays_where_physics_put_it():
    plain = [r for r in jobs() if not r.mixed]
    fitted = fit_model([dataclasses.replace(r, utilisation_pct=None) for r in plain])
    assert fitted.busy == BusyModel()
    assert fitted.memory.mixed == pytest.approx(MemoryModel().mixed)
    assert fitted.memory.scratch_mib == pytest.approx(MemoryModel().scratch_mib)
    assert fitted.known == {}


@pytest.mark.parametrize(
    ("memory", "context"), [(1500 + 2046, 1500), (1100 + 8190, 1100), (1900 + 1022, 1900), (700.0, 700.0)]
)
def test_regions_tell_a_tensorflow_jobs_context(memory, context):
    assert context_of_regions(memory, 1500) == context


def test_tensorflow_jobs_are_fitted_by_their_regions():
    rows = []
    for r in jobs():
        said = TRUE.predict(r.features, None, training=r.training, mixed=r.mixed, tensorflow=True)
        rows.append(dataclasses.replace(r, memory_mib=float(said.memory_mib), tensorflow=True))
    fitted = fit_model(rows)
    # contexts are read a GiB apart: 900 + 1024 is nearer to what is expected than 900
    assert fitted.memory.context_mib == pytest.approx(1924, rel=0.02)
    assert fitted.memory.slack_mib > fit_model(jobs()).memory.slack_mib


@pytest.mark.parametrize("split", [RANDOM, UNSEEN])
def test_every_job_is_left_out_once(split):
    rows = jobs()
    parts = [part.tolist() for part in folds(rows, split)]
    assert sorted(i for part in parts for i in part) == list(range(len(rows)))
    if split == UNSEEN:
        assert [{rows[i].name for i in part} for part in parts] == [{name} for name in sorted(NAMES)]


def test_a_left_out_architecture_is_judged_by_a_fit_without_it():
    rows = jobs()
    strange = [dataclasses.replace(r, utilisation_pct=3.0) if r.name == "bert" else r for r in rows]
    parts, _ = left_out(strange, UNSEEN)
    bert = next(p for p in parts if p.rows[0].name == "bert")
    rest = [r for r in strange if r.name != "bert"]
    assert bert.busy.tolist() == pytest.approx(
        [
            fit_model(rest).predict(r.features, "v100", training="adam", mixed=r.mixed).utilisation_pct
            for r in bert.rows
        ]
    )
    assert bert.busy.min() > 20  # nothing of it had been seen


def test_one_in_twenty_unseen_jobs_at_most_goes_beyond_p95():
    rows = jobs(noise=0.25)
    _, scores = fit(rows)
    whole = next(s for s in scores if (s.split, s.group, s.method) == (UNSEEN, "all", "graph"))
    assert whole.values["memory_under_p50"] > 0.3
    assert whole.values["memory_under_p95"] <= 0.08  # 60 jobs
    assert whole.values["busy_under_p95"] <= 0.08


def test_a_graph_with_a_deviation_of_its_own_is_told_better_once_known():
    rows = [
        dataclasses.replace(r, utilisation_pct=min(100.0, r.utilisation_pct * (0.6 if i // 6 % 2 else 1.0)))
        for i, r in enumerate(jobs())
    ]
    model, scores = fit(rows)
    assert set(model.known) == {signature(r.features) for r in rows}
    points = {s.split: s.values["mae_points"] for s in scores if s.group == "all" and s.method == "graph"}
    assert points[RANDOM] < 0.7 * points[UNSEEN]


def test_scores_come_for_every_method_gpu_family_and_architecture():
    _, scores = fit(jobs())
    assert {s.method for s in scores} == {"graph", "constant", "horus"}
    assert {s.group for s in scores} >= {"all", "GPU v100", "family cnn", "family transformer", "model bert"}
    best = {
        s.method: s.values["memory_median_error"] for s in scores if s.group == "all" and s.split == UNSEEN
    }
    assert best["graph"] < 0.02 < best["constant"]


@pytest.mark.parametrize("rows", [[], jobs()[:7], jobs(names=NAMES[:2])])
def test_too_few_jobs_are_refused(rows):
    with pytest.raises(InputError, match="8 of 3 or more"):
        fit(rows)


HEADER = "gpu_type,model,dataset,batch,amp,gpus,gpu_util_pct,gmem_mib,optimizer,framework\n"


def table(tmp_path, *lines):
    path = tmp_path / "profiles.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_row_becomes_a_job_with_its_graph(tmp_path):
    rows, unknown = read_rows(
        table(tmp_path, "Tesla V100,ResNet-18,CIFAR-10,64,1,1,55.5,2000,adam,TensorFlow")
    )
    (row,) = rows
    assert unknown == {}
    assert (row.name, row.family, row.gpu_model) == ("resnet18", "cnn", "v100")
    assert row.features == find("resnet18", "cifar10").at(64)
    assert (row.training, row.mixed, row.tensorflow) == ("adam", True, True)
    assert (row.utilisation_pct, row.memory_mib) == (55.5, 2000)


@pytest.mark.parametrize(
    ("line", "training"),
    [
        ("v100,vgg16,,8,,,,900,,", "momentum"),
        ("v100,bert,,8,,,,900,,", "adam"),
        ("v100,bert,,8,,,,900,none,", None),
        ("v100,bert,,8,,,,900,SGD,", "sgd"),
    ],
)
def test_the_usual_optimiser_stands_in_for_one_not_told(tmp_path, line, training):
    assert read_rows(table(tmp_path, line))[0][0].training == training


def test_rows_that_tell_nothing_are_left_out_and_unknown_names_are_counted(tmp_path):
    rows, unknown = read_rows(
        table(
            tmp_path,
            "v100,vgg16,,8,,1,50,900,,",
            "v100,vgg16,,8,,1,60,950,,",  # again: the first counts
            "v100,vgg16,,8,,2,60,950,,",  # two GPUs
            "v100,vgg16,,,,1,60,950,,",  # no batch size
            "v100,vgg16,,16,,1,,,,",  # not measured
            "v100,mystery,,16,,1,50,900,,",
            "v100,mystery,,32,,1,50,900,,",
            "riva-128,vgg16,,16,,1,50,900,,",  # its utilisation cannot be told from peaks
        )
    )
    assert [(r.gpu_model, r.utilisation_pct, r.memory_mib) for r in rows] == [
        ("v100", 50, 900),
        ("riva-128", None, 900),
    ]
    assert unknown == {"mystery": 2}


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("v100,vgg16,,8,,,101,900,,", "gpu_util_pct"),
        ("v100,vgg16,,8,,,50,-1,,", "gmem_mib"),
        ("v100,vgg16,,8.5,,,50,900,,", "batch"),
        ("v100,vgg16,,8,2,,50,900,,", "amp"),
        ("v100,vgg16,,8,,,50,lots,,", "gmem_mib"),
        ("v100,vgg16,,8,,,50,900,adagrad,", "optimizer"),
        ("v100,,,8,,,50,900,,", "model"),
    ],
)
def test_a_cell_that_is_no_value_is_refused_where_it_stands(tmp_path, line, where):
    with pytest.raises(InputError) as refused:
        read_rows(table(tmp_path, line))
    assert refused.value.where.endswith(f"line 2: {where}")


def as_table(tmp_path, rows):
    return table(
        tmp_path,
        *(
            f"{r.gpu_model},{r.name},,{r.features.batch},{int(r.mixed)},1,{r.utilisation_pct},{r.memory_mib},adam,"
            for r in rows
        ),
    )


def test_a_table_becomes_a_file_that_says_what_it_was_fitted_on(tmp_path):
    path = as_table(tmp_path, jobs())
    with open(path, "a", encoding="utf-8") as file:
        file.write("v100,mystery,,16,,1,50,900,,\n")
    heard = []
    file = fit_files(path, heard=heard.append)
    assert heard == ["not in the catalogue: mystery (1)"]
    assert (file.training.rows, file.training.files) == (60, ("profiles.csv",))
    assert file.training.about.endswith("mystery (1)")
    again = UsageModel.of_file(parsed(text_of(file), "m.json", "usage", ("graph",)))
    assert again == fit(read_rows(path)[0])[0]
    assert text_of(fit_files(path)) == text_of(file)


# The data set


@pytest.fixture(scope="module")
def benchmark():
    """The program that fits the shipped model, with the sources' jobs."""
    pytest.importorskip("onnx")
    path = ROOT / "tests" / "benchmarks" / "usage.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_usage", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(benchmark):
    """Measured jobs by source."""
    if not PROFILES.exists():
        pytest.skip("the data set is absent")
    return benchmark.rows_of(PROFILES)[0]


def shipped_file():
    return parsed(
        (ROOT / "planner" / "predict" / FILE).read_text(encoding="utf-8"), FILE, "usage", ("graph",)
    )


def test_the_shipped_model_says_that_it_is_fitted_to_mit_licensed_rows_alone():
    training = shipped_file().training
    assert training.rows == 32
    assert "MISO" in training.about and "MIT licence" in training.about
    assert "evaluation alone" in training.about
    assert default() == UsageModel.of_file(shipped_file())
    assert default().known == {}


def test_fitting_the_shipped_model_again_gives_the_same_coefficients(benchmark, sources):
    again, shipped = benchmark.shipped(sources, PROFILES.name), shipped_file()
    assert again.training == shipped.training
    assert {r.source for r in sources["miso"]} == {"miso"}
    for part in ("memory", "busy", "spread"):
        assert again.parameters[part] == pytest.approx(shipped.parameters[part], rel=1e-4)
    for new, old in zip(again.scores, shipped.scores, strict=True):
        assert new.values == pytest.approx(old.values, rel=1e-3, abs=1e-3)


def values(scores, split, method="graph"):
    return next(s.values for s in scores if (s.split, s.group, s.method) == (split, "all", method))


# Targets: RMSLE 0.154 (Horus), median error of memory 10 %, 5 % under-estimated at p95. What is reached:
# of 1 + share the first everywhere, of 1 + percent nowhere; the second where the site's context is known;
# the third but for Salus's OverFeat.


def test_on_lucids_jobs_the_shipped_model_reaches_the_targets_but_for_the_context(benchmark, sources):
    seen = sources["miso"]
    told = values(benchmark.elsewhere(default(), "lucid", sources["lucid"], seen), "other data: lucid")
    assert told["rmsle_share"] < 0.07 and told["rmsle_percent"] < 0.21
    assert told["memory_median_error"] < 0.26
    assert told["memory_under_p95"] <= 0.05
    site = benchmark.calibrated(sources["lucid"])
    told = values(benchmark.elsewhere(site, "lucid", sources["lucid"], seen), "other data: lucid")
    assert told["memory_median_error"] < 0.05
    assert told["memory_under_p95"] <= 0.05


def test_on_saluss_jobs_the_shipped_model_is_better_than_horus(benchmark, sources):
    scores = benchmark.elsewhere(default(), "salus", sources["salus"], sources["miso"])
    told, horus = (values(scores, "other data: salus", method) for method in ("graph", "horus"))
    assert told["memory_median_error"] < 0.21 < horus["memory_median_error"]
    assert told["memory_under_p95"] <= 0.05


@pytest.mark.parametrize(
    ("source", "rmsle_share", "rmsle_percent", "median_error", "under_p95"),
    [("lucid", 0.06, 0.30, 0.06, 0.05), ("miso", 0.11, 0.31, 0.18, 0.05), ("salus", None, None, 0.08, 0.10)],
)
def test_fitted_to_a_sources_jobs_left_out_architectures_are_told(
    sources, source, rmsle_share, rmsle_percent, median_error, under_p95
):
    scores = fit(sources[source])[1]
    told, horus = values(scores, UNSEEN), values(scores, UNSEEN, "horus")
    assert told["memory_median_error"] < median_error < horus["memory_median_error"]
    assert told["memory_under_p95"] <= under_p95
    if rmsle_share is not None:
        assert told["rmsle_share"] < rmsle_share < values(scores, UNSEEN, "constant")["rmsle_share"]
        assert told["rmsle_percent"] < rmsle_percent
