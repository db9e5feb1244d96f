"""What the tests of the kernels share: problems of every sort, plans drawn at random, and what must hold of a board.

A board keeps sums for every GPU, node and job and changes them job by job. Whatever it has done, they must be those that
the referee's view of its plan gives, and those of a board that is handed the same plan: ``faults`` compares them all.
"""

import copy
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

import numpy as np
from brute import spots, tiny
from problems import EVERYTHING, random_problem

from solvers import greedy
from solvers.check import ends, objective, violations
from solvers.contents import Contents
from solvers.facts import Facts
from solvers.kernels import layout as o
from solvers.kernels.board import Board
from solvers.kernels.jit import COMPILED
from solvers.measure import arrange, ceil_div
from solvers.problem import Limits

VARIANTS = {
    "plain": {},
    "odd, running, reserved": {"residents": 0.3, "windows": True, "oddities": True},
    "set-wise, without GPUs, budgets": {"additive": False, "cpu_only": True, "budgets": True},
    "no gate, never, running": {"gate": False, "never": True, "residents": 0.5, "hosts": "loose"},
    "six tenants, no makespan": {
        "oddities": True,
        "cpu_only": True,
        "max_tenants": 6,
        "types": 4,
        "makespan": 0,
    },
    "rewards for opening": {"makespan": 0, "residents": 0.3},
    "alike on all nodes": {"residents": 0.2, "nodes_of": 4, "oddities": True, "makespan": 0.5},
    "everything": {**EVERYTHING, "additive": False},
}


@lru_cache(maxsize=64)
def drawn(variant, seed, jobs=50, gpus=28):
    """A random problem; more may move than ``random_problem`` allows, so that moves are not rare."""
    problem = random_problem(seed, jobs, gpus, **VARIANTS[variant])
    if problem.max_moves:
        problem = replace(problem, max_moves=6)
    if variant == "rewards for opening":
        cost, used = problem.gpu_open_cost, problem.node_used_cost
        problem = replace(
            problem, gpu_open_cost=-20 * cost, node_used_cost=-20 * used, fragmentation_base=777
        )
    if variant == "alike on all nodes":
        problem = replace(
            problem, equal_per_node=True, same_index=True, max_nodes=np.maximum(2, problem.max_nodes)
        )
    return problem


def board_of(problem, plan, last=None, seed=0, eager=None):
    """A board with a plan on it; ``last`` is the earliest makespan unless told."""
    facts, contents = known(problem)
    if eager is not None:
        contents = Contents(problem, eager)
    last = facts.earliest_makespan if last is None else last
    return Board(facts, contents, last, seed).again(plan, seed)


@lru_cache(maxsize=32)
def known(problem):
    """What all boards of a problem share."""
    return Facts(problem), Contents(problem)


