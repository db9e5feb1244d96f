"""When a better plan is reported: now and then, and every one at the very end."""

from types import SimpleNamespace

import pytest

from solvers import incumbent
from solvers.incumbent import Incumbent
from solvers.problem import Limits


@pytest.mark.parametrize(
    ("wall_s", "kept_at", "reported"),
    [
        # A quarter of a second between two; the last 0.3 s of a long limit, and 0.05 s of one of a second.
        (60.0, [0.0, 0.1, 0.2, 0.3, 0.5, 0.6], [0.0, 0.3, 0.6]),
        (60.0, [59.5, 59.6, 59.69, 59.71, 59.72], [59.5, 59.71, 59.72]),
        (1.0, [0.0, 0.65, 0.75, 0.85, 0.951, 0.952], [0.0, 0.65, 0.951, 0.952]),
    ],
)
def test_better_plans_are_reported_now_and_then_and_all_of_them_at_the_end(
    wall_s, kept_at, reported, monkeypatch
):
    now, heard = SimpleNamespace(s=0.0), []
    monkeypatch.setattr(incumbent, "time", SimpleNamespace(monotonic=lambda: now.s))
    known = Incumbent(Limits(wall_s=wall_s), lambda placed, cost, bound: heard.append(cost), None)
    for i, now.s in enumerate(kept_at):
        known.keep(1000 - i, lambda: (None,))
    assert heard == [1000 - kept_at.index(at) for at in reported]


def test_a_plan_that_is_no_better_is_not_kept_and_one_at_once_is_reported():
    heard = []
    known = Incumbent(Limits(wall_s=60.0), lambda placed, cost, bound: heard.append(cost), None)
    for cost in (10, 10, 9):
        known.keep(cost, lambda: (None,), at_once=True)
    assert heard == [10, 9] and known.end().total == 9
