"""Where a job may go among the GPUs in view, and what its best place there costs itself and the tenants.

First each GPU is looked at by itself: ``look`` keeps, for a row of its own for each kin, whether a job of the kin may go there, the
part of its speed that it would lose, and what the tenants and the opening of the GPU would cost. ``place_for`` then puts the cheapest of
them together, for a gang inside one node or over several.
"""

from __future__ import annotations

from solvers.kernels import layout as o
from solvers.kernels.jit import Floats, Ints, jit
from solvers.kernels.place import ask, at_home, hates, late, rate, rest

#: The cost of a place where there is none.
NEVER = 1e29


@jit
def gate(a: Ints, f: Floats, g: int, r: int, progress: int, largest: int) -> bool:
    """The sharing gate for newcomer r beside the tenants of a GPU."""
    if progress <= 1000000 * largest or rest(a, f, g, -1) > progress:
        return False
    count, m = a[a[o.TENANTS] + g], a[a[o.KIND] + g]
    if count == 1:
        return True
    for i in range(count):
        skip = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        if at_home(a, f, skip):
            continue
        s = a[a[o.ROOT] + m]
        for h in range(count):
            if h != i:
                s = a[a[o.STEP] + s * a[o.TYPES] + a[a[o.TYPE] + a[a[o.TENANT] + g * a[o.WIDTH] + h]]]
        then = a[a[o.STEP] + s * a[o.TYPES] + a[a[o.TYPE] + r]]
        if then < 0:
            ask(a, s, a[a[o.TYPE] + r])
            return False
        others = a[a[o.SIZE] + r] * rate(a, then, r)
        for h in range(count):
            if h != i:
                b = a[a[o.TENANT] + g * a[o.WIDTH] + h]
                others += a[a[o.SIZE] + b] * rate(a, then, b)
        if others > progress:
            return False
    return True


@jit
def look(a: Ints, f: Floats, row: int, r: int, x: int) -> None:
    """May job r go to the x-th GPU in view, how slow is it there, and what does it cost the tenants?"""
    g = a[a[o.VIEW] + x]
    m, count, s = a[a[o.KIND] + g], a[a[o.TENANTS] + g], a[a[o.STATE] + g]
    a[a[o.OK] + row * a[o.VIEW_MOST] + x] = 0
    if count >= a[a[o.PLACES] + g] or a[a[o.SPEED] + a[a[o.ROW] + r] * a[o.KINDS] + m] <= 0:
        return
    margin = a[a[o.MARGIN] + g] if count else 0
    if (
        a[a[o.MEMORY_USED] + g] + a[a[o.NEED] + a[a[o.ROW] + r] * a[o.KINDS] + m]
        > a[a[o.MEMORY] + g] - margin
    ):
        return
    if a[a[o.SHARES_USED] + g] + a[a[o.SHARE] + a[a[o.ROW] + r] * a[o.KINDS] + m] > a[a[o.SHARES] + g]:
        return
    if a[a[o.ALONE] + r] and (count or a[a[o.OUTSIDE] + g]):
        return
    then = a[a[o.STEP] + s * a[o.TYPES] + a[a[o.TYPE] + r]]
    if then < 0:
        ask(a, s, a[a[o.TYPE] + r])
        return
    own = int(a[a[o.SLOW] + then * a[o.TYPES] + a[a[o.TYPE] + r]])
    if own > a[a[o.CAP] + a[a[o.ROW] + r] * a[o.KINDS] + m]:
        return
    added, progress, largest = (
        0.0,
        a[a[o.SIZE] + r] * rate(a, then, r),
        a[a[o.SIZE] + r],
    )
    for i in range(count):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        slow = int(a[a[o.SLOW] + then * a[o.TYPES] + a[a[o.TYPE] + b]])
        if (
            slow > a[a[o.CAP] + a[a[o.ROW] + b] * a[o.KINDS] + m]
            or slow > a[a[o.LIMIT] + b]
            or a[a[o.ALONE] + b]
            or a[a[o.GROUP] + b] != a[a[o.GROUP] + r]
        ):
            return
        if slow > a[a[o.WORST] + b]:
            added += f[a[o.SLOPE] + (a[a[o.ROW] + b] * a[o.KINDS] + m) * 3 + a[a[o.LINKED] + b]] * (
                1000.0 / a[a[o.WORST] + b] - 1000.0 / slow
            )
            if a[o.SPAN_COST]:
                k = a[a[o.FACTOR] + a[a[o.ROW] + b] * 3 + a[a[o.LINKED] + b]]
                added += late(a, f, b, m, slow, k) - late(a, f, b, m, a[a[o.WORST] + b], k)
        progress += a[a[o.SIZE] + b] * rate(a, then, b)
        largest = max(largest, a[a[o.SIZE] + b])
    if count:
        if a[o.GATE] and not gate(a, f, g, r, progress, largest):
            return
        if hates(a, f, g, r):
            return
    else:
        added += a[a[o.OPEN_COST] + g]
        if a[a[o.NODE_GPUS] + a[a[o.NODE] + g]] == 0:
            added += a[a[o.USED_COST] + a[a[o.NODE] + g]]
    a[a[o.OK] + row * a[o.VIEW_MOST] + x] = 1
    f[a[o.LOST] + row * a[o.VIEW_MOST] + x] = 1.0 - 1000.0 / own
    f[a[o.ADDED] + row * a[o.VIEW_MOST] + x] = added


