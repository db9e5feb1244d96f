"""Why each queued job waits: the first reason that holds, with the numbers behind it.

The reasons are tried in the order of ``planner.plan.REASONS``. Held jobs, dependencies and jobs that could never run
are sorted out before the program is solved (``Formulated.excluded``); here the jobs of the program are judged
against the placement that was found:

* ``never_fits``: not even on the empty cluster with every GPU healthy.
* ``unsupported``: only in a form that the backend cannot express.
* ``unknown_memory``: no whole GPUs are free, and it may not share because its memory or use is not known.
* ``quota``, ``licence``, ``throttle``: a budget has no room left.
* ``reservation_window``: free GPUs would do, but they are kept from a time on, and it is not known when this job
  ends (or nobody in the queue holds them: a window of the cluster itself).
* ``reserved``: free GPUs would do, but they are reserved for another job and this one would end too late, or a
  job there holds reserved GPUs and nothing is added beside it; or the job holds a reservation itself.
* ``fragmented``: enough in total, but not in the shape it needs; a host's cores and memory count as shape.
* ``interference``: there is room, but every such place breaks a slowdown cap, the sharing gate, somebody's time
  limit, or puts jobs together that must never share.
* ``waiting_capacity``: what it could use is in use.
* ``not_chosen``: it would fit now, but starting it costs more than it gains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from planner.explain import sentences as say
from planner.explain.choosing import node_for, spot_for
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.explain.places import empty_fit, open_now

if TYPE_CHECKING:
    from planner.formulate import Formulated
    from planner.plan import Reason
    from solvers.problem import Budget, Placed, Spot

Answer = tuple["Reason", str]


def reasons(formulated: Formulated, placed: Placed) -> list[tuple[int, Reason, str]]:
    """Reason and sentence for each queued job of the Problem that ``placed`` defers.

    Returns
    -------
    list of (problem job, reason, detail), in the order of the Problem's jobs
    """
    case = Case.of(formulated, placed)
    waiting = [j for j, spot in enumerate(placed) if spot is None and case.survey.problem.home[j] is None]
    return [(j, *_reason(case, j)) for j in waiting]


@dataclass(frozen=True)
class Case:
    """A placement to be explained."""

    formulated: Formulated
    survey: Survey
    ledger: Ledger
    budgets: dict[int, list[tuple[Budget, int, int]]]  # job -> budget, its amount, what is left
    held_for: dict[int, tuple[tuple[int, ...], float]]  # job -> GPUs kept for it, and from when
    spots: dict[tuple[int, ...], Spot | None] = field(default_factory=dict)
    offers: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, formulated: Formulated, placed: Placed) -> Case:
        """Look a placement over once."""
        survey = Survey(formulated.problem, placed, _kept_closed(formulated))
        held = {j: (gpus, from_s) for j, gpus, from_s in formulated.reservations}
        return cls(formulated, survey, Ledger(survey), _budgets_left(formulated, placed), held)


def _kept_closed(formulated: Formulated) -> np.ndarray:
    """GPUs that are closed only to keep a reservation: nothing is wrong with them or their node."""
    nodes = formulated.snapshot.cluster.node_by_name
    sound = [
        g.healthy and g.unmanaged_memory_mib is not None and nodes[g.node].schedulable
        for g in formulated.snapshot.cluster.gpus
    ]
    problem = formulated.problem
    if not formulated.reservations or len(sound) != problem.gpus:
        return np.zeros(problem.gpus, bool)
    return problem.gpu_closed & ~problem.node_closed[problem.gpu_node] & np.array(sound, bool)


def _budgets_left(formulated: Formulated, placed: Placed) -> dict[int, list[tuple[Budget, int, int]]]:
    problem, found = formulated.problem, dict[int, list["tuple[Budget, int, int]"]]()
    for budget in problem.budgets:
        users = list(zip(budget.jobs, budget.amounts, strict=True))
        used = sum(a for j, a in users if problem.home[j] is None and placed[j] is not None)
        for j, amount in users:
            found.setdefault(j, []).append((budget, amount, budget.capacity - used))
    return found


def _reason(case: Case, job: int) -> Answer:
    for test in _TESTS if case.survey.problem.job_gpus.item(job) else _TESTS_WITHOUT_GPUS:
        answer = test(case, job)
        if answer is not None:
            return answer
    return "not_chosen", say.fits_now(case, job, _spot(case, job))


def _spot(case: Case, job: int) -> Spot | None:
    """Where it would start; alike jobs would at one place, unless a reservation tells them apart."""
    view = case.survey
    if not view.problem.job_gpus.item(job) or view.kept_from(job):
        return spot_for(case.ledger, job)
    key = view.likeness(job)
    if key not in case.spots:
        case.spots[key] = spot_for(case.ledger, job)
    return case.spots[key]


def _empty(case: Case, job: int) -> tuple[int, int]:
    """What the empty cluster would offer; worked out once for alike jobs."""
    p = case.survey.problem
    key = (
        p.speed_milli[job].tobytes(),
        p.memory_mib[job].tobytes(),
        p.share[job].tobytes(),
        p.node_set.item(job),
        p.job_gpus.item(job),
        p.max_nodes.item(job),
        p.gpus_per_node.item(job),
        p.cpu_milli.item(job),
        p.host_memory_mib.item(job),
    )
    if key not in case.offers:
        case.offers[key] = empty_fit(case.survey, job)
    return case.offers[key]


def _never(case: Case, job: int) -> Answer | None:
    """Not even on the empty, healthy cluster, or only in a form that the backend cannot express."""
    n = case.survey.problem.job_gpus.item(job)
    most, most_in_any_form = _empty(case, job)
    if most >= n:
        return None
    if most_in_any_form >= n:
        return "unsupported", say.form(case, n)
    return "never_fits", say.largest_offer(case, job, most)


def _unknown(case: Case, job: int) -> Answer | None:
    """It could share, were its memory and use known, and no whole GPUs are free."""
    view = case.survey
    missing = say.unknown(case, job)
    if not missing or not view.problem.alone.item(job):
        return None
    fit, n = view.fit(job), view.problem.job_gpus.item(job)
    if fit.clear >= n or fit.sharing < n:
        return None
    return "unknown_memory", say.could_share(n, missing)


def _budget(case: Case, job: int) -> Answer | None:
    """A budget has no room left for it."""
    short = [b for b in case.budgets.get(job, ()) if b[1] > b[2]]
    for kind in ("quota", "licence", "throttle"):
        for budget, amount, left in short:
            if budget.kind == kind:
                return kind, say.budget(budget, amount, left)
    return None


def _kept(case: Case, job: int) -> Answer | None:
    """It holds a reservation, or free GPUs would do but are kept from a time on."""
    view = case.survey
    if job in case.held_for:
        return "reserved", say.own_reservation(case, job)
    n = view.problem.job_gpus.item(job)
    if view.fit(job).clear < n or open_now(view, job) >= n:
        return None
    gpu = say.blocking_window(case, job)
    own_window = view.problem.gpu_holder.item(gpu) < 0
    unknown = view.problem.remaining_p90_s.item(job) < 0
    by_time = (own_window or unknown) and not view.kept[gpu]
    return ("reservation_window" if by_time else "reserved"), say.window(case, job, gpu)


def _fragmented(case: Case, job: int) -> Answer | None:
    """Enough in total, but not in its shape; a host's cores and memory count as shape."""
    view = case.survey
    n, fit = view.problem.job_gpus.item(job), view.fit(job)
    if fit.clear >= n:
        return None
    if fit.clear_anywhere >= n:
        if fit.clear_on_any_host < n:
            return "fragmented", say.scattered(case, job)
        # Cores and memory that all hosts together do not have are in use, not scattered.
        together = say.scattered_host(case, job) is not None
        return ("fragmented" if together else "waiting_capacity"), say.hosts_short(case, job)
    shares = say.scattered_share(case, job) if fit.room < n else None
    return None if shares is None else ("fragmented", shares)


def _interference(case: Case, job: int) -> Answer | None:
    """There is room, but every such place breaks a rule about neighbours."""
    n, fit = case.survey.problem.job_gpus.item(job), case.survey.fit(job)
    return ("interference", say.neighbours(case, job)) if fit.clear < n <= fit.room else None


def _capacity(case: Case, job: int) -> Answer | None:
    """What it could use is in use."""
    if case.survey.fit(job).clear >= case.survey.problem.job_gpus.item(job):
        return None
    return "waiting_capacity", say.in_use(case, job)


def _host_never(case: Case, job: int) -> Answer | None:
    """No node is large enough, not even when empty."""
    most, _ = _empty(case, job)
    return None if most else ("never_fits", say.largest_offer(case, job, 0))


def _host_busy(case: Case, job: int) -> Answer | None:
    """No node has the cores and memory free: scattered if all nodes together have, else in use."""
    if node_for(case.survey, job) is not None:
        return None
    scattered = say.scattered_host(case, job)
    return ("fragmented", scattered) if scattered else ("waiting_capacity", say.host_in_use(case, job))


_TESTS = (_never, _unknown, _budget, _kept, _fragmented, _interference, _capacity)
_TESTS_WITHOUT_GPUS = (_host_never, _budget, _host_busy)
