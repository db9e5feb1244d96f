"""A cluster in a file: a scenario or a snapshot is read, and an applied plan becomes the next snapshot.

The state that a plan is applied to is read again at that moment. ``transition`` works out the next state as a value, wave by
wave; the file is then replaced in one step, so that no reader ever meets half a state. A plan that the state
remembers as its last one is applied again only as far as the state shows that it is not in place: whoever undoes it by hand,
by taking ``running_on`` off its jobs, may apply it once more.
"""

from __future__ import annotations

from pathlib import Path

from planner.backends.transition import transition
from planner.backends.whole import write_whole
from planner.errors import BackendRefused
from planner.formulate import Capabilities
from planner.model import Snapshot
from planner.plan import Plan, Receipt
from planner.scenario import load_snapshot

NAME = "files"
APPLIED = "nothing to do: this plan was applied before and is in place"
AGAIN = "this plan was applied before; what was undone since is done again where it still fits"


class FileBackend:
    """Reads ``path``; keeps the state in ``out`` (default: ``NAME.state.json`` beside it) once a plan was applied.

    ``start`` is the state where neither file exists yet.
    """

    def __init__(
        self, path: Path | str, *, out: Path | str | None = None, start: Snapshot | None = None
    ) -> None:
        self.path = Path(path)
        self.out = Path(out) if out is not None else self.path.with_suffix(".state.json")
        self._start = start

    @property
    def capabilities(self) -> Capabilities:
        """Files can express every plan."""
        return Capabilities(name=NAME)

    def snapshot(self) -> Snapshot:
        """The state file if there is one, else what ``path`` says."""
        if self._start is not None and not self.out.exists() and not self.path.exists():
            return self._start
        return load_snapshot(self.out if self.out.exists() else self.path)

    def apply(self, plan: Plan, *, dry_run: bool = False) -> Receipt:
        """The state after the plan, written to ``out``; what no longer fits is left out and called stale."""
        state = self.snapshot()
        again = state.carryover.last_plan == plan.id
        after, actions = transition(state, plan)
        ended = {a.job_id for a in actions if a.job_id not in state.job_by_id}
        left = [a for a in actions if a.outcome != "done" and a.job_id not in ended]
        if again and after.jobs == state.jobs and not left:
            return Receipt(plan_id=plan.id, backend=NAME, dry_run=dry_run, warnings=(APPLIED,))
        if dry_run:
            actions = tuple(
                a.model_copy(update={"outcome": "dry_run"}) if a.outcome == "done" else a for a in actions
            )
        else:
            try:
                write_whole(self.out, after.model_dump_json(indent=1) + "\n")
            except OSError as error:
                raise BackendRefused(f"{self.out}: {error.strerror or error}") from error
        warnings = (AGAIN,) if again else ()
        return Receipt(plan_id=plan.id, backend=NAME, dry_run=dry_run, actions=actions, warnings=warnings)
