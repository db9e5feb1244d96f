"""A scenario as a value, and edits on it that give new, validated values.

Nothing here changes what it is given. Every edit goes through the constructors again, so that a what-if can
never make a cluster, a job or a policy that a file could not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar

from pydantic import Field

from planner.model import Count, Job, Name, Names, Node, Noun, Snapshot
from planner.policy import Policy, PredictorSpec

N = TypeVar("N", bound=Noun)


class Arrivals(Noun):
    """Jobs that come later, for a simulation."""

    trace: Name | None = Field(None, description="kind of trace: philly, alibaba-openb, ...")
    path: Name | None = Field(None, description="the trace's file, beside the scenario")
    jobs: Count | None = Field(None, description="take so many")
    seed: Count = Field(0, description="of the choice of jobs")


class AddNodes(Noun):
    """Nodes to add in a variant."""

    like: Name = Field(description="name of a node that is there")
    count: Annotated[Count, Field(ge=1, le=10_000)] = Field(1, description="how many")


class Variant(Noun):
    """What one variant of a scenario changes."""

    name: Name = Field(description="what it is called")
    add_nodes: tuple[AddNodes, ...] = ()
    remove_nodes: Names = Field((), description="nodes that are gone")
    drain_nodes: Names = Field((), description="nodes that take no new jobs")
    remove_jobs: Names = Field((), description="jobs that are gone")
    policy: dict[str, Any] = Field(default_factory=dict, description="policy keys that differ")


class Scenario(Noun):
    """A snapshot with the policy and predictors to plan it by, and what may vary."""

    snapshot: Snapshot = Snapshot()
    policy: Policy = Policy()
    predictor: PredictorSpec = PredictorSpec()
    arrivals: Arrivals | None = None
    variants: tuple[Variant, ...] = ()

    @property
    def name(self) -> str:
        """The snapshot's name."""
        return self.snapshot.name

    @property
    def about(self) -> str:
        """What the scenario shows, in its author's words."""
        return self.snapshot.about

    @property
    def now_s(self) -> float:
        """The time at which it is planned."""
        return self.snapshot.now_s


def changed(noun: N, **fields: Any) -> N:
    """The value with other fields, validated again as a whole."""
    unknown = set(fields) - set(type(noun).model_fields)
    if unknown:
        raise ValueError(f"{type(noun).__name__} has no field {', '.join(sorted(unknown))}")
    kept = {k: getattr(noun, k) for k in noun.model_fields_set}
    return type(noun).model_validate({**kept, **fields})


def with_policy(policy: Policy, fields: dict[str, Any]) -> Policy:
    """The policy with other values; of ``weights``, only those that are named change."""
    weights = fields.get("weights")
    if isinstance(weights, dict):
        fields = {**fields, "weights": changed(policy.weights, **weights)}
    return changed(policy, **fields)


def with_nodes(snapshot: Snapshot, nodes: Iterable[Node]) -> Snapshot:
    """The snapshot with these nodes for a cluster."""
    return changed(snapshot, cluster=changed(snapshot.cluster, nodes=tuple(nodes)))


def add_nodes(snapshot: Snapshot, like: str, count: int = 1) -> Snapshot:
    """Add empty nodes that are like one that is there: schedulable, healthy, with nothing unmanaged on them."""
    model = _node(snapshot, like)
    names = _fresh_names(like, snapshot.cluster.node_by_name)
    added = [_empty_copy(model, next(names)) for _ in range(count)]
    return with_nodes(snapshot, (*snapshot.cluster.nodes, *added))


def _empty_copy(node: Node, name: str) -> Node:
    gpus = tuple(
        changed(g, node=name, uuid=None, healthy=True, unmanaged_memory_mib=0)  # what is one machine's own
        for g in node.gpus
    )
    return changed(node, name=name, gpus=gpus, schedulable=True)


def _fresh_names(like: str, taken: Iterable[str]) -> Iterator[str]:
    """Names that follow the last of the same series: after a0 and a07 comes a08."""
    stem, digits = re.fullmatch(r"(.*?)(\d*)", like, re.ASCII | re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    series = re.compile(re.escape(stem) + r"(\d{1,18})", re.ASCII)
    last = max((int(m[1]) for name in taken if (m := series.fullmatch(name))), default=0)
    while True:
        last += 1
        yield stem + str(last).zfill(len(digits))


def remove_node(snapshot: Snapshot, name: str) -> Snapshot:
    """Take a node away; the jobs that run on it are queued again."""
    gone = _node(snapshot, name)
    places = {name, *(g.id for g in gone.gpus)}
    requeued = tuple(
        changed(job, running_on=(), started_s=None) if places & set(job.running_on) else job
        for job in snapshot.jobs
    )
    nodes = tuple(n for n in snapshot.cluster.nodes if n is not gone)
    return changed(snapshot, jobs=requeued, cluster=changed(snapshot.cluster, nodes=nodes))


def drain_node(snapshot: Snapshot, name: str) -> Snapshot:
    """Let a node take no new jobs; what runs there stays."""
    drained = changed(_node(snapshot, name), schedulable=False)
    return with_nodes(snapshot, (drained if n.name == name else n for n in snapshot.cluster.nodes))


def with_job(snapshot: Snapshot, job_id: str, **fields: Any) -> Snapshot:
    """The snapshot in which one job differs."""
    edited = changed(_job(snapshot, job_id), **fields)
    return changed(snapshot, jobs=tuple(edited if j.id == job_id else j for j in snapshot.jobs))


def move_job(snapshot: Snapshot, job_id: str, places: Iterable[str]) -> Snapshot:
    """The snapshot in which a job runs elsewhere; with no place, it waits in the queue."""
    return with_job(snapshot, job_id, running_on=tuple(places))


def add_jobs(snapshot: Snapshot, jobs: Iterable[Job]) -> Snapshot:
    """The snapshot with more jobs, after those it has."""
    return changed(snapshot, jobs=(*snapshot.jobs, *jobs))


def remove_jobs(snapshot: Snapshot, job_ids: Iterable[str]) -> Snapshot:
    """The snapshot without some of its jobs."""
    gone = {_job(snapshot, job_id).id for job_id in job_ids}
    return changed(snapshot, jobs=tuple(j for j in snapshot.jobs if j.id not in gone))


def _node(snapshot: Snapshot, name: str) -> Node:
    try:
        return snapshot.cluster.node_by_name[name]
    except KeyError:
        raise ValueError(f"no node is called {name!r}") from None


def _job(snapshot: Snapshot, job_id: str) -> Job:
    try:
        return snapshot.job_by_id[job_id]
    except KeyError:
        raise ValueError(f"no job is called {job_id!r}") from None
