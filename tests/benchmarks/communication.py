"""What gangs lose to their links: fit the shipped coefficients, and say how far off they are for models left out of the fit.

``python tests/benchmarks/communication.py PROFILES.csv [--write]``

The rows are of the source gavel_sim (MIT licence): the same jobs on one GPU, and on 2, 4 or 8 of them, consolidated on as few nodes as
hold them or unconsolidated. Rates are summed over the GPUs, so that n / rate is the synchronous step. A bandwidth is the one with the least mean
|log(predicted / measured step)| on a grid: the network's from all unconsolidated rows, PCIe's from the consolidated ones of the GPU models that
have no NVLink there; those of the V100 have links that the table does not tell, and NVLink's is the maker's. An overlap is fitted only
if that helps on the models left out. ``step`` is the median of the measured steps on one GPU over those of the shipped usage
model, which is fitted to utilisations and so leaves the scale of time open. The baseline is one factor for all jobs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from planner.predict import catalogue, coefficients, usage
from planner.predict.communication import factor
from planner.predict.memory import Training
from planner.predict.model_file import digest
from planner.tables import Row, read_csv

SOURCE = "gavel_sim"
SHIPPED = Path(coefficients.__file__).with_name(coefficients.LINKS_FILE)
#: What Gavel's job types train on, where the catalogue would take the name for something else.
DATASETS = {"ResNet-18": "CIFAR-10"}
#: Gavel's language model is smaller than the catalogue's: its program has 33,278 words (WikiText-2), embeddings and two LSTM layers of 200, and a
#: decoder of its own (workloads/pytorch/language_modeling/main.py): embedding, two layers of 4 gates, decoder with bias; fp32.
LM = 4 * (33_278 * 200 + 2 * 4 * 200 * (200 + 200 + 2) + 33_278 * (200 + 1))
OPTIMISER: dict[str, Training] = {
    "Transformer": "adam",
    "Recommendation": "adam",
    "A3C": "adam",
    "CycleGAN": "adam",
}
GB_S = np.geomspace(0.1, 100, 301)
OVERLAPS = np.round(np.arange(0, 1.01, 0.1), 1)
#: A V100's NVLink each way: 6 links of 25 GB/s (NVIDIA, Tesla V100 data sheet: 300 GB/s both ways).
NVLINK_GB_S = 150.0
#: Of Gavel's GPU models those whose consolidated rows are taken for PCIe: no K80 has NVLink, and the P100's steps say the same of it.
PCIE_ONLY = ("k80", "p100")


@dataclass(frozen=True)
class Gang:
    """A job on several GPUs, or on one, and its step on one."""

    gpu_model: str
    model: str
    batch: int
    gpus: int
    placement: str
    alone_ms: float
    step_ms: float
    raw: str


def main() -> None:
    """Print what was fitted and the errors; with --write, write the shipped file anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    gangs = read(args.profiles)
    told = fitted(gangs)
    print("fitted:", ", ".join(f"{k} {v:g}" for k, v in told.items()))
    report("unconsolidated", apart(gangs))
    report("consolidated, no NVLink", together(gangs))
    for gpu in sorted({g.gpu_model for g in gangs}):
        report(f"consolidated, {gpu}", [g for g in consolidated(gangs) if g.gpu_model == gpu])
    report_predicted_steps(gangs)
    if args.write:
        SHIPPED.write_text(text_of(told, gangs), encoding="utf-8")


def read(path: Path) -> list[Gang]:
    """Jobs with a rate that were measured on one GPU as well, those on one GPU among them."""
    rows = [
        r
        for _, r in read_csv(path)
        if r.get("source") == SOURCE and "batch" in r and float(r.get("iso_tput", 0)) > 0
    ]
    alone = {_of(r): 1e3 / float(r["iso_tput"]) for r in rows if r["gpus"] == "1"}
    return [_gang(r, alone[_of(r)]) for r in rows if _of(r) in alone]


def _of(row: Row) -> tuple[str, str, str]:
    return row["gpu_type"], row["model"], row["batch"]


