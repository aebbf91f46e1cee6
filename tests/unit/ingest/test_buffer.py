"""When the buffer is full, and what a sealed one holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload
from ingest.buffer import Buffer
from ingest.deadletter import DEAD_LETTER_SCHEMA, RAW_BYTES_MAX, dead_letter_table
from ingest.settings import BufferSettings
from ingest.sources.base import BadRecord, Partition

DEAD = dead_letter_table(("bronze",), "events")
EVENTS = ("bronze", "events")
NOW = datetime(2024, 5, 6, tzinfo=UTC)


def _buffer(**settings: float) -> Buffer:
    return Buffer(BufferSettings(**settings), DEAD, "t#w#events", opened_s=100.0)  # type: ignore[arg-type]


def _partition(name: str = "a.jsonl") -> Partition:
    return Partition("file", name, f"file:///in/{name}", OffsetPayload.ZERO, 0)


def test_full_by_bytes_by_age_and_by_partitions() -> None:
    buffer = _buffer(threshold_bytes=1000, threshold_seconds=10, partitions_max=2)
    assert not buffer.full(1000.0), "an empty one is never full"
    buffer.move(_partition(), OffsetPayload(1, 1, False), ())
    assert not buffer.full(109.9)
    assert buffer.full(110.0)
    buffer.add_rows(EVENTS, pa.table({"a": list(range(200))}))
    assert buffer.full(100.0)
    other = _buffer(threshold_bytes=1000, threshold_seconds=10, partitions_max=2)
    for name in ("a", "b"):
        assert not other.full(100.0)
        other.move(_partition(name), OffsetPayload(1, 1, False), ())
    assert other.full(100.0)


def test_the_threshold_never_exceeds_what_the_queue_can_hold() -> None:
    buffer = _buffer(threshold_bytes=10_000_000, queue_bytes_max=2000)
    buffer.move(_partition(), OffsetPayload(1, 1, False), ())
    buffer.add_rows(EVENTS, pa.table({"a": list(range(200))}))
    assert buffer.full(100.0)


def test_room_up_to_the_largest_segment() -> None:
    buffer = _buffer(segment_bytes_max=2000)
    assert buffer.has_room(10_000), "one block is always taken"
    buffer.move(_partition(), OffsetPayload(1, 1, False), ())
    buffer.add_rows(EVENTS, pa.table({"a": list(range(200))}))
    assert buffer.has_room(400)
    assert not buffer.has_room(401)


def test_a_sealed_buffer_has_runs_of_one_schema_last_positions_and_counts() -> None:
    buffer = _buffer()
    wide = pa.table({"a": [3], "b": ["x"]})
    for rows in (pa.table({"a": [1]}), pa.table({"a": [2]}), wide, wide.slice(0, 0)):
        buffer.add_rows(EVENTS, rows)
    bad = [BadRecord(7, "json.syntax", "broken", b"\xff" * (RAW_BYTES_MAX + 1)), BadRecord(8, "utf8", "no", b"x", 90)]
    buffer.add_bad(_partition(), bad, NOW)
    buffer.move(_partition(), OffsetPayload(10, 5, False), [CheckpointUpdate("file#a.jsonl", b"old")])
    buffer.move(_partition(), OffsetPayload(20, 9, False), [CheckpointUpdate("file#a.jsonl", b"new")])
    sealed = buffer.seal()
    assert [(i, kind, sum(b.num_rows for b in batches)) for i, kind, batches in sealed.draft.groups] == [
        (EVENTS, "rows", 2), (EVENTS, "rows", 1), (DEAD, "dead_letter", 2),
    ]
    assert sealed.tables == {EVENTS: wide.schema, DEAD: DEAD_LETTER_SCHEMA}
    assert [(o.partition, o.payload.line) for o in sealed.draft.offsets] == [("a.jsonl", 9)]
    assert [c.envelope for c in sealed.draft.checkpoints] == [b"new"]
    assert (sealed.landed, sealed.dead) == ({"bronze.events": 3}, {"json.syntax": 1, "utf8": 1})
    letters = pa.Table.from_batches(sealed.draft.groups[2][2]).to_pylist()
    assert len(letters[0]["raw"]) == RAW_BYTES_MAX
    assert letters[1] == {
        "raw": b"x", "error": "no", "code": "utf8", "source_uri": "file:///in/a.jsonl", "partition": "a.jsonl", "record": 8,
        "byte_offset": 90, "pipeline": "t#w#events", "ingested_at": NOW,
    }
    assert letters[0]["byte_offset"] is None
