"""How good predictions of GPU utilisation and memory are, from a table of measured jobs.

    python tests/benchmarks/usage.py PROFILES.csv [--write]

Prints errors for each source of the table: fitted to the source's own jobs, on those left out; and the model that comes with the
planner, on sources it has not seen. ``--write`` fits that model anew, to MISO's jobs alone (MIT licence), and writes
planner/predict/default_usage.json. What a source's programs run differs from the catalogue's in places: see ``works``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "architectures"))

import as_run  # noqa: E402  (a folder of its own, because only programs like this need it)
import sequences  # noqa: E402
from layers import Net  # noqa: E402

from planner.predict.catalogue import find  # noqa: E402
from planner.predict.fit_usage import fit, training_of  # noqa: E402
from planner.predict.graph import Features, features  # noqa: E402
from planner.predict.memory import Training  # noqa: E402
from planner.predict.model_file import ModelFile, Score, text_of  # noqa: E402
from planner.predict.usage import FILE, METHOD, UsageModel, default  # noqa: E402
from planner.predict.usage_rows import Measured, read_rows  # noqa: E402
from planner.predict.usage_scores import judge, scores_of  # noqa: E402

SOURCES = ("lucid", "miso", "salus")
SHIPPED = "miso"
#: Horus's published figure (HotCloud 2020).
HORUS_RMSLE = 0.154
#: Bound by a simulator or by reading single rows on the CPU: little of a step runs on the GPU.
HOST_BOUND = ("ppo", "td3", "neumf")


def graph(net: Net) -> Features:
    """Features of one sample."""
    return features(net.model(), batch=1, where=net.name)


def catalogued(name: str, dataset: str | None = None) -> Features:
    """Features of one sample of a well-known architecture."""
    found = find(name, dataset)
    assert found is not None, name
    return found.one


def at_32(name: str) -> Features:
    """ImageNet's network on CIFAR-10 as Keras builds it: every layer at a seventh of its side."""
    return replace(catalogued(name, "imagenet").scaled(1 / 49), batch=1)  # type: ignore[arg-type]


def repeated(f: Features, times: int, kept: int) -> Features:
    """A step that runs the graph several times, and keeps the activations of some of these at once."""
    return replace(
        f,
        flops=f.flops * times,
        flops_by_operator={op: n * times for op, n in f.flops_by_operator.items()},
        activation_bytes=f.activation_bytes * kept,
        traffic_bytes=f.traffic_bytes * times,
        weight_traffic_bytes=f.weight_traffic_bytes * times,
        operators=f.operators * times,
    )


def works() -> dict[tuple[str, str], tuple[Features, Training]]:
    """What the sources' training programs run, where it is not the catalogue's, and their optimisers.

    Adam where they say so; RMSprop has as many numbers a parameter as momentum. CycleGAN's step runs each generator three times
    and keeps all of it; DCGAN's runs the discriminator three times, one after the other.
    """
    # MISO: mps/models/*_train.py
    miso: dict[str, tuple[Features, Training]] = {
        "bert": (graph(sequences.bert(512)), "adam"),
        "resnet": (at_32("resnet50"), "adam"),
        "mobilenet": (at_32("mobilenetv2"), "adam"),
        "cyclegan": (repeated(catalogued("cyclegan"), 3, 3), "adam"),
        "deepspeech2": (graph(as_run.speech()), "adam"),
        "embedding": (graph(as_run.text_convolutions()), "momentum"),
        "gnn": (graph(as_run.message_passing()), "adam"),
        "transformer": (graph(as_run.time_series()), "adam"),
    }
    # Lucid: workloads/*/profile_*.py
    lucid: dict[str, tuple[Features, Training]] = {
        "MobileNetV3": (graph(as_run.mobilenet3_small()), "sgd"),
        "ResNet50": (catalogued("resnet50", "imagenet"), "sgd"),
        "EfficientNet": (graph(as_run.efficientnet_variant()), "momentum"),
        "DCGAN": (repeated(catalogued("dcgan"), 2, 1), "adam"),
        "NeuMF": (catalogued("neumf"), "momentum"),
    }
    # tf_cnn_benchmarks, which Salus ran, trains with plain gradient descent
    classifiers = (
        "alexnet googlenet inception3 inception4 overfeat resnet50 resnet101 resnet152 vgg11 vgg16 vgg19"
    )
    salus: dict[str, tuple[Features, Training]] = {n: (catalogued(n), "sgd") for n in classifiers.split()}
    return {
        (source, name): work
        for source, jobs in (("miso", miso), ("lucid", lucid), ("salus", salus))
        for name, work in jobs.items()
    }


