"""Fit a model of slowdowns to measured pairs, and say how far it is off on rows that it has not seen.

Every row is predicted by fits that never saw its pair (``random``: five folds of pairs) and by fits that never saw a job of one
of its names (``leave one model out``); from the errors of these come the shares of trees and likeness and the upper
quantiles, each for the rows of the other folds, so that what is printed was not chosen on what it is measured on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.errors import InputError
from planner.predict import feasibility
from planner.predict.learned import METHODS, Ask, Encoder, Entry, Fitted, Spread, entries
from planner.predict.model_file import ModelFile, Score, Training, digest
from planner.predict.pairs import Pair, Profiles, Work, read_pairs, read_profiles
from planner.predict.scores import Predicted, scores_of
from planner.predict.similarity import fit as fit_likeness
from planner.predict.trees import grow
from planner.predict.works import Works
from planner.quantities import counted

RANDOM_FOLDS = 5
RANDOM, UNSEEN = "random", "leave one model out"
#: The group of pairs that each split is like.
GROUP_OF = {RANDOM: "known", UNSEEN: "unknown"}
SHARES = tuple(np.linspace(0, 1, 11).tolist())
FEWEST_PAIRS, FEWEST_FOR_A_SPREAD = 20, 60
#: In ten errors so large, the scale of the others is not zero.
LEAST_SCALE = 0.01


@dataclass(frozen=True)
class Data:
    """Directed rows: victims beside one other, with their measured speeds. ``pair`` has two rows each; shapes (n,)."""

    asks: tuple[Ask, ...]
    speed: np.ndarray
    pair: np.ndarray

    def take(self, which: np.ndarray) -> Data:
        """Some rows."""
        return Data(tuple(self.asks[i] for i in which.tolist()), self.speed[which], self.pair[which])

    @property
    def places(self) -> tuple[str, ...]:
        """GPU models with the way of sharing, sorted."""
        return tuple(sorted({a.place for a in self.asks}))

    @property
    def gpus(self) -> tuple[str, ...]:
        """GPU models, sorted."""
        return tuple(sorted({a.victim.gpu_model for a in self.asks}))


def directed(pairs: Sequence[Pair]) -> Data:
    """Both directions of every pair that was measured and fits."""
    asks, speeds, numbers = [], [], []
    for i, p in enumerate(pairs):
        if p.slowdown_a is None or p.slowdown_b is None:
            continue
        a, b = entries(p)
        asks += [Ask(a, (b,), p.sharing), Ask(b, (a,), p.sharing)]
        speeds += [1 / p.slowdown_a, 1 / p.slowdown_b]
        numbers += [i, i]
    return Data(tuple(asks), np.array(speeds), np.array(numbers, np.int64))


def fit_model(data: Data, profiles: Profiles, method: str) -> Fitted:
    """Trees and likeness as the method asks; shares and spreads are those of an even mix, not yet judged."""
    encoder = _encoder(data, profiles)
    trees = similarity = None
    if method != "similarity":
        leaf = max(2, min(20, len(data.asks) // 30))
        trees = grow(encoder.features(data.asks), data.speed, encoder.monotone, leaf=leaf)
    if method != "learned":
        jobs, cells = encoder.cells(data.asks)
        similarity = fit_likeness(jobs, cells, data.speed, data.pair, len(encoder.places))
    share = {"blend": 0.5, "learned": 1.0, "similarity": 0.0}[method]
    known = frozenset(e.work for a in data.asks for e in (a.victim, *a.beside))
    return Fitted(method, encoder, known, trees, similarity, dict.fromkeys(GROUP_OF.values(), share))


def _encoder(data: Data, profiles: Profiles) -> Encoder:
    alone = {(e.gpu_model, e.work): e.alone for a in data.asks for e in (a.victim, *a.beside)}
    works = Works.of({**profiles, **alone})  # the rows may know more of a job than its profile
    width = len(works.columns)
    blank = Encoder(works, data.places, np.zeros(width), np.ones(width))
    vectors = np.stack([blank.vector(Entry(gpu, work, a)) for (gpu, work), a in alone.items()])
    seen = ~np.isnan(vectors)
    count = np.maximum(1, seen.sum(0))
    mean = np.where(seen, vectors, 0).sum(0) / count
    deviation = np.sqrt((np.where(seen, vectors - mean, 0) ** 2).sum(0) / count)
    return replace(blank, mean=mean, deviation=np.where(deviation > 1e-9, deviation, 1))


@dataclass(frozen=True)
class Fold:
    """Rows that a fit did not see, and what its parts and the baselines said of them; shapes (rows,)."""

    rows: np.ndarray
    trees: np.ndarray
    likeness: np.ndarray
    baselines: dict[str, np.ndarray]


def folds(data: Data, split: str) -> Iterator[np.ndarray]:
    """Rows to leave out, one array a fold."""
    if split == RANDOM:
        # The same two jobs on the same GPU model, measured twice or written the other way round, are one pair.
        numbers: dict[object, int] = {}
        same = [(a.place, frozenset(e.work for e in (a.victim, *a.beside))) for a in data.asks]
        group = np.array([numbers.setdefault(key, len(numbers)) for key in same])
        order = np.random.default_rng(0).permutation(len(numbers))
        for part in np.array_split(order, RANDOM_FOLDS):
            yield np.flatnonzero(np.isin(group, part))
        return
    names = [{a.victim.work.name, *(b.work.name for b in a.beside)} for a in data.asks]
    for name in sorted(set().union(*names)):
        yield np.array([i for i, n in enumerate(names) if name in n], np.int64)


def judged(
    data: Data, profiles: Profiles, method: str, split: str, heard: Callable[[str], None]
) -> list[Fold]:
    """What fits without each fold say of it."""
    out = []
    for i, rows in enumerate(folds(data, split)):
        seen = np.setdiff1d(np.arange(len(data.asks)), rows)
        if len(seen) < FEWEST_PAIRS:
            continue
        heard(f"{split}, fold {i + 1}: {counted(len(rows), 'row')} left out")
        model = fit_model(data.take(seen), profiles, method)
        asked = [data.asks[r] for r in rows.tolist()]
        trees, likeness = (
            np.clip(replace(model, share=dict.fromkeys(GROUP_OF.values(), s)).speeds(asked), 0, 1)
            if part is not None
            else np.zeros(len(rows))
            for part, s in ((model.trees, 1.0), (model.similarity, 0.0))
        )
        out.append(Fold(rows, trees, likeness, _baselines(data.take(seen), asked)))
    return out


def _baselines(seen: Data, asked: Sequence[Ask]) -> dict[str, np.ndarray]:
    """Mean speed of the GPU model, of the victim's row, and the hinge on summed utilisation, its slope fitted."""
    gpu_mean = {g: _mean(seen.speed, [a.victim.gpu_model == g for a in seen.asks]) for g in seen.gpus}
    whole = float(seen.speed.mean())
    rows: dict[tuple[str, Work], list[float]] = {}
    for ask, speed in zip(seen.asks, seen.speed.tolist(), strict=True):
        rows.setdefault((ask.victim.gpu_model, ask.victim.work), []).append(speed)
    constant = [gpu_mean.get(a.victim.gpu_model, whole) for a in asked]
    row = [
        float(np.mean(rows[key])) if (key := (a.victim.gpu_model, a.victim.work)) in rows else c
        for a, c in zip(asked, constant, strict=True)
    ]
    return {"constant": np.array(constant), "mean of row": np.array(row), "hinge": _hinge(seen, asked)}


