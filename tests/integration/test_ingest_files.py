"""Files that grow, move, shrink, are rewritten or cannot be read: every row once, and nothing read twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from catalog.errors import ConfigurationError
from ingest.settings import FileSourceSettings
from tests.helpers_ingest import World, lines


def _rows(first: int, last: int, pad: int = 0) -> str:
    return lines({"id": i, "pad": "x" * pad} for i in range(first, last))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_file_that_grew_is_read_on(world: World) -> None:
    world.write("a.jsonl", _rows(0, 10))
    world.run()
    world.write("a.jsonl", _rows(10, 15), append=True)
    summary = world.run()
    assert (summary.read, summary.incarnations) == (5, 0)
    assert world.ids() == list(range(15))


def test_a_last_line_without_newline_counts_once_and_the_next_line_starts_fresh(world: World) -> None:
    world.write("a.jsonl", _rows(0, 3).rstrip("\n"))
    assert world.run().read == 3
    world.write("a.jsonl", "\n" + _rows(3, 5), append=True)
    assert world.run().read == 2
    assert world.ids() == list(range(5))


@pytest.mark.parametrize("pad", [0, 2000])
def test_rotation_by_rename_between_runs(world: World, pad: int) -> None:
    world.write("app.log", _rows(0, 10, pad))
    world.run()
    world.write("app.log", _rows(10, 12, pad), append=True)
    os.rename(world.source / "app.log", world.source / "app.log.1")
    world.write("app.log", _rows(12, 20, pad))
    summary = world.run()
    assert (summary.read, summary.incarnations) == (10, 1)
    os.rename(world.source / "app.log.1", world.source / "app.log.2")
    os.rename(world.source / "app.log", world.source / "app.log.1")
    world.write("app.log", _rows(20, 25, pad))
    summary = world.run()
    assert (summary.read, summary.incarnations) == (5, 1)
    assert world.ids() == list(range(25))
    assert world.run().read == 0


def test_a_renamed_file_without_successor_is_not_read_again(world: World) -> None:
    world.write("a.jsonl", _rows(0, 10))
    world.run()
    os.rename(world.source / "a.jsonl", world.source / "b.jsonl")
    assert world.run().read == 0
    world.write("b.jsonl", _rows(10, 11), append=True)
    assert world.run().read == 1
    assert world.ids() == list(range(11))


def test_a_new_file_that_says_the_same_as_one_that_is_gone_counts(world: World) -> None:
    first = world.write("ping-1.jsonl", _rows(7, 8))
    world.run()
    other = world.write("ping-2.jsonl", _rows(7, 8))
    os.utime(other, ns=(1, 1))
    first.unlink()
    assert world.run().read == 1
    assert world.ids() == [7, 7]


@pytest.mark.parametrize("pad", [0, 2000])
def test_copytruncate(world: World, pad: int) -> None:
    log = world.write("app.log", _rows(0, 10, pad))
    world.run()
    world.write("app.log", _rows(10, 12, pad), append=True)
    shutil.copy(log, world.source / "app.log.1")
    log.write_text("")
    world.write("app.log", _rows(12, 14, pad), append=True)
    summary = world.run()
    assert (summary.read, summary.incarnations) == (4, 1)
    assert world.ids() == list(range(14))


def test_a_copytruncate_copy_stays_read_when_the_original_is_gone(world: World) -> None:
    log = world.write("app.log", _rows(0, 10))
    world.run()
    shutil.copy(log, world.source / "app.log.1")
    world.write("app.log", _rows(10, 13))
    world.run()
    log.unlink()
    assert world.run().read == 0
    (world.source / "app.log.1").rename(world.source / "app.log.2")
    assert world.run().read == 0
    world.write("app.log", _rows(13, 15))
    world.run()
    assert world.ids() == list(range(15))


def test_truncated_and_grown_past_its_old_size(world: World) -> None:
    world.write("app.log", _rows(0, 3))
    world.run()
    world.write("app.log", _rows(3, 50))
    assert world.run().incarnations == 1
    assert world.ids() == list(range(50))


def test_rewritten_at_the_same_size(world: World) -> None:
    world.write("a.jsonl", _rows(10, 20))
    world.run()
    world.write("a.jsonl", _rows(20, 30))
    summary = world.run()
    assert (summary.read, summary.incarnations) == (10, 1)
    world.write("a.jsonl", _rows(30, 40))
    assert world.run().incarnations == 1
    assert world.ids() == list(range(10, 40))


def test_rewritten_behind_the_first_bytes_at_the_same_size(world: World) -> None:
    head = _rows(100, 105, 1000)
    world.write("a.jsonl", head + _rows(200, 300))
    world.run()
    world.write("a.jsonl", head + _rows(300, 400))
    assert world.run().incarnations == 1


def test_emptied_files_wait_for_content(world: World) -> None:
    log = world.write("a.jsonl", _rows(0, 5))
    world.run()
    log.write_text("")
    assert world.run().read == 0
    world.write("a.jsonl", _rows(0, 5))
    assert world.run().read == 0, "the same content at the same place is the same file"
    world.write("a.jsonl", _rows(5, 9))
    assert world.run().read == 4


def test_copies_that_are_there_together_both_count(world: World) -> None:
    world.write("a.jsonl", _rows(0, 5))
    world.write("b.jsonl", _rows(0, 5))
    assert world.run().read == 10
    world.write("c.jsonl", _rows(0, 5))
    assert world.run().read == 5
    assert world.run().read == 0


def test_a_file_in_place_of_one_with_a_name_like_an_incarnation(world: World) -> None:
    world.write("a.log", _rows(0, 5))
    world.write("a.log~1", _rows(5, 10))
    world.run()
    world.write("a.log", _rows(10, 12))
    summary = world.run()
    assert (summary.read, summary.incarnations) == (2, 1)
    assert world.ids() == list(range(12))


def test_a_missing_path_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.*does not exist"):
        world.run(path=str(tmp_path / "nowhere"))


def test_an_unreadable_file_fails_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.jsonl", _rows(0, 5))
    world.write("locked.jsonl", _rows(5, 6))
    world.write("z.jsonl", _rows(6, 9))
    real = os.open

    def deny(path: str, flags: int, *rest: int, **named: int) -> int:
        if str(path).endswith("locked.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, *rest, **named)

    monkeypatch.setattr("ingest.sources.fingerprint.os.open", deny)
    summary = world.run()
    monkeypatch.undo()
    assert summary.read == 8
    assert isinstance(summary.error, ConfigurationError)
    assert "locked.jsonl" in str(summary.error)
    assert "right to read" in str(summary.error)
    assert world.ids() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert world.run().read == 1


def test_a_file_that_vanishes_between_poll_and_open_is_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.jsonl", _rows(0, 5))
    gone = world.write("b.jsonl", _rows(5, 6))
    from ingest.sources import file as module

    real = module.FileSource.poll

    def poll(self: module.FileSource) -> list[object]:
        found = real(self)
        gone.unlink(missing_ok=True)
        return list(found)

    monkeypatch.setattr(module.FileSource, "poll", poll)
    summary = world.run()
    assert (summary.read, summary.error) == (5, None)


def test_reset_offsets_reads_everything_again(world: World) -> None:
    world.write("a.jsonl", _rows(0, 5))
    world.run()
    world.write("a.jsonl", _rows(5, 7))
    world.run()
    assert world.run(reset_offsets=True).read == 2
    assert world.ids() == [0, 1, 2, 3, 4, 5, 5, 6, 6]
    assert world.run().read == 0


def test_only_the_first_bytes_of_a_finished_file_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.jsonl", _rows(0, 500, 100))
    world.run()
    opened: list[str] = []
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *a, **k: (opened.append(str(path)), real(path, *a, **k))[1])
    summary = world.run(source=FileSourceSettings(path=str(world.source)))
    assert (summary.read, summary.partitions) == (0, 0)
    assert not [path for path in opened if path.endswith("a.jsonl")]
