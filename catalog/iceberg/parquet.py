"""Writing rows as the Parquet data files of one commit: split by partition, sorted, with statistics, in bounded memory.

Data files lie in one folder (`data/`) whatever their partition: the partition is in the manifest, where it is exact, not in a path
that readers would parse; and one folder to make durable per commit is cheaper than one per partition.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from catalog.arrow_schema import cast_batch
from catalog.errors import Unavailable
from catalog.iceberg.partitions import Part, Splitter
from catalog.iceberg.schemas import arrow_schema
from catalog.iceberg.stats import Leaf, file_stats, leaves

__all__ = ["DataWriter"]

_log = logging.getLogger(__name__)

_ROW_GROUP_ROWS: Final = 1024 * 1024
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_FILE_BYTES: Final = 512 * 1024 * 1024
_OPEN_FILES_MAX: Final = 32
_ZSTD_LEVEL: Final = 1


class DataWriter:
    """Writes batches under one schema, spec and order. Used once, by one thread.

    Encoding is most of the work and runs on one core per file, so a table without partitions and order is written as two files side by
    side where there is enough for two. Partitions and order make files of their own already.

    `new_location` gives a fresh location for a file name, `open_sink` opens it for writing (a local path or a file object). At most
    about `memory_bytes_max` bytes of rows are held, in all copies that sorting needs.
    """

    def __init__(
        self, schema: Schema, spec: PartitionSpec, order: SortOrder, *, new_location: Callable[[str], str],
        open_sink: Callable[[str], Any], memory_bytes_max: int,
    ) -> None:
        self._schema = schema
        self._arrow = arrow_schema(schema, field_ids=True)
        self._leaves = leaves(schema)
        self._spec = spec
        self._splitter = Splitter(schema, spec, order)
        self._order_id = order.order_id if self._splitter.sorts else None
        self._new_location = new_location
        self._open_sink = open_sink
        gathers = self._splitter.sorts or bool(spec.fields)
        self._lanes: list[Future[None] | None] = [None] if gathers else [None, None]
        self._pool = None if gathers else ThreadPoolExecutor(len(self._lanes), thread_name_prefix="skippr-parquet")
        self._turn = 0
        # One flush is gathered for the one lane while the other encodes; sorting holds copies of its own.
        self._flush_bytes = max(memory_bytes_max // 3, 1) if gathers else min(max(memory_bytes_max // 2, 1), _ROW_GROUP_BYTES)
        self._files_lock = threading.Lock()
        self._write_id = uuid.uuid4()
        self._open: OrderedDict[tuple[int, tuple[Any, ...]], _File] = OrderedDict()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.files: list[DataFile] = []
        self.locations: list[str] = []
        self.rows = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all batches and close every file. Raises Unavailable (disk full, I/O error), InvalidRequest (a value does not fit)."""
        try:
            for batch in batches:
                self._add(batch)
            self._flush()
            self._finish_lanes()
            while self._open:
                self._close(next(iter(self._open)))
        except OSError as error:
            where = self.locations[-1] if self.locations else "the first data file"
            raise Unavailable(f"cannot write {where}: {error}; free space or repair the disk, then run again") from error
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            for file in self._open.values():
                file.abandon()

    def _add(self, batch: pa.RecordBatch) -> None:
        for part in _slices(batch, self._flush_bytes):
            cast = cast_batch(part, self._arrow)
            self._waiting.append(cast)
            self._waiting_bytes += cast.nbytes
            self.rows += cast.num_rows
            if self._waiting_bytes >= self._flush_bytes:
                self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self._arrow)
        self._waiting, self._waiting_bytes = [], 0
        if not table.num_rows:
            return
        if self._pool is None:
            self._write_parts(table, 0)
            return
        self._lanes[self._turn] = self._pool.submit(self._write_parts, table, self._turn)
        del table
        self._turn = (self._turn + 1) % len(self._lanes)
        if (busy := self._lanes[self._turn]) is not None:  # nothing more is gathered until its lane is free
            busy.result()

    def _finish_lanes(self) -> None:
        for lane in self._lanes:
            if lane is not None:
                lane.result()

    def _write_parts(self, table: pa.Table, lane: int) -> None:
        for part in self._splitter.split(table):
            self._write_part(part, lane)
            if self._splitter.sorts:  # what follows may sort before this
                self._close((lane, part.key))

    def _write_part(self, part: Part, lane: int) -> None:
        """Files of one lane are touched by that lane only; the lock is for what lanes share."""
        nans = self._nans(part.rows)
        key = (lane, part.key)
        with self._files_lock:
            file = self._open.get(key)
            if file is not None and not file.takes(nans):
                self._close(key)
                file = None
            if file is None:
                if self._pool is None and len(self._open) >= _OPEN_FILES_MAX:
                    self._close(next(iter(self._open)))
                location = self._new_location(f"{self._write_id}-{len(self.locations):05d}.parquet")
                self.locations.append(location)
                file = _File(location, self._open_sink(location), self._arrow, self._leaves, part, nans)
                self._open[key] = file
            self._open.move_to_end(key)
        file.write(part.rows, nans)
        if file.size_bytes >= _FILE_BYTES:
            with self._files_lock:
                self._close(key)

    def _nans(self, rows: pa.Table) -> dict[int, int]:
        """NaN per top-level float column that holds one; exact."""
        found = {}
        for leaf in self._leaves:
            if leaf.is_float and leaf.top is not None:
                count = pc.sum(pc.is_nan(rows.column(leaf.top))).as_py()
                if count:
                    found[leaf.field_id] = int(count)
        return found

    def _close(self, key: tuple[int, tuple[Any, ...]]) -> None:
        file = self._open.pop(key)
        footer, size = file.close()
        stats = file_stats(footer, self._leaves, file.nulls, file.nans)
        self.files.append(
            DataFile.from_args(
                content=DataFileContent.DATA, file_path=file.location, file_format=FileFormat.PARQUET, partition=file.part.record,
                file_size_in_bytes=size, sort_order_id=self._order_id, spec_id=self._spec.spec_id, equality_ids=None,
                key_metadata=None, **stats,
            )
        )


