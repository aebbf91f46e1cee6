"""Dead letters: records that cannot land in their table, kept whole, with the reason and the place they came from.

They go to table `_dl_{pipeline}` of the dead-letter namespace, as a group of the same segment and under the same high-water mark as the
rows around them, so that read = landed + dead-lettered holds after every crash (I8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from catalog.lake import Identifier
from ingest.sources.base import BadRecord, Partition

__all__ = ["DEAD_LETTER_PREFIX", "DEAD_LETTER_SCHEMA", "RAW_BYTES_MAX", "DeadLetters", "dead_letter_table"]

DEAD_LETTER_PREFIX: Final = "_dl_"
RAW_BYTES_MAX: Final = 1024 * 1024
"""A longer record is cut; its place names where the rest is."""

DEAD_LETTER_SCHEMA: Final = pa.schema([
    pa.field("raw", pa.binary()),
    pa.field("error", pa.string()),
    pa.field("code", pa.string()),
    pa.field("source_uri", pa.string()),
    pa.field("partition", pa.string()),
    pa.field("record", pa.int64()),
    pa.field("byte_offset", pa.int64()),
    pa.field("pipeline", pa.string()),
    pa.field("ingested_at", pa.timestamp("us", tz="UTC")),
])
"""`raw` is the record as read (bytes: it may not be valid text), `record` its 0-based position in the partition, `byte_offset` where
it starts in the decompressed content (NULL where that is not known), `pipeline` the pipeline key, `ingested_at` when it was read."""


def dead_letter_table(namespace: Sequence[str], pipeline: str) -> Identifier:
    """Identifier of the pipeline's dead-letter table."""
    return (*namespace, DEAD_LETTER_PREFIX + pipeline)


@dataclass(slots=True)
class DeadLetters:
    """Dead letters waiting for the next segment, as Arrow from the start. Not thread safe."""

    pipeline: str
    by_code: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    _tables: list[pa.Table] = field(default_factory=list)

    def __len__(self) -> int:
        return self.by_code.total()

    def add(self, partition: Partition, bad: Sequence[BadRecord], now: datetime) -> None:
        """Keep the records, which came from `partition` and were read at `now`."""
        if not bad:
            return
        count = len(bad)
        columns = [
            pa.array([record.raw[:RAW_BYTES_MAX] for record in bad], pa.binary()),
            pa.array([record.error for record in bad], pa.string()),
            pa.array([record.code for record in bad], pa.string()),
            pa.repeat(partition.uri, count),
            pa.repeat(partition.name, count),
            pa.array([record.record for record in bad], pa.int64()),
            pa.array([record.byte_offset if record.byte_offset >= 0 else None for record in bad], pa.int64()),
            pa.repeat(self.pipeline, count),
            pa.array([now] * count, pa.timestamp("us", tz="UTC")),
        ]
        table = pa.table(columns, schema=DEAD_LETTER_SCHEMA)
        self.by_code.update(record.code for record in bad)
        self.size_bytes += table.nbytes
        self._tables.append(table)

    def table(self) -> pa.Table:
        """All of them as a table of `DEAD_LETTER_SCHEMA`."""
        return pa.concat_tables(self._tables) if self._tables else DEAD_LETTER_SCHEMA.empty_table()
