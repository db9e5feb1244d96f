"""The job-level program solved by CP-SAT: the exact engine for small problems.

Nothing is taken from the solver but values of variables: the placement read from them is measured again, and the
bound is rounded down to something that is certainly below every plan.
"""

from __future__ import annotations

import time
from math import ceil

from ortools.sat.python import cp_model

from solvers.check import objective, violations
from solvers.cpsat_model import Program
from solvers.cpsat_rules import add_rules
from solvers.cpsat_terms import add_terms
from solvers.modes import tables
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.workers import workers

ENGINE = "cp-sat"
#: CP-SAT's deterministic units that a second surely holds: it needs 4 to 8 s for one.
UNITS_PER_S = 0.1


class _Incumbents(cp_model.CpSolverSolutionCallback):
    """Reports every better placement as soon as it is found."""

    def __init__(self, program: Program, report: Report) -> None:
        super().__init__()
        self._program = program
        self._report = report

    def on_solution_callback(self) -> None:
        """Called by CP-SAT, from one thread at a time."""
        problem = self._program.problem
        placed = self._program.placement(self.value)
        if not violations(problem, placed):
            bound = _bound(self._program, self.best_objective_bound)
            self._report(placed, objective(problem, placed).total, bound)


def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """Solve the whole program, from ``hint`` if there is one."""
    began = time.monotonic()
    program = build(problem)
    program.hint(problem.base if hint is None else hint)
    fault = program.model.validate()
    if fault:
        return Solution(
            ENGINE, Status.FAILED, wall_s=time.monotonic() - began, note=f"invalid model: {fault}"
        )
    solver = _solver(limits, time.monotonic() - began)
    solver.best_bound_callback = lambda bound: report(None, None, _bound(program, bound))
    status = solver.solve(program.model, _Incumbents(program, report))
    return _solution(program, solver, status, time.monotonic() - began)


def build(problem: Problem) -> Program:
    """The whole program of a problem."""
    program = Program(problem, tables(problem))
    add_rules(program)
    add_terms(program)
    return program


def _solver(limits: Limits, spent_s: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = limits.seed
    solver.parameters.max_time_in_seconds = max(limits.wall_s - spent_s, 0.01)
    solver.parameters.num_workers = 1 if limits.deterministic else limits.workers or workers()
    if limits.deterministic:
        solver.parameters.max_deterministic_time = limits.wall_s * UNITS_PER_S
        solver.parameters.max_time_in_seconds = limits.wall_s + limits.grace_s / 2
    return solver


def _bound(program: Program, value: float) -> int:
    """In the problem's units; the objective is a sum of whole numbers, so a bound may be rounded up to one."""
    certain = ceil(value - 1e-6 - 1e-12 * abs(value))
    return certain * program.divisor + program.constant


def _solution(program: Program, solver: cp_model.CpSolver, status: object, wall_s: float) -> Solution:
    """What the solver's last word is worth."""
    problem = program.problem
    if status == cp_model.INFEASIBLE:
        return Solution(
            ENGINE, Status.ANOMALY, wall_s=wall_s, note="says infeasible, but the base plan never is"
        )
    if status == cp_model.MODEL_INVALID:
        return Solution(ENGINE, Status.FAILED, wall_s=wall_s, note="invalid model")
    if status == cp_model.UNKNOWN:  # stopped so early, its bound may be a 0 that it never filled in
        return Solution(ENGINE, Status.NO_ANSWER, wall_s=wall_s, note="stopped without a plan")
    bound = _bound(program, solver.best_objective_bound)
    placed = program.placement(solver.value)
    broken = violations(problem, placed)
    if broken:
        return Solution(ENGINE, Status.REJECTED, placed, bound=bound, wall_s=wall_s, note=broken[0].text)
    cost = objective(problem, placed).total
    claimed = round(solver.objective_value) * program.divisor + program.constant
    if cost > claimed or cost < bound:
        note = f"claims a cost of {claimed} and a bound of {bound}, the plan costs {cost}"
        return Solution(ENGINE, Status.ANOMALY, placed, cost, None, wall_s, note)
    if cost == bound or (status == cp_model.OPTIMAL and cost == claimed):
        return Solution(ENGINE, Status.OPTIMAL, placed, cost, cost, wall_s)
    return Solution(ENGINE, Status.FEASIBLE, placed, cost, bound, wall_s)
