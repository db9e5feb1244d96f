"""Kernels of the bound by patterns: the most that the contents of a node's GPUs are worth within its cores and host memory.

Each GPU takes one of the contents that are offered to it (see ``slots``), divisible among them, so that a small linear
program bounds the worth of the node. All tables are flat, and all scratch space is handed in.
"""

from __future__ import annotations

import numpy as np

from solvers.kernels.jit import Floats, Ints, jit

#: Pivots after which a node's linear program stops; every pivot's price gives a valid bound.
PIVOTS = 80
#: What nothing is worth.
NOTHING = -1e30
#: Scratch that ``mix`` needs: a matrix of columns and its inverse, then vectors of three.
MATRIX, INVERSE, WORTHS, RIGHT, DUALS, ENTER, WAY, SCRATCH = 0, 9, 18, 21, 24, 27, 30, 33


@jit
def invert(w: Floats) -> bool:
    """The inverse of the matrix in the scratch; False if there is none."""
    det = 0.0
    for i in range(3):
        for j in range(3):
            r, s, u, v = (j + 1) % 3, (j + 2) % 3, (i + 1) % 3, (i + 2) % 3
            w[INVERSE + 3 * i + j] = (
                w[MATRIX + 3 * r + u] * w[MATRIX + 3 * s + v] - w[MATRIX + 3 * r + v] * w[MATRIX + 3 * s + u]
            )
    for i in range(3):
        det += w[MATRIX + i] * w[INVERSE + 3 * i]
    if abs(det) < 1e-14:
        return False
    for i in range(9):
        w[INVERSE + i] /= det
    return True


@jit
def multiply(w: Floats, x: int, out: int, across: bool) -> None:
    """The inverse (or its transpose) times a vector, all in the scratch."""
    for i in range(3):
        w[out + i] = 0.0
        for j in range(3):
            w[out + i] += w[INVERSE + (3 * j + i if across else 3 * i + j)] * w[x + j]


@jit
def price_out(
    value: Floats,
    cpu: Floats,
    memory: Floats,
    blocks: Ints,
    counts: Floats,
    p_c: float,
    p_m: float,
    w: Floats,
    tops: Floats,
    ats: Ints,
) -> float:
    """The most that all GPUs are worth after paying for cores and host memory.

    ``blocks`` holds the number of blocks and of offerings, each block's first content and the one after its last, each offering's
    first place in the list that follows and the place after the last one's, and that list of the blocks of each offering. Adds up
    worth, cores and memory in ``w[ENTER:]``; the content of the last offering is left in ``ats[-1]``.
    """
    n, offers = blocks[0], blocks[1]
    starts = 2 + 2 * n
    members = starts + offers + 1
    for b in range(n):
        top = NOTHING
        at = blocks[2 + 2 * b]
        for p in range(blocks[2 + 2 * b], blocks[3 + 2 * b]):
            x = value[p] - p_c * cpu[p] - p_m * memory[p]
            if x > top:
                top, at = x, p
        tops[b], ats[b] = top, at
    total = 0.0
    for i in range(3):
        w[ENTER + i] = 0.0
    for i in range(offers):
        best = blocks[members + blocks[starts + i]]
        for r in range(blocks[starts + i] + 1, blocks[starts + i + 1]):
            if tops[blocks[members + r]] > tops[best]:
                best = blocks[members + r]
        total += counts[i] * tops[best]
        w[ENTER] += counts[i] * value[ats[best]]
        w[ENTER + 1] += counts[i] * cpu[ats[best]]
        w[ENTER + 2] += counts[i] * memory[ats[best]]
        ats[n] = ats[best]
    return total