@jit
def fits(a: Ints, f: Floats, j: int, v: int, count: int) -> bool:
    """Has a node the cores and memory for so many of the job's GPUs, and may the job use it?"""
    n = max(1, a[a[o.SIZE_GPUS] + j])
    if a[a[o.OPEN_TO] + (a[a[o.NODE_SET] + j]) * a[o.NODES] + v] == 0:
        return False
    if a[a[o.CPU_USED] + v] - (-a[a[o.CPU] + j] * count // n) > a[a[o.CPU_CAP] + v]:
        return False
    if a[a[o.HOST_USED] + v] - (-a[a[o.HOST] + j] * count // n) > a[a[o.HOST_CAP] + v]:
        return False
    return a[a[o.LONERS] + v] == 0 and (a[a[o.NODE_ALONE] + j] == 0 or a[a[o.NODE_JOBS] + v] == 0)


@jit
def cheapest(a: Ints, f: Floats, row: int, count: int, found: int, slope: float) -> None:
    """Sort the first ``found`` positions of ``order`` so that the ``count`` cheapest lead."""
    for i in range(found):
        x = a[a[o.ORDER] + i]
        key = f[a[o.ADDED] + row * a[o.VIEW_MOST] + x] + slope * f[a[o.LOST] + row * a[o.VIEW_MOST] + x]
        h = i
        while h > 0 and f[a[o.KEY] + h - 1] > key:
            f[a[o.KEY] + h], a[a[o.ORDER] + h] = f[a[o.KEY] + h - 1], a[a[o.ORDER] + h - 1]
            h -= 1
        f[a[o.KEY] + h], a[a[o.ORDER] + h] = key, x


@jit
def on_one_node(a: Ints, f: Floats, row: int, j: int, nn: int) -> float:
    """Cost of the best place for a gang inside one node, left in ``trial``; NEVER if there is none."""
    n, best = a[a[o.SIZE_GPUS] + j], NEVER
    for i in range(nn):
        v = a[a[o.NODE_VIEW] + i]
        if not fits(a, f, j, v, n):
            continue
        for q in range(a[a[o.GROUP_AT] + v], a[a[o.GROUP_AT] + v + 1]):
            found, m = 0, a[a[o.GROUP_KIND] + q]
            if a[a[o.MEMBER_AT] + q + 1] - a[a[o.MEMBER_AT] + q] < n:
                continue
            for h in range(a[a[o.MEMBER_AT] + q], a[a[o.MEMBER_AT] + q + 1]):
                x = a[a[o.AT] + a[a[o.MEMBER] + h]]
                if x >= 0 and a[a[o.OK] + row * a[o.VIEW_MOST] + x]:
                    a[a[o.ORDER] + found] = x
                    found += 1
            if found < n:
                continue
            link = a[a[o.GROUP_LINK] + q]
            cheapest(a, f, row, n, found, f[a[o.SLOPE] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + link] / n)
            lost, cost = 0.0, 0.0
            for h in range(n):
                lost = max(lost, f[a[o.LOST] + row * a[o.VIEW_MOST] + a[a[o.ORDER] + h]])
                cost += f[a[o.ADDED] + row * a[o.VIEW_MOST] + a[a[o.ORDER] + h]]
            cost += (
                f[a[o.FIXED_COST] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + link]
                + f[a[o.SLOPE] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + link] * lost
            )
            if cost < best:
                best = cost
                for h in range(n):
                    a[a[o.TRIAL] + h] = a[a[o.ORDER] + h]
    return best


@jit
def shares_index(a: Ints, f: Floats, each: int, g: int) -> bool:
    """Has one of the GPUs chosen on the first node the same index?"""
    for h in range(each):
        if a[a[o.INDEX] + a[a[o.VIEW] + a[a[o.TRIAL] + h]]] == a[a[o.INDEX] + g]:
            return True
    return False


@jit
def over_some_nodes(a: Ints, f: Floats, row: int, j: int, nn: int) -> float:
    """Cost of a place for a gang on several nodes in view with the same number on each, left in ``trial``."""
    n, best = a[a[o.SIZE_GPUS] + j], NEVER
    for parts in range(2, min(nn, a[a[o.MAX_NODES] + j]) + 1):
        if n % parts or (a[a[o.PER_NODE] + j] and a[a[o.PER_NODE] + j] * parts != n):
            continue
        each, m, used, lost, cost = n // parts, -1, 0, 0.0, 0.0
        for i in range(nn):
            v = a[a[o.NODE_VIEW] + i]
            if used == parts or not fits(a, f, j, v, each):
                continue
            found = 0
            for h in range(a[a[o.NODE_AT] + v], a[a[o.NODE_AT] + v + 1]):
                g = a[a[o.NODE_GPU] + h]
                x = a[a[o.AT] + g]
                if x < 0 or not a[a[o.OK] + row * a[o.VIEW_MOST] + x] or (m >= 0 and a[a[o.KIND] + g] != m):
                    continue
                alike = found == 0 or a[a[o.KIND] + g] == a[a[o.KIND] + a[a[o.VIEW] + a[a[o.ORDER]]]]
                if alike and (not a[o.SAME_INDEX] or used == 0 or shares_index(a, f, each, g)):
                    a[a[o.ORDER] + found] = x
                    found += 1
            if found < each:
                continue
            m = a[a[o.KIND] + a[a[o.VIEW] + a[a[o.ORDER] + 0]]]
            cheapest(a, f, row, each, found, f[a[o.SLOPE] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + 2] / n)
            for h in range(each):
                x = a[a[o.ORDER] + h]
                a[a[o.TRIAL] + used * each + h] = x
                lost = max(lost, f[a[o.LOST] + row * a[o.VIEW_MOST] + x])
                cost += f[a[o.ADDED] + row * a[o.VIEW_MOST] + x]
            used += 1
        if used == parts:
            cost += (
                f[a[o.FIXED_COST] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + 2]
                + f[a[o.SLOPE] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + 2] * lost
            )
            return min(best, cost)
    return best


@jit
def single(a: Ints, f: Floats, row: int, j: int, nn: int, w: int) -> float:
    """Cost of the best GPU in view for a job of one, left in ``trial``."""
    best, room = NEVER, 0
    for i in range(nn):
        if fits(a, f, j, a[a[o.NODE_VIEW] + i], 1):
            room |= 1 << i
    if room == 0:
        return best
    for x in range(w):
        if a[a[o.OK] + row * a[o.VIEW_MOST] + x] and room >> a[a[o.WHERE] + x] & 1:
            m = a[a[o.KIND] + a[a[o.VIEW] + x]]
            cost = (
                f[a[o.FIXED_COST] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + 0]
                + f[a[o.SLOPE] + (a[a[o.ROW] + j] * a[o.KINDS] + m) * 3 + 0]
                * f[a[o.LOST] + row * a[o.VIEW_MOST] + x]
                + f[a[o.ADDED] + row * a[o.VIEW_MOST] + x]
            )
            if cost < best:
                best, a[a[o.TRIAL] + 0] = cost, x
    return best


@jit
def one_group(a: Ints, f: Floats, n: int) -> bool:
    """Are the GPUs of ``trial`` in one link group?"""
    first = a[a[o.LINK] + a[a[o.VIEW] + a[a[o.TRIAL] + 0]]]
    for h in range(1, n):
        if a[a[o.LINK] + a[a[o.VIEW] + a[a[o.TRIAL] + h]]] != first:
            return False
    return first >= 0


@jit
def place_for(a: Ints, f: Floats, row: int, j: int, nn: int, w: int) -> float:
    """Cost of the best place in view, left in ``trial``; its end counts too."""
    n = a[a[o.SIZE_GPUS] + j]
    if n == 1:
        cost, link = single(a, f, row, j, nn, w), 0
    else:
        cost = NEVER
        if a[a[o.PER_NODE] + j] == 0 or a[a[o.PER_NODE] + j] == n:
            cost = on_one_node(a, f, row, j, nn)
        link = 1
        if cost >= NEVER and a[a[o.MAX_NODES] + j] > 1 and nn > 1:
            cost, link = over_some_nodes(a, f, row, j, nn), 2
    if cost < NEVER and a[o.SPAN_COST] and a[a[o.WORK] + j] >= 0:
        lost = 0.0
        for h in range(n):
            lost = max(lost, f[a[o.LOST] + row * a[o.VIEW_MOST] + a[a[o.TRIAL] + h]])
        m = a[a[o.KIND] + a[a[o.VIEW] + a[a[o.TRIAL] + 0]]]
        if n > 1 and link == 1 and one_group(a, f, n):
            link = 0
        cost += late(
            a, f, j, m, int(1000.0 / (1.0 - lost) + 0.5), a[a[o.FACTOR] + a[a[o.ROW] + j] * 3 + link]
        )
    return cost
