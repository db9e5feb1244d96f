"""Ruin and recreate, compiled: take jobs off one or a few nodes, fill those up again, keep what is no worse.

Which nodes, see ``neighbourhood``. (Large neighbourhood search by removal and greedy repair: Shaw, CP 1998; Schrimpf et
al., J. Comput. Phys. 2000.)
"""

from __future__ import annotations

from solvers.kernels import layout as o
from solvers.kernels.fill import affords, enter, fill, top
from solvers.kernels.jit import Floats, Ints, jit
from solvers.kernels.neighbourhood import forget, pick, see
from solvers.kernels.place import at_home, below, draw, holds, node_holds, put, take
from solvers.kernels.spots import NEVER, look, place_for

#: How often a gang is placed before all else by what it is worth as a whole.
BIG = 0.1


@jit
def in_view(a: Ints, f: Floats, j: int) -> bool:
    """Are all GPUs of a placed job in view, and all of its home if it runs?"""
    for i in range(a[a[o.SPOT_AT] + j], a[a[o.SPOT_AT] + j] + a[a[o.SIZE_GPUS] + j]):
        if a[a[o.AT] + a[a[o.SPOT] + i]] < 0:
            return False
    for i in range(a[a[o.HOME_AT] + j], a[a[o.HOME_AT] + j + 1]):
        if a[a[o.AT] + a[a[o.HOME] + i]] < 0:
            return False
    return True


@jit
def runs(a: Ints, j: int) -> bool:
    """Has the job a home?"""
    return a[a[o.HOME_AT] + j + 1] > a[a[o.HOME_AT] + j]


@jit
def loose(a: Ints, f: Floats, j: int) -> bool:
    """May the job be taken away in this step?"""
    if runs(a, j) and (a[o.MAX_MOVES] == 0 or not (a[a[o.MOVABLE] + j] or a[a[o.PREEMPTIBLE] + j])):
        return False
    return in_view(a, f, j)


@jit
def remove(a: Ints, f: Floats, j: int, count: int) -> int:
    """Take a job away and remember where it was; how many are away then."""
    if count >= a[o.TAKEN_MOST] or a[a[o.OLD_AT] + count] + a[a[o.SIZE_GPUS] + j] > a[o.OLD_MOST]:
        return count
    at = a[a[o.OLD_AT] + count]
    for i in range(a[a[o.SIZE_GPUS] + j]):
        a[a[o.OLD] + at + i] = a[a[o.SPOT] + a[a[o.SPOT_AT] + j] + i]
    a[a[o.TAKEN] + count] = j
    a[a[o.OLD_AT] + count + 1] = at + a[a[o.SIZE_GPUS] + j]
    take(a, f, j)
    return count + 1


@jit
def clear(a: Ints, f: Floats, w: int, keep: float) -> int:
    """Take away all that may go, each kept with a chance; of those that run only as many as may move."""
    a[o.STAMP + 0] += 1
    mark, count, running = a[o.STAMP + 0], 0, 0
    for x in range(w):
        g = a[a[o.VIEW] + x]
        i = a[a[o.TENANTS] + g] - 1
        while i >= 0:
            j = a[a[o.TENANT] + g * a[o.WIDTH] + i]
            i -= 1
            if a[a[o.SEEN] + j] == mark:
                continue
            a[a[o.SEEN] + j] = mark
            if draw(a) < keep or not loose(a, f, j):
                continue
            if runs(a, j):
                if running >= 2 or draw(a) < 0.5:
                    continue
                running += 1
            count = remove(a, f, j, count)
            i = min(i, a[a[o.TENANTS] + g] - 1)
    return count


@jit
def back(a: Ints, f: Floats, i: int) -> None:
    """Put the i-th of those taken away where it was."""
    j = a[a[o.TAKEN] + i]
    for h in range(a[a[o.SIZE_GPUS] + j]):
        a[a[o.SPOT] + a[a[o.SPOT_AT] + j] + h] = a[a[o.OLD] + a[a[o.OLD_AT] + i] + h]
    put(a, f, j)


@jit
def restore(a: Ints, f: Floats, count: int, done: int) -> None:
    """Undo a step."""
    for i in range(done):
        if a[a[o.PLACED] + a[a[o.PUT] + i]]:
            take(a, f, a[a[o.PUT] + i])
    for i in range(count):
        back(a, f, i)


@jit
def choose_kins(a: Ints, f: Floats, count: int) -> int:
    """The kins that compete: those of the jobs taken away and some drawn ones; fewer make more steps a second."""
    kins = a[o.KIN_COUNT]
    most = min(a[o.KIN_MOST], int(a[o.KINS_LEAST] + (a[o.KINS_DRAWN] - a[o.KINS_LEAST]) * draw(a)))
    if kins <= most:
        for k in range(kins):
            a[a[o.KINS] + k] = k
        return kins
    a[o.STAMP + 1] += 1
    nk = 0
    for i in range(count):
        c = a[a[o.CLASS] + a[a[o.TAKEN] + i]]
        if c >= 0 and nk < most and a[a[o.MARK] + a[a[o.KIN] + c]] != a[o.STAMP + 1]:
            a[a[o.MARK] + a[a[o.KIN] + c]] = a[o.STAMP + 1]
            a[a[o.KINS] + nk] = a[a[o.KIN] + c]
            nk += 1
    for _ in range(3 * most):
        k = below(a, kins)
        if nk < most and a[a[o.MARK] + k] != a[o.STAMP + 1]:
            a[a[o.MARK] + k] = a[o.STAMP + 1]
            a[a[o.KINS] + nk] = k
            nk += 1
    return nk


