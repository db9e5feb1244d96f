"""Compiled or not, kept or not, with numba or without: the kernels do the same."""

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from boards import trails

from solvers.kernels import cache, fill, jit, layout, neighbourhood, place, ruin, slots, spots, worth

ROOT = Path(__file__).resolve().parent.parent
KERNELS = (place, fill, ruin, slots, spots, neighbourhood, worth)
NAMES = [module.__name__.rpartition(".")[2] for module in KERNELS]
compiled = pytest.mark.skipif(not jit.COMPILED, reason="numba is not installed, or switched off")

#: A kernel, what it gives, and where it is kept.
SMALL = """
from pathlib import Path
import numpy as np
from solvers.kernels import cache, jit
from small import double
print(double(np.array([3, 4])), jit.COMPILED, cache.folder_of(Path(double.__code__.co_filename), jit.NUMBA.__version__))
"""
KERNEL = '''"""One kernel."""
from __future__ import annotations
from solvers.kernels.jit import jit

@jit
def double(a: Ints) -> int:
    return 2 * a[1]
'''


def run(code, *paths, **env):
    """What a Python process prints that finds modules in these folders as well."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT, ROOT / "tests"))), **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@compiled
def test_uncompiled_kernels_make_the_same_plans():
    """Step by step the same: not only is the arithmetic equal, but every number drawn is."""
    code = "import json, boards; print(json.dumps([boards.COMPILED, boards.trails()]))"
    assert json.loads(run(code, PLANNER_NO_JIT="1")) == [False, trails()]


def test_without_numba_the_kernels_run_as_they_are(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('no numba here')\n")
    code = "import json, boards; print(json.dumps([boards.COMPILED, boards.trails((1,), 4)]))"
    assert json.loads(run(code, tmp_path)) == [False, trails((1,), 4)]


def test_equal_seeds_give_equal_plans_and_others_do_not():
    assert trails((0,), 4) == trails((0,), 4)
    assert trails((0,), 4) != trails((8,), 4)


@compiled
@pytest.mark.parametrize("module", KERNELS)
def test_every_kernel_is_compiled_once_for_the_types_it_names(module):
    """A type that nobody knows would be found out at the first call only, and compiled for whatever comes."""
    kernels = {name: f for name, f in vars(module).items() if hasattr(f, "py_func")}
    assert kernels
    assert {name: len(f.signatures) for name, f in kernels.items()} == dict.fromkeys(kernels, 1)


# ---- where what was compiled is kept ----


def folder(source, monkeypatch, base, version="1"):
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    return cache.folder_of.__wrapped__(source, version)


@pytest.fixture
def sources(tmp_path):
    """A copy of the kernels."""
    there = tmp_path / "kernels"
    there.mkdir()
    for path in Path(jit.__file__).parent.glob("*.py"):
        (there / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return there


@pytest.mark.parametrize(("edited", "elsewhere"), [
    ("layout", {"place", "spots", "fill", "neighbourhood", "ruin"}),
    ("place", {"place", "spots", "fill", "neighbourhood", "ruin"}),
    ("fill", {"fill", "neighbourhood", "ruin"}),
    ("ruin", {"ruin"}),
    ("slots", {"slots"}),
    ("spots", {"spots", "fill", "neighbourhood", "ruin"}),
    ("neighbourhood", {"neighbourhood", "ruin"}),
    ("worth", {"worth"}),
])  # fmt: skip
def test_an_edit_changes_the_folder_of_all_that_take_from_the_file(edited, elsewhere, sources, monkeypatch):
    before = {name: folder(sources / f"{name}.py", monkeypatch, sources) for name in NAMES}
    assert before == {name: folder(sources / f"{name}.py", monkeypatch, sources) for name in NAMES}
    path = sources / f"{edited}.py"
    path.write_text(path.read_text(encoding="utf-8") + "\nNUMBER = 1\n", encoding="utf-8")
    after = {name: folder(sources / f"{name}.py", monkeypatch, sources) for name in NAMES}
    assert {name for name in NAMES if before[name] != after[name]} == elsewhere


def test_another_version_of_the_compiler_has_its_own_folder(sources, monkeypatch):
    one, two = (folder(sources / "ruin.py", monkeypatch, sources, version) for version in ("1", "2"))
    assert one != two


def test_a_number_taken_from_layout_changes_the_folder(sources, monkeypatch):
    before = folder(sources / "ruin.py", monkeypatch, sources)
    path = sources / "layout.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f"REQUESTS = {layout.REQUESTS}", f"REQUESTS = {layout.REQUESTS - 1}"))
    assert path.read_text(encoding="utf-8") != text
    assert folder(sources / "ruin.py", monkeypatch, sources) != before


@pytest.mark.parametrize("line", [
    "from solvers.kernels import other",
    "from solvers.kernels import other as o",
    "from solvers.kernels import third, other as o",
    "from solvers.kernels.other import NUMBER, SECOND",
    "from solvers.kernels.other import (\n    NUMBER,\n)",
])  # fmt: skip
def test_every_way_of_taking_from_another_file_is_seen(line, tmp_path):
    (tmp_path / "one.py").write_text(f"import numpy\n{line}\n")
    (tmp_path / "other.py").write_text("from solvers.kernels.deep import X\n")
    for name in ("deep", "third"):
        (tmp_path / f"{name}.py").write_text("")
    wanted = {"one.py", "other.py", "deep.py", *(["third.py"] if "third" in line else [])}
    assert {path.name for path in cache._sources(tmp_path / "one.py")} == wanted


@compiled
def test_what_is_compiled_is_kept_where_the_user_keeps_such_things(tmp_path):
    (tmp_path / "small.py").write_text(KERNEL)
    told = run(SMALL, tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    (kept,) = (tmp_path / "cache" / "planner").iterdir()
    assert told.split() == ["8", "True", str(kept)]
    assert [path.suffix for path in sorted(kept.rglob("*.nb*"))] == [".nbc", ".nbi"]


@compiled
def test_without_a_folder_to_write_to_it_compiles_all_the_same(tmp_path):
    """A file lies where the folder should be."""
    (tmp_path / "small.py").write_text(KERNEL)
    (tmp_path / "file").write_text("")
    told = run(SMALL, tmp_path, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert told.split() == ["8", "True", "None"]
    assert sorted(path.name for path in tmp_path.rglob("*.nb*")) == []


def test_a_folder_that_may_only_be_read_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert folder(Path(ruin.__file__), monkeypatch, tmp_path) is None


def test_whoever_has_no_home_keeps_nothing(monkeypatch):
    def nowhere():
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert cache.folder_of.__wrapped__(Path(ruin.__file__), "1") is None


@compiled
def test_every_file_with_a_compiled_function_is_known():
    assert {path.stem for path in cache.kernels()} >= set(NAMES)
    for path in cache.kernels():
        module = importlib.import_module(f"solvers.kernels.{path.stem}")
        assert any(hasattr(f, "py_func") for f in vars(module).values())


def test_all_is_ready_when_every_folder_says_so(tmp_path, monkeypatch):
    folders = {path: tmp_path / path.stem for path in cache.kernels()}
    monkeypatch.delenv(cache.SWITCH, raising=False)
    monkeypatch.setattr(cache, "folder_of", lambda path, version: folders[path])
    monkeypatch.setattr(cache.metadata, "version", lambda name: "1")
    for path in folders.values():
        path.mkdir()
    assert not cache.ready()
    cache.done()
    assert cache.ready()
    monkeypatch.setenv(cache.SWITCH, "1")
    assert not cache.ready()
    monkeypatch.delenv(cache.SWITCH)
    (tmp_path / "ruin" / cache.DONE).unlink()
    assert not cache.ready()
    cache.done()
    folders[Path(ruin.__file__)] = None
    assert not cache.ready()
    cache.done()


def test_nothing_is_ready_without_numba(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.delenv(cache.SWITCH, raising=False)
    monkeypatch.setattr(cache.metadata, "version", missing)
    assert not cache.ready()


def test_compiling_by_hand_says_if_it_could_not():
    done = subprocess.run(
        [sys.executable, "-m", "solvers.kernels"],
        env={**os.environ, cache.SWITCH: "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "not compiled" in done.stderr


@compiled
def test_numbas_own_setting_is_left_as_it_was(monkeypatch):
    monkeypatch.setattr(jit.NUMBA.config, "CACHE_DIR", "where it was")

    def one(a: "int") -> "int":
        return a + 1

    assert jit.jit(one)(2) == 3
    assert jit.NUMBA.config.CACHE_DIR == "where it was"
