"""Fixtures that every test may use: where the scenarios and the public data set lie."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


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
