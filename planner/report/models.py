"""Fitted models for people: how far they are off, and what they predict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.report.page import Facts, Grid, Lines, Page, columns
from planner.report.units import UNKNOWN, duration, memory

if TYPE_CHECKING:
    from planner.predict.model_file import ModelFile, Score


def scores_page(model: ModelFile) -> Page:
    """What it was fitted on, and a table of errors for each split."""
    facts = Facts(
        (
            ("model", f"{model.kind}, {model.method}"),
            ("fitted on", f"{model.training.rows} rows of {', '.join(model.training.files) or 'no file'}"),
            ("digest", model.training.digest),
        )
    )
    if not model.scores:
        return (facts, Lines("Errors", ("too few rows, or nothing to compare with: the fit was not judged",)))
    splits = list(dict.fromkeys(s.split for s in model.scores))
    return (facts, *(_table(split, [s for s in model.scores if s.split == split]) for split in splits))


def _table(split: str, scores: Sequence[Score]) -> Grid:
    measures = list(dict.fromkeys(m for s in scores for m in s.values))
    groups = list(dict.fromkeys(s.group for s in scores))
    rows = tuple(
        (s.group, s.method, str(s.rows), *(_shown(s.values.get(m)) for m in measures))
        for s in sorted(scores, key=lambda s: groups.index(s.group))
    )
    heads = [f"{m.replace('_', ' ')}>" for m in measures]
    return Grid(f"errors on unseen rows, {split}", columns("rows of", "method", "rows>", *heads), rows)


def pairs_page(found: Sequence[dict[str, Any]]) -> Page:
    """Predicted slowdowns, one row a pair."""
    rows = tuple(
        (
            str(f["line"]),
            f["gpu_type"],
            f["job_a"],
            f["job_b"],
            *(f"{f[k]:.2f}" for k in ("slowdown_a", "slowdown_a_p90", "slowdown_b", "slowdown_b_p90")),
            {True: "yes", False: "no", None: UNKNOWN}[f["feasible"]],
            f["basis"],
        )
        for f in found
    )
    heads = columns(
        "line>?", "GPU?", "job a", "job b", "slowdown a>", "p90 a>", "slowdown b>", "p90 b>", "fits", "basis?"
    )
    return (Grid("predicted slowdowns", heads, rows),)


def usage_page(found: dict[str, Any]) -> Page:
    """What a job will use of a GPU."""
    use, use_p95 = found["utilisation_pct"], found["utilisation_p95_pct"]
    facts = (
        ("graph", f"{found['graph']}, batch {found['batch']}, {found['training'] or 'inference'}"),
        ("forward pass", f"{found['flops'] / 1e9:.3g} GFLOP, {found['parameters'] / 1e6:.4g} M parameters"),
        ("memory", f"{memory(found['memory_mib'])}, p95 {memory(found['memory_p95_mib'])}"),
        ("utilisation", f"{use:.0f} %, p95 {use_p95:.0f} % on {found['gpu_model']}"),
    )
    notes = (Lines("Notes", tuple(found["notes"])),) if found["notes"] else ()
    return (Facts(facts), *notes)


def durations_page(found: Sequence[dict[str, Any]]) -> Page:
    """Remaining times, one row a job."""
    keys = ("remaining_s", "remaining_p90_s", "remaining_p95_s")
    rows = tuple((f["job"], *(duration(f[k]) for k in keys), f["duration_from"] or "") for f in found)
    return (Grid("remaining time", columns("job", "p50>", "p90>", "p95>", "by its"), rows),)


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"
