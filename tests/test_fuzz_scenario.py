"""A thousand broken files: each is refused in one line or loads, and nothing else ever happens.

Files are made from whole ones by a seeded hand: cut, with bytes flipped, with keys renamed and values swapped.
"""

import copy
import functools
import json
import random
from pathlib import Path

import pytest
import yaml

from planner import scenario
from planner.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
FILES, BATCHES = 1000, 10
RICH = """\
schema: planner.scenario/1
name: rich
about: |
  Several lines,
  and a number of keys.
cluster:
  nodes:
    - &a {name: 'a[00-03],b', gpus: {model: a100-40gb, count: 4, memory_mib: 40Gi}, cpus: 64, host_memory_mib: 512000, links: [[0, 1], [2, 3]]}
    - {name: m, gpus: [{model: A100 40GB}, {model: t4, count: 2}], partition: [{mig: {1g.5gb: 4}}, {shards: 2}, whole], unhealthy: [2], unmanaged_gpu_memory_mib: {1: 500}, labels: {rack: r1}, uuids: [null, GPU-1, GPU-2]}
    - {<<: *a, name: c, max_tenants: 2, sharing: mps, isolation: memory, memory_factor: 1.1, schedulable: false}
  licences: {lic: 3}
jobs:
  - {id: one, gpus: 2, gpu_memory_mib: 12000, gpu_utilisation_pct: 55, duration_s: 2h, profile: bert/64, cpus: 1500m, priority: 2}
  - {id: two, gpus: 1, running_on: a00/1, started_s: -50, progress: 0.5, movable: true, checkpoint_s: 30s, count: 1}
  - {id: three, gpu_share_milli: 500, never_with: [one, bert/64], gpu_models: [t4], depends_on: [one], throttle: {group: g, max_running: 2}}
  - {id: four, gpus: 0, running_on: [b], licences: {lic: 1}, node_labels: {rack: r1}, state: held}
policy: {epoch_s: 300, max_slowdown: null, quotas: [{queue: q, gpus: 2}], weights: {makespan: 0}, solver: greedy}
predictor: {interference: {kind: table, rows: [{gpu_model: t4, profile: a, beside: b, slowdown: 1.5}]}, speed: {a: {t4: 0.5}}, links: {network: 1.5}}
arrivals: {trace: philly, path: jobs.csv, jobs: 10}
now_s: 12.5
variants: [{name: v, add_nodes: [{like: b, count: 2}], drain_nodes: c, policy: {max_tenants: 1, weights: {moves: 2}}}]
carryover: {reservations: [{job_id: one, gpu_ids: [b/0], from_s: 5}], memory_peaks: {one: 5Gi}}
"""
BY_PATH = """\
schema: planner.scenario/1
cluster: {nodes: [{name: a, gpus: {model: t4, count: 2}}]}
jobs: {path: jobs.csv}
predictor: {interference: {kind: table, path: pairs.csv}}
"""
TABLES = {
    "jobs.csv": "id,gpus,gpu_memory_mib,duration_s,shareable,gpu_models\na,2,12000,60.5,false,t4;v100\nb,,4Gi,2h,,\n",
    "pairs.csv": "gpu_model,profile,beside,slowdown\nt4,a,b,1.25\nt4,b,a,\n",
}
ODD = [
    None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, 10**18, 10**400, float("nan"), float("inf"), "", " ", "x", "four", "a" * 300,
    "a[0-99999]", "a[0-", "-1", "1e999", "9" * 40, "\n", "\t", "\u2028", "é" * 9, "$(reboot)", "%s%n", "{}", "[]", "null", [], {}, [[]],
    [None], [[1]], {"a": 1}, {"": None}, {1: 2}, {"path": "none.csv"}, {"path": "."}, {"path": ""}, ["a", "a"],
]  # fmt: skip
KEYS = [
    "id",
    "gpus",
    "count",
    "name",
    "schema",
    "path",
    "policy",
    "jobs",
    "",
    "x",
    "gpu",
    "Gpus",
    "gpus ",
    "__class__",
    "model_fields",
]


