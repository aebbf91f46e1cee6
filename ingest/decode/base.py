"""What every decoder gives: a stream of raw units, each a slice of one file that can be decoded on any thread.

A source wraps `RawUnit`s with its own bookkeeping (offset rows, checkpoints) to make `ingest.sources.base.Unit`s of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from ingest.arrays import longs
from ingest.sources.base import BadRecord, Decoded

__all__ = ["RAW_BYTES_MAX", "ByteStream", "DecodedStream", "RawUnit", "decoded"]

RAW_BYTES_MAX: Final = 1024 * 1024
"""A dead letter keeps at most this much of a record."""


class ByteStream(Protocol):
    """The raw bytes of a file. A short read is fine; b"" means the end as it stands now."""

    def read(self, size: int = -1, /) -> bytes: ...


class RawUnit(Protocol):
    """Records `first_record` .. `first_record + records - 1` of a file, read but not decoded.

    `byte_end` is the offset in the uncompressed bytes right after the unit's last record (its newline included); -1 where the
    format has no such place (Parquet, Arrow). `size_bytes` is what the unit holds in memory.
    """

    @property
    def first_record(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def byte_end(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def decode(self, schema: pa.Schema) -> Decoded:
        """See `ingest.sources.base.Unit.decode`. Pure and thread safe; bad records never raise."""
        ...

    def raw(self, record: int) -> bytes:
        """The record as read, cut at RAW_BYTES_MAX. Records of binary formats come as JSON text."""
        ...


class DecodedStream(Protocol):
    """An open file. Not thread safe (its units are); closing is idempotent and closes the bytes below.

    `appendable`: more records may follow where it ends now, and `byte_end` of a unit is a place to start again. Otherwise the file
    is a whole, resumed by skipping `start_record` records.
    """

    format: str
    compression: str
    appendable: bool

    def units(self) -> Iterator[RawUnit]:
        """Units in order, from the start position to the present end; once per stream.

        Raises DataCorruption naming the file and place where the container is broken: the units before it are whole and may
        land; nothing of the broken part is yielded.
        """
        ...

    def close(self) -> None: ...


def decoded(rows: pa.Table, bad: list[BadRecord], first_record: int, records: int, good: np.ndarray | None) -> Decoded:
    """A `Decoded` from rows whose record numbers are `first_record + good` (None: all of them in order)."""
    bad.sort(key=lambda one: one.record)
    numbers = None if good is None or not bad else longs(good + first_record)
    return Decoded(rows, tuple(bad), first_record, records, numbers)
