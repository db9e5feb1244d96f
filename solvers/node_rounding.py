"""Whole numbers of node columns by branch and bound: CP-SAT and HiGHS on the best columns of the program.

Unlike the dive they keep a gang's parts together by a variable of their own: the parts chosen of a class on one GPU kind
are a multiple of what its gangs are cut into. On a few hundred nodes either may beat the dive; on more both run out of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import highspy
import numpy as np

from solvers.node_master import Master

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

#: With more nodes, neither finds anything in the time there is.
MOST_NODES = 160
#: Costs are rounded to this part of the largest, so that CP-SAT's sums stay small.
COST_STEPS = 10**7
#: HiGHS' word for a feasible point.
PRIMAL_FEASIBLE = 2


class Rounding:
    """The program with whole columns, without an engine yet."""

    def __init__(self, master: Master, seed: int) -> None:
        self.master, self.made, self.seed = master, master.made, seed
        self.picked = master.best_columns()
        self.columns = [self.made.columns[i] for i in self.picked]
        self.held = [self._parts(at) for at in range(len(self.columns))]
        self.gangs = sorted(
            {
                (c, self.made.kind_of_shape[self.columns[at].shape])
                for at, held in enumerate(self.held)
                for c in held
                if self.made.split_into[c] > 1
            }
        )

    def _parts(self, at: int) -> dict[int, int]:
        """What a column holds of each class, in parts."""
        held: dict[int, int] = {}
        for c, _ in self.columns[at].holds:
            held[c] = held.get(c, 0) + 1
        return held

    def chosen(self, counts: list[int]) -> list[int]:
        """Numbers of columns with repetitions."""
        return [number for number, count in zip(self.picked, counts, strict=True) for _ in range(count)]

    def by_cpsat(self, seconds: float, hint: list[int]) -> list[int] | None:
        """The best found in a time by CP-SAT, begun from a choice of columns; None if there is none."""
        from ortools.sat.python import cp_model  # 50 MiB, so only where it is used

        model = cp_model.CpModel()
        nodes, made, master = self.master.nodes, self.made, self.master
        x = [model.new_int_var(0, int(nodes[column.shape]), "") for column in self.columns]
        by_shape: dict[int, list[cp_model.IntVar]] = {}
        by_class: dict[int, list[cp_model.LinearExpr]] = {}
        for at, column in enumerate(self.columns):
            by_shape.setdefault(column.shape, []).append(x[at])
            for c, count in self.held[at].items():
                by_class.setdefault(c, []).append(count * x[at])
        for shape, among in by_shape.items():
            model.add(sum(among) <= int(nodes[shape]))
        unit = max(1.0, float(made.worth.max(initial=1)) / COST_STEPS)
        gains = []
        for c, terms in by_class.items():
            steps = [(round(wait / unit), model.new_int_var(0, count, "")) for wait, count in master.steps[c]]
            model.add(made.split_into[c] * sum(y for _, y in steps) <= sum(terms))
            gains += [wait * y for wait, y in steps]
        for c, kind in self.gangs:
            whole = model.new_int_var(0, len(made.members[c]), "")
            parts = [
                held[c] * x[at]
                for at, held in enumerate(self.held)
                if c in held and made.kind_of_shape[self.columns[at].shape] == kind
            ]
            model.add(sum(parts) == made.split_into[c] * whole)
        model.minimize(
            sum(round(col.cost / unit) * x[at] for at, col in enumerate(self.columns)) - sum(gains)
        )
        for at, number in enumerate(self.picked):
            model.add_hint(x[at], min(hint.count(number), int(nodes[self.columns[at].shape])))
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.seed
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return self.chosen([int(solver.value(variable)) for variable in x])

    def by_highs(self, seconds: float) -> list[int] | None:
        """The best found in a time by HiGHS; None if there is none."""
        mip, first, n = self.master.restricted(self.picked), self.master.first, len(self.columns)
        for c, kind in self.gangs:
            self._join(mip, c, kind)
        whole = np.arange(first, first + n + len(self.gangs), dtype=np.int32)
        mip.changeColsIntegrality(len(whole), whole, np.full(len(whole), highspy.HighsVarType.kInteger))
        mip.setOptionValue("time_limit", seconds)
        mip.setOptionValue("presolve", "choose")
        mip.setOptionValue("random_seed", self.seed)
        mip.run()
        if mip.getInfo().primal_solution_status != PRIMAL_FEASIBLE:
            return None
        values = np.rint(mip.getSolution().col_value).astype(int)[first : first + n]
        return self.chosen(values.tolist())

    def _join(self, mip: highspy.Highs, c: int, kind: int) -> None:
        """The parts chosen of a class on a GPU kind are a multiple of what its gangs are cut into."""
        n = mip.getNumCol()
        mip.addCol(0.0, 0.0, float(len(self.made.members[c])), 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        at, values = [n], [-float(self.made.split_into[c])]
        for i, held in enumerate(self.held):
            if c in held and self.made.kind_of_shape[self.columns[i].shape] == kind:
                at.append(self.master.first + i)
                values.append(float(held[c]))
        mip.addRow(0.0, 0.0, len(at), np.array(at, dtype=np.int32), np.array(values))
