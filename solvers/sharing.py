"""What a newcomer of each type does to the tenants of one GPU, and they to it.

The answer is a :class:`Offer`: for every type at once the newcomer's lost share ``R = 1 - 1000 / s``, the cost it
adds to the tenants, and an interval of sizes within which the sharing gate lets it in (every rule of the gate is a
half-line in the newcomer's size, so their meeting is an interval; an empty one refuses the type). Offers depend
only on the kind and on who is there, and are kept; the slowdowns behind them depend only on the kind and on the
*types* there, and are kept as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.facts import NO_SIZE, Facts
from solvers.problem import FORBIDDEN, MILLI, PPM, Interference

BILLION = 10**9
#: Offers kept before the store is emptied.
KEPT_OFFERS = 20_000


class Tenant(NamedTuple):
    """A job on a GPU as its neighbours see it; jobs that look alike share what is worked out for them."""

    type: int
    memory_mib: int
    size_milli: int
    newcomer: bool
    here_milli: int  # its slowdown on this GPU
    worst_milli: int  # its slowdown where it is slowest
    cap_milli: int
    slope: float
    ticks_per_milli: float  # its end in ticks is this times its slowdown; 0 if that does not matter


@dataclass(frozen=True)
class Offer:
    """For a newcomer of each type: lost share, cost to the tenants, least and largest size let in; shape (A,)."""

    lost: np.ndarray
    cost: np.ndarray
    least: np.ndarray
    most: np.ndarray


class Table:
    """Slowdowns around one multiset of tenant types, filled in for the types that somebody asks for."""

    def __init__(self, interference: Interference, kind: int, types: tuple[int, ...]) -> None:
        self.interference, self.kind, self.types = interference, kind, types
        own = interference.row(kind, types)
        self.newcomer_lost = 1 - MILLI / own
        self.newcomer_refused = own >= FORBIDDEN
        self.newcomer_rate = BILLION // own
        self.slowdown = np.full((len(types), interference.types), FORBIDDEN, np.int64)
        self._filled = np.zeros(interference.types, bool)
        self._whole = not types

    def fill(self, wanted: np.ndarray) -> None:
        """Work out what a newcomer of each wanted type does to the tenants."""
        if self._whole:
            return
        missing = np.flatnonzero(wanted & ~self._filled & ~self.newcomer_refused).tolist()
        for i, victim in enumerate(self.types):
            if i and self.types[i - 1] == victim:
                self.slowdown[i] = self.slowdown[i - 1]
                continue
            rest = self.types[:i] + self.types[i + 1 :]
            for a in missing:
                co = tuple(sorted((*rest, a)))
                self.slowdown[i, a] = self.interference.row(self.kind, co)[victim]
        self._filled[missing] = True
        self._whole = bool((self._filled | self.newcomer_refused).all())


class Sharing:
    """The tables and offers of one Problem; shared by all states built for it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.interference = facts.problem.interference
        self._tables: dict[tuple[int, tuple[int, ...]], Table] = {}
        self._here: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}
        self._offers: dict[tuple[int, tuple[Tenant, ...]], Offer] = {}
        types = self.interference.types
        self.refusal = Offer(
            np.ones(types), np.zeros(types), np.full(types, NO_SIZE, np.int64), np.zeros(types, np.int64)
        )
        self.welcome = Offer(
            np.zeros(types), np.zeros(types), np.zeros(types, np.int64), np.full(types, NO_SIZE, np.int64)
        )

    def here(self, kind: int, types: tuple[int, ...]) -> dict[int, int]:
        """The slowdown of each type among tenants of these types (ascending)."""
        key = (kind, types)
        kept = self._here.get(key)
        if kept is None:
            # Every tenant of a type has the same neighbours, so one of each type speaks for all.
            kept = {a: int(self.interference.row(kind, _without(types, a))[a]) for a in set(types)}
            self._here[key] = kept
        return kept

    def table(self, kind: int, types: tuple[int, ...]) -> Table:
        """The slowdowns around these tenant types (ascending)."""
        key = (kind, types)
        kept = self._tables.get(key)
        if kept is None:
            kept = self._tables[key] = Table(self.interference, kind, types)
        return kept

    def offer(self, kind: int, tenants: tuple[Tenant, ...], makespan: int) -> Offer:
        """What a GPU of this kind with these tenants (at least one, ascending by type) offers to a newcomer."""
        timed = any(t.ticks_per_milli for t in tenants)
        kept = None if timed else self._offers.get((kind, tenants))
        if kept is None:
            kept = self._work_out(kind, tenants, makespan)
            if len(self._offers) >= KEPT_OFFERS:
                self._offers.clear()
            if not timed:
                self._offers[kind, tenants] = kept
        return kept

    def _work_out(self, kind: int, tenants: tuple[Tenant, ...], makespan: int) -> Offer:
        table = self._filled(kind, tenants)
        slowdown = table.slowdown
        caps = np.array([[t.cap_milli] for t in tenants])
        refused = table.newcomer_refused | (slowdown > caps).any(0)
        # A gang may be slower elsewhere; the slowest GPU is what it pays for.
        elsewhere = np.array([[t.worst_milli if t.worst_milli > t.here_milli else 0] for t in tenants])
        then = np.maximum(slowdown, elsewhere)
        slopes = np.array([t.slope for t in tenants])
        now = np.array([MILLI / t.worst_milli for t in tenants])
        cost = slopes @ (now[:, None] - MILLI / then)
        timed = Counter(tenants)
        for i, t in enumerate(tenants):
            if t.ticks_per_milli and (alike := timed.pop(t, 0)):
                late = np.ceil(t.ticks_per_milli * then[i]) - makespan
                cost = cost + alike * self.facts.problem.makespan_cost * np.maximum(late, 0)
        if self.facts.problem.gate:
            least, most = self._gate(kind, tenants, table)
        else:
            least, most = self.welcome.least, self.welcome.most
        return Offer(table.newcomer_lost, cost, np.where(refused, NO_SIZE, least), most)

    def _filled(self, kind: int, tenants: tuple[Tenant, ...]) -> Table:
        """The table around these tenants, for the types that the largest GPU of the kind has memory for."""
        table = self.table(kind, tuple(t.type for t in tenants))
        room = self.facts.kind_memory[kind] - sum(t.memory_mib for t in tenants)
        table.fill(self.facts.least_memory[:, kind] <= room)
        return table

    def _gate(self, kind: int, tenants: tuple[Tenant, ...], table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest size with which each type may join.

        With z the newcomer's size, q its rate and P the tenants' progress beside it: P + z q must exceed the
        largest size times 10**6, and must not be less than the progress without any one newcomer.
        """
        sizes = np.array([t.size_milli for t in tenants])
        progress = sizes @ (BILLION // table.slowdown)
        rate = table.newcomer_rate
        before = sum(t.size_milli * (BILLION // t.here_milli) for t in tenants)
        least = np.maximum((PPM * int(sizes.max()) - progress) // rate + 1, -((progress - before) // rate))
        with np.errstate(divide="ignore"):
            most = np.where(rate < PPM, (progress - 1) // np.maximum(PPM - rate, 1), NO_SIZE)
        seen: set[Tenant] = set()
        for i, t in enumerate(tenants):
            if t.newcomer and t not in seen:
                seen.add(t)
                rest = tenants[:i] + tenants[i + 1 :]
                gained = progress - self._progress(kind, rest)
                price = self._rate(kind, rest) - rate  # the newcomer's own loss by i, for each unit of size
                least, most = _and_at_most(least, most, price, gained)
        return least, np.minimum(most, NO_SIZE)

    def _progress(self, kind: int, tenants: tuple[Tenant, ...]) -> np.ndarray:
        """What these tenants get done beside a newcomer of each type."""
        if not tenants:
            return np.zeros(self.interference.types, np.int64)
        table = self._filled(kind, tenants)
        progress: np.ndarray = np.array([t.size_milli for t in tenants]) @ (BILLION // table.slowdown)
        return progress

    def _rate(self, kind: int, tenants: tuple[Tenant, ...]) -> np.ndarray:
        return self.table(kind, tuple(t.type for t in tenants)).newcomer_rate


def _without(types: tuple[int, ...], a: int) -> tuple[int, ...]:
    i = types.index(a)
    return types[:i] + types[i + 1 :]


def _and_at_most(
    least: np.ndarray, most: np.ndarray, price: np.ndarray, gained: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Narrow the interval of z to where ``z * price <= gained``."""
    if price.min() > 0:
        return least, np.minimum(most, gained // price)
    up, down = price > 0, price < 0
    most = np.where(up, np.minimum(most, gained // np.where(up, price, 1)), most)
    least = np.where(down, np.maximum(least, -(gained // np.where(down, -price, 1))), least)
    return np.where((price == 0) & (gained < 0), NO_SIZE, least), most
