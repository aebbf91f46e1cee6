"""Rows, dead letters and positions that wait to become the next segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetUpdate
from catalog.lake import Identifier, table_label
from ingest.deadletter import DEAD_LETTER_SCHEMA, DeadLetters
from ingest.settings import BufferSettings
from ingest.sources.base import BadRecord, Partition
from ingest.wal.header import GroupKind, SegmentDraft

__all__ = ["Buffer", "Sealed"]

_Group = tuple[Identifier, GroupKind, Sequence[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A draft on its way to the log, and what to count and to acknowledge once it is published.

    `tables` are the tables it feeds with the schema each needs; `held_bytes` is its share of the memory budget.
    """

    draft: SegmentDraft
    tables: dict[Identifier, pa.Schema]
    landed: Counter[str]
    dead: Counter[str]
    held_bytes: int


@dataclass(slots=True)
class Buffer:
    """Fills up to a segment, then is sealed and replaced. Used by one thread."""

    settings: BufferSettings
    dead_letter_identifier: Identifier
    pipeline: str
    opened_s: float
    rows_bytes: int = 0
    held_bytes: int = 0
    landed: Counter[str] = field(default_factory=Counter)
    dead: DeadLetters = field(init=False)
    _tables: dict[Identifier, list[pa.Table]] = field(default_factory=dict)
    _schemas: dict[Identifier, pa.Schema] = field(default_factory=dict)
    _offsets: dict[tuple[str, str], OffsetPayload] = field(default_factory=dict)
    _checkpoints: dict[str, CheckpointUpdate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dead = DeadLetters(self.pipeline)

    @property
    def empty(self) -> bool:
        """Whether it holds no position: rows never come without one."""
        return not self._offsets

    @property
    def size_bytes(self) -> int:
        return self.rows_bytes + self.dead.size_bytes

    def full(self, now_s: float) -> bool:
        """Whether it is to be sealed: by bytes, by age, or by the number of partitions."""
        if self.empty:
            return False
        settings = self.settings
        threshold = min(settings.threshold_bytes, settings.segment_bytes_max, settings.queue_bytes_max // 2)
        return (
            self.size_bytes >= threshold or len(self._offsets) >= settings.partitions_max
            or now_s - self.opened_s >= settings.threshold_seconds
        )

    def has_room(self, more_bytes: int) -> bool:
        """Whether a segment of this and `more_bytes` would not pass the largest size."""
        return self.empty or self.size_bytes + more_bytes <= self.settings.segment_bytes_max

    @property
    def tables(self) -> list[Identifier]:
        """The tables that rows inside belong to (dead letters apart)."""
        return list(self._tables)

    def add_rows(self, identifier: Identifier, rows: pa.Table) -> None:
        """Rows of one table, after all earlier ones of it: their schema holds at least what those had."""
        if rows.num_rows:
            self._tables.setdefault(identifier, []).append(rows)
            self._schemas[identifier] = rows.schema
            self.landed[table_label(identifier)] += rows.num_rows
            self.rows_bytes += rows.nbytes

    def add_bad(self, partition: Partition, bad: Sequence[BadRecord], now: datetime) -> None:
        """Dead letters of a partition."""
        self.dead.add(partition, bad, now)

    def move(self, partition: Partition, payload: OffsetPayload, checkpoints: Sequence[CheckpointUpdate]) -> None:
        """Everything up to `payload` (already merged with the partition's running value, rule 24) is in here or before."""
        self._offsets[(partition.namespace, partition.name)] = payload
        for checkpoint in checkpoints:
            self._checkpoints[checkpoint.logical_key] = checkpoint

    def seal(self) -> Sealed:
        """The draft of everything inside. The buffer is used up."""
        groups: list[_Group] = []
        for identifier, tables in self._tables.items():
            groups += [(identifier, "rows", batches) for batches in _by_schema(tables)]
        if len(self.dead):
            groups.append((self.dead_letter_identifier, "dead_letter", self.dead.table().combine_chunks().to_batches()))
            self._schemas[self.dead_letter_identifier] = DEAD_LETTER_SCHEMA
        offsets = [OffsetUpdate(namespace, name, payload) for (namespace, name), payload in self._offsets.items()]
        return Sealed(
            draft=SegmentDraft(groups, offsets, tuple(self._checkpoints.values())),
            tables={identifier: self._schemas[identifier] for identifier, *_ in groups},
            landed=self.landed, dead=self.dead.by_code, held_bytes=self.held_bytes,
        )


def _by_schema(tables: Sequence[pa.Table]) -> list[list[pa.RecordBatch]]:
    """Batches in order, in runs of one schema."""
    runs: list[list[pa.RecordBatch]] = []
    schema: pa.Schema | None = None
    for table in tables:
        if schema is None or not table.schema.equals(schema, check_metadata=True):
            runs.append([])
            schema = table.schema
        runs[-1] += table.to_batches()
    return runs
