"""The job-level program solved by CBC or HiGHS through PuLP: a second opinion, and a model to give away.

A floating-point solver is believed in nothing. Its values must be whole numbers within a small tolerance, the
placement read from them is measured again, and what PuLP calls *Optimal* may be an incumbent at the time limit:
only the solution status tells them apart.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf, isfinite
from pathlib import Path

import highspy
import pulp

from solvers.check import objective, violations
from solvers.mip_model import MipProgram
from solvers.modes import tables
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.workers import workers

#: A solver's value this close to a whole number is that number.
WHOLE = 1e-5
#: Costs are scaled to at most this, so that the solvers' absolute tolerances stay below one unit.
LARGEST_COST = 1e6
#: The part of a bound by which the solvers may be wrong.
DOUBT = 1e-6
#: Branch-and-bound nodes that a second surely holds, the limit where the clock must not decide.
NODES_PER_S = 50


class FractionalError(ValueError):
    """A solver gave a value that is not a whole number where one is meant."""


@dataclass(frozen=True)
class _Answer:
    """A solver's word: whether it claims an optimum, whether it has values, its bound in scaled units."""

    optimal: bool
    values: bool
    bound: float = -inf
    note: str = ""


def cbc(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """Solve by CBC; it starts from nothing, so that it is an opinion of its own."""
    began = time.monotonic()
    fault = _cbc_fault(cbc_path())
    if fault:
        return Solution("cbc", Status.SKIPPED, wall_s=time.monotonic() - began, note=fault)
    return _solve("cbc", _run_cbc, problem, limits, began)


def highs(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    """Solve by HiGHS; it starts from nothing, so that it is an opinion of its own."""
    return _solve("highs", _run_highs, problem, limits, time.monotonic())


def export(problem: Problem, path: Path) -> None:
    """Write the program to a .mps or .lp file, in the problem's own units."""
    program = MipProgram(problem, tables(problem))
    program.minimize()
    if path.suffix == ".mps":
        program.lp.writeMPS(str(path))
    elif path.suffix == ".lp":
        program.lp.writeLP(str(path))
    else:
        raise ValueError(f"{path}: the name of a model must end in .mps or .lp")


def cbc_path() -> str:
    """Where the CBC that comes with PuLP should be, else one that is installed."""
    bundled = getattr(getattr(pulp, "PULP_CBC_CMD", None), "pulp_cbc_path", "")
    return str(Path(bundled).resolve()) if bundled else shutil.which("cbc") or "cbc"


def whole(name: str, value: float | None) -> int:
    """The whole number that a solver means: 0.9999991 is 1, 1e-8 is 0, 0.4 is refused."""
    if value is None:  # in no row, so at its lower bound
        return 0
    near = round(value)
    if abs(value - near) > WHOLE:
        raise FractionalError(f"{name} is {value:g}, not a whole number")
    return near


def _cbc_fault(path: str) -> str:
    if not os.path.isfile(path):
        return f"CBC cannot run here: {path} is missing"
    return "" if os.access(path, os.X_OK) else f"CBC cannot run here: {path} is not executable"


def _solve(
    engine: str,
    run: Callable[[MipProgram, Limits, float], _Answer],
    problem: Problem,
    limits: Limits,
    began: float,
) -> Solution:
    """Build, solve, and read what came of it."""
    program = MipProgram(problem, tables(problem))
    largest = max((abs(cost) for cost in program.costs.values()), default=1) or 1
    scale = min(1.0, LARGEST_COST / largest)
    program.minimize(scale)
    left_s = max(limits.wall_s - (time.monotonic() - began), 0.1)
    try:
        answer = run(program, limits, left_s)
    except (pulp.PulpSolverError, OSError) as error:
        note = f"{engine} failed: {error}".splitlines()[0]
        return Solution(engine, Status.FAILED, wall_s=time.monotonic() - began, note=note)
    return _read(engine, program, answer, scale, time.monotonic() - began)


def _read(engine: str, program: MipProgram, answer: _Answer, scale: float, wall_s: float) -> Solution:
    """Round, check, measure."""
    problem, bound = program.problem, _certain(answer.bound, scale)
    if not answer.values:
        status = Status.ANOMALY if "infeasible" in answer.note else Status.NO_ANSWER
        return Solution(engine, status, bound=bound, wall_s=wall_s, note=answer.note)
    try:
        placed = program.placement(lambda var: whole(var.name, var.varValue))
    except FractionalError as error:
        return Solution(engine, Status.REJECTED, bound=bound, wall_s=wall_s, note=str(error))
    broken = violations(problem, placed)
    if broken:
        return Solution(engine, Status.REJECTED, placed, bound=bound, wall_s=wall_s, note=broken[0].text)
    cost = objective(problem, placed).total
    claimed = pulp.value(program.lp.objective) / scale
    if answer.optimal and abs(claimed - cost) <= max(1.0, DOUBT * abs(cost)):
        return Solution(engine, Status.OPTIMAL, placed, cost, cost, wall_s)
    return Solution(engine, Status.FEASIBLE, placed, cost, bound, wall_s, answer.note)


def _certain(bound: float, scale: float) -> int | None:
    """A bound in the problem's units that is certainly below every plan, None if there is none."""
    if not isfinite(bound) or abs(bound) >= 1e30:
        return None
    return floor(bound / scale - DOUBT * abs(bound / scale)) - 1


# ---- HiGHS ----


def _run_highs(program: MipProgram, limits: Limits, left_s: float) -> _Answer:
    """PuLP builds HiGHS's model; the statuses are read from HiGHS, because PuLP knows only some of them."""
    lp = program.lp
    options = {"mip_max_nodes": max(1, int(limits.wall_s * NODES_PER_S))} if limits.deterministic else {}
    solver = pulp.HiGHS(
        msg=False,
        timeLimit=left_s,
        gapRel=0.0,
        gapAbs=0.0,
        threads=1 if limits.deterministic else limits.workers or workers(),
        random_seed=limits.seed,
        **options,
    )
    solver.createAndConfigureSolver(lp)
    solver.buildSolverModel(lp)
    solver.callSolver(lp)
    model = lp.solverModel
    status, info = model.getModelStatus(), model.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return _Answer(optimal=False, values=False, note="says infeasible, but the base plan never is")
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    for var, value in zip(lp.variables(), model.getSolution().col_value, strict=False) if found else ():
        var.varValue = value
    return _Answer(
        optimal=status == highspy.HighsModelStatus.kOptimal,
        values=found,
        bound=info.mip_dual_bound,
        note=f"stopped: {model.modelStatusToString(status)}",
    )


# ---- CBC ----


def _run_cbc(program: MipProgram, limits: Limits, left_s: float) -> _Answer:
    """CBC is a program of its own; its files live in a folder that goes away."""
    threads = 1 if limits.deterministic else limits.workers or workers()
    with tempfile.TemporaryDirectory(prefix="planner-cbc-") as folder:
        log = Path(folder) / "cbc.log"
        solver = pulp.COIN_CMD(
            path=cbc_path(),
            msg=False,
            timeLimit=left_s,
            gapRel=0.0,
            gapAbs=0.0,
            threads=threads if threads > 1 else None,
            logPath=str(log),
            maxNodes=max(1, int(limits.wall_s * NODES_PER_S)) if limits.deterministic else None,
            options=[f"randomSeed {limits.seed + 1}", f"randomCbcSeed {limits.seed + 1}"],
        )
        solver.tmpDir = folder
        program.lp.solve(solver)
        text = log.read_text(errors="replace")
    return _cbc_answer(program.lp.sol_status, text)


def _cbc_answer(sol_status: int, log: str) -> _Answer:
    """What PuLP's solution status and CBC's log say together."""
    if sol_status == pulp.LpSolutionInfeasible:
        return _Answer(optimal=False, values=False, note="says infeasible, but the base plan never is")
    found = re.findall(r"Lower bound:\s+(\S+)", log)
    return _Answer(
        optimal=sol_status == pulp.LpSolutionOptimal,
        values=sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible),
        bound=float(found[-1]) if found else -inf,
        note="stopped at its limit",
    )
