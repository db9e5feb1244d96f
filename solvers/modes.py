"""What a gang may be: the tables that join the columns of its GPUs.

The cost, the end and the window of a gang depend on its kind of GPU, on its slowest GPU and on its links. A
*mode* is one such triple with all three worked out, so that an exact engine chooses one mode for a gang and its
cost needs no products and no big-M.
"""

from __future__ import annotations

from dataclasses import dataclass

from solvers.columns import Cell, cells, end, may_enter, node_counts, price, window_s
from solvers.problem import NETWORK, NVLINK, PCIE, Problem, Spot


@dataclass(frozen=True)
class Mode:
    """One way to run: what it costs, the tick it ends at, the seconds until it is out of the way."""

    kind: int
    slowdown: int
    link: int
    cost: int
    end: int | None
    window_s: int | None


@dataclass(frozen=True)
class Gang:
    """A job with two GPUs or more.

    Attributes
    ----------
    go, stay
        Modes as a newcomer and at home; empty if it cannot be one.
    counts
        As a newcomer: node -> the numbers of its GPUs that it may take there.
    groups
        As a newcomer: link groups that can hold all of it, and their cells.
    """

    job: int
    size: int
    go: tuple[Mode, ...]
    stay: tuple[Mode, ...]
    counts: dict[int, Spot]
    groups: dict[int, Spot]


@dataclass(frozen=True)
class Tables:
    """All that an exact engine needs to know besides the problem."""

    cells: tuple[Cell, ...]
    gangs: tuple[Gang, ...]


def tables(problem: Problem, cap: int | None = None) -> Tables:
    """Columns and modes of a problem; raises TooManyError beyond ``cap`` columns."""
    found = cells(problem, cap)
    return Tables(found, gangs(problem, found))


def gangs(problem: Problem, cells: tuple[Cell, ...]) -> tuple[Gang, ...]:
    """The tables of every job with two GPUs or more."""
    entering, staying = _levels(problem, cells)
    return tuple(
        _gang(problem, cells, j, entering.get(j, {}), staying.get(j, set()))
        for j in range(problem.jobs)
        if problem.job_gpus.item(j) > 1
    )


def _levels(
    problem: Problem, cells: tuple[Cell, ...]
) -> tuple[dict[int, dict[int, set[int]]], dict[int, set[int]]]:
    """Slowdowns that a gang meets: as a newcomer by kind, and at home."""
    entering: dict[int, dict[int, set[int]]] = {}
    staying: dict[int, set[int]] = {}
    for cell in cells:
        for column in cell.columns:
            for i, (j, s) in enumerate(zip(column.tenants, column.slowdown, strict=True)):
                if problem.job_gpus.item(j) <= 1:
                    continue
                if i < len(column.stay):
                    staying.setdefault(j, set()).add(s)
                else:
                    entering.setdefault(j, {}).setdefault(cell.kind, set()).add(s)
    return entering, staying


def _gang(
    problem: Problem, cells: tuple[Cell, ...], j: int, entering: dict[int, set[int]], staying: set[int]
) -> Gang:
    n = problem.job_gpus.item(j)
    here = {c: cell for c, cell in enumerate(cells) if any(j in column.new for column in cell.columns)}
    offers: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for c, cell in here.items():
        offers[cell.node] = offers.get(cell.node, 0) + len(cell.gpus)
        members.setdefault(cell.link, []).append(c)
    counts = node_counts(problem, j, offers) if may_enter(problem, j) else {}
    groups = {
        link: tuple(of)
        for link, of in members.items()
        if link >= 0 and counts and sum(len(cells[c].gpus) for c in of) >= n
    }
    links = _links(problem, j, cells, counts, groups)
    return Gang(
        job=j,
        size=n,
        go=tuple(
            _mode(problem, j, m, s, i)
            for m, levels in entering.items()
            for s in sorted(levels)
            for i in links
        ),
        stay=_stay_modes(problem, j, staying),
        counts={v: sizes for v, sizes in counts.items() if sizes},
        groups=groups,
    )


def _links(
    problem: Problem, j: int, cells: tuple[Cell, ...], counts: dict[int, Spot], groups: dict[int, Spot]
) -> list[int]:
    """Link classes that a newcomer can meet."""
    n = problem.job_gpus.item(j)
    whole = [v for v, sizes in counts.items() if n in sizes]
    found = [NVLINK] if groups else []
    if any(_has_several_groups(cells, v) for v in whole):
        found.append(PCIE)
    if any(q < n for sizes in counts.values() for q in sizes):
        found.append(NETWORK)
    return found


def _has_several_groups(cells: tuple[Cell, ...], v: int) -> bool:
    links = {cell.link for cell in cells if cell.node == v}
    return len(links) > 1 or min(links) < 0


def _stay_modes(problem: Problem, j: int, levels: set[int]) -> tuple[Mode, ...]:
    """At home the kind is the first GPU's, and the links are what they are."""
    home = problem.home[j]
    if home is None:
        return ()
    groups = {problem.gpu_link.item(g) for g in home}
    if len(groups) == 1 and min(groups) >= 0:
        link = NVLINK
    else:
        link = PCIE if len({problem.gpu_node.item(g) for g in home}) == 1 else NETWORK
    kind = problem.gpu_kind.item(home[0])
    return tuple(_mode(problem, j, kind, s, link) for s in sorted(levels))


def _mode(problem: Problem, j: int, kind: int, slowdown: int, link: int) -> Mode:
    return Mode(
        kind=kind,
        slowdown=slowdown,
        link=link,
        cost=price(problem, j, kind, slowdown, link),
        end=end(problem, j, kind, slowdown, link),
        window_s=window_s(problem, j, kind, slowdown, link),
    )
