"""Made-up clusters and queues: the same for a seed, of the size asked for, and of the mix that is promised."""

from collections import Counter

import pytest

from planner import scenario
from planner.errors import InputError
from planner.generate import generate


def test_a_seed_settles_everything():
    assert generate(20, 16, 3) == generate(20, 16, 3)
    assert generate(20, 16, 3) != generate(20, 16, 4)


@pytest.mark.parametrize("gpus", [0, 1, 3, 4, 7, 64, 100, 512, 1001])
def test_there_are_exactly_so_many_gpus(gpus):
    made = generate(1, gpus, 0).snapshot.cluster
    assert len(made.gpus) == gpus
    assert {(n.cpus, n.host_memory_mib) for n in made.nodes} == {
        (12 * len(n.gpus), 65536 * len(n.gpus)) for n in made.nodes
    }


def test_a_large_cluster_has_all_four_models_on_nodes_of_four_and_eight():
    nodes = generate(1, 512, 0).snapshot.cluster.nodes
    assert Counter((n.gpus[0].model, len(n.gpus)) for n in nodes) == {
        ("v100-16gb", 4): 16,
        ("v100-32gb", 8): 16,
        ("a100-40gb", 8): 16,
        ("a100-80gb", 8): 24,
    }


def test_the_mix_of_jobs_is_as_promised():
    jobs = generate(5000, 8, 1).snapshot.jobs
    gangs = Counter(j.gpus for j in jobs)
    for size, share in {1: 0.70, 2: 0.14, 4: 0.08, 8: 0.06, 16: 0.02}.items():
        assert abs(gangs[size] / len(jobs) - share) < 0.02
    assert {j.priority for j in jobs} == {1, 2, 4}
    assert len({j.profile for j in jobs}) == 26
    durations = sorted(j.duration_s for j in jobs)
    assert durations[4500] > 5 * durations[2500]  # a heavy tail
    assert all(j.submitted_s <= 0 for j in jobs)
    assert len({j.id for j in jobs}) == 5000


def test_slowdowns_are_directed_and_some_pairs_must_not_share():
    made = generate(1, 512, 0).predictor
    slowdown = {(r.gpu_model, r.profile, r.beside): r.slowdown for r in made.interference.rows}
    assert len(slowdown) == 4 * 26 * 26
    assert all((value is None) == (slowdown[m, b, a] is None) for (m, a, b), value in slowdown.items())
    assert 0.01 < sum(v is None for v in slowdown.values()) / len(slowdown) < 0.1
    assert any(v != slowdown[m, b, a] for (m, a, b), v in slowdown.items())
    assert all(max(speeds.values()) == 1 for speeds in made.speed.values())


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_generated_scenario_is_a_file(tmp_path, form):
    made = generate(30, 20, 2)
    path = tmp_path / f"s.{form}"
    path.write_text(scenario.dump(made, form))
    assert scenario.load(path) == made


def test_nothing_at_all_can_be_generated():
    made = generate(0, 0, 0).snapshot
    assert (made.jobs, made.cluster.nodes) == ((), ())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((-1, 4, 0), "--jobs: got -1; accepted: 0 to 1000000"),
        ((1, 10**7, 0), "--gpus: got 10000000; accepted: 0 to 1000000"),
        ((1, 1, -1), "--seed: got -1; accepted: 0 to 4294967295"),
    ],
)
def test_a_size_that_cannot_be_is_refused(arguments, line):
    with pytest.raises(InputError) as caught:
        generate(*arguments)
    assert str(caught.value) == line
