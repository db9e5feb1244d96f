"""How good, how soon and how surely: whole solves of generated clusters under the default policy.

    python tests/benchmarks/solve.py [--sizes 50x28 200x128] [--seeds 0 1 2 3 4] [--limit 60] [--engine auto]
        [--at 1 5 10 30 60] [--tenants 2] [--load 1.3] [--running 0.3] [--change 5] [--out results.json]
    python tests/benchmarks/solve.py --table results.json [more.json]

Run by hand; each size and seed has a process of its own. Prints a line a seed, then the median and the range of the
size. Seconds count from the call of ``solve``; formulation comes before it.

``first_s`` is when a plan that starts something was first heard of. ``gap@T`` is (best - bound) / best after T seconds, and ``served@T``
(best - bound) / (base - bound), where the base plan starts nothing; what is heard on the way are the engines' claims, at
most a poll late, and none counts for more than what the referee grants in the end. The bound that is sought before the
engines is heard with an engine's next word. Objectives and bounds are in GPU-seconds; ``peak_mib`` is this process and
``child_mib`` the largest of its children, which count the pages that they share with it.

``--load`` keeps the oldest jobs, as many as ask for so many times the GPUs there are. ``--running`` lets the greedy plan
first; a share of what it placed then runs there and may be moved, a tenth of it at most. ``--change`` solves once,
takes so many percent of the jobs away and adds as many new ones, and solves that twice: without a hint, then with the
first answer as its hint and what that solve has left (prices, columns), all libraries loaded. The figures are those of the
last solve, which has a limit of its own if told; ``reached_s`` is when it has what the one without a hint had after 10 s
(``cold_gpu_s``), ``above@cold`` how far it stays above that in the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner import predict
from planner.edit import Scenario, changed
from planner.formulate import Formulated, formulate
from planner.generate import generate
from planner.model import Job
from solvers import Limits, Placed, Problem, Progress, Solution, engines, solve
from solvers.check import objective
from solvers.warm import Warm

SIZES = ("50x28", "200x128", "1000x512", "5000x2048", "20000x8192")
TIMES_S = (1.0, 5.0, 10.0, 30.0, 60.0)
#: What a warm start has to reach is what a cold one has after so long.
COLD_S = 10.0
#: One in so many running jobs may be moved.
MOVABLE = 10

Row = dict[str, Any]
Jobs = tuple[Job, ...]


@dataclass(frozen=True)
class News:
    """The best claims at a moment of a solve; costs in milli-GPU-seconds."""

    elapsed_s: float
    objective: int | None
    bound: int | None


@dataclass(frozen=True)
class Measured:
    """A solve with all that was heard on the way, its end included; ``base`` is the cost of starting nothing."""

    found: Solution
    placed: Placed
    objective: int
    news: tuple[News, ...]
    base: int

    def at(self, elapsed_s: float) -> News:
        """The best that was known by then."""
        known = [n for n in self.news if n.elapsed_s <= elapsed_s]
        best = min((n.objective for n in known if n.objective is not None), default=None)
        bound = max((n.bound for n in known if n.bound is not None), default=None)
        return News(elapsed_s, best, bound)

    def first_s(self) -> float | None:
        """When a plan was first known that starts something."""
        known = (n for n in self.news if n.objective is not None and n.objective < self.base)
        return next((n.elapsed_s for n in known), None)

    def bound_s(self) -> float | None:
        """When a bound was first known."""
        return next((n.elapsed_s for n in self.news if n.bound is not None), None)

    def reached_s(self, best: int) -> float | None:
        """When a plan as good as that was known; None if it never was."""
        return next((n.elapsed_s for n in self.news if n.objective is not None and n.objective <= best), None)


def measure(
    problem: Problem, given: argparse.Namespace, hint: Placed | None = None, warm: Warm | None = None
) -> Measured:
    """One solve, listened to."""
    heard: list[News] = []

    def listen(progress: Progress) -> None:
        if not heard or (heard[-1].objective, heard[-1].bound) != (progress.objective, progress.bound):
            heard.append(News(progress.elapsed_s, progress.objective, progress.bound))

    limits = Limits(wall_s=given.limit)
    found = solve(problem, limits, engine=given.engine, hint=hint, warm=warm, on_progress=listen)
    assert found.placed is not None and found.objective is not None, "the base plan is always feasible"
    last = News(found.wall_s, found.objective, found.bound)
    news = (*(_granted(n, last) for n in heard if n.elapsed_s <= last.elapsed_s), last)
    return Measured(found, found.placed, found.objective, news, objective(problem, problem.base).total)


def _granted(claim: News, last: News) -> News:
    """A claim, but no better than what the referee grants in the end."""
    best = None if claim.objective is None else max(claim.objective, last.objective or 0)
    bound = None if claim.bound is None or last.bound is None else min(claim.bound, last.bound)
    return News(claim.elapsed_s, best, bound)


def gaps(news: News, base: int) -> tuple[float | None, float | None]:
    """Total and served gap; None where they are not known or say nothing."""
    if news.objective is None or news.bound is None:
        return None, None
    apart = news.objective - news.bound
    if apart == 0:
        return 0.0, 0.0
    served = base - news.bound
    return (apart / news.objective if news.objective > 0 else None), (apart / served if served > 0 else None)


def figures(problem: Problem, measured: Measured, times_s: Iterable[float]) -> Row:
    """What a line shows of one solve."""
    found = measured.found
    row: Row = {
        "status": str(found.status),
        "jobs": problem.jobs,
        "load": float(problem.job_gpus.sum()) / max(problem.gpus, 1),
        "first_s": measured.first_s(),
        "objective_gpu_s": measured.objective / 1000,
        "bound_gpu_s": None if found.bound is None else found.bound / 1000,
        "base_gpu_s": measured.base / 1000,
        "bound_first_s": measured.bound_s(),
        "bound_last_s": next((n.elapsed_s for n in measured.news if n.bound == found.bound), None),
        "wall_s": found.wall_s,
    }
    for time_s in times_s:
        total, served = gaps(measured.at(time_s), measured.base)
        row |= {f"gap@{time_s:g}": total, f"served@{time_s:g}": served}
    return row | {
        "moves": _moves(problem, measured.placed),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "child_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def _moves(problem: Problem, placed: Placed) -> int:
    return sum(home is not None and spot != home for home, spot in zip(problem.home, placed, strict=True))


# What is solved


def one(size: str, seed: int, given: argparse.Namespace) -> Row:
    """One size and seed, in this process."""
    jobs, gpus = map(int, size.split("x"))
    scenario, queue, more = _drawn(jobs, gpus, seed, given)
    if given.running:
        scenario, queue = _with_running(scenario, queue, seed, given.running)
    formulated = _formulated(scenario, queue)
    measured = measure(formulated.problem, given)
    if not more:
        return figures(formulated.problem, measured, given.at)
    return _warm(scenario, _renewed(queue, more, seed), formulated, measured.found, given)


def queue_only(size: str, seed: int, given: argparse.Namespace) -> Problem:
    """The problem of one size and seed where nothing runs yet."""
    jobs, gpus = map(int, size.split("x"))
    scenario, queue, _ = _drawn(jobs, gpus, seed, given)
    return _formulated(scenario, queue).problem


def _warm(
    scenario: Scenario, queue: Jobs, last: Formulated, found: Solution, given: argparse.Namespace
) -> Row:
    """The changed queue without a hint and with one; formulated twice, so that nothing is remembered."""
    problem = _formulated(scenario, queue).problem
    cold = measure(problem, given).at(COLD_S).objective
    formulated = _formulated(scenario, queue)
    assert found.placed is not None and last.gpu_ids == formulated.gpu_ids
    number = {last.snapshot.jobs[i].id: j for j, i in enumerate(last.jobs)}
    old = [number.get(queue[i].id) for i in formulated.jobs]
    hint = tuple(None if j is None else found.placed[j] for j in old)
    left = found.warm and found.warm.renumbered(old, range(formulated.problem.nodes))
    engines.preload(engines.PATTERNS)  # as in a process that plans one epoch after the other
    given.limit = given.warm_limit or given.limit
    warm = measure(formulated.problem, given, hint, left)
    return figures(formulated.problem, warm, given.at) | {
        "cold_gpu_s": None if cold is None else cold / 1000,
        "reached_s": None if cold is None else warm.reached_s(cold),
        "above@cold": None if cold is None else warm.objective / cold - 1,
    }


def _drawn(jobs: int, gpus: int, seed: int, given: argparse.Namespace) -> tuple[Scenario, Jobs, Jobs]:
    """A scenario, its queue, and the jobs that come later."""
    later = _part(jobs, given.change)
    scenario = generate(jobs + later, gpus, seed)
    if given.tenants is not None:
        scenario = changed(scenario, policy=changed(scenario.policy, max_tenants=given.tenants))
    everyone, count = scenario.snapshot.jobs, jobs
    if given.load is not None:
        demand = np.cumsum([job.gpus for job in everyone[:jobs]])
        count = int(np.searchsorted(demand, given.load * gpus, "right"))
        later = _part(count, given.change)
    return scenario, everyone[:count], everyone[count : count + later]


def _part(count: int, percent: float) -> int:
    """So many percent of a count, but not none of it unless none is asked for."""
    return max(1, round(count * percent / 100)) if percent else 0


def _renewed(queue: Jobs, more: Jobs, seed: int) -> Jobs:
    """The queue with some jobs gone and as many new ones."""
    gone = set(np.random.default_rng(seed).choice(len(queue), len(more), replace=False).tolist())
    return (*(job for i, job in enumerate(queue) if i not in gone), *more)


def _formulated(scenario: Scenario, queue: Jobs) -> Formulated:
    snapshot = changed(scenario.snapshot, jobs=queue)
    forecast = predict.forecast(snapshot, scenario.policy, scenario.predictor)
    return formulate(snapshot, forecast, scenario.policy)


def _places(formulated: Formulated, placed: Placed) -> dict[str, tuple[int, ...]]:
    """Job id -> where a plan puts it."""
    jobs = formulated.snapshot.jobs
    return {jobs[i].id: spot for i, spot in zip(formulated.jobs, placed, strict=True) if spot is not None}


def _with_running(scenario: Scenario, queue: Jobs, seed: int, share: float) -> tuple[Scenario, Jobs]:
    """Some of what the greedy places in an empty cluster runs there, and one in ten of that may move."""
    formulated = _formulated(scenario, queue)
    greedy = engines.load(engines.GREEDY)
    plan = greedy(formulated.problem, Limits(wall_s=0), None, lambda *_: None).placed
    places = _places(formulated, plan or ())
    count = round(share * len(places))
    run = set(np.random.default_rng(seed).permutation(sorted(places))[:count].tolist())
    names = formulated.gpu_ids
    jobs = tuple(
        changed(job, running_on=tuple(names[g] for g in places[job.id]), movable=True)
        if job.id in run
        else job
        for job in queue
    )
    policy = changed(scenario.policy, max_moves=-(-count // MOVABLE))
    return changed(scenario, policy=policy), jobs


# What is shown


def in_a_process(script: str, size: str, seed: int) -> Row:
    """One size and seed in a process of its own, so that memory is counted from nothing."""
    command = [sys.executable, script, *sys.argv[1:], "--one", size, str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {"size": size, "seed": seed, **json.loads(done.stdout.splitlines()[-1])}


def columns(rows: Sequence[Row]) -> list[str]:
    """The figures that a line shows, in their order; the others are for the file."""
    silent = {"size", "seed", "status", "jobs", "base_gpu_s", "wall_s"}
    silent |= {"moves"} if not any(row["moves"] for row in rows) else set()
    return [name for name in rows[0] if name not in silent]


def text(name: str, value: float | None) -> str:
    """A figure with the digits that its unit is worth."""
    if value is None:
        return "-"
    if "@" in name:
        return f"{value:.2%}"
    return f"{value:,.0f}" if name.endswith(("gpu_s", "mib", "moves", "jobs")) else f"{value:,.2f}"


def over_seeds(rows: Sequence[Row], name: str) -> tuple[str, str]:
    """Median and range of a figure; a dash each if a seed lacks it."""
    values = [row[name] for row in rows]
    if any(value is None for value in values):
        return "-", "-"
    low, high = text(name, min(values)), text(name, max(values))
    return text(name, statistics.median(values)), low if low == high else f"{low}-{high}"


def show(label: str, names: Sequence[str], cells: Iterable[str]) -> None:
    pairs = (f"{name} {cell}" for name, cell in zip(names, cells, strict=True))
    print(f"{label:>24}  " + "  ".join(pairs), flush=True)


def bench(given: argparse.Namespace, script: str = __file__) -> None:
    """Run a script for all sizes and seeds, show them, and keep them after each if asked to."""
    rows: list[Row] = []
    for size in given.sizes:
        for seed in given.seeds:
            rows.append(in_a_process(script, size, seed))
            names = columns(rows[-1:])
            show(f"{size} {seed} {rows[-1]['status']}", names, (text(n, rows[-1][n]) for n in names))
            if given.out:
                given.out.write_text(json.dumps({"given": vars(given), "rows": rows}, default=str, indent=1))
        same = [row for row in rows if row["size"] == size]
        names = columns(same)
        for label, cells in zip(
            ("median", "range"), zip(*(over_seeds(same, n) for n in names), strict=True), strict=True
        ):
            show(f"{size} {label}", names, cells)


# The table of the README


def table(paths: Iterable[Path]) -> None:
    """The medians and ranges of result files in Markdown, one line a size."""
    results = [json.loads(path.read_text()) for path in paths]
    times = sorted({name.split("@")[1] for r in results for name in r["rows"][0] if "@" in name}, key=float)
    head = ["jobs x GPUs", "first plan", *(f"gap; served gap after {t} s" for t in times)]
    head += ["final bound after", "peak memory", "child's peak"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for result in results:
        for size in dict.fromkeys(row["size"] for row in result["rows"]):
            rows = [row for row in result["rows"] if row["size"] == size]
            print("| " + " | ".join([f"{size}{variant(result['given'])}", *line(rows, times)]) + " |")


def line(rows: Sequence[Row], times: Iterable[str]) -> Iterable[str]:
    """The cells of one size, after its name."""

    def cell(name: str, unit: str = "") -> str:
        if name not in rows[0]:
            return "-"
        median, spread = over_seeds(rows, name)
        more = "" if spread in (median, "-") else ", " + spread.replace("-", " to ") + unit
        return (median if median == "-" else median + unit + more).replace("%", " %")

    yield cell("first_s", " s")
    for time_s in times:
        yield f"{cell(f'gap@{time_s}')}; {cell(f'served@{time_s}')}"
    yield cell("bound_last_s", " s")
    yield cell("peak_mib", " MiB")
    yield cell("child_mib", " MiB")


def variant(given: Row) -> str:
    """What the instances of a file have that the plain ones have not."""
    said = [] if given["engine"] == engines.AUTO else [f"engine {given['engine']}"]
    said += [f"{name} {given[name]}" for name in ("tenants", "load", "running", "change") if given[name]]
    return "".join(f", {word}" for word in said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="jobs x GPUs")
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a solve")
    parser.add_argument("--engine", default=engines.AUTO, choices=engines.names())
    parser.add_argument(
        "--at", nargs="+", type=float, default=TIMES_S, help="seconds at which gaps are shown"
    )
    parser.add_argument("--tenants", type=int, help="jobs that may share a GPU; the policy's if not given")
    parser.add_argument("--load", type=float, help="GPUs asked for over GPUs there are, at most")
    parser.add_argument("--running", type=float, default=0.0, help="share of the placed jobs that runs")
    parser.add_argument("--change", type=float, default=0.0, help="percent of the jobs that change")
    parser.add_argument("--warm-limit", type=float, help="seconds of the solve after the change; as --limit")
    parser.add_argument("--out", type=Path, help="JSON file of all figures")
    parser.add_argument("--table", nargs="+", type=Path, help="JSON files to print as Markdown")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.at = [time_s for time_s in given.at if time_s <= given.limit] or [given.limit]
    if given.table:
        table(given.table)
    elif given.one:
        print(json.dumps(one(given.one[0], int(given.one[1]), given)))
    else:
        bench(given)


if __name__ == "__main__":
    main()
