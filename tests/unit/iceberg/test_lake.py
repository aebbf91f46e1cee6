"""The lake's promises to ingest: one commit per mark, files that can be committed again, and nothing deleted in doubt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from catalog import failpoint
from catalog.errors import Conflict, DataCorruption, Internal, InvalidRequest, NotFound, OutcomeUnknown, Unavailable
from catalog.iceberg import local_io
from catalog.iceberg.lake import IcebergLake
from catalog.items.memory import MemoryItemTable
from catalog.lake import ZERO_MARK, DataFiles, Mark, StaleFiles, TableLayout, TableState
from tests.helpers_faults import FaultyTable
from tests.helpers_iceberg import PIPELINE, SCHEMA, TABLE, batch, ids, make_lake, make_table, select, warehouse_files


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return make_lake(tmp_path)


def written(lake: IcebergLake, state: TableState, *batches: pa.RecordBatch, schema: pa.Schema = SCHEMA) -> DataFiles:
    files = lake.write(state, schema, batches)
    lake.sync(files)
    return files


def append(lake: IcebergLake, state: TableState, index: int, *batches: pa.RecordBatch, schema: pa.Schema = SCHEMA) -> TableState:
    return lake.commit(state, written(lake, state, *batches, schema=schema), "w1", Mark(1, index), {"skippr.pipeline": PIPELINE})


def test_create_append_load(lake: IcebergLake) -> None:
    with pytest.raises(NotFound, match=r"bronze\.rides"):
        lake.load(TABLE)
    state = make_table(lake)
    assert (state.pipelines, state.marks, state.schema) == ({PIPELINE}, {}, SCHEMA)
    assert state.mark("w1") == ZERO_MARK
    after = append(lake, state, 3, batch(0, 4), batch(4, 3))
    assert after == lake.load(TABLE)
    assert (after.mark("w1"), after.generation, after.table_uuid) == (Mark(1, 3), state.generation + 1, state.table_uuid)
    assert ids(lake) == list(range(7))
    summary = lake.catalog.load_table(TABLE).current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert {k: summary.summary[k] for k in ("skippr.pipeline", "added-records", "total-records", "total-data-files")} == {
        "skippr.pipeline": PIPELINE, "added-records": "7", "total-records": "7", "total-data-files": "1",
    }
    assert lake.list_tables() == [TABLE]


def test_create_again_only_enters_the_pipeline(lake: IcebergLake) -> None:
    made = make_table(lake)
    assert lake.create(TABLE, pa.schema([("other", pa.string())]), TableLayout(), PIPELINE) == made
    state = lake.create(TABLE, SCHEMA, TableLayout(), "default#default#second")
    assert (state.pipelines, state.schema, state.table_uuid) == ({PIPELINE, "default#default#second"}, SCHEMA, made.table_uuid)


def test_a_table_made_anew_starts_at_a_mark(lake: IcebergLake) -> None:
    state = lake.create(TABLE, SCHEMA, TableLayout(), PIPELINE, {"w1": Mark(2, 9)})
    assert state.mark("w1") == Mark(2, 9)
    with pytest.raises(Conflict, match="already holds"):
        append(lake, state, 9, batch(0, 1))


def test_load_is_one_read_while_nothing_changes(tmp_path: Path) -> None:
    items = FaultyTable(MemoryItemTable("catalog"))
    lake = make_lake(tmp_path, items)
    make_table(lake)
    state = lake.load(TABLE)
    items.gets.clear()
    assert lake.load(TABLE) is state
    assert len(items.gets) == 1


def test_files_are_committed_once_and_again_only_on_fresh_state(lake: IcebergLake) -> None:
    state = make_table(lake)
    files = written(lake, state, batch(0, 2))
    lake.commit(state, written(lake, state, batch(2, 2)), "other", Mark(1, 1), {})
    with pytest.raises(Conflict) as lost:
        lake.commit(state, files, "w1", Mark(1, 1), {})
    assert not isinstance(lost.value, StaleFiles)
    assert all(Path(path).exists() for path in files.paths)
    after = lake.commit(lake.load(TABLE), files, "w1", Mark(1, 1), {})
    assert after.marks == {"w1": Mark(1, 1), "other": Mark(1, 1)}
    with pytest.raises(Conflict, match="already holds"):
        lake.commit(after, files, "w1", Mark(1, 1), {})
    assert ids(lake) == [0, 1, 2, 3]
    assert len(warehouse_files(lake, ".avro")) == 4  # two commits; the lost one's manifest and list are gone


def test_files_for_another_schema_have_to_be_written_anew(lake: IcebergLake) -> None:
    state = make_table(lake)
    files = written(lake, state, batch(0, 2))
    with lake.catalog.load_table(TABLE).update_schema() as update:
        update.add_column("extra", LongType())
    with pytest.raises(StaleFiles):
        lake.commit(lake.load(TABLE), files, "w1", Mark(1, 1), {})
    lake.discard(files)
    assert warehouse_files(lake, ".parquet") == set()


@pytest.mark.parametrize("faults", [["lost_after"], ["lost_before"], ["sdk_retry"], ["late"]])
def test_a_lost_answer_is_settled(tmp_path: Path, faults: list[str]) -> None:
    items = FaultyTable(MemoryItemTable("catalog"))
    lake = make_lake(tmp_path, items)
    state = make_table(lake)
    items.script = list(faults)  # type: ignore[arg-type]
    after = append(lake, state, 1, batch(0, 3))
    items.deliver()
    assert (after.mark("w1"), lake.load(TABLE)) == (Mark(1, 1), after)
    assert ids(lake) == [0, 1, 2]


def test_in_doubt_the_files_stay_and_the_late_write_counts_once(tmp_path: Path) -> None:
    items = FaultyTable(MemoryItemTable("catalog"))
    lake = make_lake(tmp_path, items)
    state = make_table(lake)
    files = written(lake, state, batch(0, 3))
    items.script = ["late", "late", "late"]
    with pytest.raises(OutcomeUnknown):
        lake.commit(state, files, "w1", Mark(1, 1), {})
    assert all(Path(path).exists() for path in files.paths)
    assert items.deliver() == [True, False, False]
    with pytest.raises(Conflict):
        lake.commit(state, files, "w1", Mark(1, 1), {})
    assert lake.load(TABLE).mark("w1") == Mark(1, 1)
    assert ids(lake) == [0, 1, 2]


def test_a_dropped_table_is_not_found(lake: IcebergLake) -> None:
    state = make_table(lake)
    files = written(lake, state, batch(0, 1))
    lake.catalog.drop_table(TABLE)
    with pytest.raises(NotFound):
        lake.commit(state, files, "w1", Mark(1, 1), {})
    make_table(lake)
    with pytest.raises(NotFound, match="made anew"):
        lake.commit(state, files, "w1", Mark(1, 1), {})


def test_a_commit_without_rows_moves_only_the_mark(lake: IcebergLake) -> None:
    state = make_table(lake)
    after = lake.commit(state, written(lake, state), "w1", Mark(1, 4), {})
    assert after.mark("w1") == Mark(1, 4)
    assert lake.catalog.load_table(TABLE).snapshots() == []


def test_everything_is_durable_before_the_pointer_moves(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 20: data, manifests, metadata and every folder up to the warehouse."""
    state = make_table(lake, partition_fields=("name",))
    synced: set[str] = set()
    real = local_io._fsync

    def record(path: str) -> None:
        synced.add(path)
        real(path)

    monkeypatch.setattr(local_io, "_fsync", record)
    at_move: list[set[str]] = []
    move = lake.catalog.rows.move
    monkeypatch.setattr(lake.catalog.rows, "move", lambda *args: (at_move.append(set(synced)), move(*args))[1])
    append(lake, state, 1, batch(0, 3))
    table = lake.catalog.load_table(TABLE)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    named = {table.metadata_location, snapshot.manifest_list, *(m.manifest_path for m in manifests)}
    named |= {entry.data_file.file_path for m in manifests for entry in m.fetch_manifest_entry(table.io)}
    assert len(named) == 6
    folders = {os.path.dirname(path) for path in named}
    warehouse = lake.catalog.warehouse
    folders |= {table.location(), os.path.dirname(table.location()), warehouse}
    assert named | folders <= at_move[0]


