"""The terms of the job-level program in CP-SAT, one function a term, in the words of ``solvers.problem``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import gcd

from ortools.sat.python.cp_model import IntVar, LinearExpr

from solvers.columns import end, may_wait, price
from solvers.cpsat_model import Program, Sure, weighted
from solvers.problem import MILLI, NVLINK

#: Ends that the makespan is compared with, beyond what the program needs.
STEPS = 12


def add_terms(p: Program) -> None:
    """Minimise the sum of all terms."""
    _waiting_and_moves(p)
    _running_cost(p)
    _makespan(p)
    _fragmentation(p)
    _minimize(p)


def _waiting_and_moves(p: Program) -> None:
    """Waiting if None, moves if a running job does not stay."""
    for j in p.jobs:
        waiting = p.problem.wait_cost.item(j)
        p.constant += waiting
        for var in [p.stay[j], *p.enters(j)]:
            p.charge(var, -waiting)
        if p.problem.home[j] is not None:
            p.constant += p.problem.move_cost.item(j)
            p.charge(p.stay[j], -p.problem.move_cost.item(j))


def _running(p: Program, j: int) -> Iterator[tuple[Sure, int, int | None]]:
    """Each way to be placed, with its cost and its end."""
    problem, n = p.problem, p.problem.job_gpus.item(j)
    if n > 1:
        go, stay = p.modes[j]
        yield from ((var, mode.cost, mode.end) for mode, var in [*go, *stay])
    elif n == 1:
        for c, s, y in [*p.new[j], *p.home[j]]:
            kind = p.tables.cells[c].kind
            yield y, price(problem, j, kind, s, NVLINK), end(problem, j, kind, s, NVLINK)
    else:
        for var in [p.stay[j], *p.at[j].values()]:
            yield var, price(problem, j, 0, MILLI, NVLINK), end(problem, j, 0, MILLI, NVLINK)


def _running_cost(p: Program) -> None:
    """Speed, interference and locality of the placed jobs."""
    for j in p.jobs:
        for var, cost, _ in _running(p, j):
            p.charge(var, cost)


def _makespan(p: Program) -> None:
    """The largest end over all jobs."""
    if p.problem.makespan_cost == 0:
        return
    fates = [_fates(p, j) for j in p.jobs]
    floor = max((min((e for e, _ in fate), default=0) for fate in fates), default=0)
    top = max((e for fate in fates for e, _ in fate), default=0)
    last = p.int_var(floor, top, "last_end", lambda view: view.last_end())
    for fate in fates:
        p.model.add(last >= LinearExpr.sum([e * chosen for e, chosen in fate]))
    p.charge(last, p.problem.makespan_cost)
    _late(p, last, floor, top, fates)


def _fates(p: Program, j: int) -> list[tuple[int, LinearExpr]]:
    """All that can become of a job: the end, 0 if nobody knows it, and whether it comes to that."""
    by_end: dict[int, list[tuple[Sure, int]]] = defaultdict(list)
    for var, _, known in _running(p, j):
        if isinstance(var, IntVar) or var:
            by_end[known or 0].append((var, 1))
    fates = [(e, weighted(ways)) for e, ways in by_end.items()]
    if may_wait(p.problem, j):
        placed = [(p.stay[j], -1), *((var, -1) for var in p.enters(j))]
        fates.append((max(p.problem.deferred_end.item(j), 0), weighted(placed) + 1))
    return fates


def _late(p: Program, last: IntVar, floor: int, top: int, fates: list[list[tuple[int, LinearExpr]]]) -> None:
    """Whether the last end is past each of some ends; implied, and makes the relaxation much tighter."""
    known = sorted({e for fate in fates for e, _ in fate if e > floor})
    steps = known[:: -max(1, -(-len(known) // STEPS))][::-1]
    before: Sure = 1
    terms: list[tuple[Sure, int]] = [(last, -1)]
    for below, step in zip([floor, *steps], steps, strict=False):
        late = p.bool_var(f"late[{step}]", lambda view, step=step: int(view.last_end() >= step))  # type: ignore[misc]
        for fate in fates:
            p.model.add(LinearExpr.sum([chosen for e, chosen in fate if e >= step]) <= late)
        p.model.add(late <= before)
        p.model.add(last <= step - 1 + (top - step + 1) * late)
        terms.append((late, step - below))
        before = late
    p.model.add(weighted(terms) <= -floor)


def _fragmentation(p: Program) -> None:
    """Each node with a GPU in use, each GPU with a tenant."""
    for v in p.nodes:
        cost = p.problem.node_used_cost.item(v)
        cells = [c for c, cell in enumerate(p.tables.cells) if cell.node == v]
        if cost == 0 or not cells:
            continue
        used = p.bool_var(f"used[{v}]", lambda view, v=v: view.used(v))  # type: ignore[misc]
        busy = [list(_busy(p, c)) for c in cells]
        for c, ys in zip(cells, busy, strict=True):
            p.model.add(LinearExpr.sum(ys) <= len(p.tables.cells[c].gpus) * used)
        p.model.add(LinearExpr.sum([y for ys in busy for y in ys]) >= used)
        p.charge(used, cost)
    for c, cell in enumerate(p.tables.cells):
        for y in _busy(p, c):
            p.charge(y, p.problem.gpu_open_cost.item(cell.gpus[0]))


def _busy(p: Program, c: int) -> Iterator[IntVar]:
    """Variables of the columns with a tenant."""
    for column, y in zip(p.tables.cells[c].columns, p.y[c], strict=True):
        if column.tenants:
            yield y


def _minimize(p: Program) -> None:
    """Minimise the sum of the terms, divided by what all its factors share."""
    p.divisor = gcd(*(cost for _, cost in p.costs.values())) or 1
    p.model.minimize(weighted([(var, cost // p.divisor) for var, cost in p.costs.values()]))
