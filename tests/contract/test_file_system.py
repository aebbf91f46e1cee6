"""What the log needs of a file system, on the real one and on the simulator's: both must answer alike."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.clock import ManualClock
from catalog.errors import Conflict, Fenced
from ingest.wal.filesystem import FileSystem, LocalFileSystem
from tests.simulation.disk import SimDisk, SimFileSystem
from tests.simulation.faults import Chance


def _no_trouble(step: str) -> None:
    """The hook of a simulated process to which nothing happens."""


@pytest.fixture(params=["local", "simulated"])
def filesystem(request: pytest.FixtureRequest) -> FileSystem:
    return LocalFileSystem() if request.param == "local" else SimFileSystem(SimDisk(), _no_trouble, Chance(1))


@pytest.fixture
def folder(filesystem: FileSystem, tmp_path: Path) -> Path:
    made = tmp_path / "t" / "w" / "p"
    filesystem.make_folder(made)
    filesystem.make_folder(made)
    return made


def put(filesystem: FileSystem, path: Path, data: bytes) -> None:
    file = filesystem.create(path)
    file.write((data[:1], data[1:]))
    file.sync()
    file.close()


def test_written_bytes_are_read_and_mapped(filesystem: FileSystem, folder: Path) -> None:
    put(filesystem, folder / "a", b"hello")
    put(filesystem, folder / "empty", b"")
    assert filesystem.read(folder / "a") == b"hello"
    assert filesystem.map(folder / "a").to_pybytes() == b"hello"
    assert filesystem.map(folder / "empty").to_pybytes() == b""
    assert sorted(filesystem.list(folder)) == ["a", "empty"]
    filesystem.sync_file(folder / "a")
    filesystem.sync_folder(folder)


def test_creating_never_opens_what_is_there(filesystem: FileSystem, folder: Path) -> None:
    put(filesystem, folder / "a", b"old")
    with pytest.raises(FileExistsError):
        filesystem.create(folder / "a")
    assert filesystem.read(folder / "a") == b"old"


def test_moving_into_place_never_replaces(filesystem: FileSystem, folder: Path) -> None:
    put(filesystem, folder / "a.partial", b"first")
    filesystem.move_new(folder / "a.partial", folder / "a")
    put(filesystem, folder / "a.partial", b"second")
    with pytest.raises(FileExistsError):
        filesystem.move_new(folder / "a.partial", folder / "a")
    assert (filesystem.read(folder / "a"), filesystem.read(folder / "a.partial")) == (b"first", b"second")


def test_replace_and_unlink(filesystem: FileSystem, folder: Path) -> None:
    put(filesystem, folder / "a", b"first")
    put(filesystem, folder / "b", b"second")
    mapped = filesystem.map(folder / "a")
    filesystem.replace(folder / "b", folder / "a")
    assert (filesystem.read(folder / "a"), filesystem.list(folder)) == (b"second", ["a"])
    filesystem.unlink(folder / "a")
    assert filesystem.list(folder) == []
    assert mapped.to_pybytes() == b"first"


@pytest.mark.parametrize("call", [
    lambda f, path: f.read(path), lambda f, path: f.map(path), lambda f, path: f.unlink(path), lambda f, path: f.sync_file(path),
    lambda f, path: f.move_new(path, path.with_name("x")), lambda f, path: f.replace(path, path.with_name("x")),
])
def test_what_is_not_there_is_said_so(filesystem: FileSystem, folder: Path, call: Callable[[FileSystem, Path], object]) -> None:
    with pytest.raises(FileNotFoundError):
        call(filesystem, folder / "missing")


def test_one_holder_per_folder(filesystem: FileSystem, folder: Path) -> None:
    lock = filesystem.lock(folder, ManualClock())
    lock.verify()
    with pytest.raises(Conflict, match=str(folder)):
        filesystem.lock(folder, ManualClock())
    lock.close()
    lock.close()
    with pytest.raises(Fenced):
        lock.verify()
    filesystem.lock(folder, ManualClock()).close()


# ---- only the real one


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    put(LocalFileSystem(), tmp_path / "a", b"a long line in several pieces")
    assert (tmp_path / "a").read_bytes() == b"a long line in several pieces"


def test_without_hard_links_moving_still_does_not_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: object, target: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    filesystem = LocalFileSystem()
    put(filesystem, tmp_path / "a.partial", b"first")
    filesystem.move_new(tmp_path / "a.partial", tmp_path / "a")
    put(filesystem, tmp_path / "a.partial", b"second")
    with pytest.raises(FileExistsError):
        filesystem.move_new(tmp_path / "a.partial", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"first"


def test_every_descriptor_is_closed(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc")
    filesystem = LocalFileSystem()
    before = len(os.listdir("/proc/self/fd"))
    put(filesystem, tmp_path / "a", b"hello")
    kept = filesystem.map(tmp_path / "a")
    filesystem.sync_file(tmp_path / "a")
    filesystem.sync_folder(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert kept.to_pybytes() == b"hello"
