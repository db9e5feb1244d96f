"""What must hold of the optimum whatever the numbers, on seeded random snapshots of up to 6 jobs x 3 GPUs."""

import numpy as np
import pytest
from builders import job, node, policy, snapshot

from planner import predict
from planner.formulate import formulate
from planner.policy import PredictorSpec, Weights
from solvers import Limits, Status, solve


def random_snapshot(seed):
    rng = np.random.default_rng(seed)
    nodes = [node(int(n), name=f"n{i}", cpus=int(rng.integers(4, 12))) for i, n in enumerate((2, 1))]
    queue = [
        job(
            id=f"j{i}",
            gpus=int(rng.choice([1, 1, 1, 2])),
            max_nodes=int(rng.integers(1, 3)),
            gpu_memory_mib=int(rng.integers(5000, 25_000)),
            gpu_utilisation_pct=int(rng.integers(20, 100)),
            duration_s=int(rng.integers(300, 20_000)) if rng.random() < 0.8 else None,
            cpus=int(rng.integers(0, 5)),
            priority=int(rng.choice([1, 2, 4])),
            submitted_s=-int(rng.integers(0, 20_000)),
        )
        for i in range(int(rng.integers(3, 7)))
    ]
    return snapshot(nodes, queue)


def optimum(state, **rules):
    rules = policy(**rules)
    problem = formulate(state, predict.forecast(state, rules, PredictorSpec()), rules).problem
    found = solve(problem, Limits(wall_s=20, deterministic=True), engine="cp-sat")
    assert found.status == Status.OPTIMAL
    return found.objective


@pytest.mark.parametrize("seed", range(12))
def test_one_more_node_of_a_model_that_is_there_never_raises_the_optimum(seed):
    state = random_snapshot(seed)
    rules = {"max_reservations": 0, "weights": Weights(makespan=0, fragmentation=0)}
    more = snapshot([*state.cluster.nodes, node(2, name="n9", cpus=8)], state.jobs)
    assert optimum(more, **rules) <= optimum(state, **rules)


@pytest.mark.parametrize("seed", range(12))
def test_renaming_and_reordering_jobs_never_changes_the_optimum(seed):
    state = random_snapshot(seed)
    order = np.random.default_rng(seed).permutation(len(state.jobs))
    renamed = [state.jobs[i].model_copy(update={"id": f"x{n}"}) for n, i in enumerate(order)]
    other = snapshot(list(state.cluster.nodes), renamed)
    assert optimum(other) == optimum(state)
