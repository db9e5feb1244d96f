"""A leaf of the enumeration: contents put together item by item, and all cut off that passes the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.node_items import Content, Node

#: Slack for rounding in floating point, in milli-GPU-seconds.
SLACK = 4.0


@dataclass(frozen=True)
class Branch:
    """Decisions: for each gang whether it is on the node (-1 open), and between which of its slowdowns."""

    on: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True)
class Bounded:
    """A branch's bound, the reduced cost of each content (inf where it is forbidden), duals by item and of the host, values."""

    bound: float
    reduced: np.ndarray
    item: np.ndarray
    host: np.ndarray
    value: np.ndarray


class _Fact(NamedTuple):
    """Of a content: its singles as bits, all items of their jobs, its gangs by position, cores and host memory of the singles."""

    bits: int
    rivals: int
    cls: int
    gangs: tuple[int, ...]
    slows: tuple[int, ...]
    charges: tuple[float, ...]  # what each gang is charged for this GPU
    cpu: int
    memory: int


class _Partial(NamedTuple):
    """Contents chosen so far: items, GPUs left by class, those that gangs lack, their largest charges, and who shares with whom."""

    bits: int
    left: tuple[int, ...]
    need: tuple[int, ...]
    tops: tuple[float, ...]
    held: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    cpu: int
    memory: int
    chosen: tuple[int, ...]

    def more(self, c: int, fact: _Fact, sizes: tuple[int, ...]) -> tuple[_Partial, float] | None:
        """With one more content, and what gangs of these sizes pay as the worst GPU decides; None if it does not fit."""
        cls, gangs = fact.cls, fact.gangs
        if self.bits & fact.rivals or fact.cpu > self.cpu or fact.memory > self.memory:
            return None
        if cls >= 0 and not self.left[cls]:
            return None
        need, tops, held, extra = self.need, self.tops, self.held, 0.0
        if gangs:
            if not all(need[g] for g in gangs):
                return None
            for g, charge in zip(gangs, fact.charges, strict=True):
                top = max(tops[g], charge)
                extra += (sizes[g] - need[g]) * (top - tops[g]) + top - charge
                tops = (*tops[:g], top, *tops[g + 1 :])
                need = (*need[:g], need[g] - 1, *need[g + 1 :])
            held = tuple(sorted((*held, (cls, gangs, fact.slows))))
        left = self.left if cls < 0 else (*self.left[:cls], self.left[cls] - 1, *self.left[cls + 1 :])
        if need and max(need) > sum(left):
            return None
        more = _Partial(
            self.bits | fact.bits, left, need, tops, held, self.cpu - fact.cpu, self.memory - fact.memory,
            (*self.chosen, c),
        )  # fmt: skip
        return more, extra


