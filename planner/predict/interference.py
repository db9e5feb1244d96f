"""How much jobs that share a GPU slow each other down: directed, set-wise, never below 1.

``utilisation`` follows Horus (Yeung et al., TPDS 33(1), 2022): the sum of the tenants' GPU utilisations is a proxy
for interference, flat up to 100 % and linear beyond. The default slope is that of proportional
time-slicing: two jobs that would each keep the GPU fully busy run at half speed, so 100 points of excess cost
a slowdown of 2. It is directed: of the pressure, a victim feels the part that its neighbours make.

Two more components count where they are known, each with a sum of its own, as in Zhao and Wu (arXiv 2112.13354): memory
bandwidth, like the utilisation (the more contended of the two decides), and CPUs, which are added: no effect until the demand
passes the physical cores that come with a GPU.

``time-sharing`` (``planner.predict.timesharing``) has no threshold: jobs meet at the GPU by chance, the more often the
longer each is there.

``table`` uses measured directed pairs, those of few observations drawn towards the fallback's prediction: n measurements count
n, the prediction as many as ``shrinkage`` says. For three or more tenants the excesses add; the co-tenants whose pair with
the victim is not in the table contribute what the table's fallback predicts for the victim beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from planner.gpu_models import canonical_model
from planner.predict import timesharing
from planner.predict.coefficients import contention_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.model import Job
    from planner.plan import JobForecast
    from planner.policy import InterferenceSpec


@dataclass(frozen=True)
class Tenant:
    """What an interference model may know of a job. None: unknown."""

    profile: str | None
    utilisation_pct: float | None
    share: bool = False  # it is held to its utilisation
    bandwidth_pct: float | None = None
    cpus: float | None = None  # for each of its GPUs


def tenant_of(job: Job, forecast: JobForecast) -> Tenant:
    """A job as interference models see it."""
    return Tenant(
        profile=job.profile,
        utilisation_pct=forecast.gpu_utilisation_pct,
        share=job.gpu_share_milli is not None,
        bandwidth_pct=job.gpu_bandwidth_pct,
        cpus=job.cpus / job.gpus if job.gpus and job.cpus else None,
    )


class InterferenceModel(Protocol):
    """Predicts slowdowns; ``None`` or NaN means the tenants must not share, or nothing is known."""

    @property
    def cap(self) -> float:
        """No finite slowdown is larger."""
        ...

    @property
    def uses(self) -> frozenset[str]:
        """Which of a tenant's fields can change a prediction, beside its utilisation."""
        ...

    def knows(self, tenant: Tenant) -> bool:
        """There is a basis for predicting this tenant beside others."""
        ...

    def profile_known(self, profile: str | None) -> bool:
        """The model tells this profile from others."""
        ...

    def slowdowns(self, gpu_model: str, victims: Sequence[Tenant], others: Sequence[Tenant]) -> np.ndarray:
        """Slowdown of each victim beside all of ``others``; shape (len(victims),), >= 1, NaN for must not."""
        ...

    def is_measured(self, gpu_model: str, victim: Tenant, other: Tenant) -> bool:
        """The pair comes from a measurement."""
        ...


def build(spec: InterferenceSpec) -> InterferenceModel:
    """The model that the predictor names."""
    other: UtilisationModel | TimeSharingModel
    formula = spec.kind if spec.kind in ("utilisation", "time-sharing") else spec.fallback
    if formula == "utilisation":
        other = UtilisationModel(
            spec.threshold_pct,
            spec.slope,
            spec.cap,
            spec.bandwidth_threshold_pct,
            spec.bandwidth_slope,
            spec.cores_per_gpu,
            spec.cpu_slope,
            spec.margin,
        )
    else:
        other = TimeSharingModel(spec.contention, spec.cap, spec.margin)
    return TableModel.of(spec, other) if spec.kind == "table" else other


def slowdown(
    model: InterferenceModel, gpu_model: str, victim: Tenant, others: Sequence[Tenant]
) -> float | None:
    """One victim's slowdown; 1 when alone, None if they must not share or nothing is known."""
    if not others:
        return 1.0
    value = float(model.slowdowns(gpu_model, [victim], others)[0])
    return None if np.isnan(value) else value


