"""Source File: a file, a folder or a glob, read once or followed.

* What counts as the same file is decided in `ingest.sources.identity`; names and order come from `ingest.sources.listing`.
* Lines and delimited text that are not compressed are read on by seeking where they grew. Everything else (compressed files, JSON
  arrays, Parquet, Arrow) is a whole: closed at its end; where it grew all the same, it is read on after the records it had.
* While following, a whole is opened only once it stood still for `idle_close_ms` (it may still be being copied), and a last line
  without newline counts after that time. With --once both count at once.
* A file that vanishes between listing and opening is left out. One that cannot be read, or whose container is broken, fails alone: the
  run reads the others and ends with that error. While following it is tried again when it has changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.clock import Clock
from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore
from catalog.errors import ConfigurationError, SkipprError
from ingest.decode import open_decoder
from ingest.decode.base import DecodedStream, RawUnit
from ingest.settings import FileSourceSettings
from ingest.sources.base import Partition
from ingest.sources.fingerprint import PREFIX_BYTES_MAX, FilePosition, FileSeen, read_seen
from ingest.sources.identity import CHECKPOINT_KEY_PREFIX, NAMESPACE, Identities, Known
from ingest.sources.listing import Found, Listing
from ingest.sources.units import SourceUnit

__all__ = ["FileReader", "FileSource"]

_log = logging.getLogger("skippr.ingest.source")


@dataclass(slots=True)
class _Look:
    """What a file was like when it was last looked at, and whether that is settled until it changes."""

    stat: tuple[int, int, int]
    since_s: float
    settled: bool = False
    tail_waits: bool = False


@dataclass(frozen=True, slots=True)
class _Ready:
    base: str
    seen: FileSeen
    known: Known
    complete: bool


class FileSource:
    """See the module. `once`: one pass over what is there now. Not thread safe."""

    def __init__(self, settings: FileSourceSettings, offsets: OffsetStore, clock: Clock, *, once: bool) -> None:
        self._settings = settings
        self._clock = clock
        self._once = once
        self._idle_s = settings.idle_close_ms / 1000
        self._listing = Listing(settings.path, recursive=settings.recursive, own_folders=settings.own_folders)
        self._listing.check()
        self._identities = Identities(offsets, clock, None if once else self._idle_s)
        self._looks: dict[str, _Look] = {}
        self._ready: dict[str, _Ready] = {}
        self._broken: dict[str, SkipprError] = {}

    @property
    def finite(self) -> bool:
        """Files can always grow."""
        return False

    @property
    def incarnations(self) -> int:
        """Files found truncated or replaced, and read from their start again."""
        return self._identities.incarnations

    def poll(self) -> list[Partition]:
        """Files with something to read now, in the order of their names."""
        files = self._listing.files()
        self._ready.clear()
        self._broken.clear()
        order: list[str] = []
        to_settle: list[tuple[str, FileSeen]] = []
        for found in files:
            if not self._worth_a_look(found):
                continue
            order.append(found.name)
            try:
                if found.error is not None:
                    raise found.error
                to_settle.append((found.name, read_seen(found.path)))
            except FileNotFoundError:
                continue
            except OSError as error:
                self._broken[found.name] = _unreadable(found.path, error)
        partitions: dict[str, Partition] = {}
        for base, seen, known in self._identities.settle(to_settle, frozenset(found.name for found in files)):
            if (partition := self._partition(base, seen, known)) is not None:
                partitions[base] = partition
        for found in files:
            if found.name in self._broken:
                partitions[found.name] = Partition(NAMESPACE, found.name, _uri(found.path), OffsetPayload.ZERO, 0)
                self._looks[found.name] = _Look(_stat_of(found), self._clock.monotonic(), settled=True)
        return [partitions[base] for base in order if base in partitions]

    def open(self, partition: Partition) -> FileReader:
        """Raises ConfigurationError for a file that cannot be read, DataCorruption for a broken container."""
        if (error := self._broken.get(partition.name)) is not None:
            raise error
        ready = self._ready[partition.name]
        return FileReader(self, partition, ready.base, ready.seen, ready.known, ready.complete)

    def interrupt(self) -> None:
        """Reads of files do not wait."""

    def close(self) -> None:
        """Nothing is held between partitions."""

    def _worth_a_look(self, found: Found) -> bool:
        look = self._looks.get(found.name)
        now = self._clock.monotonic()
        if look is None or look.stat != _stat_of(found):
            self._looks[found.name] = _Look(_stat_of(found), now)
            return True
        return not look.settled or (look.tail_waits and now - look.since_s >= self._idle_s)

    def _partition(self, base: str, seen: FileSeen, known: Known) -> Partition | None:
        look = self._looks[base]
        position = known.payload
        if seen.size_bytes == 0 or (position.closed and seen.size_bytes == position.filesize):
            look.settled = True
            return None
        complete = self._once or (look.tail_waits and self._clock.monotonic() - look.since_s >= self._idle_s)
        if known.position is not None and known.position.seek_byte == seen.size_bytes:
            look.settled = True
            return None
        self._ready[known.name] = _Ready(base, seen, known, complete)
        return Partition(NAMESPACE, known.name, _uri(seen.path), position, seen.size_bytes)

    def stands_still(self, base: str, seen: FileSeen) -> bool:
        """Whether a file that has to be read as a whole is likely to be all there."""
        if self._once or time.time() - seen.mtime_ns / 1e9 >= self._idle_s:
            return True
        return self._clock.monotonic() - self._looks[base].since_s >= self._idle_s

    def finished(self, base: str, size_bytes: int, mtime_ns: int, inode: int, *, tail_waits: bool) -> None:
        """The file was read to its end as it was then."""
        look = self._looks[base]
        if look.stat == (size_bytes, mtime_ns, inode):
            look.settled, look.tail_waits = True, tail_waits
        else:
            self._looks[base] = _Look((size_bytes, mtime_ns, inode), self._clock.monotonic(), settled=True, tail_waits=tail_waits)

    def advance(self, known: Known, payload: OffsetPayload, position: FilePosition) -> None:
        """A unit was handed over."""
        self._identities.advance(known, payload, position)

    @property
    def settings(self) -> FileSourceSettings:
        return self._settings


class FileReader:
    """One open file. Not thread safe; `close` is idempotent."""

    def __init__(self, source: FileSource, partition: Partition, base: str, seen: FileSeen, known: Known, complete: bool) -> None:
        self._source = source
        self._partition = partition
        self._base = base
        self._seen = seen
        self._known = known
        self._complete = complete
        self._stream: DecodedStream | None = None

    def units(self) -> Iterator[SourceUnit]:
        """Units from the position on. A file that was replaced since the poll is left for the next one."""
        try:
            file = open(self._seen.path, "rb", buffering=0)  # noqa: SIM115 (the decoder closes it)
        except FileNotFoundError:
            _log.info("file %s vanished before it was opened", self._partition.uri)
            return
        except OSError as error:
            raise _unreadable(self._seen.path, error) from error
        with file:
            descriptor = file.fileno()
            head = os.pread(descriptor, PREFIX_BYTES_MAX, 0)
            if not head.startswith(self._seen.head[:len(head)]) or len(head) < len(self._seen.head):
                _log.info("file %s was replaced while it was opened", self._partition.uri)
                return
            seek_byte = self._known.position.seek_byte if self._known.position is not None else 0
            stream = self._stream = open_decoder(
                file, name=os.path.basename(self._seen.path), uri=self._partition.uri, settings=self._source.settings.decode,
                start_record=self._known.payload.line, start_byte=seek_byte or None, at_eof_complete=self._complete,
            )
            if not stream.appendable and not self._source.stands_still(self._base, self._seen):
                return
            yield from self._units(stream, descriptor, head)

    def _units(self, stream: DecodedStream, descriptor: int, head: bytes) -> Iterator[SourceUnit]:
        consumed = self._known.position.seek_byte if self._known.position is not None else 0
        try:
            for raw in stream.units():
                consumed = raw.byte_end if stream.appendable else 0
                yield self._unit(raw, raw.first_record + raw.records, descriptor, head, consumed, closed=False)
        except SkipprError:
            self._finished(descriptor, tail_waits=False)
            raise
        status = os.fstat(descriptor)
        if not stream.appendable:
            yield self._unit(None, self._known.payload.line, descriptor, head, 0, closed=True)
        self._finished(descriptor, tail_waits=stream.appendable and not self._complete and consumed < status.st_size)

    def _unit(
        self, raw: RawUnit | None, line: int, descriptor: int, head: bytes, seek_byte: int, *, closed: bool,
    ) -> SourceUnit:
        size = os.fstat(descriptor).st_size
        payload = OffsetPayload(size, line, closed)
        position = FilePosition.take(descriptor, head, seek_byte, size if closed else seek_byte)
        self._source.advance(self._known, payload, position)
        key = f"{CHECKPOINT_KEY_PREFIX}{self._known.name}"
        return SourceUnit(raw, payload, CheckpointUpdate(key, position.encode()))

    def _finished(self, descriptor: int, *, tail_waits: bool) -> None:
        status = os.fstat(descriptor)
        self._source.finished(self._base, status.st_size, status.st_mtime_ns, status.st_ino, tail_waits=tail_waits)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _stat_of(found: Found) -> tuple[int, int, int]:
    return (found.size_bytes, found.mtime_ns, found.inode)


def _uri(path: str) -> str:
    return Path(path).as_uri()


def _unreadable(path: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"file {path!r} cannot be read ({error.strerror or error}): give this user the right to read it, or take it out of File.path; "
        "the other files of the run are read"
    )
