"""The engine that proves by enumerating columns: against everything tried, refusals, limits."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node

import solvers.node_exact
from solvers.check import objective, violations
from solvers.node_enumeration import Enumerator
from solvers.node_exact import NEVER, refusal, solve
from solvers.node_items import Node
from solvers.node_program import Program, Range
from solvers.patterns_bound import pattern_bound
from solvers.problem import Budget, Limits, Problem, Solution, Status

LIMITS = Limits(wall_s=3.0, workers=1)
#: Enough of them for every rule to bind; in the others a job runs on several nodes.
TINY = [seed for seed in range(80) if not refusal(tiny(seed, jobs=5))]


def run(problem: Problem, limits: Limits = LIMITS) -> Solution:
    """The engine's answer, checked by the referee."""
    found = solve(problem, limits, None, lambda *_: None)
    assert found.placed is not None
    assert violations(problem, found.placed) == ()
    assert objective(problem, found.placed).total == found.objective
    return found


@pytest.mark.parametrize("seed", TINY)
def test_proves_what_trying_everything_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny problems with every rule: gangs, parts, hosts, windows, running jobs that stay, move or leave."""
    monkeypatch.setattr(solvers.node_exact, "FIRST_S", 0.05)
    problem = tiny(seed, jobs=5)
    least, _ = optimum(problem)
    found = run(problem)
    assert found.bound is not None
    assert found.objective is not None
    assert found.bound <= least <= found.objective
    if not (problem.same_index and (problem.max_nodes > 1).any()):
        assert (found.status, found.objective, found.bound) == (Status.OPTIMAL, least, least)


@pytest.mark.parametrize("seed", TINY[:40])
def test_prices_of_the_bound_by_patterns_bound_whole_nodes_no_worse(seed: int) -> None:
    """What is exact about a node only lifts the bound at the same prices, if no gang has parts elsewhere."""
    problem = tiny(seed, jobs=5)
    problem = replace(problem, makespan_cost=0, max_nodes=np.minimum(problem.max_nodes, 1))
    found = pattern_bound(problem, time.monotonic() + 60)
    assert found is not None
    program = Program(problem, Range(-math.inf, 0, 0, NEVER, -math.inf), NEVER, time.monotonic() + 60)
    program.begin(found.prices)
    program.run(-math.inf)
    rounding = 100
    assert problem.fragmentation_base + program.bound >= found.bound - rounding


def test_improves_on_the_first_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search before it, it finds the optimum by itself."""
    monkeypatch.setattr(solvers.node_exact, "_first_plan", lambda *_: None)
    problem = tiny(4, jobs=5)
    assert run(problem).objective == optimum(problem)[0]


def test_charges_a_gang_over_two_nodes_at_its_slowest_gpu() -> None:
    """Two parts of a gang, one of them beside another job: the mean of the two would be too cheap."""
    problem = make(
        [node(1, max_tenants=2), node(1, max_tenants=2)],
        [job(2, type=0, max_nodes=2), job(1, type=1, wait_cost=2 * HOUR)],
        slowdown={(0, 1): 1500, (1, 0): 1500},
        gate=False,
    )
    found = run(problem)
    # The gang loses a third on both GPUs, the job a third of one.
    assert (found.status, found.objective) == (Status.OPTIMAL, optimum(problem)[0])
    assert found.objective == pytest.approx(HOUR, abs=9)


def test_branches_on_the_makespan() -> None:
    """It waits with the job whose late end costs more than its waiting, and not with the other."""
    jobs = [job(1, work=900_000, deferred_end=1000), job(1, work=10_000, deferred_end=20)]
    cheap = make([node(1, max_tenants=1)], jobs, makespan_cost=1)
    dear = make([node(1, max_tenants=1)], jobs[::-1], makespan_cost=HOUR)
    for problem in (cheap, dear):
        found = run(problem)
        assert (found.status, found.objective) == (Status.OPTIMAL, optimum(problem)[0])


def test_keeps_to_budgets() -> None:
    """Two of three jobs fit the quota; the cheapest to wait does."""
    problem = make(
        [node(3, max_tenants=1)],
        [job(1, wait_cost=3 * HOUR), job(1, wait_cost=HOUR), job(1, wait_cost=2 * HOUR)],
        budgets=(Budget("quota", "team", 2, (0, 1, 2), (1, 1, 1)),),
    )
    found = run(problem)
    assert (found.status, found.objective) == (Status.OPTIMAL, HOUR)


def test_refuses_what_it_is_not_made_for() -> None:
    """A job that runs on two nodes, a link group over two nodes, too many jobs: skipped, with a reason."""
    two = make([node(1), node(1)], [job(2, home=(0, 1), max_nodes=2)])
    crowd = make([node(1)], [job(1)] * (solvers.node_exact.MOST_JOBS + 1))
    for problem, why in ((two, "runs on several nodes"), (crowd, "129 jobs")):
        found = solve(problem, LIMITS, None, lambda *_: None)
        assert found.status is Status.SKIPPED
        assert why in found.note
        assert found.placed is None
        assert found.bound is None


