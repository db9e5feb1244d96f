"""A lower bound on the objective that holds at any size, from prices on what jobs share.

Why it is valid. Cut every plan into *options*: a job waits, or has its GPUs on kind m, each with r tenants. Whatever
the plan, (1) a job on kind m beside r - 1 others pays at least the least slowdown that any r - 1 types cause it, and
a gang, which pays for its slowest GPU, at least the mean over its GPUs; (2) a GPU with r tenants gives each of them one
r-th of itself, so these slices add up to no more than the GPUs there are; (3) memory, shares, cores and host memory
used on a kind (cores and host memory: on the nodes that kinds may share) add up to no more than what is offered, or
than what residents hold already, whichever is larger, GPU by GPU and node by node. So the plan obeys sums of the
form ``use <= capacity``. For any prices >= 0 on these sums, every job choosing its cheapest option at those prices,
less prices times capacities, is a lower bound (Lagrange). The prices come from a linear program over a sample of the
jobs; the bound is evaluated over all of them, so bad prices make it loose and never wrong. What no job's choice can
avoid is added: the makespan of the longest job at its best, and the base of the fragmentation term.

Left out, which only lowers the bound: gate, windows, consent, vetoes, links and node limits beyond a gang's size,
moves beyond their cost, and all packing inside a GPU or node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import highspy
import numpy as np

from solvers.facts import Facts
from solvers.problem import MILLI, NVLINK, PPM, Interference, Problem
from solvers.state import counts_by_node

#: Jobs in the linear program that finds the prices.
SAMPLE = 400
#: Rows of the interference table worth looking up for the least slowdown among three.
MAX_ROWS = 20_000
#: Budgets that get a price; the largest are the first to bind.
MAX_BUDGETS = 12
#: Number of tenants from which on sharing is taken to cost nothing.
CROWD = 4


def lower_bound(problem: Problem) -> int:
    """No feasible plan costs less."""
    fixed = problem.fragmentation_base
    fixed += int(np.minimum(problem.gpu_open_cost, 0).sum() + np.minimum(problem.node_used_cost, 0).sum())
    facts = Facts(problem)
    fixed += problem.makespan_cost * facts.earliest_makespan
    if not problem.jobs:
        return fixed
    options = _options(facts)
    free = np.zeros(len(options.rows))
    best = max(options.value(free), options.value(_prices(options)))
    # The terms of the program are rounded down, three to a job, and so is the part of its progress that a job keeps beside
    # others: a millionth of it may be charged as interference instead of locality. Sums of floats have ten digits.
    swapped = np.maximum(problem.unit_locality - problem.unit_interference, 0).sum() / PPM
    return fixed + int(np.floor(best - 4 * problem.jobs - swapped - 1e-10 * abs(best)))


@dataclass(frozen=True)
class Row:
    """A capacity, the options that use it, and what each job uses of it there."""

    capacity: float
    columns: np.ndarray  # (c,)
    use: np.ndarray  # (J, c)


@dataclass(frozen=True)
class Options:
    """What each job may choose: costs (J, O), inf where it may not, and the sums that bind the choices."""

    cost: np.ndarray
    rows: tuple[Row, ...]

    def value(self, prices: np.ndarray) -> float:
        """The Lagrangian bound at these prices."""
        priced = self.cost.copy()
        value = 0.0
        for price, row in zip(prices.tolist(), self.rows, strict=True):
            if price > 0:
                priced[:, row.columns] += price * row.use
                value -= price * row.capacity
        return value + float(priced.min(1).sum())


@dataclass(frozen=True)
class Cut:
    """The parts into which options are cut: kinds (and nodes without GPUs, the last), and tenants on a GPU."""

    facts: Facts
    crowds: tuple[int, ...]  # numbers of tenants; the last stands for itself and, from CROWD on, all above
    most: int  # no GPU has more tenants
    home_kind: np.ndarray  # (J,) of the first GPU at home, whose speed counts; -1 without a home
    at_home: np.ndarray  # (J, M + 1) GPUs at home by kind, which may be several for a job that runs
    host: np.ndarray  # (M + 1,) which sum of cores and memory a kind's nodes belong to

    @property
    def levels(self) -> int:
        return len(self.crowds)

    @property
    def slices(self) -> np.ndarray:
        """The part of a GPU that a tenant takes at least, by number of tenants."""
        return np.array([1 / (self.most if r >= CROWD else r) for r in self.crowds])

    def columns(self, kind: int) -> np.ndarray:
        """The options of newcomers on a kind, then those that stay."""
        stay = (self.facts.kinds + 1) * self.levels
        own = kind * self.levels
        return np.r_[own : own + self.levels, stay : stay + self.levels]

    def use(self, kind: int, amount: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What newcomers and those at home on the kind use, in the order of ``columns``."""
        new = (self.facts.problem.job_gpus * amount)[:, None] * weights
        return np.hstack([new, (self.at_home[:, kind] * amount)[:, None] * weights])


