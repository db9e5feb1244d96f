"""Where everything is in the two arrays that the kernels work on.

A kernel gets one array of integers and one of floats: passing dozens of arrays from function to function costs numba's
compiler minutes and the compiled code most of its speed. The first ``HEADER`` integers hold the scalars below, and where
each table begins: ``a[a[o.CPU] + j]`` is the cores of job ``j``. What many jobs have in common is there once, in a row of
which the job has the number ``r = a[a[o.ROW] + j]``: ``a[a[o.SPEED] + r * a[o.KINDS] + m]`` is its speed on kind ``m``, and
``f[a[o.SLOPE] + (r * a[o.KINDS] + m) * 3 + link]`` a float. Lists of lists are stored end to end, with a table of where
each begins.
"""

from __future__ import annotations

HEADER = 192
#: Pairs (state, type) that the kernels may ask for between two visits to Python.
REQUESTS = 4096
#: Nodes in view at most.
NODES_IN_VIEW = 8

#: Scalars.
SCALARS = (
    # the plan: objective without what the granted makespan costs, running jobs not at home, the granted makespan
    "TOTAL", "MOVED", "LAST",
    # the search: steps, steps that gained, states asked for, two seeds, two stamps
    "STEPS", "GAINS", "ASKED", "RANDOM", "RANDOM_TWO", "STAMP", "STAMP_TWO",
    # the program
    "NODES", "KINDS", "TYPES", "GATE", "EQUAL", "SAME_INDEX", "MAX_MOVES", "SPAN_COST",
    # sizes of tables
    "WIDTH", "VIEW_MOST", "TAKEN_MOST", "OLD_MOST", "KIN_COUNT", "KIN_MOST", "KINS_LEAST", "KINS_DRAWN", "WIDEST", "PRICED", "POOL_COUNT", "CLASS_COUNT",
)  # fmt: skip

#: Tables of integers. The program: GPUs, nodes, groups a gang may take, jobs, jobs on kinds, classes, kins, contents.
PROGRAM = (
    "NODE", "KIND", "INDEX", "LINK", "MEMORY", "MARGIN", "SHARES", "PLACES", "OUTSIDE", "UNTIL", "HOLDER", "OPEN_COST",
    "NODE_AT", "NODE_GPU", "CPU_CAP", "HOST_CAP", "USED_COST", "OPEN_TO",
    "GROUP_AT", "GROUP_KIND", "GROUP_LINK", "MEMBER_AT", "MEMBER",
    "SIZE_GPUS", "SIZE", "TYPE", "ROW", "UNIT", "WAIT", "MOVE", "WORK", "DEFERRED_END", "P90", "CPU", "HOST", "MAX_NODES",
    "PER_NODE", "NODE_SET", "ALONE", "NODE_ALONE", "GROUP", "MOVABLE", "PREEMPTIBLE", "FACTOR", "SPOT_AT", "HOME_AT",
    "HOME", "NEVER_AT", "NEVER_WITH", "BUDGET_AT", "BUDGET", "AMOUNT", "SPEED", "NEED", "SHARE", "CAP",
    "CLASS", "RANK", "CLASS_AT", "CLASS_JOB", "KIN", "KIN_AT", "KIN_CLASS", "KIN_JOB", "ROOT",
    "STEP", "SLOW",
)  # fmt: skip
#: The plan under way.
PLAN = (
    "STATE", "TENANTS", "TENANT", "MEMORY_USED", "SHARES_USED", "CPU_USED", "HOST_USED", "NODE_JOBS", "LONERS",
    "NODE_GPUS", "GUESTS", "PLACED", "SPOT", "LINKED", "WORST", "LIMIT", "COST", "ROOM", "FIRST",
)  # fmt: skip
#: Scratch paper: what is in view, who competes, what was taken and put in a step, and what is asked of Python.
SCRATCH = (
    "POOL", "MINE", "VIEW", "WHERE", "AT", "KINS", "MARK", "STALE", "OK", "ORDER", "BEST", "TRIAL", "TAKEN", "PUT", "OLD_AT",
    "OLD", "SEEN", "DIRTY", "BID", "NODE_VIEW", "ASKED_FOR",
)  # fmt: skip
#: Tables of floats.
FLOATS = ("FIXED_COST", "SLOPE", "PRICE", "LOST", "ADDED", "KEY", "NOISE", "WEIGHT", "WORTH")

PLACE = {name: i for i, name in enumerate((*SCALARS, *PROGRAM, *PLAN, *SCRATCH, *FLOATS))}
assert len(PLACE) < HEADER
globals().update(PLACE)


def __getattr__(name: str) -> int:
    """For type checkers: the names of ``PLACE`` are numbers of this module."""
    raise AttributeError(name)
