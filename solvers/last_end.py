"""A job that stands for the ends outside a part of a problem, so that the part pays for no end that the whole has anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from solvers.problem import MILLI, Problem
from solvers.twins import OF_JOBS


def with_last_end(problem: Problem, end: int) -> Problem:
    """The problem with one more job, the last: it can run nowhere, waits for nothing, and ends at ``end`` ticks."""
    given = {"job_gpus": 1, "size_milli": MILLI, "link_milli": MILLI, "cap_milli": MILLI, "max_nodes": 1}
    given |= {"work": 1, "remaining_p90_s": -1, "deferred_end": end}
    arrays: dict[str, Any] = {}
    for name in OF_JOBS:
        own = getattr(problem, name)
        row = np.full((1, *own.shape[1:]), given.get(name, 0)).astype(own.dtype)
        arrays[name] = np.concatenate([own, row])
    return replace(problem, **arrays, home=(*problem.home, None))
