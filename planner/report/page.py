"""What a person is shown, as a value, and as plain text.

A page is a tuple of blocks: facts (a label and a text), tables and lists of lines. ``as_text`` gives complete plain text, one
row a line and nothing cut, for pipes, files and dumb terminals; ``planner.report.draw`` draws the same blocks on a terminal.
Both treat every text as text: markup and control characters do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from planner.report.units import plain

NONE = "-"
GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column's heading. Numbers stand to the right; on a narrow terminal the sparest columns give way first."""

    name: str
    right: bool = False
    spare: int = 0


@dataclass(frozen=True)
class Grid:
    """A table. An empty cell is shown as ``-``."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    style: str = ""  # of the title, on a terminal


@dataclass(frozen=True)
class Facts:
    """Labels with a text each."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Lines:
    """A heading over lines of text."""

    title: str
    lines: tuple[str, ...]
    style: str = ""


Block = Grid | Facts | Lines
Page = tuple[Block, ...]


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by heading; ``>`` after it sets one to the right, each ``?`` makes it sparer."""
    return tuple(Column(n.rstrip(">?"), ">" in n, n.count("?")) for n in names)


def as_text(page: Page) -> str:
    """The whole page as plain text, with a newline at its end."""
    return "\n".join("\n".join(_block_lines(block)) + "\n" for block in page)


def _block_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Facts):
        width = max((cell_len(plain(label)) for label, _ in block.pairs), default=0)
        yield from (_padded(plain(label), width) + GAP + plain(text) for label, text in block.pairs)
    elif isinstance(block, Lines):
        yield block.title
        yield from (GAP + plain(line) for line in block.lines)
    else:
        yield block.title
        yield from (GAP + line for line in aligned(block))


def aligned(grid: Grid) -> Iterator[str]:
    """Heading and rows of a table, columns padded to their widest cell in terminal cells."""
    shown = [
        tuple(c.name for c in grid.columns),
        *(tuple(plain(c) or NONE for c in row) for row in grid.rows),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    rights = [c.right for c in grid.columns]
    for row in shown:
        cells = (_padded(c, w, right=r) for c, w, r in zip(row, widths, rights, strict=True))
        yield GAP.join(cells).rstrip()


def _padded(text: str, width: int, *, right: bool = False) -> str:
    room = " " * (width - cell_len(text))
    return room + text if right else text + room
