"""Source Stdin: one stream, read to its end.

Without an id each run is a partition of its own, named `run-{random}`: nothing can tell whether a stream was seen before. With an id the
stream is partition `{id}`, and a run resumes it: the stream has to be sent again from its start, its first bytes must be those recorded,
and the records the log holds already are passed over. What follows them is new, so `cat growing.log | skipprd sync --stdin-id growing`
reads on. Another beginning is refused, for it would be taken for read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import select
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from catalog.control.checkpoints import CheckpointEnvelope, CheckpointRow, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore
from catalog.errors import ConfigurationError, DataCorruption
from ingest.budget import Stopped
from ingest.decode import open_decoder
from ingest.decode.base import DecodedStream
from ingest.settings import StdinSourceSettings
from ingest.sources.base import Partition
from ingest.sources.fingerprint import PREFIX_BYTES_MAX
from ingest.sources.units import SourceUnit

__all__ = ["StdinSource"]

NAMESPACE: Final = "stdin"
_AUTHORITY: Final = "skippr.stdin"
_KIND: Final = "prefix"
_VERSION: Final = 1
_GATHER_S: Final = 0.05
"""A block is handed on when nothing came for this long, so that a slow stream is not held back."""
_WAIT_S: Final = 0.1


class _Bytes(io.RawIOBase):
    """Standard input as blocks: short when the stream pauses, b"" at its end. `interrupt` from any thread ends a read with Stopped."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._descriptor: int | None = None
        with contextlib.suppress(OSError, AttributeError, ValueError):  # a stream in memory has none
            self._descriptor = stream.fileno()
        self.interrupted = False
        self._pushed = b""
        self.consumed = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[:len(data)] = data
        return len(data)

    def peek(self, least: int, most: int) -> bytes:
        """The first bytes, which `read` will give again: at least `least` where there are as many, at most `most`."""
        least = max(1, least)
        parts = self._pushed
        while len(parts) < most and (more := self._some(most - len(parts), None if len(parts) < least else _GATHER_S)):
            parts += more
        self._pushed = parts
        return parts

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; gathers small pieces. Raises Stopped."""
        size = 1 << 20 if size < 0 else size
        first = self._pushed[:size]
        self._pushed = self._pushed[size:]
        parts = [first] if first else [self._some(size, None)]
        total = len(parts[0])
        while parts[-1] and total < size:
            parts.append(self._some(size - total, _GATHER_S))
            total += len(parts[-1])
        self.consumed += total
        return b"".join(parts)

    def _some(self, size: int, patience_s: float | None) -> bytes:
        """What one read gives; b"" at the end, or when nothing came within `patience_s`."""
        if self._descriptor is None:
            return self._stream.read(size)
        until = None if patience_s is None else time.monotonic() + patience_s
        while not self.interrupted:
            wait_s = _WAIT_S if until is None else max(0.0, min(_WAIT_S, until - time.monotonic()))
            if select.select([self._descriptor], [], [], wait_s)[0]:
                return os.read(self._descriptor, min(size, 1 << 20))
            if until is not None and time.monotonic() >= until:
                return b""
        raise Stopped


@dataclass(frozen=True, slots=True)
class _Prefix:
    length: int
    sha256: bytes

    @staticmethod
    def of_row(row: CheckpointRow) -> _Prefix:
        envelope = row.envelope
        if (envelope.authority, envelope.kind) != (_AUTHORITY, _KIND) or len(envelope.payload) != 40:
            raise DataCorruption(f"{row.stored.where}: it is no prefix of a stdin source")
        if envelope.payload_version != _VERSION:
            raise ConfigurationError(
                f"{row.stored.where}: payload_version {envelope.payload_version}; this skipprd reads version {_VERSION}: "
                "run the skipprd that wrote it"
            )
        return _Prefix(int.from_bytes(envelope.payload[:8], "little"), envelope.payload[8:])

    def encode(self) -> bytes:
        return CheckpointEnvelope(_AUTHORITY, _KIND, _VERSION, self.length.to_bytes(8, "little") + self.sha256).encode()


class StdinSource:
    """See the module. Not thread safe, `interrupt` excepted."""

    def __init__(self, settings: StdinSourceSettings, offsets: OffsetStore, stream: BinaryIO | None = None) -> None:
        self._settings = settings
        self._bytes = _Bytes(stream if stream is not None else sys.stdin.buffer)
        self._polled = False
        self._position = OffsetPayload.ZERO
        self._prefix: _Prefix | None = None
        if settings.stdin_id is None:
            self.name = f"run-{uuid.uuid4().hex}"
            return
        self.name = settings.stdin_id
        if not self.name or len(self.name) > 512:
            raise ConfigurationError(f"--stdin-id {self.name[:80]!r} is empty or longer than 512 characters: give the stream a short name")
        row = offsets.read(NAMESPACE, self.name)
        checkpoint = offsets.read_checkpoint(f"{NAMESPACE}#{self.name}")
        if row is not None:
            self._position = row.payload
            if row.payload != OffsetPayload.ZERO and checkpoint is not None:
                self._prefix = _Prefix.of_row(checkpoint)

    @property
    def finite(self) -> bool:
        """Nothing follows the end of the stream."""
        return True

    @property
    def new_partitions(self) -> tuple[str, ...]:
        """The partition that exists for this run only; empty with an id."""
        return (self.name,) if self._settings.stdin_id is None else ()

    def poll(self) -> list[Partition]:
        """The stream, once. Raises ConfigurationError where it does not begin as recorded."""
        if self._polled:
            return []
        self._polled = True
        head = self._bytes.peek(self._prefix.length if self._prefix else 1, PREFIX_BYTES_MAX)
        if self._prefix is not None:
            length = self._prefix.length
            if len(head) < length or hashlib.sha256(head[:length]).digest() != self._prefix.sha256:
                raise ConfigurationError(
                    f"standard input does not begin like the stream that --stdin-id {self.name!r} names (its first {length} bytes "
                    f"differ, {self._position.line} records of it are read): send that stream again from its start, give this one "
                    "another id, or none"
                )
        if not head:
            return []
        self._prefix = _Prefix(len(head), hashlib.sha256(head).digest())
        return [Partition(NAMESPACE, self.name, f"stdin:{self.name}", self._position, 0)]

    def open(self, partition: Partition) -> _StdinReader:
        """The stream behind what was consumed."""
        prefix = CheckpointUpdate(f"{NAMESPACE}#{self.name}", self._prefix.encode()) if self._prefix and self._settings.stdin_id else None
        return _StdinReader(self._bytes, partition, self._settings, prefix)

    def interrupt(self) -> None:
        """End a waiting read. Safe from any thread and in a signal handler."""
        self._bytes.interrupted = True

    def close(self) -> None:
        """Standard input is not ours to close."""


class _StdinReader:
    def __init__(self, stream: _Bytes, partition: Partition, settings: StdinSourceSettings, prefix: CheckpointUpdate | None) -> None:
        self._bytes = stream
        self._partition = partition
        self._settings = settings
        self._prefix = prefix
        self._stream: DecodedStream | None = None

    def units(self) -> Iterator[SourceUnit]:
        stream = self._stream = open_decoder(
            cast(BinaryIO, self._bytes), name="", uri=self._partition.uri, settings=self._settings.decode,
            start_record=self._partition.position.line, at_eof_complete=True,
        )
        line = self._partition.position.line
        for raw in stream.units():
            line = raw.first_record + raw.records
            yield SourceUnit(raw, OffsetPayload(max(0, raw.byte_end), line, False), self._prefix)
        if self._settings.stdin_id is None:
            yield SourceUnit(None, OffsetPayload(self._bytes.consumed, line, True), None)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
