"""Slowdowns learned from measured pairs: boosted trees on features of the victim and of its co-runners, likeness, or both.

``learned`` is Geng et al.'s IAPP: what is known of the victim, the sum and the maximum over its co-runners, what they come to
together, and the GPU model; monotone where physics says so (more contention never predicts less slowdown). ``similarity``
is their IASP. ``blend``, the default, mixes both; how much of each, and how far the truth may lie above, is
judged apart for pairs of jobs that were measured with others and for pairs with a job that never was, because trees are better
on some tables and likeness on others, and the first are predicted far better than the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from planner.gpu_models import without_size
from planner.predict.pairs import Alone, Pair, Work, joined
from planner.predict.similarity import Cells, Jobs, Similarity
from planner.predict.trees import Trees
from planner.predict.works import BANDWIDTH_GB_S, OWN, Works

METHODS = ("blend", "learned", "similarity")
#: Of a job's vector, what several co-runners use together; of all of it, the largest counts.
ADDED = ("utilisation_pct", "bandwidth_pct", "memory_mib")
TOGETHER = (
    "total_utilisation",
    "excess_utilisation",
    "product_utilisation",
    "total_bandwidth",
    "steps_ratio",
)
#: More of these never means less slowdown.
CONTENTION = ("utilisation_pct", "bandwidth_pct", *TOGETHER[:4])
#: No speed beside others is predicted below this.
SLOWEST = 0.05
#: Vectors that lie further out than this many standard deviations are held there.
FARTHEST = 4.0


@dataclass(frozen=True)
class Entry:
    """A job on a GPU model, as a row or a snapshot names it."""

    gpu_model: str
    work: Work
    alone: Alone


@dataclass(frozen=True)
class Ask:
    """A victim and all that share its GPU."""

    victim: Entry
    beside: tuple[Entry, ...]
    sharing: str | None = None  # time-slice or mps; None: not said

    @property
    def place(self) -> str:
        """GPU model and way of sharing; turns by time slices are what is meant where nothing is said."""
        return f"{self.victim.gpu_model} mps" if self.sharing == "mps" else self.victim.gpu_model


def entries(pair: Pair) -> tuple[Entry, Entry]:
    """The two jobs of a row."""
    return Entry(pair.gpu_model, pair.a, pair.alone_a), Entry(pair.gpu_model, pair.b, pair.alone_b)


@dataclass(frozen=True)
class Spread:
    """How far the truth lies beyond a prediction: an error scale that grows with the predicted loss of speed.

    Normalised conformal prediction (Lei et al., JASA 113, 2018, sec. 5): ``quantile`` of the errors that were made on
    unseen rows, over their scale ``base + growth (1 - speed)``.
    """

    base: float
    growth: float
    quantile: float

    def below(self, speed: np.ndarray) -> np.ndarray:
        """The speed that one in ten is slower than, never above the prediction itself."""
        wide = self.base + self.growth * (1 - speed)
        return np.clip(speed - max(0.0, self.quantile) * wide, SLOWEST, speed)


@dataclass(frozen=True)
class Encoder:
    """Jobs into numbers, with the means and standard deviations of the jobs that were measured."""

    works: Works
    places: tuple[str, ...]  # GPU models, with the way of sharing
    mean: np.ndarray
    deviation: np.ndarray

    @property
    def gpus(self) -> tuple[str, ...]:
        """GPU models that were measured, however they were shared."""
        return tuple(dict.fromkeys(p.removesuffix(" mps") for p in self.places))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the trees' features."""
        own = self.works.columns
        return (
            *(f"victim:{c}" for c in own),
            *(f"sum:{c}" for c in ADDED),
            *(f"max:{c}" for c in own),
            *TOGETHER,
            "gpu_bandwidth_gb_s",
            "mps",
        )

    @property
    def monotone(self) -> list[int]:
        """For each column how the speed may follow it."""
        said = {f"{what}:{c}" for what in ("sum", "max") for c in CONTENTION} | set(CONTENTION)
        return [-1 if c in said else 0 for c in self.columns]

    def vector(self, entry: Entry) -> np.ndarray:
        """One job's numbers, NaN where unknown."""
        return self.works.vector(entry.gpu_model, entry.work, entry.alone)

    def features(self, asks: Sequence[Ask]) -> np.ndarray:
        """Shape (asks, columns), for the trees."""
        if not asks:
            return np.zeros((0, len(self.columns)))
        entries, victims, beside, starts = _numbered(asks)
        vectors = np.stack([self.vector(e) for e in entries])
        own, others = vectors[victims], vectors[beside]
        added = [OWN.index(c) for c in ADDED]
        total = np.add.reduceat(others[:, added], starts, axis=0)
        most = np.maximum.reduceat(others, starts, axis=0)  # unknown of one is unknown of all
        bandwidth = np.array([BANDWIDTH_GB_S.get(e.gpu_model, np.nan) for e in entries])[victims]
        mps = np.array([np.nan if a.sharing is None else float(a.sharing == "mps") for a in asks])
        return np.column_stack((own, total, most, _together(own, total, most), bandwidth, mps))

    def jobs(self, entries: Sequence[Entry]) -> Jobs:
        """For likeness: standardised, what is unknown at the mean."""
        if not entries:
            return Jobs((), np.zeros((0, len(self.mean))))
        z = (np.stack([self.vector(e) for e in entries]) - self.mean) / self.deviation
        z = np.clip(np.nan_to_num(z, nan=0.0), -FARTHEST, FARTHEST)
        return Jobs(tuple(e.work for e in entries), z)

    def cells(self, asks: Sequence[Ask]) -> tuple[Jobs, Cells]:
        """Pairs as cells of the matrix; of several co-runners the first."""
        entries, victims, beside, starts = _numbered(asks)
        number = {place: i for i, place in enumerate(self.places)}
        # Where only the other way of sharing was measured on a GPU model, that says more than nothing.
        either = {p.removesuffix(" mps"): i for p, i in number.items()}
        at = np.array([number.get(a.place, either.get(a.victim.gpu_model, -1)) for a in asks], np.int64)
        return self.jobs(entries), Cells(at, victims, beside[starts])


