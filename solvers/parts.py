"""One Problem split into k smaller ones, which are solved apart and merged into one plan: POP for placement.

Partitioned optimisation problems (POP: Narayanan et al., SOSP 2021) deal clients and resources at random into parts, each
a small image of the whole, so that k small programs stand in for a large one. Here a part has whole nodes of every
shape, the running jobs at home on them, and queued jobs of every class. A gang that runs across nodes keeps its nodes
together. Budgets and moves are divided so that the parts' sum never passes the whole's, and every other
rule looks at one job, one GPU or one node: plans that are valid for the parts are valid together.

What a split loses: a job cannot use another part's room; one fill of the whole, last, gives back a little. **The
parts' bounds make no bound of the whole**: they hold only for plans that respect the split, and the best plan need
not. So a merged answer has the bound of an unsplit solution, or none.

A part's problem is one like any other and travels by ``solvers.dump``; who solves it needs nothing else.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from solvers import deal, dump
from solvers.check import objective, violations
from solvers.child import apart
from solvers.facts import Facts
from solvers.last_end import with_last_end
from solvers.problem import Attempt, Budget, Limits, Placed, Problem, Report, Solution, Spot, Status
from solvers.run import solve
from solvers.search import Search
from solvers.sharing import Sharing
from solvers.state import State
from solvers.twins import OF_JOBS
from solvers.workers import workers

#: The share of the limit that is left for merging, and for the last fill of the whole.
MERGE_SHARE = 0.1
#: The greedy's first pass is always finished; it takes a job no more than this.
JOB_S = 0.002

_ARRAYS = [f.name for f in fields(Problem) if f.type == "np.ndarray"]
_OF_GPUS = [name for name in _ARRAYS if name.startswith("gpu_")]
_OF_NODES = ["node_cpu_milli", "node_memory_mib", "node_closed", "node_used_cost"]

#: Solves problems, one by one or at the same time, all within the limits; a Solution for each, in their order.
Run = Callable[[Sequence[Problem], Limits], Sequence[Solution]]


@dataclass(frozen=True)
class Part:
    """A part of a Problem, and which job, GPU and node of the whole each of its own is, ascending.

    The problem may have one job more than ``jobs``, the last; see :func:`_with_floor`.
    """

    problem: Problem
    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Loss:
    """What a split costs, as a share of the objective; None where there is nothing to compare with."""

    to_bound: float | None  # (merged - bound) / merged
    to_whole: float | None  # (merged - unsplit) / unsplit


def split(problem: Problem, k: int, seed: int) -> list[Part]:
    """Deal nodes and jobs into k parts that look alike; equal arguments give equal parts.

    Raises
    ------
    ValueError
        There are fewer nodes than parts, those that a running gang ties together counted once.
    """
    rng = np.random.default_rng(seed)
    groups = deal.tied(problem)
    if not 1 <= k <= len(groups):
        tied = "" if len(groups) == problem.nodes else f", which running gangs tie into {len(groups)} groups,"
        raise ValueError(f"cannot split {problem.nodes} nodes{tied} into {k} parts: each part needs one")
    node_part = deal.part_of_nodes(problem, groups, k, rng)
    job_part = deal.part_of_jobs(problem, node_part, k, rng)
    running = np.array([home is not None for home in problem.home], bool)
    loose = running & (np.asarray(problem.movable, bool) | np.asarray(problem.preemptible, bool))
    moves = _apportion(problem.max_moves, np.bincount(job_part[loose], minlength=k))
    budgets = [_divided(problem, budget, job_part, k) for budget in problem.budgets]
    floor = Facts(problem).earliest_makespan
    parts = []
    for p in range(k):
        part = _cut(problem, np.flatnonzero(job_part == p), np.flatnonzero(node_part == p))
        own = replace(
            part.problem,
            budgets=tuple(_numbered(budget[p], part.jobs) for budget in budgets),
            max_moves=moves[p],
            fragmentation_base=0 if p else problem.fragmentation_base,  # a constant, so one has it
        )
        parts.append(replace(part, problem=_with_floor(own, floor)))
    return parts


def merge(problem: Problem, parts: Sequence[Part], answers: Sequence[Solution]) -> Placed:
    """One placement of the answers, valid for the whole; a part without a valid one keeps its base plan."""
    placed: list[Spot | None] = list(problem.home)
    for part, answer in zip(parts, answers, strict=True):
        if answer.placed is None or violations(part.problem, answer.placed):
            continue
        for j, spot in zip(part.jobs, answer.placed, strict=False):
            whole = part.gpus if problem.job_gpus[j] else part.nodes
            placed[j] = None if spot is None else tuple(whole[i] for i in spot)
    return tuple(placed)


def fill(problem: Problem, placed: Placed, seed: int, ends_at: float = math.inf) -> Placed:
    """Start every queued job that waits and finds room anywhere in the whole, until ``ends_at`` (monotonic, s).

    A fill that the referee refuses is not used.
    """
    facts = Facts(problem)
    search = Search(State(facts, Sharing(facts)), placed, seed)
    search.fill(ends_at)
    filled = tuple(search.state.placed)
    return placed if violations(problem, filled) else filled


def loss(merged: Solution, whole: Solution) -> Loss:
    """A merged answer against an unsplit solution of the same problem and its bound."""
    cost, bound, other = merged.objective, whole.bound, whole.objective
    return Loss(
        None if cost is None or bound is None else (cost - bound) / cost if cost else 0.0,
        None if cost is None or other is None else (cost - other) / other if other else 0.0,
    )


def save_part(part: Part, path: Path) -> None:
    """Write a part for :func:`load_part`; ``solvers.dump.load`` reads its problem alone."""
    dump.save(part.problem, path, {name: list(getattr(part, name)) for name in ("jobs", "gpus", "nodes")})


def load_part(path: Path) -> Part:
    """The part in a file; ValueError if it holds none."""
    problem, about = dump.load(path), dump.about(path)
    try:
        return Part(problem, **{name: tuple(about[name]) for name in ("jobs", "gpus", "nodes")})
    except KeyError as error:
        raise ValueError(f"{path}: a problem, but no part of one: it lacks {error}") from error


# ---- solving ----


def local(problems: Sequence[Problem], limits: Limits) -> list[Solution]:
    """Solve in child processes of this machine, as many at once as there are workers; who is late leaves others less."""
    began, count = time.monotonic(), 1 if limits.deterministic else limits.workers or workers()
    at_once = max(1, min(count, len(problems)))
    starting, over = threading.Lock(), threading.Event()

    def one(p: int) -> Solution:
        turns = -(-len(problems) // at_once) - p // at_once  # that are left, this one included
        left_s = limits.wall_s - (time.monotonic() - began)
        if limits.deterministic:
            left_s = limits.wall_s * turns / len(problems)
        share = replace(limits, wall_s=max(0.0, left_s) / turns, workers=count // at_once)
        return _in_child(problems[p], share, starting, over)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(one, range(len(problems))))
        finally:
            over.set()  # on an interrupt nobody waits for those that are still at work


def _in_child(problem: Problem, limits: Limits, starting: threading.Lock, over: threading.Event) -> Solution:
    """One problem in a child; ``starting`` is held until it is there, so that it inherits no other's open pipe."""
    starting.acquire()
    held = True

    def stop() -> bool:  # asked for the first time as soon as the child runs
        nonlocal held
        if held:
            held = False
            starting.release()
        return over.is_set()

    try:
        ends_at = time.monotonic() + limits.wall_s + limits.grace_s + JOB_S * problem.jobs
        ending = apart(_solve, problem, limits, None, ends_at=ends_at, stop=stop)
    finally:
        if held:
            starting.release()
    if ending.answer is None:
        note = ending.note or ending.end.value
        return Solution("part", Status.FAILED, note=note, wall_s=ending.wall_s)
    return replace(ending.answer, wall_s=ending.wall_s)