def few(steps):
    """So many steps, or a fortieth where nothing is compiled."""
    return steps if COMPILED else max(1, steps // 40)


# ---- plans ----


@lru_cache(maxsize=64)
def by_greedy(problem):
    return greedy.solve(problem, Limits(wall_s=0), None, lambda *_: None).placed


@lru_cache(maxsize=64)
def scattered(problem, seed, tries=100):
    """A valid plan by chance: jobs one after the other to a random place, or away if they run."""
    rng = np.random.default_rng(seed)
    plan = list(problem.base)
    for _ in range(tries):
        j = int(rng.integers(problem.jobs))
        before = plan[j]
        plan[j] = _somewhere(problem, j, rng) if before is None or rng.random() < 0.7 else None
        if violations(problem, tuple(plan)):
            plan[j] = before
    return tuple(plan)


def _somewhere(problem, j, rng):
    """GPUs next to each other, as many as the job wants, or a node."""
    n = int(problem.job_gpus[j])
    if n == 0:
        return (int(rng.integers(problem.nodes)),)
    first = int(rng.integers(max(1, problem.gpus - n + 1)))
    return tuple(range(first, first + n)) if first + n <= problem.gpus else None


def anyhow(problem, seed):
    """A placement of a tiny problem in which each job is where it may be, whatever the others do."""
    rng = np.random.default_rng(seed)
    choices = (list(spots(problem, j)) for j in range(problem.jobs))
    return tuple(some[int(rng.integers(len(some)))] for some in choices)


# ---- what must hold ----


def counted(board):
    """What a board keeps for each GPU, node, job and budget, as it follows from the plan alone."""
    problem, plan = board.facts.problem, board.placed()
    state = arrange(problem, plan)
    names = ("STATE", "TENANTS", "MEMORY_USED", "SHARES_USED")
    gpus = {name: np.zeros(problem.gpus, np.int64) for name in names}
    for g, kind in enumerate(problem.gpu_kind.tolist()):
        here = state.tenants.get(g, [])
        types = tuple(sorted(problem.job_type[here].tolist()))
        gpus["STATE"][g] = board.contents.of[kind, types]
        gpus["TENANTS"][g] = len(here)
        gpus["MEMORY_USED"][g] = problem.memory_mib[here, kind].sum()
        gpus["SHARES_USED"][g] = problem.share[here, kind].sum()
    names = ("CPU_USED", "HOST_USED", "NODE_JOBS", "LONERS", "NODE_GPUS", "GUESTS")
    nodes = {name: np.zeros(problem.nodes, np.int64) for name in names}
    for v, jobs in state.on_node.items():
        for j, count in jobs.items():
            n = problem.job_gpus.item(j)
            for name, demand in (("CPU_USED", problem.cpu_milli), ("HOST_USED", problem.host_memory_mib)):
                nodes[name][v] += ceil_div(demand.item(j) * count, n) if n else demand.item(j)
            nodes["NODE_JOBS"][v] += 1
            nodes["LONERS"][v] += problem.node_alone.item(j)
            nodes["GUESTS"][v] += n == 0 and j in state.newcomers
    for g in state.tenants:
        nodes["NODE_GPUS"][problem.gpu_node[g]] += 1
    rooms = [
        b.capacity
        - sum(
            amount
            for j, amount in zip(b.jobs, b.amounts, strict=True)
            if problem.home[j] is None and plan[j] is not None
        )
        for b in problem.budgets
    ]
    return {
        **gpus,
        **nodes,
        "PLACED": [spot is not None for spot in plan],
        "WORST": [1000 if effect is None else effect.slowdown for effect in state.effects],
        "ROOM": rooms or [0],
    }


def faults(board):
    """What differs from the referee's view or from a new board with the plan, or is left over from the last step."""
    blank = empty(board.facts, board.contents, int(board.a[o.LAST]))
    new = blank.again(board.placed(), 0)
    found = [
        name for name, true in counted(board).items() if not np.array_equal(board.table(name), np.array(true))
    ]
    found += [name for name in ("COST", "LIMIT") if not np.array_equal(board.table(name), new.table(name))]
    found += [name for name in o.PROGRAM if not np.array_equal(board.table(name), blank.table(name))]
    found += [
        name
        for name in ("TOTAL", "MOVED", "LAST", "MAX_MOVES")
        if board.a[o.PLACE[name]] != new.a[o.PLACE[name]]
    ]
    on = board.table("PLACED") > 0
    if not np.array_equal(board.table("LINKED")[on], new.table("LINKED")[on]):
        found.append("LINKED")
    if tenants(board) != tenants(new):
        found.append("TENANT")
    if (board.table("AT") != -1).any() or board.table("STALE").any():
        found.append("AT or STALE")
    return found + passed_over(board)


@lru_cache(maxsize=4)
def empty(facts, contents, last):
    """A board that nobody touches."""
    return Board(facts, contents, last)


def tenants(board):
    """Who is on each GPU, in ascending order; nobody may be written behind them."""
    width, count = int(board.a[o.WIDTH]), board.table("TENANTS").tolist()
    rows = board.table("TENANT").reshape(-1, width).tolist()
    return [(sorted(row[:n]), set(row[n:])) for row, n in zip(rows, count, strict=True)]


def passed_over(board):
    """Classes in which somebody waits in front of the first that is looked at."""
    at, first = board.table("CLASS_AT").tolist(), board.table("FIRST").tolist()
    member, on = board.table("CLASS_JOB").tolist(), board.table("PLACED").tolist()
    return [
        f"FIRST of class {c}"
        for c, (begin, skipped) in enumerate(zip(at, first, strict=False))
        if not all(on[j] for j in member[begin : begin + skipped])
    ]


def check(board):
    """The plan is valid and costs what the board says, and so does everything that the board knows about it."""
    problem, plan = board.facts.problem, board.placed()
    assert violations(problem, plan) == ()
    assert board.objective() == total(problem, plan)
    assert board.total - board.objective() == overcharge(problem, plan, int(board.a[o.LAST]))
    assert faults(board) == []


def span(problem, plan):
    """The plan's makespan in ticks."""
    return max((end for end in ends(problem, plan) if end is not None), default=0)


def total(problem, plan):
    """What the referee says that a plan costs."""
    return objective(problem, plan).total


def overcharge(problem, plan, last):
    """A board charges ``last`` and each end after it, the program only the latest end."""
    late = [end - last for end in ends(problem, plan) if end is not None and end > last]
    return problem.makespan_cost * (last + sum(late) - span(problem, plan))


# ---- room between the tables ----

GAP = 64
INT_GUARD, FLOAT_GUARD = -7_777_777_777, -7.7e77


def guarded(board):
    """The same board with gaps between its tables, and where the gaps are in the two arrays."""
    twin, arrays, masks = copy.copy(board), [], []
    header = board.a.copy()
    for old, names, guard, begin in (
        (board.a, [n for n in board._length if n not in o.FLOATS], INT_GUARD, o.HEADER),
        (board.f, list(o.FLOATS), FLOAT_GUARD, 0),
    ):
        sizes = [board._length[name] for name in names]
        starts = list(accumulate((size + GAP for size in sizes), initial=begin + GAP))
        new = np.full(starts[-1], guard, old.dtype)
        mask = np.ones(len(new), bool)
        for name, size, start in zip(names, sizes, starts, strict=False):
            new[start : start + size] = board.table(name)
            mask[start : start + size] = False
            header[o.PLACE[name]] = start
        arrays.append(new)
        masks.append(mask)
    arrays[0][: o.HEADER] = header[: o.HEADER]
    masks[0][: o.HEADER] = False
    twin.a, twin.f = arrays
    return twin, masks


def untouched(board, masks):
    """Is every gap as it was?"""
    return bool((board.a[masks[0]] == INT_GUARD).all() and (board.f[masks[1]] == FLOAT_GUARD).all())


# ---- the same in another process ----


def trails(seeds=range(6), steps=20):
    """Plans after every few steps of small problems, as JSON has them."""
    found = []
    for seed in seeds:
        variant = list(VARIANTS)[-1 - seed % len(VARIANTS)]
        for problem in (drawn(variant, seed, 16, 10), tiny(seed)):
            board = board_of(problem, problem.base, seed=seed)
            for _ in range(3):
                board.improve(steps, 0.3)
                found.append([list(spot) if spot else spot for spot in board.placed()])
            found.append([board.total, board.objective()])
    return found
