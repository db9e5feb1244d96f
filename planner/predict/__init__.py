"""Snapshot + Policy + PredictorSpec -> Forecast: what each job will use, and for how long.

First version: declared values with the policy's margins. A measured peak larger than the declared memory is
used instead of it; a declared share stands for memory and utilisation where nothing else is stated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.plan import Forecast, JobForecast, Source

if TYPE_CHECKING:
    from planner.model import Job, Snapshot
    from planner.policy import Policy, PredictorSpec


def forecast(snapshot: Snapshot, policy: Policy, predictor: PredictorSpec) -> Forecast:
    """Forecasts of all jobs, in the order of ``snapshot.jobs``."""
    return Forecast(
        jobs=tuple(_job_forecast(job, snapshot, policy) for job in snapshot.jobs),
        predictor=predictor,
    )


def _job_forecast(job: Job, snapshot: Snapshot, policy: Policy) -> JobForecast:
    memory, memory_source = _memory(job, snapshot.carryover.memory_peaks.get(job.id), policy)
    utilisation, utilisation_source = _utilisation(job)
    remaining, upper = _remaining(job, snapshot.now_s, policy)
    return JobForecast.model_construct(
        job_id=job.id,
        gpu_memory_mib=memory,
        memory_source=memory_source,
        gpu_utilisation_pct=utilisation,
        utilisation_source=utilisation_source,
        remaining_s=remaining,
        remaining_p90_s=upper,
        remaining_p95_s=upper,
    )


def _memory(job: Job, peak_mib: int | None, policy: Policy) -> tuple[int | None, Source | None]:
    """Declared, unless a measured peak with its margin is larger."""
    declared = job.gpu_memory_mib
    if peak_mib is not None:
        measured = math.ceil(peak_mib * (1 + policy.memory_peak_margin) - 1e-6)
        if declared is None or measured > declared:
            return measured, "measured"
    if declared is not None:
        return declared, "declared"
    return None, ("share" if job.gpu_share_milli is not None else None)


def _utilisation(job: Job) -> tuple[float | None, Source | None]:
    """Declared, held to the declared share; a share alone stands for itself."""
    share_pct = None if job.gpu_share_milli is None else job.gpu_share_milli / 10
    if job.gpu_utilisation_pct is not None:
        declared = job.gpu_utilisation_pct
        return (declared if share_pct is None else min(declared, share_pct)), "declared"
    return (share_pct, "share") if share_pct is not None else (None, None)


def _remaining(job: Job, now_s: float, policy: Policy) -> tuple[float | None, float | None]:
    """Remaining time alone on the fastest model: the middle, and an upper value for p90 and p95.

    Never below one epoch: what is about to end is decided again then. The time limit bounds the upper value,
    because the job is ended there.
    """
    elapsed = max(0.0, now_s - job.started_s) if job.running and job.started_s is not None else 0.0
    limit = None if job.time_limit_s is None else max(policy.epoch_s, job.time_limit_s - elapsed)
    if job.duration_s is None:
        return None, limit

    def left(duration_s: float) -> float:
        rest = duration_s * (1 - job.progress) if job.progress is not None else duration_s - elapsed
        return max(policy.epoch_s, rest)

    upper = left(job.duration_s * (1 + policy.duration_margin))
    return left(job.duration_s), upper if limit is None else min(upper, limit)
