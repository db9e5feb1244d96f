"""The command line: reads arguments, calls one function of the planner, shows the result.

Everything for people goes through ``planner.report``; ``--json`` prints JSON on standard output and nothing else; messages go
to standard error, one line each, with the exit code of their kind in ``planner.errors``. Modules that are slow to import are imported
in the command that needs them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner import __version__
from planner.arguments import (
    STDIN,
    check_plan,
    close_to,
    moment,
    overridden,
    planning_input,
    read_either,
    read_once,
    read_whole_plan,
    state_folder,
    whole,
)
from planner.backends.whole import STDOUT, check_out
from planner.errors import InputError, PlannerError, WriteFailed
from planner.model import Snapshot
from planner.modelling import fitting, predicting
from planner.policy import SOLVERS
from planner.printing import emit, put, say, show_page
from planner.quantities import shown
from planner.report import streams
from planner.report.as_json import json_text
from planner.report.terminal import solving
from planner.report.units import plain

if TYPE_CHECKING:
    from planner.edit import Scenario
    from planner.model import Noun

app = typer.Typer(
    help="Place batch jobs on shared GPUs: read the cluster and the queue, decide, check, explain, emit.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
imports = typer.Typer(help="Turn a public trace into a scenario.", rich_markup_mode=None)
app.add_typer(imports, name="import")
app.add_typer(fitting, name="fit")
app.add_typer(predicting, name="predict")

OUT = typer.Option(
    None, "--out", metavar="FILE", help="write to this file, whole or not at all; - is standard output"
)
JSON = typer.Option(False, "--json", help="print JSON on standard output and nothing else")
OUT_SCENARIO = typer.Option(
    None,
    "--out",
    metavar="FILE",
    help="write to this file; JSON (faster to read) if it ends in .json; - is standard output",
)
AT = typer.Option(
    None, "--at", metavar="SECONDS", help="what was there at this second of the trace [default: all of it]"
)
FROM = typer.Option(None, "--from", metavar="SNAPSHOT.json", help="read a snapshot instead of a scenario")
SCENARIO = typer.Argument(None, metavar="SCENARIO", help="a scenario file, YAML or JSON; - is standard input")
CONFIG = typer.Option(
    None, "--config", metavar="FILE", help="take policy and predictor from this file, which may be a scenario"
)
DEFAULTS = "warning: a snapshot has no policy, and the default is used; --config FILE takes another, also from a scenario"


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="print the version and end")
) -> None:
    """Place batch jobs on shared GPUs: read the cluster and the queue, decide, check, explain, emit."""
    if version:
        put(f"planner {__version__}")
    elif context.invoked_subcommand is None:
        put(context.get_help())


@app.command()
def plan(
    scenario: str = SCENARIO,
    from_: str = FROM,
    config: str = CONFIG,
    out: str = OUT,
    json: bool = JSON,
    solver: str = typer.Option(None, "--solver", metavar="NAME", help=f"one of {', '.join(SOLVERS)}"),
    time_limit: str = typer.Option(
        None, "--time-limit", metavar="S", help="seconds; 0 takes the greedy's plan"
    ),
    deterministic: bool = typer.Option(False, "--deterministic", help="the same answer in every run"),
    seed: str = typer.Option(None, "--seed", metavar="N", help="seed of whatever is random"),
) -> None:
    """Plan one epoch: what starts where, what waits, and why."""
    from planner.epoch import plan_epoch

    check_out(out)
    if json and out == STDOUT:
        raise InputError("--out -", "--json prints on standard output as well", "one of them")
    snapshot, policy, spec = planning_input(scenario, from_, config)
    if from_ and not config:
        say(DEFAULTS)
    policy = overridden(policy, solver, time_limit, deterministic, seed)
    with stop_on_sigterm() as stop, solving(policy.time_limit_s, sys.stderr) as on_progress:
        made = plan_epoch(
            snapshot,
            policy,
            spec,
            on_progress=on_progress,
            stop=stop.is_set,
            anomalies=state_folder() / "anomalies",
        )
    if out:
        emit(json_text(made), out)
    kept = out is not None and out != STDOUT
    if json:
        put(json_text(made, without={"inputs"}), kept=kept)
    elif out != STDOUT:
        from planner.report.plans import plan_page

        show_page(plan_page(made), kept=kept)
        if out:
            say(f"plan written to {out}")


@app.command()
def explain(
    plan_file: str = typer.Argument(..., metavar="PLAN.json"),
    job: str = typer.Argument(..., metavar="JOB", help="the id of a job in the plan"),
    json: bool = JSON,
) -> None:
    """Say why a job runs where it does, or why it waits and what would start it."""
    from planner.epoch import replan_with
    from planner.explain import explain_job
    from planner.report.page import Lines

    made, inputs = read_whole_plan(plan_file)
    try:
        explanation = explain_job(made, job, replan_with(inputs.forecast.predictor, near=made))
    except KeyError:
        raise InputError(plan_file, f"no job is called {shown(job)}", close_to(job, made)) from None
    if json:
        put(json_text(explanation))
    else:
        show_page((Lines(f"{plain(job)} ({explanation.decision})", explanation.lines),))


@app.command()
def diff(
    a: str = typer.Argument(..., metavar="A.json"),
    b: str = typer.Argument(..., metavar="B.json"),
    json: bool = JSON,
) -> None:
    """Compare two plans or two snapshots."""
    from planner.plan import Plan
    from planner.report.compare import difference_page, plans_differ, snapshots_differ

    read_once(a, b)
    old, new = read_either(a), read_either(b)
    if isinstance(old, Plan) and isinstance(new, Plan):
        difference = plans_differ(old, new)
    elif isinstance(old, Snapshot) and isinstance(new, Snapshot):
        difference = snapshots_differ(old, new)
    else:
        raise InputError(b, "a plan and a snapshot do not compare", "two plans or two snapshots")
    if json:
        put(json_text(difference))
    else:
        show_page(difference_page(difference))


@app.command()
def apply(
    plan_file: str = typer.Argument(..., metavar="PLAN.json"),
    to: str = typer.Option(
        None, "--to", metavar="STATE.json", help="the state to change [default: PLAN.state.json]"
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="say what would be done, change nothing"),
    json: bool = JSON,
) -> None:
    """Carry out a plan on a state file, leaving out what no longer fits."""
    from planner.backends.files import FileBackend
    from planner.report.plans import left_out, receipt_page

    if plan_file == STDIN and not to:
        raise InputError("apply -", "no state is named", "--to STATE.json")
    made, inputs = read_whole_plan(plan_file)
    check_plan(plan_file, made)
    state = Path(to) if to else Path(plan_file).with_suffix(".state.json")
    check_out(str(state), "--to")
    receipt = FileBackend(state, out=state, start=inputs.snapshot).apply(made, dry_run=dry_run)
    if json:
        put(json_text(receipt), kept=not dry_run)
    else:
        show_page(receipt_page(receipt), kept=not dry_run)
    if why := left_out(receipt):
        say(f"warning: {why}")


@app.command()
def snapshot(
    scenario: str = SCENARIO,
    from_: str = FROM,
    out: str = OUT,
) -> None:
    """Write the cluster and the queue as a snapshot."""
    check_out(out)
    state, _, _ = planning_input(scenario, from_)
    emit(json_text(state), out)


@app.command()
def schema(
    kind: str = typer.Argument("scenario", metavar="scenario|plan|snapshot|config"),
    table: bool = typer.Option(False, "--table", help="a table of all keys instead of the JSON Schema"),
    out: str = OUT,
) -> None:
    """Print the JSON Schema of a file, or a table of its keys."""
    from json import dumps

    from planner.plan import Plan
    from planner.report.keys import ABOUT, as_aligned, as_markdown, json_schema, key_rows
    from planner.scenario import ConfigFile, ScenarioFile

    models: dict[str, type[Noun]] = {
        "scenario": ScenarioFile,
        "plan": Plan,
        "snapshot": Snapshot,
        "config": ConfigFile,
    }
    if kind not in models:
        raise InputError("schema", f"got {shown(kind)}", ", ".join(models))
    check_out(out)
    described = json_schema(models[kind])
    if not table:
        emit(dumps(described, indent=2), out)
    elif out:
        emit(as_markdown(f"Keys of a {kind} file", ABOUT, list(key_rows(described))), out)
    else:
        put(as_aligned(list(key_rows(described))))


@app.command()
def generate(
    jobs: str = typer.Option(..., "--jobs", metavar="N"),
    gpus: str = typer.Option(..., "--gpus", metavar="M"),
    seed: str = typer.Option("0", "--seed", metavar="S"),
    out: str = OUT_SCENARIO,
) -> None:
    """Make up a cluster and a queue; the same arguments give the same scenario."""
    from planner.generate import generate as made_up

    emit_scenario(made_up(whole("--jobs", jobs), whole("--gpus", gpus), whole("--seed", seed)), out)


@imports.callback(invoke_without_command=True)
def imports_root(context: typer.Context) -> None:
    """Turn a public trace into a scenario."""
    if context.invoked_subcommand is None:
        put(context.get_help())


@imports.command("alibaba-openb")
def import_alibaba_openb(
    nodes: str = typer.Argument(..., metavar="NODES.csv"),
    pods: str = typer.Argument(..., metavar="PODS.csv"),
    at: str = AT,
    out: str = OUT_SCENARIO,
) -> None:
    """Alibaba's cluster-trace-gpu-v2023: nodes, and pods with shares of GPUs."""
    from planner.traces import alibaba_openb

    emit_scenario(alibaba_openb(nodes, pods, at_s=moment(at)), out)


