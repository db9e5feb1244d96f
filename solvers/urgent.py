"""Jobs that would make the makespan longer if they waited let into a plan, if need be in the place of others.

A job pushes out the cheapest that are in its way; what these leave free, others may take afterwards.
"""

from __future__ import annotations

import numpy as np

from solvers.facts import Facts
from solvers.problem import Placed, Spot
from solvers.sharing import Sharing
from solvers.spots import cheapest
from solvers.state import State

#: Places from which others are pushed out, tried for each job.
TRIES = 6


class Urgent:
    """The jobs of one Problem that end later than the earliest makespan if they wait, the latest first."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.problem = facts, facts.problem
        p = self.problem
        late = np.where(p.job_gpus > 0, p.deferred_end - facts.earliest_makespan, 0)
        self.jobs: list[int] = np.flatnonzero(late > 0)[np.argsort(-late[late > 0], kind="stable")].tolist()
        self.fixed = {*self.jobs, *(j for j, home in enumerate(p.home) if home is not None)}
        cpu, memory = (max(int(offer.max(initial=0)), 1) for offer in (p.node_cpu_milli, p.node_memory_mib))
        part = np.maximum(p.cpu_milli / cpu, p.host_memory_mib / memory)
        self.per_host: list[float] = (p.wait_cost / np.maximum(part, 1e-9)).tolist()

    def among(self, placed: Placed) -> Placed:
        """A valid plan with those let in that can be."""
        if all(placed[j] is not None for j in self.jobs):
            return placed
        state = State(self.facts, Sharing(self.facts))
        state.load(placed)
        self.let_in(state)
        return tuple(state.placed)

    def let_in(self, state: State) -> None:
        """Place those who would be late, each where it is not late, if need be in the place of others."""
        for j in self.jobs:
            if state.placed[j] is not None:
                continue
            bid = cheapest(state, j, self.facts.everything)
            if bid is not None and self._in_time(state, j, bid.spot):
                continue
            if not any(self._forced(state, j, spot) for spot in self._places(state, j)):
                state.reopen(j)

    def _in_time(self, state: State, j: int, spot: Spot) -> bool:
        """Put a job where it makes the makespan no longer; is it there?"""
        before = state.makespan
        state.put(j, spot)
        if state.makespan > before:
            state.take(j)
            return False
        return True

    def _forced(self, state: State, j: int, gpus: Spot) -> bool:
        """Push out whoever is on these GPUs, and others of the node while that is not enough; undone if it is no help."""
        nodes = sorted({self.facts.gpu_node[g] for g in gpus})
        first = {b for g in gpus for b in state.tenants[g]}
        rest = {b for v in nodes for b in state.on_node[v]} - first - self.fixed
        out: dict[int, Spot] = {}
        # Once the GPUs are free it may still want cores or host memory: those go first for whom they cost least.
        for b in (*first, *sorted(rest, key=lambda b: self.per_host[b]), None):
            if first <= out.keys():
                bid = cheapest(state, j, self.facts.view(nodes))
                if bid is not None and self._in_time(state, j, bid.spot):
                    return True
            spot = state.placed[b] if b is not None else None
            if b is not None and spot is not None:
                out[b] = spot
                state.take(b)
        for b, spot in out.items():
            state.put(b, spot)
        return False

    def _places(self, state: State, j: int) -> list[Spot]:
        """GPUs from which it costs least to push the others out, in link groups or nodes, or several nodes if it must be."""
        p, view, n = self.problem, self.facts.everything, self.facts.job_gpus[j]
        worth = np.append(self._worth(state), np.inf)
        slots = view.slots[
            np.arange(len(view.slots))[:, None], np.argsort(worth[view.slots], 1, kind="stable")
        ]
        able = p.speed_milli[j, view.group_kind] > 0
        parts = -(-n // slots.shape[1])
        each = n // parts
        cost = np.where(able, worth[slots[:, :each]].sum(1), np.inf)
        if parts > 1:
            cost = np.where(view.whole, cost, np.inf)
        # Slow kinds last: there it may end too late even alone.
        ends = np.ceil(
            p.work[j] / np.maximum(p.speed_milli[j, view.group_kind], 1) / 1000 * p.link_milli[j].min()
        )
        order = np.lexsort((cost, ends > max(state.makespan, 1)))
        order = order[np.isfinite(cost[order])]
        places: list[Spot] = []
        for kind in dict.fromkeys(view.group_kind[order].tolist()):
            mine = order[view.group_kind[order] == kind]
            for i in range(0, min(len(mine), TRIES * parts) - parts + 1, parts):
                places.append(tuple(view.gpus[slots[mine[i : i + parts], :each].ravel()].tolist()))
        return places[: 2 * TRIES]

    def _worth(self, state: State) -> np.ndarray:
        """What it costs for each GPU that its tenants wait; inf if one of them must not."""
        worth = np.zeros(self.problem.gpus)
        for g, jobs in enumerate(state.tenants):
            for b in jobs:
                worth[g] += np.inf if b in self.fixed else self.facts.wait_cost[b] / self.facts.job_gpus[b]
        return worth