@jit
def shake(a: Ints, f: Floats) -> None:
    """Draw how much each type is liked and how scarce each thing is taken to be."""
    strength = 0.1 + 0.5 * draw(a)
    for kind in range(a[o.TYPES]):
        f[a[o.NOISE] + kind] = 1.0 + strength * (2.0 * draw(a) - 1.0)
    for i in range(3):
        f[a[o.WEIGHT] + i] = 0.3 + 1.4 * draw(a)


@jit
def one_by_itself(a: Ints, f: Floats, j: int, nn: int, w: int, done: int) -> int:
    """Place a job that runs, off its home if that is cheapest; how many are in ``put`` then."""
    row = a[o.KIN_MOST]
    for x in range(w):
        look(a, f, row, j, x)
    if a[a[o.MOVABLE] + j] and place_for(a, f, row, j, nn, w) < NEVER:
        for h in range(a[a[o.SIZE_GPUS] + j]):
            a[a[o.BEST] + h] = a[a[o.TRIAL] + h]
        a[a[o.COST] + j] += 10**15  # whatever the place costs, it is worth it
        a[o.TOTAL] += 10**15
        return done + 1 if enter(a, f, j, done) else done
    return done


@jit
def go_home(a: Ints, f: Floats, j: int, done: int) -> int:
    """Put a running job back; the rules are checked with everything else at the end of the step."""
    for i in range(a[a[o.SIZE_GPUS] + j]):
        a[a[o.SPOT] + a[a[o.SPOT_AT] + j] + i] = a[a[o.HOME] + a[a[o.HOME_AT] + j] + i]
    for i in range(a[a[o.SIZE_GPUS] + j]):
        g = a[a[o.SPOT] + a[a[o.SPOT_AT] + j] + i]
        if (
            a[a[o.STEP] + (a[a[o.STATE] + g]) * a[o.TYPES] + a[a[o.TYPE] + j]] < 0
            or a[a[o.TENANTS] + g] + 1 >= a[o.WIDTH]
        ):
            return done
    put(a, f, j)
    a[a[o.PUT] + done] = j
    return done + 1


@jit
def residents(a: Ints, f: Floats, nn: int, w: int, count: int, done: int, late: bool) -> int:
    """Decide for the running jobs taken away: some go elsewhere before the rest is filled, the others go home."""
    for i in range(count):
        j = a[a[o.TAKEN] + i]
        if not runs(a, j) or a[a[o.PLACED] + j]:
            continue
        if a[o.MOVED] <= a[o.MAX_MOVES] and (late or draw(a) < 0.4):
            done = one_by_itself(a, f, j, nn, w, done)
        if a[a[o.PLACED] + j] or (not late and draw(a) < 0.5):
            continue
        if not (a[a[o.PREEMPTIBLE] + j] and a[o.MOVED] <= a[o.MAX_MOVES] and draw(a) < 0.3):
            done = go_home(a, f, j, done)
    return done


@jit
def entered(a: Ints, f: Floats, v: int) -> bool:
    """Does a newcomer use the node?"""
    if a[a[o.GUESTS] + v]:
        return True
    for h in range(a[a[o.NODE_AT] + v], a[a[o.NODE_AT] + v + 1]):
        g = a[a[o.NODE_GPU] + h]
        for i in range(a[a[o.TENANTS] + g]):
            if not at_home(a, f, a[a[o.TENANT] + g * a[o.WIDTH] + i]):
                return True
    return False


@jit
def lawful(a: Ints, f: Floats, nn: int, w: int, count: int) -> bool:
    """May the step stand? GPUs that lost a tenant are still well shared, and running jobs run as they may."""
    if a[o.MOVED] > a[o.MAX_MOVES]:
        return False
    running = False
    for i in range(count):
        j = a[a[o.TAKEN] + i]
        if runs(a, j):
            running = True
            if not a[a[o.PLACED] + j] and not a[a[o.PREEMPTIBLE] + j]:
                return False
            if a[a[o.PLACED] + j] and not at_home(a, f, j) and not a[a[o.MOVABLE] + j]:
                return False
        for h in range(a[a[o.OLD_AT] + i], a[a[o.OLD_AT] + i + 1]):
            if not holds(a, f, a[a[o.OLD] + h]):
                return False
    if running:
        for x in range(w):
            if not holds(a, f, a[a[o.VIEW] + x]):
                return False
        for i in range(nn):
            if entered(a, f, a[a[o.NODE_VIEW] + i]) and not node_holds(a, f, a[a[o.NODE_VIEW] + i]):
                return False
    return True


