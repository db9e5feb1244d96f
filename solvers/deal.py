"""Deals the nodes and the jobs of a Problem into k parts that are each a small image of the whole.

Nodes are dealt by shape, jobs by class, both so that no part gets ahead of the others; chance decides only between
equals. A job that fits only where some node is goes to a part with such a node. Nothing here decides where a job runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from solvers.facts import Facts
from solvers.problem import Problem, Spot

#: What two GPUs must have in common for their nodes to be of one shape, memory and links apart.
_OF_GPUS = ("gpu_kind", "gpu_share", "gpu_max_tenants", "gpu_closed", "gpu_shared_outside")
#: Memories and cores count as equal if they are of one step; eight steps double them.
STEPS = 8


def _nodes_of(problem: Problem, j: int, spot: Spot) -> Spot:
    return tuple(problem.gpu_node[list(spot)].tolist()) if problem.job_gpus[j] else spot


def tied(problem: Problem) -> list[list[int]]:
    """The nodes in groups that may not be parted, because a gang runs across them."""
    group = {v: [v] for v in range(problem.nodes)}
    for j, home in enumerate(problem.home):
        for v in _nodes_of(problem, j, home)[1:] if home else ():
            first, other = group[_nodes_of(problem, j, home or ())[0]], group[v]
            if first is not other:
                first += other
                group.update(dict.fromkeys(other, first))
    return list({id(nodes): nodes for nodes in group.values()}.values())


def _shapes(problem: Problem) -> np.ndarray:
    """A number for each node, shape (V,); nodes of one number have the same node sets, and hosts and GPUs alike."""
    columns = [getattr(problem, name) for name in _OF_GPUS]
    rows = np.stack([problem.gpu_node, problem.gpu_link, _step(problem.gpu_memory_mib), *columns], 1)
    gpus: list[list[tuple[Any, ...]]] = [[] for _ in range(problem.nodes)]
    links: list[dict[int, int]] = [{} for _ in range(problem.nodes)]
    for v, link, *facts in rows.tolist():
        group = links[v].setdefault(link, len(links[v])) if link >= 0 else -1  # numbered within the node
        gpus[v].append((group, *facts))
    hosts = (_step(problem.node_cpu_milli), _step(problem.node_memory_mib), problem.node_closed)
    keys = zip(np.stack([*hosts, *problem.node_sets], 1).tolist(), gpus, strict=True)
    known: dict[Any, int] = {}
    numbers = [known.setdefault((tuple(host), tuple(own)), len(known)) for host, own in keys]
    return np.array(numbers, np.int64)


def _step(amount: np.ndarray) -> np.ndarray:
    step: np.ndarray = np.round(STEPS * np.log2(np.maximum(amount, 1))).astype(np.int64)
    return step


def part_of_nodes(problem: Problem, groups: list[list[int]], k: int, rng: np.random.Generator) -> np.ndarray:
    """The part of each node, shape (V,): of every shape as many in each part, and as much that runs there."""
    shape = _shapes(problem)
    load = np.zeros(problem.nodes, np.int64)
    for j, home in enumerate(problem.home):
        np.add.at(load, list(_nodes_of(problem, j, home or ())), 1)
    kinds = np.zeros((problem.nodes, problem.speed_milli.shape[1]), np.int64)
    np.add.at(kinds, (problem.gpu_node, problem.gpu_kind), 1)
    draw = rng.random(len(groups))
    order = sorted(
        range(len(groups)),
        key=lambda i: (-len(groups[i]), shape[groups[i][0]], -load[groups[i]].sum(), draw[i]),
    )
    part = np.full(problem.nodes, -1)
    shapes = np.zeros((k, int(shape.max(initial=0)) + 1), np.int64)  # nodes
    stock = np.zeros((k, kinds.shape[1]), np.int64)  # GPUs
    runs = np.zeros(k, np.int64)
    for turn, i in enumerate(order):
        nodes, own = groups[i], kinds[groups[i]].sum(0)
        alike = shapes[:, np.unique(shape[nodes])].sum(1), stock[:, own > 0].sum(1), stock.sum(1), runs
        ranked = np.lexsort((rng.random(k), *reversed(alike)))
        empty = shapes.sum(1) == 0
        if empty.sum() >= len(order) - turn:  # no part stays without a node
            ranked = ranked[empty[ranked]]
        p = int(ranked[0])
        part[nodes] = p
        np.add.at(shapes[p], shape[nodes], 1)
        stock[p] += own
        runs[p] += load[nodes].sum()
    return part


def part_of_jobs(problem: Problem, node_part: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """The part of each job, shape (J,): its home's, or for a queued job in turns within its class.

    A turn goes to the part that is most behind; how much it gets is measured by what it has for the job's class. A job
    that finds a place in some parts only goes to one of these, one that finds none anywhere where it may wait.
    """
    part = np.full(problem.jobs, -1)
    for j, home in enumerate(problem.home):
        if home is not None:
            part[j] = node_part[_nodes_of(problem, j, home)[0]]
    queued = np.flatnonzero(part < 0)
    held = _held_in(problem, node_part, k)
    reach = _reach(problem, queued, node_part, k)
    kinds = np.array(Facts(problem).classes, np.int64)[queued]
    behind = rng.random(k) / 2
    for i in np.lexsort((rng.random(len(queued)), kinds, -problem.job_gpus[queued])).tolist():
        j = int(queued[i])
        asked, offer = max(1, int(problem.job_gpus[j])), reach[i]
        behind += asked * (offer / offer.sum() if offer.any() else np.full(k, 1 / k))
        open_to = offer > 0 if offer.any() else np.ones(k, bool)
        p = held[j] if j in held else int(np.where(open_to, behind, -np.inf).argmax())
        part[j] = p
        behind[p] -= asked
    return part


def _held_in(problem: Problem, node_part: np.ndarray, k: int) -> dict[int, int]:
    """For each holder of reserved GPUs the part with most of them; in the others nobody holds them."""
    reserved = np.flatnonzero(problem.gpu_until_s >= 0)
    count: dict[int, np.ndarray] = {}
    for g in reserved.tolist():
        count.setdefault(problem.gpu_holder.item(g), np.zeros(k))[node_part[problem.gpu_node[g]]] += 1
    return {j: int(held.argmax()) for j, held in count.items()}


def _reach(problem: Problem, queued: np.ndarray, node_part: np.ndarray, k: int) -> np.ndarray:
    """How many GPUs (nodes, for a job without) of each part a queued job could use; 0 if it fits nowhere there.

    Shape (len(queued), k). Only what no plan can change is looked at: kinds, node sets, sizes, what is closed.
    """
    shape = _shapes(problem)
    stocks, rooms = [], []
    for s in range(int(shape.max(initial=0)) + 1):
        nodes = np.flatnonzero(shape == s)
        for kind, room in _rooms(problem, queued, nodes):
            stocks.append((kind, np.bincount(node_part[nodes], minlength=k)))
            rooms.append(room)
    table = np.stack([problem.job_gpus[queued], problem.max_nodes[queued], *rooms], 1)
    rows, row_of = np.unique(table, axis=0, return_inverse=True)
    found = np.zeros((len(rows), k))
    for i, (n, most, *room) in enumerate(rows.tolist()):
        for p in range(k):
            have = [(kind, r, int(count[p])) for (kind, count), r in zip(stocks, room, strict=True) if r]
            if any(_most(have, kind, most) >= max(1, n) for kind in {kind for kind, _, _ in have}):
                found[i, p] = sum(r * count for _, r, count in have)
    reach: np.ndarray = found[row_of.ravel()]
    return reach


def _rooms(problem: Problem, queued: np.ndarray, nodes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """For each kind on a node of a shape, and -1 for the node itself, the GPUs there that each job could use at once.

    The largest node of the shape counts; a job that is dealt where only a smaller one is waits for the last fill.
    """
    n, per_node, v = problem.job_gpus[queued], problem.gpus_per_node[queued], nodes[0]
    may = problem.node_sets[problem.node_set[queued], v] & (not problem.node_closed[v])
    most = np.full(len(queued), problem.gpus + 1)
    for need, offer in (
        (problem.cpu_milli[queued], problem.node_cpu_milli[nodes].max()),
        (problem.host_memory_mib[queued], problem.node_memory_mib[nodes].max()),
    ):
        most = np.where(need > 0, np.minimum(most, offer * np.maximum(n, 1) // np.maximum(need, 1)), most)
    yield -1, np.where(may & (n == 0), np.minimum(most, 1), 0)
    open_to = np.isin(problem.gpu_node, nodes) & ~np.asarray(problem.gpu_closed, bool)
    for kind in np.unique(problem.gpu_kind[open_to]).tolist():
        gpus = np.flatnonzero(open_to & (problem.gpu_kind == kind))
        fits = problem.memory_mib[queued, kind] <= problem.gpu_memory_mib[gpus].max()
        fits &= may & (n > 0) & (problem.speed_milli[queued, kind] > 0)
        room = np.minimum(most, len(gpus) // len(nodes))
        room = np.where(per_node > 0, np.where(room >= per_node, per_node, 0), room)
        yield kind, np.where(fits, room, 0)


def _most(have: list[tuple[int, int, int]], kind: int, nodes: int) -> int:
    """GPUs of a kind on so many nodes at most, of (kind, GPUs a node, nodes)."""
    total = 0
    for _, room, count in sorted((row for row in have if row[0] == kind), key=lambda row: -row[1]):
        total += room * min(count, nodes)
        nodes -= min(count, nodes)
    return total