def _solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
    return solve(problem, limits, hint=hint, bound=False)


def solve_parts(
    problem: Problem, limits: Limits, k: int, run: Run = local, *, whole: Solution | None = None
) -> Solution:
    """Split into k parts, solve them, merge, and start what then still finds room.

    Parameters
    ----------
    run
        Who solves the parts, within the limits it is given.
    whole
        An unsplit solution of the same problem: its bound is taken over, and the note states the loss.

    Raises
    ------
    ValueError
        As :func:`split`.
    """
    began = time.monotonic()
    parts = split(problem, k, limits.seed)
    # In deterministic mode nothing may depend on the clock.
    spent_s = 0.0 if limits.deterministic else time.monotonic() - began
    left_s = limits.wall_s * (1 - MERGE_SHARE if k > 1 else 1) - spent_s
    answers = run([part.problem for part in parts], replace(limits, wall_s=max(0.0, left_s)))
    merged = merge(problem, parts, answers)
    ends_at = math.inf if limits.deterministic or not limits.wall_s else began + limits.wall_s
    plans = [merged, problem.base] + ([fill(problem, merged, limits.seed, ends_at)] if k > 1 else [])
    placed = min(plans, key=lambda plan: objective(problem, plan).total)
    more = sum(a is None and b is not None for a, b in zip(merged, placed, strict=True))
    found = Solution(
        engine="parts",
        status=Status.FEASIBLE,
        placed=placed,
        objective=objective(problem, placed).total,
        bound=None if whole is None else whole.bound,
        wall_s=time.monotonic() - began,
        note=f"{k} part{'s' if k > 1 else ''}, {more} started in the last fill",
        attempts=tuple(_attempt(p, answer) for p, answer in enumerate(answers)),
    )
    return found if whole is None else replace(found, note=f"{found.note}; {_told(loss(found, whole))}")


