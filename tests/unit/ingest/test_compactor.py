"""Each published row once, whatever is lost, overtaken or dropped on the way (rules 10 to 13)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import LongType

from catalog import failpoint
from catalog.clock import ManualClock
from catalog.errors import Conflict, DataCorruption, OutcomeUnknown, Unavailable, exit_code
from catalog.iceberg.lake import IcebergLake
from catalog.items.memory import MemoryItemTable
from catalog.items.table import ItemTable
from catalog.lake import ZERO_MARK, DataFiles, Identifier, Mark, TableState
from ingest.compaction import check_mark, plan, reclaimable, windows
from ingest.compactor import Compactor
from ingest.settings import CompactionSettings
from tests.helpers_faults import FaultyTable
from tests.helpers_iceberg import (
    PIPELINE,
    SCHEMA,
    TABLE,
    Group,
    Header,
    ListLog,
    batch,
    ids,
    make_lake,
    make_table,
    select,
    warehouse_files,
)

OTHER: Identifier = ("bronze", "other")


def header(index: int, *tables: Identifier, epoch: int = 1, size_bytes: int = 10) -> Header:
    return Header(index, epoch, tuple(Group(table, 1, size_bytes) for table in tables))


class Setting:
    """A log, a lake and a compactor between them."""

    def __init__(self, folder: Path, items: ItemTable | None = None, **limits: int) -> None:
        self.items = FaultyTable(items or MemoryItemTable("catalog"))
        self.lake = make_lake(folder, self.items)
        self.log = ListLog()
        self.clock = ManualClock()
        self.settings = CompactionSettings(**limits)  # type: ignore[arg-type]
        make_table(self.lake)
        self.compactor = self.new_compactor()
        self.rows = 0

    def new_compactor(self, lake: IcebergLake | None = None) -> Compactor:
        return Compactor(self.log, lake or self.lake, self.settings, self.clock, pipeline=PIPELINE, jitter=random.Random(1))

    def publish(self, count: int = 2, table: Identifier = TABLE, *, epoch: int = 1, size_bytes: int | None = None) -> int:
        index = self.log.append({table: [batch(self.rows, count)]}, epoch=epoch, size_bytes=size_bytes)
        self.rows += count
        return index

    def check(self) -> None:
        """Every row is in the table once and nothing waits."""
        assert ids(self.lake) == list(range(self.rows))
        assert self.log.base == self.log.published_index()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


# -- planning


def test_plan_takes_what_feeds_the_table_above_its_mark() -> None:
    headers = [header(1, TABLE), header(2, OTHER), header(3, TABLE, OTHER, epoch=2), header(4, OTHER, epoch=2), header(5, TABLE, epoch=3)]
    (take,) = plan(headers, TABLE, Mark(1, 1), 100)
    assert (take.after, take.upto, take.indexes, take.rows, take.length_bytes) == (Mark(1, 1), Mark(3, 5), (3, 5), 2, 20)
    assert plan(headers, TABLE, Mark(3, 5), 100) == []
    assert [take.indexes for take in plan(headers, OTHER, ZERO_MARK, 10)] == [(2,), (3,), (4,)]


def test_an_entry_larger_than_a_commit_is_a_commit_of_its_own() -> None:
    headers = [header(1, TABLE, size_bytes=500), header(2, TABLE), header(3, TABLE)]
    assert [take.indexes for take in plan(headers, TABLE, ZERO_MARK, 20)] == [(1,), (2, 3)]
    assert [[h.index for h in window] for window in windows(headers, 20)] == [[1], [2, 3]]


_LOGS = st.lists(st.tuples(st.lists(st.sampled_from([TABLE, OTHER]), max_size=3), st.integers(1, 40)), max_size=12)


@settings(max_examples=100, deadline=None)
@given(_LOGS, st.integers(1, 60), st.integers(0, 12))
def test_takes_chain_and_cover_every_feeding_entry_once(log: list[tuple[list[Identifier], int]], bytes_max: int, start: int) -> None:
    headers = [header(i, *tables, size_bytes=size) for i, (tables, size) in enumerate(log, 1)]
    takes = plan(headers, TABLE, Mark(1, start), bytes_max)
    wanted = [h.index for h in headers if h.index > start and any(g.identifier == TABLE for g in h.groups)]
    assert [index for take in takes for index in take.indexes] == wanted
    mark = Mark(1, start)
    for take in takes:
        assert take.after == mark
        assert take.upto.index == take.indexes[-1]
        assert len(take.indexes) == 1 or take.length_bytes <= bytes_max
        mark = take.upto
    assert [h for window in windows(headers, bytes_max) for h in window] == headers


def test_an_entry_is_reclaimed_when_every_table_it_feeds_is_past_it() -> None:
    headers = [header(1, TABLE), header(2, OTHER), header(3), header(4, TABLE, OTHER), header(5, OTHER)]
    assert reclaimable(headers, {TABLE: Mark(1, 1), OTHER: Mark(1, 5)}, 0) == 3
    assert reclaimable(headers, {TABLE: Mark(1, 4), OTHER: Mark(1, 5)}, 0) == 5
    assert reclaimable(headers, {TABLE: ZERO_MARK, OTHER: Mark(1, 5)}, 0) == 0


@pytest.mark.parametrize(
    ("mark", "fed", "message"),
    [
        (Mark(1, 3), 4, "entries up to 4 that fed it are reclaimed"),
        (Mark(1, 9), 0, "the log ends at 8"),
        (Mark(2, 6), 0, "has epoch 1"),
    ],
)
def test_a_mark_that_cannot_belong_to_the_log_is_corruption(mark: Mark, fed: int, message: str) -> None:
    with pytest.raises(DataCorruption, match=message):
        check_mark(TABLE, "w1", mark, [header(6, TABLE)], 8, fed)
    check_mark(TABLE, "w1", Mark(1, 6), [header(6, TABLE)], 8, 6)
    check_mark(OTHER, "w1", ZERO_MARK, [header(6, TABLE)], 8, 0)


# -- runs


def test_rows_of_all_tables_land_once_and_the_log_is_reclaimed(setting: Setting) -> None:
    make_table(setting.lake, identifier=OTHER)
    setting.publish(3)
    setting.log.append({OTHER: [batch(100, 2)], TABLE: [batch(3, 1), batch(4, 2)]})
    setting.rows += 3
    setting.publish(1, epoch=2)
    report = setting.compactor.run_once(force=True)
    assert (report.tables, report.rows, report.files, report.commits, report.reclaimed_upto) == ((TABLE, OTHER), 9, 2, 2, 3)
    setting.check()
    assert ids(setting.lake, OTHER) == [100, 101]
    assert (setting.lake.load(TABLE).mark("w1"), setting.lake.load(OTHER).mark("w1")) == (Mark(2, 3), Mark(1, 2))
    assert setting.compactor.run_once(force=True).commits == 0
    snapshot = setting.lake.catalog.load_table(TABLE).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["skippr.wal-segment-ids"] == "w1:1-3"


def test_a_backlog_is_taken_in_bounded_commits_and_reclaimed_on_the_way(tmp_path: Path) -> None:
    setting = Setting(tmp_path, commit_bytes=100)
    for _ in range(10):
        setting.publish(size_bytes=45)
    report = setting.compactor.run_once(force=True)
    setting.check()
    assert report.commits == 5  # windows of 8 and 2 entries, two entries a commit
    assert setting.log.reclaims == [8, 10]


def test_due_by_bytes_or_by_age(tmp_path: Path) -> None:
    setting = Setting(tmp_path, commit_bytes=100, commit_seconds=60)
    compactor, clock = setting.compactor, setting.clock
    assert not compactor.due(clock.monotonic() + 1e6)
    setting.publish(size_bytes=60)
    assert not compactor.due(clock.monotonic())
    assert compactor.pending_bytes() == 60
    assert compactor.run_once().commits == 0
    clock.advance(59)
    assert not compactor.due(clock.monotonic())
    clock.advance(1)
    assert compactor.due(clock.monotonic())
    assert compactor.run_once().commits == 1
    assert compactor.pending_bytes() == 0
    setting.publish(size_bytes=60)
    setting.publish(size_bytes=40)
    assert compactor.due(clock.monotonic())


def test_schemas_of_entries_are_united_and_the_table_grows(setting: Setting) -> None:
    first = pa.schema([("id", pa.int32()), ("n", pa.null()), ("s", pa.struct([("a", pa.int32())]))])
    second = pa.schema([("s", pa.struct([("b", pa.string()), ("a", pa.int64())])), ("id", pa.int64()), ("n", pa.float64())])
    setting.log.append({TABLE: [
        pa.RecordBatch.from_pylist([{"id": 0, "s": {"a": 1}}], schema=first),
        pa.RecordBatch.from_pylist([{"id": 1, "n": 1.5, "s": {"a": 2**40, "b": "x"}}], schema=second),
    ]})
    setting.compactor.run_once(force=True)
    assert select(setting.lake, "id, name, n, s", "true ORDER BY id") == [
        (0, None, None, {"a": 1, "b": None}), (1, None, 1.5, {"a": 2**40, "b": "x"}),
    ]


@pytest.mark.parametrize("faults", [["late"] * 3, ["down"] * 3, ["lost_before"] * 3, ["late"] * 6, ["lost_after"]])
def test_lost_answers_lose_and_double_nothing(setting: Setting, faults: list[str]) -> None:
    setting.publish(3)
    setting.items.script = list(faults)  # type: ignore[arg-type]
    setting.compactor.run_once(force=True)
    setting.items.deliver()
    setting.publish(2)
    setting.compactor.run_once(force=True)
    setting.check()
    assert len(warehouse_files(setting.lake, ".parquet")) == 2


class Between:
    """A lake that lets something happen just before a commit is sent."""

    def __init__(self, lake: IcebergLake, *events: object) -> None:
        self._lake = lake
        self._events = list(events)
        self.written: list[DataFiles] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._lake, name)

    def write(self, state: TableState, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> DataFiles:
        self.written.append(self._lake.write(state, schema, batches))
        return self.written[-1]

    def commit(self, *arguments: object) -> TableState:
        if self._events:
            self._events.pop(0)()  # type: ignore[operator]
        return self._lake.commit(*arguments)  # type: ignore[arg-type]


def test_other_writers_cost_a_commit_but_no_rewriting(setting: Setting) -> None:
    setting.publish(3)

    def others() -> None:
        setting.lake.catalog.load_table(TABLE).append(pa.table({"id": [1000], "name": ["x"]}, schema=SCHEMA))

    lake = Between(setting.lake, others, others)
    setting.new_compactor(lake).run_once(force=True)  # type: ignore[arg-type]
    assert len(lake.written) == 1
    assert ids(setting.lake) == [0, 1, 2, 1000, 1000]


def test_a_schema_change_by_others_makes_the_files_anew(setting: Setting) -> None:
    setting.publish(3)

    def others() -> None:
        with setting.lake.catalog.load_table(TABLE).update_schema() as update:
            update.add_column("extra", LongType())

    lake = Between(setting.lake, others)
    setting.new_compactor(lake).run_once(force=True)  # type: ignore[arg-type]
    assert len(lake.written) == 2
    setting.check()
    assert len(warehouse_files(setting.lake, ".parquet")) == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_a_second_compactor_of_the_log_takes_its_share(setting: Setting, ahead: bool) -> None:
    """Another process compacts the same log at the same moment; it got as far, or the log grew and it got further."""
    setting.publish(3)
    base = setting.log.base

    def second() -> None:
        if ahead:
            setting.publish(2)
        setting.new_compactor().run_once(force=True)
        setting.log.base = base  # the first one has not noticed yet

    setting.new_compactor(Between(setting.lake, second)).run_once(force=True)  # type: ignore[arg-type]
    assert ids(setting.lake) == list(range(setting.rows))
    assert len(warehouse_files(setting.lake, ".parquet")) == 1


def test_bounded_attempts(tmp_path: Path) -> None:
    setting = Setting(tmp_path, attempts_max=3)
    setting.publish(3)

    def others() -> None:
        setting.lake.catalog.load_table(TABLE).append(pa.table({"id": [1000], "name": ["x"]}, schema=SCHEMA))

    with pytest.raises(Conflict, match=r"3 attempts.*moved on") as error:
        setting.new_compactor(Between(setting.lake, *[others] * 9)).run_once(force=True)  # type: ignore[arg-type]
    assert exit_code(error.value) == 5
    assert setting.clock.monotonic() > 0
    setting.compactor.run_once(force=True)
    assert ids(setting.lake) == [0, 1, 2, 1000, 1000, 1000]


def test_a_dropped_table_stops_with_the_remedy(setting: Setting) -> None:
    setting.publish(3)
    setting.lake.catalog.drop_table(TABLE)
    with pytest.raises(Conflict, match=r"skipprd tables recreate bronze\.rides") as error:
        setting.compactor.run_once(force=True)
    assert exit_code(error.value) == 5
    assert setting.log.base == 0


def test_a_table_restored_from_a_backup_is_corruption(setting: Setting) -> None:
    setting.publish(3)
    setting.compactor.run_once(force=True)
    setting.publish(1)
    with setting.lake.catalog.load_table(TABLE).transaction() as transaction:
        transaction.remove_properties("skippr.wal.w1")
    with pytest.raises(DataCorruption, match="backup"):
        setting.compactor.run_once(force=True)


def test_fewer_rows_than_the_header_says_are_not_committed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.publish(3)
    monkeypatch.setattr(setting.log, "batches", lambda index, identifier: iter([batch(0, 2)]))
    with pytest.raises(DataCorruption, match="gave 2 rows"):
        setting.compactor.run_once(force=True)
    assert ids(setting.lake) == []
    assert warehouse_files(setting.lake, ".parquet") == set()


class Crash(BaseException):
    """The process dies here."""


STEPS = [
    "lake.data_written", "lake.data_synced", "compactor.before_commit", "lake.manifests_written", "lake.metadata_written",
    "lake.pointer_moved", "compactor.committed", "compactor.reclaimed",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_at_any_step_and_a_restart(tmp_path: Path, step: str, nth: int) -> None:
    setting = Setting(tmp_path, commit_bytes=100)
    for _ in range(9):
        setting.publish(2, size_bytes=60)
    hits = 0

    def crash(name: str) -> None:
        nonlocal hits
        if name == step:
            hits += 1
            if hits == nth:
                raise Crash(name)

    failpoint.install(crash)
    try:
        with pytest.raises(Crash):
            setting.compactor.run_once(force=True)
    finally:
        failpoint.install(None)
    setting.new_compactor(make_lake(tmp_path, setting.items)).run_once(force=True)
    setting.check()


@pytest.mark.parametrize("error", [Unavailable("disk full"), OutcomeUnknown("no answer")])
def test_after_an_error_the_next_run_goes_on(setting: Setting, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.publish(3)
    with monkeypatch.context() as patch:
        patch.setattr(setting.lake, "sync", lambda files: (_ for _ in ()).throw(error))
        with pytest.raises(type(error)):
            setting.compactor.run_once(force=True)
    assert warehouse_files(setting.lake, ".parquet") == set()
    assert setting.compactor.pending_bytes() > 0
    setting.compactor.run_once(force=True)
    setting.check()
