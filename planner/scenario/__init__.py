"""Scenario files and snapshot files, read and written.

``load`` turns a file into a ``Scenario``, or raises an InputError of one line that names file and key, what was
found and what is accepted. A scenario says briefly what the model says in full: ``files.ScenarioFile`` is what may
stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import RootModel, ValidationError

from planner import edit
from planner.edit import Scenario
from planner.errors import InputError
from planner.model import Cluster, Job, Node, Noun, Snapshot
from planner.policy import SHIPPED, Policy, PredictorSpec, Quota, TableRow
from planner.quantities import shown
from planner.scenario.complaints import Key, Loc, checked, complaint, dotted, keys_at
from planner.scenario.doubts import settled
from planner.scenario.dump import dump
from planner.scenario.files import (
    CONFIG_SCHEMA,
    SCHEMA,
    ClusterSpec,
    ConfigFile,
    JobsFile,
    ScenarioFile,
)
from planner.scenario.jobs import copies, read_jobs
from planner.scenario.nodes import SpecError, expand
from planner.scenario.text import read_plain
from planner.tables import nearest, read_csv

__all__ = [
    "Config",
    "ConfigFile",
    "Scenario",
    "ScenarioFile",
    "dump",
    "load",
    "load_config",
    "load_noun",
    "load_snapshot",
]

#: What a file for ``--config`` states; None: as ever.
Config = tuple[Policy | None, PredictorSpec | None]
NO_CONFIG: Config = (None, None)

N = TypeVar("N", bound=Noun)
TABLE_COLUMNS = tuple(TableRow.model_fields)
#: Columns of it that may be absent.
OPTIONAL_COLUMNS = ("observations",)


class PairTable(RootModel[tuple[TableRow, ...]]):
    """The rows of an interference table."""


def load(path: Path | str, text: str | None = None, config: Config = NO_CONFIG) -> Scenario:
    """The scenario in a YAML or JSON file; what it names by path lies beside it.

    ``text`` is what stands in the file, where that was read already. What ``config`` states counts instead of the file's.
    """
    path = Path(path)
    raw = _mapping(path, SCHEMA, text)
    # A key with nothing after it says no more than no key.
    file = checked(ScenarioFile, {k: v for k, v in raw.items() if v is not None}, str(path))
    specs, where, place = _specs(file, path)
    try:
        jobs, origin = copies(specs)
    except ValueError as error:
        raise _refusal(where, "jobs", error) from None
    cluster = _cluster(file.cluster, str(path))
    try:
        snapshot = _snapshot(file, cluster, jobs, path)
    except ValidationError as error:
        fault = complaint(error, Snapshot, str(path))
        raise _of_a_job(fault, where, lambda job, key: place((origin[job], key))) from None
    _check_variants(file, snapshot, str(path))
    policy, predictor = config
    policy = policy or file.policy
    return Scenario(
        snapshot=settled(snapshot, policy.quotas),
        policy=policy,
        predictor=predictor or _predictor(file.predictor, path),
        arrivals=file.arrivals,
        variants=file.variants,
    )


def load_config(path: Path | str, text: str | None = None) -> Config:
    """Policy and predictors of a file for ``--config``; of a scenario, those two keys are read and no other."""
    path = Path(path)
    raw = _mapping(path, None, text)
    schema = raw.get("schema", CONFIG_SCHEMA)
    if schema not in (SCHEMA, CONFIG_SCHEMA):
        raise InputError(f"{path}: schema", f"got {shown(schema)}", f"{CONFIG_SCHEMA} or {SCHEMA}")
    if schema == SCHEMA:  # its other keys are not looked at, but a slip must not hide one of the two
        for key in raw:
            if key not in (known := keys_at(ScenarioFile, ())):
                raise InputError(str(path), f"unknown key {shown(key)}{nearest(str(key), known)}")
        raw = {k: raw[k] for k in ("policy", "predictor") if k in raw}
    file = checked(ConfigFile, {k: v for k, v in raw.items() if v is not None}, str(path))
    return file.policy, _predictor(file.predictor, path) if file.predictor else None


def load_snapshot(path: Path | str, text: str | None = None, quotas: tuple[Quota, ...] = ()) -> Snapshot:
    """The snapshot in a JSON file, to be planned under these quotas."""
    return settled(load_noun(path, Snapshot, text), quotas)


def load_noun(path: Path | str, model: type[N], text: str | None = None) -> N:
    """A value of the model in a file that carries its schema's name."""
    path = Path(path)
    field = model.model_fields.get("schema_")
    schema = str(field.default) if field else None
    return checked(model, _mapping(path, schema, text), str(path))


def _mapping(path: Path, schema: str | None, text: str | None) -> dict[str, Any]:
    """A file's keys and values, with the schema that is expected."""
    raw = read_plain(path, text)
    if not isinstance(raw, dict):
        among = f", among them schema: {schema}" if schema else ""
        raise InputError(str(path), f"got {_kind(raw)}", f"keys with values{among}")
    if schema is None or raw.get("schema") == schema:
        return raw
    found = f"got {shown(raw['schema'])}" if "schema" in raw else "is missing"
    raise InputError(f"{path}: schema", found, schema)


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else shown(value)


def _refusal(where: str, key: str, error: ValueError) -> InputError:
    found, _, accepted = str(error).partition("; accepted: ")
    return InputError(f"{where}: {key}", found, accepted)


