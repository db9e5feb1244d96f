"""Whether two jobs fit into a GPU's memory together, learned from which pairs did.

Each kind of work has a memory, known from its profile or else estimated from its architecture; pairs whose sum passes what a GPU
model has do not fit. Which of the measured pairs fitted tells how far an estimate is off: a pair fails with probability
1 / (1 + exp(-k log((m_i + m_j) / T))), with the GPU model's T, a steepness k, and for each kind of work a factor on its memory that is
drawn towards 1, by penalised maximum likelihood. A kind of work that was in no pair keeps its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.gpu_models import known_memory_mib
from planner.predict import catalogue, usage
from planner.predict.learned import Entry, entries
from planner.predict.pairs import Pair, Work

#: A pair is said not to fit from this probability on. A wrong yes kills a job, a wrong no only leaves it waiting.
DOUBTFUL = 0.35
#: Penalties: of the squared log factor of a work, and of the log threshold's distance from the GPU's memory.
ON_FACTOR, ON_THRESHOLD = 1.0, 2.0
STEEPNESS = 12.0
LARGEST = 1e12
ROUNDS, RATE = 400, 0.05
#: Where a GPU model comes in several sizes: the smallest.
SMALLEST_MIB = {"v100": 16384, "a100": 40960}


@dataclass(frozen=True)
class Feasibility:
    """``factors`` on estimated memory by kind of work; ``thresholds`` in MiB by GPU model."""

    factors: dict[Work, float]
    thresholds: dict[str, float]

    def misfit(self, a: Entry, b: Entry) -> float | None:
        """Probability that the two do not fit together; None where a memory is unknown."""
        limit = self.thresholds.get(a.gpu_model) or capacity_mib(a.gpu_model)
        sizes = [estimate_mib(e) for e in (a, b)]
        if limit is None or None in sizes:
            return None
        total = sum((s or 0) * self.factors.get(e.work, 1.0) for s, e in zip(sizes, (a, b), strict=True))
        if total <= 0:
            return 0.0
        return 1 / (1 + math.exp(max(-700.0, min(700.0, -STEEPNESS * math.log(total / limit)))))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        works = sorted(self.factors, key=lambda w: (w.key, str(w.mixed)))
        return {
            "factors": [[w.name, w.dataset, w.batch, w.mixed, self.factors[w]] for w in works],
            "thresholds": self.thresholds,
        }

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Feasibility:
        """From what ``as_json`` wrote."""
        read = cls({Work(*w): float(f) for *w, f in told["factors"]}, dict(told["thresholds"]))
        if not all(0 < float(v) < LARGEST for v in (*read.factors.values(), *read.thresholds.values())):
            raise ValueError("a factor or threshold of memory is not above 0")
        return read


def capacity_mib(gpu_model: str) -> int | None:
    """Memory of a GPU model; of one that comes in several sizes the smallest."""
    return known_memory_mib(gpu_model) or SMALLEST_MIB.get(gpu_model)


def estimate_mib(entry: Entry) -> float | None:
    """Measured alone, or from the architecture that the name means; None: neither."""
    if entry.alone.memory_mib is not None:
        return entry.alone.memory_mib
    architecture = catalogue.find(entry.work.name, entry.work.dataset or None)
    if architecture is None:
        return None
    features = architecture.at(entry.work.batch or 1)
    return usage.default().predict(features, None, mixed=bool(entry.work.mixed)).memory_mib


def fit(pairs: Sequence[Pair]) -> Feasibility:
    """From the pairs of which it is said whether they fit, and whose memory is known or estimated."""
    rows = [(p, *entries(p)) for p in pairs if p.feasible is not None]
    sizes = {e: estimate_mib(e) for _, a, b in rows for e in (a, b)}
    rows = [r for r in rows if sizes[r[1]] and sizes[r[2]] and capacity_mib(r[0].gpu_model)]
    if not rows or all(p.feasible for p, _, _ in rows):
        return Feasibility({}, {})
    works = sorted({e.work for _, a, b in rows for e in (a, b)}, key=lambda w: w.key)
    gpus = sorted({p.gpu_model for p, _, _ in rows})
    ends = np.array([[works.index(a.work), works.index(b.work)] for _, a, b in rows])
    logs = np.array([[math.log(sizes[a] or 1), math.log(sizes[b] or 1)] for _, a, b in rows])
    gpu = np.array([gpus.index(p.gpu_model) for p, _, _ in rows])
    start = np.array([math.log(capacity_mib(g) or 1) for g in gpus])
    failed = np.array([not p.feasible for p, _, _ in rows], float)
    factor, threshold = _climb(ends, logs, gpu, failed, np.zeros(len(works)), start)
    return Feasibility(
        dict(zip(works, np.exp(factor).tolist(), strict=True)),
        dict(zip(gpus, np.exp(threshold).tolist(), strict=True)),
    )


def _climb(
    ends: np.ndarray,
    logs: np.ndarray,
    gpu: np.ndarray,
    failed: np.ndarray,
    factor: np.ndarray,
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Log factors and log thresholds, by Adam (Kingma and Ba, 2015) on the penalised likelihood; failures weigh as much as the rest."""
    threshold = start.copy()
    weight = np.where(failed > 0, max(1.0, (1 - failed).sum() / failed.sum()) ** 0.5, 1.0)
    moments = [np.zeros(len(factor)), np.zeros(len(factor)), np.zeros(len(start)), np.zeros(len(start))]
    for step in range(1, ROUNDS + 1):
        memory = np.exp(logs + factor[ends])
        total = memory.sum(1)
        risk = 1 / (1 + np.exp(-np.clip(STEEPNESS * (np.log(total) - threshold[gpu]), -40, 40)))
        pull = weight * STEEPNESS * (risk - failed)
        by_work = np.zeros(len(factor))
        np.add.at(by_work, ends, pull[:, None] * memory / total[:, None])
        by_gpu = np.bincount(gpu, weights=-pull, minlength=len(start))
        for i, (x, slope) in enumerate(
            (
                (factor, by_work + 2 * ON_FACTOR * factor),
                (threshold, by_gpu + 2 * ON_THRESHOLD * (threshold - start)),
            )
        ):
            first, second = moments[2 * i], moments[2 * i + 1]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            x -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-9)
    return factor, threshold
