"""Nodes that nothing tells apart are of one shape: what one of them may hold, so may the others, at the same cost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solvers.problem import Problem


def shapes(
    problem: Problem, nodes: Iterable[int], open_to: np.ndarray, apart: np.ndarray
) -> tuple[np.ndarray, list[list[int]]]:
    """Number nodes by shape, in the order in which shapes come.

    Parameters
    ----------
    nodes : iterable of int
        Those that get a shape, in ascending order.
    open_to : ndarray, shape (n, V)
        Whom each node takes, in whatever terms: nodes of one shape have equal columns.
    apart : ndarray, shape (V,), bool
        Nodes that share their shape with no other.

    Returns
    -------
    tuple
        The shape of each node, -1 for one that gets none, shape (V,); and the nodes of each shape.
    """
    p, numbers = problem, dict[object, int]()
    arrays = (
        p.gpu_kind, p.gpu_memory_mib, p.gpu_margin_mib, p.gpu_share, p.gpu_max_tenants, p.gpu_closed, p.gpu_index,
        p.gpu_shared_outside, p.gpu_open_cost, p.gpu_until_s, np.where(p.gpu_until_s >= 0, p.gpu_holder, -1),
    )  # fmt: skip
    shape, alike = np.full(p.nodes, -1), list[list[int]]()
    for v in nodes:
        gpus = np.flatnonzero(p.gpu_node == v)
        links = p.gpu_link[gpus].tolist()
        key = (
            tuple(tuple(array[gpus].tolist()) for array in arrays),
            tuple(links.index(link) if link >= 0 else -1 for link in links),  # numbered within the node
            int(p.node_cpu_milli[v]), int(p.node_memory_mib[v]), int(p.node_used_cost[v]),
            tuple(open_to[:, v].tolist()), v if apart[v] else -1,
        )  # fmt: skip
        shape[v] = numbers.setdefault(key, len(numbers))
        if shape[v] == len(alike):
            alike.append([])
        alike[int(shape[v])].append(v)
    return shape, alike


def inhabited(problem: Problem) -> np.ndarray:
    """The nodes on which a job is at home; shape (V,), bool."""
    found = np.zeros(problem.nodes, bool)
    for j, home in enumerate(problem.home):
        if home is not None:
            found[problem.gpu_node[list(home)] if problem.job_gpus[j] else list(home)] = True
    return found
