"""Draws on a terminal with rich: a page, whose long tables end after a number of rows, and a progress bar.

Apart from ``page`` because rich is slow to import and of no use in a pipe.
"""

from __future__ import annotations

import re
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
WRAPS_AT = 20
#: Blanks around a cell.
PADDING = 2
WORD = re.compile(r"([^ ]+) *")


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
            _print_facts(block, console)
            continue
        _print_wrapped(Text(block.title, style=block.style or "bold"), console)
        if isinstance(block, Lines):
            for line in block.lines[:rows]:
                _print_wrapped(Text(plain(line)), console, "  ", "  ")
            _say_rest(len(block.lines) - rows, console, see_all)
        else:
            _print_grid(block, rows, console)
            _say_rest(len(block.rows) - rows, console, see_all)


def _print_wrapped(text: Text, console: Console, first: str = "", then: str = "") -> None:
    """Print on as many lines as it takes, each broken between words. A longer word is left to the terminal."""
    for number, line in enumerate(_lines(text, console.width - len(then))):
        console.print(Text(then if number else first).append_text(line), soft_wrap=True)


def _lines(text: Text, width: int) -> list[Text]:
    """The text in lines of this width, broken only at blanks; rich would break a word that is longer."""
    starts, length = [], 0
    for word in WORD.finditer(text.plain):
        if length and length + cell_len(word[1]) > width:
            starts.append(word.start())
            length = 0
        length += cell_len(word[0])
    lines = list(text.divide(starts))
    for line in lines:
        line.rstrip()
    return lines


def _print_facts(facts: Facts, console: Console) -> None:
    width = max((cell_len(plain(label)) for label, _ in facts.pairs), default=0) + PADDING
    for label, text in facts.pairs:
        name = plain(label)
        lead = Text(name + " " * (width - cell_len(name)), style="dim")
        for line in _lines(Text(plain(text)), console.width - width):
            console.print(lead.append_text(line), soft_wrap=True)
            lead = Text(" " * width)


def _print_grid(grid: Grid, rows: int, console: Console) -> None:
    """As a table, without the sparest columns if need be; where names would break even so, row by row."""
    cells = [tuple(plain(cell) or NONE for cell in row) for row in grid.rows[:rows]]
    kept, widths = _layout(grid, cells, console.width)
    if not widths:
        for row in cells:
            _print_wrapped(_stacked(grid, row, kept), console, "  ", "    ")
        return
    table = Table(box=None, pad_edge=True, header_style="dim")
    for k, width in zip(kept, widths, strict=True):
        side: JustifyMethod = "right" if grid.columns[k].right else "left"
        table.add_column(Text(grid.columns[k].name), justify=side, overflow="fold", width=width)
    for row in cells:
        table.add_row(*(Text(row[k]) for k in kept))
    console.print(table)


def _stacked(grid: Grid, row: tuple[str, ...], kept: list[int]) -> Text:
    """A row as text, each cell after its column's name."""
    said = [k for k in kept if row[k] != NONE]
    text = Text()
    for k in said:
        text.append(f"{grid.columns[k].name} ", style="dim").append(row[k] + (", " if k != said[-1] else ""))
    return text


def _layout(grid: Grid, cells: list[tuple[str, ...]], width: int) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide each is; no widths if no table can do without breaking a word."""
    shown = [tuple(c.name for c in grid.columns), *cells]
    wanted = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    words = [
        max(cell_len(w) for cell in column for w in cell.split(" ")) for column in zip(*shown, strict=True)
    ]
    words = [x if c.right else w for x, w, c in zip(wanted, words, grid.columns, strict=True)]
    calm = [min(x, max(w, WRAPS_AT)) for x, w in zip(wanted, words, strict=True)]
    kept = list(range(len(grid.columns)))
    spare = sorted((k for k in kept if grid.columns[k].spare), key=lambda k: (grid.columns[k].spare, k))
    while spare and _too_wide(calm, kept, width):
        kept.remove(spare.pop())
    least = words if _too_wide(calm, kept, width) else calm
    if _too_wide(least, kept, width):
        return kept, []
    return kept, _widened([least[k] for k in kept], [wanted[k] for k in kept], width - PADDING * len(kept))


def _too_wide(widths: list[int], kept: list[int], width: int) -> bool:
    return sum(widths[k] + PADDING for k in kept) > width


def _widened(least: list[int], wanted: list[int], room: int) -> list[int]:
    """The widths with what is left of the room, where it saves the most lines."""
    widths = list(least)
    for _ in range(min(room, sum(wanted)) - sum(widths)):
        k = max(range(len(widths)), key=lambda k: wanted[k] / widths[k])
        widths[k] += 1
    return widths


def _say_rest(rest: int, console: Console, see_all: str) -> None:
    if rest > 0:
        console.print(
            Text(f"  ... and {counted(rest, 'more row')}; to see all: {see_all}", style="dim"), soft_wrap=True
        )
