"""Memory that a phase of a solve has needed and the next one does not goes back to the system.

What was freed lies in holes between what is still in use, in a heap for each thread, and the next phase rarely fits into them. And the
code of a library that has done its work stays in memory for as long as nobody asks for the room. Linux can be told to take both
back; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

#: ``MADV_DONTNEED`` of Linux.
DONT_NEED = 4


def trim() -> None:
    """Give back what is free; takes some milliseconds."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def drop_code(library: str) -> None:
    """Give back the code of a library, which is read from its file again where it is needed after all.

    Parameters
    ----------
    library
        Part of the name of its file.
    """
    with suppress(AttributeError, OSError):
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, access = line.split()[:2]
            # Never what may be written to: that would come back as it is in the file.
            if access == "r-xp" and library in line.rpartition("/")[2]:
                low, high = (int(address, 16) for address in span.split("-"))
                advise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), DONT_NEED)
