"""The program relaxed by a price on every kind of job (Lagrange): a lower bound at any prices.

A job pays its price and runs, or waits, whichever is cheaper; each node earns at these prices the most that any contents of its
GPUs could. Whatever the prices,

    sum of min(wait, price) - sum of what the nodes earn at most

plus what no plan avoids is a lower bound, so prices only make it tight, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from solvers.facts import Facts, link_class
from solvers.kernels.worth import NOTHING, SCRATCH, groups_worth, mix
from solvers.kins import Kinship, Pool, kinship
from solvers.problem import MILLI, NVLINK, PPM, Problem
from solvers.slots import Groups, Table, table

#: Groups of contents worth less than this part of a node's best are not looked at closely.
KEEP = 0.8
#: Weights of slots, memory and share in what a crowd fills; a few slots always count, so that crowds end.
WEIGHTS = np.array(
    [(0.001 + 0.999 * (4 - i - j) / 4, 0.999 * i / 4, 0.999 * j / 4) for i in range(5) for j in range(5 - i)]
)


@dataclass(frozen=True, eq=False)
class Duals:
    """Prices as the pricing sees them: per GPU of a row, per budget, per move."""

    row: np.ndarray
    budget: np.ndarray
    move: float

    def towards(self, other: Duals, part: float) -> Duals:
        """A mixture with a part of the other."""
        return Duals(
            (1 - part) * self.row + part * other.row,
            (1 - part) * self.budget + part * other.budget,
            (1 - part) * self.move + part * other.move,
        )


@dataclass(frozen=True, eq=False)
class Worth:
    """What one pool's nodes earn at most at some prices, and the contents that earn it."""

    node: float
    host: np.ndarray  # (2,) price of a core and of host memory when no gang fills the node
    plain: float  # worth of a node that no gang fills
    groups: np.ndarray  # worth by set of whole-node gangs
    picks: np.ndarray  # (N, 3) contents, of which the parts of the node's GPUs are
    parts: np.ndarray  # (N, 3)


@dataclass(frozen=True, eq=False)
class Pricing:
    """The bound at some prices, and where it comes from."""

    bound: float
    slot: np.ndarray  # worth of each slot, 0 at the end
    entry: np.ndarray  # the table's entry that takes each slot at that worth; the last stands for nobody
    content: np.ndarray  # worth of each content
    cpu: np.ndarray  # what each content holds, crowds counted
    memory: np.ndarray
    pools: tuple[Worth, ...]


