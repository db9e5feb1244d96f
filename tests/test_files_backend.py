"""A plan applied to a state file: once, whole, and only where the state still is what the plan was made for."""

import json
import os
import stat

import pytest
from builders import job, node, snapshot

from planner.backends import Backend
from planner.backends.files import AGAIN, APPLIED, FileBackend
from planner.backends.transition import transition
from planner.backends.whole import write_whole
from planner.edit import add_jobs, changed, drain_node, move_job, remove_jobs, with_job, with_nodes
from planner.errors import BackendRefused, InputError
from planner.model import Reserved
from planner.plan import Assignment, Forecast, Inputs, JobForecast, Objective, Plan, Reservation, Solve, Terms
from planner.policy import Policy


@pytest.fixture
def state():
    """Two nodes of two GPUs; ``old`` runs and may move, the others wait."""
    running = job(id="old", running_on=("a0/0",), started_s=-600, movable=True, preemptible=True)
    waiting = [job(id="x"), job(id="y"), job(id="gang", gpus=2), job(id="cpu", gpus=0, cpus=4)]
    nodes = [node(2, name="a0", cpus=8, host_memory_mib=64_000), node(2, name="a1")]
    return snapshot(nodes, [running, *waiting], now_s=1000)


def to(job_id, *gpu_ids, **fields):
    """A decision to run a job on GPUs of one node."""
    return Assignment(
        **{"job_id": job_id, "gpu_ids": gpu_ids, "nodes": (gpu_ids[0].split("/")[0],), **fields}
    )


def plan(state, *assignments, **fields):
    """A plan of these decisions for a state."""
    forecast = Forecast(jobs=(JobForecast(job_id="old", remaining_s=2700),))
    known = {
        "id": "p-1",
        "made_at": "2026-01-01T00:00:00Z",
        "assignments": assignments,
        "objective": Objective(total_gpu_s=0, terms=Terms()),
        "solve": Solve(solver="greedy", status="feasible"),
        "inputs": Inputs(snapshot=state, forecast=forecast, policy=Policy(cooldown_s=500), backend="files"),
    }
    return Plan(**{**known, **fields})


def outcomes(actions):
    """Job, verb and outcome of each action."""
    return [(a.job_id, a.verb, a.outcome) for a in actions]


def test_started_jobs_run_where_the_plan_says(state):
    cpu = Assignment(job_id="cpu", gpu_ids=(), nodes=("a0",))
    after, actions = transition(state, plan(state, to("x", "a0/1"), to("gang", "a1/0", "a1/1"), cpu))
    where = {j.id: (j.running_on, j.started_s) for j in after.jobs}
    assert where == {
        "old": (("a0/0",), -600),
        "x": (("a0/1",), 1000),
        "y": ((), None),
        "gang": (("a1/0", "a1/1"), 1000),
        "cpu": (("a0",), 1000),
    }
    assert {a.outcome for a in actions} == {"done"}
    assert after.carryover.last_plan == "p-1"


def test_a_gpu_is_given_out_only_after_its_old_tenant_has_left(state):
    first = to("x", "a0/0", wave=1)
    move = to("old", "a1/0", state="move", moved_from=("a0/0",))
    after, actions = transition(state, plan(state, first, move))
    assert outcomes(actions) == [("old", "move", "done"), ("x", "start", "done")]
    assert {j.id: j.running_on for j in after.jobs if j.running} == {"old": ("a1/0",), "x": ("a0/0",)}
    assert after.job_by_id["old"].started_s == -600
    assert [(c.name, c.until_s) for c in after.carryover.cooldowns] == [("old", 1500)]


def test_what_counted_on_a_move_that_did_not_happen_is_left_out(state):
    decided = plan(state, to("old", "a1/0", state="move", moved_from=("a0/0",)), to("x", "a0/0", wave=1))
    now = move_job(state, "y", ["a1/0"])
    after, actions = transition(now, decided)
    assert outcomes(actions) == [("old", "move", "stale"), ("x", "start", "stale")]
    assert [a.detail for a in actions] == ["a1/0 is not free: y", "a0/0 is not free: old"]
    assert {j.id: j.running_on for j in after.jobs if j.running} == {"old": ("a0/0",), "y": ("a1/0",)}


def test_a_preempted_job_waits_again_and_keeps_what_is_done(state):
    after, actions = transition(state, plan(state, to("x", "a0/0"), preempted=("old",)))
    assert outcomes(actions) == [("old", "preempt", "done"), ("x", "start", "done")]
    old = after.job_by_id["old"]
    assert (old.running_on, old.started_s, old.progress) == ((), None, 0.25)


def test_a_reservation_is_remembered_on_the_clock_of_the_state(state):
    reservation = Reservation(job_id="gang", gpu_ids=("a0/0", "a0/1"), from_s=300)
    after, _ = transition(state, plan(state, reservations=(reservation,)))
    assert after.carryover.reservations == (Reserved(job_id="gang", gpu_ids=("a0/0", "a0/1"), from_s=1300),)


