"""What one epoch reads: the cluster, the jobs, and what is remembered of earlier epochs.

Every value is frozen and validated, and goes to JSON and back under the same keys that people write
in scenario files. ``planner.policy`` holds what the operator decides, ``planner.plan`` what the planner answers.
None means unknown, never zero. Units: MiB, seconds, percent of one GPU, CPUs (decimal).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from planner import quantities
from planner.gpu_models import canonical_model

MIG_SEPARATOR = ":"

Mib = Annotated[int, BeforeValidator(quantities.memory_mib), Field(ge=0, json_schema_extra={"unit": "MiB"})]
Seconds = Annotated[
    float,
    BeforeValidator(quantities.seconds),
    Field(ge=0, json_schema_extra={"unit": "s"}, allow_inf_nan=False),
]
Clock = Annotated[
    float, BeforeValidator(quantities.clock_s), Field(json_schema_extra={"unit": "s"}, allow_inf_nan=False)
]
Count = Annotated[int, BeforeValidator(quantities.count), Field(ge=0)]
Cpus = Annotated[
    float,
    BeforeValidator(quantities.cpus),
    Field(ge=0, json_schema_extra={"unit": "CPUs"}, allow_inf_nan=False),
]
Number = Annotated[float, BeforeValidator(quantities.number), Field(allow_inf_nan=False)]
Percent = Annotated[Number, Field(ge=0, le=100, json_schema_extra={"unit": "% of one GPU"})]
Ratio = Annotated[Number, Field(ge=0, le=1)]
Milli = Annotated[
    int, BeforeValidator(quantities.count), Field(ge=1, le=1000, json_schema_extra={"unit": "1/1000 GPU"})
]
Name = Annotated[str, BeforeValidator(quantities.name), Field(min_length=1, max_length=253)]
Flag = Annotated[bool, BeforeValidator(quantities.flag)]
GpuModel = Annotated[Name, BeforeValidator(canonical_model)]


def as_tuple(value: Any) -> Any:
    """Let a person write one string where a list of strings is meant."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]
GpuModels = Annotated[tuple[GpuModel, ...], BeforeValidator(as_tuple)]


class Noun(BaseModel):
    """Base of every value: frozen, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False)


class Gpu(Noun):
    """One device that a job can be given: a whole GPU, or one MIG instance of it."""

    node: Name
    slot: Name = Field(description="index on the node; for a MIG instance index:profile:number")
    model: GpuModel
    memory_mib: Mib | None = Field(
        None, description="None: the device does not say; no job with a memory request"
    )
    uuid: Name | None = None
    healthy: Flag = True
    unmanaged_memory_mib: Mib | None = Field(
        0, description="in use by processes nobody manages; None: unknown"
    )
    shards: Count | None = Field(None, description="sharing in so many equal tokens; None: not divided")

    @property
    def id(self) -> str:
        """``node/slot``."""
        return f"{self.node}/{self.slot}"

    @property
    def index(self) -> int:
        """Index of the card on its node; MIG instances of one card share it."""
        return int(self.slot.split(MIG_SEPARATOR, 1)[0])

    @property
    def is_mig(self) -> bool:
        """A MIG instance, offered only to jobs that name its model."""
        return MIG_SEPARATOR in self.slot


class Host(Noun):
    """What a node is apart from its GPUs; a scenario file says the same in the same words."""

    name: Name
    cpus: Cpus | None = Field(None, description="None: the host's cores are not counted")
    host_memory_mib: Mib | None = Field(None, description="None: the host's memory is not counted")
    links: tuple[tuple[Count, ...], ...] = Field((), description="NVLink groups, by GPU index")
    labels: dict[str, str] = Field(default_factory=dict, description="what jobs may ask for with node_labels")
    schedulable: Flag = Field(True, description="false: it takes no new jobs")
    max_tenants: Annotated[Count, Field(ge=1)] | None = Field(
        None, description="jobs a GPU; None: the policy's"
    )
    sharing: Literal["time-slice", "mps"] = Field(
        "time-slice",
        description="how tenants of a GPU share it; under mps each is given at most the memory divided by max_tenants, also if it is alone",
    )
    isolation: Literal["none", "memory"] = Field(
        "none", description="memory: each tenant is held to its request"
    )
    memory_factor: Annotated[Number, Field(ge=1, le=4)] = Field(
        1, description="oversubscription of GPU memory"
    )


class Node(Host):
    """A host with its GPUs."""

    gpus: tuple[Gpu, ...] = ()

    @model_validator(mode="after")
    def _gpus_are_here_once(self) -> Self:
        slots = [g.slot for g in self.gpus]
        if len(set(slots)) < len(slots):
            raise ValueError(f"node {self.name} has two GPUs in one slot")
        if any(g.node != self.name for g in self.gpus):
            raise ValueError(f"node {self.name} holds a GPU of another node")
        linked = [i for group in self.links for i in group]
        if len(set(linked)) < len(linked) or not set(linked) <= {g.index for g in self.gpus}:
            raise ValueError(f"links of {self.name} name a GPU twice or one that is not there")
        return self


class Cluster(Noun):
    """All nodes, in the order that results are reported in."""

    nodes: tuple[Node, ...] = ()
    licences: dict[str, Count] = Field(default_factory=dict, description="licences the cluster has, by name")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise ValueError(f"two nodes are called {node.name}")
            seen.add(node.name)
        return self

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, node by node."""
        return tuple(g for node in self.nodes for g in node.gpus)

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {n.name: n for n in self.nodes}

    @cached_property
    def gpu_by_id(self) -> dict[str, Gpu]:
        """GPUs by ``node/slot``."""
        return {g.id: g for g in self.gpus}


