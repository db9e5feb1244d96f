"""Neighbourhoods solved exactly within a plan: what a sub-problem means, what is found, and where it is looked for."""

from dataclasses import replace

import numpy as np
import pytest
from brute import optimum, spots, tiny
from problems import EVERYTHING, HOUR, job, make, node, random_problem

from solvers import repair as repairing
from solvers.check import objective, violations
from solvers.facts import Facts
from solvers.problem import FORBIDDEN, Budget
from solvers.repair import Neighbourhood, pick, repair, subproblem

VARIANTS = {
    "plain": {},
    "running": {"residents": 0.4, "oddities": True},
    "everything": EVERYTHING,
}


def changed(problem, placed, rng, options, count):
    """The plan with some jobs elsewhere."""
    plan = list(placed)
    for j in rng.choice(problem.jobs, min(count, problem.jobs), replace=False).tolist():
        plan[j] = options[j][rng.integers(len(options[j]))]
    return tuple(plan)


def wandered(problem, rng, steps=60):
    """A valid plan some way from the base plan."""
    placed = problem.base
    options = [list(spots(problem, j)) for j in range(problem.jobs)]
    for _ in range(steps):
        other = changed(problem, placed, rng, options, int(rng.integers(1, 3)))
        if not violations(problem, other):
            placed = other
    return placed


def started(problem, rng):
    """A valid plan of a larger problem: what fits is started at random."""
    placed = list(problem.base)
    for j in rng.permutation(problem.jobs).tolist():
        n, before = problem.job_gpus.item(j), placed[j]
        for _ in range(4):
            first = int(rng.integers(problem.gpus - n + 1))
            spot = tuple(range(first, first + n)) if n else (int(rng.integers(problem.nodes)),)
            placed[j] = spot
            if not violations(problem, tuple(placed)):
                break
            placed[j] = before
    return tuple(placed)


def drawn(problem, placed, rng):
    """A part of some nodes, and most of the jobs that wait."""
    nodes = rng.choice(problem.nodes, int(rng.integers(1, min(3, problem.nodes) + 1)), replace=False)
    gpus = np.flatnonzero(np.isin(problem.gpu_node, nodes) & (rng.random(problem.gpus) < 0.9))
    waiting = [j for j, spot in enumerate(placed) if spot is None and rng.random() < 0.7]
    return Neighbourhood(tuple(gpus.tolist()), tuple(waiting))


def hold(problem, placed, neighbourhood, rng, tries):
    """Compare random plans of the sub-problem with what they are in the whole; how many were valid and new."""
    sub = subproblem(problem, placed, neighbourhood)
    now = sub.inside(placed)
    assert sub.within(placed, now) == placed
    assert violations(sub.problem, now) == ()
    assert violations(sub.problem, sub.problem.base) == ()
    before, own_before = objective(problem, placed).total, objective(sub.problem, now).total
    options = [list(spots(sub.problem, j)) for j in range(sub.problem.jobs)]
    plan, valid = now, 0
    for _ in range(tries if sub.jobs else 0):
        other = changed(sub.problem, plan, rng, options, int(rng.integers(1, 4)))
        whole = sub.within(placed, other)
        fine = not violations(sub.problem, other)
        assert fine == (not violations(problem, whole))
        if fine and other != plan:
            plan, valid = other, valid + 1
            assert (
                objective(problem, whole).total - before == objective(sub.problem, other).total - own_before
            )
    return valid


# ---- what a sub-problem means ----


def test_a_plan_of_a_tiny_sub_problem_is_worth_and_valid_as_much_in_the_whole():
    """Every rule has a chance to bind; no plan may be judged otherwise than in the whole."""
    valid = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        problem = replace(tiny(seed), fragmentation_base=333)
        placed = wandered(problem, rng)
        valid += hold(problem, placed, drawn(problem, placed, rng), rng, 40)
    assert valid > 500


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_plan_of_a_sub_problem_is_worth_and_valid_as_much_in_the_whole(variant):
    valid = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        problem = random_problem(seed, 30, 16, nodes_of=4, **VARIANTS[variant])
        placed = started(problem, rng)
        valid += sum(hold(problem, placed, drawn(problem, placed, rng), rng, 60) for _ in range(3))
    assert valid > 30


def test_a_gpu_shared_with_who_is_partly_outside_is_left_out_with_all_that_follows():
    """Job 0 is on both nodes, job 1 shares one of its GPUs and another; only the last GPU of the node is free."""
    jobs = [job(2, max_nodes=2), job(2), job(), job()]
    problem = make([node(3), node(1)], jobs)
    sub = subproblem(problem, ((0, 3), (0, 1), (2,), None), Neighbourhood((0, 1, 2), (3,)))
    assert (sub.jobs, sub.gpus, sub.nodes) == ((2, 3), (2,), (0,))