@jit
def lead(a: Ints, f: Floats, nn: int, w: int, nk: int, wide: bool, done: int) -> int:
    """First of all place one gang, if one is worth it: one that needs several nodes, or any by what it is worth as a whole.

    Filling goes by what a job is worth for what it takes, and so never comes to one that takes nearly all of a node.
    """
    highest, who = 0.0, -1
    for i in range(nk):
        r = a[a[o.KIN_JOB] + a[a[o.KINS] + i]]
        n = a[a[o.SIZE_GPUS] + r]
        if n < 2 or (wide and a[a[o.MAX_NODES] + r] < 2):
            continue
        for x in range(w):
            look(a, f, i, r, x)
        for q in range(a[a[o.KIN_AT] + a[a[o.KINS] + i]], a[a[o.KIN_AT] + a[a[o.KINS] + i] + 1]):
            j = top(a, f, a[a[o.KIN_CLASS] + q])
            if j < 0 or not affords(a, f, j):
                continue
            worth = 1.0 * a[a[o.COST] + j] - place_for(a, f, i, j, nn, w)
            if wide:
                worth /= n
            worth *= f[a[o.NOISE] + a[a[o.TYPE] + j]] * (0.5 + draw(a))
            if worth > highest:
                highest, who = worth, j
                for h in range(n):
                    a[a[o.BEST] + h] = a[a[o.TRIAL] + h]
    if who >= 0 and enter(a, f, who, done):
        done += 1
    return done


@jit
def step(a: Ints, f: Floats, wide: float) -> bool:
    """One ruin and recreate; was it kept?"""
    nn = pick(a, f, wide)
    w = see(a, f, nn)
    before, gone = a[o.TOTAL], a[o.MOVED]
    keep = 0.0 if draw(a) < 0.3 else draw(a) * 0.7
    count = clear(a, f, w, keep)
    shake(a, f)
    nk = choose_kins(a, f, count)
    done = residents(a, f, nn, w, count, 0, False)
    if nn > 1 and draw(a) < 0.5:
        done = lead(a, f, nn, w, nk, True, done)
    elif draw(a) < BIG:
        done = lead(a, f, nn, w, nk, False, done)
    theta = 0.0 if a[o.PRICED] == 0 or draw(a) < 0.2 else 0.5 + 0.5 * draw(a)
    done = fill(a, f, nn, w, nk, theta, done)
    if theta > 0.0:
        done = fill(a, f, nn, w, nk, 0.0, done)
    done = residents(a, f, nn, w, count, done, True)
    kept = a[o.TOTAL] <= before and lawful(a, f, nn, w, count)
    if not kept:
        restore(a, f, count, done)
        a[o.TOTAL], a[o.MOVED] = before, gone
    elif a[o.TOTAL] < before:
        a[o.GAINS] += 1
    forget(a, f, w)
    return kept


@jit
def urgent(a: Ints, f: Floats, jobs: Ints) -> None:
    """Place these jobs one by one where each costs least, looking at one node, or as many as it needs, at a time."""
    for j in jobs:
        if a[a[o.PLACED] + j] or not affords(a, f, j):
            continue
        lowest, first, row = NEVER, -1, a[o.KIN_MOST]
        for turn in range(2):
            for i in range(a[o.POOL_COUNT]):
                if turn == 1 and i != first:
                    continue
                v = a[a[o.POOL] + i]
                size = a[a[o.NODE_AT] + v + 1] - a[a[o.NODE_AT] + v]
                nn = min(a[a[o.MAX_NODES] + j], -(-a[a[o.SIZE_GPUS] + j] // size), o.NODES_IN_VIEW)
                nn = min(nn, a[o.POOL_COUNT] - i)
                for h in range(nn):
                    a[a[o.NODE_VIEW] + h] = a[a[o.POOL] + i + h]
                w = see(a, f, nn)
                for x in range(w):
                    look(a, f, row, j, x)
                cost = place_for(a, f, row, j, nn, w)
                if turn == 0 and cost < lowest:
                    lowest, first = cost, i
                if turn == 1 and cost < NEVER:
                    for h in range(a[a[o.SIZE_GPUS] + j]):
                        a[a[o.BEST] + h] = a[a[o.TRIAL] + h]
                    enter(a, f, j, 0)
                forget(a, f, w)


@jit
def sweep(a: Ints, f: Floats, wide: float) -> None:
    """Fill the nodes of the pool in turn, two at a time, without taking anything away: a first plan."""
    for i in range(0, a[o.POOL_COUNT], 2):
        nn = min(2, a[o.POOL_COUNT] - i)
        for h in range(nn):
            a[a[o.NODE_VIEW] + h] = a[a[o.POOL] + i + h]
        w = see(a, f, nn)
        shake(a, f)
        nk = choose_kins(a, f, 0)
        done = lead(a, f, nn, w, nk, True, 0) if draw(a) < wide else 0
        fill(a, f, nn, w, nk, 0.0, done)
        forget(a, f, w)


@jit
def run(a: Ints, f: Floats, steps: int, wide: float) -> None:
    """So many steps, if there is a node to look at."""
    if a[o.POOL_COUNT] == 0:
        return
    for _ in range(steps):
        step(a, f, wide)
    a[o.STEPS] += steps