def _numbered(asks: Sequence[Ask]) -> tuple[list[Entry], np.ndarray, np.ndarray, np.ndarray]:
    """All jobs of the asks once; the number of each victim, those of all co-runners, and where each ask's begin."""
    numbers: dict[Entry, int] = {}
    same: dict[int, int] = {}  # by identity: hashing an entry takes longer than all the rest

    def number(entry: Entry) -> int:
        found = same.get(id(entry))
        if found is None:
            found = same[id(entry)] = numbers.setdefault(entry, len(numbers))
        return found

    victims = np.array([number(a.victim) for a in asks], np.int64)
    beside = np.array([number(e) for a in asks for e in a.beside], np.int64)
    starts = np.cumsum([0, *(len(a.beside) for a in asks[:-1])]) if asks else np.zeros(0, np.int64)
    return list(numbers), victims, beside, starts


def _together(own: np.ndarray, total: np.ndarray, most: np.ndarray) -> np.ndarray:
    """What victims and co-runners come to; shape (asks, len(TOGETHER))."""
    use, bandwidth, step = (OWN.index(c) for c in ("utilisation_pct", "bandwidth_pct", "log_step_s"))
    both = own[:, use] + total[:, 0]
    return np.column_stack(
        (
            both,
            np.maximum(0, both - 100),
            own[:, use] * total[:, 0] / 100,
            own[:, bandwidth] + total[:, 1],
            own[:, step] - most[:, step],
        )
    )


