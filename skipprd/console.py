"""Stderr for people: whole lines, and below them one live line that is redrawn in place on a terminal."""

from __future__ import annotations

import shutil
import sys
import threading
from typing import TextIO

__all__ = ["Console"]


class Console:
    """Thread safe. A live line is drawn only where the stream is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        # re-entrant: a signal handler may log while the main thread is in here
        self._lock = threading.RLock()
        self._live = ""
        self.is_terminal = self._stream.isatty()

    def write_line(self, line: str) -> None:
        """A line that stays."""
        with self._lock:
            self._erase()
            self._stream.write(line + "\n")
            self._draw()
            self._stream.flush()

    def live(self, line: str) -> None:
        """Replace the live line; "" removes it."""
        if not self.is_terminal:
            return
        with self._lock:
            self._erase()
            self._live = line[: max(1, shutil.get_terminal_size().columns - 1)]
            self._draw()
            self._stream.flush()

    def _erase(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[2K")

    def _draw(self) -> None:
        self._stream.write(self._live)
