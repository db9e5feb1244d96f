"""What may stand in a scenario file: ``ScenarioFile`` is its schema, key by key.

Jobs, policy and predictor are the model's own; only what a file says more briefly than the model has a form
of its own here: nodes by ranges, GPUs by number, identical jobs by count, tables by path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, RootModel, Tag, model_validator

from planner import quantities
from planner.edit import Arrivals, Variant
from planner.model import Carryover, Clock, Count, GpuModel, Host, Job, Mib, Name, Noun
from planner.policy import Policy, PredictorSpec

SCHEMA = "planner.scenario/1"
CONFIG_SCHEMA = "planner.config/1"
GPUS_PER_NODE_LIMIT = 1024
COPIES_LIMIT = 200_000
GPUS_LIMIT = 200_000


def _by_type(**tags: type | tuple[type, ...]) -> Callable[[Any], str]:
    """Tell the forms of a value apart by its type, so that an error speaks of the form that was meant."""

    def tag(value: Any) -> str:
        found = next((tag for tag, types in tags.items() if isinstance(value, types)), next(reversed(tags)))
        return f"<{found}>"

    return tag


def _index(value: Any) -> Any:
    """A GPU's index as a mapping's key, which JSON always writes in quotes."""
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9
        else value
    )


Positive = Annotated[Count, Field(ge=1)]
Index = Annotated[Count, BeforeValidator(_index)]


class Shards(Noun):
    """Each GPU in equal tokens."""

    shards: Annotated[Count, Field(ge=1, le=1024)] = Field(description="tokens a GPU")


class Mig(Noun):
    """Each GPU in MIG instances; the whole card is not offered any more."""

    mig: dict[Name, Positive] = Field(min_length=1, description="instances of each profile: {1g.5gb: 4}")


def _partition_form(value: Any) -> str:
    if isinstance(value, Mig) or (isinstance(value, dict) and "mig" in value):
        return "<mig>"
    return "<shards>" if isinstance(value, dict | Shards) else "<whole>"


Partition = Annotated[
    Annotated[Literal["whole"], Tag("<whole>")]
    | Annotated[Shards, Tag("<shards>")]
    | Annotated[Mig, Tag("<mig>")],
    Discriminator(_partition_form),
]
Partitions = Annotated[
    Annotated[tuple[Partition, ...], Tag("<each>")] | Annotated[Partition, Tag("<all>")],
    Discriminator(_by_type(each=(list, tuple), all=object)),
]


class GpuSpec(Noun):
    """GPUs of one model."""

    model: GpuModel = Field(description="under any of its names")
    count: Annotated[Count, Field(ge=1, le=GPUS_PER_NODE_LIMIT)] = Field(1, description="cards on the node")
    memory_mib: Mib | None = Field(None, description="default: what is known of the model; null: unknown")


GpuSpecs = Annotated[
    Annotated[tuple[GpuSpec, ...], Tag("<list>")] | Annotated[GpuSpec, Tag("<one>")],
    Discriminator(_by_type(list=(list, tuple), one=object)),
]
Unmanaged = Annotated[
    Annotated[dict[Index, Mib | None], Tag("<each>")] | Annotated[Mib | None, Tag("<all>")],
    Discriminator(_by_type(each=dict, all=object)),
]


class NodeSpec(Host):
    """One node, or several that are alike."""

    name: Annotated[str, BeforeValidator(lambda value: ",".join(quantities.hostlist(value)) and value)] = (
        Field(description="a host list: a[0-3], b7")
    )
    gpus: GpuSpecs = Field((), description="GPUs of one model, or a list of such for mixed cards")
    unhealthy: tuple[Count, ...] = Field((), description="indices of GPUs that take no jobs")
    unmanaged_gpu_memory_mib: Unmanaged = Field(
        0, description="in use by processes nobody manages: on every GPU, or by index; null: unknown"
    )
    partition: Partitions = Field(
        "whole", description="whole, {shards: N} a GPU, or {mig: {1g.5gb: 4}}; or a list"
    )
    uuids: tuple[Name | None, ...] = Field((), description="of the GPUs, by index")


class ClusterSpec(Noun):
    """The nodes, in the order that results are reported in."""

    nodes: tuple[NodeSpec, ...] = ()
    licences: dict[str, Count] = Field(default_factory=dict, description="licences the cluster has, by name")


class Copies(Job):
    """Several jobs that are alike."""

    count: Annotated[Count, Field(ge=1, le=COPIES_LIMIT)] = Field(
        description="identical copies, called id-0, id-1, ..."
    )

    @model_validator(mode="after")
    def _ids_are_names(self) -> Self:
        quantities.name(f"{self.id}-{self.count - 1}")
        return self


def _job_form(value: Any) -> str:
    return (
        "<copies>" if isinstance(value, Copies) or (isinstance(value, dict) and "count" in value) else "<job>"
    )


JobEntry = Annotated[
    Annotated[Job, Tag("<job>")] | Annotated[Copies, Tag("<copies>")], Discriminator(_job_form)
]


class JobTable(RootModel[tuple[JobEntry, ...]]):
    """The rows of a table of jobs."""


class JobsFile(Noun):
    """Jobs in a file of their own."""

    path: Name = Field(description=".csv, .parquet or .json, beside the scenario file")


Jobs = Annotated[
    Annotated[JobsFile, Tag("<file>")] | Annotated[tuple[JobEntry, ...], Tag("<list>")],
    Discriminator(_by_type(file=(dict, JobsFile), list=object)),
]


class ScenarioFile(Noun):
    """A scenario file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)

    schema_: Literal["planner.scenario/1"] = Field(alias="schema", description="which kind of file this is")
    name: Name | None = Field(None, description="default: the file's name")
    about: str = Field("", description="what it shows")
    now_s: Clock = Field(0, description="the time, on the clock of every time in the file")
    cluster: ClusterSpec = ClusterSpec()
    jobs: Jobs = Field((), description="a list of jobs, or {path: jobs.csv}")
    policy: Policy = Policy()
    predictor: PredictorSpec = PredictorSpec()
    arrivals: Arrivals | None = None
    variants: tuple[Variant, ...] = ()
    carryover: Carryover = Field(Carryover(), description="what is remembered of earlier epochs")


class ConfigFile(Noun):
    """How to plan, for ``--config``; what it does not state is as ever."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)

    schema_: Literal["planner.config/1"] = Field("planner.config/1", alias="schema")
    policy: Policy | None = None
    predictor: PredictorSpec | None = None
