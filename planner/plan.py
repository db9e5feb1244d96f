"""What the planner answers: the forecast it rested on, the plan with its reasons, and a receipt of what was done.

A plan file carries its inputs, so that ``explain``, ``apply``, ``undo`` and replay need nothing else.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from planner.model import Name, Noun, Snapshot
from planner.policy import Links, Policy, PredictorSpec

Reason = Literal[
    "held",
    "dependency",
    "never_fits",
    "unsupported",
    "unknown_memory",
    "quota",
    "licence",
    "throttle",
    "reservation_window",
    "reserved",
    "fragmented",
    "interference",
    "waiting_capacity",
    "not_chosen",
]
#: In the order in which they are tried: the first that holds is given.
REASONS: tuple[Reason, ...] = Reason.__args__  # type: ignore[attr-defined]  # typing.Literal keeps its values there

Source = Literal["declared", "predicted", "measured", "share"]


class JobForecast(Noun):
    """What one job is expected to use. None: unknown."""

    job_id: Name
    gpu_memory_mib: int | None = Field(None, description="per GPU; for a share see gpu_share_milli")
    memory_source: Source | None = None
    gpu_utilisation_pct: float | None = None
    utilisation_source: Source | None = None
    remaining_s: float | None = Field(None, description="alone, on the fastest allowed model, p50")
    remaining_p90_s: float | None = None
    remaining_p95_s: float | None = None
    links: Links | None = Field(None, description="its run time factors; None: the predictor's, for all jobs")


class Forecast(Noun):
    """All jobs' forecasts, in the order of ``snapshot.jobs``, and the models for slowdown, speed and links."""

    jobs: tuple[JobForecast, ...] = ()
    predictor: PredictorSpec = PredictorSpec()
    warnings: tuple[str, ...] = ()


class Assignment(Noun):
    """A job that runs under the plan: it starts, stays or moves. Times are seconds after ``made_at``."""

    job_id: Name
    gpu_ids: tuple[Name, ...]
    nodes: tuple[Name, ...]
    state: Literal["start", "stay", "move"] = "start"
    start_s: float | None = Field(0, description="negative only of a job that stays")
    slowdown: float | None = Field(None, description="predicted, beside its neighbours; None: unknown")
    slowdown_p90: float | None = None
    finish_s: float | None = Field(None, description="None: its duration is unknown")
    finish_p90_s: float | None = Field(
        None, description="by the upper values of its duration and its slowdown"
    )
    moved_from: tuple[Name, ...] | None = None
    wave: int = Field(0, ge=0, description="0 at once; wave i after the moves of wave i-1 have left")
    leaves_wave: int | None = Field(None, ge=0, description="wave in which a moved job leaves its old place")
    neighbours: tuple[Name, ...] = ()
    gpu_memory_mib: int | None = None
    memory_source: Source | None = None
    fenced: bool | None = Field(
        None, description="None: not sharing; false: nothing holds tenants to their memory"
    )

    @model_validator(mode="after")
    def _starts_now_or_later(self) -> Self:
        if self.state != "stay" and self.start_s is not None and self.start_s < 0:
            raise ValueError(
                f"job {self.job_id!r} would {self.state} in the past (start_s: {self.start_s:g})"
            )
        return self


class Fix(Noun):
    """The cheapest single change that would start a job, checked by planning it."""

    change: str
    detail: str
    extra_cost_gpu_s: float | None = None


class Deferred(Noun):
    """A job that waits, with the first reason that holds."""

    job_id: Name
    reason: Reason
    detail: str
    fix: Fix | None = None
    cost_gpu_s: float = 0


class Reservation(Noun):
    """GPUs kept for a waiting job from a time on."""

    job_id: Name
    gpu_ids: tuple[Name, ...]
    from_s: float


class Terms(Noun):
    """The objective's terms, weighted; they sum to the total."""

    interference: float = 0
    speed: float = 0
    locality: float = 0
    waiting: float = 0
    makespan: float = 0
    moves: float = 0
    fragmentation: float = 0


class Objective(Noun):
    """GPU-seconds of progress lost over the horizon."""

    total_gpu_s: float
    terms: Terms


class AttemptRecord(Noun):
    """One engine's try."""

    solver: str
    status: str
    objective_gpu_s: float | None = None
    bound_gpu_s: float | None = None
    wall_s: float = 0
    note: str = ""


class Solve(Noun):
    """How the answer was found and how far it can be from the best."""

    solver: str
    status: str
    bound: float | None = Field(None, description="no plan costs less; GPU-seconds, rounded down")
    gap: float | None = Field(None, description="(total - bound) / total")
    served_gap: float | None = Field(None, description="(total - bound) / (cost of starting nothing - bound)")
    wall_s: float = 0
    seed: int = 0
    deterministic: bool = False
    attempts: tuple[AttemptRecord, ...] = ()


class Predicted(Noun):
    """What the plan is expected to do."""

    makespan_s: float | None = None
    mean_slowdown: float | None = None
    max_slowdown: float | None = None
    goodput_gpus: float | None = Field(None, description="sum of normalised speeds, in GPUs")
    gpu_utilisation_pct: float | None = None
    requested_share_milli: int = 0
    allocated_share_milli: int = 0
    pairs_from_fallback: int = Field(0, description="sharing pairs whose slowdown is not in the table")
    pairs_from_table: int = 0


class Inputs(Noun):
    """Everything the plan was made from."""

    snapshot: Snapshot
    forecast: Forecast
    policy: Policy
    backend: str


class Plan(Noun):
    """All decisions of one epoch."""

    schema_: Literal["planner.plan/1"] = Field("planner.plan/1", alias="schema")
    id: str
    name: str = ""
    made_at: str = Field(description="ISO 8601, UTC")
    assignments: tuple[Assignment, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    preempted: tuple[Name, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    objective: Objective
    solve: Solve
    predicted: Predicted = Predicted()
    warnings: tuple[str, ...] = ()
    inputs: Inputs | None = None

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, serialize_by_alias=True
    )


class Action(Noun):
    """One thing a backend did, would do, or refused."""

    job_id: Name
    verb: Literal["start", "stay", "move", "preempt", "defer", "reserve"]
    gpu_ids: tuple[Name, ...] = ()
    wave: int = 0
    outcome: Literal["done", "dry_run", "stale", "refused"] = "done"
    detail: str = ""


class Receipt(Noun):
    """What a backend did with a plan."""

    plan_id: str
    backend: str
    dry_run: bool = False
    actions: tuple[Action, ...] = ()
    warnings: tuple[str, ...] = ()


def dumped(noun: Noun) -> dict[str, Any]:
    """A noun as plain JSON values."""
    return noun.model_dump(mode="json")
