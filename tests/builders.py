"""Small values for tests: a job, a node, a snapshot, a policy, each with all that a test does not care about.

Ids are handed out (``j001``, ``n001``) where a test names none. A job's defaults let it share: its memory,
utilisation and duration are known.
"""

from itertools import count
from typing import Any

from planner.model import Cluster, Gpu, Job, Node, Snapshot
from planner.policy import InterferenceSpec, Policy, PredictorSpec, TableRow

_numbers = count(1)

#: The smallest scenario file with something to decide: one GPU and one job.
ONE_JOB = """
schema: planner.scenario/1
cluster: {nodes: [{name: n0, gpus: {model: t4, count: 1, memory_mib: 15360}}]}
jobs: [{id: j0, gpu_memory_mib: 4000, gpu_utilisation_pct: 50, duration_s: 600}]
"""


def job(**fields: Any) -> Job:
    """A queued one-GPU job of known memory, utilisation and duration."""
    known: dict[str, Any] = {"gpu_memory_mib": 8000, "gpu_utilisation_pct": 40, "duration_s": 3600}
    if fields.get("gpus") == 0:
        known = {"duration_s": 3600}
    return Job(**{"id": f"j{next(_numbers):03}", **known, **fields})


def jobs(how_many: int, **fields: Any) -> tuple[Job, ...]:
    """Jobs that are alike but for their ids."""
    return tuple(job(**fields) for _ in range(how_many))


def gpu(**fields: Any) -> Gpu:
    """One GPU of 40 GiB; for a node to hold, see ``node(gpus=[...])``, which sets its node and slot."""
    return Gpu(**{"node": "n001", "slot": "0", "model": "a100-40gb", "memory_mib": 40960, **fields})


def node(
    gpus: int | list[Gpu] = 1, *, model: str = "a100-40gb", memory_mib: int | None = 40960, **fields: Any
) -> Node:
    """A node with so many GPUs that are alike, or with those given; host cores and memory are not counted."""
    name = fields.pop("name", None) or f"n{next(_numbers):03}"
    held = [gpu(model=model, memory_mib=memory_mib)] * gpus if isinstance(gpus, int) else gpus
    placed = [
        Gpu(**{**dict(g), "node": name, "slot": g.slot if g.is_mig else str(i)}) for i, g in enumerate(held)
    ]
    return Node(name=name, gpus=tuple(placed), **fields)


def snapshot(
    nodes: list[Node] | None = None, jobs: list[Job] | tuple[Job, ...] = (), **fields: Any
) -> Snapshot:
    """Nodes (one with one GPU, if none are given) and jobs, at time 0."""
    cluster = Cluster(
        nodes=tuple([node(name="n0")] if nodes is None else nodes), licences=fields.pop("licences", {})
    )
    return Snapshot(cluster=cluster, jobs=tuple(jobs), **fields)


def policy(**fields: Any) -> Policy:
    """The default policy but for the fields given."""
    return Policy(**fields)


#: No slowdown until the summed utilisation passes 100 %.
HINGE = PredictorSpec(interference=InterferenceSpec(kind="utilisation"))


def table(*pairs: tuple[str, str, float], model: str = "a100-40gb") -> PredictorSpec:
    """A predictor of measured slowdowns: (victim, beside, slowdown)."""
    rows = tuple(TableRow(gpu_model=model, profile=a, beside=b, slowdown=s) for a, b, s in pairs)
    return PredictorSpec(interference=InterferenceSpec(kind="table", rows=rows))
