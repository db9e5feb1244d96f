"""Files that are written whole or not at all, and the option that names them."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from planner.errors import InputError, WriteFailed
from planner.tables import printable

#: As a file's name: standard output (and standard input, for what is read).
STDOUT = "-"


def write_whole(path: Path, text: str) -> None:
    """Replace the file in one step, so that a reader meets the old text or the new one. Raises OSError.

    A link's target is replaced, not the link; a device or a pipe is written to. The permissions stay.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".planner-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, else what a new file here would have."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def check_out(out: str | None, option: str = "--out") -> None:
    """Find out before a long solve that its result could not be written. Raises InputError."""
    if out is None or out == STDOUT:
        return
    path, accepted = Path(out), "a file in a directory that exists"
    where = f"{option} {printable(path)}"
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_directory = False
    except (OSError, ValueError) as error:  # a link in a ring, a name too long or with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, reason[:1].lower() + reason[1:], accepted) from None
    if is_directory:
        raise InputError(where, "is a directory", accepted)
    if not path.parent.is_dir():
        raise InputError(where, f"there is no directory {str(path.parent)!r}", accepted)


def write_out(out: str, text: str) -> None:
    """Write a result to a file. Raises WriteFailed."""
    try:
        write_whole(Path(out), text if text.endswith("\n") else text + "\n")
    except OSError as error:
        raise WriteFailed(f"--out {out}: {error.strerror or error}") from error
