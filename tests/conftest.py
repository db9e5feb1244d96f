"""Fixtures that every test may use: every engine, golden files, the scenarios, the public data set."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solvers import Limits, Problem, Solution, check, engines

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
#: Every engine; a new one is tested by adding it to solvers.engines.
SOLVERS = tuple(engines.ENGINES)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The explicit way to accept a text that has changed."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of tests/golden, in full; a missing file fails."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no {path.name}; pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(params=SOLVERS)
def solve(request: pytest.FixtureRequest) -> Callable[[Problem], Solution]:
    """Solve by each engine alone, without the greedy's plan to hide behind; what it finds must be verified."""
    engine, limits = engines.load(request.param), Limits(wall_s=5.0, deterministic=True, workers=1)

    def solve(problem: Problem) -> Solution:
        found = engine(problem, limits, None, lambda placed, objective, bound: None)
        assert found.placed is not None, f"{request.param}: {found.status}: {found.note}"
        assert check.violations(problem, found.placed) == ()
        assert found.objective == check.objective(problem, found.placed).total
        return found

    return solve


@pytest.fixture(scope="session")
def scenarios_dir() -> Path:
    """The scenario files that ship with the project."""
    return ROOT / "scenarios"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The public data set, which lies beside a checkout or nowhere."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the public data set is not beside the checkout")
    return path
