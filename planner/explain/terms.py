"""What each job adds to the objective, in the very integers of the program, so that the jobs' parts sum to its terms.

Makespan and fragmentation belong to the plan as a whole and are 0 here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from solvers.measure import Effect, effects
from solvers.problem import MILLI, PPM, Placed, Problem, Terms

if TYPE_CHECKING:
    from planner.formulate import Formulated
    from planner.plan import Plan


def placed_of(formulated: Formulated, plan: Plan) -> Placed:
    """The placement of the Problem's jobs that a plan stands for."""
    gpu = {name: g for g, name in enumerate(formulated.gpu_ids)}
    node = {name: v for v, name in enumerate(formulated.node_names)}
    spots = {
        a.job_id: tuple(sorted([gpu[g] for g in a.gpu_ids] or [node[n] for n in a.nodes]))
        for a in plan.assignments
    }
    return tuple(spots.get(formulated.snapshot.jobs[i].id) for i in formulated.jobs)


def job_terms(problem: Problem, placed: Placed) -> tuple[Terms, ...]:
    """Each job's part of every term, milli-GPU-seconds."""
    return tuple(_terms(problem, placed, j, effect) for j, effect in enumerate(effects(problem, placed)))


def _terms(problem: Problem, placed: Placed, j: int, effect: Effect | None) -> Terms:
    leaves = problem.home[j] is not None and placed[j] != problem.home[j]
    moves = problem.move_cost.item(j) if leaves else 0
    if effect is None:
        return Terms(waiting=problem.wait_cost.item(j), moves=moves)
    alone = MILLI * effect.speed
    beside = alone * MILLI // effect.slowdown
    linked = effect.speed * 10**9 // (effect.slowdown * effect.link_factor)
    return Terms(
        speed=(PPM - alone) * problem.unit_speed.item(j) // PPM,
        interference=(alone - beside) * problem.unit_interference.item(j) // PPM,
        locality=(beside - linked) * problem.unit_locality.item(j) // PPM,
        moves=moves,
    )
