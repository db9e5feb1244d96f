"""Puts the arrays together: the whole Problem, scaled to integers once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner.formulate import costs, jobs
from planner.formulate.cluster import ClusterArrays, cluster_arrays
from planner.formulate.contract import Capabilities, Formulated
from planner.formulate.reserve import with_reservations
from planner.formulate.types import interference_types
from planner.predict.interference import build
from solvers.problem import MILLI, NETWORK, Problem

if TYPE_CHECKING:
    from planner.formulate.jobs import JobView
    from planner.formulate.types import Types
    from planner.model import Snapshot
    from planner.plan import Forecast
    from planner.policy import Policy

    Homes = tuple[tuple[int, ...] | None, ...]


def formulate(
    snapshot: Snapshot, forecast: Forecast, policy: Policy, capabilities: Capabilities | None = None
) -> Formulated:
    """The epoch's problem, with the jobs that are not part of it and why."""
    capabilities = capabilities or Capabilities()
    model = build(forecast.predictor.interference)
    cluster = cluster_arrays(snapshot, policy)
    everyone = [jobs.view(i, j, forecast.jobs[i], model) for i, j in enumerate(snapshot.jobs)]
    speed = jobs.speeds(everyone, cluster.kinds, forecast.predictor)
    excluded, stay, most = jobs.exclusions(everyone, speed, cluster, snapshot, capabilities)
    views = [everyone[i] for i in stay]
    types = interference_types(views, cluster.kinds, model, policy)
    problem, load, tick_s = _problem(
        snapshot,
        forecast,
        policy,
        capabilities,
        cluster,
        views,
        speed[stay],
        np.array([most[i] for i in stay]),
        types,
    )
    carried = frozenset(r.job_id for r in snapshot.carryover.reservations)
    problem, reservations = with_reservations(problem, views, load.queued_s, policy, carried)
    return Formulated(
        snapshot=snapshot,
        forecast=forecast,
        policy=policy,
        capabilities=capabilities,
        problem=problem,
        jobs=tuple(v.index for v in views),
        gpu_ids=cluster.gpu_ids,
        node_names=cluster.node_names,
        kinds=cluster.kinds,
        types=types.names,
        excluded=tuple(excluded),
        reservations=reservations,
        warnings=types.warnings,
        tick_s=tick_s,
    )


def _problem(
    snapshot: Snapshot,
    forecast: Forecast,
    policy: Policy,
    capabilities: Capabilities,
    cluster: ClusterArrays,
    views: list[JobView],
    speed: np.ndarray,
    most: np.ndarray,
    types: Types,
) -> tuple[Problem, costs.Load, float]:
    link_milli = jobs.link_factors(views, most, forecast.predictor.links)
    cap = jobs.caps(views, speed, policy, link_milli[:, NETWORK], snapshot.now_s)
    load = _load(views, snapshot, policy)
    open_gpus = int((~cluster.gpu_closed).sum())
    charge = costs.charges(load, policy, _pause_s(views, policy), len(cluster.gpu_ids), open_gpus)
    homes = _homes(views, snapshot, cluster)
    fragmentation = _fragmentation(cluster, views, homes, charge.epsilon, policy)
    movable = _movable(views, snapshot, policy)
    sets, set_of = _node_sets(views, snapshot)
    return (
        Problem(
            gpu_node=cluster.gpu_node,
            gpu_kind=cluster.gpu_kind,
            gpu_index=cluster.gpu_index,
            gpu_link=cluster.gpu_link,
            gpu_memory_mib=cluster.gpu_memory_mib,
            gpu_margin_mib=cluster.gpu_margin_mib,
            gpu_share=cluster.gpu_share,
            gpu_max_tenants=cluster.gpu_max_tenants,
            gpu_closed=_closed(cluster, views, homes, speed),
            gpu_shared_outside=cluster.gpu_shared_outside,
            gpu_until_s=np.full(len(cluster.gpu_ids), -1, np.int64),
            gpu_holder=np.full(len(cluster.gpu_ids), -1, np.int64),
            node_cpu_milli=cluster.node_cpu_milli,
            node_memory_mib=cluster.node_memory_mib,
            node_closed=cluster.node_closed,
            node_sets=sets,
            node_set=set_of,
            job_gpus=np.array([v.job.gpus for v in views], np.int64),
            size_milli=np.array([v.size_milli for v in views], np.int64),
            job_type=types.of_job,
            unit_speed=charge.unit_speed,
            unit_interference=charge.unit_interference,
            unit_locality=charge.unit_locality,
            wait_cost=charge.wait_cost,
            move_cost=charge.move_cost,
            work=_ceil(np.where(load.occupied > 0, load.remaining_s / charge.tick_s * MILLI, np.nan)),
            deferred_end=_deferred_end(load, policy, speed, cap, link_milli, types, charge, open_gpus),
            remaining_p90_s=_ends_before(views, snapshot),
            cpu_milli=np.array([v.job.cpu_milli for v in views], np.int64),
            host_memory_mib=np.array([v.job.host_memory_mib for v in views], np.int64),
            max_nodes=most.astype(np.int64),
            gpus_per_node=np.array([v.job.gpus_per_node or 0 for v in views], np.int64),
            alone=np.array([v.alone for v in views], bool),
            node_alone=np.array([v.job.exclusive for v in views], bool),
            share_group=jobs.share_groups(views, policy),
            movable=movable & np.array([v.job.movable for v in views], bool),
            preemptible=movable & np.array([v.job.preemptible for v in views], bool),
            link_milli=link_milli,
            speed_milli=speed,
            memory_mib=_on_kinds(views, cluster, jobs.memory_on),
            share=_on_kinds(views, cluster, jobs.share_on),
            cap_milli=cap,
            home=homes,
            interference=types.interference,
            never=jobs.never_pairs(views, snapshot),
            budgets=jobs.budgets(views, snapshot, policy),
            max_moves=policy.max_moves,
            gate=policy.sharing_gate,
            equal_per_node=capabilities.equal_per_node,
            same_index=capabilities.same_index,
            makespan_cost=charge.makespan_cost,
            gpu_open_cost=fragmentation.gpu_open,
            node_used_cost=fragmentation.node_used,
            fragmentation_base=fragmentation.base,
        ),
        load,
        charge.tick_s,
    )


