"""Fitted coefficients that ship with the planner."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from planner.gpu_models import canonical_model

FILE = "default_interference.json"


@cache
def interference() -> dict[str, Any]:
    """The shipped model of slowdowns: how it was fitted, and its coefficients."""
    whole: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    )
    return whole


def contention_of(gpu_model: str) -> float:
    """Part of a neighbour's turns on a GPU that is felt; of a GPU model that was not measured, that of the newest that was."""
    told = interference()["parameters"]
    model = canonical_model(gpu_model).partition(":")[0]
    return float(told["contention"].get(model, told["contention_elsewhere"]))
