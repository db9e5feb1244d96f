"""Plans made by hand from where the jobs go, and the rules that they break: ``seen``.

What a plan says of itself (slowdowns, ends, neighbours) is filled in so that only the fact in question can be wrong; the
tests of those figures state them by hand.
"""

from builders import node, policy, snapshot

from planner import predict, validate
from planner.plan import Assignment, Deferred, Objective, Plan, Solve, Terms
from planner.policy import PredictorSpec
from planner.validate.scene import scene_of

FREE = Objective(total_gpu_s=0, terms=Terms())


def plan_of(state, where, *, rules=None, predictor=None, said=None, objective=FREE, **fields):
    """The plan that puts jobs ``where`` (id -> GPUs, or a node for a job without); the others wait, or are stopped."""
    rules, said = rules or policy(), said or {}
    forecast = predict.forecast(state, rules, predictor or PredictorSpec())
    gpus = state.cluster.gpu_by_id
    decided = {*where, *fields.get("preempted", ())}
    base = {
        "id": "p",
        "made_at": "2026-01-01T00:00:00Z",
        "deferred": [
            Deferred(job_id=j.id, reason="not_chosen", detail="") for j in state.jobs if j.id not in decided
        ],
        "objective": objective,
        "solve": Solve(solver="hand", status="feasible"),
        **fields,
    }
    bare = []
    for job_id, places in where.items():
        j = state.job_by_id.get(job_id)
        on = tuple(p for p in places if p in gpus)
        nodes = tuple(dict.fromkeys(gpus[p].node for p in on)) or tuple(places)
        running = () if j is None else j.running_on
        state_of = "start" if not running else "stay" if set(running) == set(places) else "move"
        bare.append(
            Assignment(
                job_id=job_id,
                gpu_ids=tuple(places) if j is None or j.gpus else (),
                nodes=nodes,
                state=state_of,
                moved_from=running if state_of == "move" else None,
            )
        )
    try:
        scene = scene_of(Plan(assignments=bare, **base), state, forecast, rules)
    except KeyError:  # a place or job that does not exist: the form is what is tested
        return Plan(assignments=bare, **base), forecast, rules
    filled = [a.model_copy(update={**figures(scene, a), **said.get(a.job_id, {})}) for a in bare]
    return Plan(assignments=filled, **base), forecast, rules


def figures(scene, a):
    o, s = scene.occupants[a.job_id], scene.slowdown(scene.occupants[a.job_id])
    there = sorted({p.job.id for g in a.gpu_ids for p in scene.on_gpu[g] if p is not o})
    left = o.forecast.remaining_s
    return {
        "slowdown": s,
        "slowdown_p90": None if s is None else 1 + (s - 1) * 1.25,
        "finish_s": None if s is None or left is None else left * s * scene.stretch(o),
        "neighbours": tuple(there),
        "fenced": all(scene.snapshot.cluster.node_by_name[n].isolation == "memory" for n in o.on)
        if there
        else None,
    }


def findings(state, where, **given):
    plan, forecast, rules = plan_of(state, where, **given)
    return validate.problems_of(plan, state, forecast, rules)


def seen(state, where, **given):
    return {f.rule for f in findings(state, where, **given)}


A, B = "n0/0", "n0/1"


def on_two(*the_jobs, **fields):
    """One node with two GPUs, and the jobs."""
    return snapshot([node(2, name="n0", **fields)], the_jobs)


def both(a, b, *, at=(A, A), rules=None, predictor=None, **fields):
    """Rules broken by putting two jobs on GPUs of one node."""
    state = on_two(a, b, **fields)
    return seen(state, {a.id: [at[0]], b.id: [at[1]]}, rules=rules, predictor=predictor)
