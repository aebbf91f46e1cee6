"""What a segment says about itself: its place in the chain, the tables it feeds, and the offsets and checkpoints it publishes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import pyarrow as pa

from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetUpdate
from catalog.control.rows import EntryRef
from catalog.errors import ConfigurationError, DataCorruption
from catalog.keys import PipelineKey
from catalog.lake import Identifier
from ingest.wal.fields import Fields, canonical_json

__all__ = ["GENESIS_HASH", "EntryKind", "GroupKind", "GroupMeta", "SegmentDraft", "SegmentHeader", "decode_header", "entry_hash"]

EntryKind = Literal["rows", "reset"]
GroupKind = Literal["rows", "dead_letter"]

GENESIS_HASH: Final = "0" * 64
"""What the first entry of a log names as the entry before it."""


@dataclass(frozen=True, slots=True)
class SegmentDraft:
    """What is to become one entry: batches per table, and the positions they stand for.

    Batches of one group share one schema; a table may have several groups. Claims of `offsets` and `checkpoints` are set by the
    log. Kind reset has no groups, and its offsets are zero.
    """

    groups: Sequence[tuple[Identifier, GroupKind, Sequence[pa.RecordBatch]]]
    offsets: Sequence[OffsetUpdate] = ()
    checkpoints: Sequence[CheckpointUpdate] = ()
    kind: EntryKind = "rows"


@dataclass(frozen=True, slots=True)
class GroupMeta:
    """Rows of one table in a segment: `length_bytes` bytes of Arrow IPC stream at `offset` in the payload; at least one row."""

    identifier: Identifier
    kind: GroupKind
    schema_fingerprint: str
    rows: int
    offset: int
    length_bytes: int


@dataclass(frozen=True)
class SegmentHeader:
    """One entry's header. (epoch, index) is one entry for ever; indexes count from 1 without a gap."""

    kind: EntryKind
    pipeline: PipelineKey
    wal_id: str
    epoch: int
    index: int
    previous_hash: str
    groups: tuple[GroupMeta, ...]
    offsets: tuple[OffsetUpdate, ...]
    checkpoints: tuple[CheckpointUpdate, ...]
    payload_sha256: str
    payload_bytes: int

    @cached_property
    def canonical(self) -> bytes:
        """The header's bytes: what is stored and hashed."""
        return canonical_json(self._plain())

    @cached_property
    def entry_hash(self) -> str:
        """sha256(previous hash, canonical header, payload hash) in hex."""
        return entry_hash(self.previous_hash, self.canonical, self.payload_sha256)

    @property
    def ref(self) -> EntryRef:
        """The entry's name in rows and messages."""
        return EntryRef(self.wal_id, self.epoch, self.index, self.entry_hash)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def feeds(self, identifier: Identifier) -> bool:
        """Whether the entry holds rows of the table."""
        return any(group.identifier == identifier for group in self.groups)

    def _plain(self) -> dict[str, object]:
        return {
            "kind": self.kind, "pipeline": str(self.pipeline), "wal_id": self.wal_id, "epoch": self.epoch, "index": self.index,
            "previous_hash": self.previous_hash, "payload_sha256": self.payload_sha256, "payload_bytes": self.payload_bytes,
            "groups": [
                {
                    "identifier": list(g.identifier), "kind": g.kind, "schema": g.schema_fingerprint, "rows": g.rows, "offset": g.offset,
                    "length": g.length_bytes,
                } for g in self.groups
            ],
            "offsets": [
                {"namespace": o.namespace, "partition": o.partition, "payload": _b64(o.payload.encode()), "claim": o.claim}
                for o in self.offsets
            ],
            "checkpoints": [{"key": c.logical_key, "envelope": _b64(c.envelope), "claim": c.claim} for c in self.checkpoints],
        }


def entry_hash(previous_hash: str, canonical: bytes, payload_sha256: str) -> str:
    """The entry's link in the chain, hex."""
    digest = hashlib.sha256(bytes.fromhex(previous_hash))
    digest.update(canonical)
    digest.update(bytes.fromhex(payload_sha256))
    return digest.hexdigest()


def decode_header(data: bytes, where: str) -> SegmentHeader:
    """Inverse of `SegmentHeader.canonical`. Raises DataCorruption naming `where` for anything else, other spellings included."""
    try:
        plain = json.loads(data)
        header = _header(Fields(plain, "header"))
    except (ValueError, TypeError, KeyError, DataCorruption, ConfigurationError) as error:
        raise DataCorruption(f"segment {where}: its header is not one this skipprd wrote: {error}") from error
    if header.canonical != data:
        raise DataCorruption(f"segment {where}: its header is not in canonical form")
    return header


def _header(f: Fields) -> SegmentHeader:
    kind = f.text("kind")
    if kind not in ("rows", "reset"):
        raise ValueError(f"unknown kind {kind!r}")
    return SegmentHeader(
        kind="rows" if kind == "rows" else "reset", pipeline=PipelineKey.parse(f.text("pipeline")), wal_id=f.text("wal_id"),
        epoch=f.number("epoch"), index=f.number("index"), previous_hash=f.digest("previous_hash"),
        groups=tuple(_group(g) for g in f.objects("groups")),
        offsets=tuple(
            OffsetUpdate(o.text("namespace"), o.text("partition"), OffsetPayload.decode(o.base64("payload")), o.number("claim"))
            for o in f.objects("offsets")
        ),
        checkpoints=tuple(CheckpointUpdate(c.text("key"), c.base64("envelope"), c.number("claim")) for c in f.objects("checkpoints")),
        payload_sha256=f.digest("payload_sha256"), payload_bytes=f.number("payload_bytes"),
    )


def _group(f: Fields) -> GroupMeta:
    kind = f.text("kind")
    if kind not in ("rows", "dead_letter"):
        raise ValueError(f"unknown kind of group {kind!r}")
    return GroupMeta(
        f.texts("identifier"), "rows" if kind == "rows" else "dead_letter", f.text("schema"), f.number("rows"), f.number("offset"),
        f.number("length"),
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
