"""What a predictor's errors cost: the plan made with it, judged by measured slowdowns, against the plan made with those.

``python tests/benchmarks/regret.py PAIRS.csv PROFILES.csv [--jobs 40] [--gpus 20] [--seeds 5] [--share 0.2]``

Queues are drawn, with their seed, from the kinds of work that were measured on one GPU model; two jobs may share a GPU, all
else is equal. Progress is the sum of measured speeds (1 / slowdown; 0 for a job that waits). Regret is the part of the
progress of the plan made with the measured table that is lost. Pairs that did not fit or were not measured may share under no
predictor. ``similarity`` and ``blend`` are fitted on a part of the measured pairs (``--share``), drawn with the seed, and use what
was measured where it was; ``unseen`` is blend fitted on pairs of other names only, one fold for each name. Where the
profiles say no utilisation, that of the shipped usage model stands for it, from the architecture's graph.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from planner.epoch import plan_epoch
from planner.model import Cluster, Gpu, Job, Node, Snapshot
from planner.policy import InterferenceSpec, Policy, PredictorSpec, TableRow, Weights
from planner.predict import catalogue, usage
from planner.predict.fit_pairs import directed, fit_model
from planner.predict.interference import Tenant, build
from planner.predict.learned import Ask, Entry
from planner.predict.pairs import Alone, Pair, Profiles, Work, read_pairs, read_profiles

Table = dict[tuple[Work, Work], float | None]  # (victim, beside) -> slowdown; None: must not share
POLICY = Policy(
    max_tenants=2,
    max_slowdown=None,
    time_limit_s=3,
    weights=Weights(makespan=0, fragmentation=0, moves=0),
)


def main() -> None:
    """Print the regret of every predictor on every GPU model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=Path)
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--gpus", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.2)
    args = parser.parse_args()
    profiles = read_profiles(args.profiles)
    pairs = read_pairs(args.pairs, profiles, measured=True)
    print(
        f"{args.jobs} jobs on {args.gpus} GPUs, {args.seeds} seeds; regret: part of the measured plan's progress that is lost"
    )
    for gpu in sorted({p.gpu_model for p in pairs}):
        here = [p for p in pairs if p.gpu_model == gpu]
        found: dict[str, list[float]] = {}
        progress = []
        for seed in range(args.seeds):
            best, regrets = _regrets(here, profiles, gpu, seed, args)
            progress.append(best)
            for name, value in regrets.items():
                found.setdefault(name, []).append(value)
        print(f"{gpu}: progress with the measured table {np.mean(progress) / args.gpus:.3f} a GPU")
        for name, values in found.items():
            print(
                f"  {name:14} median {np.median(values):7.2%}  mean {np.mean(values):7.2%}  from {min(values):.2%} to {max(values):.2%}"
            )


def _regrets(
    pairs: Sequence[Pair], profiles: Profiles, gpu: str, seed: int, args: argparse.Namespace
) -> tuple[float, dict[str, float]]:
    rng = random.Random(seed)
    truth = _measured(pairs)
    works = sorted({p.a for p in pairs} | {p.b for p in pairs}, key=lambda w: w.key)
    queue = [rng.choice(works) for _ in range(args.jobs)]
    part = [p for p in pairs if rng.random() < args.share]
    alone = {w: _alone(pairs, gpu, w) for w in works}
    tables: dict[str, Table] = {"measured": truth, "constant": _by(truth, _constant(part))}
    for kind in ("utilisation", "time-sharing"):
        tables[kind] = _by(truth, _formula(kind, gpu, alone))
    for method in ("similarity", "blend"):
        tables[method] = _by(truth, _fitted(method, part, profiles, gpu, alone)) | _measured(part)
    tables["unseen"] = _unseen(truth, pairs, profiles, gpu, alone, {w.name for w in queue})
    made = {name: _progress(queue, table, truth, gpu, args.gpus, seed) for name, table in tables.items()}
    best = made.pop("measured")
    return best, {name: 1 - value / best for name, value in made.items()}


def _measured(pairs: Sequence[Pair]) -> Table:
    return {k: v for p in pairs for k, v in (((p.a, p.b), p.slowdown_a), ((p.b, p.a), p.slowdown_b))}


