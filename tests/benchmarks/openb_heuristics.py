"""Three heuristics from the literature that place pods one by one, on plain arrays of free resources.

Each takes the pods in a given order and never reconsiders one: a pod goes to the node that the rule likes best among
those with room for it now, or waits. They know cores, host memory, the free thousandths and the memory of every GPU,
and which kinds of GPU a pod takes; everything else in a Problem (interference, durations, what waiting costs) they do
not see, so the referee has to look at what they build. Made for the openb trace: every node has GPUs of one kind, every
pod fits on one node, and a pod takes either thousandths of one GPU or whole GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from solvers.problem import MILLI, Placed, Problem, Spot


@dataclass(frozen=True)
class Demand:
    """What the pods of a class ask for: ``milli`` thousandths of each of ``gpus`` GPUs, and their share of a node.

    ``memory_mib`` is a GPU's memory by node, shape (V,); ``allowed`` the nodes whose kind the class takes, shape (V,).
    """

    gpus: int
    milli: int
    cpu_milli: int
    host_mib: int
    memory_mib: np.ndarray
    allowed: np.ndarray


class Cluster:
    """Free resources of V nodes with up to W GPUs each; a slot without a GPU has no thousandths to give.

    Attributes
    ----------
    cpu_milli, host_mib
        Free milli-CPUs and MiB, shape (V,).
    milli, memory_mib
        Free thousandths and MiB of each GPU, shape (V, W).
    """

    def __init__(self, problem: Problem) -> None:
        gpus = np.bincount(problem.gpu_node, minlength=problem.nodes)
        order = np.argsort(problem.gpu_node, kind="stable")
        slot = np.arange(problem.gpus) - np.repeat(np.cumsum(gpus) - gpus, gpus)
        where = problem.gpu_node[order], slot
        shape = problem.nodes, int(gpus.max(initial=1))
        self.gpu = np.full(shape, -1)
        self.gpu[where] = order
        self.kind = np.full(problem.nodes, -1)
        self.kind[problem.gpu_node] = problem.gpu_kind
        if (self.kind[problem.gpu_node] != problem.gpu_kind).any():
            raise ValueError("a node has GPUs of two kinds; these heuristics know one kind a node")
        self.milli, self.memory_mib, self.margin_mib = np.zeros((3, *shape), np.int64)
        self.milli[where] = MILLI
        self.memory_mib[where] = problem.gpu_memory_mib[order]
        self.margin_mib[where] = problem.gpu_margin_mib[order]
        self.cpu_milli, self.host_mib = problem.node_cpu_milli.copy(), problem.node_memory_mib.copy()
        # What the nodes had at first, to make the resources comparable.
        self.whole = np.stack([self.cpu_milli, self.host_mib, self.milli.sum(1)], 1).astype(float)

    def free(self) -> np.ndarray:
        """Free cores, host memory and thousandths of each node, shape (V, 3)."""
        return np.stack([self.cpu_milli, self.host_mib, self.milli.sum(1)], 1).astype(float)

    def slots(self, demand: Demand, nodes: np.ndarray) -> np.ndarray:
        """GPUs of these nodes with room for one of the pod's, shape (len(nodes), W).

        A GPU with two tenants or more keeps its margin free; a whole GPU is empty.
        """
        milli = self.milli[nodes]
        shared = milli < MILLI
        memory = self.memory_mib[nodes] - np.where(shared, self.margin_mib[nodes], 0)
        return (milli >= max(demand.milli, 1)) & (memory >= demand.memory_mib[nodes, None])

    def takes(self, demand: Demand, nodes: np.ndarray) -> np.ndarray:
        """Which of these nodes have room for the pod, shape (len(nodes),)."""
        host = (self.cpu_milli[nodes] >= demand.cpu_milli) & (self.host_mib[nodes] >= demand.host_mib)
        return host & demand.allowed[nodes] & (self.slots(demand, nodes).sum(1) >= demand.gpus)

    def tightest(self, demand: Demand, v: int) -> np.ndarray:
        """The slots of a node that the pod takes: those with the least left, shape (gpus,)."""
        fits = self.slots(demand, np.array([v]))[0]
        order = np.argsort(np.where(fits, self.milli[v], 2 * MILLI), kind="stable")
        return order[: demand.gpus]

    def put(self, demand: Demand, v: int, slots: np.ndarray) -> Spot:
        """Take the pod's resources away; its placement in the Problem's terms."""
        self.cpu_milli[v] -= demand.cpu_milli
        self.host_mib[v] -= demand.host_mib
        self.milli[v, slots] -= demand.milli
        self.memory_mib[v, slots] -= demand.memory_mib[v]
        return tuple(sorted(self.gpu[v, slots].tolist())) if demand.gpus else (v,)


#: The node and slots for the next pod of a class, None if it has to wait.
Choose = Callable[[int], tuple[int, np.ndarray] | None]
#: A rule made ready for a cluster, the classes of pods, and how many pods are of each class, shape (C,).
Rule = Callable[[Cluster, list[Demand], np.ndarray], Choose]


def one_by_one(problem: Problem, order: Iterable[int], rule: Rule) -> Placed:
    """Place the pods in this order by a rule."""
    cluster = Cluster(problem)
    demands, class_of = classes(problem, cluster)
    pods = np.bincount(class_of, minlength=len(demands))
    choose = rule(cluster, demands, pods)
    placed: list[Spot | None] = [None] * problem.jobs
    for j in order:
        chosen = choose(class_of[j])
        if chosen is not None:
            placed[j] = cluster.put(demands[class_of[j]], *chosen)
    return tuple(placed)


def classes(problem: Problem, cluster: Cluster) -> tuple[list[Demand], list[int]]:
    """The different demands, and each pod's; ValueError for pods that are not those of the trace."""
    if (problem.max_nodes[problem.job_gpus > 0] > 1).any():
        raise ValueError("a pod may span nodes; these heuristics place each on one")
    whole = (problem.job_gpus > 0) & ~problem.share.any(1)
    milli = np.where(whole, MILLI, problem.share.max(1, initial=0))
    columns = (problem.job_gpus, milli, problem.cpu_milli, problem.host_memory_mib)
    rows = np.hstack([np.stack(columns, 1), problem.memory_mib, problem.speed_milli > 0])
    rows, class_of = np.unique(rows, axis=0, return_inverse=True)
    kinds = problem.memory_mib.shape[1]
    demands = []
    for row in rows:
        # A pod without GPUs may go anywhere; the last column stands for nodes without GPUs.
        memory, allowed = np.append(row[4 : 4 + kinds], 0), np.append(row[4 + kinds :] > 0, False)
        allowed = allowed[cluster.kind] if row[0] else np.ones(problem.nodes, bool)
        demands.append(Demand(*row[:4].tolist(), memory[cluster.kind], allowed))
    return demands, class_of.ravel().tolist()


