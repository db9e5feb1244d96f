"""What is known so far in one solve: the best verified answer, the bounds, every attempt, every contradiction.

Nothing that an engine says is taken at its word. Its plan counts once the referee has found no broken rule,
at the cost that the referee computes. Its bound and its claim of an optimum count until a verified plan
contradicts them, also one that is found later; then the attempt is an anomaly: it is logged, the model is
saved for replay, and neither its plan nor its bound is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from solvers import check, dump
from solvers.child import End, Ending
from solvers.problem import Attempt, Placed, Problem, Solution, Status

log = logging.getLogger(__name__)

LONGEST_NOTE = 200
#: The status, without and with an incumbent, of an engine that was ended before it answered.
_UNANSWERED = {
    End.CRASHED: (Status.FAILED, Status.FAILED),
    End.LATE: (Status.FAILED, Status.FAILED),
    End.STOPPED: (Status.NO_ANSWER, Status.FEASIBLE),
    End.ENOUGH: (Status.NO_ANSWER, Status.FEASIBLE),
}
_NOTES = {
    End.LATE: "ran past its limit and was ended",
    End.STOPPED: "ended on request",
    End.ENOUGH: "its incumbent costs what the bound says",
}


@dataclass(frozen=True)
class Best:
    """A verified placement, its recomputed cost and the engine that found it."""

    engine: str
    placed: Placed
    objective: int


class Record:
    """Collects the attempts on one problem; ``save_to`` is the folder for the models of anomalies."""

    def __init__(self, problem: Problem, save_to: Path | None = None) -> None:
        self.best: Best | None = None
        self.attempts: list[Attempt] = []
        self._problem = problem
        self._save_to = save_to

    @property
    def cost(self) -> int | None:
        """The recomputed cost of the best verified answer."""
        return None if self.best is None else self.best.objective

    @property
    def placed(self) -> Placed | None:
        """The best verified answer."""
        return None if self.best is None else self.best.placed

    @property
    def bound(self) -> int | None:
        """The best lower bound that nothing contradicts."""
        return max((a.bound for a in self.attempts if a.bound is not None), default=None)

    @property
    def proven(self) -> bool:
        """The best answer cannot be improved."""
        return self.cost is not None and self.cost == self.bound

    def note(self, engine: str, status: Status, note: str, wall_s: float = 0.0) -> None:
        """An engine that was not tried, or that gave nothing."""
        if status is not Status.SKIPPED:
            log.warning("%s: %s: %s", engine, status, note)
        self.attempts.append(Attempt(engine, status, wall_s=wall_s, note=note))

    def verify(self, placed: Placed) -> tuple[int | None, str]:
        """The recomputed cost of a placement, or None and the first rule that it breaks."""
        faults = check.violations(self._problem, placed)
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            return None, f"its plan breaks a rule: {faults[0].rule}: {faults[0].text}{more}"
        return check.objective(self._problem, placed).total, ""

    def take(self, claim: Solution, wall_s: float, verified: int | None = None) -> None:
        """Judge what an engine says, and use what stands; ``verified`` is the recomputed cost of its plan, if known."""
        claim = replace(claim, note=_line(claim.note))
        objective, fault = verified, ""
        if claim.placed is not None and verified is None:
            objective, fault = self.verify(claim.placed)
        lie = self._contradiction(claim, objective, fault)
        attempt = Attempt(claim.engine, claim.status, objective, claim.bound, wall_s, claim.note)
        if lie or fault:
            status = Status.ANOMALY if lie else Status.REJECTED
            attempt = replace(attempt, status=status, bound=None, note=_joined(claim.note, lie or fault))
            self._save(attempt, claim)
        else:
            attempt = self._corrected(attempt, claim)
            self._better(claim, objective)
        self.attempts.append(attempt)
        self._look_back()

    def _contradiction(self, claim: Solution, objective: int | None, fault: str) -> str:
        """What a verified plan or the referee says against a claim; empty if nothing."""
        if claim.status is Status.ANOMALY:
            return "claims that there is no answer" if self.best else "claims an anomaly"
        if claim.status is Status.OPTIMAL:
            if objective is None:
                return f"claims an optimum, but {fault or 'gives no plan'}"
            if claim.objective not in (None, objective):
                return f"claims an optimum of {claim.objective}, but its plan costs {objective}"
            if self.best and self.best.objective < objective:
                return f"claims an optimum of {objective}, but {self.best.engine} has {self.best.objective}"
        known = [cost for cost in (objective, self.cost) if cost is not None]
        if claim.bound is not None and known and claim.bound > min(known):
            return f"claims a bound of {claim.bound}, but a verified plan costs {min(known)}"
        return ""

    def _corrected(self, attempt: Attempt, claim: Solution) -> Attempt:
        """A status that says no more than is known."""
        status, bound, note = claim.status, claim.bound, claim.note
        if status is Status.OPTIMAL:
            bound = attempt.objective if bound is None else bound
            status = Status.OPTIMAL if bound == attempt.objective else Status.FEASIBLE
        elif status is Status.FEASIBLE and attempt.objective is None:
            status = Status.NO_ANSWER
        elif status is Status.NO_ANSWER and attempt.objective is not None:
            status = Status.FEASIBLE
        if status is Status.FAILED and attempt.objective is not None:
            note = _joined(note, "its last incumbent is valid")
        if attempt.objective is not None and claim.objective not in (None, attempt.objective):
            note = _joined(note, f"claimed {claim.objective}, costs {attempt.objective}")
        return replace(attempt, status=status, bound=bound, note=note)

    def _better(self, claim: Solution, objective: int | None) -> None:
        if claim.placed is None or objective is None:
            return
        if self.best is None or objective < self.best.objective:
            self.best = Best(claim.engine, claim.placed, objective)

    def _look_back(self) -> None:
        """Drop earlier bounds that the newest plan contradicts."""
        if self.best is None:
            return
        for i, attempt in enumerate(self.attempts):
            if attempt.bound is not None and attempt.bound > self.best.objective:
                lie = f"claims a bound of {attempt.bound}, but {self.best.engine} has {self.best.objective}"
                self.attempts[i] = replace(
                    attempt, status=Status.ANOMALY, bound=None, note=_joined(attempt.note, lie)
                )
                self._save(self.attempts[i], Solution(attempt.engine, attempt.status, bound=attempt.bound))

    def _save(self, attempt: Attempt, claim: Solution) -> None:
        """Log a contradiction, and keep the model and the claim for replay."""
        if self._save_to is None:
            log.error("%s: %s: %s", attempt.engine, attempt.status, attempt.note)
            return
        about = {
            "engine": attempt.engine,
            "note": attempt.note,
            "claim": {"status": claim.status, "objective": claim.objective, "bound": claim.bound},
            "placed": claim.placed,
            "best": self.best and {"engine": self.best.engine, "placed": self.best.placed},
        }
        path = self._save_to / f"{attempt.engine}-{dump.digest(self._problem)[:12]}.npz"
        try:
            dump.save(self._problem, path, about)
        except OSError as error:
            log.error("%s: %s: %s; not saved: %s", attempt.engine, attempt.status, attempt.note, error)
        else:
            log.error("%s: %s: %s; saved as %s", attempt.engine, attempt.status, attempt.note, path)


def claim_of(engine: str, ending: Ending) -> Solution:
    """What an engine in a child says in the end, from its answer or else from what it had reported."""
    heard, answer = ending.heard, ending.answer
    if answer is None:
        without, with_one = _UNANSWERED[ending.end]
        return Solution(
            engine,
            without if heard.placed is None else with_one,
            heard.placed,
            heard.objective,
            heard.bound,
            note=ending.note or _NOTES[ending.end],
        )
    if answer.placed is None and answer.status is not Status.OPTIMAL:
        answer = replace(answer, placed=heard.placed, objective=heard.objective)
    bounds = [bound for bound in (answer.bound, heard.bound) if bound is not None]
    return replace(answer, engine=engine, bound=max(bounds, default=None))


def summary(attempts: Iterable[Attempt], asked_for: Iterable[str] = ()) -> str:
    """One line on the attempts that a person should know of: failures, and what was asked for but not tried."""
    worth, asked = (Status.FAILED, Status.REJECTED, Status.ANOMALY), set(asked_for)
    return "; ".join(
        f"{a.engine} {a.status}: {a.note}"
        for a in attempts
        if a.status in worth or (a.status is Status.SKIPPED and a.engine in asked)
    )


def _line(text: str) -> str:
    """One line that can be read; solvers have been seen to answer with a whole model."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_NOTE else f"{words[:LONGEST_NOTE]}…"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
