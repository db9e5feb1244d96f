"""What is not known about a job or those in its way, declared: the largest utilisation and memory with which it would start.

The jobs of which something is unknown are declared together, for one GPU in use (a gang: for one node) at a time, those places
first where the fewest jobs lack a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner import edit
from planner.explain.changes import Change, Ladder, Situation
from planner.explain.unknowns import WORDS, listed, missing, wish
from planner.model import Gpu, Job, Snapshot
from planner.policy import Policy
from planner.predict.interference import build

UTILISATIONS = tuple(range(100, 0, -5))
#: Places for which declarations are tried.
MOST_PLACES = 4


@dataclass(frozen=True)
class _Group:
    """Jobs with what each has left unsaid, and the memory that each of unknown memory could have at the place."""

    unsaid: dict[str, tuple[str, ...]]
    memory_mib: int | None


def declarations(s: Situation) -> Iterator[Ladder]:
    """Declarations that might let it share, by place."""
    if not s.job.gpus or wish(s.job):
        return
    model = build(s.inputs.forecast.predictor.interference)
    known = {f.job_id: f for f in s.inputs.forecast.jobs}

    def unsaid(job: Job) -> tuple[str, ...]:
        return missing(job, known[job.id], model)

    for group in _groups(s, unsaid, {j: f.gpu_memory_mib for j, f in known.items()}):
        keys = {key for keys in group.unsaid.values() for key in keys}
        if keys == {"gpu_memory_mib"} and set(group.unsaid) == {s.job.id}:
            continue  # how much memory it may have is a ladder of its own
        if "gpu_memory_mib" in keys and not group.memory_mib:
            continue
        levels = UTILISATIONS if "gpu_utilisation_pct" in keys else (100,)
        yield Ladder(tuple(_declared(s, group, u) for u in levels), halving=True)


def _groups(
    s: Situation, unsaid: Callable[[Job], tuple[str, ...]], memory: dict[str, int | None]
) -> list[_Group]:
    """The job itself, and with it those of unknown use at each place; each set of jobs once."""
    on_gpu: dict[str, list[Job]] = {}
    for j in s.snapshot.jobs:
        for place in j.running_on if j.gpus else ():
            on_gpu.setdefault(place, []).append(j)
    own = {s.job.id: unsaid(s.job)} if unsaid(s.job) else {}
    found: dict[tuple[str, ...], _Group] = {}
    for gpus in _places(s):
        there = {j.id: j for g in gpus for j in on_gpu.get(g.id, ())}
        if any(wish(j) for j in there.values()) and s.job.gpus == 1:
            continue
        group = own | {j.id: keys for j in there.values() if (keys := unsaid(j))}
        if group:
            room = min(_each_mib(s, g, [s.job, *on_gpu.get(g.id, ())], memory) for g in gpus)
            found.setdefault(tuple(sorted(group)), _Group(group, max(0, room)))
    return sorted(found.values(), key=lambda g: len(g.unsaid))[:MOST_PLACES]


def _places(s: Situation) -> Iterator[tuple[Gpu, ...]]:
    for node in s.snapshot.cluster.nodes:
        if s.job.gpus > 1:
            yield tuple(node.gpus)
        else:
            yield from ((g,) for g in node.gpus)


def _each_mib(s: Situation, gpu: Gpu, jobs: list[Job], memory: dict[str, int | None]) -> int:
    """GPU memory left for each of the jobs whose own is unknown."""
    node = s.snapshot.cluster.node_by_name[gpu.node]
    margin = s.policy.memory_margin_mib if node.isolation == "none" else 0
    whole = int((gpu.memory_mib or 0) * node.memory_factor) - (gpu.unmanaged_memory_mib or 0) - margin
    unknown = sum(memory[j.id] is None and j.gpu_share_milli is None for j in jobs)
    return (whole - sum(memory[j.id] or 0 for j in jobs)) // max(1, unknown)


def _declared(s: Situation, group: _Group, utilisation: int) -> Change:
    values = {"gpu_utilisation_pct": utilisation, "gpu_memory_mib": group.memory_mib}
    units = {"gpu_utilisation_pct": "%", "gpu_memory_mib": "MiB"}
    whats, details = [], []
    for key, word in WORDS.items():
        whose = [job for job, keys in group.unsaid.items() if key in keys]
        if whose:
            mine = whose == [s.job.id]
            whats.append(f"{key if mine else f'{key} of {listed(whose)}'}: {values[key]}")
            owner = f"its {word}" if mine else f"the {word} of {listed(whose)}"
            details.append(f"{owner} were declared as at most {values[key]} {units[key]}")

    def make(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
        jobs = tuple(
            edit.changed(j, **{key: values[key] for key in group.unsaid[j.id]}) if j.id in group.unsaid else j
            for j in snapshot.jobs
        )
        return edit.changed(snapshot, jobs=jobs), policy

    return Change("; ".join(whats), f"if {' and '.join(details)}", make)
