"""What the ingest side needs of the lake, free of any Iceberg library.

`catalog.iceberg.lake.IcebergLake` is the real thing; the simulator has its own over a simulated disk. The steps are separate
verbs because the order between them is protocol (rule 20): data files are made durable *before* the commit that names them, and
the table's high-water mark moves in the same commit that appends the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import pyarrow as pa

from catalog.errors import Conflict, DataCorruption

__all__ = [
    "MARK_PREFIX", "PIPELINES_PROPERTY", "ZERO_MARK", "DataFiles", "Identifier", "Lake", "Mark",
    "StaleCapture", "StaleFiles", "TableLayout", "TableState", "table_label",
]

Identifier = tuple[str, ...]
"""Namespace levels followed by the table's name; at least two elements."""

MARK_PREFIX: Final = "skippr.wal."
PIPELINES_PROPERTY: Final = "skippr.pipelines"


def table_label(identifier: Identifier) -> str:
    """The identifier as people write it: levels joined by dots."""
    return ".".join(identifier)


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A table's high-water mark for one log: the highest (epoch, commit index) whose rows the table holds."""

    epoch: int
    index: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.index}"

    @staticmethod
    def parse(text: str, where: str) -> Mark:
        """Inverse of `str`. Raises DataCorruption naming `where`."""
        epoch, colon, index = text.partition(":")
        if not (colon and epoch.isascii() and epoch.isdigit() and index.isascii() and index.isdigit()):
            raise DataCorruption(f"{where}: {text!r} is not a high-water mark of the form epoch:index")
        return Mark(int(epoch), int(index))


ZERO_MARK: Final = Mark(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """How a new table is partitioned and sorted. Fields are column names; dotted names reach into structs.

    Order of the partition spec: identity fields first, then `time_fields` with the transform `time_unit`.
    """

    partition_fields: tuple[str, ...] = ()
    time_fields: tuple[str, ...] = ()
    time_unit: Literal["year", "month", "day", "hour"] = "day"
    order_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One immutable version of a table, as its metadata file shows it.

    `schema` is the Arrow form of the current Iceberg schema (no field-id metadata). `dropped` are top-level column names that an
    earlier schema had and this one has not: they stay dropped. `marks` maps wal id to mark; a missing log counts as ZERO_MARK.
    """

    identifier: Identifier
    table_uuid: str
    metadata_location: str
    generation: int
    schema: pa.Schema
    dropped: frozenset[str] = frozenset()
    marks: Mapping[str, Mark] = field(default_factory=dict)
    pipelines: frozenset[str] = frozenset()

    def mark(self, wal_id: str) -> Mark:
        """The table's mark for the log, ZERO_MARK where it has none."""
        return self.marks.get(wal_id, ZERO_MARK)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """Data files written for one commit, not yet part of any table. `handle` belongs to the implementation."""

    paths: tuple[str, ...]
    rows: int
    size_bytes: int
    handle: object


class StaleFiles(Conflict):
    """The table's schema or spec changed since the data files were written: discard them and write anew on fresh state."""


class StaleCapture(Conflict):
    """A capture of live rows and a table's pointer do not belong together: a mark is below the log's base for an entry that fed the
    table. Start over with a new capture."""


class Lake(Protocol):
    """Tables that rows are appended to, exactly once per log entry."""

    def load(self, identifier: Identifier) -> TableState:
        """The table as its pointer stands now (strongly consistent). Raises NotFound."""
        ...

    def create(self, identifier: Identifier, schema: pa.Schema, layout: TableLayout, pipeline: str) -> TableState:
        """Create the table (and namespace levels) with `pipeline` (a pipeline key) in its pipelines property; idempotent.

        Where the table exists, only makes sure that the property names `pipeline`. Durable on return.
        """
        ...

    def write(self, state: TableState, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFiles:
        """Write the batches as Parquet under the table's layout. `schema` is the wanted schema: it may add or widen.

        Each batch is cast by name to `schema`; missing columns are NULL. Columns in `state.dropped` are left out. Nothing is
        durable yet.
        """
        ...

    def sync(self, files: DataFiles) -> None:
        """Make the files and their folders durable (rule 20). A no-op on object stores."""
        ...

    def commit(self, state: TableState, files: DataFiles, wal_id: str, mark: Mark, summary: Mapping[str, str]) -> TableState:
        """Append the files and move the log's mark in one commit based exactly on `state`.

        Raises Conflict when the table certainly moved on (files remain and may be committed again on fresh state), StaleFiles
        where they cannot because schema or spec changed (the caller discards them and writes anew), OutcomeUnknown when the
        pointer may have moved, NotFound when the table is gone.
        """
        ...

    def discard(self, files: DataFiles) -> None:
        """Delete files that certainly belong to no commit."""
        ...
