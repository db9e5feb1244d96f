"""Why a running job moves or stops: for whom it makes room, and what the plan gains by that, its own cost counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.explain.unknowns import listed
from solvers.check import objective, violations
from solvers.problem import MILLI, Placed, Problem, Spot

if TYPE_CHECKING:
    from planner.formulate import Formulated


def why_moved(formulated: Formulated, placed: Placed, job: int) -> str:
    """``it makes room for x on n0/0; ...``: measured against a plan in which it stays and those wait."""
    problem, home = formulated.problem, formulated.problem.home[job] or ()
    takers, stayed = _if_it_stayed(problem, placed, job, home)
    names = [formulated.snapshot.jobs[formulated.jobs[j]].id for j in takers]
    whom = f"it makes room for {listed(names)}" if names else "it runs better there"
    if stayed is None:
        return whom
    saved = objective(problem, stayed).total - objective(problem, placed).total
    cost = problem.move_cost.item(job)
    other = f" and {listed(names)} waited" if names else ""
    return (
        f"{whom}; if it stayed{other}, the plan would cost {abs(saved) / MILLI:.0f} GPU-s "
        f"{'more' if saved >= 0 else 'less'}, though the {'move' if placed[job] else 'stop'} itself costs {cost / MILLI:.0f}"
    )


def _if_it_stayed(
    problem: Problem, placed: Placed, job: int, home: Spot
) -> tuple[tuple[int, ...], Placed | None]:
    """The newcomers that would have to wait if the job stayed, and that placement; None if it breaks a rule too."""
    alone = _with(problem, placed, job, home, ())
    if not violations(problem, alone):
        return (), alone
    at_home = _newcomers(problem, placed, job, set(home), by_node=False)
    on_node = _newcomers(problem, placed, job, _nodes(problem, job, home), by_node=True)
    for takers in (at_home, on_node):
        stayed = _with(problem, placed, job, home, takers)
        if takers and not violations(problem, stayed):
            return takers, stayed
    return at_home or on_node, None


def _with(problem: Problem, placed: Placed, job: int, home: Spot, waiting: tuple[int, ...]) -> Placed:
    """The placement with the job at home and the newcomers not started, or back where they were."""
    changed = list(placed)
    changed[job] = home
    for j in waiting:
        changed[j] = problem.home[j]
    return tuple(changed)


def _nodes(problem: Problem, job: int, spot: Spot) -> set[int]:
    return {problem.gpu_node.item(g) for g in spot} if problem.job_gpus.item(job) else set(spot)


def _newcomers(
    problem: Problem, placed: Placed, job: int, where: set[int], *, by_node: bool
) -> tuple[int, ...]:
    """Jobs that the plan brings to these GPUs or nodes."""
    return tuple(
        j
        for j, spot in enumerate(placed)
        if j != job
        and spot
        and spot != problem.home[j]
        and (by_node or problem.job_gpus.item(j))
        and where.intersection(_nodes(problem, j, spot) if by_node else spot)
    )
