"""The command line: exit codes, one clear line for whatever is wrong, and output that fits its reader.

Commands run in this process unless the test is about a process: signals, pipes, terminals.
"""

import io
import json
import os
import re
import signal
from pathlib import Path

import pytest

from planner import cli, epoch, errors
from planner.cli import run
from planner.formulate.interpret import plan_id
from planner.model import Snapshot
from planner.plan import Plan

QUICKSTART = Path(__file__).resolve().parent.parent / "scenarios" / "quickstart.yaml"
ONE = """
schema: planner.scenario/1
cluster: {nodes: [{name: n0, gpus: {model: t4, count: 1, memory_mib: 15360}}]}
jobs: [{id: j0, gpu_memory_mib: 4000, gpu_utilisation_pct: 50, duration_s: 600}]
"""


@pytest.fixture
def ran(capsys):
    """Run a command; its exit code, standard output and standard error."""

    def command(*args):
        code = run([str(a) for a in args])
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    """Write a scenario in the current directory; its name."""
    monkeypatch.chdir(tmp_path)

    def write(text=ONE, name="s.yaml"):
        Path(name).write_text(text, encoding="utf-8")
        return name

    return write


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
    (["explain", "s.yaml", "j0"], "s.yaml: schema: got 'planner.scenario/1'; accepted: planner.plan/1 or planner.snapshot/1"),
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
    ONE + "polcy: {}": "s.yaml: unknown key 'polcy'; did you mean policy?",
    ONE.replace("duration_s: 600", "duration_s: 600, gpu_mem: 3"): "s.yaml: jobs[0]: unknown key 'gpu_mem'",
    ONE.replace("4000", "4 apples"): "s.yaml: jobs[0].gpu_memory_mib: got '4 apples'",
    ONE.replace("4000", "-1"): "s.yaml: jobs[0].gpu_memory_mib: got -1; accepted: whole MiB (40960) or a size",
    ONE.replace("600", ".nan"): "s.yaml: jobs[0].duration_s: got",
    ONE.replace("}]\n", "}, {id: j0}]\n"): "s.yaml: jobs[1].id: two jobs are called 'j0'; accepted: unique ids",
    ONE.replace("name: n0", "name: 'n[0-1],n1'"): "s.yaml: cluster.nodes[0].name: ",
    ONE.replace("id: j0", "id: j0, running_on: [n0/3]"): "s.yaml: jobs[0].running_on: job 'j0' runs on 'n0/3', and no such GPU exists",
    ONE + "policy: {time_limit_s: -3}": "s.yaml: policy.time_limit_s: got -3; accepted: seconds (90), or 90s",
    ONE + "policy: {solver: cplex}": "s.yaml: policy.solver: got 'cplex'",
    ONE + "predictor: {interference: {kind: table, path: pairs.csv}}": "pairs.csv: line 1: no column slowdown",
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


# -- plans -------------------------------------------------------------------------------------------


def test_json_is_only_json_and_has_no_inputs(ran, scenario):
    code, out, _ = ran("plan", scenario(ONE + "name: 日本"), "--time-limit", 0, "--json", "--out", "p.json")
    assert code == 0
    assert out.isascii()
    assert "inputs" not in json.loads(out)
    whole = json.loads(Path("p.json").read_text())
    assert (whole["schema"], whole["inputs"]["backend"], whole["name"]) == ("planner.plan/1", "files", "日本")
    assert Plan.model_validate(whole).id == json.loads(out)["id"]


def test_a_deterministic_plan_is_the_same_in_every_run(ran):
    """But for the time of day and the seconds on the wall."""
    runs = {ran("plan", QUICKSTART, "--deterministic", "--json")[1] for _ in range(3)}
    clocks = re.compile(r'"(made_at|wall_s)": [^,\n]*')
    assert len({clocks.sub("", out) for out in runs}) == 1


def test_what_the_command_line_says_goes_before_the_policy(ran, scenario):
    options = ("--solver", "greedy", "--time-limit", "1s", "--seed", 7, "--deterministic")
    code, out, _ = ran(
        "plan", scenario(ONE + "policy: {seed: 3, max_tenants: 2}"), *options, "--json", "--out", "p.json"
    )
    policy = json.loads(Path("p.json").read_text())["inputs"]["policy"]
    assert [policy[k] for k in ("solver", "time_limit_s", "seed", "deterministic", "max_tenants")] == [
        "greedy",
        1,
        7,
        True,
        2,
    ]
    assert (code, json.loads(out)["solve"]["solver"]) == (0, "greedy")


