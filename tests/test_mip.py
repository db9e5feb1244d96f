"""The engines behind PuLP: what their words are worth, and the model as a file."""

import highspy
import pulp
import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node, random_problem

from solvers import mip
from solvers.mip_model import MipProgram
from solvers.modes import tables
from solvers.problem import Limits, Status

LIMITS = Limits(wall_s=60, workers=1)
BOTH = pytest.mark.parametrize("engine", [mip.cbc, mip.highs], ids=["cbc", "highs"])


def silent(placed, cost, bound):
    pass


def two_jobs():
    return make([node(1, max_tenants=1)], [job(wait_cost=5), job(wait_cost=7)])


def program_with(problem, values):
    """The program, its objective set and its variables given these values."""
    program = MipProgram(problem, tables(problem))
    program.minimize()
    for name, var in program.vars.items():
        var.varValue = values.get(name, 0.0)
    program.vars["one"].varValue = 1.0
    return program


@pytest.mark.parametrize(
    ("value", "meant"), [(0.9999991, 1), (1e-8, 0), (-1e-9, 0), (2.0000001, 2), (None, 0)]
)
def test_a_value_near_a_whole_number_is_that_number(value, meant):
    assert mip.whole("y", value) == meant


@pytest.mark.parametrize("value", [0.4, 0.999, -0.01, 1.5])
def test_a_value_between_whole_numbers_is_refused(value):
    with pytest.raises(mip.FractionalError, match="not a whole number"):
        mip.whole("y", value)


def test_fractional_values_are_a_rejected_answer():
    program = program_with(two_jobs(), {"y_0_0": 0.6, "y_0_1": 0.4})
    found = mip._read("cbc", program, mip._Answer(optimal=True, values=True), 1.0, 0.0)
    assert (found.status, found.placed) == (Status.REJECTED, None)
    assert found.note == "y_0_0 is 0.6, not a whole number"


def test_values_that_break_a_rule_are_a_rejected_answer():
    program = program_with(two_jobs(), {"y_0_1": 1.0, "y_0_2": 1.0})
    program.tables.cells[0].__dict__["gpus"] = (0, 0)  # one GPU given out twice
    found = mip._read("cbc", program, mip._Answer(optimal=True, values=True), 1.0, 0.0)
    assert found.status is Status.REJECTED
    assert "at most 1 may share it" in found.note


def test_an_optimum_by_status_alone_is_an_incumbent():
    stopped = mip._cbc_answer(
        pulp.LpSolutionIntegerFeasible, "Lower bound:    3.5\nstuff\nLower bound:   4.25\n"
    )
    assert (stopped.optimal, stopped.values, stopped.bound) == (False, True, 4.25)
    found = mip._read("cbc", program_with(two_jobs(), {"y_0_2": 1.0}), stopped, 1.0, 0.0)
    assert (found.status, found.placed, found.objective, found.bound) == (Status.FEASIBLE, (None, (0,)), 5, 3)


def test_an_optimum_whose_plan_costs_something_else_is_not_believed():
    program = program_with(two_jobs(), {"y_0_2": 1.0})
    program.vars["one"].varValue = 2.0
    claim = mip._Answer(optimal=True, values=True)
    assert mip._read("cbc", program, claim, 1.0, 0.0).status is Status.FEASIBLE


def test_no_solution_and_infeasible_are_told_apart():
    for sol_status, status in (
        (pulp.LpSolutionNoSolutionFound, Status.NO_ANSWER),
        (pulp.LpSolutionInfeasible, Status.ANOMALY),
    ):
        answer = mip._cbc_answer(sol_status, "")
        found = mip._read("cbc", program_with(two_jobs(), {}), answer, 1.0, 0.0)
        assert (found.status, found.placed, found.bound) == (status, None, None)


@pytest.mark.parametrize("state", ["missing", "not executable"])
def test_a_cbc_that_cannot_run_is_skipped_with_one_line(monkeypatch, tmp_path, state):
    path = tmp_path / "cbc"
    if state == "not executable":
        path.write_text("#!/bin/sh\n")
    monkeypatch.setattr(mip, "cbc_path", lambda: str(path))
    found = mip.cbc(two_jobs(), LIMITS, None, silent)
    assert (found.status, found.note) == (Status.SKIPPED, f"CBC cannot run here: {path} is {state}")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # PuLP leaves its log file open
@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "not a program\n", "#!/bin/sh\nexit 0\n"])
def test_a_cbc_that_breaks_is_a_failure_with_one_line(monkeypatch, tmp_path, script):
    path = tmp_path / "cbc"
    path.write_text(script)
    path.chmod(0o755)
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.setattr(mip, "cbc_path", lambda: str(path))
    monkeypatch.setenv("TMPDIR", str(files))  # where PuLP puts files that nobody gives a place
    monkeypatch.setattr("tempfile.tempdir", str(files))
    found = mip.cbc(two_jobs(), LIMITS, None, silent)
    assert found.status is Status.FAILED
    assert found.note.startswith("cbc failed: ") and "\n" not in found.note
    assert list(files.iterdir()) == []


def test_cbc_leaves_no_files(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert mip.cbc(two_jobs(), LIMITS, None, silent).status is Status.OPTIMAL
    assert list(tmp_path.iterdir()) == []


@BOTH
@pytest.mark.parametrize("seed", range(8))
def test_a_bound_never_passes_the_optimum_however_early_it_stops(engine, seed):
    problem = tiny(seed)
    found = engine(problem, Limits(wall_s=0.001, deterministic=True), None, silent)
    least = optimum(problem)[0]
    assert found.bound is None or found.bound <= least
    assert found.objective is None or found.objective >= least


@BOTH
def test_nothing_to_place_and_nowhere_to_place_it_are_problems_too(engine):
    assert engine(make([node(1)], []), LIMITS, None, silent).placed == ()
    found = engine(make([], [job(), job(0)]), LIMITS, None, silent)
    assert (found.status, found.placed, found.objective) == (Status.OPTIMAL, (None, None), 2 * HOUR)


@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_the_exported_file_is_the_program(tmp_path, suffix):
    problem = tiny(9)
    path = tmp_path / f"model{suffix}"
    mip.export(problem, path)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.readModel(str(path))
    solver.run()
    assert solver.getObjectiveValue() == pytest.approx(optimum(problem)[0], rel=1e-9)


def test_an_export_says_which_names_it_takes(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.mps or \.lp"):
        mip.export(two_jobs(), tmp_path / "model.txt")


@pytest.mark.slow
@BOTH
def test_a_limit_on_a_larger_problem_gives_an_incumbent_or_none_but_no_optimum(engine):
    found = engine(random_problem(0, 30, 24), Limits(wall_s=2.0, workers=2), None, silent)
    assert found.status in (Status.FEASIBLE, Status.NO_ANSWER, Status.OPTIMAL)
    assert found.objective is None or found.bound is None or found.bound <= found.objective
