"""Where most is to be gained: how far the nodes of a plan stay behind the best of their shape, at prices for the jobs.

A node earns what its tenants' prices exceed their costs. Nodes of one shape could earn the same, so one far behind the best is where a
change of the queue has left a hole or forced somebody in, and where steps of ruin and recreate find the most.
"""

from __future__ import annotations

import numpy as np

from solvers.facts import Facts, numbered
from solvers.kernels.board import Board

#: The part of all nodes that is worth the steps, and no fewer nodes than these.
PART, LEAST = 0.1, 8


class Shortfall:
    """What the nodes of one Problem fail to earn.

    Parameters
    ----------
    price
        What running a job is charged, shape (J,), milli-GPU-seconds; NaN where nobody knows, which is then what jobs
        of its class are charged in the mean.
    """

    def __init__(self, facts: Facts, price: np.ndarray) -> None:
        p = facts.problem
        self._nodes, self._gpu_node, self._gpus = p.nodes, p.gpu_node, p.job_gpus
        self._price = _completed(np.array(facts.classes, np.int64), price)
        counts = np.zeros((p.nodes, facts.kinds), np.int64)
        np.add.at(counts, (p.gpu_node, p.gpu_kind), 1)
        self._shape = numbered(counts)

    def of(self, board: Board) -> np.ndarray:
        """By node, what it earns less than the best of its shape; shape (V,), milli-GPU-seconds."""
        at, cost = board.table("SPOT_AT"), board.table("COST")
        job = np.repeat(np.arange(len(self._gpus)), np.diff(at))
        there = (board.table("PLACED")[job] > 0) & (self._gpus[job] > 0)
        job, gpu = job[there], board.table("SPOT")[: at[-1]][there]
        earned = np.bincount(
            self._gpu_node[gpu], (self._price[job] - cost[job]) / self._gpus[job], self._nodes
        )
        best = np.full(self._shape.max(initial=0) + 1, -np.inf)
        np.maximum.at(best, self._shape, earned)
        behind: np.ndarray = best[self._shape] - earned
        return behind

    def worst(self, board: Board, nodes: np.ndarray) -> np.ndarray:
        """Of some nodes those that are furthest behind."""
        count = max(LEAST, round(PART * len(nodes)))
        return nodes[np.argsort(-self.of(board)[nodes], kind="stable")[:count]]


def _completed(classes: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Prices with the mean of the class where one is not known, 0 where none of the class is."""
    known = np.isfinite(price)
    classes = classes.reshape(price.shape)
    total = np.bincount(classes[known], price[known], len(classes))
    jobs = np.bincount(classes[known], minlength=len(classes))
    completed: np.ndarray = np.where(known, price, (total / np.maximum(jobs, 1))[classes])
    return completed
