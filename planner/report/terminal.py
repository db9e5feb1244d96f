"""Prints pages, and shows the progress of a solve.

At a terminal: rich tables, ended after ``ROWS`` rows. In a pipe, a file or a dumb terminal: plain complete text. The choice
is made from the stream alone, so that ``planner plan x | less`` shows everything. Progress goes to standard error and
leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from planner.report.page import Page, as_text
from planner.report.units import gpu_time, plain, share

ROWS = 40
SEE_ALL = "--out FILE, --json, or a pipe"


class Progress(Protocol):
    """How far a solve has come; None: unknown."""

    @property
    def engine(self) -> str: ...
    @property
    def incumbent_gpu_s(self) -> float | None: ...
    @property
    def bound_gpu_s(self) -> float | None: ...
    @property
    def gap(self) -> float | None: ...


OnProgress = Callable[[Progress], None]


def is_terminal(stream: TextIO) -> bool:
    """The stream ends at a terminal that can draw."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def show(page: Page, stream: TextIO, *, rows: int = ROWS) -> None:
    """Print a page in the way its reader can use."""
    if not is_terminal(stream):
        stream.write(as_text(page))
        return
    from planner.report.draw import print_rich

    print_rich(page, stream, rows, SEE_ALL)


def progress_text(p: Progress) -> str:
    """One line: the engine, its best plan, the bound and the gap."""
    found = f"{plain(p.engine)}: best {gpu_time(p.incumbent_gpu_s)}"
    return f"{found}, bound {gpu_time(p.bound_gpu_s)}, gap {share(p.gap)}"


@contextmanager
def solving(limit_s: float, stream: TextIO) -> Iterator[OnProgress | None]:
    """A progress bar over the time limit while a plan is made; None where nobody would see it."""
    if not is_terminal(stream):
        yield None
        return
    from planner.report.draw import progress_bar

    with progress_bar(limit_s, stream) as describe:
        yield lambda progress: describe(progress_text(progress))
