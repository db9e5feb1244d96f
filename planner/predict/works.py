"""What a model of interference may know of a job, as numbers: one vector for each kind of work on each GPU model.

Beside what is measured alone, two things tell how much a job leans on the GPU without a look inside: how much faster it is on
a faster GPU model (a job that waits for its CPUs or its disk is not), and how its samples a second grow with the batch size
(those of a job that fills the GPU do not).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planner.predict.pairs import Alone, Profiles, Work

#: First columns of a job's vector; after them, for each GPU model of the profiles, ``gain:MODEL`` and ``scaling:MODEL``.
OWN = ("utilisation_pct", "bandwidth_pct", "memory_mib", "log2_batch", "mixed", "log_step_s", "scaling")
#: GPU models that fewer kinds of work than this were profiled on say nothing about the others.
FEWEST_ON_A_MODEL = 4
#: Peak memory bandwidth, GB/s, from the makers' data sheets; of the K80, one of its two GPUs.
BANDWIDTH_GB_S = {
    "k80": 240, "m40": 288, "p4": 192, "p40": 346, "p100-12gb": 549, "p100": 732,
    "v100": 900, "v100-16gb": 900, "v100-32gb": 900, "t4": 320, "a2": 200, "a10": 600, "a10g": 600,
    "a30": 933, "a40": 696, "a100": 1555, "a100-40gb": 1555, "a100-80gb": 2039, "a800-80gb": 2039,
    "h100": 3352, "h200": 4800, "l4": 300, "l40": 864, "l40s": 864, "rtx-2080-ti": 616,
    "gtx-1080-ti": 484, "rtx-3090": 936, "rtx-4090": 1008, "rtx-a6000": 768,
}  # fmt: skip


@dataclass(frozen=True)
class Works:
    """Kinds of work with their profiles, and the GPU models that they are compared on."""

    profiles: Profiles
    models: tuple[str, ...]

    @classmethod
    def of(cls, profiles: Profiles) -> Works:
        """The GPU models on which throughputs of enough kinds of work are known."""
        counts = Counter(gpu for (gpu, _), alone in profiles.items() if alone.step_s)
        return cls(profiles, tuple(sorted(g for g, n in counts.items() if n >= FEWEST_ON_A_MODEL)))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a vector."""
        return (*OWN, *(f"{what}:{m}" for what in ("gain", "scaling") for m in self.models))

    @cached_property
    def _sizes(self) -> dict[tuple[str, Work], list[tuple[int, float]]]:
        """(GPU model, work without its batch) -> (batch, step seconds), by batch."""
        found: dict[tuple[str, Work], list[tuple[int, float]]] = {}
        for (gpu, work), alone in self.profiles.items():
            if work.batch and alone.step_s:
                found.setdefault((gpu, _sizeless(work)), []).append((work.batch, alone.step_s))
        return {key: sorted(sizes) for key, sizes in found.items()}

    def vector(self, gpu_model: str, work: Work, alone: Alone) -> np.ndarray:
        """Shape (len(columns),); NaN where something is unknown."""
        steps = {
            m: (self.profiles.get((m, work)) or Alone()).step_s or (alone.step_s if m == gpu_model else None)
            for m in self.models
        }
        logs = np.array([math.log(s) if s else np.nan for s in steps.values()], float)
        known = logs[~np.isnan(logs)]
        gains = known.mean() - logs if len(known) > 1 else np.full(len(logs), np.nan)
        own = (
            alone.utilisation_pct,
            alone.bandwidth_pct,
            alone.memory_mib,
            math.log2(work.batch) if work.batch else None,
            None if work.mixed is None else float(work.mixed),
            math.log(alone.step_s) if alone.step_s else None,
            self._scaling(gpu_model, work),
        )
        scalings = [self._scaling(m, work) for m in self.models]
        return np.array([*own, *gains.tolist(), *scalings], float)

    def _scaling(self, gpu_model: str, work: Work) -> float | None:
        """d log(samples a second) / d log(batch) between the neighbouring batch sizes that were profiled."""
        sizes = self._sizes.get((gpu_model, _sizeless(work)), [])
        if work.batch is None or len(sizes) < 2:
            return None
        at = int(np.argmin([abs(math.log(b / work.batch)) for b, _ in sizes]))
        (small, slow), (large, fast) = sizes[max(0, at - 1)], sizes[min(len(sizes) - 1, at + 1)]
        return math.log((large / fast) / (small / slow)) / math.log(large / small)

    def as_json(self) -> dict[str, Any]:
        """Plain values for a model file."""
        rows = [
            [
                gpu,
                w.name,
                w.dataset,
                w.batch,
                w.mixed,
                a.utilisation_pct,
                a.bandwidth_pct,
                a.memory_mib,
                a.step_s,
            ]
            for (gpu, w), a in sorted(self.profiles.items(), key=lambda item: (item[0][0], item[0][1].key))
        ]
        return {"models": list(self.models), "rows": rows}

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Works:
        """From what ``as_json`` wrote."""
        profiles = {
            (gpu, Work(name, dataset, batch, mixed)): Alone(*alone)
            for gpu, name, dataset, batch, mixed, *alone in told["rows"]
        }
        return cls(profiles, tuple(told["models"]))

    def by_name(self, profile: str, gpu_model: str | None = None) -> Work | None:
        """The kind of work that a profile names, by its key or, where only one has it, by its name; None if none.

        With a GPU model, of those that are known on it. Where several differ only in how their name is written, the one that is
        written as the profile is.
        """
        for found in (self._by_key.get(_plain(profile), ()), self._names.get(_plain(profile), ())):
            here = [w for w in found if gpu_model is None or (gpu_model, w) in self.profiles]
            exact = [w for w in here if profile in (w.key, w.name)]
            if len(here) == 1 or len(exact) == 1:
                return (exact or here)[0]
        return None

    @cached_property
    def _by_key(self) -> dict[str, list[Work]]:
        return self._grouped(lambda w: w.key)

    @cached_property
    def _names(self) -> dict[str, list[Work]]:
        return self._grouped(lambda w: w.name)

    def _grouped(self, text: Callable[[Work], str]) -> dict[str, list[Work]]:
        out: dict[str, list[Work]] = {}
        for work in sorted({w for _, w in self.profiles}, key=lambda w: (w.key, str(w.mixed))):
            out.setdefault(_plain(text(work)), []).append(work)
        return out


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum() or c in "/:+")


def _sizeless(work: Work) -> Work:
    return Work(work.name, work.dataset, None, work.mixed)
