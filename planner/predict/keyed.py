"""Observed values of jobs -> a small distribution for each key that jobs have, each backing off to a coarser one.

A key is a part of what every job has: its user, what it runs, its name without numbers, its GPUs. A job's forecast is the
distribution of its finest known key, mixed with that of the next coarser one and so on up to all jobs: weight
n / (n + k) for the n observations of the finer, the rest for the coarser (the credibility of Buehlmann, ASTIN Bulletin
4(3), 1967). What a key backs off to goes by its latest job, should its jobs differ there.

A distribution is held as quantiles at ``MIDS``, closer together towards the top, because plans rest on p90 and p95.
Values that are only lower bounds count by Kaplan and Meier's estimate (JASA 53, 1958); what that leaves above the
last one lies on it (Efron 1967).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from planner.errors import InputError
from planner.predict.history import Record, normalised

MAX_KEYS = 20_000
#: The fewest observations by which a key is said to carry a forecast.
ENOUGH = 5
#: Decimals of what is held; of log seconds, a hundredth of a percent.
DECIMALS = 4
#: The cells of a distribution end at 0.05, 0.10 ... 0.90, 0.91 ... 0.98, and are finer up to 1.
MASS = np.array([0.05] * 18 + [0.01] * 8 + [0.005] * 2 + [0.0025] * 4)
MIDS = np.cumsum(MASS) - MASS / 2
SIZE = len(MIDS)
#: What an observation counts at least, however old, so that a key with old ones only has a distribution.
LEAST = 1e-6
#: Finest first; the last holds every job.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("user", "digest", "gpus", "gpu_model"),
    ("user", "digest", "gpus"),
    ("user", "name", "gpus"),
    ("user", "name"),
    ("account", "name", "gpus"),
    ("user", "gpus"),
    ("account", "gpus"),
    ("account",),
    ("queue", "gpus"),
    ("gpus",),
    (),
)
NAMES = tuple("+".join(parts) or "all" for parts in LEVELS)
#: Keys from the first of these on say whose a job is, and from the second on not even that.
WHOSE, ANYBODY = NAMES.index("user+gpus"), NAMES.index("queue+gpus")
Key = tuple[Any, ...]  # level, then the values of its parts


class Traits(NamedTuple):
    """What keys are made of; the name without its numbers. None: unknown."""

    user: str | None = None
    account: str | None = None
    name: str | None = None
    digest: str | None = None
    queue: str | None = None
    gpus: int | None = None
    gpu_model: str | None = None


PARTS = tuple(tuple(Traits._fields.index(part) for part in parts) for parts in LEVELS)


def traits(record: Record) -> Traits:
    """Those of a job in the history."""
    name = None if record.name is None else normalised(record.name)
    return Traits(
        record.user, record.account, name, record.digest, record.queue, record.gpus, record.gpu_model
    )


def keys(job: Traits) -> Iterator[Key]:
    """Keys of a job from finest to coarsest; those with an unknown part are left out."""
    for level, parts in enumerate(PARTS):
        values = [job[part] for part in parts]
        if None not in values:
            yield (level, *values)


@dataclass(frozen=True)
class Observed:
    """Columns of equal length: whose value, the value, whether it is whole, and how old it is.

    ``values`` are in what the distributions are to be in (log seconds, say); of ``whole``, False stands for a lower
    bound. ``ages_s`` is NaN where unknown, which counts as the oldest.
    """

    jobs: Sequence[Traits]
    values: np.ndarray
    whole: np.ndarray
    ages_s: np.ndarray


class Sketch(NamedTuple):
    """What one key has seen, without its coarser ones."""

    key: Key
    parent: int  # position of the next coarser key; -1 for all jobs
    observations: int  # whole values
    weight: float  # the same, older ones counting less
    age_s: float  # of the latest
    quantiles: tuple[float, ...]  # at MIDS; if fewer than SIZE, of so many equal parts


@dataclass(frozen=True)
class Sketches:
    """Distributions by key, K of them, finest first.

    ``posterior`` (K, SIZE) holds each mixed with its coarser ones, ``effective`` (K,) the observations behind that;
    ``carriers`` (K,) is the nearest key on the way up with ENOUGH observations.
    """

    rows: tuple[Sketch, ...]
    k: float
    index: dict[Key, int]
    posterior: np.ndarray
    effective: np.ndarray
    carriers: np.ndarray

    def find(self, jobs: Iterable[Traits]) -> np.ndarray:
        """Position of the finest known key of each job, shape (n,); -1 if nothing was ever observed."""
        levels = [(level, PARTS[level]) for level in sorted({row.key[0] for row in self.rows})]
        seen: dict[Traits, int] = {}
        found = []
        for job in jobs:
            at = seen.get(job)
            if at is None:
                of_job = ((level, *[job[part] for part in parts]) for level, parts in levels)
                at = seen[job] = next((self.index[key] for key in of_job if key in self.index), -1)
            found.append(at)
        return np.array(found, int)

    def level(self, at: int) -> tuple[str, int]:
        """What carries the forecast of a key: the level with ENOUGH observations, and how many it has."""
        carrier = self.rows[self.carriers[at]]
        return NAMES[carrier.key[0]], carrier.observations


def at_levels(quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Values at probabilities ``levels`` (n, m) of distributions held as ``quantiles`` (n, SIZE); shape (n, m)."""
    left = np.clip(np.searchsorted(MIDS, levels) - 1, 0, SIZE - 2)
    share = np.clip((levels - MIDS[left]) / (MIDS[left + 1] - MIDS[left]), 0, 1)
    low = np.take_along_axis(quantiles, left, axis=1)
    return low + share * (np.take_along_axis(quantiles, left + 1, axis=1) - low)