def _mean(values: np.ndarray, which: list[bool]) -> float:
    return float(values[np.array(which)].mean())


def _hinge(seen: Data, asked: Sequence[Ask]) -> np.ndarray:
    """1 - b max(0, summed utilisation - 100), the best b of a grid; NaN where a utilisation is unknown."""
    past, ahead = _excess(seen.asks), _excess(asked)
    known = ~np.isnan(past)
    if not known.any():
        return np.full(len(asked), np.nan)
    slopes = np.linspace(0, 1.5, 61)
    errors = [np.abs(np.clip(1 - b * past[known], 0, 1) - seen.speed[known]).mean() for b in slopes]
    return np.clip(1 - float(slopes[int(np.argmin(errors))]) * ahead, 0, 1)


def _excess(asks: Sequence[Ask]) -> np.ndarray:
    use = [[e.alone.utilisation_pct for e in (a.victim, *a.beside)] for a in asks]
    return np.array([np.nan if None in u else max(0.0, sum(x or 0.0 for x in u) - 100) / 100 for u in use])


def mixed(parts: Sequence[Fold], speed: np.ndarray) -> float:
    """The share of the trees with the least mean absolute error."""
    errors = [
        sum(float(np.abs(s * f.trees + (1 - s) * f.likeness - speed[f.rows]).sum()) for f in parts)
        for s in SHARES
    ]
    return SHARES[int(np.argmin(errors))]


def spread(predicted: np.ndarray, measured: np.ndarray) -> Spread:
    """Error scale and the quantile of what is left, for a tenth of the rows below."""
    error, loss = np.abs(predicted - measured), 1 - predicted
    slope, base = np.polyfit(loss, error, 1) if np.ptp(loss) > 1e-6 else (0.0, float(error.mean()))
    if slope < 0 or base < 0:
        slope, base = max(0.0, float((error * loss).sum() / max(1e-9, (loss**2).sum()))), 0.0
    base = max(LEAST_SCALE, float(base))
    ratio = np.sort((predicted - measured) / (base + slope * loss))
    rank = min(len(ratio) - 1, int(np.ceil(0.9 * (len(ratio) + 1))) - 1)
    return Spread(base, float(slope), float(ratio[rank]))


