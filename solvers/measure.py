"""What a placement amounts to: who is where, how fast each job runs, when it ends, what all of it costs.

The referee's own arithmetic, in plain Python integers straight from the docstring of ``solvers.problem``.
No engine uses it to find a plan; every engine's claim is replaced by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solvers.problem import MILLI, NETWORK, NVLINK, PCIE, PPM, Placed, Problem, Spot, Terms


@dataclass(frozen=True)
class Effect:
    """How a placed job runs: all in thousandths but ``link``, the index of its link class."""

    speed: int
    slowdown: int
    link: int
    link_factor: int


@dataclass(frozen=True)
class State:
    """A placement turned round: who is on which GPU and node."""

    problem: Problem
    placed: Placed
    newcomers: frozenset[int]
    tenants: dict[int, list[int]]
    slowdown: dict[int, dict[int, int]]  # GPU -> tenant -> s(j, S)
    on_node: dict[int, dict[int, int]]  # node -> job -> its GPUs there
    effects: tuple[Effect | None, ...]

    def entered_gpus(self) -> Iterator[tuple[int, list[int]]]:
        """GPUs with a newcomer, the only ones whose rules bind."""
        for g, tenants in sorted(self.tenants.items()):
            if not self.newcomers.isdisjoint(tenants):
                yield g, tenants

    def entered_nodes(self) -> Iterator[tuple[int, dict[int, int]]]:
        """Nodes that a newcomer uses, the only ones whose rules bind."""
        for v, jobs in sorted(self.on_node.items()):
            if not self.newcomers.isdisjoint(jobs):
                yield v, jobs

    def entering(self) -> Iterator[tuple[int, Spot]]:
        """Newcomers and where they go."""
        for j in sorted(self.newcomers):
            yield j, self.placed[j] or ()


def objective(problem: Problem, placed: Placed) -> Terms:
    """The cost of a well-formed placement, term by term, feasible or not."""
    state = arrange(problem, placed)
    speed = interference = locality = waiting = moves = 0
    for j, effect in enumerate(state.effects):
        if effect is None:
            waiting += problem.wait_cost.item(j)
        else:
            parts = _parts(effect)
            speed += parts[0] * problem.unit_speed.item(j) // PPM
            interference += parts[1] * problem.unit_interference.item(j) // PPM
            locality += parts[2] * problem.unit_locality.item(j) // PPM
        if problem.home[j] is not None and placed[j] != problem.home[j]:
            moves += problem.move_cost.item(j)
    return Terms(
        interference=interference,
        speed=speed,
        locality=locality,
        waiting=waiting,
        makespan=problem.makespan_cost * max((e for e in _ends(state) if e is not None), default=0),
        moves=moves,
        fragmentation=_fragmentation(state),
    )


def effects(problem: Problem, placed: Placed) -> tuple[Effect | None, ...]:
    """Speed, slowdown and link class of every job, None where it is deferred."""
    return arrange(problem, placed).effects


def slowdowns(problem: Problem, placed: Placed) -> tuple[int | None, ...]:
    """The slowdown of every placed job at its slowest GPU, in thousandths."""
    return tuple(None if e is None else e.slowdown for e in effects(problem, placed))


def ends(problem: Problem, placed: Placed) -> tuple[int | None, ...]:
    """The end of every job in ticks, None where it is unknown."""
    return _ends(arrange(problem, placed))


def arrange(problem: Problem, placed: Placed) -> State:
    """Turn a well-formed placement round."""
    tenants: dict[int, list[int]] = {}
    on_node: dict[int, dict[int, int]] = {}
    for j, spot in enumerate(placed):
        for i in spot or ():
            if problem.job_gpus.item(j) == 0:
                on_node.setdefault(i, {})[j] = 0
                continue
            tenants.setdefault(i, []).append(j)
            there = on_node.setdefault(problem.gpu_node.item(i), {})
            there[j] = there.get(j, 0) + 1
    slowdown = {g: slowdowns_on(problem, problem.gpu_kind.item(g), jobs) for g, jobs in tenants.items()}
    return State(
        problem=problem,
        placed=placed,
        newcomers=frozenset(
            j for j, spot in enumerate(placed) if spot is not None and spot != problem.home[j]
        ),
        tenants=tenants,
        slowdown=slowdown,
        on_node=on_node,
        effects=tuple(
            None if spot is None else _effect(problem, j, spot, slowdown) for j, spot in enumerate(placed)
        ),
    )


def slowdowns_on(problem: Problem, kind: int, tenants: list[int]) -> dict[int, int]:
    """s(j, S): the interference row of the other tenants' types."""
    if len(tenants) == 1:
        return {tenants[0]: MILLI}
    types = {j: problem.job_type.item(j) for j in tenants}
    return {
        j: problem.interference.slowdown(kind, types[j], [types[i] for i in tenants if i != j])
        for j in tenants
    }


def _effect(problem: Problem, j: int, spot: Spot, slowdown: dict[int, dict[int, int]]) -> Effect:
    """The slowest GPU decides; a job without GPUs runs at full speed."""
    if problem.job_gpus.item(j) == 0:
        return Effect(MILLI, MILLI, NVLINK, problem.link_milli.item(j, NVLINK))
    link = _link(problem, j, spot)
    return Effect(
        speed=problem.speed_milli.item(j, problem.gpu_kind.item(spot[0])),
        slowdown=max(slowdown[g][j] for g in spot),
        link=link,
        link_factor=problem.link_milli.item(j, link),
    )


def _link(problem: Problem, j: int, spot: Spot) -> int:
    """0 if n <= 1 or all GPUs are in one link group, 1 if they are in one node, 2 otherwise."""
    groups = {problem.gpu_link.item(g) for g in spot}
    if problem.job_gpus.item(j) <= 1 or (len(groups) == 1 and min(groups) >= 0):
        return NVLINK
    return PCIE if len({problem.gpu_node.item(g) for g in spot}) == 1 else NETWORK


def ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


# ---- the terms ----


def _parts(effect: Effect) -> tuple[int, int, int]:
    """Speed, interference and locality in parts per million; they add up to the whole loss."""
    alone = MILLI * effect.speed
    beside = MILLI * effect.speed * MILLI // effect.slowdown
    linked = effect.speed * 10**9 // (effect.slowdown * effect.link_factor)
    return PPM - alone, alone - beside, beside - linked


def _ends(state: State) -> tuple[int | None, ...]:
    """work * s * k / v for a placed job, the given end for a deferred one."""
    problem = state.problem
    found: list[int | None] = []
    for j, effect in enumerate(state.effects):
        work, deferred = problem.work.item(j), problem.deferred_end.item(j)
        if effect is None:
            found.append(deferred if deferred >= 0 else None)
        elif work < 0 or effect.speed <= 0:
            found.append(None)
        else:
            found.append(ceil_div(work * effect.slowdown * effect.link_factor, effect.speed * PPM))
    return tuple(found)


def _fragmentation(state: State) -> int:
    """A base, each node with a GPU in use, each GPU with a tenant."""
    problem = state.problem
    cost = problem.fragmentation_base
    for v in {problem.gpu_node.item(g) for g in state.tenants}:
        cost += problem.node_used_cost.item(v)
    for g in state.tenants:
        cost += problem.gpu_open_cost.item(g)
    return cost
