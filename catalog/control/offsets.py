"""Offsets: how far each partition of a source is held by the log, and how far the log itself is published.

The order is commit in the log, then publish here, then acknowledge (rule 10, I2). A row stores exactly the payload bytes that the
sealed entry carries: the merge with the partition's running value happens before the entry is sealed (rule 24). Only an entry of
kind reset, with the next claim number, may lower a row.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from catalog import failpoint
from catalog.clock import Clock
from catalog.control import invariants
from catalog.control.checkpoints import CheckpointRow, CheckpointUpdate
from catalog.control.rows import ROW_FORMAT, EntryRef, Incoming, StoredRow, check_format, decide, payload_sha256, row_item
from catalog.errors import DataCorruption, Fenced, Internal, InvalidRequest, OutcomeUnknown, Unavailable
from catalog.items.table import (
    ABSENT,
    TRANSACT_OPS_MAX,
    ConditionFailed,
    Equals,
    Expect,
    Item,
    ItemTable,
    Op,
    Put,
    Update,
)
from catalog.keys import (
    CHECKPOINT_PREFIX,
    LOG_PREFIX,
    OFFSET_PREFIX,
    PipelineKey,
    SortKey,
    checkpoint_sk,
    log_sk,
    offset_sk,
    parse_log_sk,
    parse_offset_sk,
)

__all__ = ["CheckpointUpdate", "EntryRef", "LogRow", "OffsetPayload", "OffsetRow", "OffsetStore", "OffsetUpdate"]

_PAYLOAD: Final = struct.Struct("<QQQ")
_U64_MAX: Final = 2**64 - 1
_ATTEMPTS_MAX: Final = 8
"""Rounds of read, decide and write before a publication gives up and its caller backs off."""
_FIRST_PAUSE_S: Final = 0.005
_KNOWN_ROWS_MAX: Final = 10_000
_ROW_BYTES: Final = 4096
_CHUNK_BYTES_MAX: Final = 3 * 1024 * 1024
"""Upper bounds on a row beside its payload and on a transaction, safely inside the item table's 4 MiB."""


@dataclass(frozen=True, slots=True)
class OffsetPayload:
    """Position in a partition: bytes seen, records consumed, and whether nothing can follow. 24 bytes as stored."""

    filesize: int
    line: int
    closed: bool

    ZERO: ClassVar[OffsetPayload]

    def encode(self) -> bytes:
        """Three unsigned 64-bit little-endian integers: filesize, line, closed. Raises InvalidRequest beyond their range."""
        if not (0 <= self.filesize <= _U64_MAX and 0 <= self.line <= _U64_MAX):
            raise InvalidRequest(f"offset {self} does not fit unsigned 64-bit numbers")
        return _PAYLOAD.pack(self.filesize, self.line, int(self.closed))

    @staticmethod
    def decode(data: bytes, where: str = "offset payload") -> OffsetPayload:
        """Inverse of `encode`. Raises DataCorruption naming `where`."""
        if len(data) != _PAYLOAD.size:
            raise DataCorruption(f"{where}: an offset payload has {_PAYLOAD.size} bytes, this one {len(data)}")
        filesize, line, closed = _PAYLOAD.unpack(data)
        if closed > 1:
            raise DataCorruption(f"{where}: closed is {closed}, neither 0 nor 1")
        return OffsetPayload(filesize, line, bool(closed))

    def merge(self, other: OffsetPayload) -> OffsetPayload:
        """closed by OR, filesize and line by max; commutative and idempotent."""
        return OffsetPayload(max(self.filesize, other.filesize), max(self.line, other.line), self.closed or other.closed)

    def sha256(self) -> str:
        """Lower-case hex digest of the encoded payload."""
        return payload_sha256(self.encode())


OffsetPayload.ZERO = OffsetPayload(0, 0, False)


@dataclass(frozen=True, slots=True)
class OffsetUpdate:
    """One partition's position that an entry publishes. `payload` is already merged with the running value (rule 24)."""

    namespace: str
    partition: str
    payload: OffsetPayload
    claim: int = 0


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition's position as stored, verified."""

    namespace: str
    partition: str
    payload: OffsetPayload
    stored: StoredRow

    @property
    def claim(self) -> int:
        """Claim the row was written under; the next update of this partition carries the same."""
        return self.stored.stamp.claim

    @staticmethod
    def parse(item: Item) -> OffsetRow:
        """Verify an offset row. Raises DataCorruption naming the row."""
        stored = StoredRow.parse(item)
        name = item.get("partition_name")
        namespace, partition = parse_offset_sk(str(item["SK"]), None if name is None else str(name))
        return OffsetRow(namespace, partition, OffsetPayload.decode(stored.payload, stored.where), stored)


@dataclass(frozen=True, slots=True)
class LogRow:
    """How far a log is reclaimed (`base`) and published: entries with base < index <= published are to be had from the log."""

    wal_id: str
    base: int
    published: int

    @staticmethod
    def parse(item: Item) -> LogRow:
        """Verify a log row. Raises DataCorruption naming the row."""
        where = f"row {item['PK']!r} {item['SK']!r}"
        check_format(item, where)
        base, published = item.get("base"), item.get("published_index")
        if type(base) is not int or type(published) is not int or not 0 <= base <= published:
            raise DataCorruption(f"{where}: base {base!r} and published_index {published!r} are not 0 <= base <= published")
        return LogRow(parse_log_sk(str(item["SK"])), base, published)