@imports.command("philly")
def import_philly(
    jobs: str = typer.Argument(..., metavar="JOBS.csv"),
    nodes: str = typer.Option(None, "--nodes", metavar="N", help="nodes of eight GPUs"),
    at: str = AT,
    out: str = OUT_SCENARIO,
) -> None:
    """Microsoft's Philly: jobs with GPUs, durations and virtual clusters."""
    from planner.traces import PHILLY_NODES, philly

    number = PHILLY_NODES if nodes is None else whole("--nodes", nodes)
    emit_scenario(philly(jobs, nodes=number, at_s=moment(at)), out)


def emit_scenario(scenario: Scenario, out: str | None) -> None:
    """A scenario as YAML, or as JSON into a file that is called so."""
    from planner.scenario import dump

    check_out(out)
    emit(dump(scenario, "json" if out and out.endswith(".json") else "yaml"), out)
    for warning in scenario.snapshot.warnings:
        say(f"warning: {warning}")


@contextmanager
def stop_on_sigterm() -> Iterator[threading.Event]:
    """While a plan is made, SIGTERM asks for the best plan so far instead of ending the process."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def run(args: list[str]) -> int:
    """Run one command; every way it can end becomes an exit code."""
    streams.settle()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name in an old code page is shown as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(args=args, prog_name="planner", standalone_mode=False)
        with streams.written():
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # The reader has seen enough. Typer may have made an exit of its own of it.
        streams.drop_output()
        return 0
    except PlannerError as error:
        say(str(error))
        if isinstance(error, WriteFailed):
            streams.drop_output()
        return error.exit_code
    except typer.TyperException as error:
        say(f"{error.format_message()} (planner --help tells more)")
        return InputError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:  # the system's fault, such as a full disk under the help's text
        if os.environ.get("PLANNER_DEBUG"):
            raise
        place = f"{error.filename}: " if error.filename else ""
        say(f"{place}{error.strerror or error}")
        streams.drop_output()
        return WriteFailed.exit_code
    except Exception as error:
        if os.environ.get("PLANNER_DEBUG"):
            raise
        say(f"internal error: {type(error).__name__}: {error} (set PLANNER_DEBUG=1 for the traceback)")
        return PlannerError.exit_code
    if code == 130:
        say("interrupted")
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console's entry point."""
    streams.hold_numbers()
    sys.exit(run(sys.argv[1:]))
