"""Where one job would go for the least added cost, as things stand in a State.

One question is asked of all GPUs of a view at once: what would the job cost there (its own loss, what it adds to
the tenants, the GPU and node it opens), and may it go there at all. A job of one GPU takes the cheapest. A gang takes
the cheapest n GPUs of one link group or node, or else, if it may, of the fewest nodes.
"""

from __future__ import annotations

import numpy as np

from solvers.facts import NO_SIZE, View, link_class
from solvers.problem import MILLI, NVLINK, Spot
from solvers.spread import spread
from solvers.state import State, counts_by_node
from solvers.terms import Bid, Terms, choose, late_cost, node_allowed, node_extra, own_cost, terms_of

#: Groups of GPUs whose cost is worked out exactly where the quick sum counts a neighbour more than once.
TRIALS = 3


def cheapest(
    state: State, j: int, view: View, *, overlook: float = 0.0, rng: np.random.Generator | None = None
) -> Bid | None:
    """The place that adds the least cost, None if there is none; ``overlook`` is the part of GPUs not seen.

    The job must be open. A running job is moved off its home: to stay is the answer of ``stay``.
    """
    f = state.facts
    if any(state.budget_room[b] < amount for b, amount in f.budget_of.get(j, ())):
        return None
    moves = state.problem.home[j] is not None
    if moves and (not f.movable[j] or state.moved > state.problem.max_moves):
        return None
    n, home = f.job_gpus[j], state.problem.home[j]
    if n == 0:
        return _node(state, j, view)
    state.refresh(view)
    terms = terms_of(state, j, view)
    if home is not None:
        terms.allowed[np.isin(view.gpus, home)] = False
    if rng is not None and overlook:
        terms.allowed[rng.random(len(terms.allowed)) < overlook] = False
    bid = _single(state, j, view, terms) if n == 1 else _gang(state, j, view, terms)
    return bid if bid is None or not moves else Bid(bid.cost + f.move_cost[j], bid.spot)


def stay(state: State, j: int, view: View) -> Bid | None:
    """What it costs an open running job to be back at home, None if newcomers there leave no room for it.

    Beside residents alone nothing binds; beside newcomers the job is judged like one of them, which is stricter
    than need be and never wrong. The home must lie in the view.
    """
    f, home = state.facts, state.problem.home[j]
    if home is None:
        return None
    counts = counts_by_node(f.gpu_node, home) if f.job_gpus[j] else {home[0]: 0}
    strict = any(state.is_newcomer(b) for v in counts for b in state.on_node[v])
    if strict and not all(node_allowed(state, j, f.view([v]), count).all() for v, count in counts.items()):
        return None
    if not f.job_gpus[j]:
        return Bid(0.0, home)
    state.refresh(view)
    terms = terms_of(state, j, view)
    at = np.flatnonzero(np.isin(view.gpus, home))
    if strict and not terms.allowed[at].all():
        return None
    open_to = state.least[f.job_type[j]][view.gpus[at]] < NO_SIZE
    lost = np.where(open_to, terms.lost[at], 0.0).max(keepdims=True)
    own = own_cost(state, j, view.kind[at[:1]], link_class(state.problem, home), lost)
    cost = float(own[0] + terms.added[at][open_to].sum())
    return Bid(cost if np.isfinite(cost) else 0.0, home)


def _node(state: State, j: int, view: View) -> Bid | None:
    """A job without GPUs takes the node with the least room left, first among those whose GPUs are taken."""
    f = state.facts
    home = state.problem.home[j]
    allowed = node_allowed(state, j, view, 0)
    if home is not None:
        allowed &= view.nodes != home[0]
    if not allowed.any():
        return None
    moving = f.move_cost[j] if home is not None else 0
    own = float(f.unit_locality[j] * (1 - MILLI / f.link_milli[j][NVLINK]))
    at = slice(None) if view.everything else view.nodes
    free = np.bincount(view.node_of, state.empty[view.gpus], len(view.nodes)) > 0
    most = max(1, int(state.cpu_room.max()))
    rank = np.where(allowed, free + 0.5 * state.cpu_room[at] / most, np.inf)
    spot = (int(view.nodes[int(rank.argmin())]),)
    late = late_cost(state, j, 0.0, MILLI, NVLINK)
    return Bid(own + moving + float(late), spot)


def _single(state: State, j: int, view: View, terms: Terms) -> Bid | None:
    at = np.flatnonzero(terms.allowed & node_allowed(state, j, view, 1)[view.node_of])
    if not len(at):
        return None
    cost = own_cost(state, j, view.kind[at], NVLINK, terms.lost[at])
    cost += terms.added[at]
    cost += node_extra(state, view)[view.node_of[at]]
    best = int(cost.argmin())
    if cost[best] == np.inf:
        return None
    return Bid(float(cost[best]), (int(view.gpus[at[best]]),))


def _gang(state: State, j: int, view: View, terms: Terms) -> Bid | None:
    """One link group or node if possible, else several nodes."""
    f = state.facts
    n, each = f.job_gpus[j], f.gpus_per_node[j]
    bid = _together(state, j, view, terms) if each in (0, n) else None
    if bid is None and f.max_nodes[j] > 1 and each != n:
        bid = spread(state, j, view, terms)
        if bid is not None and _meets_a_gang_twice(state, bid.spot):
            bid = Bid(_tried(state, j, bid.spot), bid.spot)
    return bid


def _together(state: State, j: int, view: View, terms: Terms) -> Bid | None:
    n = state.facts.job_gpus[j]
    groups, chosen = choose(
        state, j, view, terms, n, node_allowed(state, j, view, n), np.arange(len(view.group_node))
    )
    if not len(groups):
        return None
    lost = terms.lost[chosen].max(1)
    own = own_cost(state, j, view.group_kind[groups], view.group_link[groups], lost)
    own += node_extra(state, view)[view.group_node[groups]]
    added = terms.added[chosen]
    # A tenant that is a gang too pays once for its slowest GPU, but is charged here on each GPU where they meet.
    cost, least = own + added.sum(1), own + added.max(1)
    best = int(cost.argmin())
    bid = Bid(float(cost[best]), tuple(sorted(view.gpus[chosen[best]].tolist())))
    for i in np.argsort(least, kind="stable")[:TRIALS].tolist():
        if least[i] >= bid.cost:
            break
        spot = tuple(sorted(view.gpus[chosen[i]].tolist()))
        if _meets_a_gang_twice(state, spot):
            tried = _tried(state, j, spot)
            bid = bid if bid.cost <= tried else Bid(tried, spot)
    return None if bid.cost == np.inf else bid


def _meets_a_gang_twice(state: State, spot: Spot) -> bool:
    """Is there a tenant on several of the GPUs?"""
    seen: set[int] = set()
    for g in spot:
        for b in state.tenants[g]:
            if b in seen:
                return True
            seen.add(b)
    return False


def _tried(state: State, j: int, spot: Spot) -> float:
    """What the place costs to the last integer: the open job is put there and taken away again."""
    before = state.total
    state.put(j, spot)
    after = state.total
    state.take(j)
    moves = state.problem.home[j] is not None
    return float(after - before + state.cost[j] - (state.facts.move_cost[j] if moves else 0))
