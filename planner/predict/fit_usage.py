"""Fits the model of usage to measured jobs, and judges it on jobs that the fit did not see.

A handful of coefficients with a physical meaning, each held near what physics leads to expect (least squares with priors,
outliers weighed down), so that one GPU model and ten architectures suffice. Two splits: five random parts, where the
architecture is known from its other batch sizes, and each architecture left out. What the middle is off by on left-out
architectures gives the p95 values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.errors import InputError
from planner.predict.memory import SITE_SLACK_MIB, SLACK_MIB, MemoryModel, margin_mib, regions_mib
from planner.predict.model_file import ModelFile, Score, Training, digest
from planner.predict.usage import BusyModel, Spread, UsageModel, logit, signature
from planner.predict.usage_rows import Measured, Works, read_rows
from planner.predict.usage_scores import Judged, judge, scores_of
from planner.quantities import counted

RANDOM, UNSEEN = "random fifth", "architecture left out"
PARTS = 5
FEWEST_ROWS, FEWEST_ARCHITECTURES = 8, 3
#: Noise of a measurement: of log memory, and of the log of 1 + the busy share (which RMSLE is of).
MEMORY_NOISE, BUSY_NOISE = 0.1, 0.12
#: How far each coefficient may well lie from its default, as a deviation of its logarithm.
MEMORY_PRIOR = {"context_mib": 0.5, "kept": 0.25, "mixed": 0.2, "passing": 0.3, "scratch_mib": 1.0}
BUSY_PRIOR = {
    "work": 0.4, "kernel_us": 0.4, "launch_us": 0.4, "wait_ms": 1.0, "sample_ms": 1.5, "sharpness": 0.4,
}  # fmt: skip
#: Of a squared standard normal number: a variance by the median, which a graph measured wrongly does not decide.
MEDIAN_OF_SQUARE = 0.4549
#: TensorFlow's regions add up to two less than a multiple of this, once they hold as much.
REGION_MIB = 1024


def fit_model(rows: Sequence[Measured]) -> UsageModel:
    """Coefficients and the known graphs' deviations; the spread is not yet judged."""
    memory, busy = _fit_memory(rows), _fit_busy(rows)
    return UsageModel(memory, busy, Spread(), _deviations(rows, busy))


def _fit_memory(rows: Sequence[Measured]) -> MemoryModel:
    told = [r for r in rows if r.memory_mib]

    def off(model: MemoryModel) -> list[float]:
        return [x / MEMORY_NOISE for r in told for x in _memory_residuals(r, model)]

    fitted = _fitted(MemoryModel(), MEMORY_PRIOR, lambda values: off(MemoryModel(**values)))
    # a TensorFlow job's context is read off its regions, less surely
    sure = any(not (r.tensorflow or r.bare) for r in told)
    return MemoryModel(**fitted, slack_mib=SITE_SLACK_MIB if sure else SLACK_MIB)


def _memory_residuals(r: Measured, model: MemoryModel) -> tuple[float, ...]:
    """Logarithms of measured over predicted. A TensorFlow job tells the context and a range for the need."""
    assert r.memory_mib is not None
    need = model.need_mib(r.features, r.training, mixed=r.mixed)
    if not r.tensorflow:
        return (math.log(r.memory_mib / (need + (0.0 if r.bare else model.context_mib))),)
    context = context_of_regions(r.memory_mib, MemoryModel().context_mib)
    log_need = math.log(need + model.scratch(r.features))
    most = math.log(max(2.0, r.memory_mib - context))
    beyond = max(0.0, log_need - most) - max(0.0, most - math.log(2) - log_need)
    return (math.log(context / model.context_mib), -beyond)


def context_of_regions(memory_mib: float, expected_mib: float) -> float:
    """What of a TensorFlow job's memory is no region: the one of its possible values next to what is expected."""
    least = (memory_mib + 2) % REGION_MIB
    steps = max(0, round((min(expected_mib, memory_mib) - least) / REGION_MIB))
    return min(memory_mib, least + steps * REGION_MIB or expected_mib)


