"""Traces as scenarios: what each column becomes, what is left out, and the public files themselves."""

import gzip

import pytest

from planner import scenario, traces
from planner.errors import InputError
from planner.model import Gpu, Job, Node

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
h0,32000,262144,0,
h1,8500,65536,2,V100M32
h2,64000,131072,1,G2
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
share,1500,2048,1,460,,LS,Succeeded,100,400,150
whole,4000,8192,1,1000,V100M16|V100M32,BE,Running,200,900,210
gang,16000,65536,8,1000,,BE,Succeeded,300,500,300.0
host,500,1024,0,0,,Burstable,Pending,10,900,
"""
JOBS = """\
job_id,submit_time,submit_s,duration_s,num_gpus,vc
1,2017-10-09 00:01:56,100,66,1,11cb48
2,2017-10-09 00:11:57,200,1000,8,ee9e8c
"""


@pytest.fixture
def openb(tmp_path):
    def read(nodes=NODES, pods=PODS, **options):
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "pods.csv").write_text(pods)
        return traces.alibaba_openb(tmp_path / "nodes.csv", tmp_path / "pods.csv", **options)

    return read


@pytest.fixture
def philly(tmp_path):
    def read(jobs=JOBS, **options):
        (tmp_path / "jobs.csv").write_text(jobs)
        return traces.philly(tmp_path / "jobs.csv", **options)

    return read


def test_openb_nodes_keep_cards_cores_and_memory(openb):
    assert openb().snapshot.cluster.nodes == (
        Node(name="h0", cpus=32, host_memory_mib=262144),
        Node(
            name="h1",
            gpus=tuple(Gpu(node="h1", slot=str(i), model="v100-32gb", memory_mib=32768) for i in range(2)),
            cpus=8.5,
            host_memory_mib=65536,
        ),
        # Nobody knows what G2 is: its memory is unknown, not guessed.
        Node(
            name="h2",
            gpus=(Gpu(node="h2", slot="0", model="g2", memory_mib=None),),
            cpus=64,
            host_memory_mib=131072,
        ),
    )


def test_openb_pods_are_shares_wholes_and_hosts(openb):
    found = openb()
    assert found.policy.max_tenants is None
    assert found.snapshot.jobs == (
        # 400 - 150 seconds; what still lives when the trace ends (900) has no known duration.
        Job(
            id="share",
            gpu_share_milli=460,
            cpus=1.5,
            host_memory_mib=2048,
            max_nodes=1,
            queue="LS",
            duration_s=250,
        ),
        Job(
            id="whole",
            shareable=False,
            cpus=4,
            host_memory_mib=8192,
            max_nodes=1,
            queue="BE",
            gpu_models=("v100-16gb", "v100-32gb"),
        ),
        Job(
            id="gang",
            gpus=8,
            shareable=False,
            cpus=16,
            host_memory_mib=65536,
            max_nodes=1,
            queue="BE",
            duration_s=200,
        ),
        Job(id="host", gpus=0, cpus=0.5, host_memory_mib=1024, queue="Burstable"),
    )


def test_openb_at_a_time_is_the_pods_of_that_time_with_their_ages(openb):
    found = openb(at_s=400).snapshot  # share is deleted at 400 exactly
    assert (found.now_s, [(j.id, j.submitted_s) for j in found.jobs]) == (
        400,
        [("whole", 200), ("gang", 300), ("host", 10)],
    )
    assert openb(at_s=5).snapshot.jobs == ()


def test_philly_jobs_run_alone_on_nodes_of_eight(philly):
    found = philly(nodes=2).snapshot
    assert len(found.cluster.gpus) == 16 and {g.memory_mib for g in found.cluster.gpus} == {None}
    assert found.jobs == (
        Job(id="1", duration_s=66, queue="11cb48"),
        Job(id="2", gpus=8, duration_s=1000, queue="ee9e8c"),
    )


def test_philly_at_a_time_is_what_would_run_then(philly):
    assert [(j.id, j.submitted_s) for j in philly(at_s=1000).snapshot.jobs] == [("2", 200)]


def test_rows_that_cannot_be_used_are_counted_by_cause_first_of_all(openb):
    pods = (
        PODS
        + "late,1,1,1,500,,LS,Unknown,,900,\nhalf,1,1,0.5,500,,LS,Running,1,900,\nnone,1,1,1,0,,LS,Running,1,900,\n"
    )
    pods += "share,1,1,1,500,,LS,Running,1,900,\nlate2,1,1,1,500,,LS,Unknown,-3,900,\nodd,1,1,1,500,x|,LS,Running,1,900,\n"
    found = openb(pods=pods, nodes=NODES + "h1,1,1,1,T4\nh3,1,1,1,\n,1,1,0,\n").snapshot
    told = (
        "9 rows of the trace were left out (1 with GPUs but without model, 1 with a bad gpu_models.1, "
        "1 with a name that came before, 1 with a sn that came before, 2 without a usable creation_time, "
        "1 without a usable gpu_milli, 1 without a usable num_gpu, 1 without sn)."
    )
    assert found.warnings == (told,)
    assert found.about == f"{told} Alibaba openb: 3 nodes and 4 pods, all pods of the trace as one batch."


def test_philly_rows_that_cannot_be_used_are_counted(philly):
    found = philly(JOBS + "3,,,5,1,a\n4,,5,,1,a\n5,,5,0,1,a\n6,,5,5,0,a\n1,,5,5,1,a\n").snapshot
    assert found.warnings == (
        "5 rows of the trace were left out (1 with a duration of 0, 1 with a job_id that came before, "
        "1 without GPUs, 1 without a usable duration_s, 1 without a usable submit_s).",
    )


@pytest.mark.parametrize(
    ("pods", "line"),
    [
        ("name,cpu_milli\na,1\n", "pods.csv: line 1: no column memory_mib; accepted: the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, creation_time, deletion_time"),
        ("", "pods.csv: the file is empty; accepted: CSV with a header line name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, creation_time, deletion_time"),
        (PODS + "short,1\n", "pods.csv: line 6: 2 cells; accepted: 11, as in the header"),
        (PODS.splitlines()[0], "pods.csv: no rows; accepted: a trace with at least one row that can be used"),
        (PODS.splitlines()[0] + "\na,x,1,1,1,,,,1,2,1\n", "pods.csv: 1 row of the trace was left out (1 without a usable cpu_milli).; accepted: a trace with at least one row that can be used"),
        ("\x00", "pods.csv: line 1: a NUL character; accepted: text"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_told_so(openb, tmp_path, pods, line):
    with pytest.raises(InputError) as caught:
        openb(pods=pods)
    assert str(caught.value) == f"{tmp_path}/{line}"


def test_a_trace_file_that_is_not_there_is_told_so(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: no such file$"):
        traces.philly(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"^--nodes: got 0; accepted: 1 to 100000$"):
        traces.philly(tmp_path / "none.csv", nodes=0)


# The public files


def test_the_public_openb_trace_is_whole(data_dir, tmp_path):
    found = traces.alibaba_openb(data_dir / "openb_nodes_all.csv", data_dir / "openb_pods_default.csv")
    cluster, jobs = found.snapshot.cluster, found.snapshot.jobs
    assert (len(cluster.nodes), len(cluster.gpus), len(jobs)) == (1523, 6212, 8152)
    assert sum(j.gpu_share_milli is not None for j in jobs) == 3078
    assert found.snapshot.warnings == ()
    (tmp_path / "openb.json").write_text(scenario.dump(found, "json"))
    assert scenario.load(tmp_path / "openb.json") == found


def test_the_public_philly_week_is_whole(data_dir):
    found = traces.philly(data_dir / "philly_jobs_week_2017-10-09.csv")
    assert (len(found.snapshot.jobs), len(found.snapshot.cluster.gpus)) == (12751, 2488)
    assert found.snapshot.warnings == ()


def test_a_trace_may_be_packed_with_gzip(tmp_path):
    rows = "job_id,submit_time,submit_s,duration_s,num_gpus,vc\n1,x,0,60,2,a\n"
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    assert [j.gpus for j in traces.philly(packed).snapshot.jobs] == [2]
    whole = packed.read_bytes()
    for broken in (whole[:-9], b"\x1f\x8b" + whole[:20]):
        packed.write_bytes(broken)
        with pytest.raises(InputError, match="begins like a gzip file and cannot be unpacked"):
            traces.philly(packed)
