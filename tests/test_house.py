"""What holds for every file of the project: no place of one machine, an opening paragraph, one version."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {".venv", "build", "dist", "anomalies"}

# In pieces, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "crates" + ".io",
    "deb.debian" + ".org",
    "proxy.golang" + ".org",
]
MACHINE_PATHS = [r"/ho" + r"me/[\w.-]+/", r"/ro" + r"ot/", r"/Us" + r"ers/[\w.-]+/", r"/wo" + r"rk/[\w.-]"]
# A path starts a word: ``out/work/x`` and a URL's ``host/home/x`` are not places on a machine.
FORBIDDEN = re.compile(
    "|".join([*map(re.escape, REGISTRY_HOSTS), *(r"(?<![\w./-])" + path for path in MACHINE_PATHS)])
)


def project_files():
    """What git tracks or would track; without git, all but hidden folders and what builds leave."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
        paths = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # a release archive holds no history
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(p in GENERATED or p.startswith(".venv") for p in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file()]


def faults(text):
    """Every forbidden string in the text, with its line."""
    return [
        f"{number}: {found.group()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for found in FORBIDDEN.finditer(line)
    ]


def test_no_file_names_a_registry_or_a_place_on_one_machine():
    found = {
        str(path.relative_to(ROOT)): bad
        for path in project_files()
        if (bad := faults(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("see https://py" + "pi.org/p", 1),
        ("open('/ho" + "me/me/x')", 1),
        ("cd /wo" + "rk/x", 1),
        ("out/wo" + "rk/x, ../wo" + "rk/x, /ho" + "mepage", 0),
    ],
)
def test_a_forbidden_string_is_found_where_it_is(text, count):
    assert len(faults(text)) == count


def test_every_source_file_opens_with_a_paragraph():
    silent = [
        str(path.relative_to(ROOT))
        for path in project_files()
        if path.suffix == ".py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_the_version_is_the_same_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## \[(\d[^]]*)]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert [declared, newest[1]] == [planner.__version__] * 2