class Throttle(Noun):
    """A limit on how many jobs of a group (an array, say) run at once."""

    group: Name = Field(description="name that the jobs of a group have in common")
    max_running: Count = Field(description="jobs of the group that may run at once")


class Job(Noun):
    """A request for GPUs, and where it runs if it does.

    GPU memory and utilisation are per GPU; ``cpus`` and ``host_memory_mib`` are for the whole job.
    """

    id: Name = Field(description="its name, unique")
    gpus: Annotated[Count, Field(le=100_000)] = Field(
        1, description="GPUs it needs, all or none; 0: cores and memory of one node"
    )
    gpu_memory_mib: Mib | None = Field(None, description="per GPU; unknown: runs only alone on whole GPUs")
    gpu_utilisation_pct: Percent | None = Field(None, description="per GPU, when alone")
    gpu_bandwidth_pct: Percent | None = Field(
        None, description="memory bandwidth of each GPU that it uses, when alone"
    )
    gpu_share_milli: Milli | None = Field(None, description="declared share of each GPU's memory and compute")
    duration_s: Seconds | None = Field(None, description="alone, on the fastest allowed GPU model")
    profile: Name | None = Field(None, description="kind of work; the key of interference and speed tables")
    name: Name | None = Field(None, description="what its user calls it; numbers in it do not count")
    digest: Name | None = Field(None, description="of its script or image; tells that two jobs run the same")
    cpus: Cpus = Field(0, description="for the whole job, split over its nodes by GPUs")
    host_memory_mib: Mib = Field(0, description="for the whole job, split over its nodes by GPUs")
    priority: Annotated[Number, Field(ge=1, le=100)] = Field(1, description="weight of all its costs")
    queue: Name | None = Field(None, description="what quotas may count by")
    user: Name | None = Field(None, description="what quotas and share_across may go by")
    account: Name | None = Field(None, description="what quotas and share_across may go by")
    submitted_s: Clock | None = Field(None, description="since when it waits")
    started_s: Clock | None = Field(None, description="since when it runs")
    progress: Ratio | None = Field(None, description="share of the work that is done")
    time_limit_s: Seconds | None = Field(
        None, description="it would be ended after so long; sharing never makes it miss that"
    )
    gpus_per_node: Annotated[Count, Field(ge=1)] | None = Field(
        None, description="exactly so many on each of its nodes"
    )
    max_nodes: Annotated[Count, Field(ge=1)] | None = Field(
        None, description="default: as few as the largest allowed node makes possible"
    )
    gpu_models: GpuModels = Field((), description="allowed models; empty: any")
    node_labels: dict[str, str] = Field(default_factory=dict, description="labels that a node must have")
    exclusive: Flag = Field(False, description="no other job on its nodes")
    shareable: Flag = Field(True, description="false: no other job on its GPUs")
    max_slowdown: Annotated[Number, Field(ge=1)] | None = Field(None, description="tighter than the policy's")
    never_with: Names = Field((), description="job ids or profiles that may not share a GPU with it")
    running_on: Names = Field((), description="GPU ids (node/index); a node name for a job without GPUs")
    movable: Flag = Field(False, description="when it runs: a plan may move it")
    preemptible: Flag = Field(False, description="when it runs: a plan may stop it")
    checkpoint_s: Seconds | None = Field(None, description="to write a checkpoint before a move")
    restart_s: Seconds | None = Field(None, description="to start again after a move")
    state: Literal["ready", "held"] = Field("ready", description="held: it does not start")
    depends_on: Names = Field((), description="jobs that must have ended")
    licences: dict[str, Count] = Field(default_factory=dict, description="licences it takes, by name")
    throttle: Throttle | None = None

    @property
    def running(self) -> bool:
        """It holds GPUs (or, without GPUs, a node) now."""
        return bool(self.running_on)

    @property
    def cpu_milli(self) -> int:
        """CPUs in thousandths, rounded up."""
        return quantities.milli(self.cpus)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.running_on and len(self.running_on) != max(1, self.gpus):
            raise ValueError(
                f"running_on names {quantities.counted(len(self.running_on), 'place')}, but the job has gpus: {self.gpus}"
                + ("; accepted: one node name for a job without GPUs" if self.gpus == 0 else "")
            )
        if len(set(self.running_on)) < len(self.running_on):
            raise ValueError("running_on names a GPU twice")
        if self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise ValueError(f"gpus: {self.gpus} is no multiple of gpus_per_node: {self.gpus_per_node}")
        if self.gpus == 0 and (self.gpu_share_milli is not None or self.gpu_memory_mib):
            raise ValueError("a job with gpus: 0 cannot ask for GPU memory or a share")
        return self


