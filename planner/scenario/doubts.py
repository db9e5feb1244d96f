"""What a snapshot says that cannot be quite right, but does not keep it from being planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from planner.edit import changed
from planner.gpu_models import KNOWN
from planner.model import MIG_SEPARATOR, Cluster, Gpu, Job, Node, Snapshot
from planner.policy import Quota
from planner.quantities import counted, shown
from planner.tables import nearest

#: So many names stand in a warning.
NAMED = 5


def settled(snapshot: Snapshot, quotas: tuple[Quota, ...] = ()) -> Snapshot:
    """The snapshot without readings that cannot be, and with a warning for each doubt."""
    cluster, warnings = _without_impossible_samples(snapshot.cluster)
    warnings += _overcommitted(cluster, snapshot.jobs)
    warnings += _quotas_above(cluster, quotas)
    warnings += _waiting_in_a_ring(snapshot.job_by_id)
    warnings += _unheard_of_models(cluster, snapshot.jobs)
    warnings += _models_without_memory(cluster, snapshot.jobs)
    new = tuple(w for w in warnings if w not in snapshot.warnings)
    return changed(snapshot, cluster=cluster, warnings=snapshot.warnings + new) if new else snapshot


def _without_impossible_samples(cluster: Cluster) -> tuple[Cluster, list[str]]:
    """Foreign memory above the card's size is no reading: it becomes unknown."""
    warnings: list[str] = []

    def mended(gpu: Gpu) -> Gpu:
        used, has = gpu.unmanaged_memory_mib, gpu.memory_mib
        if used is None or has is None or used <= has:
            return gpu
        warnings.append(f"{gpu.id}: {used} MiB in unmanaged use on a GPU of {has} MiB; taken as unknown")
        return changed(gpu, unmanaged_memory_mib=None)

    def mended_node(node: Node) -> Node:
        gpus = tuple(mended(g) for g in node.gpus)
        return node if gpus == node.gpus else changed(node, gpus=gpus)

    nodes = tuple(mended_node(n) for n in cluster.nodes)
    return (changed(cluster, nodes=nodes) if warnings else cluster), warnings


def _overcommitted(cluster: Cluster, jobs: tuple[Job, ...]) -> list[str]:
    """GPUs whose running jobs ask for more than they have."""
    residents: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        for place in job.running_on:
            residents[place].append(job)
    warnings = []
    for node in cluster.nodes:
        for gpu in node.gpus:
            held = residents.get(gpu.id, [])
            why = _excess(gpu, node.memory_factor, held)
            if why:
                warnings.append(f"{gpu.id} is overcommitted: {why}; it takes no new job")
    return warnings


def _excess(gpu: Gpu, memory_factor: float, held: list[Job]) -> str:
    """In what respect the jobs ask for too much, or nothing."""
    asked = sum(j.gpu_memory_mib or 0 for j in held)
    if gpu.memory_mib is not None and held:
        has = int(gpu.memory_mib * memory_factor) - (gpu.unmanaged_memory_mib or 0)
        if asked > has:
            return f"its {counted(len(held), 'running job')} {'asks' if len(held) == 1 else 'ask'} for {asked} of {has} MiB"
    shares = sum(j.gpu_share_milli or 0 for j in held)
    if shares > 1000:
        return f"its {counted(len(held), 'running job')} {'holds' if len(held) == 1 else 'hold'} shares of {shares} thousandths"
    alone = next((j for j in held if not j.shareable), None)
    return f"job {alone.id} does not share, but {len(held)} jobs run there" if alone and len(held) > 1 else ""


def _quotas_above(cluster: Cluster, quotas: tuple[Quota, ...]) -> list[str]:
    """Quotas that together promise more GPUs than there are."""
    promised: dict[str, float] = defaultdict(float)
    for quota in quotas:
        promised[quota.owner[0]] += quota.gpus
    has = len(cluster.gpus)
    return [
        f"the quotas by {owner} add up to {total:g} GPUs, {total - has:g} more than the {has} of the cluster"
        for owner, total in promised.items()
        if total > has
    ]


def _waiting_in_a_ring(jobs: Mapping[str, Job]) -> list[str]:
    """Jobs that can never start, because each waits for the next to end."""
    after = {j.id: [d for d in j.depends_on if d in jobs] for j in jobs.values() if not j.running}
    done: set[str] = set()
    warnings = []
    for start in after:
        way: dict[str, None] = {}  # from the start to here, in order
        stack = [(start, False)]
        while stack:
            job, leaving = stack.pop()
            if leaving:
                way.pop(job)
                done.add(job)
            elif job in way:
                ring = list(way)[list(way).index(job) :]
                warnings.append(_ring_text(ring))
            elif job in after and job not in done:
                way[job] = None
                stack.append((job, True))
                stack += [(d, False) for d in reversed(after[job])]
    return warnings


def _ring_text(ring: list[str]) -> str:
    if len(ring) == 1:
        return f"job {ring[0]} depends on itself and can never start"
    return f"the jobs {_some(ring)} depend on each other in a ring and can never start"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _meant(model: str, has: set[str]) -> str:
    """A model of the cluster that is spelt nearly so, else one that is known; or nothing."""
    hints = (nearest(model, sorted(models)) for models in (has, set(KNOWN)))
    return next((hint for hint in hints if hint.startswith("; did you mean")), "")


def _unheard_of_models(cluster: Cluster, jobs: tuple[Job, ...]) -> list[str]:
    """GPU models that jobs allow, but no node has and nobody knows: most often a slip."""
    has = {gpu.model for gpu in cluster.gpus}
    wanted: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        for model in job.gpu_models:
            if model not in has and model.partition(MIG_SEPARATOR)[0] not in KNOWN:
                wanted[model].append(job.id)
    return [
        f"gpu_models: no node has {shown(model)}, and it is no GPU model known here{_meant(model, has)} "
        f"(asked for by {_some(ids)})"
        for model, ids in wanted.items()
    ]


def _models_without_memory(cluster: Cluster, jobs: tuple[Job, ...]) -> list[str]:
    """GPU models of nodes that nobody knows, where no memory is stated either: what asks for some is not placed there."""
    nodes: dict[str, dict[str, None]] = defaultdict(dict)
    for gpu in cluster.gpus if any(job.gpu_memory_mib for job in jobs) else ():
        if gpu.memory_mib is None and gpu.model.partition(MIG_SEPARATOR)[0] not in KNOWN:
            nodes[gpu.model][gpu.node] = None
    return [
        f"nodes: {shown(model)} is no GPU model known here{_meant(model, set())}, and no memory_mib is stated "
        f"(on {_some(list(names))}); no job that asks for GPU memory is placed there"
        for model, names in nodes.items()
    ]
