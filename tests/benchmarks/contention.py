"""The shipped model of slowdowns: fit it, and say how far it is off where it was not fitted.

``python tests/benchmarks/contention.py PAIRS.csv PROFILES.csv [--write]``

``contention``, the part of a neighbour's turns on the GPU that is felt, is fitted for each GPU model of the source gavel_sim (MIT licence)
by the least mean absolute error of speed; utilisations are those of the shipped usage model, from the architectures' graphs.
All other sources are for evaluation only: there the utilisations are as measured, and contention is that of the newest GPU model
of the fit. Beside it the hinge on summed utilisation, with its default parameters and with the best in hindsight, and a constant.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.predict import catalogue, coefficients, usage
from planner.predict.fit_pairs import Data, directed
from planner.predict.learned import Entry
from planner.predict.model_file import ModelFile, Training, digest, text_of
from planner.predict.pairs import Pair, read_pairs, read_profiles
from planner.predict.scores import measures

SOURCE = "gavel_sim"
#: Of the GPU models in the fit, the one that GPUs of which nothing was measured are taken for.
NEWEST = "v100"
#: What Gavel's job types train on, where the catalogue would take the name for something else.
DATASETS = {"ResNet-18": "CIFAR-10"}
OPTIMISER = {"Transformer": "adam", "Recommendation": "adam", "A3C": "adam", "CycleGAN": "adam"}
GRID = np.round(np.arange(0, 1.501, 0.05), 2)


def main() -> None:
    """Print what was fitted and the errors; with --write, write the shipped file anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=Path)
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    pairs = read_pairs(args.pairs, read_profiles(args.profiles), measured=True)
    contention = fitted([p for p in pairs if p.source == SOURCE])
    print("contention:", ", ".join(f"{gpu} {value:g}" for gpu, value in contention.items()))
    for source in sorted({p.source for p in pairs}):
        _report(source, directed([p for p in pairs if p.source == source]), contention)
    if args.write:
        path = Path(coefficients.__file__).with_name(coefficients.FILE)
        path.write_text(
            text_of(_file(contention, [p for p in pairs if p.source == SOURCE])), encoding="utf-8"
        )


def fitted(pairs: Sequence[Pair]) -> dict[str, float]:
    """The contention of each GPU model with the least mean absolute error of speed."""
    data = directed(pairs)
    out = {}
    for gpu in data.gpus:
        here = _on(data, gpu)
        victim, beside = busy(here)
        errors = [np.abs(_speed(victim, beside, c) - here.speed).mean() for c in GRID]
        out[gpu] = float(GRID[int(np.argmin(errors))])
    return out


def busy(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Share of its time alone for which victim and neighbour keep the GPU busy."""
    found: dict[Entry, float] = {}
    for ask in data.asks:
        for entry in (ask.victim, *ask.beside):
            if entry not in found:
                found[entry] = _busy(entry)
    return np.array([found[a.victim] for a in data.asks]), np.array([found[a.beside[0]] for a in data.asks])


def _busy(entry: Entry) -> float:
    if entry.alone.utilisation_pct is not None:
        return entry.alone.utilisation_pct / 100
    name = entry.work.name
    architecture = catalogue.find(name, DATASETS.get(name, entry.work.dataset) or None)
    if architecture is None:
        raise SystemExit(f"no architecture is known for {name}")
    used = usage.default().utilisation_pct(
        architecture.at(entry.work.batch or 1), entry.gpu_model, OPTIMISER.get(name, "momentum"), mixed=False
    )
    return used / 100


def _speed(victim: np.ndarray, beside: np.ndarray, contention: float) -> np.ndarray:
    return np.asarray(1 / (1 + contention * victim * beside))


def _hinge(victim: np.ndarray, beside: np.ndarray, slope: float) -> np.ndarray:
    total = victim + beside
    return np.asarray(1 / (1 + slope * np.maximum(0, total - 1) * 2 * beside / np.maximum(total, 1e-9)))


def _on(data: Data, gpu: str) -> Data:
    return data.take(np.flatnonzero([a.victim.gpu_model == gpu for a in data.asks]))


def _report(source: str, data: Data, contention: dict[str, float]) -> None:
    for gpu in data.gpus:
        here = _on(data, gpu)
        victim, beside = busy(here)
        hinges = [_hinge(victim, beside, s) for s in np.arange(0, 2.01, 0.05)]
        best = min(hinges, key=lambda h: float(np.abs(h - here.speed).mean()))
        where = "fitted here" if source == SOURCE else "not fitted here"
        print(f"{source}, {gpu}, {len(here.speed)} rows ({where})")
        for name, speed in (
            ("time-sharing", _speed(victim, beside, contention.get(gpu, contention[NEWEST]))),
            ("hinge", _hinge(victim, beside, 1.0)),
            ("hinge, best", best),
            ("constant", np.full(len(here.speed), here.speed.mean())),
        ):
            found = measures(speed, here.speed)
            shown = "  ".join(f"{k} {v:.3f}" for k, v in found.items() if v is not None)
            print(f"  {name:13} {shown}")


def _file(contention: dict[str, float], pairs: Sequence[Pair]) -> ModelFile:
    return ModelFile(
        kind="interference",
        method="time-sharing",
        training=Training(
            digest=digest(p.raw for p in pairs),
            rows=len(pairs),
            files=(SOURCE,),
            about="Least mean absolute error of speed on the pairs that Gavel's authors measured (stanford-futuredata/gavel, "
            "MIT licence), utilisations from the shipped usage model; tests/benchmarks/contention.py",
        ),
        parameters={"contention": contention, "contention_elsewhere": contention[NEWEST]},
    )


if __name__ == "__main__":
    main()
