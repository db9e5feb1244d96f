"""Which engines a solve runs, from which plan, and for how long; what it does without those that are not there."""

import pytest
from fakes import AMPLE, BOTH, ONE, attempt, raises, says

import solvers
from solvers import EngineUnavailable, Limits, Solution, Status, engines
from solvers.engines import Engine

pytestmark = pytest.mark.usefixtures("fakes")


def test_an_engine_starts_from_the_best_plan_so_far(two, put):
    def follows(problem, limits, hint, report):
        return Solution("fake", Status.FEASIBLE, BOTH, note=f"from {hint}")

    put("fake", follows)
    assert attempt(solvers.solve(two, AMPLE, engine="fake"), "fake").note == f"from {ONE}"


def test_a_hint_that_still_holds_is_an_answer_and_a_stale_one_is_told(two):
    assert solvers.solve(two, AMPLE, engine="greedy", hint=BOTH).engine == "hint"
    stale = solvers.solve(two, AMPLE, engine="greedy", hint=(*BOTH, (0,)))
    assert (stale.engine, attempt(stale, "hint").status) == ("greedy", Status.SKIPPED)


def test_a_model_that_would_be_too_large_is_never_built(two, put):
    put("fake", raises, cap=1)
    found = solvers.solve(two, AMPLE, engine="fake")
    assert attempt(found, "fake").status is Status.SKIPPED
    assert found.note == (
        "fake skipped: not built: its model is estimated at more than 1 columns, the most for this time limit"
    )


def test_a_short_limit_admits_only_a_smaller_model(two, put, monkeypatch):
    monkeypatch.setattr(engines, "compiled", lambda: False)
    monkeypatch.setattr("solvers.run.estimate", lambda problem, cap: 3000 if cap >= 3000 else None)
    put("search", says("search", placed=BOTH))
    put("cp-sat", says("cp-sat", placed=BOTH), cap=100_000)
    tried = [
        [
            a.engine
            for a in solvers.solve(two, Limits(wall_s=wall_s)).attempts
            if a.status is not Status.SKIPPED
        ]
        for wall_s in (2, 5)
    ]
    assert tried == [["greedy", "bound", "search"], ["greedy", "bound", "search", "cp-sat", "search"]]


def test_auto_searches_instead_where_the_exact_model_is_too_large(two, put, monkeypatch):
    monkeypatch.setattr(engines, "compiled", lambda: False)
    put("cp-sat", raises, cap=1)
    put("search", says("search", placed=BOTH))
    found = solvers.solve(two, AMPLE)
    assert [a.engine for a in found.attempts] == ["greedy", "bound", "cp-sat", "search"]
    assert found.engine == "search"


@pytest.mark.parametrize(
    ("columns", "provable", "tried"),
    [
        (None, 1, ["greedy", "patterns"]),
        (3000, 1, ["greedy", "patterns", "cp-sat", "patterns"]),
        (3000, 2, ["greedy", "patterns", "columns", "cp-sat", "patterns"]),
        (300, 2, ["greedy", "bound", "search", "cp-sat", "search"]),
    ],
)
def test_auto_uses_the_pattern_engine_where_the_exact_model_is_not_tiny_and_then_columns_for_few_gpus(
    two, put, monkeypatch, columns, provable, tried
):
    monkeypatch.setattr("solvers.run.PROVABLE_GPUS", provable)
    monkeypatch.setattr("solvers.run.estimate", lambda problem, cap: columns)
    monkeypatch.setattr(engines, "compiled", lambda: True)
    monkeypatch.setattr(engines, "preload", lambda name: None)
    for name in ("patterns", "search", "columns", "cp-sat"):
        put(name, says(name, placed=BOTH), cap=None if name in ("patterns", "columns") else 100_000)
    found = solvers.solve(two, Limits(wall_s=5))
    assert [a.engine for a in found.attempts] == tried


def test_a_deterministic_run_does_without_the_column_engine(two, put, monkeypatch):
    monkeypatch.setattr("solvers.run.estimate", lambda problem, cap: 3000)
    monkeypatch.setattr(engines, "compiled", lambda: True)
    monkeypatch.setattr(engines, "preload", lambda name: None)
    for name in ("patterns", "cp-sat"):
        put(name, says(name, placed=BOTH), cap=None if name == "patterns" else 100_000)
    found = solvers.solve(two, Limits(wall_s=5, deterministic=True))
    assert [a.engine for a in found.attempts] == ["greedy", "patterns", "cp-sat"]


