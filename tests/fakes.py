"""What the tests of a solve share: a tiny problem's plans, limits, and engines made up for one answer.

The fixtures ``two``, ``put`` and ``fakes`` of conftest belong to them.
"""

from solvers import Limits, Solution, Status

QUICK = Limits(wall_s=0.4, grace_s=0.1)
AMPLE = Limits(wall_s=30.0, grace_s=1.0)

# Plans of two jobs and two GPUs: a job that waits costs an hour, anything else is free.
NOBODY, ONE, BOTH = (None, None), ((0,), None), ((0,), (1,))
BROKEN = ((0,), (7,))


def says(name="fake", *, status=Status.FEASIBLE, **answer):
    """An engine with one answer for all problems."""
    return lambda problem, limits, hint, report: Solution(name, status, **answer)


def attempt(solution, engine):
    """Status and note of an engine's only attempt."""
    (found,) = [a for a in solution.attempts if a.engine == engine]
    return found


def raises(problem, limits, hint, report):
    report(BOTH, 0, None)
    raise RuntimeError("no luck\ntoday")
