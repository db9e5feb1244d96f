"""A plan turned round into who is where, in the model's own values: ids, floats, MiB.

Built once, then read by every rule. What a job needs, how fast it runs and how its GPUs are linked are worked out here
from the snapshot and the forecast, with arithmetic of our own: nothing of the formulation or of the
solvers is used, so that their mistakes cannot hide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from planner.model import Gpu, Job, Node, Snapshot
from planner.plan import Assignment, Forecast, JobForecast, Plan
from planner.policy import Policy
from planner.predict.interference import InterferenceModel, Tenant, build, tenant_of

#: Types, speeds, links and slowdowns are rounded to thousandths in the solver's program; here they are not.
ROUNDING = 0.002


@dataclass(frozen=True)
class Finding:
    """One rule that the plan breaks."""

    rule: str
    text: str
    job: str | None = None
    place: str | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Occupant:
    """A job of the plan that runs, with what is known of it. ``newcomer``: it is not there already."""

    job: Job
    forecast: JobForecast
    assignment: Assignment
    newcomer: bool
    kind: int  # number of its tenant, the same for tenants that an interference model cannot tell apart
    alone: bool
    on: dict[str, int]  # node -> its GPUs there, 0 for a job without GPUs

    @property
    def size(self) -> float:
        """GPUs it counts as: shares as declared."""
        return self.job.gpus * (self.job.gpu_share_milli or 1000) / 1000

    @classmethod
    def at_home(cls, job: Job, on: dict[str, int]) -> Occupant:
        """A running job where it is now, for what only asks where that is and what its host gives it."""
        assignment = Assignment(job_id=job.id, gpu_ids=job.running_on if job.gpus else (), nodes=tuple(on))
        return cls(job, JobForecast(job_id=job.id), assignment, newcomer=False, kind=-1, alone=False, on=on)


@dataclass(frozen=True)
class Scene:
    """The cluster as the plan leaves it."""

    plan: Plan
    snapshot: Snapshot
    forecast: Forecast
    policy: Policy
    model: InterferenceModel
    occupants: dict[str, Occupant] = field(default_factory=dict)
    on_gpu: dict[str, list[Occupant]] = field(default_factory=dict)
    on_node: dict[str, list[Occupant]] = field(default_factory=dict)
    tenants: list[Tenant] = field(default_factory=list)
    _slowdowns: dict[tuple[str, tuple[int, ...]], tuple[float | None, ...]] = field(default_factory=dict)
    _on_gpu: dict[str, dict[str, float | None]] = field(default_factory=dict)
    _fastest: dict[object, float] = field(default_factory=dict)

    # ---- who is where ----

    @cached_property
    def newcomers(self) -> list[Occupant]:
        """Jobs that start or move."""
        return [o for o in self.occupants.values() if o.newcomer]

    @cached_property
    def entered_gpus(self) -> list[tuple[Gpu, Node, list[Occupant]]]:
        """GPUs with a newcomer, the only ones whose rules bind: residents that break one are left alone."""
        gpus, nodes = self.snapshot.cluster.gpu_by_id, self.snapshot.cluster.node_by_name
        return [
            (gpus[g], nodes[gpus[g].node], there)
            for g, there in self.on_gpu.items()
            if any(o.newcomer for o in there)
        ]

    @property
    def shared_gpus(self) -> Iterator[tuple[Gpu, Node, list[Occupant]]]:
        """Entered GPUs with two or more tenants."""
        return ((gpu, node, there) for gpu, node, there in self.entered_gpus if len(there) > 1)

    @cached_property
    def entered_nodes(self) -> list[tuple[Node, list[Occupant]]]:
        """Nodes that a newcomer uses."""
        nodes = self.snapshot.cluster.node_by_name
        return [(nodes[n], there) for n, there in self.on_node.items() if any(o.newcomer for o in there)]

    # ---- memory ----

    def memory_mib(self, occupant: Occupant, gpu: Gpu) -> int | None:
        """GPU memory the job needs on each GPU like this; the largest of what is known, None if nothing is."""
        return need_mib(self, occupant.job, occupant.forecast, gpu)

    def capacity_mib(self, gpu: Gpu) -> int | None:
        """What a GPU's tenants together may be given, oversubscription included; None: it does not say."""
        node = self.snapshot.cluster.node_by_name[gpu.node]
        return None if gpu.memory_mib is None else int(gpu.memory_mib * node.memory_factor)

    def margin_mib(self, node: Node) -> int:
        """Kept free where two or more share and nothing holds them to their memory."""
        return self.policy.memory_margin_mib if node.isolation == "none" else 0

    def max_tenants(self, gpu: Gpu, node: Node) -> int | None:
        """Jobs that may be on a GPU; None: no limit."""
        if gpu.is_mig:
            return 1
        return node.max_tenants if node.max_tenants is not None else self.policy.max_tenants

    # ---- speed ----

    def slowdowns(self, gpu_model: str, there: list[Occupant]) -> dict[str, float | None]:
        """Predicted slowdown of each tenant beside the others; None: must not share, or nothing is known."""
        ranked = sorted(there, key=lambda o: o.kind)
        key = (gpu_model, tuple(o.kind for o in ranked))
        found = self._slowdowns.get(key)
        if found is None:
            found = self._slowdowns[key] = self._predict(*key)
        return {o.job.id: s for o, s in zip(ranked, found, strict=True)}

    def _predict(self, gpu_model: str, kinds: tuple[int, ...]) -> tuple[float | None, ...]:
        if len(kinds) == 1:
            return (1.0,)
        tenants = [self.tenants[k] for k in kinds]
        found = []
        for i, victim in enumerate(tenants):
            s = float(self.model.slowdowns(gpu_model, [victim], tenants[:i] + tenants[i + 1 :])[0])
            found.append(None if math.isnan(s) else s)
        return tuple(found)

    def slowdowns_on(self, gpu: Gpu) -> dict[str, float | None]:
        """Predicted slowdowns of all tenants of a GPU."""
        found = self._on_gpu.get(gpu.id)
        if found is None:
            found = self._on_gpu[gpu.id] = self.slowdowns(gpu.model, self.on_gpu[gpu.id])
        return found

    def slowdown(self, occupant: Occupant) -> float | None:
        """At its slowest GPU."""
        worst = 1.0
        for g in occupant.assignment.gpu_ids:
            if len(self.on_gpu[g]) > 1:
                s = self.slowdowns_on(self.snapshot.cluster.gpu_by_id[g])[occupant.job.id]
                if s is None:
                    return None
                worst = max(worst, s)
        return worst

    def stretch(self, occupant: Occupant) -> float:
        """Time by GPU model and links against the fastest allowed model: k / v."""
        return self.link(occupant) / self.speed(occupant)

    def speed(self, occupant: Occupant) -> float:
        """v: speed on its GPU model against the fastest allowed one; 1 without GPUs, or where nothing is known."""
        job, gpu_ids = occupant.job, occupant.assignment.gpu_ids
        if not gpu_ids:
            return 1.0
        key = (
            job.profile,
            job.gpu_models,
            job.gpus > 1,
            job.gpu_share_milli,
            occupant.forecast.gpu_memory_mib,
        )
        if key not in self._fastest:
            self._fastest[key] = max(
                (
                    speed_of(self, job, g.model)
                    for g, node in self._one_gpu_of_each_kind
                    if could_take(self, job, occupant.forecast, g, node)
                ),
                default=0.0,
            )
        own = speed_of(self, job, self.snapshot.cluster.gpu_by_id[gpu_ids[0]].model)
        return min(1.0, own / self._fastest[key]) if self._fastest[key] else 1.0

    def link(self, occupant: Occupant) -> float:
        """k: run time factor of the slowest link between its GPUs, the job's own where it is predicted; 1 without GPUs."""
        gpu_ids = occupant.assignment.gpu_ids
        if not gpu_ids:
            return 1.0
        links = occupant.forecast.links or self.forecast.predictor.links
        if len(gpu_ids) <= 1:
            return links.nvlink
        gpus = [self.snapshot.cluster.gpu_by_id[g] for g in gpu_ids]
        if len({g.node for g in gpus}) > 1:
            return links.network
        indices = {g.index for g in gpus}
        node = self.snapshot.cluster.node_by_name[gpus[0].node]
        return links.nvlink if any(indices <= set(group) for group in node.links) else links.pcie

    @cached_property
    def _one_gpu_of_each_kind(self) -> list[tuple[Gpu, Node]]:
        kinds: dict[object, tuple[Gpu, Node]] = {}
        for node in self.snapshot.cluster.nodes:
            about = (node.memory_factor, node.sharing, node.max_tenants, node.isolation)
            for gpu in node.gpus:
                kinds.setdefault((gpu.model, gpu.memory_mib, gpu.shards, gpu.is_mig, about), (gpu, node))
        return list(kinds.values())