def _cluster(spec: ClusterSpec, where: str) -> Cluster:
    """All nodes, each name once."""
    nodes: list[Node] = []
    seen: dict[str, int] = {}
    for i, node_spec in enumerate(spec.nodes):
        here = f"cluster.nodes[{i}]"
        try:
            made = expand(node_spec)
        except SpecError as error:
            raise _refusal(where, f"{here}.{error.key}", error) from None
        except ValidationError as error:
            raise complaint(error, Node, f"{where}: {here}") from None
        for node in made:
            if node.name in seen:
                found = f"{node.name} is a node of cluster.nodes[{seen[node.name]}] already"
                raise InputError(f"{where}: {here}.name", found, "every node once")
            seen[node.name] = i
        nodes += made
    return Cluster(nodes=tuple(nodes), licences=spec.licences)


def _specs(file: ScenarioFile, path: Path) -> tuple[Sequence[Job], str, Key]:
    """The jobs as they are stated, in which file, and how to name a place in that."""
    if not isinstance(file.jobs, JobsFile):
        return file.jobs, str(path), lambda loc: dotted(("jobs", *loc))
    table = path.parent / file.jobs.path
    jobs, key = read_jobs(table)
    return jobs, str(table), key


def _snapshot(file: ScenarioFile, cluster: Cluster, jobs: list[Job], path: Path) -> Snapshot:
    return Snapshot(
        name=file.name or path.stem,
        about=file.about,
        now_s=file.now_s,
        cluster=cluster,
        jobs=tuple(jobs),
        carryover=file.carryover,
    )


def _of_a_job(error: InputError, where: str, place: Callable[[int, str], str]) -> InputError:
    """The snapshot's fault, at the place of the job it is about in the file ``where``."""
    match = re.match(r"jobs\[(\d+)\]\.(\w+): ", error.found)
    if not match:
        return error
    return InputError(
        f"{where}: {place(int(match[1]), match[2])}", error.found[match.end() :], error.accepted
    )


def _predictor(spec: PredictorSpec, path: Path) -> PredictorSpec:
    """The predictors with the interference table that a path names, and models' paths from where the file is."""
    for name in ("duration", "usage"):
        model = getattr(spec, name).path
        if model is not None and not (name == "usage" and model == SHIPPED):
            spec = edit.changed(
                spec, **{name: edit.changed(getattr(spec, name), path=str(path.parent / model))}
            )
    table = spec.interference
    key = f"{path}: predictor.interference"
    if table.kind == "model":
        if not table.path or table.rows:
            raise InputError(
                key, "kind: model without a path", "path: model.json, written by planner fit interference"
            )
        return edit.changed(spec, interference=edit.changed(table, path=str(path.parent / table.path)))
    if table.kind != "table":
        if table.path or table.rows:
            raise InputError(f"{key}.kind", f"got {table.kind} with a table", "kind: table")
        return spec
    if table.path is None:
        if not table.rows:
            raise InputError(key, "kind: table without a table", "path: pairs.csv, or rows")
        return spec
    if table.rows:
        raise InputError(key, "a path and rows", "one of them")
    rows = read_table(path.parent / table.path)
    return edit.changed(spec, interference=edit.changed(table, rows=rows))


def read_table(path: Path) -> tuple[TableRow, ...]:
    """An interference table: CSV with gpu_model, profile, beside, slowdown, and observations if known.

    No slowdown means never together.
    """
    lines_and_rows = read_csv(
        path, needed=[c for c in TABLE_COLUMNS if c not in OPTIONAL_COLUMNS], known=TABLE_COLUMNS
    )
    lines = [line for line, _ in lines_and_rows]

    def key(loc: Loc) -> str:
        return f"line {lines[int(loc[0])]}, {dotted(loc[1:])}"

    raw: list[dict[str, Any]] = [
        {**row, **{k: _decimal(row.get(k)) for k in ("slowdown", "observations")}}
        for _, row in lines_and_rows
    ]
    rows = checked(PairTable, raw, str(path), key=key).root
    seen: dict[tuple[str, str, str], int] = {}
    for line, row in zip(lines, rows, strict=True):
        pair = (row.gpu_model, row.profile, row.beside)
        if pair in seen:
            found = (
                f"{row.profile} beside {row.beside} on {row.gpu_model} stands on line {seen[pair]} already"
            )
            raise InputError(f"{path}: line {line}", found, "every pair once")
        seen[pair] = line
    return rows


def _decimal(text: str | None) -> float | str | None:
    """A number if it is one, else as it stands, for the column's own error."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _check_variants(file: ScenarioFile, snapshot: Snapshot, where: str) -> None:
    """Every variant names what is there and policies that are valid."""
    for i, variant in enumerate(file.variants):
        here = f"variants[{i}]"
        unknown = sorted(set(variant.policy) - set(Policy.model_fields))
        if unknown:
            checked(Policy, {unknown[0]: None}, f"{where}: {here}.policy")
        try:
            edit.with_policy(file.policy, variant.policy)
        except ValidationError as error:
            raise complaint(error, Policy, f"{where}: {here}.policy") from None
        except ValueError as error:
            raise _refusal(where, f"{here}.policy", error) from None
        named = [*(a.like for a in variant.add_nodes), *variant.remove_nodes, *variant.drain_nodes]
        for name in named:
            if name not in snapshot.cluster.node_by_name:
                raise InputError(
                    f"{where}: {here}", f"no node is called {shown(name)}", "names of nodes that are there"
                )
        for job_id in variant.remove_jobs:
            if job_id not in snapshot.job_by_id:
                raise InputError(
                    f"{where}: {here}", f"no job is called {shown(job_id)}", "ids of jobs that are there"
                )