def _attempt(p: int, answer: Solution) -> Attempt:
    """A part's answer for the record, without its bound, which is none of the whole."""
    name = f"part {p}: {answer.engine}"
    return Attempt(name, answer.status, answer.objective, None, answer.wall_s, answer.note)


def _told(loss: Loss) -> str:
    shares = ((loss.to_bound, "off the bound"), (loss.to_whole, "above the unsplit plan"))
    return ", ".join(f"{share:.2%} {what}" for share, what in shares if share is not None)


# ---- cutting ----


def _apportion(total: int, weights: np.ndarray) -> list[int]:
    """Whole parts of a total by weight, largest remainder first; they add up to it."""
    weights = weights if weights.any() else np.eye(1, len(weights), dtype=np.int64)[0]
    exact = [(total * w, int(weights.sum())) for w in weights.tolist()]
    shares = [a // b for a, b in exact]
    rest = sorted(range(len(shares)), key=lambda p: (-(exact[p][0] % exact[p][1]), p))
    for p in rest[: total - sum(shares)]:
        shares[p] += 1
    return shares


def _divided(problem: Problem, budget: Budget, job_part: np.ndarray, k: int) -> list[Budget]:
    """A budget for each part, by what its queued jobs ask for; jobs still numbered as in the whole."""
    asked = np.zeros(k, np.int64)
    members = list(zip(budget.jobs, budget.amounts, strict=True))
    for j, amount in members:
        asked[job_part[j]] += amount if problem.home[j] is None else 0
    divided = []
    for p, capacity in enumerate(_apportion(budget.capacity, asked)):
        own = [(j, amount) for j, amount in members if job_part[j] == p]
        jobs, amounts = tuple(j for j, _ in own), tuple(amount for _, amount in own)
        divided.append(replace(budget, capacity=capacity, jobs=jobs, amounts=amounts))
    return divided


def _numbered(budget: Budget, jobs: tuple[int, ...]) -> Budget:
    """The same with the part's own numbers of its jobs."""
    number = {j: i for i, j in enumerate(jobs)}
    return replace(budget, jobs=tuple(number[j] for j in budget.jobs))


def _cut(problem: Problem, jobs: np.ndarray, nodes: np.ndarray) -> Part:
    """These nodes, their GPUs and these jobs as a problem of their own; budgets and moves still the whole's."""
    gpus = np.flatnonzero(np.isin(problem.gpu_node, nodes))
    job, gpu, node = (
        _inverse(own, count)
        for own, count in ((jobs, problem.jobs), (gpus, problem.gpus), (nodes, problem.nodes))
    )
    arrays = {name: getattr(problem, name)[gpus] for name in _OF_GPUS}
    arrays |= {name: getattr(problem, name)[nodes] for name in _OF_NODES}
    arrays |= {name: getattr(problem, name)[jobs] for name in OF_JOBS}
    arrays |= {"node_sets": problem.node_sets[:, nodes], "gpu_node": node[arrays["gpu_node"]]}
    arrays["gpu_holder"] = job[arrays["gpu_holder"]]  # of -1 the last, which is -1
    home: list[Spot | None] = []
    for j in jobs.tolist():
        spot, number = problem.home[j], gpu if problem.job_gpus[j] else node
        home.append(None if spot is None else tuple(number[list(spot)].tolist()))
    pairs = ((int(job[a]), int(job[b])) for a, b in problem.never)
    never = tuple((a, b) for a, b in pairs if a >= 0 and b >= 0)  # pairs apart never meet
    own = replace(problem, **arrays, home=tuple(home), never=never)
    return Part(own, tuple(jobs.tolist()), tuple(gpus.tolist()), tuple(nodes.tolist()))


def _inverse(own: np.ndarray, count: int) -> np.ndarray:
    """The part's number of each of the whole's, -1 for those elsewhere and for -1."""
    number = np.full(count + 1, -1)
    number[own] = np.arange(len(own))
    return number


def _with_floor(problem: Problem, floor: int) -> Problem:
    """The part with one more job, if need be: it can run nowhere, waits for nothing, and ends at ``floor``.

    Ends before the whole's earliest makespan cost the whole nothing, so a part that does not have the longest job
    should not pay for an earlier end either.
    """
    if not problem.makespan_cost or Facts(problem).earliest_makespan >= floor:
        return problem
    return with_last_end(problem, floor)
