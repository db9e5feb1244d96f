"""Kernels of the bound by patterns: which contents a GPU may have.

A *content* is a row of kin indices: who already runs on the GPU, then newcomers in ascending order. Kins are rows of a
table with the columns below. Slowdowns come as indices into an ascending array of slowdowns: ``beside[state * types + type]`` is that
of a tenant of this type whose neighbours form the state, and ``step`` at the same place the state with one more neighbour.
All tables are flat, and all scratch space is handed in. What contents are worth, see ``worth``.
"""

from __future__ import annotations

from solvers.kernels.jit import Ints, jit

#: Columns of a kin.
TYPE, SIZE, MEMORY, SHARE, CAP, ALONE, GROUP, JOBS, GATED = range(9)
COLUMNS = 9
#: A group that agrees with every other.
ANY_GROUP = -1


@jit
def neighbours(who: Ints, t: int, one: int, other: int, kin: Ints, step: Ints, types: int) -> int:
    """The state that all tenants but one or two form."""
    state = 0
    for i in range(t):
        if i != one and i != other:
            state = step[state * types + kin[who[i] * COLUMNS + TYPE]]
    return state


@jit
def judge(
    who: Ints,
    t: int,
    old: int,
    kin: Ints,
    step: Ints,
    beside: Ints,
    types: int,
    slows: Ints,
    gate: bool,
    slow: Ints,
    at: int,
) -> bool:
    """May these share (slowdown caps and gate), the first ``old`` of them running already? Fills in ``slow[at:at + t]``."""
    exact = True
    total, largest = 0, 0
    for i in range(t):
        k = who[i] * COLUMNS
        found = beside[neighbours(who, t, i, i, kin, step, types) * types + kin[k + TYPE]]
        slow[at + i] = found
        if slows[found] > kin[k + CAP]:
            return False
        exact = exact and kin[k + GATED] > 0
        total += kin[k + SIZE] * (1_000_000_000 // slows[found])
        largest = max(largest, kin[k + SIZE])
    if t < 2 or not gate or not exact:
        return True
    if total <= 1_000_000 * largest:
        return False
    for i in range(old, t):
        rest = 0
        for j in range(t):
            if j != i:
                k = who[j] * COLUMNS
                found = beside[neighbours(who, t, i, j, kin, step, types) * types + kin[k + TYPE]]
                rest += kin[k + SIZE] * (1_000_000_000 // slows[found])
        if total < rest:
            return False
    return True


@jit
def extend(
    rows: Ints,
    many: int,
    r: int,
    base: Ints,
    news: int,
    kin: Ints,
    room: Ints,
    step: Ints,
    beside: Ints,
    types: int,
    slows: Ints,
    gate: bool,
    who: Ints,
    out: Ints,
    slow: Ints,
    good: Ints,
) -> int:
    """Contents with one more newcomer whose memory, shares and consent fit, and whether they are ``good``.

    ``rows`` are ``many`` rows of ``r`` newcomers so far, ``base`` those who run; ``room`` is memory alone, memory shared, share. With an
    empty ``out`` they are only counted. Returns their number.
    """
    b = len(base)
    t = b + r + 1
    for i in range(b):
        who[i] = base[i]
    memory_room = room[0] if t == 1 else room[1]
    found = 0
    for q in range(many):
        for i in range(r):
            who[b + i] = rows[q * r + i]
        memory, share, group, alone = 0, 0, ANY_GROUP, 0
        for i in range(t - 1):
            k = who[i] * COLUMNS
            memory += kin[k + MEMORY]
            share += kin[k + SHARE]
            alone += kin[k + ALONE]
            if kin[k + GROUP] != ANY_GROUP:
                group = kin[k + GROUP]
        if alone > 0:
            continue
        for new in range(rows[q * r + r - 1] if r > 0 else 0, news):
            k = new * COLUMNS
            if memory + kin[k + MEMORY] > memory_room or share + kin[k + SHARE] > room[2]:
                continue
            if t > 1 and kin[k + ALONE] > 0:
                continue
            if group != ANY_GROUP and kin[k + GROUP] != ANY_GROUP and kin[k + GROUP] != group:
                continue
            jobs = kin[k + JOBS]
            if r >= jobs and rows[q * r + r - jobs] == new:
                continue  # there are not so many of them
            if len(out) > 0:
                who[t - 1] = new
                good[found] = (
                    1 if judge(who, t, b, kin, step, beside, types, slows, gate, slow, found * t) else 0
                )
                for i in range(r + 1):
                    out[found * (r + 1) + i] = who[b + i]
            found += 1
    return found
