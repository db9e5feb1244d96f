"""One job of a plan, explained: who is beside it, what each term costs it, or why it waits and what would start it."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from planner import validate
from planner.explain.fixes import Replan, fix_and_cost
from planner.explain.moved import why_moved
from planner.explain.terms import job_terms, placed_of
from planner.formulate import formulate
from planner.model import Job, Name, Noun
from planner.plan import Assignment, Deferred, Fix, Inputs, Plan, Reason
from planner.validate.scene import Occupant, Scene, scene_of
from solvers.problem import MILLI

#: Rules about what a plan says of itself; they say nothing about whether another place would do.
FIGURES = {"objective", "waiting", "slowdowns", "ends", "neighbours", "memory figures", "states", "waves"}
#: Other places that are looked at to say why a job does not fill a node in use.
MOST_PLACES = 16


class Beside(Noun):
    """A neighbour on some of its GPUs."""

    job_id: Name
    gpu_ids: tuple[Name, ...]
    profile: str | None = None
    slowdown: float | None = Field(None, description="the neighbour's own, beside all on its GPUs")


class Share(Noun):
    """The job's part of the objective's terms, in GPU-seconds, and what waiting would have cost.

    Over all jobs the parts sum to the plan's terms. Makespan and fragmentation are the plan's as a whole.
    """

    interference: float = 0
    speed: float = 0
    locality: float = 0
    waiting: float = 0
    moves: float = 0
    waiting_avoided: float = 0


class Explanation(Noun):
    """Why a job is where it is."""

    job_id: Name
    decision: Literal["start", "stay", "move", "wait", "stop"]
    gpu_ids: tuple[Name, ...] = ()
    nodes: tuple[Name, ...] = ()
    neighbours: tuple[Beside, ...] = ()
    slowdown: float | None = None
    costs: Share | None = None
    memory: str = Field("", description="where its memory figure comes from")
    rests_on: str | None = Field(None, description="where its slowdown comes from")
    foretold: str | None = Field(None, description="what fitted models said of it, and by what they knew it")
    spread: str | None = Field(None, description="the rule that kept it off nodes in use")
    move: str | None = Field(None, description="why it moves or stops, and what that gains and costs")
    reason: Reason | None = None
    detail: str = ""
    fix: Fix | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The explanation in sentences, for a terminal."""
        return tuple(_waiting_lines(self) if self.decision in ("wait", "stop") else _running_lines(self))


def explain_job(plan: Plan, job_id: str, replan: Replan | None = None, time_s: float = 10) -> Explanation:
    """Explain a job of a plan that carries its inputs; without ``replan`` no fix is looked for.

    Raises
    ------
    KeyError
        The plan has no such job.
    ValueError
        The plan does not carry its inputs.
    """
    if plan.inputs is None:
        raise ValueError("the plan has no inputs to explain it from")
    for a in plan.assignments:
        if a.job_id == job_id:
            return _placed(plan, plan.inputs, a)
    for d in plan.deferred:
        if d.job_id == job_id:
            return _waiting(plan, plan.inputs, d, replan, time_s)
    if job_id in plan.preempted:
        costs, move = _costs(plan, plan.inputs, job_id)
        detail = "it is stopped; it said that it may be (preemptible)"
        return Explanation(job_id=job_id, decision="stop", detail=detail, costs=costs, move=move)
    raise KeyError(job_id)


def _waiting(plan: Plan, inputs: Inputs, d: Deferred, replan: Replan | None, time_s: float) -> Explanation:
    fix, (costs, _) = d.fix, _costs(plan, inputs, d.job_id)
    if replan is not None:  # there is more time for it than there was in planning
        fix = fix_and_cost(plan, replan, time.monotonic() + time_s, d.job_id) or fix
    return Explanation(
        job_id=d.job_id, decision="wait", reason=d.reason, detail=d.detail, fix=fix, costs=costs
    )