def _fit_busy(rows: Sequence[Measured]) -> BusyModel:
    told = [(r, r.utilisation_pct) for r in rows if r.utilisation_pct is not None]

    def off(model: BusyModel) -> list[float]:
        return [
            (math.log1p(pct / 100) - math.log1p(busy_pct(model, r) / 100)) / BUSY_NOISE for r, pct in told
        ]

    return BusyModel(**_fitted(BusyModel(), BUSY_PRIOR, lambda values: off(BusyModel(**values))))


def busy_pct(model: BusyModel, r: Measured) -> float:
    """Utilisation that the physics say, %."""
    return model.utilisation_pct(r.features, r.gpu_model, r.training, mixed=r.mixed)


def _fitted(
    start: MemoryModel | BusyModel,
    prior: Mapping[str, float],
    off: Callable[[dict[str, float]], list[float]],
) -> dict[str, float]:
    """Coefficients of the least squared residuals and distances from ``start``, both in their deviations.

    Gauss-Newton in the coefficients' logarithms, damped (Levenberg-Marquardt); a residual beyond 1 counts with its root (soft
    L1), so that a job measured wrongly does not decide.
    """
    names = list(prior)
    mean = np.log([getattr(start, name) for name in names])
    deviation = np.array([prior[name] for name in names])

    def residuals(at: np.ndarray) -> np.ndarray:
        measured = np.array(off(dict(zip(names, np.exp(at).tolist(), strict=True))))
        soft = np.sign(measured) * np.sqrt(2 * (np.sqrt(1 + measured**2) - 1))
        return np.concatenate([soft, (at - mean) / deviation])

    at, damping = mean, 1e-2
    now = residuals(at)
    for _ in range(60):
        slopes = np.stack([(residuals(at + 1e-5 * e) - now) / 1e-5 for e in np.eye(len(names))], axis=1)
        squares = slopes.T @ slopes
        step = np.linalg.solve(squares + damping * np.diag(np.diag(squares)), -slopes.T @ now)
        then = residuals(at + step)
        if then @ then < now @ now:
            at, now, damping = at + step, then, damping / 3
            if np.abs(step).max() < 1e-6:
                break
        else:
            damping *= 4
    return dict(zip(names, np.round(np.exp(at), 6).tolist(), strict=True))


def _deviations(rows: Sequence[Measured], model: BusyModel) -> dict[str, float]:
    """How each graph's utilisation differs from the physics, in the logit."""
    off: dict[str, list[float]] = {}
    for r in rows:
        if r.utilisation_pct is not None:
            beside = logit(r.utilisation_pct) - logit(busy_pct(model, r))
            off.setdefault(signature(r.features), []).append(beside)
    return dict(sorted(_drawn(off).items()))


