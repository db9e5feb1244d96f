"""Fixtures that every test may use.

Every engine and made-up ones, golden files, commands and scenario files in a folder of the test's own, the scenarios that
ship with the project, the public data set.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import ONE_JOB
from fakes import ONE, says
from problems import job, make, node

from planner import scenario as scenario_files
from planner.cli import run
from planner.edit import Scenario
from solvers import Limits, Problem, Solution, Status, check, engines
from solvers.engines import Engine

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


@pytest.fixture
def two() -> Problem:
    """Two jobs that run alone, and two GPUs; ``fakes`` has plans of it."""
    return make([node(2)], [job(alone=True), job(alone=True)])


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a made-up engine in the place of a real one."""

    def put(name: str, solve: Callable[..., Solution], cap: int | None = None) -> None:
        if name == engines.BOUND:
            monkeypatch.setattr(engines, "_BOUND", Engine(lambda: solve))
        else:
            monkeypatch.setitem(engines.ENGINES, name, Engine(lambda: solve, cap))

    return put


@pytest.fixture
def fakes(put: Callable[..., None]) -> None:
    """The greedy places one job; nobody knows a bound; the other engines find nothing."""
    put("greedy", says("greedy", placed=ONE))
    for name in (engines.BOUND, "patterns", "search", "columns", "cp-sat", "highs", "cbc"):
        put(name, says(name, status=Status.NO_ANSWER))


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; its exit code, standard output and standard error."""

    def command(*args: object) -> tuple[int, str, str]:
        code = run([str(a) for a in args])
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a scenario in the current directory; its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str = ONE_JOB, name: str = "s.yaml") -> str:
        Path(name).write_text(text, encoding="utf-8")
        return name

    return write


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Scenario]:
    """Write a scenario and the files beside it, and load it."""

    def write(text: str | bytes, name: str = "s.yaml", **beside: str) -> Scenario:
        for other, content in beside.items():
            (tmp_path / other.replace("__", ".")).write_text(content)
        path = tmp_path / name
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
        return scenario_files.load(path)

    return write


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
