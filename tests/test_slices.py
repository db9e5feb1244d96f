"""Plans from contents of single GPUs, and the benchmark's baseline of them: valid, and each step does what it is there for."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from boards import VARIANTS, drawn
from brute import optimum, tiny
from problems import HOUR, job, make, node
from slices import Baseline
from slices_whole import by_cpsat, by_highs

from planner.formulate import formulate
from planner.generate import generate
from planner.predict import forecast
from solvers import guide, patterns
from solvers.check import objective, violations
from solvers.facts import Facts
from solvers.kernels.board import Board
from solvers.patterns_bound import pattern_bound
from solvers.problem import Limits
from solvers.slice_packing import Block, Packing, plan
from solvers.slice_program import Program
from solvers.sliced import sliced
from solvers.slices import Slice, Slices, contents
from solvers.urgent import Urgent


def solved(problem, limit_s=0.5):
    return Baseline(problem, limit_s, seed=0).run()


# ---- whole solves ----


@pytest.mark.parametrize("seed", range(8))
def test_its_plan_is_valid_and_between_its_bound_and_the_base_plan(seed):
    problem = tiny(seed)
    answer = solved(problem, 0.2)
    assert violations(problem, answer.placed) == ()
    assert objective(problem, answer.placed).total == answer.objective
    assert answer.found.bound <= optimum(problem)[0] <= answer.objective <= answer.base


def generated():
    scenario = generate(60, 32, 0)
    told = forecast(scenario.snapshot, scenario.policy, scenario.predictor)
    return formulate(scenario.snapshot, told, scenario.policy).problem


def test_it_comes_close_to_its_bound_and_says_when_it_knew_what():
    problem = generated()
    answer = solved(problem, 2.0)
    assert violations(problem, answer.placed) == ()
    assert answer.found.bound <= answer.objective < 1.2 * answer.found.bound
    assert 0 < answer.bound_s() <= answer.first_s() <= answer.found.wall_s


def without_greedy(problem):
    """The plan of HiGHS' choice of slices, before anything is filled up."""
    found = pattern_bound(problem, time.monotonic() + 10)
    slices = Slices(problem, found.master)
    program = slices.program(1.0)
    chosen = by_highs(program, 2.0, 0, slices.rounded(program, program.relaxed(10.0)))
    return plan(slices, chosen[: len(slices.slices)], slices.facts.earliest_makespan)


def test_slices_fill_most_gpus_before_the_greedy_comes():
    problem = generated()
    placed = without_greedy(problem)
    assert violations(problem, placed) == ()
    assert len({g for spot in placed for g in spot or ()}) > 0.7 * problem.gpus


def test_slots_of_a_pair_stay_on_one_node():
    """Two pairs and two singles on two nodes of three GPUs: nobody waits if the pairs are kept together."""
    pairs = [job(2, alone=True, cpu_milli=2, type=kind) for kind in (0, 1)]
    single = job(alone=True, cpu_milli=3)
    problem = make([node(3, cpu_milli=5), node(3, cpu_milli=5)], [*pairs, single, single])
    placed = without_greedy(problem)
    assert None not in placed
    assert violations(problem, placed) == ()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_plan_from_slices_is_valid_and_leaves_running_jobs_where_they_are(variant, seed):
    problem = drawn(variant, seed)
    found = pattern_bound(problem, time.monotonic() + 60)
    placed = sliced(problem, found.master, time.monotonic() + 60)
    assert violations(problem, placed) == ()
    assert all(placed[j] == home for j, home in enumerate(problem.home) if home is not None)


def test_on_a_large_cluster_the_engine_begins_with_slices(monkeypatch):
    """With nothing but its first plan and the one from slices, filled up, that one counts where it is better."""
    problem = generated()
    monkeypatch.setattr(Board, "improve", lambda *_: None)
    monkeypatch.setattr(Board, "improve_on", lambda *_: None)
    monkeypatch.setattr(patterns.Engine, "_from_columns", lambda *_: [])
    answers = []
    for nodes in (10**6, 1):
        monkeypatch.setattr(guide, "SLICED_NODES", nodes)
        for limits in (Limits(wall_s=1.5, deterministic=True), Limits(wall_s=3.0, workers=2)):
            engine = patterns.Engine(problem, limits, lambda *_: None)
            answers.append(engine.run(None).objective)
            assert (engine.guide.placed is not None) == (nodes == 1)
            assert engine.guide.found.master is None
    # Like with like: on a busy machine the one with threads gets further than the other.
    assert answers[2] < answers[0] and answers[3] < answers[1]


