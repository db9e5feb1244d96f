"""Snapshot + Policy + PredictorSpec -> Forecast: what each job will use, and for how long.

Declared values come first, with the policy's margins; fitted models are asked for what is not declared. A measured peak
larger than the memory otherwise known is used instead of it; a declared share stands for memory and utilisation where nothing
else is stated. The forecast's own predictor holds what the models said, so that a plan can be explained and planned again without them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.plan import Forecast, JobForecast, Source
from planner.policy import FittedSpec, PredictedJob, UsageSpec

if TYPE_CHECKING:
    from planner.model import Job, Snapshot
    from planner.policy import Policy, PredictorSpec

NOTHING = PredictedJob()


def forecast(snapshot: Snapshot, policy: Policy, predictor: PredictorSpec) -> Forecast:
    """Forecasts of all jobs, in the order of ``snapshot.jobs``.

    Raises
    ------
    InputError
        A model that the predictor names cannot be read.
    """
    predictor, warnings = _resolved(snapshot, policy, predictor)
    said = predictor.predicted
    return Forecast(
        jobs=tuple(_job_forecast(job, snapshot, policy, said.get(job.id, NOTHING)) for job in snapshot.jobs),
        predictor=predictor,
        warnings=warnings,
    )


def _resolved(
    snapshot: Snapshot, policy: Policy, predictor: PredictorSpec
) -> tuple[PredictorSpec, tuple[str, ...]]:
    """The predictor with what its models say in place of them. The models are slow to import, and few plans need one."""
    warnings: tuple[str, ...] = ()
    if predictor.duration.path or predictor.usage.path:
        from planner.predict.from_models import said

        predicted, warnings = said(snapshot, predictor)
        predictor = predictor.model_copy(
            update={"predicted": predicted, "duration": FittedSpec(), "usage": UsageSpec()}
        )
    spec = predictor.interference
    if spec.kind == "model":
        from planner.predict.resolve import as_table

        spec, more = as_table(spec, snapshot, policy)
        warnings += more
    if policy.slowdown_quantile == "p90":
        warnings += (
            "slowdowns and ends of this plan are those by p90, not the mean (policy.slowdown_quantile)",
        )
    upper = policy.slowdown_margin if policy.slowdown_quantile == "p90" else 0.0
    spec = spec.model_copy(update={"margin": upper})
    return predictor.model_copy(update={"interference": spec}), warnings


def _job_forecast(job: Job, snapshot: Snapshot, policy: Policy, said: PredictedJob) -> JobForecast:
    memory, memory_source = _memory(job, snapshot.carryover.memory_peaks.get(job.id), policy, said)
    utilisation, utilisation_source = _utilisation(job, said)
    remaining, p90, p95 = _remaining(job, snapshot.now_s, policy, said)
    return JobForecast.model_construct(
        job_id=job.id,
        gpu_memory_mib=memory,
        memory_source=memory_source,
        gpu_utilisation_pct=utilisation,
        utilisation_source=utilisation_source,
        remaining_s=remaining,
        remaining_p90_s=p90,
        remaining_p95_s=p95,
        links=said.links if job.gpus > 1 else None,
    )


def _memory(
    job: Job, peak_mib: int | None, policy: Policy, said: PredictedJob
) -> tuple[int | None, Source | None]:
    """Declared or else predicted, unless a measured peak with its margin is larger."""
    known, source = job.gpu_memory_mib, "declared"
    if known is None and job.gpu_share_milli is None:
        known, source = said.gpu_memory_mib, "predicted"
    if peak_mib is not None:
        measured = math.ceil(peak_mib * (1 + policy.memory_peak_margin) - 1e-6)
        if known is None or measured > known:
            return measured, "measured"
    if known is not None:
        return known, source  # type: ignore[return-value]  # one of the two above
    return None, ("share" if job.gpu_share_milli is not None else None)


def _utilisation(job: Job, said: PredictedJob) -> tuple[float | None, Source | None]:
    """Declared, held to the declared share; a share alone stands for itself; else predicted."""
    share_pct = None if job.gpu_share_milli is None else job.gpu_share_milli / 10
    if job.gpu_utilisation_pct is not None:
        declared = job.gpu_utilisation_pct
        return (declared if share_pct is None else min(declared, share_pct)), "declared"
    if share_pct is not None:
        return share_pct, "share"
    return (None, None) if said.gpu_utilisation_pct is None else (said.gpu_utilisation_pct, "predicted")


def _remaining(
    job: Job, now_s: float, policy: Policy, said: PredictedJob
) -> tuple[float | None, float | None, float | None]:
    """Remaining time alone on the fastest model: the middle, p90 and p95.

    Never below one epoch: what is about to end is decided again then. The time limit bounds the upper values,
    because the job is ended there. Of a declared duration p90 and p95 are the same.
    """
    elapsed = max(0.0, now_s - job.started_s) if job.running and job.started_s is not None else 0.0
    limit = None if job.time_limit_s is None else max(policy.epoch_s, job.time_limit_s - elapsed)

    def left(duration_s: float) -> float:
        rest = duration_s * (1 - job.progress) if job.progress is not None else duration_s - elapsed
        return max(policy.epoch_s, rest)

    def bounded(upper_s: float) -> float:
        return upper_s if limit is None else min(upper_s, limit)

    if job.duration_s is not None:
        upper = bounded(left(job.duration_s * (1 + policy.duration_margin)))
        return bounded(left(job.duration_s)), upper, upper
    told = said.remaining_s, said.remaining_p90_s, said.remaining_p95_s
    if told[0] is None or told[1] is None or told[2] is None:
        return None, limit, limit
    middle, p90, p95 = (max(policy.epoch_s, t) for t in told if t is not None)
    return bounded(middle), bounded(max(middle, p90)), bounded(max(middle, p95))
