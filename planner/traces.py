"""Public traces as scenarios: what was asked for, when, on which cluster, as far as the trace says.

A row that cannot be used is left out and counted by cause; the count opens ``about`` and stands among the
warnings. A file that is not the trace it should be is an InputError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.edit import Scenario
from planner.errors import InputError
from planner.gpu_models import canonical_model, known_memory_mib
from planner.model import Cluster, Gpu, Job, Node, Snapshot
from planner.policy import Policy
from planner.quantities import COUNT_LIMIT, counted
from planner.tables import Row, read_csv

OPENB_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
OPENB_POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time", "deletion_time",
)  # fmt: skip
PHILLY_COLUMNS = ("job_id", "submit_s", "duration_s", "num_gpus", "vc")
#: 2,488 GPUs, as near to the 2,490 of Jeon et al. (USENIX ATC 2019) as nodes of eight come.
PHILLY_NODES = 311
PHILLY_GPUS_PER_NODE = 8


class Unusable(ValueError):
    """Why a row is left out, in words that are the same for rows of the same kind."""


def alibaba_openb(nodes_csv: Path | str, pods_csv: Path | str, at_s: float | None = None) -> Scenario:
    """Alibaba's ``cluster-trace-gpu-v2023`` (openb): nodes and pods, with shares of GPUs.

    The trace does not say where a pod ran, so all pods are a queue: all of them as one batch without ages, or with
    ``at_s`` those that were there at that second of the trace. A pod stays on one node. Any number may share a GPU, as
    long as their shares add up to no more than one.
    """
    nodes_path, pods_path = Path(nodes_csv), Path(pods_csv)
    nodes, lost_nodes = _usable(read_csv(nodes_path, needed=OPENB_NODE_COLUMNS), _openb_node, "sn")
    rows = read_csv(pods_path, needed=OPENB_POD_COLUMNS)
    end = max((_maybe(row, "deletion_time") or 0 for _, row in rows), default=0)
    there, absent = _there(rows, at_s, _openb_interval)
    jobs, lost = _usable(there, lambda row: _openb_pod(row, end, at_s), "name")
    _some(nodes_path, nodes, lost_nodes)
    _some(pods_path, jobs, lost, or_else=absent)
    when = (
        "all pods of the trace as one batch"
        if at_s is None
        else f"the pods there at {at_s:.15g} s of the trace"
    )
    about = f"Alibaba openb: {counted(len(nodes), 'node')} and {counted(len(jobs), 'pod')}, {when}."
    return _scenario("alibaba-openb", about, nodes, jobs, lost_nodes + lost, at_s)


def philly(jobs_csv: Path | str, nodes: int = PHILLY_NODES, at_s: float | None = None) -> Scenario:
    """Microsoft's Philly: jobs with GPUs, durations and virtual clusters, on nodes of eight GPUs.

    The trace says nothing of memory or of what the jobs compute, so every job runs alone on its GPUs. As one batch,
    or with ``at_s`` those submitted by then that would still run had they started at once.
    """
    if not 1 <= nodes <= 100_000:
        raise InputError("--nodes", f"got {nodes}", "1 to 100000")
    path = Path(jobs_csv)
    there, absent = _there(read_csv(path, needed=PHILLY_COLUMNS), at_s, _philly_interval)
    jobs, lost = _usable(there, lambda row: _philly_job(row, at_s), "job_id")
    _some(path, jobs, lost, or_else=absent)
    cluster = [_node(f"p{i:03}", PHILLY_GPUS_PER_NODE, "philly") for i in range(nodes)]
    when = "as one batch" if at_s is None else f"at {at_s:.15g} s of the trace"
    gpus = nodes * PHILLY_GPUS_PER_NODE
    about = f"Philly: {counted(len(jobs), 'job')} {when}, on {counted(gpus, 'GPU')} of unknown memory (the trace states no cluster)."
    return _scenario("philly", about, cluster, jobs, lost, at_s)


def _scenario(
    name: str, about: str, nodes: Iterable[Node], jobs: Iterable[Job], lost: Counter[str], at_s: float | None
) -> Scenario:
    dropped = _dropped(lost)
    snapshot = Snapshot(
        name=name,
        about=" ".join(x for x in (dropped, about) if x),
        now_s=at_s or 0,
        cluster=Cluster(nodes=tuple(nodes)),
        jobs=tuple(jobs),
        warnings=(dropped,) if dropped else (),
    )
    return Scenario(snapshot=snapshot, policy=Policy(max_tenants=None))


def _dropped(lost: Counter[str]) -> str:
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(lost.items()))
    return (
        f"{counted(lost.total(), 'row')} of the trace {'was' if lost.total() == 1 else 'were'} left out ({causes})."
        if lost
        else ""
    )


def _usable(
    rows: Iterable[tuple[int, Row]], make: Callable[[Row], Any], key: str
) -> tuple[list[Any], Counter[str]]:
    """What the rows are, and why the others are left out."""
    made: dict[str, Any] = {}
    lost: Counter[str] = Counter()
    for _, row in rows:
        try:
            if key not in row:
                raise Unusable(f"without {key}")
            if row[key] in made:
                raise Unusable(f"with a {key} that came before")
            made[row[key]] = make(row)
        except Unusable as error:
            lost[str(error)] += 1
        except ValidationError as error:
            lost[f"with a bad {'.'.join(map(str, error.errors()[0]['loc'])) or key}"] += 1
    return list(made.values()), lost


def _some(path: Path, made: list[Any], lost: Counter[str], or_else: int = 0) -> None:
    """A trace of which nothing is left is no trace; one in which nothing happens at a time may be."""
    if made or or_else:
        return
    raise InputError(str(path), _dropped(lost) or "no rows", "a trace with at least one row that can be used")


def _there(
    rows: list[tuple[int, Row]], at_s: float | None, interval: Callable[[Row], tuple[float, float]]
) -> tuple[list[tuple[int, Row]], int]:
    """Rows whose interval holds the moment (or cannot be told, to be counted), and how many are not there."""
    if at_s is None:
        return rows, 0
    kept = []
    for line, row in rows:
        try:
            start, end = interval(row)
        except Unusable:
            kept.append((line, row))
            continue
        if start <= at_s < end:
            kept.append((line, row))
    return kept, len(rows) - len(kept)


def _maybe(row: Row, column: str) -> float | None:
    """A number that is not negative, or None."""
    try:
        value = float(row[column])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value <= COUNT_LIMIT else None


def _need(row: Row, column: str) -> float:
    value = _maybe(row, column)
    if value is None:
        raise Unusable(f"without a usable {column}")
    return value


def _whole(row: Row, column: str) -> int:
    value = _need(row, column)
    if value != int(value):
        raise Unusable(f"without a usable {column}")
    return int(value)


def _node(name: str, gpus: int, model: str, **host: Any) -> Node:
    """A node of one model; of a model nobody knows, the memory is unknown."""
    memory = known_memory_mib(model)
    devices = tuple(Gpu(node=name, slot=str(i), model=model, memory_mib=memory) for i in range(gpus))
    return Node(name=name, gpus=devices, **host)


def _openb_node(row: Row) -> Node:
    gpus = _whole(row, "gpu")
    if gpus > 0 and "model" not in row:
        raise Unusable("with GPUs but without model")
    if gpus > 64:
        raise Unusable("without a usable gpu")
    model = canonical_model(row.get("model", ""))
    return _node(
        row["sn"], gpus, model, cpus=_need(row, "cpu_milli") / 1000, host_memory_mib=_whole(row, "memory_mib")
    )


def _openb_interval(row: Row) -> tuple[float, float]:
    return _need(row, "creation_time"), _need(row, "deletion_time")


def _openb_pod(row: Row, end: float, at_s: float | None) -> Job:
    """A pod; 1000 thousandths of a GPU are the whole of it, which nobody shares."""
    created, deleted = _openb_interval(row)
    gpus, milli = _whole(row, "num_gpu"), _whole(row, "gpu_milli")
    if gpus and not milli:
        raise Unusable("without a usable gpu_milli")
    started = _maybe(row, "scheduled_time")
    # The trace ends while some pods live: how long those would have run is not known.
    ended = started is not None and deleted < end and deleted > started
    whole = gpus > 0 and milli >= 1000
    return Job(
        id=row["name"],
        gpus=gpus,
        gpu_share_milli=None if whole or not gpus else milli,
        shareable=not whole,
        cpus=_need(row, "cpu_milli") / 1000,
        host_memory_mib=_whole(row, "memory_mib"),
        gpu_models=tuple(row["gpu_spec"].split("|")) if "gpu_spec" in row else (),
        max_nodes=1 if gpus else None,
        queue=row.get("qos"),
        duration_s=deleted - started if ended and started is not None else None,
        submitted_s=None if at_s is None else created,
    )


def _philly_interval(row: Row) -> tuple[float, float]:
    submitted = _need(row, "submit_s")
    return submitted, submitted + _need(row, "duration_s")


def _philly_job(row: Row, at_s: float | None) -> Job:
    gpus = _whole(row, "num_gpus")
    if gpus == 0:
        raise Unusable("without GPUs")
    duration = _need(row, "duration_s")
    if duration == 0:
        raise Unusable("with a duration of 0")
    submitted = _need(row, "submit_s")
    return Job(
        id=row["job_id"],
        gpus=gpus,
        duration_s=duration,
        queue=row.get("vc"),
        submitted_s=None if at_s is None else submitted,
    )