def rows_of(path: Path) -> tuple[dict[str, tuple[Measured, ...]], dict[str, int]]:
    """Jobs by source. MISO's are TensorFlow's with memory growth on; Salus counted what its allocator gave."""
    rows, unknown = read_rows(path, works())
    told = [replace(r, tensorflow=r.source == "miso", bare=r.source == "salus") for r in rows]
    return {source: tuple(r for r in told if r.source == source) for source in SOURCES}, unknown


def shipped(rows: dict[str, tuple[Measured, ...]], file: str) -> ModelFile:
    """The model that comes with the planner: physics and MISO's rows."""
    model, scores = fit(rows[SHIPPED])
    model = replace(
        model, known={}
    )  # Keras's graphs on one GPU model say nothing of others that look like them
    others = [
        score
        for source in SOURCES
        if source != SHIPPED
        for score in elsewhere(model, source, rows[source], rows[SHIPPED])
        if score.group == "all"
    ]
    about = (
        "32 jobs on an A100 measured by MISO (github.com/boringlee24/socc22-miso, MIT licence), and coefficients held near what "
        "physics leads to expect; other sources are for evaluation alone"
    )
    return model.to_file((*scores, *others), training_of(rows[SHIPPED], about, file))


def elsewhere(
    model: UsageModel, source: str, rows: Sequence[Measured], seen: Sequence[Measured]
) -> list[Score]:
    """Scores on another source's jobs, as they are; the constant is the median of those ``seen``."""
    return scores_of(f"other data: {source}", [judge(model, rows, seen)])


def show(title: str, scores: Sequence[Score], groups: Sequence[str] = ("all",)) -> None:
    """A table."""
    print(f"\n{title}")
    print(f"{'':34}{'method':10}{'rows':>5}" + "".join(f"{name:>10}" for name in HEAD))
    for s in scores:
        if any(s.group.startswith(g) for g in groups):
            cells = (s.values.get(key) for key in HEAD.values())
            row = "".join(f"{'-' if v is None else format(v, '.3f'):>10}" for v in cells)
            print(f"{s.split[:20] + ', ' + s.group[:22]:34}{s.method:10}{s.rows:>5}{row}")


HEAD = {
    "memory": "memory_median_error",
    "under p50": "memory_under_p50",
    "under p95": "memory_under_p95",
    "p95/meas.": "memory_p95_over_measured",
    "RMSLE 1+u": "rmsle_share",
    "RMSLE 1+%": "rmsle_percent",
    "points": "mae_points",
    "u<p95": "busy_under_p95",
}


def main() -> None:
    """Print, and write if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--write", action="store_true", help=f"write planner/predict/{FILE}")
    asked = parser.parse_args()
    rows, unknown = rows_of(asked.profiles)
    print("jobs:", {source: len(jobs) for source, jobs in rows.items()}, "not in the catalogue:", unknown)
    if asked.write:
        text = text_of(shipped(rows, asked.profiles.name))
        (ROOT / "planner" / "predict" / FILE).write_text(text, encoding="utf-8")
    for source, jobs in rows.items():
        model, scores = fit(jobs)
        show(f"{source}, fitted to its own jobs", scores)
        show(
            f"{source}, by family and architecture",
            [s for s in scores if s.method == METHOD and s.split != "random fifth"],
            ("family", "model"),
        )
        print(model.memory, model.busy, model.spread, sep="\n")
    print(f"\nHorus publishes RMSLE {HORUS_RMSLE}, and does not say whether of 1 + share or of 1 + percent")
    seen = rows[SHIPPED]
    for source in rows:
        if source != SHIPPED:
            show(f"the planner's model on {source}", elsewhere(default(), source, rows[source], seen))
    lucid = rows["lucid"]
    known = [r for r in lucid if r.name not in HOST_BOUND]
    show("the same on Lucid without jobs bound by the host", elsewhere(default(), "lucid", known, seen))
    show("the same on Lucid with the site's context", elsewhere(calibrated(lucid), "lucid", lucid, seen))


def calibrated(rows: Sequence[Measured]) -> UsageModel:
    """The planner's model with one number of the site: what the smallest jobs take."""
    memory = [r.memory_mib for r in rows if r.memory_mib and r.name in HOST_BOUND]
    return default().with_context(float(np.median(memory)))


if __name__ == "__main__":
    main()