def test_what_outsiders_use_is_taken_off():
    """Of the node's cores by a job without GPUs and half a gang, of the budget by a queued one, of the moves."""
    jobs = [
        job(0, cpu_milli=100),
        job(2, cpu_milli=30, max_nodes=2),
        job(home=(3,), movable=True),
        job(),
        job(),
    ]
    budget = Budget("quota", "team", 9, (0, 1, 2, 3), (2, 3, 50, 1))
    problem = make([node(2, cpu_milli=1000), node(3)], jobs, budgets=(budget,), max_moves=3)
    placed = ((0,), (0, 2), (4,), (1,), None)
    sub = subproblem(problem, placed, Neighbourhood((0, 1), (4,)))
    assert (sub.jobs, sub.gpus) == ((3, 4), (1,))
    assert sub.problem.node_cpu_milli.tolist() == [885]
    assert sub.problem.max_moves == 2
    assert sub.problem.budgets == (Budget("quota", "team", 4, (0,), (1,)),)


def test_a_node_in_use_by_outsiders_costs_nothing_more():
    problem = make([node(2, used_cost=70), node(2, used_cost=70)], [job(), job()])
    placed = ((0,), None)
    link_group = subproblem(problem, placed, Neighbourhood((1, 2), (1,)))
    assert link_group.problem.node_used_cost.tolist() == [0, 70]


def test_only_ends_after_the_last_outsider_cost():
    jobs = [job(work=500_000, deferred_end=1), job(work=2_000, deferred_end=40)]
    problem = make([node(1), node(1)], jobs, makespan_cost=10)
    sub = subproblem(problem, ((0,), None), Neighbourhood((1,), (1,)))
    assert objective(sub.problem, (None, None)).makespan == 5000
    assert (
        subproblem(replace(problem, makespan_cost=0), ((0,), None), Neighbourhood((1,), (1,))).problem.jobs
        == 1
    )


def test_who_is_away_does_not_return_to_a_node_that_an_outsider_enters():
    """Job 0 moved to the second node, and job 1, which has no GPUs, took its cores; nobody would notice its return."""
    jobs = [job(home=(0,), movable=True, cpu_milli=800), job(0, cpu_milli=600)]
    problem = make([node(1, cpu_milli=1000), node(1)], jobs, max_moves=1)
    neighbourhood = Neighbourhood((0, 1))
    assert subproblem(problem, ((1,), (0,)), neighbourhood).jobs == ()
    assert subproblem(problem, ((1,), (1,)), neighbourhood).jobs == (0,)


def test_a_job_that_wants_whole_nodes_and_outsiders_keep_apart():
    jobs = [job(), job(node_alone=True), job()]
    problem = make([node(2), node(2)], jobs)
    sub = subproblem(problem, ((0,), None, None), Neighbourhood((1, 2, 3), (1, 2)))
    assert [bool(violations(sub.problem, plan)) for plan in [((0,), None), ((1,), None), (None, (0,))]] == [
        True,
        False,
        False,
    ]
    alone = subproblem(problem, (None, (0,), None), Neighbourhood((1, 2, 3), (2,)))
    assert [bool(violations(alone.problem, plan)) for plan in [((0,),), ((1,),)]] == [True, False]


# ---- what is found ----


@pytest.mark.parametrize("seed", [seed for seed in range(40) if tiny(seed).job_gpus.all()])
def test_the_whole_as_a_neighbourhood_gives_the_optimum(seed):
    problem = tiny(seed)
    best, _ = optimum(problem)
    everywhere = Neighbourhood(tuple(range(problem.gpus)), tuple(range(problem.jobs)))
    found = repair(problem, problem.base, everywhere, 10, seed)
    placed = problem.base if found is None else found
    assert objective(problem, placed).total == best
    assert repair(problem, placed, everywhere, 10, seed) is None


def shared_badly():
    """Two pairs that slow each other down, and would not in other company; a costly job waits for one that is not."""
    jobs = [*(job(type=i % 2, cap_milli=5000) for i in (0, 0, 1, 1)), job(alone=True), job(alone=True)]
    jobs[5] |= {"wait_cost": 3 * HOUR}
    slowdown = {(0, 0): 1900, (1, 1): 1900, (0, 1): 1100, (1, 0): 1100}
    return make([node(3)], jobs, slowdown=slowdown), ((0,), (0,), (1,), (1,), (2,), None)