OVERCOMMITTED = ONE.replace("}]\n", "}, {id: a, gpu_memory_mib: 9000, running_on: [n0/0]}, {id: b, gpu_memory_mib: 9000, running_on: [n0/0]}]\n")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OVERCOMMITTED, "n0/0 is overcommitted"),
        ("schema: planner.scenario/1\ncluster: {nodes: [{name: n0, gpus: {model: t4}}]}", "0 start, 0 wait"),
        (ONE.replace("gpus: {model: t4, count: 1, memory_mib: 15360}", "cpus: 4"), "never_fits 1"),
        (ONE, "1 start, 0 wait"),
    ],
    ids=["overcommitted", "empty queue", "no GPUs", "limit 0"],
)
def test_an_odd_cluster_is_planned_around(ran, scenario, text, says):
    code, out, err = ran("plan", scenario(text), "--time-limit", 0)
    assert (code, err) == (0, "")
    assert says in out


def test_a_snapshot_is_planned_like_its_scenario(ran, scenario):
    scenario()
    assert ran("snapshot", "s.yaml", "--out", "snap.json")[0] == 0
    assert ran("snapshot", "--from", "snap.json")[1] == Path("snap.json").read_text()
    a = ran("plan", "s.yaml", "--time-limit", 0, "--json")[1]
    b = ran("plan", "--from", "snap.json", "--time-limit", 0, "--json")[1]
    assert [json.loads(x)["assignments"] for x in (a, b)] == [json.loads(a)["assignments"]] * 2


def policy_of(path):
    """The policy that a plan file was made by."""
    return json.loads(Path(path).read_text())["inputs"]["policy"]


def test_a_snapshot_is_planned_by_the_policy_of_a_config(ran, scenario):
    """The loop: plan, apply, plan the new state. A quota and the interference table hold in every round."""
    pair = ONE.replace(
        "}]\n", ", profile: a, queue: q}, {id: j1, profile: a, queue: q, gpu_memory_mib: 4000}]\n"
    )
    rules = "policy: {quotas: [{queue: q, gpus: 1}]}\npredictor: {interference: {kind: table, path: t.csv}}\n"
    Path("t.csv").write_text("gpu_model,profile,beside,slowdown\nt4,a,a,1.01\n")
    name, quick = scenario(pair.replace("count: 1", "count: 2") + rules), ("--time-limit", 0, "--out")
    assert ran("plan", name, *quick, "1.json")[::2] == (0, "planner: plan written to 1.json\n")
    assert ran("apply", "1.json", "--to", "state.json")[0] == 0
    code, _, err = ran("plan", "--from", "state.json", "--config", name, *quick, "2.json")
    assert (code, err) == (0, "planner: plan written to 2.json\n")
    assert [d["reason"] for d in json.loads(Path("2.json").read_text())["deferred"]] == ["quota"]
    assert policy_of("1.json") == policy_of("2.json")
    forecasts = [
        json.loads(Path(p).read_text())["inputs"]["forecast"]["predictor"] for p in ("1.json", "2.json")
    ]
    assert forecasts[0] == forecasts[1] and len(forecasts[0]["interference"]["rows"]) == 1


def test_a_snapshot_without_a_config_is_planned_with_a_warning(ran, scenario):
    assert ran("snapshot", scenario(), "--out", "snap.json")[2] == ""
    code, out, err = ran("plan", "--from", "snap.json", "--time-limit", 0, "--json")
    assert (code, err.count("\n"), json.loads(out)["schema"]) == (0, 1, "planner.plan/1")
    assert err.startswith("planner: warning: a snapshot has no policy, and the default is used")


def test_a_config_goes_before_the_scenario_and_the_command_line_before_both(ran, scenario):
    Path("c.yaml").write_text("policy: {seed: 5, max_tenants: 1, time_limit_s: 0}")
    name = scenario(ONE + "policy: {seed: 3, max_tenants: 2}")
    assert ran("plan", name, "--config", "c.yaml", "--seed", 7, "--out", "p.json")[0] == 0
    assert [policy_of("p.json")[k] for k in ("seed", "max_tenants")] == [7, 1]


@pytest.fixture
def stdin(monkeypatch):
    """Give the command a standard input."""

    def give(text):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give


