"""What a wrong scenario is told, and one that is doubtful but planned: each in a line that says where and what."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scenario_texts import BASE, HEAD

from planner import scenario
from planner.errors import InputError
from planner.model import Job

KEYS = ", ".join(sorted([*Job.model_fields, "count"]))
SECONDS = "seconds (90), or 90s, 15m, 2h, 1d, 4:00 (minutes:seconds), 2-12:30 (days-hours:minutes)"
LIST = 'values with ; between them (t4;a10), or a JSON list (["t4", "a10"])'
MEMORY = "whole MiB (40960) or a size such as 40Gi, 40GiB, 81920Mi, 80G (10^9 bytes)"


@pytest.fixture
def refusal(load, tmp_path):
    """The one line that a wrong scenario is told, with files named from its folder."""

    def told(text, name="s.yaml", **beside):
        with pytest.raises(InputError) as caught:
            load(text, name, **beside)
        line = str(caught.value)
        assert "\n" not in line and caught.value.exit_code == 2
        return line.replace(f"{tmp_path}{os.sep}", "")

    return told


# What a wrong file is told


@pytest.mark.parametrize(
    ("found", "instead", "line"),
    [
        ("gpu_memory_mib", "gpu_mem", "s.yaml: jobs[0]: unknown key 'gpu_mem'; did you mean gpu_memory_mib?"),
        ("policy", "polcy", "s.yaml: unknown key 'polcy'; did you mean policy?"),
        ("epoch_s", "epochs", "s.yaml: policy: unknown key 'epochs'; did you mean epoch_s?"),
        ("model: NV", "modle: NV", "s.yaml: cluster.nodes[0].gpus: unknown key 'modle'; did you mean model? (and 1 more)"),
        ("max_tenants", "max_tenant", "s.yaml: variants[1].policy: unknown key 'max_tenant'; did you mean max_tenants?"),
        ("{waiting", "{wait", "s.yaml: policy.weights: unknown key 'wait'; did you mean waiting?"),
        ("12Gi", "8k", f"s.yaml: jobs[0].gpu_memory_mib: got '8k'; accepted: {MEMORY}"),
        ("12Gi", "-1", f"s.yaml: jobs[0].gpu_memory_mib: got -1; accepted: {MEMORY}, not negative"),
        ("12Gi", ".nan", f"s.yaml: jobs[0].gpu_memory_mib: got nan; accepted: {MEMORY}"),
        ("2h", "soon", f"s.yaml: jobs[0].duration_s: got 'soon'; accepted: {SECONDS}"),
        ("300", "-300", f"s.yaml: policy.epoch_s: got -300; accepted: {SECONDS}, not negative"),
        ("epoch_s: 300", "time_limit_s: -1", f"s.yaml: policy.time_limit_s: got -1; accepted: {SECONDS}, not negative"),
        ("epoch_s: 300", "epoch_s: 0", "s.yaml: policy.epoch_s: got 0; accepted: > 0"),
        ("epoch_s: 300", "solver: cplex", "s.yaml: policy.solver: got 'cplex'; accepted: auto, greedy, patterns, search, cp-sat, columns, mip, cbc or highs"),
        ("epoch_s: 300", "horizon_s: 60", "s.yaml: policy: horizon_s: 60 is shorter than epoch_s: 300"),
        ("gpus: 1", "gpus: four", "s.yaml: jobs[1].gpus: got 'four'; accepted: a whole number, 0 or more"),
        ("gpus: 1", "gpus: true", "s.yaml: jobs[1].gpus: got true; accepted: a whole number, 0 or more"),
        ("gpus: 1", "shareable: yes", "s.yaml: jobs[1].shareable: got 'yes'; accepted: true or false"),
        ("gpus: 1", "priority: 101", "s.yaml: jobs[1].priority: got 101; accepted: <= 100"),
        ("gpus: 1", "gpus: 2", "s.yaml: jobs[1]: running_on names 1 place, but the job has gpus: 2"),
        ("gpus: 1", "node_labels: {rack: 1}", "s.yaml: jobs[1].node_labels.rack: got 1; accepted: text (a number or a word like yes needs quotes)"),
        ("count: 1", "count: 0", "s.yaml: jobs[1].count: got 0; accepted: >= 1"),
        ("count: 1", "id: third", "s.yaml: line 14: the key 'id' comes twice"),
        ("id: second", "title: second", "s.yaml: jobs[1]: unknown key 'title'; known: " + KEYS + " (and 1 more)"),
        ("second", '"bad\\nname"', "s.yaml: jobs[1].id: got 'bad\\nname'; accepted: a name: 1 to 253 printable characters without blanks at its ends"),
        ("a0/1", "a0/9", "s.yaml: jobs[1].running_on: job 'second-0' runs on 'a0/9', and no such GPU exists"),
        ("first", "second-0", "s.yaml: jobs[1].id: two jobs are called 'second-0'; accepted: unique ids"),
        ("a[0-1]", "'a[0-1,1]'", "s.yaml: cluster.nodes[0].name: got 'a[0-1,1]', which names a1 twice; accepted: every name once"),
        ("{rack: r1}", "{rack: r1}\n    - {name: a1}", "s.yaml: cluster.nodes[1].name: a1 is a node of cluster.nodes[0] already; accepted: every node once"),
        ("[[0, 1]]", "[[0, 2]]", "s.yaml: cluster.nodes[0]: links of a0 name a GPU twice or one that is not there"),
        ("cpus: 64", "cpus: lots", "s.yaml: cluster.nodes[0].cpus: got 'lots'; accepted: CPUs such as 4, 0.5 or 1500m"),
        ("cpus: 64", "unhealthy: [2]", "s.yaml: cluster.nodes[0].unhealthy[0]: got 2; accepted: 0 to 1"),
        ("cpus: 64", "unmanaged_gpu_memory_mib: {2: 1}", "s.yaml: cluster.nodes[0].unmanaged_gpu_memory_mib: got the GPU 2; accepted: 0 to 1"),
        ("cpus: 64", "uuids: [a]", "s.yaml: cluster.nodes[0].uuids: got a list of 1; accepted: one for each of the 2 GPUs"),
        ("cpus: 64", "partition: half", "s.yaml: cluster.nodes[0].partition: got 'half'; accepted: whole"),
        ("cpus: 64", "partition: {shard: 2}", "s.yaml: cluster.nodes[0].partition: unknown key 'shard'; did you mean shards? (and 1 more)"),
        ("cpus: 64", "partition: {mig: {1g.5gb: 8}}", "s.yaml: cluster.nodes[0].partition.mig: 8 compute slices; accepted: at most 7 on a card"),
        ("cpus: 64", "partition: {mig: {2g.20gb: 3}}", "s.yaml: cluster.nodes[0].partition.mig: instances of 58368 MiB; accepted: at most the card's 40960 MiB"),
        ("cpus: 64", "partition: {mig: {small: 1}}", "s.yaml: cluster.nodes[0].partition.mig: got 'small'; accepted: profiles such as 1g.5gb or 3g.40gb"),
        ("count: 2}\n      cpus", "count: 2000}\n      cpus", "s.yaml: cluster.nodes[0].gpus.count: got 2000; accepted: <= 1024"),
        ("like: a0", "like: z", "s.yaml: variants[0]: no node is called 'z'; accepted: names of nodes that are there"),
        ("add_nodes: [{like: a0, count: 2}]", "remove_jobs: [z]", "s.yaml: variants[0]: no job is called 'z'; accepted: ids of jobs that are there"),
        ("max_tenants: 1", "weights: {idle: 1}", "s.yaml: variants[1].policy: Weights has no field idle"),
        ("max_tenants: 1", "max_tenants: 0", "s.yaml: variants[1].policy: max_tenants: got 0; accepted: >= 1"),
        ("kind: utilisation", "kind: table", "s.yaml: predictor.interference: kind: table without a table; accepted: path: pairs.csv, or rows"),
        ("kind: utilisation", "path: t.csv", "s.yaml: predictor.interference.kind: got time-sharing with a table; accepted: kind: table"),
        ("kind: utilisation", "kind: table, path: t.csv", "t.csv: no such file"),
        ("scenario/1", "scenario/2", "s.yaml: schema: got 'planner.scenario/2'; accepted: planner.scenario/1"),
        ("schema: planner.scenario/1\n", "", "s.yaml: schema: is missing; accepted: planner.scenario/1"),
        ("now_s: 0", "now_s: later", "s.yaml: now_s: got 'later'; accepted: a number of seconds on the snapshot's clock"),
        ("now_s: 0", "1: 0", "s.yaml: the key 1; accepted: keys that are text"),
        ("policy: {", "policy: [{", "s.yaml: line 16: not YAML: did not find expected ',' or ']'; accepted: YAML"),
        ("about:", "\tabout:", "s.yaml: line 3: not YAML: found a tab character that violates indentation; accepted: YAML"),
        ("Two nodes", "!!python/name:os.system x", "s.yaml: line 3: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'"),
        ("Two nodes", "\x00", "s.yaml: line 3: a NUL character; accepted: text"),
        ("now_s: 0", "now_s: " + "9" * 400, "s.yaml: now_s: got a number of more than 60 digits; accepted: a number of seconds on the snapshot's clock, at most 10000000000"),
    ],
)  # fmt: skip
def test_a_wrong_scenario_is_told_where_and_what(refusal, found, instead, line):
    assert found in BASE
    assert refusal(BASE.replace(found, instead, 1)) == line


TYPOS = {
    "jobs: [{id: a, %s: 1}]": {
        "gpu": "gpus", "cpu": "cpus", "gpsu": "gpus", "GPUs": "gpus", "gpu_mem": "gpu_memory_mib",
        "memory": "gpu_memory_mib or host_memory_mib", "duration": "duration_s", "timelimit": "time_limit_s",
        "gpuModels": "gpu_models", "gpu_utilization_pct": "gpu_utilisation_pct", "priorty": "priority",
        "depends": "depends_on", "labels": "node_labels", "running": "running_on", "preemptable": "preemptible",
    },
    "%s: 1": {"job": "jobs", "polcy": "policy", "varaints": "variants", "Cluster": "cluster", "now": "now_s"},
    "cluster: {%s: 1}": {"node": "nodes", "licenses": "licences"},
    "cluster: {nodes: [{name: n, %s: 1}]}": {
        "gpu": "gpus", "cpu": "cpus", "label": "labels", "tenants": "max_tenants", "unhealty": "unhealthy",
    },
    "cluster: {nodes: [{name: n, gpus: {model: t4, %s: 1}}]}": {"memory": "memory_mib", "gpu_count": "count"},
    "policy: {%s: 1}": {"epoch": "epoch_s", "slowdown": "max_slowdown", "quota": "quotas", "wieghts": "weights"},
    "policy: {weights: {%s: 1}}": {"wait": "waiting", "move": "moves", "localty": "locality"},
    "predictor: {%s: 1}": {"link": "links", "speeds": "speed", "interferance": "interference"},
    "predictor: {interference: {%s: 1}}": {"threshold": "threshold_pct", "row": "rows"},
    "variants: [{name: v, %s: 1}]": {"add_node": "add_nodes", "remove_job": "remove_jobs"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "typo", "meant"), [(text, *pair) for text, pairs in TYPOS.items() for pair in pairs.items()]
)
def test_a_slip_in_a_key_is_told_what_was_meant(refusal, text, typo, meant):
    """The least edit goes before a name that only begins alike."""
    assert f"unknown key '{typo}'; did you mean {meant}?" in refusal(HEAD + text % typo)


@pytest.mark.parametrize("key", ["nodes", "xyz", "q"])
def test_a_key_that_is_like_none_is_told_them_all(refusal, key):
    assert f"unknown key '{key}'; known: about, " in refusal(f"{HEAD}{key}: 1")


def test_a_job_after_copies_is_told_by_its_own_place(refusal):
    jobs = "jobs: [{id: a, count: 3}, {id: b, running_on: n/0}]"
    assert refusal(HEAD + jobs) == "s.yaml: jobs[1].running_on: job 'b' runs on 'n/0', and no such GPU exists"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml: the file is empty; accepted: a scenario or snapshot in YAML or JSON"),
        ("# only a comment\n", "s.yaml: got null; accepted: keys with values, among them schema: planner.scenario/1"),
        ("- a\n", "s.yaml: got a list; accepted: keys with values, among them schema: planner.scenario/1"),
        ("hello", "s.yaml: got 'hello'; accepted: keys with values, among them schema: planner.scenario/1"),
        (b"a: caf\xe9\n", "s.yaml: line 1: the text is not UTF-8; accepted: UTF-8"),
        (HEAD + "---\na: 1\n", "s.yaml: line 2: not YAML: but found another document; accepted: YAML"),
        (HEAD + "jobs: &a [*a]", "s.yaml: an alias leads back to itself; accepted: values that end"),
        (HEAD + "jobs: " + "[" * 10**5, "s.yaml: the values are nested too deeply; accepted: at most 64 levels"),
        (HEAD + "jobs:\n" + "- " * 10**5, "s.yaml: the values are nested too deeply; accepted: at most 64 levels"),
        ('{"schema": 1, "schema": 2}', "s.yaml: the key 'schema' comes twice"),
        ('{"schema": "planner.scenario/1",\n "jobs" []}', "s.yaml: line 2: not JSON: expecting ':' delimiter; accepted: JSON"),
        ('{"schema": "planner.scenario/1", "about": "\\ud800"}', "s.yaml: half of a surrogate pair; accepted: characters"),
        ('{"schema": "planner.scenario/1", "now_s": NaN}', "s.yaml: now_s: got nan; accepted: a number of seconds on the snapshot's clock"),
        (HEAD + "cluster: {nodes: [{name: 'a[0-999]', gpus: {model: t4, count: 1000}}]}",
         "s.yaml: cluster.nodes[0].gpus: 1000000 GPUs on 1000 nodes; accepted: at most 200000"),
        (HEAD + "jobs: [{id: a, count: 200000}, {id: b}]", "s.yaml: jobs: 200001 jobs; accepted: at most 200000"),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_no_scenario_at_all_is_told_so(refusal, text, line):
    assert refusal(text) == line


@pytest.mark.parametrize("merged", [False, True])
def test_aliases_cannot_multiply_without_end(refusal, merged):
    use = (
        (lambda c: f"{{<<: [{','.join([f'*{c}'] * 9)}]}}")
        if merged
        else (lambda c: f"[{','.join([f'*{c}'] * 9)}]")
    )
    levels = "".join(
        f"{c}: &{c} {use(previous)}\n" for previous, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refusal(f"{HEAD}a: &a {{x: 1}}\n{levels}").startswith(
        "s.yaml: the aliases multiply into too many values"
    )


def test_a_path_that_cannot_be_read_is_told_so(tmp_path):
    for path, said in [
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "is a directory; accepted: a file that can be read"),
        (f"{tmp_path}/\0", "embedded null byte; accepted: a file that can be read"),
    ]:
        with pytest.raises(InputError) as caught:
            scenario.load(path)
        assert str(caught.value) == f"{path}: {said}".replace("\0", "?")


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be read by this user")
def test_a_file_without_permission_is_told_so(refusal, tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD)
    (tmp_path / "s.yaml").chmod(0)
    with pytest.raises(InputError, match="permission denied; accepted: a file that can be read"):
        scenario.load(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("id,gpus\na,1\nb,four\n", "j.csv: line 3, gpus: got 'four'; accepted: a whole number, 0 or more"),
        ("id,gpus\na,1\n\nb,1,2\n", "j.csv: line 4: 3 cells; accepted: 2, as in the header"),
        ("id,gpus\na\n", "j.csv: line 2: 1 cell; accepted: 2, as in the header"),
        ("gpus\n1\n", "j.csv: line 1: no column id; accepted: the columns id"),
        ("id,gpu\na,1\n", "j.csv: line 1: unknown column 'gpu'; did you mean gpus?"),
        ("id,id\na,b\n", "j.csv: line 1: two columns 'id'; accepted: each column once"),
        ("id,gpus\n,1\n", "j.csv: line 2, id: is missing"),
        ("", "j.csv: the file is empty; accepted: CSV with a header line id"),
        ('id\n"a\n', "j.csv: line 2: unexpected end of data; accepted: CSV with a header line"),
        ("id,shareable\na,yes\n", "j.csv: line 2, shareable: got 'yes'; accepted: true or false"),
        ("id,gpus,running_on\na,2,a0/0;a0/0\n", "j.csv: line 2: running_on names a GPU twice"),
        ("id\na\n\na\n", "j.csv: line 4, id: two jobs are called 'a'; accepted: unique ids"),
        ("id,count\na-1,\na,2\n", "j.csv: line 3, id: two jobs are called 'a-1'; accepted: unique ids"),
        (
            "id,running_on\na,n/0\n",
            "j.csv: line 2, running_on: job 'a' runs on 'n/0', and no such GPU exists",
        ),
        ("id,gpu_models\na,[t4]\n", f"j.csv: line 2, gpu_models: got '[t4]'; accepted: {LIST}"),
        ('id,gpu_models\na,"[t4,a10]"\n', f"j.csv: line 2, gpu_models: got '[t4,a10]'; accepted: {LIST}"),
        ('id,depends_on\na,"b, c"\n', f"j.csv: line 2, depends_on: got 'b, c'; accepted: {LIST}"),
        ("id,never_with\na,b|c\n", f"j.csv: line 2, never_with: got 'b|c'; accepted: {LIST}"),
    ],
)
def test_a_wrong_table_of_jobs_is_told_its_line(refusal, table, line):
    assert refusal(HEAD + "jobs: {path: j.csv}", j__csv=table) == line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("j.csv", "j.csv: no such file"),
        ("j.parquet", "j.parquet: no such file"),
        ("j.xlsx", "j.xlsx: not a table of jobs by its name; accepted: .csv, .parquet or .json"),
        (
            "bad.parquet",
            "bad.parquet: not Parquet: Parquet magic bytes not found in footer; accepted: a Parquet file",
        ),
        ("bad.json", "bad.json: got {}; accepted: a list of jobs"),
    ],
)
def test_a_wrong_path_of_jobs_is_told_so(refusal, path, line):
    beside = {"bad__parquet": "PAR0" * 10, "bad__json": "{}"}
    assert refusal(f"{HEAD}jobs: {{path: {path}}}", **beside) == line


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"gpus": [1]}, "j.parquet: no column id; accepted: the columns id, ..."),
        ({"id": ["a"], "gpsu": [1]}, "j.parquet: unknown column 'gpsu'; did you mean gpus?"),
        (
            {"id": ["a", "b"], "gpus": [1, -1]},
            "j.parquet: row 2, gpus: got -1; accepted: a whole number, 0 or more",
        ),
        (
            {"id": ["a", "b", "a"]},
            "j.parquet: row 3, id: two jobs are called 'a'; accepted: unique ids",
        ),
        (
            {"id": ["a"], "gpu_models": ["[t4,a10]"]},
            f"j.parquet: row 1, gpu_models: got '[t4,a10]'; accepted: {LIST}",
        ),
    ],
)
def test_a_wrong_parquet_table_is_told_its_row(refusal, tmp_path, columns, line):
    pq.write_table(pa.table(columns), tmp_path / "j.parquet")
    assert refusal(HEAD + "jobs: {path: j.parquet}") == line


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("gpu_model,profile,beside,slowdwn\n", "t.csv: line 1: no column slowdown; accepted: the columns gpu_model, profile, beside, slowdown"),
        ("gpu_model,profile,beside,slowdown,x\n", "t.csv: line 1: unknown column 'x'; known: gpu_model, profile, beside, slowdown, observations"),
        ("gpu_model,profile,beside,slowdown\nt4,a,b,1.2x\n", "t.csv: line 2, slowdown: got '1.2x'; accepted: a number"),
        ("gpu_model,profile,beside,slowdown\nt4,a,b,0.9\n", "t.csv: line 2, slowdown: got 0.9; accepted: >= 1"),
        ("gpu_model,profile,beside,slowdown\nt4,a,,1.2\n", "t.csv: line 2, beside: is missing"),
        ("gpu_model,profile,beside,slowdown\nt4,a,b,1.2\nTesla T4,a,b,1.3\n", "t.csv: line 3: a beside b on t4 stands on line 2 already; accepted: every pair once"),
    ],
)  # fmt: skip
def test_a_wrong_interference_table_is_told_its_line(refusal, table, line):
    assert refusal(HEAD + "predictor: {interference: {kind: table, path: t.csv}}", t__csv=table) == line


# What is doubtful, but planned


def test_running_jobs_that_overcommit_a_gpu_are_a_warning(load):
    text = BASE.replace("count: 1}", "gpu_memory_mib: 50000}")
    assert load(text).snapshot.warnings == (
        "a0/1 is overcommitted: its 1 running job asks for 50000 of 40960 MiB; it takes no new job",
    )
    assert load(text.replace("50000", "40960")).snapshot.warnings == ()


def test_shares_above_a_whole_gpu_are_a_warning(load):
    two = (
        HEAD
        + "cluster: {nodes: [{name: n, gpus: {model: t4}}]}\njobs: [{id: a, gpu_share_milli: 600, running_on: n/0, count: 2}]"
    )
    assert load(two).snapshot.warnings == (
        "n/0 is overcommitted: its 2 running jobs hold shares of 1200 thousandths; it takes no new job",
    )
    assert load(two.replace("600", "500")).snapshot.warnings == ()


def test_quotas_above_the_cluster_are_a_warning_with_the_gap(load):
    text = (
        HEAD
        + "cluster: {nodes: [{name: n, gpus: {model: t4, count: 7}}]}\npolicy: {quotas: [{queue: a, gpus: 6}, {queue: b, gpus: 4}]}"
    )
    assert load(text).snapshot.warnings == (
        "the quotas by queue add up to 10 GPUs, 3 more than the 7 of the cluster",
    )
    assert load(text.replace("gpus: 4}", "gpus: 1}")).snapshot.warnings == ()


@pytest.mark.parametrize(
    ("jobs", "warnings"),
    [
        ("{id: a, depends_on: b}, {id: b, depends_on: c}, {id: c, depends_on: [x, a]}",
         ("the jobs a, b, c depend on each other in a ring and can never start",)),
        ("{id: z, depends_on: a}, {id: a, depends_on: b}, {id: b, depends_on: a}",
         ("the jobs a, b depend on each other in a ring and can never start",)),
        ("{id: a, depends_on: a}", ("job a depends on itself and can never start",)),
        ("{id: a, depends_on: b}, {id: b, depends_on: a, running_on: n/0}", ()),  # b ends, and then a starts
        ("{id: a, depends_on: [b, c]}, {id: b, depends_on: d}, {id: c, depends_on: d}, {id: d}", ()),
    ],
)  # fmt: skip
def test_jobs_that_wait_for_each_other_are_a_warning(load, jobs, warnings):
    text = f"{HEAD}cluster: {{nodes: [{{name: n, gpus: {{model: t4}}}}]}}\njobs: [{jobs}]"
    assert load(text).snapshot.warnings == warnings


def test_a_long_ring_of_jobs_is_found_soon_and_told_briefly(load):
    rows = "".join(f"j{i},j{(i + 1) % 5000}\n" for i in range(5000))
    (warning,) = load(HEAD + "jobs: {path: j.csv}", j__csv=f"id,depends_on\n{rows}").snapshot.warnings
    assert warning.startswith("the jobs j0, j1, j2, j3, j4 and 4995 more depend on each other")


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("[a100-40gb, Tesla T4]", ()),  # there, and known
        ("'t4:1g.5gb'", ()),
        ("v1000", ("gpu_models: no node has 'v1000', and it is no GPU model known here; did you mean v100? (asked for by j)",)),
        ("mi300x", ("gpu_models: no node has 'mi300x', and it is no GPU model known here (asked for by j)",)),
        ("ours-2", ("gpu_models: no node has 'ours-2', and it is no GPU model known here; did you mean ours-1? (asked for by j)",)),
    ],
)  # fmt: skip
def test_a_gpu_model_that_nobody_knows_is_a_warning(load, models, says):
    nodes = "[{name: n, gpus: {model: a100-40gb}}, {name: m, gpus: {model: ours-1}}]"
    text = f"{HEAD}cluster: {{nodes: {nodes}}}\njobs: [{{id: j, gpu_models: {models}}}]"
    assert load(text).snapshot.warnings == says


@pytest.mark.parametrize(
    ("gpus", "job", "says"),
    [
        ("model: voodoo2", "gpu_memory_mib: 1000", ("nodes: 'voodoo2' is no GPU model known here, and no memory_mib is stated (on n0, n1); no job that asks for GPU memory is placed there",)),
        ("model: v1000", "gpu_memory_mib: 1000", ("nodes: 'v1000' is no GPU model known here; did you mean v100?, and no memory_mib is stated (on n0, n1); no job that asks for GPU memory is placed there",)),
        ("model: voodoo2, memory_mib: 8000", "gpu_memory_mib: 1000", ()),
        ("model: voodoo2", "gpu_share_milli: 500", ()),  # a share needs no known memory
        ("model: t4", "gpu_memory_mib: 1000", ()),
    ],
)  # fmt: skip
def test_nodes_of_an_unknown_model_without_memory_are_a_warning(load, gpus, job, says):
    text = f'{HEAD}cluster: {{nodes: [{{name: "n[0-1]", gpus: {{{gpus}}}}}]}}\njobs: [{{id: j, {job}}}]'
    assert load(text).snapshot.warnings == says