def _spreads(asks: Sequence[Ask], predicted: np.ndarray, measured: np.ndarray) -> dict[str, Spread]:
    """Of all rows under the empty name, and of each GPU model with enough of them under `` MODEL``."""
    out = {"": spread(predicted, measured)}
    gpus = np.array([a.victim.gpu_model for a in asks])
    for gpu in sorted(set(gpus.tolist())):
        rows = gpus == gpu
        if rows.sum() >= FEWEST_FOR_A_SPREAD:
            out[f" {gpu}"] = spread(predicted[rows], measured[rows])
    return out


def _below(spreads: dict[str, Spread], asks: Sequence[Ask], speeds: np.ndarray) -> np.ndarray:
    return np.array(
        [
            float((spreads.get(f" {a.victim.gpu_model}") or spreads[""]).below(v))
            for a, v in zip(asks, speeds, strict=True)
        ]
    )


def fit(
    pairs: Sequence[Pair],
    profiles: Profiles,
    method: str = "blend",
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[Fitted, tuple[Score, ...]]:
    """Fit, and judge the fit.

    Raises
    ------
    InputError
        Too few pairs are measured.
    EngineMissing
        The method needs scikit-learn, which is not installed.
    """
    data = directed(pairs)
    if len(data.asks) < 2 * FEWEST_PAIRS:
        raise InputError(
            "pairs",
            f"{counted(len(data.asks) // 2, 'pair')} measured and feasible",
            f"at least {FEWEST_PAIRS}",
        )
    model = fit_model(data, profiles, method)
    share, spreads = dict(model.share), dict[str, Spread]()
    scores: list[Score] = []
    for split, group in GROUP_OF.items():
        parts = judged(data, profiles, method, split, heard)
        if not parts:
            continue
        share[group] = mixed(parts, data.speed) if method == "blend" else share[group]
        predictions = _predictions(data, parts, method, model.share[group])
        found = next(p for p in predictions if p.method == method)
        spreads |= {
            f"{group}{name}": s for name, s in _spreads(found.asks, found.speed, found.measured).items()
        }
        scores += scores_of(split, predictions)
    for group in GROUP_OF.values():
        spreads.setdefault(group, Spread(LEAST_SCALE, 0.5, 1.0))
    fits = feasibility.fit(pairs).as_json()
    return replace(model, share=share, spread=spreads, feasibility=fits), tuple(scores)


def _predictions(data: Data, parts: Sequence[Fold], method: str, share: float) -> list[Predicted]:
    """Of each method, all rows of all folds; shares and quantiles are those of the other folds."""
    speeds, slow = [], []
    for i, part in enumerate(parts):
        others = [_without(p, part.rows) for j, p in enumerate(parts) if j != i]
        others = others if any(len(p.rows) for p in others) else [part]
        s = mixed(others, data.speed) if method == "blend" else share
        speeds.append(s * part.trees + (1 - s) * part.likeness)
        theirs = np.concatenate([p.rows for p in others])
        said = np.concatenate([s * p.trees + (1 - s) * p.likeness for p in others])
        judge = _spreads([data.asks[r] for r in theirs.tolist()], said, data.speed[theirs])
        slow.append(_below(judge, [data.asks[r] for r in part.rows.tolist()], speeds[-1]))
    rows = np.concatenate([p.rows for p in parts])
    asks, measured = [data.asks[r] for r in rows.tolist()], data.speed[rows]
    names = parts[0].baselines
    out = [Predicted(method, asks, np.concatenate(speeds), measured, np.concatenate(slow))]
    for name in names:
        out.append(Predicted(name, asks, np.concatenate([p.baselines[name] for p in parts]), measured, None))
    return out


def _without(part: Fold, rows: np.ndarray) -> Fold:
    """A fold without these rows: a pair of two names is left out with each of them."""
    keep = ~np.isin(part.rows, rows)
    return Fold(part.rows[keep], part.trees[keep], part.likeness[keep], {})


def fit_files(
    pairs_path: Path, profiles_path: Path | None, method: str, heard: Callable[[str], None] = lambda _: None
) -> ModelFile:
    """A model file from tables of pairs and profiles. Raises InputError, EngineMissing."""
    if method not in METHODS:
        raise InputError("--method", method, ", ".join(METHODS))
    profiles = read_profiles(profiles_path) if profiles_path else {}
    pairs = read_pairs(pairs_path, profiles, measured=True)
    model, scores = fit(pairs, profiles, method, heard)
    files = (pairs_path.name, *((profiles_path.name,) if profiles_path else ()))
    training = Training(
        digest=digest([*(p.raw for p in pairs), *(f"{k}" for k in profiles.items())]),
        rows=len(pairs),
        files=files,
        about="planner fit interference",
    )
    return ModelFile(
        kind="interference",
        method=method,
        columns=model.encoder.columns,
        training=training,
        scores=scores,
        parameters=model.as_json(),
    )