class Filling:
    """Puts the contents of a leaf together, item by item, the dearest to leave out first.

    Parameters
    ----------
    on
        The gangs on the node, and what each is charged for a GPU at least.
    charge
        What a gang is charged for a GPU on which it has a slowdown.
    offer
        Told the contents of a whole node.
    go_on
        Asked before every step.
    """

    def __init__(
        self, node: Node, on: dict[int, float], charge: Callable[[int, int], float], budget: float,
        bounded: Bounded, offer: Callable[[list[Content]], None], go_on: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.node, self.budget, self.charge = node, budget, charge
        self.offer, self.go_on = offer, go_on
        items = node.items
        self.on = list(on)
        self.least = tuple(on.values())
        self.at = {i: at for at, i in enumerate(self.on)}
        used = [sum(getattr(items[i], name) for i in self.on) for name in ("cpu", "memory")]
        p, v = node.problem, node.v
        self.room = (int(p.node_cpu_milli[v]) - used[0], int(p.node_memory_mib[v]) - used[1])
        self.host = bounded.host
        self.out = bounded.item
        self.order = sorted(
            (i for i, gang in enumerate(self.node.is_gang) if not gang), key=lambda i: -bounded.item[i]
        )
        by_job: dict[int, int] = {}
        for i, item in enumerate(items):
            by_job[item.job] = by_job.get(item.job, 0) | 1 << i
        self.rivals = [by_job[item.job] for item in items]
        self._sort(bounded.reduced)
        self.seen: dict[object, float] = {}
        self.rests: dict[object, list[tuple[float, tuple[int, ...]]]] = {}

    def _sort(self, reduced: np.ndarray) -> None:
        """The contents within the budget, by the item that is decided first of those in it."""
        contents = self.node.contents
        rank = {i: at for at, i in enumerate(self.order)}
        self.first: list[list[tuple[float, int]]] = [[] for _ in self.order]
        self.plain: list[tuple[float, int]] = []
        self.facts: dict[int, _Fact] = {}
        for c in np.flatnonzero(reduced <= self.budget).tolist():
            own = [rank[i] for i in contents[c].items if i in rank]
            row = self.first[min(own)] if own else self.plain
            row.append((float(reduced[c]), c))
            self.facts[c] = self._fact(contents[c])
        for row in (*self.first, self.plain):
            row.sort()
        # Items on no GPU may lower the sum; the bound has taken all of that off, so it is given back one by one.
        self.credit = [min([0.0, *(d for d, c in row if contents[c].cls < 0)]) for row in self.first]

    def _fact(self, content: Content) -> _Fact:
        items = self.node.items
        mine = [i for i in content.items if not self.node.is_gang[i]]
        rivals = 0
        for i in mine:
            rivals |= self.rivals[i]
        return _Fact(
            bits=sum(1 << i for i in mine),
            rivals=rivals,
            cls=content.cls,
            gangs=tuple(self.at[i] for i, _ in content.gangs),
            slows=tuple(s for _, s in content.gangs),
            charges=tuple(self.charge(i, s) for i, s in content.gangs),
            cpu=sum(items[i].cpu for i in mine),
            memory=sum(items[i].memory for i in mine),
        )

    def run(self) -> None:
        """Everything within the budget."""
        bits = 0
        for i in self.on:
            if bits & self.rivals[i]:
                return
            bits |= 1 << i
        if min(self.room) < 0:
            return
        self.sizes = tuple(self.node.items[i].gpus for i in self.on)
        left = tuple(len(gpus) for gpus in self.node.classes)
        self._fill(0, 0.0, _Partial(bits, left, self.sizes, self.least, (), *self.room, ()))

    def _fill(self, at: int, paid: float, now: _Partial) -> None:
        """Decide the next item: with one of the contents in which it comes first, or left out."""
        while at < len(self.order) and now.bits & self.rivals[self.order[at]]:
            paid -= self.credit[at]
            at += 1
        if paid > self.budget or not self.go_on():
            return
        if at == len(self.order):
            self._finish(now.left, now.need, paid, (now.cpu, now.memory), now.chosen)
            return
        key = (at, now.bits, now.left, now.tops, now.held)
        if self.seen.get(key, np.inf) <= paid:
            return
        self.seen[key] = paid
        paid -= self.credit[at]
        for d, c in self.first[at]:
            if paid + d > self.budget:
                break
            more = now.more(c, self.facts[c], self.sizes)
            if more is not None:
                self._fill(at + 1, paid + d + more[1], more[0])
        self._fill(at + 1, paid + float(self.out[self.order[at]]), now)

    def _finish(
        self,
        left: tuple[int, ...],
        need: tuple[int, ...],
        paid: float,
        room: tuple[int, int],
        chosen: tuple[int, ...],
    ) -> None:
        """Fill the other GPUs with gangs alone, or nobody."""
        paid += float(self.host @ np.array(room))
        if paid > self.budget:
            return
        for d, rest in self._rest(left, need):
            if paid + d > self.budget or not self.go_on():
                break
            self.offer([self.node.contents[c] for c in (*chosen, *rest)])

    def _rest(self, left: tuple[int, ...], need: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
        """Ways to fill GPUs so that each gang gets what it lacks, by what they pay."""
        key = left, need
        if key not in self.rests:
            self.rests[key] = sorted(self._rests(0, left, need, 0.0))
        return self.rests[key]

    def _rests(
        self, at: int, left: tuple[int, ...], need: tuple[int, ...], paid: float
    ) -> Iterator[tuple[float, tuple[int, ...]]]:
        if not any(left):
            if not any(need):
                yield paid, ()
            return
        if at == len(self.plain):
            return
        d, c = self.plain[at]
        cls, gangs = self.facts[c].cls, self.facts[c].gangs
        most = min([left[cls], *(need[g] for g in gangs)])
        for count in range(most, -1, -1):
            if paid + d * count > self.budget:
                continue
            there = (*left[:cls], left[cls] - count, *left[cls + 1 :])
            lacking = tuple(n - count * (g in gangs) for g, n in enumerate(need))
            for sum_d, rest in self._rests(at + 1, there, lacking, paid + d * count):
                yield sum_d, (c,) * count + rest
