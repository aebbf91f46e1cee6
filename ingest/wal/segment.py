"""The segment: one entry of the log as bytes, the same on every kind of storage.

    magic        8 bytes  b"SKIPSEG\\n"
    format       u32      a newer one is refused by name
    header size  u32      bytes of the header that follows
    header       canonical JSON (sorted keys, no blanks, ASCII)
    header crc   u32      crc32 of everything before it, so that a header alone is readable (a reclaimed object is only that)
    zeros                 up to a multiple of 64
    groups                one Arrow IPC stream per group, each padded to a multiple of 64; together: the payload
    footer       16 bytes u64 size of the whole segment, u32 crc32 of everything before the footer, magic b"SKPE"

Integers are little-endian. `entry_hash = sha256(previous entry hash, canonical header, sha256 of the payload)`: the log is a chain,
and the hash can be computed from a header alone. The offsets in a header are the very bytes their rows will hold (rule 24).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from catalog.errors import ConfigurationError, DataCorruption, InvalidRequest
from catalog.keys import PipelineKey
from catalog.lake import Identifier, table_label
from ingest.wal.header import GENESIS_HASH, GroupKind, GroupMeta, SegmentDraft, SegmentHeader, decode_header

__all__ = [
    "FORMAT", "GENESIS_HASH", "GroupKind", "GroupMeta", "SealedSegment", "SegmentDamaged", "SegmentDraft", "SegmentHeader", "SegmentReader",
    "read_header", "require_chain", "schema_fingerprint", "seal",
]

FORMAT: Final = 1
MAGIC: Final = b"SKIPSEG\n"
FOOTER_MAGIC: Final = b"SKPE"
HEADER_BYTES_MAX: Final = 64 * 1024 * 1024

_PREFIX: Final = struct.Struct("<8sII")
_CRC: Final = struct.Struct("<I")
_FOOTER: Final = struct.Struct("<QI4s")
_ALIGN: Final = 64
_THREADS_FROM_BYTES: Final = 256 * 1024


class SegmentDamaged(DataCorruption):
    """The bytes are not those that were sealed."""


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment ready to be written: `chunks` in order are its bytes."""

    header: SegmentHeader
    chunks: tuple[bytes | pa.Buffer, ...]
    size_bytes: int

    @property
    def header_chunk(self) -> bytes:
        """Everything up to and including the header's checksum: a header-alone segment."""
        return bytes(self.chunks[0])


def seal(
    draft: SegmentDraft, *, key: PipelineKey, wal_id: str, epoch: int, index: int, previous_hash: str, compression: str = "lz4",
) -> SealedSegment:
    """Turn a draft into bytes. `draft.offsets` are already merged with the running values (rule 24). Groups without rows are left out.

    Raises InvalidRequest where the batches of a group differ in schema or an offset cannot be encoded.
    """
    groups: list[GroupMeta] = []
    payload: list[bytes | pa.Buffer] = []
    digest, size = hashlib.sha256(), 0
    for identifier, kind, batches in draft.groups:
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            continue
        stream = _ipc_stream(identifier, batches, compression)
        padded = (stream, _padding(stream.size))
        groups.append(GroupMeta(identifier, kind, schema_fingerprint(batches[0].schema), rows, size, stream.size))
        for part in padded:
            digest.update(part)
            payload.append(part)
            size += len(part)
    header = SegmentHeader(
        kind=draft.kind, pipeline=key, wal_id=wal_id, epoch=epoch, index=index, previous_hash=previous_hash, groups=tuple(groups),
        offsets=tuple(draft.offsets), checkpoints=tuple(draft.checkpoints), payload_sha256=digest.hexdigest(), payload_bytes=size,
    )
    return _assemble(header, payload)


def _assemble(header: SegmentHeader, payload: Sequence[bytes | pa.Buffer]) -> SealedSegment:
    body = header.canonical
    if len(body) > HEADER_BYTES_MAX:
        raise InvalidRequest(
            f"the header of entry {header.epoch}:{header.index} would take {len(body)} bytes (at most {HEADER_BYTES_MAX}): "
            f"it names {len(header.offsets)} partitions and {len(header.checkpoints)} checkpoints; seal fewer at a time"
        )
    head = _PREFIX.pack(MAGIC, FORMAT, len(body)) + body
    head += _CRC.pack(zlib.crc32(head))
    chunks: list[bytes | pa.Buffer] = [head, _padding(len(head)), *payload]
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    size = sum(len(chunk) for chunk in chunks) + _FOOTER.size
    chunks.append(_FOOTER.pack(size, crc, FOOTER_MAGIC))
    return SealedSegment(header, tuple(chunks), size)


def schema_fingerprint(schema: pa.Schema) -> str:
    """32 hex digits. Equal fingerprints mean equal schemas; the same schema may have another one under another Arrow version."""
    return hashlib.sha256(schema.remove_metadata().serialize()).hexdigest()[:32]


def read_header(data: pa.Buffer | bytes, where: str) -> SegmentHeader:
    """The header of a segment, or of a header alone; `data` may hold more than the header.

    Raises DataCorruption naming `where`, ConfigurationError where a newer skipprd wrote it.
    """
    return _header_and_end(memoryview(data), where)[0]


