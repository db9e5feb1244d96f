"""A made-up cluster and queue, seeded: the same arguments give the same scenario.

The mix follows what the published traces have in common: most jobs ask for one GPU, durations have a heavy tail,
a few kinds of work come again and again, and host cores and memory are as scarce as GPUs. Every figure below is
ours; none is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.edit import Scenario
from planner.errors import InputError
from planner.gpu_models import known_memory_mib
from planner.model import Cluster, Gpu, Job, Node, Snapshot
from planner.policy import InterferenceSpec, Policy, PredictorSpec, TableRow

GANGS = (1, 2, 4, 8, 16)
GANG_SHARES = (0.70, 0.14, 0.08, 0.06, 0.02)
PRIORITIES = (1, 2, 4)
PRIORITY_SHARES = (0.6, 0.3, 0.1)
CORES_PER_GPU = 12
HOST_MIB_PER_GPU = 64 * 1024
DAY_S = 86_400.0
LIMIT = 1_000_000
NO_SHARING_ABOVE = 3.2  # slowdown at which a pair counts as one that must not share
FAMILIES = (
    "bert", "convnext", "cyclegan", "deepspeech", "detr", "diffusion", "dlrm", "efficientnet", "gnmt", "gpt",
    "llama", "lstm", "mobilenet", "neumf", "pointnet", "recoder", "resnet", "retinanet", "segformer", "t5",
    "transformer", "unet", "vgg", "vit", "wav2vec", "yolo",
)  # fmt: skip


@dataclass(frozen=True)
class _Shape:
    """A kind of node: its GPU model, how many on a node, the share of all GPUs, and the model's speed."""

    model: str
    per_node: int
    share: float
    speed: float


SHAPES = (
    _Shape("v100-16gb", 4, 0.125, 0.35),
    _Shape("v100-32gb", 8, 0.25, 0.5),
    _Shape("a100-40gb", 8, 0.25, 0.9),
    _Shape("a100-80gb", 8, 0.375, 1.0),
)


@dataclass(frozen=True)
class _Profile:
    """A kind of work, per GPU."""

    name: str
    utilisation_pct: int
    memory_mib: int
    cores: int
    host_mib: int
    sensitivity: float  # to a neighbour
    scaling: float  # how much of a faster GPU it can use


def generate(jobs: int, gpus: int, seed: int = 0) -> Scenario:
    """A queue of so many jobs in front of an empty cluster of exactly so many GPUs."""
    for option, value in (("--jobs", jobs), ("--gpus", gpus)):
        if not 0 <= value <= LIMIT:
            raise InputError(option, f"got {value}", f"0 to {LIMIT}")
    if not 0 <= seed < 2**32:
        raise InputError("--seed", f"got {seed}", "0 to 4294967295")
    rng = np.random.default_rng(seed)
    profiles = _profiles(rng)
    nodes = _nodes(gpus)
    models = tuple(shape for shape in SHAPES if any(n.gpus and n.gpus[0].model == shape.model for n in nodes))
    queue = _queue(rng, profiles, jobs)
    table = (
        InterferenceSpec(kind="table", fallback="utilisation", rows=_pairs(rng, profiles, models))
        if models
        else InterferenceSpec()
    )
    snapshot = Snapshot(
        name=f"generated-{jobs}x{gpus}-{seed}",
        about=f"{jobs} made-up jobs and {gpus} GPUs, seed {seed}.",
        cluster=Cluster(nodes=nodes),
        jobs=queue,
    )
    predictor = PredictorSpec(interference=table, speed={p.name: _speeds(p) for p in profiles})
    return Scenario(snapshot=snapshot, policy=Policy(), predictor=predictor)


