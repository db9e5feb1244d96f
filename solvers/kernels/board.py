"""The two arrays of the kernels for one Problem, written from its tables, and the way back to a plan."""

from __future__ import annotations

import copy

import numpy as np

from solvers.contents import Contents
from solvers.facts import Facts
from solvers.kernels import layout as o
from solvers.kernels import ruin, tables
from solvers.kernels.fill import affords
from solvers.kernels.layout import FLOATS, HEADER, PLACE
from solvers.kernels.place import EXACT, put
from solvers.problem import NVLINK, PPM, Placed, Spot

#: So many kins compete in a step, drawn between the two.
KINS_LEAST, KINS_DRAWN = 6, 25

#: Jobs placed one by one before a sweep, because the makespan waits for them.
URGENT = 1000


class Board:
    """A plan under way in the form that the kernels change in place.

    Parameters
    ----------
    last
        The makespan (ticks) up to which an end costs nothing; no plan's is shorter.

    Attributes
    ----------
    mine : ndarray, shape (J,), bool
        The jobs that a part may place or take, see ``split``.
    """

    def __init__(self, facts: Facts, contents: Contents, last: int, seed: int = 0) -> None:
        self.facts, self.contents = facts, contents
        self.mine = np.ones(facts.jobs, bool)
        made = {
            **tables.cluster_tables(facts),
            **tables.job_tables(facts),
            **tables.class_tables(facts, last),
        }
        made |= tables.content_tables(contents)
        made |= tables.plan_tables(facts, made, last)
        made |= tables.scratch_tables(made)
        self._length = {name: int(np.asarray(table).size) for name, table in made.items()}
        self.a, self.f = _written(made)
        self._scalars(made, last, seed)
        self._blank = self.a, self.f  # copied by whoever puts the first job on the board

    def again(self, placed: Placed, seed: int) -> Board:
        """A board of its own for another plan."""
        with self.contents.lock:
            self._renew()
            twin = copy.copy(self)
            twin.a, twin.f = (array.copy() for array in self._blank)
        twin.a[o.RANDOM] = 1 + (int(twin.a[o.RANDOM]) + 7919 * seed) % 2_000_000_000
        twin.load(placed)
        return twin

    def table(self, name: str) -> np.ndarray:
        """A table as a one-dimensional view that may be written to."""
        array = self.f if name in FLOATS else self.a
        begin = int(self.a[PLACE[name]])
        return array[begin : begin + self._length[name]]

    def load(self, placed: Placed) -> None:
        """Put every job where a plan says; nothing may be placed yet. ValueError as of ``Contents.hold``."""
        with self.contents.lock:
            self._renew(self.contents.hold(placed))
        if self.a is self._blank[0]:
            self.a, self.f = self.a.copy(), self.f.copy()
        spot, at = self.table("SPOT"), self.table("SPOT_AT").tolist()
        for j, where in enumerate(placed):
            if where is not None:
                spot[at[j] : at[j] + len(where)] = where
                put(self.a, self.f, j)
            if not self.facts.job_gpus[j] and where != self.facts.problem.home[j]:
                self._changed(j, where)

    def _changed(self, j: int, where: Spot | None) -> None:
        """What ``put`` does not know of a job without GPUs: that it came to a node, or was moved or preempted."""
        if where is not None:
            self.table("GUESTS")[where[0]] += 1
        if self.facts.problem.home[j] is not None:
            self.a[o.MOVED] += 1
            self.a[o.TOTAL] += self.facts.move_cost[j]
            self.table("COST")[j] += self.facts.move_cost[j]

    def placed(self) -> Placed:
        """The plan."""
        spots, at = self.table("SPOT").tolist(), self.table("SPOT_AT").tolist()
        return tuple(
            tuple(spots[at[j] : at[j + 1]]) if on else None
            for j, on in enumerate(self.table("PLACED").tolist())
        )

    @property
    def total(self) -> int:
        """The objective, but for ends after the granted makespan, which are charged one by one."""
        p = self.facts.problem
        return int(self.a[o.TOTAL]) + p.fragmentation_base + p.makespan_cost * int(self.a[o.LAST])

    @property
    def steps(self) -> int:
        """Steps of ruin and recreate so far."""
        return int(self.a[o.STEPS])

    @property
    def last(self) -> int:
        """The makespan that is granted, in ticks."""
        return int(self.a[o.LAST])

    def makespan(self) -> int:
        """The latest end, in ticks; no less than what is granted."""
        return max(self.last, int(self._ends().max(initial=0)))

    def objective(self) -> int:
        """The objective as the referee counts it, with the latest end charged once, and be it before the granted one."""
        p = self.facts.problem
        if not p.makespan_cost:
            return self.total
        ends = self._ends()
        late = int(np.maximum(0, ends - self.last).sum())
        return self.total + p.makespan_cost * (int(ends.max(initial=0)) - self.last - late)

    def _ends(self) -> np.ndarray:
        """The end of every job in ticks, shape (J,); 0 where it is not known."""
        p = self.facts.problem
        on = self.table("PLACED") > 0
        first = self.table("SPOT")[self.table("SPOT_AT")[:-1]]
        kind = p.gpu_kind[np.where(p.job_gpus > 0, first, 0)] if p.gpus else np.zeros(p.jobs, np.int64)
        speed = np.where(p.job_gpus > 0, p.speed_milli[np.arange(p.jobs), kind], 1000)
        link = p.link_milli[np.arange(p.jobs), self.table("LINKED")]
        pace, known = self.table("WORST") * link, (p.work >= 0) & (speed > 0)
        per = np.where(known, speed, 1000) * 1_000_000
        ends = np.where(
            p.work <= EXACT // pace, -(-p.work * pace // per), np.minimum(1e12, p.work * 1.0 * pace / per)
        )
        ends = np.where(on, np.where(known, ends, 0), np.maximum(p.deferred_end, 0))
        return ends.astype(np.int64)

    def improve(self, steps: int, wide: float) -> None:
        """So many steps of ruin and recreate, and the contents grown by what they asked for."""
        ruin.run(self.a, self.f, steps, wide)
        if self.a[o.ASKED]:
            self.grow()

    def improve_on(self, nodes: np.ndarray, steps: int, wide: float) -> None:
        """So many steps for each of some nodes, beginning with these alone (a gang's other nodes come along)."""
        if len(nodes):
            self.restrict(nodes)
            self.improve(steps * len(nodes), wide)
            self.restrict(self.pool)

    def sweep(self) -> None:
        """Fill node after node with what is worth most there, all kins competing: a quick first plan."""
        late = self.table("COST") - self.table("WAIT")
        jobs = np.flatnonzero((late > 0) & (self.table("CLASS") >= 0))
        ruin.urgent(self.a, self.f, jobs[np.argsort(-late[jobs], kind="stable")][:URGENT])
        drawn = self.a[o.KINS_LEAST], self.a[o.KINS_DRAWN]
        self.a[o.KINS_LEAST] = self.a[o.KINS_DRAWN] = self.a[o.KIN_MOST]
        ruin.sweep(self.a, self.f, 0.5)
        self.a[o.KINS_LEAST], self.a[o.KINS_DRAWN] = drawn
        if self.a[o.ASKED]:
            self.grow()

    def place_hostless(self) -> None:
        """Start queued jobs without GPUs where cores and memory are left, on nodes without GPUs first."""
        p, a, f = self.facts.problem, self.a, self.f
        waits = [j for j, home in enumerate(p.home) if home is None and not p.job_gpus[j]]
        gpus = np.bincount(p.gpu_node, minlength=p.nodes)
        spot, at = self.table("SPOT"), self.table("SPOT_AT")
        for j in sorted(waits, key=lambda j: (-int(p.wait_cost[j]), j)):
            if self.table("PLACED")[j] or not affords(a, f, j):
                continue
            room = p.node_cpu_milli - self.table("CPU_USED") - p.cpu_milli[j]
            fits = (room >= 0) & (self.table("HOST_USED") + p.host_memory_mib[j] <= p.node_memory_mib)
            fits &= self.facts.open_nodes[p.node_set[j]] & (self.table("LONERS") == 0)
            fits &= (self.table("NODE_JOBS") == 0) | (not p.node_alone[j])
            link, work = int(p.link_milli[j, NVLINK]), int(p.work[j])
            lost = (PPM - 10**9 // link) * int(p.unit_locality[j]) // PPM
            lost += p.makespan_cost * max(0, -(-work * link // PPM) - int(a[o.LAST]))
            if fits.any() and lost < self.table("COST")[j]:
                spot[at[j]] = v = int(np.lexsort((-room, gpus, ~fits))[0])
                self.table("GUESTS")[v] += 1
                put(a, f, j)

    def value(self, price: np.ndarray | None) -> None:
        """Set what taking a job away from the rest is worth, shape (J,), milli-GPU-seconds; None for nothing."""
        self.a[o.PRICED] = int(price is not None)
        if price is not None and self.a[o.CLASS_COUNT]:
            first = self.table("CLASS_JOB")[self.table("CLASS_AT")[:-1]]
            self.table("PRICE")[:] = np.nan_to_num(price[first])

    def split(self, parts: int, seed: int) -> list[Board]:
        """Copies that may be improved at the same time: each has its own nodes and its own part of those that wait.

        Jobs that draw on a budget, and running jobs, are only the first's to start or move.
        """
        rng = np.random.default_rng(seed)
        bundle = self._bundles()
        nodes = (rng.permutation(len(bundle)) % parts)[bundle]
        owner = rng.integers(0, parts, len(self.table("TYPE")))
        owner[np.diff(self.table("BUDGET_AT")) > 0] = 0
        placed = np.flatnonzero(self.table("PLACED") > 0)
        first = self.table("SPOT")[self.table("SPOT_AT")[placed]]
        on_gpus = self.table("SIZE_GPUS")[placed] > 0
        owner[placed[on_gpus]] = nodes[self.table("NODE")[first[on_gpus]]]
        return [self._copy(i, nodes == i, owner == i, seed + 7 * i) for i in range(parts)]

    def _bundles(self) -> np.ndarray:
        """A node for each node that stands for it and for those joined to it by gangs, shape (V,)."""
        head = np.arange(len(self.table("CPU_CAP")))
        at, spot, node = self.table("SPOT_AT"), self.table("SPOT"), self.table("NODE")
        for j in np.flatnonzero((self.table("PLACED") > 0) & (self.table("SIZE_GPUS") > 1)).tolist():
            on = np.unique(head[node[spot[at[j] : at[j + 1]]]])
            if len(on) > 1:
                head[np.isin(head, on)] = on[0]
        return head

    def _copy(self, part: int, nodes: np.ndarray, jobs: np.ndarray, seed: int) -> Board:
        twin = copy.copy(self)
        twin.a, twin.f, twin.mine = self.a.copy(), self.f.copy(), jobs
        twin.table("MINE")[:] = nodes
        twin.restrict(self.pool[nodes[self.pool]])
        if part:
            twin.a[o.MAX_MOVES] = 0
            twin.a[o.MOVED] = 0
            twin.table("ROOM")[:] = 0
        twin.a[o.RANDOM] = 1 + (int(self.a[o.RANDOM]) + seed) % 2_000_000_000
        members, at = twin.table("CLASS_JOB"), twin.table("CLASS_AT")
        cls, rank = twin.table("CLASS"), twin.table("RANK")
        kept = members[jobs[members]]
        at[1:] = np.cumsum(np.bincount(cls[kept], minlength=len(at) - 1))
        members[: len(kept)] = kept
        rank[kept] = np.arange(len(kept)) - at[cls[kept]]
        twin.table("FIRST")[:] = 0
        return twin

    def gather(self, parts: list[Board]) -> Placed:
        """The plan of which each part has improved its share."""
        plans = [part.placed() for part in parts]
        mine = [part.mine.tolist() for part in parts]
        plan = list(plans[0])
        for placed, own in zip(plans[1:], mine[1:], strict=True):
            for j, is_own in enumerate(own):
                if is_own:
                    plan[j] = placed[j]
        return tuple(plan)

    def grow(self) -> None:
        """Build the states asked for; those that other boards asked for are known then, too."""
        count = int(self.a[o.ASKED])
        asked = self.table("ASKED_FOR")[: 2 * count].reshape(-1, 2).tolist()
        self.a[o.ASKED] = 0
        with self.contents.lock:
            self.contents.grow((s, a) for s, a in asked)
            self._renew()

    def _renew(self, crowd: int = 0) -> None:
        """Write the arrays anew if they lack states, or room for so many tenants on a GPU where nothing is placed yet."""
        grown: tables.Tables = {}
        if self.contents.states * self.contents.types > self._length["STEP"]:
            grown = tables.content_tables(self.contents)
        width = max(crowd + 1, int(self.a[o.WIDTH]))
        if width > self.a[o.WIDTH]:
            grown["TENANT"] = np.full((self.facts.gpus, width), -1)
        if not grown:
            return
        length = {**self._length, **{name: int(table.size) for name, table in grown.items()}}
        pairs = []
        own = self.a is not self._blank[0]
        for a, f in ((self.a, self.f), self._blank)[: 1 + own]:
            old = copy.copy(self)
            old.a, old.f = a, f
            keep = {name: old.table(name) for name in self._length} | grown
            a, f = _written(keep)
            a[: len(o.SCALARS)] = old.a[: len(o.SCALARS)]
            a[o.WIDTH] = width
            pairs.append((a, f))
        (self.a, self.f), self._blank = pairs[0], pairs[-1]
        self._length = length

    def _scalars(self, made: tables.Tables, last: int, seed: int) -> None:
        p, a = self.facts.problem, self.a
        runs = np.diff(made["HOME_AT"]) > 0
        numbers = {
            "TOTAL": int(self.table("COST").sum()), "MOVED": int(runs.sum()), "LAST": last,
            "RANDOM": 1 + seed * 7919 % 2_000_000_000, "RANDOM_TWO": 12_345 + seed * 104_729 % 2_000_000_000,
            "NODES": p.nodes, "KINDS": self.facts.kinds, "TYPES": made["STEP"].shape[1], "GATE": p.gate,
            "EQUAL": p.equal_per_node, "SAME_INDEX": p.same_index, "MAX_MOVES": p.max_moves,
            "SPAN_COST": p.makespan_cost, "WIDTH": made["TENANT"].shape[1], "VIEW_MOST": len(made["VIEW"]),
            "TAKEN_MOST": len(made["TAKEN"]), "OLD_MOST": len(made["OLD"]), "KIN_COUNT": len(made["KIN_JOB"]),
            "KIN_MOST": len(made["KINS"]) - 1, "CLASS_COUNT": len(made["KIN"]),
            "WIDEST": int(made["SIZE_GPUS"].max(initial=1)) + 1,
            "KINS_LEAST": KINS_LEAST, "KINS_DRAWN": KINS_DRAWN,
        }  # fmt: skip
        for name, number in numbers.items():
            a[PLACE[name]] = number
        pool = np.flatnonzero(self.facts.open_nodes.any(0) & (np.diff(made["NODE_AT"]) > 0))
        speed = p.speed_milli.mean(0) if p.jobs else np.zeros(self.facts.kinds)
        first = made["NODE_GPU"][made["NODE_AT"][pool]] if len(pool) else pool
        pool = pool[np.argsort(-speed[p.gpu_kind[first]], kind="stable")]  # the sweep fills the fastest first
        self.pool = pool
        self.table("MINE")[: p.nodes] = 1
        self.restrict(pool)

    def restrict(self, pool: np.ndarray) -> None:
        self.table("POOL")[: len(pool)] = pool
        self.a[o.POOL_COUNT] = len(pool)


def _written(made: tables.Tables) -> tuple[np.ndarray, np.ndarray]:
    """All tables in a row, with the header; one spare cell at the end of each so that no view is empty."""
    ints = [name for name in made if name not in FLOATS]
    floats = [name for name in made if name in FLOATS]
    a = np.zeros(HEADER + sum(made[name].size + 1 for name in ints), np.int64)
    f = np.zeros(sum(made[name].size + 1 for name in floats))
    for array, names, at in ((a, ints, HEADER), (f, floats, 0)):
        for name in names:
            table = np.asarray(made[name]).ravel()
            a[PLACE[name]] = at
            array[at : at + len(table)] = table
            at += len(table) + 1
    return a, f
