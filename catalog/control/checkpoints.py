"""Checkpoints: small facts a source keeps beside its offsets, published by the same log entry.

The payload of a checkpoint row is an envelope: authority (string: who understands the payload), kind (string), payload_version
(u32), payload (bytes), in bincode 1 layout: fixed-width little-endian integers, a u64 length before strings and bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from catalog.control.rows import StoredRow
from catalog.errors import DataCorruption, InvalidRequest
from catalog.items.table import Item
from catalog.keys import parse_checkpoint_sk

__all__ = ["ENVELOPE_BYTES_MAX", "CheckpointEnvelope", "CheckpointRow", "CheckpointUpdate"]

_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")
_U32_MAX: Final = 2**32 - 1
ENVELOPE_BYTES_MAX: Final = 256 * 1024
"""An envelope has to fit a row (400 KiB) in base64; refused when it is made, not after its entry is committed."""


@dataclass(frozen=True, slots=True)
class CheckpointEnvelope:
    """A payload and who understands it."""

    authority: str
    kind: str
    payload_version: int
    payload: bytes

    def encode(self) -> bytes:
        """Bincode 1 bytes. Raises InvalidRequest where the version is no u32, a string not valid Unicode, or all of it too long."""
        if not 0 <= self.payload_version <= _U32_MAX:
            raise InvalidRequest(f"checkpoint payload_version {self.payload_version} is not an unsigned 32-bit number")
        try:
            authority, kind = self.authority.encode(), self.kind.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"checkpoint of {self.authority!r}, kind {self.kind!r}: not valid Unicode text") from None
        envelope = b"".join((
            _U64.pack(len(authority)), authority, _U64.pack(len(kind)), kind,
            _U32.pack(self.payload_version), _U64.pack(len(self.payload)), self.payload,
        ))
        if len(envelope) > ENVELOPE_BYTES_MAX:
            raise InvalidRequest(
                f"checkpoint of {self.authority!r}, kind {self.kind!r}: {len(envelope)} bytes, at most {ENVELOPE_BYTES_MAX} are allowed"
            )
        return envelope

    @staticmethod
    def decode(data: bytes, where: str) -> CheckpointEnvelope:
        """Inverse of `encode`. Raises DataCorruption naming `where` for anything that `encode` cannot have made."""
        authority, at = _bytes_at(data, 0, "authority", where)
        kind, at = _bytes_at(data, at, "kind", where)
        if at + _U32.size > len(data):
            raise DataCorruption(f"{where}: checkpoint envelope of {len(data)} bytes ends inside payload_version")
        (version,) = _U32.unpack_from(data, at)
        payload, at = _bytes_at(data, at + _U32.size, "payload", where)
        if at != len(data):
            raise DataCorruption(f"{where}: checkpoint envelope has {len(data) - at} bytes after its end")
        return CheckpointEnvelope(_text(authority, "authority", where), _text(kind, "kind", where), version, payload)


@dataclass(frozen=True, slots=True)
class CheckpointUpdate:
    """One checkpoint that an entry publishes: `envelope` is `CheckpointEnvelope.encode()`. A later entry replaces it."""

    logical_key: str
    envelope: bytes
    claim: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint as stored, verified."""

    logical_key: str
    envelope: CheckpointEnvelope
    stored: StoredRow

    @property
    def claim(self) -> int:
        """Claim the row was written under; the next update of this key carries the same."""
        return self.stored.stamp.claim

    @staticmethod
    def parse(item: Item) -> CheckpointRow:
        """Verify a checkpoint row. Raises DataCorruption naming the row."""
        stored = StoredRow.parse(item)
        name = item.get("partition_name")
        logical_key = parse_checkpoint_sk(str(item["SK"]), None if name is None else str(name))
        return CheckpointRow(logical_key, CheckpointEnvelope.decode(stored.payload, stored.where), stored)


def _bytes_at(data: bytes, at: int, field: str, where: str) -> tuple[bytes, int]:
    start = at + _U64.size
    if start > len(data):
        raise DataCorruption(f"{where}: checkpoint envelope of {len(data)} bytes ends inside the length of {field}")
    (length,) = _U64.unpack_from(data, at)
    if length > len(data) - start:
        raise DataCorruption(f"{where}: checkpoint envelope says {length} bytes of {field}, {len(data) - start} follow")
    return data[start:start + length], start + length


def _text(data: bytes, field: str, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataCorruption(f"{where}: {field} of the checkpoint envelope is not UTF-8") from None
