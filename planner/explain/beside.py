"""Whether a waiting job could run beside those already on a GPU, and if not, by which number.

GPUs with alike tenants are judged once: a *content* is a GPU kind with the (type, size, cap, newcomer) of each
tenant. Slowdowns come from the Problem's own interference rows, so what is said here is what the solver saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.explain.room import Room
from solvers.problem import FORBIDDEN, MILLI, PPM, Placed, Problem

Breach = Literal["", "forbidden", "own cap", "their cap", "gate"]


@dataclass(frozen=True)
class Tenant:
    """What decides whether a job may be beside others."""

    type: int
    size_milli: int
    cap_milli: int
    newcomer: bool


@dataclass(frozen=True)
class Verdict:
    """What would happen if the job joined: its slowdown, and the rule that would break, if any.

    ``value`` and ``limit`` are thousandths: a slowdown and its cap, or the GPUs' worth of progress together and the
    progress to beat. ``victim`` is the place in the content of the tenant that passes its cap.
    """

    slowdown_milli: int
    breach: Breach = ""
    value: int = 0
    limit: int = 0
    victim: int = -1


Content = tuple[int, tuple[Tenant, ...]]


class Neighbours:
    """Verdicts by content, kept so that each is worked out once."""

    def __init__(self, problem: Problem, placed: Placed, room: Room, gpus: np.ndarray) -> None:
        self.problem = problem
        self.newcomers = {j for j, spot in enumerate(placed) if spot is not None and spot != problem.home[j]}
        self.content_of, self.contents = self._contents(room, gpus)
        self._kept: dict[tuple[Tenant, int], Verdict] = {}

    def tenant(self, job: int, kind: int, newcomer: bool) -> Tenant:
        """A job as a tenant of a GPU of a kind."""
        problem = self.problem
        return Tenant(
            problem.job_type.item(job),
            problem.size_milli.item(job),
            problem.cap_milli.item(job, kind),
            newcomer,
        )

    def _contents(self, room: Room, gpus: np.ndarray) -> tuple[np.ndarray, list[Content]]:
        """The content of each of ``gpus`` and the distinct ones; -1 where nobody is."""
        number: dict[Content, int] = {}
        of_gpu = np.full(len(gpus), -1)
        for i, g in enumerate(gpus.tolist()):
            if not room.tenants[g]:
                continue
            kind = self.problem.gpu_kind.item(g)
            # In the tenants' own order, so that a verdict's victim can be named.
            tenants = tuple(self.tenant(j, kind, j in self.newcomers) for j in room.tenants[g])
            of_gpu[i] = number.setdefault((kind, tenants), len(number))
        return of_gpu, list(number)

    def admits(self, job: int, usable: np.ndarray) -> np.ndarray:
        """Which of the ``usable`` GPUs (a mask over ``gpus``) the job may enter as far as slowdowns and gate go."""
        wanted = np.unique(self.content_of[usable])
        good = np.zeros(len(self.contents) + 1, bool)
        good[-1] = True  # nobody there
        for c in wanted[wanted >= 0].tolist():
            good[c] = not self.verdict(job, c).breach
        return usable & good[self.content_of]

    def verdict(self, job: int, content: int) -> Verdict:
        """What would happen if the job joined a content."""
        kind = self.contents[content][0]
        me = self.tenant(job, kind, True)
        kept = self._kept.get((me, content))
        if kept is None:
            kept = self._kept[me, content] = self._judge(me, *self.contents[content])
        return kept

    def _judge(self, me: Tenant, kind: int, others: tuple[Tenant, ...]) -> Verdict:
        slowdowns = self.problem.interference.slowdown
        types = [t.type for t in others]
        mine = slowdowns(kind, me.type, types)
        if mine > me.cap_milli:
            return Verdict(mine, "forbidden" if mine >= FORBIDDEN else "own cap", mine, me.cap_milli)
        theirs = []
        for i, other in enumerate(others):
            s = slowdowns(kind, other.type, [*types[:i], *types[i + 1 :], me.type])
            if s > other.cap_milli:
                return Verdict(mine, "forbidden" if s >= FORBIDDEN else "their cap", s, other.cap_milli, i)
            theirs.append(s)
        return self._gate(me, others, mine, theirs, kind) if self.problem.gate else Verdict(mine)

    def _gate(
        self, me: Tenant, others: tuple[Tenant, ...], mine: int, theirs: list[int], kind: int
    ) -> Verdict:
        """Together they must progress by more than the largest alone, and than without any one newcomer."""
        everyone = [*others, me]
        together = _progress(everyone, [*theirs, mine])
        largest = max(t.size_milli for t in everyone)
        if together <= PPM * largest:
            return Verdict(mine, "gate", together // PPM, largest)
        for i, out in enumerate(everyone):
            if out.newcomer and len(everyone) > 2:
                rest = everyone[:i] + everyone[i + 1 :]
                without = _progress(rest, self._slowdowns(rest, kind))
                if together < without:
                    return Verdict(mine, "gate", together // PPM, without // PPM)
        return Verdict(mine)

    def _slowdowns(self, tenants: list[Tenant], kind: int) -> list[int]:
        types = [t.type for t in tenants]
        if len(types) == 1:
            return [MILLI]
        return [
            self.problem.interference.slowdown(kind, a, [*types[:i], *types[i + 1 :]])
            for i, a in enumerate(types)
        ]


def _progress(tenants: list[Tenant], slowdowns: list[int]) -> int:
    return sum(t.size_milli * (10**9 // s) for t, s in zip(tenants, slowdowns, strict=True))
