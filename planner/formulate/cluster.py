"""The cluster as arrays: GPU kinds, what each GPU can give, what each node can give.

A GPU that is not fully understood (unhealthy, unknown use by strangers, on a node that takes no jobs) is *closed*:
what runs there stays, nothing is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.formulate.contract import Kind
from solvers.problem import MILLI

if TYPE_CHECKING:
    from planner.model import Gpu, Node, Snapshot
    from planner.policy import Policy

#: Host resources of a node that does not state them: more than any job can ask.
UNCOUNTED = 2**50


@dataclass(frozen=True)
class ClusterArrays:
    """The GPU and node part of a Problem, and the kinds behind it."""

    kinds: tuple[Kind, ...]
    gpu_ids: tuple[str, ...]
    node_names: tuple[str, ...]
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
    node_cpu_milli: np.ndarray
    node_memory_mib: np.ndarray
    node_closed: np.ndarray

    @property
    def on_kind(self) -> np.ndarray:
        """GPUs of each kind on each node, healthy or not; shape (V, M)."""
        counts = np.zeros((len(self.node_names), len(self.kinds)), np.int64)
        np.add.at(counts, (self.gpu_node, self.gpu_kind), 1)
        return counts


def cluster_arrays(snapshot: Snapshot, policy: Policy) -> ClusterArrays:
    """GPUs and nodes in the order of the snapshot."""
    nodes = snapshot.cluster.nodes
    quarantined = {q.name for q in snapshot.carryover.quarantines if q.until_s > snapshot.now_s}
    node_closed = np.array([not n.schedulable or n.name in quarantined for n in nodes], bool)
    kinds: dict[Kind, int] = {}
    rows: list[tuple[int, ...]] = []
    links = 0
    for v, node in enumerate(nodes):
        group_of = {index: links + i for i, group in enumerate(node.links) for index in group}
        links += len(node.links)
        for gpu in node.gpus:
            kind = kind_of(gpu, node, policy)
            m = kinds.setdefault(kind, len(kinds))
            rows.append((v, m, *_gpu_row(gpu, node, policy, kind), group_of.get(gpu.index, -1)))
    table = np.array(rows, np.int64).reshape(len(rows), 10).T
    node_of, kind_ix, index, memory, margin, share, tenants, closed, outside, link = table
    return ClusterArrays(
        kinds=tuple(kinds),
        gpu_ids=tuple(g.id for g in snapshot.cluster.gpus),
        node_names=tuple(n.name for n in nodes),
        gpu_node=node_of,
        gpu_kind=kind_ix,
        gpu_index=index,
        gpu_link=link,
        gpu_memory_mib=memory,
        gpu_margin_mib=margin,
        gpu_share=share,
        gpu_max_tenants=tenants,
        gpu_closed=closed.astype(bool) | node_closed[node_of],
        gpu_shared_outside=outside.astype(bool),
        node_cpu_milli=np.array(
            [UNCOUNTED if n.cpus is None else floor_milli(n.cpus) for n in nodes], np.int64
        ),
        node_memory_mib=np.array(
            [UNCOUNTED if n.host_memory_mib is None else n.host_memory_mib for n in nodes], np.int64
        ),
        node_closed=node_closed,
    )


def floor_milli(value: float) -> int:
    """Thousandths, rounded down; a hair is added first, so that 1.001 is 1001 and not 1000."""
    return math.floor(value * MILLI + 1e-6)


def tenants_of(node: Node, policy: Policy) -> int | None:
    """Jobs that may share one GPU of the node; None: no limit."""
    return node.max_tenants if node.max_tenants is not None else policy.max_tenants


def kind_of(gpu: Gpu, node: Node, policy: Policy) -> Kind:
    """What makes GPUs alike for every job."""
    memory = None if gpu.memory_mib is None else int(gpu.memory_mib * node.memory_factor)
    limit = tenants_of(node, policy)
    # A MIG instance takes one tenant, which has it whole.
    mps = node.sharing == "mps" and memory is not None and limit is not None and not gpu.is_mig
    return Kind(
        model=gpu.model,
        memory_mib=memory,
        # On a card of unknown memory only shares share, and they need no margin.
        margin_mib=policy.memory_margin_mib if node.isolation == "none" and memory is not None else 0,
        # An MPS server divides a GPU's memory by its number of clients.
        tenant_memory_mib=memory // limit if mps and memory is not None and limit is not None else None,
        sharing=node.sharing,
        shards=gpu.shards,
        mig=gpu.is_mig,
    )


def _gpu_row(gpu: Gpu, node: Node, policy: Policy, kind: Kind) -> tuple[int, ...]:
    unmanaged = gpu.unmanaged_memory_mib
    memory = max(0, (kind.memory_mib or 0) - (unmanaged or 0))
    tenants = 1 if gpu.is_mig else tenants_of(node, policy)
    closed = not gpu.healthy or unmanaged is None
    return (
        gpu.index,
        memory,
        kind.margin_mib,
        gpu.shards or 1000,
        2**31 if tenants is None else tenants,
        int(closed),
        int(unmanaged is None or unmanaged > 0),
    )
