"""The interpreter that the wheel is installed with."""

import sys

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--interpreter", default=sys.executable, help="Python that installs and runs the wheel")


@pytest.fixture(scope="session")
def interpreter(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--interpreter"))
