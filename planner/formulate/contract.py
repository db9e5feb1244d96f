"""What formulation hands on: the Problem, and what is needed to read its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.model import Snapshot
    from planner.plan import Forecast, Reason
    from planner.policy import Policy
    from solvers.problem import Problem


@dataclass(frozen=True)
class Excluded:
    """A job that is not in the Problem, because nothing the solver can choose would start it."""

    job: int  # index into snapshot.jobs
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Kind:
    """A GPU kind of the Problem: GPUs that are alike for every job."""

    model: str  # canonical model name
    memory_mib: int | None  # what its tenants together may be given, oversubscription included
    margin_mib: int  # of that, kept free where two or more share
    tenant_memory_mib: int | None  # the most one tenant may be given (MPS)
    sharing: str  # time-slice or mps
    shards: int | None
    mig: bool


@dataclass(frozen=True)
class Capabilities:
    """What a backend can express."""

    name: str = "files"
    equal_per_node: bool = False
    same_index: bool = False


@dataclass(frozen=True)
class Formulated:
    """The Problem and what is needed to read its answer."""

    snapshot: Snapshot
    forecast: Forecast
    policy: Policy
    capabilities: Capabilities
    problem: Problem
    jobs: tuple[int, ...]  # problem job -> index into snapshot.jobs
    gpu_ids: tuple[str, ...]  # problem GPU -> id; all GPUs of the cluster, in order
    node_names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    types: tuple[str, ...]  # name of each interference type
    excluded: tuple[Excluded, ...]
    reservations: tuple[tuple[int, tuple[int, ...], float], ...]  # (problem job, GPUs, seconds after now)
    warnings: tuple[str, ...]
    tick_s: float  # seconds a tick of the Problem's ends
