"""Every failpoint in the code has a constant and every constant a place; the rules of SKIPPR_FAILPOINTS."""

from __future__ import annotations

import ast
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog import failpoint
from catalog.errors import ConfigurationError
from skipprd import failpoints

ROOT = Path(__file__).parents[3]
A = sorted(failpoints.ALL)[0]


def names_in_code() -> dict[str, set[str]]:
    """Literal names given to `failpoint.hit`, with the modules they stand in; a name that is no literal is reported as such."""
    found: dict[str, set[str]] = {}
    for package in ("catalog", "ingest", "flight", "skipprd"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(), str(path))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {"failpoint.hit", "catalog.failpoint.hit", "hit"}:
                    name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ast.unparse(node)
                    found.setdefault(str(name), set()).add(str(path.relative_to(ROOT)))
    return found


def test_constants_are_the_failpoints_of_the_code() -> None:
    in_code = names_in_code()
    assert in_code, "no failpoint was found: does the scan still see them?"
    missing = {name: places for name, places in in_code.items() if name not in failpoints.ALL}
    assert not missing, f"no constant in skipprd/failpoints.py for {missing}"
    assert not failpoints.ALL - in_code.keys(), "constants without a place in the code"


def test_constants_are_named_like_their_values() -> None:
    for constant, value in vars(failpoints).items():
        if constant.isupper() and isinstance(value, str):
            assert constant == value.upper().replace(".", "_")


@pytest.fixture
def _clean() -> Iterator[None]:
    yield
    failpoint.install(None)


@pytest.mark.usefixtures("_clean")
def test_actions_count_occurrences() -> None:
    failpoints.install(f"{A}=error:ENOSPC@2", "test")
    failpoint.hit(A)
    with pytest.raises(OSError, match="injected at the failpoint") as raised:
        failpoint.hit(A)
    assert raised.value.errno == errno.ENOSPC
    failpoint.hit(A)
    failpoints.install(f"{A}=error@2+", "test")
    failpoint.hit(A)
    for _ in range(2):
        with pytest.raises(OSError):
            failpoint.hit(A)


@pytest.mark.parametrize(("rule", "message"), [
    ("nonsense", "is not understood"),
    ("wal.no_such=kill", "there is no failpoint 'wal.no_such'"),
    (f"{A}=explode", "the action must be kill"),
    (f"{A}=error:ENONSENSE", "the action must be kill"),
    (f"{A}=sleep", "the action must be kill"),
])
def test_wrong_rules_are_configuration_errors(rule: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        failpoints.parse(rule, "environment variable SKIPPR_FAILPOINTS")
