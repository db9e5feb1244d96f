"""How far duration forecasts are off on jobs that the fit has not seen, beside what simpler methods say.

Two splits: the days after the first 70 % of the history's time, by what was known then; and each account by
what all others did. Jobs that ended of themselves count; those at their limit or still running have no duration to
compare with. All errors are of log2 duration, where 1 is a factor of two.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence

import numpy as np

from planner.predict import duration, keyed
from planner.predict.duration import LEVELS
from planner.predict.history import History, Record
from planner.predict.model_file import Score

SHARE = 0.7
#: The accounts with the most jobs that are left out, one at a time, and the fewest jobs they have.
ACCOUNTS, ACCOUNT_ROWS = 20, 20
GPUS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("all", lambda n: n > 0),
    ("gpus 1", lambda n: n == 1),
    ("gpus 2-4", lambda n: (n >= 2) & (n <= 4)),
    ("gpus 5-8", lambda n: (n >= 5) & (n <= 8)),
    ("gpus >8", lambda n: n > 8),
)
#: Log seconds at LEVELS, shape (n, 3); NaN where a method says nothing.
Guesses = dict[str, np.ndarray]


def evaluate(history: History) -> tuple[Score, ...]:
    """Scores of every split that the history allows, method and number of GPUs."""
    return (*_next_days(history), *_accounts(history))


def _next_days(history: History) -> list[Score]:
    came = np.array([r.came_s for r in history.records if r.came_s is not None])
    if not len(came):
        return []
    cut = float(came.min() + SHARE * (came.max() - came.min()))
    before = history.as_of(cut)
    after = [r for r in history.records if r.came_s is not None and r.came_s >= cut and not r.censored]
    if not after or not any(not r.censored for r in before.records):
        return []
    guesses = guessed(before, after, cut)
    guesses["last two at submission"] = _last_two(history.records, after, guesses["constant"])
    return scores("next days", after, guesses)


def _accounts(history: History) -> list[Score]:
    """Every large account by the others; what it did itself is not known, not even before."""
    counts = Counter(r.account for r in history.records if r.account is not None and not r.censored)
    held = [a for a, n in counts.most_common(ACCOUNTS) if n >= ACCOUNT_ROWS] if len(counts) > 1 else []
    rows: list[Record] = []
    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for account in held:
        others = History(tuple(r for r in history.records if r.account != account))
        mine = [r for r in history.records if r.account == account and not r.censored]
        rows += mine
        for method, guess in guessed(others, mine, None).items():
            parts[method].append(guess)
    whole = {method: np.concatenate(part) for method, part in parts.items()}
    return scores("leave one account out", rows, whole)


def guessed(before: History, after: Sequence[Record], now_s: float | None) -> Guesses:
    """What each method says of ``after`` by ``before`` alone, before the jobs start."""
    model = duration.fit(before, now_s=now_s)
    limits = np.array([math.inf if r.time_limit_s is None else r.time_limit_s for r in after])
    said = model.predict_many([keyed.traits(r) for r in after], np.zeros(len(after)), limits)
    known = duration.observed(before, 0.0)
    sample = (known.values[None], np.ones((1, len(known.values))), known.whole[None])
    middle = keyed.weighted_quantiles(*sample, np.array(LEVELS))
    constant = np.tile(middle, (len(after), 1))
    guesses = {
        "history": np.log(np.column_stack((said.p50_s, said.p90_s, said.p95_s))),
        "constant": constant,
        "last two": _last_two(before.records, after, constant),
    }
    if np.isfinite(limits).any():
        declared = np.log(np.where(np.isfinite(limits) & (limits > 0), limits, np.nan))
        guesses["declared limit"] = np.tile(declared[:, None], (1, len(LEVELS)))
    return guesses


def _last_two(known: Sequence[Record], jobs: Sequence[Record], otherwise: np.ndarray) -> np.ndarray:
    """Mean of the last two jobs of the user (else the account) on as many GPUs that had ended when a job came.

    Tsafrir, Etsion, Feitelson, TPDS 18(6), 2007. It gives no upper values; without such jobs it is ``otherwise``.
    """
    ends = [(r.began_s + r.duration_s, r) for r in known if r.began_s is not None and not r.censored]
    ends.sort(key=lambda pair: pair[0])
    guess = np.full((len(jobs), len(LEVELS)), np.nan)
    guess[:, 0] = otherwise[:, 0]
    last: dict[tuple[str | None, int], deque[float]] = defaultdict(lambda: deque(maxlen=2))
    came = [math.inf if r.came_s is None else r.came_s for r in jobs]
    at = 0
    for i in np.argsort(came, kind="stable").tolist():
        while at < len(ends) and ends[at][0] <= came[i]:
            ended = ends[at][1]
            last[ended.user or ended.account, ended.gpus].append(ended.duration_s)
            at += 1
        mine = last.get((jobs[i].user or jobs[i].account, jobs[i].gpus))
        if mine:
            guess[i, 0] = math.log(sum(mine) / len(mine))
    return guess


def scores(split: str, jobs: Sequence[Record], guesses: Guesses) -> list[Score]:
    """One score a method and group of GPUs that has rows."""
    took = np.log([r.duration_s for r in jobs])
    gpus = np.array([r.gpus for r in jobs], int)
    found = []
    for method, guess in guesses.items():
        for group, holds in GPUS:
            rows = holds(gpus) & ~np.isnan(guess[:, 0])
            if rows.any():
                values = _measures(took[rows], guess[rows])
                found.append(
                    Score(split=split, group=group, method=method, rows=int(rows.sum()), values=values)
                )
    return found


def _measures(took: np.ndarray, guess: np.ndarray) -> dict[str, float | None]:
    """Of log seconds ``took`` (n,) and guesses (n, 3). Upper values that a method lacks give None."""
    off = np.abs(guess[:, 0] - took) / math.log(2)
    losses = duration.pinball(took[:, None], guess).mean(0) / math.log(2)
    below = np.where(np.isnan(guess), np.nan, took[:, None] <= guess).mean(0)
    values = {
        "median_abs_log2": np.median(off),
        "mean_abs_log2": off.mean(),
        "median_relative": np.median(np.abs(np.expm1(guess[:, 0] - took))),
        "coverage_p90": below[1],
        "coverage_p95": below[2],
        "pinball_p50_log2": losses[0],
        "pinball_p90_log2": losses[1],
        "pinball_p95_log2": losses[2],
    }
    return {k: round(float(v), 4) if math.isfinite(v) else None for k, v in values.items()}
