"""The one parser of memory, times, counts and names, as Slurm, Kubernetes and people write them.

Every function takes what stands in a file and returns the value in the project's unit, or raises a
ValueError that says what was found and what is accepted. A bare number is in the project's unit: MiB, seconds,
CPUs. A unit is never guessed: what two systems read differently is refused or has a function of its own.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections import Counter
from decimal import Decimal
from itertools import product
from typing import Any

MIB = 2**20
MEMORY_LIMIT_MIB = 10**9
COUNT_LIMIT = 2**32 - 1
SECONDS_LIMIT = 10**10
NUMBER_LIMIT = 10**15
CPUS_LIMIT = 10**6
HOSTS_LIMIT = 100_000
NAME_LIMIT = 253
SHOWN = 60
YAML_WORDS = {None: "null", True: "true", False: "false"}

DECIMAL_SUFFIXES = {s: 1000**i for i, s in enumerate(("k", "M", "G", "T", "P", "E"), start=1)}
BINARY_SUFFIXES = {s: 1024**i for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
#: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
KUBERNETES_SUFFIXES: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{s: Decimal(f) for s, f in (DECIMAL_SUFFIXES | BINARY_SUFFIXES).items()},
}
MEMORY_BYTES = {
    s: factor
    for family in (DECIMAL_SUFFIXES, BINARY_SUFFIXES)
    for short, factor in family.items()
    if short[0] in "MGTP"
    for s in (short, short + "B")
}

PLAIN = re.compile(r"\d{1,18}(\.\d{1,18})?", re.ASCII)
MEMORY = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([MGTP]i?B?)?", re.ASCII)
QUANTITY = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII
)
UNITS = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})?[dhms])+", re.ASCII)
UNIT = re.compile(r"([\d.]+)([dhms])", re.ASCII)
UNIT_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
CLOCK = re.compile(
    r"(\d{1,6})-(\d{1,3})(?::(\d{1,2}))?(?::(\d{1,2}))?|(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})", re.ASCII
)
RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)

ACCEPTED_MEMORY = "whole MiB (40960) or a size such as 40Gi, 40GiB, 81920Mi, 80G (10^9 bytes)"
ACCEPTED_SECONDS = "seconds (90), or 90s, 15m, 2h, 1d, 4:00 (minutes:seconds), 2-12:30 (days-hours:minutes)"
ACCEPTED_SLURM_TIME = "minutes (10), 4:00, 1:00:00, 2-12, 2-12:30, 2-12:30:15, UNLIMITED"
ACCEPTED_CPUS = "CPUs such as 4, 0.5 or 1500m"
ACCEPTED_HOSTS = "names such as a0, a[0-3], rack[1-2]-n[001-016],b7"


def shown(value: Any) -> str:
    """A value as an error names it: quoted, on one line, cut where it gets long."""
    if isinstance(value, str):
        text = repr(value[:SHOWN])
    elif value is None or isinstance(value, bool):
        text = YAML_WORDS[value]
    elif isinstance(value, int):
        # Python refuses to print an int of more than 4300 digits.
        text = repr(value) if abs(value) < 10**SHOWN else f"a number of more than {SHOWN} digits"
    else:
        text = reprlib.repr(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def refused(value: Any, accepted: str) -> ValueError:
    """The error for a value that is none of what is accepted."""
    return ValueError(f"got {shown(value)}; accepted: {accepted}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounded(value: float, limit: float, accepted: str) -> None:
    """Refuse a number that is not finite or whose size passes the limit."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(value, accepted)
    if abs(value) > limit:
        raise refused(value, f"{accepted}, at most {limit:.0f}")


