"""Who counts as alike beside others, and which GPUs offer the same: a Problem sorted for bounds by patterns.

Jobs become *rows* (one price each): jobs that differ only in what waiting costs them, and running jobs that may leave their
home apart from the queue. What runs already becomes *stays* (a running job as a tenant of one of its GPUs). GPUs become
*offerings* (GPUs that no rule tells apart), and nodes become *pools* (nodes whose cores and memory are priced together).
Everything here looks at one Problem once; nothing depends on prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.facts import Facts, link_class
from solvers.problem import NETWORK, NVLINK, PCIE, Problem

#: Pools of empty nodes kept apart; beyond this many, nodes that differ in cores and memory are priced together.
MAX_POOLS = 24
#: Optional residents on one GPU whose every subset is looked at.
MAX_LEAVERS = 3


@dataclass(frozen=True)
class Rows:
    """What gets a price: jobs with GPUs that may be newcomers or may leave. Shapes (R,) unless said."""

    of: np.ndarray  # (J,) row of each job, -1 for a job without GPUs and one that can only stay
    first: np.ndarray  # a job of the row, for all facts that its jobs share
    gpus: np.ndarray
    runs: np.ndarray  # bool: they run, and pay for a move
    goes: np.ndarray  # bool: they may be newcomers
    may_wait: np.ndarray  # bool
    jobs: np.ndarray  # number of jobs
    shortest_s: np.ndarray  # the least remaining p90 that is known, -1 if none is

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Stays:
    """Running jobs as tenants of one GPU at home, alike in all that matters there. Shapes (S,)."""

    of: np.ndarray  # (J,) stay of each job, -1 if it has no GPU at home
    first: np.ndarray  # a job of the stay
    row: np.ndarray  # its price, -1 if it can only stay
    gpus: np.ndarray  # GPUs at home
    fixed: np.ndarray  # cost per GPU without neighbours
    slope: np.ndarray  # cost per GPU per lost share

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Offering:
    """A GPU as all rules but the host's see it."""

    kind: int
    memory_mib: int
    margin_mib: int
    share: int
    tenants: int  # at most
    shut: bool  # no newcomer
    outside: bool  # used by processes nobody manages
    until_s: int
    holder: int
    opening: float  # cost of having a tenant, with the node's part
    on_node: int  # GPUs of this kind on the node
    linked: int  # the most GPUs of a link group there
    signature: int  # which node sets hold the node
    residents: tuple[int, ...]  # stays

    @property
    def stock(self) -> tuple[int, ...]:
        """What decides which jobs may come, and at what cost."""
        return (
            self.kind,
            self.on_node,
            self.linked,
            self.signature,
            self.until_s,
            self.holder,
            self.outside,
        )


@dataclass(frozen=True)
class Pool:
    """Nodes whose cores and memory have the same prices.

    Either ``nodes`` nodes that are alike (``counts`` and the room are one node's), or many that are not (then ``nodes`` is 1
    and the room is their sum). ``whole``: a node's GPUs are all of one offering and empty, so gangs may fill it.
    """

    nodes: int
    offerings: tuple[int, ...]
    counts: tuple[int, ...]
    cpu_milli: float
    memory_mib: float
    whole: bool


@dataclass(frozen=True, eq=False)
class Kinship:
    """A Problem's rows, stays, offerings and pools."""

    facts: Facts
    rows: Rows
    stays: Stays
    offerings: tuple[Offering, ...]
    of: np.ndarray  # (G,) offering of each GPU
    pools: tuple[Pool, ...]
    sets: np.ndarray  # (signatures, Q) which node sets hold nodes of a signature
    widths: np.ndarray  # (M, Q, n) open GPUs of a kind on the nodes of a node set that have the most


def kinship(facts: Facts) -> Kinship:
    """Sort the jobs, GPUs and nodes of a Problem."""
    rows = _rows(facts)
    stays = _stays(facts, rows)
    signature, sets = _signatures(facts.problem)
    offer_of, offerings = _offerings(facts, stays, signature)
    pools = _pools(facts, offer_of, offerings)
    return Kinship(facts, rows, stays, offerings, offer_of, pools, sets, _widest(facts, rows))


