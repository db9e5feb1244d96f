"""Seeded random problems of any size: four kinds of GPU, and three to five times more work than GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.problem import FORBIDDEN, MILLI, Budget, Interference, Placed, Problem

#: What one GPU idle for the horizon of 3,600 s costs, in milli-GPU-seconds.
HOUR = 3_600_000

KIND_MEMORY_MIB = np.array([16_384, 32_768, 40_960, 81_920])
KIND_SPEED = np.array([0.35, 0.5, 0.9, 1.0])
KIND_NODE_GPUS = (4, 8, 8, 8)
KIND_SHARE = (0.125, 0.25, 0.25, 0.375)

#: Arguments of ``random_problem`` for one with all that it may have at once.
EVERYTHING: dict[str, Any] = {
    "residents": 0.4,
    "windows": True,
    "budgets": True,
    "never": True,
    "cpu_only": True,
    "oddities": True,
}


def random_problem(
    seed: int,
    jobs: int,
    gpus: int,
    *,
    max_tenants: int = 3,
    nodes_of: int | None = None,
    residents: float = 0.0,
    gangs: bool = True,
    hosts: str = "tight",
    windows: bool = False,
    budgets: bool = False,
    never: bool = False,
    cpu_only: bool = False,
    gate: bool = True,
    types: int = 26,
    additive: bool = True,
    oddities: bool = False,
    makespan: float = 0.5,
) -> Problem:
    """A valid random problem; equal arguments give equal problems.

    Parameters
    ----------
    nodes_of
        GPUs a node; by default 4 of the smallest kind and 8 of the others.
    residents
        The share of jobs that run already, some of them movable or preemptible, a few breaking a rule.
    hosts
        ``tight``: 12 cores and 64 GiB a GPU; ``loose``: eight times as much.
    oddities
        Closed GPUs and nodes, jobs that are alone, share groups, node sets, link groups, declared shares.
    makespan
        The weight m of the makespan term; 0 leaves it out.
    """
    rng = np.random.default_rng(seed)
    kind_of_node, size_of_node = _draw_nodes(rng, gpus, nodes_of)
    traits = _draw_types(rng, types)
    a = rng.integers(0, types, jobs)
    n = _draw_sizes(rng, jobs, int(size_of_node.max(initial=1)), gangs, cpu_only)
    w = rng.choice([1, 2, 4], jobs, p=[0.6, 0.3, 0.1])
    cluster = _cluster_arrays(rng, kind_of_node, size_of_node, max_tenants, hosts, oddities)
    queue = _queue_arrays(rng, traits, a, n, w, oddities) | _cost_arrays(rng, traits, a, n, w, gpus, makespan)
    cluster |= _fragmentation(queue["wait_cost"], size_of_node, gpus)
    home = _draw_homes(rng, cluster, queue, residents)
    running = np.array([p is not None for p in home], bool)
    queue["movable"] = running & (rng.random(jobs) < 0.5)
    queue["preemptible"] = running & (rng.random(jobs) < 0.3)
    if windows:
        _hold_gpus(rng, cluster, n)
    return Problem(
        **cluster,
        **queue,
        home=home,
        interference=_interference(traits, additive),
        never=_draw_pairs(rng, jobs) if never else (),
        budgets=_draw_budgets(rng, jobs, n) if budgets else (),
        max_moves=3 if running.any() else 0,
        gate=gate,
    )


def _draw_nodes(rng: np.random.Generator, gpus: int, nodes_of: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Kind and number of GPUs of each node; together exactly ``gpus``."""
    kinds: list[int] = []
    sizes: list[int] = []
    small = gpus < 64
    for kind in rng.permutation(4) if small else range(4):
        size = min(nodes_of or KIND_NODE_GPUS[kind], max(1, gpus // 2 if small else gpus))
        count = max(1, round(gpus * KIND_SHARE[kind] / size))
        kinds += [int(kind)] * count
        sizes += [size] * count
    while sum(sizes) < gpus:
        kinds.append(kinds[-1])
        sizes.append(sizes[-1])
    keep = np.cumsum([0, *sizes[:-1]]) < gpus
    kind_of_node, size_of_node = np.array(kinds)[keep], np.array(sizes)[keep]
    if len(size_of_node):
        size_of_node[-1] -= size_of_node.sum() - gpus
    return kind_of_node, size_of_node


def _draw_types(rng: np.random.Generator, types: int) -> dict[str, np.ndarray]:
    """Use of GPU and host, speed by kind (T, 4), and pairwise slowdown excess (4, T, T), -1 where forbidden."""
    busy = rng.permutation(np.sort(rng.uniform(0.05, 1.0, types)))
    speed = KIND_SPEED[None, :] ** rng.uniform(0.4, 1.0, types)[:, None]
    sensitive = rng.uniform(0.9, 1.5, types)[:, None]
    noise, light = rng.uniform(0.85, 1.25, (types, types)), rng.random((types, types))
    use = np.minimum(1.0, busy[None, :] / np.sqrt(KIND_SPEED)[:, None])
    both = use[:, :, None] + use[:, None, :]
    excess = np.where(both <= 1, 0.02 + 0.08 * both * light, 0.1 + (both - 1) * sensitive * noise)
    refused = rng.random((types, types)) < 0.02
    return {
        "busy": busy,
        "memory_mib": np.clip(np.exp(rng.normal(np.log(8_192), 0.8, types)), 1_024, 40_960).astype(np.int64),
        "cpu_milli": 1000 * rng.integers(2, 9, types),
        "host_mib": 1024 * rng.integers(8, 49, types),
        "speed_milli": np.maximum(1, np.round(1000 * speed / speed.max(1, keepdims=True))).astype(np.int64),
        "excess": np.where(refused | refused.T, -1, np.round(1000 * excess).astype(np.int64)),
    }


def _interference(traits: dict[str, np.ndarray], additive: bool) -> Interference:
    excess = traits["excess"]

    def row(model: int, co: tuple[int, ...]) -> np.ndarray:
        each = excess[model][:, list(co)]
        total = each.sum(1)
        if not additive:  # the worst neighbour counts whole, the others half, and a crowd a little more
            total = each.max(1) + (each.sum(1) - each.max(1)) // 2 + 15 * (len(co) - 1)
        return np.where((each < 0).any(1), FORBIDDEN, MILLI + total)

    return Interference(len(traits["busy"]), 4, row, MILLI + 40 * int(excess.max(initial=0)))


def _draw_sizes(rng: np.random.Generator, jobs: int, largest: int, gangs: bool, cpu_only: bool) -> np.ndarray:
    n = np.ones(jobs, np.int64)
    if gangs and largest >= 8:
        n = rng.choice([1, 2, 4, 8, 16], jobs, p=[0.70, 0.14, 0.08, 0.06, 0.02])
    elif gangs:
        n = rng.choice([1, 2, 3], jobs, p=[0.6, 0.3, 0.1])
    return np.where(rng.random(jobs) < 0.15, 0, n) if cpu_only else n


def _cluster_arrays(
    rng: np.random.Generator, kind: np.ndarray, size: np.ndarray, max_tenants: int, hosts: str, oddities: bool
) -> dict[str, np.ndarray]:
    gpus, nodes = int(size.sum()), len(size)
    gpu_node = np.repeat(np.arange(nodes), size)
    index = np.arange(gpus) - np.repeat(np.cumsum(size) - size, size)
    room = {"tight": 1, "loose": 8}[hosts]
    odd = (lambda p, count: rng.random(count) < p) if oddities else (lambda _, count: np.zeros(count, bool))
    return {
        "gpu_node": gpu_node,
        "gpu_kind": kind[gpu_node],
        "gpu_index": index,
        "gpu_link": gpu_node * 4 + index // 2 if oddities else gpu_node.copy(),
        "gpu_memory_mib": KIND_MEMORY_MIB[kind[gpu_node]],
        "gpu_margin_mib": np.full(gpus, 500),
        "gpu_share": np.full(gpus, 1000),
        "gpu_max_tenants": np.where(odd(0.2, gpus), 1, max_tenants),
        "gpu_closed": odd(0.05, gpus),
        "gpu_shared_outside": odd(0.05, gpus),
        "gpu_until_s": np.full(gpus, -1),
        "gpu_holder": np.full(gpus, -1),
        "node_cpu_milli": size * 12_000 * room,
        "node_memory_mib": size * 65_536 * room,
        "node_closed": odd(0.05, nodes),
        "node_sets": np.stack([np.ones(nodes, bool), rng.random(nodes) < 0.7]),
    }


def _queue_arrays(
    rng: np.random.Generator,
    traits: dict[str, np.ndarray],
    a: np.ndarray,
    n: np.ndarray,
    w: np.ndarray,
    oddities: bool,
) -> dict[str, np.ndarray]:
    jobs = len(a)
    odd = (lambda p: rng.random(jobs) < p) if oddities else (lambda _: np.zeros(jobs, bool))
    memory = np.broadcast_to(traits["memory_mib"][a][:, None], (jobs, 4)).copy()
    speed = np.where(memory <= KIND_MEMORY_MIB[None, :], traits["speed_milli"][a], 0)
    per_gpu = np.maximum(n, 1)
    return {
        "job_gpus": n,
        "size_milli": MILLI * per_gpu,
        "job_type": a,
        "cpu_milli": traits["cpu_milli"][a] * per_gpu,
        "host_memory_mib": traits["host_mib"][a] * per_gpu,
        "max_nodes": np.where(n > 8, 2, np.where(odd(0.3), 2, 1)),
        "gpus_per_node": np.where(odd(0.1) & (n > 0), np.maximum(1, n // 2), 0),
        "node_set": odd(0.2).astype(np.int64),
        "alone": odd(0.1),
        "node_alone": odd(0.05),
        "share_group": odd(0.2).astype(np.int64),
        "link_milli": np.broadcast_to([1000, 1050, 1200], (jobs, 3)).copy(),
        "speed_milli": speed,
        "memory_mib": memory,
        "share": np.broadcast_to((odd(0.3) * rng.integers(100, 700, jobs))[:, None], (jobs, 4)).copy(),
        "cap_milli": np.broadcast_to(rng.choice([2000, 2000, 3000], jobs)[:, None], (jobs, 4)).copy(),
    }


def _cost_arrays(
    rng: np.random.Generator,
    traits: dict[str, np.ndarray],
    a: np.ndarray,
    n: np.ndarray,
    w: np.ndarray,
    gpus: int,
    makespan: float,
) -> dict[str, Any]:
    """Rates over an hour; ends in ticks, of which the longer of fluid bound and longest job has a thousand."""
    jobs = len(a)
    alone_s = np.clip(np.exp(rng.normal(np.log(3600), 1.6, jobs)), 300, 6 * 86_400)
    fluid_s = max(1.0, float((n * alone_s).sum()) / max(gpus, 1))
    tick_s = max(fluid_s, alone_s.max(initial=1.0)) / 1000
    work = np.maximum(1, np.ceil(MILLI * alone_s / tick_s)).astype(np.int64)
    unit = HOUR * w * np.maximum(n, 1)
    age = 1 + rng.exponential(0.5, jobs)
    urgency = 1 + makespan * np.minimum(1, alone_s / fluid_s) ** 2
    # Never earlier than any end it could be offered now: the slowest kind, three times slowed, over the network.
    slowest = traits["speed_milli"].min(1)[a]
    offered = np.ceil(work * 3.0 * 1.2 / slowest).astype(np.int64) + 1
    listed = np.ceil(MILLI * fluid_s / tick_s / MILLI + work / MILLI).astype(np.int64)
    known = (rng.random(jobs) < 0.9) & (makespan > 0)
    return {
        "unit_speed": unit,
        "unit_interference": unit,
        "unit_locality": unit,
        "wait_cost": (unit * age * urgency).astype(np.int64),
        "move_cost": 300_000 * w * np.maximum(n, 1),
        "work": np.where(known, work, -1),
        "deferred_end": np.where(known, np.maximum(offered, listed), -1),
        "remaining_p90_s": np.where(known | (makespan == 0), (1.5 * alone_s).astype(np.int64), -1),
        "makespan_cost": int(makespan * gpus * HOUR * tick_s / fluid_s),
    }


def _fragmentation(wait_cost: np.ndarray, size: np.ndarray, gpus: int) -> dict[str, np.ndarray]:
    epsilon = int(wait_cost.min(initial=HOUR)) // (3 * max(gpus, 1))
    return {"node_used_cost": epsilon * size, "gpu_open_cost": np.full(gpus, epsilon)}


def _draw_homes(
    rng: np.random.Generator, cluster: dict[str, Any], queue: dict[str, Any], residents: float
) -> Placed:
    """Homes on one node (two for more than 8 GPUs) with room for tenants and memory; one in ten ignores both."""
    jobs, nodes = len(queue["job_gpus"]), len(cluster["node_closed"])
    home: list[tuple[int, ...] | None] = [None] * jobs
    free = cluster["gpu_memory_mib"] - cluster["gpu_margin_mib"]
    tenants = np.zeros(len(free), np.int64)
    first = np.searchsorted(cluster["gpu_node"], np.arange(nodes + 1))
    for j in rng.permutation(jobs)[: round(jobs * residents)] if nodes else ():
        n, careless = int(queue["job_gpus"][j]), rng.random() < 0.1
        v = int(rng.integers(nodes))
        if n == 0:
            home[j] = (v,)
            continue
        g = np.arange(first[v], first[min(v + 1 + (n > 8), nodes)])
        kind = int(cluster["gpu_kind"][g[0]])
        g = g[cluster["gpu_kind"][g] == kind]
        if not careless:
            g = g[
                (tenants[g] < cluster["gpu_max_tenants"][g] - 1) & (free[g] >= queue["memory_mib"][j, kind])
            ]
        if len(g) < n or queue["speed_milli"][j, kind] == 0:
            continue
        spot = np.sort(rng.choice(g, n, replace=False))
        home[j] = tuple(spot.tolist())
        tenants[spot] += 1
        free[spot] -= queue["memory_mib"][j, kind]
    return tuple(home)


def _hold_gpus(rng: np.random.Generator, cluster: dict[str, Any], n: np.ndarray) -> None:
    """Reserve a few GPUs in a row for the largest job."""
    if not n.size or not len(cluster["gpu_node"]):
        return
    holder = int(n.argmax())
    first = int(rng.integers(max(1, len(cluster["gpu_node"]) - int(n[holder]))))
    held = slice(first, first + max(1, int(n[holder])))
    cluster["gpu_until_s"][held] = int(rng.integers(600, 20_000))
    cluster["gpu_holder"][held] = holder


def _draw_pairs(rng: np.random.Generator, jobs: int) -> tuple[tuple[int, int], ...]:
    if jobs < 2:
        return ()
    drawn = (rng.choice(jobs, 2, replace=False) for _ in range(max(1, jobs // 4)))
    return tuple(sorted({(int(min(pair)), int(max(pair))) for pair in drawn}))


def _draw_budgets(rng: np.random.Generator, jobs: int, n: np.ndarray) -> tuple[Budget, ...]:
    users = rng.integers(0, 3, jobs)
    drawn = []
    for user, kind in enumerate(("quota", "licence", "throttle")):
        members = np.flatnonzero(users == user)
        amounts = np.maximum(n[members], 1) if kind == "quota" else np.ones(len(members), np.int64)
        drawn.append(
            Budget(
                kind,
                f"user-{user}",
                int(amounts.sum() * 0.6),
                tuple(members.tolist()),
                tuple(amounts.tolist()),
            )
        )
    return tuple(drawn)
