"""What a solve leaves for the next one: what running a job was charged, and what nodes were worth filling with.

An epoch changes little of the queue, so prices and columns of the last one are nearly those of the next (reoptimisation by
column generation; COpter reuses a round's solution the same way, SOSP 2025). Nothing here is trusted: prices give a valid
bound whatever they are, and a column counts once the kernels have put it together and its rules hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: A column: the node it was made for, and what it holds: classes with positions of their GPUs on the node.
Content = tuple[int, tuple[tuple[int, tuple[int, ...]], ...]]


@dataclass(frozen=True)
class Warm:
    """Prices and columns in the numbers of one Problem.

    Attributes
    ----------
    job_price
        Length J, milli-GPU-seconds; None for jobs without a price.
    budget_price
        Per unit of each budget.
    move_price
        Per move or preemption.
    job_class
        Length J: the class of each job in ``columns``, -1 for none.
    columns
        Contents of nodes.
    """

    job_price: tuple[float | None, ...]
    budget_price: tuple[float, ...]
    move_price: float
    job_class: tuple[int, ...]
    columns: tuple[Content, ...]

    def renumbered(self, jobs: Sequence[int | None], nodes: Sequence[int | None]) -> Warm:
        """The same for another Problem, given the old number of each of its jobs and nodes, None for new ones.

        Columns of nodes that are gone are left out.
        """
        place = {old: new for new, old in enumerate(nodes) if old is not None}
        return Warm(
            job_price=tuple(None if old is None else self.job_price[old] for old in jobs),
            budget_price=self.budget_price,
            move_price=self.move_price,
            job_class=tuple(-1 if old is None else self.job_class[old] for old in jobs),
            columns=tuple((place[v], holds) for v, holds in self.columns if v in place),
        )


def plain(warm: Warm | None) -> dict[str, Any] | None:
    """As JSON has it."""
    return None if warm is None else vars(warm)


def from_plain(plain: dict[str, Any] | None) -> Warm | None:
    """The way back."""
    if plain is None:
        return None
    return Warm(
        job_price=tuple(plain["job_price"]),
        budget_price=tuple(plain["budget_price"]),
        move_price=plain["move_price"],
        job_class=tuple(plain["job_class"]),
        columns=tuple((v, tuple((c, tuple(at)) for c, at in holds)) for v, holds in plain["columns"]),
    )
