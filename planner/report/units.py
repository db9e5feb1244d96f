"""Numbers and names as people read them: GiB, minutes, per cent, and text that cannot harm a terminal.

A value keeps its exact form in JSON; here it is rounded for the eye. None is shown as ``?``: unknown is not zero.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

UNKNOWN = "?"
GIB = 1024
MINUTE, HOUR, DAY = 60, 3600, 86_400
#: Joins the parts of an emoji; the one invisible character that is text.
JOINER = "\u200d"


def memory(mib: float | None) -> str:
    """MiB as ``512 MiB`` or ``79.6 GiB``."""
    if mib is None:
        return UNKNOWN
    return f"{mib:.0f} MiB" if mib < GIB else f"{mib / GIB:.1f} GiB"


def duration(seconds: float | None) -> str:
    """Seconds as ``0 s``, ``45 s``, ``2 min 5 s``, ``1 h 30 min`` or ``3 d 4 h``: the two largest units that count."""
    if seconds is None:
        return UNKNOWN
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    if whole < 10 and whole != round(whole):
        return f"{sign}{whole:.1f} s"
    whole = round(whole)
    for size, name, below, lesser in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{sign}{whole // size} {name}" + (f" {rest} {lesser}" if rest else "")
    return f"{sign}{whole} s"


def gpu_time(gpu_seconds: float | None) -> str:
    """The objective's currency, to a tenth of a GPU-second below a hundred."""
    if gpu_seconds is None:
        return UNKNOWN
    return f"{gpu_seconds:,.0f}" if abs(gpu_seconds) >= 100 else f"{gpu_seconds:,.1f}".removesuffix(".0")


def share(ratio: float | None) -> str:
    """A ratio as per cent."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"


def factor(ratio: float | None) -> str:
    """A slowdown as ``1.25x``."""
    return UNKNOWN if ratio is None else f"{ratio:.2f}x"


def places(gpu_ids: Iterable[str]) -> str:
    """GPU ids by node, runs of indices drawn together: ``a0/0-3 a1/2,5``."""
    slots: dict[str, list[str]] = {}
    for gpu_id in gpu_ids:
        node, slash, slot = gpu_id.rpartition("/")
        slots.setdefault(node if slash else gpu_id, []).extend([slot] if slash else [])
    return " ".join(f"{node}/{_runs(here)}" if here else node for node, here in slots.items())


def _runs(slots: list[str]) -> str:
    """``["0", "1", "2", "5"]`` as ``0-2,5``; slots that are no plain index stay as they are."""
    numbers = sorted(int(s) for s in slots if s.isdecimal())
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    drawn = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ",".join(drawn + [s for s in slots if not s.isdecimal()])


def plain(text: str) -> str:
    """The text with every character that moves a cursor or turns the writing direction shown as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_text(c) else _escaped(c) for c in text)


def _is_text(character: str) -> bool:
    return character == JOINER or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
