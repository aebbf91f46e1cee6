"""A folder of its own for what one DuckDB instance spills.

DuckDB names its temporary files by number, so two instances in one folder overwrite each other's and crash: `serve` and `query` of one
DATA_DIR are two. Each instance has a sub-folder whose `LOCK` it holds (flock) for life. What a killed process left behind has a lock
that nobody holds: the next instance removes it, so that it does not fill the disk.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from catalog.errors import ConfigurationError

__all__ = ["SpillFolder"]

_LOCK: Final = "LOCK"


class SpillFolder:
    """The folder `path` inside the configured one. `close` removes it; idempotent."""

    def __init__(self, parent: Path) -> None:
        """Make it, and remove those of dead processes. Raises ConfigurationError where the folder cannot be made or locked."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            guard = _locked(parent / _LOCK, wait=True)
            try:
                _sweep(parent)
                self.path: Final = parent / f"{os.getpid()}-{secrets.token_hex(4)}"
                self.path.mkdir()
                self._lock: int | None = _locked(self.path / _LOCK)
            finally:
                if guard is not None:
                    os.close(guard)
        except OSError as error:
            raise ConfigurationError(f"spill folder {parent} cannot be used: {error.strerror}; choose another") from error

    def close(self) -> None:
        """Remove it with all that is in it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)  # what is left the next instance removes
            os.close(lock)


def _sweep(parent: Path) -> None:
    """Remove the folders whose owner is gone; the caller holds the parent's lock, so nobody is between making and locking one."""
    for lock in parent.glob(f"*/{_LOCK}"):
        held = _locked(lock)
        if held is not None:
            shutil.rmtree(lock.parent, ignore_errors=True)
            os.close(held)


def _locked(path: Path, *, wait: bool = False) -> int | None:
    """A descriptor that holds the lock; None where another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
