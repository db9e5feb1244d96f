"""What a GPU, a group of GPUs or a node costs a job, and whether it may go there, for a whole view at once.

These are the sentences of the program about one GPU or node, vectorised; ``spots`` and ``spread`` only choose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.facts import View
from solvers.problem import MILLI, NVLINK, PCIE, PPM, Spot
from solvers.state import NOBODY, State

#: Among equal nodes the fuller one: at most this many milli-GPU-seconds, less than any real difference.
TIE = 0.5


@dataclass(frozen=True)
class Bid:
    """What a place would cost, and the place."""

    cost: float
    spot: Spot


@dataclass(frozen=True)
class Terms:
    """For the GPUs of a view: may the job go there, its lost share, and what it adds besides its own cost."""

    allowed: np.ndarray
    lost: np.ndarray
    added: np.ndarray


def node_allowed(state: State, j: int, view: View, count: int) -> np.ndarray:
    """Nodes of the view that have the cores and memory for ``count`` of the job's GPUs, and take it."""
    f = state.facts
    n = f.job_gpus[j]
    cpu, host = f.cpu_milli[j], f.host_memory_mib[j]
    if n:
        cpu, host = -(-cpu * count // n), -(-host * count // n)
    at = slice(None) if view.everything else view.nodes
    allowed = state.cpu_room[at] >= cpu
    allowed &= state.host_room[at] >= host
    allowed &= f.open_nodes[f.node_set[j]][at]
    if f.has_node_alone:
        allowed &= state.node_closed_by[at] == 0
        if f.node_alone[j]:
            allowed &= state.node_jobs[at] == 0
    out: np.ndarray = allowed
    return out


def terms_of(state: State, j: int, view: View) -> Terms:
    """Every rule that looks at one GPU, and the costs that it adds."""
    f = state.facts
    a, size = f.job_type[j], f.size_milli[j]
    at = slice(None) if view.everything else view.gpus
    allowed = state.least[a][at] <= size
    allowed &= state.most[a][at] >= size
    same_memory, same_cap = f.same_by_kind[j]
    need = f.memory_mib[j][0] if same_memory else np.array(f.memory_mib[j])[view.kind]
    allowed &= state.memory_room[at] >= need
    if f.has_shares:
        share = f.share[j][0] if same_memory else np.array(f.share[j])[view.kind]
        allowed &= state.share_room[at] >= share
    lost = state.lost[a][at]
    allowed &= lost <= (f.cap_lost[j][0] if same_cap else np.array(f.cap_lost[j])[view.kind])
    if f.has_groups:
        group = state.group[at]
        allowed &= (group == f.share_group[j]) | (group == NOBODY)
    if f.alone[j]:
        allowed &= state.empty[at] & ~np.asarray(state.problem.gpu_shared_outside, bool)[at]
    _shun(state, j, view, allowed)
    if len(f.windowed):
        _respect_windows(state, j, view, allowed, lost)
    return Terms(allowed, lost, state.added[a][at] + state.open_cost[at])


def _shun(state: State, j: int, view: View, allowed: np.ndarray) -> None:
    """Not beside a job that it must never share with."""
    for other in state.facts.never.get(j, ()):
        spot = state.placed[other]
        if spot is None or not state.facts.job_gpus[other]:
            continue
        if view.everything:
            allowed[list(spot)] = False
        else:
            allowed &= ~np.isin(view.gpus, spot)


def _respect_windows(state: State, j: int, view: View, allowed: np.ndarray, lost: np.ndarray) -> None:
    """Not on a reserved GPU unless it ends in time there; a gang is charged its slowest link and GPU."""
    f, p = state.facts, state.problem
    held = np.flatnonzero(allowed & (p.gpu_until_s[view.gpus] >= 0) & (p.gpu_holder[view.gpus] != j))
    n = f.job_gpus[j]
    slowest = float(lost[allowed].max()) if n > 1 and len(held) else 0.0
    link = int(np.argmax(f.link_milli[j])) if n > 1 else NVLINK
    for i in held.tolist():
        s = round(MILLI / (1 - (slowest if n > 1 else float(lost[i]))))
        allowed[i] = s <= state.window_cap(j, (int(view.gpus[i]),), link)


def late_cost(
    state: State, j: int, lost: np.ndarray | float, speed: np.ndarray | float, link: np.ndarray | int
) -> np.ndarray | float:
    """What the job's end adds to the makespan term, by its lost share, its speed (thousandths) and link."""
    f = state.facts
    cost = state.problem.makespan_cost
    if not cost or f.work[j] < 0 or f.latest_ends[j] <= state.makespan:
        return 0.0
    k = np.array(f.link_milli[j])[link]
    with np.errstate(divide="ignore"):
        ends = np.ceil(f.work[j] * MILLI * k / ((1 - lost) * speed * float(PPM)) - 1e-6)
    late: np.ndarray = cost * np.maximum(ends - state.makespan, 0)
    return late


def own_cost(state: State, j: int, kind: np.ndarray, link: np.ndarray | int, lost: np.ndarray) -> np.ndarray:
    """The job's own loss and lateness on GPUs of these kinds; inf where it may not run."""
    f = state.facts
    if isinstance(link, int):
        cost = f.fixed_cost[j, :, link][kind] + f.slope[j, :, link][kind] * lost
    else:
        cost = f.fixed_cost[j][kind, link] + f.slope[j][kind, link] * lost
    late = late_cost(state, j, lost, np.array(f.speed_milli[j])[kind], link)
    out: np.ndarray = cost + late
    return out


def node_extra(state: State, view: View) -> np.ndarray:
    """The cost of opening each node of the view, and the tie-break towards the fuller node."""
    at = slice(None) if view.everything else view.nodes
    room = state.cpu_room[at]
    extra: np.ndarray = state.node_cost[at] + room * (TIE / max(1, int(room.max(initial=1))))
    return extra


def choose(
    state: State, j: int, view: View, terms: Terms, count: int, nodes: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` cheapest GPUs of each group that has so many on an allowed node.

    Returns
    -------
    groups : ndarray, shape (b,)
        Which of the given groups are left.
    chosen : ndarray, shape (b, count)
        Positions in ``view.gpus``.
    """
    free = np.append(terms.allowed, False)
    groups = groups[nodes[view.group_node[groups]]]
    groups = groups[free[view.slots[groups]].sum(1) >= count]
    if not len(groups):
        return groups, np.zeros((0, count), np.int64)
    slope = state.facts.slope[j, :, PCIE][view.kind] / state.facts.job_gpus[j]
    key = np.append(np.where(terms.allowed, terms.lost * slope + terms.added, np.inf), np.inf)
    slots = view.slots[groups]
    if slots.shape[1] > count:
        order = np.argsort(key[slots], axis=1, kind="stable")[:, :count]
        slots = np.take_along_axis(slots, order, 1)
    return groups, slots