def memory_mib(value: Any) -> int:
    """Memory in MiB, rounded up: ``40960`` is MiB, ``40Gi`` and ``40GiB`` are 1024-based, ``80G`` and ``80GB`` 10^9 bytes.

    As in Kubernetes; Slurm's own ``80G``, which is 1024-based, is not for this function. Nothing below a MiB
    is accepted as a unit, so that ``8k`` and ``1KiB`` are never misread.
    """
    if _is_number(value):
        _bounded(value, MEMORY_LIMIT_MIB, ACCEPTED_MEMORY)
        if value < 0 or value != int(value):
            raise refused(value, f"{ACCEPTED_MEMORY}, not negative")
        return int(value)
    match = MEMORY.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise refused(value, ACCEPTED_MEMORY)
    size = Decimal(match[1]) * (MEMORY_BYTES[match[2]] if match[2] else MIB) / MIB
    if size > MEMORY_LIMIT_MIB or (not match[2] and size != int(size)):
        raise refused(value, f"{ACCEPTED_MEMORY}, at most {MEMORY_LIMIT_MIB} MiB")
    return math.ceil(size)


def quantity(
    value: Any, accepted: str = "a Kubernetes quantity such as 4, 0.5, 1500m, 129e6, 16G, 16Gi"
) -> Decimal:
    """A quantity in Kubernetes' grammar, in its base unit: bytes, CPUs or a count."""
    if _is_number(value):
        _bounded(value, NUMBER_LIMIT, accepted)
        return Decimal(str(value))
    match = QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise refused(value, accepted)
    exponent = Decimal(10) ** int(match[2]) if match[2] else Decimal(1)
    return Decimal(match[1]) * exponent * KUBERNETES_SUFFIXES[match[3] or ""]


def cpus(value: Any) -> float:
    """CPUs, decimal: ``4``, ``0.5``, ``1500m``."""
    found = float(quantity(value, ACCEPTED_CPUS))
    if not 0 <= found <= CPUS_LIMIT:
        raise refused(value, f"{ACCEPTED_CPUS}, 0 to {CPUS_LIMIT:g}")
    return found


