"""What a start depends on is looked at again when it is carried out: each rule, in a state that changed after the plan."""

import pytest
from builders import HINGE, job, node, policy, snapshot

from planner.backends.transition import transition
from planner.edit import add_jobs, changed, with_job, with_nodes
from planner.epoch import plan_epoch
from planner.model import Carryover, Reserved, Throttle, Until
from planner.policy import Quota


def state_of(**fields):
    """Two jobs that will share n0/0, and one, ``b``, that runs on n1/0."""
    about = {"profile": "p", "queue": "q", "user": "u", "gpu_models": ("a100-40gb",)}
    jobs = [
        job(id="x", cpus=4, host_memory_mib=1000, licences={"L": 1}, node_labels={"rack": "r"}, **about),
        job(id="y", throttle=Throttle(group="t", max_running=2), **about),
        job(id="b", running_on=("n1/0",), started_s=0, duration_s=9000),
    ]
    nodes = [node(1, name="n0", cpus=8, labels={"rack": "r"}), node(2, name="n1", labels={"rack": "s"})]
    return snapshot(nodes, jobs, licences={"L": 1}, **fields)


RULES = policy(time_limit_s=0, quotas=(Quota(queue="q", gpus=2),), max_tenants=2)


def planned(state, rules=RULES):
    """The greedy's plan."""
    return plan_epoch(state, rules, HINGE, fixes=False)


def with_node(state, **fields):
    """The state in which n0 differs."""
    n0, n1 = state.cluster.nodes
    return with_nodes(state, [changed(n0, **fields), n1])


def remembering(state, **fields):
    """The state with a carryover."""
    return changed(state, carryover=Carryover(**fields))


def joined(state, **fields):
    """The state in which one more job runs on n1/1, away from those of the plan."""
    return add_jobs(state, [job(**{"id": "new", "running_on": ("n1/1",), "started_s": 0, **fields})])


CHANGES = {
    "licence": (lambda s: joined(s, licences={"L": 1}), {"x": "nothing is left for it of the licences L"}),
    "quota": (lambda s: joined(s, queue="q"), {"y": "nothing is left for it of the quota of queue q"}),
    "throttle": (lambda s: joined(s, throttle=Throttle(group="t", max_running=1)), {"y": "nothing is left for it of the throttle t"}),
    "quarantine": (lambda s: remembering(s, quarantines=(Until(name="n0", until_s=9),)), {"x": "in quarantine", "y": "in quarantine"}),
    "exclusive": (lambda s: add_jobs(s, [job(id="new", gpus=0, exclusive=True, running_on=("n0",))]), {"x": "new is exclusive", "y": "new is exclusive"}),
    "labels": (lambda s: with_node(s, labels={}), {"x": "asks for nodes with rack=r"}),
    "tenants": (lambda s: with_node(s, max_tenants=1), {"y": "2 jobs on n0/0 (x, y), at most 1"}),
    "memory": (lambda s: remembering(s, memory_peaks={"x": 30000}), {"y": "x, y need 41000 MiB together"}),
    "MPS": (lambda s: with_node(s, sharing="mps", max_tenants=6), {"x": "MPS on n0/0", "y": "MPS on n0/0"}),
    "pairs": (lambda s: remembering(s, never_pairs=(("x", "y"),)), {"x": "was taken apart from y"}),
    "host": (lambda s: with_node(s, cpus=3), {"x": "too few cores"}),
    "reserved": (lambda s: remembering(s, reservations=(Reserved(job_id="waits", gpu_ids=("n0/0",), from_s=60),)), {"x": "reserved for waits", "y": "reserved for waits"}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_start_that_breaks_a_rule_by_now_is_left_out(change):
    """And nothing more is left out than has to be."""
    state = add_jobs(state_of(), [job(id="waits", state="held")])
    plan = planned(state)
    assert {a.job_id: a.gpu_ids for a in plan.assignments} == {"x": ("n0/0",), "y": ("n0/0",), "b": ("n1/0",)}
    now, stale = CHANGES[change][0](state), CHANGES[change][1]
    after, actions = transition(now, plan)
    found = {a.job_id: a.detail for a in actions if a.outcome == "stale"}
    assert set(found) == set(stale)
    assert all(text in found[job_id] for job_id, text in stale.items()), found
    assert {j.id for j in after.jobs if j.running and j.id in "xy"} == {"x", "y"} - set(stale)


def test_where_nothing_but_the_clock_has_changed_all_is_done():
    state = state_of()
    _, actions = transition(changed(state, now_s=500), planned(state))
    assert [(a.job_id, a.outcome) for a in actions] == [("x", "done"), ("y", "done")]


def test_a_reservation_made_since_the_plan_is_kept():
    """Another plan made it; this one neither knew of it nor uses what it keeps."""
    state = add_jobs(state_of(), [job(id="waits", state="held")])
    other = Reserved(job_id="waits", gpu_ids=("n1/1",), from_s=60)
    after, actions = transition(remembering(state, reservations=(other,)), planned(state))
    assert {a.outcome for a in actions} == {"done"}
    assert after.carryover.reservations == (other,)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (lambda s: with_job(s, "old", preemptible=False), "may not be stopped"),
        (
            lambda s: remembering(s, cooldowns=(Until(name="old", until_s=9),)),
            "may not be disturbed until 9 s",
        ),
    ],
)
def test_a_job_that_may_no_longer_be_stopped_stays_and_its_successor_waits(now, why):
    state = snapshot(
        [node(1, name="n0")],
        [
            job(id="old", running_on=("n0/0",), started_s=0, preemptible=True, shareable=False),
            job(id="new", priority=100, shareable=False, submitted_s=-9e6),
        ],
    )
    plan = planned(state, policy(time_limit_s=3, max_moves=1, solver="cp-sat"))
    assert plan.preempted == ("old",)
    after, actions = transition(now(state), plan)
    assert [(a.verb, a.outcome) for a in actions] == [("preempt", "stale"), ("start", "stale")]
    assert why in actions[0].detail
    assert after.job_by_id["old"].running_on == ("n0/0",)
