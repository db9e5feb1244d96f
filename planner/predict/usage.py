"""GPU utilisation and GPU memory of a job from its graph's features and the GPU model, without running it.

Horus's aim (Yeung et al., HotCloud 2020; TPDS 33(1), 2022) by physics with few fitted coefficients rather than by a learner
over many features, because public measurements are few and jobs to come are of architectures that none of them has. Memory is
``planner.predict.memory``'s sum. Utilisation, the share of the time that some kernel runs, is the GPU's time for a step over the
step's length: the GPU is busy for the arithmetic, the memory traffic (roofline: Williams et al., CACM 52(4), 2009) and
at least a few microseconds a kernel; the host launches the kernels one by one and feeds the samples; the longer one decides.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from planner.errors import InputError
from planner.gpu_models import canonical_model, known_memory_mib, mig_memory_mib
from planner.predict.memory import SITE_SLACK_MIB, MemoryModel, Training
from planner.predict.model_file import ModelFile, Score, parsed
from planner.predict.model_file import Training as FittedOn
from planner.predict.works import BANDWIDTH_GB_S
from planner.quantities import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.predict.graph import Features

KIND: Literal["usage"] = "usage"
METHOD = "graph"
FILE = "default_usage.json"
#: Peak TFLOP/s, dense, from the makers' data sheets: fp32 on the plain units, and fp16 with fp32 sums on the tensor cores (on the
#: plain units where a card has none). Of the K80, one of its two GPUs.
PEAK_TFLOPS: dict[str, tuple[float, float]] = {
    "k80": (4.4, 4.4), "m40": (7.0, 7.0), "p4": (5.5, 5.5), "p40": (11.8, 11.8), "p100-12gb": (9.3, 18.7),
    "p100": (10.6, 21.2), "v100": (15.7, 125), "v100-16gb": (15.7, 125), "v100-32gb": (15.7, 125), "t4": (8.1, 65),
    "a2": (4.5, 18), "a10": (31.2, 125), "a10g": (31.2, 70), "a30": (10.3, 165), "a40": (37.4, 150), "a100": (19.5, 312),
    "a100-40gb": (19.5, 312), "a100-80gb": (19.5, 312), "a800-80gb": (19.5, 312), "h100": (67, 989), "h200": (67, 989),
    "l4": (30.3, 121), "l40": (90.5, 181), "l40s": (91.6, 362), "gtx-1080-ti": (11.3, 11.3), "rtx-2080-ti": (13.4, 54),
    "rtx-3090": (35.6, 71), "rtx-4090": (82.6, 165), "rtx-a6000": (38.7, 155),
}  # fmt: skip
#: Kernels: the backward pass has two for each of the forward pass (for the input's and the weight's gradient); mixed precision
#: adds casts; the optimiser updates each weight, of which graphs have about one for two operators; a step has some of its own:
#: copies of the inputs, the loss and its gradient, zeros for the gradients.
PASSES, CASTS, OF_STEP = 3, 1.6, 20
UPDATES: dict[Training, float] = {"sgd": 0.5, "momentum": 1.0, "adam": 2.0}
#: Most of the traffic is halved in mixed precision.
MIXED_TRAFFIC = 0.6
#: Predictions kept for jobs that are alike.
MOST_REMEMBERED = 10_000
#: How many of a card's compute slices a MIG profile has, of 7, or of the A30's 4 (NVIDIA, Multi-Instance GPU User Guide).
_SLICES = re.compile(r"(\d)g\.")
#: Utilisations closer to the ends than this are no different, %.
LEAST_PCT, MOST_PCT = 0.5, 99.5


@dataclass(frozen=True)
class Usage:
    """What a job will use of one GPU. None: it was not asked for.

    p95: what one job in twenty of an architecture not yet seen will go beyond, never below the middle.
    """

    utilisation_pct: float | None
    utilisation_p95_pct: float | None
    memory_mib: int
    memory_p95_mib: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BusyModel:
    """Fitted coefficients of utilisation; defaults are what physics leads to expect."""

    work: float = 1.5  # GPU time against the peaks' sum: kernels reach about two thirds
    kernel_us: float = 3.0  # the shortest a kernel takes
    launch_us: float = 9.0  # the host's time for one
    wait_ms: float = 1.0  # the host's time for a step beside
    sample_ms: float = 0.02  # the host's time for a sample
    sharpness: float = 3.0  # how well GPU and host overlap: 1 not at all, large entirely

    def utilisation_pct(
        self, f: Features, gpu_model: str, training: Training | None, *, mixed: bool
    ) -> float:
        """Percent of a step's time that some kernel runs. Raises InputError for a GPU model without peaks."""
        busy, host = self._gpu_and_host_ms(f, gpu_model, training, mixed=mixed)
        return 100 * busy / self._joined_ms(busy, host)

    def step_ms(self, f: Features, gpu_model: str, training: Training | None, *, mixed: bool) -> float:
        """Length of a step on one GPU alone. Raises InputError for a GPU model without peaks."""
        return self._joined_ms(*self._gpu_and_host_ms(f, gpu_model, training, mixed=mixed))

    def _gpu_and_host_ms(
        self, f: Features, gpu_model: str, training: Training | None, *, mixed: bool
    ) -> tuple[float, float]:
        peak, bandwidth = peaks(gpu_model)
        passes = 1 if training is None else PASSES
        arithmetic_ms = f.flops / (peak[mixed] * 1e9)
        traffic_ms = f.traffic_bytes * (MIXED_TRAFFIC if mixed else 1.0) / (bandwidth * 1e6)
        updates = UPDATES[training] if training else 0.0
        kernels = OF_STEP + f.operators * (passes * (CASTS if mixed else 1.0) + updates)
        busy = self.work * passes * (arithmetic_ms + traffic_ms) + kernels * self.kernel_us / 1e3
        host = kernels * self.launch_us / 1e3 + self.wait_ms + self.sample_ms * f.batch
        return busy, host

    def _joined_ms(self, busy: float, host: float) -> float:
        # step = (busy^p + host^p)^(1/p), with the longer one taken out so that no power overflows
        longer, p = max(busy, host), self.sharpness
        return longer * float((1 + (min(busy, host) / longer) ** p) ** (1 / p))


