"""How jobs that take turns on a GPU slow each other down, from the share of time that each keeps it busy alone.

A job goes back and forth between the GPU, which it needs for a part ``u`` of its time alone, and everything else. Of N such jobs, the GPU
is a queue with processor sharing in a closed network with one customer a class, whose mean values are exact (Baskett, Chandy,
Muntz and Palacios, J. ACM 22(2), 1975; the recursion is Reiser and Lavenberg's, J. ACM 27(2), 1980): a job that comes to the GPU
finds there what the others leave when they are among themselves. For two jobs this is a slowdown of 1 + u v, for both; a job that never
uses the GPU disturbs nobody, and two that always do run at half speed.

GPUs run kernels of several jobs partly at once, the newer the more. ``contention`` is the part of a co-runner's work at the GPU that is felt: 1 is
strict turns, 0 is no interference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: With more jobs than this the recursion over all subsets takes too long; then the mean values are those of Bard's and
#: Schweitzer's fixed point (1979), which for one customer a class takes for granted that a job's absence changes nothing.
EXACT = 7
ROUNDS = 50


def slowdowns(busy: np.ndarray, others: Sequence[float], contention: float) -> np.ndarray:
    """Slowdown of each victim beside all ``others``.

    Parameters
    ----------
    busy
        Share of its time alone for which each victim keeps the GPU busy, 0 to 1, shape (victims,); NaN: unknown.
    others
        The same of the co-runners.
    contention
        Part of a co-runner's presence that is felt.

    Returns
    -------
    np.ndarray
        Shape (victims,), at least 1; NaN where a share is unknown.
    """
    if any(o != o for o in others):
        return np.full(len(busy), np.nan)
    there = _exact(tuple(others), contention) if len(others) <= EXACT else _fixed_point(others, contention)
    return np.asarray(1 + contention * busy * sum(there))


def _exact(busy: tuple[float, ...], contention: float) -> list[float]:
    """Part of the time for which each of these jobs, alone with each other, is at the GPU, waiting or served."""
    n = len(busy)
    present = np.zeros((1 << n, n))
    for group in range(1, 1 << n):
        for i in range(n):
            if group >> i & 1:
                at_gpu = busy[i] * (1 + contention * present[group & ~(1 << i)].sum())
                present[group, i] = at_gpu / (1 - busy[i] + at_gpu) if at_gpu else 0.0
    return present[-1].tolist() if n else []


def _fixed_point(busy: Sequence[float], contention: float) -> list[float]:
    u = np.array(busy, float)
    present = u.copy()
    for _ in range(ROUNDS):
        at_gpu = u * (1 + contention * (present.sum() - present))
        present = np.where(at_gpu > 0, at_gpu / (1 - u + np.maximum(at_gpu, 1e-12)), 0.0)
    return present.tolist()
