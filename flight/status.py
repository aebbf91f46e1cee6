"""How an error leaves the server: the right status, the message first, and never a traceback.

pyarrow turns the Python exception of a handler into a gRPC status. Of its own Flight errors it sends the message alone, but it
has none for INVALID_ARGUMENT, NOT_FOUND and UNIMPLEMENTED. Those come from the built-in ValueError, KeyError and
NotImplementedError, to which it appends the formatted traceback: paths and source lines, for everybody to read. The
classes below are such errors that cannot be formatted, so that pyarrow falls back to the name of the class.
"""

from __future__ import annotations

import functools
import logging
import re
import secrets
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import pyarrow.flight as fl

from catalog.errors import InvalidRequest, SkipprError, flight_status
from catalog.errors import NotFound as MissingName

__all__ = ["QUERY_CANCELLED", "SHUTTING_DOWN", "guarded", "to_flight"]

QUERY_CANCELLED: Final = "the query was cancelled"
SHUTTING_DOWN: Final = "the server is shutting down; connect again in a moment"
P = ParamSpec("P")
T = TypeVar("T")
_FOLDERS: Final = re.compile(r"""(?:file://|(?<![\w:/.-]))/(?:[^\s'"/]+/)+""")
_log = logging.getLogger("skippr.flight")


class _Unformatted(Exception):
    """`traceback.format_exception` reads `__cause__` of what it formats; here that fails, and pyarrow sends no traceback."""

    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise RuntimeError("an error on its way to a client has no traceback")

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidArgument(_Unformatted, ValueError):
    """INVALID_ARGUMENT on the wire."""


class NotFound(_Unformatted, KeyError):
    """NOT_FOUND on the wire."""


class Unimplemented(_Unformatted, NotImplementedError):
    """UNIMPLEMENTED on the wire."""


_BY_STATUS: Final[dict[str, Callable[[str], Exception]]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "UNIMPLEMENTED": Unimplemented,
    "UNAVAILABLE": fl.FlightUnavailableError,
    "UNAUTHENTICATED": fl.FlightUnauthenticatedError,
    "PERMISSION_DENIED": fl.FlightUnauthorizedError,
    "CANCELLED": fl.FlightCancelledError,
    "INTERNAL": fl.FlightInternalError,
}


def to_flight(error: BaseException) -> BaseException:
    """The exception to raise towards pyarrow for `error`.

    An error of the tree keeps its message and gets the status of FLIGHT_STATUS; of files a client sees the name, the log the folder too
    (what is wrong with a request names only what the client wrote). Anything else is a fault of ours: it is logged with
    its traceback under a reference, and the client is told the reference alone.
    """
    if isinstance(error, fl.FlightError | _Unformatted):
        return error
    if isinstance(error, SkipprError):
        text = str(error)
        if not isinstance(error, InvalidRequest | MissingName):
            shown = _FOLDERS.sub("", text)
            if shown != text:
                _log.warning("an error on its way to a client: %s", text)
            text = shown
        return _BY_STATUS[flight_status(error)](text)
    if not isinstance(error, Exception):
        return error
    reference = secrets.token_hex(4)
    _log.error("internal error, reference %s", reference, exc_info=error)
    hidden: Exception = fl.FlightInternalError(f"internal error, reference {reference}: the server's log says more")
    return hidden


def guarded(handler: Callable[P, T]) -> Callable[P, T]:
    """Make a handler raise only what `to_flight` allows."""

    @functools.wraps(handler)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return handler(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  the boundary: whatever it is, it leaves here as a status
            raise to_flight(error) from None

    return call