def test_the_greedy_answers_after_all_where_the_pattern_engine_fails(two, put, monkeypatch):
    monkeypatch.setattr("solvers.run.estimate", lambda problem, cap: None)
    monkeypatch.setattr("solvers.run.GREEDY_JOBS", 0)
    monkeypatch.setattr("solvers.run.PROVABLE_JOBS", 0)
    monkeypatch.setattr(engines, "compiled", lambda: True)
    monkeypatch.setattr(engines, "preload", lambda name: None)

    def fails(problem, limits, hint, report):
        raise ZeroDivisionError

    put("patterns", fails)
    put("cp-sat", raises, cap=1)
    found = solvers.solve(two, Limits(wall_s=5))
    assert [a.engine for a in found.attempts if a.engine != "base"] == ["patterns", "greedy"]
    assert (found.engine, found.placed) == ("greedy", ONE)


def test_auto_does_without_an_engine_that_is_not_installed(two, put, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "cp-sat", Engine(missing, 1000))
    put("search", says("search", placed=BOTH))
    found = solvers.solve(two, AMPLE)
    assert found.engine == "search"
    assert attempt(found, "cp-sat").note == "engine 'cp-sat' needs ortools, which is not installed"


def test_a_solve_does_without_a_bound_whose_library_is_not_installed(two, monkeypatch):
    monkeypatch.setattr(engines, "_BOUND", Engine(missing))
    found = solvers.solve(two, AMPLE, engine="greedy")
    assert (found.placed, found.bound) == (ONE, None)
    assert attempt(found, "bound").note == "engine 'bound' needs ortools, which is not installed"


def missing():
    raise ModuleNotFoundError("No module named 'ortools'", name="ortools")


def test_mip_falls_back_to_cbc_and_says_why(two, put):
    put("highs", says("highs", status=Status.FAILED, note="no licence to run"))
    put("cbc", says("cbc", placed=BOTH))
    found = solvers.solve(two, AMPLE, engine="mip")
    assert found.engine == "cbc"
    assert found.note == "highs failed: no licence to run"


def test_an_engine_that_says_it_cannot_run_makes_way_for_the_next(two, put):
    put("highs", says("highs", status=Status.SKIPPED, note="not for this machine"))
    put("cbc", says("cbc", placed=BOTH))
    found = solvers.solve(two, AMPLE, engine="mip")
    assert (found.engine, found.note) == ("cbc", "highs skipped: not for this machine")


def test_mip_needs_one_of_its_engines(two, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "highs", Engine(missing))
    monkeypatch.setitem(engines.ENGINES, "cbc", Engine(missing))
    with pytest.raises(EngineUnavailable, match=r"engine 'highs' needs ortools.*engine 'cbc' needs ortools"):
        solvers.solve(two, AMPLE, engine="mip")


@pytest.mark.parametrize("name", ["gurobi", ""])
def test_an_engine_that_does_not_exist_is_refused_with_those_that_do(two, name):
    with pytest.raises(
        EngineUnavailable, match="there are auto, greedy, patterns, search, columns, cp-sat, highs, cbc, mip"
    ):
        solvers.solve(two, AMPLE, engine=name)


@pytest.mark.parametrize(
    "limits",
    [
        {"wall_s": -1},
        {"wall_s": float("nan")},
        {"wall_s": float("inf")},
        {"grace_s": -1},
        {"workers": 0},
        {"memory_mib": -5},
    ],
)
def test_a_limit_that_is_no_limit_is_refused(two, limits):
    with pytest.raises(ValueError, match="must be"):
        solvers.solve(two, Limits(**limits))


def test_a_deterministic_run_gives_engines_one_worker_and_limits_that_no_clock_sets(two, put, monkeypatch):
    def reveals(problem, limits, hint, report):
        note = f"{limits.wall_s:g} s, {limits.workers} worker, seed {limits.seed}"
        return Solution("x", Status.NO_ANSWER, note=note)

    monkeypatch.setattr("solvers.run.estimate", lambda problem, cap: 40_000)
    monkeypatch.setattr(engines, "compiled", lambda: False)
    for name in (engines.BOUND, "search", "cp-sat"):
        put(name, reveals, cap=1000)
    found = solvers.solve(two, Limits(wall_s=100, deterministic=True, workers=4, seed=3))
    assert [(a.engine, a.note) for a in found.attempts[1:]] == [
        ("bound", "15 s, 1 worker, seed 3"),
        ("search", "20 s, 1 worker, seed 3"),
        ("cp-sat", "65 s, 1 worker, seed 3"),
    ]