class Placement(Noun):
    """Where a job is now."""

    job_id: Name
    gpu_ids: tuple[Name, ...]
    since_s: Clock | None = None


class Reserved(Noun):
    """A job that GPUs are kept for."""

    job_id: Name = Field(description="the job that waits")
    gpu_ids: tuple[Name, ...] = Field(description="what is kept for it")
    from_s: Clock = Field(description="from when")


class Until(Noun):
    """Something that holds for a job or node until a time."""

    name: Name = Field(description="the job or node")
    until_s: Clock = Field(description="until when")
    why: str = Field("", description="for people")


class Carryover(Noun):
    """What one epoch remembers of the last ones; filled from the journal or the simulator."""

    version: Literal[1] = Field(1, description="of this part of the file")
    reservations: tuple[Reserved, ...] = ()
    cooldowns: tuple[Until, ...] = Field((), description="jobs that may not be moved again before a time")
    quarantines: tuple[Until, ...] = Field((), description="nodes that take no new jobs before a time")
    never_pairs: tuple[tuple[Name, Name], ...] = Field((), description="jobs that were taken apart")
    memory_peaks: dict[str, Mib] = Field(
        default_factory=dict, description="measured peak GPU memory by job id"
    )
    evicted_for: dict[str, str] = Field(
        default_factory=dict, description="job id -> the job it made room for"
    )
    last_plan: Name | None = Field(None, description="id of the plan that was applied last")


class Snapshot(Noun):
    """The cluster and every job, at one moment. ``now_s`` is on the clock of all times in it."""

    schema_: Literal["planner.snapshot/1"] = Field("planner.snapshot/1", alias="schema")
    name: str = "snapshot"
    about: str = ""
    now_s: Clock = 0
    cluster: Cluster = Cluster()
    jobs: tuple[Job, ...] = ()
    carryover: Carryover = Carryover()
    warnings: tuple[str, ...] = Field((), description="what was read with a doubt")

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )

    @cached_property
    def job_by_id(self) -> dict[str, Job]:
        """Jobs by id."""
        return {j.id: j for j in self.jobs}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the running jobs are."""
        return tuple(
            Placement(job_id=j.id, gpu_ids=j.running_on, since_s=j.started_s) for j in self.jobs if j.running
        )

    @model_validator(mode="after")
    def _jobs_and_places_exist(self) -> Self:
        seen: set[str] = set()
        for i, job in enumerate(self.jobs):
            if job.id in seen:
                raise ValueError(f"jobs[{i}].id: two jobs are called {job.id!r}; accepted: unique ids")
            seen.add(job.id)
        gpus, nodes = self.cluster.gpu_by_id, self.cluster.node_by_name
        for i, job in enumerate(self.jobs):
            known = gpus if job.gpus else nodes
            for place in job.running_on:
                if place not in known:
                    what = "GPU" if job.gpus else "node"
                    raise ValueError(
                        f"jobs[{i}].running_on: job {job.id!r} runs on {place!r}, and no such {what} exists"
                    )
        return self