STALE = {
    "the job is gone": lambda s: remove_jobs(s, ["x"]),
    "it is not pending: it runs on a1/1": lambda s: move_job(s, "x", ["a1/1"]),
    "a0/1 is not free: y": lambda s: move_job(s, "y", ["a0/1"]),
    "it is held": lambda s: with_job(s, "x", state="held"),
    "it asks for something else now: gpu_memory_mib": lambda s: with_job(s, "x", gpu_memory_mib=9000),
    "node a0 takes no jobs now": lambda s: drain_node(s, "a0"),
    "node a0 has too few cores free now": lambda s: add_jobs(s, [job(id="new", gpus=0, cpus=8, running_on=("a0",)), job(id="n2", gpus=0, cpus=1, running_on=("a0",))]),
    "node a0 has too little memory free now": lambda s: add_jobs(s, [job(id="new", gpus=0, host_memory_mib=64_001, running_on=("a0",))]),
    "a0/1 is unhealthy": lambda s: with_gpu(s, healthy=False),
    "a0/1 has 500 MiB in unmanaged use, 0 MiB when planned": lambda s: with_gpu(s, unmanaged_memory_mib=500),
    "a0/1 has an unknown amount in unmanaged use, 0 MiB when planned": lambda s: with_gpu(s, unmanaged_memory_mib=None),
    "a0/1 is not the GPU it was": lambda s: with_gpu(s, memory_mib=20480),
    "a0/1 is gone": lambda s: with_gpu(s, slot="7"),
}  # fmt: skip


def with_gpu(state, **fields):
    """The state in which a0/1 differs."""
    a0, a1 = state.cluster.nodes
    gpus = (a0.gpus[0], changed(a0.gpus[1], **fields))
    return with_nodes(state, [changed(a0, gpus=gpus), a1])


@pytest.mark.parametrize("why", STALE)
def test_an_action_is_stale_if_the_state_has_changed(state, why):
    """The state is read again when a plan is applied; what no longer fits is left out, the rest is done."""
    decided = plan(state, to("x", "a0/1"), to("gang", "a1/0", "a1/1"))
    now = STALE[why](state)
    if why == "it is not pending: it runs on a1/1":
        decided = plan(state, to("x", "a0/1"))
    after, actions = transition(now, decided)
    assert (actions[0].outcome, actions[0].detail) == ("stale", why)
    assert {a.outcome for a in actions[1:]} <= {"done"}
    assert [j.running_on for j in after.jobs if j.id == "x"] == [
        j.running_on for j in now.jobs if j.id == "x"
    ]


def test_a_moved_job_must_still_be_where_it_was(state):
    decided = plan(state, to("old", "a1/0", state="move", moved_from=("a0/0",)))
    _, actions = transition(move_job(state, "old", ["a0/1"]), decided)
    assert (actions[0].outcome, actions[0].detail) == ("stale", "it runs no more on a0/0")


def test_less_in_unmanaged_use_than_planned_is_no_reason_to_stop(state):
    decided = plan(with_gpu(state, unmanaged_memory_mib=900), to("x", "a0/1"))
    assert outcomes(transition(state, decided)[1]) == [("x", "start", "done")]


def test_planned_neighbours_are_no_strangers(state):
    decided = plan(state, to("old", "a0/0", state="stay"), to("x", "a0/0"), to("y", "a0/0"))
    assert outcomes(transition(state, decided)[1]) == [("x", "start", "done"), ("y", "start", "done")]


def test_a_reservation_or_preemption_of_a_job_that_is_gone_is_stale(state):
    reservation = Reservation(job_id="gang", gpu_ids=("a0/0",), from_s=0)
    decided = plan(state, preempted=("old",), reservations=(reservation,))
    after, actions = transition(remove_jobs(state, ["old", "gang"]), decided)
    assert outcomes(actions) == [("old", "preempt", "stale"), ("gang", "reserve", "stale")]
    assert after.carryover.reservations == ()


def written(path, state):
    """The state in a file."""
    path.write_text(state.model_dump_json(), encoding="utf-8")
    return path


def test_a_second_apply_of_one_plan_has_nothing_to_do(state, tmp_path):
    path = written(tmp_path / "s.json", state)
    backend: Backend = FileBackend(path, out=path)
    decided = plan(state, to("x", "a0/1"))
    assert outcomes(backend.apply(decided).actions) == [("x", "start", "done")]
    once = path.read_bytes()
    again = backend.apply(decided)
    assert (again.actions, again.warnings) == ((), (APPLIED,))
    assert path.read_bytes() == once


