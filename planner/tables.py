"""A CSV file as rows of text, read defensively: a wrong header or a short row is an error, never a shift.

Used for job tables, interference tables and traces. What a cell means is the reader's business; an empty one
is left out of its row, because it says that the value is unknown.
"""

from __future__ import annotations

import csv
import difflib
import os
import select
import stat
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from planner.errors import InputError
from planner.quantities import counted, shown

MAX_BYTES = 512 * 2**20
#: How long a pipe may be without anybody who writes to it.
PATIENCE_S = 5

Row = dict[str, str]


def read_text(path: Path) -> str:
    """A text file as UTF-8, with or without a byte order mark."""
    accepted = "a file that can be read"
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            data = _once_written(file.fileno(), str(path)) + file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(str(path), "no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(printable(path), reason[:1].lower() + reason[1:], accepted) from None
    return decoded(_unpacked(data, str(path)), str(path))


def _unpacked(data: bytes, where: str) -> bytes:
    """What a gzip file holds, up to the most that is read; other files as they are."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, MAX_BYTES + 1)
        if unpacker.eof or len(text) > MAX_BYTES:
            return text
    except zlib.error:
        pass
    raise InputError(where, "it begins like a gzip file and cannot be unpacked whole", "text, or gzip of it")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _once_written(number: int, where: str) -> bytes:
    """Wait until somebody writes to a pipe or has ended, but not for ever for somebody to come; what was read in passing."""
    data = b""
    if stat.S_ISFIFO(os.fstat(number).st_mode):
        poll = select.poll()
        poll.register(number, select.POLLIN)
        if not poll.poll(1000 * PATIENCE_S):
            with suppress(BlockingIOError):  # there is a writer, who takes longer
                data = os.read(number, 1)
                if not data:
                    raise InputError(where, f"nobody wrote to this pipe for {PATIENCE_S} s", "a file")
    os.set_blocking(number, True)
    return data


def decoded(data: bytes, where: str) -> str:
    """What was read, up to a byte more than may be, as text."""
    if len(data) > MAX_BYTES:
        raise InputError(where, "the file is too large", f"up to {MAX_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{where}: line {line}", "the text is not UTF-8", "UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InputError(f"{where}: line {line}", "a NUL character", "text")
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
                    counted(len(cells), "cell"),
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


def header(path: Path) -> list[str]:
    """The names of a CSV file's columns. Raises InputError."""
    first = next((line for line in read_text(path).splitlines() if line.strip()), "")
    return [cell.strip() for cell in next(csv.reader([first]), [])]


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
    close = _close(name[:64], names)
    return f"; did you mean {' or '.join(close)}?" if close else f"; known: {_listed(names)}"


def _close(name: str, names: Sequence[str]) -> list[str]:
    """What was meant, the likeliest kind of slip first: a letter or two, a name cut short, a part of a name."""
    said = _bare(name)
    edits = {n: _edits(said, _bare(n)) for n in names}
    fewest = min(edits.values(), default=0)
    few = [n for n, d in edits.items() if d == fewest and 3 * d <= max(len(said), len(_bare(n)))]
    if few or len(said) < 3:
        return few[:1]
    begun = [n for n in names if _bare(n).startswith(said)]
    parts = [n for n in names if said in _bare(n) or (len(_bare(n)) > 3 and _bare(n) in said)]
    some = next((s for s in (parts, begun) if 0 < len(s) < 4), [])
    return some or difflib.get_close_matches(name, names, n=1, cutoff=0.65)


def _bare(name: str) -> str:
    """A name without what people write differently: case, hyphens, underscores."""
    return name.lower().replace("_", "").replace("-", "")


def _edits(a: str, b: str) -> int:
    """Letters to insert, delete, replace or swap with their neighbour to get from one word to the other."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                least = min(least, older[j - 2] + 1)
            row.append(least)
    return row[-1]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
