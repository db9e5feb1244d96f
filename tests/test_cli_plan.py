"""``planner plan``: what goes before what, standard input and output, any name or number of jobs, and signals.

Commands run in this process unless the test is about a process: signals, pipes, terminals.
"""

import io
import json
import os
import re
import signal
from pathlib import Path

import pytest
from builders import ONE_JOB

from planner import epoch
from planner.plan import Plan

QUICKSTART = Path(__file__).resolve().parent.parent / "scenarios" / "quickstart.yaml"


def test_json_is_only_json_and_has_no_inputs(ran, scenario):
    code, out, _ = ran(
        "plan", scenario(ONE_JOB + "name: 日本"), "--time-limit", 0, "--json", "--out", "p.json"
    )
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
        "plan", scenario(ONE_JOB + "policy: {seed: 3, max_tenants: 2}"), *options, "--json", "--out", "p.json"
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


OVERCOMMITTED = ONE_JOB.replace("}]\n", "}, {id: a, gpu_memory_mib: 9000, running_on: [n0/0]}, {id: b, gpu_memory_mib: 9000, running_on: [n0/0]}]\n")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OVERCOMMITTED, "n0/0 is overcommitted"),
        ("schema: planner.scenario/1\ncluster: {nodes: [{name: n0, gpus: {model: t4}}]}", "0 start, 0 wait"),
        (ONE_JOB.replace("gpus: {model: t4, count: 1, memory_mib: 15360}", "cpus: 4"), "never_fits 1"),
        (ONE_JOB, "1 start, 0 wait"),
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
    pair = ONE_JOB.replace(
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
    name = scenario(ONE_JOB + "policy: {seed: 3, max_tenants: 2}")
    assert ran("plan", name, "--config", "c.yaml", "--seed", 7, "--out", "p.json")[0] == 0
    assert [policy_of("p.json")[k] for k in ("seed", "max_tenants")] == [7, 1]


@pytest.fixture
def stdin(monkeypatch):
    """Give the command a standard input."""

    def give(text):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give


def test_a_dash_is_standard_input_and_output(ran, scenario, stdin):
    stdin(ONE_JOB)
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
        (ONE_JOB + "polcy: {}", "standard input: unknown key 'polcy'; did you mean policy?"),
        (ONE_JOB + "a: [", "standard input: line 6: not YAML"),
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
        "plan", scenario(re.sub(r"jobs:.*", lambda _: f"jobs: [{jobs}]", ONE_JOB)), "--time-limit", 0
    )
    assert code == 0
    for name in NAMES:
        assert name in out


def test_a_pipe_gets_a_plan_of_thousands_of_jobs_complete(ran, scenario):
    """5,000 jobs and 50 GPUs: every job is in the plain output, on one line, with its reason or its GPUs."""
    text = ONE_JOB.replace("count: 1", "count: 50").replace("id: j0", "id: j0, count: 5000")
    code, out, _ = ran("plan", scenario(text), "--time-limit", 0)
    assert code == 0
    first = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    second = {line.split()[1] for line in out.splitlines() if line.startswith("  n0/")}
    assert len({f"j0-{i}" for i in range(5000)} & (first | second)) == 5000
    assert "..." not in out


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
