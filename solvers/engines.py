"""The engines by name, imported only when asked for, so that a missing library costs only its own engine.

To add an engine, write a function of the type ``Solve`` in a module of its own and give it a line in ``ENGINES``;
the tests that run every engine then run it too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from solvers.child import Solve
from solvers.memory import drop_code, trim
from solvers.problem import Limits, Placed, Problem, Report, Solution, Status
from solvers.warm import Warm


class EngineUnavailable(ValueError):
    """The engine asked for does not exist, or a library that it needs is not installed."""


@dataclass(frozen=True)
class Engine:
    """How to get an engine, and the number of columns above which its model is not built (None: any).

    An engine that ``continues`` is got with what an earlier solve has left, or None.
    """

    load: Callable[..., Solve]
    cap: int | None = None
    continues: bool = False


def _greedy() -> Solve:
    from solvers.greedy import solve

    return solve


def _search() -> Solve:
    from solvers.search import solve

    return solve


def _patterns(warm: Warm | None) -> Solve:
    """The pattern engine, begun from what an earlier solve has left."""

    def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
        began, bound = time.monotonic(), None
        if "solvers.patterns" not in sys.modules and not limits.deterministic:
            # Numba takes a second to load, and a minute where nothing is compiled yet: long enough for a bound.
            from solvers.bound import lower_bound

            bound = lower_bound(problem)
            report(None, None, bound)
            trim()
        from solvers.patterns import solve

        drop_code("libllvmlite")  # 50 MiB, of use only while kernels are loaded
        if not limits.deterministic:
            limits = replace(limits, wall_s=max(0.0, limits.wall_s - (time.monotonic() - began)))
        return solve(problem, limits, hint, report, checked=True, bound=bound, warm=warm)

    return solve


def preload(name: str) -> None:
    """Import what an engine needs into this process, so that its children have it; nothing where that takes long."""
    if name == PATTERNS and compiled():
        import solvers.patterns  # noqa: F401


def compiled() -> bool:
    """Can the kernels of the pattern engine be used at once?"""
    from solvers.kernels.cache import ready

    return ready()


def _columns() -> Solve:
    from solvers.node_exact import solve

    return solve


def _cpsat() -> Solve:
    from solvers.cpsat import solve

    return solve


def _cbc() -> Solve:
    from solvers.mip import cbc

    return cbc


def _highs() -> Solve:
    from solvers.mip import highs

    return highs


def _bound() -> Solve:
    from solvers.bound import lower_bound

    def solve(problem: Problem, limits: Limits, hint: Placed | None, report: Report) -> Solution:
        return Solution("bound", Status.NO_ANSWER, bound=lower_bound(problem), note="a bound only")

    return solve


AUTO, BOUND, EXACT, GREEDY, PATTERNS, SEARCH = "auto", "bound", "cp-sat", "greedy", "patterns", "search"
COLUMNS = "columns"

#: Every engine, by the name that people use.
ENGINES = {
    GREEDY: Engine(_greedy),
    PATTERNS: Engine(_patterns, continues=True),
    SEARCH: Engine(_search),
    COLUMNS: Engine(_columns),
    EXACT: Engine(_cpsat, cap=30_000),
    "highs": Engine(_highs, cap=30_000),
    "cbc": Engine(_cbc, cap=30_000),
}
#: A name for several engines, of which the first that works is used.
FIRST_OF = {"mip": ("highs", "cbc")}
#: It knows a bound and no answer, so nobody asks for it by name.
_BOUND = Engine(_bound)


def names() -> tuple[str, ...]:
    """All names that ``solve`` accepts."""
    return (AUTO, *ENGINES, *FIRST_OF)


def load(name: str, warm: Warm | None = None) -> Solve:
    """The engine itself, begun from what an earlier solve has left; EngineUnavailable says in one line why not."""
    engine = _BOUND if name == BOUND else ENGINES.get(name)
    if engine is None:
        raise EngineUnavailable(f"there is no engine {name!r}; there are {', '.join(names())}")
    try:
        return engine.load(warm) if engine.continues else engine.load()
    except ImportError as error:
        what = error.name if isinstance(error, ModuleNotFoundError) else error
        raise EngineUnavailable(f"engine {name!r} needs {what}, which is not installed") from error


def refusal(name: str) -> str:
    """Why an engine cannot be loaded, in one line; empty if it can."""
    try:
        load(name)
    except EngineUnavailable as error:
        return str(error)
    return ""
