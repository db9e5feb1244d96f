"""Kins: jobs that no rule on a GPU tells apart, and how much they slow each other down.

Jobs with the same type, size, memory, cap, share and consent are one kin. Where there are too many kins to list what they may form
together, they are merged; a merged kin needs the least memory, share, cores and host memory of its members, has the largest cap,
and passes the gate, so that merging only adds contents and a bound over contents stays one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from solvers.kernels.slots import ALONE, ANY_GROUP, CAP, GATED, GROUP, JOBS, MEMORY, SHARE, SIZE, TYPE
from solvers.kins import Guests, Kinship, Offering, guests
from solvers.problem import MILLI, UNCAPPED, Problem

#: How coarsely kins are told apart: exactly, amounts rounded, types and sizes only, types only.
LEVELS = range(4)
#: Parts of a GPU's or a host's amounts that are told apart at level 1.
PARTS = 32


@dataclass(frozen=True, eq=False)
class Stock:
    """The kins that may come on GPUs of an offering, whole-node gangs first."""

    kind: int
    guests: Guests
    kin_of: np.ndarray  # (g,) kin of each guest
    table: np.ndarray  # (k, 9) see the kernels
    cpu: np.ndarray  # (k,) milli-CPUs per GPU
    memory: np.ndarray  # (k,) MiB of host memory per GPU
    whole: int  # number of kins that take whole nodes

    def __len__(self) -> int:
        return len(self.table)


def stock_of(kin: Kinship, offer: Offering, level: int) -> Stock:
    """The kins of all who may come on GPUs like these."""
    p = kin.facts.problem
    come = guests(kin, offer)
    job, m = kin.rows.first[come.row], offer.kind
    n = np.maximum(p.job_gpus[job], 1)
    facts = {
        "whole": ~come.whole,
        "type": p.job_type[job],
        "size": p.size_milli[job],
        "alone": np.asarray(p.alone, bool)[job] | np.asarray(p.node_alone, bool)[job],
        "memory": p.memory_mib[job, m],
        "share": p.share[job, m],
        "cap": p.cap_milli[job, m],
        "group": p.share_group[job],
        "cpu": p.cpu_milli[job] * MILLI // n,
        "host": p.host_memory_mib[job] * MILLI // n,
    }
    key = np.stack(_key(facts, level), 1).astype(np.int64)
    _, kin_of = np.unique(key, axis=0, return_inverse=True)
    kin_of = kin_of.reshape(len(job))
    return Stock(
        kind=m,
        guests=come,
        kin_of=kin_of,
        table=_merged(facts, kin_of, kin.rows.jobs[come.row]),
        cpu=_least(facts["cpu"], kin_of) / MILLI,
        memory=_least(facts["host"], kin_of) / MILLI,
        whole=len(np.unique(kin_of[come.whole])),
    )


def _key(facts: dict[str, np.ndarray], level: int) -> list[np.ndarray]:
    """What tells kins apart at a level."""
    if level == 0:
        return list(facts.values())
    if level > 1:
        names = ("whole", "type", "alone", "size") if level == 2 else ("whole", "type", "alone")
        return [facts[name] for name in names]
    rounded = [
        facts[name] * PARTS // max(int(facts[name].max(initial=1)), 1)
        for name in ("memory", "share", "cpu", "host")
    ]
    return [facts[name] for name in ("whole", "type", "alone", "size", "cap", "group")] + rounded


def _merged(facts: dict[str, np.ndarray], kin_of: np.ndarray, jobs: np.ndarray) -> np.ndarray:
    """One row a kin: the most favourable of its members in everything."""
    out = np.zeros((int(kin_of.max(initial=-1)) + 1, 9), np.int64)
    out[kin_of, TYPE] = facts["type"]
    for column, name in ((SIZE, "size"), (MEMORY, "memory"), (SHARE, "share"), (ALONE, "alone")):
        out[:, column] = _least(facts[name].astype(np.int64), kin_of)
    out[:, CAP] = -_least(-np.minimum(facts["cap"], UNCAPPED), kin_of)
    group = _least(facts["group"], kin_of)
    out[:, GROUP] = np.where(group == -_least(-facts["group"], kin_of), group, ANY_GROUP)
    out[:, GATED] = out[:, SIZE] == -_least(-facts["size"], kin_of)
    np.add.at(out[:, JOBS], kin_of, jobs)
    return out


def _least(values: np.ndarray, kin_of: np.ndarray) -> np.ndarray:
    out = np.full(int(kin_of.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(out, kin_of, values)
    return out


def resident_kins(kin: Kinship, kind: int, stays: tuple[int, ...]) -> np.ndarray:
    """Those who run already, as kins on a kind of GPU."""
    p = kin.facts.problem
    job = kin.stays.first[list(stays)]
    out = np.zeros((len(stays), 9), np.int64)
    out[:, TYPE], out[:, SIZE] = p.job_type[job], p.size_milli[job]
    out[:, MEMORY], out[:, SHARE] = p.memory_mib[job, kind], p.share[job, kind]
    out[:, CAP], out[:, GROUP] = p.cap_milli[job, kind], p.share_group[job]
    out[:, ALONE] = np.asarray(p.alone, bool)[job] | np.asarray(p.node_alone, bool)[job]
    out[:, JOBS] = out[:, GATED] = 1
    return out


# ---- slowdowns ----


@dataclass(frozen=True, eq=False)
class Beside:
    """Slowdowns on one kind of GPU; see the kernels. Types are numbered anew."""

    types: int
    number: np.ndarray  # (A,) new number of a type
    step: np.ndarray  # flat, (states * types,)
    beside: np.ndarray  # flat, numbers of slowdowns
    slows: np.ndarray  # ascending, thousandths; the first is 1000


def beside(problem: Problem, kind: int, types: set[int], tenants: int) -> Beside:
    """Slowdowns of these types beside up to one fewer than so many tenants."""
    used = sorted(types)
    number = np.full(max(1, problem.interference.types), -1)
    number[used] = np.arange(len(used))
    crowds = [co for size in range(max(tenants, 1)) for co in combinations_with_replacement(used, size)]
    states = {co: i for i, co in enumerate(crowds)}
    step = np.full((len(states), max(len(used), 1)), -1, np.int64)
    rows = np.full(step.shape, MILLI, np.int64)
    for co, at in states.items():
        if used:
            rows[at] = problem.interference.row(kind, co)[used]
        for i, a in enumerate(used) if len(co) + 1 < tenants else ():
            step[at, i] = states[tuple(sorted((*co, a)))]
    slows = np.unique(np.r_[MILLI, rows.ravel()])
    return Beside(step.shape[1], number, step.ravel(), np.searchsorted(slows, rows).ravel(), slows)
