"""Live rows: what is published in logs and not yet in tables, for readers that may be other processes. No lock is taken.

A capture of a log (rule 14): read its row (base, published), open every entry in (base, published]. The writer moves the base in that row
before it removes a file, so an entry that is missing means: start over. What was opened stays readable whatever is reclaimed. The
caller then reads table pointers, and asks the capture for the rows above each table's mark. A mark below an entry that fed the table
and is reclaimed means that the pointer is older than the capture: StaleCapture.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog.arrow_schema import cast_batch, union_all
from catalog.clock import Clock, SystemClock
from catalog.control.offsets import LogRow
from catalog.errors import DataCorruption, Unavailable
from catalog.items.table import ItemTable
from catalog.keys import LOG_PREFIX, PipelineKey, log_sk
from catalog.lake import Identifier, StaleCapture, TableState, table_label
from ingest.wal.disk import Control, LogFolder, read_control
from ingest.wal.filesystem import FileSystem, LocalFileSystem, disk_errors
from ingest.wal.segment import GroupMeta, SegmentReader

__all__ = ["DiskLiveCapture", "DiskLiveRows", "DiskLiveSource"]

_ATTEMPTS_MAX: Final = 20
_PAUSE_S: Final = 0.005
_READERS_MAX: Final = 4096
"""Open entries of one log kept between captures: address space and page cache, no memory of ours."""


@dataclass(frozen=True, slots=True)
class _CapturedLog:
    wal_id: str
    base: int
    published: int
    fed: dict[Identifier, int]
    entries: tuple[SegmentReader, ...]

    def above(self, state: TableState) -> list[SegmentReader]:
        """The entries above the table's mark that feed it. Raises StaleCapture, DataCorruption."""
        mark = state.mark(self.wal_id)
        fed = self.fed.get(state.identifier, 0)
        if mark.index < fed:
            raise StaleCapture(
                f"{table_label(state.identifier)} holds log {self.wal_id} up to entry {mark.index}, but entry {fed}, which fed it, is "
                "reclaimed: the table was read before the log"
            )
        for entry in self.entries:
            header = entry.header
            if header.index == mark.index and header.epoch != mark.epoch:
                raise DataCorruption(
                    f"{table_label(state.identifier)} has mark {mark} for log {self.wal_id}, whose entry {header.index} is of epoch "
                    f"{header.epoch}: table and log do not belong together; was one of them restored from a backup?"
                )
        return [entry for entry in self.entries if entry.header.index > mark.index and entry.header.feeds(state.identifier)]