def test_there_is_none_after_the_deadline():
    problem = generated()
    found = pattern_bound(problem, time.monotonic() + 60)
    assert sliced(problem, found.master, time.monotonic() - 1) is None


# ---- the program ----


def knapsack():
    """Of 7 and twice 5 in a room of 10 the greedy takes 7, the best is 5 + 5."""
    program = Program()
    program.row({program.variable(-8.0, 1): 7.5, program.variable(-5.0, 2): 5.0}, 10.0)
    return program


def test_highs_and_cpsat_both_find_the_best_whole_numbers():
    hint = np.array([1, 0])
    assert by_highs(knapsack(), 5.0, 0, hint).tolist() == [0, 2]
    assert by_cpsat(knapsack(), 5.0, 0, hint).tolist() == [0, 2]
    assert np.dot(knapsack().cost, knapsack().relaxed(5.0)) < -10


def test_a_gang_lies_on_neighbouring_gpus_of_a_filled_node():
    """Row 0 fills the node of four, row 1 is a pair, row 2 has two singles."""
    one = Slice(pool=0, offering=0, gpus=4, holds=((2, 2), (1, 2), (0, 4)), cost=0.0)
    assert contents(one, np.array([4, 2, 1])) == [[0, 1], [0, 1], [0, 2], [0, 2]]


# ---- nodes ----


def packed(sizes_and_cores, nodes=2, gpus=2, cores=10):
    """Blocks of so many GPUs and cores on nodes: the cores of the blocks on each node."""
    pool = SimpleNamespace(cpu_milli=cores, memory_mib=1, counts=(gpus,))
    slices = SimpleNamespace(kin=SimpleNamespace(pools=[pool]))
    blocks = [Block([[0]] * size, np.array([float(use), 0.0])) for size, use in sizes_and_cores]
    found = Packing(slices, 0, list(range(nodes)), blocks).on_nodes()
    return sorted(sorted(int(block.host[0]) for block in on) for on in found)


def test_heavy_blocks_lie_beside_light_ones():
    assert packed([(1, 5), (1, 5), (1, 1), (1, 1)]) == [[1, 5], [1, 5]]


def test_two_blocks_change_nodes_to_let_a_third_in():
    """6 and 3 lie on one node, 5 and 4 on the other: 2 fits once 6 and 5 have changed places."""
    assert sum(map(len, packed([(1, 6), (1, 5), (1, 4), (1, 3), (1, 2), (1, 0)], gpus=3))) == 6


# ---- what is left ----


def test_a_job_that_would_be_late_takes_the_place_of_another():
    """Job 1 ends at 9 ticks if it waits; a tick costs more than all of job 0's waiting."""
    jobs = [
        job(alone=True, wait_cost=HOUR),
        job(alone=True, wait_cost=HOUR // 2, work=2000, deferred_end=9, cpu_milli=1),
    ]
    problem = make([node(1, cpu_milli=1)], jobs, makespan_cost=10 * HOUR)
    assert Urgent(Facts(problem)).among(((0,), None)) == (None, (0,))


def test_others_on_the_node_give_up_their_cores_as_well():
    """The GPU next to it holds the core that the late job wants."""
    jobs = [
        job(alone=True, wait_cost=HOUR),
        job(alone=True, wait_cost=HOUR, cpu_milli=1),
        job(alone=True, wait_cost=HOUR, work=2000, deferred_end=9, cpu_milli=1),
    ]
    problem = make([node(2, cpu_milli=1)], jobs, makespan_cost=10 * HOUR)
    placed = Urgent(Facts(problem)).among(((0,), (1,), None))
    assert placed[2] is not None and placed[1] is None


def test_nobody_gives_way_if_that_does_not_help():
    """Job 1 wants more cores than there are. Job 0, were it placed again, would go to the first GPU."""
    jobs = [
        job(alone=True, wait_cost=HOUR),
        job(alone=True, wait_cost=HOUR, work=2000, deferred_end=9, cpu_milli=5),
    ]
    problem = make([node(2, cpu_milli=1)], jobs, makespan_cost=10 * HOUR)
    assert Urgent(Facts(problem)).among(((1,), None)) == ((1,), None)