def best_fit(cluster: Cluster, demands: list[Demand], pods: np.ndarray) -> Choose:
    """The node with the least left over once the pod is there.

    Left over is the sum of free cores, host memory and thousandths, each as a part of the most that a node has.
    """
    most = np.maximum(cluster.whole.max(0, initial=1.0), 1.0)

    def score(demand: Demand) -> np.ndarray:
        return -((cluster.free() - _vector(demand)) / most).sum(1)

    return _by_score(cluster, demands, score)


def dot_product(cluster: Cluster, demands: list[Demand], pods: np.ndarray) -> Choose:
    """The node whose free resources align best with the demand: Grandl et al., Tetris (SIGCOMM 2014).

    The alignment is the dot product of the demand and what is free, both as parts of the node's capacity; the node
    with the largest takes the pod.
    """
    scale = np.maximum(cluster.whole, 1.0) ** 2

    def score(demand: Demand) -> np.ndarray:
        return (cluster.free() * _vector(demand) / scale).sum(1)

    return _by_score(cluster, demands, score)


def gradient_descent(cluster: Cluster, demands: list[Demand], pods: np.ndarray) -> Choose:
    """Where fragmentation rises least (or falls most): Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).

    Fragmentation gradient descent (FGD): of all GPUs that the pod could take, the one that leads to the least
    increase of its node's :class:`Fragmentation`; of equals the first.
    """
    measure = Fragmentation(demands, pods)
    everywhere = np.arange(len(cluster.cpu_milli))
    now = measure(everywhere, cluster.cpu_milli, cluster.host_mib, cluster.milli)
    after = np.full((len(demands), len(now)), np.inf)
    slot = np.zeros(after.shape, np.int64)
    # A class looks again only at the nodes that changed since it was asked the last time.
    changed = [set(everywhere.tolist()) for _ in demands]

    def choose(c: int) -> tuple[int, np.ndarray] | None:
        nodes = np.array(sorted(changed[c]), np.int64)
        changed[c].clear()
        after[c, nodes], slot[c, nodes] = _least_after(cluster, demands[c], measure, nodes)
        v = int((after[c] - now).argmin())
        if after[c, v] == np.inf:
            return None
        now[v] = after[c, v]
        for others in changed:
            others.add(v)
        return v, slot[c, v : v + 1] if demands[c].gpus == 1 else cluster.tightest(demands[c], v)

    return choose


