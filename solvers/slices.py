"""Slices: contents of single GPUs, and how many GPUs get which, in whole numbers.

The columns are those that column generation found for the linear program (contents of one GPU, and gangs that take a whole
node with what lies beside them); the rows are the jobs of each class, a pool's GPUs, cores and host memory, and gangs that
need all their slots in one pool. Nothing here knows single nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from solvers.facts import Facts
from solvers.patterns_master import Master
from solvers.problem import Problem
from solvers.slice_program import Program

#: Classes of jobs are cut into so many steps of what waiting costs.
STEPS = 8
#: What a job is worth at most for not making the makespan longer, in the dearest job's waiting.
URGENT = 2.0


@dataclass(frozen=True)
class Slice:
    """The content of one GPU, or of a node's GPUs if gangs fill it: slots of each row, and what a column costs."""

    pool: int
    offering: int  # its place in the pool
    gpus: int
    holds: tuple[tuple[int, int], ...]  # (row, slots)
    cost: float  # milli-GPU-seconds


class Slices:
    """The columns that the bound by patterns found, and the whole-number program over them.

    Parameters
    ----------
    master
        The linear program of the bound, for this problem.
    """

    def __init__(self, problem: Problem, master: Master) -> None:
        self.facts = Facts(problem)
        self.worth = _worth(self.facts)
        self.problem = problem
        self.kin = master.relaxed.kin
        self.rows = self.kin.rows
        self.jobs = [np.flatnonzero(self.rows.of == r) for r in range(len(self.rows))]
        self.jobs = [jobs[np.argsort(-self.worth[jobs], kind="stable")] for jobs in self.jobs]
        columns = _columns(master)
        self.slices = [Slice(k, i, gpus, self._whole(k, held), cost) for (k, i, gpus), held, cost in columns]

    def program(self, host_part: float) -> Program:
        """Whole numbers of slices, then of gangs in each place, then of jobs by steps; pools offer a part of their hosts."""
        program = Program()
        pools = self.kin.pools
        slots: dict[tuple[int, int], dict[int, float]] = {}
        for one in self.slices:
            pool = pools[one.pool]
            x = program.variable(one.cost, pool.nodes * pool.counts[one.offering] // one.gpus)
            for r, count in one.holds:
                slots.setdefault((r, self._place(r, one.pool)), {})[x] = -float(count)
        self._add_rooms(program, host_part)
        running: dict[int, dict[int, float]] = {r: {} for r in range(len(self.rows))}
        for (r, _), terms in slots.items():
            n = int(self.rows.gpus[r])
            if n == 1:
                running[r] |= terms
                continue
            whole = program.variable(0.0, len(self.jobs[r]))
            program.row(terms | {whole: float(n)}, 0.0)
            running[r][whole] = -1.0
        for r, terms in running.items():
            for step in np.array_split(self.jobs[r], min(STEPS, len(self.jobs[r]))) if terms else ():
                terms[program.variable(-float(self.worth[step].mean()), len(step))] = 1.0
            program.row(terms, 0.0)
        return program

    def _place(self, r: int, k: int) -> int:
        """Slots of a gang count together if they are in one pool, or on one kind for a gang wider than a node."""
        pools, offerings = self.kin.pools, self.kin.offerings
        n = int(self.rows.gpus[r])
        if n == 1:
            return 0
        return k if n <= sum(pools[k].counts) else -1 - offerings[pools[k].offerings[0]].kind

    def _add_rooms(self, program: Program, host_part: float) -> None:
        """A pool's GPUs of each offering, cores and host memory."""
        gpus: dict[tuple[int, int], dict[int, float]] = {}
        hosts: dict[tuple[int, int], dict[int, float]] = {}
        pools = self.kin.pools
        for x, one in enumerate(self.slices):
            gpus.setdefault((one.pool, one.offering), {})[x] = float(one.gpus)
            pool = pools[one.pool]
            for i, (use, room) in enumerate(
                zip(self.host(one.holds), (pool.cpu_milli, pool.memory_mib), strict=True)
            ):
                if use > 0:
                    hosts.setdefault((one.pool, i), {})[x] = use / max(room, 1e-9)
        for (k, i), terms in gpus.items():
            program.row(terms, float(pools[k].nodes * pools[k].counts[i]))
        for (k, _), terms in hosts.items():
            program.row(terms, host_part * pools[k].nodes)

    def _whole(self, k: int, held: dict[int, float]) -> tuple[tuple[int, int], ...]:
        """Slots in whole numbers: a node's GPUs may have been filled by parts of contents, the largest of which are rounded up."""
        pool = self.kin.pools[k]
        whole = {r: int(a + 1e-6) for r, a in held.items()}
        more = round(sum(held.values())) - sum(whole.values())
        for r in sorted(held, key=lambda r: whole[r] - held[r])[:more]:
            whole[r] += 1
            cpu, memory = self.host(tuple(whole.items()))
            if cpu > pool.cpu_milli or memory > pool.memory_mib:
                whole[r] -= 1
        return tuple((r, count) for r, count in whole.items() if count)

    def host(self, holds: tuple[tuple[int, int], ...]) -> tuple[float, float]:
        """Cores (milli-CPUs) and host memory (MiB) of these slots."""
        p, first, n = self.problem, self.rows.first, self.rows.gpus
        cpu = sum(int(p.cpu_milli[first[r]]) * count / int(n[r]) for r, count in holds)
        memory = sum(int(p.host_memory_mib[first[r]]) * count / int(n[r]) for r, count in holds)
        return cpu, memory

    def rounded(self, program: Program, x: np.ndarray | None) -> np.ndarray:
        """A feasible point from a fractional one (None: zeros): slices rounded down, then the largest fractions up where they fit."""
        n = len(self.slices)
        x = np.zeros(n) if x is None else x
        rooms = [
            (terms, room)
            for terms, room in zip(program.rows, program.room, strict=True)
            if min(terms.values()) > 0
        ]
        down = np.floor(x[:n] + 1e-6).astype(np.int64)
        of: list[list[tuple[int, float]]] = [[] for _ in range(n)]
        left = np.array([room for _, room in rooms])
        for at, (terms, _) in enumerate(rooms):
            for i, a in terms.items():
                of[i].append((at, a))
                left[at] -= a * down[i]
        part = x[:n] - down
        for i in np.argsort(-part, kind="stable")[: int((part > 1e-6).sum())].tolist():
            if all(left[at] >= a - 1e-9 for at, a in of[i]):
                down[i] += 1
                for at, a in of[i]:
                    left[at] -= a
        return _completed(program, down)


def _completed(program: Program, slices: np.ndarray) -> np.ndarray:
    """Numbers of slices with as many gangs and jobs as they allow."""
    x = np.r_[slices, np.zeros(len(program.cost) - len(slices), np.int64)]
    # Gangs come before the jobs that need them.
    for terms in program.rows:
        room = -sum(a * x[i] for i, a in terms.items() if a < 0)
        for i, a in terms.items():
            if a > 0 and i >= len(slices):
                x[i] = min(program.most[i], int(room / a + 1e-9))
                room -= a * x[i]
    return x


def _worth(facts: Facts) -> np.ndarray:
    """What waiting costs each job, shape (J,), with what it would add to the makespan: that much more than the dearest others."""
    p = facts.problem
    late = np.maximum(p.deferred_end - facts.earliest_makespan, 0) * p.makespan_cost
    gpus = np.maximum(p.job_gpus, 1)
    dearest = float((p.wait_cost / gpus).max(initial=0))
    worth: np.ndarray = p.wait_cost + np.minimum(late, URGENT * dearest * gpus).astype(np.int64)
    return worth


def _columns(master: Master) -> Iterator[tuple[tuple[int, int, int], dict[int, float], float]]:
    """The contents and whole nodes among the columns of a linear program: pool, offering and GPUs; slots; cost."""
    lp = master.engine.getLp()
    matrix = lp.a_matrix_
    start, index, value = (np.array(part) for part in (matrix.start_, matrix.index_, matrix.value_))
    cost = np.array(lp.col_cost_) * master.unit
    jobs = len(master.relaxed.kin.rows)
    gpu_row = {
        first + i: (k, place)
        for k, first in enumerate(master.pool_row)
        for i, (place, _) in enumerate(master.sample[k])
    }
    for c, (low, high) in enumerate(zip(start[:-1].tolist(), start[1:].tolist(), strict=True)):
        column = dict(zip(index[low:high].tolist(), value[low:high].tolist(), strict=True))
        at = next((r for r in column if r in gpu_row), None)
        held = {r: a for r, a in column.items() if r < jobs}
        if at is None or not held or min(column.values()) < 0:
            continue  # steps of jobs, and crowds
        yield (*gpu_row[at], round(column[at])), held, float(cost[c])


def contents(one: Slice, gpus_of: np.ndarray) -> list[list[int]]:
    """The rows on each GPU of a slice, gangs on neighbouring GPUs."""
    gpus: list[list[int]] = [[] for _ in range(one.gpus)]
    ordered = sorted(one.holds, key=lambda held: (-int(gpus_of[held[0]]), held[0]))
    for _, group in groupby(ordered, key=lambda held: int(gpus_of[held[0]])):
        slots = [r for r, count in group for _ in range(count)]
        while slots:
            fewest = min(map(len, gpus))
            for gpu in [gpu for gpu in gpus if len(gpu) == fewest][: len(slots)]:
                gpu.append(slots.pop(0))
    return gpus