def _nodes(gpus: int) -> tuple[Node, ...]:
    """Whole nodes by the shapes' shares, then the largest that fit, then one node with what is left."""
    counts = [int(gpus * shape.share) // shape.per_node for shape in SHAPES]
    left = gpus - sum(n * shape.per_node for n, shape in zip(counts, SHAPES, strict=True))
    for i in reversed(range(len(SHAPES))):
        more, left = divmod(left, SHAPES[i].per_node)
        counts[i] += more
    sizes = [(shape, shape.per_node) for n, shape in zip(counts, SHAPES, strict=True) for _ in range(n)]
    sizes += [(SHAPES[0], left)] if left else []
    return tuple(_node(f"n{i:04}", shape.model, size) for i, (shape, size) in enumerate(sizes))


def _node(name: str, model: str, gpus: int) -> Node:
    """A node with cores and memory in proportion to its GPUs; four GPUs form an NVLink group."""
    memory = known_memory_mib(model)
    groups = (tuple(range(i, min(i + 4, gpus))) for i in range(0, gpus, 4))
    return Node(
        name=name,
        gpus=tuple(Gpu(node=name, slot=str(i), model=model, memory_mib=memory) for i in range(gpus)),
        cpus=CORES_PER_GPU * gpus,
        host_memory_mib=HOST_MIB_PER_GPU * gpus,
        links=tuple(g for g in groups if len(g) > 1),
    )


def _profiles(rng: np.random.Generator) -> tuple[_Profile, ...]:
    """What each kind of work needs."""
    return tuple(
        _Profile(
            name=f"{family}/{2 ** int(rng.integers(3, 9))}",
            utilisation_pct=int(rng.integers(1, 21)) * 5,
            memory_mib=int(np.clip(rng.lognormal(np.log(8 * 1024), 0.8), 1024, 40_000)) // 256 * 256,
            cores=int(rng.integers(2, 9)),
            host_mib=int(rng.integers(8, 49)) * 1024,
            sensitivity=float(rng.uniform(0.9, 1.5)),
            scaling=float(rng.uniform(0.4, 1.0)),
        )
        for family in FAMILIES
    )


def _speeds(profile: _Profile) -> dict[str, float]:
    """Speed on each model against the fastest."""
    return {shape.model: round(shape.speed**profile.scaling, 3) for shape in SHAPES}


def _queue(rng: np.random.Generator, profiles: tuple[_Profile, ...], jobs: int) -> tuple[Job, ...]:
    """Jobs in the order in which they came."""
    kinds = rng.integers(0, len(profiles), jobs)
    gangs = rng.choice(GANGS, jobs, p=GANG_SHARES)
    priorities = rng.choice(PRIORITIES, jobs, p=PRIORITY_SHARES)
    durations = np.clip(rng.lognormal(np.log(3600), 1.6, jobs), 300, 6 * DAY_S)
    ages = np.sort(np.clip(rng.lognormal(np.log(1800), 1.2, jobs), 0, 2 * DAY_S))[::-1]
    users = rng.integers(0, 40, jobs)
    width = len(str(max(jobs - 1, 0)))

    def job(i: int) -> Job:
        profile, gang, user = profiles[int(kinds[i])], int(gangs[i]), int(users[i])
        return Job(
            id=f"job-{i:0{width}}",
            gpus=gang,
            gpu_memory_mib=profile.memory_mib,
            gpu_utilisation_pct=profile.utilisation_pct,
            duration_s=round(float(durations[i])),
            profile=profile.name,
            cpus=profile.cores * gang,
            host_memory_mib=profile.host_mib * gang,
            priority=int(priorities[i]),
            queue=f"team-{user % 8}",
            user=f"user-{user}",
            submitted_s=-round(float(ages[i])),
        )

    return tuple(job(i) for i in range(jobs))


def _pairs(
    rng: np.random.Generator, profiles: tuple[_Profile, ...], models: tuple[_Shape, ...]
) -> tuple[TableRow, ...]:
    """Directed slowdowns: small while two kinds fit on a GPU together, then growing with what is too much.

    A slower GPU is kept busier by the same work. Two in a hundred pairs must not share at all.
    """
    n = len(profiles)
    busy = np.array([p.utilisation_pct / 100 for p in profiles])
    sensitivity = np.array([p.sensitivity for p in profiles])[:, None]
    noise = rng.uniform(0.85, 1.25, (n, n))
    luck = rng.random((n, n))
    never = rng.random((n, n)) < 0.01
    never |= never.T
    rows: list[TableRow] = []
    for shape in models:
        on_this = np.minimum(1, busy / np.sqrt(shape.speed))
        both = on_this[:, None] + on_this[None, :]
        fits = 1.02 + 0.08 * both * luck
        slowdown = np.where(both <= 1, fits, 1.1 + (both - 1) * sensitivity * noise)
        forbidden = never | (slowdown > NO_SHARING_ABOVE) | (slowdown.T > NO_SHARING_ABOVE)
        rows += [
            TableRow(
                gpu_model=shape.model,
                profile=profiles[a].name,
                beside=profiles[b].name,
                slowdown=None if forbidden[a, b] else round(float(slowdown[a, b]), 3),
            )
            for a in range(n)
            for b in range(n)
        ]
    return tuple(rows)