def test_a_plan_that_was_undone_by_hand_is_applied_again(state, tmp_path):
    """What is in place stays; only what was taken back is done again, as often as it is taken back."""
    path = written(tmp_path / "s.json", state)
    backend = FileBackend(path, out=path)
    decided = plan(state, to("x", "a0/1"), to("y", "a1/0"))
    backend.apply(decided)
    once = path.read_bytes()
    written(path, move_job(backend.snapshot(), "x", []))
    again = backend.apply(decided)
    assert [(a.job_id, a.outcome, a.detail) for a in again.actions] == [
        ("x", "done", ""),
        ("y", "done", "it runs there already"),
    ]
    assert again.warnings == (AGAIN,)
    assert path.read_bytes() == once
    assert backend.apply(decided).warnings == (APPLIED,)


def test_what_was_undone_and_fits_no_more_is_not_called_in_place(state, tmp_path):
    path = written(tmp_path / "s.json", state)
    backend = FileBackend(path, out=path)
    decided = plan(state, to("x", "a0/1"))
    backend.apply(decided)
    written(path, move_job(move_job(backend.snapshot(), "x", []), "y", ["a0/1"]))
    again = backend.apply(decided)
    assert ([a.detail for a in again.actions], again.warnings) == (["a0/1 is not free: y"], (AGAIN,))


def test_a_plan_whose_job_has_ended_is_still_in_place(state, tmp_path):
    path = written(tmp_path / "s.json", state)
    backend = FileBackend(path, out=path)
    decided = plan(state, to("x", "a0/1"), to("y", "a1/0"))
    backend.apply(decided)
    written(path, remove_jobs(backend.snapshot(), ["x"]))
    assert (backend.apply(decided).actions, backend.apply(decided).warnings) == ((), (APPLIED,))


def test_an_older_plan_applied_again_changes_nothing_that_is_in_place(state, tmp_path):
    path = written(tmp_path / "s.json", state)
    backend = FileBackend(path, out=path)
    first, second = plan(state, to("x", "a0/1")), plan(state, to("y", "a1/0"), id="p-2")
    backend.apply(first)
    backend.apply(second)
    before = backend.snapshot().jobs
    assert [a.detail for a in backend.apply(first).actions] == ["it runs there already"]
    assert backend.snapshot().jobs == before


def test_the_state_lies_beside_what_was_read(state, tmp_path):
    path = written(tmp_path / "s.json", state)
    before = path.read_bytes()
    backend = FileBackend(path)
    backend.apply(plan(state, to("x", "a0/1")))
    assert path.read_bytes() == before
    assert json.loads((tmp_path / "s.state.json").read_text())["carryover"]["last_plan"] == "p-1"
    assert backend.snapshot().job_by_id["x"].running_on == ("a0/1",)


def test_a_dry_run_says_the_same_and_writes_nothing(state, tmp_path):
    path = written(tmp_path / "s.json", remove_jobs(state, ["y"]))
    receipt = FileBackend(path).apply(plan(state, to("x", "a0/1"), to("y", "a1/0")), dry_run=True)
    assert outcomes(receipt.actions) == [("x", "start", "dry_run"), ("y", "start", "stale")]
    assert receipt.dry_run
    assert os.listdir(tmp_path) == ["s.json"]


def test_a_failed_write_leaves_the_old_state_whole(state, tmp_path, monkeypatch):
    path = written(tmp_path / "s.json", state)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BackendRefused, match="No space left on device"):
        FileBackend(path, out=path).apply(plan(state, to("x", "a0/1")))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["s.json"]


def test_a_file_is_replaced_with_its_permissions_and_through_links(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, "new")
    assert (link.is_symlink(), real.read_text(), stat.S_IMODE(real.stat().st_mode)) == (True, "new", 0o640)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert (os.read(reader, 9), os.listdir(tmp_path)) == (b"text", ["pipe"])
    os.close(reader)


def test_a_state_that_is_not_there_is_an_input_error(tmp_path, state):
    with pytest.raises(InputError, match="no such file"):
        FileBackend(tmp_path / "none.json").snapshot()
    assert FileBackend(tmp_path / "none.json", start=state).snapshot() == state


def test_files_can_express_every_plan(tmp_path):
    can = FileBackend(tmp_path / "s.json").capabilities
    assert (can.name, can.equal_per_node, can.same_index) == ("files", False, False)


def test_who_was_stopped_and_for_whom_is_remembered_while_both_wait(state):
    """So that the two do not take turns for ever (see ``evicted_for``)."""
    kept = Reservation(job_id="gang", gpu_ids=("a0/0", "a0/1"), from_s=60)
    stopped = plan(state, preempted=("old",), reservations=(kept,))
    after, _ = transition(state, stopped)
    assert after.carryover.evicted_for == {"old": "gang"}
    started = plan(state, to("gang", "a0/0", "a0/1"), preempted=("old",))
    after, _ = transition(state, started)
    assert after.carryover.evicted_for == {"old": "gang"}
    later, _ = transition(after, plan(after, id="p-2"))
    assert later.carryover.evicted_for == {}
