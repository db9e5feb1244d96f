"""What a placement leaves free, GPU by GPU and node by node, in the integers of the Problem.

Reasons are given to thousands of waiting jobs at once, so everything that does not depend on the job is
worked out here once: free memory, share and tenant slots, who is there, and which hosts have what left.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from solvers.problem import Placed, Problem

MIXED = -2
NOBODY = -1


@dataclass(frozen=True)
class Room:
    """What is left under a placement; arrays are read-only, in the order of the Problem."""

    tenants: tuple[tuple[int, ...], ...]  # (G,) problem jobs on each GPU
    count: np.ndarray  # (G,) how many
    open: np.ndarray  # (G,) bool: a newcomer may enter at all
    free_mib: np.ndarray  # (G,) after the margin that a newcomer would bring about; may be negative
    free_share: np.ndarray  # (G,)
    group: np.ndarray  # (G,) share group of the tenants, NOBODY or MIXED
    guarded: np.ndarray  # (G,) bool: a tenant is to be alone
    firm: np.ndarray  # (G,) bool: and said so itself, whatever becomes known
    node_cpu_free: np.ndarray  # (V,)
    node_memory_free: np.ndarray  # (V,)
    node_jobs: np.ndarray  # (V,) how many jobs use the node
    node_open: np.ndarray  # (V,) bool: a newcomer may enter at all

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


def room_under(problem: Problem, placed: Placed, closed: np.ndarray, wishes: np.ndarray) -> Room:
    """Turn a placement round into what it leaves.

    No newcomer enters the GPUs in ``closed`` (G,); the jobs in ``wishes`` (J,) share with nobody by their own wish.
    """
    job, gpu = _spots(problem, placed)
    kind = problem.gpu_kind[gpu]
    count = np.bincount(gpu, minlength=problem.gpus)
    used_mib = _total(gpu, problem.memory_mib[job, kind], problem.gpus)
    used_share = _total(gpu, problem.share[job, kind], problem.gpus)
    node_job, node, part = _on_nodes(problem, placed, job, gpu)
    cpu = _split(problem.cpu_milli[node_job], part, problem.job_gpus[node_job])
    memory = _split(problem.host_memory_mib[node_job], part, problem.job_gpus[node_job])
    claimed = np.zeros(problem.nodes, bool)
    claimed[node[problem.node_alone[node_job]]] = True
    node_open = ~(problem.node_closed.astype(bool) | claimed)
    return Room(
        tenants=_tenants(problem.gpus, job, gpu),
        count=count,
        open=~closed & node_open[problem.gpu_node] & (count < problem.gpu_max_tenants),
        free_mib=problem.gpu_memory_mib - used_mib - np.where(count > 0, problem.gpu_margin_mib, 0),
        free_share=problem.gpu_share - used_share,
        group=_groups(problem, job, gpu),
        guarded=np.bincount(gpu, weights=problem.alone[job], minlength=problem.gpus) > 0,
        firm=np.bincount(gpu, weights=wishes[job], minlength=problem.gpus) > 0,
        node_cpu_free=problem.node_cpu_milli - _total(node, cpu, problem.nodes),
        node_memory_free=problem.node_memory_mib - _total(node, memory, problem.nodes),
        node_jobs=np.bincount(node, minlength=problem.nodes),
        node_open=node_open,
    )


def _spots(problem: Problem, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
    """Job and GPU of every occupied place."""
    pairs = [(j, g) for j, spot in enumerate(placed) if spot and problem.job_gpus.item(j) for g in spot]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _on_nodes(
    problem: Problem, placed: Placed, job: np.ndarray, gpu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Job, node and the number of its GPUs there (0 for a job without GPUs), each pair once."""
    nodes = max(1, problem.nodes)
    pair, part = np.unique(job * nodes + problem.gpu_node[gpu], return_counts=True)
    bare = [(j, spot[0]) for j, spot in enumerate(placed) if spot and not problem.job_gpus.item(j)]
    more = np.array(bare, np.int64).reshape(-1, 2)
    return (
        np.concatenate([pair // nodes, more[:, 0]]),
        np.concatenate([pair % nodes, more[:, 1]]),
        np.concatenate([part, np.zeros(len(more), np.int64)]),
    )


def _split(demand: np.ndarray, part: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The part of a job's demand on a node with ``part`` of its n GPUs, rounded up; all of it if n is 0."""
    return np.where(n > 0, -(-demand * part // np.maximum(n, 1)), demand)


def _total(where: np.ndarray, amount: np.ndarray, size: int) -> np.ndarray:
    """Integer sums by place; exact, unlike weighted bincount."""
    total = np.zeros(size, np.int64)
    np.add.at(total, where, amount)
    return total


def _tenants(gpus: int, job: np.ndarray, gpu: np.ndarray) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(gpus)]
    for j, g in zip(job.tolist(), gpu.tolist(), strict=True):
        found[g].append(j)
    return tuple(tuple(jobs) for jobs in found)


def _groups(problem: Problem, job: np.ndarray, gpu: np.ndarray) -> np.ndarray:
    """The tenants' one share group, or that there is none, or that they differ."""
    low = np.full(problem.gpus, np.iinfo(np.int64).max)
    high = np.full(problem.gpus, NOBODY)
    np.minimum.at(low, gpu, problem.share_group[job])
    np.maximum.at(high, gpu, problem.share_group[job])
    return np.where(high == NOBODY, NOBODY, np.where(low == high, high, MIXED))