def _drawn(groups: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Means of groups, drawn towards 0; none if a value left out is not told better by them than by 0."""
    whole = _shrunk(groups)
    trials = [
        (x, _shrunk({**groups, key: [*g[:i], *g[i + 1 :]]}).get(key, 0.0))
        for key, g in groups.items()
        for i, x in enumerate(g)
        if len(g) > 1
    ]
    better = sum(abs(x - told) for x, told in trials) < sum(abs(x) for x, _ in trials)
    return whole if better else {}


def _shrunk(groups: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Means drawn towards 0 by how much values differ within groups and groups among each other."""
    inner = [x - sum(g) / len(g) for g in groups.values() for x in g]
    freedom = len(inner) - len(groups)
    if freedom < 1:
        return {}
    within = sum(x * x for x in inner) / freedom
    squares = [(sum(g) / len(g)) ** 2 - within / len(g) for g in groups.values()]
    between = float(np.median(squares)) / MEDIAN_OF_SQUARE
    if between <= 0:
        return {}
    return {key: round(sum(g) / (len(g) + within / between), 6) for key, g in groups.items()}


def folds(rows: Sequence[Measured], split: str) -> Iterator[np.ndarray]:
    """Rows to leave out, one array a fold."""
    if split == RANDOM:
        yield from np.array_split(np.random.default_rng(0).permutation(len(rows)), PARTS)
        return
    names = np.array([r.name for r in rows])
    for name in sorted(set(names.tolist())):
        yield np.flatnonzero(names == name)


def left_out(rows: Sequence[Measured], split: str) -> tuple[list[Judged], Spread]:
    """What fits without each fold say of it, p95 values by the other folds' errors; and the errors of all."""
    fits = []
    for fold in folds(rows, split):
        seen = [rows[i] for i in np.setdiff1d(np.arange(len(rows)), fold).tolist()]
        fits.append((fit_model(seen), [rows[i] for i in fold.tolist()], seen))
    beyond = [_beyond(model, out) for model, out, _ in fits]
    parts = [
        judge(replace(model, spread=spread([b for j, b in enumerate(beyond) if j != i])), out, seen)
        for i, (model, out, seen) in enumerate(fits)
    ]
    return parts, spread(beyond)


Beyond = tuple[list[float], list[float]]  # margins of memory, differences of logits of utilisation


def _beyond(model: UsageModel, rows: Sequence[Measured]) -> Beyond:
    """How far measurements lie beyond what a model without them says."""
    memory = [_margins(model.memory, r, r.memory_mib) for r in rows if r.memory_mib]
    busy = [
        logit(r.utilisation_pct)
        - logit(model.utilisation_pct(r.features, r.gpu_model, r.training, mixed=r.mixed))
        for r in rows
        if r.utilisation_pct is not None
    ]
    return memory, busy


def _margins(model: MemoryModel, r: Measured, measured: float) -> float:
    """The margins that the upper value would have needed to reach what was measured."""
    need = model.need_mib(r.features, r.training, mixed=r.mixed)
    least = measured - (0.0 if r.bare else model.context_mib + model.slack_mib)
    if r.tensorflow:
        # the need lies between half of the regions and all of them: the geometric middle, as for a log-uniform value
        least = regions_mib(max(0.0, least)) / math.sqrt(2) - model.scratch(r.features, most=True)
    return (least - need) / margin_mib(need)


def spread(parts: Sequence[Beyond]) -> Spread:
    """Conformal quantiles for one in twenty above."""
    return Spread(
        _high([x for memory, _ in parts for x in memory]), _high([x for _, busy in parts for x in busy])
    )


def _high(values: Sequence[float]) -> float:
    """The value that one more like these is below with a chance of 95 %; the largest where they are too few."""
    rank = min(len(values), math.ceil(0.95 * (len(values) + 1)))
    return round(max(0.0, sorted(values)[rank - 1]), 6) if len(values) else 0.0


def fit(rows: Sequence[Measured]) -> tuple[UsageModel, tuple[Score, ...]]:
    """Fit, and judge the fit.

    Raises
    ------
    InputError
        Too few rows or architectures.
    """
    names = {r.name for r in rows}
    if len(rows) < FEWEST_ROWS or len(names) < FEWEST_ARCHITECTURES:
        found = f"{counted(len(rows), 'job')} of {counted(len(names), 'known architecture')}"
        raise InputError("profiles", found, f"{FEWEST_ROWS} of {FEWEST_ARCHITECTURES} or more")
    known, _ = left_out(rows, RANDOM)
    unseen, beyond = left_out(rows, UNSEEN)
    scores = (*scores_of(RANDOM, known), *scores_of(UNSEEN, unseen))
    return replace(fit_model(rows), spread=beyond), scores


def fit_files(
    profiles_path: Path, works: Works | None = None, heard: Callable[[str], None] = lambda _: None
) -> ModelFile:
    """A model file from a table of profiles (``usage_rows.read_rows``). Raises InputError."""
    rows, unknown = read_rows(profiles_path, works)
    left = ", ".join(f"{name} ({n})" for name, n in unknown.items())
    if left:
        heard(f"not in the catalogue: {left}")
    model, scores = fit(rows)
    about = "planner fit usage" + (f"; not in the catalogue: {left}" if left else "")
    return model.to_file(scores, training_of(rows, about, profiles_path.name))


def training_of(rows: Sequence[Measured], about: str, file: str) -> Training:
    """What a model was fitted on."""
    return Training(digest=digest(r.raw for r in rows), rows=len(rows), files=(file,), about=about)
