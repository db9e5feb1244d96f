"""Fitted coefficients that ship with the planner."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from planner.gpu_models import canonical_model, without_size

FILE = "default_interference.json"
LINKS_FILE = "default_links.json"


def _shipped(file: str) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(
        resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    )
    return whole


@cache
def interference() -> dict[str, Any]:
    """The shipped model of slowdowns: how it was fitted, and its coefficients."""
    return _shipped(FILE)


@cache
def links() -> dict[str, Any]:
    """The shipped bandwidths: ``about`` tells where they come from, ``digest`` is of the rows that they were fitted to."""
    return _shipped(LINKS_FILE)


def contention_of(gpu_model: str) -> float:
    """Part of a neighbour's turns on a GPU that is felt; of a GPU model that was not measured, that of the newest that was."""
    told = interference()["parameters"]
    model = without_size(canonical_model(gpu_model))
    return float(told["contention"].get(model, told["contention_elsewhere"]))
