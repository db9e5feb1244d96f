"""A saved problem is the same problem, and knows what it does not know."""

from dataclasses import fields

import numpy as np
import pytest

from solvers import check, dump
from solvers.problem import Problem
from tests.problems import job, make, node, random_problem


def plain(problem: Problem) -> dict:
    """All fields but the interference, comparable."""
    return {
        f.name: value.tolist() if isinstance(value := getattr(problem, f.name), np.ndarray) else value
        for f in fields(problem)
        if f.name != "interference"
    }


@pytest.fixture
def everything() -> Problem:
    """Residents, windows, budgets and pairs that must not share."""
    return random_problem(3, 8, 6, residents=0.5, windows=True, budgets=True, never=True)


def test_a_problem_comes_back_as_it_was_written(tmp_path, everything):
    dump.save(everything, tmp_path / "p.npz")
    back = dump.load(tmp_path / "p.npz")
    assert plain(back) == plain(everything)
    assert {name: value.dtype for name, value in vars(back).items() if hasattr(value, "dtype")} == {
        name: value.dtype for name, value in vars(everything).items() if hasattr(value, "dtype")
    }


def test_a_loaded_problem_judges_a_placement_like_the_first(tmp_path):
    pair = make([node(1)], [job(type=0), job(type=1)], slowdown={(0, 1): 1300, (1, 0): 1500})
    dump.save(pair, tmp_path / "p.npz")
    back = dump.load(tmp_path / "p.npz")
    together = ((0,), (0,))
    assert check.objective(back, together) == check.objective(pair, together)
    assert check.violations(back, together) == check.violations(pair, together)


def test_a_row_that_was_not_saved_is_an_error_and_not_a_guess(tmp_path, monkeypatch):
    monkeypatch.setattr(dump, "MOST_ROWS", 0)
    pair = make([node(1)], [job(type=0), job(type=1)], slowdown={(0, 1): 1300, (1, 0): 1500})
    assert pair.interference.slowdown(0, 0, [1]) == 1300
    dump.save(pair, tmp_path / "p.npz")
    back = dump.load(tmp_path / "p.npz").interference
    assert back.slowdown(0, 0, [1]) == 1300
    with pytest.raises(LookupError, match="kind 0 beside types \\(0,\\) were not saved"):
        back.slowdown(0, 1, [0])


def test_words_about_a_problem_travel_with_it(tmp_path, everything):
    dump.save(everything, tmp_path / "new" / "p.npz", {"engine": "cp-sat", "placed": [[0], None]})
    assert dump.about(tmp_path / "new" / "p.npz") == {"engine": "cp-sat", "placed": [[0], None]}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["p.npz"]


def test_an_empty_problem_can_be_saved(tmp_path):
    dump.save(make(), tmp_path / "p.npz")
    assert plain(dump.load(tmp_path / "p.npz")) == plain(make())


@pytest.mark.parametrize("content", [b"", b"not a file of arrays", b"PK\x05\x06" + bytes(18)])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "p.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"p\.npz: not a saved problem") as refusal:
        dump.load(tmp_path / "p.npz")
    assert "\n" not in str(refusal.value)


def test_a_file_with_an_object_in_it_is_refused(tmp_path):
    np.savez(tmp_path / "p.npz", text=np.array([{"schema": dump.SCHEMA}], object))
    with pytest.raises(ValueError, match="not a saved problem"):
        dump.load(tmp_path / "p.npz")
