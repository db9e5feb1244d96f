"""The program over slices in whole numbers, by HiGHS and by CP-SAT."""

from __future__ import annotations

import highspy
import numpy as np

from solvers.slice_program import Program
from solvers.threads import in_parallel

#: CP-SAT wants integers: parts of a row's room, and of the largest cost.
PARTS, COST_PARTS = 10**7, 10**6
#: HiGHS' word for a feasible point.
PRIMAL_FEASIBLE = 2


def by_highs(program: Program, seconds: float, seed: int, hint: np.ndarray) -> np.ndarray | None:
    """The best of HiGHS' branch and bound in a time, begun from a feasible point; None if it finds nothing."""
    engine, n = program.engine(seconds), len(program.cost)
    engine.changeColsIntegrality(n, np.arange(n, dtype=np.int32), np.full(n, highspy.HighsVarType.kInteger))
    start = highspy.HighsSolution()
    start.col_value = hint.astype(float).tolist()
    engine.setSolution(start)
    engine.setOptionValue("random_seed", seed)
    engine.run()
    if engine.getInfo().primal_solution_status != PRIMAL_FEASIBLE:
        return None
    return np.rint(engine.getSolution().col_value).astype(np.int64)


def by_cpsat(program: Program, seconds: float, seed: int, hint: np.ndarray) -> np.ndarray | None:
    """The best of CP-SAT in a time, begun from a feasible point; None if it finds nothing."""
    from ortools.sat.python import cp_model  # 50 MiB, so only where it is used

    model = cp_model.CpModel()
    x = [model.new_int_var(0, most, "") for most in program.most]
    for terms, room in zip(program.rows, program.room, strict=True):
        exact = all(float(a).is_integer() for a in terms.values())
        parts = 1 if exact else PARTS / max(room, 1e-9)
        # Rounded up, so that what fits in parts fits.
        left = [int(np.ceil(a * parts - 1e-9)) * x[i] for i, a in terms.items()]
        model.add(cp_model.LinearExpr.sum(left) <= int(room * parts + 1e-9))
    scale = COST_PARTS / max(1.0, max(map(abs, program.cost), default=1.0))
    model.minimize(cp_model.LinearExpr.weighted_sum(x, [round(c * scale) for c in program.cost]))
    for variable, value in zip(x, hint.tolist(), strict=True):
        model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return np.array([solver.value(variable) for variable in x], np.int64)


def better(program: Program, seconds: float, seed: int, hint: np.ndarray) -> np.ndarray:
    """The best of HiGHS and CP-SAT, both begun from a feasible point, which stands if neither is better."""
    found: list[np.ndarray | None] = [None, None]

    def work(i: int) -> None:
        found[i] = (by_highs, by_cpsat)[i](program, seconds, seed, hint)

    in_parallel(work, 2)
    return min((hint, *(x for x in found if x is not None)), key=lambda x: float(np.dot(program.cost, x)))
