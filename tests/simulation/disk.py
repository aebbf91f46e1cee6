"""A simulated disk with a page cache: what was not synced may be lost, torn or undone when the power goes.

Names and bytes are durable apart from each other, as POSIX allows: `sync` makes a file's bytes durable, `sync_folder` the names in a
folder. A power cut keeps any subset of the name changes that were not synced, in their order, and any beginning of the unsynced bytes of
a file (or zeros in their place). A sync that failed never makes these bytes durable again, even if a later one says so.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from catalog.clock import Clock
from catalog.errors import Conflict, Fenced
from tests.simulation.faults import Chance, Hook

__all__ = ["SimDisk", "SimFileSystem", "SimLock"]


class _Inode:
    __slots__ = ("content", "doubtful", "durable")

    def __init__(self) -> None:
        self.content = b""
        self.durable = b""
        self.doubtful = False


_ROOT = "/"
_FOLDER = _Inode()
_Change = list[tuple[str, "_Inode | None"]]


class SimDisk:
    """The medium, and the page cache over it. Processes use it through `SimFileSystem`."""

    def __init__(self) -> None:
        # Keys are the paths' texts: looking a Path up costs several times as much.
        self.names: dict[str, _Inode] = {_ROOT: _FOLDER}
        self._durable: dict[str, _Inode] = {_ROOT: _FOLDER}
        self._pending: dict[str, list[_Change]] = {}
        self.locks: dict[Path, SimLock] = {}

    def change(self, folder: str, change: _Change) -> None:
        """Apply a change of names at once in the cache; on the medium it waits for a sync of the folder."""
        for path, inode in change:
            if inode is None:
                self.names.pop(path, None)
            else:
                self.names[path] = inode
        self._pending.setdefault(folder, []).append(change)

    def sync_folder(self, folder: str) -> None:
        for change in self._pending.pop(folder, ()):
            self._apply(change)

    def _apply(self, change: _Change) -> None:
        for path, inode in change:
            if inode is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = inode

    def power_cut(self, chance: Chance) -> None:
        """Everything in the cache that the medium did not get is decided by chance."""
        for folder in sorted(self._pending):
            mode = chance.below(4)
            for change in self._pending[folder]:
                if mode == 1 or (mode >= 2 and chance.happens(0.5)):
                    self._apply(change)
                elif mode == 3:
                    break
        self._pending.clear()
        self.locks.clear()
        survivors: dict[str, _Inode] = {}
        for path in sorted(self._durable):  # parents come before what is in them
            if path == _ROOT or os.path.dirname(path) in survivors:
                survivors[path] = self._durable[path]
        for inode in survivors.values():
            if inode.content != inode.durable:
                inode.durable = inode.content = _torn(inode, chance)
            inode.doubtful = False
        self._durable, self.names = survivors, dict(survivors)


def _torn(inode: _Inode, chance: Chance) -> bytes:
    mode = chance.below(4)
    if mode == 0 or not inode.content.startswith(inode.durable):
        return inode.durable
    if mode == 1 and not inode.doubtful:
        return inode.content
    keep = chance.between(len(inode.durable), len(inode.content) - 1) if len(inode.content) > len(inode.durable) else len(inode.durable)
    if mode == 2:
        return inode.content[:keep]
    return inode.content[:keep] + bytes(len(inode.content) - keep)


class SimLock:
    """A lock that goes with its process."""

    def __init__(self, disk: SimDisk, folder: Path, owner: object) -> None:
        self._disk, self._folder, self.owner = disk, folder, owner

    def verify(self) -> None:
        if self._disk.locks.get(self._folder) is not self:
            raise Fenced(f"{self._folder} is not locked by this process any more")

    def close(self) -> None:
        if self._disk.locks.get(self._folder) is self:
            del self._disk.locks[self._folder]


class SimFileSystem:
    """The disk as one process sees it. Every call reports to `hook` first, which may end the process or fail the call."""

    def __init__(self, disk: SimDisk, hook: Hook, chance: Chance) -> None:
        self._disk, self._hook, self._chance = disk, hook, chance

    def lock(self, folder: Path, clock: Clock) -> SimLock:
        self.make_folder(folder)
        self._hook("disk.lock")
        if folder in self._disk.locks:
            raise Conflict(f"{folder} is in use by another simulated process")
        self._disk.locks[folder] = lock = SimLock(self._disk, folder, self)
        return lock

    def make_folder(self, folder: Path) -> None:
        for path in (*reversed(folder.parents), folder):
            if str(path) not in self._disk.names:
                self._hook("disk.make_folder")
                self._change((path, _FOLDER))

    def list(self, folder: Path) -> list[str]:
        self._hook("disk.list")
        prefix = f"{folder}/"
        inside = (path.removeprefix(prefix) for path in self._disk.names if path.startswith(prefix))
        return [name for name in inside if "/" not in name]

    def create(self, path: Path) -> SimFile:
        self._hook("disk.create")
        if str(path) in self._disk.names:
            raise _os_error(errno.EEXIST, path)
        inode = _Inode()
        self._change((path, inode))
        return SimFile(inode, self._hook, self._chance)

    def move_new(self, source: Path, target: Path) -> None:
        self._hook("disk.link")
        if str(target) in self._disk.names:
            raise _os_error(errno.EEXIST, target)
        self._change((target, self._at(source)))
        self._hook("disk.unlink_source")
        self._change((source, None))

    def replace(self, source: Path, target: Path) -> None:
        self._hook("disk.replace")
        self._change((target, self._at(source)), (source, None))

    def unlink(self, path: Path) -> None:
        self._at(path)
        self._hook("disk.unlink")
        self._change((path, None))

    def sync_file(self, path: Path) -> None:
        _sync(self._at(path), self._hook)

    def sync_folder(self, folder: Path) -> None:
        self._at(folder)
        self._hook("disk.sync_folder")
        self._disk.sync_folder(str(folder))

    def read(self, path: Path) -> bytes:
        self._hook("disk.read")
        return self._at(path).content

    def map(self, path: Path) -> pa.Buffer:
        self._hook("disk.map")
        return pa.py_buffer(self._at(path).content)

    def _change(self, *changes: tuple[Path, _Inode | None]) -> None:
        texts: _Change = [(str(path), inode) for path, inode in changes]
        self._disk.change(os.path.dirname(texts[0][0]), texts)

    def _at(self, path: Path) -> _Inode:
        inode = self._disk.names.get(str(path))
        if inode is None:
            raise _os_error(errno.ENOENT, path)
        return inode


class SimFile:
    """A file being written; a write that is interrupted leaves its beginning behind."""

    def __init__(self, inode: _Inode, hook: Hook, chance: Chance) -> None:
        self._inode, self._hook, self._chance = inode, hook, chance

    def write(self, chunks: Iterable[bytes | pa.Buffer]) -> None:
        data = b"".join(bytes(chunk) for chunk in chunks)
        try:
            self._hook("disk.write")
        except BaseException:
            self._inode.content += data[:self._chance.below(len(data) + 1)]
            raise
        self._inode.content += data

    def sync(self) -> None:
        _sync(self._inode, self._hook)

    def close(self) -> None:
        """Nothing: closing makes nothing durable."""


def _sync(inode: _Inode, hook: Hook) -> None:
    try:
        hook("disk.sync")
    except OSError:
        # The kernel drops the pages and calls them clean: no later sync writes these bytes.
        inode.doubtful = inode.content != inode.durable
        raise
    if not inode.doubtful:
        inode.durable = inode.content


def _os_error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
