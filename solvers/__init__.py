"""One integer program for placing jobs on shared GPUs, and the engines that solve it.

The program is written out in ``solvers.problem``; ``solve`` is the one door to all engines. This package never
imports ``planner``.
"""

from solvers.engines import EngineUnavailable
from solvers.problem import (
    Attempt,
    Budget,
    Interference,
    Limits,
    Placed,
    Problem,
    Solution,
    Spot,
    Status,
    Terms,
)
from solvers.run import Progress, solve

__all__ = [
    "Attempt",
    "Budget",
    "EngineUnavailable",
    "Interference",
    "Limits",
    "Placed",
    "Problem",
    "Progress",
    "Solution",
    "Spot",
    "Status",
    "Terms",
    "solve",
]