def _cut(facts: Facts) -> Cut:
    p = facts.problem
    tenants = np.zeros(p.gpus, np.int64)
    home_kind = np.full(p.jobs, -1)
    at_home = np.zeros((p.jobs, facts.kinds + 1), np.int64)
    host = _hosts(facts)
    for j, home in enumerate(p.home):
        if home is None:
            continue
        if p.job_gpus[j]:
            tenants[list(home)] += 1
            home_kind[j] = p.gpu_kind[home[0]]
            np.add.at(at_home[j], p.gpu_kind[list(home)], 1)
        else:
            gpus = facts.gpus_of[home[0]]
            home_kind[j] = p.gpu_kind[gpus[0]] if gpus else facts.kinds
    most = min(max(1, p.jobs), max(int(p.gpu_max_tenants.max(initial=1)), int(tenants.max(initial=1))))
    return Cut(facts, tuple(range(1, min(most, CROWD) + 1)), most, home_kind, at_home, host)


def _hosts(facts: Facts) -> np.ndarray:
    """Kinds that meet on a node share that node's cores and memory, so their sums are one."""
    host = np.arange(facts.kinds + 1)
    for gpus in facts.gpus_of:
        kinds = sorted({facts.gpu_kind[g] for g in gpus})
        for kind in kinds[1:]:
            host[host == host[kind]] = host[kinds[0]]
    return host


# ---- costs ----


def _options(facts: Facts) -> Options:
    p, cut = facts.problem, _cut(facts)
    lost = _least_lost(p.interference, facts.kinds, cut, np.unique(p.job_type))
    runs = cut.home_kind >= 0
    new = _newcomers(facts, cut, lost)
    new[runs] += p.move_cost[runs, None, None]
    free = p.max_moves > 0
    new[runs & ~(np.asarray(p.movable, bool) & free)] = np.inf
    wait = (p.wait_cost + np.where(runs, p.move_cost, 0)).astype(float)
    wait[runs & ~(np.asarray(p.preemptible, bool) & free)] = np.inf
    cost = np.hstack([new.reshape(p.jobs, -1), _stays(facts, cut, lost), wait[:, None]])
    return Options(cost, tuple(_rows(facts, cut)))


def _least_lost(interference: Interference, kinds: int, cut: Cut, types: np.ndarray) -> np.ndarray:
    """The least lost share of each type beside r - 1 tenants of any types, shape (A, M, levels)."""
    lost = np.zeros((interference.types, kinds, cut.levels))
    for level, r in enumerate(cut.crowds):
        pairs = len(types) ** max(r - 1, 0) * kinds
        if r == 1 or r >= CROWD or pairs > MAX_ROWS:
            continue
        for kind in range(kinds):
            rows = [interference.row(kind, co) for co in combinations_with_replacement(types.tolist(), r - 1)]
            lost[:, kind, level] = 1 - MILLI / np.min(rows, axis=0)
    return lost


def _newcomers(facts: Facts, cut: Cut, lost: np.ndarray) -> np.ndarray:
    """Cost of a newcomer on each kind in each crowd, shape (J, M + 1, levels)."""
    p = facts.problem
    cost = np.full((p.jobs, facts.kinds + 1, cut.levels), np.inf)
    by_type = lost[p.job_type]
    cost[:, :-1] = np.where(facts.links[:, :, :, None], _lines(facts, by_type), np.inf).min(2)
    caps = 1 - MILLI / p.cap_milli[:, :, None].astype(float)
    cost[:, :-1][by_type > caps + 1e-9] = np.inf
    cost[:, :-1] += _opening(p)[None, :, None] * cut.slices * p.job_gpus[:, None, None]
    alone = np.asarray(p.alone, bool)
    cost[alone, :, 1:] = np.inf
    hostless = p.job_gpus == 0
    cost[hostless] = np.inf
    cost[hostless, :, 0] = _host_only(p)[hostless, None]
    return cost


