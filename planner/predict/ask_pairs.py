"""What a fitted model says of rows that it has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.predict.feasibility import DOUBTFUL, Feasibility
from planner.predict.learned import METHODS, Ask, Entry, Fitted, entries
from planner.predict.model_file import load
from planner.predict.pairs import Alone, Pair, Work, read_pairs

DIGITS = 6


def load_fitted(path: Path | str) -> Fitted:
    """A model of slowdowns from its file. Raises InputError."""
    file = load(path, "interference", METHODS)
    try:
        model = Fitted.of_json(file.method, file.parameters, file.training.digest)
        if model.encoder.columns != file.columns:
            raise InputError(
                f"{path}: columns",
                f"{len(file.columns)} that are not this planner's",
                ", ".join(model.encoder.columns),
            )
        _try(model)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: parameters", f"{type(error).__name__}: {error}", "what planner fit interference wrote"
        ) from None
    return model


def _try(model: Fitted) -> None:
    """Ask one question of each group, because parts that do not fit together show only then."""
    Feasibility.of_json(model.feasibility)
    gpu, work = next(iter(model.encoder.works.profiles), ("", Work("")))
    both = [Entry(gpu, w, Alone()) for w in (work, Work(""))]
    asks = [Ask(a, (b,)) for a in both for b in both]
    model.slow_speeds(asks, model.speeds(asks))


def answers(model: Fitted, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """One object a pair, in order: mean and p90 of both slowdowns, and what they rest on.

    ``basis`` says whether both jobs were measured with others (``known``), one of them never was (``unknown``), or the GPU model
    was not (``unknown GPU model``). Rows are matched to what was measured however names are written. The
    slowdowns are those of a pair that fits into the GPU's memory, whether it does or not; ``feasible`` says whether it will,
    None if a memory is unknown, and ``misfit`` how likely it will not.
    """
    both = [tuple(model.meant(e) for e in entries(p)) for p in pairs]
    asks = [
        ask
        for (a, b), p in zip(both, pairs, strict=True)
        for ask in (Ask(a, (b,), p.sharing), Ask(b, (a,), p.sharing))
    ]
    speeds = model.speeds(asks)
    slow = model.slow_speeds(asks, speeds)
    groups = model.groups(asks)
    fits = Feasibility.of_json(model.feasibility)
    out = []
    for i, pair in enumerate(pairs):
        at = slice(2 * i, 2 * i + 2)
        mean, upper = (np.round(1 / x[at], DIGITS).tolist() for x in (speeds, slow))
        out.append(
            {
                "line": pair.line,
                "gpu_type": pair.gpu_model,
                "job_a": pair.a.key,
                "job_b": pair.b.key,
                "slowdown_a": mean[0],
                "slowdown_a_p90": upper[0],
                "slowdown_b": mean[1],
                "slowdown_b_p90": upper[1],
                "feasible": None if (risk := fits.misfit(*both[i])) is None else risk < DOUBTFUL,
                "misfit": None if risk is None else round(risk, DIGITS),
                "basis": groups[2 * i] if both[i][0].gpu_model in model.encoder.gpus else "unknown GPU model",
            }
        )
    return out


def answer_file(model_path: Path, pairs_path: Path) -> list[dict[str, Any]]:
    """Predictions for all rows of a table of pairs. Raises InputError."""
    model = load_fitted(model_path)
    return answers(model, read_pairs(pairs_path, model.encoder.works.profiles, measured=False))
