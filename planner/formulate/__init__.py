"""Snapshot + Forecast + Policy -> Problem, and Solution -> Plan. The only place that scales to integers, and back.

``cluster`` turns GPUs and nodes into arrays, ``jobs`` the jobs, ``costs`` time into GPU-seconds, ``reserve`` picks
the reservations, ``problem`` puts them together, ``interpret`` reads the answer. The program itself is
written out in ``solvers.problem``.
"""

from __future__ import annotations

from planner.formulate.contract import Capabilities, Excluded, Formulated, Kind
from planner.formulate.interpret import interpret
from planner.formulate.problem import formulate

__all__ = ["Capabilities", "Excluded", "Formulated", "Kind", "formulate", "interpret"]