# ---- jobs ----


def _rows(facts: Facts) -> Rows:
    p = facts.problem
    runs = np.array([home is not None for home in p.home], bool).reshape(p.jobs)
    free = p.max_moves > 0
    leaves = runs & free & (np.asarray(p.movable, bool) | np.asarray(p.preemptible, bool))
    priced = (p.job_gpus > 0) & (~runs | leaves)
    key = np.array(facts.classes, np.int64).reshape(p.jobs) * 8 + runs * (4 + 2 * p.movable + p.preemptible)
    _, first, row = np.unique(key[priced], return_index=True, return_inverse=True)
    of = np.full(p.jobs, -1)
    of[priced] = row
    jobs = np.flatnonzero(priced)
    first = jobs[first]
    known = np.where(p.remaining_p90_s < 0, np.iinfo(np.int64).max, p.remaining_p90_s)[priced]
    shortest = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(shortest, row, known)
    return Rows(
        of=of,
        first=first,
        gpus=p.job_gpus[first],
        runs=runs[first],
        goes=~runs[first] | np.asarray(p.movable, bool)[first],
        may_wait=~runs[first] | np.asarray(p.preemptible, bool)[first],
        jobs=np.bincount(row, minlength=len(first)),
        shortest_s=np.where(shortest == np.iinfo(np.int64).max, -1, shortest),
    )


def _stays(facts: Facts, rows: Rows) -> Stays:
    p = facts.problem
    of = np.full(p.jobs, -1)
    known: dict[tuple[int, ...], int] = {}
    kept: list[tuple[float, ...]] = []
    for j, home in enumerate(p.home):
        if home is None or not facts.job_gpus[j]:
            continue
        kind, link = facts.gpu_kind[home[0]], link_class(p, home)
        key = (facts.classes[j], kind, link, len(home), int(rows.of[j]))
        if key not in known:
            known[key] = len(kept)
            speed = facts.speed_milli[j][kind]
            fixed = float(facts.fixed_cost[j, kind, link]) if speed > 0 else float(facts.unit_speed[j])
            slope = float(facts.slope[j, kind, link]) if speed > 0 else 0.0
            # A job that gains by losing is taken to lose everything.
            fixed, slope = (fixed, slope) if slope >= 0 else (fixed + slope, 0.0)
            kept.append((j, rows.of[j], len(home), fixed / len(home), slope / len(home)))
        of[j] = known[key]
    table = np.array(kept, float).reshape(-1, 5)
    first, row, gpus = table[:, :3].astype(np.int64).T
    return Stays(of, first, row, gpus, table[:, 3], table[:, 4])


# ---- GPUs ----


