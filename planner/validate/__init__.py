"""May this plan be done to this cluster? The second opinion on every plan, solver-free.

It works on the plan's and the snapshot's own values, with arithmetic of its own, and shares no code with the solvers or
their referee. Each rule is one function whose docstring is the rule; a finding names the job, the place
and the numbers. What already breaks a rule and is left alone is no finding: rules bind where a job starts
or moves to.
"""

from __future__ import annotations

from planner.model import Snapshot
from planner.plan import Forecast, Plan
from planner.policy import Policy
from planner.validate import figures, hosts, jobs, sharing
from planner.validate.scene import Finding, scene_of

__all__ = ["FORM", "RULES", "Finding", "problems_of"]

#: Without these nothing else can be judged.
FORM = (jobs.decided_once, jobs.places_exist)
# fmt: off
RULES = (
    jobs.gang, jobs.one_model, jobs.models, jobs.node_count, jobs.per_node, jobs.labels,
    jobs.open_places, jobs.ready, jobs.running, jobs.states,
    sharing.tenants, sharing.consent, sharing.scope, sharing.memory, sharing.mps, sharing.shares,
    sharing.never_together, sharing.slowdown_cap, sharing.wall_time, sharing.gate,
    hosts.hosts, hosts.exclusive, hosts.quotas, hosts.licences, hosts.throttles, hosts.reservations, hosts.waves,
    figures.objective, figures.waiting, figures.slowdowns, figures.ends, figures.neighbours, figures.memory_figures,
)
# fmt: on


def problems_of(plan: Plan, snapshot: Snapshot, forecast: Forecast, policy: Policy) -> tuple[Finding, ...]:
    """Every rule that the plan breaks; none, and it may be carried out."""
    malformed = tuple(finding for rule in FORM for finding in rule(plan, snapshot))
    if malformed:
        return malformed
    scene = scene_of(plan, snapshot, forecast, policy)
    return tuple(finding for rule in RULES for finding in rule(scene))
