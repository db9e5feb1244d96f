"""The nodes of a step of ruin and recreate: which they are, and bringing their GPUs into view.

A step looks at one to three nodes, or at as many as a gang is on. The first is drawn, half of the time as the one of three
that calls most for a change; the others are drawn, or of the same GPU kind where a gang over several nodes is in mind.
"""

from __future__ import annotations

from solvers.kernels import layout as o
from solvers.kernels.fill import top
from solvers.kernels.jit import Floats, Ints, jit
from solvers.kernels.place import below, draw

#: How often three nodes are in view at once.
THREE = 0.08


@jit
def need(a: Ints, f: Floats, v: int, way: int, j: int) -> float:
    """How much a node calls for a change: idle cores, what its tenants lose, or how fast a waiting job would be there."""
    begin, end = a[a[o.NODE_AT] + v], a[a[o.NODE_AT] + v + 1]
    if way == 0:
        return (a[a[o.CPU_CAP] + v] - a[a[o.CPU_USED] + v]) / (a[a[o.CPU_CAP] + v] + 1.0)
    if way == 2:
        return 1.0 * a[
            a[o.SPEED] + a[a[o.ROW] + j] * a[o.KINDS] + a[a[o.KIND] + a[a[o.NODE_GPU] + begin]]
        ] + draw(a)
    lost = 0.0
    for h in range(begin, end):
        g = a[a[o.NODE_GPU] + h]
        for i in range(a[a[o.TENANTS] + g]):
            b = a[a[o.TENANT] + g * a[o.WIDTH] + i]
            lost += a[a[o.COST] + b] / a[a[o.SIZE_GPUS] + b]
    return lost / (end - begin)


@jit
def costly(a: Ints, f: Floats) -> int:
    """Of some drawn classes, the waiting job that costs most for each of its GPUs; -1 if none was found."""
    who, most = -1, 0.0
    for _ in range(4):
        j = top(a, f, below(a, a[o.CLASS_COUNT])) if a[o.CLASS_COUNT] else -1
        if j >= 0 and a[a[o.COST] + j] / a[a[o.SIZE_GPUS] + j] > most:
            who, most = j, a[a[o.COST] + j] / a[a[o.SIZE_GPUS] + j]
    return who


@jit
def neediest(a: Ints, f: Floats) -> int:
    """A drawn node, half of the time the one of three that calls most for a change."""
    first = a[a[o.POOL] + below(a, a[o.POOL_COUNT])]
    if draw(a) < 0.5:
        return first
    way = below(a, 3)
    j = costly(a, f) if way == 2 else -1
    if way == 2 and j < 0:
        return first
    most = need(a, f, first, way, j)
    for _ in range(2):
        v = a[a[o.POOL] + below(a, a[o.POOL_COUNT])]
        asked = need(a, f, v, way, j)
        if asked > most:
            first, most = v, asked
    return first


@jit
def add_node(a: Ints, f: Floats, u: int, nn: int) -> int:
    """Add a node to the view unless it is there; how many are there then."""
    for i in range(nn):
        if a[a[o.NODE_VIEW] + i] == u:
            return nn
    a[a[o.NODE_VIEW] + nn] = u
    return nn + 1


@jit
def nodes_of(a: Ints, f: Floats, j: int, nn: int) -> int:
    """Add the other nodes of a gang, as far as there is room for them."""
    for h in range(a[a[o.SPOT_AT] + j], a[a[o.SPOT_AT] + j] + a[a[o.SIZE_GPUS] + j]):
        u = a[a[o.NODE] + a[a[o.SPOT] + h]]
        if nn < o.NODES_IN_VIEW and a[a[o.MINE] + u]:
            nn = add_node(a, f, u, nn)
    return nn


@jit
def alike(a: Ints, f: Floats, wanted: int) -> int:
    """Add drawn nodes of the same GPU kind."""
    v, nn = a[a[o.NODE_VIEW] + 0], 1
    if a[a[o.NODE_AT] + v + 1] == a[a[o.NODE_AT] + v]:
        return nn
    kind = a[a[o.KIND] + a[a[o.NODE_GPU] + a[a[o.NODE_AT] + v]]]
    for _ in range(60):
        u = a[a[o.POOL] + below(a, a[o.POOL_COUNT])]
        if (
            a[a[o.NODE_AT] + u + 1] > a[a[o.NODE_AT] + u]
            and a[a[o.KIND] + a[a[o.NODE_GPU] + a[a[o.NODE_AT] + u]]] == kind
        ):
            nn = add_node(a, f, u, nn)
            if nn == wanted:
                break
    return nn


@jit
def pick(a: Ints, f: Floats, wide: float) -> int:
    """The nodes of a step: one, two, or those of a gang over several, at random or with a wide gang in mind."""
    a[a[o.NODE_VIEW] + 0] = neediest(a, f)
    nn = 1
    v = a[a[o.NODE_VIEW] + 0]
    if draw(a) < wide:
        for h in range(a[a[o.NODE_AT] + v], a[a[o.NODE_AT] + v + 1]):
            g = a[a[o.NODE_GPU] + h]
            for i in range(a[a[o.TENANTS] + g]):
                j = a[a[o.TENANT] + g * a[o.WIDTH] + i]
                if a[a[o.MAX_NODES] + j] > 1 and a[a[o.SIZE_GPUS] + j] > 1 and nn == 1:
                    nn = nodes_of(a, f, j, nn)
        if nn == 1:
            nn = alike(a, f, 2)
    else:
        more = draw(a)
        for _ in range(2 if more < THREE else int(more < 0.6)):
            nn = add_node(a, f, a[a[o.POOL] + below(a, a[o.POOL_COUNT])], nn)
    return nn


@jit
def see(a: Ints, f: Floats, nn: int) -> int:
    """Bring the GPUs of ``nodes`` into view; how many there are."""
    w = 0
    for i in range(nn):
        v = a[a[o.NODE_VIEW] + i]
        for h in range(a[a[o.NODE_AT] + v], a[a[o.NODE_AT] + v + 1]):
            g = a[a[o.NODE_GPU] + h]
            if w < a[o.VIEW_MOST]:
                a[a[o.VIEW] + w], a[a[o.WHERE] + w], a[a[o.AT] + g] = g, i, w
                w += 1
    return w


@jit
def forget(a: Ints, f: Floats, w: int) -> None:
    """Nothing is in view any more."""
    for x in range(w):
        a[a[o.AT] + a[a[o.VIEW] + x]] = -1
