"""Slowdowns by likeness: what was measured for like jobs beside like neighbours (Geng et al.'s IASP).

Collaborative filtering over the sparse matrix victim x co-runner, in the form of a Gaussian process on its cells (Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, ch. 2 and 5.4): two cells are alike if their victims are and
their co-runners are, k = a (kv + ko) + c kv ko, and less so on different GPU models. Jobs are alike by name, batch size
and precision, and by what is known of them alone; a job of which a few cells were probed is placed by those, a job of which none
was by the rest. How much each likeness counts is chosen by the error of leaving one cell out, which has a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.predict.pairs import Work

#: Cells that a model keeps, and those that the choice of the kernel is made on; more take too long.
MOST_CELLS, CELLS_FOR_CHOICE = 3000, 500
#: No number of a kernel is larger.
LARGEST = 1e6
#: Sweeps over the choices of each part of the kernel.
SWEEPS = 2
#: Another value has to be better by this part of the error: with few cells, the least error is often luck.
WORTH_A_CHANGE = 0.02


@dataclass(frozen=True)
class Kernel:
    """How much each likeness counts."""

    numbers: float = 0.3  # share of what is known alone, against the name
    same_size: float = 0.6  # of the likeness by name, the part that batch size and precision change
    size_length: float = 4.0  # in doublings of the batch
    length: float = 1.0  # in standard deviations, for each number
    single: float = 0.3  # a
    product: float = 1.0  # c
    noise: float = 0.03
    across: float = 0.2  # likeness of two GPU models


CHOICES: dict[str, tuple[float, ...]] = {
    "noise": (0.02, 0.05, 0.1, 0.3),
    "numbers": (0.05, 0.15, 0.3, 0.6, 0.9),
    "length": (0.5, 1.0, 2.0),
    "across": (0.0, 0.15, 0.3, 0.6),
    "single": (0.1, 0.3, 1.0),
    "same_size": (0.3, 0.6, 0.9),
    "size_length": (2.0, 4.0, 8.0),
}


@dataclass(frozen=True)
class Jobs:
    """Kinds of work with their vectors; ``z`` has shape (n, columns), standardised, 0 where unknown."""

    works: tuple[Work, ...]
    z: np.ndarray

    def likeness(self, other: Jobs, kernel: Kernel) -> np.ndarray:
        """Shape (n, other's n), 1 for the same."""
        name = _equal([(w.name, w.dataset) for w in self.works], [(w.name, w.dataset) for w in other.works])
        amp = _equal([w.mixed for w in self.works], [w.mixed for w in other.works])
        size = np.abs(_sizes(self.works)[:, None] - _sizes(other.works)[None])
        alike = np.exp(-size / kernel.size_length) * np.where(amp, 1, 0.7)
        by_name = name * (kernel.same_size * alike + 1 - kernel.same_size)
        squares = (self.z**2).sum(1)[:, None] + (other.z**2).sum(1)[None] - 2 * self.z @ other.z.T
        scale = 2 * kernel.length**2 * max(1, self.z.shape[1])
        numbers = np.exp(-np.maximum(0, squares) / scale)
        return kernel.numbers * numbers + (1 - kernel.numbers) * by_name


def _equal(mine: Sequence[object], theirs: Sequence[object]) -> np.ndarray:
    codes: dict[object, int] = {}
    a = np.array([codes.setdefault(m, len(codes)) for m in mine], np.int64)
    b = np.array([codes.setdefault(t, len(codes)) for t in theirs], np.int64)
    return a[:, None] == b[None]


def _sizes(works: Sequence[Work]) -> np.ndarray:
    return np.log2(np.array([w.batch or 1 for w in works], float))


@dataclass(frozen=True)
class Cells:
    """Cells of the matrix: GPU model, victim and co-runner as numbers of ``Jobs``; shapes (n,)."""

    gpu: np.ndarray
    victim: np.ndarray
    beside: np.ndarray

    def take(self, which: np.ndarray) -> Cells:
        """Some of them."""
        return Cells(self.gpu[which], self.victim[which], self.beside[which])

    def likeness(self, other: Cells, jobs: np.ndarray, kernel: Kernel) -> np.ndarray:
        """Shape (n, other's n), from the likeness of jobs, shape (jobs, other's jobs)."""
        victims = jobs[np.ix_(self.victim, other.victim)]
        beside = jobs[np.ix_(self.beside, other.beside)]
        out: np.ndarray = kernel.single * (victims + beside) + kernel.product * victims * beside
        return out * np.where(self.gpu[:, None] == other.gpu[None], 1, kernel.across)


@dataclass(frozen=True)
class Similarity:
    """The model: its measured cells and how likeness is judged. Speeds are 1 / slowdown."""

    kernel: Kernel
    jobs: Jobs
    cells: Cells
    speed: np.ndarray
    gpus: int

    @cached_property
    def means(self) -> np.ndarray:
        """Mean speed on each GPU model, and last that of all, for one that was never measured."""
        whole = float(self.speed.mean())
        on = [self.speed[self.cells.gpu == g] for g in range(self.gpus)]
        return np.array([*(float(s.mean()) if len(s) else whole for s in on), whole])

    @cached_property
    def weights(self) -> np.ndarray:
        """What each measured cell counts for, shape (cells,)."""
        alike = self.cells.likeness(self.cells, self.jobs.likeness(self.jobs, self.kernel), self.kernel)
        alike[np.diag_indices_from(alike)] += self.kernel.noise
        return np.linalg.solve(alike, self.speed - self.means[self.cells.gpu])

    def predict(self, jobs: Jobs, cells: Cells) -> np.ndarray:
        """Mean speeds of cells of these jobs, shape (cells,); a GPU model that is not known is number -1.

        The kernel is a sum of products of one factor for the victim and one for the co-runner, so that all pairs of the jobs on a
        GPU model are a product of two matrices.
        """
        alike = jobs.likeness(self.jobs, self.kernel)
        victims, beside = alike[:, self.cells.victim], alike[:, self.cells.beside]
        out = self.means[cells.gpu]
        for gpu in np.unique(cells.gpu).tolist():
            weights = self.weights * np.where(self.cells.gpu == gpu, 1, self.kernel.across)
            pairs = self.kernel.product * (victims * weights) @ beside.T
            pairs += self.kernel.single * ((victims @ weights)[:, None] + (beside @ weights)[None])
            here = cells.gpu == gpu
            out[here] += pairs[cells.victim[here], cells.beside[here]]
        return out

    def left_out(self, partner: np.ndarray) -> np.ndarray:
        """Absolute error of each cell, predicted without it and its ``partner``, the other direction of its pair.

        Equation 5.12 for blocks of two: what is left is the inverse block's inverse times the block's weights. Shape (cells,);
        a cell without a partner has its own number there.
        """
        alike = self.cells.likeness(self.cells, self.jobs.likeness(self.jobs, self.kernel), self.kernel)
        alike[np.diag_indices_from(alike)] += self.kernel.noise
        inverse = np.linalg.inv(alike)
        weights = inverse @ (self.speed - self.means[self.cells.gpu])
        own, cross = np.diag(inverse), inverse[np.arange(len(partner)), partner]
        single = partner == np.arange(len(partner))
        determinant = np.where(single, own**2, own * own[partner] - cross**2)
        other = np.where(single, 0, cross * weights[partner])
        return np.abs((own[partner] * weights - other) / determinant)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kernel": dict(self.kernel.__dict__),
            "works": [[w.name, w.dataset, w.batch, w.mixed] for w in self.jobs.works],
            "z": self.jobs.z.tolist(),
            "cells": [self.cells.gpu.tolist(), self.cells.victim.tolist(), self.cells.beside.tolist()],
            "speed": self.speed.tolist(),
            "gpus": self.gpus,
        }

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Similarity:
        """From what ``as_json`` wrote."""
        jobs = Jobs(tuple(Work(*w) for w in told["works"]), np.array(told["z"], float))
        cells = Cells(*(np.array(c, np.int64) for c in told["cells"]))
        kernel = Kernel(**told["kernel"])
        lengths = kernel.length, kernel.size_length, kernel.noise
        if not (all(0 < v < LARGEST for v in lengths) and 0 < told["gpus"] <= len(cells.gpu)):
            raise ValueError("a length, the noise or the number of GPU models is not above 0")
        return cls(kernel, jobs, cells, np.array(told["speed"], float), told["gpus"])


