"""Text that the tests of scenario files share; the fixture ``load`` of conftest writes such text and loads it."""

BASE = """\
schema: planner.scenario/1
name: small
about: Two nodes and two jobs.
now_s: 0
cluster:
  nodes:
    - name: a[0-1]
      gpus: {model: NVIDIA A100-SXM4-40GB, count: 2}
      cpus: 64
      links: [[0, 1]]
      labels: {rack: r1}
jobs:
  - {id: first, gpu_memory_mib: 12Gi, duration_s: 2h, profile: bert/64}
  - {id: second, gpus: 1, running_on: a0/1, count: 1}
policy: {epoch_s: 300, weights: {waiting: 2}}
predictor: {interference: {kind: utilisation}}
variants:
  - {name: bigger, add_nodes: [{like: a0, count: 2}]}
  - {name: alone, policy: {max_tenants: 1}}
"""
HEAD = "schema: planner.scenario/1\n"
