"""What fitted models say of jobs that declare nothing: remaining time from history, usage from history or from the graph.

A job is known by its user, account, name, script or image digest and shape, each key backing off to a coarser one; by its
profile, where that names a known architecture, which also tells what a gang loses to its links. What only all jobs together, or all
of its size, would tell is no forecast: then the value stays unknown, and a job without a memory forecast runs alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.policy import SHIPPED, PredictedJob
from planner.predict import catalogue, communication, duration, keyed, usage, usage_history
from planner.predict.history import normalised
from planner.predict.memory import Training
from planner.predict.model_file import ModelFile, load
from planner.predict.pairs import Work
from planner.quantities import MEMORY_LIMIT_MIB, SECONDS_LIMIT, counted

if TYPE_CHECKING:
    from planner.model import Job, Snapshot
    from planner.policy import Links, PredictorSpec, UsageSpec
    from planner.predict.graph import Features

#: Levels of the history that say no more than a job's size.
USELESS = frozenset({"gpus", "all"})
#: Nothing says how a job is trained; of the usual optimisers this needs the most memory.
TRAINING: Training = "adam"


def said(snapshot: Snapshot, spec: PredictorSpec) -> tuple[dict[str, PredictedJob], tuple[str, ...]]:
    """Predictions by job id, and what is to be told of them; those that the specification holds stay.

    Raises
    ------
    InputError
        A model cannot be read, or is none.
    """
    found = dict(spec.predicted)
    warnings = []
    if spec.duration.path:
        jobs = [j for j in snapshot.jobs if j.duration_s is None and j.id not in found]
        _add(found, jobs, _durations(snapshot, jobs, _duration_model(*_stamp(spec.duration.path))))
        warnings += _unknown(jobs, found, "remaining_s", "duration")
    if spec.usage.path:
        # A gang that declares its usage still has links to ask for.
        jobs = [j for j in snapshot.jobs if (j.gpus > 1 or _lacks(j)) and j.id not in spec.predicted]
        _add(found, jobs, _usages(snapshot, jobs, spec.usage))
        lacking = [j for j in jobs if _lacks(j)]
        warnings += _unknown(lacking, found, "gpu_memory_mib", "usage")
        warnings += _without_room(snapshot, lacking, found)
    return found, tuple(warnings)


def durations(snapshot: Snapshot, path: str) -> list[dict[str, Any]]:
    """What a model of durations says of every job, in order, whether it declares one or not. Raises InputError."""
    model = _duration_model(*_stamp(path))
    keys = {"remaining_s", "remaining_p90_s", "remaining_p95_s", "duration_from"}
    told = _durations(snapshot, snapshot.jobs, model)
    return [
        {"job": job.id, **(found or PredictedJob()).model_dump(include=keys)}
        for job, found in zip(snapshot.jobs, told, strict=True)
    ]


def _lacks(job: Job) -> bool:
    return (
        job.gpus > 0 and job.gpu_share_milli is None and None in (job.gpu_memory_mib, job.gpu_utilisation_pct)
    )


def _add(found: dict[str, PredictedJob], jobs: Sequence[Job], said: Iterator[PredictedJob | None]) -> None:
    """What is said of jobs, to what was said of them before."""
    for job, more in zip(jobs, said, strict=True):
        if more is not None:
            before = found.get(job.id)
            known = {} if before is None else {k: v for k, v in before if v is not None}
            found[job.id] = more.model_copy(update=known) if known else more


def _unknown(jobs: Sequence[Job], found: dict[str, PredictedJob], key: str, what: str) -> list[str]:
    missing = [j.id for j in jobs if j.id not in found or getattr(found[j.id], key) is None]
    return [f"the {what} model knows nothing of {_named(missing)}"] if missing else []


def _named(jobs: Sequence[str], most: int = 4) -> str:
    """``1 job (a)``, ``6 jobs (a, b, c, d ...)``."""
    more = " ..." if len(jobs) > most else ""
    return f"{counted(len(jobs), 'job')} ({', '.join(jobs[:most])}{more})"


def _without_room(snapshot: Snapshot, jobs: Sequence[Job], found: dict[str, PredictedJob]) -> list[str]:
    """Forget memory that would only keep a job from running: an upper value that no GPU of its has, or can be held against.

    Such a job runs alone on whole GPUs, like one of unknown memory.
    """
    sizes: dict[str, set[int | None]] = {}
    for node in snapshot.cluster.nodes:
        for gpu in node.gpus if node.schedulable else ():
            sizes.setdefault(gpu.model, set()).add(gpu.memory_mib)
    silent: list[str] = []
    large: list[str] = []
    for job in jobs:
        said = found.get(job.id)
        if job.gpu_memory_mib is not None or said is None or said.gpu_memory_mib is None:
            continue
        there = [s for m, known in sizes.items() if not job.gpu_models or m in job.gpu_models for s in known]
        if None in there:
            silent.append(job.id)
        elif there and said.gpu_memory_mib > max(s for s in there if s is not None):
            large.append(job.id)
        else:
            continue
        found[job.id] = said.model_copy(update={"gpu_memory_mib": None})
    out = []
    if silent:
        out.append(
            f"GPUs that {_named(silent)} may have do not say their memory (memory_mib): predicted memory is not used, and they run alone"
        )
    if large:
        out.append(
            f"the p95 of the memory predicted of {_named(large)} is more than any GPU has: it is not used, and they run alone"
        )
    return out


def _durations(
    snapshot: Snapshot, jobs: Sequence[Job], model: duration.DurationModel
) -> Iterator[PredictedJob | None]:
    elapsed = np.array([_elapsed(j, snapshot.now_s) for j in jobs])
    limits = np.array([math.inf if j.time_limit_s is None else j.time_limit_s for j in jobs])
    out = model.predict_many([_traits(j) for j in jobs], elapsed, limits)
    columns = zip(out.p50_s.tolist(), out.p90_s.tolist(), out.p95_s.tolist(), out.found.tolist(), strict=True)
    for p50, p90, p95, at in columns:
        level = _level(model.sketches, at)
        yield (
            None
            if level is None
            else PredictedJob.model_construct(
                remaining_s=min(p50, SECONDS_LIMIT),
                remaining_p90_s=min(p90, SECONDS_LIMIT),
                remaining_p95_s=min(p95, SECONDS_LIMIT),
                duration_from=level,
            )
        )


def _elapsed(job: Job, now_s: float) -> float:
    return max(0.0, now_s - job.started_s) if job.running and job.started_s is not None else 0.0


def _usages(snapshot: Snapshot, jobs: Sequence[Job], spec: UsageSpec) -> Iterator[PredictedJob | None]:
    path = spec.path or SHIPPED
    model = usage.default() if path == SHIPPED else _usage_model(*_stamp(path))
    if isinstance(model, usage.UsageModel):
        model = model if spec.context_mib is None else model.with_context(spec.context_mib)
        return _by_graphs(jobs, model, _gpu_models(snapshot), _coefficients(spec))
    graphs = _by_graphs(jobs, usage.default(), _gpu_models(snapshot), _coefficients(spec))
    return (_both(*said) for said in zip(_by_history(jobs, model), graphs, strict=True))


def _both(history: PredictedJob | None, graph: PredictedJob | None) -> PredictedJob | None:
    """What history says; what it does not know, from the graph."""
    if history is None or graph is None:
        return history or graph
    known = {k: v for k, v in history if v is not None}
    return graph.model_copy(update=known)


def _gpu_models(snapshot: Snapshot) -> list[str]:
    """GPU models that jobs may get, without MIG profiles."""
    return sorted(
        {g.model.partition(":")[0] for n in snapshot.cluster.nodes if n.schedulable for g in n.gpus}
    )


def _coefficients(spec: UsageSpec) -> communication.Coefficients:
    """Bandwidths as the site states them, or as they were fitted."""
    stated = {"pcie_gb_s": spec.pcie_gb_s, "network_gb_s": spec.network_gb_s}
    return replace(communication.default(), **{k: v for k, v in stated.items() if v is not None})


def _by_history(jobs: Sequence[Job], model: usage_history.UsageHistory) -> Iterator[PredictedJob | None]:
    traits = [_traits(j) for j in jobs]
    (memory, memory_at), (use, use_at) = model.memory_mib(traits), model.utilisation_pct(traits)
    for i in range(len(jobs)):
        known_memory = model.memory is not None and _level(model.memory, int(memory_at[i]))
        known_use = model.utilisation is not None and _level(model.utilisation, int(use_at[i]))
        if not known_memory and not known_use:
            yield None
            continue
        yield PredictedJob(
            gpu_memory_mib=min(math.ceil(memory[i, 1]), MEMORY_LIMIT_MIB) if known_memory else None,
            gpu_utilisation_pct=min(100.0, float(use[i, 0])) if known_use else None,
            usage_from=known_memory or known_use or None,
        )


def _by_graphs(
    jobs: Sequence[Job],
    model: usage.UsageModel,
    gpu_models: Sequence[str],
    c: communication.Coefficients,
) -> Iterator[PredictedJob | None]:
    """Of each job; those of one profile, size and choice of GPU models are asked for once."""
    told: dict[tuple[str | None, int, tuple[str, ...]], PredictedJob | None] = {}
    for job in jobs:
        alike = job.profile, job.gpus, job.gpu_models
        if alike not in told:
            told[alike] = _by_graph(job, model, gpu_models, c)
        yield told[alike]


def _by_graph(
    job: Job, model: usage.UsageModel, gpu_models: Sequence[str], c: communication.Coefficients
) -> PredictedJob | None:
    """By the architecture that the profile names; of several GPU models, the most that it would use."""
    work = Work.of_key(job.profile) if job.profile is not None else None
    architecture = catalogue.find(work.name, work.dataset or None) if work else None
    if work is None or architecture is None or not work.batch:
        return None
    features = architecture.at(work.batch)
    accepted = [g for g in gpu_models if not job.gpu_models or g in job.gpu_models]
    known = [g for g in accepted if canonical_model(g) in usage.PEAK_TFLOPS]
    found = [model.predict(features, g, training=TRAINING, mixed=bool(work.mixed)) for g in known or (None,)]
    use = [u.utilisation_pct for u in found if u.utilisation_pct is not None]
    return PredictedJob(
        gpu_memory_mib=min(max(u.memory_p95_mib for u in found), MEMORY_LIMIT_MIB),
        gpu_utilisation_pct=max(use) if use and len(known) == len(accepted) else None,
        usage_from=f"graph of {architecture.key}",
        links=_links(job, model.busy, features, gpu_models, c, mixed=bool(work.mixed)),
    )


def _links(
    job: Job,
    busy: usage.BusyModel,
    features: Features,
    gpu_models: Sequence[str],
    c: communication.Coefficients,
    *,
    mixed: bool,
) -> Links | None:
    """What a gang loses to its links; of several GPU models on the fastest, whose steps are short beside what is exchanged.

    The batch is that of each GPU. None: it is no gang, or some GPU model that it accepts is not known.
    """
    accepted = [g for g in gpu_models if not job.gpu_models or g in job.gpu_models]
    if job.gpus < 2 or not accepted or any(canonical_model(g) not in usage.PEAK_TFLOPS for g in accepted):
        return None
    step_ms = c.step * min(busy.step_ms(features, g, TRAINING, mixed=mixed) for g in accepted)
    return communication.links(step_ms, communication.gradient_bytes(features, mixed=mixed), job.gpus, c)


def _level(sketches: keyed.Sketches, at: int) -> str | None:
    """The key that carries a forecast; None where it says no more than the job's size."""
    if at < 0:
        return None
    name, observations = sketches.level(at)
    return None if name in USELESS or observations < keyed.ENOUGH else name