def _signatures(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The signature of each node, and the node sets of each signature."""
    columns = np.ascontiguousarray(problem.node_sets.T)
    if not columns.size:
        return np.zeros(problem.nodes, np.int64), np.ones((1, max(1, problem.node_sets.shape[0])), bool)
    sets, signature = np.unique(columns, axis=0, return_inverse=True)
    return signature.reshape(problem.nodes), sets


def _offerings(facts: Facts, stays: Stays, signature: np.ndarray) -> tuple[np.ndarray, tuple[Offering, ...]]:
    """The offering of each GPU, and all of them."""
    p = facts.problem
    residents: list[list[int]] = [[] for _ in range(p.gpus)]
    for j, home in enumerate(p.home):
        for g in home or () if facts.job_gpus[j] else ():
            residents[g].append(int(stays.of[j]))
    shut = np.asarray(p.gpu_closed, bool) | np.asarray(p.node_closed, bool)[p.gpu_node]
    per_node = np.maximum(np.bincount(p.gpu_node, minlength=p.nodes), 1)
    part = np.maximum(p.node_used_cost, 0) / per_node
    opening = p.gpu_open_cost + part[p.gpu_node]
    on_node, linked = _widths(p, ~shut)
    columns = (
        p.gpu_kind,
        p.gpu_memory_mib,
        p.gpu_margin_mib,
        p.gpu_share,
        p.gpu_max_tenants,
        shut,
        np.asarray(p.gpu_shared_outside, bool),
        p.gpu_until_s,
        np.where(p.gpu_until_s >= 0, p.gpu_holder, -1),
        opening,
        on_node,
        linked,
        signature[p.gpu_node],
    )
    keys = zip(*(c.tolist() for c in columns), (tuple(sorted(r)) for r in residents), strict=True)
    known: dict[tuple[object, ...], int] = {}
    of = np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
    return of, tuple(Offering(*key) for key in known)  # type: ignore[arg-type]  # in the order of the fields


def _widths(problem: Problem, open_gpu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Open GPUs of the same kind on the node, and of the largest link group that one of them belongs to."""
    p = problem
    kinds = p.speed_milli.shape[1]
    where = p.gpu_node * kinds + p.gpu_kind
    cells = p.nodes * kinds
    on_node = np.bincount(where[open_gpu], minlength=cells)
    linked = open_gpu & (p.gpu_link >= 0)
    _, group, size = np.unique(p.gpu_link[linked], return_inverse=True, return_counts=True)
    largest = np.zeros(cells, np.int64)
    np.maximum.at(largest, where[linked], size[group.reshape(-1)])
    return on_node[where], largest[where]


def _widest(facts: Facts, rows: Rows) -> np.ndarray:
    p = facts.problem
    most = int(np.minimum(p.max_nodes[rows.first], rows.gpus).max(initial=1))
    widest = np.zeros((facts.kinds, p.node_sets.shape[0], most), np.int64)
    for kind in range(facts.kinds):
        mine = (p.gpu_kind == kind) & ~np.asarray(p.gpu_closed, bool)
        count = np.bincount(p.gpu_node[mine], minlength=p.nodes)
        ordered = -np.sort(-np.where(facts.open_nodes, count[None, :], 0), 1)[:, :most]
        widest[kind, :, : ordered.shape[1]] = ordered
    return widest


# ---- nodes ----


def _pools(facts: Facts, offer_of: np.ndarray, offerings: tuple[Offering, ...]) -> tuple[Pool, ...]:
    """Empty nodes that are alike, and all nodes of the same kinds on which something runs."""
    alike: dict[tuple[tuple[int, ...], float, float], int] = {}
    mixed: dict[object, list[tuple[tuple[int, ...], float, float]]] = {}
    room_of = _rooms(facts)
    for v, gpus in enumerate(facts.gpus_of):
        offers = tuple(sorted(offer_of[gpus].tolist()))
        if all(offerings[o].shut and not offerings[o].residents for o in offers):
            continue
        node = offers, room_of[v, 0], room_of[v, 1]
        if any(offerings[o].residents for o in offers):
            mixed.setdefault(tuple(sorted({offerings[o].kind for o in offers})), []).append(node)
        else:
            alike[node] = alike.get(node, 0) + 1
    if len(alike) > MAX_POOLS:
        for node, times in alike.items():
            mixed.setdefault(("empty", node[0]), []).extend([node] * times)
        alike.clear()
    pools = [_pool(offers, times, cpu, memory) for (offers, cpu, memory), times in alike.items()]
    for nodes in mixed.values():
        offers = tuple(o for node in nodes for o in node[0])
        pools.append(_pool(offers, 1, sum(n[1] for n in nodes), sum(n[2] for n in nodes), mixed=True))
    return tuple(pools)


def _pool(offers: tuple[int, ...], nodes: int, cpu: float, memory: float, mixed: bool = False) -> Pool:
    found, counts = np.unique(offers, return_counts=True)
    whole = len(found) == 1 and not mixed
    return Pool(nodes, tuple(found.tolist()), tuple(counts.tolist()), float(cpu), float(memory), whole)


def _rooms(facts: Facts) -> np.ndarray:
    """Cores and memory that tenants of a node's GPUs may hold together, shape (V, 2).

    What the node offers less what jobs without GPUs hold that cannot leave, or what runs there already if that is more.
    """
    p = facts.problem
    offered = np.stack([p.node_cpu_milli, p.node_memory_mib], 1)
    held, kept = np.zeros((p.nodes, 2)), np.zeros((p.nodes, 2))
    for j, home in enumerate(p.home):
        if home is None:
            continue
        n, demand = facts.job_gpus[j], np.array([facts.cpu_milli[j], facts.host_memory_mib[j]], float)
        if n:
            np.add.at(held, p.gpu_node[list(home)], demand / n)
        elif p.is_fixed(j) or p.max_moves == 0:
            kept[home[0]] += demand
    shut = np.asarray(p.node_closed, bool)[:, None]
    room: np.ndarray = np.maximum(np.where(shut, 0, offered - kept), held)
    return room


# ---- who may come where ----


@dataclass(frozen=True)
class Guests:
    """The rows that may be newcomers on a stock's GPUs. Shapes (g,) unless said."""

    row: np.ndarray
    whole: np.ndarray  # bool: they take all GPUs of their kind on a node
    fixed: np.ndarray  # (g, 3) cost per GPU and link without neighbours, inf where there is no such link
    slope: np.ndarray  # (g, 3) cost per GPU per lost share


def guests(kin: Kinship, offer: Offering) -> Guests:
    """Who may come on GPUs like these, by the rules for one job and the window."""
    p, facts, rows = kin.facts.problem, kin.facts, kin.rows
    job, n = rows.first, rows.gpus
    least, most = _spread(kin, offer)
    may = rows.goes & (p.speed_milli[job, offer.kind] > 0) & (least <= most)
    may &= kin.sets[offer.signature][p.node_set[job]]
    may &= ~(np.asarray(p.alone, bool)[job] & offer.outside)
    if offer.until_s >= 0:
        may &= _in_time(kin, offer)
    link = np.zeros((len(rows), 3), bool)
    link[:, NVLINK] = (n == 1) | (offer.linked >= n)
    link[:, PCIE] = (n > 1) & (most == n)
    link[:, NETWORK] = (n > 1) & (p.max_nodes[job] > 1) & (least < n)
    row = np.flatnonzero(may & link.any(1))
    slope = facts.slope[job[row], offer.kind]
    fixed = np.where(link[row], facts.fixed_cost[job[row], offer.kind], np.inf)
    fixed = fixed + np.minimum(slope, 0) + np.where(rows.runs[row], p.move_cost[job[row]], 0)[:, None]
    return Guests(
        row=row,
        whole=(least == offer.on_node)[row],
        fixed=fixed / n[row, None],
        slope=np.maximum(slope, 0) / n[row, None],
    )


def _spread(kin: Kinship, offer: Offering) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most GPUs that a job of each row may take on a node like the offering's."""
    p, rows = kin.facts.problem, kin.rows
    job, n = rows.first, rows.gpus
    nodes = np.minimum(p.max_nodes[job], n)
    widths = kin.widths[offer.kind][p.node_set[job]]
    together = np.cumsum(np.hstack([np.zeros((len(rows), 1), np.int64), widths]), 1)
    at = np.arange(len(rows))
    # What the other nodes hold at most: the widest of them, without this one.
    others = np.minimum(together[at, nodes - 1], together[at, nodes] - offer.on_node)
    most = np.minimum(n, offer.on_node)
    least = np.maximum(1, n - others)
    equal = p.equal_per_node or p.same_index
    for i in np.flatnonzero((p.gpus_per_node[job] > 0) | equal).tolist():
        wanted = int(p.gpus_per_node[job[i]])
        counts = [
            x
            for x in range(1, int(most[i]) + 1)
            if n[i] % x == 0 and n[i] // x <= nodes[i] and wanted in (0, x) and widths[i, n[i] // x - 1] >= x
        ]
        least[i], most[i] = (counts[0], counts[-1]) if counts else (1, 0)
    return least, most


def _in_time(kin: Kinship, offer: Offering) -> np.ndarray:
    """Rows of which a job holds the reservation or may end before it."""
    p, rows = kin.facts.problem, kin.rows
    speed = np.maximum(p.speed_milli[rows.first, offer.kind], 1)
    end = rows.shortest_s * (p.link_milli[rows.first].min(1) / speed)
    may: np.ndarray = (rows.shortest_s >= 0) & (end <= offer.until_s * (1 + 1e-9))
    if offer.holder >= 0 and offer.holder < p.jobs and rows.of[offer.holder] >= 0:
        may[rows.of[offer.holder]] = True
    return may
