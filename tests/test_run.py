"""Whatever an engine does, a solve ends in time with the best plan that the referee has verified."""

import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from fakes import AMPLE, BOTH, BROKEN, NOBODY, ONE, QUICK, attempt, raises, says
from problems import HOUR, job, make, node

import solvers
from solvers import Limits, Solution, Status, check, dump, engines

pytestmark = pytest.mark.usefixtures("fakes")


def gone(pid):
    """The process has ended, if need be a moment later; nobody may have reaped it yet."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


# What an engine answers


def test_a_better_verified_plan_wins(two, put):
    put("fake", says(placed=BOTH))
    found = solvers.solve(two, AMPLE, engine="fake")
    assert (found.engine, found.placed, found.objective) == ("fake", BOTH, check.objective(two, BOTH).total)
    assert [(a.engine, a.status, a.objective) for a in found.attempts if a.objective is not None] == [
        ("greedy", Status.FEASIBLE, check.objective(two, ONE).total),
        ("fake", Status.FEASIBLE, check.objective(two, BOTH).total),
    ]


def test_a_worse_plan_than_the_greedys_is_noted_and_not_used(two, put):
    put("fake", says(placed=NOBODY))
    found = solvers.solve(two, AMPLE, engine="fake")
    assert (found.engine, found.placed) == ("greedy", ONE)
    assert attempt(found, "fake").objective == 2 * HOUR


def test_a_plan_that_breaks_a_rule_is_rejected(two, put, tmp_path):
    put("fake", says(placed=BROKEN, bound=HOUR))
    found = solvers.solve(two, AMPLE, engine="fake", save_anomaly=tmp_path)
    assert (found.engine, found.placed, found.bound) == ("greedy", ONE, None)
    assert attempt(found, "fake").status is Status.REJECTED
    assert "breaks a rule" in found.note
    assert len(list(tmp_path.iterdir())) == 1


def test_an_objective_is_recomputed_and_never_believed(two, put):
    put("fake", says(placed=BOTH, objective=-5))
    found = solvers.solve(two, AMPLE, engine="fake")
    assert (found.placed, found.objective) == (BOTH, check.objective(two, BOTH).total)
    assert "claimed -5, costs" in attempt(found, "fake").note


def test_a_proof_is_reported_and_ends_the_solve(two, put):
    cost = check.objective(two, BOTH).total
    put("cp-sat", says(status=Status.OPTIMAL, placed=BOTH, objective=cost, bound=cost), cap=1000)
    found = solvers.solve(two, AMPLE)
    assert (found.status, found.bound, found.engine) == (Status.OPTIMAL, cost, "cp-sat")
    assert [a.engine for a in found.attempts] == ["greedy", "bound", "cp-sat"]


def test_an_answer_that_reaches_the_bound_is_proven_without_another_engine(two, put):
    cost = check.objective(two, ONE).total
    put(engines.BOUND, says("bound", status=Status.NO_ANSWER, bound=cost))
    found = solvers.solve(two, AMPLE)
    assert (found.status, found.placed) == (Status.OPTIMAL, ONE)
    assert [a.engine for a in found.attempts] == ["greedy", "bound"]


def test_an_engine_is_ended_once_its_incumbent_reaches_the_bound(two, put):
    cost = check.objective(two, BOTH).total

    def endless(problem, limits, hint, report):
        report(BOTH, cost, None)
        time.sleep(60)

    put(engines.BOUND, says("bound", status=Status.NO_ANSWER, bound=cost))
    put("fake", endless)
    found = solvers.solve(two, AMPLE, engine="fake")
    assert (found.status, found.engine, found.placed) == (Status.OPTIMAL, "fake", BOTH)


# Contradictions


@pytest.mark.parametrize(
    ("claim", "note"),
    [
        ({"status": Status.OPTIMAL}, "claims an optimum, but gives no plan"),
        ({"status": Status.ANOMALY, "note": "infeasible"}, "infeasible; claims that there is no answer"),
        ({"status": Status.OPTIMAL, "placed": BROKEN}, "claims an optimum, but its plan breaks a rule"),
        ({"status": Status.OPTIMAL, "placed": NOBODY}, "but greedy has"),
        (
            {"status": Status.OPTIMAL, "placed": BOTH, "objective": 7},
            "claims an optimum of 7, but its plan costs",
        ),
        ({"placed": BOTH, "bound": 10 * HOUR}, "claims a bound of"),
        ({"status": Status.NO_ANSWER, "bound": 10 * HOUR}, "claims a bound of"),
    ],
)
def test_a_claim_that_a_verified_plan_contradicts_is_an_anomaly(two, put, tmp_path, caplog, claim, note):
    put("fake", says(**claim))
    with caplog.at_level(logging.ERROR):
        found = solvers.solve(two, AMPLE, engine="fake", save_anomaly=tmp_path)
    assert (found.engine, found.placed, found.bound, found.status) == ("greedy", ONE, None, Status.FEASIBLE)
    assert attempt(found, "fake").status is Status.ANOMALY
    assert note in attempt(found, "fake").note
    (saved,) = tmp_path.iterdir()
    assert str(saved) in caplog.text
    assert check.objective(dump.load(saved), ONE) == check.objective(two, ONE)
    assert dump.about(saved)["engine"] == "fake"


def test_an_early_bound_that_a_later_plan_contradicts_is_dropped(two, put, tmp_path):
    high = check.objective(two, ONE).total - 1
    put(engines.BOUND, says("bound", status=Status.NO_ANSWER, bound=high))
    put("fake", says(placed=BOTH, bound=0))
    found = solvers.solve(two, AMPLE, engine="fake", save_anomaly=tmp_path)
    assert (found.placed, found.bound) == (BOTH, 0)
    assert attempt(found, "bound").status is Status.ANOMALY
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["bound"]


def test_nothing_is_written_where_no_folder_is_given(two, put, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("fake", says(status=Status.OPTIMAL))
    solvers.solve(two, AMPLE, engine="fake")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_no_plan(two, put, tmp_path, caplog):
    (tmp_path / "file").touch()
    put("fake", says(status=Status.OPTIMAL))
    assert solvers.solve(two, AMPLE, engine="fake", save_anomaly=tmp_path / "file").placed == ONE
    assert "not saved" in caplog.text


# Engines that do not end well


@pytest.mark.parametrize(
    ("incumbent", "winner"), [(BOTH, ("fake", BOTH)), (None, ("greedy", ONE)), (BROKEN, ("greedy", ONE))]
)
def test_an_engine_past_its_limit_is_ended_and_its_last_incumbent_used(two, put, tmp_path, incumbent, winner):
    def sleeps(problem, limits, hint, report):
        (tmp_path / "pid").write_text(str(os.getpid()))
        report(None, None, 0)
        report(NOBODY, 1, None)
        report(incumbent or NOBODY, 1, None)
        time.sleep(60)

    put("fake", sleeps)
    found = solvers.solve(two, QUICK, engine="fake")
    assert (found.engine, found.placed) == winner
    assert attempt(found, "fake").status is (Status.REJECTED if incumbent is BROKEN else Status.FAILED)
    assert "ran past its limit and was ended" in attempt(found, "fake").note
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_engine_that_ignores_sigterm_is_killed_with_what_it_started(two, put, tmp_path):
    def stubborn(problem, limits, hint, report):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        other = subprocess.Popen(
            [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]
        )
        (tmp_path / "pids").write_text(f"{os.getpid()} {other.pid}")
        report(BOTH, 0, None)
        other.wait()

    put("fake", stubborn)
    assert solvers.solve(two, QUICK, engine="fake").placed == BOTH
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_child_collects_its_own_garbage_and_none_of_its_parents(two, put):
    class Loop:
        """Kept alive by itself until it is collected."""

        def __init__(self, name):
            self.loop, self.name = self, name

        def __del__(self):
            collected.append(self.name)

    collected = []

    def collects(problem, limits, hint, report):
        Loop("its own")
        gc.collect()
        return Solution("fake", Status.FEASIBLE, BOTH, note=str(collected))

    put("fake", collects)
    gc.disable()
    try:
        Loop("the parent's")
        assert attempt(solvers.solve(two, AMPLE, engine="fake"), "fake").note == "['its own']"
    finally:
        gc.enable()


def test_a_killed_parent_leaves_no_engine_behind(tmp_path):
    script = """
        import os, sys, time
        from solvers.child import apart
        from solvers.problem import Limits

        def sleeps(problem, limits, hint, report):
            print(os.getpid(), file=sys.stderr, flush=True)
            time.sleep(60)

        apart(sleeps, None, Limits(), None, ends_at=time.monotonic() + 60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as parent:
        pid = int(parent.stderr.readline())
        parent.kill()
    assert gone(pid)


def runs_out_of_memory(problem, limits, hint, report):
    report(BOTH, 0, None)
    np.ones(1 << 28)  # 2 GiB
    return Solution("fake", Status.OPTIMAL, BOTH, bound=0)


def aborts(problem, limits, hint, report):
    report(BOTH, 0, None)
    os.abort()


def is_killed_by_the_kernel(problem, limits, hint, report):
    report(BOTH, 0, None)
    os.kill(os.getpid(), signal.SIGKILL)


def returns_nothing(problem, limits, hint, report):
    report(BOTH, 0, None)


@pytest.mark.parametrize(
    ("crash", "note"),
    [
        (raises, "RuntimeError: no luck"),
        (runs_out_of_memory, "out of memory within its limit of"),
        (aborts, "ended by SIGABRT"),
        (is_killed_by_the_kernel, "ended by SIGKILL; it may have needed more than"),
        (returns_nothing, "AttributeError"),
    ],
)
def test_a_crash_costs_nothing_but_the_engine(two, put, crash, note):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory_mib = pages * os.sysconf("SC_PAGE_SIZE") // (1 << 20) + 512
    put("fake", crash)
    found = solvers.solve(two, Limits(wall_s=30, memory_mib=memory_mib), engine="fake")
    assert (found.engine, found.placed, found.status) == ("fake", BOTH, Status.FEASIBLE)
    assert attempt(found, "fake").status is Status.FAILED
    assert note in found.note
    assert "\n" not in found.note


def test_an_invalid_model_leaves_the_greedys_plan_and_a_message(two, put):
    put("fake", says(status=Status.FAILED, note="MODEL_INVALID: a coefficient is too large"))
    found = solvers.solve(two, AMPLE, engine="fake")
    assert (found.engine, found.placed) == ("greedy", ONE)
    assert "fake failed: MODEL_INVALID: a coefficient is too large" in found.note


def test_a_note_is_one_line_that_can_be_read(two, put):
    put("fake", says(status=Status.FAILED, note="too large:\n" + 1000 * "coefficient\n"))
    note = solvers.solve(two, AMPLE, engine="fake").note
    assert note.startswith("fake failed: too large: coefficient") and "\n" not in note and len(note) < 250


def test_a_child_cannot_speak_on_standard_output(two, put, capfd):
    def talks(problem, limits, hint, report):
        os.write(1, b"Welcome to the solver\n")
        return Solution("fake", Status.FEASIBLE, BOTH)

    put("fake", talks)
    assert solvers.solve(two, AMPLE, engine="fake").placed == BOTH
    assert capfd.readouterr().out == ""


def test_temporary_files_of_a_killed_engine_are_removed(two, put, tmp_path, monkeypatch):
    def litters(problem, limits, hint, report):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(tempfile.mkstemp(dir=os.environ["TMPDIR"])[0])
        os.close(tempfile.mkstemp()[0])
        report(BOTH, 0, None)
        time.sleep(60)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    put("fake", litters)
    assert solvers.solve(two, QUICK, engine="fake").placed == BOTH
    assert list(tmp_path.iterdir()) == []


# The greedy and what is under it


@pytest.mark.parametrize(
    "greedy", [raises, says("greedy", placed=BROKEN), says("greedy", status=Status.NO_ANSWER)]
)
def test_if_even_the_greedy_fails_nothing_moves(put, greedy):
    settled = make([node(2)], [job(home=(0,)), job()])
    put("greedy", greedy if greedy is not raises else lambda *_: raises(*_[:3], lambda *_: None))
    found = solvers.solve(settled, Limits(wall_s=0))
    assert (found.engine, found.placed) == ("base", ((0,), None))


def test_a_problem_whose_base_plan_breaks_a_rule_gets_no_plan(put):
    malformed = make([node(1)], [job(home=(5,))])
    put("greedy", raises)
    found = solvers.solve(malformed, Limits(wall_s=0))
    assert (found.status, found.placed, found.objective) == (Status.NO_ANSWER, None, None)
    assert "base rejected" in found.note


def test_a_limit_of_zero_is_the_greedys_plan(two):
    found = solvers.solve(two, Limits(wall_s=0))
    assert (found.engine, found.placed) == ("greedy", ONE)
    assert {a.engine for a in found.attempts} - {"greedy", "bound"} == {"search", "cp-sat"}
    assert {attempt(found, name).note for name in ("search", "cp-sat")} == {"no time left"}


# Listening and stopping


def test_progress_tells_the_incumbent_and_the_bound(two, put):
    def improves(problem, limits, hint, report):
        report(None, None, -3)
        report(BOTH, 5, None)
        return Solution("fake", Status.FEASIBLE, BOTH, bound=-2)

    put("fake", improves)
    seen = []
    solvers.solve(two, AMPLE, engine="fake", on_progress=seen.append)
    one = check.objective(two, ONE).total
    assert [(p.engine, p.objective, p.bound) for p in seen] == [
        ("greedy", one, None),
        ("fake", one, -3),
        ("fake", 5, -3),
    ]


def test_sigterm_ends_the_engine_and_returns_its_last_incumbent(two, put, tmp_path):
    def waits_for_the_end(problem, limits, hint, report):
        (tmp_path / "pid").write_text(str(os.getpid()))
        report(BOTH, 0, None)
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)

    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        put("cp-sat", waits_for_the_end, cap=1000)
        found = solvers.solve(two, AMPLE, stop=asked.is_set)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (found.engine, found.placed) == ("cp-sat", BOTH)
    assert attempt(found, "cp-sat").note == "ended on request"
    assert found.attempts[-1].engine == "cp-sat"
    assert gone(int((tmp_path / "pid").read_text()))


def test_an_interrupt_leaves_no_child_behind(two, put, tmp_path):
    def waits(problem, limits, hint, report):
        (tmp_path / "pid").write_text(str(os.getpid()))
        report(BOTH, 0, None)
        time.sleep(60)

    def interrupt(progress):
        if progress.engine == "fake":
            raise KeyboardInterrupt

    put("fake", waits)
    with pytest.raises(KeyboardInterrupt):
        solvers.solve(two, AMPLE, engine="fake", on_progress=interrupt)
    assert gone(int((tmp_path / "pid").read_text()))