class Relaxation:
    """The relaxed program of one Problem, ready to be evaluated at any prices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.facts = Facts(problem)
        self.kin: Kinship = kinship(self.facts)
        self.table: Table = table(self.kin)
        self.blocks = [_blocks(self.table, pool) for pool in self.kin.pools]
        # Prices of cores and host memory last time: where the next search for them begins.
        self.host = [np.zeros(2) for _ in self.kin.pools]
        self.row_of = np.r_[self.table.row, -1]
        self.jobs = _jobs(self.facts, self.kin)
        self.end = max(self.facts.earliest_makespan, _latest_fixed(self.facts, self.kin, self.table))
        self.fixed = _unavoidable(self.facts, self.end)
        self.rounding = _rounding(problem)

    def zero(self) -> Duals:
        """No prices."""
        return Duals(np.zeros(len(self.kin.rows)), np.zeros(len(self.problem.budgets)), 0.0)

    def at(self, duals: Duals) -> Pricing:
        """The bound at these prices, which must not be negative."""
        t = self.table
        slot, entry = self._slots(duals)
        worth = slot[t.slots]
        content = worth.sum(1) - t.opening
        cpu, memory = t.cpu, t.memory
        if len(t.crowd.content):
            content, cpu, memory = self._crowded(content, worth)
        pools = tuple(self._pool(k, content, worth, cpu, memory) for k in range(len(self.kin.pools)))
        earned = sum(pool.nodes * w.node for pool, w in zip(self.kin.pools, pools, strict=True))
        value = self.jobs.cost(duals, self.problem) - earned
        bound = self.fixed + value - self.rounding - 1e-10 * (abs(value) + abs(earned))
        return Pricing(bound, slot, entry, content, cpu, memory, pools)

    def _slots(self, duals: Duals) -> tuple[np.ndarray, np.ndarray]:
        """The most that any row gains by taking each slot, and its entry."""
        t = self.table
        nobody = len(t.row)
        if not nobody:
            return np.zeros(1), np.zeros(1, np.int64)
        gain = np.r_[duals.row, 0.0][t.row] * t.gain - t.cost - duals.move * t.move
        most = np.maximum.reduceat(gain, t.first[:-1])
        reach = np.flatnonzero(gain >= np.repeat(most, np.diff(t.first)))
        return np.r_[most, 0.0], np.r_[reach[np.searchsorted(reach, t.first[:-1])], nobody]

    def _crowded(self, content: np.ndarray, worth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Worth, cores and host memory with crowds as large as the weights allow that are least favourable to them."""
        t, crowd = self.table, self.table.crowd
        one = worth[crowd.content, 0]
        filled = crowd.fill @ WEIGHTS.T
        most = np.maximum.reduceat(np.maximum(one, 0)[:, None] / filled, crowd.starts, axis=0)
        least = most.argmin(1)[crowd.block]
        more = 1 / filled[np.arange(len(least)), least] - 1
        content, cpu, memory = content.copy(), t.cpu.copy(), t.memory.copy()
        content[crowd.content] += more * one
        cpu[crowd.content] += more * crowd.cpu
        memory[crowd.content] += more * crowd.memory
        return content, cpu, memory

    def _pool(
        self, k: int, content: np.ndarray, worth: np.ndarray, cpu: np.ndarray, memory: np.ndarray
    ) -> Worth:
        pool, blocks = self.kin.pools[k], self.blocks[k]
        there, counts = blocks.there, blocks.counts
        first = np.array([counts @ content[there], counts @ cpu[there], counts @ memory[there]])
        host, pick, part = self.host[k].copy(), np.zeros(3, np.int64), np.zeros(3)
        offered = pool.cpu_milli, pool.memory_mib
        n = len(blocks.lows)
        plain = mix(
            content, cpu, memory, blocks.packed, counts, *offered, first, NOTHING, pick, part, host,
            np.zeros(SCRATCH), np.zeros(n), np.zeros(n + 1, np.int64),
        )  # fmt: skip
        self.host[k] = host
        groups = blocks.groups
        if groups is None:
            return Worth(plain, host, plain, np.zeros(0), np.zeros((0, 3), np.int64), np.zeros((0, 3)))
        n, most = len(groups.bigs), int(np.diff(groups.bounds)[1:].max(initial=1))
        worths, picks, parts = np.full(n, plain), np.full(3 * n, -1), np.zeros(3 * n)
        node = groups_worth(
            content, worth.ravel(), worth.shape[1], cpu, memory, groups.bounds, groups.bigs, groups.second,
            pool.counts[0], *offered, host, KEEP, worths, picks, parts, np.zeros(SCRATCH), np.zeros(13, np.int64),
            np.zeros(3 * most + 11), np.zeros(most, np.int64),
        )  # fmt: skip
        return Worth(node, host, plain, worths, picks.reshape(n, 3), parts.reshape(n, 3))


@dataclass(frozen=True, eq=False)
class Blocks:
    """The contents of a pool's offerings when no gang fills a node, as the kernels want them."""

    block: np.ndarray  # the table's number of each block
    lows: np.ndarray
    highs: np.ndarray
    starts: np.ndarray  # (offerings + 1,)
    members: np.ndarray  # blocks of the offerings, by position
    there: np.ndarray  # (offerings,) what is there if nobody comes or leaves
    counts: np.ndarray  # (offerings,) GPUs, float
    groups: Groups | None
    packed: np.ndarray


def _blocks(table: Table, pool: Pool) -> Blocks:
    of = [table.blocks[o] for o in pool.offerings]
    block, members = np.unique([b for blocks in of for b in blocks], return_inverse=True)
    members = members.reshape(-1)
    lows, highs = table.lows[block], table.highs[block]
    groups = table.groups[of[0][0]] if pool.whole else None
    if groups is not None:
        highs = groups.bounds[1:2]
    starts = np.cumsum([0] + [len(blocks) for blocks in of])
    there = table.lows[[blocks[0] for blocks in of]]
    ranges = np.stack([lows, highs], 1).ravel()
    packed = np.concatenate([[len(block), len(of)], ranges, starts, members]).astype(np.int64)
    return Blocks(block, lows, highs, starts, members, there, np.array(pool.counts, float), groups, packed)