@dataclass(frozen=True)
class Fitted:
    """A fitted model of pairs.

    ``share`` and ``spread`` have a value for known pairs and one for others; ``spread`` also one for each GPU model.
    """

    method: str
    encoder: Encoder
    known: frozenset[Work]
    trees: Trees | None
    similarity: Similarity | None
    share: dict[str, float] = field(default_factory=lambda: {"known": 0.5, "unknown": 0.5})  # of the trees
    spread: dict[str, Spread] = field(default_factory=dict)
    feasibility: dict[str, Any] = field(
        default_factory=dict
    )  # planner.predict.feasibility's, as plain values
    digest: str = ""  # of what it was fitted on

    def speeds(self, asks: Sequence[Ask]) -> np.ndarray:
        """Mean speed of each victim, 1 / slowdown, shape (asks,)."""
        weight = np.array([self.share[k] for k in self.groups(asks)])
        total = np.zeros(len(asks))
        if self.trees is not None:
            total += weight * self.trees.predict(self.encoder.features(asks))
        if self.similarity is not None:
            total += (1 - weight) * self.similarity.predict(*self.encoder.cells(asks))
        if not np.isfinite(total).all():
            raise ValueError("the model's numbers make speeds that are none")
        return np.clip(total, SLOWEST, 1.0)

    def slow_speeds(self, asks: Sequence[Ask], speeds: np.ndarray) -> np.ndarray:
        """The speeds that one in ten is slower than, shape (asks,)."""
        groups = self.groups(asks)
        of = [
            self.spread.get(f"{g} {a.victim.gpu_model}") or self.spread[g]
            for g, a in zip(groups, asks, strict=True)
        ]
        return np.array([float(s.below(v)) for s, v in zip(of, speeds, strict=True)])

    def meant(self, entry: Entry) -> Entry:
        """The job as the fit knows it: its GPU model without or with a memory size, its name however it is written."""
        gpu = self.measured_as(entry.gpu_model) or entry.gpu_model
        if (gpu, entry.work) in self.encoder.works.profiles:
            return Entry(gpu, entry.work, entry.alone)
        work = self.encoder.works.by_name(entry.work.key, gpu)
        if work is None:
            return Entry(gpu, entry.work, entry.alone)
        return Entry(gpu, work, joined(entry.alone, self.encoder.works.profiles[gpu, work]))

    def measured_as(self, gpu_model: str) -> str | None:
        """The GPU model of the fit that this one is: itself, or the same with another or no memory size."""
        gpus = self.encoder.gpus
        if gpu_model in gpus or ":" in gpu_model:
            return gpu_model if gpu_model in gpus else None
        return next((m for m in gpus if without_size(m) == without_size(gpu_model)), None)

    def groups(self, asks: Sequence[Ask]) -> list[str]:
        """``known`` where both jobs were measured with others and the GPU model is known, else ``unknown``."""
        gpus = set(self.encoder.gpus)
        return [
            "known"
            if a.victim.gpu_model in gpus and all(e.work in self.known for e in (a.victim, *a.beside))
            else "unknown"
            for a in asks
        ]

    def as_json(self) -> dict[str, Any]:
        """Plain values for a model file."""
        return {
            "works": self.encoder.works.as_json(),
            "places": list(self.encoder.places),
            "mean": self.encoder.mean.tolist(),
            "deviation": self.encoder.deviation.tolist(),
            "known": [
                [w.name, w.dataset, w.batch, w.mixed]
                for w in sorted(
                    self.known, key=lambda w: (w.key, str(w.mixed))
                )  # not said and no have one key
            ],
            "trees": self.trees.as_json() if self.trees else None,
            "similarity": self.similarity.as_json() if self.similarity else None,
            "share": self.share,
            "feasibility": self.feasibility,
            "spread": {k: [s.base, s.growth, s.quantile] for k, s in self.spread.items()},
        }

    @classmethod
    def of_json(cls, method: str, told: dict[str, Any], digest: str = "") -> Fitted:
        """From what ``as_json`` wrote."""
        encoder = Encoder(
            Works.of_json(told["works"]),
            tuple(told["places"]),
            np.array(told["mean"], float),
            np.array(told["deviation"], float),
        )
        return cls(
            method,
            encoder,
            frozenset(Work(*w) for w in told["known"]),
            Trees.of_json(told["trees"]) if told["trees"] else None,
            Similarity.of_json(told["similarity"]) if told["similarity"] else None,
            dict(told["share"]),
            {k: Spread(*s) for k, s in told["spread"].items()},
            told["feasibility"],
            digest,
        )
