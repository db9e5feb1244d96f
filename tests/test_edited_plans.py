"""A plan file that somebody has changed: its id tells, and no command acts on it or explains it."""

import json
from pathlib import Path

import pytest
import yaml

from planner.backends.transition import transition
from planner.cli import run
from planner.epoch import plan_epoch
from planner.formulate.interpret import plan_id
from planner.plan import Plan
from planner.report.as_json import json_text
from planner.scenario import load

SCENARIO = """
schema: planner.scenario/1
cluster: {nodes: [{name: "n[0-1]", gpus: {model: t4, count: 2, memory_mib: 15360}, labels: {z: "1", b: "2"}}], licences: {L: 2}}
jobs:
- {id: old, gpus: 2, gpu_memory_mib: 9000, gpu_utilisation_pct: 90, duration_s: 5000, running_on: [n0/0, n0/1], started_s: -100}
- {id: a, gpu_memory_mib: 9000, gpu_utilisation_pct: 90, duration_s: 600, licences: {L: 1}}
- {id: gang, gpus: 4, gpu_memory_mib: 9000, gpu_utilisation_pct: 90, duration_s: 600}
- {id: held, state: held}
policy: {time_limit_s: 0}
"""


@pytest.fixture
def made(tmp_path, monkeypatch, capsys):
    """A plan with a start, a stay, waiting jobs and a reservation, as plain JSON."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCENARIO)
    assert run(["plan", "s.yaml", "--out", "plan.json"]) == 0
    capsys.readouterr()
    raw = json.loads(Path("plan.json").read_text())
    assert [a["state"] for a in raw["assignments"]] == ["stay", "start"]
    assert len(raw["deferred"]) == 2 and len(raw["reservations"]) == 1
    return raw


def at(raw, *path):
    """The mapping or list at a place."""
    for part in path:
        raw = raw[part]
    return raw


EDITS = {
    "the id": lambda p: p.update(id="0" * 16),
    "another GPU": lambda p: at(p, "assignments", 1).update(gpu_ids=["n1/1"]),
    "a wave": lambda p: at(p, "assignments", 1).update(wave=99999999),
    "a wave to leave in": lambda p: at(p, "assignments", 0).update(leaves_wave=1),
    "where it came from": lambda p: at(p, "assignments", 0).update(moved_from=["n1/0"]),
    "an end": lambda p: at(p, "assignments", 1).update(finish_s=601),
    "a start": lambda p: at(p, "assignments", 1).update(start_s=5),
    "a start long ago": lambda p: at(p, "assignments", 0).update(start_s=-1e300),
    "the order": lambda p: p["assignments"].reverse(),
    "a reason": lambda p: at(p, "deferred", 0).update(reason="quota"),
    "a stopped job": lambda p: p.update(preempted=["old"]),
    "a reservation": lambda p: at(p, "reservations", 0).update(from_s=1e300),
    "the policy": lambda p: at(p, "inputs", "policy").update(max_tenants=1),
    "the snapshot": lambda p: at(p, "inputs", "snapshot").update(now_s=1),
}


@pytest.mark.parametrize("command", [["apply"], ["explain", "a"], ["diff", "plan.json"]], ids=lambda c: c[0])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused(made, capsys, edit, command):
    EDITS[edit](made)
    Path("bad.json").write_text(json.dumps(made))
    code = run([command[0], "bad.json", *command[1:]])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert err.startswith("planner: bad.json: its contents do not match its id '")
    assert not Path("bad.state.json").exists()


@pytest.mark.parametrize(
    "edit",
    [
        lambda p: at(p, "assignments", 1).update(start_s=-1e300),
        lambda p: at(p, "assignments", 1).update(wave=-5),
    ],
)
def test_a_plan_that_nothing_could_make_is_wrong_input(made, capsys, edit):
    edit(made)
    Path("bad.json").write_text(json.dumps(made))
    assert run(["apply", "bad.json"]) == 2
    assert capsys.readouterr().err.startswith("planner: bad.json: assignments[1]")


@pytest.mark.parametrize("form", [lambda p: json.dumps(p, sort_keys=True, indent=4), yaml.safe_dump])
def test_the_same_plan_written_otherwise_is_the_same_plan(made, capsys, form):
    """Clocks are not part of an id, nor is how a file is laid out."""
    made["made_at"], made["solve"]["wall_s"] = "2030-01-01T00:00:00Z", 99
    Path("same.yaml").write_text(form(made))
    assert run(["apply", "same.yaml"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["gang-and-fragmentation", "running-and-movable", "shares", "mig", "cpu-only"]
)
def test_an_id_survives_the_way_through_a_file(scenarios_dir, name):
    s = load(scenarios_dir / f"{name}.yaml")
    policy = s.policy.model_copy(update={"time_limit_s": 0.5, "solver": "greedy"})
    read = Plan.model_validate_json(json_text(plan_epoch(s.snapshot, policy, s.predictor)))
    assert read.id == plan_id(read.inputs, read.assignments, read.deferred, read.preempted, read.reservations)


def test_a_time_past_the_end_of_the_clock_is_no_defect(made):
    """The clock ends at 1e10 s; a checkpoint or a reservation may end later in a scenario that is legal."""
    plan = Plan.model_validate(made)
    late = tuple(r.model_copy(update={"from_s": 1e300}) for r in plan.reservations)
    starts = tuple(a.model_copy(update={"start_s": 1e300}) for a in plan.assignments)
    odd = plan.model_copy(update={"reservations": late, "assignments": starts})
    after, _ = transition(plan.inputs.snapshot, odd)
    assert (after.carryover.reservations[0].from_s, after.job_by_id["a"].started_s) == (1e10, 1e10)
