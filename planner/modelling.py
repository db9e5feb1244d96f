"""The commands that fit models to measurements and ask them: ``planner fit KIND`` and ``planner predict KIND``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.arguments import planning_input, whole
from planner.backends.whole import STDOUT, check_out
from planner.errors import InputError
from planner.printing import emit, put, say, show_page
from planner.quantities import counted

if TYPE_CHECKING:
    from planner.predict.model_file import ModelFile

#: A key speaks from so many observations on; a fit to fewer rows knows nothing.
FEWEST_ROWS = 5
JSON = typer.Option(False, "--json", help="print JSON on standard output and nothing else")
MODEL_OUT = typer.Option(..., "--out", metavar="MODEL.json", help="write the model to this file")

fitting = typer.Typer(
    help="Fit a model to measurements, and print how far it is off on rows it has not seen.",
    rich_markup_mode=None,
)
predicting = typer.Typer(
    help="Ask a fitted model, or the one that ships with the planner.", rich_markup_mode=None
)


@fitting.callback(invoke_without_command=True)
def fitting_root(context: typer.Context) -> None:
    """Fit a model to measurements, and print how far it is off on rows it has not seen."""
    if context.invoked_subcommand is None:
        put(context.get_help())


@predicting.callback(invoke_without_command=True)
def predicting_root(context: typer.Context) -> None:
    """Ask a fitted model, or the one that ships with the planner."""
    if context.invoked_subcommand is None:
        put(context.get_help())


@fitting.command("interference")
def fit_interference(
    pairs: str = typer.Argument(..., metavar="PAIRS.csv", help="pairs of jobs measured on one GPU"),
    profiles: str = typer.Option(None, "--profiles", metavar="PROFILES.csv", help="the jobs measured alone"),
    out: str = MODEL_OUT,
    method: str = typer.Option("blend", "--method", metavar="NAME", help="blend, learned or similarity"),
    json: bool = JSON,
) -> None:
    """Slowdowns of jobs that share a GPU, from measured pairs."""
    from planner.predict.fit_pairs import fit_files

    _check_model_out(out)
    _finish(fit_files(Path(pairs), Path(profiles) if profiles else None, method, say), out, json)


@predicting.command("interference")
def predict_interference(
    model: str = typer.Option(
        ..., "--model", metavar="MODEL.json", help="written by planner fit interference"
    ),
    pairs: str = typer.Option(
        ..., "--pairs", metavar="PAIRS.csv", help="pairs to predict; the measured columns may be empty"
    ),
    json: bool = JSON,
) -> None:
    """Slowdowns of pairs of jobs, mean and p90, one for each row in the order of the file."""
    from planner.predict.ask_pairs import answer_file
    from planner.report.models import pairs_page

    found = answer_file(Path(model), Path(pairs))
    if json:
        put(dumps(found, indent=2))
    else:
        show_page(pairs_page(found))


@fitting.command("usage")
def fit_usage(
    table: str = typer.Argument(
        ..., metavar="PROFILES.csv", help="jobs measured alone, by architecture; or a history with peaks"
    ),
    out: str = MODEL_OUT,
    json: bool = JSON,
) -> None:
    """GPU memory and utilisation, from profiles of known architectures or from the history of users and names."""
    from planner.predict import fit_usage as by_graph
    from planner.predict import history, usage_history
    from planner.tables import header

    _check_model_out(out)
    if "model" in header(Path(table)):
        model = by_graph.fit_files(Path(table))
    else:
        past = history.read(table)
        _say_dropped(past.dropped)
        peaks = sum(
            r.gpu_memory_peak_mib is not None or r.gpu_utilisation_pct is not None for r in past.records
        )
        _enough(table, peaks, "gpu_memory_peak_mib or gpu_utilisation_pct")
        model = usage_history.fit(past).to_file((), past.training("planner fit usage"))
    _finish(model, out, json)


@fitting.command("duration")
def fit_duration(
    table: str = typer.Argument(
        ..., metavar="HISTORY.csv", help="jobs that have run; or sacct --parsable2's output"
    ),
    out: str = MODEL_OUT,
    json: bool = JSON,
) -> None:
    """How long jobs run, from those of the same user, account, name and shape."""
    from planner.predict import duration, duration_scores, history

    _check_model_out(out)
    past = history.read(table)
    _say_dropped(past.dropped)
    _enough(table, sum(r.duration_s is not None for r in past.records), "a duration")
    model = duration.fit(past)
    scores = duration_scores.evaluate(past)
    _finish(model.to_file(scores, past.training("planner fit duration")), out, json)


@predicting.command("usage")
def predict_usage(
    graph: str = typer.Argument(
        ..., metavar="MODEL.onnx", help="a computation graph, or an architecture's name"
    ),
    gpu_model: str = typer.Option(..., "--gpu-model", metavar="NAME", help="such as v100"),
    batch: str = typer.Option(
        None, "--batch", metavar="N", help="samples in a step [default: as the graph says]"
    ),
    training: str = typer.Option(
        "momentum", "--training", metavar="NAME", help="sgd, momentum, adam or none"
    ),
    mixed: bool = typer.Option(False, "--mixed", help="mixed precision instead of fp32"),
    dim: list[str] = typer.Option([], "--dim", metavar="NAME=N", help="size of another dynamic dimension"),
    model: str = typer.Option(None, "--model", metavar="MODEL.json", help="written by planner fit usage"),
    json: bool = JSON,
) -> None:
    """GPU utilisation and memory of a job from its computation graph, without running it."""
    from planner.predict.ask_usage import answer
    from planner.report.models import usage_page

    found = answer(
        graph,
        gpu_model=gpu_model,
        batch=None if batch is None else whole("--batch", batch, least=1),
        training=training,
        mixed=mixed,
        dims=dict(_dimension(d) for d in dim),
        model=model,
    )
    if json:
        put(dumps(found, indent=2))
    else:
        show_page(usage_page(found))


@predicting.command("duration")
def predict_duration(
    scenario: str = typer.Argument(None, metavar="SCENARIO", help="whose jobs; - is standard input"),
    from_: str = typer.Option(None, "--from", metavar="SNAPSHOT.json", help="read a snapshot instead"),
    model: str = typer.Option(..., "--model", metavar="MODEL.json", help="written by planner fit duration"),
    json: bool = JSON,
) -> None:
    """How long each job of a queue will still run: median, p90 and p95, whatever it declares."""
    from planner.predict.from_models import durations
    from planner.report.models import durations_page

    snapshot, _, _ = planning_input(scenario, from_)
    found = durations(snapshot, model)
    if json:
        put(dumps(found, indent=2))
    else:
        show_page(durations_page(found))


def _dimension(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name:
        raise InputError("--dim", text, "NAME=N")
    return name, whole("--dim", size, least=1)


def _enough(table: str, rows: int, what: str) -> None:
    """A model of nothing must not take the place of one that knows something."""
    if rows < FEWEST_ROWS:
        raise InputError(table, f"{counted(rows, 'row')} with {what}", f"at least {FEWEST_ROWS}")


def _say_dropped(dropped: dict[str, int]) -> None:
    if dropped:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(dropped.items()))
        say(f"rows that say nothing: {causes}")


def _finish(model: ModelFile, out: str, json: bool) -> None:
    from planner.predict.model_file import text_of
    from planner.report.models import scores_page

    emit(text_of(model), out)
    if json:
        put(dumps([s.model_dump() for s in model.scores], indent=2), kept=True)
    else:
        show_page(scores_page(model), kept=True)


def _check_model_out(out: str) -> None:
    """A model goes to a file, because the table of errors goes to standard output."""
    if out == STDOUT:
        raise InputError("--out -", "the table of errors goes to standard output", "a file")
    check_out(out)
