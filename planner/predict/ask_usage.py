"""What a model of usage says of one computation graph on one GPU model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

from planner.errors import InputError
from planner.gpu_models import canonical_model
from planner.predict import catalogue, usage
from planner.predict.graph import Features
from planner.predict.graph import features as read_features
from planner.predict.memory import Training
from planner.predict.model_file import load
from planner.predict.pairs import Work
from planner.quantities import shown

#: For ``--training``: no training.
INFERENCE = "none"


def answer(
    graph: str,
    *,
    gpu_model: str,
    batch: int | None,
    training: str,
    mixed: bool,
    dims: Mapping[str, int],
    model: str | None,
) -> dict[str, Any]:
    """Utilisation (percent) and memory (MiB) at p50 and p95, with the graph's own figures.

    Raises
    ------
    InputError
        The graph, the GPU model, the model or an option cannot be used.
    EngineMissing
        The graph is a file, and onnx is not installed.
    """
    accepted = (*get_args(Training), INFERENCE)
    if training not in accepted:
        raise InputError("--training", f"got {shown(training)}", ", ".join(accepted))
    features = _features(graph, batch, dims)
    mixed = mixed or bool(Work.of_key(graph).mixed)
    asked = (
        usage.default() if model is None else usage.UsageModel.of_file(load(model, "usage", (usage.METHOD,)))
    )
    mode = None if training == INFERENCE else cast("Training", training)
    found = asked.predict(features, gpu_model, training=mode, mixed=mixed)
    return {
        "graph": graph,
        "gpu_model": canonical_model(gpu_model),
        "batch": features.batch,
        "training": mode,
        "mixed": mixed,
        **asdict(found),
        "flops": features.flops,
        "flops_by_operator": features.flops_by_operator,
        "parameters": features.parameters,
        "activation_bytes": features.activation_bytes,
        "operators": features.operators,
        "unknown_operators": features.unknown_operators,
    }


def _features(graph: str, batch: int | None, dims: Mapping[str, int]) -> Features:
    """Of a file, or of an architecture that the planner knows by name (``resnet50``, ``resnet18/cifar10``)."""
    work = Work.of_key(graph)
    there = Path(graph).exists()
    known = None if there else catalogue.find(work.name, work.dataset or None)
    if known is None and not there and Path(graph).suffix != ".onnx":
        names = sorted({key.partition("/")[0] for key in catalogue.architectures()})
        raise InputError(
            graph, "neither a file nor an architecture that is known", f"an ONNX file, or {', '.join(names)}"
        )
    if known is not None:
        if dims:
            raise InputError(
                "--dim", f"{graph} is an architecture that is known by name", "nothing, or an ONNX file"
            )
        size = batch or work.batch
        if size is None:
            raise InputError(graph, "an architecture has no batch size of its own", "--batch N")
        return known.at(size)
    return read_features(graph, batch=batch, dims=dims, where=graph)