@jit
def mix(
    value: Floats,
    cpu: Floats,
    memory: Floats,
    blocks: Ints,
    counts: Floats,
    cores: float,
    host: float,
    first: Floats,
    floor: float,
    picks: Ints,
    parts: Floats,
    price: Floats,
    w: Floats,
    tops: Floats,
    ats: Ints,
) -> float:
    """The most that GPUs are worth together within cores and host memory, each divisible among contents.

    ``counts[i]`` GPUs take contents of offering ``i``, see ``price_out``; ``first`` is the value, cores and memory of some way to
    begin with. What is returned is a valid upper bound wherever it stops, early at ``floor``. Revised simplex on three
    rows: one unit of all GPUs, cores, memory. Fills in the last basis: ``picks`` (of the last offering, -1 for slack) and ``parts``,
    and the best ``price`` of cores and memory. It begins with the prices in ``price``.
    """
    by_c = 1.0 / cores if cores > 0 else 1.0
    by_m = 1.0 / host if host > 0 else 1.0
    for i in range(9):
        w[MATRIX + i] = 1.0 if i in (0, 4, 8) else 0.0
    w[MATRIX + 3], w[MATRIX + 6] = first[1] * by_c, first[2] * by_m
    w[WORTHS], w[WORTHS + 1], w[WORTHS + 2] = first[0], 0.0, 0.0
    w[RIGHT], w[RIGHT + 1], w[RIGHT + 2] = 1.0, cores * by_c, host * by_m
    picks[0], picks[1], picks[2] = -1, -1, -1
    best = np.inf
    for pivot in range(PIVOTS):
        if not invert(w):
            break
        multiply(w, WORTHS, DUALS, True)
        multiply(w, RIGHT, WAY, False)
        for i in range(3):
            parts[i] = w[WAY + i]
        gain, pick = 0.0, -1
        slack = 1 if w[DUALS + 1] < w[DUALS + 2] else 2
        if w[DUALS + slack] < -1e-9 * (1.0 + abs(w[DUALS])):
            for i in range(3):
                w[ENTER + i] = 1.0 if i == slack else 0.0
        else:
            p_c, p_m = max(w[DUALS + 1], 0.0) * by_c, max(w[DUALS + 2], 0.0) * by_m
            if pivot == 0:
                p_c, p_m = price[0], price[1]
            total = price_out(value, cpu, memory, blocks, counts, p_c, p_m, w, tops, ats)
            upper = total + p_c * cores + p_m * host
            if upper < best:
                best = upper
                price[0], price[1] = p_c, p_m
            gain, pick = w[ENTER], ats[blocks[0]]
            w[ENTER], w[ENTER + 1], w[ENTER + 2] = 1.0, w[ENTER + 1] * by_c, w[ENTER + 2] * by_m
            reduced = gain - w[DUALS] - w[DUALS + 1] * w[ENTER + 1] - w[DUALS + 2] * w[ENTER + 2]
            if best <= floor or (reduced <= 1e-7 * (1.0 + abs(w[DUALS])) and pivot > 0):
                break
            if reduced <= 0.0:
                continue
        multiply(w, ENTER, WAY, False)
        leave, ratio = -1, np.inf
        for i in range(3):
            if w[WAY + i] > 1e-9 and parts[i] / w[WAY + i] < ratio:
                leave, ratio = i, parts[i] / w[WAY + i]
        if leave < 0:
            break
        for i in range(3):
            w[MATRIX + 3 * i + leave] = w[ENTER + i]
        w[WORTHS + leave] = gain
        picks[leave] = pick
    return best


