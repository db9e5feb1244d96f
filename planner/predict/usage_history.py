"""Measured peak GPU memory and utilisation of past jobs -> what a job like them will use: p50 and p95 per GPU.

The keys and the backing off are those of durations (``keyed``). Memory is held in log MiB, because jobs differ by factors,
utilisation in percent of one GPU. A job that still runs has not reached its peak: its row is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.errors import InputError
from planner.model import Noun
from planner.predict import keyed
from planner.predict.history import History, Record, normalised
from planner.predict.keyed import Observed, Sketches, Traits
from planner.predict.model_file import ModelFile, Score, Training

METHOD = "history"
LEVELS = (0.5, 0.95)
#: A MiB less than which nothing is said to use; log of 0 is not a number.
LEAST_MIB = 1.0


@dataclass(frozen=True)
class Usage:
    """Per GPU. ``level`` is the finest key with enough observations, ``observations`` how many."""

    p50: float
    p95: float
    level: str
    observations: int


@dataclass(frozen=True)
class UsageHistory:
    """Distributions of log MiB and of percent by key; of no key where the history does not say."""

    memory: Sketches
    utilisation: Sketches

    def predict(
        self,
        *,
        user: str | None = None,
        account: str | None = None,
        name: str | None = None,
        digest: str | None = None,
        queue: str | None = None,
        gpus: int | None = None,
        gpu_model: str | None = None,
    ) -> tuple[Usage | None, Usage | None]:
        """Peak memory in MiB and utilisation in percent of one job; None where nothing was measured."""
        plain = None if name is None else normalised(name)
        job = Traits(user, account, plain, digest, queue, gpus, gpu_model)
        return self._one(self.memory, self.memory_mib([job])), self._one(
            self.utilisation, self.utilisation_pct([job])
        )

    @staticmethod
    def _one(sketches: Sketches, said: tuple[np.ndarray, np.ndarray]) -> Usage | None:
        values, found = said
        if found[0] < 0:
            return None
        return Usage(float(values[0, 0]), float(values[0, 1]), *sketches.level(int(found[0])))

    def memory_mib(self, jobs: Sequence[Traits]) -> tuple[np.ndarray, np.ndarray]:
        """MiB at LEVELS, shape (n, 2), NaN where nothing is known; and the position of each key, or -1."""
        values, found = _values(self.memory, jobs)
        return np.exp(values), found

    def utilisation_pct(self, jobs: Sequence[Traits]) -> tuple[np.ndarray, np.ndarray]:
        """Percent of one GPU, as ``memory_mib``."""
        return _values(self.utilisation, jobs)

    def to_file(self, scores: Sequence[Score], training: Training) -> ModelFile:
        """The model in its envelope."""
        return ModelFile(
            kind="usage",
            method=METHOD,
            columns=Traits._fields,
            training=training,
            scores=tuple(scores),
            parameters={
                "memory": keyed.to_parameters(self.memory),
                "utilisation": keyed.to_parameters(self.utilisation),
            },
        )


def fit(history: History) -> UsageHistory:
    """Fit to all rows with a measurement; a history without any gives a model that knows nothing."""
    memory = [(r, r.gpu_memory_peak_mib) for r in history.records if r.ended != "running"]
    utilisation = [(r, r.gpu_utilisation_pct) for r in history.records if r.ended != "running"]
    mib = _observed([(r, float(np.log(max(v, LEAST_MIB)))) for r, v in memory if v is not None])
    return UsageHistory(
        keyed.fit(mib), keyed.fit(_observed([(r, v) for r, v in utilisation if v is not None]))
    )


def of_file(model: ModelFile) -> UsageHistory:
    """The model of a file that ``to_file`` made. Raises InputError for anything else."""
    where = "usage model: parameters"
    try:
        read = _Parameters.model_validate(model.parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}.{key}", first["msg"], "what planner fit usage wrote") from None
    return UsageHistory(
        keyed.of_parameters(read.memory, f"{where}.memory"),
        keyed.of_parameters(read.utilisation, f"{where}.utilisation"),
    )


class _Parameters(Noun):
    memory: dict[str, Any]
    utilisation: dict[str, Any]


def _observed(rows: Sequence[tuple[Record, float]]) -> Observed:
    """Values none of which is a lower bound, with their ages."""
    came = np.array([np.nan if r.came_s is None else r.came_s for r, _ in rows], float)
    values = np.array([value for _, value in rows], float)
    latest = max(came[~np.isnan(came)], default=0.0)
    return Observed([keyed.traits(r) for r, _ in rows], values, np.ones(len(rows), bool), latest - came)


def _values(sketches: Sketches, jobs: Sequence[Traits]) -> tuple[np.ndarray, np.ndarray]:
    found = sketches.find(jobs)
    known = found >= 0
    values = np.full((len(found), len(LEVELS)), np.nan)
    quantiles = sketches.posterior[found[known]]
    values[known] = keyed.at_levels(quantiles, np.tile(LEVELS, (len(quantiles), 1)))
    return values, found
