"""One job of a plan explained: its neighbours, its part of each term, why it moves."""

import pytest
from builders import gpu, job, node, policy, snapshot, table
from problems import random_problem
from telling import A, filled, one_gpu, planning

from planner import explain
from planner.epoch import plan_epoch
from planner.explain.choosing import spot_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.explain.terms import job_terms
from planner.generate import generate
from planner.policy import PredictorSpec
from solvers.check import objective


def explained(state, who="a", predictor=None, **rules):
    plan = planning(predictor)(state, policy(**{"max_reservations": 0, **rules}))
    return explain.explain_job(plan, who)


def test_a_placed_job_names_its_neighbours_and_what_each_term_costs_it():
    spec = table(("x", "y", 1.25), ("y", "x", 1.6))
    said = explained(
        one_gpu(job(id="r", profile="x", running_on=[A]), job(id="a", profile="y", duration_s=None)),
        predictor=spec,
        weights={"makespan": 0},
    )
    assert (said.decision, said.gpu_ids, said.slowdown) == ("start", (A,), 1.6)
    assert [(n.job_id, n.gpu_ids, n.profile, n.slowdown) for n in said.neighbours] == [("r", (A,), "x", 1.25)]
    # 3600 x (1 - 1/1.6)
    assert said.costs == explain.job.Share(interference=1350, speed=0, locality=0, waiting_avoided=3600)
    assert said.memory == (
        "8000 MiB a GPU (declared); 500 MiB are kept free beside others (nothing holds tenants to theirs)"
    )


def test_what_a_slower_gpu_and_slower_links_cost_is_told_apart():
    spec = PredictorSpec(speed={"*": {"v100-32gb": 0.5}})
    nodes = [node(2, name="n0", model="v100-32gb", memory_mib=32_768), node(1, name="n1")]
    said = explained(snapshot(nodes, [job(id="a", gpus=2)]), predictor=spec)
    # 2 x 3600 x 0.5, and 2 x 3600 x 0.5 x (1 - 1/1.05)
    assert said.costs is not None
    assert (said.costs.speed, said.costs.locality) == (3600, 171.432)


@pytest.mark.parametrize(("memory", "spread"), [(None, False), (100, True)])
def test_a_constraint_that_forces_spreading_is_named(memory, spread):  # field case 90
    nodes = [node(4, name="n0", host_memory_mib=memory), node(4, name="n1")]
    running = job(id="r", running_on=[A], shareable=False, host_memory_mib=80)
    said = explained(snapshot(nodes, [running, job(id="a", shareable=False, host_memory_mib=80)]))
    assert said.nodes == (("n1",) if spread else ("n0",))
    assert (said.spread is not None) == spread
    if said.spread:
        assert "need 160 MiB of host memory on n0, it has 100 (rule: hosts)" in said.spread


def test_a_job_that_fills_a_node_in_use_was_not_spread():
    nodes = [node(4, name="n0", host_memory_mib=100), node(4, name="n1"), node(4, name="n2")]
    running = [job(id=f"r{v}", running_on=[f"n{v}/0"], shareable=False, host_memory_mib=80) for v in range(2)]
    said = explained(snapshot(nodes, [*running, job(id="a", shareable=False, host_memory_mib=80)]))
    assert (said.nodes, said.spread) == (("n1",), None)


def test_an_unknown_job_is_a_key_error():
    with pytest.raises(KeyError):
        explained(one_gpu(job(id="a")), who="b")


def test_sentences_are_plain():
    lines = explained(one_gpu(job(id="a"))).lines
    assert lines[0] == "a starts on n0/0"
    assert all("\n" not in line for line in lines)


def test_nothing_is_known_of_a_gpu_without_memory_but_the_job_runs():
    state = snapshot([node([gpu(memory_mib=None)], name="n0")], [job(id="a", gpu_memory_mib=None)])
    assert explained(state).memory == "its GPU memory is not known, so it has its GPUs for itself"


# ---- parts that add up ----

PARTS = ("speed", "interference", "locality", "waiting", "moves")


@pytest.mark.parametrize("seed", range(12))
def test_the_jobs_parts_sum_to_the_objectives_terms(seed):
    p = random_problem(seed, 24, 10, nodes_of=3, residents=0.4, oddities=True, cpu_only=True)
    placed = list(filled(p))
    for j, home in enumerate(p.home):  # whatever the rules say: moved and stopped jobs are to be counted too
        if home is not None and j % 3 == 0:
            placed[j] = None if j % 2 else spot_for(Ledger(Survey(p, tuple(placed))), j)
    whole, parts = objective(p, tuple(placed)), job_terms(p, tuple(placed))
    for name in PARTS:
        assert sum(getattr(t, name) for t in parts) == getattr(whole, name)
    assert whole.moves and whole.waiting


@pytest.mark.parametrize("seed", range(3))
def test_explained_costs_of_all_jobs_sum_to_the_plans_terms(seed):
    made = generate(14, 8, seed)
    plan = planning(made.predictor)(made.snapshot, made.policy)
    said = [explain.explain_job(plan, j.id).costs for j in made.snapshot.jobs]
    for name in PARTS:
        total = sum(getattr(c, name) for c in said if c is not None)
        assert total == pytest.approx(getattr(plan.objective.terms, name), abs=1e-6)


# ---- moves ----


def moved(state, who, **rules):
    """Explained in a proven plan: the greedy moves nothing."""
    rules = policy(max_reservations=0, max_moves=1, solver="cp-sat", **rules)
    return explain.explain_job(plan_epoch(state, rules, PredictorSpec(), fixes=False), who)


def test_a_job_that_moves_says_for_whom_and_what_that_gains_and_costs():
    running = job(id="r", running_on=["n0/0"], shareable=False, movable=True, checkpoint_s=30, restart_s=10)
    state = snapshot(
        [node(2, name="n0"), node(1, name="n1")], [running, job(id="a", gpus=2, shareable=False)]
    )
    weights = {"makespan": 0, "fragmentation": 0, "locality": 0}
    said = moved(state, "r", weights=weights)
    assert (said.decision, said.gpu_ids) == ("move", ("n1/0",))
    # a's waiting, 2 x 3600, against the move's 40
    assert said.move == (
        "it makes room for a; if it stayed and a waited, the plan would cost 7160 GPU-s more, "
        "though the move itself costs 40"
    )
    assert said.costs is not None and said.costs.moves == 40
    assert moved(state, "a", weights=weights).move is None


def test_a_job_that_is_stopped_says_for_whom():
    running = job(id="r", running_on=[A], shareable=False, preemptible=True, checkpoint_s=0, restart_s=0)
    state = one_gpu(running, job(id="a", priority=5, shareable=False))
    said = moved(state, "r", weights={"makespan": 0, "fragmentation": 0})
    assert said.decision == "stop"
    assert said.lines[1] == (
        "why it stops: it makes room for a; if it stayed and a waited, the plan would cost 14400 GPU-s more, "
        "though the stop itself costs 0"
    )
    assert said.costs is not None and said.costs.waiting == 3600
