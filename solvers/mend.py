"""A plan that breaks a few rules, made valid by taking out those in the way: newcomers to wait, running jobs to go home."""

from __future__ import annotations

from solvers.check import Violation, violations
from solvers.problem import Placed, Problem, Spot

#: Taking jobs out may break another rule (a gate needs all its tenants), but not for long.
TRIES = 16


def mended(problem: Problem, placed: Placed) -> Placed:
    """A valid plan with most of what a given one places; the base plan if it is not even of the right form."""
    plan = list(placed)
    for _ in range(TRIES):
        faults = violations(problem, tuple(plan))
        if not faults:
            return tuple(plan)
        if any(fault.rule == "placement" and fault.job is None for fault in faults):
            break
        out: set[int] = set()
        for fault in faults:
            if fault.job not in out:  # its other faults went with it
                out.update(_culprits(problem, plan, fault))
                for j in out:
                    plan[j] = problem.home[j]
    return problem.base


def _culprits(problem: Problem, plan: list[Spot | None], fault: Violation) -> list[int]:
    """Newcomers to take out: the job at fault, else one that is on the GPU or node, else who is too many."""
    new = [j for j, spot in enumerate(plan) if spot != problem.home[j]]
    if fault.job in new:
        return [fault.job]
    # Or it is at home, and has got a neighbour that it must not have.
    if fault.gpu is not None:
        return [j for j in new if problem.job_gpus[j] and fault.gpu in (plan[j] or ())][:1]
    if fault.node is not None:
        return [j for j in new if fault.node in _nodes(problem, j, plan[j])][:1]
    return _beyond(problem, plan, new)


def _beyond(problem: Problem, plan: list[Spot | None], new: list[int]) -> list[int]:
    """Who passes what all together may: running jobs that change beyond ``max_moves``, and drawers beyond a budget."""
    out = [j for j in new if problem.home[j] is not None][problem.max_moves :]
    for budget in problem.budgets:
        room = budget.capacity
        for j, amount in zip(budget.jobs, budget.amounts, strict=True):
            if problem.home[j] is None and plan[j] is not None:
                room -= amount
                if room < 0 < amount:
                    out.append(j)
                    room += amount
    return out


def _nodes(problem: Problem, j: int, spot: Spot | None) -> tuple[int, ...]:
    if spot is None or not problem.job_gpus[j]:
        return spot or ()
    return tuple(int(problem.gpu_node[g]) for g in spot)
