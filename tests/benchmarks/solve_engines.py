"""How soon, how good and how large: the greedy, the search and the bound from 50 jobs to 20,000.

    python tests/benchmarks/solve_engines.py [--sizes 50x28 100x64] [--seeds 0 1 2 3 4] [--limit 5] [--makespan 0.5]

For each size and seed: seconds to the greedy's first plan, its objective and the final one (GPU-seconds), the bound as
part of the final one, the final one as part of the frozen baseline's (up to 1,000 jobs), and the peak memory. Each run
has a process of its own; the last line of a size gives the median and the spread.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

SIZES = ("50x28", "100x64", "200x128", "1000x512", "5000x2048", "20000x8192")
COLUMNS = ("first_s", "first", "final", "bound", "bound_s", "baseline", "peak_mib")
#: Above this many jobs the plain baseline takes minutes.
BASELINE_JOBS = 1000


def measure(size: str, seed: int, limit_s: float, makespan: float) -> dict[str, float | None]:
    """One problem, solved in this process."""
    from baseline import best_fit
    from problems import random_problem

    from solvers import greedy, search
    from solvers.bound import lower_bound
    from solvers.check import objective, violations
    from solvers.problem import Limits

    jobs, gpus = map(int, size.split("x"))
    problem = random_problem(seed, jobs, gpus, makespan=makespan)
    start = time.perf_counter()
    first = greedy.solve(problem, Limits(wall_s=0, seed=seed), None, lambda *_: None)
    first_s = time.perf_counter() - start
    final = search.solve(problem, Limits(wall_s=limit_s, seed=seed), None, lambda *_: None)
    for answer in (first, final):
        assert violations(problem, answer.placed) == ()
    total = min(first.objective, final.objective)
    start = time.perf_counter()
    bound = lower_bound(problem)
    bound_s = time.perf_counter() - start
    baseline = None
    if jobs <= BASELINE_JOBS:
        baseline = total / objective(problem, best_fit(problem)).total
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = (first_s, first.objective / 1e3, total / 1e3, bound / total, bound_s, baseline, peak_mib)
    return dict(zip(COLUMNS, found, strict=True))


def in_a_process(size: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, so that memory is counted from nothing."""
    command = [sys.executable, __file__, "--one", size, str(seed), str(given.limit), str(given.makespan)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show(size: str, seed: str, row: dict[str, Any]) -> None:
    cells = ["-" if row[name] is None else f"{row[name]:,.3f}" for name in COLUMNS]
    print(f"{size:>11} {seed:>7} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


def summary(rows: list[dict[str, Any]], of: Any) -> dict[str, Any]:
    """One figure of each column over the seeds."""
    return {
        name: None if any(row[name] is None for row in rows) else of([row[name] for row in rows])
        for name in COLUMNS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--seeds", nargs="+", type=int, default=range(5))
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--makespan", type=float, default=0.5)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        size, seed, limit, makespan = given.one
        print(json.dumps(measure(size, int(seed), float(limit), float(makespan))))
        return
    print(f"{'size':>11} {'seed':>7} " + " ".join(f"{name:>16}" for name in COLUMNS))
    for size in given.sizes:
        rows = []
        for seed in given.seeds:
            rows.append(in_a_process(size, seed, given))
            show(size, str(seed), rows[-1])
        show(size, "median", summary(rows, statistics.median))
        show(size, "spread", summary(rows, lambda values: max(values) - min(values)))


if __name__ == "__main__":
    main()
