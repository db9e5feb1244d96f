"""Work in several threads: compiled kernels and the solvers let go of Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def in_parallel(work: Callable[[int], None], count: int) -> None:
    """Run ``work(0)``, ``work(1)``, ... at once, the first in this thread; raises what they raised."""
    with ThreadPoolExecutor(max(1, count - 1)) as pool:
        others = [pool.submit(work, i) for i in range(1, count)]
        work(0)
        for other in others:
            other.result()
