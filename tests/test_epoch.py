"""One epoch from end to end: what a plan says of itself, and that no wrong answer becomes one."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import job, jobs, node, policy, snapshot

from planner import epoch
from planner.epoch import plan_epoch, replan_with
from planner.errors import EngineMissing, PlanRejected
from planner.formulate.interpret import gap
from planner.generate import generate
from planner.plan import Plan
from planner.policy import PredictorSpec, Weights
from planner.scenario import dump

AT = "2026-01-01T00:00:00Z"


def planned(the_jobs, nodes=None, **rules):
    rules = {"time_limit_s": 0.5, "deterministic": True, **rules}
    return plan_epoch(snapshot(nodes, the_jobs), policy(**rules), PredictorSpec(), made_at=AT)


def test_a_plan_comes_back_from_json_as_it_was():
    plan = planned(jobs(3), time_limit_s=0)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_the_terms_add_up_to_the_total():
    plan = planned([*jobs(4, gpu_utilisation_pct=60), job(gpus=2, priority=3)], [node(2), node(2)])
    terms = plan.objective.terms
    assert sum(getattr(terms, name) for name in type(terms).model_fields) == pytest.approx(
        plan.objective.total_gpu_s
    )


def test_a_proven_plan_has_no_gap_and_its_bound_is_its_cost():
    plan = planned(jobs(3), solver="cp-sat")
    assert plan.solve.status == "optimal"
    assert (plan.solve.gap, plan.solve.served_gap, plan.solve.bound) == (0, 0, plan.objective.total_gpu_s)


@pytest.mark.parametrize(
    ("best", "bound", "reference", "expected"),
    [
        (0, 0, 0, 0),  # 0/0 is 0
        (200, 150, 200, 0.25),
        (200, 150, 850, 0.058824),  # served: 50 of the 850 between starting nothing and the bound
        (200, None, 200, None),
        (200, 150, 0, None),
    ],
)
def test_a_gap_is_the_difference_over_its_reference(best, bound, reference, expected):
    assert gap(best, bound, reference) == expected


def test_a_limit_of_nothing_gives_the_greedys_plan():
    plan = planned(jobs(3, shareable=False), time_limit_s=0)
    assert (plan.solve.solver, len(plan.assignments)) == ("greedy", 1)


def test_an_engine_of_a_later_version_is_named_as_missing():
    with pytest.raises(EngineMissing, match="gurobi"):
        state, later = snapshot(jobs=jobs(1)), policy().model_copy(update={"solver": "gurobi"})
        epoch.plan_epoch(state, later, PredictorSpec())


def test_an_answer_that_breaks_a_rule_never_becomes_a_plan(monkeypatch):
    honest = epoch.solve

    def lying(problem, *args, **options):
        return replace(honest(problem, *args, **options), placed=tuple((0,) for _ in range(problem.jobs)))

    monkeypatch.setattr(epoch, "solve", lying)
    with pytest.raises(PlanRejected, match="breaks"):
        planned(jobs(4, gpu_memory_mib=20_000), time_limit_s=0)


def test_the_second_referee_refuses_what_the_first_would_let_through(monkeypatch):
    honest = epoch.solve

    def lying(problem, *args, **options):
        return replace(honest(problem, *args, **options), placed=tuple((0,) for _ in range(problem.jobs)))

    monkeypatch.setattr(epoch, "solve", lying)
    monkeypatch.setattr(epoch, "violations", lambda *_: ())
    with pytest.raises(PlanRejected, match="checks"):
        planned(jobs(4, gpu_memory_mib=20_000), time_limit_s=0)


def test_the_plans_id_depends_on_inputs_and_decisions_only():
    one, same = (planned([job(id="a")], [node(name="n")], time_limit_s=0) for _ in range(2))
    later = plan_epoch(
        snapshot([node(name="n")], [job(id="a")]),
        policy(time_limit_s=0, deterministic=True),
        PredictorSpec(),
        made_at="2027-01-01T00:00:00Z",
    )
    other = planned([job(id="b")], [node(name="n")], time_limit_s=0)
    assert one.id == same.id == later.id != other.id


def test_planning_again_begins_from_a_plan_near_it():
    """With another job in the queue, no engine but the greedy: what the plan had placed stays where it was."""
    nodes, rules = [node(4), node(4)], policy(time_limit_s=0.5, solver="greedy")
    queue = [job(id=f"j{i}", shareable=False) for i in range(6)]
    plan = plan_epoch(snapshot(nodes, queue), rules, PredictorSpec(), made_at=AT)
    more = snapshot(nodes, [*queue, job(id="new", shareable=False)])
    again = replan_with(PredictorSpec(), near=plan)(more, rules)
    assert "hint" in {attempt.solver for attempt in again.solve.attempts}
    assert "hint" not in {
        attempt.solver for attempt in replan_with(PredictorSpec())(more, rules).solve.attempts
    }
    assert len(again.assignments) == 7


def test_a_weight_of_nothing_silences_its_term():
    queue = jobs(4, gpu_utilisation_pct=90)
    silent = planned(queue, weights=Weights(waiting=0, makespan=0, fragmentation=0))
    assert silent.objective.total_gpu_s == 0
    assert silent.assignments == ()


def test_shares_allocated_and_requested_are_said():
    share = {"gpu_memory_mib": None, "gpu_utilisation_pct": None}
    plan = planned([*jobs(2, gpu_share_milli=600, **share), job(gpus=0)], time_limit_s=0)
    assert (plan.predicted.requested_share_milli, plan.predicted.allocated_share_milli) == (1200, 600)


CLOCKS = re.compile(r'"(made_at|wall_s)":\s*[^,\n}]*')


@pytest.mark.slow
@pytest.mark.parametrize("size", [(12, 12), (60, 32)])
def test_five_deterministic_runs_are_the_same_to_the_byte(size, tmp_path):
    """Each in a process of its own, so that nothing but the input can make them alike."""
    path = tmp_path / "s.yaml"
    path.write_text(dump(generate(*size, 3)))
    command = [sys.executable, "-m", "planner", "plan", str(path), "--deterministic", "--time-limit", "4"]
    outs = set()
    for i in range(5):
        out = tmp_path / f"{i}.json"
        subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)
        outs.add(CLOCKS.sub("", out.read_text()))
    assert len(outs) == 1


@pytest.mark.slow
def test_a_real_trace_is_planned_whole(data_dir, tmp_path):
    """All pods of alibaba-openb as one batch: valid, under 1.5 GB, hardly a share left over; time is the benchmark's."""
    scenario, plan = tmp_path / "openb.json", tmp_path / "plan.json"
    files = [data_dir / "openb_nodes_all.csv", data_dir / "openb_pods_default.csv"]
    run = [sys.executable, "-m", "planner"]
    subprocess.run([*run, "import", "alibaba-openb", *map(str, files), "--out", str(scenario)], check=True)
    peak = (
        "import resource, runpy, sys; sys.argv = ['planner', *sys.argv[1:]]\n"
        "try: runpy.run_module('planner', run_name='__main__')\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)\n"
        "print(max(resource.getrusage(w).ru_maxrss for w in who), file=sys.stderr)"
    )
    command = [sys.executable, "-c", peak, "plan", str(scenario), "--time-limit", "30", "--out", str(plan)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stderr.split()[-1]) < 1.5 * 2**20  # KiB
    found = Plan.model_validate_json(Path(plan).read_text())
    assert len(found.assignments) + len(found.deferred) == 8152
    assert found.predicted.allocated_share_milli > 0.95 * found.predicted.requested_share_milli
    assert found.solve.bound is not None
    assert found.solve.bound <= found.objective.total_gpu_s
