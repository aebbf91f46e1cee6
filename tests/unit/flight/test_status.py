"""What of an error reaches a client."""

from __future__ import annotations

import pytest

from catalog.errors import DataCorruption, InvalidRequest, SkipprError, Unavailable
from flight.status import to_flight


@pytest.mark.parametrize(("error", "shown"), [
    (DataCorruption("table a.b: file:///srv/lake/a/b/m.metadata.json is gone"), "table a.b: m.metadata.json is gone"),
    (Unavailable("'/srv/data/t/w/p/LOCK' cannot be read"), "'LOCK' cannot be read"),
    (Unavailable("and/or 1/2 at grpc://host:1/x"), "and/or 1/2 at grpc://host:1/x"),
    (InvalidRequest("/etc/passwd is not a table"), "/etc/passwd is not a table"),
])
def test_a_client_sees_the_name_of_a_file_and_not_its_folder(error: SkipprError, shown: str) -> None:
    assert str(to_flight(error)) == shown
