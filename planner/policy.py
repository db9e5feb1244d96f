"""What the operator decides: weights, limits and safety of a plan, and which predictors it rests on."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from planner import quantities
from planner.model import Count, Flag, GpuModel, Mib, Name, Noun, Number, Ratio, Seconds

#: In place of a model's path: the one that ships with the planner.
SHIPPED = "shipped"
Weight = Annotated[Number, Field(ge=0, le=1000)]
Factor = Annotated[Number, Field(ge=1, le=100)]
SOLVERS = ("auto", "greedy", "patterns", "search", "cp-sat", "columns", "mip", "cbc", "highs")
SolverName = Literal["auto", "greedy", "patterns", "search", "cp-sat", "columns", "mip", "cbc", "highs"]


class Weights(Noun):
    """A factor on each term of the objective; 1 leaves a term in GPU-seconds of lost progress."""

    interference: Weight = Field(1, description="lost to neighbours on a GPU")
    speed: Weight = Field(1, description="lost on a slower GPU model")
    locality: Weight = Field(1, description="lost to slow links within a gang")
    waiting: Weight = Field(1, description="lost by jobs that do not run")
    makespan: Weight = Field(0.5, description="the latest end over all jobs")
    moves: Weight = Field(1, description="lost to checkpoints and restarts")
    fragmentation: Weight = Field(1, description="GPUs opened and nodes left partly used")


class Quota(Noun):
    """At most so many GPUs for the jobs of one queue, user or account."""

    queue: Name | None = Field(None, description="whose jobs count")
    user: Name | None = Field(None, description="whose jobs count")
    account: Name | None = Field(None, description="whose jobs count")
    gpus: Annotated[Number, Field(ge=0)] = Field(description="the most that may run; shares count as parts")

    @model_validator(mode="after")
    def _names_one_owner(self) -> Self:
        if sum(x is not None for x in (self.queue, self.user, self.account)) != 1:
            raise ValueError("a quota names exactly one of queue, user, account")
        return self

    @property
    def owner(self) -> tuple[str, str]:
        """The key and value that a job must have to count."""
        for key in ("queue", "user", "account"):
            value = getattr(self, key)
            if value is not None:
                return key, value
        raise AssertionError("validated")


class Policy(Noun):
    """How to plan. Every default is what an epoch does when the key is absent."""

    epoch_s: Annotated[Seconds, Field(gt=0)] = Field(300, description="time from one plan to the next")
    horizon_s: Annotated[Seconds, Field(gt=0)] = Field(
        3600, description="what a rate is charged over; at least the epoch"
    )
    max_tenants: Annotated[Count, Field(ge=1)] | None = Field(
        3, description="jobs that may share a GPU; null: no limit"
    )
    memory_margin_mib: Mib = Field(
        500, description="kept free on a GPU with two or more tenants and no isolation"
    )
    max_slowdown: Factor | None = Field(2.0, description="cap of each job's predicted slowdown; null: none")
    sharing_gate: Flag = Field(
        True, description="share only where the speeds add up to more than the largest job alone"
    )
    share_across: Literal["user", "account", "all"] = Field("all", description="whose jobs may share a GPU")
    packing: Literal["binpack", "spread"] = Field("binpack", description="which way ties between GPUs fall")
    alpha: Annotated[Number, Field(ge=0, le=4)] = Field(
        0, description="preference for short jobs in the waiting term"
    )
    age_s: Annotated[Seconds, Field(gt=0)] = Field(
        21600, description="waiting so long doubles a job's waiting cost"
    )
    max_wait_s: Seconds | None = Field(None, description="jobs that waited longer get the reservations first")
    max_reservations: Count = Field(1, description="waiting jobs that GPUs may be kept for")
    max_moves: Count = Field(0, description="running jobs that one plan may move or preempt")
    checkpoint_s: Seconds = Field(60, description="for jobs that do not say")
    restart_s: Seconds = Field(60, description="for jobs that do not say")
    cooldown_s: Seconds = Field(3600, description="a moved job is not moved again before")
    memory_peak_margin: Annotated[Number, Field(ge=0, le=10)] = Field(
        0.1, description="added to a measured memory peak"
    )
    duration_margin: Annotated[Number, Field(ge=0, le=10)] = Field(
        0.25, description="p90 and p95 of a declared duration: 1 + this"
    )
    slowdown_margin: Annotated[Number, Field(ge=0, le=10)] = Field(
        0.25, description="p90 and p95 of a slowdown: excess x (1 + this)"
    )
    slowdown_quantile: Literal["mean", "p90"] = Field(
        "mean", description="which predicted slowdown the plan uses, against caps and in its costs"
    )
    cpu_only_gpus: Annotated[Number, Field(gt=0, le=100)] = Field(
        0.1, description="GPUs that a job without GPUs counts as in costs"
    )
    interference_types: Annotated[Count, Field(ge=1, le=512)] = Field(
        64, description="kinds of work that the solver tells apart"
    )
    quotas: tuple[Quota, ...] = Field((), description="limits on owners")
    makespan_first: Flag = Field(
        False,
        description="the shortest makespan comes first; all other costs only choose among the plans that have it",
    )
    solver: SolverName = Field("auto", description="which engine; auto: all that are worth it")
    time_limit_s: Seconds = Field(
        10, description="for the whole solve; the first pass of the greedy always ends; 0: its plan"
    )
    deterministic: Flag = Field(False, description="the same answer in every run")
    seed: Count = Field(0, description="of whatever is random")
    weights: Weights = Weights()

    @property
    def beyond_plan(self) -> float:
        """What p90 and p95 of a slowdown add to the excess that the plan uses, as a part of it."""
        return 0.0 if self.slowdown_quantile == "p90" else self.slowdown_margin

    @model_validator(mode="after")
    def _horizon_covers_the_epoch(self) -> Self:
        if self.horizon_s < self.epoch_s:
            raise ValueError(f"horizon_s: {self.horizon_s:g} is shorter than epoch_s: {self.epoch_s:g}")
        return self


class TableRow(Noun):
    """One measured slowdown: ``profile`` (the victim) beside ``beside``; None: they must not share."""

    gpu_model: GpuModel = Field(description="on which GPU")
    profile: Name = Field(description="the job that is slowed down")
    beside: Name = Field(description="its neighbour")
    slowdown: Annotated[Number, Field(ge=1)] | None = Field(
        description="run time beside it over run time alone; null: must not share"
    )
    observations: Count | None = Field(
        None, description="how many measurements it is the mean of; null: it counts as it stands"
    )


class InterferenceSpec(Noun):
    """Which interference model, with its parameters.

    ``utilisation``: no slowdown until the GPU utilisations of a GPU's tenants sum to ``threshold_pct``, then
    linear in the excess. ``time-sharing``: the more likely two jobs need the GPU at once, the slower both. ``table``:
    measured pairs; ``model``: pairs as a fitted model predicts them; both with ``fallback`` for pairs of which they know nothing.
    """

    kind: Literal["utilisation", "time-sharing", "table", "model"] = Field(
        "time-sharing", description="which model"
    )
    shrinkage: Annotated[Number, Field(ge=0, le=1000)] = Field(
        2.0,
        description="as many observations the fallback's prediction counts as, beside measured ones of a table",
    )
    fallback: Literal["utilisation", "time-sharing"] = Field(
        "time-sharing", description="for pairs that a table or model does not know"
    )
    path: str | None = Field(
        None,
        description="CSV with gpu_model, profile, beside, slowdown (kind table); a file written by planner fit interference (kind model)",
    )
    rows: tuple[TableRow, ...] = Field((), description="the table itself; read from path")
    threshold_pct: Annotated[Number, Field(ge=0, le=1000)] = Field(
        100, description="summed GPU utilisation from which tenants slow each other"
    )
    slope: Annotated[Number, Field(ge=0, le=100)] = Field(
        1.0, description="slowdown gained per 100 points of excess"
    )
    bandwidth_threshold_pct: Annotated[Number, Field(ge=0, le=1000)] = Field(
        100, description="summed memory-bandwidth utilisation from which tenants slow each other"
    )
    bandwidth_slope: Annotated[Number, Field(ge=0, le=100)] = Field(
        1.0, description="slowdown gained per 100 points of excess bandwidth"
    )
    cores_per_gpu: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="physical CPU cores for each GPU; null: CPUs slow nobody"
    )
    cpu_slope: Annotated[Number, Field(ge=0, le=100)] = Field(
        1.0, description="slowdown gained where a GPU's tenants need twice its physical cores"
    )
    contention: Ratio | None = Field(
        None,
        description="part of a neighbour's turns on the GPU that is felt (time-sharing); null: as fitted for the GPU model",
    )
    cap: Factor = Field(4.0, description="no predicted slowdown is larger")
    margin: Annotated[Number, Field(ge=0, le=10)] = Field(
        0.0,
        description="added to every predicted excess, as a part of it; set by the policy's slowdown_quantile",
    )
    rows_from: str | None = Field(None, description="the model that a plan's table was made with")


class Links(Noun):
    """Run time factor of a gang by the slowest link between its GPUs."""

    nvlink: Factor = Field(1.0, description="all its GPUs are in one NVLink group")
    pcie: Factor = Field(1.05, description="its GPUs are on one node")
    network: Factor = Field(1.2, description="its GPUs are on several nodes")

    @model_validator(mode="after")
    def _slower_links_cost_more(self) -> Self:
        if not self.nvlink <= self.pcie <= self.network:
            raise ValueError("links must not get faster from nvlink to pcie to network")
        return self


SpeedRatio = Annotated[Ratio, Field(gt=0), BeforeValidator(quantities.number)]


class FittedSpec(Noun):
    """A fitted model that is asked for what jobs do not declare."""

    path: str | None = Field(None, description="a file written by planner fit; null: none is asked")


class UsageSpec(FittedSpec):
    """A model of memory and utilisation, with what differs from site to site by more than models are off."""

    context_mib: Mib | None = Field(
        None,
        description="GPU memory of a process that has only begun to use a GPU, as nvidia-smi shows it here (usage)",
    )
    pcie_gb_s: Annotated[Number, Field(gt=0)] | None = Field(
        None,
        description="what a gang's exchange of gradients gets of PCIe (10^9 bytes a second); null: as fitted",
    )
    network_gb_s: Annotated[Number, Field(gt=0)] | None = Field(
        None, description="the same of the network between nodes; null: as fitted, to a slow one"
    )


class PredictedJob(Noun):
    """What fitted models said of a job. None: unknown."""

    remaining_s: Seconds | None = Field(None, description="alone, from now on, p50")
    remaining_p90_s: Seconds | None = None
    remaining_p95_s: Seconds | None = None
    duration_from: str | None = Field(None, description="which of its traits carried the forecast")
    gpu_memory_mib: Mib | None = Field(None, description="per GPU, p95")
    gpu_utilisation_pct: Annotated[Number, Field(ge=0, le=100)] | None = Field(
        None, description="per GPU, when alone, p50"
    )
    usage_from: str | None = Field(None, description="which of its traits, or which graph")
    links: Links | None = Field(
        None, description="of a gang, by what its graph exchanges; null: as predictor.links"
    )


class PredictorSpec(Noun):
    """How declared values become forecasts, and which models are asked for those that are not declared."""

    interference: InterferenceSpec = InterferenceSpec()
    duration: FittedSpec = Field(
        FittedSpec(), description="a model of durations, written by planner fit duration"
    )
    usage: UsageSpec = Field(
        UsageSpec(),
        description="a model of memory and utilisation, written by planner fit usage; path: shipped asks the planner's own",
    )
    predicted: dict[str, PredictedJob] = Field(
        default_factory=dict, description="what the models said, by job id; a plan file holds it"
    )
    speed: dict[str, dict[GpuModel, SpeedRatio]] = Field(
        default_factory=dict,
        description="profile (or *) -> GPU model -> speed against the fastest; absent: 1",
    )
    links: Links = Links()