def _by(truth: Table, slowdown: Callable[[Work, Work], float]) -> Table:
    """What a predictor says of the pairs that fit."""
    return {k: None if v is None else slowdown(*k) for k, v in truth.items()}


def _constant(pairs: Sequence[Pair]) -> Callable[[Work, Work], float]:
    speed = directed(pairs).speed
    mean = 1 / float(speed.mean()) if len(speed) else 1.5
    return lambda victim, beside: mean


def _alone(pairs: Sequence[Pair], gpu: str, work: Work) -> Alone:
    """As measured; where that says no utilisation, as the shipped model predicts it."""
    found = next(a for p in pairs for w, a in ((p.a, p.alone_a), (p.b, p.alone_b)) if w == work)
    if found.utilisation_pct is not None:
        return found
    architecture = catalogue.find(work.name, work.dataset or None)
    if architecture is None:
        raise SystemExit(f"no architecture is known for {work.name}")
    used = usage.default().predict(
        architecture.at(work.batch or 1), gpu, training="sgd", mixed=bool(work.mixed)
    )
    return Alone(used.utilisation_pct, None, None, found.step_s)


def _formula(kind: str, gpu: str, alone: dict[Work, Alone]) -> Callable[[Work, Work], float]:
    model = build(InterferenceSpec.model_validate({"kind": kind}))

    def slowdown(victim: Work, beside: Work) -> float:
        tenants = [Tenant(w.key, alone[w].utilisation_pct) for w in (victim, beside)]
        return float(model.slowdowns(gpu, tenants[:1], tenants[1:])[0])

    return slowdown


def _fitted(
    method: str, pairs: Sequence[Pair], profiles: Profiles, gpu: str, alone: dict[Work, Alone]
) -> Callable[[Work, Work], float]:
    model = fit_model(directed(pairs), profiles, method)

    def slowdown(victim: Work, beside: Work) -> float:
        v, b = (Entry(gpu, w, alone[w]) for w in (victim, beside))
        return 1 / float(model.speeds([Ask(v, (b,))])[0])

    return slowdown


def _unseen(
    truth: Table,
    pairs: Sequence[Pair],
    profiles: Profiles,
    gpu: str,
    alone: dict[Work, Alone],
    names: set[str],
) -> Table:
    """Each pair by a fit that saw no job of the victim's name."""
    out: Table = {}
    for name in sorted(names):
        others = [p for p in pairs if name not in (p.a.name, p.b.name)]
        mine = {k: v for k, v in truth.items() if k[0].name == name}
        out |= _by(mine, _fitted("blend", others, profiles, gpu, alone))
    return out


def _progress(queue: Sequence[Work], table: Table, truth: Table, gpu: str, gpus: int, seed: int) -> float:
    """Sum of measured speeds under the plan made with a table."""
    jobs = tuple(
        Job(id=f"j{i}", gpus=1, gpu_memory_mib=1, duration_s=3600, profile=work.key)
        for i, work in enumerate(queue)
    )
    cards = tuple(Gpu(node="n", slot=str(i), model=gpu, memory_mib=16384) for i in range(gpus))
    snapshot = Snapshot(cluster=Cluster(nodes=(Node(name="n", gpus=cards),)), jobs=jobs)
    here = set(queue)
    rows = tuple(
        TableRow(gpu_model=gpu, profile=v.key, beside=b.key, slowdown=s)
        for v in here
        for b in here
        for s in (table.get((v, b)) if truth.get((v, b)) is not None else None,)
    )
    spec = PredictorSpec(interference=InterferenceSpec(kind="table", rows=rows, cap=100))
    policy = POLICY.model_copy(update={"seed": seed})
    plan = plan_epoch(snapshot, policy, spec, fixes=False, bound=False)
    work = {f"j{i}": w for i, w in enumerate(queue)}
    total = 0.0
    for a in plan.assignments:
        slowdown = truth[work[a.job_id], work[a.neighbours[0]]] if a.neighbours else 1.0
        total += 1 / slowdown if slowdown else 0.0
    return total


if __name__ == "__main__":
    main()
