"""A placement being built: who is where, what room is left, and the exact objective at every moment.

``put`` and ``take`` are the only ways to change it. The objective (``total``) is kept in the integers of the
program, so that a step can be judged by the difference. What each GPU offers to a newcomer of each type is kept
in arrays of shape (A, G), brought up to date by ``refresh`` only for the GPUs that a query is about to look at.

A job is placed, deferred, or *open*: not decided yet. An open job costs what a deferred one does, but its end
does not count, so that the makespan a step is charged for is that of the decisions made so far.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solvers.facts import NO_SIZE, Facts, View, link_class
from solvers.problem import MILLI, NVLINK, PPM, Placed, Spot
from solvers.sharing import Sharing, Tenant

NOBODY, MIXED = -1, -2


class State:
    """A placement of one Problem with its room and its cost; starts with everything open and nothing placed."""

    def __init__(self, facts: Facts, sharing: Sharing) -> None:
        self.facts, self.sharing = facts, sharing
        p = self.problem = facts.problem
        self.placed: list[Spot | None] = [None] * p.jobs
        self.tenants: list[list[int]] = [[] for _ in range(p.gpus)]
        self.on_node: list[dict[int, int]] = [{} for _ in range(p.nodes)]
        self.here: list[dict[int, int]] = [{} for _ in range(p.jobs)]  # slowdown of a job on each of its GPUs
        self.worst = [MILLI] * p.jobs
        self.link = [NVLINK] * p.jobs
        self.limit: dict[int, int] = {}  # a cap tightened by a reservation window
        # room
        self.memory_room = p.gpu_memory_mib.copy()
        self.share_room = p.gpu_share.copy()
        self.empty = np.ones(p.gpus, bool)
        self.group = np.full(p.gpus, NOBODY)
        self.open_cost = p.gpu_open_cost.astype(float)
        self.cpu_room = p.node_cpu_milli.copy()
        self.host_room = p.node_memory_mib.copy()
        self.node_cost = p.node_used_cost.astype(float)
        self.node_jobs = np.zeros(p.nodes, np.int64)
        self.node_closed_by = np.zeros(p.nodes, np.int64)  # jobs there that want it whole
        self.node_gpus_used = [0] * p.nodes
        self.budget_room = list(facts.budget_room)
        self.moved = sum(home is not None for home in p.home)  # running jobs that are not at home
        # offers
        types = p.interference.types
        shut = np.asarray(p.gpu_closed, bool) | (p.gpu_max_tenants < 1)
        self._places: list[int] = np.where(shut, 0, p.gpu_max_tenants).tolist()
        self.lost = np.zeros((types, p.gpus))
        self.added = np.zeros((types, p.gpus))
        self.least = np.where(shut, NO_SIZE, 0).astype(np.int64) + np.zeros((types, 1), np.int64)
        self.most = np.full((types, p.gpus), NO_SIZE, np.int64)
        self._offers = (self.lost, self.added, self.least, self.most)
        self.stale: set[int] = set()
        # cost
        self.cost = [self._price(j) for j in range(p.jobs)]
        self.ends = np.full(p.jobs, -1, np.int64)
        self.total_of_jobs = sum(self.cost)
        self.fragmentation = p.fragmentation_base
        self._makespan: int | None = None

    def load(self, placed: Placed) -> None:
        """Place every job as told; what is None becomes deferred if it runs, and else stays open."""
        for j, spot in enumerate(placed):
            if spot is not None:
                self.put(j, spot)

    def defer_all(self) -> None:
        """Decide every open job: it waits."""
        for j, spot in enumerate(self.placed):
            if spot is None:
                self.defer(j)

    # ---- cost ----

    @property
    def makespan(self) -> int:
        """The latest end decided so far, and no less than any plan's."""
        if self._makespan is None:
            self._makespan = max(self.facts.earliest_makespan, int(self.ends.max(initial=0)))
        return self._makespan

    @property
    def total(self) -> int:
        """The objective, if no job is open."""
        return self.total_of_jobs + self.fragmentation + self.problem.makespan_cost * self.makespan

    def waiting(self, j: int) -> int:
        """What deferring a job costs, with the makespan it would bring about."""
        late = max(0, self.facts.deferred_end[j] - self.makespan)
        return self._price_deferred(j) + self.problem.makespan_cost * late

    def is_moved(self, j: int, spot: Spot | None) -> bool:
        """Would it be a moved or preempted job?"""
        return self.problem.home[j] is not None and self.problem.home[j] != spot

    def is_newcomer(self, j: int) -> bool:
        return self.placed[j] is not None and self.placed[j] != self.problem.home[j]

    def _price_deferred(self, j: int) -> int:
        runs = self.problem.home[j] is not None
        return self.facts.wait_cost[j] + (self.facts.move_cost[j] if runs else 0)

    def _price(self, j: int) -> int:
        """The job's own terms of the objective, but for its end."""
        f, spot = self.facts, self.placed[j]
        if spot is None:
            return self._price_deferred(j)
        v = f.speed_milli[j][f.gpu_kind[spot[0]]] if f.job_gpus[j] else MILLI
        beside = PPM * v // self.worst[j]
        linked = v * 10**9 // (self.worst[j] * f.link_milli[j][self.link[j]])
        cost = (PPM - MILLI * v) * f.unit_speed[j] // PPM
        cost += (MILLI * v - beside) * f.unit_interference[j] // PPM
        cost += (beside - linked) * f.unit_locality[j] // PPM
        return cost + (f.move_cost[j] if self.is_moved(j, spot) else 0)

    def _end(self, j: int) -> int:
        f, spot = self.facts, self.placed[j]
        if spot is None:
            return f.deferred_end[j]
        v = f.speed_milli[j][f.gpu_kind[spot[0]]] if f.job_gpus[j] else MILLI
        if f.work[j] < 0 or v <= 0:
            return -1
        return -(-f.work[j] * self.worst[j] * f.link_milli[j][self.link[j]] // (v * PPM))

    def _reprice(self, j: int) -> None:
        cost = self._price(j)
        self.total_of_jobs += cost - self.cost[j]
        self.cost[j] = cost
        if self.problem.makespan_cost:
            self._set_end(j, self._end(j))

    def _set_end(self, j: int, end: int) -> None:
        old = int(self.ends[j])
        if old == end:
            return
        self.ends[j] = end
        if self._makespan is not None:
            if end > self._makespan:
                self._makespan = end
            elif old == self._makespan:
                self._makespan = None

    # ---- steps ----

    def defer(self, j: int) -> None:
        """Decide that an unplaced job waits."""
        if self.problem.makespan_cost:
            self._set_end(j, self.facts.deferred_end[j])

    def reopen(self, j: int) -> None:
        """Take back the decision that an unplaced job waits."""
        self._set_end(j, -1)

    def put(self, j: int, spot: Spot) -> None:
        """Place a job; whether it may go there is the caller's question."""
        f = self.facts
        self.placed[j] = spot
        self._account(j, spot, 1)
        if not f.job_gpus[j]:
            self._use_node(j, spot[0], 0, 1)
            self._reprice(j)
            return
        self.link[j] = link_class(self.problem, spot)
        self._tighten(j, spot)
        gpus = np.array(spot)
        fresh = gpus[self.empty[gpus]]
        self._open(fresh, 1)
        kinds = self.problem.gpu_kind[gpus]
        self.memory_room[gpus] -= self.problem.memory_mib[j, kinds]
        self.share_room[gpus] -= self.problem.share[j, kinds]
        for v, count in counts_by_node(f.gpu_node, spot).items():
            self._use_node(j, v, count, 1)
        for g in spot:
            self.tenants[g].append(j)
        self._settle(spot, j)

    def take(self, j: int) -> None:
        """Take a placed job away; it is open then."""
        f, spot = self.facts, self.placed[j]
        if spot is None:
            raise ValueError(f"job {j} is not placed")
        self._account(j, spot, -1)
        self.placed[j] = None
        if f.job_gpus[j]:
            self._take_gpus(j, spot)
        else:
            self._use_node(j, spot[0], 0, -1)
        self.cost[j], old = self._price_deferred(j), self.cost[j]
        self.total_of_jobs += self.cost[j] - old
        self._set_end(j, -1)

    def _account(self, j: int, spot: Spot, sign: int) -> None:
        """Moves, and the budgets of a queued job."""
        if self.problem.home[j] == spot:
            self.moved -= sign
        for b, amount in self.facts.budget_of.get(j, ()):
            self.budget_room[b] -= sign * amount

    def _take_gpus(self, j: int, spot: Spot) -> None:
        f = self.facts
        gpus = np.array(spot)
        for g in spot:
            self.tenants[g].remove(j)
        kinds = self.problem.gpu_kind[gpus]
        self.memory_room[gpus] += self.problem.memory_mib[j, kinds]
        self.share_room[gpus] += self.problem.share[j, kinds]
        self._open(np.array([g for g in spot if not self.tenants[g]], np.int64), -1)
        for v, count in counts_by_node(f.gpu_node, spot).items():
            self._use_node(j, v, count, -1)
        self.here[j] = {}
        self.worst[j] = MILLI
        self.limit.pop(j, None)
        self._settle(spot, j)

    def _open(self, gpus: np.ndarray, sign: int) -> None:
        """GPUs that get their first tenant (sign 1) or lose their last (-1)."""
        if not len(gpus):
            return
        p = self.problem
        self.empty[gpus] = sign < 0
        self.memory_room[gpus] -= sign * p.gpu_margin_mib[gpus]
        self.open_cost[gpus] = 0 if sign > 0 else p.gpu_open_cost[gpus]
        self.fragmentation += sign * int(p.gpu_open_cost[gpus].sum())
        for v, count in counts_by_node(self.facts.gpu_node, gpus.tolist()).items():
            before = self.node_gpus_used[v]
            self.node_gpus_used[v] = before + sign * count
            if not before or not self.node_gpus_used[v]:
                self.node_cost[v] = 0 if sign > 0 else p.node_used_cost[v]
                self.fragmentation += sign * int(p.node_used_cost[v])

    def _use_node(self, j: int, v: int, count: int, sign: int) -> None:
        """A job's part of a node's cores and memory: by GPUs and rounded up, or whole."""
        f = self.facts
        n = f.job_gpus[j]
        cpu, host = f.cpu_milli[j], f.host_memory_mib[j]
        if n:
            cpu, host = -(-cpu * count // n), -(-host * count // n)
        self.cpu_room[v] -= sign * cpu
        self.host_room[v] -= sign * host
        self.node_jobs[v] += sign
        self.node_closed_by[v] += sign * f.node_alone[j]
        if sign > 0:
            self.on_node[v][j] = count
        else:
            del self.on_node[v][j]

    def _settle(self, spot: Spot, j: int) -> None:
        """Slowdowns, costs and stale offers after the tenants of some GPUs changed."""
        f = self.facts
        self.stale.update(spot)
        touched = {j} if self.placed[j] is not None else set()
        for g in spot:
            jobs = self.tenants[g]
            if not jobs:
                continue
            types = tuple(sorted([f.job_type[b] for b in jobs]))
            slowdown = self.sharing.here(f.gpu_kind[g], types)
            for b in jobs:
                s = slowdown[f.job_type[b]]
                if self.here[b].get(g) != s:
                    self.here[b][g] = s
                    touched.add(b)
        for b in touched:
            worst = max(self.here[b].values())
            if worst != self.worst[b] or b == j:
                self.worst[b] = worst
                self._reprice(b)
                self.stale.update(self.placed[b] or ())

    def _tighten(self, j: int, spot: Spot) -> None:
        """A newcomer on a reserved GPU may only be slowed down so far that it still ends in time."""
        if not self.facts.window_set.isdisjoint(spot) and self.is_newcomer(j):
            self.limit[j] = self.window_cap(j, spot, self.link[j])

    def window_cap(self, j: int, spot: Iterable[int], link: int) -> int:
        """The largest slowdown with which a newcomer ends before every reservation on these GPUs."""
        f, p = self.facts, self.problem
        cap = NO_SIZE
        for g in spot:
            until = int(p.gpu_until_s[g])
            if until < 0 or int(p.gpu_holder[g]) == j:
                continue
            rate = f.remaining_p90_s[j] * f.link_milli[j][link]
            if rate < 0:
                return 0
            if rate:
                cap = min(cap, until * MILLI * f.speed_milli[j][f.gpu_kind[g]] // rate)
        return cap

    def holds(self, g: int) -> bool:
        """Do caps and gate hold among the tenants? They may cease to when one of them leaves."""
        f, jobs, kind = self.facts, self.tenants[g], self.facts.gpu_kind[g]
        newcomers = [b for b in jobs if self.is_newcomer(b)]
        if len(jobs) < 2 or not newcomers:
            return True
        if any(self.here[b][g] > min(f.cap_milli[b][kind], self.limit.get(b, NO_SIZE)) for b in jobs):
            return False
        if not self.problem.gate:
            return True
        progress = self._progress(kind, jobs)
        if progress <= PPM * max(f.size_milli[b] for b in jobs):
            return False
        # Of newcomers alike in type and size one speaks for all.
        apart = {(f.job_type[i], f.size_milli[i]): i for i in newcomers}.values()
        return all(self._progress(kind, [b for b in jobs if b != i]) <= progress for i in apart)

    def _progress(self, kind: int, jobs: list[int]) -> int:
        f = self.facts
        slowdown = self.sharing.here(kind, tuple(sorted([f.job_type[b] for b in jobs])))
        return sum(f.size_milli[b] * (10**9 // slowdown[f.job_type[b]]) for b in jobs)

    # ---- offers ----

    def refresh(self, view: View) -> None:
        """Bring the offers of the view's stale GPUs up to date."""
        if not self.stale:
            return
        todo = self.stale if view.everything else self.stale.intersection(view.gpus.tolist())
        alike: dict[tuple[int, ...], list[int]] = {}
        for g in sorted(todo):
            alike.setdefault((self.facts.gpu_kind[g], *self.tenants[g]), []).append(g)
        for gpus in alike.values():
            self._refresh(gpus)
        self.stale = set() if view.everything else self.stale - todo

    def _refresh(self, gpus: list[int]) -> None:
        """GPUs of one kind with the same tenants."""
        f = self.facts
        jobs = sorted(self.tenants[gpus[0]], key=lambda b: (f.job_type[b], b))
        groups = {f.share_group[b] for b in jobs}
        self.group[gpus] = groups.pop() if len(groups) == 1 else MIXED if groups else NOBODY
        barred = any(f.alone[b] for b in jobs) or bool(
            f.never and any(not f.never.get(b, set()).isdisjoint(jobs) for b in jobs)
        )
        admit = [] if barred else [g for g in gpus if len(jobs) < self._places[g]]
        shut = gpus if not admit else [g for g in gpus if len(jobs) >= self._places[g]]
        if shut:
            self.least[:, shut] = NO_SIZE
        if not admit:
            return
        offer = self.sharing.welcome
        if jobs:
            tenants = tuple([self._tenant(b, admit[0]) for b in jobs])
            offer = self.sharing.offer(f.gpu_kind[admit[0]], tenants, self.makespan)
        at: int | list[int] = admit if len(admit) > 1 else admit[0]
        for array, column in zip(
            self._offers, (offer.lost, offer.cost, offer.least, offer.most), strict=True
        ):
            array[:, at] = column[:, None] if len(admit) > 1 else column

    def _tenant(self, b: int, g: int) -> Tenant:
        f = self.facts
        kind = f.gpu_kind[g]
        ticks = 0.0
        if self.problem.makespan_cost and f.latest_ends[b] > self.makespan and f.speed_milli[b][kind] > 0:
            ticks = f.work[b] * f.link_milli[b][self.link[b]] / (f.speed_milli[b][kind] * float(PPM))
        return Tenant(
            type=f.job_type[b],
            memory_mib=f.memory_mib[b][kind],
            size_milli=f.size_milli[b],
            newcomer=self.is_newcomer(b),
            here_milli=self.here[b][g],
            worst_milli=self.worst[b],
            cap_milli=min(f.cap_milli[b][kind], self.limit.get(b, NO_SIZE)),
            slope=f.slope.item(b, kind, self.link[b]),
            ticks_per_milli=ticks,
        )


def counts_by_node(node_of: list[int], spot: Iterable[int]) -> dict[int, int]:
    """How many of the GPUs are on each node."""
    counts: dict[int, int] = {}
    for g in spot:
        v = node_of[g]
        counts[v] = counts.get(v, 0) + 1
    return counts
