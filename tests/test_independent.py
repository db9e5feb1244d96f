"""Engines and bounds against optima that are found without them: by maximum-weight matching, and by trying everything.

The matching. Let J queued jobs of one GPU each meet G equal GPUs that hold two tenants at most, with no limit of hosts,
no gate, no makespan and no fragmentation. What a GPU is worth then depends on its tenants alone: the waiting cost that
they are spared, less what they lose. Give each GPU to two jobs and let it take the best of four: both, either alone, or
neither; so an edge between two jobs weighs the largest of these. A plan of at most G groups of one or two jobs is a
set of at most G such edges with no job in common (a job alone is given a partner that waits; with J >= 2 G there is
one for each, and with fewer jobs than that, jobs of no worth are added), and the other way round. That leaves "at
most G edges": J - 2 G *idle* vertices are joined to every job by an edge that weighs more than any of the others, so
that a matching of the largest weight uses all of them (an idle vertex left over would win by taking a job from any
other edge), and the 2 G jobs that remain form G edges at most. The optimum is the cost of starting nothing,
less that weight without the idle edges.
"""

import time
from functools import cache
from itertools import combinations

import networkx
import numpy as np
import pytest
from brute import on_gpu, optimum, tiny
from problems import HOUR, job, make, node

from solvers import engines
from solvers.bound import lower_bound
from solvers.check import objective, violations
from solvers.patterns_bound import pattern_bound
from solvers.problem import FORBIDDEN, Limits, Problem, Solution, Status

#: Every function that gives a lower bound of a problem, by name.
BOUNDS = {
    "lower_bound": lower_bound,
    "pattern_bound": lambda problem: pattern_bound(problem, time.monotonic() + 5).bound,
}
#: Engines that prove optima of this size.
EXACT = ("cp-sat", "highs", "cbc")
#: Jobs and GPUs that can be tried out in full, from too few jobs to far too many.
SMALL = ((4, 1), (5, 2), (6, 2), (6, 3), (3, 3), (0, 2))
JOBS, GPUS = 30, 8
SEEDS = range(24)
TINY_SEEDS = range(2000, 2200)


def silent(*_):
    """Nobody listens."""


def run(engine, problem, wall_s):
    """An engine's answer in one thread, with its limit turned into iterations where it can do so."""
    limits = Limits(wall_s=wall_s, deterministic=True, workers=1)
    return engines.load(engine)(problem, limits, None, silent)


def pairing(seed: int, jobs: int, gpus: int) -> Problem:
    """Jobs of one GPU, each of its own type, for GPUs of two tenants; a part of the pairs is refused by some rule."""
    rng = np.random.default_rng(seed)
    slow = rng.integers(1000, 2600, (jobs, jobs))
    slow[rng.random((jobs, jobs)) < 0.05] = FORBIDDEN
    size = 1 + seed % 4
    nodes = [node(min(size, gpus - g), max_tenants=2, margin_mib=500) for g in range(0, gpus, size)]
    return make(
        nodes,
        [_single(rng, j) for j in range(jobs)],
        slowdown=lambda kind, victim, co: int(slow[victim, co[0]]),
        types=jobs,
        never=tuple(pair for pair in combinations(range(jobs), 2) if rng.random() < 0.02),
        gate=False,
    )


def _single(rng: np.random.Generator, type_: int) -> dict:
    unit = HOUR * int(rng.choice([1, 1, 2, 4]))
    return job(
        type=type_,
        unit_speed=unit,
        unit_interference=unit - 7,
        wait_cost=int(unit * rng.uniform(0.3, 1.5)),
        speed_milli=int(rng.choice([1000, 1000, 800, 450])),
        memory_mib=int(rng.choice([20_000, 40_000, 60_000])),
        cap_milli=int(rng.choice([1800, 2000, 3000])),
        share_group=int(rng.random() < 0.1),
        alone=bool(rng.random() < 0.05),
    )


def worth(p: Problem, tenants: list[int]) -> int:
    """The waiting cost that the tenants of a GPU are spared, less what they lose there; 0 if a rule forbids them."""
    slow = on_gpu(p, 0, tenants, [True] * p.jobs)
    if slow is None:
        return 0
    total = 0
    for j in tenants:
        speed = int(p.speed_milli[j, 0])
        total += int(p.wait_cost[j]) - (10**6 - 1000 * speed) * int(p.unit_speed[j]) // 10**6
        total -= (1000 * speed - 10**6 * speed // slow[j]) * int(p.unit_interference[j]) // 10**6
    return total


@cache
def matched(seed: int, jobs: int, gpus: int) -> tuple[Problem, int]:
    """A problem and its least cost, by the matching of this module's docstring."""
    problem = pairing(seed, jobs, gpus)
    alone = [max(0, worth(problem, [j])) for j in range(jobs)]
    alone += [0] * (2 * gpus - jobs)
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(alone)))
    for i, j in combinations(range(len(alone)), 2):
        both = worth(problem, [i, j]) if j < jobs else 0
        graph.add_edge(i, j, weight=max(alone[i], alone[j], both))
    more = 1 + max((w for *_, w in graph.edges.data("weight")), default=0)
    idle = range(len(alone), 2 * len(alone) - 2 * gpus)
    graph.add_edges_from(((z, j) for z in idle for j in range(len(alone))), weight=more)
    matching = networkx.max_weight_matching(graph)
    weight = sum(graph.edges[edge]["weight"] for edge in matching)
    return problem, int(problem.wait_cost.sum()) - weight + more * len(idle)


