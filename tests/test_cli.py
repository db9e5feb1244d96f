"""The command line: exit codes, one clear line for whatever is wrong, and all commands but ``plan``.

Commands run in this process.
"""

import json
import os
import re
from pathlib import Path

import pytest
from builders import ONE_JOB

from planner import cli, epoch, errors
from planner.formulate.interpret import plan_id
from planner.model import Snapshot
from planner.plan import Plan


@pytest.fixture
def plan_file(ran, scenario):
    """A plan of the smallest scenario, in plan.json."""
    assert ran("plan", scenario(), "--time-limit", 0, "--out", "plan.json")[0] == 0
    return "plan.json"


# -- bad input ---------------------------------------------------------------------------------------

WRONG_OPTIONS = [
    (["plan"], "SCENARIO or --from: neither is given; accepted: exactly one of them"),
    (["plan", "s.yaml", "--from", "s.json"], "SCENARIO or --from: both are given; accepted: exactly one of them"),
    (["plan", "none.yaml"], "none.yaml: no such file"),
    (["plan", "--from", "none.json"], "none.json: no such file"),
    (["plan", "--from", "slurm"], "--from: the slurm back end does not exist yet; accepted: a snapshot file"),
    (["plan", "s.yaml", "--time-limit", "-1"], "--time-limit: got '-1'; accepted: seconds, 0 or more"),
    (["plan", "s.yaml", "--time-limit", "nan"], "--time-limit: got 'nan'; accepted: seconds, 0 or more"),
    (["plan", "s.yaml", "--time-limit", "inf"], "--time-limit: got 'inf'; accepted: seconds, 0 or more"),
    (["plan", "s.yaml", "--seed", "1.5"], "--seed: got '1.5'; accepted: a whole number, 0 or more"),
    (["plan", "s.yaml", "--solver", "glpk"], "--solver: got 'glpk'; accepted: auto, greedy, patterns, search, cp-sat, columns, mip, cbc, highs"),
    (["plan", "s.yaml", "--config", "none.yaml"], "none.yaml: no such file"),
    (["plan", "s.yaml", "--json", "--out", "-"], "--out -: --json prints on standard output as well; accepted: one of them"),
    (["plan", "-", "--config", "-"], "-: standard input is named twice; accepted: - for one file"),
    (["diff", "-", "-"], "-: standard input is named twice; accepted: - for one file"),
    (["apply", "-"], "apply -: no state is named; accepted: --to STATE.json"),
    (["plan", "s.yaml", "--out", "no/where.json"], "--out no/where.json: there is no directory 'no'; accepted: a file in a directory that exists"),
    (["plan", "s.yaml", "--out", "."], "--out .: is a directory; accepted: a file in a directory that exists"),
    (["plan", "s.yaml", "--out", "ring"], "--out ring: too many levels of symbolic links; accepted: a file in a directory that exists"),
    (["plan", "s.yaml", "--out", "x" * 300], f"--out {'x' * 300}: file name too long; accepted: a file in a directory that exists"),
    (["plan", "pipe"], "pipe: nobody wrote to this pipe for 0.1 s; accepted: a file"),
    (["plan", "s.yaml", "--fast"], "No such option: --fast (planner --help tells more)"),
    (["plan", "s.yaml", "more"], "Got unexpected extra argument(s) (more) (planner --help tells more)"),
    (["fly"], "No such command 'fly'. (planner --help tells more)"),
    (["explain", "plan.json"], "Missing argument 'JOB'. (planner --help tells more)"),
    (["explain", "s.yaml", "j0"], "s.yaml: schema: got 'planner.scenario/1'; accepted: planner.plan/1, which planner plan --out writes"),
    (["diff", "none.json", "s.yaml"], "none.json: no such file"),
    (["schema", "cluster"], "schema: got 'cluster'; accepted: scenario, plan, snapshot, config"),
    (["generate", "--jobs", "x", "--gpus", "1"], "--jobs: got 'x'; accepted: a whole number, 0 or more"),
    (["import", "philly", "none.csv"], "none.csv: no such file"),
    (["import", "helios", "none.csv"], "No such command 'helios'. (planner --help tells more)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "message"), WRONG_OPTIONS, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_wrong_command_is_one_line_and_exit_2(ran, scenario, args, message, monkeypatch):
    scenario()
    os.symlink("ring", "ring")
    os.mkfifo("pipe")
    monkeypatch.setattr("planner.tables.PATIENCE_S", 0.1)
    assert ran(*args) == (2, "", f"planner: {message}\n")


WRONG_FILES = {
    "jobs: [": "not YAML",
    "{}": "s.yaml: schema: is missing; accepted: planner.scenario/1",
    "- a": "s.yaml: got a list",
    ONE_JOB + "polcy: {}": "s.yaml: unknown key 'polcy'; did you mean policy?",
    ONE_JOB.replace("duration_s: 600", "duration_s: 600, gpu_mem: 3"): "s.yaml: jobs[0]: unknown key 'gpu_mem'",
    ONE_JOB.replace("4000", "4 apples"): "s.yaml: jobs[0].gpu_memory_mib: got '4 apples'",
    ONE_JOB.replace("4000", "-1"): "s.yaml: jobs[0].gpu_memory_mib: got -1; accepted: whole MiB (40960) or a size",
    ONE_JOB.replace("600", ".nan"): "s.yaml: jobs[0].duration_s: got",
    ONE_JOB.replace("}]\n", "}, {id: j0}]\n"): "s.yaml: jobs[1].id: two jobs are called 'j0'; accepted: unique ids",
    ONE_JOB.replace("name: n0", "name: 'n[0-1],n1'"): "s.yaml: cluster.nodes[0].name: ",
    ONE_JOB.replace("id: j0", "id: j0, running_on: [n0/3]"): "s.yaml: jobs[0].running_on: job 'j0' runs on 'n0/3', and no such GPU exists",
    ONE_JOB + "policy: {time_limit_s: -3}": "s.yaml: policy.time_limit_s: got -3; accepted: seconds (90), or 90s",
    ONE_JOB + "policy: {solver: cplex}": "s.yaml: policy.solver: got 'cplex'",
    ONE_JOB + "predictor: {interference: {kind: table, path: pairs.csv}}": "pairs.csv: line 1: no column slowdown",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_wrong_file_is_one_line_and_exit_2(ran, scenario, text):
    Path("pairs.csv").write_text("gpu_model,profile,beside,slodown\n")
    code, out, err = ran("plan", scenario(text))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert WRONG_FILES[text] in err
    assert err.startswith("planner: ")


def test_a_huge_or_binary_file_is_one_line(ran, scenario, tmp_path):
    (tmp_path / "s.yaml").write_bytes(b"\xff\xfe\x00\x00garbage")
    code, _, err = ran("plan", "s.yaml")
    assert (code, err.count("\n")) == (2, 1)


def test_an_engine_that_is_not_installed_is_exit_2(ran, scenario, monkeypatch):
    def missing(*_, **__):
        raise errors.EngineMissing("engine 'cbc' is not installed here")

    monkeypatch.setattr(epoch, "plan_epoch", missing)
    assert ran("plan", scenario(), "--solver", "cbc") == (
        2,
        "",
        "planner: engine 'cbc' is not installed here\n",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ClusterUnreadable("no answer"), 3),
        (errors.PlanRejected("the plan fails 1 check"), 4),
        (errors.BackendRefused("disk full"), 5),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(ran, scenario, monkeypatch, error, code):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(epoch, "plan_epoch", fails)
    assert ran("plan", scenario()) == (code, "", f"planner: {error}\n")


def test_a_defect_is_one_line_unless_it_is_being_debugged(ran, scenario, monkeypatch):
    def broken(*_, **__):
        raise KeyError("x\x1b[2J")

    monkeypatch.setattr(epoch, "plan_epoch", broken)
    monkeypatch.delenv("PLANNER_DEBUG", raising=False)
    code, out, err = ran("plan", scenario())
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"planner: internal error: KeyError: .* \(set PLANNER_DEBUG=1 for the traceback\)\n", err
    )
    assert "\x1b" not in err
    monkeypatch.setenv("PLANNER_DEBUG", "1")
    with pytest.raises(KeyError):
        ran("plan", scenario())


# -- explain, diff, apply, schema --------------------------------------------------------------------


def test_a_job_is_explained(ran, plan_file):
    code, out, _ = ran("explain", plan_file, "j0")
    assert (code, out.splitlines()[:2]) == (0, ["j0 (start)", "  j0 starts on n0/0"])
    assert json.loads(ran("explain", plan_file, "j0", "--json")[1])["decision"] == "start"
    assert ran("explain", plan_file, "j1") == (
        2,
        "",
        "planner: plan.json: no job is called 'j1'; accepted: j0\n",
    )


def test_a_waiting_job_is_explained_with_what_would_start_it(ran, scenario):
    pair = ONE_JOB.replace(
        "}]\n", "}, {id: j1, gpu_memory_mib: 12000, gpu_utilisation_pct: 50, duration_s: 600}]\n"
    )
    assert ran("plan", scenario(pair), "--time-limit", 0, "--out", "p.json")[0] == 0
    waiting = [d["job_id"] for d in json.loads(Path("p.json").read_text())["deferred"]]
    code, out, _ = ran("explain", "p.json", *waiting)
    assert code == 0
    assert "waits: not_chosen" in out and "1140 MiB less a GPU (10860 MiB)" in out


def test_a_plan_file_with_a_mistake_is_one_line(ran, plan_file):
    Path("bad.json").write_text(Path(plan_file).read_text().replace('"made_at"', '"mad_at"', 1))
    code, out, err = ran("diff", "bad.json", plan_file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("planner: bad.json: unknown key 'mad_at'; did you mean made_at?")


def test_two_plans_are_compared(ran, scenario, plan_file):
    scenario(ONE_JOB.replace("count: 1", "count: 2").replace("id: j0", "id: j0, gpus: 2"), "t.yaml")
    ran("plan", "t.yaml", "--time-limit", 0, "--out", "t.json")
    code, out, _ = ran("diff", plan_file, "t.json", "--json")
    difference = json.loads(out)
    assert code == 0
    assert difference["jobs"] == [{"job_id": "j0", "change": "moved", "before": "n0/0", "after": "n0/0-1"}]
    same = ran("diff", plan_file, plan_file)
    assert same[0] == 0 and "changes    none" in same[1]
    ran("snapshot", "s.yaml", "--out", "snap.json")
    assert ran("diff", "snap.json", "snap.json", "--json")[0] == 0
    mixed = ran("diff", plan_file, "snap.json")
    assert mixed == (
        2,
        "",
        "planner: snap.json: a plan and a snapshot do not compare; accepted: two plans or two snapshots\n",
    )


def test_a_plan_is_applied_once(ran, plan_file):
    code, out, _ = ran("apply", plan_file, "--dry-run")
    assert (code, "1 would be done" in out, Path("plan.state.json").exists()) == (0, True, False)
    assert "1 done" in ran("apply", plan_file)[1]
    assert Snapshot.model_validate_json(Path("plan.state.json").read_text()).job_by_id["j0"].running_on == (
        "n0/0",
    )
    code, out, err = ran("apply", plan_file)
    assert (code, err) == (0, "")
    assert "nothing to do" in out


def test_stale_actions_are_left_out_with_a_warning(ran, scenario, plan_file):
    ran("snapshot", scenario(ONE_JOB.replace("id: j0", "id: other")), "--out", "state.json")
    code, out, err = ran("apply", plan_file, "--to", "state.json", "--json")
    assert (code, json.loads(out)["actions"][0]["outcome"]) == (0, "stale")
    assert (
        err
        == "planner: warning: 1 action left out, because the cluster is no longer what the plan was made for\n"
    )


def with_its_id(raw):
    """An edited plan as somebody would write it who works out the id anew."""
    made = Plan.model_validate(raw)
    whole = (made.inputs, made.assignments, made.deferred, made.preempted, made.reservations)
    return {**raw, "id": plan_id(*whole)}


def test_a_plan_that_breaks_a_rule_is_rejected(ran, plan_file):
    plan = json.loads(Path(plan_file).read_text())
    plan["inputs"]["snapshot"]["cluster"]["nodes"][0]["gpus"][0]["memory_mib"] = 100
    Path("bad.json").write_text(json.dumps(with_its_id(plan)))
    code, out, err = ran("apply", "bad.json")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert err.startswith("planner: bad.json: the plan fails")
    assert not Path("bad.state.json").exists()


def test_a_plan_without_inputs_is_not_applied(ran, scenario, plan_file):
    Path("bare.json").write_text(ran("plan", "s.yaml", "--time-limit", 0, "--json")[1])
    code, _, err = ran("apply", "bare.json")
    assert ran("explain", "bare.json", "j0") == (code, "", err)
    assert (code, err) == (
        2,
        "planner: bare.json: the plan has no inputs: --json leaves them out; accepted: a plan written by planner plan --out FILE\n",
    )


def test_a_state_that_cannot_be_written_is_refused(ran, plan_file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert ran("apply", plan_file) == (5, "", "planner: plan.state.json: No space left on device\n")


def test_the_schema_of_each_file_is_printed(ran):
    for kind in ("scenario", "plan", "snapshot", "config"):
        code, out, _ = ran("schema", kind)
        assert (code, json.loads(out)["additionalProperties"]) == (0, False)
    limits = json.loads(ran("schema", "scenario")[1])["$defs"]["Policy"]["properties"]["alpha"]
    assert (limits["minimum"], limits["maximum"]) == (0, 4)


def test_the_table_of_keys_in_the_docs_is_up_to_date(ran, tmp_path):
    """``make docs`` writes it."""
    code, _, _ = ran("schema", "--table", "--out", tmp_path / "keys.md")
    kept = Path(__file__).resolve().parent.parent / "docs" / "keys.md"
    assert (code, (tmp_path / "keys.md").read_text()) == (0, kept.read_text())


def test_a_made_up_scenario_can_be_planned(ran, scenario):
    scenario()
    assert ran("generate", "--jobs", 5, "--gpus", 4, "--seed", 1, "--out", "g.json")[0] == 0
    assert ran("plan", "g.json", "--time-limit", 0)[0] == 0
    assert ran("generate", "--jobs", 5, "--gpus", 4, "--seed", 1) == ran(
        "generate", "--jobs", 5, "--gpus", 4, "--seed", 1
    )


@pytest.mark.parametrize("args", [[], ["--help"], ["import"], ["plan", "--help"]])
def test_help_is_no_error(ran, args):
    code, out, err = ran(*args)
    assert (code, err, out.startswith("Usage: planner")) == (0, "", True)


def test_the_version_is_printed(ran):
    assert ran("--version") == (0, f"planner {cli.__version__}\n", "")
