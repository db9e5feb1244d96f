"""Every content that a GPU may have, as a table: the columns of the bound by patterns.

A content is a multiset of kins that may share a GPU, beside those who stay there. All contents are listed once, so that a new set of
prices costs a look-up a slot. GPUs that differ only in who runs there share what they may hold if these leave.

Contents of more tenants than can be listed are covered by *crowds*: one kin at no slowdown, as many times as it takes to fill a
weighted mean of the GPU's slots, memory and share. Whatever the weights, one of them is worth at least as much as any multiset,
because the parts that a multiset's members fill add up to no more than the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from solvers.entries import STAY, Entries
from solvers.kernels.jit import COMPILED
from solvers.kernels.slots import ALONE, MEMORY, SHARE, TYPE, extend
from solvers.kins import MAX_LEAVERS, Kinship, Offering
from solvers.stocks import LEVELS, Beside, Stock, beside, resident_kins, stock_of

#: Multisets worth looking at on empty GPUs, and beside residents; without a compiler each takes a hundred times longer.
EMPTY, BESIDE = (2_000_000, 1_000_000) if COMPILED else (15_000, 5_000)
#: Slowdowns worth looking up.
CELLS = 4_000_000
#: Tenants up to which contents are listed one by one where there are too many to list them all.
LISTED = 3


@dataclass(frozen=True, eq=False)
class Table:
    """The contents of all offerings.

    Content ``p`` has the slots ``slots[p]`` (-1 for none), holds ``cpu[p]`` milli-CPUs and ``memory[p]`` MiB of its host, and costs
    ``opening[p]``. Slot ``s`` is taken by one of the rows ``row[first[s]:first[s + 1]]`` (-1: somebody without a price) at the ``cost`` per GPU beside them; the row's price per GPU counts
    ``gain`` times, and ``move`` is the part of a move.
    """

    slots: np.ndarray  # (P, W)
    cpu: np.ndarray  # (P,)
    memory: np.ndarray
    opening: np.ndarray
    blocks: tuple[tuple[int, ...], ...]  # of each offering, all that is there first
    stay: tuple[tuple[int, ...], ...]  # of each block, the stays that it keeps
    lows: np.ndarray  # (blocks,) the first of a block is all that stays there, alone
    highs: np.ndarray
    groups: tuple[Groups | None, ...]  # of a block that empty nodes with one offering have
    first: np.ndarray  # (slots + 1,)
    row: np.ndarray  # (entries,)
    cost: np.ndarray
    gain: np.ndarray
    move: np.ndarray
    crowd: Crowd


@dataclass(frozen=True, eq=False)
class Crowd:
    """Contents whose first slot counts for a crowd, block by block. Shapes (n,) unless said."""

    content: np.ndarray
    fill: np.ndarray  # (n, 3) parts of slots, memory and share that one of them fills
    cpu: np.ndarray  # what one of them holds
    memory: np.ndarray
    starts: np.ndarray  # (blocks with a crowd,) where each begins

    @property
    def block(self) -> np.ndarray:
        """Which of the blocks with a crowd each belongs to."""
        of = np.zeros(len(self.content), np.int64)
        of[self.starts[1:]] = 1
        return np.cumsum(of)


@dataclass(frozen=True, eq=False)
class Groups:
    """Contents with the same whole-node gangs, which come first in their slots: ``bounds[i]`` to ``bounds[i + 1]``."""

    bounds: np.ndarray  # (N + 1,)
    bigs: np.ndarray  # (N,) number of gangs; 0 only for the first group
    second: np.ndarray  # (contents of the block,) the same in the order of the second slot's slowdown


def table(kin: Kinship) -> Table:
    """List the contents of every offering."""
    return _Builder(kin).table()


class _Place(NamedTuple):
    """What decides the contents of a GPU beside those who stay there."""

    stock: tuple[int, ...] | None  # None: no newcomer
    kind: int
    memory_mib: int
    margin_mib: int
    share: int
    tenants: int
    opening: float
    stay: tuple[int, ...]
    ghosts: tuple[int, ...]


class _Part(NamedTuple):
    """Contents: kins (-1 none) and slowdowns by slot, newcomers first; what the first fills if it stands for a crowd."""

    stock: Stock | None
    kins: np.ndarray  # (P, t)
    slow: np.ndarray
    fill: np.ndarray | None = None  # (P, 3)


class _Block(NamedTuple):
    """Slots, cores, host memory and opening of a block's contents; their groups; of a crowd the fields of ``Crowd`` but the last."""

    columns: tuple[np.ndarray, ...]
    groups: Groups | None
    crowd: tuple[np.ndarray, ...] | None