def _gang(row: Row, alone_ms: float) -> Gang:
    return Gang(
        gpu_model=row["gpu_type"],
        model=row["model"],
        batch=int(row["batch"]),
        gpus=int(row["gpus"]),
        placement=row["placement"],
        alone_ms=alone_ms,
        step_ms=1e3 * int(row["gpus"]) / float(row["iso_tput"]),
        raw=",".join(f"{k}={v}" for k, v in sorted(row.items())),
    )


def apart(gangs: Sequence[Gang]) -> list[Gang]:
    """Those over the network."""
    return [g for g in gangs if g.gpus > 1 and g.placement == "unconsolidated"]


def consolidated(gangs: Sequence[Gang]) -> list[Gang]:
    """Those on as few nodes as hold them."""
    return [g for g in gangs if g.gpus > 1 and g.placement == "consolidated"]


def together(gangs: Sequence[Gang]) -> list[Gang]:
    """Those over PCIe."""
    return [g for g in consolidated(gangs) if g.gpu_model in PCIE_ONLY]


def single(gangs: Sequence[Gang]) -> list[Gang]:
    """Those on one GPU whose architecture the catalogue has as it was measured."""
    return [g for g in gangs if g.gpus == 1 and g.model != "LM"]


@cache
def _architecture(model: str) -> catalogue.Architecture:
    found = catalogue.find(model, DATASETS.get(model))
    if found is None:
        raise SystemExit(f"no architecture is known for {model}")
    return found


def gradients(model: str, *, own_lm: bool = True) -> float:
    """Bytes of the gradients."""
    return float(LM if model == "LM" and own_lm else _architecture(model).one.parameter_bytes)


def predicted(gangs: Sequence[Gang], gb_s: float, overlap: float, *, own_lm: bool = True) -> np.ndarray:
    """Steps from the measured steps alone, ms; (R,)."""
    return np.array(
        [
            g.alone_ms * factor(g.alone_ms, gradients(g.model, own_lm=own_lm), g.gpus, gb_s, overlap=overlap)
            for g in gangs
        ]
    )


def best(gangs: Sequence[Gang], overlaps: Sequence[float], *, own_lm: bool = True) -> tuple[float, float]:
    """Bandwidth and overlap with the least mean |log error|."""
    measured = np.log([g.step_ms for g in gangs])
    return min(
        ((float(b), float(o)) for b in GB_S for o in overlaps),
        key=lambda x: float(np.abs(np.log(predicted(gangs, *x, own_lm=own_lm)) - measured).mean()),
    )


Fit = Callable[[Sequence[Gang], Sequence[Gang]], np.ndarray]


def left_out(gangs: Sequence[Gang], fit: Fit) -> dict[str, np.ndarray]:
    """Relative errors of the steps of each model, by a fit to the others."""
    out = {}
    for model in sorted({g.model for g in gangs}):
        train, test = [g for g in gangs if g.model != model], [g for g in gangs if g.model == model]
        out[model] = np.abs(fit(train, test) / [g.step_ms for g in test] - 1)
    return out


def ring(overlaps: Sequence[float], *, own_lm: bool = True) -> Fit:
    """The ring's fit, with these overlaps to choose from."""
    return lambda train, test: predicted(test, *best(train, overlaps, own_lm=own_lm), own_lm=own_lm)


def constant(train: Sequence[Gang], test: Sequence[Gang]) -> np.ndarray:
    """One factor for all jobs."""
    return np.array([g.alone_ms for g in test]) * np.median([g.step_ms / g.alone_ms for g in train])


def fitted(gangs: Sequence[Gang]) -> dict[str, float]:
    """The coefficients as shipped."""
    over = apart(gangs)
    medians = [median(left_out(over, ring(o))) for o in ([0.0], list(OVERLAPS))]
    overlaps = list(OVERLAPS) if medians[1] < medians[0] else [0.0]
    network_gb_s, overlap = best(over, overlaps)
    return {
        "nvlink_gb_s": NVLINK_GB_S,
        "pcie_gb_s": round(best(together(gangs), [overlap])[0], 3),
        "network_gb_s": round(network_gb_s, 3),
        "overlap": overlap,
        "step": round(step_scale(gangs), 3),
    }


