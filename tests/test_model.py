"""The nouns: JSON there and back, what they refuse, and what they can be asked."""

import pytest
from builders import gpu, job, node, policy, snapshot
from pydantic import ValidationError

from planner.edit import AddNodes, Arrivals, Scenario, Variant
from planner.model import Carryover, Cluster, Gpu, Job, Node, Placement, Reserved, Snapshot, Throttle, Until
from planner.policy import InterferenceSpec, Links, PredictorSpec, Quota, TableRow, Weights

FULL_JOB = job(
    id="full", gpus=2, gpu_share_milli=500, profile="bert/64", cpus="1500m", host_memory_mib="2Gi", priority=4, queue="q",
    user="u", account="a", submitted_s=-5, started_s=-1, progress=0.5, time_limit_s="2-12", gpus_per_node=1, max_nodes=2,
    gpu_models=["V100M32"], node_labels={"rack": "r1"}, exclusive=True, shareable=False, max_slowdown=1.5, never_with="x",
    running_on=["n0/0", "n0/1"], movable=True, preemptible=True, checkpoint_s=1, restart_s=2, state="held",
    depends_on=["other"], licences={"l": 1}, throttle={"group": "g", "max_running": 3},
)  # fmt: skip
FULL_NODE = node(
    [gpu(), gpu(uuid="GPU-1", healthy=False, unmanaged_memory_mib=None, shards=4), gpu(memory_mib=None)],
    name="n0", cpus=64, host_memory_mib="500Gi", links=[[0, 1]], labels={"rack": "r1"}, schedulable=False, max_tenants=2,
    sharing="mps", isolation="memory", memory_factor=1.2,
)  # fmt: skip
FULL = Snapshot(
    name="full",
    about="everything\nswitched on",
    now_s=12.5,
    cluster=Cluster(nodes=(FULL_NODE,), licences={"l": 2}),
    jobs=(FULL_JOB, job(id="plain")),
    carryover=Carryover(
        reservations=(Reserved(job_id="plain", gpu_ids=("n0/0",), from_s=60),),
        cooldowns=(Until(name="full", until_s=9, why="moved"),),
        never_pairs=(("full", "plain"),),
        memory_peaks={"full": 123},
        evicted_for={"plain": "full"},
        last_plan="p",
    ),
    warnings=("odd",),
)
POLICY = policy(max_slowdown=None, weights=Weights(makespan=0), quotas=(Quota(queue="q", gpus=2),))
PREDICTOR = PredictorSpec(
    interference=InterferenceSpec(
        kind="table", rows=(TableRow(gpu_model="V100M32", profile="a", beside="b", slowdown=None),)
    ),
    speed={"*": {"Tesla T4": 0.25}},
    links=Links(network=2),
)
VARIANT = Variant(name="more", add_nodes=(AddNodes(like="n0"),), policy={"max_tenants": 1})
NOUNS = [
    FULL_JOB,
    FULL_NODE,
    FULL.cluster,
    FULL,
    FULL.carryover,
    *FULL.placements,
    POLICY,
    PREDICTOR,
    VARIANT,
    Arrivals(trace="philly", jobs=5),
    Scenario(
        snapshot=FULL, policy=POLICY, predictor=PREDICTOR, variants=(VARIANT,), arrivals=Arrivals(jobs=1)
    ),
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_a_noun_comes_back_from_json_as_it_was(noun):
    assert type(noun).model_validate_json(noun.model_dump_json()) == noun


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_a_noun_does_not_change(noun):
    with pytest.raises(ValidationError):
        setattr(noun, next(iter(type(noun).model_fields)), None)


def test_values_are_read_as_people_write_them():
    assert (FULL_JOB.cpus, FULL_JOB.cpu_milli, FULL_JOB.host_memory_mib, FULL_JOB.time_limit_s) == (
        1.5,
        1500,
        2048,
        216000,
    )
    assert (FULL_JOB.gpu_models, FULL_JOB.never_with) == (("v100-32gb",), ("x",))
    assert PREDICTOR.speed == {"*": {"t4": 0.25}}
    assert FULL_JOB.throttle == Throttle(group="g", max_running=3)


def test_unknown_is_none_and_zero_is_zero():
    bare = Job(id="bare")
    assert (bare.gpu_memory_mib, bare.gpu_utilisation_pct, bare.duration_s) == (None, None, None)
    assert (bare.cpus, Gpu(node="n", slot="0", model="t4").memory_mib) == (0, None)


def test_a_mig_instance_knows_its_card():
    instance = gpu(slot="3:1g.5gb:2")
    assert (instance.id, instance.index, instance.is_mig) == ("n001/3:1g.5gb:2", 3, True)
    assert (gpu(slot="3").index, gpu(slot="3").is_mig) == (3, False)


def test_placements_are_those_of_the_running_jobs():
    assert FULL.placements == (Placement(job_id="full", gpu_ids=("n0/0", "n0/1"), since_s=-1),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: job(gpus=2, running_on=["n/0"]), "running_on names 1 place, but the job has gpus: 2"),
        (lambda: job(gpus=2, running_on=["n/0", "n/0"]), "running_on names a GPU twice"),
        (lambda: job(gpus=3, gpus_per_node=2), "gpus: 3 is no multiple of gpus_per_node: 2"),
        (lambda: job(gpus=0, gpu_memory_mib=1), "a job with gpus: 0 cannot ask for GPU memory"),
        (lambda: job(priority=0), "greater than or equal to 1"),
        (lambda: job(progress=1.5), "less than or equal to 1"),
        (lambda: job(colour="red"), "Extra inputs are not permitted"),
        (lambda: node(2, links=[[0, 2]]), "name a GPU twice or one that is not there"),
        (lambda: node(2, links=[[0, 1], [1]]), "name a GPU twice or one that is not there"),
        (lambda: Node(name="a", gpus=(gpu(node="a"), gpu(node="a"))), "two GPUs in one slot"),
        (lambda: Node(name="a", gpus=(gpu(node="b"),)), "holds a GPU of another node"),
        (lambda: snapshot([node(name="a"), node(name="a")]), "two nodes are called a"),
        (lambda: snapshot(jobs=[job(id="a"), job(id="a")]), "two jobs are called 'a'"),
        (lambda: snapshot(jobs=[job(running_on="n0/7")]), "runs on 'n0/7', and no such GPU exists"),
        (lambda: snapshot(jobs=[job(gpus=0, running_on="n7")]), "runs on 'n7', and no such node exists"),
        (lambda: policy(horizon_s=10), "horizon_s: 10 is shorter than epoch_s: 300"),
        (lambda: Quota(gpus=1), "names exactly one of queue, user, account"),
        (lambda: Links(nvlink=2), "must not get faster"),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused(make, message):
    with pytest.raises(ValidationError, match=message):
        make()
