"""Runs that end badly: whatever stage fails, and wherever, the next run completes and every row is there once."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog import failpoint
from catalog.errors import ConfigurationError, DataCorruption, Unavailable
from ingest.pipeline import IngestPipeline
from ingest.settings import BufferSettings, CompactionSettings, DecodeSettings, FileSourceSettings
from tests.helpers_ingest import World, lines

POINTS = (
    "ingest.sealed", "ingest.tables_ensured", "ingest.acknowledged", "wal.segment.written", "wal.segment.fsynced", "wal.segment.linked",
    "wal.segment.committed", "wal.segment.published", "offsets.before_publish", "offsets.published",
    "lake.table_created", "lake.data_written",
    "lake.data_synced", "lake.manifests_written", "lake.metadata_written", "lake.pointer_moved", "compactor.before_commit",
    "compactor.committed", "compactor.reclaimed", "wal.reclaim.based", "wal.reclaim.row", "offsets.log_base_set",
)
SMALL = {
    "buffer": BufferSettings(threshold_bytes=2000, queue_bytes_max=50_000),
    "compaction": CompactionSettings(commit_bytes=20_000, commit_seconds=0.0),
}


class Crash(BaseException):
    """Stands for the end of the process at this very step."""


@pytest.fixture(autouse=True)
def _no_failpoints() -> Iterator[None]:
    yield
    failpoint.install(None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write("a.jsonl", lines([{"id": i, "pad": "x" * 50} if i % 10 else '{"id": broken' for i in range(100)]))
    world.write("b.jsonl", lines({"id": i, "more": {"k": i}} for i in range(100, 150)))
    return world


def _source(world: World) -> FileSourceSettings:
    return FileSourceSettings(path=str(world.source), decode=DecodeSettings(block_bytes=600))


def _check(world: World) -> None:
    assert world.ids() == [i for i in range(150) if i >= 100 or i % 10]
    assert sorted(world.scan("_dl_events")["record"].to_pylist()) == list(range(0, 100, 10))
    assert world.segments() == []


def _crash_at(name: str, times: int) -> Callable[[str], None]:
    lock, left = threading.Lock(), [times]

    def handler(reached: str) -> None:
        if reached == name:
            with lock:
                left[0] -= 1
                crash = left[0] == 0
            if crash:
                raise Crash(name)

    return handler


@pytest.mark.parametrize("name", POINTS)
def test_a_crash_at_any_step_loses_and_doubles_nothing(world: World, name: str) -> None:
    crashed = 0
    for times in (1, 3):
        failpoint.install(_crash_at(name, times))
        try:
            world.run(source=_source(world), **SMALL)
        except Crash:
            crashed += 1
        failpoint.install(None)
    assert crashed
    world.run(source=_source(world), **SMALL)
    _check(world)


def test_nothing_is_appended_after_an_error_and_the_error_is_raised(world: World) -> None:
    published: list[str] = []

    def handler(name: str) -> None:
        if name == "wal.segment.published":
            published.append(name)
        if name == "wal.segment.written" and published:
            raise OSError(28, "No space left on device")

    failpoint.install(handler)
    with pytest.raises(Unavailable, match="No space left"):
        world.run(source=_source(world), **SMALL)
    assert len(published) == 1
    failpoint.install(None)
    world.run(source=_source(world), **SMALL)
    _check(world)


def test_a_full_log_waits_for_the_sink(world: World) -> None:
    tight = {
        "buffer": BufferSettings(threshold_bytes=500),
        "compaction": CompactionSettings(commit_bytes=1, commit_seconds=0.0, backlog_bytes_max=1),
    }
    backlog: list[int] = []

    def watch(pipeline: IngestPipeline) -> None:
        failpoint.install(lambda name: backlog.append(pipeline.snapshot().wal_backlog_bytes) if name == "ingest.acknowledged" else None)

    summary = world.run(source=_source(world), during=watch, **tight)
    assert summary.segments == len(backlog) > 5
    assert max(backlog) < summary.segment_bytes / 3, "each entry waits until the one before is in its tables"
    _check(world)


def test_a_full_log_is_compacted_before_its_time(world: World) -> None:
    lazy = CompactionSettings(commit_bytes=1 << 30, commit_seconds=3600.0, backlog_bytes_max=1)
    summary = world.run(source=_source(world), buffer=BufferSettings(threshold_bytes=500), compaction=lazy)
    assert summary.commits > 3
    _check(world)


def test_a_broken_table_ends_the_run_and_not_a_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog.iceberg.lake import IcebergLake

    def broken(self: IcebergLake, identifier: tuple[str, ...]) -> None:
        raise DataCorruption(f"{identifier} is damaged")

    monkeypatch.setattr(IcebergLake, "load", broken)
    with pytest.raises(DataCorruption, match="is damaged"):
        world.run(source=_source(world))
    monkeypatch.undo()
    world.run(source=_source(world))
    _check(world)


def test_a_truncated_gzip_fails_alone_and_is_read_on_when_it_is_whole(world: World) -> None:
    packed = gzip.compress(lines({"id": i, "n": os.urandom(20).hex()} for i in range(150, 2000)).encode())
    world.write("c.jsonl.gz", packed[:-2000])
    summary = world.run(source=_source(world))
    assert isinstance(summary.error, DataCorruption)
    assert "c.jsonl.gz" in str(summary.error)
    before = len(world.ids())
    assert before > 140
    world.write("c.jsonl.gz", packed)
    again = world.run(source=_source(world))
    assert (again.error, again.incarnations) == (None, 0)
    assert world.ids() == [i for i in range(2000) if i >= 100 or i % 10]
    assert world.run(source=_source(world)).partitions == 0


def test_files_are_followed_until_stop(world: World) -> None:
    settings = FileSourceSettings(path=str(world.source), poll_ms=10, idle_close_ms=30)
    drain = BufferSettings(threshold_seconds=0.05)

    def act(pipeline: IngestPipeline) -> None:
        def wait(records: int) -> None:
            while pipeline.snapshot().landed_rows + pipeline.snapshot().dead_letters < records:
                time.sleep(0.01)

        def play() -> None:
            wait(150)
            world.write("b.jsonl", lines([{"id": 150}]), append=True)
            wait(151)
            world.write("new/c.jsonl", lines([{"id": 151}]) + '{"id": 152}')
            wait(153)
            os.rename(world.source / "b.jsonl", world.source / "b.jsonl.1")
            world.write("b.jsonl", lines([{"id": 153}]))
            wait(154)
            pipeline.stop()

        threading.Thread(target=play, daemon=True).start()

    summary = world.run(source=settings, once=False, during=act, buffer=drain)
    assert (summary.read, summary.incarnations) == (154, 1)
    assert world.run(source=settings).read == 0
    assert world.ids() == [i for i in range(154) if i >= 100 or i % 10]


def test_a_second_writer_is_refused_while_the_first_runs(world: World) -> None:
    from catalog.errors import Conflict

    def again(_: IngestPipeline) -> None:
        with pytest.raises(Conflict):
            world.run()

    world.run(during=again)


def test_an_error_of_the_source_itself_ends_the_run(world: World) -> None:
    with pytest.raises(ConfigurationError):
        world.run(path=str(world.root / "none" / "*.jsonl"))