def step_scale(gangs: Sequence[Gang]) -> float:
    """Measured steps on one GPU over those of the usage model, the median."""
    return float(np.median([g.alone_ms / told_ms(g) for g in single(gangs)]))


def told_ms(gang: Gang) -> float:
    """The step on one GPU as the usage model has it, before any scale."""
    features = _architecture(gang.model).at(gang.batch)
    optimiser = OPTIMISER.get(gang.model, "momentum")
    return usage.default().busy.step_ms(features, gang.gpu_model, optimiser, mixed=False)


def median(errors: dict[str, np.ndarray]) -> float:
    """Of all errors together."""
    return float(np.median(np.concatenate(list(errors.values()))))


def report(name: str, gangs: Sequence[Gang]) -> None:
    """Median relative errors, each model left out in turn."""
    gb_s, overlap = best(gangs, list(OVERLAPS))
    only, _ = best(gangs, [0.0])
    print(f"{name}, {len(gangs)} rows: {only:.2f} GB/s; with an overlap {gb_s:.2f} GB/s, {overlap:g}")
    fits: dict[str, Fit] = {
        "ring": ring([0.0]),
        "ring, overlap": ring(list(OVERLAPS)),
        "ring, catalogue's LM": ring([0.0], own_lm=False),
        "constant": constant,
        "no communication": lambda _, test: np.array([g.alone_ms for g in test]),
        "1.2": lambda _, test: np.array([1.2 * g.alone_ms for g in test]),
    }
    for label, fit in fits.items():
        errors = left_out(gangs, fit)
        each = "  ".join(f"{m} {np.median(e):.3f}" for m, e in errors.items())
        print(f"  {label:20} median {median(errors):.3f}  {each}")


def report_predicted_steps(gangs: Sequence[Gang]) -> None:
    """Network factors where the step on one GPU is predicted as well, as in a plan; each model left out of all fits."""
    models = sorted({g.model for g in apart(gangs)} - {"LM"})  # its graph is not in the catalogue
    errors: dict[str, list[float]] = {"ring": [], "ring, step not scaled": [], "constant": [], "1.2": []}
    for model in models:
        others, mine = [g for g in gangs if g.model != model], [g for g in apart(gangs) if g.model == model]
        gb_s, _ = best(apart(others), [0.0])
        scale = step_scale(others)
        common = float(np.median([g.step_ms / g.alone_ms for g in apart(others)]))
        for g in mine:
            step, measured = told_ms(g), g.step_ms / g.alone_ms
            for label, said in (
                ("ring", factor(scale * step, gradients(model), g.gpus, gb_s)),
                ("ring, step not scaled", factor(step, gradients(model), g.gpus, gb_s)),
                ("constant", common),
                ("1.2", 1.2),
            ):
                errors[label].append(abs(said / measured - 1))
    print(f"network factor, step predicted, {len(errors['ring'])} rows of {', '.join(models)}")
    for label, each in errors.items():
        print(f"  {label:22} median {np.median(each):.3f}  mean {np.mean(each):.3f}")


def text_of(told: dict[str, float], gangs: Sequence[Gang]) -> str:
    """The shipped file."""
    over, on_node, alone = apart(gangs), together(gangs), single(gangs)
    about = (
        f"Least mean |log error| of the steps of {len(over)} gangs on several nodes (network) and of {len(on_node)} on one (PCIe), and the "
        f"median of {len(alone)} steps on one GPU over those of the shipped usage model (step), all measured by Gavel's authors "
        "(stanford-futuredata/gavel, MIT licence); NVLink of a V100, each way, from its maker; tests/benchmarks/communication.py"
    )
    rows = digest(g.raw for g in (*over, *on_node, *alone))
    return json.dumps({"about": about, "coefficients": told, "digest": rows}, sort_keys=True) + "\n"


if __name__ == "__main__":
    main()
