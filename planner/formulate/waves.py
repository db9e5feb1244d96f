"""The order in which a plan is carried out: nothing is given a GPU before its old tenant is gone.

In wave w those start whose GPUs were free of leaving tenants, and whose host resources were free, when the wave
began. A moving job keeps its old place through the wave it starts in. Where moves wait for each other in a
circle, one of them is parked: it leaves in an earlier wave than the one it starts again in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solvers.problem import Placed, Problem, Spot

#: Milli-CPUs and MiB of host memory by node.
Demand = dict[int, tuple[int, int]]


@dataclass
class _Replay:
    problem: Problem
    leaving: dict[int, set[int]] = field(default_factory=dict)  # GPU -> jobs that hold it and will leave
    cpu: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def enter(self, j: int, spot: Spot, sign: int) -> None:
        for v, (cpu, memory) in host_demand(self.problem, j, spot).items():
            self.cpu[v] -= sign * cpu
            self.memory[v] -= sign * memory

    def leave(self, j: int, home: Spot) -> None:
        self.enter(j, home, -1)
        if self.problem.job_gpus[j]:
            for g in home:
                self.leaving[g].discard(j)

    def can_start(self, j: int, spot: Spot) -> bool:
        if self.problem.job_gpus[j] and any(self.leaving.get(g, set()) - {j} for g in spot):
            return False
        return all(
            cpu <= self.cpu[v] and memory <= self.memory[v]
            for v, (cpu, memory) in host_demand(self.problem, j, spot).items()
        )


def host_demand(problem: Problem, j: int, spot: Spot) -> Demand:
    """Host resources of a placed job on each of its nodes, split by GPUs and rounded up."""
    n = int(problem.job_gpus[j])
    cpu, memory = int(problem.cpu_milli[j]), int(problem.host_memory_mib[j])
    if n == 0:
        return {spot[0]: (cpu, memory)}
    on: dict[int, int] = {}
    for g in spot:
        v = int(problem.gpu_node[g])
        on[v] = on.get(v, 0) + 1
    return {v: (-(-cpu * k // n), -(-memory * k // n)) for v, k in on.items()}


def waves(problem: Problem, placed: Placed) -> tuple[dict[int, int], dict[int, int]]:
    """Wave in which each starting or moving job starts, and in which each moving or stopped one leaves."""
    home = problem.home
    leavers = [j for j in range(problem.jobs) if home[j] is not None and placed[j] != home[j]]
    todo = [j for j in range(problem.jobs) if placed[j] is not None and placed[j] != home[j]]
    if not leavers:
        return dict.fromkeys(todo, 0), {}
    replay = _Replay(problem, {}, problem.node_cpu_milli.tolist(), problem.node_memory_mib.tolist())
    for j in range(problem.jobs):
        spot = home[j]
        if spot is not None:
            replay.enter(j, spot, 1)
    for j in leavers:
        for g in home[j] or () if problem.job_gpus[j] else ():
            replay.leaving.setdefault(g, set()).add(j)
    starts: dict[int, int] = {}
    leaves = {j: 0 for j in leavers if placed[j] is None}
    wave, gone = 0, list(leaves)
    while todo:
        started = _start_what_can(replay, todo, placed)
        starts.update(dict.fromkeys(started, wave))
        todo = [j for j in todo if j not in set(started)]
        movers = [j for j in started if home[j] is not None and j not in leaves]
        leaves.update(dict.fromkeys(movers, wave))
        gone += movers
        if not gone:
            parked = next((j for j in todo if home[j] is not None and j not in leaves), None)
            if parked is None:
                # Only a native rule break at home can leave a job without host room: start it last.
                starts.update(dict.fromkeys(todo, wave))
                break
            leaves[parked] = wave
            gone = [parked]
        for j in gone:
            replay.leave(j, home[j] or ())
        gone = []
        wave += 1
    return starts, leaves


def _start_what_can(replay: _Replay, todo: list[int], placed: Placed) -> list[int]:
    started = []
    for j in todo:
        spot = placed[j]
        if spot is not None and replay.can_start(j, spot):
            replay.enter(j, spot, 1)
            started.append(j)
    return started
