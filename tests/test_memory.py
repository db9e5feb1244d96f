"""What is not needed any more goes back to the system."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solvers.kernels.jit import COMPILED
from solvers.memory import drop_code, trim

MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent


def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc can be told to give back memory"
)
def test_what_lies_free_between_what_is_in_use_is_given_back():
    """Small enough for the heap, and every tenth in use, so that freeing alone cannot make the heap shorter."""
    blocks = [np.ones(100_000, np.uint8) for _ in range(1000)]
    del blocks[::10], blocks[::2]
    kept = blocks[::5]
    blocks.clear()
    before = resident_mib()
    trim()
    assert before - resident_mib() > 40
    assert sum(int(block.sum()) for block in kept) == 100_000 * len(kept)


def test_where_nothing_can_be_told_nothing_happens(monkeypatch):
    def no_library(name):
        raise OSError("no such library")

    for library in (lambda name: object(), no_library):
        monkeypatch.setattr(ctypes, "CDLL", library)
        trim()
        drop_code("libpython")


SCRIPT = """
import os
import numba
from solvers.memory import drop_code

def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

twice = numba.njit("int64(int64)")(lambda x: 2 * x)
before = resident_mib()
drop_code("libllvmlite")
print(before - resident_mib(), twice(4), numba.njit("int64(int64)")(lambda x: x * x)(5))
"""


@pytest.mark.skipif(not COMPILED or not sys.platform.startswith("linux"), reason="needs numba, on Linux")
def test_the_code_of_a_library_is_given_back_and_works_again_when_it_is_needed():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=ROOT)
    given_back, twice, square = ran.stdout.split()
    assert float(given_back) > 10
    assert (twice, square) == ("8", "25")
