"""A saved problem is the same problem, and knows what it does not know."""

from dataclasses import fields

import numpy as np
import pytest

from solvers import check, dump, greedy
from solvers.facts import Facts
from solvers.problem import Limits, Problem
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


@pytest.mark.parametrize("seed", range(4))
def test_a_loaded_problem_is_solved_like_the_first_even_with_jobs_without_gpus(tmp_path, seed):
    """Their types share no GPU with anybody, so that no slowdown beside them is saved."""
    problem = random_problem(seed, 30, 12, cpu_only=True, types=40, residents=0.2)
    dump.save(problem, tmp_path / "p.npz")
    back = dump.load(tmp_path / "p.npz")
    first, again = (greedy.solve(p, Limits(wall_s=0), None, lambda *_: None) for p in (problem, back))
    assert again.placed == first.placed


def test_the_least_memory_of_a_type_is_that_of_its_jobs_with_gpus():
    jobs = [job(0, type=0, memory_mib=1), job(type=1, memory_mib=5), job(0, type=1, memory_mib=2)]
    none = np.iinfo(np.int64).max
    assert Facts(make([node(1)], jobs)).least_memory.tolist() == [[none], [5]]


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
