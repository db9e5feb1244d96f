"""The one-by-one heuristics of the openb benchmark, on clusters small enough to work out by hand."""

import numpy as np
import pytest
from openb_heuristics import (
    Cluster,
    Fragmentation,
    best_fit,
    classes,
    dot_product,
    gradient_descent,
    one_by_one,
)
from problems import job, make, node

from solvers.check import violations

RULES = pytest.mark.parametrize("rule", [best_fit, dot_product, gradient_descent])


def pod(milli=1000, gpus=1, **given):
    """A pod that takes thousandths of one GPU, or whole GPUs for itself."""
    whole = gpus > 0 and milli >= 1000
    size = {} if whole or not gpus else {"share": milli, "size_milli": milli}
    return job(gpus, alone=whole, **size, **given)


def fragmentation(problem, **free):
    """Fragmentation of every node, of the empty cluster or with these free resources."""
    cluster = Cluster(problem)
    demands, class_of = classes(problem, cluster)
    state = {"cpu": cluster.cpu_milli, "host": cluster.host_mib, "milli": cluster.milli} | free
    measure = Fragmentation(demands, np.bincount(class_of))
    return measure(np.arange(problem.nodes), **state).tolist()


# ---- fragmentation ----


def test_a_gpu_with_less_free_than_a_pod_asks_for_is_a_fragment_for_it():
    """300, 500 and 1000 free. A pod of 400 cannot use 300, a whole one neither 300 nor 500: (300 + 800) / 2."""
    problem = make([node(3)], [pod(400), pod(1000)])
    assert fragmentation(problem, milli=np.array([[300, 500, 1000]])) == [550]


def test_all_that_is_free_is_a_fragment_for_a_pod_that_finds_too_few_gpus():
    """700 and 1000 free: all 1700 for the pair of whole GPUs; for the three pods of 600 nothing: 1700 / 4."""
    problem = make([node(2)], [pod(1000, gpus=2), pod(600), pod(600), pod(600)])
    assert fragmentation(problem, milli=np.array([[700, 1000]])) == [425]


@pytest.mark.parametrize("resource", ["cpu_milli", "host_memory_mib"])
def test_all_that_is_free_is_a_fragment_for_a_pod_that_the_host_cannot_take(resource):
    """The second node has 4 of the 5 that one of two pods wants: all its 1000 are lost to it."""
    nodes = [node(1, **{resource: 5}), node(1, **{resource: 4})]
    assert fragmentation(make(nodes, [pod(500, **{resource: 5}), pod(500)])) == [0, 500]


def test_all_that_is_free_is_a_fragment_for_a_pod_without_gpus_and_for_one_that_takes_another_kind():
    """Of four pods one wants no GPU (lost on both nodes) and one only kind 0 (lost on the second)."""
    nodes = [node(1, kind=0), node(1, kind=1)]
    jobs = [pod(gpus=0), pod(500, speed_milli=(1000, 0)), pod(500), pod(500)]
    assert fragmentation(make(nodes, jobs, kinds=2)) == [250, 500]


# ---- where the rules put pods ----


def test_gradient_descent_goes_where_fragmentation_falls():
    """400 free on the first node are lost to pods of 600 and 1000, 800 / 3 in all; a pod of 400 makes that 0. On the
    second, empty one it would leave 600, which are lost to a pod of 1000: from 0 to 600 / 3."""
    problem = make([node(1), node(1)], [pod(600), pod(400), pod(1000)])
    assert one_by_one(problem, [0, 1, 2], gradient_descent) == ((0,), (0,), (1,))


def test_gradient_descent_leaves_room_for_the_mix_where_best_fit_looks_at_one_pod():
    """Free are 500 on the first node and 800 on the second, and most pods ask for 500.

    A pod of 300 leaves 200 of the first, which is least left over, but lost to the pods of 500; of the second it leaves
    500, which are not.
    """
    first, second = {"speed_milli": (1000, 0)}, {"speed_milli": (0, 1000)}
    jobs = [pod(500, **first), pod(200, **second), pod(300), *[pod(500)] * 6]
    problem = make([node(1, kind=0), node(1, kind=1)], jobs, kinds=2)
    assert one_by_one(problem, [0, 1, 2], best_fit)[:3] == ((0,), (1,), (0,))
    assert one_by_one(problem, [0, 1, 2], gradient_descent)[:3] == ((0,), (1,), (1,))


def test_gradient_descent_chooses_the_gpu_within_a_node():
    """Most pods ask for 500. Beside one of 500, a pod of 200 and then one of 300 would leave 300 and 200 that are lost to
    them; on the second GPU they leave 800 and 500 that are not."""
    problem = make([node(2)], [pod(500), pod(200), pod(300), *[pod(500)] * 6])
    assert one_by_one(problem, [0, 1, 2], best_fit)[:3] == ((0,), (0,), (0,))
    assert one_by_one(problem, [0, 1, 2], gradient_descent)[:3] == ((0,), (1,), (1,))


def test_gradient_descent_keeps_pairs_of_gpus_together():
    """A pair of whole GPUs leaves one of the first node, which is lost to the next pair, and none of the second."""
    problem = make([node(3), node(2)], [pod(1000, gpus=2), pod(1000, gpus=2)])
    assert one_by_one(problem, [0], gradient_descent)[0] == (3, 4)


