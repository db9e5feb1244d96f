"""GPU memory of a deep-learning job from its graph's features, as a sum of what a training step holds.

What a parameter needs is exact: its weight, its gradient and the optimiser's state. What the step holds beside is the
activations kept for the gradient, a few tensors as large as the largest activation that pass through, and the context of CUDA
and the framework. Four coefficients stand for what graphs do not say (how much is kept, in half precision too, how much passes
through, the context); they are fitted. Horus's published formula is here too, to compare with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from planner.predict.graph import Features

MIB = 2**20
Training = Literal["sgd", "momentum", "adam"]
#: fp32 numbers a parameter: weight, gradient, and the optimiser's state.
NUMBERS: dict[Training, int] = {"sgd": 2, "momentum": 3, "adam": 4}
#: In mixed precision beside those: a half-precision copy of each weight (Micikevicius et al., ICLR 2018).
HALF_COPY = 0.5
#: Training drops some of the attention (Vaswani et al. 2017, 5.4), which graphs for inference do not show: for each number out
#: of a softmax, a copy (4 bytes) and a mask (1 byte) are kept. The reader counts 5 FLOPs for each of these numbers.
DROPOUT_BYTES, SOFTMAX_FLOPS = 5, 5
#: Contexts differ so much, up and down. PyTorch users report 880 MiB on an RTX 2080 Ti with CUDA 10.1 and 1,490 MiB on an RTX 3090
#: with CUDA 11 (pytorch issue 49877) before cuBLAS and cuDNN add their kernels, and 300 MiB since CUDA 11.7 loads kernels when they
#: are needed (pytorch issue 107667); MISO's TensorFlow jobs have 1,200 to 2,250 MiB.
SLACK_MIB = 750.0
#: On one site, with the same GPU models and versions, they differ less.
SITE_SLACK_MIB = 200.0
#: How errors of the need grow with it: the space in which convolutions work does not, much else does.
MARGIN_MIB, MARGIN = 300, 0.2
#: TensorFlow tries no convolution algorithm that needs more scratch space (TF_CUDNN_WORKSPACE_LIMIT_IN_MB).
MOST_SCRATCH_MIB = 4096
#: PyTorch's allocator takes memory in blocks of at least this (CUDACachingAllocator.cpp, kSmallBuffer).
BLOCK_MIB = 2


@dataclass(frozen=True)
class MemoryModel:
    """Fitted coefficients; defaults are what physics leads to expect."""

    context_mib: float = 1500.0  # CUDA's context and the kernels of framework, cuBLAS and cuDNN
    kept: float = 1.1  # of the activations that the gradient needs
    mixed: float = 0.55  # of their fp32 size, in mixed precision: most of them halved
    passing: float = 2.0  # tensors of the largest activation's size: it and its gradient
    scratch_mib: float = 1000.0  # TensorFlow's, for trying convolution algorithms
    slack_mib: float = SLACK_MIB  # how much larger a context may well be

    def need_mib(self, f: Features, training: Training | None, *, mixed: bool) -> float:
        """What the job's tensors need, MiB, without the context.

        Parameters
        ----------
        training
            The optimiser; None: inference, which keeps weights and the two largest activations.
        """
        size = self.mixed if mixed else 1.0
        largest = f.largest_activation_bytes * size
        weights = f.parameter_bytes * (HALF_COPY if mixed else 0.0)
        if training is None:
            return (weights + f.parameter_bytes + 2 * largest) / MIB
        weights += f.parameter_bytes * NUMBERS[training]
        return (weights + self.kept * size * held_bytes(f) + self.passing * largest) / MIB

    def total_mib(
        self,
        f: Features,
        training: Training | None,
        *,
        mixed: bool,
        tensorflow: bool,
        beyond: float | None = None,
    ) -> float:
        """What the driver shows for the process, MiB.

        Parameters
        ----------
        tensorflow
            With memory growth on, its allocator takes regions each as large as all before together (bfc_allocator.cc,
            Extend), so the process holds more than it needs.
        beyond
            None: the middle. Else an upper value: the context larger by its slack, the need by so many ``margin_mib``,
            and all the scratch space that is allowed.
        """
        need, context = self.need_mib(f, training, mixed=mixed), self.context_mib
        if beyond is not None:
            context, need = context + self.slack_mib, need + beyond * margin_mib(need)
        if not tensorflow:
            return context + math.ceil(need / BLOCK_MIB) * BLOCK_MIB
        return context + regions_mib(need + self.scratch(f, most=beyond is not None))

    def scratch(self, f: Features, *, most: bool = False) -> float:
        """Space in which TensorFlow tries the algorithms for convolutions, MiB; ``most``: all that it may take."""
        if f.flop_shares["conv"] == 0:
            return 0.0
        return max(self.scratch_mib, MOST_SCRATCH_MIB) if most else self.scratch_mib


def margin_mib(need: float) -> float:
    """The scale on which needs differ from what is predicted."""
    return MARGIN_MIB + MARGIN * need


def held_bytes(f: Features) -> float:
    """Activations kept for the gradient at fp32, with those of dropped attention."""
    return f.activation_bytes + DROPOUT_BYTES * f.flops_by_operator.get("Softmax", 0) / SOFTMAX_FLOPS


def regions_mib(need: float) -> float:
    """Regions of 2, 4, 8, ... MiB until they hold what is needed: a power of two, less two."""
    return 2.0 ** math.ceil(math.log2(need + 2)) - 2


def horus_mib(f: Features) -> float:
    """Horus's formula as GPUMemNet and CARMA implement it: 4 ((A B + P) + B G) bytes, with G = P.

    A: activations a sample, P: parameters, B: batch, G: gradients. They count once a sample, though a step has them once.
    """
    return (f.activation_bytes + f.parameter_bytes + f.batch * f.parameter_bytes) / MIB
