"""How good predicted speeds are, by split, GPU model and family: error, bias, order, and who is slowed a lot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from planner.predict.learned import Ask
from planner.predict.model_file import Score

#: A job that runs this much longer beside others is slowed a lot.
SLOWED = 1.25


@dataclass(frozen=True)
class Predicted:
    """What a method says of rows, and what was measured; speeds are 1 / slowdown, shapes (n,); NaN: it says nothing."""

    method: str
    asks: Sequence[Ask]
    speed: np.ndarray
    measured: np.ndarray
    slow: np.ndarray | None  # what one in ten is below


def scores_of(split: str, predictions: Sequence[Predicted]) -> list[Score]:
    """A score for all rows, for each GPU model and for each victim's name, of every method that says something."""
    out = []
    for p in predictions:
        said = ~np.isnan(p.speed)
        for group, rows in _groups(p.asks):
            which = rows & said
            if which.any():
                slow = None if p.slow is None else p.slow[which]
                values = measures(p.speed[which], p.measured[which], slow)
                out.append(
                    Score(split=split, group=group, method=p.method, rows=int(which.sum()), values=values)
                )
    return out


def measures(
    speed: np.ndarray, measured: np.ndarray, slow: np.ndarray | None = None
) -> dict[str, float | None]:
    """Mean absolute error and bias of speed, rank correlation, area under the ROC curve, share above the p90 slowdown."""
    return {
        "mae_speed": float(np.abs(speed - measured).mean()),
        "bias": float((speed - measured).mean()),
        "rank": rank_correlation(speed, measured),
        "auc": area_under_roc(-speed, measured < 1 / SLOWED),
        "beyond_p90": None if slow is None else float((measured < slow - 1e-9).mean()),
    }


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's; None where one of them is constant."""
    x, y = (pd.Series(v).rank().to_numpy(float) for v in (a, b))
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def area_under_roc(score: np.ndarray, positive: np.ndarray) -> float | None:
    """Chance that a positive has the larger score, ties half (Mann-Whitney); None with one class only."""
    n = int(positive.sum())
    if not 0 < n < len(positive):
        return None
    ranks = pd.Series(score).rank().to_numpy(float)
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(positive) - n)))


def _groups(asks: Sequence[Ask]) -> Iterator[tuple[str, np.ndarray]]:
    gpus = np.array([a.victim.gpu_model for a in asks])
    names = np.array([a.victim.work.name for a in asks])
    yield "all", np.ones(len(asks), bool)
    for gpu in sorted(set(gpus.tolist())):
        yield f"GPU {gpu}", gpus == gpu
    for name in sorted(set(names.tolist())):
        yield f"model {name}", names == name
