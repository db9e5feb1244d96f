"""What a placement makes of the variables of the job-level program: the values for a hint."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from solvers.measure import Effect, effects, ends
from solvers.modes import Mode, Tables
from solvers.problem import Placed, Problem, Spot


@dataclass(frozen=True)
class View:
    """What a placement makes of the program's variables."""

    problem: Problem
    tables: Tables
    placed: Placed

    def stays(self, j: int) -> int:
        """1 if the job runs and stays."""
        return int(self.placed[j] is not None and self.placed[j] == self.problem.home[j])

    def enters(self, j: int) -> int:
        """1 if the job is a newcomer."""
        return int(self.placed[j] is not None and not self.stays(j))

    def chosen(self, c: int, i: int) -> int:
        """How many GPUs of the cell have this column."""
        column = self.tables.cells[c].columns[i]
        return self._columns[c][column.stay, column.new]

    def count(self, j: int, v: int) -> int:
        """GPUs that a newcomer takes on a node; 1 for a job without GPUs."""
        if not self.enters(j):
            return 0
        spot = self.placed[j] or ()
        if self.problem.job_gpus.item(j) == 0:
            return int(v in spot)
        return sum(self.problem.gpu_node.item(g) == v for g in spot)

    def runs_as(self, j: int, mode: Mode) -> int:
        """1 if a placed gang is on this kind with this slowdown and these links."""
        effect, spot = self._effects[j], self.placed[j]
        if effect is None or not spot or self.problem.gpu_kind.item(spot[0]) != mode.kind:
            return 0
        return int((effect.slowdown, effect.link) == (mode.slowdown, mode.link))

    def inside(self, j: int, cells: Spot) -> int:
        """1 if all GPUs of a newcomer are in these cells."""
        gpus = {g for c in cells for g in self.tables.cells[c].gpus}
        return int(self.enters(j) and gpus.issuperset(self.placed[j] or ()))

    def has_index(self, j: int, index: int) -> int:
        """1 if a newcomer takes a GPU with this index on some node."""
        spot = self.placed[j] or ()
        return int(self.enters(j) and any(self.problem.gpu_index.item(g) == index for g in spot))

    def used(self, v: int) -> int:
        """1 if a GPU of the node has a tenant."""
        return int(any(self.problem.gpu_node.item(g) == v for g in self._tenants))

    def entered(self, v: int) -> int:
        """1 if a newcomer uses the node."""
        return int(any(self.count(j, v) for j in range(self.problem.jobs)))

    def last_end(self) -> int:
        """The largest end."""
        return max((e for e in ends(self.problem, self.placed) if e is not None), default=0)

    @cached_property
    def _effects(self) -> tuple[Effect | None, ...]:
        return effects(self.problem, self.placed)

    @cached_property
    def _tenants(self) -> dict[int, tuple[Spot, Spot]]:
        """GPU -> residents that stay, newcomers; both ascending."""
        stay: dict[int, Spot] = {}
        new: dict[int, Spot] = {}
        for j, spot in enumerate(self.placed):
            side = stay if self.stays(j) else new
            for g in spot or () if self.problem.job_gpus.item(j) else ():
                side[g] = (*side.get(g, ()), j)
        return {g: (stay.get(g, ()), new.get(g, ())) for g in stay | new}

    @cached_property
    def _columns(self) -> list[Counter[tuple[Spot, Spot]]]:
        return [Counter(self._tenants.get(g, ((), ())) for g in cell.gpus) for cell in self.tables.cells]
