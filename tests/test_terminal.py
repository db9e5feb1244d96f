"""The command line as a process of its own: at a terminal, behind a pipe that closes, and ended from outside."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).resolve().parent.parent / "scenarios" / "quickstart.yaml"
PLANNER = [sys.executable, "-m", "planner"]


def on_a_terminal(*args, **env):
    """What a command shows at a terminal of 100 columns."""
    leader, follower = pty.openpty()
    known = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **env}
    known = {k: v for k, v in known.items() if k != "NO_COLOR" or "NO_COLOR" in env}
    with subprocess.Popen(
        [*PLANNER, *args], stdin=follower, stdout=follower, stderr=follower, env=known
    ) as child:
        os.close(follower)
        shown = bytearray()
        while select.select([leader], [], [], 30)[0]:
            try:
                chunk = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            shown += chunk
    os.close(leader)
    return child.returncode, shown.decode()


def test_a_terminal_gets_tables_progress_and_colour():
    code, shown = on_a_terminal("plan", str(QUICKSTART), "--deterministic")
    assert code == 0
    assert "\x1b[1;32mRuns\x1b[0m" in shown
    assert re.search(r"best [\d,]+, bound ", shown)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_name_is_broken_at_a_narrow_terminal(tmp_path, width):
    """A hundred jobs whose names take half of a screen of 40 columns, beside each other and waiting."""
    jobs = (
        "{id: resnet50-experiment, count: 50, gpu_memory_mib: 7000, gpu_utilisation_pct: 40, duration_s: 2h}"
    )
    (tmp_path / "s.yaml").write_text(
        "schema: planner.scenario/1\n"
        "cluster: {nodes: [{name: 'gpu-node-[01-10]', gpus: {model: t4, count: 2}}]}\n"
        f"jobs: [{jobs}]\npolicy: {{memory_margin_mib: 0}}\n"
    )
    code, shown = on_a_terminal("plan", str(tmp_path / "s.yaml"), "--time-limit", "0", COLUMNS=str(width))
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown).splitlines()
    assert code == 0
    assert [line for line in lines if len(line.rstrip()) > width] == []
    words = [word.strip("(),") for line in lines for word in line.split()]
    broken = [
        w for w in words if w.startswith("resnet50") and not re.fullmatch(r"resnet50-experiment-\d+", w)
    ]
    assert broken == []
    assert len({w for w in words if w.startswith("resnet50")}) >= 40


@pytest.mark.slow
def test_a_planner_that_is_terminated_ends_soon_with_a_plan(tmp_path):
    """Two hundred jobs on thirty GPUs keep every engine busy for the minute that is allowed."""
    busy = str(tmp_path / "busy.json")
    subprocess.run([*PLANNER, "generate", "--jobs", "200", "--gpus", "30", "--out", busy], check=True)
    command = [*PLANNER, "plan", busy, "--time-limit", "60", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        time.sleep(5)
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (0, "")
    assert json.loads(out)["assignments"]


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("args", [["schema"], ["plan", str(QUICKSTART), "--time-limit", "0"], ["--help"]])
def test_a_full_disk_under_standard_output_is_one_line(args):
    with FULL.open("w") as full:
        done = subprocess.run([*PLANNER, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert re.fullmatch(r"planner: (standard output: )?No space left on device\n", done.stderr)


def test_a_reader_that_stops_reading_is_no_error():
    command = [*PLANNER, "schema", "--table"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert (child.wait(timeout=30), child.stderr.read()) == (0, b"")


def closing(*numbers):
    """What a process does first, so that it has none of these streams."""
    return lambda: [os.close(number) for number in numbers]


def ran_without(numbers, *args):
    """Exit code, standard output and standard error of a command that lacks some streams."""
    done = subprocess.run(
        [*PLANNER, *args], capture_output=True, text=True, check=False, preexec_fn=closing(*numbers)
    )
    return done.returncode, done.stdout, done.stderr


GREEDY = ["plan", str(QUICKSTART), "--time-limit", "0"]


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["page", "json"])
def test_a_closed_standard_output_is_one_line_unless_the_plan_is_in_a_file(tmp_path, more):
    closed = (1, "", "planner: standard output: it is closed\n")
    assert ran_without([1], *GREEDY, *more) == closed
    path = tmp_path / "p.json"
    assert ran_without([1, 2], *GREEDY, *more, "--out", str(path))[0] == 0
    assert json.loads(path.read_text())["schema"] == "planner.plan/1"


def test_an_engine_has_its_pipe_where_streams_are_closed(tmp_path):
    """A child silences standard output; without one, the number was that of its pipe to the parent."""
    path = tmp_path / "p.json"
    limited = [*GREEDY[:-1], "3", "--solver", "cp-sat", "--out", str(path)]
    assert ran_without([0, 1, 2], *limited)[0] == 0
    assert json.loads(path.read_text())["solve"]["status"] == "optimal"


def test_messages_never_go_to_standard_output():
    code, out, _ = ran_without([2], *GREEDY, "--json")
    assert (code, json.loads(out)["schema"]) == (0, "planner.plan/1")
    assert ran_without([2], "plan", "none.yaml") == (2, "", "")
    assert ran_without([2], "fly") == (2, "", "")


def test_help_without_standard_output_is_one_line():
    assert ran_without([1], "--help") == (1, "", "planner: standard output: it is closed\n")


def test_a_closed_standard_input_is_one_line():
    line = "planner: standard input: it is closed; accepted: a file or a pipe\n"
    assert ran_without([0], "plan", "-") == (2, "", line)


def test_a_scenario_comes_through_a_pipe_however_late_its_writer_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [*PLANNER, "plan", str(pipe), "--time-limit", "0"], stdout=subprocess.PIPE, text=True
    ) as child:
        time.sleep(0.5)
        pipe.write_text(QUICKSTART.read_text())
        assert "7 start, 2 wait" in child.communicate(timeout=30)[0]


def test_engines_leave_no_file_open_behind():
    command = [sys.executable, "-W", "always", *PLANNER[1:], "plan", str(QUICKSTART), "--time-limit", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ResourceWarning" not in done.stderr
