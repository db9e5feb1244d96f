"""The alibaba-openb trace as one batch: the planner beside three heuristics that place pods one by one.

    python tests/benchmarks/openb.py NODES.csv PODS.csv [--limit 60] [--engine auto]

Run by hand. The planner's plan with its bound, and best fit, dot product and fragmentation gradient descent over the
pods in the order of the trace and in three random orders (seeds 0 to 2). All place the same Problem, and the referee
looks at what each of them placed: *broken* counts the rules that it finds broken. *share* is the part of the requested
thousandths of GPUs that is allocated. The makespan term, which is the longest pod's and much the largest, is not in
*but makespan*.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np
from openb_heuristics import best_fit, dot_product, gradient_descent, one_by_one

from planner import predict
from planner.formulate import formulate
from planner.traces import alibaba_openb
from solvers import Limits, Placed, Problem, Solution, engines, solve
from solvers.check import objective, violations

RULES = {"best fit": best_fit, "dot product": dot_product, "FGD": gradient_descent}
SEEDS = range(3)
#: The peak of the one that needed most; the engines run in children.
PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
COLUMNS = f"{'':12} {'order':8} {'pods':>6} {'wait':>5} {'share':>8} {'objective':>15} {'but makespan':>13} {'broken':>6} {'wall':>7}"


def load(nodes_csv: str, pods_csv: str) -> Problem:
    """All pods of the trace as one Problem."""
    scenario = alibaba_openb(nodes_csv, pods_csv)
    forecast = predict.forecast(scenario.snapshot, scenario.policy, scenario.predictor)
    return formulate(scenario.snapshot, forecast, scenario.policy).problem


def allocated_milli(problem: Problem, placed: Placed) -> int:
    """Thousandths of GPUs given to those placed."""
    on = np.array([spot is not None for spot in placed], bool)
    return int(problem.size_milli[on & (problem.job_gpus > 0)].sum())


def row(problem: Problem, name: str, order: str, placed: Placed, wall_s: float) -> str:
    """One line of the table, costs in GPU-seconds."""
    terms, asked = objective(problem, placed), int(problem.size_milli[problem.job_gpus > 0].sum())
    wait = sum(spot is None for spot in placed)
    share = allocated_milli(problem, placed) / asked
    cost = f"{terms.total / 1000:15,.0f} {(terms.total - terms.makespan) / 1000:13,.0f}"
    broken = len(violations(problem, placed))
    return (
        f"{name:12} {order:8} {len(placed) - wait:6,} {wait:5,} {share:8.3%} {cost} {broken:6} {wall_s:6.1f}s"
    )


def planned(problem: Problem, limit_s: float, engine: str) -> Iterator[str]:
    """The planner's row, and what it knows of its distance to the best."""
    began = time.perf_counter()
    found = solve(problem, Limits(wall_s=limit_s), engine=engine)
    wall_s = time.perf_counter() - began
    peak_mib = max(resource.getrusage(who).ru_maxrss for who in PROCESSES) / 1024
    assert found.placed is not None
    yield row(problem, "planner", "", found.placed, wall_s)
    yield f"  plan by {found.engine}, {found.status}; {distance(problem, found)}; peak {peak_mib:.0f} MiB"


def distance(problem: Problem, found: Solution) -> str:
    """Bound and gap; the served gap divides by what serving the queue is worth, not by the whole objective."""
    if found.bound is None or found.objective is None:
        return "no bound"
    off = found.objective - found.bound
    served = off / max(1, objective(problem, problem.base).total - found.bound)
    return f"bound {found.bound / 1000:,.0f}, gap {off / found.objective:.4%}, served gap {served:.3%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes_csv")
    parser.add_argument("pods_csv")
    parser.add_argument("--limit", type=float, default=60, help="seconds for the planner")
    parser.add_argument("--engine", default=engines.AUTO, choices=engines.names())
    given = parser.parse_args()
    problem = load(given.nodes_csv, given.pods_csv)
    asked = int(problem.size_milli[problem.job_gpus > 0].sum())
    print(f"{problem.jobs:,} pods on {problem.nodes:,} nodes; {asked:,} thousandths of {problem.gpus:,} GPUs")
    print(f"planner's limit {given.limit:g} s, engine {given.engine}; costs in GPU-seconds\n{COLUMNS}")
    for line in planned(problem, given.limit, given.engine):
        print(line, flush=True)
    orders = {"trace": list(range(problem.jobs))}
    orders |= {f"random {s}": np.random.default_rng(s).permutation(problem.jobs).tolist() for s in SEEDS}
    for name, rule in RULES.items():
        for order, pods in orders.items():
            began = time.perf_counter()
            placed = one_by_one(problem, pods, rule)
            print(row(problem, name, order, placed, time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