@dataclass(frozen=True, slots=True)
class _Target:
    key: SortKey
    incoming: Incoming

    def merged(self, row: StoredRow | None) -> bytes:
        """What the row would hold after a merge; a checkpoint has no merge rule, the later one replaces."""
        if row is None or not self.key.sk.startswith(OFFSET_PREFIX):
            return self.incoming.payload
        stored = OffsetPayload.decode(row.payload, row.where)
        return stored.merge(OffsetPayload.decode(self.incoming.payload)).encode()


class OffsetStore:
    """The offset, checkpoint and log rows of one pipeline. Safe for several threads; publications run one at a time.

    Everything is durable on return. Where a write's answer is lost, the store reads back and writes again under the same condition
    until the outcome is certain: an old value read back proves nothing, only the next conditional write does.
    """

    def __init__(self, items: ItemTable, key: PipelineKey, clock: Clock) -> None:
        self._items = items
        self._pk = str(key)
        self._clock = clock
        self._lock = threading.Lock()
        # Rows as this store last wrote them. A stale one costs a failed condition and a read, never a wrong write.
        self._known: OrderedDict[str, Item] = OrderedDict()

    def read(self, namespace: str, partition: str) -> OffsetRow | None:
        """The partition's row. Raises DataCorruption, Unavailable."""
        item = self._items.get(self._pk, offset_sk(namespace, partition).sk)
        return None if item is None else OffsetRow.parse(item)

    def offsets(self) -> Iterator[OffsetRow]:
        """Every partition's row, by sort key. Raises DataCorruption, Unavailable."""
        return (OffsetRow.parse(item) for item in self._items.query(self._pk, OFFSET_PREFIX))

    def read_checkpoint(self, logical_key: str) -> CheckpointRow | None:
        """The checkpoint's row. Raises DataCorruption, Unavailable."""
        item = self._items.get(self._pk, checkpoint_sk(logical_key).sk)
        return None if item is None else CheckpointRow.parse(item)

    def checkpoints(self) -> Iterator[CheckpointRow]:
        """Every checkpoint's row, by sort key. Raises DataCorruption, Unavailable."""
        return (CheckpointRow.parse(item) for item in self._items.query(self._pk, CHECKPOINT_PREFIX))

    def read_log(self, wal_id: str) -> LogRow | None:
        """How far the log is published and reclaimed (embedded store only)."""
        item = self._items.get(self._pk, log_sk(wal_id))
        return None if item is None else LogRow.parse(item)

    def logs(self) -> Iterator[LogRow]:
        """Every log row of the pipeline."""
        return (LogRow.parse(item) for item in self._items.query(self._pk, LOG_PREFIX))

    def require_log(self, wal_id: str) -> None:
        """Refuse to start on rows that another log published. Raises Fenced naming the first such row.

        For recovery of a pipeline with one log, before the source opens: reading on from a foreign log's positions would hide the
        rows that log lost. A reset has to cover every row (see `offsets`).
        """
        for row in self._items.query(self._pk, OFFSET_PREFIX):
            stamp = StoredRow.parse(row).stamp
            if stamp.wal_id is not None and stamp.wal_id != wal_id:
                raise Fenced(
                    f"row {row['PK']!r} {row['SK']!r} was published by {stamp}, but this pipeline's data folder holds log {wal_id}: "
                    "the folder of that log was lost, replaced or is on another machine. Put it back, or reset the pipeline's "
                    "offsets (RESET_OFFSETS) to read the source again from the start"
                )

    def publish(
        self, entry: EntryRef, offsets: Sequence[OffsetUpdate], checkpoints: Sequence[CheckpointUpdate], *,
        log_base: int | None, reset: bool = False, head: tuple[int, int] | None = None,
    ) -> None:
        """Write the rows of a committed entry. Idempotent: a crash or an error anywhere inside is repaired by calling again.

        `log_base` (embedded store) is the log's reclaimed index and makes the last transaction carry the `log#` row too, so that
        readers see the entry whole or not at all; None writes no such row. `reset` marks an entry of kind reset. `head` is for
        recovery (see `rows.decide`). Raises Fenced, DataCorruption, OutcomeUnknown, Unavailable.
        """
        targets = [
            _Target(checkpoint_sk(c.logical_key), Incoming(entry, c.claim, c.envelope, reset)) for c in checkpoints
        ] + [
            _Target(offset_sk(o.namespace, o.partition), Incoming(entry, o.claim, o.payload.encode(), reset)) for o in offsets
        ]
        if reset and any(o.payload != OffsetPayload.ZERO for o in offsets):
            raise Internal(f"{entry} is a reset, but holds a position other than zero")
        failpoint.hit("offsets.before_publish")
        *chunks, last = _chunks(targets)
        with self._lock:
            for chunk in chunks:
                self._publish_chunk(chunk, entry, None, head)
                failpoint.hit("offsets.chunk_published")
            self._publish_chunk(last, entry, log_base, head)
        failpoint.hit("offsets.published")

    def set_log_base(self, wal_id: str, base: int) -> None:
        """Record that entries up to `base` are about to be reclaimed; a base already there or above is left alone.

        Written before the segments go, so that a reader which misses a segment finds the base above it.
        """
        failpoint.hit("offsets.before_log_base")
        for _ in range(_ATTEMPTS_MAX):
            row = self.read_log(wal_id)
            if row is None:
                raise Internal(f"log {wal_id} has no row, so nothing of it is published: base {base} cannot be reclaimed")
            if row.base >= base:
                break
            invariants.log_row_in_order(row.base, row.published, base, row.published)
            now = self._clock.wall_iso()
            try:
                self._items.update(
                    Update(self._pk, log_sk(wal_id), Equals({"base": row.base}), set={"base": base, "updated_at": now})
                )
            except (ConditionFailed, OutcomeUnknown):
                continue
            break
        else:
            raise Unavailable(f"base {base} of log {wal_id} could not be written in {_ATTEMPTS_MAX} attempts: try again")
        failpoint.hit("offsets.log_base_set")

    def _publish_chunk(
        self, targets: Sequence[_Target], entry: EntryRef, log_base: int | None, head: tuple[int, int] | None,
    ) -> None:
        """One transaction, repeated under fresh conditions until the rows certainly hold the entry."""
        unknown: OutcomeUnknown | None = None
        fresh = False
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._clock.sleep(_FIRST_PAUSE_S * 2**attempt)
            ops: list[Op] = [op for target in targets if (op := self._row_op(target, head, fresh)) is not None]
            if log_base is not None and (op := self._log_op(entry, log_base)) is not None:
                ops.append(op)
            if not ops:
                return
            try:
                self._write(ops)
            except ConditionFailed:
                fresh = True
            except OutcomeUnknown as error:
                unknown, fresh = error, True
            else:
                self._remember(ops)
                return
        if unknown is not None:
            raise OutcomeUnknown(f"publication of {entry}: no answer in {_ATTEMPTS_MAX} attempts") from unknown
        raise Unavailable(f"publication of {entry}: its rows changed under {_ATTEMPTS_MAX} attempts")

    def _row_op(self, target: _Target, head: tuple[int, int] | None, fresh: bool) -> Op | None:
        sk = target.key.sk
        item = None if fresh else self._known.get(sk)
        if item is None:
            item = self._items.get(self._pk, sk)
        row = None if item is None else StoredRow.parse(item)
        if row is not None and row.attributes.get("partition_name") != target.key.partition_name:
            raise DataCorruption(f"{row.where} belongs to {row.attributes.get('partition_name')!r}, not {target.key.partition_name!r}")
        expect: Expect | None = decide(row, target.incoming, target.merged(row), head)
        if expect is None:
            return None
        if row is not None:
            invariants.i5_never_older(row.stamp, target.incoming)
            invariants.i2_never_lower(row, target.incoming, target.merged(row))
        return Put(row_item(self._pk, sk, target.key.partition_name, target.incoming, self._clock.wall_iso()), expect)

    def _log_op(self, entry: EntryRef, log_base: int) -> Op | None:
        row = self.read_log(entry.wal_id)
        sk, updated_at = log_sk(entry.wal_id), self._clock.wall_iso()
        if row is None:
            invariants.log_row_in_order(log_base, log_base, log_base, entry.index)
            return Put({
                "PK": self._pk, "SK": sk, "format": ROW_FORMAT, "base": log_base, "published_index": entry.index,
                "updated_at": updated_at,
            }, ABSENT)
        if row.published >= entry.index:
            return None
        invariants.log_row_in_order(row.base, row.published, row.base, entry.index)
        return Update(
            self._pk, sk, Equals({"published_index": row.published}), set={"published_index": entry.index, "updated_at": updated_at},
        )

    def _write(self, ops: Sequence[Op]) -> None:
        match ops:
            case [Put(item, expect)]:
                self._items.put(item, expect)
            case [Update() as update]:
                self._items.update(update)
            case _:
                self._items.transact(ops)

    def _remember(self, ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Put) and not (sk := str(op.item["SK"])).startswith(LOG_PREFIX):
                self._known[sk] = op.item
                self._known.move_to_end(sk)
        while len(self._known) > _KNOWN_ROWS_MAX:
            self._known.popitem(last=False)


def _chunks(targets: Sequence[_Target]) -> list[list[_Target]]:
    """Targets in order, as few transactions as fit; each leaves room for the log row. At least one, possibly empty."""
    chunks: list[list[_Target]] = [[]]
    size_bytes = 0
    for target in targets:
        row_bytes = 2 * len(target.incoming.payload) + _ROW_BYTES
        if len(chunks[-1]) == TRANSACT_OPS_MAX - 1 or size_bytes + row_bytes > _CHUNK_BYTES_MAX:
            chunks.append([])
            size_bytes = 0
        chunks[-1].append(target)
        size_bytes += row_bytes
    return chunks
