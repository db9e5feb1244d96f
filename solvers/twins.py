"""Queued jobs that nothing tells apart: an exact engine may fix their order and loses no optimum by it.

Exchanging two twins changes neither cost nor feasibility, so that of all plans that differ by such exchanges one
is enough: the one whose twins come in the order of their nodes, those that wait last.
"""

from __future__ import annotations

from dataclasses import fields

from solvers.problem import Placed, Problem, Spot

_OF_CLUSTER = {"node_cpu_milli", "node_memory_mib", "node_closed", "node_used_cost", "node_sets"}
#: The arrays with a row for each job.
OF_JOBS = [
    f.name
    for f in fields(Problem)
    if f.type == "np.ndarray" and not f.name.startswith("gpu_") and f.name not in _OF_CLUSTER
]


def twins(problem: Problem) -> tuple[Spot, ...]:
    """Groups of two or more queued jobs that are equal in everything, each in ascending order."""
    special = {j for pair in problem.never for j in pair} | set(problem.gpu_holder.tolist())
    amounts: dict[int, list[tuple[int, int]]] = {}
    for i, budget in enumerate(problem.budgets):
        for j, amount in zip(budget.jobs, budget.amounts, strict=True):
            amounts.setdefault(j, []).append((i, amount))
    rows = [getattr(problem, name) for name in OF_JOBS]
    alike: dict[tuple[object, ...], list[int]] = {}
    for j in range(problem.jobs):
        if problem.home[j] is None and j not in special:
            key = (*(row[j].tobytes() for row in rows), *sorted(amounts.get(j, [])))
            alike.setdefault(key, []).append(j)
    return tuple(tuple(jobs) for jobs in alike.values() if len(jobs) > 1)


def in_order(problem: Problem, placed: Placed) -> Placed:
    """The same plan with its twins exchanged so that they come in order."""
    ordered = list(placed)
    for jobs in twins(problem):
        spots = sorted((placed[j] for j in jobs), key=lambda spot, j=jobs[0]: first_node(problem, j, spot))  # type: ignore[misc]
        for j, spot in zip(jobs, spots, strict=True):
            ordered[j] = spot
    return tuple(ordered)


def first_node(problem: Problem, j: int, spot: Spot | None) -> int:
    """The node of a job's first GPU, one past the last if it waits."""
    if spot is None:
        return problem.nodes
    return spot[0] if problem.job_gpus.item(j) == 0 else min(problem.gpu_node.item(g) for g in spot)
