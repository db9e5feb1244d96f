"""How many CPUs this process may really use: the least of its affinity and its cgroup's quota.

A container on a large host sees all of the host's CPUs; a solver that starts a thread for each of them
spends its time being throttled. Both versions of cgroups are read, and every level from the process's own
group up to the root, because a quota on any level binds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


def workers(*, cgroups: Path = CGROUPS, self_cgroup: Path = SELF, cpus: int | None = None) -> int:
    """Threads worth starting, at least 1.

    Parameters
    ----------
    cgroups, self_cgroup
        Where the cgroup file systems are mounted, and the file that says which groups this process is in.
    cpus
        CPUs this process may be scheduled on; None asks the kernel.
    """
    if cpus is None:
        cpus = len(os.sched_getaffinity(0))
    quotas = [quota for group in _groups(cgroups, self_cgroup) for quota in _quotas(group)]
    return max(1, min([cpus, *(int(quota) for quota in quotas)]))


def _groups(cgroups: Path, self_cgroup: Path) -> Iterator[Path]:
    """Folders of the process's CPU groups, each followed by its parents up to the mount."""
    for line in _text(self_cgroup).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        # v2 has no controllers and may be mounted beside v1 as "unified"; v1 has links for each controller.
        for mount in (
            (cgroups, cgroups / "unified") if not controllers else (cgroups / controllers, cgroups / "cpu")
        ):
            inside = Path(path.lstrip("/"))
            yield from (mount / part for part in (inside, *inside.parents))


def _quotas(group: Path) -> Iterator[float]:
    """CPUs granted by a group's quota: ``cpu.max`` in v2, a pair of files in v1."""
    both = _text(group / "cpu.max").split() or [
        _text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    try:
        quota, period = (int(text) for text in both)
    except ValueError:  # "max": no limit; or no such file
        return
    if quota > 0 and period > 0:
        yield quota / period


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
