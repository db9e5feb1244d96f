"""The makespan comes first: against all plans of tiny problems, and against what can be worked out by hand."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from brute import cost, spots, tiny
from builders import job as a_job
from builders import node as a_node
from builders import policy, snapshot
from problems import HOUR, job, make, node, random_problem

import solvers
from planner import epoch
from planner.policy import PredictorSpec, Weights
from solvers import Limits, Status, thresholds
from solvers.check import ends, objective, violations
from solvers.in_time import Filter
from solvers.thresholds import lower_bound, makespan, solve, within

SURE = Limits(wall_s=8.0, deterministic=True, workers=1)
KNOWN = {"work": 100_000, "deferred_end": 400}


@cache
def every_plan(seed, jobs=6):
    """A tiny problem and all its plans: makespan, cost, placement, none of them by the package's own arithmetic."""
    problem = replace(tiny(seed, jobs), makespan_cost=20_000 * (seed % 2))
    free, ticking = replace(problem, makespan_cost=0), replace(problem, makespan_cost=1)
    known, plans = {}, []
    for placed in product(*(list(spots(free, j)) for j in range(free.jobs))):
        rest = cost(free, placed, known)
        if rest is not None:
            longest = cost(ticking, placed, known) - rest
            plans.append((longest, rest + problem.makespan_cost * longest, placed))
    return problem, plans


def in_time(problem, placed, ticks):
    """Whether no placed job ends after a threshold."""
    known = zip(ends(problem, placed), placed, strict=True)
    return all(end is None or end <= ticks for end, spot in known if spot is not None)


def thresholds_of(plans):
    """Thresholds at, below and between the makespans of plans."""
    reached = sorted({longest for longest, _, _ in plans})
    return sorted({ticks for longest in reached[:4] for ticks in (longest, longest - 1) if ticks >= 0})


# ---- against all plans ----


@pytest.mark.parametrize("seed", range(45))
def test_the_least_makespan_is_found_and_then_the_least_cost(seed):
    problem, plans = every_plan(seed)
    found = solve(problem, replace(SURE, wall_s=40.0), engine="cp-sat")
    assert (found.makespan, found.objective) == min(plans)[:2]
    assert found.least_makespan <= found.makespan
    assert found.bound is None or found.bound <= found.objective
    assert violations(problem, found.placed) == () and makespan(problem, found.placed) == found.makespan


