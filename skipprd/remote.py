"""Asking a Flight SQL server through the ADBC driver, with its errors as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from catalog.errors import Conflict, InvalidRequest, NotFound, SkipprError, Unavailable

__all__ = ["ask"]

_DRIVER_NOISE: Final = re.compile(
    r"^(?:[A-Z_]+: )?(?:\[FlightSQL\] )?|\.? Detail: Python exception: .*$"
    r"|(?:\. Detail: [A-Za-z]+)?\s*\([A-Za-z]+; [A-Za-z]+(?:: endpoint \d+: \[\])?\)(?:\. Vendor code: \d+)?$",
    re.DOTALL,
)

_NOBODY: Final = re.compile(r"connection error|name resolver|deadline|timed? ?out", re.IGNORECASE)


@contextlib.contextmanager
def ask(uri: str, sql: str, parameters: Sequence[object], live_wal: str) -> Iterator[_Rows]:
    """The rows of one statement. Raises Unavailable (nobody answers), InvalidRequest, NotFound, as the server says."""
    import adbc_driver_flightsql.dbapi as flightsql
    from adbc_driver_manager import Error

    if not uri.startswith(("grpc://", "grpc+tcp://")):
        raise InvalidRequest(f"--to {uri!r}: write grpc://host:port")
    try:
        with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            connection.adbc_connection.set_options(**{"adbc.flight.sql.session.option.live_wal": live_wal})
            cursor.execute(sql, list(parameters) or None)
            yield _Rows(cursor.fetch_record_batch(), uri)
    except Error as error:
        raise _translated(error, uri) from None


class _Rows:
    """The rows as they come. Their errors come as Arrow's, since the reader is Arrow's: the status decides the class alone."""

    def __init__(self, reader: pa.RecordBatchReader, uri: str) -> None:
        self._reader = reader
        self._uri = uri

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                text = f"{self._uri}: {_DRIVER_NOISE.sub('', str(error))}"
                if isinstance(error, pa.ArrowInvalid | pa.ArrowNotImplementedError):
                    raise InvalidRequest(text) from None
                if isinstance(error, OSError | pa.ArrowCancelled):
                    raise Unavailable(text) from None
                raise SkipprError(text) from None
            yield batch


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
            hint = "; is a server running there? (skipprd serve)" if _NOBODY.search(text) else ""
            return Unavailable(f"{text}{hint}")
    return SkipprError(text)
