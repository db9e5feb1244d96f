"""Why each queued job waits: the first reason that holds, with the numbers behind it.

The reasons are tried in the order of ``planner.plan.REASONS``. Held jobs, dependencies and jobs that could never run
are sorted out before the program is solved (``Formulated.excluded``); here the jobs of the program are judged
against the placement that was found:

* ``never_fits``: not even on the empty cluster with every GPU healthy.
* ``unsupported``: only in a form that the backend cannot express.
* ``unknown_memory``: it may not share a GPU that would have room, because memory, utilisation or profile of it, of a
  tenant there or of both is not known (``unknowns``), and no whole GPUs are free for it.
* ``quota``, ``licence``, ``throttle``: a budget has no room left.
* ``reservation_window``: free GPUs would do, but they are kept from a time on, and it is not known when this job
  ends (or nobody in the queue holds them: a window of the cluster itself).
* ``reserved``: free GPUs would do, but they are reserved for another job and this one would end too late, or a
  job there holds reserved GPUs and nothing is added beside it; or the job holds a reservation itself.
* ``fragmented``: the nodes that have GPUs for it have enough GPUs, cores and memory in all, but not together.
* ``interference``: there is room, but every such place breaks a slowdown cap, the sharing gate, somebody's time
  limit, or puts jobs together that must never share.
* ``waiting_capacity``: it would not fit even beside the running jobs alone, or what it needs is closed.
* ``not_chosen``: it fits beside the running jobs, but others gain more: those this plan starts in its place, or the
  neighbours that its coming would slow.

All but the last two look at the cluster as the plan leaves it: a job that finds room only beside a job that this plan
starts, and too slow there, is told ``interference``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from planner.explain import capacity, unknowns
from planner.explain import sentences as say
from planner.explain.choosing import node_for, spot_for
from planner.explain.displaced import Base, Displaced
from planner.explain.joining import Ledger
from planner.explain.openings import Survey
from planner.explain.places import empty_fit, open_now
from planner.predict.interference import build

if TYPE_CHECKING:
    from planner.formulate import Formulated
    from planner.model import Job
    from planner.plan import Reason
    from planner.predict.interference import InterferenceModel
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
    takers: dict[tuple[int, ...], Displaced | None] = field(default_factory=dict)
    unsaid: dict[int, tuple[str, ...]] = field(default_factory=dict)
    nearest: dict[int, int] = field(default_factory=dict)  # by the number of the openings

    @classmethod
    def of(cls, formulated: Formulated, placed: Placed) -> Case:
        """Look a placement over once."""
        jobs = formulated.snapshot.jobs
        wishes = np.array([bool(unknowns.wish(jobs[i])) for i in formulated.jobs], bool)
        survey = Survey(formulated.problem, placed, _kept_closed(formulated), wishes)
        held = {j: (gpus, from_s) for j, gpus, from_s in formulated.reservations}
        return cls(formulated, survey, Ledger(survey), _budgets_left(formulated, placed), held)

    @cached_property
    def in_use(self) -> frozenset[int]:
        """GPUs on which a job runs."""
        p = self.survey.problem
        homes = (home for home, n in zip(p.home, p.job_gpus.tolist(), strict=True) if home and n)
        return frozenset(chain.from_iterable(homes))

    @cached_property
    def base(self) -> Base:
        """The running jobs alone."""
        return Base(self.survey, self.ledger, self.survey.kept, self.survey.wishes)

    @cached_property
    def _model(self) -> InterferenceModel:
        return build(self.formulated.forecast.predictor.interference)

    @cached_property
    def lacking(self) -> np.ndarray:
        """How many tenants of each GPU that could take a job lack a figure; over ``survey.could``."""
        tenants = self.survey.room.tenants
        return np.array([sum(map(bool, map(self.missing, tenants[g]))) for g in self.survey.could.tolist()])

    def job(self, job: int) -> Job:
        """A job of the Problem as the snapshot has it."""
        return self.formulated.snapshot.jobs[self.formulated.jobs[job]]

    def name(self, job: int) -> str:
        """Its id."""
        return self.job(job).id

    def missing(self, job: int) -> tuple[str, ...]:
        """What is not known about it and so keeps it from sharing."""
        if job not in self.unsaid:
            forecast = self.formulated.forecast.jobs[self.formulated.jobs[job]]
            self.unsaid[job] = unknowns.missing(self.job(job), forecast, self._model)
        return self.unsaid[job]


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
    return "not_chosen", capacity.fits_now(case, job, _spot(case, job))


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
    """It could share, were something known about it or about those on the GPUs, and no whole GPUs are free."""
    fit, n = case.survey.fit(job), case.survey.problem.job_gpus.item(job)
    return ("unknown_memory", unknowns.sentence(case, job)) if fit.clear < n <= fit.if_known else None


def _budget(case: Case, job: int) -> Answer | None:
    """A budget has no room left for it."""
    short = [b for b in case.budgets.get(job, ()) if b[1] > b[2]]
    for kind in ("quota", "licence", "throttle"):
        for budget, amount, left in short:
            if budget.kind == kind:
                return kind, say.budget(case, budget, amount, left)
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
    by_time = (own_window or unknown) and say.joinable(case, gpu)
    return ("reservation_window" if by_time else "reserved"), say.window(case, job, gpu)


def _fragmented(case: Case, job: int) -> Answer | None:
    """The nodes that have GPUs for it have enough GPUs, cores and memory in all, but not together."""
    view = case.survey
    n, fit = view.problem.job_gpus.item(job), view.fit(job)
    if fit.clear >= n:
        return None
    if fit.clear_anywhere >= n:
        if capacity.hosts_in_all(case, job):
            return None
        scattered = capacity.scattered if fit.clear_on_any_host < n else capacity.scattered_hosts
        return "fragmented", scattered(case, job)
    shares = capacity.scattered_share(case, job) if fit.room < n else None
    return None if shares is None else ("fragmented", shares)


def _interference(case: Case, job: int) -> Answer | None:
    """There is room, but every such place breaks a rule about neighbours."""
    n, fit = case.survey.problem.job_gpus.item(job), case.survey.fit(job)
    return ("interference", say.neighbours(case, job)) if fit.clear < n <= fit.room else None


def _capacity(case: Case, job: int) -> Answer | None:
    """What it could use is in use: by running jobs, or by those that this plan starts and that gain more."""
    fit, n = case.survey.fit(job), case.survey.problem.job_gpus.item(job)
    if fit.clear >= n:
        return None
    short = capacity.hosts_in_all(case, job) if fit.clear_anywhere >= n else ""
    if case.base.fits(job):
        return "not_chosen", capacity.given_away(case, job, _taken_by(case, job), short)
    return "waiting_capacity", short or capacity.in_use(case, job)


def _taken_by(case: Case, job: int) -> Displaced | None:
    """The starts in its way; the same for alike jobs, unless a reservation tells them apart."""
    base = case.base.survey
    if not base.problem.job_gpus.item(job) or base.kept_from(job):
        return case.base.displaced(job)
    # Jobs may be alike on the base plan and yet find different GPUs clear now.
    key = (*base.likeness(job), *case.survey.likeness(job))
    if key not in case.takers:
        case.takers[key] = case.base.displaced(job)
    return case.takers[key]


def _host_never(case: Case, job: int) -> Answer | None:
    """No node is large enough, not even when empty."""
    most, _ = _empty(case, job)
    return None if most else ("never_fits", say.largest_offer(case, job, 0))


def _host_busy(case: Case, job: int) -> Answer | None:
    """No node has the cores and memory free: scattered if all nodes together have, else in use."""
    if node_for(case.survey, job) is not None:
        return None
    scattered = capacity.scattered_host(case, job)
    if scattered:
        return "fragmented", scattered
    if case.base.fits(job):
        return "not_chosen", capacity.given_away(case, job, _taken_by(case, job), "")
    return "waiting_capacity", capacity.host_in_use(case, job)


_TESTS = (_never, _unknown, _budget, _kept, _fragmented, _interference, _capacity)
_TESTS_WITHOUT_GPUS = (_host_never, _budget, _host_busy)
