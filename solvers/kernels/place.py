"""Putting a job where it is told, taking it away, and whether a GPU may have it: the program's rules on flat arrays.

``put`` and ``take`` keep everything in ``Live`` up to date, the cost of every job to the last integer. They are the
only functions that change a plan. An end after ``o.LAST`` is charged for every tick, job by job; with one such job that is
what the makespan term charges, and with several it is more.
"""

from __future__ import annotations

from solvers.kernels import layout as o
from solvers.kernels.jit import Floats, Ints, jit

NO_LIMIT = 2**40
#: Products up to here are exact.
EXACT = 2**62


@jit
def draw(a: Ints) -> float:
    """A number from 0 to 1 (two multiplicative generators combined; L'Ecuyer, CACM 1988)."""
    one = a[o.RANDOM] * 40014 % 2147483563
    two = a[o.RANDOM + 1] * 40692 % 2147483399
    a[o.RANDOM], a[o.RANDOM + 1] = one, two
    return ((one - two) % 2147483562) / 2147483562.0


@jit
def below(a: Ints, n: int) -> int:
    """A whole number from 0 to n - 1."""
    return min(n - 1, int(draw(a) * n))


@jit
def ask(a: Ints, state: int, kind_of_job: int) -> None:
    """Note a state that has not been built."""
    at = a[o.ASKED]
    if at < o.REQUESTS:
        a[a[o.ASKED_FOR] + 2 * at + 0], a[a[o.ASKED_FOR] + 2 * at + 1] = state, kind_of_job
        a[o.ASKED] = at + 1


@jit
def rate(a: Ints, s: int, j: int) -> int:
    """What a job gets done in a second in a state that has it, in billionths, as the gate counts it."""
    return 1000000000 // max(1, a[a[o.SLOW] + s * a[o.TYPES] + a[a[o.TYPE] + j]])


