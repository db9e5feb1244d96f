"""The rules of the job-level program in CP-SAT, one function a rule, in the words of ``solvers.problem``.

The rules for one GPU are not here: a column that breaks one does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ortools.sat.python.cp_model import IntVar, LinearExpr

from solvers.columns import may_wait, node_demand
from solvers.cpsat_model import Program, Sure, difference, weighted
from solvers.modes import Gang
from solvers.problem import NETWORK, NVLINK, PCIE
from solvers.twins import twins


def add_rules(p: Program) -> None:
    """Every rule that needs more than one GPU."""
    _columns(p)
    _residents(p)
    _placed_once(p)
    for gang in p.tables.gangs:
        _gang(p, gang)
        _levels(p, gang)
        _counts(p, gang)
        _links(p, gang)
        _window(p, gang)
    _host(p)
    _whole_node(p)
    _budgets(p)
    _max_moves(p)
    _twins(p)


def _columns(p: Program) -> None:
    """Every GPU has exactly one tenant set."""
    for cell, ys in zip(p.tables.cells, p.y, strict=True):
        p.model.add(LinearExpr.sum(ys) == len(cell.gpus))


def _residents(p: Program) -> None:
    """A job that stays is a tenant of all its home's GPUs, one that leaves of none."""
    for j in p.jobs:
        if isinstance(p.stay[j], int):
            continue
        for c in {c for c, _, _ in p.home[j]}:
            ys = [y for d, _, y in p.home[j] if d == c]
            p.model.add(LinearExpr.sum(ys) == len(p.tables.cells[c].gpus) * p.stay[j])


def _placed_once(p: Program) -> None:
    """A job stays, is a newcomer in one place, or is None if it may be."""
    for j in p.jobs:
        total = weighted([(p.stay[j], 1), *((var, 1) for var in p.enters(j))])
        if may_wait(p.problem, j):
            p.model.add(total <= 1)
        else:
            p.model.add(total == 1)
        if p.problem.job_gpus.item(j) == 1:
            for v, at in p.at[j].items():
                p.model.add(LinearExpr.sum([y for _, y in p.on_node(j, v)]) == at)


def _gang(p: Program, gang: Gang) -> None:
    """A gang gets all its GPUs, of one kind."""
    go, stay = p.modes[gang.job]
    if stay:
        p.model.add(LinearExpr.sum([var for _, var in stay]) == p.stay[gang.job])
    for kind in {mode.kind for mode, _ in go}:
        gpus = [(y, 1) for c, _, y in p.new[gang.job] if p.tables.cells[c].kind == kind]
        modes = [(var, -gang.size) for mode, var in go if mode.kind == kind]
        p.model.add(weighted(gpus + modes) == 0)


def _levels(p: Program, gang: Gang) -> None:
    """The slowest GPU decides: none is slower than the mode says, and one is as slow."""
    go, stay = p.modes[gang.job]
    for modes, columns in ((go, p.new[gang.job]), (stay, p.home[gang.job])):
        cells = sorted({c for c, _, _ in columns})
        for c in cells:
            kind = p.tables.cells[c].kind if modes is go else None
            most = min(gang.size, len(p.tables.cells[c].gpus))
            for level in sorted({s for d, s, _ in columns if d == c}):
                slow = [(y, 1) for d, s, y in columns if d == c and s >= level]
                allowed = [(var, -most) for m, var in modes if m.slowdown >= level and kind in (None, m.kind)]
                p.model.add(weighted(slow + allowed) <= 0)
        for mode, var in modes:
            there = [
                y
                for c, s, y in columns
                if s == mode.slowdown and (modes is stay or p.tables.cells[c].kind == mode.kind)
            ]
            p.model.add(LinearExpr.sum(there) >= var)


