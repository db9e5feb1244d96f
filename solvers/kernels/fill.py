"""Filling a few nodes with the jobs that wait: again and again the one that is worth most for what it uses.

What a job is worth is the cost of its waiting less what its best place would cost, to itself and to the tenants. It is
divided by the part it takes of what is scarce in view (cores, host memory, places, each with a drawn weight), so that all
jobs and all places compete at once and no order of jobs has to be guessed. The next of each class makes one bid, which stays
until something changes where it would go.
"""

from __future__ import annotations

from solvers.kernels import layout as o
from solvers.kernels.jit import Floats, Ints, jit
from solvers.kernels.place import holds, node_holds, put, take
from solvers.kernels.spots import fits, look, place_for


@jit
def top(a: Ints, f: Floats, c: int) -> int:
    """The member of a class that it costs most to let wait, -1 if none waits."""
    begin, end = a[a[o.CLASS_AT] + c], a[a[o.CLASS_AT] + c + 1]
    i = begin + a[a[o.FIRST] + c]
    while i < end and a[a[o.PLACED] + a[a[o.CLASS_JOB] + i]]:
        i += 1
    a[a[o.FIRST] + c] = i - begin
    return a[a[o.CLASS_JOB] + i] if i < end else -1


@jit
def affords(a: Ints, f: Floats, j: int) -> bool:
    """Is there room in every budget that the job draws on?"""
    for i in range(a[a[o.BUDGET_AT] + j], a[a[o.BUDGET_AT] + j + 1]):
        if a[a[o.ROOM] + a[a[o.BUDGET] + i]] < a[a[o.AMOUNT] + i]:
            return False
    return True


@jit
def demand(a: Ints, f: Floats, j: int, bid: int, free: int) -> float:
    """The part that a job takes of what is left where the bid (position of its GPUs in view) would put it."""
    v = a[a[o.NODE] + a[a[o.VIEW] + a[bid]]]
    parts, n, last = 1.0, a[a[o.SIZE_GPUS] + j], v
    for h in range(1, n):
        u = a[a[o.NODE] + a[a[o.VIEW] + a[bid + h]]]
        if u != last:
            parts += 1.0
            last = u
    cores = (a[a[o.CPU_CAP] + v] - a[a[o.CPU_USED] + v]) * parts
    host = (a[a[o.HOST_CAP] + v] - a[a[o.HOST_USED] + v]) * parts
    part = f[a[o.WEIGHT] + 0] * a[a[o.CPU] + j] / (cores + 1.0)
    part += f[a[o.WEIGHT] + 1] * a[a[o.HOST] + j] / (host + 1.0)
    return part + f[a[o.WEIGHT] + 2] * n / max(1, free)


@jit
def enter(a: Ints, f: Floats, j: int, place: int) -> bool:
    """Put a job on the GPUs in ``best``; taken back and False if that breaks a rule or does not pay."""
    at, n, before = a[a[o.SPOT_AT] + j], a[a[o.SIZE_GPUS] + j], a[o.TOTAL]
    for i in range(n):
        g = a[a[o.VIEW] + a[a[o.BEST] + i]]
        h = at + i
        while h > at and a[a[o.SPOT] + h - 1] > g:
            a[a[o.SPOT] + h] = a[a[o.SPOT] + h - 1]
            h -= 1
        a[a[o.SPOT] + h] = g
    put(a, f, j)
    good = a[o.TOTAL] < before
    for i in range(at, at + n):
        good = good and holds(a, f, a[a[o.SPOT] + i]) and node_holds(a, f, a[a[o.NODE] + a[a[o.SPOT] + i]])
    if not good:
        take(a, f, j)
    a[a[o.PUT] + place] = j
    return good


@jit
def appraise(a: Ints, f: Floats, row: int, c: int, nn: int, w: int, theta: float) -> None:
    """What the next of a class is worth at its best place in view; kept until something there changes."""
    a[a[o.DIRTY] + c] = 0
    f[a[o.WORTH] + c] = 0.0
    j = top(a, f, c)
    if j < 0 or not affords(a, f, j):
        return
    worth = a[a[o.COST] + j] - theta * f[a[o.PRICE] + c]
    if worth <= 0.0:
        return
    worth -= place_for(a, f, row, j, nn, w)
    if worth <= 0.0:
        return
    f[a[o.WORTH] + c] = worth
    at = a[o.BID] + c * a[o.WIDEST]
    for h in range(a[a[o.SIZE_GPUS] + j]):
        a[at + h] = a[a[o.TRIAL] + h]


@jit
def soil(a: Ints, f: Floats, nk: int, c: int) -> None:
    """Appraise anew, after a step forward: the class itself, and those whose best place has changed."""
    a[a[o.DIRTY] + c] = 1
    for i in range(nk):
        k = a[a[o.KINS] + i]
        n = a[a[o.SIZE_GPUS] + a[a[o.KIN_JOB] + k]]
        for q in range(a[a[o.KIN_AT] + k], a[a[o.KIN_AT] + k + 1]):
            d = a[a[o.KIN_CLASS] + q]
            if f[a[o.WORTH] + d] > 0.0:
                at = a[o.BID] + d * a[o.WIDEST]
                for h in range(n):
                    if a[a[o.STALE] + a[at + h]]:
                        a[a[o.DIRTY] + d] = 1
                        break


