"""A Problem, and a plan for it, written into the two arrays that the kernels work on (see ``layout``).

Jobs that differ only in what waiting costs them and in their ends form a *class* (and a job whose end may decide the
makespan shares its class only with those that bear as much slowing down). Classes that differ only in what a lost second costs form a *kin*: whether one may go to
a GPU, and what it does to the tenants there, is worked out once for all of a kin. The members of a class are
interchangeable, so it is always the costliest to wait that is taken first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solvers.contents import MOST_TENANTS, Contents
from solvers.facts import Facts, numbered
from solvers.kernels.layout import NODES_IN_VIEW, REQUESTS

#: Kins that compete in one step, at most; mostly some are drawn.
KINS = 96
#: The scale on which slowdowns that make a job late are told apart.
LATE_STEPS = (1000, 1050, 1100, 1200, 1350, 1500, 1750, 2000, 2500, 3000, 4000, 6000, 10_000)
#: Above every slowdown.
NO_LIMIT = 2**40
#: GPUs in view at most, unless a few nodes have more.
VIEW = 64

Tables = dict[str, np.ndarray]


def cluster_tables(facts: Facts) -> Tables:
    """GPUs, nodes, and the groups of GPUs that a gang may take on one node."""
    p, view = facts.problem, facts.everything
    groups = [[g for g in row if g < p.gpus] for row in view.slots.tolist()] if p.gpus else []
    residents = np.zeros(max(1, p.gpus), np.int64)
    for j, home in enumerate(p.home):
        if home is not None and p.job_gpus[j]:
            residents[list(home)] += 1
    places = np.minimum(p.gpu_max_tenants, max(MOST_TENANTS, int(residents.max())))
    tables = {
        "NODE": p.gpu_node, "KIND": p.gpu_kind, "INDEX": p.gpu_index, "LINK": p.gpu_link,
        "MEMORY": p.gpu_memory_mib, "MARGIN": p.gpu_margin_mib, "SHARES": p.gpu_share,
        "PLACES": np.where(p.gpu_closed, 0, places), "OUTSIDE": p.gpu_shared_outside, "UNTIL": p.gpu_until_s,
        "HOLDER": p.gpu_holder, "OPEN_COST": p.gpu_open_cost, "CPU_CAP": p.node_cpu_milli,
        "HOST_CAP": p.node_memory_mib, "USED_COST": p.node_used_cost, "OPEN_TO": facts.open_nodes,
        "GROUP_AT": np.searchsorted(view.group_node, np.arange(p.nodes + 1)), "GROUP_KIND": view.group_kind,
        "GROUP_LINK": view.group_link,
    }  # fmt: skip
    tables["NODE_AT"], tables["NODE_GPU"] = end_to_end(facts.gpus_of)
    tables["MEMBER_AT"], tables["MEMBER"] = end_to_end(groups)
    return tables


def job_tables(facts: Facts) -> Tables:
    """Jobs, and jobs on kinds."""
    p = facts.problem
    units = np.stack([p.unit_speed, p.unit_interference, p.unit_locality], 1)
    by_kind = {"SPEED": p.speed_milli, "NEED": p.memory_mib, "SHARE": p.share, "CAP": p.cap_milli}
    row = numbered(np.hstack([units, p.link_milli, *by_kind.values()]))
    first = np.unique(row, return_index=True)[1]
    tables = {
        "SIZE_GPUS": p.job_gpus, "SIZE": p.size_milli, "TYPE": p.job_type, "ROW": row, "WAIT": p.wait_cost,
        "MOVE": p.move_cost, "WORK": p.work, "DEFERRED_END": p.deferred_end, "P90": p.remaining_p90_s,
        "CPU": p.cpu_milli, "HOST": p.host_memory_mib, "MAX_NODES": p.max_nodes, "PER_NODE": p.gpus_per_node,
        "NODE_SET": p.node_set, "ALONE": p.alone, "NODE_ALONE": p.node_alone, "GROUP": p.share_group,
        "MOVABLE": p.movable, "PREEMPTIBLE": p.preemptible,
        "SPOT_AT": np.r_[0, np.cumsum(np.maximum(p.job_gpus, 1))],
        "UNIT": units[first], "FACTOR": p.link_milli[first], "SLOPE": facts.slope[first],
        "FIXED_COST": np.where(np.isfinite(facts.fixed_cost), facts.fixed_cost, 1e30)[first],
        **{name: table[first] for name, table in by_kind.items()},
    }  # fmt: skip
    homes = {j: list(home) for j, home in enumerate(p.home) if home and p.job_gpus[j]}
    drawn = {j: row for j, row in facts.budget_of.items() if row}
    tables["HOME_AT"], tables["HOME"] = _of_some(homes, p.jobs)
    tables["NEVER_AT"], tables["NEVER_WITH"] = _of_some(
        {j: sorted(with_) for j, with_ in facts.never.items()}, p.jobs
    )
    tables["BUDGET_AT"], tables["BUDGET"] = _of_some(
        {j: [b for b, _ in row] for j, row in drawn.items()}, p.jobs
    )
    tables["AMOUNT"] = _of_some({j: [amount for _, amount in row] for j, row in drawn.items()}, p.jobs)[1]
    return tables


def content_tables(contents: Contents) -> Tables:
    """States of a GPU."""
    return {
        "STEP": contents.step[: contents.states],
        "SLOW": contents.slow[: contents.states],
        "ROOT": np.array([contents.of[kind, ()] for kind in range(contents.kinds)]),
    }


def plan_tables(facts: Facts, tables: Tables, last: int) -> Tables:
    """Nothing placed yet."""
    p = facts.problem
    runs = np.diff(tables["HOME_AT"]) > 0
    most = max(int(tables["PLACES"].max(initial=1)), int(np.bincount(tables["HOME"]).max(initial=1)))
    gpus, nodes, jobs = (np.zeros(n, np.int64) for n in (p.gpus, p.nodes, p.jobs))
    late = np.maximum(0, p.deferred_end - last) * p.makespan_cost
    classes = len(tables["CLASS_AT"]) - 1
    return {
        "STATE": tables["ROOT"][p.gpu_kind], "TENANTS": gpus, "TENANT": np.full((p.gpus, most + 1), -1),
        "MEMORY_USED": gpus, "SHARES_USED": gpus, "CPU_USED": nodes, "HOST_USED": nodes, "NODE_JOBS": nodes,
        "LONERS": nodes, "NODE_GPUS": nodes, "GUESTS": nodes, "PLACED": jobs, "SPOT": np.zeros(int(tables["SPOT_AT"][-1])),
        "LINKED": jobs, "WORST": np.full(p.jobs, 1000), "LIMIT": np.full(p.jobs, NO_LIMIT),
        "COST": p.wait_cost + np.where(runs, p.move_cost, 0) + late, "ROOM": np.array(facts.budget_room or [0]),
        "FIRST": np.zeros(classes), "PRICE": np.zeros(classes),
    }  # fmt: skip


def scratch_tables(tables: Tables) -> Tables:
    """Scratch paper for views of a few nodes."""
    gpus, jobs, nodes = len(tables["NODE"]), len(tables["TYPE"]), len(tables["CPU_CAP"])
    largest = int(np.diff(tables["NODE_AT"]).max(initial=1))
    view = max(1, min(gpus, max(VIEW, 4 * largest)))
    rows = min(KINS, len(tables["KIN_JOB"])) + 1
    taken = view * int(tables["TENANT"].shape[1]) + 64
    widest = int(tables["SIZE_GPUS"].max(initial=1)) + 1
    classes = len(tables["KIN"])
    sizes: dict[str, int] = {
        "POOL": nodes, "MINE": nodes, "VIEW": view, "WHERE": view, "AT": gpus, "KINS": rows, "MARK": len(tables["KIN_JOB"]),
        "STALE": view, "OK": rows * view, "ORDER": view, "BEST": view + widest, "TRIAL": view + widest,
        "TAKEN": taken, "PUT": taken + 1, "OLD_AT": taken + 1, "OLD": taken + 4 * view, "SEEN": jobs,
        "NODE_VIEW": NODES_IN_VIEW, "ASKED_FOR": 2 * REQUESTS, "LOST": rows * view, "ADDED": rows * view,
        "KEY": view, "NOISE": tables["STEP"].shape[1], "WEIGHT": 4,
        "DIRTY": classes, "BID": classes * widest, "WORTH": classes,
    }  # fmt: skip
    scratch = {name: np.zeros(size) for name, size in sizes.items()}
    scratch["AT"] = np.full(gpus, -1)
    return scratch


def end_to_end(lists: Iterable[Iterable[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where each list begins, and all of them in a row."""
    rows = [list(row) for row in lists]
    at = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=at[1:])
    return at, np.fromiter((i for row in rows for i in row), np.int64, int(at[-1]))