def below(quantiles: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Probability of no more than each of ``values`` (n,), the inverse of ``at_levels``; shape (n,)."""
    at = (quantiles <= values[:, None]).sum(1)
    right = np.clip(at, 1, SIZE - 1)
    who = np.arange(len(values))
    low, high = quantiles[who, right - 1], quantiles[who, right]
    share = (values - low) / np.where(high > low, high - low, 1)
    inside = MIDS[right - 1] + share * (MIDS[right] - MIDS[right - 1])
    return np.where(at == 0, 0.0, np.where(at == SIZE, 1.0, inside))


def fit(observed: Observed, *, k: float = 4.0, half_life_s: float | None = None) -> Sketches:
    """Distributions of every key with a whole value, the MAX_KEYS with the most of them.

    ``k`` observations of a key weigh as much as the coarser one; after ``half_life_s`` one counts half.
    """
    dated = ~np.isnan(observed.ages_s)
    oldest = max(observed.ages_s[dated], default=0.0)
    ages = np.maximum(np.where(dated, observed.ages_s, oldest), 0)
    weights = np.ones(len(ages)) if half_life_s is None else np.maximum(0.5 ** (ages / half_life_s), LEAST)
    rows = {key: at for key, at in _rows(observed.jobs).items() if observed.whole[at].any()}
    often = sorted(rows, key=lambda key: (-int(observed.whole[rows[key]].sum()), key[0], str(key)))
    kept = sorted(often[:MAX_KEYS], key=lambda key: key[0])
    index = {key: i for i, key in enumerate(kept)}
    quantiles = _quantiles([rows[key] for key in kept], observed, weights)
    sketches = []
    for key, found in zip(kept, quantiles, strict=True):
        at = rows[key]
        whole, latest = observed.whole[at], int(at[::-1][np.argmin(ages[at][::-1])])
        coarser = (index[c] for c in keys(observed.jobs[latest]) if c[0] > key[0] and c in index)
        weight = round(float(weights[at][whole].sum()), DECIMALS)
        age_s = float(round(ages[latest]))
        sketches.append(Sketch(key, next(coarser, -1), int(whole.sum()), weight, age_s, found))
    return mixed(tuple(sketches), k)


def _quantiles(rows: list[np.ndarray], observed: Observed, weights: np.ndarray) -> list[tuple[float, ...]]:
    """What each key's jobs, at ``rows``, have seen: their values if they are few, else SIZE quantiles."""
    found: list[tuple[float, ...]] = [()] * len(rows)
    of_size: dict[int, list[int]] = defaultdict(list)
    for i, at in enumerate(rows):
        of_size[len(at)].append(i)
    for size, which in of_size.items():
        at = np.stack([rows[i] for i in which])
        levels = MIDS if size >= SIZE else _middles(size)
        values = weighted_quantiles(observed.values[at], weights[at], observed.whole[at], levels)
        for i, row in zip(which, np.round(values, DECIMALS).tolist(), strict=True):
            found[i] = tuple(row)
    return found


def _rows(jobs: Sequence[Traits]) -> dict[Key, np.ndarray]:
    """Positions of each key's jobs, in their order."""
    of_job: dict[Traits, list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        of_job[job].append(i)
    rows: dict[Key, list[int]] = defaultdict(list)
    for job, at in of_job.items():
        for key in keys(job):
            rows[key] += at
    return {key: np.sort(np.array(at)) for key, at in rows.items()}


def _middles(parts: int) -> np.ndarray:
    return (np.arange(parts) + 0.5) / parts


def weighted_quantiles(
    values: np.ndarray, weights: np.ndarray, whole: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Quantiles of values of which some are lower bounds (Kaplan-Meier), between neighbours linearly.

    All but ``levels`` have shape (m, n), n > 0: m samples of equal size; the answer has (m, len(levels)). The middle of an
    observation's mass is the observation, so the median of two is their mean.
    """
    # At equal values a lower bound comes last: it was still there when the others ended.
    order = np.lexsort((~whole, values), axis=1)
    values, weights, whole = (np.take_along_axis(x, order, axis=1) for x in (values, weights, whole))
    at_risk = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    hazard = np.where(whole, weights / at_risk, 0.0)
    hazard[:, -1] = 1.0
    surviving = np.cumprod(1 - hazard, axis=1)
    mass = -np.diff(surviving, axis=1, prepend=1.0)
    # What has no mass goes behind the largest that has, out of the way.
    order = np.argsort(mass <= 0, axis=1, kind="stable")
    middles = np.where(mass > 0, 1 - surviving - mass / 2, 2.0)
    ended = np.where(mass > 0, values, -np.inf)
    middles, ended = (np.take_along_axis(x, order, axis=1) for x in (middles, ended))
    return _interpolated(levels, middles, np.maximum.accumulate(ended, axis=1))


def _interpolated(at: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``np.interp`` for each row of ``x`` and ``y`` (m, n), x from 0 to 2 and rising; shape (m, len(at))."""
    rows, points = x.shape
    if points == 1:
        return np.repeat(y, len(at), axis=1)
    # One search for all rows: each is moved behind the last.
    apart = 4.0 * np.arange(rows)[:, None]
    left = (
        np.searchsorted((x + apart).ravel(), at + apart, side="right") - 1 - points * np.arange(rows)[:, None]
    )
    left = np.clip(left, 0, points - 2)
    x0, x1, y0, y1 = (np.take_along_axis(z, left + i, axis=1) for z in (x, y) for i in (0, 1))
    share = np.clip((at - x0) / np.where(x1 > x0, x1 - x0, 1.0), 0, 1)
    return y0 + share * (y1 - y0)


def mixed(rows: tuple[Sketch, ...], k: float) -> Sketches:
    """The sketches with every key mixed with its coarser ones, which stand behind it."""
    posterior = _own(rows)
    levels, parents = np.array([r.key[0] for r in rows], int), np.array([r.parent for r in rows], int)
    weights, observations = np.array([r.weight for r in rows]), np.array([r.observations for r in rows], int)
    effective, carriers = weights.copy(), np.arange(len(rows))
    for level in sorted(set(levels.tolist()), reverse=True):
        at = np.flatnonzero((levels == level) & (parents >= 0))
        up = parents[at]
        posterior[at] = _mixture(posterior[at], posterior[up], weights[at] / (weights[at] + k))
        # Its own observations are among those of the coarser key.
        effective[at] += np.minimum(k, np.maximum(effective[up] - weights[at], 0))
        carriers[at] = np.where(observations[at] < ENOUGH, carriers[up], at)
    return Sketches(rows, k, {row.key: i for i, row in enumerate(rows)}, posterior, effective, carriers)


def _own(rows: tuple[Sketch, ...]) -> np.ndarray:
    """Quantiles of each key at MIDS, shape (K, SIZE)."""
    own = np.empty((len(rows), SIZE))
    sizes = np.array([len(row.quantiles) for row in rows], int)
    for size in set(sizes.tolist()):
        at = np.flatnonzero(sizes == size)
        held = np.array([rows[i].quantiles for i in at.tolist()])
        own[at] = held if size == SIZE else _interpolated(MIDS, np.tile(_middles(size), (len(at), 1)), held)
    return own


def _mixture(fine: np.ndarray, coarse: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Quantiles of mixtures of two distributions, all at MIDS, (m, SIZE); ``share`` (m,) is the weight of the first."""
    values = np.concatenate((fine, coarse), axis=1)
    mass = np.concatenate((MASS * share[:, None], MASS * (1 - share[:, None])), axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    values, mass = np.take_along_axis(values, order, axis=1), np.take_along_axis(mass, order, axis=1)
    return _interpolated(MIDS, np.cumsum(mass, axis=1) - mass / 2, values)


def to_parameters(sketches: Sketches) -> dict[str, Any]:
    """The sketches as JSON: one row a key, ``[level, parts, parent, count, weight, age, quantiles]``."""
    rows = [[row.key[0], list(row.key[1:]), *row[1:-1], list(row.quantiles)] for row in sketches.rows]
    return {"k": sketches.k, "levels": list(NAMES), "keys": rows}


_ROWS = TypeAdapter(list[tuple[int, list[str | int], int, int, float, float, tuple[float, ...]]])


def of_parameters(given: dict[str, Any], where: str) -> Sketches:
    """The sketches that ``to_parameters`` wrote. Raises InputError for anything else."""
    accepted = "what planner fit wrote"
    if given.get("levels") != list(NAMES):
        raise InputError(f"{where}: levels", "other keys than this planner's", accepted)
    k = given.get("k")
    if not isinstance(k, int | float) or isinstance(k, bool) or not k > 0:
        raise InputError(f"{where}: k", "no positive number", accepted)
    try:
        read = _ROWS.validate_python(given.get("keys"))
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"[{part}]" for part in first["loc"])
        raise InputError(f"{where}: keys{key}", first["msg"], accepted) from None
    rows = tuple(Sketch((row[0], *row[1]), *row[2:]) for row in read)
    for i, row in enumerate(rows):
        if not _holds(row, i, len(rows)):
            raise InputError(f"{where}: keys[{i}]", "no distribution of a key", accepted)
    return mixed(rows, float(k))


def _holds(row: Sketch, at: int, rows: int) -> bool:
    """The row is one that ``fit`` could have made."""
    level = row.key[0]
    return (
        0 <= level < len(LEVELS)
        and len(row.key) == 1 + len(LEVELS[level])
        and (row.parent == -1 or at < row.parent < rows)
        and row.observations > 0
        and row.weight >= 0
        and 1 <= len(row.quantiles) <= SIZE
        and bool(np.isfinite(row.quantiles).all())
        and all(a <= b for a, b in zip(row.quantiles, row.quantiles[1:], strict=False))
    )