@jit
def still_fits(a: Ints, f: Floats, j: int) -> bool:
    """Have the nodes of the GPUs in ``best`` still room for the job?"""
    n = a[a[o.SIZE_GPUS] + j]
    for h in range(n):
        v, count = a[a[o.NODE] + a[a[o.VIEW] + a[a[o.BEST] + h]]], 0
        for i in range(n):
            count += a[a[o.NODE] + a[a[o.VIEW] + a[a[o.BEST] + i]]] == v
        if not fits(a, f, j, v, count):
            return False
    return True


@jit
def look_again(a: Ints, f: Floats, nk: int, w: int) -> int:
    """Look at what has changed; the number of places left in view."""
    free = 0
    for x in range(w):
        g = a[a[o.VIEW] + x]
        free += max(0, a[a[o.PLACES] + g] - a[a[o.TENANTS] + g])
        if a[a[o.STALE] + x]:
            a[a[o.STALE] + x] = 0
            for i in range(nk):
                look(a, f, i, a[a[o.KIN_JOB] + a[a[o.KINS] + i]], x)
    return free


@jit
def best_bid(a: Ints, f: Floats, nk: int, nn: int, w: int, free: int, theta: float) -> int:
    """The class whose next job is worth most for what it takes, -1 if none is worth anything; its GPUs in ``best``."""
    highest, who = 0.0, -1
    for i in range(nk):
        k = a[a[o.KINS] + i]
        for q in range(a[a[o.KIN_AT] + k], a[a[o.KIN_AT] + k + 1]):
            c = a[a[o.KIN_CLASS] + q]
            if a[a[o.DIRTY] + c]:
                appraise(a, f, i, c, nn, w, theta)
            worth = f[a[o.WORTH] + c]
            if worth > 0.0:
                j = a[a[o.KIN_JOB] + k]
                worth *= f[a[o.NOISE] + a[a[o.TYPE] + j]]
                score = worth / demand(a, f, j, a[o.BID] + c * a[o.WIDEST], free)
                if score > highest:
                    highest, who = score, c
    if who >= 0:
        n = a[a[o.SIZE_GPUS] + a[a[o.CLASS_JOB] + a[a[o.CLASS_AT] + who]]]
        for h in range(n):
            a[a[o.BEST] + h] = a[a[o.BID] + who * a[o.WIDEST] + h]
    return who


@jit
def row_of(a: Ints, nk: int, c: int) -> int:
    """The row of a class's kin."""
    for i in range(nk):
        if a[a[o.KINS] + i] == a[a[o.KIN] + c]:
            return i
    return -1


@jit
def touch(a: Ints, f: Floats, x: int) -> None:
    """A GPU has changed: look at it again, and at the others of its tenants."""
    g = a[a[o.VIEW] + x]
    a[a[o.STALE] + x] = 1
    for i in range(a[a[o.TENANTS] + g]):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        for h in range(a[a[o.SPOT_AT] + b], a[a[o.SPOT_AT] + b] + a[a[o.SIZE_GPUS] + b]):
            y = a[a[o.AT] + a[a[o.SPOT] + h]]
            if y >= 0:
                a[a[o.STALE] + y] = 1


@jit
def fill(a: Ints, f: Floats, nn: int, w: int, nk: int, theta: float, done: int) -> int:
    """Put jobs of the kins in ``kins`` into view until none is worth it; how many are in ``put`` then.

    ``theta`` is the part of a class's price that is taken off the worth of its jobs.
    """
    for x in range(w):
        a[a[o.STALE] + x] = 1
    for i in range(nk):
        k = a[a[o.KINS] + i]
        for q in range(a[a[o.KIN_AT] + k], a[a[o.KIN_AT] + k + 1]):
            a[a[o.DIRTY] + a[a[o.KIN_CLASS] + q]] = 1
    while done < a[o.TAKEN_MOST]:
        free = look_again(a, f, nk, w)
        if free == 0:
            break
        c = best_bid(a, f, nk, nn, w, free, theta)
        if c < 0:
            break
        j = top(a, f, c)
        if not (affords(a, f, j) and still_fits(a, f, j)):
            appraise(a, f, row_of(a, nk, c), c, nn, w, theta)
            continue
        if enter(a, f, j, done):
            done += 1
            for h in range(a[a[o.SIZE_GPUS] + j]):
                touch(a, f, a[a[o.BEST] + h])
            soil(a, f, nk, c)
        else:
            row = row_of(a, nk, c)
            for h in range(a[a[o.SIZE_GPUS] + j]):
                a[a[o.OK] + row * a[o.VIEW_MOST] + a[a[o.BEST] + h]] = 0
                a[a[o.STALE] + a[a[o.BEST] + h]] = 1
            soil(a, f, nk, c)
            for h in range(a[a[o.SIZE_GPUS] + j]):
                a[a[o.STALE] + a[a[o.BEST] + h]] = 0
    for x in range(w):
        a[a[o.STALE] + x] = 0
    return done
