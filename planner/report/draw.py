"""Draws on a terminal with rich: a page, whose long tables end after a number of rows, and a progress bar.

Apart from ``page`` because rich is slow to import and of no use in a pipe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from planner.quantities import counted
from planner.report.page import NONE, Facts, Grid, Lines, Page
from planner.report.units import plain

#: Cells up to this width are kept on one line where the terminal allows it.
FOLDS_AT = 20
#: Blanks around a cell.
PADDING = 2


def console_on(stream: TextIO) -> Console:
    """A console that takes every text as text. NO_COLOR is rich's own concern."""
    return Console(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False)


class _Clock(Progress):
    """A bar that is as long as the time that has passed, whatever is reported."""

    began = 0.0

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bars, brought up to the clock."""
        for task in self.tasks:
            self.update(task.id, completed=min(time.monotonic() - self.began, task.total or 0))
        yield from super().get_renderables()


@contextmanager
def progress_bar(limit_s: float, stream: TextIO) -> Iterator[Callable[[str], None]]:
    """A bar over ``limit_s`` seconds that leaves nothing behind; call what it gives with a new text beside it."""
    looks = (BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with _Clock(*looks, console=console_on(stream), transient=True, refresh_per_second=4) as bar:
        bar.began = time.monotonic()
        task = bar.add_task("reading the problem", total=max(limit_s, 0.001))

        def describe(text: str) -> None:
            bar.update(task, description=text, refresh=True)

        yield describe


def print_rich(page: Page, stream: TextIO, rows: int, see_all: str) -> None:
    """Draw the page; tables longer than ``rows`` rows end with a line that says how to see the rest."""
    console = console_on(stream)
    for number, block in enumerate(page):
        if number:
            console.print()
        if isinstance(block, Facts):
            console.print(_facts(block))
        elif isinstance(block, Lines):
            console.print(Text(block.title, style=block.style or "bold"))
            _print_some([Text("  " + plain(line)) for line in block.lines], console, rows, see_all)
        else:
            console.print(Text(block.title, style=block.style or "bold"))
            console.print(_drawn(block, rows, console.width))
            _say_rest(len(block.rows) - rows, console, see_all)


def _facts(facts: Facts) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in facts.pairs:
        table.add_row(Text(plain(label), style="dim"), Text(plain(text)))
    return table


def _drawn(grid: Grid, rows: int, width: int) -> Table:
    """The table; where it is too wide, spare columns give way from the right, then long cells are folded."""
    cells = [tuple(plain(cell) or NONE for cell in row) for row in grid.rows[:rows]]
    wanted = [
        max([cell_len(c.name), *(cell_len(row[i]) for row in cells)]) for i, c in enumerate(grid.columns)
    ]
    least = [min(w, FOLDS_AT) + PADDING for w in wanted]
    kept = list(range(len(grid.columns)))
    for i in reversed([i for i in kept if grid.columns[i].spare]):
        if sum(least[k] for k in kept) > width:
            kept.remove(i)
    whole_words = sum(least[k] for k in kept) <= width
    table = Table(box=None, pad_edge=True, header_style="dim")
    for k in kept:
        column, fits = grid.columns[k], whole_words and wanted[k] <= FOLDS_AT
        side: JustifyMethod = "right" if column.right else "left"
        table.add_column(Text(column.name), justify=side, overflow="fold", no_wrap=fits)
    for row in cells:
        table.add_row(*(Text(row[k]) for k in kept))
    return table


def _print_some(lines: list[Text], console: Console, rows: int, see_all: str) -> None:
    for line in lines[:rows]:
        console.print(line, soft_wrap=True)
    _say_rest(len(lines) - rows, console, see_all)


def _say_rest(rest: int, console: Console, see_all: str) -> None:
    if rest > 0:
        console.print(
            Text(f"  ... and {counted(rest, 'more row')}; to see all: {see_all}", style="dim"), soft_wrap=True
        )