@jit
def group_worth(
    value: Floats,
    worth: Floats,
    width: int,
    cpu: Floats,
    memory: Floats,
    low: int,
    high: int,
    second: Ints,
    offset: int,
    big: int,
    count: int,
    cores: float,
    host: float,
    host_price: Floats,
    floor: float,
    picks: Ints,
    parts: Floats,
    at: int,
    w: Floats,
    blocks: Ints,
    scratch: Floats,
    chosen: Ints,
) -> float:
    """The most that a node is worth whose ``count`` GPUs all hold the same ``big`` whole-node gangs.

    Contents ``low`` to ``high`` hold them, in the order of what the first gang is worth there; ``second`` from ``offset`` on are the same in the
    order of the second gang's; ``worth[p * width + i]`` is what slot ``i`` of content ``p`` is worth. A gang pays for its slowest GPU: for one or two
    gangs every level that the slowest GPU may have is tried, for more of them the mean over the GPUs is taken, which is never less.
    Fills in the contents ``picks[at:]`` of the best node and their ``parts``.
    """
    n = high - low
    top, net = NOTHING, NOTHING
    for p in range(low, high):
        top = max(top, value[p])
        net = max(net, value[p] - host_price[0] * cpu[p] - host_price[1] * memory[p])
    quick = min(count * top, count * net + host_price[0] * cores + host_price[1] * host)
    if n == 1:
        if count * cpu[low] > cores * (1.0 + 1e-9) or count * memory[low] > host * (1.0 + 1e-9):
            return NOTHING
        picks[at], parts[at] = low, 1.0
        return count * top
    if quick <= floor:
        return quick
    # Views into the scratch: a small program's values, cores and memory, then vectors.
    m = len(chosen)
    v, c, h = scratch[:m], scratch[m : 2 * m], scratch[2 * m : 3 * m]
    counts, first, price = (
        scratch[3 * m : 3 * m + 1],
        scratch[3 * m + 1 : 3 * m + 4],
        scratch[3 * m + 4 : 3 * m + 6],
    )
    part, tops = scratch[3 * m + 6 : 3 * m + 9], scratch[3 * m + 9 : 3 * m + 11]
    pick, ats = blocks[8:11], blocks[11:13]
    blocks[0], blocks[1], blocks[2], blocks[4], blocks[5], blocks[6] = 1, 1, 0, 0, 1, 0
    counts[0] = count
    # No way to begin with is known: one that is so bad that it is soon left.
    first[0], first[1], first[2] = -100.0 * count * (1.0 + abs(top)), 0.0, 0.0
    for i in range(n):
        v[i], c[i], h[i] = value[low + i], cpu[low + i], memory[low + i]
    blocks[3] = n
    price[0], price[1] = host_price[0], host_price[1]
    mean = mix(v, c, h, blocks, counts, cores, host, first, floor, pick, part, price, w, tops, ats)
    for i in range(3):
        picks[at + i], parts[at + i] = (low + pick[i] if pick[i] >= 0 else -1), part[i]
    if mean <= floor or big > 2:
        return mean
    p_c, p_m = price[0], price[1]
    room = p_c * cores + p_m * host
    best = NOTHING
    wanted, wanted_end, wanted_other = NOTHING, low, 0.0
    for attempt in range(3):
        # First the level that promises most, then that one, then all that promise more than it holds.
        if attempt > 0 and wanted <= max(best, floor):
            break
        end, held, i, run = low, 0, 0, NOTHING
        while end < high:
            level = worth[end * width]
            while end < high and worth[end * width] >= level:
                end += 1
            if big == 2:
                held, i, run = 0, 0, NOTHING
            while i < n:
                other = 0.0
                if big == 2:
                    while i < n and second[offset + i] >= end:
                        i += 1
                    if i == n:
                        break
                    other = worth[second[offset + i] * width + 1]
                while i < n:
                    p = second[offset + i] if big == 2 else low + i
                    if p < end:
                        if big == 2 and worth[p * width + 1] < other:
                            break
                        rest = value[p] - worth[p * width]
                        if big == 2:
                            rest -= worth[p * width + 1]
                        chosen[held] = p
                        v[held], c[held], h[held] = rest, cpu[p], memory[p]
                        held += 1
                        run = max(run, rest - p_c * cpu[p] - p_m * memory[p])
                    elif big == 1:
                        break
                    i += 1
                upper = count * (level + other + run) + room
                least = max(best, floor)
                if attempt == 0:
                    if upper > wanted:
                        wanted, wanted_end, wanted_other = upper, end, other
                elif upper > least and (end == wanted_end and other == wanted_other) == (attempt == 1):
                    # The gangs are worth the same whatever is beside them; the rest is mixed.
                    blocks[3] = held
                    gangs = count * (level + other)
                    price[0], price[1] = p_c, p_m
                    rest = mix(
                        v, c, h, blocks, counts, cores, host, first, least - gangs, pick, part, price, w, tops, ats,
                    )  # fmt: skip
                    upper = min(upper, gangs + rest)
                    if upper > best:
                        for j in range(3):
                            picks[at + j], parts[at + j] = (chosen[pick[j]] if pick[j] >= 0 else -1), part[j]
                        best = upper
                if big == 1:
                    break
    return min(mean, max(best, min(wanted, floor)))


@jit
def groups_worth(
    value: Floats,
    worth: Floats,
    width: int,
    cpu: Floats,
    memory: Floats,
    bounds: Ints,
    bigs: Ints,
    second: Ints,
    count: int,
    cores: float,
    host: float,
    host_price: Floats,
    keep: float,
    out: Floats,
    picks: Ints,
    parts: Floats,
    w: Floats,
    blocks: Ints,
    scratch: Floats,
    chosen: Ints,
) -> float:
    """``group_worth`` of every group but the first; those worth less than ``keep`` times the best so far only roughly."""
    best = out[0]
    for g in range(1, len(bigs)):
        out[g] = group_worth(
            value, worth, width, cpu, memory, bounds[g], bounds[g + 1], second, bounds[g] - bounds[0], bigs[g], count,
            cores, host, host_price, keep * best, picks, parts, 3 * g, w, blocks, scratch, chosen,
        )  # fmt: skip
        best = max(best, out[g])
    return best