def need_mib(scene: Scene, job: Job, forecast: JobForecast, gpu: Gpu) -> int | None:
    """The largest of declared, predicted and measured memory (with its margin); a share of what the GPU can give."""
    peak = scene.snapshot.carryover.memory_peaks.get(job.id)
    known = [m for m in (job.gpu_memory_mib, forecast.gpu_memory_mib) if m is not None]
    if peak is not None:
        known.append(math.ceil(peak * (1 + scene.policy.memory_peak_margin) - 1e-9))
    capacity = scene.capacity_mib(gpu)
    if job.gpu_share_milli is not None and capacity is not None:
        margin = scene.margin_mib(scene.snapshot.cluster.node_by_name[gpu.node])
        known.append(job.gpu_share_milli * (capacity - margin) // 1000)
    return max(known, default=None)


def speed_of(scene: Scene, job: Job, gpu_model: str) -> float:
    """Speed of the job's profile on a GPU model, as the predictor states it; 1 where it does not."""
    table = scene.forecast.predictor.speed
    row = table.get(job.profile or "", table.get("*", {}))
    return next((v for name, v in row.items() if name.lower() == gpu_model), 1.0)


def could_take(scene: Scene, job: Job, forecast: JobForecast, gpu: Gpu, node: Node) -> bool:
    """The GPU, if it were empty and healthy, could run the job: model, partition, memory, shards."""
    if job.gpu_models and gpu.model not in job.gpu_models:
        return False
    if gpu.is_mig and (gpu.model not in job.gpu_models or job.gpus > 1):
        return False
    need, capacity = need_mib(scene, job, forecast, gpu), scene.capacity_mib(gpu)
    if need is None:
        return True
    if capacity is None or need > capacity:
        return False
    limit = scene.max_tenants(gpu, node)
    return not (node.sharing == "mps" and limit is not None and need > capacity // limit)


def scene_of(plan: Plan, snapshot: Snapshot, forecast: Forecast, policy: Policy) -> Scene:
    """Turn a well-formed plan round."""
    scene = Scene(plan, snapshot, forecast, policy, build(forecast.predictor.interference))
    known = {f.job_id: f for f in forecast.jobs}
    number: dict[Tenant, int] = {}
    for assignment in plan.assignments:
        job = snapshot.job_by_id[assignment.job_id]
        about = known.get(job.id) or JobForecast(job_id=job.id)
        tenant = tenant_of(job, about)
        if tenant not in number:
            number[tenant] = len(number)
            scene.tenants.append(tenant)
        occupant = Occupant(
            job=job,
            forecast=about,
            assignment=assignment,
            newcomer=_places(job, assignment) != set(job.running_on),
            kind=number[tenant],
            alone=_alone(job, about, tenant, scene),
            on=_counts(job, assignment, snapshot),
        )
        scene.occupants[job.id] = occupant
        for g in assignment.gpu_ids:
            scene.on_gpu.setdefault(g, []).append(occupant)
        for n in occupant.on:
            scene.on_node.setdefault(n, []).append(occupant)
    return scene


def _places(job: Job, assignment: Assignment) -> set[str]:
    return set(assignment.gpu_ids if job.gpus else assignment.nodes)


def _alone(job: Job, about: JobForecast, tenant: Tenant, scene: Scene) -> bool:
    """It did not consent, or too little is known of it."""
    measured = job.id in scene.snapshot.carryover.memory_peaks
    unknown = about.gpu_memory_mib is None and job.gpu_share_milli is None and not measured
    return not job.shareable or job.exclusive or unknown or not scene.model.knows(tenant)


def _counts(job: Job, assignment: Assignment, snapshot: Snapshot) -> dict[str, int]:
    if not job.gpus:
        return dict.fromkeys(assignment.nodes, 0)
    counts: dict[str, int] = {}
    for g in assignment.gpu_ids:
        node = snapshot.cluster.gpu_by_id[g].node
        counts[node] = counts.get(node, 0) + 1
    return counts
