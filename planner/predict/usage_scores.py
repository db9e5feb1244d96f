"""How good predictions of usage are: errors of memory and utilisation, beside a constant and Horus's formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.predict.memory import horus_mib
from planner.predict.model_file import Score
from planner.predict.usage import METHOD, UsageModel
from planner.predict.usage_rows import Measured

#: Readings of utilisation are whole percents.
READING_PCT = 0.5


@dataclass(frozen=True)
class Judged:
    """What a fit says of rows it did not see, and what was measured; shapes (rows,), NaN: not measured or not said."""

    rows: tuple[Measured, ...]
    memory: np.ndarray
    memory_p95: np.ndarray
    busy: np.ndarray
    busy_p95: np.ndarray
    memory_constant: np.ndarray
    busy_constant: np.ndarray

    @property
    def measured_memory(self) -> np.ndarray:
        """MiB."""
        return np.array([r.memory_mib or np.nan for r in self.rows])

    @property
    def measured_busy(self) -> np.ndarray:
        """Percent."""
        return np.array([np.nan if r.utilisation_pct is None else r.utilisation_pct for r in self.rows])


def judge(model: UsageModel, rows: Sequence[Measured], seen: Sequence[Measured]) -> Judged:
    """Predictions of rows, and the medians of ``seen`` to compare with."""
    said = []
    for r in rows:
        gpu = None if r.utilisation_pct is None else r.gpu_model
        u = model.predict(r.features, gpu, training=r.training, mixed=r.mixed, tensorflow=r.tensorflow)
        bare, slack = (model.memory.context_mib, model.memory.slack_mib) if r.bare else (0.0, 0.0)
        said.append(
            (u.memory_mib - bare, u.memory_p95_mib - bare - slack, u.utilisation_pct, u.utilisation_p95_pct)
        )
    memory, memory_p95, busy, busy_p95 = np.array(said, float).reshape(len(rows), 4).T
    memories = [r.memory_mib for r in seen if r.memory_mib]
    shares = [r.utilisation_pct for r in seen if r.utilisation_pct is not None]
    return Judged(
        rows=tuple(rows),
        memory=memory,
        memory_p95=memory_p95,
        busy=busy,
        busy_p95=busy_p95,
        memory_constant=np.full(len(rows), np.median(memories) if memories else np.nan),
        busy_constant=np.full(len(rows), np.median(shares) if shares else np.nan),
    )


def scores_of(split: str, parts: Sequence[Judged]) -> list[Score]:
    """Errors of the model and of what it is compared with: all rows, by GPU model, by family, by architecture."""
    rows = [r for p in parts for r in p.rows]
    groups = {
        "all": np.ones(len(rows), bool),
        **{
            f"GPU {g}": np.array([r.gpu_model == g for r in rows])
            for g in sorted({r.gpu_model for r in rows})
        },
        **{f"family {f}": np.array([r.family == f for r in rows]) for f in sorted({r.family for r in rows})},
        **{f"model {n}": np.array([r.name == n for r in rows]) for n in sorted({r.name for r in rows})},
    }
    whole = {
        name: np.concatenate([getattr(p, name) for p in parts])
        for name in (
            "memory", "memory_p95", "busy", "busy_p95", "memory_constant", "busy_constant", "measured_memory", "measured_busy",
        )
    }  # fmt: skip
    horus = np.array([horus_mib(r.features) for r in rows])
    out = []
    for group, which in groups.items():
        w = {name: values[which] for name, values in whole.items()}
        methods = {
            METHOD: _memory_errors(w["memory"], w["measured_memory"], w["memory_p95"])
            | _busy_errors(w["busy"], w["measured_busy"], w["busy_p95"]),
            "constant": _memory_errors(w["memory_constant"], w["measured_memory"])
            | _busy_errors(w["busy_constant"], w["measured_busy"]),
            "horus": _memory_errors(horus[which], w["measured_memory"]),
        }
        for method, values in methods.items():
            out.append(Score(split=split, group=group, method=method, rows=int(which.sum()), values=values))
    return out


def _memory_errors(
    said: np.ndarray, measured: np.ndarray, p95: np.ndarray | None = None
) -> dict[str, float | None]:
    """Median absolute relative error, and the shares under-estimated."""
    known = ~(np.isnan(measured) | np.isnan(said))
    if not known.any():
        return {}
    values: dict[str, float | None] = {
        "memory_median_error": float(np.median(np.abs(said / measured - 1)[known])),
        "memory_under_p50": float((said < measured)[known].mean()),
    }
    if p95 is not None:
        values["memory_under_p95"] = float((p95 < measured)[known].mean())
        values["memory_p95_over_measured"] = float(np.median((p95 / measured)[known]))
    return values


def _busy_errors(
    said: np.ndarray, measured: np.ndarray, p95: np.ndarray | None = None
) -> dict[str, float | None]:
    """RMSLE of 1 + the share and of 1 + the percentage (Horus does not say which), and mean absolute error in points."""
    known = ~(np.isnan(measured) | np.isnan(said))
    if not known.any():
        return {}
    u, m = said[known], measured[known]
    values: dict[str, float | None] = {
        "rmsle_share": float(np.sqrt(((np.log1p(u / 100) - np.log1p(m / 100)) ** 2).mean())),
        "rmsle_percent": float(np.sqrt(((np.log1p(u) - np.log1p(m)) ** 2).mean())),
        "mae_points": float(np.abs(u - m).mean()),
    }
    if p95 is not None:
        values["busy_under_p95"] = float((p95[known] < m - READING_PCT).mean())
    return values
