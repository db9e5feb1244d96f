"""The README's commands are run, in order, in one place, and print what the README shows.

Blocks marked ``console`` hold commands after ``$ `` with their output below. Wall-clock times and plan ids are
not compared. ``pytest --update-golden`` writes the outputs anew.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from planner import cli
from planner.plan import REASONS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What differs from run to run, or with every new key of a policy: wall-clock times and plan ids.
VARIES = re.compile(r"(?<= after )[\d.]+ (?:s|min)(?: \d+ s)?(?=, seed)|\b[0-9a-f]{16}\b")


def commands(block):
    """Each command of a block."""
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def transcript(block, run):
    """The block as it would look now."""
    return "".join(f"$ {command}\n{run(command)}" for command in commands(block))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command of the README in a copy of what it needs; all that it prints."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)

    def command(line):
        name, *args = shlex.split(line)
        assert name == "planner", f"the README runs {name}"
        code = cli.run(args)
        assert code in (0, 2), f"{line}: exit code {code}"
        out, err = capsys.readouterr()
        if "--json" in args:
            return ""
        return out + err

    return command


def test_every_command_in_the_readme_prints_what_it_shows(run, request):
    text = README.read_text(encoding="utf-8")
    now = BLOCK.sub(lambda m: f"```console\n{transcript(m[1], run)}```", text)
    if request.config.getoption("--update-golden"):
        README.write_text(now, encoding="utf-8")
        text = now
    assert VARIES.sub("...", now) == VARIES.sub("...", text)


def test_every_command_and_reason_is_in_the_readme():
    text = README.read_text(encoding="utf-8")
    names = {c.name or c.callback.__name__ for c in cli.app.registered_commands}
    names |= {f"import {c.name}" for c in cli.imports.registered_commands}
    assert [name for name in sorted(names) if f"`planner {name}" not in text] == []
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


def test_every_link_in_the_readme_leads_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert targets
    assert [t for t in targets if not (ROOT / t).exists()] == []


def test_the_program_in_the_readme_plans_and_plans_again(monkeypatch):
    block = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(ROOT)
    names = {}
    exec(compile(block[1], "README.md", "exec"), names)
    assert names["before"].placed and names["after"].objective <= names["before"].objective


def test_the_scenario_in_the_readme_can_be_planned(run, tmp_path):
    block = re.search(r"^```yaml\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "s.yaml").write_text(block[1], encoding="utf-8")
    assert "3 start" in run("planner plan s.yaml --deterministic")
