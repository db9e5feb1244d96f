"""Chosen slices put on real GPUs: blocks of slices packed into nodes, then real jobs dealt into their slots.

A block is what has to stay together on one node: one GPU, or as many as the largest gang in it needs. Nodes are filled
with the largest blocks first, each where most of cores and memory is left; a block that finds no room is let in by an
exchange of two other blocks between nodes, or else loses slots until it fits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from solvers.facts import link_class
from solvers.mend import mended
from solvers.problem import MILLI, PPM, Placed, Spot
from solvers.slices import Slices, contents

#: Nodes looked at for an exchange of blocks.
EXCHANGES = 6
#: Parts of a host that sums of parts may be off.
SLACK = 1e-9

Gpus = list[list[int]]  # rows on each GPU


@dataclass
class Block:
    """Slots that must share a node, and what they hold of its host: (milli-CPUs, MiB)."""

    gpus: Gpus
    host: np.ndarray

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)


def plan(slices: Slices, chosen: np.ndarray, last: int) -> Placed:
    """A valid plan of the chosen numbers of slices in which no job ends after ``last`` ticks if it can be helped.

    Nodes on which somebody runs are left as they are.
    """
    slots = _Slots(slices, last)
    for k in range(len(slices.kin.pools)):
        nodes = _nodes_of(slices, k)
        packing = Packing(slices, k, nodes, _blocks(slices, chosen, k))
        for v, blocks in zip(nodes, packing.on_nodes(), strict=True):
            slots.fill(v, blocks)
    return mended(slices.problem, slots.dealt())


def _nodes_of(slices: Slices, k: int) -> list[int]:
    """The nodes of a pool."""
    p, kin = slices.problem, slices.kin
    alike: dict[tuple[object, ...], list[int]] = {}
    for v, gpus in enumerate(slices.facts.gpus_of):
        offers, counts = np.unique(kin.of[gpus], return_counts=True)
        host = int(p.node_cpu_milli[v]), int(p.node_memory_mib[v])
        alike.setdefault((tuple(offers.tolist()), tuple(counts.tolist()), *host), []).append(v)
    pool = kin.pools[k]
    return alike.get((pool.offerings, pool.counts, int(pool.cpu_milli), int(pool.memory_mib)), [])


# ---- blocks ----


def _blocks(slices: Slices, chosen: np.ndarray, k: int) -> list[Block]:
    """The chosen slices of a pool in blocks: equal ones first, then what is left with the same gangs."""
    gpus_of, width = slices.rows.gpus, sum(slices.kin.pools[k].counts)
    blocks: list[Gpus] = []
    left: dict[int, Gpus] = {}
    for one, times in zip(slices.slices, chosen.tolist(), strict=False):
        if one.pool != k or not times:
            continue
        if one.gpus > 1:
            blocks += [contents(one, gpus_of) for _ in range(times)]
            continue
        rows = contents(one, gpus_of)[0]
        need = max(min(int(gpus_of[r]), width) for r in rows)
        blocks += [[list(rows) for _ in range(need)] for _ in range(times // need)]
        largest = max(rows, key=lambda r: (min(int(gpus_of[r]), width), r))
        left.setdefault(largest, []).extend(list(rows) for _ in range(times % need))
    for r, gpus in sorted(left.items(), key=lambda item: -int(gpus_of[item[0]])):
        blocks += _together(r, gpus, min(int(gpus_of[r]), width))
    return [Block(gpus, _host(slices, gpus)) for gpus in blocks]


def _together(r: int, gpus: Gpus, need: int) -> list[Gpus]:
    """Slices with one gang in blocks of its size; what is left over goes without the gang, each GPU by itself."""
    gpus.sort()  # so that smaller gangs find each other as well
    whole = len(gpus) // need * need
    blocks = [gpus[i : i + need] for i in range(0, whole, need)]
    return blocks + [[[s for s in rows if s != r]] for rows in gpus[whole:] if set(rows) != {r}]


def _host(slices: Slices, gpus: Gpus) -> np.ndarray:
    """Cores and host memory of slots."""
    held = Counter(r for rows in gpus for r in rows)
    return np.array(slices.host(tuple(held.items())))


# ---- nodes ----


class Packing:
    """A pool's nodes being filled with blocks."""

    def __init__(self, slices: Slices, k: int, nodes: list[int], blocks: list[Block]) -> None:
        pool = slices.kin.pools[k]
        self.slices, self.count = slices, len(nodes)
        self.offer = np.maximum(np.array([pool.cpu_milli, pool.memory_mib]), 1.0)
        self.free = np.full(len(nodes), float(sum(pool.counts)))
        self.room = np.ones((len(nodes), 2))  # parts of what a node offers
        # What is still to come.
        self.coming, self.gpus = (
            sum((b.host for b in blocks), np.zeros(2)) / self.offer,
            float(self.free.sum()),
        )
        self.placed: list[Block] = []
        self.at = np.full(len(blocks), -1)
        self.size = np.zeros(len(blocks))
        self.holds = np.zeros((len(blocks), 2))
        for block in sorted(blocks, key=self._weight, reverse=True):
            self.coming -= block.host / self.offer
            self._add(block)

    def on_nodes(self) -> list[list[Block]]:
        """The blocks on each node."""
        found: list[list[Block]] = [[] for _ in range(self.count)]
        for block, v in zip(self.placed, self.at.tolist(), strict=False):
            found[v].append(block)
        return found

    def _weight(self, block: Block) -> tuple[int, float]:
        """Largest first, then those that ask most of a host."""
        return block.size, float((block.host / self.offer).max())

    def _add(self, block: Block) -> None:
        """Put a block where it leaves what suits the others, by an exchange if need be, with fewer slots if that is no help."""
        while any(block.gpus):
            able = np.flatnonzero(self.free >= block.size)
            if not len(able):
                return
            host = block.host / self.offer
            fits = able[(self.room[able] >= host - SLACK).all(1)]
            if len(fits):
                need = np.maximum(self.coming, 0) / max(self.gpus, 1)
                before = self.room[fits] - self.free[fits, None] * need
                change = ((before - host + block.size * need) ** 2 - before**2).sum(1)
                self._put(int(fits[change.argmin()]), block)
                return
            v = self._exchanged(block, able)
            if v is not None:
                self._put(v, block)
                return
            block = self._lighter(block)

    def _put(self, v: int, block: Block) -> None:
        n = len(self.placed)
        self.placed.append(block)
        self.at[n], self.size[n], self.holds[n] = v, block.size, block.host / self.offer
        self.free[v] -= block.size
        self.gpus -= block.size
        self.room[v] -= self.holds[n]

    def _exchanged(self, block: Block, able: np.ndarray) -> int | None:
        """A node on which the block fits after two blocks of one size changed places."""
        n = len(self.placed)
        at, size, holds = self.at[:n], self.size[:n], self.holds[:n]
        lacks = np.maximum(block.host / self.offer - self.room[able], 0).max(1)
        for v in able[np.argsort(lacks, kind="stable")[:EXCHANGES]].tolist():
            mine = np.flatnonzero(at == v)
            lighter = holds[mine] - (block.host / self.offer - self.room[v])
            heavier = holds[mine][:, None] - self.room[at]
            may = (size[mine][:, None] == size) & (at != v)
            may &= (holds <= lighter[:, None] + SLACK).all(2) & (holds >= heavier - SLACK).all(2)
            if may.any():
                i, other = (int(x) for x in np.argwhere(may)[0])
                self._exchange(int(mine[i]), other)
                return int(v)
        return None

    def _exchange(self, a: int, b: int) -> None:
        v, w = self.at[a], self.at[b]
        self.room[v] += self.holds[a] - self.holds[b]
        self.room[w] += self.holds[b] - self.holds[a]
        self.at[a], self.at[b] = w, v

    def _lighter(self, block: Block) -> Block:
        """The block without the row that holds most of a host for what waiting costs."""
        n = self.slices.rows.gpus
        held = Counter(r for rows in block.gpus for r in rows)

        def dear(r: int) -> float:
            jobs = self.slices.jobs[r]
            worth = float(self.slices.worth[jobs].mean()) * held[r] / int(n[r]) if len(jobs) else 0.0
            return worth / max(float((np.array(self.slices.host(((r, held[r]),))) / self.offer).max()), 1e-9)

        out = min(held, key=dear)
        gpus = [[r for r in rows if r != out] for rows in block.gpus]
        return Block(gpus, _host(self.slices, gpus))


