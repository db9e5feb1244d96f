"""A node, a link group, or some GPUs of several nodes solved again exactly, with waiting jobs, and all the rest as it is.

Large neighbourhood search with an exact sub-solver (Shaw, CP 1998; Danna et al., Math. Program. 2005): where ruin and
recreate no longer helps, CP-SAT looks at all plans of a :class:`Neighbourhood` at once.

What takes part: the jobs wholly inside and the waiting ones that the neighbourhood names. What does not, stays: a GPU
with such a tenant is left out, so that every GPU of the sub-problem is the sub-problem's alone. Then the sub-problem is no
relaxation and no restriction of what its jobs may do there: a plan valid for it is valid within the whole, and two
plans differ by the same cost in both.

* What outsiders use of a node's cores and memory is taken off it, as what they use of budgets and moves. No newcomer joins
  an outsider that wants a whole node, and no participant that wants one joins an outsider.
* A node that an outsider keeps in use is in use for nothing.
* One more job, which can run nowhere and costs nothing, ends with the last outsider.
* A rule for a node binds if a newcomer uses it. Where that is an outsider, a running job that is away does not take part:
  its return would make no newcomer in the sub-problem, but must keep the rule.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from ortools.sat.python import cp_model

from solvers.check import objective, violations
from solvers.columns import TooManyError, node_demand, price
from solvers.cpsat import UNITS_PER_S
from solvers.cpsat_model import Program
from solvers.cpsat_rules import add_rules
from solvers.cpsat_terms import add_terms
from solvers.facts import Facts
from solvers.last_end import with_last_end
from solvers.measure import State, arrange, ends
from solvers.modes import tables
from solvers.problem import Budget, Limits, Placed, Problem, Spot
from solvers.twins import OF_JOBS

#: GPUs and waiting jobs of the turns of :func:`pick`, chosen so that CP-SAT mostly proves them within a second; None takes
#: all GPUs of a node.
TURNS: tuple[tuple[int | None, int], ...] = ((None, 20), (4, 12), (8, 4), (4, 12))
#: Waiting jobs of one class, whose members are interchangeable but for what waiting costs them.
ALIKE = 4
#: The need of a waiting job varies by this part, so that others get their turn.
JITTER = 0.5
#: Columns that CP-SAT is still given; with more it seldom gets beyond its presolve in a second or two.
MOST_COLUMNS = 6000

_OF_GPUS = [f.name for f in fields(Problem) if f.name.startswith("gpu_")]
_OF_NODES = ["node_cpu_milli", "node_memory_mib", "node_closed", "node_used_cost"]


@dataclass(frozen=True)
class Neighbourhood:
    """GPUs that are planned again, ascending, and deferred jobs that may come to them, the most needy first."""

    gpus: Spot
    waiting: Spot = ()


@dataclass(frozen=True)
class Sub:
    """The sub-problem, and which job, GPU and node of the whole each of its own is, ascending.

    The problem may have one job more than ``jobs``, the last: the outsiders' last end.
    """

    problem: Problem
    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    nodes: tuple[int, ...]

    def inside(self, placed: Placed) -> Placed:
        """What a plan of the whole, with these outsiders, says of the sub-problem's jobs."""
        number = {g: i for i, g in enumerate(self.gpus)}
        spots = (placed[j] for j in self.jobs)
        own = (None if spot is None else tuple(number[g] for g in spot) for spot in spots)
        return (*own, *(None for _ in range(self.problem.jobs - len(self.jobs))))

    def within(self, placed: Placed, own: Placed) -> Placed:
        """A plan of the whole with the sub-problem's jobs as in ``own``."""
        whole = list(placed)
        for j, spot in zip(self.jobs, own, strict=False):
            whole[j] = None if spot is None else tuple(self.gpus[i] for i in spot)
        return tuple(whole)