class DiskLiveRows:
    """Rows of one table in pinned entries, in log order. Opened any number of times; an entry is verified before its first scan."""

    def __init__(self, schema: pa.Schema, parts: Sequence[tuple[SegmentReader, GroupMeta]]) -> None:
        self._schema = schema
        self._parts = tuple(parts)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def num_rows(self) -> int:
        return sum(group.rows for _, group in self._parts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch, each with exactly `schema`. Raises DataCorruption."""
        for reader, group in self._parts:
            reader.verify()
            for batch in reader.group_batches(group):
                yield cast_batch(batch, self._schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self.batches()).__arrow_c_stream__(requested_schema)


class DiskLiveCapture:
    """Pinned entries of several logs at one moment. Thread safe; everything stays readable until `close` and for rows handed out."""

    def __init__(self, logs: Sequence[_CapturedLog]) -> None:
        self._logs = tuple(logs)
        self._version = ";".join(f"{log.wal_id}:{log.base}:{log.published}" for log in logs)

    @property
    def version(self) -> str:
        """Equal versions of captures of the same logs hold the same rows."""
        return self._version

    def rows(self, state: TableState) -> DiskLiveRows | None:
        """Rows of the table above its marks, None where there are none.

        Schema: the union of the groups' schemas and the table's, columns of the table first, without `state.dropped`. Raises
        StaleCapture (start over), DataCorruption, InvalidRequest (types that have nothing in common).
        """
        parts = [
            (reader, group) for log in self._logs for reader in log.above(state) for group in reader.groups(state.identifier)
        ]
        if not parts:
            return None
        seen: dict[str, pa.Schema] = {}
        for reader, group in parts:
            if group.schema_fingerprint not in seen:
                seen[group.schema_fingerprint] = reader.schema(group)
        schema = union_all([state.schema, *seen.values()])
        kept = [field for field in schema if field.name not in state.dropped]
        return DiskLiveRows(pa.schema(kept), parts)

    def close(self) -> None:
        """Let the entries go; idempotent."""
        self._logs = ()


class DiskLiveSource:
    """Live rows of the logs under one DATA_DIR, whoever writes them. Thread safe.

    `items` is the offsets table of the embedded store. A log that did not change since the last capture costs one query and one
    small file.
    """

    def __init__(
        self, data_dir: Path, items: ItemTable, *, filesystem: FileSystem | None = None, clock: Clock | None = None,
    ) -> None:
        self._data_dir, self._items = data_dir, items
        self._filesystem: FileSystem = filesystem or LocalFileSystem()
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._readers: dict[str, dict[int, SegmentReader]] = {}

    def capture(self, pipelines: Collection[str]) -> DiskLiveCapture:
        """Pin the published, unreclaimed entries of the pipelines (`str(PipelineKey)`). One without a log counts as empty.

        Raises Unavailable where a log cannot be read, DataCorruption where an entry is damaged.
        """
        logs = [log for name in sorted(set(pipelines)) if (log := self._capture_log(PipelineKey.parse(name))) is not None]
        return DiskLiveCapture(logs)

    def _capture_log(self, key: PipelineKey) -> _CapturedLog | None:
        folder = LogFolder.of(self._data_dir, key)
        missing = ""
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._clock.sleep(_PAUSE_S * attempt)
            control = self._control(folder, key)
            if control is None:
                return None
            item = self._items.get(str(key), log_sk(control.wal_id))
            if item is None:
                return None
            row = LogRow.parse(item)
            try:
                entries = self._entries(folder, row)
            except FileNotFoundError as error:
                missing = str(error.filename or error)
                continue
            # The writer writes the control file before the row: read after the row it knows every table that an entry up to the row's
            # base fed.
            after = self._control(folder, key)
            if after is not None and after.wal_id == row.wal_id:
                return _CapturedLog(row.wal_id, row.base, row.published, dict(after.fed), entries)
        raise Unavailable(
            f"the log of {key} cannot be read: {missing or folder.path} is missing although the offset store names it. If its folder was "
            "restored or replaced, start the pipeline once: it says what is wrong"
        )

    def _control(self, folder: LogFolder, key: PipelineKey) -> Control | None:
        """The log that lives in the pipeline's folder. Rows of other logs are history: a writer refuses to start beside them, except
        to read its source again from the start."""
        control = read_control(self._filesystem, folder)
        if control is None:
            for item in self._items.query(str(key), LOG_PREFIX):
                row = LogRow.parse(item)
                if row.published > row.base:
                    raise Unavailable(
                        f"{folder.path} holds no log, but the offset store says that log {row.wal_id} of {key} has rows there that no "
                        "table holds yet: is DATA_DIR the one that the pipeline writes to?"
                    )
            return None
        return control

    def _entries(self, folder: LogFolder, row: LogRow) -> tuple[SegmentReader, ...]:
        """Every entry in (base, published], open. Those at or below the base are let go: a map keeps a removed file's space."""
        with self._lock:
            known = self._readers.get(row.wal_id, {})
        entries = {index: known.get(index) or self._open(folder, row, index) for index in range(row.base + 1, row.published + 1)}
        with self._lock:
            self._readers[row.wal_id] = dict(list(entries.items())[-_READERS_MAX:])
        return tuple(entries.values())

    def _open(self, folder: LogFolder, row: LogRow, index: int) -> SegmentReader:
        path = folder.segment(index)
        with disk_errors("reading", path, passing=FileNotFoundError):
            data = self._filesystem.map(path)
        reader = SegmentReader(data, str(path))
        header = reader.header
        if (header.wal_id, header.index) != (row.wal_id, index):
            raise DataCorruption(f"{path} is entry {header.index} of log {header.wal_id}; entry {index} of log {row.wal_id} belongs there")
        return reader
