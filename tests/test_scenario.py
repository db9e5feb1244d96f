"""Scenario, config and snapshot files: what they mean, and that they come back as written."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import HINGE, gpu, job, node, policy, snapshot
from scenario_texts import BASE, HEAD

from planner import scenario
from planner.edit import Arrivals, Scenario, Variant
from planner.errors import InputError
from planner.model import Carryover, Cluster, Gpu, Job, Node, Snapshot, Until
from planner.plan import Plan
from planner.policy import InterferenceSpec, PredictorSpec, TableRow, Weights


def cluster(text, load):
    """The nodes of a scenario with this cluster."""
    return load(f"{HEAD}cluster: {{nodes: [{text}]}}").snapshot.cluster.nodes


# What a file means


def test_a_scenario_says_briefly_what_the_model_says_in_full(load):
    def a(name):
        gpus = tuple(Gpu(node=name, slot=str(i), model="a100-40gb", memory_mib=40960) for i in range(2))
        return Node(name=name, gpus=gpus, cpus=64, links=((0, 1),), labels={"rack": "r1"})

    assert load(BASE) == Scenario(
        snapshot=Snapshot(
            name="small",
            about="Two nodes and two jobs.",
            cluster=Cluster(nodes=(a("a0"), a("a1"))),
            jobs=(
                Job(id="first", gpu_memory_mib=12288, duration_s=7200, profile="bert/64"),
                Job(id="second-0", running_on=("a0/1",)),
            ),
        ),
        policy=policy(weights=Weights(waiting=2)),
        predictor=HINGE,
        variants=(
            Variant(name="bigger", add_nodes=[{"like": "a0", "count": 2}]),
            Variant(name="alone", policy={"max_tenants": 1}),
        ),
    )


def test_json_says_the_same(load):
    import yaml

    assert load(json.dumps(yaml.safe_load(BASE)), "s.json") == load(BASE)
    assert load(json.dumps(yaml.safe_load(BASE)), "s.yaml") == load(BASE)


def test_a_file_without_a_name_is_called_after_itself(load):
    assert load(HEAD, "burst.yaml").name == "burst"


def test_no_jobs_and_no_cluster_are_a_scenario(load):
    assert load(HEAD + "jobs:\ncluster:\n").snapshot.jobs == ()


def test_yaml_words_are_those_of_yaml_1_2(load):
    jobs = load(
        HEAD + "jobs: [{id: 0012, queue: no, duration_s: 4:00, user: 2024-01-01, gpus: 1e0}]"
    ).snapshot.jobs
    assert jobs == (Job(id="0012", queue="no", duration_s=240, user="2024-01-01", gpus=1),)


def test_a_byte_order_mark_is_no_content(load):
    marked = load(HEAD + "jobs: {path: j.csv}", j__csv="\ufeffid,gpus\na,2\n")
    assert marked.snapshot.jobs == (Job(id="a", gpus=2),)


def test_copies_are_numbered(load):
    assert [j.id for j in load(HEAD + "jobs: [{id: a, count: 3}, {id: b}]").snapshot.jobs] == [
        "a-0",
        "a-1",
        "a-2",
        "b",
    ]


@pytest.mark.parametrize(
    ("said", "memory"),
    [
        ("{model: a100-40gb}", 40960),  # well known
        ("{model: a100-40gb, memory_mib: 40536}", 40536),
        ("{model: a100-40gb, memory_mib: null}", None),  # the device does not say: never a guess
        ("{model: g2}", None),
    ],
)
def test_gpu_memory_is_what_is_said_else_what_is_known(load, said, memory):
    assert cluster(f"{{name: n, gpus: {said}}}", load)[0].gpus[0].memory_mib == memory


def test_cards_of_one_node_may_differ(load):
    (n,) = cluster(
        "{name: n, gpus: [{model: x, memory_mib: 16Gi}, {model: x, memory_mib: 24Gi, count: 2}]}", load
    )
    assert [(g.id, g.memory_mib) for g in n.gpus] == [("n/0", 16384), ("n/1", 24576), ("n/2", 24576)]


def test_a_mig_card_is_offered_as_its_instances_only(load):
    (n,) = cluster(
        "{name: n, gpus: {model: a100-40gb, count: 2}, partition: [{mig: {3g.20gb: 1, 1g.5gb: 2}}, whole]}",
        load,
    )
    assert [(g.slot, g.model, g.memory_mib) for g in n.gpus] == [
        ("0:3g.20gb:0", "a100-40gb:3g.20gb", 19456),
        ("0:1g.5gb:0", "a100-40gb:1g.5gb", 4864),
        ("0:1g.5gb:1", "a100-40gb:1g.5gb", 4864),
        ("1", "a100-40gb", 40960),
    ]


def test_the_state_of_each_gpu_is_said_by_index(load):
    (n,) = cluster(
        "{name: n, gpus: {model: t4, count: 3}, unhealthy: [2], unmanaged_gpu_memory_mib: {1: 5Gi, 0: null},"
        " partition: {shards: 4}, uuids: [GPU-a, null, GPU-c]}",
        load,
    )
    assert [(g.healthy, g.unmanaged_memory_mib, g.shards, g.uuid) for g in n.gpus] == [
        (True, None, 4, "GPU-a"),
        (True, 5120, 4, None),
        (False, 0, 4, "GPU-c"),
    ]


def test_one_figure_of_unmanaged_memory_is_for_every_gpu(load):
    (n,) = cluster("{name: n, gpus: {model: t4, count: 2}, unmanaged_gpu_memory_mib: 100}", load)
    assert [g.unmanaged_memory_mib for g in n.gpus] == [100, 100]


# Files beside it

ROWS = [
    {"id": "a", "gpus": 2, "gpu_memory_mib": 12000, "duration_s": 60.5, "shareable": False, "gpu_models": ["t4", "v100"]},
    {"id": "0007", "gpus": None, "gpu_memory_mib": None, "duration_s": None, "shareable": None, "gpu_models": None},
]  # fmt: skip
JOBS = (
    Job(id="a", gpus=2, gpu_memory_mib=12000, duration_s=60.5, shareable=False, gpu_models=("t4", "v100")),
    Job(id="0007"),
)


def test_jobs_come_from_a_csv_file(load):
    table = (
        "id,gpus,gpu_memory_mib,duration_s,shareable,gpu_models\na,2,12000,60.5,false,t4;v100\n0007,,,,,\n\n"
    )
    assert load(HEAD + "jobs: {path: j.csv}", j__csv=table).snapshot.jobs == JOBS


def test_a_csv_cell_may_hold_a_quantity_or_a_mapping(load):
    table = 'id,cpus,time_limit_s,count,node_labels\na,1500m,2h,2,"{""rack"": ""r1""}"\n'
    jobs = load(HEAD + "jobs: {path: j.csv}", j__csv=table).snapshot.jobs
    one = {"cpus": 1.5, "time_limit_s": 7200, "node_labels": {"rack": "r1"}}
    assert jobs == (Job(id="a-0", **one), Job(id="a-1", **one))


def test_jobs_come_from_a_parquet_file(load, tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "j.parquet")
    assert load(HEAD + "jobs: {path: j.parquet}").snapshot.jobs == JOBS


@pytest.mark.parametrize("cell", ["t4;a10", "t4 ; A10", '["t4", "a10"]'])
def test_a_cell_of_text_may_hold_several_values(load, tmp_path, cell):
    pq.write_table(pa.table({"id": ["a"], "gpu_models": [cell]}), tmp_path / "j.parquet")
    quoted = cell.replace('"', '""')
    (tmp_path / "j.csv").write_text(f'id,gpu_models\na,"{quoted}"\n')
    for table in ("j.csv", "j.parquet"):
        jobs = load(f"{HEAD}jobs: {{path: {table}}}").snapshot.jobs
        assert jobs == (Job(id="a", gpu_models=("t4", "a10")),)


def test_a_parquet_nan_is_a_blank(load, tmp_path):
    pq.write_table(pa.table({"id": ["a"], "gpu_memory_mib": [float("nan")]}), tmp_path / "j.parquet")
    assert load(HEAD + "jobs: {path: j.parquet}").snapshot.jobs == (Job(id="a"),)


def test_jobs_come_from_a_json_file(load):
    rows = [{k: v for k, v in row.items() if v is not None} for row in ROWS]
    assert load(HEAD + "jobs: {path: j.json}", j__json=json.dumps(rows)).snapshot.jobs == JOBS


def test_an_interference_table_is_read_beside_the_scenario(load):
    table = "gpu_model,profile,beside,slowdown\nV100M32,a,b,1.25\nv100-32gb,b,a,\n"
    found = load(HEAD + "predictor: {interference: {kind: table, path: t.csv}}", t__csv=table)
    assert found.predictor.interference.rows == (
        TableRow(gpu_model="v100-32gb", profile="a", beside="b", slowdown=1.25),
        TableRow(gpu_model="v100-32gb", profile="b", beside="a", slowdown=None),
    )


# The policy and predictor of a config

CONFIG = "policy: {max_tenants: 1}\npredictor: {interference: {kind: table, path: t.csv}}\n"
TABLE = "gpu_model,profile,beside,slowdown\nt4,a,b,1.5\n"


@pytest.mark.parametrize(
    "text",
    [CONFIG, "schema: planner.config/1\n" + CONFIG, f"{HEAD}jobs: {{path: gone.csv}}\nabout:\n{CONFIG}"],
    ids=["bare", "with its schema", "a scenario"],
)
def test_a_config_states_policy_and_predictor_and_its_paths_lie_beside_it(tmp_path, monkeypatch, text):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yaml").write_text(text)
    (tmp_path / "sub" / "t.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    stated, predictor = scenario.load_config("sub/c.yaml")
    rows = (TableRow(gpu_model="t4", profile="a", beside="b", slowdown=1.5),)
    assert (stated, predictor.interference.rows) == (policy(max_tenants=1), rows)


def test_a_config_may_leave_out_either_key(tmp_path):
    (tmp_path / "c.json").write_text('{"policy": {"seed": 3}, "predictor": null}')
    assert scenario.load_config(tmp_path / "c.json") == (policy(seed=3), None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("policy: {max_tenant: 1}", "c.yaml: policy: unknown key 'max_tenant'; did you mean max_tenants?"),
        ("polcy: {max_tenants: 1}", "c.yaml: unknown key 'polcy'; did you mean policy?"),
        (HEAD + "polcy: {max_tenants: 1}", "c.yaml: unknown key 'polcy'; did you mean policy?"),
        ("schema: planner.plan/1", "c.yaml: schema: got 'planner.plan/1'; accepted: planner.config/1 or planner.scenario/1"),
        ("- a", "c.yaml: got a list; accepted: keys with values"),
        (CONFIG, "t.csv: no such file"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_told_where_and_what(tmp_path, text, line):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        scenario.load_config(tmp_path / "c.yaml")
    assert str(caught.value).replace(f"{tmp_path}{os.sep}", "") == line


def test_a_config_counts_instead_of_a_scenarios_own_policy(tmp_path):
    """Also its quotas: those of the scenario promise too much and are not warned of."""
    (tmp_path / "s.yaml").write_text(HEAD + "policy: {quotas: [{queue: a, gpus: 6}], seed: 4}")
    assert len(scenario.load(tmp_path / "s.yaml").snapshot.warnings) == 1
    found = scenario.load(tmp_path / "s.yaml", config=(policy(seed=3), None))
    assert (found.policy, found.snapshot.warnings) == (policy(seed=3), ())


def test_more_foreign_memory_than_a_card_has_is_unknown(load):
    found = load(
        HEAD + "cluster: {nodes: [{name: n, gpus: {model: t4}, unmanaged_gpu_memory_mib: 16777216}]}"
    ).snapshot
    assert found.cluster.gpus[0].unmanaged_memory_mib is None
    assert found.warnings == ("n/0: 16777216 MiB in unmanaged use on a GPU of 15360 MiB; taken as unknown",)


# There and back

ODD = snapshot(
    [
        node(2, name="a08", model="t4", memory_mib=15360),
        node(2, name="a09", model="t4", memory_mib=15360),
        node(2, name="a10", model="t4", memory_mib=15360),
        node(name="b", memory_mib=None),
        node([gpu(), gpu(model="t4", memory_mib=15000), gpu(healthy=False, shards=2)], name="c1", links=[[0, 2]]),
        node([gpu(unmanaged_memory_mib=7), gpu(unmanaged_memory_mib=None, uuid="GPU-1")], name="c3", sharing="mps"),
        node([gpu(node="m", slot=f"0:1g.5gb:{i}", model="a100-40gb:1g.5gb", memory_mib=4864) for i in range(3)], name="m"),
        node(0, name="cpu", cpus=32, labels={"zone": "no", "n": "1"}),
    ],
    [job(id="1e5", queue="0012", running_on="a08/1", never_with=["x", "null"]), job(id="~", node_labels={"a": "true"})],
    name="odd: #1",
    about="several\nlines",
    now_s=-5,
    licences={"l": 1},
    carryover=Carryover(cooldowns=(Until(name="~", until_s=4),)),
)  # fmt: skip
PAIRS = InterferenceSpec(
    kind="table", rows=(TableRow(gpu_model="t4", profile="a", beside="b", slowdown=1.5),)
)
WHOLE = Scenario(
    snapshot=ODD,
    policy=policy(max_slowdown=None, max_tenants=None, weights=Weights(makespan=0)),
    predictor=PredictorSpec(interference=PAIRS, speed={"a": {"t4": 0.25}}),
    arrivals=Arrivals(trace="philly", path="j.csv", jobs=3),
    variants=(Variant(name="v", drain_nodes=("b",), policy={"weights": {"moves": 2}, "max_slowdown": None}),),
)


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_dumped_scenario_comes_back_as_it_was(load, form):
    assert load(scenario.dump(WHOLE, form), f"s.{form}") == WHOLE


def test_nodes_that_are_alike_are_dumped_as_ranges():
    text = scenario.dump(
        Scenario(snapshot=snapshot([node(name=n) for n in ("a8", "a9", "a10", "b07", "b08", "a12", "c")]))
    )
    names = [line.split("name: ")[1].split(", gpus")[0] for line in text.splitlines() if "gpus:" in line]
    assert names == ["'a[8-10]'", "'b[07-08]'", "a12", "c"]


def test_a_node_that_no_scenario_can_say_is_not_dumped_wrongly():
    strange = snapshot([node([gpu(slot="0:1g.5gb:0", model="a100-40gb:1g.5gb", memory_mib=1)], name="m")])
    with pytest.raises(ValueError, match="node m is more than a scenario file can say; a snapshot file can"):
        scenario.dump(Scenario(snapshot=strange))


# Snapshots


def test_a_snapshot_file_is_loaded(tmp_path):
    (tmp_path / "s.json").write_text(ODD.model_dump_json())
    assert scenario.load_snapshot(tmp_path / "s.json") == ODD


def test_a_snapshot_is_doubted_once(tmp_path):
    crowded = snapshot(jobs=[job(gpu_memory_mib=50_000, running_on="n0/0")])
    (tmp_path / "s.json").write_text(crowded.model_dump_json())
    once = scenario.load_snapshot(tmp_path / "s.json")
    assert len(once.warnings) == 1
    (tmp_path / "s.json").write_text(once.model_dump_json())
    assert scenario.load_snapshot(tmp_path / "s.json") == once


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("{}", "s.json: schema: is missing; accepted: planner.snapshot/1"),
        ('{"schema": "planner.scenario/1"}', "s.json: schema: got 'planner.scenario/1'; accepted: planner.snapshot/1"),
        ('{"schema": "planner.snapshot/1", "job": []}', "s.json: unknown key 'job'; did you mean jobs?"),
        ('{"schema": "planner.snapshot/1", "jobs": [{"id": "a", "gpus": 1.5}]}', "s.json: jobs[0].gpus: got 1.5; accepted: a whole number, 0 or more"),
        ('{"schema": "planner.snapshot/1", "jobs": 3}', "s.json: jobs: got 3; accepted: a list"),
    ],
)  # fmt: skip
def test_a_wrong_snapshot_is_told_where_and_what(tmp_path, raw, line):
    (tmp_path / "s.json").write_text(raw)
    with pytest.raises(InputError) as caught:
        scenario.load_snapshot(tmp_path / "s.json")
    assert str(caught.value) == f"{tmp_path}{os.sep}{line}"


def test_any_noun_with_a_schema_is_loaded_by_its_own(tmp_path):
    (tmp_path / "p.json").write_text('{"schema": "planner.snapshot/1"}')
    with pytest.raises(InputError, match=r"schema: got 'planner\.snapshot/1'; accepted: planner\.plan/1"):
        scenario.load_noun(tmp_path / "p.json", Plan)


def test_the_scenario_schema_names_every_key():
    keys = scenario.ScenarioFile.model_json_schema()
    assert {"schema", "cluster", "jobs", "policy", "variants"} <= set(keys["properties"])
    assert {"unhealthy", "partition"} <= set(keys["$defs"]["NodeSpec"]["properties"])
    assert "count" in keys["$defs"]["Copies"]["properties"]