class Fragmentation:
    """Fragmentation of nodes, in thousandths of a GPU: what a pod drawn from the typical mix cannot use there.

    Weng et al. measure a node n by a task m: if n cannot run m (too little CPU or host memory, too few GPUs with room
    for m, a kind that m does not take, or m wants no GPU), all that is free on its GPUs is a fragment; if it can,
    the GPUs are that have less free than m asks of one. The fragmentation of n is the expectation over m. (GPU
    memory, which the trace does not state, plays no part.)
    """

    def __init__(self, demands: list[Demand], pods: np.ndarray) -> None:
        # Whole numbers of pods as weights: sums are exact, so that equal states of nodes are exactly equal.
        self.pods = pods.astype(float)
        self.gpus = np.array([d.gpus for d in demands])
        self.cpu_milli = np.array([d.cpu_milli for d in demands])
        self.host_mib = np.array([d.host_mib for d in demands])
        self.allowed = np.array([d.allowed for d in demands]).T  # (V, C)
        self.levels, self.level = np.unique([d.milli for d in demands], return_inverse=True)

    def __call__(self, nodes: np.ndarray, cpu: np.ndarray, host: np.ndarray, milli: np.ndarray) -> np.ndarray:
        """Fragmentation of k states: of which ``nodes``, with what free ``cpu``, ``host`` (k,) and ``milli`` (k, W)."""
        enough = milli[:, :, None] >= np.maximum(self.levels, 1)
        room = enough.sum(1)[:, self.level]  # (k, C)
        small = (milli[:, :, None] * ~enough).sum(1)[:, self.level]
        runs = (cpu[:, None] >= self.cpu_milli) & (host[:, None] >= self.host_mib)
        runs &= self.allowed[nodes] & (room >= self.gpus) & (self.gpus > 0)
        fragments = np.where(runs, small, milli.sum(1)[:, None]).astype(float)
        return fragments @ self.pods / self.pods.sum()


def _least_after(
    cluster: Cluster, demand: Demand, measure: Fragmentation, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The least fragmentation of these nodes with the pod there, inf where it cannot be, and the slot of it."""
    least, slot = np.full(len(nodes), np.inf), np.zeros(len(nodes), np.int64)
    row, taken, milli = _options(cluster, demand, nodes)
    if len(row):
        v = nodes[row]
        cpu, host = cluster.cpu_milli[v] - demand.cpu_milli, cluster.host_mib[v] - demand.host_mib
        after = measure(v, cpu, host, milli)
        order = np.lexsort((taken, after, row))
        row, first = np.unique(row[order], return_index=True)
        least[row], slot[row] = after[order][first], taken[order][first]
    return least, slot


def _options(
    cluster: Cluster, demand: Demand, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ways to put the pod on these nodes: position in ``nodes``, first slot taken, and the thousandths then free."""
    fits = cluster.takes(demand, nodes)
    slots = cluster.slots(demand, nodes) & fits[:, None]
    if demand.gpus == 1:
        row, taken = np.nonzero(slots)
        milli = cluster.milli[nodes[row]]
        milli[np.arange(len(row)), taken] -= demand.milli
        return row, taken, milli
    row = np.flatnonzero(fits)
    # Whole GPUs are all alike, so the first that are free will do.
    several = slots[row] & (slots[row].cumsum(1) <= demand.gpus)
    return row, several.argmax(1), cluster.milli[nodes[row]] - demand.milli * several


def _by_score(cluster: Cluster, demands: list[Demand], score: Callable[[Demand], np.ndarray]) -> Choose:
    """The node with the highest score of those with room, of equals the first; the pod goes to its tightest GPUs."""
    everywhere = np.arange(len(cluster.cpu_milli))

    def choose(c: int) -> tuple[int, np.ndarray] | None:
        fits = cluster.takes(demands[c], everywhere)
        if not fits.any():
            return None
        v = int(np.where(fits, score(demands[c]), -np.inf).argmax())
        return v, cluster.tightest(demands[c], v)

    return choose


def _vector(demand: Demand) -> np.ndarray:
    """Cores, host memory and thousandths, in the order of ``Cluster.free``."""
    return np.array([demand.cpu_milli, demand.host_mib, demand.gpus * demand.milli], float)
