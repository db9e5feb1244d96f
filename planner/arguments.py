"""What the command line's arguments mean: which files are read, and options checked like the keys of a file.

Everything here raises an InputError of one line, or PlanRejected. What is slow to import is imported where it is needed.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from planner.edit import with_policy
from planner.errors import InputError, PlanRejected
from planner.model import Seconds, Snapshot
from planner.policy import SOLVERS, Policy, PredictorSpec
from planner.quantities import counted, shown

if TYPE_CHECKING:
    from planner.plan import Inputs, Plan

#: As a file's name: standard input; and what it is called in a message.
STDIN, STDIN_NAME = "-", "standard input"
#: How a plan file begins that the planner wrote.
PLAN_BEGINS = re.compile(r'\s*{\s*"schema"\s*:\s*"planner\.plan/1"')


def source(path: str) -> tuple[Path, str | None]:
    """A file to read; for ``-``, standard input, which is read at once, with its text."""
    from planner.tables import MAX_BYTES, decoded

    if path != STDIN:
        return Path(path), None
    if sys.stdin is None:
        raise InputError(STDIN_NAME, "it is closed", "a file or a pipe")
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(STDIN_NAME, (error.strerror or str(error)).lower(), "a file or a pipe") from None
    return Path(STDIN_NAME), decoded(data, STDIN_NAME)


def read_once(*paths: str | None) -> None:
    """InputError if standard input is to be several files."""
    if paths.count(STDIN) > 1:
        raise InputError("-", "standard input is named twice", "- for one file")


def planning_input(
    scenario: str | None, from_: str | None, config: str | None = None
) -> tuple[Snapshot, Policy, PredictorSpec]:
    """What to plan, and how: a scenario by its own policy or a snapshot by the default one, unless a config states others."""
    from planner.scenario import load, load_config, load_snapshot

    if (scenario is None) == (from_ is None):
        found = "neither is given" if scenario is None else "both are given"
        raise InputError("SCENARIO or --from", found, "exactly one of them")
    if from_ in ("slurm", "kubernetes"):
        raise InputError("--from", f"the {from_} back end does not exist yet", "a snapshot file")
    read_once(scenario, from_, config)
    policy, predictor = load_config(*source(config)) if config is not None else (None, None)
    if scenario is not None:
        read = load(*source(scenario), (policy, predictor))
        return read.snapshot, read.policy, read.predictor
    assert from_ is not None
    policy = policy or Policy()
    return load_snapshot(*source(from_), policy.quotas), policy, predictor or PredictorSpec()


def overridden(
    policy: Policy, solver: str | None, time_limit: str | None, deterministic: bool, seed: str | None
) -> Policy:
    """The policy with what the command line says instead."""
    change: dict[str, Any] = {}
    if solver is not None:
        if solver not in SOLVERS:
            raise InputError("--solver", f"got {shown(solver)}", ", ".join(SOLVERS))
        change["solver"] = solver
    if time_limit is not None:
        change["time_limit_s"] = seconds("--time-limit", time_limit)
    if seed is not None:
        change["seed"] = whole("--seed", seed)
    if deterministic:
        change["deterministic"] = True
    return with_policy(policy, change)


def seconds(name: str, text: str) -> float:
    """An option that is a time, read as people write it in files."""
    try:
        return float(TypeAdapter(Seconds).validate_python(text))
    except ValidationError:
        raise InputError(name, f"got {shown(text)}", "seconds, 0 or more") from None


def whole(name: str, text: str, *, least: int = 0) -> int:
    """An option that is a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) < 12) or int(text) < least:
        raise InputError(name, f"got {shown(text)}", f"a whole number, {least} or more")
    return int(text)


def read_plan(path: str) -> Plan:
    """A plan file; InputError if it is not one."""
    from planner.plan import Plan

    value = read_either(path, "planner.plan/1, which planner plan --out writes")
    if not isinstance(value, Plan):
        raise InputError(path, "a snapshot", "a plan (schema: planner.plan/1)")
    return value


def read_whole_plan(path: str) -> tuple[Plan, Inputs]:
    """A plan file with what the plan was made from; InputError if that is not in it."""
    made = read_plan(path)
    if made.inputs is None:
        found = "the plan has no inputs: --json leaves them out"
        raise InputError(path, found, "a plan written by planner plan --out FILE")
    return made, made.inputs


def check_plan(path: str, made: Plan) -> None:
    """PlanRejected if the plan breaks a rule in the snapshot that it was made for, whoever wrote it."""
    from planner.validate import problems_of

    assert made.inputs is not None
    findings = problems_of(made, made.inputs.snapshot, made.inputs.forecast, made.inputs.policy)
    if findings:
        raise PlanRejected(f"{path}: the plan fails {counted(len(findings), 'check')}: {findings[0]}")


def read_either(path: str, accepted: str = "planner.plan/1 or planner.snapshot/1") -> Plan | Snapshot:
    """A plan or a snapshot file; its ``schema`` tells which. PlanRejected if somebody has changed a plan."""
    value = _read_either(path, accepted)
    if not isinstance(value, Snapshot):
        check_id(path, value)
    return value


def check_id(path: str, made: Plan) -> None:
    """PlanRejected if the plan's id is not that of its contents; without inputs, which it is made of too, nobody can tell."""
    from planner.formulate.interpret import plan_id

    if made.inputs is None:
        return
    decided = (made.assignments, made.deferred, made.preempted, made.reservations)
    if made.id != plan_id(made.inputs, *decided):
        name = STDIN_NAME if path == STDIN else path
        found = f"its contents do not match its id {shown(made.id)}"
        raise PlanRejected(f"{name}: {found}; a plan is not edited: change the scenario and plan again")


def _read_either(path: str, accepted: str) -> Plan | Snapshot:
    from planner.plan import Plan
    from planner.scenario import load_noun, load_snapshot
    from planner.scenario.text import read_plain
    from planner.tables import read_text

    file, said = source(path)
    text = read_text(file) if said is None else said
    if PLAN_BEGINS.match(text):
        try:  # the quick way; the other one finds words for what is wrong
            return Plan.model_validate_json(text)
        except ValidationError:
            pass
    raw = read_plain(file, text)
    name = raw.get("schema") if isinstance(raw, dict) else None
    if name == Snapshot.model_fields["schema_"].default:
        return load_snapshot(file, text)
    if name == Plan.model_fields["schema_"].default:
        return load_noun(file, Plan, text)
    found = "is missing" if name is None else f"got {shown(name)}"
    raise InputError(f"{file}: schema", found, accepted)


def close_to(job: str, made: Plan) -> str:
    """The ids in a plan that look like one that is not in it."""
    ids = [*(a.job_id for a in made.assignments), *(d.job_id for d in made.deferred), *made.preempted]
    return ", ".join(get_close_matches(job[:64], ids, cutoff=0.5)) or "the id of a job in the plan"


def moment(at: str | None) -> float | None:
    """A second of a trace, or None for the whole trace as one batch."""
    return None if at is None else seconds("--at", at)


def state_folder() -> Path:
    """Where the planner keeps what it writes unasked: models on which an engine was wrong (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "planner"