def _placed(plan: Plan, inputs: Inputs, a: Assignment) -> Explanation:
    scene = scene_of(plan, inputs.snapshot, inputs.forecast, inputs.policy)
    o = scene.occupants[a.job_id]
    costs, move = _costs(plan, inputs, a.job_id)
    return Explanation(
        job_id=a.job_id,
        decision=a.state,
        gpu_ids=a.gpu_ids,
        nodes=a.nodes,
        neighbours=tuple(_beside(scene, o, scene.occupants[n]) for n in a.neighbours),
        slowdown=a.slowdown,
        costs=costs,
        memory=_memory(scene, o),
        rests_on=_rests_on(scene, o),
        foretold=_foretold(scene, o.job),
        spread=_spread(plan, inputs, scene, o),
        move=move,
    )


def _beside(scene: Scene, o: Occupant, other: Occupant) -> Beside:
    shared = tuple(g for g in o.assignment.gpu_ids if g in other.assignment.gpu_ids)
    return Beside(
        job_id=other.job.id, gpu_ids=shared, profile=other.job.profile, slowdown=other.assignment.slowdown
    )


def _costs(plan: Plan, inputs: Inputs, job_id: str) -> tuple[Share | None, str | None]:
    """The job's part of each term as the program charges it, and why it moves; None for a job outside the program."""
    formulated = formulate(inputs.snapshot, inputs.forecast, inputs.policy)
    numbers = {inputs.snapshot.jobs[i].id: j for j, i in enumerate(formulated.jobs)}
    if job_id not in numbers:
        return None, None
    j, problem, placed = numbers[job_id], formulated.problem, placed_of(formulated, plan)
    terms = job_terms(problem, placed)[j]
    shares = {name: getattr(terms, name) / MILLI for name in Share.model_fields if hasattr(terms, name)}
    avoided = 0 if placed[j] is None else problem.wait_cost.item(j) / MILLI
    leaves = problem.home[j] is not None and placed[j] != problem.home[j]
    move = why_moved(formulated, placed, j) if leaves else None
    return Share(**shares, waiting_avoided=avoided), move


def _memory(scene: Scene, o: Occupant) -> str:
    """Figure, source and margin: ``12000 MiB a GPU (declared); 500 MiB are kept free beside others``."""
    if not o.assignment.gpu_ids:
        return "it needs no GPU memory"
    figure, source = o.assignment.gpu_memory_mib, o.assignment.memory_source
    if figure is None:
        return "its GPU memory is not known, so it has its GPUs for itself"
    said = {"measured": f"measured peak, with a margin of {scene.policy.memory_peak_margin:.0%}"}
    text = f"{figure} MiB a GPU ({said.get(source or '', source or 'unknown source')})"
    nodes = scene.snapshot.cluster.node_by_name
    margin = max((scene.margin_mib(nodes[n]) for n in o.on), default=0)
    if not o.assignment.neighbours:
        return text
    fence = "held to it" if o.assignment.fenced else "nothing holds tenants to theirs"
    return f"{text}; {margin} MiB are kept free beside others ({fence})"


def _rests_on(scene: Scene, o: Occupant) -> str | None:
    """Whether the pairs with its neighbours are in the table, and what stands for the others."""
    spec = scene.forecast.predictor.interference
    formula = spec.kind if spec.kind != "table" else spec.fallback
    gpus = scene.snapshot.cluster.gpu_by_id
    pairs = [
        scene.model.is_measured(gpus[g].model, scene.tenants[o.kind], scene.tenants[p.kind])
        for g in o.assignment.gpu_ids
        for p in scene.on_gpu[g]
        if p is not o
    ]
    if not pairs:
        return None
    table = f"the model {spec.rows_from}" if spec.rows_from else "the table"
    by = [table] * any(pairs) + [f"the formula {formula}"] * (not all(pairs))
    uses = o.forecast.gpu_utilisation_pct
    told = (
        ""
        if uses is None or all(pairs)
        else f", its own utilisation being {uses:.0f} % ({o.forecast.utilisation_source})"
    )
    return f"{' and '.join(by)}{told}"


def _foretold(scene: Scene, job: Job) -> str | None:
    """``remaining time by runs of the same user, name; memory and utilisation by the graph of bert/squad``."""
    said = scene.forecast.predictor.predicted.get(job.id)
    if said is None:
        return None
    parts = []
    for what, by in (
        ("remaining time", said.duration_from),
        ("memory and utilisation", said.usage_from),
    ):
        if by is not None:
            whose = f"the {by}" if by.startswith("graph of ") else "runs of the same " + by.replace("+", ", ")
            parts.append(f"{what} by {whose}")
    return "; ".join(parts) or None


