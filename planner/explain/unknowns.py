"""Why a job may not share a GPU: something about it or a tenant there is not known, or one of them said that it will not.

A job may share if its GPU memory is known (or a share is declared) and its slowdown can be predicted, from a
utilisation or a profile in the interference table. Where one unknown, or several, are all that keeps a job off a GPU in
use, its reason is ``unknown_memory``, whether they are its own, a tenant's or both; the sentence says whose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.predict.interference import InterferenceModel, tenant_of

if TYPE_CHECKING:
    from planner.explain.reasons import Case
    from planner.model import Job
    from planner.plan import JobForecast

WORDS = {"gpu_memory_mib": "GPU memory", "gpu_utilisation_pct": "GPU utilisation"}


def wish(job: Job) -> str:
    """How the job said that it shares with nobody; empty if it did not."""
    if job.exclusive:
        return "exclusive: true"
    return "" if job.shareable else "shareable: false"


def missing(job: Job, forecast: JobForecast, model: InterferenceModel) -> tuple[str, ...]:
    """The keys that, left unsaid, keep a job from sharing that would; empty if there are none or it would not."""
    if wish(job) or not job.gpus:
        return ()
    keys = []
    if forecast.gpu_memory_mib is None and job.gpu_share_milli is None:
        keys.append("gpu_memory_mib")
    if not model.knows(tenant_of(job, forecast)):
        keys.append("gpu_utilisation_pct")
    return tuple(keys)


def sentence(case: Case, job: int) -> str:
    """``no GPU is free for it alone, and it may not share n0/0 with a: the GPU utilisation of b and a is not known``."""
    position, others = _nearest(case, job)
    name = case.formulated.gpu_ids[int(case.survey.could[position])]
    own = case.missing(job)
    head = f"it may not share {name}"
    if others:
        head += f" with {listed([case.name(j) for j in others])}"
    if own:
        n = case.survey.problem.job_gpus.item(job)
        head = f"{'no GPU is' if n == 1 else f'{n} GPUs are not'} free for it alone, and {head}"
    unknown = [j for j in (job, *others) if case.missing(j)]
    return f"{head}: {_what(case, unknown)}"


def _nearest(case: Case, job: int) -> tuple[int, tuple[int, ...]]:
    """The GPU in use that lacks the fewest facts, as a position of ``could``, and its tenants; the same for alike jobs."""
    view = case.survey
    number = view.openings_number(job)
    if number not in case.nearest:
        used = view.room.count[view.could] > 0
        wanted = view.if_known(job) & used & ((case.lacking > 0) | bool(case.missing(job)))
        at = np.flatnonzero(wanted if wanted.any() else view.if_known(job))
        case.nearest[number] = int(at[np.argmin(case.lacking[at])])
    best = case.nearest[number]
    return best, view.room.tenants[int(view.could[best])]


def _what(case: Case, jobs: list[int]) -> str:
    """``the GPU memory of a and the GPU utilisation of a and b are not known``."""
    parts = []
    for key, word in WORDS.items():
        whose = [case.name(j) for j in jobs if key in case.missing(j)]
        if whose:
            parts.append(f"the {word} of {listed(whose)}")
    text = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} not known"
    strange = [p for j in jobs if "gpu_utilisation_pct" in case.missing(j) and (p := case.job(j).profile)]
    if strange and case.formulated.forecast.predictor.interference.kind == "table":
        strange = list(dict.fromkeys(strange))
        text += f" (the interference table has no profile {listed(strange, 'or')})"
    return text


def listed(names: list[str], word: str = "and", most: int = 4) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b, c, d and 3 more``."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def refusers(case: Case, job: int) -> str:
    """Who said that it does not share: the job, or the tenant of the first suitable GPU that is so kept; else empty."""
    own = wish(case.job(job))
    if own:
        return f"it does not share ({own})"
    view = case.survey
    p, room = view.problem, view.room
    suits = (p.speed_milli[job] > 0)[p.gpu_kind] & p.node_sets[p.node_set.item(job)][p.gpu_node]
    kept = np.flatnonzero(suits & ~p.gpu_closed & room.firm & (room.count < p.gpu_max_tenants))
    for g in kept[:1].tolist():
        tenant = next(j for j in room.tenants[g] if wish(case.job(j)))
        more = len(kept) - 1
        others = f"; the same holds for {more} more {'GPU' if more == 1 else 'GPUs'}" if more else ""
        said = wish(case.job(tenant))
        return f"{case.name(tenant)} does not share {case.formulated.gpu_ids[g]} ({said}){others}"
    return ""
