"""The jobs as arrays, and the ones that no choice could start.

Whatever is not known about a job narrows what it may do: without a memory figure, or without a basis for predicting
its slowdown, it runs alone on whole GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.formulate.cluster import UNCOUNTED, ClusterArrays, floor_milli
from planner.formulate.contract import Excluded, Kind
from planner.predict.interference import InterferenceModel, Tenant, tenant_of
from planner.quantities import counted
from solvers.problem import MILLI, UNCAPPED, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.formulate.contract import Capabilities
    from planner.model import Job, Node, Snapshot
    from planner.plan import JobForecast, Reason
    from planner.policy import Links, Policy, PredictorSpec

    OnKind = Callable[["JobView", Kind], int]


@dataclass(frozen=True)
class JobView:
    """One job with everything that formulation needs to know of it."""

    index: int  # in snapshot.jobs
    job: Job
    forecast: JobForecast
    tenant: Tenant
    alone: bool

    @property
    def size_milli(self) -> int:
        """GPUs it counts as, in thousandths: shares as declared, 0 without GPUs."""
        return self.job.gpus * (self.job.gpu_share_milli or MILLI)


def view(index: int, job: Job, forecast: JobForecast, model: InterferenceModel) -> JobView:
    """The job, and whether it must be alone on its GPUs."""
    tenant = tenant_of(job, forecast)
    memory_known = forecast.gpu_memory_mib is not None or job.gpu_share_milli is not None
    alone = not job.shareable or job.exclusive or not memory_known or not model.knows(tenant)
    return JobView(index, job, forecast, tenant, alone)


# -- what a job may have of a GPU kind ---------------------------------------------------------------


def memory_on(view: JobView, kind: Kind) -> int:
    """GPU memory that the job needs on each GPU of the kind; 0 if nothing is known (it is alone then)."""
    declared = view.forecast.gpu_memory_mib or 0
    share = view.job.gpu_share_milli
    if share is None or kind.memory_mib is None:
        return declared
    # A share is of what the GPU can give away; rounded down, so that shares of 1000 together always fit.
    return max(declared, share * (kind.memory_mib - kind.margin_mib) // MILLI)


def share_on(view: JobView, kind: Kind) -> int:
    """Share units the job takes of a GPU of the kind: thousandths, or shards where it is divided into them."""
    milli = view.job.gpu_share_milli or 0
    if kind.shards is None:
        return milli
    by_share = -(-milli * kind.shards // MILLI)
    by_memory = -(-memory_on(view, kind) * kind.shards // kind.memory_mib) if kind.memory_mib else 0
    return max(1, by_share, by_memory)


def refusal(view: JobView, kind: Kind) -> str | None:
    """Why the job can never run on a GPU of this kind; None if it can."""
    job = view.job
    if kind.mig and (kind.model not in job.gpu_models or job.gpus > 1):
        return "is a MIG instance, for single-GPU jobs that name it"
    if job.gpu_models and kind.model not in job.gpu_models:
        return f"is not among its models {', '.join(job.gpu_models)}"
    # A share needs no figure: shares of one GPU never pass 1000, whatever its memory is.
    if view.forecast.gpu_memory_mib is not None and kind.memory_mib is None:
        return "does not report its memory"
    need = memory_on(view, kind)
    if kind.memory_mib is not None and need > kind.memory_mib:
        return f"has {kind.memory_mib} MiB, it needs {need} MiB"
    if kind.tenant_memory_mib is not None and need > kind.tenant_memory_mib:
        return f"gives each MPS client at most {kind.tenant_memory_mib} MiB, it needs {need} MiB"
    if kind.shards is not None and not view.alone and share_on(view, kind) > kind.shards:
        return f"has {counted(kind.shards, 'shard')}, it needs {share_on(view, kind)}"
    return None


def speeds(views: list[JobView], kinds: tuple[Kind, ...], predictor: PredictorSpec) -> np.ndarray:
    """Speed of each job on each kind against its fastest allowed one, thousandths; 0 not allowed; (J, M)."""
    out = np.zeros((len(views), len(kinds)), np.int64)
    by_profile = {p: {m.lower(): s for m, s in table.items()} for p, table in predictor.speed.items()}
    cache: dict[Any, np.ndarray] = {}
    for i, v in enumerate(views):
        f, job = v.forecast, v.job
        key = (
            job.profile,
            f.gpu_memory_mib,
            job.gpu_share_milli,
            job.gpu_models,
            job.gpus > 1,
            job.gpus == 0,
            v.alone,
        )
        if key not in cache:
            table = by_profile.get(job.profile or "", by_profile.get("*", {}))
            raw = np.array([0.0 if refusal(v, k) else table.get(k.model, 1.0) for k in kinds], float)
            best = raw.max(initial=0)
            scaled = (
                np.maximum(1, np.rint(raw / best * MILLI)).astype(np.int64) if best else raw.astype(np.int64)
            )
            cache[key] = np.where(raw > 0, scaled, 0)
        out[i] = cache[key]
    return out


def link_factors(views: list[JobView], most: np.ndarray, common: Links) -> np.ndarray:
    """Run time factor of each job by its slowest link, thousandths; its own where predicted; (J, 3).

    Parameters
    ----------
    most
        The most nodes each queued job may be on; (J,). Its own factor of the network, which may be large, is not held
        against a job that never leaves a node.
    """
    out = np.empty((len(views), 3))
    for i, v in enumerate(views):
        own = v.forecast.links or common
        stays = v.forecast.links is not None and not v.job.running and most[i] == 1
        out[i] = own.nvlink, own.pcie, own.pcie if stays else own.network
    return np.rint(out * MILLI).astype(np.int64)


def caps(
    views: list[JobView], speed: np.ndarray, policy: Policy, network_milli: np.ndarray, now_s: float
) -> np.ndarray:
    """Largest slowdown each job may be given on each kind, thousandths; (J, M). ``network_milli``: its factor there; (J,).

    The lowest of the policy's cap, its own, and the one that keeps its wall time: p95 duration x p95 slowdown
    fits the time limit. Where not even its duration alone fits, it shares only where that costs it nothing.
    """
    out = np.full(speed.shape, UNCAPPED, np.int64)
    for i, v in enumerate(views):
        stated = [x for x in (policy.max_slowdown, v.job.max_slowdown) if x is not None]
        if stated:
            out[i] = floor_milli(min(stated))
        limit, upper = v.job.time_limit_s, v.forecast.remaining_p95_s
        if limit is None or upper is None:
            continue
        elapsed = max(0.0, now_s - v.job.started_s) if v.job.running and v.job.started_s is not None else 0.0
        k = network_milli[i] / MILLI if v.job.gpus > 1 else 1.0
        ratio = (limit - elapsed) * np.maximum(speed[i], 1) / MILLI / (upper * k)
        wall = 1 + np.maximum(0, ratio - 1) / (1 + policy.beyond_plan)
        out[i] = np.minimum(out[i], np.floor(wall * MILLI + 1e-6).astype(np.int64))
    return np.maximum(out, MILLI)


# -- where a gang fits -------------------------------------------------------------------------------


def node_matches(job: Job, node: Node) -> bool:
    """The node has the labels the job asks for."""
    return all(node.labels.get(k) == v for k, v in job.node_labels.items())


def default_max_nodes(job: Job, per_node: np.ndarray) -> int:
    """As few as the largest allowed node makes possible; ``per_node`` counts its allowed GPUs by node and kind."""
    if job.max_nodes is not None:
        return job.max_nodes
    if job.gpus == 0:
        return 1
    if job.gpus_per_node:
        return job.gpus // job.gpus_per_node
    largest = int(per_node.max(initial=0))
    return max(1, -(-job.gpus // largest)) if largest else 1


def host_room(job: Job, cpu_milli: np.ndarray, memory_mib: np.ndarray) -> np.ndarray:
    """GPUs' worth of the job that each node's free cores and memory carry (at most all of them); (V,)."""
    n = job.gpus
    room = np.full(len(cpu_milli), n, np.int64)
    for need, have in ((job.cpu_milli, cpu_milli), (job.host_memory_mib, memory_mib)):
        if need:
            # ceil(need * k / n) <= have  <=>  k <= have * n / need
            room = np.minimum(room, np.maximum(have, 0) * n // need)
    return room


def fits_on(job: Job, room: np.ndarray, max_nodes: int, equal: bool) -> bool:
    """A gang fits on nodes that can take ``room`` of its GPUs each; (V,)."""
    n = job.gpus
    if job.gpus_per_node:
        g = job.gpus_per_node
        return n // g <= max_nodes and int((room >= g).sum()) >= n // g
    if equal:
        return any(n % t == 0 and int((room >= n // t).sum()) >= t for t in range(1, min(max_nodes, n) + 1))
    top = np.sort(room)[::-1][:max_nodes]
    return int(np.minimum(top, n).sum()) >= n


def never_fits(
    view: JobView,
    speed: np.ndarray,
    cluster: ClusterArrays,
    nodes: tuple[Node, ...],
    max_nodes: int,
    equal: bool,
) -> str | None:
    """Why the job would not fit on the empty, healthy cluster; None if it would."""
    job = view.job
    matching = (
        np.array([node_matches(job, n) for n in nodes], bool)
        if job.node_labels
        else np.ones(len(nodes), bool)
    )
    if not matching.any():
        wanted = ", ".join(f"{k}={v}" for k, v in sorted(job.node_labels.items()))
        return f"no node has the labels {wanted}" if job.node_labels else "the cluster has no nodes"
    if job.gpus == 0:
        return _host_text(
            job,
            cluster,
            matching,
            lambda cpu, memory: bool(
                (matching & (cpu >= job.cpu_milli) & (memory >= job.host_memory_mib)).any()
            ),
        )
    if not cluster.kinds:
        return "the cluster has no GPUs"
    if not speed.any():
        why = [f"{k.model} {refusal(view, k)}" for k in cluster.kinds]
        return "no GPU can take it: " + "; ".join(dict.fromkeys(why))
    on_kind = cluster.on_kind * matching[:, None]
    allowed = on_kind[:, np.flatnonzero(speed)]

    def fits(cpu_milli: np.ndarray, memory_mib: np.ndarray) -> bool:
        room = host_room(job, cpu_milli, memory_mib)
        return any(fits_on(job, np.minimum(room, here), max_nodes, equal) for here in allowed.T)

    if any(fits_on(job, here, max_nodes, equal) for here in allowed.T):
        return _host_text(job, cluster, allowed.max(1) * max_nodes >= job.gpus, fits)
    largest = int(on_kind[:, speed > 0].max(initial=0))
    asks = f"{counted(job.gpus, 'GPU')} of one model on {counted(max_nodes, 'node')}"
    return f"needs {asks}; the largest node offers {largest}"


def _host_text(
    job: Job,
    cluster: ClusterArrays,
    there: np.ndarray,
    fits: Callable[[np.ndarray, np.ndarray], bool],
) -> str | None:
    """What the nodes lack that it could go to (V,), of what they state; None if they lack nothing.

    ``fits`` tells whether it fits on nodes with these milli-CPUs and this memory.
    """
    cpu, memory = cluster.node_cpu_milli, cluster.node_memory_mib
    if fits(cpu, memory):
        return None
    plenty = np.full(len(there), UNCOUNTED, np.int64)
    most_cpu, most_memory = (int(x[there & (x < UNCOUNTED)].max(initial=0)) for x in (cpu, memory))
    asks_cpu, asks_memory = f"{job.cpus:g} CPUs", f"{job.host_memory_mib} MiB of host memory"
    short = [] if fits(cpu, plenty) else [(asks_cpu, f"{most_cpu / MILLI:g}")]
    short += [] if fits(plenty, memory) else [(asks_memory, f"{most_memory} MiB")]
    if not short:
        return f"needs {asks_cpu} and {asks_memory}; no node has both"
    asks, has = zip(*short, strict=True)
    unit = " CPUs" if len(short) > 1 else ""
    return f"needs {' and '.join(asks)}; the largest node has {f'{unit} and '.join(has)}"


# -- who takes part ----------------------------------------------------------------------------------


def blocked_before_solving(view: JobView, snapshot: Snapshot) -> tuple[Reason, str] | None:
    """A queued job that waits for something no placement can give it."""
    job = view.job
    if job.state == "held":
        return "held", "it is held"
    open_ones = [d for d in job.depends_on if d in snapshot.job_by_id]
    unknown = [d for d in job.depends_on if d not in snapshot.job_by_id]
    if open_ones:
        return "dependency", f"waits for {', '.join(open_ones)} to end"
    if unknown:
        return "dependency", f"waits for {', '.join(unknown)}, which this snapshot does not know"
    missing = [x for x in job.licences if x not in snapshot.cluster.licences]
    if missing:
        return "licence", f"the cluster lists no licence {', '.join(missing)}"
    return None


def budgets(views: list[JobView], snapshot: Snapshot, policy: Policy) -> tuple[Budget, ...]:
    """Quotas (thousandths of a GPU), licences and throttles (counts), less what runs already."""
    out = []
    queued = [(i, v) for i, v in enumerate(views) if not v.job.running]
    running = [v for v in views if v.job.running]
    for quota in policy.quotas:
        key, owner = quota.owner
        mine = [(i, v.size_milli) for i, v in queued if getattr(v.job, key) == owner and v.size_milli]
        used = sum(v.size_milli for v in running if getattr(v.job, key) == owner)
        out.append(_budget("quota", f"{key} {owner}", floor_milli(quota.gpus) - used, mine))
    for name, count in snapshot.cluster.licences.items():
        mine = [(i, v.job.licences[name]) for i, v in queued if v.job.licences.get(name)]
        used = sum(v.job.licences.get(name, 0) for v in running)
        out.append(_budget("licence", name, count - used, mine))
    groups: dict[str, int] = {}
    for job in snapshot.jobs:  # what a held job says of its group holds as well
        if job.throttle is not None:
            t = job.throttle
            groups[t.group] = min(groups.get(t.group, t.max_running), t.max_running)
    for group, most in groups.items():
        mine = [(i, 1) for i, v in queued if v.job.throttle is not None and v.job.throttle.group == group]
        used = sum(v.job.throttle is not None and v.job.throttle.group == group for v in running)
        out.append(_budget("throttle", group, most - used, mine))
    return tuple(b for b in out if sum(b.amounts) > b.capacity)


def _budget(kind: str, name: str, capacity: int, users: list[tuple[int, int]]) -> Budget:
    return Budget(kind, name, max(0, capacity), tuple(i for i, _ in users), tuple(a for _, a in users))


def never_pairs(views: list[JobView], snapshot: Snapshot) -> tuple[tuple[int, int], ...]:
    """Pairs of problem jobs that may not share a GPU, each once, lower index first."""
    by_id = {v.job.id: i for i, v in enumerate(views)}
    by_profile: dict[str, list[int]] = {}
    for i, v in enumerate(views):
        if v.job.profile:
            by_profile.setdefault(v.job.profile, []).append(i)
    pairs: set[tuple[int, int]] = set()
    for i, v in enumerate(views):
        for name in v.job.never_with:
            others = [by_id[name]] if name in by_id else by_profile.get(name, [])
            pairs.update((min(i, o), max(i, o)) for o in others if o != i)
    for a, b in snapshot.carryover.never_pairs:
        if a in by_id and b in by_id and a != b:
            pairs.add((min(by_id[a], by_id[b]), max(by_id[a], by_id[b])))
    return tuple(sorted(pairs))


def share_groups(views: list[JobView], policy: Policy) -> np.ndarray:
    """Jobs with the same number may share; one whose user or account is unknown shares with nobody; (J,)."""
    if policy.share_across == "all":
        return np.zeros(len(views), np.int64)
    numbers: dict[object, int] = {}
    keys = (getattr(v.job, policy.share_across) or ("unknown", i) for i, v in enumerate(views))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def exclusions(
    views: list[JobView],
    speed: np.ndarray,
    cluster: ClusterArrays,
    snapshot: Snapshot,
    capabilities: Capabilities,
) -> tuple[list[Excluded], list[int], list[int]]:
    """Jobs left out with their reason, the positions of those that stay, and max_nodes of all."""
    nodes = snapshot.cluster.nodes
    on_kind = cluster.on_kind
    out: list[Excluded] = []
    stay: list[int] = []
    most: list[int] = []
    cache: dict[Any, tuple[int, str | None]] = {}
    labelled: dict[tuple[tuple[str, str], ...], np.ndarray] = {}
    for i, v in enumerate(views):
        job = v.job
        labels = tuple(sorted(job.node_labels.items()))
        key = (
            job.gpus, job.cpu_milli, job.host_memory_mib, job.max_nodes, job.gpus_per_node, job.gpu_models,
            labels, tuple(speed[i]), v.alone, v.forecast.gpu_memory_mib, job.gpu_share_milli,
        )  # fmt: skip
        if key not in cache:
            if labels not in labelled:
                labelled[labels] = np.array([node_matches(job, n) for n in nodes], bool)
            limit = default_max_nodes(job, on_kind[labelled[labels]][:, speed[i] > 0])
            cache[key] = limit, never_fits(v, speed[i], cluster, nodes, limit, capabilities.equal_per_node)
        limit, why_never = cache[key]
        most.append(limit)
        if job.running:
            stay.append(i)
            continue
        blocked = blocked_before_solving(v, snapshot)
        reason = blocked or (("never_fits", why_never) if why_never else None)
        # The order of reasons: held and dependency, then never_fits, then licence.
        if why_never and blocked and blocked[0] == "licence":
            reason = ("never_fits", why_never)
        if reason is None:
            stay.append(i)
        else:
            out.append(Excluded(v.index, reason[0], reason[1]))
    return out, stay, most