def test_gives_up_with_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many columns or no time left: a plan and a bound, and no claim."""
    problem = make(
        [node(4, max_tenants=1), node(4, max_tenants=1)],
        [job(3, wait_cost=HOUR * (9 + i)) for i in range(5)],
    )
    proven = run(problem)
    assert proven.status is Status.OPTIMAL
    assert proven.bound is not None
    began = time.monotonic()
    late = run(problem, Limits(wall_s=1e-3, workers=1))
    assert time.monotonic() - began < 2.0
    assert late.bound is not None
    assert late.bound <= proven.bound


def test_enumerates_every_column_within_a_limit() -> None:
    """Two GPUs and three jobs at prices that all of them are worth: each set of contents is found once."""
    problem = make([node(2, max_tenants=1)], [job(1), job(1), job(2)])
    made = Enumerator(Node(problem, 0, 2**40), 0)
    price = made.weight * HOUR
    columns, whole = made.run(price, 0.0, 100, time.monotonic() + 10)
    assert whole
    assert sorted(column.items for column in columns) == [(), (0,), (0, 1), (1,), (2,)]
    best, _ = made.run(price, -HOUR * 1.5, 100, time.monotonic() + 10)
    assert [column.items for column in best] == [(0, 1)]


ACCEPTED = [seed for seed in range(0, 60, 4) if not refusal(tiny(seed, jobs=6))][:10]
assert len(ACCEPTED) == 10, "the engine refuses more than it should"


@pytest.mark.parametrize("seed", ACCEPTED)
def test_a_limit_leaves_out_only_what_passes_it(seed: int) -> None:
    """The columns within a limit are those of all columns whose reduced cost is."""
    problem = tiny(seed, jobs=6)
    made = Enumerator(Node(problem, 0, 2**40), 0)
    price = made.weight * [0.7 * problem.wait_cost[item.job] for item in made.node.items]
    every, _ = made.run(price, 1e12, 10**6, time.monotonic() + 10)
    costs = sorted(made.reduced(column, price) for column in every)
    for limit in (costs[0], costs[len(costs) // 4], costs[len(costs) // 2]):
        some, whole = made.run(price, limit + 1, 10**6, time.monotonic() + 10)
        assert whole
        expected = {column.key for column in every if made.reduced(column, price) <= limit + 1}
        assert {column.key for column in some} == expected


def test_shares_only_where_that_is_more_than_the_largest_tenant_alone() -> None:
    """Two equal jobs at half speed each make what one of them makes alone: the gate refuses that."""
    problem = make([node(1)], [job(1, wait_cost=2 * HOUR)] * 2, slowdown=2000)
    assert problem.gate
    found = run(problem)
    least, placed = optimum(problem)
    assert placed.count(None) == 1
    assert (found.status, found.objective) == (Status.OPTIMAL, least)


def test_looks_below_a_makespan_that_whole_nodes_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharing saves a GPU and ends late, which only the makespan shows: what ends earlier is the best plan."""
    monkeypatch.setattr(solvers.node_exact, "_first_plan", lambda *_: None)
    late = dict(unit_interference=0, wait_cost=100 * HOUR)
    problem = make(
        [node(1, open_cost=10 * HOUR), node(1, open_cost=10 * HOUR)],
        [job(1, type=0, work=100_000, **late), job(1, type=1, work=90_000, **late)],
        slowdown={(1, 0): 1500},
        makespan_cost=HOUR,
    )
    found = run(problem)
    assert (found.status, found.objective) == (Status.OPTIMAL, optimum(problem)[0])


def test_steps_towards_a_target_that_is_too_far_to_enumerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the base plan on, in short steps of the goal: the bound rises by a step each time nothing is found."""
    monkeypatch.setattr(solvers.node_exact, "_first_plan", lambda *_: None)
    monkeypatch.setattr(solvers.node_exact, "ENOUGH", 1e-3)
    for seed in (4, 3):
        problem = tiny(seed, jobs=5)
        found = run(problem)
        assert (found.status, found.objective) == (Status.OPTIMAL, optimum(problem)[0])


def test_a_makespan_that_residents_force_is_not_paid_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resident that shares ends late in any case; that is no reason to leave out plans that end as late."""
    monkeypatch.setattr(solvers.node_exact, "_first_plan", lambda *_: ((0,), None, None, None, (2,), (2,)))
    problem = tiny(2005, jobs=6)
    found = run(problem)
    assert (found.status, found.objective) == (Status.OPTIMAL, optimum(problem)[0])
