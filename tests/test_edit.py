"""What-if edits give new, validated values and leave the old ones alone."""

import pytest
from builders import gpu, job, node, policy, snapshot
from pydantic import ValidationError

from planner import edit
from planner.policy import Weights


def names(snap):
    return [n.name for n in snap.cluster.nodes]


def test_an_added_node_is_like_the_other_but_empty_and_well():
    sick = node(
        [gpu(uuid="GPU-1", healthy=False, unmanaged_memory_mib=9), gpu(model="t4")],
        name="a0",
        cpus=8,
        links=[[0, 1]],
        schedulable=False,
    )
    added = edit.add_nodes(snapshot([sick]), "a0").cluster.nodes[1]
    assert added == node([gpu(), gpu(model="t4")], name="a1", cpus=8, links=[[0, 1]])


@pytest.mark.parametrize(
    ("there", "like", "added"),
    [
        (["a0"], "a0", ["a1", "a2"]),
        (["a0", "a7", "b9"], "a0", ["a8", "a9"]),
        (["n08"], "n08", ["n09", "n10"]),
        (["gpu"], "gpu", ["gpu1", "gpu2"]),
    ],
)
def test_added_nodes_carry_on_the_numbers(there, like, added):
    before = snapshot([node(name=n) for n in there])
    assert names(edit.add_nodes(before, like, 2)) == there + added
    assert names(before) == there


def test_jobs_of_a_removed_node_are_queued_again():
    before = snapshot(
        [node(2, name="a"), node(2, name="b")],
        [
            job(id="there", gpus=2, running_on=["a/1", "b/0"], started_s=-5),
            job(id="host", gpus=0, running_on=["a"]),
            job(id="other", running_on=["b/1"], started_s=-5),
        ],
    )
    after = edit.remove_node(before, "a")
    assert names(after) == ["b"]
    assert [(j.running_on, j.started_s) for j in after.jobs] == [((), None), ((), None), (("b/1",), -5)]


def test_a_drained_node_keeps_its_jobs_and_takes_no_more():
    before = snapshot([node(name="a")], [job(running_on=["a/0"])])
    after = edit.drain_node(before, "a")
    assert (after.cluster.nodes[0].schedulable, after.jobs) == (False, before.jobs)


def test_one_job_is_changed_and_moved():
    before = snapshot([node(2, name="a")], [job(id="x", gpu_models=["t4"]), job(id="y", running_on=["a/0"])])
    after = edit.move_job(edit.with_job(before, "x", gpu_models=(), max_nodes=2), "y", ["a/1"])
    assert (after.job_by_id["x"].gpu_models, after.job_by_id["x"].max_nodes) == ((), 2)
    assert after.job_by_id["y"].running_on == ("a/1",)
    assert edit.move_job(after, "y", ()).job_by_id["y"].running_on == ()


def test_jobs_come_and_go():
    before = snapshot(jobs=[job(id="x"), job(id="y")])
    assert [j.id for j in edit.add_jobs(before, [job(id="z")]).jobs] == ["x", "y", "z"]
    assert [j.id for j in edit.remove_jobs(before, ["x"]).jobs] == ["y"]


def test_only_the_named_policies_change():
    before = policy(max_tenants=2, weights=Weights(moves=3))
    after = edit.with_policy(before, {"max_slowdown": None, "weights": {"waiting": 5}})
    assert after == policy(max_tenants=2, max_slowdown=None, weights=Weights(moves=3, waiting=5))


BEFORE = snapshot([node(name="a")], [job(id="x"), job(id="y")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: edit.add_nodes(BEFORE, "z"), "no node is called 'z'"),
        (lambda: edit.remove_jobs(BEFORE, ["z"]), "no job is called 'z'"),
        (lambda: edit.with_job(BEFORE, "x", gpu=2), "Job has no field gpu"),
        (lambda: edit.with_job(BEFORE, "x", gpus=-1), "a whole number, 0 or more"),
        (lambda: edit.with_job(BEFORE, "x", id="y"), "two jobs are called 'y'"),
        (lambda: edit.move_job(BEFORE, "x", ["a/7"]), "no such GPU exists"),
        (lambda: edit.with_policy(policy(), {"horizon_s": 1}), "shorter than epoch_s"),
        (lambda: edit.with_policy(policy(), {"weights": {"idle": 1}}), "Weights has no field idle"),
        (lambda: edit.with_policy(policy(), {"weights": None}), "weights"),
    ],
)
def test_an_edit_that_no_file_could_say_is_refused(make, message):
    with pytest.raises((ValueError, ValidationError), match=message):
        make()
