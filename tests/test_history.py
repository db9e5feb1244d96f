"""History tables: what is read, what is left out and counted, what is refused; names without their numbers."""

import gzip

import pytest

from planner.errors import InputError
from planner.predict import history
from planner.predict.history import History, Record, normalised

SACCT = """\
JobIDRaw|User|Account|JobName|Partition|AllocTRES|Submit|Start|Elapsed|State|Timelimit
101|ann|vision|train_17|gpu|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|2024-03-01T08:00:00|2024-03-01T08:10:00|1-02:03:04|COMPLETED|2-00:00:00
101.batch||vision|batch||cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|2024-03-01T08:10:00|2024-03-01T08:10:00|1-02:03:04|COMPLETED|
101.extern||vision|extern||billing=8,cpu=8,gres/gpu=2,node=1|2024-03-01T08:10:00|2024-03-01T08:10:00|1-02:03:04|COMPLETED|
102|bob|speech|asr|gpu|cpu=4,gres/gpu:v100=1,gres/gpu:p100=3|2024-03-01T09:00:00|2024-03-01T09:00:00|00:10:00|CANCELLED by 1000|UNLIMITED
103|bob|speech|asr|gpu|cpu=4,gres/gpu=1|2024-03-01T09:00:00|2024-03-01T09:30:00|01:00:00|TIMEOUT|01:00:00
104|bob|speech|asr|gpu|cpu=4,gres/gpu=1|2024-03-01T09:00:00|2024-03-01T10:00:00|00:00:30|NODE_FAIL|Partition_Limit
105|bob|speech|asr|gpu||2024-03-01T09:00:00|Unknown|00:00:00|PENDING|01:00:00
106|bob|speech|prep|cpu|cpu=4,mem=1G|2024-03-01T09:00:00|2024-03-01T09:00:00|00:05:00|FAILED|01:00:00
107|bob|speech|a|b|gpu|gres/gpu=1|2024-03-01T09:00:00|2024-03-01T09:00:00|00:05:00|FAILED|01:00:00
108|bob|speech|asr|gpu|gres/gpu=1|2024-03-01T09:00:00|2024-03-01T09:00:00|00:00:00|FAILED|01:00:00
109|bob|speech|asr|gpu|gres/gpu=1|2024-03-01T09:00:00|2024-03-01T08:00:00|00:00:10|RUNNING|01:00:00
"""
NINE = 1709283600.0  # 2024-03-01 09:00 UTC


@pytest.fixture
def table(tmp_path):
    """Read a history from its text."""

    def reading(text, name="jobs.csv"):
        path = tmp_path / name
        path.write_text(text)
        return history.read(path)

    return reading


def test_a_row_of_all_columns_becomes_a_record(table):
    read = table(
        ",".join(history.COLUMNS)
        + "\nj1,ann,vision,train_1,d1,gpu,2,NVIDIA A100-SXM4-80GB,-5,10,3600.5,timeout,7200,40960,83.5\n"
    )
    assert read.records == (
        Record(
            job="j1",
            user="ann",
            account="vision",
            name="train_1",
            digest="d1",
            queue="gpu",
            gpus=2,
            gpu_model="a100-80gb",
            submitted_s=-5,
            started_s=10,
            duration_s=3600.5,
            ended="timeout",
            time_limit_s=7200,
            gpu_memory_peak_mib=40960,
            gpu_utilisation_pct=83.5,
        ),
    )


def test_an_empty_cell_is_unknown_and_a_needed_one_drops_its_row(table):
    read = table("user,gpus,duration_s\n,1,60\nann,,60\nann,1,\nann,0,60\nann,1,0\n")
    assert read.records == (Record(gpus=1, duration_s=60),)
    assert read.dropped == {
        "with a duration of 0": 1,
        "without GPUs": 1,
        "without duration_s": 1,
        "without gpus": 1,
    }


def test_philly_is_told_by_its_header_also_packed(tmp_path):
    path = tmp_path / "trace.csv.gz"
    text = "job_id,submit_time,submit_s,duration_s,num_gpus,vc\n7,2017-10-09 00:00:00,30,90,4,abc\n8,x,30,,1,abc\n"
    path.write_bytes(gzip.compress(text.encode()))
    read = history.read(path)
    assert read.records == (Record(gpus=4, duration_s=90, job="7", account="abc", submitted_s=30),)
    assert (read.dropped, read.files) == ({"without duration_s": 1}, ("trace.csv.gz",))


def test_sacct_rows_become_jobs_and_every_other_row_is_counted(table):
    read = table(SACCT)
    day = 86400
    assert read.records == (
        Record(
            job="101",
            user="ann",
            account="vision",
            name="train_17",
            queue="gpu",
            gpus=2,
            gpu_model="a100",
            submitted_s=NINE - 3600,
            started_s=NINE - 3000,
            duration_s=day + 2 * 3600 + 3 * 60 + 4,
            ended="completed",
            time_limit_s=2 * day,
        ),
        # two models: their GPUs are summed and none is named; no limit is none
        _asr("102", gpus=4, started_s=NINE, duration_s=600, ended="cancelled"),
        _asr("103", started_s=NINE + 1800, duration_s=3600, ended="timeout", time_limit_s=3600),
        _asr("104", started_s=NINE + 3600, duration_s=30, ended="timeout"),  # it would have run on
    )
    assert read.dropped == {
        "of a step": 2,
        "that had not started": 1,
        "that started before it was submitted": 1,
        "with a duration of 0": 1,
        "with a | in a cell": 1,
        "without GPUs": 1,
    }
    assert len(read.records) + sum(read.dropped.values()) == len(SACCT.splitlines()) - 1


