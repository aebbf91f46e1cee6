"""Asking a Flight SQL server through the ADBC driver, with its errors as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from catalog.errors import Conflict, InvalidRequest, NotFound, SkipprError, Unavailable

__all__ = ["ask"]

_DRIVER_NOISE: Final = re.compile(r"^[A-Z_]+: (\[FlightSQL\] )?|\.? Detail: Python exception: .*$|\s*\([A-Za-z]+; [A-Za-z]+\)$", re.DOTALL)


@contextlib.contextmanager
def ask(uri: str, sql: str, parameters: Sequence[object], live_wal: str) -> Iterator[pa.RecordBatchReader]:
    """The rows of one statement. Raises Unavailable (nobody answers), InvalidRequest, NotFound, as the server says."""
    import adbc_driver_flightsql.dbapi as flightsql
    from adbc_driver_manager import Error

    if not uri.startswith(("grpc://", "grpc+tcp://")):
        raise InvalidRequest(f"--to {uri!r}: write grpc://host:port")
    try:
        with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            connection.adbc_connection.set_options(**{"adbc.flight.sql.session.option.live_wal": live_wal})
            cursor.execute(sql, list(parameters) or None)
            yield cursor.fetch_record_batch()
    except Error as error:
        raise _translated(error, uri) from None


def _translated(error: Exception, uri: str) -> SkipprError:
    status = getattr(getattr(error, "status_code", None), "name", "")
    text = f"{uri}: {_DRIVER_NOISE.sub('', str(error))}"
    match status:
        case "INVALID_ARGUMENT" | "NOT_IMPLEMENTED" | "INVALID_STATE":
            return InvalidRequest(text)
        case "NOT_FOUND":
            return NotFound(text)
        case "ALREADY_EXISTS":
            return Conflict(text)
        case "IO" | "TIMEOUT" | "CANCELLED":
            return Unavailable(f"{text}; is a server running there? (skipprd serve)")
    return SkipprError(text)
