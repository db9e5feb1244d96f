"""Rules about what the plan says of itself: the objective's sum, slowdowns, ends, neighbours, fences."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.plan import Terms
from planner.validate.scene import ROUNDING, Finding, Occupant, Scene

#: The plan rounds slowdowns to six places and times to a thousandth of a second.
SLOWDOWN_DIGIT = 1e-5


def objective(scene: Scene) -> Iterator[Finding]:
    """The objective's terms sum to its total, and none but makespan and fragmentation is negative."""
    terms, total = scene.plan.objective.terms, scene.plan.objective.total_gpu_s
    each = {name: getattr(terms, name) for name in Terms.model_fields}
    if not math.isclose(sum(each.values()), total, rel_tol=1e-9, abs_tol=0.01):
        yield Finding(
            "objective", f"the terms sum to {sum(each.values()):.3f} GPU-s, the total says {total:.3f}"
        )
    for name, value in each.items():
        if value < 0 and name not in ("makespan", "fragmentation"):
            yield Finding("objective", f"the term {name} is {value:.3f} GPU-s; it cannot be negative")


def waiting(scene: Scene) -> Iterator[Finding]:
    """Without stopped jobs, the waiting term is what the deferred jobs' waiting costs."""
    if scene.plan.preempted:
        return
    costs = sum(d.cost_gpu_s for d in scene.plan.deferred)
    term = scene.plan.objective.terms.waiting
    if not math.isclose(costs, term, rel_tol=1e-9, abs_tol=0.01):
        yield Finding("waiting", f"deferred jobs cost {costs:.3f} GPU-s, the waiting term is {term:.3f}")


def slowdowns(scene: Scene) -> Iterator[Finding]:
    """Stated slowdowns are the predictor's, beside the neighbours that the plan gives."""
    margin = 1 + scene.policy.beyond_plan
    for o in scene.occupants.values():
        said, found = o.assignment.slowdown, scene.slowdown(o)
        if said is None or found is None:
            if said != found:
                yield _of(o, "slowdowns", f"slowdown is said to be {said}; predicted is {found}")
            continue
        if not math.isclose(said, found, rel_tol=SLOWDOWN_DIGIT):
            yield _of(o, "slowdowns", f"slowdown is said to be {said:g}; predicted is {found:.6f}")
        upper = o.assignment.slowdown_p90
        if upper is not None and not math.isclose(upper, 1 + (said - 1) * margin, rel_tol=SLOWDOWN_DIGIT):
            yield _of(o, "slowdowns", f"slowdown_p90 {upper:g} does not follow from the slowdown {said:g}")


def ends(scene: Scene) -> Iterator[Finding]:
    """Stated ends follow from start, remaining time, speed, slowdown and links; unknown stays unknown."""
    for o in scene.occupants.values():
        said, left = o.assignment.finish_s, o.forecast.remaining_s
        s, stretch = o.assignment.slowdown, scene.stretch(o)
        if left is None or s is None:
            if said is not None:
                yield _of(
                    o, "ends", f"end is said to be {said:g} s, and nothing it could follow from is known"
                )
            continue
        if said is None:
            continue
        expected = max(0.0, o.assignment.start_s or 0.0) + left * s * stretch
        if not math.isclose(said, expected, rel_tol=2 * ROUNDING / scene.speed(o), abs_tol=1):
            yield _of(o, "ends", f"end is said to be {said:g} s; it would be {expected:.0f} s")


def neighbours(scene: Scene) -> Iterator[Finding]:
    """A job's neighbours are those on its GPUs, and it is fenced only if all its nodes hold tenants to their memory."""
    nodes = scene.snapshot.cluster.node_by_name
    for o in scene.occupants.values():
        there = {p.job.id for g in o.assignment.gpu_ids for p in scene.on_gpu[g] if p is not o}
        if there != set(o.assignment.neighbours):
            said = ", ".join(o.assignment.neighbours) or "nobody"
            yield _of(
                o,
                "neighbours",
                f"is said to be beside {said}; it is beside {', '.join(sorted(there)) or 'nobody'}",
            )
        fenced = all(nodes[n].isolation == "memory" for n in o.on) if there else None
        if o.assignment.fenced is not fenced:
            yield _of(o, "neighbours", f"fenced is said to be {o.assignment.fenced}; it is {fenced}")


def memory_figures(scene: Scene) -> Iterator[Finding]:
    """The GPU memory that the plan states for a job is not below what it needs."""
    gpus = scene.snapshot.cluster.gpu_by_id
    for o in scene.newcomers:
        said = o.assignment.gpu_memory_mib
        for g in o.assignment.gpu_ids[:1] if said is not None else ():
            need = scene.memory_mib(o, gpus[g])
            if need is not None and said is not None and said < need:
                yield _of(o, "memory figures", f"is said to need {said} MiB; it needs {need} MiB")


def _of(o: Occupant, rule: str, text: str) -> Finding:
    return Finding(rule, f"job {o.job.id}: {text}", o.job.id)