def fault(problem: Problem, least: int, found: Solution) -> str:
    """What in an engine's answer cannot be, given the least cost; empty if all of it can."""
    if found.bound is not None and found.bound > least:
        return f"bound {found.bound}, optimum {least}"
    if found.placed is None:
        return "an optimum without a plan" if found.status is Status.OPTIMAL else ""
    if broken := violations(problem, found.placed):
        return broken[0].text
    cost = objective(problem, found.placed).total
    if cost < least or cost != found.objective:
        return f"claimed {found.objective}, costs {cost}, optimum {least}"
    return f"optimum {cost} instead of {least}" if found.status is Status.OPTIMAL and cost > least else ""


@cache
def tried(seed: int) -> tuple[Problem, int]:
    """A tiny problem with about every rule in it, and its least cost by trying everything."""
    problem = tiny(seed, jobs=5 + seed % 2)
    return problem, optimum(problem)[0]


@pytest.mark.parametrize(("jobs", "gpus"), SMALL)
@pytest.mark.parametrize("seed", range(5))
def test_the_matching_finds_what_trying_everything_finds(seed, jobs, gpus):
    problem, least = matched(seed, jobs, gpus)
    assert least == optimum(problem)[0]


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_an_engine_agrees_with_the_matching(engine):
    proven = 0
    for seed in SEEDS:
        problem, least = matched(seed, JOBS, GPUS)
        found = run(engine, problem, wall_s=0.3)
        assert fault(problem, least, found) == "", seed
        proven += found.status is Status.OPTIMAL
    assert engine not in EXACT or proven >= len(SEEDS) // 2


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_a_bound_never_passes_the_matching(bound):
    for seed in SEEDS:
        problem, least = matched(seed, JOBS, GPUS)
        assert 0 < bound(problem) <= least, seed


LARGE = [(100, 33), pytest.param(300, 100, marks=pytest.mark.slow)]  # the larger matching takes 20 s


@pytest.mark.parametrize(("jobs", "gpus"), LARGE)
def test_nothing_passes_the_matching_of_a_larger_problem(jobs, gpus):
    problem, least = matched(0, jobs, gpus)
    assert {name for name, bound in BOUNDS.items() if bound(problem) > least} == set()
    # The others are not asked: their models of so many pairs take longer than the matching.
    for name in (name for name, engine in engines.ENGINES.items() if engine.cap is None):
        assert fault(problem, least, run(name, problem, wall_s=2.0)) == "", name


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_a_bound_never_passes_the_optimum(bound):
    assert [seed for seed in TINY_SEEDS if bound(tried(seed)[0]) > tried(seed)[1]] == []


@pytest.mark.parametrize("wall_s", [0.01, 0.1])
@pytest.mark.parametrize("engine", engines.ENGINES)
def test_an_engine_agrees_with_the_optimum_however_early_it_stops(engine, wall_s):
    answers = {seed: run(engine, tried(seed)[0], wall_s) for seed in TINY_SEEDS}
    faults = {seed: fault(*tried(seed), found) for seed, found in answers.items()}
    assert {seed: text for seed, text in faults.items() if text} == {}
    proven = sum(found.status is Status.OPTIMAL for found in answers.values())
    assert engine not in EXACT or proven >= len(TINY_SEEDS) // 4


def test_the_tiny_problems_have_what_bounds_go_wrong_on():
    problems = [tried(seed)[0] for seed in TINY_SEEDS]
    seen = {
        "gangs": sum((p.job_gpus > 1).any() for p in problems),
        "hosts": sum(p.cpu_milli.sum() > p.node_cpu_milli.sum() for p in problems),
        "residents": sum(any(p.home) for p in problems),
        "moves": sum(bool(p.movable.any() and p.max_moves) for p in problems),
        "windows": sum((p.gpu_until_s >= 0).any() for p in problems),
        "vetoes": sum(bool(p.never) for p in problems),
        "budgets": sum(bool(p.budgets) for p in problems),
        "makespan": sum(p.makespan_cost > 0 for p in problems),
    }
    assert min(seen.values()) >= len(TINY_SEEDS) // 8, seen
