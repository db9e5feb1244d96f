"""A gang over several nodes: the fewest nodes that hold it, in equal parts where it can be.

Three ways, tried in this order as far as the job and the problem allow: the same number of GPUs on each node,
with the same indices if asked for; and, if parts may differ, the fullest use of the roomiest nodes with the rest
on the node that it fits best.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solvers.facts import View, link_class
from solvers.problem import NETWORK
from solvers.state import State
from solvers.terms import Bid, Terms, choose, node_allowed, node_extra, own_cost

#: Index sets tried for a gang that needs the same indices on every node.
MAX_PATTERNS = 32


def spread(state: State, j: int, view: View, terms: Terms) -> Bid | None:
    """The cheapest places found for the gang on at least two nodes, None if there are none."""
    whole = np.flatnonzero(view.whole)
    if not len(whole):
        return None
    for nodes, count in _equal_parts(state, j, view):
        bid = (
            _same_indices(state, j, view, terms, whole, nodes, count)
            if state.problem.same_index
            else _equal(state, j, view, terms, whole, nodes, count)
        )
        if bid is not None:
            return bid
    if state.problem.equal_per_node or state.problem.same_index or state.facts.gpus_per_node[j]:
        return None
    return _unequal(state, j, view, terms, whole)


def _equal_parts(state: State, j: int, view: View) -> Iterator[tuple[int, int]]:
    """(nodes, GPUs on each), fewest nodes first."""
    f = state.facts
    n, each = f.job_gpus[j], f.gpus_per_node[j]
    most = min(f.max_nodes[j], n, len(view.nodes))
    for nodes in range(2, most + 1):
        count, rest = divmod(n, nodes)
        if not rest and count <= view.slots.shape[1] and each in (0, count):
            yield nodes, count


def _equal(
    state: State, j: int, view: View, terms: Terms, whole: np.ndarray, nodes: int, count: int
) -> Bid | None:
    """``count`` GPUs on each of ``nodes`` nodes."""
    groups, chosen = choose(state, j, view, terms, count, node_allowed(state, j, view, count), whole)
    return _cheapest_nodes(state, j, view, terms, groups, chosen, nodes)


def _cheapest_nodes(
    state: State, j: int, view: View, terms: Terms, groups: np.ndarray, chosen: np.ndarray, nodes: int
) -> Bid | None:
    """The cheapest ``nodes`` of the groups of one kind, by their own part of the cost."""
    if len(groups) < nodes:
        return None
    lost = terms.lost[chosen].max(1)
    extra = terms.added[chosen].sum(1) + node_extra(state, view)[view.group_node[groups]]
    kinds = view.group_kind[groups]
    part = own_cost(state, j, kinds, NETWORK, lost) / nodes + extra
    best: Bid | None = None
    for kind in np.unique(kinds[np.isfinite(part)]).tolist():
        at = np.flatnonzero(kinds == kind)
        if len(at) < nodes:
            continue
        at = at[np.argsort(part[at], kind="stable")[:nodes]]
        spot = tuple(sorted(view.gpus[chosen[at].ravel()].tolist()))
        best = _better(best, _bid(state, j, kind, float(lost[at].max()), float(extra[at].sum()), spot))
    return best


def _bid(state: State, j: int, kind: int, lost: float, extra: float, spot: tuple[int, ...]) -> Bid:
    link = link_class(state.problem, spot)
    own = own_cost(state, j, np.array([kind]), link, np.array([lost]))
    return Bid(float(own[0]) + extra, spot)


def _better(a: Bid | None, b: Bid) -> Bid | None:
    if not np.isfinite(b.cost):
        return a
    return b if a is None or b.cost < a.cost else a


def _same_indices(
    state: State, j: int, view: View, terms: Terms, whole: np.ndarray, nodes: int, count: int
) -> Bid | None:
    """The same ``count`` indices on each of ``nodes`` nodes."""
    groups, chosen = choose(state, j, view, terms, count, node_allowed(state, j, view, count), whole)
    if len(groups) < nodes:
        return None
    index = state.problem.gpu_index[view.gpus]
    at_index = np.full((len(groups), int(index.max()) + 1), -1)
    slots = view.slots[groups]
    rows, columns = np.nonzero(np.append(terms.allowed, False)[slots])
    at_index[rows, index[slots[rows, columns]]] = slots[rows, columns]
    patterns, common = np.unique(np.sort(index[chosen], 1), axis=0, return_counts=True)
    best: Bid | None = None
    for pattern in patterns[np.argsort(-common, kind="stable")[:MAX_PATTERNS]]:
        positions = at_index[:, pattern]
        has = (positions >= 0).all(1)
        bid = _cheapest_nodes(state, j, view, terms, groups[has], positions[has], nodes)
        if bid is not None:
            best = _better(best, bid)
    return best


def _unequal(state: State, j: int, view: View, terms: Terms, whole: np.ndarray) -> Bid | None:
    """Full use of the roomiest nodes, the rest where it fits best; one kind only."""
    best: Bid | None = None
    room = _room(state, j, view, terms, whole)
    for kind in np.unique(view.group_kind[whole]).tolist():
        mine = view.group_kind[whole] == kind
        parts = _parts(whole[mine], room[mine], state.facts.job_gpus[j], state.facts.max_nodes[j])
        if not parts:
            continue
        spot: list[int] = []
        lost, extra = 0.0, 0.0
        for group, count in parts:
            _, chosen = choose(
                state, j, view, terms, count, np.ones(len(view.nodes), bool), np.array([group])
            )
            spot += view.gpus[chosen[0]].tolist()
            lost = max(lost, float(terms.lost[chosen[0]].max()))
            extra += float(terms.added[chosen[0]].sum() + state.node_cost[view.nodes[view.group_node[group]]])
        best = _better(best, _bid(state, j, kind, lost, extra, tuple(sorted(spot))))
    return best


def _room(state: State, j: int, view: View, terms: Terms, whole: np.ndarray) -> np.ndarray:
    """How many of the job's GPUs each group can take, by its GPUs and its node's cores and memory."""
    f = state.facts
    room = np.append(terms.allowed, False)[view.slots[whole]].sum(1)
    nodes = view.nodes[view.group_node[whole]]
    for demand, offer in ((f.cpu_milli[j], state.cpu_room), (f.host_memory_mib[j], state.host_room)):
        # ceil(demand * c / n) fits in a whole number of milli-CPUs exactly if demand * c / n does.
        fits = offer[nodes] * f.job_gpus[j] // demand if demand else np.where(offer[nodes] >= 0, room, 0)
        room = np.minimum(room, np.maximum(fits, 0))
    return np.where(node_allowed(state, j, view, 0)[view.group_node[whole]], room, 0)


def _parts(groups: np.ndarray, room: np.ndarray, n: int, max_nodes: int) -> list[tuple[int, int]]:
    """(group, GPUs there) for the fewest groups that hold n GPUs, [] if more than ``max_nodes`` are needed."""
    order = np.argsort(-room, kind="stable")
    held = np.cumsum(room[order])
    if not len(held) or held[-1] < n:
        return []
    last = int(np.searchsorted(held, n))
    if last + 1 > max_nodes:
        return []
    parts = [(int(groups[i]), int(room[i])) for i in order[:last]]
    rest = n - sum(count for _, count in parts)
    fitting = [i for i in order[last:].tolist() if room[i] >= rest]
    parts.append((int(groups[fitting[-1]]), rest))
    return parts
