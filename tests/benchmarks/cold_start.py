"""How much of a trace has a duration forecast, and how good: ``python tests/benchmarks/cold_start.py TRACE``.

First a cold start: after 1, 7 and 30 days, for the jobs of the week that follows, by the key that carries the forecast.
A forecast is usable if that key says more than how many GPUs a job has and has seen five ended jobs. Then the
last 30 % of the time with a fit every night, each for the day after. A fit knows the jobs that had ended by then,
and of those that ran, for how long; nothing of what came later. A job is taken to have started when the trace
says so, or when it was submitted if it does not.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

from planner.predict import duration, keyed
from planner.predict.duration_scores import SHARE
from planner.predict.history import History, Record, read

UNUSABLE = ("gpus", "all")
HEAD = (
    f"{'level':28} {'jobs':>7} {'jobs %':>7} {'GPU-h':>10} {'GPU-h %':>8}"
    f" {'|log2| med':>10} {'mean':>6} {'<=p90 %':>8} {'<=p95 %':>8}"
)


def line(label: str, rows: np.ndarray, took: np.ndarray, hours: np.ndarray, said: np.ndarray) -> str:
    """One row of a table: the jobs ``rows`` (n,) of all, and how far ``said`` (n, 3) was off, if it was anything."""
    text = f"{label:28} {rows.sum():7,} {100 * rows.mean():7.1f} {hours[rows].sum():10,.0f}"
    text += f" {100 * hours[rows].sum() / hours.sum():8.1f}"
    if not rows.any() or np.isnan(said[rows]).any():
        return text + "\n"
    off = np.abs(np.log2(said[rows, 0] / took[rows]))
    covered = 100 * (took[rows, None] <= said[rows, 1:]).mean(0)
    return f"{text} {np.median(off):10.2f} {off.mean():6.2f} {covered[0]:8.1f} {covered[1]:8.1f}\n"


def came_in(history: History, start_s: float, stop_s: float) -> list[Record]:
    """Jobs with a known duration that came between two moments."""
    timed = [(r, r.came_s) for r in history.records if not r.censored]
    return [r for r, came in timed if came is not None and start_s <= came < stop_s]


def told(history: History, now_s: float, jobs: list[Record]) -> tuple[np.ndarray, list[str]]:
    """What a fit at ``now_s`` says of jobs, shape (n, 3), and by which level; NaN and nothing before any has ended."""
    model = duration.fit(history.as_of(now_s), now_s=now_s)
    said = model.predict_many(
        [keyed.traits(r) for r in jobs], np.zeros(len(jobs)), np.full(len(jobs), math.inf)
    )
    levels = [model.sketches.level(at)[0] if at >= 0 else "" for at in said.found.tolist()]
    return np.column_stack((said.p50_s, said.p90_s, said.p95_s)), levels


def table(title: str, jobs: list[Record], said: np.ndarray, levels: list[str]) -> str:
    """All jobs, those with a usable forecast, and each level."""
    took = np.array([r.duration_s for r in jobs])
    hours = took * np.array([r.gpus for r in jobs]) / 3600
    level = np.array(levels)
    text = f"\n{title}\n{HEAD}\n"
    groups = {"none": level == "", "some": level != "", "usable": ~np.isin(level, ["", *UNUSABLE])}
    groups |= {f"  {name}": rows for name in keyed.NAMES if (rows := level == name).any()}
    for label, rows in groups.items():
        text += line(label, rows, took, hours, said)
    return text


def nightly(history: History, start_s: float, stop_s: float) -> str:
    """A fit every night, each for the jobs of the next day."""
    jobs: list[Record] = []
    said, levels, days = [], [], []
    for now_s in np.arange(start_s, stop_s, duration.DAY_S).tolist():
        day = came_in(history, now_s, now_s + duration.DAY_S)
        if day:
            values, names = told(history, now_s, day)
            jobs += day
            said.append(values)
            levels += names
            days.append(float((np.array([r.duration_s for r in day]) <= values[:, 1]).mean()))
    title = f"the last {(stop_s - start_s) / duration.DAY_S:.1f} days, fitted nightly"
    low, middle, high = 100 * np.quantile(days, (0.1, 0.5, 0.9))
    daily = (
        f"<=p90 of one day: median {middle:.1f} %, a tenth below {low:.1f} %, a tenth above {high:.1f} %\n"
    )
    return table(title, jobs, np.concatenate(said), levels) + daily


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--from-day", type=float, default=0, help="jobs that came earlier are left out")
    given = parser.parse_args()
    began = time.perf_counter()
    whole = read(given.trace)
    came = [math.nan if r.came_s is None else r.came_s for r in whole.records]
    first, last = np.nanmin(came) + given.from_day * duration.DAY_S, np.nanmax(came)
    whole = History(tuple(r for r, c in zip(whole.records, came, strict=True) if c >= first), whole.dropped)
    training = whole.training("")
    sys.stdout.write(
        f"{given.trace.name} from day {given.from_day:g}: {training.rows:,} rows, {training.digest[:19]}, left out {whole.dropped}\n"
    )
    for days in (1, 7, 30):
        now = first + days * duration.DAY_S
        week = came_in(whole, now, now + 7 * duration.DAY_S)
        if week:
            known = sum(not r.censored for r in whole.as_of(now).records)
            title = f"after {days} days, {known:,} jobs ended; jobs of the next 7 days"
            sys.stdout.write(table(title, week, *told(whole, now, week)))
    sys.stdout.write(nightly(whole, first + SHARE * (last - first), last + 1))
    sys.stdout.write(f"\n{time.perf_counter() - began:.0f} s\n")
