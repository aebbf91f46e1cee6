"""One writer per pipeline folder: an exclusive flock on `LOCK`, taken before recovery and held for life (rule 18, I4).

The lock belongs to the open file: it goes when the holder closes it or dies, however it dies. A forked child gives its copy up at
once and an executed program never gets it, so a child that outlives its parent cannot keep the pipeline locked. What is written
inside the file names the holder for people; only the lock itself decides. Readers take no lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.clock import Clock, SystemClock
from catalog.errors import ConfigurationError, Conflict, Fenced, Unavailable

__all__ = ["LOCK_NAME", "LockHolder", "PipelineLock", "read_holder"]

LOCK_NAME: Final = "LOCK"
_ATTEMPTS_MAX: Final = 10
_INFO_BYTES_MAX: Final = 4096

_held: weakref.WeakSet[PipelineLock] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who wrote the lock file last: process id, host name, wall time of the start. For people."""

    pid: int
    host: str
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"


class PipelineLock:
    """A held lock. Made by `acquire`; thread safe; `close` is idempotent."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        _held.add(self)

    @staticmethod
    def acquire(folder: Path, clock: Clock | None = None) -> PipelineLock:
        """Lock the folder, making it where it is missing.

        Raises Conflict naming the holder where another writer has it (in this process or any other), ConfigurationError where the
        folder cannot be written or its file system has no locks.
        """
        path = folder / LOCK_NAME
        started = (clock or SystemClock()).wall_iso()
        for _ in range(_ATTEMPTS_MAX):
            descriptor = _open(path)
            try:
                _flock(path, descriptor)
                if not _is(path, descriptor):  # somebody removed the file between open and lock
                    os.close(descriptor)
                    continue
                _tell(path, descriptor, LockHolder(os.getpid(), socket.gethostname(), started))
            except BaseException:
                os.close(descriptor)
                raise
            return PipelineLock(path, descriptor)
        raise Conflict(f"{path} keeps being removed while it is locked: find out who deletes files in {folder}")

    @property
    def path(self) -> Path:
        """The lock file."""
        return self._path

    def verify(self) -> None:
        """Raise Fenced where the lock is closed or its file was removed or replaced, so that another writer may have started."""
        if self._descriptor < 0:
            raise Fenced(f"{self._path} is no longer held by this process")
        if not _is(self._path, self._descriptor):
            raise Fenced(f"{self._path} was removed or replaced while this process held it: another writer may run; stop both, start one")

    def close(self) -> None:
        """Give the lock up."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _leave_to_parent(self) -> None:
        """In a forked child: close the copy. The parent's open file keeps the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> PipelineLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_holder(folder: Path) -> LockHolder | None:
    """Who last wrote the folder's lock file and did not close it, None where nobody is named. Says nothing about being alive."""
    try:
        with open(folder / LOCK_NAME, "rb") as file:
            told = json.loads(file.read(_INFO_BYTES_MAX))
        return LockHolder(int(told["pid"]), str(told["host"]), str(told["started"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be opened for writing ({error.strerror}): DATA_DIR must be a folder that this user can write"
        ) from error


def _flock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise ConfigurationError(f"{path} cannot be locked ({error.strerror}): put DATA_DIR on a local disk") from error
        holder = read_holder(path.parent)
        raise Conflict(
            f"{path.parent} is in use by {holder or 'another writer that has not told its name yet'}: one pipeline has one writer. Stop "
            f"that process, or give this one another DATA_DIR; `fuser {path}` shows who holds it"
        ) from error


def _tell(path: Path, descriptor: int, holder: LockHolder) -> None:
    told = json.dumps({"pid": holder.pid, "host": holder.host, "started": holder.started}).encode()
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, told, 0)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}): free space or mend the disk, then start again") from error


def _is(path: Path, descriptor: int) -> bool:
    """Whether the path still names the open file."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock._leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)
