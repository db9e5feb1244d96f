"""What the tests of explanations share: a placement of the test's choice explained, and plans of the greedy alone."""

import time
from dataclasses import replace

from builders import job, node, policy, snapshot

from planner import explain, predict
from planner.epoch import checked_plan
from planner.explain.choosing import spot_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.formulate import formulate
from planner.policy import PredictorSpec
from solvers import greedy
from solvers.check import violations
from solvers.problem import Limits


def told(state, where=(), *, predictor=None, edited=None, **rules):
    """Reason and detail of every job that waits, excluded ones too, if jobs go ``where`` (id -> GPUs or a node)."""
    rules = policy(**{"max_reservations": 0, **rules})
    f = formulate(state, predict.forecast(state, rules, predictor or PredictorSpec()), rules)
    if edited is not None:
        f = replace(f, problem=replace(f.problem, **edited(f.problem)))
    index = {name: g for g, name in enumerate(f.gpu_ids)} | {name: v for v, name in enumerate(f.node_names)}
    named = {state.jobs[i].id: j for j, i in enumerate(f.jobs)}
    placed = list(f.problem.home)
    for job_id, places in dict(where).items():
        placed[named[job_id]] = tuple(sorted(index[p] for p in places))
    assert violations(f.problem, tuple(placed)) == ()
    out = {state.jobs[e.job].id: (e.reason, e.detail) for e in f.excluded}
    return out | {
        state.jobs[f.jobs[j]].id: (reason, detail) for j, reason, detail in explain.reasons(f, tuple(placed))
    }


def reason(state, where=(), who="a", **given):
    return told(state, where, **given)[who][0]


def detail(state, where=(), who="a", **given):
    return told(state, where, **given)[who][1]


A, B = "n0/0", "n0/1"


def one_gpu(*the_jobs, **fields):
    return snapshot([node(1, name="n0", **fields)], the_jobs)


def busy(**facts):
    """A running job that fills its GPU."""
    return job(**{"id": "busy", "running_on": [A], "shareable": False, **facts})


def before_a_gang(**facts):
    """GPU 0 runs for 1000 s more (p90 1250 s), a gang of two waits for both, and ``a`` could use GPU 1 until then."""
    running = busy(duration_s=1_000)
    return snapshot(
        [node(2, name="n0")], [running, job(id="gang", gpus=2), job(id="a", shareable=False, **facts)]
    )


def filled(problem):
    """A placement made by starting jobs one after the other where ``spot_for`` would."""
    placed = list(problem.base)
    for j in range(problem.jobs):
        if placed[j] is None and j % 2:
            placed[j] = spot_for(Ledger(Survey(problem, tuple(placed))), j)
            if violations(problem, tuple(placed)):
                placed[j] = None  # a budget or a link; not what is looked at here
    return tuple(placed)


def planning(predictor=None):
    """Plan with the greedy alone; the same checks as in an epoch."""

    def plan(state, rules):
        f = formulate(state, predict.forecast(state, rules, predictor or PredictorSpec()), rules)
        return checked_plan(
            f, greedy.solve(f.problem, Limits(wall_s=9), None, lambda *_: None), "2026-01-01T00:00:00Z"
        )

    return plan


def whole_fix(state, who="a", *, predictor=None, seconds=5.0, **rules):
    """What would start a job that the plan of the greedy lets wait."""
    plan = planning(predictor)(state, policy(**{"max_reservations": 0, **rules}))
    assert who in {d.job_id for d in plan.deferred}
    return explain.fixes(plan, planning(predictor), time.monotonic() + seconds).get(who)


def fix_of(state, who="a", **given):
    found = whole_fix(state, who, **given)
    return None if found is None else found.change
