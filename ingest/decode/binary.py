"""Parquet and Arrow files: whole, typed, read batch by batch.

A file of these formats is a whole: it is resumed by passing over records. Damage is DataCorruption naming the file and the place (row
group or record batch, and the first record not given out). An Arrow stream that ends between two batches without its end mark is taken
as complete, as the format allows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from catalog.errors import ConfigurationError, DataCorruption
from ingest.decode.base import RawUnit
from ingest.decode.container import Source
from ingest.decode.typed import decode_table, row_text
from ingest.settings import DecodeSettings
from ingest.sources.base import Decoded
from ingest.typetree import from_arrow

__all__ = ["arrow_units", "parquet_units"]

_ROWS_MAX: Final = 131_072
_BROKEN: Final = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class TableUnit:
    """Some rows of a file; see `ingest.decode.base.RawUnit`."""

    table: pa.Table
    first_record: int
    keys_max: int
    byte_end: int = -1

    @property
    def records(self) -> int:
        return int(self.table.num_rows)

    @property
    def size_bytes(self) -> int:
        return int(self.table.nbytes)

    def decode(self, schema: pa.Schema) -> Decoded:
        return decode_table(self.table, schema, self.first_record, self.keys_max, self.raw)

    def raw(self, record: int) -> bytes:
        return row_text(self.table, record - self.first_record)


def parquet_units(source: Source, settings: DecodeSettings, uri: str, skip: int) -> Iterator[RawUnit]:
    """Units of a Parquet file: pages are read as they are needed, not whole row groups."""
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source.whole(), pre_buffer=False, buffer_size=1 << 20)
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        schema = file.schema_arrow
    except _BROKEN as error:
        raise _damaged(uri, "Parquet", "the footer", 0, error) from error
    _check_types(schema, uri)
    record = 0
    for number, group in enumerate(groups):
        if record + group.num_rows <= skip:
            record += group.num_rows
            continue
        rows = settings.block_bytes * max(1, group.num_rows) // max(1, group.total_byte_size)
        batches = file.iter_batches(min(_ROWS_MAX, max(256, rows)), row_groups=[number], use_threads=False)
        while True:
            try:
                batch = next(batches, None)
                if batch is not None:
                    batch.validate(full=True)
            except _BROKEN as error:
                raise _damaged(uri, "Parquet", f"row group {number}", record, error) from error
            if batch is None:
                break
            yield from _units(batch, record, skip, settings)
            record += batch.num_rows


def arrow_units(source: Source, settings: DecodeSettings, uri: str, skip: int) -> Iterator[RawUnit]:
    """Units of an Arrow IPC file or stream."""
    batches = _arrow_batches(source, uri)
    record = number = 0
    while True:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
        except _BROKEN as error:
            raise _damaged(uri, "Arrow", f"record batch {number}", record, error) from error
        if batch is None:
            return
        if not number:
            _check_types(batch.schema, uri)
        yield from _units(batch, record, skip, settings)
        record += batch.num_rows
        number += 1


def _arrow_batches(source: Source, uri: str) -> Iterator[Any]:
    import pyarrow.ipc

    try:
        if source.peek().startswith(b"ARROW1"):
            file = pyarrow.ipc.open_file(source.whole())
            return (file.get_batch(i) for i in range(file.num_record_batches))
        return iter(pyarrow.ipc.open_stream(io.BufferedReader(source, 1 << 20)))
    except _BROKEN as error:
        raise _damaged(uri, "Arrow", "the schema or footer", 0, error) from error


def _units(batch: Any, record: int, skip: int, settings: DecodeSettings) -> Iterator[RawUnit]:
    """Slices of about a block each, without the records to pass over."""
    begin = max(0, skip - record)
    per_row = max(1, batch.nbytes // max(1, batch.num_rows))
    step = max(256, settings.block_bytes // per_row)
    for at in range(begin, batch.num_rows, step):
        yield TableUnit(pa.Table.from_batches([batch.slice(at, step)]), record + at, settings.object_keys_max)


def _check_types(schema: pa.Schema, uri: str) -> None:
    try:
        from_arrow(schema)
    except ConfigurationError as error:
        raise ConfigurationError(f"{uri}: {error}") from error


def _damaged(uri: str, kind: str, place: str, record: int, error: BaseException) -> DataCorruption:
    return DataCorruption(
        f"{uri}: the {kind} file is damaged or breaks off in {place}, from record {record} on ({error}); the records before that are "
        "kept; replace the file by a whole copy and run again"
    )
