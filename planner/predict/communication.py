"""What a gang loses to its links: synchronous data-parallel training exchanges its gradients once a step.

A ring all-reduce of n GPUs sends 2 (n - 1) / n times the gradients over every link of the ring, and its slowest link decides
(Patarasuk and Yuan, JPDC 69(2), 2009); between nodes as well, so that the number of nodes does not matter, only that there are
several. All GPUs wait for the exchange, the communication cost of placing tasks (Geng et al., Cluster Computing, 2020). A job with many
parameters and short steps loses most; one factor for all jobs cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from planner.policy import Links
from planner.predict import coefficients as shipped

if TYPE_CHECKING:
    from planner.predict.graph import Features

#: Of a step alone, how long the backward pass takes, which communication can hide behind: two of its three passes.
BACKWARD = 2 / 3
#: No factor is larger (``planner.policy.Factor``).
MOST = 100.0
#: The program counts in thousandths; a factor that is rounded to them is the same for all who use it.
PLACES = 3


@dataclass(frozen=True)
class Coefficients:
    """What a ring gets of each class of link, GB/s (10^9 bytes) each way, and what goes with it."""

    nvlink_gb_s: float
    pcie_gb_s: float
    network_gb_s: float
    overlap: float = 0.0  # part of the backward pass that communication hides behind
    step: float = (
        1.0  # steps against those of the usage model, which utilisations leave without a scale of time
    )


@cache
def default() -> Coefficients:
    """Those that come with the planner."""
    told: dict[str, Any] = shipped.links()["coefficients"]
    return Coefficients(**told)


def gradient_bytes(features: Features, *, mixed: bool) -> float:
    """Bytes of the gradients: as many as of the parameters; half of that in mixed precision."""
    return features.parameter_bytes / 2 if mixed else float(features.parameter_bytes)


def factor(step_ms: float, exchanged_bytes: float, gpus: int, gb_s: float, *, overlap: float = 0.0) -> float:
    """Run time of a synchronous step over its run time alone, at least 1.

    Parameters
    ----------
    step_ms
        A step on one GPU without communication, > 0.
    exchanged_bytes
        Bytes of the gradients.
    gb_s
        Bandwidth of the slowest link, GB/s, > 0.
    overlap
        Part of the backward pass that communication hides behind, 0..1.
    """
    moved_ms = 2 * (gpus - 1) / gpus * exchanged_bytes / (gb_s * 1e6)
    return 1 + max(0.0, moved_ms - overlap * BACKWARD * step_ms) / step_ms


def links(step_ms: float, exchanged_bytes: float, gpus: int, coefficients: Coefficients) -> Links:
    """A job's factor for each class of link, in thousandths; they never fall from NVLink to PCIe to the network.

    ``step_ms`` is as in ``factor``: a measured step, or a predicted one times ``step``.
    """
    c, found = coefficients, [1.0]
    for gb_s in (c.nvlink_gb_s, c.pcie_gb_s, c.network_gb_s):
        own = round(min(MOST, factor(step_ms, exchanged_bytes, gpus, gb_s, overlap=c.overlap)), PLACES)
        found.append(max(own, found[-1]))
    return Links(nvlink=found[1], pcie=found[2], network=found[3])