def _counts(p: Program, gang: Gang) -> None:
    """On how many nodes, and with how many GPUs on each."""
    problem, j, counts = p.problem, gang.job, p.counts[gang.job]
    for v, at in p.at[j].items():
        p.model.add(LinearExpr.sum(list(counts[v].values())) == at)
        gpus = [(y, 1) for _, y in p.on_node(j, v)]
        p.model.add(weighted([*gpus, *((var, -q) for q, var in counts[v].items())]) == 0)
    for c, _, y in p.new[j]:
        if p.tables.cells[c].node not in counts:
            p.model.add(y == 0)
    if p.at[j]:
        p.model.add(LinearExpr.sum(list(p.at[j].values())) <= problem.max_nodes.item(j))
    if problem.equal_per_node or problem.same_index:
        _equal_counts(p, gang)
    if problem.same_index:
        _same_index(p, gang)


def _equal_counts(p: Program, gang: Gang) -> None:
    """The same number of GPUs on each node."""
    counts = p.counts[gang.job]
    each: dict[int, IntVar] = {}
    for q in sorted({q for sizes in gang.counts.values() for q in sizes}):
        each[q] = p.bool_var(
            f"each[{gang.job},{q}]",
            lambda view, q=q: int(any(view.count(gang.job, v) == q for v in gang.counts)),  # type: ignore[misc]
        )
        for of_node in counts.values():
            if q in of_node:
                p.model.add_implication(of_node[q], each[q])
    p.model.add(LinearExpr.sum(list(each.values())) <= 1)


def _same_index(p: Program, gang: Gang) -> None:
    """The same gpu_index set on each node."""
    j, cells = gang.job, p.tables.cells
    index_of = [p.problem.gpu_index.item(cell.gpus[0]) for cell in cells]
    taken = {
        index: p.bool_var(f"index[{j},{index}]", lambda view, i=index: view.has_index(j, i))  # type: ignore[misc]
        for index in sorted(set(index_of))
    }
    for v, at in p.at[j].items():
        for index, var in taken.items():
            here = [y for c, y in p.on_node(j, v) if index_of[c] == index]
            p.model.add(weighted([*((y, 1) for y in here), (var, -1), (at, -1)]) >= -1)
            p.model.add(LinearExpr.sum(here) <= var)


def _links(p: Program, gang: Gang) -> None:
    """Link class 0 in one link group, 1 in one node, 2 otherwise."""
    j, n = gang.job, gang.size
    go = p.modes[j][0]
    inside: dict[int, IntVar] = {}
    for link, cells in gang.groups.items():
        inside[link] = p.bool_var(f"inside[{j},{link}]", lambda view, c=cells: view.inside(j, c))  # type: ignore[misc]
        gpus = [(y, 1) for c, _, y in p.new[j] if c in cells]
        p.model.add(weighted([*gpus, (inside[link], -n)]) >= 0)
        outside = [(var, 1 - n) for _, var in go]
        p.model.add(weighted([*gpus, *outside, (inside[link], -1)]) <= 0)
    whole = [of_node[n] for of_node in p.counts[j].values() if n in of_node]
    of_class = {i: [var for mode, var in go if mode.link == i] for i in (NVLINK, PCIE, NETWORK)}
    p.model.add(difference(of_class[NVLINK], list(inside.values())) == 0)
    p.model.add(difference(of_class[PCIE], whole) <= 0)
    p.model.add(weighted([*((var, 1) for var in of_class[NETWORK] + whole)]) <= 1)
    p.model.add(difference(whole, of_class[NVLINK] + of_class[PCIE]) <= 0)
    _groups_in_nodes(p, gang, inside)


def _groups_in_nodes(p: Program, gang: Gang, inside: dict[int, IntVar]) -> None:
    """A gang in one of a node's link groups is on that node; implied, and tightens the relaxation."""
    for v, of_node in p.counts[gang.job].items():
        groups = [
            var for link, var in inside.items() if {p.tables.cells[c].node for c in gang.groups[link]} == {v}
        ]
        if groups and gang.size in of_node:
            p.model.add(LinearExpr.sum(groups) <= of_node[gang.size])


def _window(p: Program, gang: Gang) -> None:
    """A newcomer on a reserved GPU that it does not hold ends before the reservation."""
    for c in sorted({c for c, _, _ in p.new[gang.job]}):
        cell = p.tables.cells[c]
        if cell.until_s < 0 or cell.holder == gang.job:
            continue
        most = min(gang.size, len(cell.gpus))
        in_time = [
            (var, -most)
            for mode, var in p.modes[gang.job][0]
            if mode.window_s is not None and mode.window_s <= cell.until_s
        ]
        here = [(y, 1) for d, _, y in p.new[gang.job] if d == c]
        p.model.add(weighted(here + in_time) <= 0)


