"""Live rows: one capture is one moment, whatever the writer publishes, compacts or reclaims beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.clock import ManualClock
from catalog.control.offsets import OffsetStore
from catalog.errors import DataCorruption, Unavailable
from catalog.items.memory import MemoryItemTable
from catalog.lake import Mark, StaleCapture, TableState
from ingest.wal.disk import LogFolder
from ingest.wal.filesystem import LocalFileSystem
from ingest.wal.live import DiskLiveSource
from ingest.wal.log import Log
from ingest.wal.segment import SegmentDraft
from tests.unit.wal.samples import DEAD, KEY, TABLE, draft, numbers

NAME = str(KEY)
SCHEMA = pa.schema({"id": pa.int64()})


class World:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir, self.items = data_dir, MemoryItemTable()
        self.folder = LogFolder.of(data_dir, KEY)
        self.source = DiskLiveSource(data_dir, self.items, clock=ManualClock())
        self.offsets = OffsetStore(self.items, KEY, ManualClock())
        self.log = self.open()

    def open(self) -> Log:
        return Log.open(LocalFileSystem(), self.folder.path, KEY, self.offsets, ManualClock())

    def state(self, index: int, epoch: int = 1, **changes: object) -> TableState:
        state = TableState(
            identifier=TABLE, table_uuid="u", metadata_location="m", generation=1, schema=SCHEMA,
            marks={self.log.wal_id: Mark(epoch, index)} if index else {},
        )
        return replace(state, **changes)  # type: ignore[arg-type]

    def ids(self, state: TableState) -> list[int]:
        capture = self.source.capture([NAME])
        rows = capture.rows(state)
        found = [] if rows is None else pa.table(rows).column("id").to_pylist()
        assert (0 if rows is None else rows.num_rows) == len(found)
        capture.close()
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.log.close()


def test_rows_above_the_mark_and_no_others(world: World) -> None:
    assert world.ids(world.state(0)) == []
    for n in range(3):
        world.log.append(draft(n, 1))
    assert world.ids(world.state(0)) == [0, 1, 2]
    assert world.ids(world.state(2)) == [2]
    assert world.ids(world.state(3)) == []
    assert world.ids(world.state(9)) == []


def test_a_capture_is_one_moment_and_outlives_reclaim(world: World) -> None:
    world.log.append(draft(0, 2))
    world.log.append(draft(2, 2))
    capture = world.source.capture([NAME])
    world.log.append(draft(4, 2))
    world.log.reclaim(2)
    rows = capture.rows(world.state(1))
    assert rows is not None
    for _ in range(2):  # the stream can be opened again
        assert pa.table(rows).column("id").to_pylist() == [2, 3]
    capture.close()
    capture.close()
    assert world.ids(world.state(2)) == [4, 5]


def test_a_pointer_older_than_the_capture_is_stale_where_a_reclaimed_entry_fed_the_table(world: World) -> None:
    world.log.append(draft(0, 2))
    world.log.append(SegmentDraft([(DEAD, "dead_letter", [numbers(0, 1)])], draft(2, 2).offsets))
    world.log.append(draft(4, 2))
    world.log.reclaim(2)
    with pytest.raises(StaleCapture, match=r"bronze\.rides holds log .* up to entry 0, but entry 1, which fed it, is reclaimed"):
        world.ids(world.state(0))
    assert world.ids(world.state(1)) == [4, 5]


def test_a_mark_of_another_time_is_corruption(world: World) -> None:
    world.log.append(draft(0, 2))
    world.log.append(draft(2, 2))
    with pytest.raises(DataCorruption, match=r"has mark 7:1 for log .* whose entry 1 is of epoch 1"):
        world.ids(world.state(1, epoch=7))


def test_version_changes_when_rows_could(world: World) -> None:
    versions = [world.source.capture([NAME]).version]
    world.log.append(draft(0, 2))
    versions.append(world.source.capture([NAME]).version)
    assert world.source.capture([NAME]).version == versions[-1]
    world.log.append(draft(2, 2))
    versions.append(world.source.capture([NAME, NAME]).version)
    world.log.reclaim(1)
    versions.append(world.source.capture([NAME]).version)
    assert len(set(versions)) == 4


def test_the_schema_is_the_union_without_what_was_dropped(world: World) -> None:
    wide = pa.record_batch({
        "id": pa.array([1], pa.int32()), "name": pa.array(["x"]), "gone": pa.array([1]), "later": pa.nulls(1),
        "kind": pa.array(["k"]).dictionary_encode(),
    })
    world.log.append(draft(0, 1))
    world.log.append(SegmentDraft([(TABLE, "rows", [wide])], draft(1, 1).offsets))
    state = world.state(0, schema=pa.schema({"old": pa.string(), "id": pa.int32()}), dropped=frozenset({"gone"}))
    rows = world.source.capture([NAME]).rows(state)
    assert rows is not None
    assert rows.schema == pa.schema({"old": pa.string(), "id": pa.int64(), "name": pa.string(), "kind": pa.string()})
    assert pa.table(rows).to_pylist() == [
        {"old": None, "id": 0, "name": None, "kind": None}, {"old": None, "id": 1, "name": "x", "kind": "k"},
    ]


def test_reclaim_between_the_row_and_the_files_starts_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log.append(draft(0, 2))
    world.log.append(draft(2, 2))
    real = world.items.get
    reads = []

    def get(pk: str, sk: str) -> object:
        item = real(pk, sk)
        if sk.startswith("log#"):
            reads.append(sk)
            if len(reads) == 1:
                monkeypatch.undo()
                world.log.reclaim(1)
        return item

    monkeypatch.setattr(world.items, "get", get)
    assert world.ids(world.state(1)) == [2, 3]
    assert len(reads) == 1


def test_a_file_that_stays_missing_is_named(world: World) -> None:
    world.log.append(draft(0, 2))
    world.folder.segment(1).unlink()
    with pytest.raises(Unavailable, match=f"{world.folder.segment(1)} is missing although the offset store names it"):
        world.source.capture([NAME])


def test_another_data_dir_is_not_an_empty_log(world: World, tmp_path: Path) -> None:
    world.log.append(draft(0, 2))
    with pytest.raises(Unavailable, match="is DATA_DIR the one that the pipeline writes to"):
        DiskLiveSource(tmp_path / "elsewhere", world.items).capture([NAME])
    world.log.reclaim(1)
    assert DiskLiveSource(tmp_path / "elsewhere", world.items).capture([NAME]).rows(world.state(0)) is None


def test_a_damaged_entry_fails_the_scan_and_not_the_capture(world: World) -> None:
    world.log.append(draft(0, 2))
    path = world.folder.segment(1)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    rows = world.source.capture([NAME]).rows(world.state(0))
    assert rows is not None
    with pytest.raises(Exception, match=f"{path} is damaged"):
        pa.table(rows)


def test_entries_of_a_reclaimed_log_are_let_go(world: World) -> None:
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum(str(world.folder.segments) in line for line in maps)

    if not os.path.exists("/proc/self/maps"):
        pytest.skip("needs /proc")
    for n in range(3):
        world.log.append(draft(n, 1))
    world.source.capture([NAME]).close()
    assert mapped() == 3
    world.log.reclaim(3)
    world.source.capture([NAME]).close()
    assert mapped() == 0


def test_a_pipeline_that_never_ran_is_empty(world: World) -> None:
    capture = world.source.capture(["acme#dev#other"])
    assert capture.rows(world.state(0)) is None
    assert capture.version == ""