def _closed(cluster: ClusterArrays, views: list[JobView], homes: Homes, speed: np.ndarray) -> np.ndarray:
    """GPUs that take nobody: the cluster's, and those where a job runs that no rule would put there; (G,)."""
    out = cluster.gpu_closed.copy()
    for j, (v, home) in enumerate(zip(views, homes, strict=True)):
        if home is not None and v.job.gpus and not speed[j, cluster.gpu_kind[list(home)]].all():
            out[list(home)] = True
    return out


def _ceil(values: np.ndarray) -> np.ndarray:
    """Rounded up; -1 where unknown. A hair is taken off first, so that 12.000000001 stays 12."""
    return np.where(np.isnan(values), -1, np.ceil(np.nan_to_num(values) - 1e-6)).astype(np.int64)


def _column(views: list[JobView], name: str) -> np.ndarray:
    return np.array([np.nan if (x := getattr(v.forecast, name)) is None else x for v in views], float)


def _ends_before(views: list[JobView], snapshot: Snapshot) -> np.ndarray:
    """Seconds after which each job is surely gone from a reserved GPU, -1 if nobody knows; (J,).

    A job that was stopped to make room for another is kept off what is reserved for that one, or the two
    would take turns for ever.
    """
    waiting = {j.id for j in snapshot.jobs if not j.running}
    made_room = {a for a, b in snapshot.carryover.evicted_for.items() if b in waiting}
    gone = _ceil(_column(views, "remaining_p90_s"))
    return np.where([v.job.id in made_room for v in views], -1, gone) if made_room else gone


def _load(views: list[JobView], snapshot: Snapshot, policy: Policy) -> costs.Load:
    size = np.array([v.size_milli for v in views], float) / MILLI
    submitted = np.array([np.nan if v.job.submitted_s is None else v.job.submitted_s for v in views], float)
    return costs.Load(
        gpus=np.where(size > 0, size, policy.cpu_only_gpus),
        occupied=size,
        priority=np.array([v.job.priority for v in views], float),
        remaining_s=_column(views, "remaining_s"),
        queued_s=np.maximum(0, np.nan_to_num(snapshot.now_s - submitted, nan=0)),
        running=np.array([v.job.running for v in views], bool),
    )


def _pause_s(views: list[JobView], policy: Policy) -> np.ndarray:
    """How long a move stops a job: it writes a checkpoint before, so no work is lost; (J,)."""
    return np.array(
        [
            (policy.checkpoint_s if v.job.checkpoint_s is None else v.job.checkpoint_s)
            + (policy.restart_s if v.job.restart_s is None else v.job.restart_s)
            for v in views
        ],
        float,
    )