def _traits(job: Job) -> keyed.Traits:
    return keyed.Traits(
        user=job.user,
        account=job.account,
        name=None if job.name is None else normalised(job.name),
        digest=job.digest,
        queue=job.queue,
        gpus=job.gpus,
        gpu_model=job.gpu_models[0] if len(job.gpu_models) == 1 else None,
    )


def _stamp(path: str) -> tuple[str, int]:
    """A path and when its file was changed; 0 if there is none, which reading it then tells."""
    file = Path(path)
    return path, file.stat().st_mtime_ns if file.exists() else 0


@lru_cache(maxsize=4)
def _duration_model(path: str, changed: int) -> duration.DurationModel:
    del changed
    with _sound(path, "duration"):
        model = duration.of_file(load(path, "duration", (duration.METHOD,)))
        model.predict_many(
            [keyed.Traits(gpus=1)],
            np.array(
                [
                    0.0,
                ]
            ),
            np.array([math.inf]),
        )
    return model


@lru_cache(maxsize=4)
def _usage_model(path: str, changed: int) -> usage.UsageModel | usage_history.UsageHistory:
    del changed
    with _sound(path, "usage"):
        file: ModelFile = load(path, "usage", (usage.METHOD, usage_history.METHOD))
        if file.method == usage.METHOD:
            graph = usage.UsageModel.of_file(file)
            graph.predict(next(iter(catalogue.architectures().values())).at(1), "v100", training=TRAINING)
            return graph
        past = usage_history.of_file(file)
        past.memory_mib([keyed.Traits(gpus=1)])
    return past


@contextmanager
def _sound(path: str, kind: str) -> Iterator[None]:
    """Numbers that no fit gives are told as what they are; one question is asked of a model, because they show only then."""
    try:
        yield
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise InputError(path, f"{type(error).__name__}: {error}", f"what planner fit {kind} wrote") from None
