"""What a threshold on the ends means for each job on each kind of GPU: caps, closed kinds, and who has to be placed.

``solvers.thresholds`` says what the narrowed problem is for and what it is worth. All arithmetic is in integers, so that a job
that ends on the threshold is in time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from solvers.facts import link_class
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, PPM, UNCAPPED, Budget, Problem

#: An end that nobody reaches, and the latest threshold that becomes caps: beyond it they would overflow.
NEVER = 2**62
LAST = 2**33
#: The costs of all jobs together stay below.
MOST_COST = 2**60
#: Sets of co-tenants looked through, on each kind, for the least slowdown beside anybody.
MOST_CROWDS = 3000


class Filter:
    """The jobs of one Problem against thresholds.

    Attributes
    ----------
    may_wait, may_start : ndarray, shape (J,)
        Jobs that may be deferred or preempted, and jobs that may be started or moved.
    fastest, slowest : ndarray, shape (J, M)
        The least and the largest link factor, thousandths, that GPUs of a kind can give a job; 0 where too few take newcomers.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.queued = np.array([home is None for home in problem.home], bool)
        moves = problem.max_moves > 0
        self.may_wait = self.queued | (np.asarray(problem.preemptible, bool) & moves)
        self.may_start = self.queued | (np.asarray(problem.movable, bool) & moves)
        self.fastest, self.slowest = _links(problem)

    def within(self, ticks: int, *, strict: bool, penalty: int | None = None) -> Problem | None:
        """The problem with a threshold, see ``solvers.thresholds.within``; who may not wait pays a given penalty instead."""
        if strict and not self.is_exact(ticks):
            confined = Filter(self._confined(ticks))
            return confined._narrowed(ticks, confined.slowest, penalty)
        return self._narrowed(ticks, self.fastest, penalty)

    def _narrowed(self, ticks: int, link: np.ndarray, penalty: int | None) -> Problem | None:
        """With a threshold, if a gang's link factor is the given one on each kind; (J, M)."""
        p, leaves = self.problem, self._must_leave(ticks)
        if int(self.best_ends.max(initial=0)) > ticks or int(leaves.sum()) > p.max_moves:
            return None
        speed, caps = self._speeds_and_caps(ticks, link)
        nowhere = (self.queued | leaves) & (p.job_gpus == 0) & (self._placed_ends > ticks)
        return replace(
            p,
            speed_milli=speed,
            cap_milli=caps,
            node_sets=np.vstack([p.node_sets, np.zeros((1, p.nodes), bool)])
            if nowhere.any()
            else p.node_sets,
            node_set=np.where(nowhere, len(p.node_sets), p.node_set),
            wait_cost=p.wait_cost
            + np.where(self._must_run(ticks), self._penalty(ticks) if penalty is None else penalty, 0),
            home=tuple(None if out else home for home, out in zip(p.home, leaves.tolist(), strict=True)),
            movable=np.where(leaves, False, p.movable),
            preemptible=np.where(leaves, False, p.preemptible),
            budgets=tuple(_without(budget, leaves) for budget in p.budgets) if leaves.any() else p.budgets,
            max_moves=p.max_moves - int(leaves.sum()),
            fragmentation_base=p.fragmentation_base + int(p.move_cost[leaves].sum()),
        )

    def _speeds_and_caps(self, ticks: int, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Speeds, 0 on kinds where a newcomer is late even alone, and caps within which it is not; (J, M) each."""
        p, leaves = self.problem, self._must_leave(ticks)
        slow = self._caps(ticks, link)
        slow[leaves & ~self.may_start] = 0  # it may be stopped and no more
        comes = ((self.may_start | leaves) & (p.job_gpus > 0))[:, None]
        speed = np.where(comes & (slow < MILLI), 0, p.speed_milli)
        caps = np.where(comes, np.minimum(p.cap_milli, np.maximum(slow, MILLI)), p.cap_milli)
        for j in np.flatnonzero(~self.queued & ~leaves & (p.job_gpus > 0)).tolist():
            home = np.unique(p.gpu_kind[list(p.home[j] or ())])
            # Where it runs, its kind stays open to it; and alone it is within any cap.
            most = np.maximum(
                slow[j, home] if self.may_start[j] else MILLI, max(self._cap_at_home(j, ticks), MILLI)
            )
            speed[j, home], caps[j, home] = p.speed_milli[j, home], np.minimum(p.cap_milli[j, home], most)
        return speed, caps

    def is_exact(self, ticks: int) -> bool:
        """Whether no gang's links decide if it is in time."""
        return not self._unsure(ticks).any()

    def _unsure(self, ticks: int) -> np.ndarray:
        """Gangs whose links decide if they are in time; shape (J,)."""
        p = self.problem
        most = np.minimum(p.cap_milli, max(p.interference.worst_milli, MILLI))
        fast, slow = (np.minimum(self._caps(ticks, link), most) for link in (self.fastest, self.slowest))
        unsure: np.ndarray = ((fast != slow) & (fast >= MILLI)).any(1)
        return unsure & self.may_start & (p.job_gpus > 0)

    def _confined(self, ticks: int) -> Problem:
        """With gangs whose links decide kept each on one node whose GPUs are all linked, if it fits on such a node."""
        p, sets = self.problem, len(self.problem.node_sets)
        plain = np.array([not _mixed(p.gpu_link[p.gpu_node == v]) for v in range(p.nodes)], bool)

        def kept(jobs: np.ndarray) -> Problem:
            return replace(
                p,
                node_sets=np.vstack([p.node_sets, p.node_sets & plain]),
                node_set=p.node_set + np.where(jobs, sets, 0),
                max_nodes=np.where(jobs, 1, p.max_nodes),
            )

        unsure = self._unsure(ticks)
        return kept(unsure & (Filter(kept(unsure)).fastest > 0).any(1))

    def costs(self, ticks: int) -> tuple[int, int]:
        """No plan within the threshold costs less than the first, or more than the second."""
        p = self.problem
        runs = np.maximum(np.maximum(p.unit_speed, p.unit_interference), p.unit_locality)
        dearest = np.where(self.may_wait, np.maximum(runs, p.wait_cost), runs)
        most = int(dearest.sum()) + int(p.move_cost[~self.queued].sum()) + p.makespan_cost * ticks
        opening = (p.node_used_cost, p.gpu_open_cost)
        least = sum(int(np.minimum(cost, 0).sum()) for cost in opening)
        most += sum(int(np.maximum(cost, 0).sum()) for cost in opening)
        return p.fragmentation_base + least, p.fragmentation_base + most

    def least_makespan(self, most: int) -> int:
        """Ticks that no plan's makespan is below, where ``most`` is the makespan of a plan."""
        low, high = int(self.best_ends.max(initial=0)), most
        while low < high:
            middle = (low + high) // 2
            if self._have_room(middle):
                high = middle
            else:
                low = middle + 1
        return low

    @cached_property
    def best_ends(self) -> np.ndarray:
        """The earliest end of each job by itself, NEVER if it has none; unknown ends are 0; shape (J,)."""
        p = self.problem
        best = np.where(self.may_start, self._placed_ends, NEVER)
        best = np.where(self.may_wait, np.minimum(best, np.maximum(p.deferred_end, 0)), best)
        return np.where(self.queued, best, np.minimum(best, self._home_ends))

    @cached_property
    def _placed_ends(self) -> np.ndarray:
        """The earliest end as a newcomer alone at its best; shape (J,)."""
        p = self.problem
        able = (p.speed_milli > 0) & (self.fastest > 0)
        ends = _ceil_div(np.maximum(p.work, 0)[:, None] * self.fastest, np.maximum(p.speed_milli, 1) * MILLI)
        best: np.ndarray = np.where(able, ends, NEVER).min(1, initial=NEVER)
        host = (p.node_sets & ~np.asarray(p.node_closed, bool)).any(1)[p.node_set]
        hosted = _ceil_div(np.maximum(p.work, 0) * p.link_milli[:, NVLINK], np.full(p.jobs, PPM))
        return np.where(p.job_gpus > 0, best, np.where(host, hosted, NEVER))

    @cached_property
    def _home_ends(self) -> np.ndarray:
        """The earliest end of each running job that stays, 0 if unknown or if it does not run; shape (J,)."""
        return np.array(
            [self._end_at_home(j) if home else 0 for j, home in enumerate(self.problem.home)], np.int64
        )

    def _end_at_home(self, j: int) -> int:
        """The earliest end of a running job that stays; 0 if unknown."""
        p, work = self.problem, self.problem.work.item(j)
        spot = p.home[j] or ()
        if p.job_gpus[j] == 0:
            return -(-max(work, 0) * p.link_milli.item(j, NVLINK) // PPM)
        speed = p.speed_milli.item(j, p.gpu_kind.item(spot[0]))
        if work < 0 or speed <= 0:
            return 0
        slow = max(self._least_beside(g, j) for g in spot)
        return -(-work * slow * p.link_milli.item(j, link_class(p, spot)) // (speed * PPM))

    def _least_beside(self, g: int, j: int) -> int:
        """No less does a running job slow down on its GPU, whoever joins; thousandths."""
        p = self.problem
        there = self._at_home_on[g]
        if (self.may_wait | self.may_start)[[i for i in there if i != j]].any():
            return MILLI  # somebody may leave
        room = max(0, p.gpu_max_tenants.item(g) - len(there)) if _open_gpus(p)[g] else 0
        if room and (room > MOST_CROWDS or comb(len(self._types) + room, room) > MOST_CROWDS):
            return MILLI
        types = [p.job_type.item(i) for i in there if i != j]
        joining = (co for size in range(room + 1) for co in combinations_with_replacement(self._types, size))
        kind, own = p.gpu_kind.item(g), p.job_type.item(j)
        return min(p.interference.slowdown(kind, own, (*types, *co)) for co in joining)

    @cached_property
    def _at_home_on(self) -> dict[int, list[int]]:
        """The running jobs at home on each GPU in use."""
        there: dict[int, list[int]] = {}
        for j in np.flatnonzero(~self.queued & (self.problem.job_gpus > 0)).tolist():
            for g in self.problem.home[j] or ():
                there.setdefault(g, []).append(j)
        return there

    @cached_property
    def _types(self) -> list[int]:
        """The types of the jobs that may come to a GPU."""
        types: list[int] = np.unique(
            self.problem.job_type[self.may_start & (self.problem.job_gpus > 0)]
        ).tolist()
        return types

    def _cap_at_home(self, j: int, ticks: int) -> int:
        """The slowdown, thousandths, up to which a running job is in time where it is."""
        p, spot, work = self.problem, self.problem.home[j] or (), self.problem.work.item(j)
        speed, link = (
            p.speed_milli.item(j, p.gpu_kind.item(spot[0])),
            p.link_milli.item(j, link_class(p, spot)),
        )
        return UNCAPPED if work <= 0 or speed <= 0 else min(UNCAPPED, ticks * speed * PPM // (work * link))

    def _caps(self, ticks: int, link: np.ndarray) -> np.ndarray:
        """The slowdown, thousandths, up to which each newcomer is in time on each kind; 0 where it may not go; (J, M)."""
        p = self.problem
        able = (p.speed_milli > 0) & (link > 0)
        need = np.maximum(p.work, 0)[:, None] * link
        most = min(ticks, LAST) * p.speed_milli * PPM // np.maximum(need, 1)
        free = (need == 0) | (ticks > LAST)
        return np.where(able, np.where(free, UNCAPPED, np.minimum(most, UNCAPPED)), 0)

    def _must_leave(self, ticks: int) -> np.ndarray:
        """Running jobs that end too late where they are, whoever is beside them; shape (J,)."""
        return self._home_ends > ticks

    def _must_run(self, ticks: int) -> np.ndarray:
        """Jobs that would end too late if they were deferred, or may leave their place but not wait; shape (J,)."""
        late = self.may_wait & (self.problem.deferred_end > ticks)
        return late | (self._must_leave(ticks) & ~self.may_wait)

    def _penalty(self, ticks: int) -> int:
        """Above what all else can cost, as long as the sum over all jobs stays an integer that engines hold."""
        least, most = self.costs(ticks)
        count = int(self._must_run(ticks).sum())
        return max(0, min(most - least + 1, (MOST_COST - most) // max(count, 1)))

    # ---- room for those who cannot wait ----

    def _have_room(self, ticks: int) -> bool:
        """Whether the queued jobs that must be placed fit, by tenants and by memory, on kinds that are fast enough.

        A job that nobody may slow down takes all of a GPU. Kinds are looked at in sets: the jobs that can go
        nowhere else must fit on them.
        """
        p = self.problem
        must = np.flatnonzero(self._must_run(ticks) & self.queued & (p.job_gpus > 0))
        if not len(must):
            return True
        slow = self._caps(ticks, self.fastest)[must]
        able = slow >= MILLI
        tenants, memory, crowd = self._room
        alone = np.asarray(p.alone, bool)[must, None] | (
            np.minimum(slow, p.cap_milli[must]) < self._least_slowdown[p.job_type[must]]
        )
        places = np.where(able, np.where(alone, crowd, 1), NEVER).min(1, initial=NEVER)
        needs = np.where(able, p.memory_mib[must], NEVER).min(1, initial=NEVER)
        n = p.job_gpus[must]
        for kinds in np.unique(np.vstack([able, np.ones_like(able[:1])]), axis=0):
            inside = ~(able & ~kinds).any(1)
            if (n * places)[inside].sum() > tenants[kinds].sum() or (n * needs)[inside].sum() > memory[
                kinds
            ].sum():
                return False
        return True

    @cached_property
    def _room(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tenants and MiB that each kind still takes beside those who must stay, fewest tenants of one GPU; shape (M,)."""
        p, kinds = self.problem, self.problem.speed_milli.shape[1]
        places, memory = p.gpu_max_tenants.astype(np.int64).copy(), p.gpu_memory_mib.astype(np.int64).copy()
        for j in np.flatnonzero(~self.may_wait & ~self.may_start & (p.job_gpus > 0)).tolist():
            home = list(p.home[j] or ())
            places[home] -= 1
            memory[home] -= p.memory_mib[j, p.gpu_kind[home[0]]]
        open_gpus = _open_gpus(p)
        kind = p.gpu_kind[open_gpus]
        crowd = np.full(kinds, NEVER)
        np.minimum.at(crowd, kind, p.gpu_max_tenants[open_gpus])
        sums = np.zeros((2, kinds), np.int64)
        np.add.at(sums[0], kind, np.maximum(places[open_gpus], 0))
        np.add.at(sums[1], kind, np.maximum(memory[open_gpus], 0))
        return sums[0], sums[1], np.minimum(crowd, 2**31)

    @cached_property
    def _least_slowdown(self) -> np.ndarray:
        """No job of a type slows down less beside anybody on a kind; thousandths, shape (A, M)."""
        p, kinds = self.problem, self.problem.speed_milli.shape[1]
        types = np.unique(p.job_type[p.job_gpus > 0]).tolist()
        most = int(p.gpu_max_tenants.max(initial=1)) - 1
        least = np.full((p.interference.types, kinds), MILLI, np.int64)
        if most < 1 or most > MOST_CROWDS or comb(len(types) + most, most) > MOST_CROWDS:
            return least
        crowds = [co for size in range(1, most + 1) for co in combinations_with_replacement(types, size)]
        for m in range(kinds):
            least[:, m] = np.min([p.interference.row(m, co) for co in crowds], axis=0)
        return least


def _without(budget: Budget, leaves: np.ndarray) -> Budget:
    """The budget without the jobs that it did not count, because they run."""
    kept = [(j, a) for j, a in zip(budget.jobs, budget.amounts, strict=True) if not leaves[j]]
    return replace(budget, jobs=tuple(j for j, _ in kept), amounts=tuple(a for _, a in kept))


def _ceil_div(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    quotient: np.ndarray = -(-numerator // denominator)
    return quotient


def _open_gpus(problem: Problem) -> np.ndarray:
    """Whether each GPU takes newcomers; shape (G,)."""
    shut = np.asarray(problem.gpu_closed, bool) | np.asarray(problem.node_closed, bool)[problem.gpu_node]
    return ~shut


def _links(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest link factor of each newcomer on each kind, 0 where it has too few GPUs; (J, M) each."""
    kinds = problem.speed_milli.shape[1]
    fastest, slowest = np.zeros((2, problem.jobs, kinds), np.int64)
    usable = _open_gpus(problem)
    for q, nodes in enumerate(problem.node_sets):
        who = np.flatnonzero((problem.node_set == q) & (problem.job_gpus > 0))
        gpus = np.flatnonzero(usable & nodes[problem.gpu_node])
        n = problem.job_gpus[who]
        for m in range(kinds):
            group, node, count = _widest(problem, gpus[problem.gpu_kind[gpus] == m])
            possible = np.empty((len(who), 3), bool)
            possible[:, NVLINK] = np.where(n == 1, count > 0, n <= group)
            possible[:, PCIE] = (n > 1) & (n <= node)
            possible[:, NETWORK] = (n > 1) & (n <= count) & (problem.max_nodes[who] > 1)
            factor = np.where(possible, problem.link_milli[who], NEVER).min(1, initial=NEVER)
            fastest[who, m] = np.where(factor < NEVER, factor, 0)
            slowest[who, m] = np.where(possible, problem.link_milli[who], 0).max(1, initial=0)
    return fastest, slowest


def _widest(problem: Problem, gpus: np.ndarray) -> tuple[int, int, int]:
    """The most GPUs in one link group, on one node of several link groups, and in all."""
    link, node = problem.gpu_link[gpus], problem.gpu_node[gpus]
    group = int(np.unique(link[link >= 0], return_counts=True)[1].max(initial=0))
    mixed = [
        count
        for v, count in zip(*np.unique(node, return_counts=True), strict=True)
        if _mixed(link[node == v])
    ]
    return group, int(max(mixed, default=0)), len(gpus)


def _mixed(link: np.ndarray) -> bool:
    """Whether two of a node's GPUs are not in one link group."""
    return len(link) > 1 and bool((link < 0).any() or (link != link[0]).any())