@jit
def late(a: Ints, f: Floats, j: int, m: int, s: int, k: int) -> int:
    """What a placed job's end costs beyond the makespan that is granted."""
    work, v = a[a[o.WORK] + j], a[a[o.SPEED] + a[a[o.ROW] + j] * a[o.KINDS] + m]
    if a[o.SPAN_COST] == 0 or work < 0 or v <= 0:
        return 0
    if work <= EXACT // (s * k):
        over = -(-work * s * k // (v * 1000000)) - a[o.LAST]
    else:  # where slowdowns are absurd
        over = int(min(1e12, float(work) * s * k / (float(v) * 1e6))) - a[o.LAST]
    return max(0, over) * a[o.SPAN_COST]


@jit
def deferral(a: Ints, f: Floats, j: int) -> int:
    """What an unplaced job costs."""
    cost = a[a[o.WAIT] + j]
    if a[a[o.HOME_AT] + j + 1] > a[a[o.HOME_AT] + j]:
        cost += a[a[o.MOVE] + j]
    if a[o.SPAN_COST] and a[a[o.DEFERRED_END] + j] > a[o.LAST]:
        cost += (a[a[o.DEFERRED_END] + j] - a[o.LAST]) * a[o.SPAN_COST]
    return cost


@jit
def at_home(a: Ints, f: Floats, j: int) -> bool:
    """Is a placed running job where it runs? False for queued jobs."""
    first = a[a[o.HOME_AT] + j]
    if a[a[o.HOME_AT] + j + 1] == first:
        return False
    at = a[a[o.SPOT_AT] + j]
    for i in range(a[a[o.SIZE_GPUS] + j]):
        if a[a[o.SPOT] + at + i] != a[a[o.HOME] + first + i]:
            return False
    return True


@jit
def price(a: Ints, f: Floats, j: int, m: int, s: int, link: int) -> int:
    """A placed job's own terms, as the referee counts them, and its lateness."""
    v, k = a[a[o.SPEED] + a[a[o.ROW] + j] * a[o.KINDS] + m], a[a[o.FACTOR] + a[a[o.ROW] + j] * 3 + link]
    beside = 1000000 * v // s
    linked = v * 1000000000 // (s * k)
    cost = (1000000 - 1000 * v) * a[a[o.UNIT] + a[a[o.ROW] + j] * 3 + 0] // 1000000
    cost += (1000 * v - beside) * a[a[o.UNIT] + a[a[o.ROW] + j] * 3 + 1] // 1000000
    cost += (beside - linked) * a[a[o.UNIT] + a[a[o.ROW] + j] * 3 + 2] // 1000000
    return cost + late(a, f, j, m, s, k)


@jit
def reprice(a: Ints, f: Floats, j: int) -> None:
    """Bring the cost of a placed job up to date."""
    m = a[a[o.KIND] + a[a[o.SPOT] + a[a[o.SPOT_AT] + j]]]
    cost = price(a, f, j, m, a[a[o.WORST] + j], a[a[o.LINKED] + j])
    if a[a[o.HOME_AT] + j + 1] > a[a[o.HOME_AT] + j] and not at_home(a, f, j):
        cost += a[a[o.MOVE] + j]
    a[o.TOTAL] += cost - a[a[o.COST] + j]
    a[a[o.COST] + j] = cost


@jit
def worst_of(a: Ints, f: Floats, j: int) -> int:
    """The slowdown of a placed job where it is slowest."""
    worst = 1000
    for i in range(a[a[o.SPOT_AT] + j], a[a[o.SPOT_AT] + j] + a[a[o.SIZE_GPUS] + j]):
        worst = max(
            worst, int(a[a[o.SLOW] + (a[a[o.STATE] + a[a[o.SPOT] + i]]) * a[o.TYPES] + a[a[o.TYPE] + j]])
        )
    return worst


@jit
def link_of(a: Ints, f: Floats, j: int) -> int:
    """0 within one link group, 1 within one node, else 2."""
    at, n = a[a[o.SPOT_AT] + j], a[a[o.SIZE_GPUS] + j]
    first = a[a[o.SPOT] + at]
    joined, same = a[a[o.LINK] + first] >= 0, True
    for i in range(at + 1, at + n):
        g = a[a[o.SPOT] + i]
        joined = joined and a[a[o.LINK] + g] == a[a[o.LINK] + first]
        same = same and a[a[o.NODE] + g] == a[a[o.NODE] + first]
    if n <= 1 or joined:
        return 0
    return 1 if same else 2


@jit
def use_node(a: Ints, f: Floats, j: int, v: int, count: int, sign: int) -> None:
    """A job's part of a node's cores and memory: by GPUs and rounded up, or whole."""
    n = max(1, a[a[o.SIZE_GPUS] + j])
    a[a[o.CPU_USED] + v] += sign * (-(-a[a[o.CPU] + j] * count // n))
    a[a[o.HOST_USED] + v] += sign * (-(-a[a[o.HOST] + j] * count // n))
    a[a[o.NODE_JOBS] + v] += sign
    a[a[o.LONERS] + v] += sign * a[a[o.NODE_ALONE] + j]


@jit
def over_nodes(a: Ints, f: Floats, j: int, sign: int) -> None:
    """The same on every node of a spot; its GPUs are ascending, but a node's need not be in a row."""
    at, n = a[a[o.SPOT_AT] + j], a[a[o.SIZE_GPUS] + j]
    for i in range(at, at + n):
        v = a[a[o.NODE] + a[a[o.SPOT] + i]]
        count, first = 0, True
        for h in range(at, at + n):
            if a[a[o.NODE] + a[a[o.SPOT] + h]] == v:
                if h < i:
                    first = False
                    break
                count += 1
        if first:
            use_node(a, f, j, v, count, sign)


@jit
def after(a: Ints, f: Floats, g: int, skip: int) -> int:
    """The content of a GPU without one tenant, by walking up from nothing."""
    s = a[a[o.ROOT] + a[a[o.KIND] + g]]
    for i in range(a[a[o.TENANTS] + g]):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        if b != skip:
            s = a[a[o.STEP] + s * a[o.TYPES] + a[a[o.TYPE] + b]]
    return s


@jit
def settle(a: Ints, f: Floats, g: int) -> None:
    """Slowdowns and costs of a GPU's tenants after one came or went."""
    for i in range(a[a[o.TENANTS] + g]):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        worst = worst_of(a, f, b)
        if worst != a[a[o.WORST] + b]:
            a[a[o.WORST] + b] = worst
            reprice(a, f, b)


@jit
def window_cap(a: Ints, f: Floats, j: int) -> int:
    """The largest slowdown with which a newcomer ends before every reservation on its GPUs."""
    cap = NO_LIMIT
    home = at_home(a, f, j)
    for i in range(a[a[o.SPOT_AT] + j], a[a[o.SPOT_AT] + j] + a[a[o.SIZE_GPUS] + j]):
        g = a[a[o.SPOT] + i]
        if a[a[o.UNTIL] + g] < 0 or a[a[o.HOLDER] + g] == j or home:
            continue
        if a[a[o.P90] + j] < 0:
            return 0
        pace = a[a[o.P90] + j] * a[a[o.FACTOR] + a[a[o.ROW] + j] * 3 + a[a[o.LINKED] + j]]
        if pace > 0:
            cap = min(
                cap,
                a[a[o.UNTIL] + g]
                * 1000
                * a[a[o.SPEED] + a[a[o.ROW] + j] * a[o.KINDS] + a[a[o.KIND] + g]]
                // pace,
            )
    return cap


@jit
def put(a: Ints, f: Floats, j: int) -> None:
    """Place a job on the GPUs (ascending) that are written into its part of ``spot``."""
    at, n = a[a[o.SPOT_AT] + j], a[a[o.SIZE_GPUS] + j]
    a[a[o.PLACED] + j] = 1
    a[o.TOTAL] -= a[a[o.COST] + j]
    a[a[o.COST] + j] = 0
    for i in range(a[a[o.BUDGET_AT] + j], a[a[o.BUDGET_AT] + j + 1]):
        a[a[o.ROOM] + a[a[o.BUDGET] + i]] -= a[a[o.AMOUNT] + i]
    if n == 0:
        use_node(a, f, j, a[a[o.SPOT] + at], 1, 1)
        k = a[a[o.FACTOR] + a[a[o.ROW] + j] * 3 + 0]
        a[a[o.COST] + j] = (1000000 - 1000000000 // k) * a[a[o.UNIT] + a[a[o.ROW] + j] * 3 + 2] // 1000000
        if a[a[o.WORK] + j] >= 0:
            a[a[o.COST] + j] += max(0, -(-a[a[o.WORK] + j] * k // 1000000) - a[o.LAST]) * a[o.SPAN_COST]
        a[o.TOTAL] += a[a[o.COST] + j]
        return
    if at_home(a, f, j):
        a[o.MOVED] -= 1
    a[a[o.LINKED] + j] = link_of(a, f, j)
    for i in range(at, at + n):
        g = a[a[o.SPOT] + i]
        m = a[a[o.KIND] + g]
        if a[a[o.TENANTS] + g] == 0:
            a[o.TOTAL] += a[a[o.OPEN_COST] + g]
            v = a[a[o.NODE] + g]
            if a[a[o.NODE_GPUS] + v] == 0:
                a[o.TOTAL] += a[a[o.USED_COST] + v]
            a[a[o.NODE_GPUS] + v] += 1
        a[a[o.TENANT] + g * a[o.WIDTH] + a[a[o.TENANTS] + g]] = j
        a[a[o.TENANTS] + g] += 1
        a[a[o.STATE] + g] = a[a[o.STEP] + (a[a[o.STATE] + g]) * a[o.TYPES] + a[a[o.TYPE] + j]]
        a[a[o.MEMORY_USED] + g] += a[a[o.NEED] + a[a[o.ROW] + j] * a[o.KINDS] + m]
        a[a[o.SHARES_USED] + g] += a[a[o.SHARE] + a[a[o.ROW] + j] * a[o.KINDS] + m]
    over_nodes(a, f, j, 1)
    a[a[o.LIMIT] + j] = window_cap(a, f, j)
    a[a[o.WORST] + j] = worst_of(a, f, j)
    reprice(a, f, j)
    for i in range(at, at + n):
        settle(a, f, a[a[o.SPOT] + i])


@jit
def take(a: Ints, f: Floats, j: int) -> None:
    """Take a placed job away; its part of ``spot`` keeps where it was."""
    at, n = a[a[o.SPOT_AT] + j], a[a[o.SIZE_GPUS] + j]
    if at_home(a, f, j):
        a[o.MOVED] += 1
    a[a[o.PLACED] + j] = 0
    c = a[a[o.CLASS] + j]
    if c >= 0:
        a[a[o.FIRST] + c] = min(a[a[o.FIRST] + c], a[a[o.RANK] + j])
    cost = deferral(a, f, j)
    a[o.TOTAL] += cost - a[a[o.COST] + j]
    a[a[o.COST] + j] = cost
    for i in range(a[a[o.BUDGET_AT] + j], a[a[o.BUDGET_AT] + j + 1]):
        a[a[o.ROOM] + a[a[o.BUDGET] + i]] += a[a[o.AMOUNT] + i]
    for i in range(at, at + n):
        g = a[a[o.SPOT] + i]
        m = a[a[o.KIND] + g]
        a[a[o.STATE] + g] = after(a, f, g, j)
        last = a[a[o.TENANTS] + g] - 1
        for h in range(last):
            if a[a[o.TENANT] + g * a[o.WIDTH] + h] == j:
                a[a[o.TENANT] + g * a[o.WIDTH] + h] = a[a[o.TENANT] + g * a[o.WIDTH] + last]
        a[a[o.TENANT] + g * a[o.WIDTH] + last] = -1
        a[a[o.TENANTS] + g] = last
        a[a[o.MEMORY_USED] + g] -= a[a[o.NEED] + a[a[o.ROW] + j] * a[o.KINDS] + m]
        a[a[o.SHARES_USED] + g] -= a[a[o.SHARE] + a[a[o.ROW] + j] * a[o.KINDS] + m]
        if last == 0:
            a[o.TOTAL] -= a[a[o.OPEN_COST] + g]
            v = a[a[o.NODE] + g]
            a[a[o.NODE_GPUS] + v] -= 1
            if a[a[o.NODE_GPUS] + v] == 0:
                a[o.TOTAL] -= a[a[o.USED_COST] + v]
    over_nodes(a, f, j, -1)
    a[a[o.WORST] + j] = 1000
    a[a[o.LIMIT] + j] = NO_LIMIT
    for i in range(at, at + n):
        settle(a, f, a[a[o.SPOT] + i])


@jit
def hates(a: Ints, f: Floats, g: int, j: int) -> bool:
    """Is somebody on the GPU that the job must never share with?"""
    for i in range(a[a[o.NEVER_AT] + j], a[a[o.NEVER_AT] + j + 1]):
        for h in range(a[a[o.TENANTS] + g]):
            if a[a[o.TENANT] + g * a[o.WIDTH] + h] == a[a[o.NEVER_WITH] + i]:
                return True
    return False


@jit
def rest(a: Ints, f: Floats, g: int, skip: int) -> int:
    """What a GPU's tenants get done without one of them."""
    s, progress = after(a, f, g, skip), 0
    for i in range(a[a[o.TENANTS] + g]):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        if b != skip:
            progress += a[a[o.SIZE] + b] * rate(a, s, b)
    return progress


@jit
def holds(a: Ints, f: Floats, g: int) -> bool:
    """Is every rule about one GPU kept? They bind only if a newcomer is there; leaving can break them too."""
    count, s, m = a[a[o.TENANTS] + g], a[a[o.STATE] + g], a[a[o.KIND] + g]
    entered, progress, largest = False, 0, 0
    for i in range(count):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        entered = entered or not at_home(a, f, b)
        progress += a[a[o.SIZE] + b] * rate(a, s, b)
        largest = max(largest, a[a[o.SIZE] + b])
    if not entered:
        return True
    margin = a[a[o.MARGIN] + g] if count > 1 else 0
    if (
        count > a[a[o.PLACES] + g]
        or a[a[o.MEMORY_USED] + g] > a[a[o.MEMORY] + g] - margin
        or a[a[o.SHARES_USED] + g] > a[a[o.SHARES] + g]
    ):
        return False
    for i in range(count):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        if (
            a[a[o.SLOW] + s * a[o.TYPES] + a[a[o.TYPE] + b]] > a[a[o.CAP] + a[a[o.ROW] + b] * a[o.KINDS] + m]
            or a[a[o.WORST] + b] > a[a[o.LIMIT] + b]
        ):
            return False
        if a[a[o.ALONE] + b] and (count > 1 or (a[a[o.OUTSIDE] + g] and not at_home(a, f, b))):
            return False
        if a[a[o.GROUP] + b] != a[a[o.GROUP] + a[a[o.TENANT] + g * a[o.WIDTH] + 0]] or hates(a, f, g, b):
            return False
    if count < 2 or a[o.GATE] == 0:
        return True
    if progress <= 1000000 * largest:
        return False
    for i in range(count):
        b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
        if not at_home(a, f, b) and rest(a, f, g, b) > progress:
            return False
    return True


@jit
def node_holds(a: Ints, f: Floats, v: int) -> bool:
    """Is every rule about one node kept, given that a newcomer uses it?"""
    if a[a[o.CPU_USED] + v] > a[a[o.CPU_CAP] + v] or a[a[o.HOST_USED] + v] > a[a[o.HOST_CAP] + v]:
        return False
    return a[a[o.LONERS] + v] == 0 or a[a[o.NODE_JOBS] + v] == 1