def _header_and_end(view: memoryview, where: str) -> tuple[SegmentHeader, int]:
    if len(view) < _PREFIX.size:
        raise _broken(where, f"it ends after {len(view)} bytes, inside its first {_PREFIX.size}")
    magic, found, length = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise _broken(where, f"it starts with {magic!r}, not with {MAGIC!r}")
    if found > FORMAT:
        raise ConfigurationError(
            f"{where} has segment format {found}; this skipprd reads formats up to {FORMAT}: run the newer skipprd that wrote it"
        )
    end = _PREFIX.size + length
    if found == 0 or length > HEADER_BYTES_MAX or end + _CRC.size > len(view):
        raise _broken(where, f"format {found} with a header of {length} bytes in {len(view)} bytes")
    (crc,) = _CRC.unpack_from(view, end)
    if zlib.crc32(view[:end]) != crc:
        raise _broken(where, "the checksum of its header does not match")
    return decode_header(bytes(view[_PREFIX.size:end]), where), end + _CRC.size


class SegmentReader:
    """A segment over its bytes (a memory map or a buffer), which it keeps alive. Safe for several threads.

    Opening reads and checks the header only; `verify` reads everything.
    """

    def __init__(self, data: pa.Buffer, where: str) -> None:
        self.where = where
        self._data = data
        view = memoryview(data)
        self.header, end = _header_and_end(view, where)
        self._payload_at = _aligned(end)
        self._verified = False
        expected = self._payload_at + self.header.payload_bytes + _FOOTER.size
        if data.size != expected:
            raise _broken(where, f"its header promises {expected} bytes, it has {data.size}")
        for group in self.header.groups:
            if group.offset + group.length_bytes > self.header.payload_bytes:
                raise _broken(where, f"the group of {table_label(group.identifier)} reaches beyond the payload")

    @property
    def size_bytes(self) -> int:
        return int(self._data.size)

    def verify(self) -> None:
        """Check length, checksum and payload hash; remembered. Raises DataCorruption."""
        if self._verified:
            return
        view = memoryview(self._data)
        at = len(view) - _FOOTER.size
        size, crc, magic = _FOOTER.unpack_from(view, at)
        if magic != FOOTER_MAGIC or size != len(view):
            raise _broken(self.where, f"its footer says {size} bytes and {magic!r}; it has {len(view)} bytes")
        if zlib.crc32(view[:at]) != crc:
            raise _broken(self.where, "its checksum does not match its bytes")
        payload = view[self._payload_at:at]
        if hashlib.sha256(payload).hexdigest() != self.header.payload_sha256:
            raise _broken(self.where, "its payload is not the one its header names")
        self._verified = True

    def groups(self, identifier: Identifier) -> list[GroupMeta]:
        """The groups that feed the table, in order."""
        return [group for group in self.header.groups if group.identifier == identifier]

    def schema(self, group: GroupMeta) -> pa.Schema:
        """The schema of a group, without reading its rows. Raises DataCorruption."""
        try:
            with pa.ipc.open_stream(self._stream(group)) as reader:
                return reader.schema
        except (pa.ArrowInvalid, OSError) as error:
            raise _broken(self.where, f"the group of {table_label(group.identifier)} is not Arrow: {error}") from error

    def batches(self, identifier: Identifier) -> Iterator[pa.RecordBatch]:
        """Rows of the table in order, batch by batch; schemas may differ between groups. Raises DataCorruption."""
        for group in self.groups(identifier):
            yield from self.group_batches(group)

    def group_batches(self, group: GroupMeta) -> Iterator[pa.RecordBatch]:
        """Rows of one group. Raises DataCorruption where they are not Arrow, or not as many as the header says."""
        rows = 0
        try:
            with pa.ipc.open_stream(self._stream(group), options=_read_options(group.length_bytes)) as reader:
                for batch in reader:
                    rows += batch.num_rows
                    yield batch
        except (pa.ArrowInvalid, OSError) as error:
            raise _broken(self.where, f"the group of {table_label(group.identifier)} is not readable: {error}") from error
        if rows != group.rows:
            raise _broken(self.where, f"the group of {table_label(group.identifier)} has {rows} rows, its header says {group.rows}")

    def _stream(self, group: GroupMeta) -> pa.Buffer:
        return self._data.slice(self._payload_at + group.offset, group.length_bytes)


def _ipc_stream(identifier: Identifier, batches: Sequence[pa.RecordBatch], compression: str) -> pa.Buffer:
    schema = batches[0].schema
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=_threads(sum(batch.nbytes for batch in batches)))
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            if batch.schema != schema:
                raise InvalidRequest(f"batches of one group of {table_label(identifier)} differ in schema: {schema} and {batch.schema}")
            writer.write_batch(batch)
    return sink.getvalue()


def _threads(size_bytes: int) -> bool:
    """Whether compressing that much is worth handing it to other threads."""
    return size_bytes >= _THREADS_FROM_BYTES


def _read_options(size_bytes: int) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(use_threads=_threads(size_bytes))


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _padding(size: int) -> bytes:
    return bytes(_aligned(size) - size)


_REMEDY: Final = (
    "Restore the file from a backup of the disk; nothing that follows it in the log is read until then. Where there is none, move the "
    "pipeline's folder aside and run once with RESET_OFFSETS to read the source again"
)


def _broken(where: str, what: str) -> SegmentDamaged:
    return SegmentDamaged(f"segment {where} is damaged: {what}. {_REMEDY}")


def require_chain(previous_hash: str, header: SegmentHeader, where: str) -> None:
    """The entry continues the chain. Raises DataCorruption."""
    if header.previous_hash != previous_hash:
        raise DataCorruption(
            f"segment {where} follows the entry {header.previous_hash}, the log has {previous_hash} before it. {_REMEDY}"
        )
