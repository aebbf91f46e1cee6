"""The thin file system that the log stands on, so that the simulator can put its own under the same code.

Nothing is durable before it is synced: the bytes of a file by `NewFile.sync` or `sync_file`, a name (created, moved, removed) by
`sync_folder` of its folder. Methods raise OSError; `disk_errors` turns it into an error of ours that names the path and the remedy.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from catalog.clock import Clock
from catalog.control.lockfile import PipelineLock
from catalog.errors import ConfigurationError, SkipprError, Unavailable

__all__ = ["FileSystem", "FolderLock", "LocalFileSystem", "NewFile", "disk_error", "disk_errors"]

_REMEDY: Final = {
    errno.ENOSPC: "free space on that volume, then start again",
    errno.EDQUOT: "raise the quota or free space on that volume, then start again",
    errno.EIO: "the disk or its file system is failing: look into the system log and mend it before the next start",
    errno.EROFS: "the volume is mounted read-only: the system log says why; mount it for writing, then start again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), then start again",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then start again",
}
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class FolderLock(Protocol):
    """A held exclusive lock on a pipeline's folder; it goes with the process."""

    def verify(self) -> None:
        """Raise Fenced where the lock was lost."""
        ...

    def close(self) -> None:
        """Give it up; idempotent."""
        ...


class NewFile(Protocol):
    """A file just created, open for writing by one thread."""

    def write(self, chunks: Iterable[bytes | pa.Buffer]) -> None:
        """Append every byte of every chunk, or raise: short writes are continued."""
        ...

    def sync(self) -> None:
        """Make the bytes durable. An error is final for this file: a second sync that succeeds proves nothing."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """What the log does to files. Paths are absolute. Safe for several threads."""

    def lock(self, folder: Path, clock: Clock) -> FolderLock:
        """Take the folder's lock, making the folder. Raises Conflict naming the holder (rule 18)."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make the folder and its parents where they are missing."""
        ...

    def list(self, folder: Path) -> list[str]:
        """Names in the folder, in no order."""
        ...

    def create(self, path: Path) -> NewFile:
        """Create a file. Raises FileExistsError."""
        ...

    def move_new(self, source: Path, target: Path) -> None:
        """Give the file its other name in the same folder. Raises FileExistsError: it never replaces (rule 18)."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Move over whatever has the target's name, atomically."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name. Raises FileNotFoundError."""
        ...

    def sync_file(self, path: Path) -> None:
        """Make the file's present bytes durable."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Make the folder's present names durable."""
        ...

    def read(self, path: Path) -> bytes:
        """The whole of a small file. Raises FileNotFoundError."""
        ...

    def map(self, path: Path) -> pa.Buffer:
        """The file's bytes without reading them; they stay readable after the name is gone. Raises FileNotFoundError."""
        ...


class LocalFileSystem:
    """The machine's file system."""

    def lock(self, folder: Path, clock: Clock) -> FolderLock:
        return PipelineLock.acquire(folder, clock)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def list(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def create(self, path: Path) -> NewFile:
        return _LocalFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def move_new(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No hard links here. The lock keeps other writers away; this look is only the second net.
            if target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
            os.rename(source, target)
        else:
            os.unlink(source)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def sync_file(self, path: Path) -> None:
        _sync_path(path, os.O_RDONLY)

    def sync_folder(self, folder: Path) -> None:
        _sync_path(folder, os.O_RDONLY | os.O_DIRECTORY)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def map(self, path: Path) -> pa.Buffer:
        try:
            with pa.memory_map(str(path), "r") as file:
                return file.read_buffer()
        except OSError:
            if path.stat().st_size:
                raise
            return pa.py_buffer(b"")  # an empty file cannot be mapped


class _LocalFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, chunks: Iterable[bytes | pa.Buffer]) -> None:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._descriptor, view):]

    def sync(self) -> None:
        _sync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _sync_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the bytes in the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def disk_error(error: OSError, doing: str, path: Path) -> SkipprError:
    """The error of ours: Unavailable, or ConfigurationError where rights are missing. Names the path and the remedy."""
    what = f"{doing} {path} failed: {error.strerror or error}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ConfigurationError(f"{what}. DATA_DIR must be a folder that this user can write")
    remedy = _REMEDY.get(error.errno or 0, "look into the system log, mend the cause, then start again")
    return Unavailable(f"{what}; {remedy}")


@contextmanager
def disk_errors(doing: str, path: Path, passing: type[OSError] | tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Turn an OSError inside into `disk_error`; `passing` are those that the caller takes as an answer."""
    try:
        yield
    except OSError as error:
        if isinstance(error, passing):
            raise
        raise disk_error(error, doing, path) from error
