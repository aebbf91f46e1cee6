"""One log under a writer, a compactor and readers at once, on a real disk and SQLite file: no reader misses or doubles a row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from catalog.clock import SystemClock
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.items.sqlite import SqliteItemTable
from catalog.keys import PipelineKey
from catalog.lake import Mark, TableState
from ingest.wal.disk import LogFolder
from ingest.wal.filesystem import LocalFileSystem
from ingest.wal.live import DiskLiveSource
from ingest.wal.log import Log
from ingest.wal.segment import SegmentDraft

KEY = PipelineKey("t", "w", "threads")
TABLE = ("n", "t")
ENTRIES = 120


@dataclass
class Table:
    """A table in memory: rows and mark move together."""

    ids: list[int] = field(default_factory=list)
    mark: Mark = field(default_factory=lambda: Mark(0, 0))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, ids: list[int], mark: Mark) -> None:
        with self.lock:
            self.ids, self.mark = self.ids + ids, mark

    def state(self, wal_id: str) -> tuple[list[int], TableState]:
        with self.lock:
            ids, mark = self.ids, self.mark
        return ids, TableState(
            identifier=TABLE, table_uuid="u", metadata_location="m", generation=1, schema=pa.schema({"id": pa.int64()}),
            marks={wal_id: mark},
        )


def test_readers_beside_writer_and_compactor(tmp_path: Path) -> None:
    items = SqliteItemTable(tmp_path / "skippr.db", "offsets")
    log = Log.open(LocalFileSystem(), LogFolder.of(tmp_path, KEY).path, KEY, OffsetStore(items, KEY, SystemClock()), SystemClock())
    table, done, errors = Table(), threading.Event(), list[BaseException]()
    acknowledged, counted = [0], [0, 0]

    def write() -> None:
        for n in range(ENTRIES):
            batch = pa.record_batch({"id": pa.array([2 * n, 2 * n + 1], pa.int64())})
            log.append(SegmentDraft([(TABLE, "rows", [batch])], [OffsetUpdate("f", "p", OffsetPayload(n + 1, n + 1, False))]))
            acknowledged[0] = 2 * n + 2
        done.set()

    def compact() -> None:
        while not errors and (not done.is_set() or log.base < ENTRIES):
            headers = log.headers(log.base)[:5]
            for header in headers:
                ids = [value for batch in log.batches(header.index, TABLE) for value in batch.column("id").to_pylist()]
                table.commit(ids, Mark(header.epoch, header.index))
            if headers:
                log.reclaim(headers[-1].index)

    def read() -> None:
        source = DiskLiveSource(tmp_path, items)
        while not done.is_set():
            least = acknowledged[0]
            capture = source.capture([str(KEY)])
            ids, state = table.state(log.wal_id)
            rows = capture.rows(state)
            live = [] if rows is None else pa.table(rows).column("id").to_pylist()
            capture.close()
            assert ids + live == list(range(len(ids) + len(live)))
            assert len(ids) + len(live) >= least
            counted[0] += 1
            counted[1] += bool(live)

    def guarded(act: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                act()
            except BaseException as error:
                errors.append(error)
                done.set()
                raise
        return run

    threads = [threading.Thread(target=guarded(act), daemon=True) for act in (write, compact, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
    assert table.ids == list(range(2 * ENTRIES))
    assert (log.base, log.backlog_bytes) == (ENTRIES, 0)
    assert counted[0] > 0
    log.close()
    items.close()