def _lines(facts: Facts, lost: np.ndarray) -> np.ndarray:
    """Cost at the least lost share, by kind, link and crowd; at the whole share where a job gains by losing."""
    slope = facts.slope[:, :, :, None]
    line: np.ndarray = facts.fixed_cost[:, :, :, None] + slope * np.where(
        slope >= 0, lost[:, :, None, :], 1.0
    )
    return line


def _opening(problem: Problem) -> np.ndarray:
    """The least cost of opening a GPU of each kind, with its part of the node's."""
    per_gpu = np.maximum(problem.node_used_cost, 0) / np.maximum(
        np.bincount(problem.gpu_node, minlength=problem.nodes), 1
    )
    cost = np.maximum(problem.gpu_open_cost, 0) + per_gpu[problem.gpu_node]
    least = np.full(problem.speed_milli.shape[1], np.inf)
    np.minimum.at(least, problem.gpu_kind, cost)
    return np.where(np.isfinite(least), least, 0.0)


def _host_only(problem: Problem) -> np.ndarray:
    """What a job without GPUs loses."""
    loss: np.ndarray = problem.unit_locality * (1 - MILLI / problem.link_milli[:, NVLINK].astype(float))
    return loss


def _stays(facts: Facts, cut: Cut, lost: np.ndarray) -> np.ndarray:
    """Cost of staying at home in each crowd, shape (J, levels)."""
    p = facts.problem
    cost = np.full((p.jobs, cut.levels), np.inf)
    for j in np.flatnonzero(cut.home_kind >= 0).tolist():
        if not p.job_gpus[j]:
            cost[j, 0] = _host_only(p)[j]
            continue
        kind = int(cut.home_kind[j])
        here = lost[p.job_type[j], np.flatnonzero(cut.at_home[j])].min(0)
        if p.speed_milli[j, kind] <= 0:
            cost[j] = p.unit_speed[j]
            continue
        slope, fixed = facts.slope[j, kind], facts.fixed_cost[j, kind]
        # Any link: the home's own would be exact, the least is as valid.
        line = fixed[:, None] + slope[:, None] * np.where(slope[:, None] >= 0, here, 1.0)
        cost[j] = line.min(0)
    return cost


# ---- capacities ----


def _rows(facts: Facts, cut: Cut) -> Iterator[Row]:
    """GPUs, their memory and shares by kind; cores and memory by host; budgets."""
    p = facts.problem
    usable = ~np.asarray(p.gpu_closed, bool) & ~np.asarray(p.node_closed, bool)[p.gpu_node]
    at_home = {name: np.zeros(p.gpus, np.int64) for name in ("gpu", "memory", "share")}
    for j, home in enumerate(p.home):
        if home is not None and p.job_gpus[j]:
            gpus = list(home)
            at_home["gpu"][gpus] += 1
            at_home["memory"][gpus] += p.memory_mib[j, p.gpu_kind[gpus]]
            at_home["share"][gpus] += p.share[j, p.gpu_kind[gpus]]
    whole = np.ones(cut.levels)
    offers = (
        (usable | (at_home["gpu"] > 0), None, cut.slices),
        (np.maximum(np.where(usable, p.gpu_memory_mib, 0), at_home["memory"]), p.memory_mib, whole),
        (np.maximum(np.where(usable, p.gpu_share, 0), at_home["share"]), p.share, whole),
    )
    for kind in range(facts.kinds):
        for offer, each, weights in offers:
            amount = np.ones(p.jobs) if each is None else each[:, kind]
            if amount.any():
                capacity = float(offer[p.gpu_kind == kind].sum())
                yield Row(capacity, cut.columns(kind), cut.use(kind, amount, weights))
    yield from _host_rows(facts, cut)
    yield from _budget_rows(facts, cut)


def _host_rows(facts: Facts, cut: Cut) -> Iterator[Row]:
    p = facts.problem
    host_of = np.array(
        [cut.host[facts.gpu_kind[gpus[0]]] if gpus else cut.host[-1] for gpus in facts.gpus_of], np.int64
    )[: facts.nodes]
    shut = np.asarray(p.node_closed, bool)
    for demand, offer in ((p.cpu_milli, p.node_cpu_milli), (p.host_memory_mib, p.node_memory_mib)):
        if not demand.any():
            continue
        at_home = _at_home(facts, demand)
        room = np.maximum(np.where(shut, 0, offer), at_home)
        for host in np.unique(cut.host).tolist():
            kinds = np.flatnonzero(cut.host == host).tolist()
            columns = np.concatenate([cut.columns(kind)[: cut.levels] for kind in kinds])
            columns = np.r_[columns, cut.columns(0)[cut.levels :]]
            new = np.broadcast_to(demand[:, None].astype(float), (p.jobs, len(kinds) * cut.levels))
            part = cut.at_home[:, kinds].sum(1) / np.maximum(p.job_gpus, 1)
            part = np.where(p.job_gpus > 0, part, np.isin(cut.home_kind, kinds))
            stays = (demand * part)[:, None] * np.ones(cut.levels)
            yield Row(float(room[host_of == host].sum()), columns, np.hstack([new, stays]))


