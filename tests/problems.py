"""Problems for the tests of ``solvers``: tiny ones by hand, and seeded random ones of any size.

``make(nodes=[node(...)], jobs=[job(...)])`` fills in every array that a test does not care about: one kind of
GPU of 80,000 MiB, one link group a node, room for three tenants, no slowdown, and an hour as the horizon, so
that a job's waiting cost is ``gpus * HOUR``. ``random_problem`` draws a cluster of four kinds of GPU and a queue with
three to five times more work than GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from random_problems import EVERYTHING, HOUR, random_problem

from solvers.problem import FORBIDDEN, MILLI, UNCAPPED, Interference, Problem

__all__ = ["EVERYTHING", "HOUR", "job", "make", "node", "random_problem"]

#: Room that no test fills by accident.
PLENTY = 10**9

#: Slowdown by (kind, victim type, co-tenant types), or of pairs (victim type, co-tenant type), whose excesses add.
Slowdown = Callable[[int, int, tuple[int, ...]], int] | Mapping[tuple[int, int], int] | int

GPU_DEFAULTS: dict[str, Any] = {
    "kind": 0,
    "memory_mib": 80_000,
    "margin_mib": 0,
    "share": 1000,
    "max_tenants": 3,
    "closed": False,
    "shared_outside": False,
    "until_s": -1,
    "holder": -1,
    "open_cost": 0,
}
NODE_DEFAULTS: dict[str, Any] = {
    "cpu_milli": PLENTY,
    "host_memory_mib": PLENTY,
    "node_closed": False,
    "used_cost": 0,
}
JOB_DEFAULTS: dict[str, Any] = {
    "type": 0,
    "move_cost": 0,
    "work": -1,
    "deferred_end": -1,
    "remaining_p90_s": -1,
    "cpu_milli": 0,
    "host_memory_mib": 0,
    "max_nodes": 1,
    "gpus_per_node": 0,
    "node_set": 0,
    "alone": False,
    "node_alone": False,
    "share_group": 0,
    "movable": False,
    "preemptible": False,
    "link_milli": (1000, 1000, 1000),
    "speed_milli": 1000,
    "memory_mib": 0,
    "share": 0,
    "cap_milli": UNCAPPED,
    "home": None,
}


def node(gpus: int = 1, **given: Any) -> dict[str, Any]:
    """A node; a GPU's fact may be one value for all of them or a sequence with one for each.

    ``links`` numbers the link group of each GPU within the node (-1: none); the default is one group.
    """
    known = {**GPU_DEFAULTS, **NODE_DEFAULTS, "links": 0}
    return {"gpus": gpus, **_filled(known, given)}


def job(gpus: int = 1, **given: Any) -> dict[str, Any]:
    """A job; a fact per kind may be one value for all kinds or a sequence with one for each."""
    size = max(gpus, 1)
    known = {
        **JOB_DEFAULTS,
        "size_milli": MILLI * size,
        "wait_cost": HOUR * size,
        "unit_speed": HOUR * size,
        "unit_interference": HOUR * size,
        "unit_locality": HOUR * size,
    }
    return {"gpus": gpus, **_filled(known, given)}


def make(
    nodes: Sequence[dict[str, Any]] = (),
    jobs: Sequence[dict[str, Any]] = (),
    *,
    slowdown: Slowdown = MILLI,
    types: int | None = None,
    kinds: int | None = None,
    node_sets: Sequence[Sequence[bool]] | None = None,
    **rest: Any,
) -> Problem:
    """A Problem from hand-written nodes and jobs; ``rest`` are fields of Problem by their own names."""
    gpus = [_gpu(v, i, spec) for v, spec in enumerate(nodes) for i in range(spec["gpus"])]
    kinds = kinds or 1 + max((g["kind"] for g in gpus), default=0)
    types = types or 1 + max((j["type"] for j in jobs), default=0)
    sets = np.ones((1, len(nodes)), bool) if node_sets is None else np.asarray(node_sets, bool)
    return Problem(
        **{f"gpu_{name}": _column(gpus, name) for name in ("node", "index", "link", *GPU_DEFAULTS)},
        node_cpu_milli=_column(nodes, "cpu_milli"),
        node_memory_mib=_column(nodes, "host_memory_mib"),
        node_closed=_column(nodes, "node_closed", bool),
        node_used_cost=_column(nodes, "used_cost"),
        node_sets=sets,
        **_job_arrays(jobs, kinds),
        home=tuple(None if j["home"] is None else tuple(j["home"]) for j in jobs),
        interference=Interference(types, kinds, _row(slowdown, types), _worst(slowdown)),
        **rest,
    )


def _filled(known: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    unknown = set(given) - set(known)
    if unknown:
        raise TypeError(f"unknown fact {sorted(unknown)}; known are {sorted(known)}")
    return {**known, **given}


def _gpu(v: int, index: int, spec: dict[str, Any]) -> dict[str, Any]:
    """One GPU of a node, with link groups numbered across the cluster."""
    facts = {name: _nth(spec[name], index) for name in GPU_DEFAULTS}
    group = _nth(spec["links"], index)
    return {**facts, "node": v, "index": index, "link": -1 if group < 0 else 1000 * v + group}


def _nth(value: Any, index: int) -> Any:
    return value if np.isscalar(value) else value[index]


def _column(rows: Sequence[dict[str, Any]], name: str, kind: type = np.int64) -> np.ndarray:
    boolean = name in {"closed", "shared_outside", "alone", "node_alone", "movable", "preemptible"}
    return np.array([row[name] for row in rows], bool if boolean else kind)


def _job_arrays(jobs: Sequence[dict[str, Any]], kinds: int) -> dict[str, np.ndarray]:
    per_kind = ("speed_milli", "memory_mib", "share", "cap_milli")
    arrays = {
        name: np.array([np.broadcast_to(j[name], kinds) for j in jobs], np.int64).reshape(-1, kinds)
        for name in per_kind
    }
    arrays["link_milli"] = np.array([j["link_milli"] for j in jobs], np.int64).reshape(-1, 3)
    arrays["job_gpus"] = _column(jobs, "gpus")
    arrays["job_type"] = _column(jobs, "type")
    plain = set(job()) - set(arrays) - {"gpus", "type", "home"}
    return arrays | {name: _column(jobs, name) for name in sorted(plain)}


def _row(slowdown: Slowdown, types: int) -> Callable[[int, tuple[int, ...]], np.ndarray]:
    def pairs(model: int, victim: int, co: tuple[int, ...]) -> int:
        if isinstance(slowdown, int):
            return slowdown
        if callable(slowdown):
            return slowdown(model, victim, co)
        each = [slowdown.get((victim, other), MILLI) for other in co]
        return FORBIDDEN if FORBIDDEN in each else MILLI + sum(s - MILLI for s in each)

    return lambda model, co: np.array([pairs(model, victim, co) for victim in range(types)])


def _worst(slowdown: Slowdown) -> int:
    if isinstance(slowdown, Mapping):
        return MILLI + 10 * sum(s - MILLI for s in slowdown.values() if s < FORBIDDEN)
    return slowdown if isinstance(slowdown, int) else 100 * MILLI