@dataclass(frozen=True)
class Formula:
    """A model that needs no measured pairs: only what each job uses counts."""

    def knows(self, tenant: Tenant) -> bool:
        """Its utilisation is known."""
        return tenant.utilisation_pct is not None

    def profile_known(self, profile: str | None) -> bool:
        """Never: only what it uses counts."""
        return False

    def is_measured(self, gpu_model: str, victim: Tenant, other: Tenant) -> bool:
        """Never: it is a model."""
        return False


@dataclass(frozen=True)
class UtilisationModel(Formula):
    """The hinge on summed utilisation, with those on memory bandwidth and on CPUs."""

    threshold_pct: float
    slope: float
    cap: float
    bandwidth_threshold_pct: float = 100
    bandwidth_slope: float = 1
    cores_per_gpu: float | None = None
    cpu_slope: float = 1
    margin: float = 0

    @property
    def uses(self) -> frozenset[str]:
        """Bandwidth, and CPUs if it is said how many cores there are."""
        return frozenset({"bandwidth_pct"} if self.cores_per_gpu is None else {"bandwidth_pct", "cpus"})

    def slowdowns(self, gpu_model: str, victims: Sequence[Tenant], others: Sequence[Tenant]) -> np.ndarray:
        """See the module; NaN where a utilisation is unknown, no effect of what else is unknown."""
        use = _felt(
            [t.utilisation_pct for t in victims], [t.utilisation_pct for t in others], self.threshold_pct
        )
        bandwidth = _felt(
            [t.bandwidth_pct for t in victims],
            [t.bandwidth_pct or 0.0 for t in others],
            self.bandwidth_threshold_pct,
        )
        loss = np.maximum(self.slope * use, np.nan_to_num(self.bandwidth_slope * bandwidth))
        if self.cores_per_gpu is not None:
            demand = np.array([t.cpus or 0 for t in victims]) + sum(t.cpus or 0 for t in others)
            loss = loss + self.cpu_slope * np.maximum(0, demand - self.cores_per_gpu) / self.cores_per_gpu
        return np.minimum(self.cap, 1 + loss * (1 + self.margin))


def _felt(victims: list[float | None], others: list[float | None], threshold_pct: float) -> np.ndarray:
    """What victims feel of the excess of the sum over a threshold, as a part of a GPU; NaN where a value is unknown."""
    own = np.array([np.nan if v is None else v for v in victims], float)
    theirs = sum(np.nan if v is None else v for v in others)
    total = own + theirs
    excess = np.maximum(0.0, total - threshold_pct) / 100
    # Two equal jobs feel half of the pressure each, so twice a victim's part is 1 for them.
    return excess * 2 * theirs / np.where(total > 0, total, 1)


@dataclass(frozen=True)
class TimeSharingModel(Formula):
    """Turns on the GPU, by how long each job keeps it busy."""

    contention: float | None  # None: the shipped value for the GPU model
    cap: float
    margin: float = 0

    @property
    def uses(self) -> frozenset[str]:
        """Declared shares: jobs that are held to theirs do not get into each other's way."""
        return frozenset({"share"})

    def slowdowns(self, gpu_model: str, victims: Sequence[Tenant], others: Sequence[Tenant]) -> np.ndarray:
        """See the module; NaN where a utilisation is unknown."""
        felt = contention_of(gpu_model) if self.contention is None else self.contention
        held = sum(t.utilisation_pct or 0 for t in others if t.share)
        out = np.empty(len(victims))
        for share in {v.share for v in victims}:
            who = [i for i, v in enumerate(victims) if v.share == share]
            busy = np.array([_part(victims[i]) for i in who])
            whole = timesharing.slowdowns(busy, [_part(o) for o in others], felt)
            if share and held:  # it feels the others with a share only where all of them do not fit
                free = timesharing.slowdowns(busy, [_part(o) for o in others if not o.share], felt)
                whole = np.where(
                    100 * busy + held <= 100 + 1e-6, np.where(np.isnan(whole), whole, free), whole
                )
            out[who] = whole
        return np.minimum(self.cap, 1 + (out - 1) * (1 + self.margin))


