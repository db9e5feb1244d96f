"""The bound by patterns is never above what any plan costs, at any prices, and is what can be worked out by hand."""

import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import highspy
import numpy as np
import pytest
from brute import optimum, tiny
from problems import HOUR, job, make, node, random_problem
from test_bound import VARIED

from planner import predict
from planner.formulate import formulate
from planner.generate import generate
from solvers import bound, greedy, patterns_master, slots
from solvers.check import objective
from solvers.kernels.worth import NOTHING, SCRATCH, groups_worth, mix
from solvers.patterns_bound import pattern_bound
from solvers.problem import UNCAPPED, Budget, Limits
from solvers.relaxation import Duals, Relaxation

#: What the bound gives away to rounding and to prices that are not quite the best.
ROUNDING = 100
#: A moment that the tests do not reach.
LATER = 1e12


def silent(*_):
    """Nobody listens."""


@cache
def cheapest(seed, jobs=5):
    """A tiny problem and its optimum."""
    problem = tiny(seed, jobs)
    return problem, optimum(problem)[0]


# ---- validity ----


@pytest.mark.parametrize("seed", range(140))
def test_it_is_never_above_the_optimum(seed):
    problem, best = cheapest(seed)
    assert pattern_bound(problem, LATER).bound <= best


@pytest.mark.parametrize("seed", range(140, 170))
def test_no_prices_lift_it_above_the_optimum(seed):
    problem, best = cheapest(seed, 6)
    relaxed = Relaxation(problem)
    rng = np.random.default_rng(seed)
    for _ in range(30):
        row = HOUR * rng.exponential(0.7, len(relaxed.kin.rows)) * (rng.random(len(relaxed.kin.rows)) < 0.8)
        budget = HOUR * rng.exponential(0.3, len(problem.budgets)) * (rng.random() < 0.5)
        move = HOUR * rng.exponential(0.3) * (rng.random() < 0.5)
        assert relaxed.at(Duals(row, budget, move)).bound <= best


COARSE = {
    "kins rounded or merged": {"slots.EMPTY": 40, "slots.BESIDE": 12},
    "hardly anything listed": {"slots.EMPTY": 1, "slots.BESIDE": 0},
    "no slowdowns looked up": {"slots.CELLS": 1},
    "residents that may all be ghosts": {"slots.MAX_LEAVERS": 0},
    "few of the offerings, budgets and steps": {
        "patterns_master.SAMPLE": 1, "patterns_master.BUDGETS": 0, "patterns_master.STEPS": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", COARSE)
@pytest.mark.parametrize("seed", range(30))
def test_it_is_never_above_the_optimum_however_coarse(name, seed, monkeypatch):
    for place, value in COARSE[name].items():
        module, constant = place.split(".")
        monkeypatch.setattr({"slots": slots, "patterns_master": patterns_master}[module], constant, value)
    problem, best = cheapest(seed)
    assert pattern_bound(problem, LATER).bound <= best


@pytest.mark.parametrize("seed", range(15))
def test_it_is_never_above_a_plan(seed):
    problem = random_problem(seed, 50, 28, **VARIED[seed % 5])
    plan = greedy.solve(problem, Limits(wall_s=1, deterministic=True), None, silent)
    assert 0 <= pattern_bound(problem, LATER).bound <= plan.objective


@pytest.mark.parametrize("held", [False, True])
def test_a_crowd_is_never_worth_less_than_those_in_it(held, monkeypatch):
    # Nine tenants of two types, of whom no more than three are listed, on a GPU that has room for just them.
    monkeypatch.setattr(slots, "EMPTY", 40)
    monkeypatch.setattr(slots, "BESIDE", 1)
    pair = {(0, 1): 1100, (1, 0): 1020}
    problem = make(
        [node(1, max_tenants=9, memory_mib=72_000)],
        [job(type=0, memory_mib=8_000, speed_milli=900, home=(0,) if held else None)]
        + [job(type=a, memory_mib=8_000, speed_milli=900) for a in (0, 0, 0, 0, 1, 1, 1, 1)],
        slowdown=pair,
        gate=False,
    )
    cost = objective(problem, tuple((0,) for _ in range(9))).total
    relaxed = Relaxation(problem)
    assert relaxed.table.crowd.content.size
    for price in np.linspace(0, HOUR, 20):
        assert (
            relaxed.at(Duals(np.full(len(relaxed.kin.rows), price), np.zeros(0), 0.0)).bound
            <= cost
            < 6 * HOUR
        )


def test_a_resident_may_end_earlier_when_somebody_joins():
    problem = make(
        [node(1)],
        [job(home=(0,), work=100_000), job(home=(0,)), job(type=1)],
        slowdown=lambda m, a, co: 1500 if len(co) == 1 else 1200,
        types=2,
        makespan_cost=100_000,
        gate=False,
    )
    assert pattern_bound(problem, LATER).bound <= objective(problem, ((0,), (0,), (0,))).total


def test_merged_kins_pass_the_gate(monkeypatch):
    # Two gangs of two share two GPUs; one of them is merged with a smaller job, as whose it would not pass.
    monkeypatch.setattr(slots, "EMPTY", 10)
    problem = make(
        [node(2), node(1, max_tenants=1)],
        [
            job(2, type=0, max_nodes=2),
            job(2, type=1, max_nodes=2),
            job(type=0, wait_cost=1),
            job(home=(2,), type=1),
        ],
        slowdown=lambda m, a, co: 1000 + 500 * len(co),
        types=2,
    )
    cost = objective(problem, ((0, 1), (0, 1), None, (2,))).total
    assert pattern_bound(problem, LATER).bound <= cost < 2 * HOUR


def test_without_a_compiler_it_is_the_same():
    code = (
        "import sys, json; sys.path[:0] = sys.argv[1:3]\n"
        "from brute import tiny\nfrom solvers.patterns_bound import pattern_bound\n"
        "from solvers.kernels.jit import COMPILED\n"
        "print(json.dumps([COMPILED] + [pattern_bound(tiny(s, 5), 1e12).bound for s in range(8)]))"
    )
    root = Path(__file__).resolve().parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), str(root.parent)],
        env=os.environ | {"PLANNER_NO_JIT": "1"},
        capture_output=True,
        check=True,
        timeout=120,
    )
    compiled, *bounds = json.loads(done.stdout.decode().splitlines()[-1])
    assert not compiled
    for seed, value in enumerate(bounds):
        assert value == pytest.approx(pattern_bound(tiny(seed, 5), LATER).bound, abs=ROUNDING)


