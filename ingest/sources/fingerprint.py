"""What a file source remembers of a file's content, to know the file again after it grew, moved or was replaced.

The payload of checkpoint `file#{partition}` (authority `skippr.file`, kind `position`, payload_version 1) is 112 bytes, little-endian:

    u64 prefix_bytes    min(4096, size) when it was written
    32  prefix_sha256   of the first prefix_bytes
    u64 seek_byte       where the next record starts, for formats that can be read on by seeking; else 0
    u64 tail_end        bytes of the file whose content is certainly consumed (seek_byte, or the size of a finished container)
    u64 tail_bytes      min(4096, tail_end)
    32  tail_sha256     of the tail_bytes before tail_end
    u64 inode           of the file; with mtime_ns only a hint that tells a renamed file from a new one with the same bytes
    u64 mtime_ns        of the file when it was read

No path is in it (I10): inode numbers of another machine only mean that a file which was renamed while it was moved there counts as new.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import Final

from catalog.control.checkpoints import CheckpointEnvelope, CheckpointRow
from catalog.errors import ConfigurationError, DataCorruption

__all__ = ["AUTHORITY", "KIND", "PREFIX_BYTES_MAX", "FilePosition", "FileSeen", "read_seen"]

PREFIX_BYTES_MAX: Final = 4096
AUTHORITY: Final = "skippr.file"
KIND: Final = "position"
_VERSION: Final = 1
_LAYOUT: Final = struct.Struct("<Q32sQQQ32sQQ")
_U64: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file as one poll found it: its first bytes and what `fstat` said of the same open file."""

    path: str
    size_bytes: int
    mtime_ns: int
    inode: int
    head: bytes


def read_seen(path: str) -> FileSeen:
    """Open the file and take its first 4096 bytes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        head = _pread(descriptor, min(PREFIX_BYTES_MAX, status.st_size), 0)
    finally:
        os.close(descriptor)
    return FileSeen(path, status.st_size, status.st_mtime_ns, status.st_ino, head)


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far a file is consumed, and what it looked like. Fields as in the layout above; digests are raw bytes."""

    prefix_bytes: int
    prefix_sha256: bytes
    seek_byte: int
    tail_end: int
    tail_bytes: int
    tail_sha256: bytes
    inode: int
    mtime_ns: int

    @staticmethod
    def take(descriptor: int, head: bytes, seek_byte: int, tail_end: int) -> FilePosition:
        """Fingerprint of the open file consumed up to `tail_end`; `head` are its first bytes as read when it was opened."""
        status = os.fstat(descriptor)
        tail = _pread(descriptor, min(PREFIX_BYTES_MAX, tail_end), max(0, tail_end - PREFIX_BYTES_MAX))
        return FilePosition(
            len(head), hashlib.sha256(head).digest(), seek_byte, tail_end, len(tail), hashlib.sha256(tail).digest(),
            status.st_ino & _U64, status.st_mtime_ns & _U64,
        )

    def encode(self) -> bytes:
        """The whole checkpoint envelope."""
        payload = _LAYOUT.pack(
            self.prefix_bytes, self.prefix_sha256, self.seek_byte, self.tail_end, self.tail_bytes, self.tail_sha256,
            self.inode, self.mtime_ns,
        )
        return CheckpointEnvelope(AUTHORITY, KIND, _VERSION, payload).encode()

    @staticmethod
    def of_row(row: CheckpointRow) -> FilePosition:
        """Inverse of `encode`. Raises DataCorruption, ConfigurationError for a version of a newer skipprd."""
        envelope, where = row.envelope, row.stored.where
        if (envelope.authority, envelope.kind) != (AUTHORITY, KIND):
            raise DataCorruption(f"{where}: it belongs to {envelope.authority!r}, kind {envelope.kind!r}, not to a file source")
        if envelope.payload_version != _VERSION:
            raise ConfigurationError(
                f"{where}: payload_version {envelope.payload_version}; this skipprd reads version {_VERSION}: run the skipprd that wrote it"
            )
        if len(envelope.payload) != _LAYOUT.size:
            raise DataCorruption(f"{where}: a file position has {_LAYOUT.size} bytes, this one {len(envelope.payload)}")
        return FilePosition(*_LAYOUT.unpack(envelope.payload))

    def same_prefix(self, seen: FileSeen) -> bool:
        """Whether the file starts with the bytes this position was taken from."""
        if len(seen.head) < self.prefix_bytes:
            return False
        return hashlib.sha256(seen.head[:self.prefix_bytes]).digest() == self.prefix_sha256

    def same_tail(self, seen: FileSeen) -> bool:
        """Whether the file still has the consumed bytes right before `tail_end`: one read of at most 4096 bytes. Raises OSError."""
        if seen.size_bytes < self.tail_end:
            return False
        if self.tail_end <= len(seen.head):
            tail = seen.head[self.tail_end - self.tail_bytes:self.tail_end]
        else:
            descriptor = os.open(seen.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                tail = _pread(descriptor, self.tail_bytes, self.tail_end - self.tail_bytes)
            finally:
                os.close(descriptor)
        return hashlib.sha256(tail).digest() == self.tail_sha256


def _pread(descriptor: int, size_bytes: int, offset: int) -> bytes:
    """Up to `size_bytes` at `offset`; less only at the end of the file."""
    parts: list[bytes] = []
    while size_bytes > 0:
        part = os.pread(descriptor, size_bytes, offset)
        if not part:
            break
        parts.append(part)
        size_bytes -= len(part)
        offset += len(part)
    return b"".join(parts)
