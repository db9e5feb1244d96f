"""Which running jobs would have to move for a waiting one to start: subsets of a node's jobs, smallest first.

The jobs of a subset are put back into the queue and all is planned again: if the waiting job and every one of them
get a place, that is a jointly feasible set of moves. Only jobs that said they may move are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from planner import edit
from planner.explain.changes import Change, Ladder, Situation
from planner.model import Job, Snapshot
from planner.policy import Policy

MOST_MOVES = 4
#: Subsets tried for one number of moves.
MOST_SUBSETS = 60


def move_ladder(s: Situation) -> Ladder:
    """Moves that would make room, fewest first."""
    return Ladder(tuple(change for n in range(1, MOST_MOVES + 1) for change in _moves(s, n)))


def _moves(s: Situation, n: int) -> Iterator[Change]:
    """Changes with exactly n moves, those that disturb the fewest GPUs first."""
    found = [set_ for name in s.snapshot.cluster.node_by_name for set_ in _subsets(s, name, n)]
    found.sort(key=lambda those: (sum(j.gpus for j in those), [j.id for j in those]))
    for those in found[:MOST_SUBSETS]:
        yield _requeued(s, those)


def _subsets(s: Situation, node: str, n: int) -> Iterator[tuple[Job, ...]]:
    """Sets of n movable jobs that hold GPUs on the node and, gone, would leave enough of them."""
    gpus = {g.id for g in s.snapshot.cluster.node_by_name[node].gpus if g.healthy}
    there = [j for j in s.snapshot.jobs if j.gpus and gpus.intersection(j.running_on)]
    movable = [j for j in there if may_move(s, j)]
    wanted = min(s.job.gpus, len(gpus), s.job.gpus_per_node or s.job.gpus)
    for those in combinations(movable, n):
        left = [j for j in there if j not in those]
        free = gpus.difference(*(j.running_on for j in left))
        if len(free) >= wanted or not s.job.gpus:
            yield those


def may_move(s: Situation, job: Job) -> bool:
    """It said so, runs already, was not moved by this plan and is not in its cooldown."""
    state = next((a.state for a in s.plan.assignments if a.job_id == job.id), None)
    inputs = s.plan.inputs
    original = None if inputs is None else inputs.snapshot.job_by_id.get(job.id)
    cooling = any(c.name == job.id and c.until_s > s.snapshot.now_s for c in s.snapshot.carryover.cooldowns)
    return state == "stay" and original is not None and original.movable and not cooling


def _requeued(s: Situation, those: tuple[Job, ...]) -> Change:
    ids = {j.id for j in those}

    def make(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
        free = {j.id: edit.changed(j, running_on=(), started_s=None) for j in those}
        return edit.changed(snapshot, jobs=tuple(free.get(j.id, j) for j in snapshot.jobs)), policy

    def asked(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
        return snapshot, edit.with_policy(policy, {"max_moves": max(policy.max_moves, used + len(those))})

    names = ", ".join(j.id for j in those)
    used = sum(a.state == "move" for a in s.plan.assignments) + len(s.plan.preempted)
    moves = f"{len(those)} move{'s' if len(those) > 1 else ''}"
    return Change(
        what=f"max_moves: {used + len(those)}",
        detail=f"needs {moves}: {names} elsewhere",
        make=make,
        asked=asked,
        freed=tuple(sorted(ids)),
        move_cost_gpu_s=sum(_cost(s, j) for j in those),
        parts=lambda: (
            tuple(_requeued(s, tuple(j for j in those if j is not out)) for out in those[:MOST_MOVES])
            if len(those) > 1
            else ()
        ),
    )


def _cost(s: Situation, job: Job) -> float:
    checkpoint = s.policy.checkpoint_s if job.checkpoint_s is None else job.checkpoint_s
    restart = s.policy.restart_s if job.restart_s is None else job.restart_s
    size = job.gpus * (job.gpu_share_milli or 1000) / 1000
    return job.priority * size * (checkpoint + restart) * s.policy.weights.moves
