"""What one node may hold, exactly: items (jobs, or parts of them, on that node), contents of a GPU, and whole columns.

An *item* is a way in which a job may be on a node: whole, a part of a gang over several nodes, or staying where it runs. A
*content* is a set of items on a GPU of a *class* of equal GPUs; it obeys every rule for one GPU. Items of one GPU cost what their content
makes them cost; a *gang* (several GPUs, or a part) costs what the worst of its contents does. Wherever a rule or a cost depends
on more than the node it is left out or bounded from below, so that whatever plan there is, its nodes are columns that cost no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from solvers.facts import link_class
from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, PPM, Problem

WHOLE, PART, STAY = 0, 1, 2
#: Contents of a node that are worth listing.
MOST_CONTENTS = 60_000


class TooLarge(Exception):
    """More contents, columns or residents than this method is made for."""


class Item(NamedTuple):
    """A job on this node: its GPUs here (0: none at all), cores and host memory, part of the job, links it may have."""

    job: int
    role: int
    kind: int
    gpus: int
    cpu: int
    memory: int
    links: tuple[int, ...]
    home: tuple[int, ...] = ()


class Content(NamedTuple):
    """Items on a GPU of a class (-1: on no GPU), what they cost but for the gangs, and the slowdowns of those."""

    cls: int
    items: tuple[int, ...]
    cost: int
    gangs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Column:
    """All that a node holds: its items, the cost of all but parts, the slowdown of each part, and GPUs by item."""

    shape: int
    items: tuple[int, ...]
    cost: int
    parts: tuple[tuple[int, int], ...]
    spots: tuple[tuple[int, ...], ...] = field(compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """Columns of one key differ only in cost."""
        return self.shape, self.items, self.parts


class Node:
    """Items and contents of one node, for plans in which nobody ends after ``last`` ticks.

    The ``longest`` job (-1: none) is charged the makespan from ``first`` ticks to its end.
    """

    def __init__(self, problem: Problem, v: int, last: int, first: int = 0, longest: int = -1) -> None:
        self.problem, self.v, self.last, self.first, self.longest = problem, v, last, first, longest
        self.gpus: list[int] = np.flatnonzero(problem.gpu_node == v).tolist()
        self.largest = int(np.bincount(problem.gpu_node, minlength=1).max(initial=1))
        self.items: list[Item] = [
            item for j in range(problem.jobs) for item in self._items(j) if self._ever(item)
        ]
        self.is_gang = [item.gpus > 1 or item.role == PART for item in self.items]
        self.classes = self._classes()
        self.never = {frozenset(pair) for pair in problem.never}
        self.contents: list[Content] = []
        for i, item in enumerate(self.items):
            if item.gpus == 0:
                self.contents.append(Content(-1, (i,), self.cost(item, MILLI, NVLINK), ()))
        for cls in range(len(self.classes)):
            for content in self._of_class(cls):
                self.contents.append(content)
                if len(self.contents) > MOST_CONTENTS:
                    raise TooLarge(f"more than {MOST_CONTENTS} contents of GPUs on node {v}")
        self._ways: dict[object, list[tuple[frozenset[int], tuple[int, ...]]]] = {}

    # ---- items ----

    def _items(self, j: int) -> Iterator[Item]:
        """Every way of job j to be here."""
        p, n, home = self.problem, int(self.problem.job_gpus[j]), self.problem.home[j]
        cpu, memory = int(p.cpu_milli[j]), int(p.host_memory_mib[j])
        if home is not None and (home == (self.v,) if n == 0 else all(g in self.gpus for g in home)):
            kind = int(p.gpu_kind[home[0]]) if n else -1
            yield Item(j, STAY, kind, n, cpu, memory, (link_class(p, home) if n else NVLINK,), home)
        if home is not None and not (p.movable[j] and p.max_moves > 0):
            return
        if p.node_closed[self.v] or not p.node_sets[p.node_set[j], self.v]:
            return
        if n == 0:
            yield Item(j, WHOLE, -1, 0, cpu, memory, (NVLINK,))
            return
        each, most = int(p.gpus_per_node[j]), int(p.max_nodes[j])
        for kind in sorted(set(p.gpu_kind[self.gpus].tolist())):
            here = [g for g in self.gpus if p.gpu_kind[g] == kind and not p.gpu_closed[g]]
            if p.speed_milli[j, kind] <= 0:
                continue
            if n <= len(here) and each in (0, n):
                yield Item(j, WHOLE, kind, n, cpu, memory, self._links(here, n))
            for q in range(1, min(n - 1, len(here)) + 1):
                others = n // q - 1 if p.equal_per_node else -(-(n - q) // self.largest)
                even = not p.equal_per_node or n % q == 0
                if each in (0, q) and even and 1 + others <= most:
                    yield Item(j, PART, kind, q, -(-cpu * q // n), -(-memory * q // n), (NETWORK,))

    def _links(self, here: list[int], n: int) -> tuple[int, ...]:
        """The link classes that n of these GPUs can have."""
        if n == 1:
            return (NVLINK,)
        links = self.problem.gpu_link[here].tolist()
        sizes = [links.count(link) for link in set(links) if link >= 0]
        near = any(size >= n for size in sizes)
        apart = len(sizes) != 1 or min(links) < 0
        return (NVLINK,) * near + (PCIE,) * apart

    def _ever(self, item: Item) -> bool:
        """May it be here at all, at no slowdown?"""
        return any(self.in_time(item, MILLI, link) for link in item.links)

    def weight(self, item: Item) -> float:
        """The part of its job that the item is."""
        return item.gpus / int(self.problem.job_gpus[item.job]) if item.role == PART else 1.0

    def cost(self, item: Item, slow: int, link: int) -> int:
        """The job's own cost, of a part the whole job's, and what moving it costs."""
        p, j = self.problem, item.job
        v = int(p.speed_milli[j, item.kind]) if item.gpus else MILLI
        alone, beside = MILLI * v, MILLI * v * MILLI // slow
        linked = v * 10**9 // (slow * int(p.link_milli[j, link]))
        cost = (PPM - alone) * int(p.unit_speed[j]) // PPM
        cost += (alone - beside) * int(p.unit_interference[j]) // PPM
        cost += (beside - linked) * int(p.unit_locality[j]) // PPM
        if j == self.longest:
            cost += int(p.makespan_cost) * max(0, self.end(item, slow, link) - self.first)
        return cost + (int(p.move_cost[j]) if p.home[j] is not None and item.role != STAY else 0)

    def end(self, item: Item, slow: int, link: int) -> int:
        """When it ends, in ticks; -1 if nobody knows."""
        p, j = self.problem, item.job
        v = int(p.speed_milli[j, item.kind]) if item.gpus else MILLI
        if p.work[j] < 0 or v <= 0:
            return -1
        return -(-int(p.work[j]) * slow * int(p.link_milli[j, link]) // (v * PPM))

    def in_time(self, item: Item, slow: int, link: int) -> bool:
        """Does it end by the last tick?"""
        return self.end(item, slow, link) <= self.last

    def before(self, item: Item, slow: int, link: int, g: int) -> bool:
        """Does it leave the GPU before a reservation there?"""
        p, j = self.problem, item.job
        until, left = int(p.gpu_until_s[g]), int(p.remaining_p90_s[j])
        if item.role == STAY or until < 0 or p.gpu_holder[g] == j:
            return True
        v = int(p.speed_milli[j, item.kind])
        return left >= 0 and -(-left * slow * int(p.link_milli[j, link]) // (MILLI * v)) <= until

    # ---- contents ----

    def _classes(self) -> list[list[int]]:
        """GPUs that are alike but for their links; one on which somebody runs is a class of its own."""
        p, classes = self.problem, dict[object, list[int]]()
        taken = {g for item in self.items for g in item.home if item.gpus}
        for g in self.gpus:
            reserved = int(p.gpu_until_s[g])
            key = (
                int(p.gpu_kind[g]), int(p.gpu_memory_mib[g]), int(p.gpu_margin_mib[g]), int(p.gpu_share[g]),
                int(p.gpu_max_tenants[g]), bool(p.gpu_closed[g]), bool(p.gpu_shared_outside[g]), int(p.gpu_open_cost[g]),
                reserved, int(p.gpu_holder[g]) if reserved >= 0 else -1, g if g in taken else -1,
            )  # fmt: skip
            classes.setdefault(key, []).append(g)
        return list(classes.values())

    def _of_class(self, cls: int) -> Iterator[Content]:
        """Every content of a GPU of this class: any of those who are at home there, and newcomers beside them."""
        g = self.classes[cls][0]
        kind = int(self.problem.gpu_kind[g])
        stays = [i for i, item in enumerate(self.items) if g in item.home and item.gpus]
        new = [i for i, it in enumerate(self.items) if it.role != STAY and it.gpus and it.kind == kind]
        for r in range(len(stays) + 1):
            for base in combinations(stays, r):
                yield from self._grown(cls, g, base, new)

    def _grown(self, cls: int, g: int, items: tuple[int, ...], new: list[int]) -> Iterator[Content]:
        content = self.content(cls, g, items)
        if content is not None:
            yield content
        for at, i in enumerate(new):
            if self._room(g, (*items, i)):
                yield from self._grown(cls, g, (*items, i), new[at + 1 :])

    def _room(self, g: int, items: tuple[int, ...]) -> bool:
        """The rules of a GPU that more tenants only break more, for the last one that came."""
        p, kind = self.problem, int(self.problem.gpu_kind[g])
        jobs = [self.items[i].job for i in items]
        j, many = jobs[-1], len(jobs) > 1
        if p.gpu_closed[g] or len(jobs) > p.gpu_max_tenants[g] or j in jobs[:-1]:
            return False
        if p.alone[j] and p.gpu_shared_outside[g]:
            return False
        if many and (p.alone[jobs].any() or (p.share_group[jobs] != p.share_group[j]).any()):
            return False
        if self.never and any(frozenset(pair) in self.never for pair in combinations(jobs, 2)):
            return False
        room = int(p.gpu_memory_mib[g]) - (int(p.gpu_margin_mib[g]) if many else 0)
        return (
            int(p.memory_mib[jobs, kind].sum()) <= room and int(p.share[jobs, kind].sum()) <= p.gpu_share[g]
        )

    def content(self, cls: int, g: int, items: tuple[int, ...]) -> Content | None:
        """The content with these items, None if slowdowns, the gate, ends or reservations forbid it."""
        p, kind, cost = self.problem, int(self.problem.gpu_kind[g]), 0
        jobs = [self.items[i].job for i in items]
        slows = self._slows(kind, jobs)
        entered = any(self.items[i].role != STAY for i in items)
        gangs = []
        for i, slow in zip(items, slows, strict=True):
            item = self.items[i]
            if entered and slow > p.cap_milli[item.job, kind]:
                return None
            if not any(self.in_time(item, slow, k) and self.before(item, slow, k, g) for k in item.links):
                return None
            if self.is_gang[i]:
                gangs.append((i, slow))
            else:
                cost += self.cost(item, slow, item.links[0])
        if entered and p.gate and len(items) > 1 and not self._passes(kind, items, slows):
            return None
        return Content(cls, items, cost + (int(p.gpu_open_cost[g]) if items else 0), tuple(gangs))

    def _slows(self, kind: int, jobs: list[int]) -> list[int]:
        types = self.problem.job_type[jobs].tolist()
        inter = self.problem.interference
        return [inter.slowdown(kind, a, types[:i] + types[i + 1 :]) for i, a in enumerate(types)]

    def _passes(self, kind: int, items: tuple[int, ...], slows: list[int]) -> bool:
        """The gate: more progress than the largest tenant alone, and than without any one newcomer."""
        size = self.problem.size_milli
        jobs = [self.items[i].job for i in items]

        def progress(jobs: list[int], slows: list[int]) -> int:
            return sum(int(size[j]) * (10**9 // s) for j, s in zip(jobs, slows, strict=True))

        whole = progress(jobs, slows)
        if whole <= PPM * int(size[jobs].max()):
            return False
        for at, i in enumerate(items):
            rest = jobs[:at] + jobs[at + 1 :]
            if self.items[i].role != STAY and whole < progress(rest, self._slows(kind, rest)):
                return False
        return True

    # ---- columns ----

    def column(self, shape: int, contents: Iterable[Content]) -> Column | None:
        """The cheapest column with these contents (of the node's GPUs, or of none), None if a rule forbids it."""
        contents = sorted(contents)
        slow: dict[int, int] = {}
        for content in contents:
            for i, s in content.gangs:
                slow[i] = max(slow.get(i, 0), s)
        held = sorted({i for content in contents for i in content.items})
        jobs = [self.items[i].job for i in held]
        if len(set(jobs)) < len(jobs) or not self._hosts(held):
            return None
        used = any(content.items and content.cls >= 0 for content in contents)
        fixed = sum(c.cost for c in contents) + (int(self.problem.node_used_cost[self.v]) if used else 0)
        best: tuple[int, tuple[int, ...]] | None = None
        for near, places in self._ways_of(contents):
            links = {i: self._link(i, i in near) for i in slow}
            cost = self._gangs(contents, places, slow, links)
            if cost is not None and (best is None or fixed + cost < best[0]):
                best = fixed + cost, places
        if best is None:
            return None
        on: dict[int, list[int]] = {i: [] for i in held}
        for content, g in zip(contents, best[1], strict=True):
            for i in content.items if g >= 0 else ():
                on[i].append(g)
        parts = tuple((i, s) for i, s in sorted(slow.items()) if self.items[i].role == PART)
        return Column(shape, tuple(held), best[0], parts, tuple(tuple(sorted(on[i])) for i in held))

    def _link(self, i: int, near: bool) -> int:
        """A gang's link class, by whether its GPUs are in one link group."""
        item = self.items[i]
        if item.role != WHOLE or item.gpus == 1:
            return item.links[0]
        return NVLINK if near else PCIE

    def _gangs(
        self, contents: list[Content], places: tuple[int, ...], slow: dict[int, int], links: dict[int, int]
    ) -> int | None:
        """What the gangs cost, parts not counted; None if one ends too late."""
        cost = 0
        for i, s in slow.items():
            item = self.items[i]
            gpus = [g for content, g in zip(contents, places, strict=True) if i in content.items]
            if not self.in_time(item, s, links[i]) or not all(
                self.before(item, s, links[i], g) for g in gpus
            ):
                return None
            cost += 0 if item.role == PART else self.cost(item, s, links[i])
        return cost

    def _hosts(self, held: list[int]) -> bool:
        """Cores, host memory and whole nodes, which bind only if a newcomer is here."""
        p, items = self.problem, [self.items[i] for i in held]
        if all(item.role == STAY for item in items):
            return True
        return (
            sum(item.cpu for item in items) <= p.node_cpu_milli[self.v]
            and sum(item.memory for item in items) <= p.node_memory_mib[self.v]
            and (len(items) == 1 or not p.node_alone[[item.job for item in items]].any())
        )

    def _ways_of(self, contents: list[Content]) -> list[tuple[frozenset[int], tuple[int, ...]]]:
        """How contents may lie on GPUs: which gangs then are in one link group, and the GPU of each content."""
        key = tuple((c.cls, tuple(i for i, _ in c.gangs if self.items[i].role == WHOLE)) for c in contents)
        known = self._ways.get(key)
        if known is None:
            known = self._ways[key] = _ways(key, self.classes, self.problem.gpu_link)
        return known


def _ways(
    key: tuple[tuple[int, tuple[int, ...]], ...], classes: list[list[int]], link_of: np.ndarray
) -> list[tuple[frozenset[int], tuple[int, ...]]]:
    """One way for each set of gangs that may be in one link group at once."""
    free = [
        {int(link): [g for g in gpus if link_of[g] == link] for link in sorted(set(link_of[gpus].tolist()))}
        for gpus in classes
    ]
    groups: dict[int, set[int]] = {}
    found: dict[frozenset[int], tuple[int, ...]] = {}
    places = [-1] * len(key)
    order = sorted((at for at in range(len(key)) if key[at][0] >= 0), key=lambda at: -len(key[at][1]))

    def assign(step: int) -> None:
        if step == len(order):
            near = frozenset(i for i, links in groups.items() if len(links) == 1 and min(links) >= 0)
            found.setdefault(near, tuple(places))
            return
        cls, gangs = key[order[step]]
        room = [link for link, gpus in free[cls].items() if gpus]
        for link in room if gangs else room[:1]:
            places[order[step]] = free[cls][link].pop()
            added = [i for i in gangs if link not in groups.setdefault(i, set())]
            for i in added:
                groups[i].add(link)
            assign(step + 1)
            for i in added:
                groups[i].remove(link)
            free[cls][link].append(places[order[step]])

    assign(0)
    return list(found.items())