class _File:
    """One open Parquet file."""

    def __init__(self, location: str, sink: Any, schema: pa.Schema, columns: list[Leaf], part: Part, nans: Mapping[int, int]) -> None:
        self.location = location
        self.part = part
        self.nulls: dict[int, int] = {}
        self.nans: dict[int, int] = {leaf.field_id: 0 for leaf in columns if leaf.is_float and leaf.top is not None}
        self._leaves = columns
        # An engine that sorts NaN above all numbers would skip a row group by bounds that ignore NaN, so such a column has none.
        without = {leaf.field_id for leaf in columns if leaf.is_float and (leaf.top is None or nans.get(leaf.field_id))}
        self._no_bounds = without
        statistics: bool | list[str] = True
        if without:
            statistics = [leaf.path for leaf in columns if leaf.field_id not in without] or False
        self._sink = sink
        self._writer = pq.ParquetWriter(
            sink, schema, compression="zstd", compression_level=_ZSTD_LEVEL, store_decimal_as_integer=True,
            write_statistics=statistics,
        )

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def takes(self, nans: Mapping[int, int]) -> bool:
        """Whether rows with these NaN may go into this file without making its statistics wrong."""
        return all(field_id in self._no_bounds for field_id in nans)

    def write(self, rows: pa.Table, nans: Mapping[int, int]) -> None:
        per_row = max(rows.nbytes // max(rows.num_rows, 1), 1)
        self._writer.write_table(rows, row_group_size=max(min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES // per_row), 1024))
        for leaf in self._leaves:
            if leaf.top is not None:
                self.nulls[leaf.field_id] = self.nulls.get(leaf.field_id, 0) + rows.column(leaf.top).null_count
        for field_id, count in nans.items():
            self.nans[field_id] += count

    def close(self) -> tuple[Any, int]:
        """Footer and size of the finished file."""
        self._writer.close()
        size = self.size_bytes
        self._sink.close()
        return self._writer.writer.metadata, size

    def abandon(self) -> None:
        """Give the file up after an error; what it holds belongs to nobody."""
        try:
            self._sink.close()
        except OSError as error:
            _log.warning("could not close %s: %s", self.location, error)


def _slices(batch: pa.RecordBatch, bytes_max: int) -> Iterable[pa.RecordBatch]:
    """The batch in slices of at most about `bytes_max` bytes."""
    if batch.nbytes <= bytes_max or batch.num_rows < 2:
        return [batch]
    rows = max(batch.num_rows * bytes_max // batch.nbytes, 1)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def local_sink(path: str) -> Any:
    """A new local file to write to; its folder is made. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return pa.OSFile(path, "wb")
