"""Whether enough GPUs lie together: from usable GPUs a node to what a gang of a given shape can get there.

A *slot* is one kind of GPU on one node. Counts of usable GPUs a slot go in, the largest gang of the wanted shape
comes out, so that a reason can say both "no" and "the most there is".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.problem import Problem

UNBOUNDED = 2**40


@dataclass(frozen=True)
class Slots:
    """The kinds of GPU on each node, as flat arrays."""

    node: np.ndarray  # (S,)
    kind: np.ndarray  # (S,)
    of_gpu: np.ndarray  # (G,)

    def counts(self, usable: np.ndarray, gpus: np.ndarray) -> np.ndarray:
        """Usable GPUs in each slot; ``usable`` is a mask over the indices ``gpus``."""
        return np.bincount(self.of_gpu[gpus[usable]], minlength=len(self.node))


@dataclass(frozen=True)
class Shape:
    """How a job's GPUs must lie."""

    gpus: int
    max_nodes: int
    per_node: int  # 0: any number
    equal: bool
    same_index: bool


def slots_of(problem: Problem) -> Slots:
    """The slots of a Problem, node by node."""
    kinds = 1 + int(problem.gpu_kind.max(initial=0))
    key, of_gpu = np.unique(problem.gpu_node * kinds + problem.gpu_kind, return_inverse=True)
    return Slots(node=key // kinds, kind=key % kinds, of_gpu=of_gpu)


def shape_of(problem: Problem, job: int) -> Shape:
    """The shape that a job of the Problem asks for."""
    return Shape(
        gpus=problem.job_gpus.item(job),
        max_nodes=problem.max_nodes.item(job),
        per_node=problem.gpus_per_node.item(job),
        equal=problem.equal_per_node,
        same_index=problem.same_index,
    )


def host_limit(free: np.ndarray, demand: int, gpus: int) -> np.ndarray:
    """GPUs of a job that a node's free cores (or memory) are enough for.

    A node with c of n GPUs gives ceil(demand * c / n) <= free, which for whole numbers is c <= free * n / demand.
    """
    if demand <= 0:
        # A host that is overcommitted already takes no newcomer, not even one that asks for nothing.
        return np.where(free >= 0, UNBOUNDED, 0)
    return np.maximum(0, free * gpus // demand)


def most_together(shape: Shape, counts: np.ndarray, slots: Slots) -> int:
    """The largest number of GPUs, up to the job's, that lie as the job wants them (0: not one)."""
    best = 0
    for kind in np.unique(slots.kind[counts > 0]).tolist():
        best = max(best, _most_of_a_kind(shape, counts[slots.kind == kind]))
        if best >= shape.gpus:
            return shape.gpus
    return best


def _most_of_a_kind(shape: Shape, counts: np.ndarray) -> int:
    if shape.per_node:
        nodes = int((counts >= shape.per_node).sum())
        return min(shape.gpus, shape.per_node * min(nodes, shape.max_nodes))
    if shape.equal or shape.same_index:
        return _most_equal(shape, counts)
    if shape.max_nodes == 1 or len(counts) == 1:
        return min(shape.gpus, int(counts.max(initial=0)))
    ranked = np.sort(counts)[::-1][: shape.max_nodes]
    return min(shape.gpus, int(ranked.sum()))


def _most_equal(shape: Shape, counts: np.ndarray) -> int:
    """The same number on each node; a gang that cannot be divided so gets the most on one node."""
    best = 0
    for nodes in range(1, min(shape.max_nodes, len(counts), shape.gpus) + 1):
        on_each = int(np.sort(counts)[::-1][nodes - 1])
        if shape.gpus % nodes == 0 and on_each * nodes >= shape.gpus:
            return shape.gpus
        best = max(best, min(shape.gpus - 1, on_each * nodes))
    return best


def split_sentence(counts: np.ndarray, most: int = 6) -> str:
    """Free GPUs node by node, largest first: ``4+4``, ``3+2+1+…``."""
    ranked = np.sort(counts[counts > 0])[::-1]
    return "+".join(map(str, ranked[:most].tolist())) + ("+…" if len(ranked) > most else "")
