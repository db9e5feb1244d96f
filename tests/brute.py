"""The optimum of a tiny problem by trying everything, written from the docstring of ``solvers.problem`` alone.

It is the third opinion beside the referee and the engines and shares no code with either. ``tiny(seed)`` draws
problems small enough for it in which every rule has a chance to bind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from math import ceil
from typing import Any

import numpy as np
from problems import HOUR, job, make, node

from solvers.problem import FORBIDDEN, UNCAPPED, Budget, Placed, Problem, Spot


def optimum(p: Problem) -> tuple[int, Placed]:
    """The least cost and one placement that has it."""
    best: tuple[int, Placed] | None = None
    known: dict[Any, dict[int, int] | None] = {}
    for placed in product(*(list(spots(p, j)) for j in range(p.jobs))):
        found = cost(p, placed, known)
        if found is not None and (best is None or found < best[0]):
            best = found, placed
    assert best is not None, "the base plan is always feasible"
    return best


def spots(p: Problem, j: int) -> Iterator[Spot | None]:
    """Everything that the rules for one job allow it."""
    home, n = p.home[j], p.job_gpus[j]
    if home is not None:
        yield home
    if home is None or p.preemptible[j]:
        yield None
    if home is None or p.movable[j]:
        places = combinations(range(p.gpus), n) if n else ((v,) for v in range(p.nodes))
        yield from (spot for spot in places if spot != home and fits_job(p, j, spot))


def fits_job(p: Problem, j: int, spot: Spot) -> bool:
    """Kind and nodes."""
    allowed = p.node_sets[p.node_set[j]]
    if p.job_gpus[j] == 0:
        return bool(allowed[spot[0]])
    on = Counter(int(p.gpu_node[g]) for g in spot)
    indices = {v: {int(p.gpu_index[g]) for g in spot if p.gpu_node[g] == v} for v in on}
    kinds = {int(p.gpu_kind[g]) for g in spot}
    return bool(
        len(kinds) == 1
        and p.speed_milli[j, kinds.pop()] > 0
        and len(on) <= p.max_nodes[j]
        and all(allowed[v] for v in on)
        and (p.gpus_per_node[j] == 0 or set(on.values()) == {p.gpus_per_node[j]})
        and (not p.equal_per_node or len(set(on.values())) == 1)
        and (not p.same_index or all(one == next(iter(indices.values())) for one in indices.values()))
    )


def cost(p: Problem, placed: Placed, known: dict[Any, dict[int, int] | None]) -> int | None:
    """The objective, None if a rule is broken."""
    new = [spot is not None and spot != p.home[j] for j, spot in enumerate(placed)]
    tenants: dict[int, list[int]] = {}
    for j, spot in enumerate(placed):
        for g in (spot or ()) if p.job_gpus[j] else ():
            tenants.setdefault(g, []).append(j)
    slow: dict[int, dict[int, int]] = {}
    for g, jobs in tenants.items():
        key = (g, *((j, new[j]) for j in jobs))
        if key not in known:
            known[key] = on_gpu(p, g, jobs, new)
        found = known[key]
        if found is None:
            return None
        slow[g] = found
    moved = sum(home is not None and placed[j] != home for j, home in enumerate(p.home))
    if moved > p.max_moves or not fits_budgets(p, placed) or not fits_nodes(p, placed, new):
        return None
    return total(p, placed, new, slow)


def on_gpu(p: Problem, g: int, jobs: list[int], new: list[bool]) -> dict[int, int] | None:
    """Slowdown of each tenant, None if a rule for a GPU is broken."""
    m = p.gpu_kind[g]

    def beside(j: int, group: list[int]) -> int:
        return p.interference.slowdown(m, p.job_type[j], [int(p.job_type[i]) for i in group if i != j])

    def progress(group: list[int]) -> int:
        return sum(int(p.size_milli[j]) * (10**9 // beside(j, group)) for j in group)

    slow = {j: beside(j, jobs) for j in jobs}
    if not any(new[j] for j in jobs):
        return slow
    margin = p.gpu_margin_mib[g] if len(jobs) > 1 else 0
    broken = (
        p.gpu_closed[g]
        or len(jobs) > p.gpu_max_tenants[g]
        or any(p.alone[j] and (len(jobs) > 1 or (new[j] and p.gpu_shared_outside[g])) for j in jobs)
        or sum(p.memory_mib[j, m] for j in jobs) > p.gpu_memory_mib[g] - margin
        or sum(p.share[j, m] for j in jobs) > p.gpu_share[g]
        or len({int(p.share_group[j]) for j in jobs}) > 1
        or any(a in jobs and b in jobs for a, b in p.never)
        or any(slow[j] > p.cap_milli[j, m] for j in jobs)
    )
    if not broken and p.gate and len(jobs) > 1:
        most = 10**6 * max(int(p.size_milli[j]) for j in jobs)
        without = [progress([j for j in jobs if j != i]) for i in jobs if new[i]]
        broken = progress(jobs) <= most or any(progress(jobs) < rest for rest in without)
    return None if broken else slow


def fits_budgets(p: Problem, placed: Placed) -> bool:
    return all(
        sum(a for j, a in zip(b.jobs, b.amounts, strict=True) if p.home[j] is None and placed[j] is not None)
        <= b.capacity
        for b in p.budgets
    )


def fits_nodes(p: Problem, placed: Placed, new: list[bool]) -> bool:
    """Host, closed node, whole node."""
    for v in range(p.nodes):
        here = {}
        for j, spot in enumerate(placed):
            n = p.job_gpus[j]
            count = sum(p.gpu_node[g] == v for g in spot or ()) if n else v in (spot or ())
            if count:
                here[j] = float(count / n) if n else 1.0
        if not any(new[j] for j in here):
            continue
        for demand, room in ((p.cpu_milli, p.node_cpu_milli), (p.host_memory_mib, p.node_memory_mib)):
            if sum(ceil(demand[j] * part - 1e-9) for j, part in here.items()) > room[v]:
                return False
        if p.node_closed[v] or (len(here) > 1 and any(p.node_alone[j] for j in here)):
            return False
    return True


def total(p: Problem, placed: Placed, new: list[bool], slow: dict[int, dict[int, int]]) -> int | None:
    """The sum of the terms; None if a newcomer is still there when a reservation begins."""
    result, last = p.fragmentation_base, 0
    for j, spot in enumerate(placed):
        if p.home[j] is not None and spot != p.home[j]:
            result += int(p.move_cost[j])
        if spot is None:
            result += int(p.wait_cost[j])
            last = max(last, int(p.deferred_end[j]))
            continue
        gpus = spot if p.job_gpus[j] else ()
        v = int(p.speed_milli[j, p.gpu_kind[gpus[0]]]) if gpus else 1000
        s = max((slow[g][j] for g in gpus), default=1000)
        k = int(p.link_milli[j, link(p, gpus)])
        b, c = 1000 * v * 1000 // s, v * 10**9 // (s * k)
        result += (10**6 - 1000 * v) * int(p.unit_speed[j]) // 10**6
        result += (1000 * v - b) * int(p.unit_interference[j]) // 10**6
        result += (b - c) * int(p.unit_locality[j]) // 10**6
        if p.work[j] >= 0:
            last = max(last, -(-int(p.work[j]) * s * k // (v * 10**6)))
        for g in gpus if new[j] else ():
            if p.gpu_until_s[g] < 0 or p.gpu_holder[g] == j:
                continue
            ends = -(-int(p.remaining_p90_s[j]) * s * k // (1000 * v))
            if p.remaining_p90_s[j] < 0 or ends > p.gpu_until_s[g]:
                return None
    used = set(slow)
    result += sum(int(p.node_used_cost[v]) for v in {int(p.gpu_node[g]) for g in used})
    return result + sum(int(p.gpu_open_cost[g]) for g in used) + p.makespan_cost * last


def link(p: Problem, gpus: Spot) -> int:
    groups = {int(p.gpu_link[g]) for g in gpus}
    if len(gpus) <= 1 or (len(groups) == 1 and min(groups) >= 0):
        return 0
    return 1 if len({int(p.gpu_node[g]) for g in gpus}) == 1 else 2


# ---- tiny problems ----


def tiny(seed: int, jobs: int = 6) -> Problem:
    """Up to 3 GPUs on 1 to 3 nodes, with about every rule switched on for some seeds."""
    rng = np.random.default_rng(seed)
    kinds = 1 + int(rng.random() < 0.3)
    shape = [(3,), (2, 1), (1, 2), (1, 1, 1)][seed % 4]
    nodes = [_node(rng, size, kinds) for size in shape]
    gpus = sum(shape)
    drawn = [_job(rng, j, kinds, shape) for j in range(jobs)]
    table = rng.integers(1000, int(rng.choice([1300, 2100])), (kinds, 4, 4, 4, 4))
    table[rng.random(table.shape) < 0.03] = FORBIDDEN

    def slowdown(kind: int, victim: int, co: tuple[int, ...]) -> int:
        return int(table[(kind, victim, *co[:3], *[0] * (3 - len(co[:3])))])

    queued = [j for j, spec in enumerate(drawn) if spec["home"] is None]
    return (
        make(
            nodes,
            drawn,
            slowdown=slowdown,
            types=4,
            kinds=kinds,
            node_sets=[[True] * len(shape), (rng.random(len(shape)) < 0.7).tolist()],
            never=((0, 1), (2, 4)) if rng.random() < 0.5 else (),
            budgets=_budgets(rng, queued),
            max_moves=int(rng.integers(0, 3)),
            gate=bool(seed % 2),
            equal_per_node=bool(rng.random() < 0.2),
            same_index=bool(rng.random() < 0.15),
            makespan_cost=int(rng.choice([0, 20_000])),
            fragmentation_base=int(rng.choice([0, 77])),
        )
        if gpus
        else make()
    )


def _node(rng: np.random.Generator, size: int, kinds: int) -> dict[str, Any]:
    return node(
        size,
        kind=int(rng.integers(kinds)),
        memory_mib=int(rng.choice([40_000, 80_000])),
        margin_mib=500,
        links=[int(x) for x in rng.choice([[0, 0, 0], [0, 0, 1], [-1, -1, -1]])[:size]],
        max_tenants=int(rng.choice([1, 3, 3])),
        closed=(rng.random(size) < 0.06).tolist(),
        shared_outside=(rng.random(size) < 0.1).tolist(),
        until_s=np.where(rng.random(size) < 0.2, rng.integers(3000, 20_000, size), -1).tolist(),
        holder=rng.integers(0, 3, size).tolist(),
        open_cost=int(rng.choice([0, 500, -300])),
        cpu_milli=int(rng.choice([10**9, 12_000 * size, 6_001 * size])),
        host_memory_mib=int(rng.choice([10**9, 65_536 * size])),
        node_closed=bool(rng.random() < 0.05),
        used_cost=int(rng.choice([0, 900, -700])),
    )


def _job(rng: np.random.Generator, j: int, kinds: int, shape: tuple[int, ...]) -> dict[str, Any]:
    n = int(rng.choice([0, 1, 2, 3], p=[0.1, 0.5, 0.3, 0.1]))
    home = None
    if j >= 4 and rng.random() < 0.6:
        home = (
            tuple(sorted(rng.choice(3, n, replace=False).tolist())) if n else (int(rng.integers(len(shape))),)
        )
    wait = int(HOUR * max(n, 1) * rng.uniform(0.8, 3))
    return job(
        n,
        type=int(rng.integers(4)),
        home=home,
        movable=home is not None and bool(rng.random() < 0.6),
        preemptible=home is not None and bool(rng.random() < 0.3),
        move_cost=int(rng.integers(0, HOUR // 20)),
        wait_cost=wait,
        unit_speed=wait // 2 + 3,
        unit_interference=wait // 2 + 1,
        unit_locality=int(wait * rng.uniform(0.3, 2)),
        work=int(rng.choice([-1, rng.integers(1, 400_000)])),
        deferred_end=int(rng.choice([-1, rng.integers(1, 900)])),
        remaining_p90_s=int(rng.choice([-1, 2000, 2000, rng.integers(1, 20_000)])),
        cpu_milli=int(rng.integers(0, 6_001) * max(n, 1)),
        host_memory_mib=int(rng.integers(0, 35_001) * max(n, 1)),
        max_nodes=int(rng.choice([1, 2, 2, 3])),
        gpus_per_node=int(rng.choice([0] * 6 + [1])),
        node_set=int(rng.random() < 0.15),
        alone=bool(rng.random() < 0.08),
        node_alone=bool(rng.random() < 0.06),
        share_group=int(rng.random() < 0.1),
        link_milli=tuple(
            int(x) for x in rng.choice([[1000, 1000, 1000], [1000, 1050, 1200], [1000, 1300, 1100]])
        ),
        speed_milli=[int(x) for x in rng.choice([1000, 900, 500, 0], kinds, p=[0.5, 0.25, 0.2, 0.05])]
        if home is None
        else 700,
        memory_mib=int(rng.integers(1_000, 32_000)),
        share=int(rng.choice([0, 0, 300, 500])),
        cap_milli=int(rng.choice([2000, 3000, UNCAPPED])),
    )


def _budgets(rng: np.random.Generator, queued: list[int]) -> tuple[Budget, ...]:
    if rng.random() < 0.5 or not queued:
        return ()
    amounts = tuple(int(a) for a in rng.integers(1, 4, len(queued)))
    return (Budget("quota", "team", int(sum(amounts) * 0.7), tuple(queued), amounts),)
