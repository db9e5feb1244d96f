"""Boosted regression trees as plain arrays: grown by scikit-learn, evaluated here without it.

Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29(5), 2001; histogram-based as in
LightGBM (Ke et al., NeurIPS 2017). Monotone constraints bound each split's children, so that they hold for the whole
ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planner.errors import EngineMissing

#: Shapes of the trees; with few rows, shallow and many.
LEAVES, ROUNDS, RATE, FEWEST_IN_A_LEAF = 8, 300, 0.05, 20
#: In place of an infinite threshold (all that is known goes left), which JSON cannot hold.
LARGEST = float(np.finfo(float).max)


@dataclass(frozen=True)
class Trees:
    """An ensemble; node arrays have shape (T, N), padded. A leaf is its own child."""

    base: float
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    depth: int

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Shape (rows,) from features of shape (rows, columns); NaN takes the side learned for it."""
        if not len(x):
            return np.zeros(0)
        feature, threshold, missing_left, left, right, value = self._flat
        starts = np.arange(len(self.feature)) * self.feature.shape[1]
        at = np.repeat(starts[None], len(x), axis=0)
        rows = (np.arange(len(x)) * x.shape[1])[:, None]
        cells, unknown = x.ravel(), np.isnan(x).ravel()
        for _ in range(self.depth):
            cell = rows + feature.take(at)
            goes_left = cells.take(cell) <= threshold.take(at)  # a comparison with NaN is false
            goes_left |= unknown.take(cell) & missing_left.take(at)
            at = np.where(goes_left, left.take(at), right.take(at))
        total: np.ndarray = self.base + value.take(at).sum(1)
        return total

    @cached_property
    def _flat(self) -> tuple[np.ndarray, ...]:
        """The node arrays in one piece each, children as positions there."""
        starts = (np.arange(len(self.feature)) * self.feature.shape[1])[:, None]
        arrays = (
            self.feature,
            self.threshold,
            self.missing_left,
            starts + self.left,
            starts + self.right,
            self.value,
        )
        return tuple(a.ravel() for a in arrays)

    def as_json(self) -> dict[str, Any]:
        """Plain lists, in full precision."""
        arrays = ("feature", "threshold", "missing_left", "left", "right", "value")
        return {"base": self.base, "depth": self.depth} | {k: getattr(self, k).tolist() for k in arrays}

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Trees:
        """From what ``as_json`` wrote."""
        whole = {k: np.array(told[k], np.int64) for k in ("feature", "left", "right")}
        real = {k: np.array(told[k], float) for k in ("threshold", "value")}
        n = whole["feature"].shape[1]
        sound = all(((v >= 0) & (v < n)).all() for v in (whole["left"], whole["right"]))
        if not (
            sound
            and (whole["feature"] >= 0).all()
            and 1 <= told["depth"] <= n
            and np.isfinite(real["value"]).all()
        ):
            raise ValueError("the trees' nodes lead nowhere")
        return cls(
            float(told["base"]),
            missing_left=np.array(told["missing_left"], bool),
            depth=told["depth"],
            **whole,
            **real,
        )


def grow(
    x: np.ndarray, y: np.ndarray, monotone: list[int], *, rounds: int = ROUNDS, leaf: int = FEWEST_IN_A_LEAF
) -> Trees:
    """Fit an ensemble to the squared error.

    Not to the absolute error: scikit-learn then sets the values of the leaves to medians after it has grown a tree, whatever
    bounds the monotone constraints gave them.

    Parameters
    ----------
    x, y
        Shapes (rows, columns) and (rows,).
    monotone
        For each column 1 (never falls), -1 (never rises) or 0.

    Raises
    ------
    EngineMissing
        scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise EngineMissing(
            "fitting trees needs scikit-learn, which is not installed (pip install scikit-learn)"
        ) from None
    model = HistGradientBoostingRegressor(
        loss="squared_error",
        learning_rate=RATE,
        max_iter=rounds,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=leaf,
        monotonic_cst=monotone,
        early_stopping=False,
        random_state=0,
    ).fit(np.where(np.isnan(x).all(0), 0.0, x), y)  # it cannot bin a column that is unknown everywhere
    return _exported(model)


def _exported(model: Any) -> Trees:
    """The fitted trees of scikit-learn, which has no public way to them; a test holds both to the same predictions."""
    nodes = [stage[0].nodes for stage in model._predictors]  # noqa: SLF001
    most = max(len(n) for n in nodes)
    trees = len(nodes)
    shape = (trees, most)
    feature, left, right = (np.zeros(shape, np.int64) for _ in range(3))
    threshold, value = np.zeros(shape), np.zeros(shape)
    missing = np.zeros(shape, bool)
    depth = 0
    for t, tree in enumerate(nodes):
        n = len(tree)
        leaf = tree["is_leaf"].astype(bool)
        own = np.arange(n)
        feature[t, :n] = np.where(leaf, 0, tree["feature_idx"])
        threshold[t, :n] = np.where(leaf, 0, np.minimum(tree["num_threshold"], LARGEST))
        missing[t, :n] = tree["missing_go_to_left"].astype(bool)
        left[t, :n] = np.where(leaf, own, tree["left"])
        right[t, :n] = np.where(leaf, own, tree["right"])
        value[t, :n] = np.where(leaf, tree["value"], 0)
        depth = max(depth, int(tree["depth"].max()))
    base = float(np.asarray(model._baseline_prediction).ravel()[0])  # noqa: SLF001
    return Trees(base, feature, threshold, missing, left, right, value, depth)
