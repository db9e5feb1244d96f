"""Slots: a kin at a slowdown, and every row of jobs that may take it, at what cost.

Contents share slots, so a new set of prices has to look at a few ten thousand slots rather than at every content.
"""

from __future__ import annotations

import numpy as np

from solvers.kins import Kinship
from solvers.problem import MILLI
from solvers.stocks import Beside, Stock

#: The cost of what may not be.
NEVER = 1e18
#: A resident in a content: ``STAY - stay``. Beyond the stays come ghosts, residents that are there without harm or not at all.
STAY = -2


class Entries:
    """Numbers slots, and collects who may take them."""

    def __init__(self, kin: Kinship) -> None:
        self.kin = kin
        self.slots = 0
        self._new: dict[int, np.ndarray] = {}
        self._old: dict[tuple[int, int, int], int] = {}
        self._chunks: list[tuple[np.ndarray, ...]] = []  # entries a slot, then row, cost, gain, move

    def number(
        self, kind: int, stock: Stock | None, near: Beside, kins: np.ndarray, slow: np.ndarray
    ) -> np.ndarray:
        """The slots of contents: kins of the stock, stays or ghosts, -1 for none; slowdowns by their number."""
        out = np.full(kins.shape, -1, np.int32)
        new, old = kins >= 0, kins <= STAY
        if stock is not None and new.any():
            out[new] = self._newcomers(stock, near, kins[new], slow[new])
        if old.any():
            many = len(near.slows)
            code, inverse = np.unique(
                (STAY - kins[old]).astype(np.int64) * many + slow[old], return_inverse=True
            )
            slot = [self._stay(kind, near, *divmod(x, many)) for x in code.tolist()]
            out[old] = np.array(slot, np.int32)[inverse.reshape(-1)]
        return out

    def _newcomers(self, stock: Stock, near: Beside, kins: np.ndarray, slow: np.ndarray) -> np.ndarray:
        many = len(near.slows)
        known = self._new.get(id(stock))
        if known is None:
            known = self._new[id(stock)] = np.full(len(stock) * many, -1, np.int32)
        code = kins.astype(np.int64) * many + slow
        occurs = np.zeros(len(known), bool)
        occurs[code] = True
        fresh = np.flatnonzero(occurs & (known < 0))
        if len(fresh):
            known[fresh] = np.arange(self.slots, self.slots + len(fresh))
            self.slots += len(fresh)
            self._chunks.append(_guest_entries(self.kin, stock, fresh // many, near.slows[fresh % many]))
        return known[code]

    def _stay(self, kind: int, near: Beside, code: int, slow: int) -> int:
        known = self._old.get((kind, code, slow))
        if known is not None:
            return known
        stays = self.kin.stays
        ghost, s = divmod(code, len(stays))
        row = int(stays.row[s])
        cost = float(stays.fixed[s] + stays.slope[s] * (1 - MILLI / near.slows[slow]))
        gain = float(self.kin.rows.gpus[row] / stays.gpus[s]) if row >= 0 else 0.0
        nobody = [0.0] * ghost
        self._chunks.append(
            (
                np.array([1 + ghost]),
                np.array([row] + [-1] * ghost),
                np.array([cost, *nobody]),
                np.array([gain, *nobody]),
                np.array([0.0, *nobody]),
            )
        )
        self._old[kind, code, slow] = self.slots
        self.slots += 1
        return self.slots - 1

    def finish(self) -> tuple[np.ndarray, ...]:
        """First entry of each slot, and the entries: row, cost, gain, move."""
        empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))
        many, row, cost, gain, move = (np.concatenate(c) for c in zip(empty, *self._chunks, strict=True))
        return np.r_[0, np.cumsum(many)].astype(np.int64), row, cost, gain, move


def _guest_entries(kin: Kinship, stock: Stock, kins: np.ndarray, slow: np.ndarray) -> tuple[np.ndarray, ...]:
    """Who of a kin may take a slot at a slowdown, at what cost: the best link, nobody beyond a cap."""
    come, p = stock.guests, kin.facts.problem
    order = np.argsort(stock.kin_of, kind="stable")
    start = np.searchsorted(stock.kin_of[order], np.arange(len(stock) + 1))
    many = (start[1:] - start[:-1])[kins]
    at = np.repeat(start[kins] - np.cumsum(many) + many, many) + np.arange(int(many.sum()))
    g, s = order[at], np.repeat(slow, many)
    cost = (come.fixed[g] + come.slope[g] * (1 - MILLI / s)[:, None]).min(1)
    row = come.row[g]
    cost[s > p.cap_milli[kin.rows.first[row], stock.kind]] = NEVER
    move = np.where(kin.rows.runs[row], 1 / np.maximum(kin.rows.gpus[row], 1), 0.0)
    return many, row, cost, np.ones(len(row)), move
