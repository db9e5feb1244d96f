"""How long 20,000 jobs take to load from CSV, Parquet and JSON: ``python tests/benchmarks/load.py``.

Each must stay under three seconds. Prints one line a format: the best and the worst of three.
"""

import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from planner import scenario

JOBS = 20_000
ROWS = [
    {
        "id": f"job-{i}",
        "gpus": 1 + i % 4,
        "gpu_memory_mib": 4000 + i % 9000,
        "gpu_utilisation_pct": 10.0 + i % 80,
        "duration_s": 60.0 + i,
        "profile": f"model-{i % 26}",
        "cpus": 4.0,
        "host_memory_mib": 16000,
        "priority": 1,
        "queue": f"team-{i % 7}",
        "user": f"user-{i % 90}",
        "submitted_s": float(-i),
        "shareable": i % 3 > 0,
    }
    for i in range(JOBS)
]
CLUSTER = {"nodes": [{"name": "n[0-1023]", "gpus": {"model": "a100-80gb", "count": 8}, "cpus": 96}]}


def write(folder: Path) -> dict[str, Path]:
    """A scenario for each format."""
    with (folder / "jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "jobs.parquet")
    paths = {}
    for form, jobs in (("csv", {"path": "jobs.csv"}), ("parquet", {"path": "jobs.parquet"}), ("json", ROWS)):
        paths[form] = folder / f"{form}.json"
        content = {"schema": "planner.scenario/1", "cluster": CLUSTER, "jobs": jobs}
        paths[form].write_text(json.dumps(content))
    return paths


def timed(path: Path) -> float:
    """Seconds one load takes."""
    began = time.perf_counter()
    loaded = scenario.load(path)
    took = time.perf_counter() - began
    assert len(loaded.snapshot.jobs) == JOBS
    return took


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for form, path in write(Path(folder)).items():
            times = [timed(path) for _ in range(3)]
            sys.stdout.write(f"{form:8} {min(times):.2f} s to {max(times):.2f} s\n")
