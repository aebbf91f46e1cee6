"""DuckDB's errors as errors of this system. Nothing of DuckDB, and no path inside the warehouse, reaches a client."""

from __future__ import annotations

import re
from typing import Final

from catalog.errors import DataCorruption, Internal, InvalidRequest, SkipprError, Unavailable

__all__ = ["CANCELLED", "is_fatal", "is_interrupt", "is_missing_file", "translate"]

CANCELLED: Final = "query cancelled"

# DuckDB's message starts with its kind, in exceptions of the Python client and in those Arrow makes of them alike.
_KIND: Final = re.compile(r"\s*(?:Invalid: |IOError: )?([A-Za-z ]+?)(?: Error)?: ")
_UNAVAILABLE: Final = frozenset(["IO", "HTTP", "Connection", "Serialization", "TransactionContext", "Transaction", "Dependency"])
_INTERNAL: Final = frozenset(["INTERNAL", "FATAL"])
_PATH: Final = re.compile(r"iceberg_scan\('[^']*'[^)]*\)|(?:[a-z0-9]+://|/)[^\s'\"]*\.(?:metadata\.json|avro|parquet)")
# Live rows are the only Arrow streams a statement can name. Their own error arrives as text behind DuckDB's and Arrow's.
_LIVE_ROWS: Final = re.compile(r"arrow_scan: get_next failed\(\): (?:Invalid: )?(?:Unknown error: )?")
# DuckDB's advice to change settings, which nobody can change here.
_ADVICE: Final = re.compile(
    r"\n+(?:Possible solutions:|Database is launched|Launch the database).*\Z| Use \"SET [^\"]*\"[^.]*\.", re.DOTALL
)
_SOURCE_LINE: Final = re.compile(r"\n+LINE \d+:.*\Z", re.DOTALL)


def translate(error: BaseException, *, rewritten: bool) -> SkipprError:
    """The error as one of `catalog.errors`, DuckDB's message first.

    `rewritten` means that the text DuckDB saw is not the client's: its excerpt of that text is left out.
    """
    if isinstance(error, SkipprError):
        return error
    message = _ADVICE.sub("", str(error))
    kind = _kind(message)
    if kind == "INTERRUPT":
        return Unavailable(CANCELLED)
    if (live := _LIVE_ROWS.search(message)) is not None:
        return DataCorruption(f"rows in the write-ahead log cannot be read: {message[live.end():]}")
    if rewritten:
        message = _PATH.sub("(the table)", _SOURCE_LINE.sub("", message))
    if kind == "Out of Memory":
        return Unavailable(f"{message}\nThe query needs more memory than the server gives to queries; narrow it, or raise the limit")
    if kind == "Permission":
        return InvalidRequest("Permission Error: only tables of the warehouse can be read")
    if kind in _UNAVAILABLE:
        return Unavailable(message)
    if kind in _INTERNAL:
        return Internal(message.split("\n", 1)[0])
    return InvalidRequest(message)


def is_interrupt(error: BaseException) -> bool:
    """Whether the error is the answer to an interrupt."""
    return _kind(str(error)) == "INTERRUPT"


def is_fatal(error: BaseException) -> bool:
    """Whether DuckDB declared its instance unusable."""
    return _kind(str(error)) == "FATAL" or "database has been invalidated" in str(error)


def is_missing_file(error: BaseException) -> bool:
    """Whether a file was not there: a snapshot pinned a moment ago may have been expired since."""
    return _kind(str(error)) in ("IO", "HTTP") or "version-hint" in str(error)


def _kind(message: str) -> str:
    match = _KIND.match(message)
    return match.group(1).strip() if match else ""
