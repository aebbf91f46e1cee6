"""Memory between source and log: one budget in bytes for everything that was read and is not yet in the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ByteBudget", "Channel", "Stopped"]

_T = TypeVar("_T")
_WAIT_S = 0.1


class Stopped(Exception):
    """The run ended while this stage waited; not an error of its own."""


class ByteBudget:
    """Bytes that may be held at once. Thread safe.

    A first taker always gets what it asks for, however large, or one big block could never pass.
    """

    def __init__(self, limit_bytes: int, stopped: Callable[[], bool]) -> None:
        self._limit = limit_bytes
        self._stopped = stopped
        self._changed = threading.Condition()
        self._used = 0
        self._waiting = 0

    def starved_by(self, size_bytes: int) -> bool:
        """Whether somebody waits for room while nothing but `size_bytes` is held."""
        with self._changed:
            return self._waiting > 0 and self._used <= size_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit

    @property
    def used_bytes(self) -> int:
        with self._changed:
            return self._used

    def take(self, size_bytes: int) -> None:
        """Wait until there is room. Raises Stopped."""
        with self._changed:
            self._waiting += 1
            try:
                while self._used and self._used + size_bytes > self._limit:
                    if self._stopped():
                        raise Stopped
                    self._changed.wait(_WAIT_S)
            finally:
                self._waiting -= 1
            self._used += size_bytes

    def change(self, from_bytes: int, to_bytes: int) -> None:
        """What was taken as `from_bytes` now is `to_bytes` (rows instead of text; 0 once it is in the log). Never waits."""
        with self._changed:
            self._used += to_bytes - from_bytes
            self._changed.notify_all()

    def settle(self, size_bytes: int, patience_s: float) -> None:
        """Wait until at most `size_bytes` are held; no longer than `patience_s`. Never raises."""
        with self._changed:
            self._changed.wait_for(lambda: self._used <= size_bytes or self._stopped(), patience_s)


class Channel(Generic[_T]):
    """A queue between two stages that ends. Its items are bounded by the budget, their number by `items_max`. Thread safe."""

    def __init__(self, items_max: int, stopped: Callable[[], bool]) -> None:
        self._items_max = items_max
        self._stopped = stopped
        self._changed = threading.Condition()
        self._items: deque[_T] = deque()
        self._ended = False

    def put(self, item: _T) -> None:
        """Wait for a free place. Raises Stopped."""
        with self._changed:
            self._check()
            while len(self._items) >= self._items_max:
                self._wait()
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout_s: float | None = None) -> _T | None:
        """The next item; None at the end, or when `timeout_s` passed (see `ended`). Raises Stopped."""
        with self._changed:
            self._check()
            if not self._items and not self._ended and timeout_s is not None:
                self._changed.wait(timeout_s)
                if not self._items:
                    return None
            while not self._items:
                if self._ended:
                    return None
                self._wait()
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def end(self) -> None:
        """Nothing will follow; what is inside can still be taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether everything was taken and nothing can follow."""
        with self._changed:
            return self._ended and not self._items

    def _wait(self) -> None:
        self._check()
        self._changed.wait(_WAIT_S)

    def _check(self) -> None:
        if self._stopped():
            raise Stopped