@dataclass(frozen=True)
class Spread:
    """How far measurements lie above the middle: conformal quantiles over left-out architectures (Lei et al., JASA 113, 2018, 5.2).

    Memory: in margins of ``planner.predict.memory``. Utilisation: added to the logit.
    """

    memory_margins: float = 1.0
    utilisation_logit: float = 1.0


@dataclass(frozen=True)
class UsageModel:
    """Predicts usage.

    ``known``: for graphs that were measured, by ``signature``, what to add to the logit of utilisation. Others have the
    physics alone, so they are none the worse for it. Memory has no such part: it did not help on data that were left out.
    """

    memory: MemoryModel = field(default_factory=MemoryModel)
    busy: BusyModel = field(default_factory=BusyModel)
    spread: Spread = field(default_factory=Spread)
    known: dict[str, float] = field(default_factory=dict)
    _seen: dict[tuple[Any, ...], Usage] = field(default_factory=dict, init=False, repr=False, compare=False)

    def predict(
        self,
        features: Features,
        gpu_model: str | None,
        *,
        training: Training | None = "momentum",
        mixed: bool = False,
        tensorflow: bool = False,
    ) -> Usage:
        """Usage of one GPU.

        Parameters
        ----------
        gpu_model
            Any spelling that ``gpu_models`` knows. None: memory alone.
        training
            The optimiser; None: inference.
        tensorflow
            The job is TensorFlow's with memory growth on, which holds more memory than it needs.

        Raises
        ------
        InputError
            The GPU model's peaks are not known, or the optimiser is none of them.
        """
        key = (_told(features), gpu_model, training, mixed, tensorflow)
        if key not in self._seen:
            if len(self._seen) >= MOST_REMEMBERED:
                self._seen.clear()
            self._seen[key] = self._predicted(features, gpu_model, training, mixed, tensorflow)
        return self._seen[key]

    def _predicted(
        self, f: Features, gpu_model: str | None, training: Training | None, mixed: bool, tensorflow: bool
    ) -> Usage:
        if training not in (None, *UPDATES):
            raise InputError(
                "training", f"got {shown(training)}", f"{', '.join(UPDATES)}, or none: inference"
            )
        memory, memory_p95 = (
            math.ceil(self.memory.total_mib(f, training, mixed=mixed, tensorflow=tensorflow, beyond=beyond))
            for beyond in (None, self.spread.memory_margins)
        )
        notes = _notes(f, gpu_model, memory, memory_p95)
        if gpu_model is None:
            return Usage(None, None, memory, memory_p95, notes)
        busy = self.utilisation_pct(f, gpu_model, training, mixed=mixed)
        busy_p95 = max(busy, shifted(busy, self.spread.utilisation_logit))
        return Usage(busy, busy_p95, memory, memory_p95, notes)

    def utilisation_pct(
        self, f: Features, gpu_model: str, training: Training | None, *, mixed: bool
    ) -> float:
        """Percent of the time that some kernel runs. Raises InputError for a GPU model without peaks."""
        physics = self.busy.utilisation_pct(f, gpu_model, training, mixed=mixed)
        return shifted(physics, self.known.get(signature(f), 0.0))

    def with_context(self, context_mib: float) -> UsageModel:
        """The model for a site where a process that has only begun to use a GPU takes so much of it, by nvidia-smi."""
        memory = replace(self.memory, context_mib=context_mib, slack_mib=SITE_SLACK_MIB)
        return UsageModel(memory, self.busy, self.spread, self.known)

    def to_file(self, scores: Sequence[Score], training: FittedOn) -> ModelFile:
        """The model with what it was fitted on."""
        parameters = {
            "memory": asdict(self.memory),
            "busy": asdict(self.busy),
            "spread": asdict(self.spread),
            "known": dict(sorted(self.known.items())),
        }
        columns = (*parameters["memory"], *parameters["busy"])
        return ModelFile(
            kind=KIND,
            method=METHOD,
            columns=columns,
            training=training,
            scores=tuple(scores),
            parameters=parameters,
        )

    @classmethod
    def of_file(cls, file: ModelFile) -> UsageModel:
        """The model in a file. Raises InputError if its parameters are not those of a usage model."""
        try:
            told = file.parameters
            return cls(
                MemoryModel(**_positive(told["memory"])),
                BusyModel(**_positive(told["busy"])),
                Spread(**{name: _finite(name, value) for name, value in told["spread"].items()}),
                {str(name): _finite(name, value) for name, value in told["known"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = "usage model: parameters"
            raise InputError(where, str(error), "those written by planner fit usage") from None


def _finite(name: str, value: Any) -> float:
    if not math.isfinite(float(value)):
        raise ValueError(f"{name} is {value}, no finite number")
    return float(value)


def _positive(told: dict[str, Any]) -> dict[str, float]:
    for name, value in told.items():
        if _finite(name, value) <= 0:
            raise ValueError(f"{name} is {value}, not above 0")
    return {name: float(value) for name, value in told.items()}


@cache
def default() -> UsageModel:
    """The model that comes with the planner."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return UsageModel.of_file(parsed(text, FILE, KIND, (METHOD,)))


def peaks(gpu_model: str) -> tuple[tuple[float, float], float]:
    """Peak TFLOP/s (fp32, half precision) and GB/s; of a MIG instance, its part of the card's.

    Raises InputError for a GPU model without them.
    """
    card, _, profile = canonical_model(gpu_model).partition(":")
    if card not in PEAK_TFLOPS:
        raise InputError(
            "GPU model", f"no peaks are known of {shown(gpu_model)}", ", ".join(sorted(PEAK_TFLOPS))
        )
    slices = _SLICES.match(profile)
    part = int(slices[1]) / (4 if card == "a30" else 7) if slices else 1.0
    plain, half = PEAK_TFLOPS[card]
    return (plain * part, half * part), BANDWIDTH_GB_S[card] * part


def _memory_mib(gpu_model: str) -> int | None:
    card, _, profile = canonical_model(gpu_model).partition(":")
    return mig_memory_mib(profile) if profile else known_memory_mib(card)


def signature(f: Features) -> str:
    """What a graph has in common at all batch sizes."""
    return f"{f.parameters} parameters, {f.operators} operators, {f.depth} deep"


def logit(pct: float) -> float:
    """Of a utilisation, kept off the ends."""
    share = min(MOST_PCT, max(LEAST_PCT, pct)) / 100
    return math.log(share / (1 - share))


def shifted(pct: float, by: float) -> float:
    """A utilisation moved in the logit, %."""
    return 100 / (1 + math.exp(-(logit(pct) + by))) if by else pct


def _told(f: Features) -> tuple[Any, ...]:
    """What tells two features apart, to remember predictions by; they hold dicts and cannot be hashed themselves."""
    return (
        f.batch, f.flops, f.parameters, f.parameter_bytes, f.activation_bytes, f.largest_activation_bytes, f.traffic_bytes, f.operators,
        f.depth, f.notes, *f.flops_by_operator.items(), *f.unknown_operators,
    )  # fmt: skip


def _notes(f: Features, gpu_model: str | None, p50: int, p95: int) -> tuple[str, ...]:
    notes = list(f.notes)
    if f.unknown_operators:
        ops = ", ".join(sorted(f.unknown_operators))
        notes.append(f"operators whose arithmetic is unknown count nothing: {ops}")
    has = None if gpu_model is None else _memory_mib(gpu_model)
    if has is not None and p95 > has:
        sure = "needs" if p50 > has else "may need"
        notes.append(f"it {sure} {p50 if p50 > has else p95} MiB, more than the {has} MiB of {gpu_model}")
    return tuple(notes)
