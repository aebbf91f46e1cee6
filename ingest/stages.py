"""The stages of a run between source and log: decoding on a pool, assembling in record order, writing to the log.

    reader --Block--> decode pool --(in order)--> assembler --Sealed--> log writer --> (published) --> compactor

Order is kept from the reader on: the assembler takes decoded blocks in the order they were read, so positions only move forward. Every
block holds its share of one memory budget from the moment it is read until its segment is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from catalog.errors import DataCorruption, Internal
from ingest.conform import conform
from ingest.decode.jsonl import JsonUnit
from ingest.routing import Part, Routed, Router
from ingest.sources.base import BadRecord, Decoded, Partition, Unit
from ingest.sources.units import SourceUnit
from ingest.tables import Tables, TableView

__all__ = ["Block", "BrokenPartition", "DecodedBlock", "Decoder", "PartRows", "finish_part"]

_NO_COLUMNS: Final = "the record holds no value that has a type, and its table has no column yet"


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """What one table gets of a block, decoded against `view`."""

    part: Part
    view: TableView
    decoded: Decoded


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block by table, and its records that go to none."""

    parts: tuple[DecodedPart, ...]
    bad: tuple[BadRecord, ...]
    records: int


@dataclass(frozen=True, slots=True)
class Block:
    """A unit on its way through the pool. `held_bytes` is what it took from the budget."""

    partition: Partition
    unit: Unit
    result: Future[DecodedBlock]
    held_bytes: int
    read_at: datetime


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of one table as they go into the log, with the version of its schema they belong to."""

    view: TableView
    rows: pa.Table
    bad: tuple[BadRecord, ...]


class Decoder:
    """What the pool does with a unit. Thread safe."""

    def __init__(self, router: Router, tables: Tables) -> None:
        self._router = router
        self._tables = tables

    def __call__(self, unit: Unit) -> DecodedBlock:
        """Raises BrokenPartition where the container is broken; any other error, such as that of a table, is the run's."""
        raw_unit, records = (unit.raw_unit, unit.records) if isinstance(unit, SourceUnit) else (None, unit.end.line - unit.first_record)
        with _container_errors():
            routed: Routed = self._router.route(unit, raw_unit, records)
        views = [self._tables.view(part.identifier) for part in routed.parts]
        with _container_errors():
            parts = [DecodedPart(part, view, part.decode(view.schema)) for part, view in zip(routed.parts, views, strict=True)]
        return DecodedBlock(tuple(parts), routed.bad, routed.records)


class BrokenPartition(Exception):
    """The container a unit came from is broken: its partition fails, the run goes on."""

    def __init__(self, error: DataCorruption) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _container_errors() -> Iterator[None]:
    try:
        yield
    except DataCorruption as error:
        raise BrokenPartition(error) from error


def finish_part(tables: Tables, part: DecodedPart, unit: Unit) -> PartRows:
    """Rows under the newest schema of their table, in record order: called for one block after the other.

    A block that was decoded against an older version and does not fit the newest is decoded again with it, so the outcome does not
    depend on how blocks were spread over threads.
    """
    view = tables.view(part.part.identifier)
    decoded = part.decoded
    grown = tables.grown(view, decoded.rows.schema)
    fitted = conform(decoded.rows, grown.schema)
    if fitted.problems and view is not part.view:
        decoded = part.part.decode(grown.schema)
        grown = tables.grown(grown, decoded.rows.schema)
        fitted = conform(decoded.rows, grown.schema)
    numbers = _Numbers(decoded)
    bad = list(decoded.bad)
    if fitted.problems:
        bad += [_bad(unit, numbers.at(p.row), p.code, p.error) for p in fitted.problems]
        numbers = numbers.kept(fitted.kept)
    rows, invalid = grown.shape.rows(fitted.table)
    if invalid is not None:
        wrong = np.asarray(invalid)
        field = ", ".join(grown.shape.times)
        bad += [
            _bad(unit, numbers.at(int(row)), "time.invalid", f"no time in {field} (TRANSFORM_BATCH_TIME_FIELDS)")
            for row in np.flatnonzero(wrong)
        ]
        rows = rows.filter(pa.array(~wrong))
    if rows.num_rows and not rows.num_columns:  # nothing that is written could tell how many they were
        bad += [_bad(unit, numbers.at(row), "object.no_columns", _NO_COLUMNS) for row in range(rows.num_rows)]
        rows = rows.slice(0, 0)
    if rows.num_rows + len(bad) != part.part.records:
        raise Internal(f"I8: {part.part.records} records became {rows.num_rows} rows and {len(bad)} dead letters")
    return PartRows(grown, _under(rows, grown.log_schema), tuple(bad))


def _under(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under the log's schema: without the marks that only this process needs."""
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    return pa.Table.from_arrays(rows.columns, schema=schema)


def _bad(unit: Unit, record: int, code: str, error: str) -> BadRecord:
    offset = -1
    if isinstance(unit, SourceUnit) and isinstance(unit.raw_unit, JsonUnit):
        lines = unit.raw_unit.lines
        offset = lines.base + int(lines.starts[record - lines.first_record])
    return BadRecord(record, code, error, unit.raw(record), offset)


class _Numbers:
    """Record number of each row."""

    def __init__(self, decoded: Decoded) -> None:
        self._first = decoded.first_record
        self._numbers: Any = None if decoded.row_records is None else np.asarray(decoded.row_records)

    def at(self, row: int) -> int:
        return self._first + row if self._numbers is None else int(self._numbers[row])

    def kept(self, rows: Any) -> _Numbers:
        """For the rows that are left."""
        if rows is not None:
            self._numbers = rows + self._first if self._numbers is None else self._numbers[rows]
        return self