# ---- forced spreading ----


def _spread(plan: Plan, inputs: Inputs, scene: Scene, o: Occupant) -> str | None:
    """The rule that kept a newcomer off free GPUs of nodes in use, found by asking the checks about that very place."""
    if not o.newcomer or not o.job.gpus:
        return None
    others = {n for n, there in scene.on_node.items() if any(p is not o for p in there)}
    if len(o.on) == 1 and others & set(o.on):
        return None  # it does fill a node in use
    if inputs.policy.packing == "spread":
        return "the policy's packing is spread"
    for spot in _fuller_places(scene, o, others):
        moved = o.assignment.model_copy(update={"gpu_ids": spot, "nodes": (spot[0].split("/")[0],)})
        trial = plan.model_copy(
            update={"assignments": tuple(moved if a is o.assignment else a for a in plan.assignments)}
        )
        found = validate.problems_of(trial, inputs.snapshot, inputs.forecast, inputs.policy)
        broken = {f.rule: f.text for f in reversed(found) if f.rule not in FIGURES}
        if broken:
            rules = "; ".join(f"{text} (rule: {rule})" for rule, text in reversed(broken.items()))
            return f"{', '.join(spot)} would have filled a node in use, but {rules}"
    return None


def _fuller_places(scene: Scene, o: Occupant, used: set[str]) -> list[tuple[str, ...]]:
    """Sets of GPUs, large enough for the job, that are free on one node in use."""
    places = []
    for node in scene.snapshot.cluster.nodes:
        free = [g.id for g in node.gpus if g.id not in scene.on_gpu]
        if node.name in used and len(free) >= o.job.gpus:
            places.append(tuple(free[: o.job.gpus]))
    return places[:MOST_PLACES]


# ---- sentences ----


def _running_lines(e: Explanation) -> list[str]:
    verb = {"start": "starts", "stay": "stays", "move": "moves to"}[e.decision]
    lines = [f"{e.job_id} {verb} {'' if e.decision == 'move' else 'on '}{', '.join(e.gpu_ids or e.nodes)}"]
    for n in e.neighbours:
        slow = "an unknown slowdown" if n.slowdown is None else f"slowdown {n.slowdown:.3g}"
        about = f" ({n.profile})" if n.profile else ""
        lines.append(f"beside {n.job_id}{about} on {', '.join(n.gpu_ids)}, which has {slow}")
    if e.slowdown is not None and e.neighbours:
        lines.append(f"its own slowdown is {e.slowdown:.3g}" + (f", by {e.rests_on}" if e.rests_on else ""))
    if e.costs is not None:
        c = e.costs
        lines.append(
            f"over the horizon that costs it {c.interference:.0f} GPU-s by interference, {c.speed:.0f} by the GPU's "
            f"speed, {c.locality:.0f} by links; waiting would have cost {c.waiting_avoided:.0f} GPU-s"
        )
    if e.move:
        lines.append(f"why it moves: {e.move}")
    lines.append(f"memory: {e.memory}")
    if e.foretold:
        lines.append(f"foretold: {e.foretold}")
    if e.spread:
        lines.append(f"why there: {e.spread}")
    return lines


def _waiting_lines(e: Explanation) -> list[str]:
    if e.decision == "stop":
        return [f"{e.job_id}: {e.detail}", *([f"why it stops: {e.move}"] if e.move else [])]
    lines = [f"{e.job_id} waits: {e.reason}", e.detail]
    if e.fix is None:
        return [*lines, "no single change that was tried would start it"]
    cost = (
        ""
        if e.fix.extra_cost_gpu_s is None
        else f"; the plan would then cost {_more(e.fix.extra_cost_gpu_s)}"
    )
    return [*lines, f"it would start: {e.fix.detail} ({e.fix.change}){cost}"]


def _more(gpu_s: float) -> str:
    return f"{abs(gpu_s):,.0f} GPU-s {'more' if gpu_s >= 0 else 'less'}"
