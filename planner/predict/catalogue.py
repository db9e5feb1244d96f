"""Features of well-known architectures, so that a job that only gives a name is known as well as one with a graph.

``architectures.json`` holds what ``graph.features`` gives for the project's own definitions of them (written from the
papers) for a batch of one. Everything but the weights is proportional to the batch, which makes any batch size known;
the package onnx is not needed. An architecture with inputs of two sizes has an entry for each: ``resnet18/cifar10``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from planner.predict.graph import Features

FILE = "architectures.json"
#: What an entry says beside its features.
ABOUT = ("name", "aliases", "datasets", "default", "family", "input")


@dataclass(frozen=True)
class Architecture:
    """One architecture with one kind of input.

    ``aliases`` and ``datasets`` are as ``plain`` leaves names. ``default``: this input is meant where a job names no
    data set, or one that is not known here. ``one``: features for a batch of one.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    datasets: tuple[str, ...]
    default: bool
    family: str  # cnn, gan, transformer, recurrent, recommendation, reinforcement, graph or embedding
    input: str
    one: Features

    def at(self, batch: int) -> Features:
        """Features for a batch of this size."""
        return self.one.scaled(batch)


@cache
def architectures() -> MappingProxyType[str, Architecture]:
    """All of them by key, in the order of the keys."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return MappingProxyType({key: _architecture(key, entry) for key, entry in json.loads(text).items()})


def _architecture(key: str, entry: dict[str, Any]) -> Architecture:
    flops = sum(entry["flops_by_operator"].values())
    numbers = {name: value for name, value in entry.items() if name not in ABOUT}
    return Architecture(
        key=key,
        name=entry["name"],
        aliases=tuple(entry["aliases"]),
        datasets=tuple(entry["datasets"]),
        default=entry["default"],
        family=entry["family"],
        input=entry["input"],
        one=Features(batch=1, flops=flops, **numbers),
    )


@lru_cache(maxsize=4096)
def find(name: str, dataset: str | None = None) -> Architecture | None:
    """The architecture that people call by this name, with the inputs of that data set; None if not known.

    A name without a size means the member of the family that is used most: ``resnet`` is ResNet-50.
    """
    called = [a for a in architectures().values() if plain(name) in a.aliases]
    fitting = [a for a in called if dataset is not None and plain(dataset) in a.datasets]
    return next(iter(fitting or [a for a in called if a.default]), None)


def plain(name: str) -> str:
    """Lower case, letters and digits only: ``ResNet-18`` is ``resnet18``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