def _part(tenant: Tenant) -> float:
    return np.nan if tenant.utilisation_pct is None else min(1.0, tenant.utilisation_pct / 100)


@dataclass(frozen=True)
class TableModel:
    """Measured pairs, with a formula for the rest."""

    pairs: dict[tuple[str, str, str], float]  # (GPU model, victim, beside) -> slowdown, NaN: must not share
    profiles: frozenset[str]
    rest: UtilisationModel | TimeSharingModel
    cap: float
    trust: dict[tuple[str, str, str], float] = field(
        default_factory=dict
    )  # weight of a pair of few observations

    @classmethod
    def of(cls, spec: InterferenceSpec, rest: UtilisationModel | TimeSharingModel) -> TableModel:
        """From the rows of the specification; those that a model made have their margin already."""
        more = 1 if spec.rows_from else 1 + spec.margin
        pairs = {
            (r.gpu_model, r.profile, r.beside): np.nan if r.slowdown is None else 1 + (r.slowdown - 1) * more
            for r in spec.rows
        }
        known = frozenset(p for _, victim, beside in pairs for p in (victim, beside))
        worst = max((s for s in pairs.values() if not np.isnan(s)), default=1.0)
        trust = {
            (r.gpu_model, r.profile, r.beside): r.observations / (r.observations + spec.shrinkage)
            for r in spec.rows
            if r.observations is not None and r.slowdown is not None and r.observations + spec.shrinkage > 0
        }
        return cls(pairs, known, rest, max(spec.cap, worst), trust)

    @property
    def uses(self) -> frozenset[str]:
        """Its profile, and what the formula uses."""
        return self.rest.uses | {"profile"}

    def knows(self, tenant: Tenant) -> bool:
        """Its profile is in the table, or its utilisation is known."""
        return tenant.profile in self.profiles or self.rest.knows(tenant)

    def profile_known(self, profile: str | None) -> bool:
        """It is in the table."""
        return profile in self.profiles

    def is_measured(self, gpu_model: str, victim: Tenant, other: Tenant) -> bool:
        """The directed pair is in the table."""
        return (canonical_model(gpu_model), victim.profile or "", other.profile or "") in self.pairs

    def slowdowns(self, gpu_model: str, victims: Sequence[Tenant], others: Sequence[Tenant]) -> np.ndarray:
        """See the module."""
        model = canonical_model(gpu_model)
        pairs = [[(model, v.profile or "", o.profile or "") for v in victims] for o in others]
        found = [[self.pairs.get(pair) for pair in row] for row in pairs]
        measured = np.array([[value is not None for value in row] for row in found], bool)
        measured = measured.reshape(len(others), len(victims))
        excess = np.zeros(len(victims))
        for row, keys, known, other in zip(found, pairs, measured, others, strict=True):
            excess[known] += self._shrunk(row, keys, known, victims, other)
        # Those of whom the same neighbours are not measured beside them go by the formula together.
        for mask in () if measured.all() else np.unique(measured.T, axis=0):
            who = np.flatnonzero((mask == measured.T).all(1))
            rest = [other for other, known in zip(others, mask, strict=True) if not known]
            if rest:
                excess[who] += self.rest.slowdowns(gpu_model, [victims[i] for i in who.tolist()], rest) - 1
        # Python's min would lose a NaN, and with it a "must not share".
        return np.minimum(self.cap, 1 + excess)

    def _shrunk(
        self,
        row: list[float | None],
        keys: list[tuple[str, str, str]],
        known: np.ndarray,
        victims: Sequence[Tenant],
        other: Tenant,
    ) -> np.ndarray:
        """Excess of the measured pairs; of few observations the mean with what the formula predicts, if it can."""
        said = np.array([value for value in row if value is not None]) - 1
        weight = np.array([self.trust.get(key, 1.0) for key, there in zip(keys, known, strict=True) if there])
        if (weight == 1).all():
            return said
        who = [v for v, there in zip(victims, known, strict=True) if there]
        predicted = self.rest.slowdowns(keys[0][0], who, [other]) - 1
        return np.where(np.isnan(predicted), said, weight * said + (1 - weight) * predicted)
