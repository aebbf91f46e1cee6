"""Drafts and batches that the tests of the log share."""

from __future__ import annotations

import pyarrow as pa

from catalog.control.checkpoints import CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetUpdate
from catalog.keys import PipelineKey
from ingest.wal.segment import GENESIS_HASH, SealedSegment, SegmentDraft, seal

KEY = PipelineKey("acme", "dev", "rides")
TABLE = ("bronze", "rides")
DEAD = ("bronze", "_dl_rides")


def numbers(first: int, count: int) -> pa.RecordBatch:
    """Rows `first` .. `first + count - 1` in a column `id`."""
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


def draft(first: int, count: int, *, partition: str = "a.jsonl", filesize: int | None = None) -> SegmentDraft:
    """`count` rows of a partition from record `first` on, and the position behind them."""
    end = first + count
    payload = OffsetPayload(end * 10 if filesize is None else filesize, end, False)
    return SegmentDraft([(TABLE, "rows", [numbers(first, count)])], [OffsetUpdate("files", partition, payload)])


def rich_draft() -> SegmentDraft:
    """Two tables, nested, dictionary-encoded, empty and null columns, an offset and a checkpoint."""
    rows = pa.record_batch({
        "id": pa.array([1, 2, 3], pa.int64()),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "nested": pa.array([{"x": [1, 2], "y": {"z": "t"}}, None, {"x": [], "y": None}]),
        "empty": pa.array([[], [], []], pa.list_(pa.int32())),
        "nothing": pa.nulls(3),
        "at": pa.array([0, 1, None], pa.timestamp("us", tz="UTC")),
    })
    more = pa.record_batch({
        "id": pa.array([4], pa.int64()), "kind": pa.array(["zz"]).dictionary_encode(),
        "nested": pa.array([None], rows.schema.field("nested").type), "empty": pa.array([None], pa.list_(pa.int32())),
        "nothing": pa.nulls(1), "at": pa.array([None], pa.timestamp("us", tz="UTC")),
    })
    bad = pa.record_batch({"raw": pa.array([b"{oops"]), "code": pa.array(["json.syntax"])})
    envelope = CheckpointEnvelope("file", "prefix", 1, b"\x00\x01").encode()
    return SegmentDraft(
        [(TABLE, "rows", [rows, more]), (DEAD, "dead_letter", [bad]), (("bronze", "none"), "rows", [numbers(0, 0)])],
        [OffsetUpdate("files", "ä#1.jsonl", OffsetPayload(120, 5, True), 2)],
        [CheckpointUpdate("file#ä#1.jsonl", envelope)],
    )


def sealed(content: SegmentDraft, *, index: int = 1, previous_hash: str = GENESIS_HASH) -> SealedSegment:
    """The draft as entry `index` of the log "w1", written in epoch 3."""
    return seal(content, key=KEY, wal_id="w1", epoch=3, index=index, previous_hash=previous_hash)


def joined(segment: SealedSegment) -> bytes:
    """The segment's bytes."""
    return b"".join(bytes(chunk) for chunk in segment.chunks)