def _at_home(facts: Facts, demand: np.ndarray) -> np.ndarray:
    """What residents hold on each node, rounded up node by node."""
    held = np.zeros(facts.nodes, np.int64)
    for j, home in enumerate(facts.problem.home):
        if home is None:
            continue
        n = facts.job_gpus[j]
        counts = counts_by_node(facts.gpu_node, home) if n else {home[0]: 0}
        for v, count in counts.items():
            held[v] += -(-int(demand[j]) * count // n) if n else int(demand[j])
    return held


def _budget_rows(facts: Facts, cut: Cut) -> Iterator[Row]:
    placed = np.arange((facts.kinds + 1) * cut.levels)
    for budget in facts.problem.budgets[:MAX_BUDGETS]:
        amount = np.zeros(facts.jobs)
        for j, each in zip(budget.jobs, budget.amounts, strict=True):
            amount[j] += each if facts.problem.home[j] is None else 0
        yield Row(float(budget.capacity), placed, np.repeat(amount[:, None], len(placed), 1))


# ---- prices ----


def _prices(options: Options) -> np.ndarray:
    """Prices of the capacities for a sample of the jobs, as the duals of its linear program."""
    jobs = options.cost.shape[0]
    order = np.lexsort((options.cost.min(1), options.cost[:, -1]))
    sample = order[np.unique(np.linspace(0, jobs - 1, min(jobs, SAMPLE)).astype(int))]
    part = len(sample) / jobs
    j, o = np.nonzero(np.isfinite(options.cost[sample]))
    position = np.full((len(sample), options.cost.shape[1]), -1)
    position[j, o] = np.arange(len(j))
    rows, columns, values = [j], [np.arange(len(j))], [np.ones(len(j))]
    for i, row in enumerate(options.rows):
        use = row.use[sample]
        at, of = np.nonzero((use != 0) & (position[:, row.columns] >= 0))
        rows.append(np.full(len(at), len(sample) + i))
        columns.append(position[at, row.columns[of]])
        values.append(use[at, of] / max(row.capacity, 1.0))
    capacity = [row.capacity * part / max(row.capacity, 1.0) for row in options.rows]
    duals = _solve(
        options.cost[sample][j, o],
        (np.concatenate(rows), np.concatenate(columns), np.concatenate(values)),
        len(sample),
        np.array(capacity),
    )
    scale = np.array([max(row.capacity, 1.0) for row in options.rows])
    return np.maximum(-duals, 0) / scale


def _solve(
    cost: np.ndarray, entries: tuple[np.ndarray, np.ndarray, np.ndarray], jobs: int, capacity: np.ndarray
) -> np.ndarray:
    """Duals of the capacity rows of: each job chooses one option, the capacities hold."""
    rows, columns, values = entries
    unit = max(float(np.abs(cost).max(initial=1.0)), 1.0) / 1e4
    order = np.lexsort((columns, rows))
    height = jobs + len(capacity)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), height
    model.col_cost_ = cost / unit
    model.col_lower_, model.col_upper_ = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
    model.row_lower_ = np.r_[np.ones(jobs), np.full(len(capacity), -highspy.kHighsInf)]
    model.row_upper_ = np.r_[np.ones(jobs), capacity]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(height + 1))
    model.a_matrix_.index_ = columns[order]
    model.a_matrix_.value_ = values[order]
    engine = highspy.Highs()  # type: ignore[no-untyped-call]  # its constructor has no annotations
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("threads", 1)
    engine.setOptionValue("simplex_iteration_limit", 50_000)
    engine.passModel(model)
    engine.run()
    duals = np.array(engine.getSolution().row_dual)
    if len(duals) != height or not np.isfinite(duals).all():
        return np.zeros(len(capacity))
    out: np.ndarray = duals[jobs:] * unit
    return out
