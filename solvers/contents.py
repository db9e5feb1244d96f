"""What may lie on a GPU, as a table of states: a state is a kind and a multiset of tenant types.

``step[s, a]`` is the state after a tenant of type ``a`` joined state ``s``, and ``slow[s, a]`` the slowdown of a tenant of
type ``a`` that is part of state ``s``. With these two arrays the compiled kernels know the slowdown of any set of
tenants, however it comes about (sums of pairs, measured triples, anything a row of the interference table says), by one
look-up a tenant. Small tables are built at once; a large one is built where somebody asks for it.

A state exists only together with all its sub-multisets, so that a tenant can always be taken away again. Threads that share a
table hold its ``lock`` while they build or copy.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from itertools import combinations_with_replacement
from math import comb, prod

import numpy as np

from solvers.problem import MILLI, Placed, Problem

#: ``step`` where a state has not been built, to be asked for.
UNKNOWN = -1
#: States built at once; beyond this many the rest waits until it is asked for.
EAGER = 24_000
#: No more tenants on a GPU than this are looked at.
MOST_TENANTS = 24
#: States built because somebody asked, at most: two rows of 4-byte integers for each. What a plan holds is always built.
MOST = 150_000
MOST_CELLS = 24_000_000


class Contents:
    """The states of one Problem; see the module. Arrays have room to grow and shape (room, A), int32."""

    def __init__(self, problem: Problem, eager: int = EAGER) -> None:
        self.problem, self.interference = problem, problem.interference
        self.lock = threading.Lock()
        self.types = max(1, problem.interference.types)
        self.kinds = problem.speed_milli.shape[1]
        self.most = min(MOST, max(self.kinds + 1, MOST_CELLS // self.types))
        self.of: dict[tuple[int, tuple[int, ...]], int] = {}
        self.keys: list[tuple[int, tuple[int, ...]]] = []
        self.step = np.full((1024, self.types), UNKNOWN, np.int32)
        self.slow = np.zeros((1024, self.types), np.int32)
        for kind in range(self.kinds):
            self.state(kind, ())
        self._build(problem, eager)

    @property
    def states(self) -> int:
        """Number of states built."""
        return len(self.keys)

    def state(self, kind: int, types: tuple[int, ...]) -> int:
        """The state with these types (ascending), built with all below it if need be; see ``below`` for how many."""
        known = self.of.get((kind, types))
        if known is not None:
            return known
        under_it = {a: self.state(kind, _without(types, a)) for a in set(types)}
        index = self._room()
        self.of[kind, types] = index
        self.keys.append((kind, types))
        for a, under in under_it.items():
            self.step[under, a] = index
            rest = self.keys[under][1]
            self.slow[index, a] = self.interference.row(kind, rest)[a] if rest else MILLI
        return index

    def grow(self, wanted: Iterable[tuple[int, int]]) -> int:
        """Build what lies behind pairs (state, type); how many states are new."""
        before = self.states
        for under, a in wanted:
            kind, types = self.keys[under]
            if self.states + below(types) > self.most:
                break
            self.state(kind, tuple(sorted((*types, a))))
        return self.states - before

    def hold(self, placed: Placed) -> int:
        """Build what lies on each GPU in a plan; the most tenants of one.

        Raises
        ------
        ValueError
            If the tenants of one GPU alone would need too many states.
        """
        tenants: dict[int, list[int]] = {}
        for j, spot in enumerate(placed):
            for g in spot or () if self.problem.job_gpus[j] else ():
                tenants.setdefault(g, []).append(int(self.problem.job_type[j]))
        for g, there in tenants.items():
            if below(there) > self.most:
                text = f"GPU {g} has {len(there)} tenants of {len(set(there))} types, too many for a table of contents"
                raise ValueError(text)
            self.state(int(self.problem.gpu_kind[g]), tuple(sorted(there)))
        return max(map(len, tenants.values()), default=0)

    def _build(self, problem: Problem, eager: int) -> None:
        """Of the jobs that may come to each kind, level by level while it is few; then what runs already."""
        eager = min(eager, self.most)
        able = (problem.speed_milli > 0) & (problem.job_gpus > 0)[:, None]
        used = [np.unique(problem.job_type[able[:, kind]]).tolist() for kind in range(self.kinds)]
        crowd = np.zeros(self.kinds, np.int64)
        np.maximum.at(crowd, problem.gpu_kind, np.minimum(problem.gpu_max_tenants, MOST_TENANTS))
        crowd = np.minimum(crowd, able.sum(0))
        for size in range(1, int(crowd.max(initial=0)) + 1):
            kinds = np.flatnonzero(crowd >= size).tolist()
            if self.states + sum(comb(len(used[kind]) + size - 1, size) for kind in kinds) > eager:
                break
            for kind in kinds:
                self._level(kind, used[kind], size)
        self.hold(problem.home)

    def _level(self, kind: int, used: list[int], size: int) -> None:
        """All multisets of so many of these types at once, those with one less being there."""
        many = np.array(list(combinations_with_replacement(used, size)), np.int64).reshape(-1, size)
        first = self._room(len(many))
        keys = [(kind, types) for types in map(tuple, many.tolist())]
        self.of.update(zip(keys, range(first, first + len(keys)), strict=True))
        self.keys += keys
        index = np.arange(first, first + len(keys))
        for i in range(size):  # a type that is there twice is taken away twice, to the same end
            rest, a = np.delete(many, i, 1), many[:, i]
            different, where = np.unique(rest, axis=0, return_inverse=True)
            ways = [tuple(types) for types in different.tolist()]
            alone = np.full(self.types, MILLI)
            rows = np.array([self.interference.row(kind, types) if types else alone for types in ways])
            under = np.array([self.of[kind, types] for types in ways])
            self.step[under[where.ravel()], a] = index
            self.slow[index, a] = rows[where.ravel(), a]

    def _room(self, count: int = 1) -> int:
        """The next free row, of so many."""
        while len(self.keys) + count > len(self.step):
            more = len(self.step)
            blank = np.full((more, self.types), UNKNOWN, np.int32)
            self.step = np.vstack([self.step, blank])
            self.slow = np.vstack([self.slow, np.zeros((more, self.types), np.int32)])
        return len(self.keys)


def below(types: Iterable[int]) -> int:
    """How many multisets of types are part of this one, itself included."""
    return prod(count + 1 for count in Counter(types).values())


def _without(types: tuple[int, ...], a: int) -> tuple[int, ...]:
    i = types.index(a)
    return types[:i] + types[i + 1 :]
