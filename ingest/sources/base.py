"""What a source and the pipeline say to each other.

A source lists partitions; a partition is read from a position and yields `Unit`s in order. A unit is undecoded work: the pipeline
runs `Unit.decode(schema)` on a thread pool and keeps their order. Positions count records, so a unit that holds n records moves
the position by exactly n, whatever became of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload

__all__ = ["BadRecord", "Decoded", "Partition", "PartitionReader", "Source", "Unit"]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that cannot land in its table.

    `record` is its position in the partition (0-based); `code` a short stable failure code (`json.syntax`, `utf8`,
    `type.conflict`,
    `line.too_long`, ...); `raw` the record as read, cut at 1 MiB.
    """

    record: int
    code: str
    error: str
    raw: bytes
    byte_offset: int = -1


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one unit became. `records == rows.num_rows + len(bad) + blank lines counted as records (none)`.

    `records` is how far the position moves. `row_records` maps each row to its record number (int64), None where rows are the
    contiguous records from `first_record` on.
    """

    rows: pa.Table
    bad: tuple[BadRecord, ...]
    first_record: int
    records: int
    row_records: pa.Array | None = None


class Unit(Protocol):
    """A slice of a partition, read but not decoded. `size_bytes` is what it holds in memory now."""

    @property
    def first_record(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def end(self) -> OffsetPayload:
        """Position after this unit: filesize as seen, line = records consumed, closed when nothing can follow."""
        ...

    def checkpoints(self) -> tuple[CheckpointUpdate, ...]:
        """Checkpoints to publish together with `end`."""
        ...

    def decode(self, schema: pa.Schema) -> Decoded:
        """Decode against the running schema of the destination: columns in it keep its types, new fields are inferred.

        Pure, thread safe, releases the GIL in the heavy parts. Never raises for bad records. Raises DataCorruption naming file
        and
        place where the container itself is broken (truncated gzip, corrupt Parquet).
        """
        ...

    def raw(self, record: int) -> bytes:
        """The record as read (for a dead letter raised after decoding), cut at 1 MiB."""
        ...


@dataclass(frozen=True, slots=True)
class Partition:
    """`name` goes into the offset row (with `~n` for later incarnations); `uri` is for people and dead letters."""

    namespace: str
    name: str
    uri: str
    position: OffsetPayload
    size_bytes: int


class PartitionReader(Protocol):
    """An open partition. Not thread safe; closing is idempotent."""

    def units(self) -> Iterator[Unit]:
        """Units from the partition's position to the present end; may be empty."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """A place partitions come from. Used by one thread."""

    def poll(self) -> list[Partition]:
        """Partitions with something to read now, in deterministic order; closed ones are left out without being read."""
        ...

    def open(self, partition: Partition) -> PartitionReader:
        """Raises ConfigurationError (missing, unreadable), DataCorruption (broken container)."""
        ...

    @property
    def finite(self) -> bool:
        """True where nothing can follow after one pass (stdin at its end)."""
        ...

    def interrupt(self) -> None:
        """End a read that waits for input; called from any thread, also in a signal handler."""
        ...

    def close(self) -> None: ...
