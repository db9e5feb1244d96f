"""How long jobs still run, by what jobs of the same kind, user or account took before: fitted, calibrated, predicted.

``keyed`` gives each job a distribution of log duration. Three things are added here:

* What is still to come: the distribution of D - elapsed given D > elapsed. The fewer past jobs ran longer than
  this one has, the more it goes by Lindy's law instead (Pareto with exponent 1; half of the jobs that have run t run
  2 t or more), so a job that outlives its history is never said to be about to end.
* Upper values that hold: on days after those of a fit, the probabilities F(D) that it gave to what happened are ranked,
  and p90 is read where nine tenths of them lie (split conformal prediction, Vovk, Gammerman, Shafer 2005, in
  the form for distributions of Chernozhukov, Wuethrich, Zhu, PNAS 118(48), 2021; compare conformalised quantile regression,
  Romano, Patterson, Candes, NeurIPS 2019). This is exact only if later days are like those: fitted nightly on Philly,
  whose accounts change what they run, p90 and p95 hold for 83 and 92 % of the jobs of the last month
  (``tests/benchmarks/cold_start.py``).
* Time limits: a job is ended there, so nothing predicted is longer.

A job's duration is the time for which it holds its GPUs. One that met its limit or still runs is a lower bound;
one that was cancelled has ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.errors import InputError
from planner.model import Noun
from planner.predict import keyed
from planner.predict.history import History, normalised
from planner.predict.keyed import Observed, Sketches, Traits
from planner.predict.model_file import ModelFile, Score, Training

METHOD = "history"
LEVELS = (0.5, 0.9, 0.95)
#: Those that are calibrated. The median is not: on later days of Philly its rank moves more than it is off.
UPPER = LEVELS[1:]
DAY_S = 86400.0
#: Tried on later days; see ``_chosen``.
DEFAULT_K = 4.0
KS = (1.0, 4.0, 16.0, 64.0)
HALF_LIVES_S = (None, 28 * DAY_S, 7 * DAY_S)
#: Shares of the jobs that came before each of the days on which fits are tried.
ORIGINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: The fewest ended jobs by which a group of levels is calibrated on its own, and at all.
GROUP_ROWS = 200
ROWS = 20
GROUPS = ("kind of work", "whose", "anybody")
LEAST_S = 1.0


@dataclass(frozen=True)
class Prediction:
    """Seconds still to run. ``level`` is the finest key with enough observations, ``observations`` how many."""

    p50_s: float
    p90_s: float
    p95_s: float
    mean_s: float
    level: str
    observations: int


@dataclass(frozen=True)
class Predictions:
    """Columns of shape (n,), NaN where nothing is known; ``found`` is the position of the key, or -1."""

    p50_s: np.ndarray
    p90_s: np.ndarray
    p95_s: np.ndarray
    mean_s: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class DurationModel:
    """Distributions of log seconds by key, and for each of GROUPS the probabilities where UPPER are read."""

    sketches: Sketches
    upper: np.ndarray  # (len(GROUPS), len(UPPER))
    half_life_s: float | None = None
    calibrated_on: int = 0

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
        elapsed_s: float = 0,
        time_limit_s: float | None = None,
    ) -> Prediction | None:
        """Remaining time of one job, at least a second; None if the history was empty."""
        plain = None if name is None else normalised(name)
        job = Traits(user, account, plain, digest, queue, gpus, gpu_model)
        limit = math.inf if time_limit_s is None else time_limit_s
        found = self.predict_many([job], np.array([elapsed_s]), np.array([limit]))
        if found.found[0] < 0:
            return None
        level, observations = self.sketches.level(int(found.found[0]))
        values = (found.p50_s, found.p90_s, found.p95_s, found.mean_s)
        p50, p90, p95, mean = (float(column[0]) for column in values)
        return Prediction(p50, p90, p95, mean, level, observations)

    def predict_many(
        self, jobs: Sequence[Traits], elapsed_s: np.ndarray, time_limit_s: np.ndarray
    ) -> Predictions:
        """Remaining times of jobs whose names are ``normalised``; inf stands for no limit."""
        found = self.sketches.find(jobs)
        columns = np.full((len(LEVELS) + 1, len(found)), np.nan)
        known = np.flatnonzero(found >= 0)
        # Jobs of one key that have run equally long are one.
        alike, back = np.unique(found[known] + 1j * np.maximum(elapsed_s[known], 0), return_inverse=True)
        at, elapsed = alike.real.astype(int), alike.imag
        quantiles, behind = self.sketches.posterior[at], self.sketches.effective[at]
        upper = self.upper[_groups(self.sketches)[at]]
        levels = np.column_stack((np.full(len(at), LEVELS[0]), upper))
        some = _remaining(quantiles, behind, elapsed, levels, np.array(LEVELS))[back]
        whole = _remaining(quantiles, behind, elapsed, np.tile(keyed.MIDS, (len(at), 1)), keyed.MIDS)[back]
        left = np.maximum(time_limit_s[known] - elapsed[back], LEAST_S)[:, None]
        columns[:-1, known] = np.minimum(some, left).T
        columns[-1, known] = np.minimum(whole, left) @ keyed.MASS
        p50, p90, p95, mean = columns
        return Predictions(p50, p90, p95, mean, found)

    def to_file(self, scores: Sequence[Score], training: Training) -> ModelFile:
        """The model in its envelope."""
        return ModelFile(
            kind="duration",
            method=METHOD,
            columns=Traits._fields,
            training=training,
            scores=tuple(scores),
            parameters={
                "sketches": keyed.to_parameters(self.sketches),
                "upper": self.upper.tolist(),
                "half_life_s": self.half_life_s,
                "calibrated_on": self.calibrated_on,
            },
        )


def _remaining(
    quantiles: np.ndarray, behind: np.ndarray, elapsed_s: np.ndarray, levels: np.ndarray, nominal: np.ndarray
) -> np.ndarray:
    """Seconds still to run at probabilities ``levels`` (n, m), given that ``elapsed_s`` (n,) have passed; (n, m).

    ``behind`` (n,) are the observations behind each row of ``quantiles``; Lindy's law goes by ``nominal`` (m,).
    """
    ran = np.log(np.maximum(elapsed_s, 1e-9))
    longer = np.where(elapsed_s > 0, 1 - keyed.below(quantiles, ran), 1.0)
    total = keyed.at_levels(quantiles, 1 - longer[:, None] * (1 - levels))
    total = np.maximum(total, ran[:, None])
    # Lindy's law counts as one more job beside the past ones that ran longer, and only upwards, so that
    # no job is expected to end earlier because it still runs.
    lindy = ran[:, None] - np.log1p(-nominal)
    total += np.maximum(lindy - total, 0) / (behind * longer + 1)[:, None]
    return np.maximum(np.exp(total) - elapsed_s[:, None], LEAST_S)


def fit(history: History, *, now_s: float | None = None) -> DurationModel:
    """Fit to a history as it stands at ``now_s`` (default: the last moment that it tells of).

    How fast observations age and how soon a key speaks for itself are chosen by predicting, at five past
    moments, the jobs that came next: by every second of those, and the others calibrate the upper values. Without
    times in the history there is neither: all jobs count the same, and nothing is calibrated.
    """
    now = _latest(history) if now_s is None else now_s
    trials = [_Trial.of(history, start, stop) for start, stop in pairwise(_origins(history))]
    trials = [t for t in trials if t.before.whole.any() and t.after.jobs]
    fits = {h: [keyed.fit(t.before, half_life_s=h) for t in trials] for h in HALF_LIVES_S}
    half_life_s, k = _chosen(trials, fits)
    upper, rows = _calibrated(trials, [keyed.mixed(f.rows, k) for f in fits[half_life_s]])
    sketches = keyed.fit(observed(history, now), k=k, half_life_s=half_life_s)
    return DurationModel(sketches, upper, half_life_s, rows)


def of_file(model: ModelFile) -> DurationModel:
    """The model of a file that ``to_file`` made. Raises InputError for anything else."""
    where, accepted = "duration model: parameters", "what planner fit duration wrote"
    try:
        read = _Parameters.model_validate(model.parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}.{key}", first["msg"], accepted) from None
    shaped = [len(row) for row in read.upper] == [len(UPPER)] * len(GROUPS)
    if not shaped or not all(LEVELS[0] <= a <= b <= 1 for a, b in read.upper):
        raise InputError(f"{where}.upper", "no probabilities of p90 and p95", accepted)
    sketches = keyed.of_parameters(read.sketches, f"{where}.sketches")
    return DurationModel(sketches, np.array(read.upper), read.half_life_s, read.calibrated_on)


class _Parameters(Noun):
    sketches: dict[str, Any]
    upper: tuple[tuple[float, ...], ...]
    half_life_s: float | None
    calibrated_on: int


def observed(history: History, now_s: float) -> Observed:
    """The durations of a history in log seconds, with their ages at ``now_s``."""
    records = history.records
    came = np.array([math.nan if r.came_s is None else r.came_s for r in records], float)
    return Observed(
        [keyed.traits(r) for r in records],
        np.log(np.array([r.duration_s for r in records], float)),
        np.array([not r.censored for r in records], bool),
        now_s - came,
    )


def _latest(history: History) -> float:
    """When the last of its jobs came or ended; 0 without times."""
    ends = (r.began_s + r.duration_s for r in history.records if r.began_s is not None)
    return max(ends, default=0.0)


def _origins(history: History) -> list[float]:
    """Moments at which ORIGINS of the jobs had come; the last is after all of them."""
    came = [r.came_s for r in history.records if r.came_s is not None]
    return np.quantile(came, ORIGINS).tolist() if came else []


@dataclass(frozen=True)
class _Trial:
    """What was known at a moment, and the jobs that came from then until the next one."""

    before: Observed
    after: Observed

    @classmethod
    def of(cls, history: History, start_s: float, stop_s: float) -> _Trial:
        came = ((r, r.came_s) for r in history.records)
        after = tuple(r for r, c in came if c is not None and start_s <= c < stop_s)
        return cls(observed(history.as_of(start_s), start_s), observed(History(after), stop_s))


def _chosen(trials: Sequence[_Trial], fits: dict[float | None, list[Sketches]]) -> tuple[float | None, float]:
    """Half-life and k with the least pinball loss on every second job of the trials."""
    if sum(int(t.after.whole[::2].sum()) for t in trials) < ROWS:
        return None, DEFAULT_K
    losses: dict[tuple[float | None, float], float] = dict.fromkeys(product(fits, KS), 0.0)
    for half_life_s, of_trials in fits.items():
        for trial, fitted in zip(trials, of_trials, strict=True):
            found = fitted.find(trial.after.jobs[::2])[trial.after.whole[::2]]
            values = trial.after.values[::2][trial.after.whole[::2], None]
            for k in KS:
                posterior = keyed.mixed(fitted.rows, k).posterior[found]
                guessed = keyed.at_levels(posterior, np.tile(LEVELS, (len(found), 1)))
                losses[half_life_s, k] += float(pinball(values, guessed).sum())
    return min(losses, key=lambda choice: losses[choice])


def pinball(values: np.ndarray, guessed: np.ndarray) -> np.ndarray:
    """Loss of guessed quantiles at LEVELS, shape (n, 3) (Koenker and Bassett, Econometrica 46(1), 1978)."""
    levels = np.array(LEVELS)
    return np.maximum(levels * (values - guessed), (levels - 1) * (values - guessed))


def _calibrated(trials: Sequence[_Trial], fits: Sequence[Sketches]) -> tuple[np.ndarray, int]:
    """Where to read UPPER for each of GROUPS, by the other jobs of the trials; and how many ended."""
    levels = np.tile(UPPER, (len(GROUPS), 1))
    ranks, whole, groups = [np.empty(0)], [np.empty(0, bool)], [np.empty(0, int)]
    for trial, fitted in zip(trials, fits, strict=True):
        found = fitted.find(trial.after.jobs[1::2])
        ranks.append(keyed.below(fitted.posterior[found], trial.after.values[1::2]))
        whole.append(trial.after.whole[1::2])
        groups.append(_groups(fitted)[found])
    rank, is_whole, group = np.concatenate(ranks), np.concatenate(whole), np.concatenate(groups)
    if is_whole.sum() < ROWS:
        return levels, 0
    for i in range(len(GROUPS)):
        mine = group == i
        if is_whole[mine].sum() < GROUP_ROWS:
            mine = np.ones(len(rank), bool)
        wanted = np.minimum(np.array(UPPER) * (1 + 1 / mine.sum()), 1)
        levels[i] = keyed.weighted_quantiles(
            rank[None, mine], np.ones((1, mine.sum())), is_whole[None, mine], wanted
        )
    return np.round(np.maximum(levels, LEVELS[0]), keyed.DECIMALS), int(is_whole.sum())


def _groups(sketches: Sketches) -> np.ndarray:
    """Position in GROUPS of every key, by the level that carries it."""
    levels = np.array([row.key[0] for row in sketches.rows], int)[sketches.carriers]
    return np.searchsorted([keyed.WHOSE, keyed.ANYBODY], levels, side="right")
