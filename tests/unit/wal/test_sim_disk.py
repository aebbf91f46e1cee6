"""The simulated disk loses what a real one may lose, and keeps what it must keep."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.simulation.disk import SimDisk, SimFileSystem
from tests.simulation.faults import Chance, Death

ROOT = Path("/d")


class Trouble:
    """Raises once, at one step."""

    def __init__(self) -> None:
        self.at, self.error = "", None

    def __call__(self, step: str) -> None:
        if self.error is not None and step == self.at:
            error, self.error = self.error, None
            raise error


def outcomes(prepare: object) -> set[tuple[tuple[str, bytes], ...]]:
    """What the folder may hold after a power cut, over many chances."""
    found = set()
    for seed in range(300):
        chance = Chance(seed)
        disk = SimDisk()
        filesystem = SimFileSystem(disk, Trouble(), chance)
        filesystem.make_folder(ROOT)
        filesystem.sync_folder(Path("/"))
        prepare(filesystem)  # type: ignore[operator]
        disk.power_cut(chance)
        found.add(tuple((name, filesystem.read(ROOT / name)) for name in sorted(filesystem.list(ROOT))))
    return found


def write(filesystem: SimFileSystem, name: str, data: bytes, *, sync: bool) -> None:
    file = filesystem.create(ROOT / name)
    file.write((data,))
    if sync:
        file.sync()


def test_what_was_synced_stays() -> None:
    def prepare(filesystem: SimFileSystem) -> None:
        write(filesystem, "a", b"abc", sync=True)
        filesystem.sync_folder(ROOT)

    assert outcomes(prepare) == {(("a", b"abc"),)}


def test_a_name_or_bytes_that_were_not_synced_may_be_lost_or_torn() -> None:
    def name_only(filesystem: SimFileSystem) -> None:
        write(filesystem, "a", b"abc", sync=False)
        filesystem.sync_folder(ROOT)

    found = outcomes(name_only)
    assert {(("a", b""),), (("a", b"a"),), (("a", b"abc"),), (("a", b"a\0\0"),)} <= found

    def bytes_only(filesystem: SimFileSystem) -> None:
        write(filesystem, "a", b"abc", sync=True)

    assert outcomes(bytes_only) == {(), (("a", b"abc"),)}


def test_a_move_may_be_undone_until_the_folder_is_synced() -> None:
    def prepare(filesystem: SimFileSystem) -> None:
        write(filesystem, "a", b"abc", sync=True)
        filesystem.sync_folder(ROOT)
        filesystem.move_new(ROOT / "a", ROOT / "b")

    assert (("a", b"abc"),) in outcomes(prepare)
    assert (("b", b"abc"),) in outcomes(prepare)

    def replaced(filesystem: SimFileSystem) -> None:
        write(filesystem, "a", b"new", sync=True)
        write(filesystem, "b", b"old", sync=True)
        filesystem.sync_folder(ROOT)
        filesystem.replace(ROOT / "a", ROOT / "b")

    assert outcomes(replaced) == {(("a", b"new"), ("b", b"old")), (("b", b"new"),)}


def test_a_failed_sync_is_never_made_good_by_a_later_one() -> None:
    lost = 0
    for seed in range(50):
        chance, trouble, disk = Chance(seed), Trouble(), SimDisk()
        filesystem = SimFileSystem(disk, trouble, chance)
        filesystem.make_folder(ROOT)
        file = filesystem.create(ROOT / "a")
        file.write((b"abc",))
        trouble.at, trouble.error = "disk.sync", OSError(errno.EIO, "EIO")
        with pytest.raises(OSError):
            file.sync()
        file.sync()
        filesystem.sync_folder(ROOT)
        filesystem.sync_folder(Path("/"))
        disk.power_cut(chance)
        lost += filesystem.read(ROOT / "a") != b"abc"
    assert lost == 50


def test_a_killed_write_leaves_its_beginning() -> None:
    found = set()
    for seed in range(100):
        trouble = Trouble()
        filesystem = SimFileSystem(SimDisk(), trouble, Chance(seed))
        filesystem.make_folder(ROOT)
        file = filesystem.create(ROOT / "a")
        trouble.at, trouble.error = "disk.write", Death("killed")
        with pytest.raises(Death):
            file.write((b"abc",))
        found.add(filesystem.read(ROOT / "a"))
    assert found == {b"", b"a", b"ab", b"abc"}
