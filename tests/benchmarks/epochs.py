"""Whole epochs on generated scenarios: against the frozen single-order best fit, proofs of optimality, and a trace.

    python tests/benchmarks/epochs.py                     generated scenarios, seeds 0..4
    python tests/benchmarks/epochs.py NODES.csv PODS.csv  and the alibaba-openb trace as one batch

Run by hand. Prints one row a run with its seed and size, then the median and the range. Times are wall seconds of the
whole epoch, formulation, checks and explanations included.
"""

from __future__ import annotations

import statistics
import sys
import time

from baseline import best_fit

from planner import predict
from planner.epoch import plan_epoch
from planner.formulate import formulate
from planner.generate import generate
from planner.plan import Plan
from planner.traces import alibaba_openb
from solvers.check import objective

SEEDS = range(5)


def planned(scenario, time_limit_s: float) -> tuple[Plan, float]:
    """The plan of a scenario, and the wall seconds it took."""
    policy = scenario.policy.model_copy(update={"time_limit_s": time_limit_s})
    began = time.perf_counter()
    plan = plan_epoch(scenario.snapshot, policy, scenario.predictor)
    return plan, time.perf_counter() - began


def against_best_fit(jobs: int, gpus: int, time_limit_s: float, makespan: float) -> None:
    """How far below the baseline's objective the plans are.

    The baseline counts the makespan term as well, but takes jobs by priority, so that a long one may find no place;
    with ``makespan`` 0 what is left is placement.
    """
    print(
        f"\n{jobs} jobs x {gpus} GPUs, time limit {time_limit_s:g} s, makespan weight {makespan:g}, GPU-seconds"
    )
    print("seed    best fit        plan   below   gap   wall")
    below = []
    for seed in SEEDS:
        scenario = generate(jobs, gpus, seed)
        weights = scenario.policy.weights.model_copy(update={"makespan": makespan})
        scenario = scenario.model_copy(
            update={"policy": scenario.policy.model_copy(update={"weights": weights})}
        )
        forecast = predict.forecast(scenario.snapshot, scenario.policy, scenario.predictor)
        problem = formulate(scenario.snapshot, forecast, scenario.policy).problem
        simple = objective(problem, best_fit(problem)).total / 1000
        plan, wall = planned(scenario, time_limit_s)
        total = plan.objective.total_gpu_s
        below.append(1 - total / simple)
        gap = "    ?" if plan.solve.gap is None else f"{plan.solve.gap:5.1%}"
        print(f"{seed:4} {simple:11,.0f} {total:11,.0f}  {below[-1]:5.1%} {gap} {wall:5.1f}s")
    print(f"below best fit: median {statistics.median(below):.1%}, from {min(below):.1%} to {max(below):.1%}")


def proofs(jobs: int, gpus: int, time_limit_s: float) -> None:
    """How long it takes to prove a plan optimal."""
    print(f"\n{jobs} jobs x {gpus} GPUs, time limit {time_limit_s:g} s")
    print("seed   status      plan   solve")
    walls = []
    for seed in SEEDS:
        plan, _ = planned(generate(jobs, gpus, seed), time_limit_s)
        walls.append(plan.solve.wall_s)
        print(
            f"{seed:4}  {plan.solve.status:8} {plan.objective.total_gpu_s:10,.0f} {plan.solve.wall_s:6.2f}s"
        )
    print(f"solve: median {statistics.median(walls):.2f}s, from {min(walls):.2f}s to {max(walls):.2f}s")


def trace(nodes_csv: str, pods_csv: str, time_limit_s: float) -> None:
    """All pods of the trace as one batch."""
    scenario = alibaba_openb(nodes_csv, pods_csv)
    plan, wall = planned(scenario, time_limit_s)
    p = plan.predicted
    share = p.allocated_share_milli / p.requested_share_milli
    print(
        f"\nalibaba-openb, {len(scenario.snapshot.jobs)} pods on {len(scenario.snapshot.cluster.nodes)} nodes"
    )
    print(
        f"time limit {time_limit_s:g} s: {share:.2%} of the requested milli-shares allocated, {wall:.1f}s, gap {plan.solve.gap}"
    )
    print(f"served gap {plan.solve.served_gap}, {len(plan.deferred)} pods wait")


def main() -> None:
    """Print all tables."""
    against_best_fit(100, 64, 5, makespan=0.5)
    against_best_fit(100, 64, 5, makespan=0)
    proofs(12, 12, 10)
    if len(sys.argv) == 3:
        trace(sys.argv[1], sys.argv[2], 30)


if __name__ == "__main__":
    main()
