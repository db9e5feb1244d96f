"""Fixtures that every test may use: where the scenarios and the public data set lie."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