def milli(decimal_cpus: float) -> int:
    """Thousandths, rounded up; what binary fractions add to a decimal is not rounded up."""
    return -(-round(decimal_cpus * 1_000_000) // 1000)


def seconds(value: Any) -> float:
    """A length of time in seconds. A bare number is seconds, also in quotes."""
    if _is_number(value):
        _bounded(value, SECONDS_LIMIT, ACCEPTED_SECONDS)
        if value < 0:
            raise refused(value, f"{ACCEPTED_SECONDS}, not negative")
        return float(value)
    if not isinstance(value, str):
        raise refused(value, ACCEPTED_SECONDS)
    found = _clock_time(value)
    if found is None and PLAIN.fullmatch(value):
        found = float(value)
    if found is None and UNITS.fullmatch(value):
        try:
            found = sum(float(n) * UNIT_S[u] for n, u in UNIT.findall(value))
        except ValueError:
            found = None
    if found is None or found > SECONDS_LIMIT:
        raise refused(value, ACCEPTED_SECONDS)
    return found


def _clock_time(text: str) -> float | None:
    """Slurm's ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S``."""
    match = CLOCK.fullmatch(text)
    if not match:
        return None
    days, day_hours, day_minutes, day_seconds, hours, minutes, secs = (int(x or 0) for x in match.groups())
    if match[1] is not None:
        return float(86400 * days + 3600 * day_hours + 60 * day_minutes + day_seconds)
    return float(3600 * hours + 60 * minutes + secs)


def slurm_time(value: Any) -> float | None:
    """A Slurm time limit in seconds: a bare number is minutes; inf: no limit; None: not set.

    Takes what ``scontrol`` and ``squeue`` print and the objects of Slurm's JSON
    (``{"set": true, "infinite": false, "number": 90}``).
    """
    if isinstance(value, dict):
        if not value.get("set", True):
            return None
        return math.inf if value.get("infinite") else slurm_time(value.get("number"))
    if _is_number(value):
        _bounded(value, SECONDS_LIMIT / 60, ACCEPTED_SLURM_TIME)
        if value < 0:
            raise refused(value, ACCEPTED_SLURM_TIME)
        return float(60 * value)
    word = value.strip().upper() if isinstance(value, str) else ""
    if word in ("UNLIMITED", "INFINITE"):
        return math.inf
    if word in ("NOT_SET", "PARTITION_LIMIT", "N/A", "NONE"):
        return None
    if word.isascii() and word.isdigit() and len(word) <= 10:
        return 60.0 * int(word)
    found = _clock_time(word)
    if found is None:
        raise refused(value, ACCEPTED_SLURM_TIME)
    return found


def clock_s(value: Any) -> float:
    """A moment on the snapshot's clock, in seconds; it may be negative."""
    accepted = "a number of seconds on the snapshot's clock"
    if not _is_number(value):
        raise refused(value, accepted)
    _bounded(value, SECONDS_LIMIT, accepted)
    return float(value)


def count(value: Any) -> int:
    """A whole number, not negative."""
    accepted = "a whole number, 0 or more"
    if not _is_number(value):
        raise refused(value, accepted)
    _bounded(value, COUNT_LIMIT, accepted)
    if value < 0 or value != int(value):
        raise refused(value, accepted)
    return int(value)


def number(value: Any) -> float:
    """A finite number."""
    if not _is_number(value):
        raise refused(value, "a number")
    _bounded(value, NUMBER_LIMIT, "a number")
    return float(value)


def flag(value: Any) -> bool:
    """True or false, and no word or number that might mean it."""
    if not isinstance(value, bool):
        raise refused(value, "true or false")
    return value


def name(value: Any) -> str:
    """A name: text, or a whole number as it is written; nothing that would break a line or hide at its ends."""
    accepted = f"a name: 1 to {NAME_LIMIT} printable characters without blanks at its ends"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_LIMIT:
        return str(value)
    if not isinstance(value, str):
        raise refused(value, accepted + (" (in quotes)" if isinstance(value, bool | float) else ""))
    if not 1 <= len(value) <= NAME_LIMIT or not value.isprintable() or value != value.strip():
        raise refused(value, accepted)
    return value


def hostlist(text: Any) -> tuple[str, ...]:
    """The names of a Slurm host list, in order: ``a[0-1],b[001,003]-x`` -> a0 a1 b001-x b003-x.

    Zero padding is kept. A name that comes twice is refused: it is nearly always a wrong range.
    """
    whole = text if isinstance(text, str) and text.isprintable() else name(text)
    hosts: list[str] = []
    for item in _split_outside_brackets(whole):
        parts = [_alternatives(whole, part) for part in re.split(r"(\[[^\[\]]*\])", item) if part]
        if not parts or len(hosts) + math.prod(map(len, parts)) > HOSTS_LIMIT:
            raise refused(whole, f"{ACCEPTED_HOSTS}, at most {HOSTS_LIMIT} of them")
        hosts += map("".join, product(*parts))
    host, times = Counter(hosts).most_common(1)[0]
    if times > 1:
        raise ValueError(f"got {shown(whole)}, which names {host} twice; accepted: every name once")
    return tuple(hosts)


def _split_outside_brackets(text: str) -> list[str]:
    """Cut at the commas that are in no bracket."""
    items, depth = [""], 0
    for part in re.split(r"([\[\],])", text):
        depth += {"[": 1, "]": -1}.get(part, 0)
        if part == "," and depth == 0:
            items.append("")
        else:
            items[-1] += part
    return items


def _alternatives(whole: str, part: str) -> list[str]:
    """What one part of a host name may be: itself, or each number of its bracket."""
    if not part.startswith("["):
        if "[" in part or "]" in part or part != part.strip():
            raise refused(whole, ACCEPTED_HOSTS)
        return [part]
    numbers: list[str] = []
    for item in part[1:-1].split(","):
        match = RANGE.fullmatch(item)
        if not match:
            raise refused(whole, ACCEPTED_HOSTS)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or len(numbers) + last - first >= HOSTS_LIMIT:
            raise refused(whole, f"{ACCEPTED_HOSTS}, from low to high, at most {HOSTS_LIMIT} of them")
        width = len(match[1]) if match[1].startswith("0") else 0
        numbers += [str(n).zfill(width) for n in range(first, last + 1)]
    return numbers