def fit(jobs: Jobs, cells: Cells, speed: np.ndarray, pair: np.ndarray, gpus: int) -> Similarity:
    """Choose the kernel and keep the cells; of more than MOST_CELLS a seeded part.

    ``pair`` tells which cells are the two directions of one pair; shape (cells,).
    """
    rng = np.random.default_rng(0)
    if len(speed) > MOST_CELLS:
        keep = _some(pair, MOST_CELLS, rng)
        cells, speed, pair = cells.take(keep), speed[keep], pair[keep]
    some = _some(pair, CELLS_FOR_CHOICE, rng)
    trial = Similarity(Kernel(), jobs, cells.take(some), speed[some], gpus)
    partner = _partners(pair[some])
    kernel, error = trial.kernel, float(trial.left_out(partner).mean())
    for _ in range(SWEEPS):
        for part, values in CHOICES.items():
            for value in values:
                other = replace(kernel, **{part: value})
                found = float(replace(trial, kernel=other).left_out(partner).mean())
                if found < error * (1 - WORTH_A_CHANGE):
                    kernel, error = other, found
    return Similarity(kernel, jobs, cells, speed, gpus)


def _some(pair: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Cells of whole pairs, not many more than ``most``."""
    numbers = np.unique(pair)
    chosen = rng.permutation(numbers)[: max(1, len(numbers) * most // max(1, len(pair)))]
    return np.flatnonzero(np.isin(pair, chosen if len(pair) > most else numbers))


def _partners(pair: np.ndarray) -> np.ndarray:
    """The other cell of each pair, or the cell itself."""
    order = np.argsort(pair, kind="stable")
    partner = np.arange(len(pair))
    same = np.flatnonzero(pair[order][1:] == pair[order][:-1])
    partner[order[same]], partner[order[same + 1]] = order[same + 1], order[same]
    return partner
