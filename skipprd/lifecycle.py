"""Signals: the first SIGTERM or SIGINT drains, the second one ends the process at once."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["DrainSignals", "end_quietly", "exit_on_interrupt", "fill_streams"]

_log = logging.getLogger("skipprd")


class DrainSignals:
    """While inside, the first SIGTERM or SIGINT drains; a second one exits with 128 + its number. Main thread only.

    A signal that comes before there is something to drain is kept for `on_drain`. Forcing is safe: the write-ahead log is made for a
    process that dies at any instruction.
    """

    def __init__(self) -> None:
        self._drain: Callable[[], None] | None = None
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> DrainSignals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if callable(handler) or isinstance(handler, signal.Handlers) else signal.SIG_DFL)

    def on_drain(self, drain: Callable[[], None]) -> None:
        """What the first signal calls from now on; called at once where it has come already. `drain` must be safe in a handler."""
        self._drain = drain
        if self.received is not None:
            drain()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number)
        if self.received is not None:
            os.write(2, f"error: {name.name} again: ended without draining; the next run recovers\n".encode())
            os._exit(128 + number)
        self.received = name
        _log.info("%s: draining; a second signal ends the process at once", name.name)
        if self._drain is not None:
            self._drain()


def exit_on_interrupt() -> None:
    """From now on SIGINT ends the process at once with 130, for a command that only reads.

    Python runs its handler in the main thread, which may be inside one long call of DuckDB. So SIGINT is blocked in this thread and all
    that it starts, and one thread waits for it. Call it before other threads start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def wait() -> None:
        signal.sigwait({signal.SIGINT})
        os._exit(130)

    threading.Thread(target=wait, name="interrupt", daemon=True).start()


def fill_streams() -> None:
    """Open what of stdin, stdout and stderr the caller closed (`<&-`, some daemons) on the null device.

    Otherwise the next file that is opened, the store for one, would get their numbers and what a library prints.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (for the whole process)


def end_quietly() -> None:
    """After a broken pipe: give the interpreter a stdout it can flush at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
