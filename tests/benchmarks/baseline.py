"""The frozen yardstick: best fit by marginal cost in one order, in plain Python.

Jobs come by priority, then in the order of the queue, and are never reconsidered. Each goes to the GPUs where
its own loss and what it adds to the tenants there is least, if that costs less than its waiting; a gang takes one
node if it can, else equal parts of the fewest nodes. This is what a careful scheduler without a planner does.
Engines are measured against it, so it does not change when they do: it shares no code with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from solvers.problem import MILLI, PPM, Placed, Problem, Spot


def best_fit(problem: Problem) -> Placed:
    """Running jobs stay; each queued job in turn takes its cheapest place or waits."""
    plan = _Plan(problem)
    queued = [j for j in range(problem.jobs) if problem.home[j] is None]

    def by_priority(j: int) -> tuple[float, int]:
        return -problem.unit_interference.item(j) / max(1, problem.job_gpus.item(j)), j

    for j in sorted(queued, key=by_priority):
        found = plan.cheapest(j)
        if found is not None and found[0] < plan.waiting(j):
            plan.put(j, found[1])
        else:
            plan.makespan = max(plan.makespan, problem.deferred_end.item(j))
    return tuple(plan.placed)


class _Plan:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.placed: list[Spot | None] = [None] * problem.jobs
        self.tenants: list[list[int]] = [[] for _ in range(problem.gpus)]
        self.on_node: list[dict[int, int]] = [{} for _ in range(problem.nodes)]
        self.budget_left = [b.capacity for b in problem.budgets]
        self.gpus_of: list[list[int]] = [[] for _ in range(problem.nodes)]
        for g, v in enumerate(problem.gpu_node.tolist()):
            self.gpus_of[v].append(g)
        self.makespan = self._shortest()
        for j, home in enumerate(problem.home):
            if home is not None:
                self.put(j, home)

    def _shortest(self) -> int:
        """The longest job on its fastest kind: what no plan's makespan is below."""
        p = self.problem
        return max(
            (-(-p.work.item(j) // MILLI) for j in range(p.jobs) if p.work.item(j) >= 0 and p.home[j] is None),
            default=0,
        )

    def put(self, j: int, spot: Spot) -> None:
        p = self.problem
        self.placed[j] = spot
        if p.job_gpus.item(j) == 0:
            self.on_node[spot[0]][j] = 0
            return
        for g in spot:
            self.tenants[g].append(j)
            there = self.on_node[p.gpu_node.item(g)]
            there[j] = there.get(j, 0) + 1
        if p.home[j] is None:
            for b, budget in enumerate(p.budgets):
                self.budget_left[b] -= dict(zip(budget.jobs, budget.amounts, strict=True)).get(j, 0)
        kind = p.gpu_kind.item(spot[0])
        slowest = max(self.slowdown(kind, j, self.tenants[g]) for g in spot)
        self.makespan = max(self.makespan, self.end(j, kind, slowest, self.link(spot)))

    # ---- costs ----

    def waiting(self, j: int) -> int:
        p = self.problem
        return p.wait_cost.item(j) + p.makespan_cost * max(0, p.deferred_end.item(j) - self.makespan)

    def slowdown(self, kind: int, j: int, tenants: Iterable[int]) -> int:
        p = self.problem
        return p.interference.slowdown(
            kind, p.job_type.item(j), [p.job_type.item(i) for i in tenants if i != j]
        )

    def end(self, j: int, kind: int, s: int, link: int) -> int:
        p = self.problem
        v = p.speed_milli.item(j, kind)
        if p.work.item(j) < 0 or v <= 0:
            return 0
        return -(-p.work.item(j) * s * p.link_milli.item(j, link) // (v * PPM))

    def loss(self, j: int, kind: int, s: int, link: int) -> int:
        """Speed, interference and locality of a placed job."""
        p = self.problem
        v = p.speed_milli.item(j, kind)
        beside = PPM * v // s
        linked = v * 10**9 // (s * p.link_milli.item(j, link))
        cost = (PPM - MILLI * v) * p.unit_speed.item(j) // PPM
        cost += (MILLI * v - beside) * p.unit_interference.item(j) // PPM
        return cost + (beside - linked) * p.unit_locality.item(j) // PPM

    def link(self, spot: Spot) -> int:
        p = self.problem
        links = {p.gpu_link.item(g) for g in spot}
        if len(spot) <= 1 or (len(links) == 1 and min(links) >= 0):
            return 0
        return 1 if len({p.gpu_node.item(g) for g in spot}) == 1 else 2

    def added(self, j: int, g: int) -> int:
        """What the tenants of a GPU lose by one more."""
        p = self.problem
        kind, cost = p.gpu_kind.item(g), 0
        for i in self.tenants[g]:
            spot = self.placed[i] or ()
            now = max(self.slowdown(kind, i, self.tenants[q]) for q in spot)
            then = max(now, self.slowdown(kind, i, [*self.tenants[g], j]))
            link = self.link(spot)
            cost += self.loss(i, kind, then, link) - self.loss(i, kind, now, link)
            cost += p.makespan_cost * max(0, self.end(i, kind, then, link) - self.makespan)
        return cost if self.tenants[g] else p.gpu_open_cost.item(g)

    # ---- places ----

    def cheapest(self, j: int) -> tuple[int, Spot] | None:
        p = self.problem
        for b, budget in enumerate(p.budgets):
            if dict(zip(budget.jobs, budget.amounts, strict=True)).get(j, 0) > self.budget_left[b]:
                return None
        n = p.job_gpus.item(j)
        if n == 0:
            fitting = [v for v in range(p.nodes) if self.node_takes(j, v, 0)]
            return (0, (fitting[0],)) if fitting else None
        offers = {
            g: (self.slowdown(p.gpu_kind.item(g), j, self.tenants[g]), self.added(j, g))
            for g in range(p.gpus)
            if self.gpu_takes(j, g)
        }
        each = p.gpus_per_node.item(j)
        for nodes in range(1, p.max_nodes.item(j) + 1):
            if n % nodes == 0 and each in (0, n // nodes):
                found = self.equal_parts(j, offers, nodes)
                if found is not None:
                    return found
        return None

    def equal_parts(self, j: int, offers: dict[int, tuple[int, int]], nodes: int) -> tuple[int, Spot] | None:
        """The cheapest n / nodes GPUs of each node, on the cheapest nodes of one kind."""
        p = self.problem
        n = p.job_gpus.item(j)
        count = n // nodes
        best: tuple[int, Spot] | None = None
        for kind in range(p.speed_milli.shape[1]):
            parts = []
            for v, gpus in enumerate(self.gpus_of):
                free = [g for g in gpus if g in offers and p.gpu_kind.item(g) == kind]
                if len(free) < count or not self.node_takes(j, v, count):
                    continue
                unit = p.unit_interference.item(j) / n
                free.sort(key=lambda g: offers[g][1] + unit * (1 - MILLI / offers[g][0]))
                parts.append((self.price(j, kind, free[:count], offers), tuple(free[:count])))
            if len(parts) >= nodes:
                spot = tuple(sorted(g for _, part in sorted(parts)[:nodes] for g in part))
                cost = self.price(j, kind, spot, offers)
                if best is None or cost < best[0]:
                    best = cost, spot
        if best is not None and p.same_index and not self.same_index(best[1]):
            return None
        return best

    def price(self, j: int, kind: int, spot: Iterable[int], offers: dict[int, tuple[int, int]]) -> int:
        p, spot = self.problem, tuple(spot)
        slowest, link = max(offers[g][0] for g in spot), self.link(spot)
        cost = self.loss(j, kind, slowest, link) + sum(offers[g][1] for g in spot)
        for v in {p.gpu_node.item(g) for g in spot}:
            if not any(self.tenants[g] for g in self.gpus_of[v]):
                cost += p.node_used_cost.item(v)
        return cost + p.makespan_cost * max(0, self.end(j, kind, slowest, link) - self.makespan)

    def same_index(self, spot: Spot) -> bool:
        p = self.problem
        by_node: dict[int, set[int]] = {}
        for g in spot:
            by_node.setdefault(p.gpu_node.item(g), set()).add(p.gpu_index.item(g))
        return all(a == b for a, b in pairwise(by_node.values()))

    # ---- rules ----

    def node_takes(self, j: int, v: int, count: int) -> bool:
        p = self.problem
        if p.node_closed.item(v) or not p.node_sets.item(p.node_set.item(j), v):
            return False
        others = self.on_node[v]
        if others and (p.node_alone.item(j) or any(p.node_alone.item(i) for i in others)):
            return False
        there = {**others, j: count}
        return all(
            sum(self.part(demand.item(i), c, p.job_gpus.item(i)) for i, c in there.items()) <= offer.item(v)
            for demand, offer in (
                (p.cpu_milli, p.node_cpu_milli),
                (p.host_memory_mib, p.node_memory_mib),
            )
        )

    def part(self, demand: int, count: int, n: int) -> int:
        return -(-demand * count // n) if n else demand

    def gpu_takes(self, j: int, g: int) -> bool:
        p = self.problem
        kind, jobs = p.gpu_kind.item(g), [*self.tenants[g], j]
        margin = p.gpu_margin_mib.item(g) if len(jobs) > 1 else 0
        if (
            p.speed_milli.item(j, kind) <= 0
            or p.gpu_closed.item(g)
            or len(jobs) > p.gpu_max_tenants.item(g)
            or sum(p.memory_mib.item(i, kind) for i in jobs) > p.gpu_memory_mib.item(g) - margin
            or sum(p.share.item(i, kind) for i in jobs) > p.gpu_share.item(g)
            or (p.alone.item(j) and p.gpu_shared_outside.item(g))
            or (len(jobs) > 1 and any(p.alone.item(i) for i in jobs))
            or len({p.share_group.item(i) for i in jobs}) > 1
            or any(a in jobs and b in jobs for a, b in p.never)
            or not self.in_window(j, g)
        ):
            return False
        slowdown = {i: self.slowdown(kind, i, jobs) for i in jobs}
        if any(s > p.cap_milli.item(i, kind) for i, s in slowdown.items()):
            return False
        return not p.gate or len(jobs) == 1 or self.gate(kind, jobs)

    def gate(self, kind: int, jobs: list[int]) -> bool:
        p = self.problem
        progress = self.progress(kind, jobs)
        if progress <= PPM * max(p.size_milli.item(i) for i in jobs):
            return False
        newcomers = [i for i in jobs if p.home[i] is None]
        return all(self.progress(kind, [k for k in jobs if k != i]) <= progress for i in newcomers)

    def progress(self, kind: int, jobs: list[int]) -> int:
        return sum(self.problem.size_milli.item(i) * (10**9 // self.slowdown(kind, i, jobs)) for i in jobs)

    def in_window(self, j: int, g: int) -> bool:
        """Reserved GPUs are for their holder alone: plain, and never wrong."""
        return self.problem.gpu_until_s.item(g) < 0 or self.problem.gpu_holder.item(g) == j
