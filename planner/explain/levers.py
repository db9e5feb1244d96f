"""Numbers that could be raised or lowered: budgets, priority, memory, cores, caps. Each a ladder, searched for the least change.

A budget or a priority is tried on the inputs as they were (``fresh``), where others may wait instead; a budget also as
high as starts the job beside all that the plan starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, takewhile
from typing import TYPE_CHECKING

import numpy as np

from planner import edit
from planner.model import Job, Snapshot, Throttle
from planner.policy import Policy

if TYPE_CHECKING:
    from planner.explain.changes import Situation

#: Slowdown caps that are tried, before none at all.
CAPS = tuple(np.round(np.arange(1.05, 6.01, 0.05), 2).tolist())
PRIORITIES = (1, 2, 5, 10, 20, 50, 100)
#: Of a job's GPUs on one node, the numbers for which its demand on the host is worked out.
MOST_PARTS = 16

Make = Callable[[Snapshot, Policy], tuple[Snapshot, Policy]]


def steps(least: float, enough: float, by: float = 1) -> Iterator[float]:
    """From the least that could work in whole steps up to what is enough beside all others, which is left out."""
    return takewhile(lambda x: x < enough, (least + i * by for i in count()))


def size(job: Job) -> float:
    """GPUs it counts as in a quota."""
    return job.gpus * (job.gpu_share_milli or 1000) / 1000


def held(snapshot: Snapshot, amount: Callable[[Job], float]) -> float:
    """What the running jobs hold of something."""
    return sum(amount(j) for j in snapshot.jobs if j.running)


def with_quota(index: int, gpus: float) -> Make:
    """One quota of the policy raised."""

    def make(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
        raised = edit.changed(policy.quotas[index], gpus=gpus)
        quotas = (*policy.quotas[:index], raised, *policy.quotas[index + 1 :])
        return snapshot, edit.with_policy(policy, {"quotas": quotas})

    return make


def with_licences(name: str, how_many: int) -> Make:
    """More of one licence."""

    def make(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
        licences = {**snapshot.cluster.licences, name: how_many}
        cluster = edit.changed(snapshot.cluster, licences=licences)
        return edit.changed(snapshot, cluster=cluster), policy

    return make


def with_throttle(group: str, most: int) -> Make:
    """More jobs of one group at a time."""

    def looser(job: Job) -> Job:
        if job.throttle is None or job.throttle.group != group:
            return job
        return edit.changed(job, throttle=Throttle(group=group, max_running=most))

    return lambda s, p: (edit.changed(s, jobs=tuple(map(looser, s.jobs))), p)


def host_values(s: Situation, key: str) -> list[float]:
    """Less of a host resource: what the job may ask for to fit what nodes have left, most first."""
    asked = getattr(s.job, key)
    found: set[float] = set()
    for node in s.snapshot.cluster.nodes:
        total = getattr(node, key)
        if total is None:
            continue
        gpus = {g.id for g in node.gpus}
        left = total - sum(_part(getattr(j, key), _on(j, node.name, gpus), j.gpus) for j in s.snapshot.jobs)
        n = max(1, s.job.gpus)
        for k in range(1, min(n, len(gpus) or 1, MOST_PARTS) + 1):
            # k of the n GPUs take ceil(asked k / n), which fits if asked k / n does.
            value = left * n / k
            found.add(float(int(value)) if key == "host_memory_mib" else int(value * 1000) / 1000)
    return sorted((v for v in found if 0 < v < asked), reverse=True)


def _on(job: Job, name: str, gpus: set[str]) -> int:
    """How many of its GPUs a running job has on a node; 1 for a job without GPUs that runs there."""
    return len(gpus.intersection(job.running_on)) if job.gpus else int(name in job.running_on)


def _part(demand: float, held_there: int, n: int) -> float:
    return float(np.ceil(demand * held_there / n)) if n > 1 else demand * held_there
