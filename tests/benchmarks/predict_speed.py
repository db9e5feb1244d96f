"""What fitted models add to an epoch: ``python tests/benchmarks/predict_speed.py [--jobs 20000] [--gpus 8192] [--seeds 3]``.

A generated cluster and queue; its jobs lose their declared durations, memory and utilisation and get users, names and profiles of known
architectures. Models of slowdowns, durations and usage are fitted to made-up measurements first, outside of what is timed. Timed are
reading the models and the forecasts of all jobs with them, each beside the forecast without; medians over seeds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from planner import edit, predict
from planner.formulate import formulate
from planner.generate import generate
from planner.model import Snapshot
from planner.policy import FittedSpec, InterferenceSpec, Policy, PredictorSpec, UsageSpec
from planner.predict import catalogue, duration, fit_pairs
from planner.predict.history import read
from planner.predict.model_file import ModelFile, Training, text_of
from planner.predict.pairs import read_pairs, read_profiles

USERS, NAMES = 400, 60
HISTORY = 50_000


def main() -> None:
    """Print seconds by what is asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--gpus", type=int, default=8_192)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            for name, seconds in _timed(args.jobs, args.gpus, seed, Path(folder)):
                found.setdefault(name, []).append(seconds)
    print(f"{args.jobs} jobs x {args.gpus} GPUs, {args.seeds} seeds, seconds")
    for name, values in found.items():
        print(f"  {name:42} {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")


def _timed(jobs: int, gpus: int, seed: int, folder: Path) -> list[tuple[str, float]]:
    scenario = generate(jobs, gpus, seed)
    models = sorted({g.model for g in scenario.snapshot.cluster.gpus})
    rng = random.Random(seed)
    known = [f"{k}:{b}" for k in list(catalogue.architectures())[:20] for b in (32, 64)]
    declared = _jobs(scenario.snapshot, rng, known, declared=True)
    bare = _jobs(scenario.snapshot, rng, known, declared=False)
    policy = Policy()
    _slowdowns(folder, rng, known, models)
    _history(folder, rng)
    plain = PredictorSpec(interference=InterferenceSpec(kind="time-sharing"))
    slow = PredictorSpec(interference=InterferenceSpec(kind="model", path=str(folder / "pairs.json")))
    long = edit.changed(plain, duration=FittedSpec(path=str(folder / "duration.json")))
    large = edit.changed(plain, usage=UsageSpec(path="shipped"))
    whole = edit.changed(slow, duration=long.duration, usage=large.usage)
    forecasts = [
        ("forecast, all declared", declared, plain),
        ("forecast, model of slowdowns", declared, slow),
        ("forecast, durations from history", bare, long),
        ("forecast, usage from graphs", bare, large),
        ("forecast, all three", bare, whole),
        ("forecast, all three, models in memory", bare, whole),
    ]
    out = []
    for name, snapshot, spec in forecasts:
        forecast, seconds = _seconds(partial(predict.forecast, snapshot, policy, spec))
        out.append((name, seconds))
    for name, snapshot, spec in (forecasts[0], forecasts[5]):
        forecast = predict.forecast(snapshot, policy, spec)
        _, seconds = _seconds(partial(formulate, snapshot, forecast, policy))
        out.append((name.replace("forecast", "formulation"), seconds))
    return out


def _seconds(call: Callable[[], object]) -> tuple[object, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def _jobs(snapshot: Snapshot, rng: random.Random, profiles: list[str], *, declared: bool) -> Snapshot:
    def changed(values: dict[str, object]) -> dict[str, object]:
        values |= {"profile": rng.choice(profiles), "user": f"u{rng.randrange(USERS)}"}
        values["name"] = f"train-{rng.randrange(NAMES)}-{'abcdefgh'[rng.randrange(8)]}"
        return (
            values
            if declared
            else values | dict.fromkeys(("duration_s", "gpu_utilisation_pct", "gpu_memory_mib"))
        )

    jobs = tuple(j.model_copy(update=changed({})) for j in snapshot.jobs)
    return snapshot.model_copy(update={"jobs": jobs})


def _slowdowns(folder: Path, rng: random.Random, profiles: list[str], models: list[str]) -> None:
    """A model fitted to made-up pairs of these profiles."""
    lines, alone = ["gpu_type,job_a,dataset_a,batch_a,job_b,dataset_b,batch_b,slowdown_a,slowdown_b"], []
    parts = [p.replace("/", ":").split(":") for p in profiles]
    for model in models[:3]:
        use = [rng.uniform(20, 100) for _ in parts]
        alone += [
            f"{model},{n},{d},{b},{u:.1f},{u / 2:.1f},4000" for (n, d, b), u in zip(parts, use, strict=True)
        ]
        for _ in range(600):
            i, j = rng.randrange(len(parts)), rng.randrange(len(parts))
            both = use[i] * use[j] / 1e4
            a, b = (1 + both * rng.uniform(0.5, 1.0) for _ in "ab")
            lines.append(",".join([model, *parts[i], *parts[j], f"{a:.3f}", f"{b:.3f}"]))
    (folder / "pairs.csv").write_text("\n".join(lines))
    (folder / "profiles.csv").write_text(
        "\n".join(["gpu_type,model,dataset,batch,gpu_util_pct,gmem_util_pct,gmem_mib", *alone])
    )
    profiles_read = read_profiles(folder / "profiles.csv")
    pairs = read_pairs(folder / "pairs.csv", profiles_read, measured=True)
    model = fit_pairs.fit_model(fit_pairs.directed(pairs), profiles_read, "blend")
    wide = fit_pairs.Spread(0.05, 0.1, 1.0)
    told = model.as_json() | {
        "spread": {k: [wide.base, wide.growth, wide.quantile] for k in ("known", "unknown")}
    }
    told["feasibility"] = {"factors": [], "thresholds": {}}
    file = ModelFile(
        kind="interference",
        method="blend",
        columns=model.encoder.columns,
        training=Training(digest="", rows=len(pairs)),
        parameters=told,
    )
    (folder / "pairs.json").write_text(text_of(file))


def _history(folder: Path, rng: random.Random) -> None:
    """A model fitted to a made-up history."""
    lines = ["user,name,gpus,submitted_s,started_s,duration_s"]
    drawn = np.random.default_rng(rng.randrange(1 << 30)).lognormal(7.5, 1.5, HISTORY)
    for i, took in enumerate(drawn.tolist()):
        start = i * 30
        lines.append(
            f"u{rng.randrange(USERS)},train-{rng.randrange(NAMES)}-{'abcdefgh'[rng.randrange(8)]},{rng.choice((1, 1, 2, 4, 8))},{start},{start},{took:.0f}"
        )
    (folder / "history.csv").write_text("\n".join(lines))
    past = read(folder / "history.csv")
    (folder / "duration.json").write_text(text_of(duration.fit(past).to_file((), past.training("made up"))))


if __name__ == "__main__":
    main()