# ---- tightness ----


def near(found, value):
    """Not above the value, and below it by next to nothing."""
    return value - ROUNDING - 3e-4 * abs(value) <= found.bound <= value


FREE = {"cap_milli": UNCAPPED}
# Unless said, two jobs of an hour, one of which must wait.
BY_HAND = {
    "both run": (make([node(2)], [job()] * 2), 0),
    "alone": (make([node(1)], [job(alone=True), job()]), HOUR),
    "tenants": (make([node(1, max_tenants=1)], [job()] * 2), HOUR),
    "memory": (make([node(1)], [job(memory_mib=50_000)] * 2), HOUR),
    "the margin, if two share": (make([node(1, margin_mib=1)], [job(memory_mib=40_000)] * 2), HOUR),
    "no margin for one": (make([node(1, margin_mib=1)], [job(memory_mib=80_000)]), 0),
    "share": (make([node(1)], [job(share=625)] * 2), HOUR),
    "consent": (make([node(1)], [job(share_group=1), job(share_group=2)]), HOUR),
    "a cap": (make([node(1)], [job(cap_milli=1200), job()], slowdown=1250), HOUR),
    "a cap that is just kept": (make([node(1)], [job(cap_milli=1250), job()], slowdown=1250), 0.4 * HOUR),
    "a pair that progresses less than one": (make([node(1)], [job(), job()], slowdown=2100), HOUR),
    "a pair that progresses more": (make([node(1)], [job()] * 2, slowdown=1250), 0.4 * HOUR),
    "a third who would slow two more than it gains": (
        make([node(1)], [job()] * 3, slowdown=lambda m, a, co: (1000, 1100, 1700)[len(co)]),
        HOUR + 2 * HOUR / 11,
    ),
    "a gang counts whole": (make([node(2)], [job(2), job()], slowdown=1700), HOUR),
    "a gang beside two": (make([node(2, max_tenants=2)], [job(2), job(), job()], slowdown=1250, gate=False), 0.8 * HOUR),
    "two gangs on all GPUs": (make([node(2)], [job(2)] * 2, slowdown=1250), 0.8 * HOUR),
    "a gang that only two nodes hold": (make([node(1)] * 2, [job(2, max_nodes=2, link_milli=(1000, 1000, 1250))]), 0.4 * HOUR),
    "a gang for which there is no second node": (make([node(1), node(1, kind=1)], [job(2, max_nodes=2)]), 2 * HOUR),
    "a gang that wants one on each node": (make([node(2)], [job(2, gpus_per_node=1, max_nodes=2)]), 2 * HOUR),
    "over PCIe": (make([node(2, links=(0, 1))], [job(2, link_milli=(1000, 1250, 9000))]), 0.4 * HOUR),
    "slower": (make([node(2)], [job(speed_milli=800)] * 2), 0.4 * HOUR),
    "closed": (make([node(2, closed=True)], [job()] * 2), 2 * HOUR),
    "closed node": (make([node(2, node_closed=True)], [job()] * 2), 2 * HOUR),
    "shared outside": (make([node(1, shared_outside=True)], [job(alone=True)]), HOUR),
    "node set": (make([node(1)], [job(node_set=1)], node_sets=[[True], [False]]), HOUR),
    "a window": (make([node(1, until_s=99)], [job(remaining_p90_s=100)]), HOUR),
    "in time": (make([node(1, until_s=100)], [job(remaining_p90_s=100)]), 0),
    "its own reservation": (make([node(1, until_s=9, holder=0)], [job()]), 0),
    "cores, 1.6 of them fit": (make([node(2, cpu_milli=8000)], [job(cpu_milli=5000)] * 2), 0.4 * HOUR),
    "host memory, 1.6 of them fit": (make([node(2, host_memory_mib=80)], [job(host_memory_mib=50)] * 2), 0.4 * HOUR),
    "cores for a gang on all GPUs": (make([node(2, cpu_milli=8000)], [job(2, cpu_milli=8001)]), 2 * HOUR),
    "budget": (make([node(2)], [job()] * 2, budgets=(Budget("quota", "a", 1, (0, 1), (1, 1)),)), HOUR),
    "without GPUs": (make([node(1)], [job(0, link_milli=(1250, 1000, 1000))]), 0.2 * HOUR),
    "opened": (make([node(2, open_cost=7, used_cost=4)], [job()], fragmentation_base=5), 5 + 7 + 2),
    "a reward for opening": (make([node(1, open_cost=-7)], [job()], fragmentation_base=9), 2),
    "an end": (make([node(1)], [job(work=7000, deferred_end=50)], makespan_cost=10), 70),
    "a running job": (make([node(1, max_tenants=1)], [job(home=(0,), speed_milli=600)]), 0.4 * HOUR),
    "its end at home": (make([node(1, max_tenants=1)], [job(home=(0,), speed_milli=[500, 1000], work=7000)], makespan_cost=10, kinds=2), 140 + 0.5 * HOUR),
    "its end beside another, whom nobody can join": (
        make([node(1, max_tenants=2)], [job(home=(0,), work=70_000), job(home=(0,))], slowdown=1250, makespan_cost=10),
        880 + 0.4 * HOUR,
    ),
    "beside a running job": (make([node(1, max_tenants=2)], [job(home=(0,)), job()], slowdown=1250), 0.4 * HOUR),
    "a third without which nobody asks what the residents gain": (
        make(
            [node(1)],
            [job(home=(0,), type=0), job(home=(0,), type=1), job(type=2)],
            slowdown=lambda m, a, co: 1600 if len(co) == 2 else 1110 if a + co[0] == 1 else 1000,
            types=3,
        ),
        3 * HOUR * 3 / 8,
    ),
    "residents over the memory": (make([node(1)], [job(home=(0,), memory_mib=60_000)] * 2), 0),
    "residents over the cores": (make([node(2, cpu_milli=1)], [job(home=(0,), cpu_milli=9)] * 2), 0),
    "residents over the cores, and one who would come": (
        make([node(1, cpu_milli=1)], [job(home=(0,), cpu_milli=9), job(cpu_milli=1)]),
        HOUR,
    ),
    "residents over the tenants": (make([node(1, max_tenants=1)], [job(home=(0,))] * 3), 0),
    "who may be moved, and nobody may": (
        make([node(1, max_tenants=1)] * 2, [job(home=(0,), movable=True), job(wait_cost=9 * HOUR, node_set=1)], node_sets=[[True, True], [True, False]]),
        9 * HOUR,
    ),
    "who moves out of the way": (
        make(
            [node(1, max_tenants=1)] * 2,
            [job(home=(0,), movable=True, move_cost=HOUR), job(wait_cost=9 * HOUR, node_set=1)],
            node_sets=[[True, True], [True, False]],
            max_moves=1,
        ),
        HOUR,
    ),
    "who is preempted": (
        make(
            [node(1, max_tenants=1)],
            [job(home=(0,), preemptible=True, move_cost=1000), job(wait_cost=9 * HOUR)],
            max_moves=1,
        ),
        HOUR + 1000,
    ),
    "nothing": (make([node(1)], [], fragmentation_base=3), 3),
    "no GPUs": (make([], [], kinds=1), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_HAND)
def test_it_is_what_is_worked_out_by_hand(case):
    problem, value = BY_HAND[case]
    assert near(pattern_bound(problem, LATER), value)


@pytest.mark.parametrize("seed", range(3))
def test_it_passes_the_bound_that_looks_at_sums_only(seed):
    scenario = generate(200, 128, seed)
    forecast = predict.forecast(scenario.snapshot, scenario.policy, scenario.predictor)
    problem = formulate(scenario.snapshot, forecast, scenario.policy, None).problem
    found = pattern_bound(problem, LATER)
    assert found.closed
    assert found.bound > 1.02 * bound.lower_bound(problem)


# ---- anytime ----


def test_it_has_nothing_to_say_after_its_deadline():
    assert pattern_bound(tiny(0), time.monotonic() - 1) is None


def test_it_is_valid_whenever_it_stops():
    problem, best = cheapest(3)
    for rounds in range(4):
        found = pattern_bound(problem, LATER, rounds=rounds)
        assert found.rounds <= rounds
        assert found.bound <= best


def test_every_better_bound_is_reported():
    heard = []
    found = pattern_bound(random_problem(0, 50, 28), LATER, report=heard.append)
    assert heard == sorted(set(heard))
    assert len(heard) > 2
    assert heard[-1] == found.bound


@pytest.mark.parametrize("seed", range(5))
def test_it_begins_where_its_own_prices_left_it(seed):
    problem = random_problem(seed, 50, 28, **VARIED[seed % 5])
    first = pattern_bound(problem, LATER)
    again = pattern_bound(problem, LATER, prices=first.prices, rounds=0)
    assert again.bound >= first.bound - ROUNDING - 1e-6 * abs(first.bound)


def test_jobs_without_a_price_are_told():
    problem = make([node(2)], [job(home=(0,)), job(), job(0)], max_moves=1)
    assert np.isnan(pattern_bound(problem, LATER).prices.job).tolist() == [True, False, True]


# ---- kernels ----


def by_solver(value, cpu, memory, count, cores, host):
    """The most that ``count`` GPUs are worth, by linear program; None if nothing fits."""
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    for low, high in ((count, count), (-highspy.kHighsInf, cores), (-highspy.kHighsInf, host)):
        engine.addRow(low, high, 0, [], [])
    for column in zip(value, cpu, memory, strict=True):
        engine.addCol(-column[0], 0.0, highspy.kHighsInf, 3, np.arange(3), np.array([1.0, *column[1:]]))
    engine.run()
    optimal = engine.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return -engine.getInfo().objective_function_value if optimal else None


def drawn(seed, n):
    """Worth, cores and memory of contents; the first is nothing."""
    rng = np.random.default_rng(seed)
    columns = rng.uniform(0, 1, (3, n)) * np.array([[100.0], [9.0], [70.0]])
    columns[:, 0] = 0
    return columns


@pytest.mark.parametrize("seed", range(20))
def test_a_mixture_is_what_a_solver_finds(seed):
    value, cpu, memory = drawn(seed, 40)
    packed = np.array([1, 1, 0, 40, 0, 1, 0])
    worth = mix(
        value, cpu, memory, packed, np.array([8.0]), 20.0, 150.0, np.zeros(3), NOTHING, np.zeros(3, np.int64),
        np.zeros(3), np.zeros(2), np.zeros(SCRATCH), np.zeros(1), np.zeros(2, np.int64),
    )  # fmt: skip
    assert worth == pytest.approx(by_solver(value, cpu, memory, 8, 20.0, 150.0), rel=1e-5)


@pytest.mark.parametrize("big", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_gangs_on_all_gpus_pay_for_the_slowest(seed, big):
    """Against a linear program for every level that the slowest GPU of each gang may have."""
    n, count, cores, host = 9, 8, 30.0, 200.0
    rng = np.random.default_rng(seed)
    _, cpu, memory = drawn(seed, n + 1)
    worth = rng.integers(10, 60, (n + 1, 3)).astype(float)
    worth[0] = 0
    worth[1:] = worth[1:][np.argsort(-worth[1:, 0])]
    if big == 1:
        worth[:, 2] = 0
    value = worth.sum(1)
    second = np.r_[0, 1 + np.argsort(-worth[1:, 1])]
    out, picks, parts = np.zeros(2), np.zeros(6, np.int64), np.zeros(6)
    groups_worth(
        value, worth.ravel(), 3, cpu, memory, np.array([0, 1, n + 1]), np.array([0, big]), second, count, cores, host,
        np.zeros(2), 0.0, out, picks, parts, np.zeros(SCRATCH), np.zeros(13, np.int64), np.zeros(3 * n + 11),
        np.zeros(n, np.int64),
    )  # fmt: skip
    levels = [(a, b) for a in worth[1:, 0] for b in (worth[1:, 1] if big == 2 else [0.0])]
    most = 0.0
    for level in levels:
        some = 1 + np.flatnonzero((worth[1:, :big] >= level[:big]).all(1))
        if len(some):
            rest = value[some] - worth[some, :big].sum(1) + sum(level[:big])
            most = max(most, by_solver(rest, cpu[some], memory[some], count, cores, host) or 0.0)
    assert max(out[1], 0.0) == pytest.approx(most, rel=1e-5)