def test_a_plan_is_better_or_none():
    problem, placed = shared_badly()
    found = repair(problem, placed, Neighbourhood((0, 1, 2), (5,)), 10, 0)
    assert violations(problem, found) == ()
    assert found[4] is None
    assert sorted(problem.job_type[j] for j in range(4) if found[j] == found[0]) == [0, 1]
    assert repair(problem, found, Neighbourhood((0, 1, 2), (4,)), 10, 0) is None


def test_what_is_not_in_the_neighbourhood_stays():
    problem, placed = shared_badly()
    assert repair(problem, placed, Neighbourhood((0, 1)), 10, 0)[4:] == ((2,), None)
    assert repair(problem, placed, Neighbourhood((0,)), 10, 0) is None
    assert repair(problem, placed, Neighbourhood(()), 10, 0) is None


def test_of_waiting_jobs_that_are_too_many_the_first_take_part(monkeypatch):
    """Ten jobs that may share make a few hundred columns; the neediest comes first."""
    jobs = [job(wait_cost=HOUR + i, cap_milli=5000) for i in range(10)]
    problem = make([node(1, max_tenants=3)], jobs, slowdown=1050)
    waiting = Neighbourhood((0,), tuple(reversed(range(10))))
    all_of_them = repair(problem, problem.base, waiting, 10, 0)
    assert [j for j, spot in enumerate(all_of_them) if spot] == [7, 8, 9]
    monkeypatch.setattr(repairing, "MOST_COLUMNS", 20)
    some = repair(problem, problem.base, waiting, 10, 0)
    assert [j for j, spot in enumerate(some) if spot] == [8, 9]
    monkeypatch.setattr(repairing, "MOST_COLUMNS", 0)
    assert repair(problem, problem.base, waiting, 10, 0) is None


def test_a_deterministic_repair_gives_one_answer():
    problem = random_problem(1, 40, 16, nodes_of=4)
    facts = Facts(problem)
    placed = started(problem, np.random.default_rng(0))
    first, again = (
        repair(problem, placed, pick(facts, placed, 0), 2, 3, deterministic=True) for _ in range(2)
    )
    assert first is not None
    assert first == again


# ---- where it is looked for ----


@pytest.mark.parametrize("seed", range(4))
def test_a_pick_is_a_node_or_scattered_gpus_with_all_that_their_tenants_have(seed):
    problem = random_problem(seed, 80, 48, residents=0.2, cpu_only=True)
    facts = Facts(problem)
    placed = started(problem, np.random.default_rng(seed))
    for turn in range(12):
        found = pick(facts, placed, turn)
        assert found == pick(facts, placed, turn)
        nodes = set(problem.gpu_node[list(found.gpus)].tolist())
        most, count = repairing.TURNS[turn % len(repairing.TURNS)]
        if most is None:
            assert found.gpus == tuple(np.flatnonzero(problem.gpu_node == next(iter(nodes))).tolist())
        else:
            assert 0 < len(found.gpus) <= most
            touching = [
                spot
                for j, spot in enumerate(placed)
                if spot and problem.job_gpus[j] and set(spot) & set(found.gpus)
            ]
            assert all(set(spot) <= set(found.gpus) for spot in touching)
        assert all(placed[j] is None and 0 < problem.job_gpus[j] <= len(found.gpus) for j in found.waiting)
        assert len(found.waiting) <= count
        assert max(np.bincount([facts.classes[j] for j in found.waiting]), default=0) <= repairing.ALIKE
    assert len({pick(facts, placed, turn).gpus for turn in range(12)}) > 6


def test_who_waits_at_the_highest_cost_comes_first(monkeypatch):
    """Of those that can run on the node: not job 0, of another kind, nor job 1, too large, nor job 2, of another node set."""
    monkeypatch.setattr(repairing, "JITTER", 0)
    monkeypatch.setattr(repairing, "TURNS", ((None, 3),))
    jobs = [
        job(speed_milli=(0, 1000), wait_cost=90 * HOUR),
        job(memory_mib=90_000, wait_cost=90 * HOUR),
        job(node_set=1, wait_cost=90 * HOUR),
        job(2, wait_cost=4 * HOUR),
        job(wait_cost=HOUR),
        *(job(type=1, wait_cost=(3 + i) * HOUR) for i in range(6)),
        job(0, wait_cost=90 * HOUR),
    ]
    problem = make([node(2)], jobs, kinds=2, node_sets=[[True], [False]], slowdown=FORBIDDEN)
    facts = Facts(problem)
    assert pick(facts, problem.base, 0).waiting == (10, 9, 8)
    monkeypatch.setattr(repairing, "ALIKE", 1)
    assert pick(facts, problem.base, 0).waiting == (10, 3, 4)


def test_without_gpus_there_is_nothing_to_pick():
    problem = make([node(0)], [job(0), job()])
    assert pick(Facts(problem), problem.base, 1) == Neighbourhood(())