# ---- jobs ----


class _Slots:
    """Places for jobs of each row, before it is known which jobs take them."""

    def __init__(self, slices: Slices, last: int) -> None:
        self.slices, self.last = slices, last
        self.spots: list[list[Spot]] = [[] for _ in slices.jobs]
        self.wide: dict[tuple[int, int], list[Spot]] = {}  # parts of gangs wider than a node, by row and kind

    def fill(self, v: int, blocks: list[Block]) -> None:
        """Give a node's GPUs to its blocks, the largest first; gangs get GPUs next to each other."""
        p, n = self.slices.problem, self.slices.rows.gpus
        mine = sorted(self.slices.facts.gpus_of[v], key=lambda g: (int(p.gpu_link[g]), g))
        gpus = [rows for block in sorted(blocks, key=lambda b: -b.size) for rows in block.gpus]
        slots: dict[int, list[tuple[int, int]]] = {}
        for g, rows in zip(mine, gpus, strict=False):
            for r, times in Counter(rows).items():
                # The first of a row on every GPU before the second on any: a gang has its GPUs once.
                slots.setdefault(r, []).extend((turn, g) for turn in range(times))
        for r, held in slots.items():
            size, at = int(n[r]), [g for _, g in sorted(held, key=lambda slot: slot[0])]
            if size > len(mine) and sorted(at) == sorted(mine):
                self.wide.setdefault((r, int(p.gpu_kind[at[0]])), []).append(tuple(at))
            parts = [tuple(sorted(at[i : i + size])) for i in range(0, len(at) - size + 1, size)]
            self.spots[r] += [spot for spot in parts if len(set(spot)) == size]

    def dealt(self) -> Placed:
        """Jobs in the slots: the dearest of each row, of these the longest where it is fastest."""
        n = self.slices.rows.gpus
        for (r, _), parts in self.wide.items():
            need = int(n[r]) // len(parts[0])
            for i in range(0, len(parts) - need + 1, need):
                self.spots[r].append(tuple(sorted(g for part in parts[i : i + need] for g in part)))
        types: dict[int, list[int]] = {}
        for r, spots in enumerate(self.spots):
            del spots[len(self.slices.jobs[r]) :]
            for spot in spots:
                for g in spot:
                    types.setdefault(g, []).append(
                        int(self.slices.problem.job_type[self.slices.rows.first[r]])
                    )
        placed: list[Spot | None] = list(self.slices.problem.base)
        for r, spots in enumerate(self.spots):
            if spots:
                self._deal(placed, r, [(self._ticks(r, spot, types), spot) for spot in spots])
        return tuple(placed)

    def _ticks(self, r: int, spot: Spot, types: dict[int, list[int]]) -> float:
        """Ticks of a milli-tick of work in a place, beside those who may come there."""
        p, first = self.slices.problem, int(self.slices.rows.first[r])
        kind, own = int(p.gpu_kind[spot[0]]), int(p.job_type[first])
        slow = MILLI
        for g in spot:
            others = list(types[g])
            others.remove(own)
            slow = max(slow, p.interference.slowdown(kind, own, others))
        link = int(p.link_milli[first, link_class(p, spot)])
        return slow * link / (max(int(p.speed_milli[first, kind]), 1) * PPM)

    def _deal(self, placed: list[Spot | None], r: int, spots: list[tuple[float, Spot]]) -> None:
        """Of a row's jobs, dearest first, so many as there are places; whoever would end too late gives way to the next."""
        work = self.slices.problem.work
        spots.sort()
        waiting = self.slices.jobs[r].tolist()
        chosen, waiting = waiting[: len(spots)], waiting[len(spots) :]
        chosen.sort(key=lambda j: -int(work[j]))
        for j, (ticks, spot) in zip(chosen, spots, strict=True):
            if int(work[j]) * ticks <= self.last:
                placed[j] = spot
                continue
            other = next((i for i in waiting if int(work[i]) * ticks <= self.last), None)
            if other is not None:
                waiting.remove(other)
                placed[other] = spot
