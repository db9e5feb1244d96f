"""A CSV file as rows of text, read defensively: a wrong header or a short row is an error, never a shift.

Used for job tables, interference tables and traces. What a cell means is the reader's business; an empty one
is left out of its row, because it says that the value is unknown.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.errors import InputError
from planner.quantities import shown

MAX_BYTES = 512 * 2**20

Row = dict[str, str]


def read_text(path: Path) -> str:
    """A text file as UTF-8, with or without a byte order mark."""
    accepted = "a file that can be read"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(str(path), "no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(printable(path), reason[:1].lower() + reason[1:], accepted) from None
    if len(data) > MAX_BYTES:
        raise InputError(str(path), "the file is too large", f"up to {MAX_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line}", "the text is not UTF-8", "UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InputError(f"{path}: line {line}", "a NUL character", "text")
    return text


def printable(path: Path) -> str:
    """A path that an error can show on one line."""
    return "".join(c if c.isprintable() else "?" for c in str(path))


def read_csv(
    path: Path, *, needed: Iterable[str] = (), known: Sequence[str] | None = None
) -> list[tuple[int, Row]]:
    """Rows with the line each ends on; blanks around a cell do not count, empty cells are left out.

    ``needed`` columns must be there. With ``known``, no other column may be.
    """
    reader = csv.reader(read_text(path).splitlines(), strict=True)
    rows: list[tuple[int, Row]] = []
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(c.strip() for c in cells):
                continue
            if header is None:
                header = _checked_header(path, [c.strip() for c in cells], tuple(needed), known)
                continue
            if len(cells) != len(header):
                raise InputError(
                    f"{path}: line {reader.line_num}",
                    f"{len(cells)} cells",
                    f"{len(header)}, as in the header",
                )
            rows.append(
                (reader.line_num, {k: v for k, c in zip(header, cells, strict=True) if (v := c.strip())})
            )
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}", str(error), "CSV with a header line") from None
    if header is None:
        raise InputError(str(path), "the file is empty", f"CSV with a header line {_listed(needed)}".strip())
    return rows


def _checked_header(
    path: Path, header: list[str], needed: Sequence[str], known: Sequence[str] | None
) -> list[str]:
    for name in needed:
        if name not in header:
            raise InputError(f"{path}: line 1", f"no column {name}", f"the columns {_listed(needed)}")
    for i, name in enumerate(header):
        if name in header[:i]:
            raise InputError(f"{path}: line 1", f"two columns {shown(name)}", "each column once")
        if known is not None and name not in known:
            raise InputError(f"{path}: line 1", f"unknown column {shown(name)}{nearest(name, known)}")
    return header


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean X?``, or the list of what is known if nothing is near."""
    names = list(known)
    begun = [n for n in names if len(name) >= 3 and n.startswith(name)]
    close = begun or difflib.get_close_matches(name[:64], names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