def test_best_fit_takes_the_node_with_the_least_left_over():
    """Both have room; on the second node 1 GPU is left over, on the first 3."""
    problem = make([node(4), node(2)], [pod(1000)])
    assert one_by_one(problem, [0], best_fit) == ((4,),)


def test_best_fit_counts_cores_and_host_memory_too():
    """The second node leaves as many GPUs but fewer cores."""
    nodes = [node(2, cpu_milli=64_000), node(2, cpu_milli=8_000)]
    assert one_by_one(make(nodes, [pod(1000, cpu_milli=4_000)]), [0], best_fit) == ((2,),)


def test_dot_product_takes_the_node_that_is_free_in_what_the_pod_asks_for():
    """Half of the first node's cores are taken: a pod of cores aligns with the second, and one of a GPU with both."""
    nodes = [node(1, cpu_milli=8_000), node(1, cpu_milli=8_000)]
    jobs = [pod(gpus=0, cpu_milli=4_000), pod(gpus=0, cpu_milli=1_000), pod(1000)]
    assert one_by_one(make(nodes, jobs), [0, 1, 2], dot_product) == ((0,), (1,), (0,))


def test_dot_product_counts_parts_of_the_nodes_own_capacity():
    """A GPU is all of the second node and a quarter of the first: 1 * 1 against 1/4 * 1."""
    assert one_by_one(make([node(4), node(1)], [pod(1000)]), [0], dot_product) == ((4,),)


# ---- what they may not do ----


@RULES
def test_a_pod_waits_if_nothing_has_room(rule):
    problem = make([node(1)], [pod(600), pod(600), pod(1000)])
    assert one_by_one(problem, [1, 0, 2], rule) == (None, (0,), None)


@RULES
def test_a_pod_goes_only_where_its_kind_and_its_memory_are(rule):
    """Kind 0 is refused, the first GPU of kind 1 is too small."""
    nodes = [node(1), node(1, kind=1, memory_mib=10_000), node(1, kind=1, memory_mib=20_000)]
    problem = make(nodes, [pod(1000, speed_milli=(0, 1000), memory_mib=15_000)], kinds=2)
    assert one_by_one(problem, [0], rule) == ((2,),)


@RULES
def test_the_second_tenant_leaves_the_margin_free(rule):
    """10,000 MiB hold two of 5,000 without a margin and not with one."""
    jobs = [pod(500, memory_mib=5_000), pod(500, memory_mib=5_000)]
    assert one_by_one(make([node(1, memory_mib=10_000)], jobs), [0, 1], rule) == ((0,), (0,))
    assert one_by_one(make([node(1, memory_mib=10_000, margin_mib=1)], jobs), [0, 1], rule) == ((0,), None)


@RULES
@pytest.mark.parametrize("seed", range(4))
def test_the_referee_accepts_what_they_place(rule, seed):
    """Nodes of four shapes, tight hosts, all sizes of pods; more is asked than there is."""
    rng = np.random.default_rng(seed)
    nodes = [
        node(
            int(g),
            kind=int(rng.integers(2)),
            cpu_milli=10_000 * int(g + 1),
            memory_mib=30_000,
            margin_mib=500,
            max_tenants=9,
        )
        for g in rng.choice([0, 1, 2, 8], 12)
    ]
    jobs = [
        pod(
            int(rng.choice([120, 250, 470, 600, 810, 1000])),
            gpus=int(rng.choice([0, 1, 1, 1, 1])),
            cpu_milli=int(rng.integers(1, 12_000)),
            memory_mib=int(rng.integers(1, 12_000)),
            speed_milli=(1000, int(rng.choice([0, 1000]))),
        )
        for _ in range(120)
    ] + [pod(1000, gpus=int(rng.choice([2, 4, 8])), cpu_milli=5_000) for _ in range(6)]
    problem = make(nodes, jobs, kinds=2)
    placed = one_by_one(problem, rng.permutation(len(jobs)).tolist(), rule)
    assert violations(problem, placed) == ()
    assert 20 < sum(spot is not None for spot in placed) < len(jobs)


def test_gradient_descent_remembers_nothing_stale():
    """Looking only at nodes that changed finds what looking at all of them finds."""
    rng = np.random.default_rng(5)
    nodes = [node(int(g), cpu_milli=9_000 * int(g)) for g in rng.choice([1, 2, 4], 8)]
    jobs = [
        pod(int(m), cpu_milli=int(c))
        for m, c in zip(rng.choice([200, 350, 500, 1000], 40), rng.integers(1, 9_000, 40), strict=True)
    ]
    problem = make(nodes, jobs)
    cluster = Cluster(problem)
    demands, class_of = classes(problem, cluster)
    pods = np.bincount(class_of)
    for j, spot in enumerate(one_by_one(problem, range(40), gradient_descent)):
        chosen = gradient_descent(cluster, demands, pods)(class_of[j])
        assert spot == (None if chosen is None else cluster.put(demands[class_of[j]], *chosen))


def test_pods_that_are_not_of_the_trace_are_refused():
    with pytest.raises(ValueError, match="one kind a node"):
        one_by_one(make([node(2, kind=(0, 1))], [pod(1000)], kinds=2), [0], best_fit)
    with pytest.raises(ValueError, match="may span nodes"):
        one_by_one(make([node(2)], [pod(1000, gpus=2, max_nodes=2)]), [0], best_fit)