def _deferred_end(
    load: costs.Load,
    policy: Policy,
    speed: np.ndarray,
    cap: np.ndarray,
    link_milli: np.ndarray,
    types: Types,
    charge: costs.Charges,
    open_gpus: int,
) -> np.ndarray:
    """Ticks at which a job would end if it were deferred; -1 unknown; (J,)."""
    if not len(charge.wait_cost):
        return np.zeros(0, np.int64)
    queued = np.flatnonzero(~load.running)
    # Ties are broken by what the jobs are, not by where they stand in the file.
    rank = np.lexsort((load.occupied, load.remaining_s, -(charge.wait_cost / load.gpus)))
    dearest = rank[np.isin(rank, queued)]
    listed = costs.list_schedule_s(load, open_gpus, dearest, policy.epoch_s)
    # A gang whose caps allow s also ends at s x k / v: the worst offer bounds every placement.
    offered = costs.latest_offered_s(load.remaining_s, speed, cap, link_milli, types.interference.worst_milli)
    # Without GPUs a job has no part in the makespan: T counts none of its work, and a service that runs for
    # a year would make everything else vanish beside it.
    known = ~np.isnan(load.remaining_s) & (load.occupied > 0)
    end = np.where(known, np.fmax(np.nan_to_num(listed, nan=0), np.nan_to_num(offered, nan=0)), np.nan)
    # One tick more than rounding can take away from an offered end.
    return np.where(known, _ceil(end / charge.tick_s) + 1, -1)


def _homes(views: list[JobView], snapshot: Snapshot, cluster: ClusterArrays) -> Homes:
    gpu = {name: g for g, name in enumerate(cluster.gpu_ids)}
    node = {name: v for v, name in enumerate(cluster.node_names)}
    return tuple(
        tuple(sorted((gpu if v.job.gpus else node)[p] for p in v.job.running_on)) if v.job.running else None
        for v in views
    )


def _movable(views: list[JobView], snapshot: Snapshot, policy: Policy) -> np.ndarray:
    """Running, moves are allowed at all, and it is not in its cooldown; (J,)."""
    cooling = {u.name for u in snapshot.carryover.cooldowns if u.until_s > snapshot.now_s}
    return np.array([v.job.running and policy.max_moves > 0 and v.job.id not in cooling for v in views], bool)


def _node_sets(views: list[JobView], snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """The distinct sets of nodes that jobs accept, (Q, V), and each job's, (J,)."""
    numbers: dict[tuple[tuple[str, str], ...], int] = {(): 0}
    of_job = [numbers.setdefault(tuple(sorted(v.job.node_labels.items())), len(numbers)) for v in views]
    nodes = snapshot.cluster.nodes
    sets = [[all(n.labels.get(k) == x for k, x in wanted) for n in nodes] for wanted in numbers]
    return np.array(sets, bool).reshape(len(numbers), len(nodes)), np.array(of_job, np.int64)


def _on_kinds(views: list[JobView], cluster: ClusterArrays, what: jobs.OnKind) -> np.ndarray:
    """A quantity of each job on each kind; (J, M)."""
    out = np.zeros((len(views), len(cluster.kinds)), np.int64)
    for i, v in enumerate(views):
        if v.job.gpus:
            out[i] = [what(v, k) for k in cluster.kinds]
    return out


class Fragmentation(NamedTuple):
    """The fragmentation term's coefficients, milli-GPU-seconds."""

    gpu_open: np.ndarray  # (G,)
    node_used: np.ndarray  # (V,)
    base: int


def _fragmentation(
    cluster: ClusterArrays,
    views: list[JobView],
    homes: Homes,
    epsilon: int,
    policy: Policy,
) -> Fragmentation:
    """epsilon for each GPU left idle on a partly used node and for each GPU opened.

    On a used node with N GPUs, u of them used and b of those used before: (N - u) + (u - b) = N - b epsilons, so a used
    node costs N and a GPU in use before gives one back. Spreading turns it round: each idle GPU costs one.
    """
    gpus, nodes = len(cluster.gpu_ids), len(cluster.node_names)
    usable = np.bincount(cluster.gpu_node[~cluster.gpu_closed], minlength=nodes).astype(np.int64)
    if policy.packing == "spread":
        return Fragmentation(np.full(gpus, -epsilon, np.int64), np.zeros(nodes, np.int64), epsilon * gpus)
    before = np.zeros(gpus, bool)
    for v, home in zip(views, homes, strict=True):
        if home is not None and v.job.gpus:
            before[list(home)] = True
    return Fragmentation(np.where(before & ~cluster.gpu_closed, -epsilon, 0), usable * epsilon, 0)
