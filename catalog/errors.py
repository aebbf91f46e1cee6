"""The one error tree, split by what the caller must do.

    SkipprError
    ├── InvalidRequest        the request is wrong; repeating it cannot help
    │   ├── ConfigurationError    a setting, flag or file of configuration is wrong
    │   └── Unsupported           a well-formed request for something this version does not do
    ├── NotFound              a named thing does not exist
    ├── Conflict              somebody else was first; retry on fresh state
    ├── Fenced                a newer owner exists; stop this role, drop its buffers
    ├── OutcomeUnknown        the write may or may not have happened; read back first
    ├── Unavailable           retry later
    ├── DataCorruption        what is stored contradicts itself; never retry
    └── Internal              a broken promise of our own code

`FLIGHT_STATUS` and `EXIT_CODE` are the only places where a class becomes a status: everything that talks to a client or a
shell asks `exit_code()` or `flight_status()`. Messages name the value, where it came from and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__ = [
    "EXIT_CODE", "FLIGHT_STATUS", "ConfigurationError", "Conflict", "DataCorruption", "Fenced", "Internal",
    "InvalidRequest", "NotFound", "OutcomeUnknown", "SkipprError", "Unavailable", "Unsupported", "exit_code", "flight_status",
]


class SkipprError(Exception):
    """Base of every error this system raises on purpose."""

    retryable: ClassVar[bool] = False


class InvalidRequest(SkipprError):
    """The request itself is wrong."""


class ConfigurationError(InvalidRequest):
    """A setting is wrong; the message names the setting, its value, where it came from and the remedy."""


class Unsupported(InvalidRequest):
    """The request is well-formed, and this version does not do it; the message says what it does instead."""


class NotFound(SkipprError):
    """A named thing does not exist."""


class Conflict(SkipprError):
    """A condition failed because somebody else was first."""

    retryable = True


class Fenced(SkipprError):
    """A newer owner exists. The role that raised this must stop and drop what it buffered."""


class OutcomeUnknown(SkipprError):
    """A write was sent and its answer was lost. An old value read back proves nothing."""


class Unavailable(SkipprError):
    """A needed service or resource does not answer now."""

    retryable = True


class DataCorruption(SkipprError):
    """Stored bytes contradict each other; a person has to look."""


class Internal(SkipprError):
    """An invariant of this code was broken."""


# Class -> (Flight status, CLI exit code). Subclasses inherit the nearest entry.
FLIGHT_STATUS: Final[dict[type[SkipprError], str]] = {
    InvalidRequest: "INVALID_ARGUMENT",
    Unsupported: "UNIMPLEMENTED",
    NotFound: "NOT_FOUND",
    Conflict: "UNAVAILABLE",
    Fenced: "UNAVAILABLE",
    OutcomeUnknown: "UNAVAILABLE",
    Unavailable: "UNAVAILABLE",
    DataCorruption: "INTERNAL",
    Internal: "INTERNAL",
    SkipprError: "INTERNAL",
}
EXIT_CODE: Final[dict[type[SkipprError], int]] = {
    InvalidRequest: 2,
    ConfigurationError: 3,
    NotFound: 2,
    Conflict: 5,
    Fenced: 5,
    OutcomeUnknown: 4,
    Unavailable: 4,
    DataCorruption: 6,
    Internal: 1,
    SkipprError: 1,
}


def flight_status(error: BaseException) -> str:
    """Name of the Flight status for `error`; anything outside the tree is INTERNAL."""
    return next((FLIGHT_STATUS[c] for c in type(error).__mro__ if c in FLIGHT_STATUS), "INTERNAL")


def exit_code(error: BaseException) -> int:
    """Exit code of the command line for `error`; anything outside the tree is 1."""
    return next((EXIT_CODE[c] for c in type(error).__mro__ if c in EXIT_CODE), 1)
