"""How much jobs that share a GPU slow each other down: directed, set-wise, never below 1.

``utilisation`` follows Horus (Yeung et al., TPDS 33(1), 2022): the sum of the tenants' GPU utilisations is a proxy
for interference, flat up to 100 % and linear beyond. The default slope is that of proportional
time-slicing: two jobs that would each keep the GPU fully busy run at half speed, so 100 points of excess cost
a slowdown of 2. It is directed: of the pressure, a victim feels the part that its neighbours make.

``table`` uses measured directed pairs. For three or more tenants the excesses add; the co-tenants whose pair with
the victim is not in the table contribute what ``utilisation`` predicts for the victim beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from planner.gpu_models import canonical_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.policy import InterferenceSpec


@dataclass(frozen=True)
class Tenant:
    """What an interference model may know of a job. None: unknown."""

    profile: str | None
    utilisation_pct: float | None


class InterferenceModel(Protocol):
    """Predicts slowdowns; ``None`` or NaN means the tenants must not share, or nothing is known."""

    @property
    def cap(self) -> float:
        """No finite slowdown is larger."""
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
    hinge = UtilisationModel(spec.threshold_pct, spec.slope, spec.cap)
    return hinge if spec.kind == "utilisation" else TableModel.of(spec, hinge)


def slowdown(
    model: InterferenceModel, gpu_model: str, victim: Tenant, others: Sequence[Tenant]
) -> float | None:
    """One victim's slowdown; 1 when alone, None if they must not share or nothing is known."""
    if not others:
        return 1.0
    value = float(model.slowdowns(gpu_model, [victim], others)[0])
    return None if np.isnan(value) else value


@dataclass(frozen=True)
class UtilisationModel:
    """The hinge on summed utilisation."""

    threshold_pct: float
    slope: float
    cap: float

    def knows(self, tenant: Tenant) -> bool:
        """Its utilisation is known."""
        return tenant.utilisation_pct is not None

    def profile_known(self, profile: str | None) -> bool:
        """Never: only utilisation counts."""
        return False

    def is_measured(self, gpu_model: str, victim: Tenant, other: Tenant) -> bool:
        """Never: it is a model."""
        return False

    def slowdowns(self, gpu_model: str, victims: Sequence[Tenant], others: Sequence[Tenant]) -> np.ndarray:
        """See the module; NaN where a utilisation is unknown."""
        own = np.array([np.nan if t.utilisation_pct is None else t.utilisation_pct for t in victims], float)
        theirs = sum(np.nan if t.utilisation_pct is None else t.utilisation_pct for t in others)
        total = own + theirs
        excess = np.maximum(0.0, total - self.threshold_pct) / 100
        # Two equal jobs feel half of the pressure each, so twice a victim's part is 1 for them.
        felt = 2 * theirs / np.where(total > 0, total, 1)
        return np.minimum(self.cap, 1 + self.slope * excess * felt)


@dataclass(frozen=True)
class TableModel:
    """Measured pairs, with the hinge for the rest."""

    pairs: dict[tuple[str, str, str], float]  # (GPU model, victim, beside) -> slowdown, NaN: must not share
    profiles: frozenset[str]
    hinge: UtilisationModel
    cap: float

    @classmethod
    def of(cls, spec: InterferenceSpec, hinge: UtilisationModel) -> TableModel:
        """From the rows of the specification."""
        pairs = {
            (r.gpu_model, r.profile, r.beside): np.nan if r.slowdown is None else r.slowdown
            for r in spec.rows
        }
        known = frozenset(p for _, victim, beside in pairs for p in (victim, beside))
        worst = max((s for s in pairs.values() if not np.isnan(s)), default=1.0)
        return cls(pairs, known, hinge, max(spec.cap, worst))

    def knows(self, tenant: Tenant) -> bool:
        """Its profile is in the table, or its utilisation is known."""
        return tenant.profile in self.profiles or self.hinge.knows(tenant)

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
        for row, known in zip(found, measured, strict=True):
            excess[known] += np.array([value for value in row if value is not None]) - 1
        # Those of whom the same neighbours are not measured beside them go by the hinge together.
        for mask in () if measured.all() else np.unique(measured.T, axis=0):
            who = np.flatnonzero((mask == measured.T).all(1))
            rest = [other for other, known in zip(others, mask, strict=True) if not known]
            if rest:
                excess[who] += self.hinge.slowdowns(gpu_model, [victims[i] for i in who.tolist()], rest) - 1
        # Python's min would lose a NaN, and with it a "must not share".
        return np.minimum(self.cap, 1 + excess)