class _Limits(NamedTuple):
    """How finely contents are listed: levels of kins, and tenants; beside residents, newcomers."""

    empty: int
    tenants: int
    first: int  # the level of a newcomer beside residents
    more: int  # of several
    newcomers: int


class _Builder:
    """Lists the contents block by block."""

    def __init__(self, kin: Kinship) -> None:
        self.kin, self.problem = kin, kin.facts.problem
        used = sorted({o for pool in kin.pools for o in pool.offerings})
        self.offers = {offer.stock: offer for offer in (kin.offerings[o] for o in used) if not offer.shut}
        self.blocks: dict[_Place, int] = {}
        self.of: list[tuple[int, ...]] = [()] * len(kin.offerings)
        for o in used:
            places = self._places(kin.offerings[o])
            self.of[o] = tuple(self.blocks.setdefault(place, len(self.blocks)) for place in places)
        self.stocks: dict[tuple[tuple[int, ...], int], Stock] = {}
        self.limits = self._limited()
        self.near = {m: self._near(m) for m in sorted({place.kind for place in self.blocks})}
        self.listed: dict[tuple[object, ...], tuple[np.ndarray, ...]] = {}

    def _places(self, offer: Offering) -> Iterator[_Place]:
        """A block for every set of residents that may be left; ghosts where these are too many."""
        row = self.kin.stays.row
        fixed = [s for s in offer.residents if row[s] < 0]
        leave = [s for s in offer.residents if row[s] >= 0]
        many = len(leave) > MAX_LEAVERS
        for size in [0] if many else range(len(leave), -1, -1):
            for some in sorted(set(combinations(leave, size))):
                yield _Place(
                    stock=None if offer.shut else offer.stock,
                    kind=offer.kind,
                    memory_mib=offer.memory_mib,
                    margin_mib=offer.margin_mib,
                    share=offer.share,
                    tenants=offer.tenants,
                    opening=offer.opening,
                    stay=tuple(sorted(fixed + list(some))),
                    ghosts=tuple(leave) if many else (),
                )

    # ---- how finely ----

    def _limited(self) -> _Limits:
        """The finest listing that the budgets allow."""
        most = max((offer.tenants for offer in self.offers.values()), default=1)
        choices = [(level, t) for t in range(min(most, LISTED), 0, -1) for level in LEVELS]
        level, tenants = next(
            (c for c in [(0, most), (1, most), *choices] if self._known(c[1]) and self._empty(*c) <= EMPTY),
            choices[-1],
        )
        beside = [(level, more, new) for new in (most, LISTED - 1) for more in LEVELS if more >= level]
        beside += [(first, first, 1) for first in LEVELS if first >= level]
        chosen = next((c for c in beside if self._beside(*c, tenants) <= BESIDE), beside[-1])
        return _Limits(level, tenants, *chosen)

    def _stock(self, key: tuple[int, ...], level: int) -> Stock:
        if (key, level) not in self.stocks:
            self.stocks[key, level] = stock_of(self.kin, self.offers[key], level)
        return self.stocks[key, level]

    def _known(self, tenants: int) -> bool:
        """Whether so many tenants' slowdowns are few enough to look up."""
        types = len(np.unique(self.problem.job_type))
        return comb(types + tenants - 1, tenants - 1) * types * self.kin.facts.kinds <= CELLS

    def _empty(self, level: int, tenants: int) -> int:
        """Multisets of newcomers on empty GPUs."""
        total = 0
        for place in self.blocks:
            if place.stock is not None and not place.stay and not place.ghosts:
                t = min(place.tenants, tenants)
                total += comb(len(self._stock(place.stock, level)) + t, t)
        return total

    def _beside(self, first: int, more: int, newcomers: int, tenants: int) -> int:
        """Multisets of newcomers beside residents."""
        total = 0
        for place in self.blocks:
            new = min(place.tenants, tenants) - len(place.stay)
            if place.stock is not None and place.stay and not place.ghosts and new > 0:
                total += len(self._stock(place.stock, first))
                if min(new, newcomers) > 1:
                    total += comb(
                        len(self._stock(place.stock, more)) + min(new, newcomers), min(new, newcomers)
                    )
        return total

    def _near(self, kind: int) -> Beside:
        """Slowdowns of all who may meet on a kind."""
        job = self.kin.rows.first if len(self.kin.rows) else np.zeros(0, np.int64)
        job = np.r_[job, self.kin.stays.first]
        return beside(self.problem, kind, set(self.problem.job_type[job].tolist()), self.limits.tenants)

    # ---- contents of one block ----

    def _parts(self, place: _Place) -> Iterator[_Part]:
        """All contents; the first is what is there if nobody comes."""
        yield self._residents(place)
        if place.stock is None:
            return
        if place.ghosts:
            yield from self._crowd(place, self._stock(place.stock, self.limits.first))
            return
        new = min(place.tenants, self.limits.tenants) - len(place.stay)
        if not place.stay:
            yield from self._newcomers(place, self._stock(place.stock, self.limits.empty), 1, new)
            listed = self.limits.tenants
        else:
            new = min(new, self.limits.newcomers)
            listed = min(self.limits.tenants, len(place.stay) + max(new, 0))
            fine, coarse = (
                self._stock(place.stock, level) for level in (self.limits.first, self.limits.more)
            )
            yield from self._newcomers(place, fine, 1, new if coarse is fine else min(new, 1))
            if coarse is not fine:
                yield from self._newcomers(place, coarse, 2, new)
        if place.tenants > max(listed, len(place.stay)):
            level = self.limits.first if place.stay else self.limits.empty
            yield from self._crowd(place, self._stock(place.stock, level))

    def _residents(self, place: _Place) -> _Part:
        """Nobody else. No rule binds; a slowdown that the table does not know is rounded down, a ghost's to none."""
        p, near = self.problem, self.near[place.kind]
        types = p.job_type[self.kin.stays.first[list(place.stay)]].tolist()
        slow = np.zeros((1, len(types) + len(place.ghosts)), np.int64)
        for i, a in enumerate(types if not place.ghosts else ()):
            s = p.interference.slowdown(place.kind, a, types[:i] + types[i + 1 :])
            slow[0, i] = np.searchsorted(near.slows, s, side="right") - 1
        return _Part(None, self._there(place)[None, :], slow)

    def _there(self, place: _Place) -> np.ndarray:
        """Who is there before newcomers, as contents say it."""
        ghosts = np.array(place.ghosts, np.int64) + len(self.kin.stays)
        return STAY - np.r_[np.array(place.stay, np.int64), ghosts]

    def _newcomers(self, place: _Place, stock: Stock, least: int, most: int) -> Iterator[_Part]:
        """From ``least`` to ``most`` newcomers beside those who stay."""
        there, near = self._there(place), self.near[place.kind]
        kins = np.vstack([stock.table, resident_kins(self.kin, place.kind, place.stay)])
        kins[:, TYPE] = near.number[kins[:, TYPE]]
        base = len(stock) + np.arange(len(place.stay))
        room = np.array([place.memory_mib, place.memory_mib - place.margin_mib, place.share])
        rows = np.zeros((1, 0), np.int64)
        # Places with residents of the same kins have the same contents.
        key = (id(stock), *room.tolist(), kins[len(stock) :].tobytes())
        for r in range(1, most + 1):
            known = self.listed.get((*key, r)) or self._extended(rows, base, len(stock), kins, room, near)
            if place.stay:
                self.listed[(*key, r)] = known
            rows, good, slow = known
            if r >= least:
                contents = rows[good]
                if len(there):
                    contents = np.hstack([contents, np.broadcast_to(there, (len(good), len(there)))])
                yield _Part(stock, contents, slow)

    def _extended(
        self, rows: np.ndarray, base: np.ndarray, news: int, kins: np.ndarray, room: np.ndarray, near: Beside
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Contents with one more newcomer: all that may grow on, which of them may be, and their slowdowns, newcomers' first."""
        many, r = rows.shape
        b = len(base)
        call = (
            rows.ravel(), many, r, base, news, kins.ravel(), room, near.step, near.beside, near.types, near.slows,
            self.problem.gate, np.zeros(b + r + 1, np.int64),
        )  # fmt: skip
        none = np.zeros(0, np.int64)
        count = extend(*call, none, none, none)
        out, slow = np.zeros(count * (r + 1), np.int64), np.zeros(count * (b + r + 1), np.int64)
        good = np.zeros(count, np.int64)
        if count:
            extend(*call, out, slow, good)
        fits = np.flatnonzero(good)
        slow = slow.reshape(count, b + r + 1)[fits]
        return out.reshape(count, r + 1), fits, np.roll(slow, -b, 1) if b else slow

    def _crowd(self, place: _Place, stock: Stock) -> Iterator[_Part]:
        """More tenants than are listed, each kin for itself."""
        held = resident_kins(self.kin, place.kind, place.stay)
        alone = not place.stay and bool(place.ghosts)
        memory = place.memory_mib - (0 if alone else place.margin_mib)
        left = np.array(
            [place.tenants - len(held), memory - held[:, MEMORY].sum(), place.share - held[:, SHARE].sum()]
        )
        if left[0] <= 0 or (left[1:] < 0).any() or held[:, ALONE].any():
            return
        use = np.stack([np.ones(len(stock)), stock.table[:, MEMORY], stock.table[:, SHARE]], 1)
        part = use / np.maximum(left, 1e-9)
        fits = (use <= left).all(1) & (alone | (stock.table[:, ALONE] == 0))
        at, there = np.flatnonzero(fits), self._there(place)
        rows = np.hstack([at[:, None], np.broadcast_to(there, (len(at), len(there)))])
        if len(there):  # newcomers may be worth nothing and yet lower what residents suffer, for all we know
            yield _Part(stock, there[None, :], np.zeros((1, len(there)), np.int64))
        yield _Part(stock, rows, np.zeros(rows.shape, np.int64), part[at])

    # ---- the table ----

    def table(self) -> Table:
        """All contents of all blocks, and what their slots cost."""
        entries = Entries(self.kin)
        fills = {b for pool in self.kin.pools if pool.whole for o in pool.offerings for b in self.of[o]}
        columns, groups, crowds, lows, at = [], [], [], [], 0
        for place, b in self.blocks.items():
            whole = b in fills and place.tenants <= self.limits.tenants
            block = self._block(place, entries, whole, at)
            columns.append(block.columns)
            groups.append(block.groups)
            crowds += [block.crowd] if block.crowd else []
            lows.append(at)
            at += len(block.columns[0])
        starts = np.cumsum([0] + [len(crowd[0]) for crowd in crowds])[:-1]
        none = (np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
        content, fill, one_cpu, one_memory = (np.concatenate(c) for c in zip(none, *crowds, strict=True))
        crowd = Crowd(content, fill, one_cpu, one_memory, starts)
        slots = _stacked([c[0] for c in columns], -1)
        cpu, memory, opening = (np.concatenate([np.zeros(0)] + [c[i] for c in columns]) for i in range(1, 4))
        bounds = np.array([*lows, at], np.int64)
        first, row, cost, gain, move = entries.finish()
        return Table(
            slots, cpu, memory, opening, tuple(self.of), tuple(place.stay for place in self.blocks),
            bounds[:-1], bounds[1:], tuple(groups), first, row, cost, gain, move, crowd,
        )  # fmt: skip

    def _block(self, place: _Place, entries: Entries, whole: bool, at: int) -> _Block:
        """The contents of a block whose first is the table's ``at``-th, part by part as they take much memory on the way."""
        near, grouped = self.near[place.kind], whole and place.stock is not None
        done, sorting, crowd, count = [], [], None, 0
        for part in self._parts(place):
            slots = entries.number(place.kind, part.stock, near, part.kins, part.slow)
            cpu, memory = self._hosted(part.stock, part.kins)
            if part.fill is not None and len(slots):
                crowd = at + count + np.arange(len(slots)), part.fill, cpu[:, 0], memory[:, 0]
            done.append((slots, cpu.sum(1), memory.sum(1), self._opened(place, part.kins)))
            sorting += [(part.kins.astype(np.int32), part.slow.astype(np.int32))] if grouped else []
            count += len(slots)
            del part  # before the next is made
        all_slots, *others = zip(*done, strict=True)
        columns = (_stacked(all_slots, -1), *map(np.concatenate, others))
        if not grouped or place.stock is None:
            return _Block(columns, None, crowd)
        all_kins, all_slow = zip(*sorting, strict=True)
        gangs = self._stock(place.stock, self.limits.empty).whole
        order, groups = _grouped(_stacked(all_kins, -1), _stacked(all_slow, 0), gangs, at)
        return _Block(tuple(c[order] for c in columns), groups, crowd)

    def _opened(self, place: _Place, kins: np.ndarray) -> np.ndarray:
        """What opening the GPU costs; where all tenants may be ghosts, only what it saves."""
        there = (kins >= 0) | ((kins <= STAY) & (kins > STAY - len(self.kin.stays)))
        cost = np.where(there.any(1), place.opening, min(place.opening, 0.0))
        return np.where((kins != -1).any(1), cost, 0.0)

    def _hosted(self, stock: Stock | None, kins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cores and host memory per GPU of each slot's tenant; a ghost holds none."""
        p, stays = self.problem, self.kin.stays
        n = np.maximum(p.job_gpus[stays.first], 1)
        new = (stock.cpu, stock.memory) if stock else (np.zeros(0), np.zeros(0))
        # Stays have negative numbers, so they are found from the end.
        cpu, memory = (
            np.r_[each, np.zeros(len(stays)), (demand[stays.first] / n)[::-1], 0.0][kins]
            for each, demand in zip(new, (p.cpu_milli, p.host_memory_mib), strict=True)
        )
        return cpu, memory


def _stacked(arrays: Sequence[np.ndarray], blank: int) -> np.ndarray:
    """Arrays of as many columns as the widest has, at least one, one below the other; int32."""
    out = np.full((sum(map(len, arrays)), max([1, *(a.shape[1] for a in arrays)])), blank, np.int32)
    at = 0
    for array in arrays:
        out[at : at + len(array), : array.shape[1]] = array
        at += len(array)
    return out


def _grouped(kins: np.ndarray, slow: np.ndarray, whole: int, at: int) -> tuple[np.ndarray, Groups]:
    """Contents in the order of their whole-node gangs and the slowdown of the first, and where each set begins."""
    gangs = np.where((kins >= 0) & (kins < whole), kins + 1, 0)
    order = np.lexsort((slow[:, 0], *gangs.T[::-1]))
    gangs = gangs[order]
    starts = np.flatnonzero(np.r_[True, (gangs[1:] != gangs[:-1]).any(1)])
    group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(gangs)]))
    second = np.lexsort((slow[order, min(1, slow.shape[1] - 1)], group)) + at
    bigs = (gangs[starts] > 0).sum(1)
    return order, Groups(np.r_[starts, len(gangs)] + at, bigs, second)