def test_files_that_failed_to_become_durable_are_never_committed(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_table(lake)
    files = lake.write(state, SCHEMA, [batch(0, 2)])

    def broken(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(local_io, "_fsync", broken)
        with pytest.raises(Unavailable, match="Input/output error"):
            lake.sync(files)
    lake.sync(files)
    with pytest.raises(Internal, match="failed to become durable"):
        lake.commit(state, files, "w1", Mark(1, 1), {})


def test_a_failed_write_leaves_no_file(lake: IcebergLake) -> None:
    state = make_table(lake, order_fields=("id",))

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0, 5)
        raise DataCorruption("the segment is damaged")

    with pytest.raises(DataCorruption):
        lake.write(state, SCHEMA, broken())
    wrong = pa.RecordBatch.from_pylist([{"id": 1.5}], schema=pa.schema([("id", pa.float64())]))
    with pytest.raises(InvalidRequest, match="column id"):
        lake.write(state, wrong.schema, [wrong])
    assert warehouse_files(lake, ".parquet") == set()


def test_failpoints_are_hit_in_the_order_of_the_protocol(lake: IcebergLake) -> None:
    hits: list[str] = []
    failpoint.install(hits.append)
    try:
        append(lake, make_table(lake), 1, batch(0, 1))
    finally:
        failpoint.install(None)
    assert hits == [
        "lake.metadata_written", "lake.table_created", "lake.data_written", "lake.data_synced", "lake.manifests_written",
        "lake.metadata_written", "lake.pointer_moved",
    ]


def test_memory_is_bounded_and_files_are_sorted(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, memory_bytes_max=3 * 64 * 1024)
    state = make_table(lake, order_fields=("id",))
    ready = [batch(first, 2000) for first in range(0, 20_000, 2000)]
    held: list[int] = []
    before = pa.total_allocated_bytes()

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(10):
            for part in reversed(ready):
                held.append(pa.total_allocated_bytes() - before)
                yield part

    files = lake.write(state, SCHEMA, rows())
    assert files.rows == 200_000
    assert max(held) < 1024 * 1024  # the rows are 4 MB
    assert len(files.paths) > 10
    for path in files.paths[:5]:
        column = pq.read_table(path)["id"].to_pylist()
        assert column == sorted(column)
    lake.sync(files)
    lake.commit(state, files, "w1", Mark(1, 1), {})
    assert select(lake, "count(*), count(DISTINCT id), min(id), max(id)") == [(200_000, 20_000, 0, 19_999)]


def test_old_metadata_goes_after_a_hundred_commits(lake: IcebergLake) -> None:
    state = make_table(lake)
    first = Path(state.metadata_location)
    for index in range(1, 104):
        state = lake.commit(state, written(lake, state), "w1", Mark(1, index), {})
    assert not first.exists()
    assert len(warehouse_files(lake, ".metadata.json")) == 101


@pytest.mark.parametrize("suffix", [".metadata.json", ".avro"])
@pytest.mark.parametrize("damage", [None, b"", b"xx", b'{"a":', b"Obj\x01\x02\xff\xff"])
def test_lost_and_damaged_metadata_names_the_file_and_the_remedy(tmp_path: Path, suffix: str, damage: bytes | None) -> None:
    items = MemoryItemTable("catalog")
    lake = make_lake(tmp_path, items)
    append(lake, make_table(lake), 1, batch(0, 4))
    for file in (tmp_path / "lake").rglob(f"*{suffix}"):
        file.unlink() if damage is None else file.write_bytes(damage)
    fresh = make_lake(tmp_path, items)
    with pytest.raises(DataCorruption, match=rf"\{suffix}.*from a backup"):
        append(fresh, fresh.load(TABLE), 2, batch(4, 1))


def test_a_required_column_that_rows_lack_and_a_table_without_columns(lake: IcebergLake) -> None:
    state = append(lake, make_table(lake), 1, batch(0, 4))
    before = warehouse_files(lake, ".parquet")
    with lake.catalog.load_table(TABLE).update_schema(allow_incompatible_changes=True) as change:
        change.add_column("must", LongType(), required=True)
    with pytest.raises(Conflict, match=r"bronze\.rides.*'must'.*make the column optional.*run again"):
        append(lake, lake.load(TABLE), 2, batch(4, 1))
    assert warehouse_files(lake, ".parquet") == before
    with lake.catalog.load_table(TABLE).update_schema() as change:
        change.make_column_optional("must")
    append(lake, lake.load(TABLE), 2, batch(4, 1))
    assert ids(lake) == [0, 1, 2, 3, 4]
    with lake.catalog.load_table(TABLE).update_schema() as change:
        for name in (*state.schema.names, "must"):
            change.delete_column(name)
    with pytest.raises(Conflict, match=r"bronze\.rides has no column left.*add one"):
        append(lake, lake.load(TABLE), 3, batch(5, 1))


def test_evolve_adds_columns_without_rows(lake: IcebergLake) -> None:
    make_table(lake)
    state = lake.evolve(TABLE, pa.schema([("name", pa.string()), ("new", pa.int32())]))
    assert state.schema == pa.schema([*SCHEMA, ("new", pa.int32())])
    assert lake.evolve(TABLE, SCHEMA) == state
    with pytest.raises(InvalidRequest, match=r"bronze\.rides.*column name"):
        lake.evolve(TABLE, pa.schema([("name", pa.int64())]))


def test_dropped_columns_stay_dropped_and_renamed_ones_come_back(lake: IcebergLake) -> None:
    state = append(lake, make_table(lake, pa.schema([*SCHEMA, ("old", pa.int64())])), 1, batch(0, 1))
    with lake.catalog.load_table(TABLE).update_schema() as update:
        update.delete_column("old")
        update.rename_column("name", "label")
    state = lake.load(TABLE)
    assert state.dropped == {"old"}
    wide = pa.schema([*SCHEMA, ("old", pa.int64())])
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "again", "old": 5}], schema=wide)
    state = append(lake, state, 2, rows, schema=wide)
    assert state.schema.names == ["id", "label", "name"]
    assert select(lake, "id, label, name", "true ORDER BY id") == [(0, "n0", None), (1, None, "again")]


def test_a_broken_mark_is_corruption(lake: IcebergLake) -> None:
    make_table(lake)
    with lake.catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({"skippr.wal.w1": "seven"})
    with pytest.raises(DataCorruption, match=r"skippr\.wal\.w1"):
        lake.load(TABLE)
