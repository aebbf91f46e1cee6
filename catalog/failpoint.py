"""Named points in durable code where a test may crash, delay or fail the process.

`hit("area.step")` costs one global read while nothing is installed. Names are string literals at the place of the step;
`skipprd.failpoints` holds the same names as constants, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Handler", "hit", "install"]

Handler = Callable[[str], None]

_handler: Handler | None = None


def install(handler: Handler | None) -> None:
    """Make `handler` run at every failpoint of this process; None removes it. Not for concurrent use."""
    global _handler
    _handler = handler


def hit(name: str) -> None:
    """Report that the durable step `name` was just reached. The handler may raise, sleep or kill the process."""
    if _handler is not None:
        _handler(name)
