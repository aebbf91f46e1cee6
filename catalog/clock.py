"""Time as a dependency: protocol code never reads a clock it was not given."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """A monotonic clock, a sleeper, and a wall clock that is only ever shown to people."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...

    def wall_iso(self) -> str:
        """Wall time in ISO 8601 UTC, for `updated_at` and logs. No decision reads it."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wall_iso(self) -> str:
        return datetime.now(UTC).isoformat(timespec="milliseconds")


class ManualClock:
    """A clock that moves only when told to; sleeping moves it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self._now_s += seconds

    def wall_iso(self) -> str:
        return datetime.fromtimestamp(self._now_s, UTC).isoformat(timespec="milliseconds")