def repair(
    problem: Problem,
    placed: Placed,
    neighbourhood: Neighbourhood,
    seconds: float,
    seed: int,
    workers: int = 1,
    deterministic: bool = False,
) -> Placed | None:
    """The whole plan with the neighbourhood better solved, None if nothing better was found in ``seconds``.

    Parameters
    ----------
    placed
        A valid plan.
    deterministic
        Limit CP-SAT by its work, as :func:`solvers.cpsat.solve` does; the clock still guards.
    """
    began = time.monotonic()
    found = _program(problem, placed, neighbourhood)
    if found is None:
        return None
    sub, program = found
    program.hint(sub.inside(placed))
    solver = _solver(seconds, time.monotonic() - began, seed, workers, deterministic)
    if solver.solve(program.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    own = program.placement(solver.value)
    if objective(sub.problem, own).total >= objective(sub.problem, sub.inside(placed)).total:
        return None
    whole = sub.within(placed, own)
    if violations(problem, whole) or objective(problem, whole).total >= objective(problem, placed).total:
        return None
    return whole


def _program(problem: Problem, placed: Placed, neighbourhood: Neighbourhood) -> tuple[Sub, Program] | None:
    """CP-SAT's model with as many of the waiting jobs as leave it small enough, if there is anything to decide."""
    waiting = neighbourhood.waiting
    while True:
        sub = subproblem(problem, placed, replace(neighbourhood, waiting=waiting))
        if not sub.gpus or not sub.jobs:
            return None
        try:
            program = Program(sub.problem, tables(sub.problem, MOST_COLUMNS))
        except TooManyError:
            if not waiting:
                return None
            waiting = waiting[: len(waiting) // 2]
            continue
        add_rules(program)
        add_terms(program)
        return sub, program


def _solver(
    seconds: float, spent_s: float, seed: int, workers: int, deterministic: bool
) -> cp_model.CpSolver:
    """CP-SAT with the linear relaxation of everything: it proves these programs, and probing takes longer than the proof."""
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.linearization_level = 2
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.num_workers = 1 if deterministic else workers
    solver.parameters.max_time_in_seconds = max(seconds - spent_s, 0.01)
    if deterministic:
        solver.parameters.max_deterministic_time = seconds * UNITS_PER_S
        solver.parameters.max_time_in_seconds = seconds + Limits().grace_s / 2
    return solver


# ---- where to look ----


def pick(facts: Facts, placed: Placed, turn: int) -> Neighbourhood:
    """A neighbourhood drawn by need; equal turns of equal plans draw the same.

    In turn a whole node with many waiting jobs, and GPUs of all nodes with few. A GPU is drawn by what its tenants lose
    against where they would run best, an idle one by what the waiting jobs lose; with it come all GPUs of its tenants.
    """
    if not facts.gpus:
        return Neighbourhood(())
    most, count = TURNS[turn % len(TURNS)]
    state, rng = arrange(facts.problem, placed), np.random.default_rng(turn)
    need = _need(facts, state)
    loss = _loss(facts, state, need)
    if most is None:
        of_node = np.bincount(facts.problem.gpu_node, loss, facts.nodes)
        v = rng.choice(facts.nodes, p=of_node / of_node.sum())
        gpus = np.flatnonzero(facts.problem.gpu_node == v).tolist()
    else:
        order = rng.choice(facts.gpus, facts.gpus, False, loss / loss.sum()).tolist()
        gpus = _scattered(state, order, most)
    return Neighbourhood(tuple(gpus), _waiting(facts, state, gpus, need, count, rng))


def _need(facts: Facts, state: State) -> np.ndarray:
    """What each job loses per GPU against where it would run best, shape (J,); none if it runs nowhere or needs none."""
    problem = facts.problem
    best = facts.fixed_cost.min((1, 2), initial=np.inf)
    now = problem.wait_cost.astype(float)
    for j, (spot, effect) in enumerate(zip(state.placed, state.effects, strict=True)):
        if spot is not None and effect is not None and facts.job_gpus[j]:
            now[j] = price(problem, j, facts.gpu_kind[spot[0]], effect.slowdown, effect.link)
    runs = np.isfinite(best) & (problem.job_gpus > 0)
    lost = np.where(runs, now - np.where(runs, best, 0), 0)
    return np.maximum(lost, 0) / np.maximum(problem.job_gpus, 1)


def _loss(facts: Facts, state: State, need: np.ndarray) -> np.ndarray:
    """How much is lost on each GPU, shape (G,), above zero everywhere."""
    waits = np.array([spot is None for spot in state.placed], bool)
    loss = np.full(facts.gpus, 1 + need[waits].mean() if waits.any() else 1.0)
    for g, tenants in state.tenants.items():
        loss[g] = 1 + need[tenants].sum()
    return loss


def _scattered(state: State, order: list[int], most: int) -> list[int]:
    """The first GPUs of an order with all GPUs of their tenants, and so on; those that would bring too many are passed over."""
    gpus: set[int] = set()
    for g in order:
        more, todo = {g}, [g]
        while todo and len(gpus | more) <= most:
            around = {h for j in state.tenants.get(todo.pop(), ()) for h in state.placed[j] or ()}
            todo += around - more
            more |= around
        if len(gpus | more) <= most:
            gpus |= more
        if len(gpus) == most:
            break
    return sorted(gpus)


def _waiting(
    facts: Facts, state: State, gpus: list[int], need: np.ndarray, count: int, rng: np.random.Generator
) -> Spot:
    """Waiting jobs that some of these GPUs may take, the most needy first, at most ``ALIKE`` of a class."""
    problem = facts.problem
    able = np.zeros(facts.jobs, bool)
    for kind, v in {(facts.gpu_kind[g], facts.gpu_node[g]) for g in gpus}:
        room = max(problem.gpu_memory_mib.item(g) for g in gpus if facts.gpu_kind[g] == kind)
        runs = (problem.speed_milli[:, kind] > 0) & (problem.memory_mib[:, kind] <= room)
        able |= runs & facts.open_nodes[problem.node_set, v]
    able &= (need > 0) & (problem.job_gpus <= len(gpus))
    able &= np.array([spot is None for spot in state.placed], bool)
    drawn = need * (1 + JITTER * rng.random(facts.jobs))
    chosen: list[int] = []
    taken: dict[int, int] = {}
    for j in sorted(np.flatnonzero(able).tolist(), key=lambda j: -drawn[j]):
        same = facts.classes[j]
        if len(chosen) < count and taken.get(same, 0) < ALIKE:
            chosen.append(j)
            taken[same] = taken.get(same, 0) + 1
    return tuple(chosen)


# ---- the sub-problem ----


def subproblem(problem: Problem, placed: Placed, neighbourhood: Neighbourhood) -> Sub:
    """The exact problem of a neighbourhood in a valid plan; see the module."""
    state = arrange(problem, placed)
    jobs, gpus = _participants(state, neighbourhood)
    nodes = np.unique(problem.gpu_node[gpus])
    own = _slice(problem, jobs, gpus, nodes)
    own = _without_outsiders(own, state, set(jobs), nodes)
    outside = set(range(problem.jobs)) - set(jobs)
    moved = sum(problem.home[j] is not None and placed[j] != problem.home[j] for j in outside)
    own = replace(
        own,
        budgets=tuple(_budgets(problem, placed, jobs)),
        max_moves=problem.max_moves - moved,
        fragmentation_base=0,
    )
    if problem.makespan_cost:
        known = ends(problem, placed)
        own = with_last_end(own, max((known[j] or 0 for j in outside), default=0))
    return Sub(own, tuple(jobs), tuple(gpus), tuple(nodes.tolist()))


def _participants(state: State, neighbourhood: Neighbourhood) -> tuple[list[int], list[int]]:
    """Jobs that take part, and GPUs whose tenants all do; ascending."""
    gpus = set(neighbourhood.gpus)
    jobs = {j for g in gpus for j in state.tenants.get(g, ())}
    jobs |= {j for j in neighbourhood.waiting if state.placed[j] is None and state.problem.job_gpus.item(j)}
    while True:
        out = {j for j in jobs if not _is_inside(state, j, gpus) or _must_not_return(state, j, jobs)}
        if not out:
            return sorted(jobs), sorted(gpus)
        jobs -= out
        gpus -= {g for j in out for g in state.placed[j] or ()}


def _is_inside(state: State, j: int, gpus: set[int]) -> bool:
    """Both where it is and where it is at home."""
    return gpus.issuperset(state.placed[j] or ()) and gpus.issuperset(state.problem.home[j] or ())


def _must_not_return(state: State, j: int, jobs: set[int]) -> bool:
    """Away from a home on a node that an outsider enters."""
    home = state.problem.home[j]
    if home is None or state.placed[j] == home:
        return False
    there = (state.on_node.get(state.problem.gpu_node.item(g), {}) for g in home)
    return any(i in state.newcomers and i not in jobs for on in there for i in on)


def _slice(problem: Problem, jobs: list[int], gpus: list[int], nodes: np.ndarray) -> Problem:
    """These jobs, GPUs and nodes with their own numbers; what the whole has, as it is."""
    job = {j: i for i, j in enumerate(jobs)}
    gpu = {g: i for i, g in enumerate(gpus)}
    arrays = {name: getattr(problem, name)[gpus] for name in _OF_GPUS}
    arrays |= {name: getattr(problem, name)[nodes] for name in _OF_NODES}
    arrays |= {name: getattr(problem, name)[jobs] for name in OF_JOBS}
    arrays["gpu_node"] = np.searchsorted(nodes, arrays["gpu_node"])
    arrays["gpu_holder"] = np.array([job.get(j, -1) for j in arrays["gpu_holder"].tolist()], np.int64)
    arrays["node_sets"] = problem.node_sets[:, nodes]
    homes = (problem.home[j] for j in jobs)
    return replace(
        problem,
        **arrays,
        home=tuple(None if home is None else tuple(gpu[g] for g in home) for home in homes),
        never=tuple((job[a], job[b]) for a, b in problem.never if a in job and b in job),
    )


def _without_outsiders(own: Problem, state: State, jobs: set[int], nodes: np.ndarray) -> Problem:
    """The nodes less what outsiders use there."""
    problem = state.problem
    cpu, memory = own.node_cpu_milli.copy(), own.node_memory_mib.copy()
    closed, used_cost = own.node_closed.copy(), own.node_used_cost.copy()
    shared = np.zeros(len(nodes), bool)
    for i, v in enumerate(nodes.tolist()):
        for j, count in state.on_node.get(v, {}).items():
            if j in jobs:
                continue
            demand = node_demand(problem, j, count)
            cpu[i] -= demand[0]
            memory[i] -= demand[1]
            closed[i] |= problem.node_alone.item(j)
            shared[i] = True
            if count:
                used_cost[i] = 0
    return replace(
        own,
        node_cpu_milli=cpu,
        node_memory_mib=memory,
        node_closed=closed,
        node_used_cost=used_cost,
        node_sets=np.vstack([own.node_sets, own.node_sets & ~shared]),
        node_set=np.where(own.node_alone, own.node_set + len(own.node_sets), own.node_set),
    )


def _budgets(problem: Problem, placed: Placed, jobs: list[int]) -> Iterator[Budget]:
    """The budgets less what queued outsiders use."""
    number = {j: i for i, j in enumerate(jobs)}
    for budget in problem.budgets:
        members = list(zip(budget.jobs, budget.amounts, strict=True))
        own = [(number[j], amount) for j, amount in members if j in number]
        used = sum(
            amount
            for j, amount in members
            if j not in number and problem.home[j] is None and placed[j] is not None
        )
        yield replace(
            budget,
            capacity=budget.capacity - used,
            jobs=tuple(j for j, _ in own),
            amounts=tuple(amount for _, amount in own),
        )
