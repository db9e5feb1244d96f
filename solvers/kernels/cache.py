"""Where compiled kernels are kept, and whether they are all there; knows this without numba.

They are kept in the user's cache folder, under the hash of the sources that they were made from: numba itself only looks
at the file of the function that it compiles, and would miss that a number has changed which it took from another. Only
the first run of a version waits for the compiler.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from importlib import metadata
from pathlib import Path

#: Set to leave every kernel uncompiled.
SWITCH = "PLANNER_NO_JIT"
#: The file that says that a folder is complete.
DONE = "complete"


def _sources(source: Path) -> set[Path]:
    """A kernel's file and those of this package that it takes from."""
    found, todo = set(), [source]
    while todo:
        path = todo.pop()
        if path not in found and path.exists():
            found.add(path)
            names = re.findall(
                r"^from solvers\.kernels(?:\.(\w+))? import (.*)", path.read_text("utf-8"), re.M
            )
            for module, imported in names:
                todo += [
                    path.with_name(f"{name.split()[0]}.py")
                    for name in ([module] if module else imported.split(","))
                ]
    return found


@cache
def folder_of(source: Path, version: str) -> Path | None:
    """Where to keep what is compiled of a file, None if nothing can be kept."""
    digest = hashlib.sha256(f"{version} {source}".encode())  # numba keeps it apart by the path as well
    makers = (Path(__file__), Path(__file__).with_name("jit.py"))
    for path in sorted({*_sources(source), *makers}):
        digest.update(path.read_bytes())
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "planner" / f"{source.stem}-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the second where nobody knows a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def kernels() -> list[Path]:
    """The files with compiled functions."""
    return sorted(path for path in Path(__file__).parent.glob("*.py") if "\n@jit" in path.read_text("utf-8"))


def ready() -> bool:
    """Is all compiled, so that the kernels can be used at once? Without numba it never is."""
    if os.environ.get(SWITCH):
        return False
    try:
        version = metadata.version("numba")
    except metadata.PackageNotFoundError:
        return False
    folders = [folder_of(path, version) for path in kernels()]
    return all(folder is not None and (folder / DONE).exists() for folder in folders)


def done() -> None:
    """Note that all is compiled; for whoever has imported every kernel."""
    for path in kernels():
        folder = folder_of(path, metadata.version("numba"))
        if folder is not None:
            (folder / DONE).touch()