@pytest.mark.parametrize("seed", range(80))
def test_no_makespan_is_below_the_lower_bound(seed):
    problem, plans = every_plan(seed)
    assert lower_bound(problem, max(plans)[0]) <= min(plans)[0]


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_in_time_is_valid_within_the_threshold_if_it_is_valid_at_all(seed):
    problem, plans = every_plan(seed)
    everything = list(product(*(list(spots(problem, j)) for j in range(problem.jobs))))
    some = {placed for _, _, placed in plans[:: 1 + len(plans) // 100]}
    some |= set(everything[:: 1 + len(everything) // 100])
    valid = {placed: violations(problem, placed) == () for placed in some}
    for ticks in thresholds_of(plans):
        narrow = within(problem, ticks)
        assert narrow is not None or ticks < min(plans)[0]
        for placed in some if narrow is not None else ():
            if in_time(problem, placed, ticks):
                assert (violations(narrow, placed) == ()) == valid[placed]


@pytest.mark.parametrize("seed", range(60))
def test_within_a_threshold_plans_cost_what_they_cost_and_those_that_defer_too_long_more_than_all_others(
    seed,
):
    problem, plans = every_plan(seed)
    for ticks in thresholds_of(plans):
        narrow = within(problem, ticks)
        most = Filter(problem).costs(ticks)[1]
        for longest, total, placed in plans if narrow is not None else ():
            if longest <= ticks:
                assert objective(narrow, placed).total == total <= most
            elif in_time(problem, placed, ticks):
                assert objective(narrow, placed).total > most


@pytest.mark.parametrize("seed", range(60))
def test_the_strict_rules_only_leave_plans_in_time_where_nobody_runs(seed):
    problem = replace(tiny(seed), home=(None,) * 6)
    known = {}
    for placed in product(*(list(spots(problem, j)) for j in range(4)), (None,), (None,)):
        if cost(problem, placed, known) is None:
            continue
        strict = within(problem, 200, strict=True)
        if strict is not None and violations(strict, placed) == ():
            assert in_time(problem, placed, 200)


# ---- the lower bound, by hand ----


def test_every_job_ends_somewhere():
    slow = make([node(2)], [job(work=300_000, deferred_end=500, speed_milli=500), job(work=9_000)])
    assert lower_bound(slow, 1000) == 500  # 600 on the slow kind, so it would rather wait
    assert within(slow, 499) is None and within(slow, 500) is not None


@pytest.mark.parametrize(("gpus", "least"), [(1, 300), (2, 200), (3, 50)])
def test_jobs_that_end_too_late_if_they_wait_need_gpus_all_at_once(gpus, least):
    waiting = [job(work=50_000, deferred_end=end, alone=True) for end in (400, 300, 200)]
    assert lower_bound(make([node(gpus)], waiting), 1000) == least


@pytest.mark.parametrize(("slowdown", "least"), [(1900, 95), (2100, 100)])
def test_jobs_that_would_slow_each_other_beyond_the_threshold_need_a_gpu_each(slowdown, least):
    pair = [job(work=50_000, deferred_end=100) for _ in range(2)]
    crowded = make([node(1, max_tenants=2)], pair, slowdown=slowdown)
    assert lower_bound(crowded, 1000) == least


@pytest.mark.parametrize(("memory", "least"), [(40_000, 50), (40_001, 90)])
def test_jobs_that_cannot_wait_need_memory(memory, least):
    pair = [job(work=50_000, deferred_end=90, memory_mib=memory) for _ in range(2)]
    assert lower_bound(make([node(1)], pair), 1000) == least


def test_running_jobs_that_must_stay_take_room_away():
    waiting = [job(**KNOWN), job(**KNOWN)]
    full = make([node(1, max_tenants=2)], [*waiting, job(home=(0,))])
    assert lower_bound(full, 1000) == 400
    assert lower_bound(replace(full, gpu_max_tenants=np.array([3])), 1000) == 100


# ---- who runs already ----


def test_a_running_job_that_ends_late_beside_its_neighbour_sets_a_floor():
    both = [job(home=(0,), work=600_000), job(home=(0,), work=10_000)]
    stuck = make([node(1, max_tenants=2)], both, slowdown=1500)
    assert lower_bound(stuck, 1000) == 900
    found = solve(stuck, SURE)
    assert (found.makespan, found.least_makespan, found.status) == (900, 900, Status.OPTIMAL)


@pytest.mark.parametrize(("deferred_end", "expected"), [(560, ((0,), (0,))), (540, ((0,), None))])
def test_a_newcomer_does_not_make_a_running_job_end_later_than_the_newcomer_may_wait(deferred_end, expected):
    jobs = [job(home=(0,), work=500_000), job(work=100_000, deferred_end=deferred_end)]
    found = solve(make([node(1)], jobs, slowdown=1100), SURE)  # shared, the one that runs ends at 550
    assert found.placed == expected


def test_a_running_job_that_is_late_where_it_is_moves_if_it_may():
    nodes = [node(1, kind=0), node(1, kind=1)]
    runs = job(home=(0,), movable=True, work=300_000, speed_milli=(500, 1000), move_cost=99 * HOUR)
    assert solve(make(nodes, [runs], max_moves=1), SURE).placed == ((1,),)  # 300 ticks, not 600
    assert solve(make(nodes, [runs], max_moves=0), SURE).placed == ((0,),)
    assert solve(make(nodes, [runs], max_moves=0), SURE).least_makespan == 600


def test_a_running_job_that_is_late_where_it_is_stops_if_it_may_only_be_stopped():
    nodes = [node(1, kind=0), node(1, kind=1)]
    runs = {"work": 300_000, "speed_milli": (500, 1000), "deferred_end": 500, "preemptible": True}
    problem = make(nodes, [job(home=(0,), wait_cost=99 * HOUR, **runs)], max_moves=1)
    assert solve(problem, SURE).placed == (None,)


# ---- gangs, whose links decide ----


def test_a_gang_that_only_fast_links_bring_in_time_gets_them_though_another_wants_them_more():
    nodes = [node(2, links=[0, 0], used_cost=7), node(2, links=[-1, -1], used_cost=7)]
    long = {"work": 100_000, "deferred_end": 900, "link_milli": (1000, 1300, 1300), "unit_locality": 1}
    dear = {"link_milli": (1000, 1500, 1500), "unit_locality": 50 * HOUR, "wait_cost": 99 * HOUR}
    problem = make(nodes, [job(2, alone=True, **long), job(2, alone=True, **dear)])
    assert solvers.solve(problem, SURE).placed == ((2, 3), (0, 1))
    found = solve(problem, SURE)
    assert (found.placed, found.makespan, found.least_makespan) == (((0, 1), (2, 3)), 100, 100)
    assert found.bound is not None and found.bound < found.objective  # the bound does not know of links


# ---- the solve as a whole ----


def test_the_shorter_makespan_is_taken_whatever_it_costs():
    jobs = [job(work=100_000, deferred_end=400), job(work=1000, deferred_end=200, wait_cost=90 * HOUR)]
    problem = make([node(1, max_tenants=1)], jobs)
    assert solvers.solve(problem, SURE).placed == (None, (0,))
    found = solve(problem, SURE)
    assert (found.placed, found.makespan, found.status) == (((0,), None), 200, Status.OPTIMAL)
    assert found.note.startswith(
        "makespan 200 ticks, the least there is; the bound is on plans of at most 200"
    )


def test_without_a_known_end_only_the_usual_objective_counts():
    problem = replace(random_problem(3, 8, 4, makespan=0), work=np.full(8, -1), deferred_end=np.full(8, -1))
    found, usual = solve(problem, SURE), solvers.solve(problem, SURE)
    assert (found.makespan, found.least_makespan) == (0, 0)
    assert (found.objective, found.status) == (usual.objective, Status.OPTIMAL)


def test_jobs_of_unknown_duration_fill_what_is_left():
    jobs = [
        job(alone=True, wait_cost=9 * HOUR),
        job(alone=True, **KNOWN),
        job(alone=True, wait_cost=2 * HOUR),
    ]
    found = solve(make([node(2)], jobs), SURE)
    assert found.placed[1] is not None and found.placed[0] is not None
    assert (found.makespan, found.status) == (100, Status.OPTIMAL)


@pytest.mark.parametrize("seed", range(3))
def test_the_makespan_is_never_longer_than_without_the_mode(seed):
    problem = random_problem(seed, 40, 8, residents=0.2, oddities=True)
    usual = solvers.solve(problem, replace(SURE, wall_s=2.0))
    found = solve(problem, replace(SURE, wall_s=2.0), hint=usual.placed)
    assert found.makespan <= makespan(problem, usual.placed)
    assert violations(problem, found.placed) == ()
    assert found.objective == objective(problem, found.placed).total


@pytest.mark.parametrize("engine", ["search", "cp-sat"])
def test_a_deterministic_solve_says_the_same_every_time(engine):
    problem = random_problem(7, 8, 4)
    told = set()
    for _ in range(2):
        found = solve(problem, replace(SURE, seed=5), engine=engine)
        attempts = tuple(replace(attempt, wall_s=0) for attempt in found.attempts)
        told.add(repr(replace(found, wall_s=0, attempts=attempts)))
    assert len(told) == 1


def test_a_stopped_solve_has_the_best_plan_so_far():
    problem = make(
        [node(1, max_tenants=1)], [job(**KNOWN), job(work=1000, deferred_end=100, wait_cost=9 * HOUR)]
    )
    found = solve(problem, SURE, stop=lambda: True)
    assert (found.status, found.bound) == (Status.FEASIBLE, None)
    assert violations(problem, found.placed) == ()
    hinted = solve(problem, SURE, hint=((0,), None), stop=lambda: True)
    assert (hinted.placed, hinted.makespan) == (((0,), None), 100)


def test_a_limit_of_nothing_still_shortens_the_makespan():
    jobs = [job(**KNOWN), job(work=1000, deferred_end=200, wait_cost=90 * HOUR)]
    found = solve(make([node(1, max_tenants=1)], jobs), Limits(wall_s=0.0))
    assert (found.placed, found.makespan) == (((0,), None), 200)


# ---- the policy's key ----


@pytest.mark.parametrize("first", [False, True])
def test_the_policys_key_reaches_the_solver(first, monkeypatch):
    asked = []

    def listening(problem, *args, **options):
        asked.append(options["engine"])
        return thresholds_solve(problem, *args, **options)

    thresholds_solve = thresholds.solve
    monkeypatch.setattr(thresholds, "solve", listening)
    rules = policy(makespan_first=first, time_limit_s=1, deterministic=True, solver="search")
    plan = epoch.plan_epoch(snapshot(jobs=[a_job(), a_job()]), rules, PredictorSpec())
    assert asked == (["search"] if first else [])
    assert any("makespan_first" in warning for warning in plan.warnings) == first


def test_a_plan_with_the_makespan_first_starts_the_long_job_and_says_what_its_bound_means():
    urgent, long = a_job(priority=50, duration_s=600), a_job(duration_s=36_000)
    state = snapshot([a_node(1)], [urgent, long])

    def planned(**rules):
        rules = policy(
            max_tenants=1, deterministic=True, time_limit_s=1, weights=Weights(makespan=0), **rules
        )
        return epoch.plan_epoch(state, rules, PredictorSpec())

    usual, first = planned(), planned(makespan_first=True)
    assert [a.job_id for a in usual.assignments] == [urgent.id]
    assert [a.job_id for a in first.assignments] == [long.id]
    assert first.predicted.makespan_s < usual.predicted.makespan_s
    assert first.warnings[-1].startswith("makespan_first: the makespan is at most ")
