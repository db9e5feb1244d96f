"""Whether a waiting job could run beside those already on a GPU, and if not, by which number.

GPUs whose tenants are of the same interference types form one *content*; its slowdowns are looked up once for each
type of newcomer, in the Problem's own interference rows, so that what is said here is what the solver saw. Sizes
and caps differ from GPU to GPU and are compared for many GPUs at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.explain.room import Room
from solvers.problem import FORBIDDEN, MILLI, PPM, Placed, Problem

Breach = Literal["", "forbidden", "own cap", "their cap", "too little", "gate"]
UNKNOWN = -1
#: Progress of a job alone, as the program counts it: 10^9 // slowdown.
WHOLE = 10**9


@dataclass(frozen=True)
class Verdict:
    """What would happen if a job joined: its slowdown, and the rule that would break, if any.

    ``value`` and ``limit`` are thousandths: a slowdown and its cap, or the GPUs' worth of progress together and the
    progress to beat. ``victim`` is the tenant that passes its cap.
    """

    slowdown_milli: int
    breach: Breach = ""
    value: int = 0
    limit: int = 0
    victim: int = -1


@dataclass(frozen=True)
class _Seats:
    """The tenants of each GPU in the order of their types; shapes (N, K), padded where ``job`` is -1."""

    job: np.ndarray
    size: np.ndarray
    cap: np.ndarray
    newcomer: np.ndarray


class Neighbours:
    """Who is on the GPUs ``gpus`` (N of them), and what one more job would mean there."""

    def __init__(self, problem: Problem, placed: Placed, room: Room, gpus: np.ndarray) -> None:
        self.problem, self.gpus = problem, gpus
        self.kind = problem.gpu_kind[gpus]
        self.contents: list[tuple[int, tuple[int, ...]]] = []  # kind, types ascending
        self.content_of = np.full(len(gpus), UNKNOWN)  # -1 where nobody is
        self.seats = self._seated(placed, room)
        self.width = self.seats.job.shape[1]
        types = problem.interference.types
        self._mine = np.full((len(self.contents), types), UNKNOWN)
        self._theirs: dict[int, np.ndarray] = {}  # newcomer's type -> (C, K)
        self._now = np.full((len(self.contents), self.width), UNKNOWN)
        self._without: dict[int, np.ndarray] = {}  # newcomer's type -> (C, K out, K + 1), the newcomer last

    def _seated(self, placed: Placed, room: Room) -> _Seats:
        number: dict[tuple[int, tuple[int, ...]], int] = {}
        type_of = self.problem.job_type.tolist()
        rows = []
        for i, g in enumerate(self.gpus.tolist()):
            there = sorted(room.tenants[g], key=lambda j: (type_of[j], j))
            rows.append(there)
            if there:
                key = (int(self.kind[i]), tuple(type_of[j] for j in there))
                self.content_of[i] = number.setdefault(key, len(number))
        self.contents = list(number)
        width = max(1, *(len(r) for r in rows)) if rows else 1
        job = np.array([r + [-1] * (width - len(r)) for r in rows], np.int64).reshape(len(rows), width)
        homes = zip(placed, self.problem.home, strict=True)
        entered = np.array([spot is not None and spot != home for spot, home in homes], bool)
        taken = job >= 0
        if not self.problem.jobs:
            return _Seats(job, job, job, taken)
        return _Seats(
            job=job,
            size=np.where(taken, self.problem.size_milli[job], 0),
            cap=np.where(taken, self.problem.cap_milli[job, self.kind[:, None]], FORBIDDEN),
            newcomer=taken & entered[job],
        )

    # ---- slowdowns by content, each looked up once ----

    def mine(self, job_type: int, contents: np.ndarray) -> np.ndarray:
        """Slowdown of a newcomer of a type in each of the contents."""
        for c in np.unique(contents[self._mine[contents, 0] == UNKNOWN]).tolist():
            self._mine[c] = self.problem.interference.row(*self.contents[c])
        return self._mine[contents, job_type]

    def theirs(self, job_type: int, contents: np.ndarray) -> np.ndarray:
        """Slowdown of each tenant beside a newcomer of a type; shape (len(contents), K), 1000 where no one sits."""
        table = self._theirs.get(job_type)
        if table is None:
            table = self._theirs[job_type] = np.full((len(self.contents), self.width), UNKNOWN)
        for c in np.unique(contents[table[contents, 0] == UNKNOWN]).tolist():
            kind, types = self.contents[c]
            table[c] = MILLI
            table[c, : len(types)] = self._each(kind, types, (job_type,))
        return table[contents]

    def now(self, contents: np.ndarray) -> np.ndarray:
        """Slowdown of each tenant as things stand; shape (len(contents), K), 1000 where no one sits."""
        for c in np.unique(contents[self._now[contents, 0] == UNKNOWN]).tolist():
            kind, types = self.contents[c]
            self._now[c] = MILLI
            self._now[c, : len(types)] = self._each(kind, types)
        return self._now[contents]

    def without(self, job_type: int, contents: np.ndarray) -> np.ndarray:
        """Slowdowns beside a newcomer of a type with one tenant left out; (len(contents), K out, K + 1)."""
        table = self._without.get(job_type)
        if table is None:
            shape = (len(self.contents), self.width, self.width + 1)
            table = self._without[job_type] = np.full(shape, UNKNOWN)
        for c in np.unique(contents[table[contents, 0, 0] == UNKNOWN]).tolist():
            kind, types = self.contents[c]
            table[c] = MILLI
            for out in range(len(types)):
                rest = types[:out] + types[out + 1 :]
                row = self._each(kind, rest, (job_type,))
                mine = int(self.problem.interference.row(kind, rest)[job_type])
                table[c, out, [i for i in range(len(types)) if i != out]] = row
                table[c, out, self.width] = mine
        return table[contents]

    def _each(self, kind: int, types: tuple[int, ...], more: tuple[int, ...] = ()) -> list[int]:
        """Slowdown of each of ``types`` beside the others and ``more``."""
        row = self.problem.interference.row
        return [
            int(row(kind, tuple(sorted((*types[:i], *types[i + 1 :], *more))))[a])
            for i, a in enumerate(types)
        ]

    # ---- many GPUs at a time ----

    def admits(self, job: int, usable: np.ndarray) -> np.ndarray:
        """Which of the ``usable`` GPUs (a mask) the job may enter as far as slowdowns and gate go."""
        p, good = self.problem, usable.copy()
        at = np.flatnonzero(usable & (self.content_of >= 0))
        good[at] = False
        mine = self.mine(p.job_type.item(job), self.content_of[at])
        keep = mine <= p.cap_milli[job, self.kind[at]]
        at, mine = at[keep], mine[keep]
        theirs = self.theirs(p.job_type.item(job), self.content_of[at])
        keep = (theirs <= self.seats.cap[at]).all(axis=1)
        at, mine, theirs = at[keep], mine[keep], theirs[keep]
        keep = self._gate(job, at, mine, theirs) if p.gate else np.ones(len(at), bool)
        good[at[keep]] = True
        return good

    def _gate(self, job: int, at: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Together they progress by more than the largest, and no less than without any one newcomer."""
        size, sizes = self.problem.size_milli.item(job), self.seats.size[at]
        together = self._together(size, sizes, mine, theirs)
        passed = together > PPM * np.maximum(size, sizes.max(axis=1, initial=0))
        passed[passed] = together[passed] >= self.best_without(job, at[passed])
        return passed

    def _together(self, size: int, sizes: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return size * (WHOLE // mine) + (sizes * (WHOLE // theirs)).sum(axis=1)

    def best_without(self, job: int, at: np.ndarray) -> np.ndarray:
        """The most progress that leaving out one newcomer, the job included, would allow; shape (len(at),)."""
        job_type, size = self.problem.job_type.item(job), self.problem.size_milli.item(job)
        contents, sizes = self.content_of[at], self.seats.size[at]
        best = (sizes * (WHOLE // self.now(contents))).sum(axis=1)
        entered = np.flatnonzero(self.seats.newcomer[at].any(axis=1))
        for out in range(self.width) if len(entered) else ():
            some = entered[self.seats.newcomer[at[entered], out]]
            slow = self.without(job_type, contents[some])[:, out]
            rest = sizes[some].copy()
            rest[:, out] = 0
            progress = (rest * (WHOLE // slow[:, :-1])).sum(axis=1) + size * (WHOLE // slow[:, -1])
            best[some] = np.maximum(best[some], progress)
        return best

    # ---- one GPU, with the number that decides ----

    def verdict(self, job: int, position: int) -> Verdict:
        """What would happen if the job joined those on the GPU at a position of ``gpus``."""
        p, at = self.problem, np.array([position])
        contents, cap = self.content_of[at], p.cap_milli.item(job, int(self.kind[position]))
        mine = self.mine(p.job_type.item(job), contents)
        own = int(mine[0])
        if own > cap:
            return Verdict(own, "forbidden" if own >= FORBIDDEN else "own cap", own, cap)
        theirs = self.theirs(p.job_type.item(job), contents)
        over = np.flatnonzero(theirs[0] > self.seats.cap[position])
        if len(over):
            worst, limit = int(theirs[0, over[0]]), int(self.seats.cap[position, over[0]])
            victim = int(self.seats.job[position, over[0]])
            return Verdict(own, "forbidden" if worst >= FORBIDDEN else "their cap", worst, limit, victim)
        return self._gate_verdict(job, position, own, theirs[0]) if p.gate else Verdict(own)

    def _gate_verdict(self, job: int, position: int, own: int, theirs: np.ndarray) -> Verdict:
        size, sizes = self.problem.size_milli.item(job), self.seats.size[position]
        together = size * (WHOLE // own) + int((sizes * (WHOLE // theirs)).sum())
        beat = max(size, int(sizes.max())) * PPM
        if together <= beat:
            return Verdict(own, "too little", together // PPM, beat // PPM)
        beat = int(self.best_without(job, np.array([position]))[0])
        return Verdict(own, "gate", together // PPM, beat // PPM) if together < beat else Verdict(own)