def test_raw_columns_of_sacct_are_seconds_and_minutes(table):
    read = table("JobID|ReqTRES|ElapsedRaw|TimelimitRaw|State\n5_3|gres/gpu=1|61|90|OUT_OF_MEMORY\n")
    assert read.records == (Record(gpus=1, duration_s=61, job="5_3", ended="failed", time_limit_s=90 * 60),)


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("gpus,user\n1,a\n", "line 1", "no column duration_s"),
        ("gpus,duration_s,usr\n1,5,a\n", "line 1", "unknown column 'usr'; did you mean user?"),
        ("gpus,duration_s\n1,5\n1,nan\n", "line 3: duration_s", "got 'nan'"),
        ("gpus,duration_s\n1,inf\n", "line 2: duration_s", "got 'inf'"),
        ("gpus,duration_s\n1,-5\n", "line 2: duration_s", "got '-5'"),
        ("gpus,duration_s\n1,1h\n", "line 2: duration_s", "got '1h'"),
        ("gpus,duration_s\n1.5,5\n", "line 2: gpus", "got '1.5'"),
        ("gpus,duration_s,ended\n1,5,complete\n", "line 2: ended", "got 'complete'; did you mean completed?"),
        ("gpus,duration_s,gpu_utilisation_pct\n1,5,101\n", "line 2: gpu_utilisation_pct", "got '101'"),
        ("job_id,submit_s,num_gpus,vc\n", "line 1", "no column duration_s"),
        ("JobID|State|Elapsed\n", "line 1", "no column AllocTRES or ReqTRES"),
        ("JobID|JobID|State|Elapsed|AllocTRES\n", "line 1", "two columns 'JobID'"),
        ("JobID|State|Elapsed|AllocTRES\n1|FAILED|00:01:00\n", "line 2", "3 cells"),
        ("JobID|State|Elapsed|AllocTRES\n1|FAILED|60|gres/gpu=1\n", "line 2: Elapsed", "got '60'"),
        ("JobID|State|Elapsed|AllocTRES\n1|FAILED|00:01:00|gres/gpu=two\n", "line 2: TRES", "got 'gres/gpu=two'"),
        ("JobID|State|ElapsedRaw|AllocTRES|Start\n1|FAILED|60|gres/gpu=1|noon\n", "line 2: Start", "got 'noon'"),
        ("JobID|State|ElapsedRaw|AllocTRES|Timelimit\n1|FAILED|60|gres/gpu=1|long\n", "line 2: Timelimit", "got 'long'"),
        ("", "", "the file is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_error_that_says_where(table, tmp_path, text, where, found):
    with pytest.raises(InputError) as error:
        table(text)
    assert error.value.where == f"{tmp_path / 'jobs.csv'}" + (f": {where}" if where else "")
    assert error.value.found == found
    assert error.value.accepted or "did you mean" in found


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("train_resnet_0042", "train_resnet_#"),
        ("Train_ResNet_0043", "train_resnet_#"),
        ("run-2024-01-05T10:15:00", "run-#"),
        ("sweep[1-10%4]", "sweep#"),
        ("job_3f2a9c1d", "job_#"),
        ("job_40123991", "job_#"),
        ("deadbeef_run", "deadbeef_run"),
        ("a-123e4567-e89b-12d3-a456-426614174000-b", "a-#-b"),
        ("lr0.1_bs32", "lr#_bs#"),
    ],
)
def test_a_name_loses_what_changes_from_run_to_run(name, plain):
    assert normalised(name) == plain
    assert normalised(plain) == plain


def test_as_of_cuts_off_what_runs_and_knows_nothing_later():
    def came(job, submitted_s, started_s, duration_s):
        return Record(gpus=1, job=job, submitted_s=submitted_s, started_s=started_s, duration_s=duration_s)

    undated = Record(gpus=1, duration_s=9, job="undated")
    ended, runs = came("ended", 0, 10, 90), came("runs", 0, 60, 100)
    whole = History((undated, ended, runs, came("waits", 50, 100, 5), came("later", 150, 160, 5)))
    assert whole.as_of(100).records == (undated, ended, runs._replace(duration_s=40, ended="running"))


def test_the_digest_of_a_history_does_not_depend_on_its_order():
    a, b = Record(gpus=1, duration_s=5), Record(gpus=2, duration_s=5)
    digest = History((a, b)).training("").digest
    assert History((b, a)).training("").digest == digest
    assert History((a, a)).training("").digest != digest


def _asr(job, *, gpus=1, started_s, duration_s, ended, time_limit_s=None):
    return Record(
        job=job,
        user="bob",
        account="speech",
        name="asr",
        queue="gpu",
        gpus=gpus,
        submitted_s=NINE,
        started_s=started_s,
        duration_s=duration_s,
        ended=ended,
        time_limit_s=time_limit_s,
    )


def test_a_state_of_a_newer_slurm_is_left_out_and_counted_and_one_that_was_cut_is_known(tmp_path):
    path = tmp_path / "s.txt"
    rows = [
        "1|ODD_STATE|00:01:00|gres/gpu=1",
        "2|OUT_OF_ME+|00:01:00|gres/gpu=1",
        "3|CANCELLED+|00:01:00|gres/gpu=1",
    ]
    path.write_text("\n".join(["JobID|State|Elapsed|AllocTRES", *rows]) + "\n")
    found = history.read(path)
    assert [r.ended for r in found.records] == ["failed", "cancelled"]
    assert found.dropped == {"in a state that is not known (ODD_STATE)": 1}
