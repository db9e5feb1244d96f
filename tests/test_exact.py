"""Exactness: on tiny problems CP-SAT, CBC and HiGHS find what trying everything finds, and bounds are bounds."""

from collections import Counter
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node

from solvers import cpsat, mip
from solvers.check import objective, violations
from solvers.problem import Budget, Limits, Problem, Status

SEEDS = range(50)
ENGINES = {"cp-sat": cpsat.solve, "cbc": mip.cbc, "highs": mip.highs}
LIMITS = Limits(wall_s=60, deterministic=True, workers=1)


@cache
def answer(seed):
    """The problem, the least cost and one placement that has it."""
    problem = tiny(seed)
    return problem, *optimum(problem)


def solve(engine, problem, hint=None, limits=LIMITS):
    return ENGINES[engine](problem, limits, hint, lambda placed, cost, bound: None)


def relabelled(problem: Problem, order) -> Problem:
    """The same problem with its jobs in another order."""
    order = np.asarray(order)
    where = {int(j): i for i, j in enumerate(order)}
    per_job = {
        f.name: getattr(problem, f.name)[order]
        for f in fields(problem)
        if isinstance(getattr(problem, f.name), np.ndarray)
        and not f.name.startswith(
            ("gpu_", "node_cpu", "node_memory", "node_closed", "node_used", "node_sets")
        )
    }
    return replace(
        problem,
        **per_job,
        home=tuple(problem.home[j] for j in order),
        gpu_holder=np.array([where.get(int(h), -1) for h in problem.gpu_holder]),
        never=tuple((where[a], where[b]) for a, b in problem.never),
        budgets=tuple(
            Budget(b.kind, b.name, b.capacity, tuple(where[j] for j in b.jobs), b.amounts)
            for b in problem.budgets
        ),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_exact_engine_finds_the_optimum(engine, seed):
    problem, least, _ = answer(seed)
    found = solve(engine, problem)
    assert (found.status, found.objective, found.bound) == (Status.OPTIMAL, least, least)
    assert violations(problem, found.placed) == ()
    assert objective(problem, found.placed).total == least


@pytest.mark.parametrize("seed", SEEDS)
def test_trying_everything_and_the_referee_agree(seed):
    problem, least, placed = answer(seed)
    assert violations(problem, placed) == ()
    assert objective(problem, placed).total == least


def test_the_tiny_problems_are_no_trivial_ones():
    seen = Counter()
    for seed in SEEDS:
        problem, _, placed = answer(seed)
        on = Counter(g for j, spot in enumerate(placed) if problem.job_gpus[j] for g in spot or ())
        gangs = [
            spot for j, spot in enumerate(placed) if spot and problem.job_gpus[j] > 1 and not problem.home[j]
        ]
        seen["shared"] += any(count > 1 for count in on.values())
        seen["gang"] += bool(gangs)
        seen["gang over nodes"] += any(len({problem.gpu_node.item(g) for g in spot}) > 1 for spot in gangs)
        seen["gang sharing"] += any(on[g] > 1 for spot in gangs for g in spot)
        seen["without GPUs"] += any(spot and not problem.job_gpus[j] for j, spot in enumerate(placed))
        seen["moved"] += any(home and spot != home for home, spot in zip(problem.home, placed, strict=True))
        seen["budget"] += bool(problem.budgets)
        seen["window"] += bool((problem.gpu_until_s >= 0).any())
    assert all(count >= 5 for count in seen.values()), seen


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(0, 50, 7))
def test_relabelling_the_jobs_never_changes_the_optimum(engine, seed):
    problem, least, _ = answer(seed)
    order = np.random.default_rng(seed).permutation(problem.jobs)
    assert solve(engine, relabelled(problem, order)).objective == least


@pytest.mark.parametrize("seed", range(0, 50, 5))
def test_a_hint_changes_nothing_but_the_way(seed):
    problem, least, placed = answer(seed)
    for hint in (placed, problem.base):
        assert solve("cp-sat", problem, hint).objective == least


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_moves", [0, 1, 2])
def test_only_max_moves_jobs_go_where_all_would_run_faster(engine, max_moves):
    residents = [job(home=(g,), movable=True, move_cost=9, speed_milli=[500, 1000]) for g in (0, 1)]
    problem = make([node(2, kind=0), node(2, kind=1)], residents, max_moves=max_moves, kinds=2)
    assert solve(engine, problem).objective == HOUR - max_moves * (HOUR // 2 - 9)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("same_index", [False, True])
def test_a_gang_waits_for_the_same_index_on_both_nodes(engine, same_index):
    # GPU 1 of one node and GPU 0 of the other are left: a pair of GPUs, not one of one index.
    nodes = [node(2, closed=[True, False]), node(2, closed=[False, True])]
    problem = make(nodes, [job(2, max_nodes=2)], same_index=same_index)
    assert solve(engine, problem).placed == (None if same_index else (1, 2),)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_exact_engine_finds_the_optimum_of_many_more(engine):
    for seed in range(1000, 1300):
        problem, least, _ = answer(seed)
        found = solve(engine, problem)
        assert (found.objective, found.bound) == (least, least), seed
