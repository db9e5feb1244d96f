"""Why a job runs where it does, why another waits, and the cheapest change that would start it."""

from __future__ import annotations

from planner.explain.fixes import fixes
from planner.explain.job import Explanation, explain_job
from planner.explain.reasons import reasons
from planner.explain.terms import placed_of

__all__ = ["Explanation", "explain_job", "fixes", "placed_of", "reasons"]
