"""Whose start is in a job's way, where the job would fit beside the running jobs alone.

The place is looked for on the base plan (running jobs stay, nothing starts) so that the starts it would displace gain
least. Of these only what they lose or gain themselves is counted: makespan and neighbours may still decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.explain.choosing import cheapest_spot, node_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.explain.places import open_mask, open_now
from solvers.problem import MILLI

if TYPE_CHECKING:
    from solvers.problem import Spot


@dataclass(frozen=True)
class Displaced:
    """A place on the base plan and the starts that have it now; gains in milli-GPU-seconds."""

    spot: Spot
    jobs: tuple[int, ...]
    theirs: int
    slowdown_cost: int  # what the job would lose there


class Base:
    """The base plan beside the plan that was made."""

    def __init__(self, survey: Survey, ledger: Ledger, kept: np.ndarray, wishes: np.ndarray) -> None:
        self.now, self.ledger = survey, ledger
        self.survey = Survey(survey.problem, survey.problem.home, kept, wishes)
        self._gains_on: dict[int, np.ndarray] = {}

    @cached_property
    def _alone(self) -> Ledger:
        return Ledger(self.survey)

    @cached_property
    def gains(self) -> dict[int, int]:
        """What each start of the plan gains by starting; a job that moves runs either way."""
        p, placed = self.now.problem, self.now.placed
        return {
            j: p.wait_cost.item(j) - self.ledger.own(j) if p.home[j] is None else 0
            for j, spot in enumerate(placed)
            if spot is not None and spot != p.home[j]
        }

    @cached_property
    def starts(self) -> np.ndarray:
        """The GPUs that this plan gives to a start; (G,) bool."""
        mask = np.zeros(self.now.problem.gpus, bool)
        for j in self.gains:
            mask[list(self.now.placed[j] or ()) if self.now.problem.job_gpus.item(j) else []] = True
        return mask

    def _on_gpu(self, n: int) -> np.ndarray:
        """Gains of the starts on each GPU to one that wants n GPUs; a gang's is spread over those it might want; (G,)."""
        if n not in self._gains_on:
            total = self._gains_on[n] = np.zeros(self.now.problem.gpus)
            for j, gain in self.gains.items():
                spot = self.now.placed[j] or ()
                if self.now.problem.job_gpus.item(j):
                    total[list(spot)] += gain / min(n, len(spot))
        return self._gains_on[n]

    @cached_property
    def _on_node(self) -> dict[int, list[int]]:
        """The starts on each node, those that gain least first."""
        p, found = self.now.problem, dict[int, list[int]]()
        for j in sorted(self.gains, key=lambda j: (self.gains[j], j)):
            spot = self.now.placed[j] or ()
            for v in {p.gpu_node.item(g) for g in spot} if p.job_gpus.item(j) else spot:
                found.setdefault(v, []).append(j)
        return found

    def fits(self, job: int) -> bool:
        """The job would fit if nothing else started."""
        if not self.now.problem.job_gpus.item(job):
            return node_for(self.survey, job) is not None
        return open_now(self.survey, job) >= self.now.problem.job_gpus.item(job)

    def displaced(self, job: int) -> Displaced | None:
        """The place whose starts gain least; None if a quick look finds none."""
        p = self.now.problem
        if not p.job_gpus.item(job):
            spot = node_for(self.survey, job)
            return None if spot is None else self._at(job, spot, set(), dict.fromkeys(spot, 0), 0)
        view = self.survey
        clear = np.zeros(p.gpus, bool)
        clear[self.now.gpus] = self.now.openings(job).clear
        nuisance = (
            np.where(clear, 0, self._on_gpu(p.job_gpus.item(job)))[view.gpus]
            + self._host_nuisance(job)[view.node]
        )
        spot = cheapest_spot(view, job, open_mask(view, job), nuisance)
        if spot is None:
            return None
        there = {j for g in spot if not clear[g] for j in self.now.room.tenants[g] if j in self.gains}
        nodes, counts = np.unique(p.gpu_node[list(spot)], return_counts=True)
        on_node = dict(zip(nodes.tolist(), counts.tolist(), strict=True))
        joining = self._alone.joining(job, spot)
        return self._at(job, spot, there, on_node, joining.own + joining.theirs)

    def _host_nuisance(self, job: int) -> np.ndarray:
        """What the cheapest start on a node gains where its cores or memory are short now; (V,)."""
        return np.where(self.now.hosts(job) < 1, self._least_on_node, 0)

    @cached_property
    def _least_on_node(self) -> np.ndarray:
        cost = np.zeros(self.now.problem.nodes)
        for v, starts in self._on_node.items():
            cost[v] = self.gains[starts[0]]
        return cost

    def _at(
        self, job: int, spot: Spot, there: set[int], on_node: dict[int, int], slowdown_cost: int
    ) -> Displaced:
        """Those on the GPUs, and on each node as many more as hold the cores and memory that are short."""
        p, room, gone = self.now.problem, self.now.room, set(there)
        for v, count in on_node.items():
            cpu = room.node_cpu_free.item(v) - _part(p.cpu_milli.item(job), count, p.job_gpus.item(job))
            memory = room.node_memory_free.item(v) - _part(
                p.host_memory_mib.item(job), count, p.job_gpus.item(job)
            )
            on = self._on_node.get(v, [])
            for j in [j for j in on if j in gone] + [j for j in on if j not in gone]:
                if j not in gone and cpu >= 0 and memory >= 0 and not p.node_alone.item(job):
                    break
                n, at = p.job_gpus.item(j), self.now.placed[j] or ()
                held = sum(p.gpu_node.item(g) == v for g in at) if n else 0
                cpu += _part(p.cpu_milli.item(j), held, n)
                memory += _part(p.host_memory_mib.item(j), held, n)
                gone.add(j)
        jobs = tuple(sorted(gone, key=lambda j: (self.gains[j], j)))
        return Displaced(spot, jobs, sum(self.gains[j] for j in jobs), slowdown_cost)

    def gain(self, job: int, found: Displaced) -> int:
        """What the job would gain by starting there."""
        return self.now.problem.wait_cost.item(job) - found.slowdown_cost


def _part(demand: int, count: int, n: int) -> int:
    return -(-demand * count // n) if n else demand


def gpu_s(milli: int) -> str:
    """Whole GPU-seconds."""
    return f"{milli / MILLI:.0f} GPU-s"