def test_a_dash_is_standard_input_and_output(ran, scenario, stdin):
    stdin(ONE)
    code, made, err = ran("plan", "-", "--time-limit", 0, "--out", "-")
    plan = json.loads(made)
    assert (code, err, plan["name"], "inputs" in plan) == (0, "", "standard input", True)
    stdin(made)
    assert ran("explain", "-", "j0")[1].startswith("j0 (start)")
    stdin(made)
    assert "1 done" in ran("apply", "-", "--to", "state.json")[1]
    stdin(Path("state.json").read_text())
    assert ran("plan", "--from", "-", "--config", scenario(), "--time-limit", 0)[0] == 0
    stdin("policy: {seed: 9, time_limit_s: 0}")
    assert '"seed": 9' in ran("plan", "s.yaml", "--config", "-", "--out", "-")[1]
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "standard input: the file is empty; accepted: a scenario or snapshot in YAML or JSON"),
        (ONE + "polcy: {}", "standard input: unknown key 'polcy'; did you mean policy?"),
        (ONE + "a: [", "standard input: line 6: not YAML"),
    ],
)
def test_a_wrong_standard_input_is_told_as_such(ran, stdin, text, line):
    stdin(text)
    code, out, err = ran("plan", "-")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"planner: {line}")


def test_a_scenario_a_schema_and_a_snapshot_may_go_to_standard_output(ran, scenario):
    for command in (("generate", "--jobs", 1, "--gpus", 1), ("snapshot", scenario()), ("schema", "plan")):
        assert ran(*command, "--out", "-") == ran(*command)
    assert ran("schema", "--table", "--out", "-")[1].startswith("# Keys of a scenario file")
    assert not Path("-").exists()


def test_a_plan_that_cannot_be_written_is_no_defect(ran, scenario, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = ran("plan", scenario(), "--time-limit", 0, "--out", "p.json")
    assert said == (1, "", "planner: --out p.json: No space left on device\n")
    assert not Path("p.json").exists()


def test_every_engine_that_is_offered_exists(ran):
    """One list: what --help and the policy accept is what the solvers know."""
    from planner.policy import SOLVERS, SolverName
    from solvers.engines import names

    assert set(SOLVERS) == set(names()) == set(SolverName.__args__)
    assert ", ".join(SOLVERS) in " ".join(ran("plan", "--help")[1].split())


NAMES = [
    "[red]x[/red]",
    "[/]",
    "日本",
    "\U0001f680",
    'it\'s "quoted"',
    "$(touch x); `id`",
    "%s{0}\\n",
]


def test_any_name_is_printed_as_it_is(ran, scenario):
    jobs = ", ".join(f"{{id: {json.dumps(name, ensure_ascii=False)}, gpu_memory_mib: 1}}" for name in NAMES)
    code, out, _ = ran(
        "plan", scenario(re.sub(r"jobs:.*", lambda _: f"jobs: [{jobs}]", ONE)), "--time-limit", 0
    )
    assert code == 0
    for name in NAMES:
        assert name in out


def test_a_pipe_gets_a_plan_of_thousands_of_jobs_complete(ran, scenario):
    """5,000 jobs and 50 GPUs: every job is in the plain output, on one line, with its reason or its GPUs."""
    text = ONE.replace("count: 1", "count: 50").replace("id: j0", "id: j0, count: 5000")
    code, out, _ = ran("plan", scenario(text), "--time-limit", 0)
    assert code == 0
    first = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    second = {line.split()[1] for line in out.splitlines() if line.startswith("  n0/")}
    assert len({f"j0-{i}" for i in range(5000)} & (first | second)) == 5000
    assert "..." not in out


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
    pair = ONE.replace(
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
    scenario(ONE.replace("count: 1", "count: 2").replace("id: j0", "id: j0, gpus: 2"), "t.yaml")
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
    ran("snapshot", scenario(ONE.replace("id: j0", "id: other")), "--out", "state.json")
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


# -- signals ----------------------------------------------------------------------------------------


def test_sigterm_while_planning_asks_for_the_best_plan(ran, scenario, monkeypatch):
    planned, before = epoch.plan_epoch, signal.getsignal(signal.SIGTERM)

    def terminated(*args, stop, **options):
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        return planned(*args, stop=stop, **options)

    monkeypatch.setattr(epoch, "plan_epoch", terminated)
    code, out, err = ran("plan", scenario(), "--time-limit", 60, "--json")
    assert (code, err, len(json.loads(out)["assignments"])) == (0, "", 1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupted_command_says_so(ran, scenario, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(epoch, "plan_epoch", interrupted)
    assert ran("plan", scenario()) == (130, "", "planner: interrupted\n")


def test_models_on_which_an_engine_was_wrong_have_a_place(ran, scenario, monkeypatch, tmp_path):
    """The solve's ``save_anomaly`` gets a folder under the user's state folder, and nothing is written unless needed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = []
    honest = epoch.plan_epoch

    def listening(*args, **options):
        given.append(options["anomalies"])
        return honest(*args, **options)

    monkeypatch.setattr(epoch, "plan_epoch", listening)
    assert ran("plan", scenario(), "--time-limit", "0")[0] == 0
    assert given == [tmp_path / "state" / "planner" / "anomalies"]
    assert not given[0].exists()