def sources():
    """Whole scenario files: those above and those that ship with the project."""
    shipped = [p.read_text() for p in sorted((ROOT / "scenarios").glob("*.yaml"))]
    return [*[RICH, BY_PATH] * 5, *(text for text in shipped if len(text) < 5_000)]


def cut(rng, data):
    return data[: rng.randrange(len(data))]


def flip(rng, data):
    found = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def splice(rng, data):
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    at = rng.randrange(len(data))
    return data[:at] + data[a:b] + data[at:]


def insert(rng, data):
    at = rng.randrange(len(data))
    piece = rng.choice([b"\0", b"\t", b"\xff", b"\xef\xbb\xbf", b"- ", b": ", b"{", b"[" * 300, b"*a ", b"&a ", b"!!int ", b"? ", b"'", b'"', b"|\n",
                        b"\n---\n", b"...", b"%YAML 9.9\n", b"<<: *a\n", b"9" * 5000, b"\r", b"#", b"@", b"\xed\xa0\x80"])  # fmt: skip
    return data[:at] + piece + data[at:]


def swap_word(rng, data):
    words = data.split(b" ")
    i, j = rng.randrange(len(words)), rng.randrange(len(words))
    words[i], words[j] = words[j], words[i]
    return b" ".join(words)


def places(value, found):
    """Every container of a value, with a key into it."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            places(value[key], found)
    return found


@functools.cache
def as_json(data):
    """A YAML file's values, without shared parts."""
    return json.dumps(yaml.load(data, yaml.CSafeLoader))


def reshape(rng, data):
    """Change the values rather than the text, and write them as JSON or YAML."""
    value = json.loads(as_json(data))
    for _ in range(rng.randint(1, 3)):
        everywhere = places(value, [])
        if not everywhere:
            break
        container, key = rng.choice(everywhere)
        act = rng.randrange(5)
        if act == 0:
            del container[key]
        elif act == 1 and isinstance(container, dict):
            container[rng.choice(KEYS)] = container.pop(key)
        elif act == 2:
            other, other_key = rng.choice(everywhere)
            try:
                container[key] = json.loads(json.dumps(other[other_key]))
            except (KeyError, IndexError, ValueError):
                container[key] = None
        else:
            container[key] = copy.deepcopy(rng.choice(ODD))
    return written(rng, value)


def written(rng, value):
    try:
        return (
            json.dumps(value).encode()
            if rng.random() < 0.5
            else yaml.dump(value, Dumper=yaml.CSafeDumper).encode()
        )
    except (ValueError, TypeError):
        return yaml.dump(value, Dumper=yaml.CSafeDumper).encode()


TEXTUAL = [cut, flip, splice, insert, swap_word]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_broken_file_gets_one_line_or_loads(tmp_path, batch):
    refused = 0
    whole = sources()
    for number in range(FILES // BATCHES):
        rng = random.Random(f"{batch}/{number}")
        source = rng.choice(whole)
        data = source.encode()
        tables = {name: text.encode() for name, text in TABLES.items()}
        if source is BY_PATH and rng.random() < 0.7:
            name = rng.choice(sorted(tables))
            tables[name] = rng.choice(TEXTUAL)(rng, tables[name])
        elif rng.random() < 0.5:
            data = reshape(rng, data)
        else:
            for _ in range(rng.randint(1, 2)):
                data = rng.choice(TEXTUAL)(rng, data or b"\n")
        for name, content in tables.items():
            (tmp_path / name).write_bytes(content)
        path = tmp_path / ("s.json" if data.startswith(b"{") and rng.random() < 0.5 else "s.yaml")
        path.write_bytes(data)
        try:
            scenario.load(path)
        except InputError as error:
            refused += 1
            line = str(error)
            assert line.isprintable() and len(line) < 2000, data
            assert error.exit_code == 2
    assert refused > FILES // BATCHES // 2