@dataclass(frozen=True, eq=False)
class Jobs:
    """What each job pays if it waits, and if it runs besides its price. Shapes (N,) over jobs that have a choice."""

    job: np.ndarray
    row: np.ndarray  # -1: no GPUs
    gpus: np.ndarray
    wait: np.ndarray  # inf where it may not
    run: np.ndarray
    leaves: np.ndarray  # bool: waiting is a move
    drawn: tuple[tuple[np.ndarray, np.ndarray], ...] = field(default=())  # of each budget: positions, amounts

    def cost(self, duals: Duals, problem: Problem) -> float:
        """Every job does what is cheaper; budgets and moves are paid back."""
        run = self.run + self.gpus * np.r_[duals.row, 0.0][self.row]
        paid = duals.move * problem.max_moves
        for price, budget, (at, amount) in zip(
            duals.budget.tolist(), problem.budgets, self.drawn, strict=True
        ):
            np.add.at(run, at, price * amount)
            paid += price * budget.capacity
        wait = self.wait + duals.move * self.leaves
        return float(np.minimum(wait, run).sum()) - paid


def _jobs(facts: Facts, kin: Kinship) -> Jobs:
    """Jobs with a price, and those without GPUs."""
    p, row = facts.problem, kin.rows.of
    runs = np.array([home is not None for home in p.home], bool).reshape(p.jobs)
    job = np.flatnonzero((row >= 0) | (p.job_gpus == 0))
    hostless = p.job_gpus[job] == 0
    lost = p.unit_locality[job] * (1 - MILLI / p.link_milli[job, NVLINK].astype(float))
    may_wait = ~runs[job] | (np.asarray(p.preemptible, bool)[job] & (p.max_moves > 0))
    wait = p.wait_cost[job] + np.where(runs[job], p.move_cost[job], 0.0)
    place = np.full(p.jobs, -1)
    place[job] = np.arange(len(job))
    drawn = []
    for budget in p.budgets:
        at, amount = np.array(budget.jobs, np.int64), np.array(budget.amounts, float)
        counts = ~runs[at] if len(at) else np.zeros(0, bool)
        drawn.append((place[at[counts]], amount[counts]))
    return Jobs(
        job=job,
        row=row[job],
        gpus=p.job_gpus[job],
        wait=np.where(may_wait, wait, np.inf),
        run=np.where(hostless, lost, 0.0),
        leaves=runs[job],
        drawn=tuple(drawn),
    )


def _unavoidable(facts: Facts, end: int) -> float:
    """What no plan avoids: the makespan that none is below, the base, and nodes that are paid for being used."""
    p = facts.problem
    return p.fragmentation_base + int(np.minimum(p.node_used_cost, 0).sum()) + p.makespan_cost * end


def _latest_fixed(facts: Facts, kin: Kinship, table: Table) -> int:
    """The latest end of those who can only stay, beside their neighbours where these stay as well and nobody can come."""
    p, latest = facts.problem, 0
    for j in np.flatnonzero((kin.stays.of >= 0) & (kin.rows.of < 0) & (p.work >= 0)).tolist():
        home = p.home[j] or ()
        speed = facts.speed_milli[j][facts.gpu_kind[home[0]]]
        if speed <= 0:
            continue
        slow = max(_settled(facts, kin, table, j, g) for g in home)
        link = facts.link_milli[j][link_class(p, home)]
        latest = max(latest, -(-facts.work[j] * slow * link // (speed * PPM)))
    return latest


def _settled(facts: Facts, kin: Kinship, table: Table, j: int, g: int) -> int:
    """The slowdown of a resident on a GPU that nobody leaves and nobody could enter, else none."""
    o = kin.of[g]
    blocks = table.blocks[o]
    residents = list(kin.offerings[o].residents)
    if (
        len(blocks) != 1
        or table.highs[blocks[0]] - table.lows[blocks[0]] > 1
        or (kin.stays.row[residents] >= 0).any()
    ):
        return MILLI
    types = facts.problem.job_type[kin.stays.first[residents]].tolist()
    types.remove(facts.job_type[j])
    return facts.problem.interference.slowdown(kin.offerings[o].kind, facts.job_type[j], types)


def _rounding(problem: Problem) -> float:
    """The terms are rounded down, three a job, and so are the parts per million between interference and locality."""
    shift = np.maximum(problem.unit_locality - problem.unit_interference, 0).sum() / PPM
    return 4.0 * problem.jobs + float(shift)