def _host(p: Program) -> None:
    """The cores and memory of a node's jobs are at most the node's, if a newcomer uses it."""
    for v in p.nodes:
        entered = [at for of_job in p.at for node, at in of_job.items() if node == v]
        if not entered:
            continue
        for part, room in enumerate((p.problem.node_cpu_milli.item(v), p.problem.node_memory_mib.item(v))):
            residents = list(_resident_demand(p, v, part))
            excess = sum(demand for _, demand in residents) - room
            demands = residents + list(_newcomer_demand(p, v, part))
            if excess > 0:
                used = p.bool_var(f"entered[{v},{part}]", lambda view, v=v: view.entered(v))  # type: ignore[misc]
                p.model.add_max_equality(used, entered)
                demands.append((used, excess))
                room += excess
            p.model.add(weighted(demands) <= room)


def _resident_demand(p: Program, v: int, part: int) -> Iterator[tuple[Sure, int]]:
    for j, home in enumerate(p.problem.home):
        if home is None:
            continue
        n = p.problem.job_gpus.item(j)
        count = sum(p.problem.gpu_node.item(g) == v for g in home) if n else int(v in home)
        if count:
            yield p.stay[j], node_demand(p.problem, j, count)[part]


def _newcomer_demand(p: Program, v: int, part: int) -> Iterator[tuple[Sure, int]]:
    for j, of_job in enumerate(p.at):
        if v not in of_job:
            continue
        if j in p.counts:
            for q, var in p.counts[j][v].items():
                yield var, node_demand(p.problem, j, q)[part]
        else:
            yield of_job[v], node_demand(p.problem, j, 1)[part]


def _whole_node(p: Program) -> None:
    """A job that wants whole nodes shares no node with any other, unless both only stay."""
    for v in p.nodes:
        new = [(j, of_job[v]) for j, of_job in enumerate(p.at) if v in of_job]
        here = [(j, p.stay[j]) for j, _ in enumerate(p.problem.home) if _is_home(p, j, v)]
        for a, at in new:
            for b, other in [*((b, o) for b, o in new if b > a), *((b, o) for b, o in here if b != a)]:
                if p.problem.node_alone.item(a) or p.problem.node_alone.item(b):
                    p.model.add(weighted([(at, 1), (other, 1)]) <= 1)


def _is_home(p: Program, j: int, v: int) -> bool:
    home = p.problem.home[j] or ()
    if p.problem.job_gpus.item(j) == 0:
        return v in home
    return any(p.problem.gpu_node.item(g) == v for g in home)


def _budgets(p: Program) -> None:
    """The amounts of the queued jobs placed are at most the capacity."""
    for budget in p.problem.budgets:
        placed = [
            (var, amount)
            for j, amount in zip(budget.jobs, budget.amounts, strict=True)
            if p.problem.home[j] is None
            for var in p.enters(j)
        ]
        p.model.add(weighted(placed) <= budget.capacity)


def _max_moves(p: Program) -> None:
    """At most max_moves running jobs are moved or preempted."""
    stays = [var for var in p.stay if not isinstance(var, int)]
    p.model.add(len(stays) - LinearExpr.sum(stays) <= p.problem.max_moves)


def _twins(p: Program) -> None:
    """Twins come in the order of their nodes, those that wait last; cuts no optimum off."""
    for jobs in twins(p.problem):
        one_node = p.problem.job_gpus.item(jobs[0]) <= 1 or p.problem.max_nodes.item(jobs[0]) == 1
        for a, b in pairwise(jobs):
            if not (p.at[a] and p.at[b]):
                continue
            if one_node:  # how far from the end each of them comes, 0 if it waits
                early = [(at, p.problem.nodes - v) for v, at in p.at[a].items()]
                late = [(at, v - p.problem.nodes) for v, at in p.at[b].items()]
                p.model.add(weighted(early + late) >= 0)
            else:
                p.model.add(difference(p.enters(a), p.enters(b)) >= 0)