def _of_some(lists: dict[int, list[int]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for lists of which most are empty and not given."""
    at = np.zeros(count + 1, np.int64)
    for i, row in lists.items():
        at[i + 1] = len(row)
    return np.cumsum(at), np.array([x for i in sorted(lists) for x in lists[i]], np.int64)


def class_tables(facts: Facts, last: int) -> Tables:
    """Class and rank of each job, members of each class, kin of each class, classes of each kin.

    Running jobs, and jobs without GPUs, are in no class (-1): nobody else can take their place.
    """
    p = facts.problem
    who = np.flatnonzero(np.array([home is None for home in p.home], bool) & (p.job_gpus > 0))
    kin_of_job = numbered(_alike(facts)[who])
    class_of_job = numbered(np.hstack([kin_of_job[:, None], _lanes(facts, last)[who]]))
    wait = p.wait_cost[who] + np.maximum(0, p.deferred_end[who] - last) * p.makespan_cost
    order = np.lexsort((who, -wait, class_of_job))
    at = np.searchsorted(class_of_job[order], np.arange(class_of_job.max(initial=-1) + 2))
    cls, rank = np.full(p.jobs, -1), np.zeros(p.jobs, np.int64)
    cls[who] = class_of_job
    rank[who[order]] = np.arange(len(who)) - at[class_of_job[order]]
    kin = kin_of_job[order[at[:-1]]]
    by_kin = np.argsort(kin, kind="stable")
    kin_at = np.searchsorted(kin[by_kin], np.arange(kin.max(initial=-1) + 2))
    job = who[order]
    return {
        "CLASS": cls, "RANK": rank, "CLASS_AT": at, "CLASS_JOB": job, "KIN": kin, "KIN_AT": kin_at,
        "KIN_CLASS": by_kin, "KIN_JOB": job[at[by_kin[kin_at[:-1]]]],
    }  # fmt: skip


def _alike(facts: Facts) -> np.ndarray:
    """What a kin has in common, one row a job."""
    p = facts.problem
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    budgets, alone = np.full(p.jobs, -1), np.full(p.jobs, -1)
    for j, row in facts.budget_of.items():
        budgets[j] = numbers.setdefault(tuple(row), len(numbers))
    alone[list(facts.never)] = list(facts.never)
    columns = (
        p.job_gpus, p.size_milli, p.job_type, p.cpu_milli, p.host_memory_mib, p.max_nodes, p.gpus_per_node,
        p.node_set, p.alone, p.node_alone, p.share_group, budgets, alone,
        p.link_milli, p.speed_milli, p.memory_mib, p.share, p.cap_milli,
    )  # fmt: skip
    return np.hstack(
        [(column if column.ndim > 1 else column[:, None]).astype(np.int64) for column in columns]
    )


def _lanes(facts: Facts, last: int) -> np.ndarray:
    """What tells the classes of a kin apart: costs, and how much each kind may slow a job before it ends too late."""
    p = facts.problem
    return np.hstack(
        [
            p.unit_speed[:, None],
            p.unit_interference[:, None],
            p.unit_locality[:, None],
            late_caps(facts, last),
        ]
    )


def late_caps(facts: Facts, last: int) -> np.ndarray:
    """Slowdowns (thousandths, on a coarse scale) up to which a job ends in time on each kind, shape (J, M).

    A job that ends in time in any case has its own cap; 0 is a kind that it would be late on even alone.
    """
    p = facts.problem
    link = p.link_milli[np.arange(p.jobs), np.where(p.job_gpus > 1, np.where(p.max_nodes > 1, 2, 1), 0)]
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(
            (p.work[:, None] > 0) & (p.makespan_cost > 0),
            float(last) * p.speed_milli * 1e6 / (p.work * 1.0 * link)[:, None],
            np.inf,
        )
    steps = np.array(LATE_STEPS)
    coarse = np.where(most < steps[0], 0, steps[np.searchsorted(steps, most, side="right") - 1])
    return np.where(most >= np.minimum(p.cap_milli, p.interference.worst_milli), p.cap_milli, coarse)
