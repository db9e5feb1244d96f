"""One epoch's placement problem on bare integer arrays, its answer, and the program written once.

``planner.formulate`` turns a snapshot and a forecast into a :class:`Problem`; every engine in this
package turns a Problem into a :class:`Solution`; ``solvers.check`` is the referee. Nothing here knows
about files, clusters or units other than the ones named below, and everything is an integer, so that
two engines can only differ in what they choose, never in what a choice costs.

Sets and letters
----------------
``J`` jobs ``j`` (queued and running), ``G`` GPUs ``g``, ``V`` nodes ``v``, ``M`` GPU kinds ``m`` (a kind is
a model name with its nominal memory, sharing mode and partition), ``A`` interference types ``a``.

Units
-----
Cost: milli-GPU-seconds (1/1000 of the GPU-seconds shown to people). Memory: MiB. CPU: milli-CPUs.
Ratios (speed, slowdown, link factor): thousandths. Ends: ticks, a length of time that ``formulate``
chooses so that a makespan has about a thousand of them. Reservation windows: seconds.

A placement
-----------
``placed[j]`` is ``None`` (deferred), or an ascending tuple of GPU indices, or for a job without GPUs
a tuple with one *node* index. A running job has a ``home`` of the same form. It *stays* if its
placement equals its home, *moves* if it differs, and is *preempted* if it is None. A *newcomer* on
a GPU or node is a tenant that is not at home there, that is: a queued job, or a moved one. The *base plan*
is: every running job stays, nothing starts. It is always feasible.

The program
-----------
Choose for every job a placement or None so as to minimise the sum of the terms below subject to the
rules below. ``home(j)`` empty means queued.

Rules for a job

* **gang**: it gets all its ``n = job_gpus[j]`` GPUs, distinct, or none. A job with n = 0 gets one node.
* **kind**: all its GPUs are of one kind m, and ``speed_milli[j, m] > 0`` (allowed model, memory that
  could ever fit, partition, unknown capacity: all of that is folded into a zero here).
* **nodes**: it uses at most ``max_nodes[j]`` nodes; all of them in its node set
  (``node_sets[node_set[j]]``); with ``gpus_per_node[j] > 0`` exactly that many on each node it uses; if
  ``equal_per_node`` the same number on each; if ``same_index`` the same ``gpu_index`` set on each.
* **running**: a running job that is not ``movable`` stays; one that is not ``preemptible`` is not None.
  At most ``max_moves`` running jobs are moved or preempted. A movable job may move without being
  preemptible.

Rules for a GPU g with tenants S. They bind only if S holds a newcomer (residents that already break
a rule are left alone, but then no newcomer joins them, because the rule is checked with them in S)

* **closed**: no newcomer if ``gpu_closed[g]``.
* **tenants**: ``len(S) <= gpu_max_tenants[g]``.
* **alone**: a job with ``alone[j]`` has no co-tenant, and is no newcomer where ``gpu_shared_outside[g]``
  (memory there is in use by processes nobody manages).
* **memory**: the sum of ``memory_mib[j, m]`` is at most ``gpu_memory_mib[g]``, less ``gpu_margin_mib[g]`` if S
  has two or more tenants.
* **share**: the sum of ``share[j, m]`` is at most ``gpu_share[g]``.
* **consent**: all tenants have the same ``share_group``, if there are two or more.
* **never**: no pair of ``never`` is in S.
* **slowdown**: for each j in S, ``s(j, S) <= cap_milli[j, m]``, where s(j, S) is the interference row of
  the other tenants' types; FORBIDDEN exceeds every cap.
* **gate** (if ``gate`` and len(S) >= 2): with progress p(j, S) = size_milli[j] * (10**9 // s(j, S)), the sum of
  p over S exceeds ``10**6 * max(size_milli over S)``; and for each *newcomer* i in S the sum of p over
  S is at least the sum of p over S without i. (Residents are exempt from the second test.)
* **window**: if ``gpu_until_s[g] >= 0`` and ``gpu_holder[g] != j``, a newcomer j ends before the
  reservation: ``remaining_p90_s[j] >= 0`` and
  ``ceil(remaining_p90_s[j] * s(j) * k(j) / (1000 * speed_milli[j, m])) <= gpu_until_s[g]`` with its s and k as below.

Rules for a node v. They bind only if a newcomer uses v

* **host**: the sum over the jobs on v of ``ceil(cpu_milli[j] * (GPUs of j on v) / n)`` is at most
  ``node_cpu_milli[v]``, and the same for ``host_memory_mib``; a job with n = 0 counts whole.
* **closed node**: no newcomer if ``node_closed[v]``.
* **whole node**: a job with ``node_alone[j]`` shares no node with any other job.

Rules for the whole

* **budget**: for each budget the sum of ``amount`` over the *queued* jobs placed is at most ``capacity``
  (quotas, licences, throttles; what runs already is taken off the capacity).

Terms, for a placed job on kind m: v = speed_milli[j, m]; s = the largest s(j, S) over its GPUs (1000 for
n = 0; the slowest GPU decides); k = ``link_milli[j, i]`` with i = 0 if n <= 1 or all its GPUs are in one link
group (``gpu_link`` equal and >= 0), i = 1 if they are in one node, i = 2 otherwise. In parts per million, with
integer division: b = 1000 * v * 1000 // s, c = v * 10**9 // (s * k):
speed = 10**6 - 1000 * v, interference = 1000 * v - b, locality = b - c.

* **speed**, **interference**, **locality**: ``part * unit // 10**6``, with ``unit`` = unit_speed[j],
  unit_interference[j], unit_locality[j] (the cost of losing all progress over the horizon).
* **waiting**: ``wait_cost[j]`` if j is None.
* **moves**: ``move_cost[j]`` if j runs and is moved or preempted.
* **makespan**: ``makespan_cost * Cmax``; Cmax is the largest end over all jobs, 0 if none is known. A placed
  job with ``work[j] >= 0`` ends at ``ceil(work[j] * s * k / (v * 10**6))`` ticks; a None job with
  ``deferred_end[j] >= 0`` ends there. (work is in milli-ticks, alone on the fastest allowed kind.)
* **fragmentation**: ``fragmentation_base`` + ``node_used_cost[v]`` for each node with at least one GPU in
  use + ``gpu_open_cost[g]`` for each GPU with at least one tenant.

Source: set-partitioning form of co-scheduling (Jiang et al., PACT 2008), per-epoch assignment as in Gavel (OSDI
2020) and Sia (SOSP 2023); the sharing gate generalises Gandiva's rule (OSDI 2018) that a pair whose
normalised speeds sum to less than one is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum

import numpy as np

from solvers.warm import Warm

MILLI = 1000
PPM = 1_000_000
#: A slowdown (thousandths) that no cap admits: these jobs must not share.
FORBIDDEN = 100_000_000
#: The largest cap: every slowdown that is not FORBIDDEN is within it.
UNCAPPED = FORBIDDEN - 1
#: The ways a job's GPUs are linked, index into ``link_milli[j]``.
NVLINK, PCIE, NETWORK = 0, 1, 2

Spot = tuple[int, ...]
Placed = tuple[Spot | None, ...]


class Interference:
    """Slowdown of every type beside a multiset of co-tenant types, built where needed and kept.

    Parameters
    ----------
    types, models
        Number of interference types A and GPU kinds M.
    row
        ``row(m, co)`` with ``co`` an ascending tuple of type indices (one entry a co-tenant) gives the slowdown
        in thousandths, shape (A,), of each type as the victim; at least 1000, or FORBIDDEN.
    worst_milli
        No finite slowdown passes it.
    """

    def __init__(
        self, types: int, models: int, row: Callable[[int, tuple[int, ...]], np.ndarray], worst_milli: int
    ) -> None:
        self.types = types
        self.models = models
        self.worst_milli = worst_milli
        self._row = row
        self._kept: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}

    def row(self, model: int, co: tuple[int, ...]) -> np.ndarray:
        """Slowdown of each type beside ``co`` on kind ``model``; shape (A,), int64, read-only."""
        key = (model, co)
        kept = self._kept.get(key)
        if kept is None:
            kept = (
                np.full(self.types, MILLI, np.int64) if not co else np.asarray(self._row(model, co), np.int64)
            )
            kept.setflags(write=False)
            self._kept[key] = kept
        return kept

    def slowdown(self, model: int, victim: int, co: Iterable[int]) -> int:
        """Slowdown of one victim type beside the co-tenant types in any order, thousandths."""
        return int(self.row(model, tuple(sorted(co)))[victim])

    def kept(self) -> dict[tuple[int, tuple[int, ...]], np.ndarray]:
        """The rows built so far, for writing a problem down."""
        return dict(self._kept)


@dataclass(frozen=True)
class Budget:
    """A sum over queued jobs that must not pass a capacity."""

    kind: str  # quota, licence or throttle: the reason given to a job that it keeps out
    name: str
    capacity: int
    jobs: tuple[int, ...]
    amounts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """The program's data. Arrays are read-only; see the module's docstring for every meaning."""

    # GPUs, shape (G,)
    gpu_node: np.ndarray
    gpu_kind: np.ndarray
    gpu_index: np.ndarray
    gpu_link: np.ndarray
    gpu_memory_mib: np.ndarray
    gpu_margin_mib: np.ndarray
    gpu_share: np.ndarray
    gpu_max_tenants: np.ndarray
    gpu_closed: np.ndarray
    gpu_shared_outside: np.ndarray
    gpu_until_s: np.ndarray
    gpu_holder: np.ndarray
    gpu_open_cost: np.ndarray
    # nodes, shape (V,)
    node_cpu_milli: np.ndarray
    node_memory_mib: np.ndarray
    node_closed: np.ndarray
    node_used_cost: np.ndarray
    node_sets: np.ndarray  # (Q, V) bool
    # jobs, shape (J,)
    job_gpus: np.ndarray
    size_milli: np.ndarray
    job_type: np.ndarray
    unit_speed: np.ndarray
    unit_interference: np.ndarray
    unit_locality: np.ndarray
    wait_cost: np.ndarray
    move_cost: np.ndarray
    work: np.ndarray
    deferred_end: np.ndarray
    remaining_p90_s: np.ndarray
    cpu_milli: np.ndarray
    host_memory_mib: np.ndarray
    max_nodes: np.ndarray
    gpus_per_node: np.ndarray
    node_set: np.ndarray
    alone: np.ndarray
    node_alone: np.ndarray
    share_group: np.ndarray
    movable: np.ndarray
    preemptible: np.ndarray
    link_milli: np.ndarray  # (J, 3)
    # jobs on kinds, shape (J, M)
    speed_milli: np.ndarray
    memory_mib: np.ndarray
    share: np.ndarray
    cap_milli: np.ndarray
    # the rest
    home: Placed
    interference: Interference
    never: tuple[tuple[int, int], ...] = ()
    budgets: tuple[Budget, ...] = ()
    max_moves: int = 0
    gate: bool = True
    equal_per_node: bool = False
    same_index: bool = False
    makespan_cost: int = 0
    fragmentation_base: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def jobs(self) -> int:
        """Number of jobs J."""
        return len(self.job_gpus)

    @property
    def gpus(self) -> int:
        """Number of GPUs G."""
        return len(self.gpu_node)

    @property
    def nodes(self) -> int:
        """Number of nodes V."""
        return len(self.node_cpu_milli)

    @property
    def base(self) -> Placed:
        """The base plan: running jobs stay, nothing starts."""
        return self.home

    def is_fixed(self, job: int) -> bool:
        """A running job that can only stay."""
        return self.home[job] is not None and not self.movable[job] and not self.preemptible[job]


class Status(StrEnum):
    """How an engine ended, apart from whether its answer was any good."""

    OPTIMAL = "optimal"  # proven: objective equals bound
    FEASIBLE = "feasible"  # an answer, not proven; the limit or the method ended it
    NO_ANSWER = "no_answer"  # stopped without one
    SKIPPED = "skipped"  # not tried (too large, no time left)
    FAILED = "failed"  # crashed, killed, or its model was invalid
    REJECTED = "rejected"  # answered, and the referee found a broken rule
    ANOMALY = "anomaly"  # claimed infeasible or optimal against a better verified answer


@dataclass(frozen=True)
class Limits:
    """What an engine may use.

    Attributes
    ----------
    wall_s
        Wall-clock seconds for the whole solve; 0 means the greedy's answer.
    deterministic
        One worker, limits by iterations rather than by the clock (the clock still guards).
    workers
        Threads an engine may use; None takes what the cgroup grants.
    memory_mib
        Address space of a child process, None for no limit.
    """

    wall_s: float = 10.0
    deterministic: bool = False
    seed: int = 0
    workers: int | None = None
    memory_mib: int | None = None
    grace_s: float = 2.0


@dataclass(frozen=True)
class Terms:
    """The objective, term by term, weighted, in milli-GPU-seconds."""

    interference: int = 0
    speed: int = 0
    locality: int = 0
    waiting: int = 0
    makespan: int = 0
    moves: int = 0
    fragmentation: int = 0

    @property
    def total(self) -> int:
        """The sum of the terms."""
        return sum(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Attempt:
    """One engine's try, for the record."""

    engine: str
    status: Status
    objective: int | None = None
    bound: int | None = None
    wall_s: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Solution:
    """An engine's answer. ``placed`` is None only if it has none; ``bound`` None if it knows none.

    ``warm`` is what it leaves for the next solve, from engines that can start from such a thing.
    """

    engine: str
    status: Status
    placed: Placed | None = None
    objective: int | None = None
    bound: int | None = None
    wall_s: float = 0.0
    note: str = ""
    attempts: tuple[Attempt, ...] = field(default=())
    warm: Warm | None = None


#: An engine's news while it works: incumbent, its objective, bound; None for what has not changed.
Report = Callable[[Placed | None, int | None, int | None], None]
