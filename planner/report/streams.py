"""Standard streams that take nothing: full, left by their reader, or closed by somebody.

Of a closed one Python has None, its ``print`` writes elsewhere, and the next file that is opened gets the stream's number, so that
whatever still writes there spoils it. ``hold_numbers`` and ``settle`` see to that.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from planner.errors import WriteFailed


class Closed(io.TextIOBase):
    """A standard output that is not there: writing to it is the system's error, like that of a full disk."""

    def writable(self) -> bool:
        """It is written to like any other, to hear why it takes nothing."""
        return True

    def write(self, text: str, /) -> int:
        """Raises OSError."""
        raise OSError(errno.EBADF, "it is closed", "standard output")


class Nowhere(io.TextIOBase):
    """A standard error that is not there: messages go nowhere, and above all not among the results."""

    def writable(self) -> bool:
        """It takes everything."""
        return True

    def write(self, text: str, /) -> int:
        """Drop it."""
        return len(text)


def settle() -> None:
    """Put a stream in the place of each that is closed."""
    if sys.stdout is None:
        sys.stdout = Closed()
    if sys.stderr is None:
        sys.stderr = Nowhere()


def hold_numbers() -> None:
    """Give the numbers 0, 1 and 2 to the null device where they are free. Once, before any file is opened."""
    number = 0
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)


def is_closed() -> bool:
    """Standard output is not there."""
    return isinstance(sys.stdout, Closed)


@contextmanager
def written(kept: bool = False) -> Iterator[None]:
    """Tell a standard output that takes no more from a defect, and from a reader who has seen enough.

    One that is closed is no fault where the result is ``kept`` in a file.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if kept and is_closed():
            return
        raise WriteFailed(f"standard output: {error.strerror or error}") from error


def drop_output() -> None:
    """Let what is left in standard output's buffer go nowhere, so that the interpreter's end does not fail on it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
