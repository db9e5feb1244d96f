"""A plan from contents of single GPUs: the linear program's, rounded, packed into nodes, with late jobs let in.

On large clusters it is soon there and good; what it leaves free is for others to fill.
"""

from __future__ import annotations

import time

from solvers.patterns_master import Master
from solvers.problem import Placed, Problem
from solvers.slice_packing import plan
from solvers.slices import Slices
from solvers.urgent import Urgent

#: What a pool's nodes may hold of their cores and memory all together: no packing uses them up.
HOST_PART = 0.94


def sliced(problem: Problem, master: Master, deadline: float) -> Placed | None:
    """A valid plan, None if the deadline comes first; free GPUs may be left.

    Parameters
    ----------
    master
        The linear program of the bound by patterns.
    deadline
        On the clock of ``time.monotonic``; looked at between the steps.
    """
    slices = Slices(problem, master)
    program = slices.program(HOST_PART)
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return None
    chosen = slices.rounded(program, program.relaxed(left_s))
    placed = plan(slices, chosen[: len(slices.slices)], slices.facts.earliest_makespan)
    return Urgent(slices.facts).among(placed) if time.monotonic() < deadline else None
