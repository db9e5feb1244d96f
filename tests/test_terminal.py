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
