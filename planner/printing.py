"""The one way to standard output and standard error.

Results go to standard output or a file, whole or not at all; messages go to standard error, one line each.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from planner.backends.whole import STDOUT, write_out
from planner.report import streams
from planner.report.terminal import show
from planner.report.units import plain

if TYPE_CHECKING:
    from planner.report.page import Page


def emit(text: str, out: str | None) -> None:
    """A result to a file, or to standard output."""
    if out and out != STDOUT:
        write_out(out, text)
    else:
        put(text)


def put(text: str, *, kept: bool = False) -> None:
    """Print a result on standard output. Raises WriteFailed."""
    with streams.written(kept):
        print(text.removesuffix("\n"), flush=True)


def show_page(page: Page, *, kept: bool = False) -> None:
    """Print a page on standard output. Raises WriteFailed."""
    with streams.written(kept):
        show(page, sys.stdout)
        sys.stdout.flush()


def say(message: str) -> None:
    """One line on standard error, if that can be written."""
    with suppress(OSError):
        print(f"planner: {plain(' '.join(message.split()))}", file=sys.stderr, flush=True)
