"""`Log`: one pipeline's write-ahead log on a disk.

Appending follows one order that never changes: check the epoch, merge the positions with the running ones (rule 24), seal, write and
fsync, move into place without replacing, fsync the folder (now it is *committed*), publish its rows (rule 10). Only then does `append`
return, and only then may the caller acknowledge.

A write or fsync error ends the writer: nothing is tried again on the same file, nothing more is appended, and the next start recovers
what is there. An index is never used for a second entry.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from catalog import failpoint
from catalog.clock import Clock
from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.control.rows import EntryRef
from catalog.errors import DataCorruption, Fenced, Internal, InvalidRequest, SkipprError, Unavailable
from catalog.keys import PipelineKey
from catalog.lake import Identifier
from ingest.wal.disk import Base, Control, LogFolder, read_control, write_control
from ingest.wal.filesystem import FileSystem, FolderLock, disk_error, disk_errors
from ingest.wal.publication import RunningOffsets, publish_entry
from ingest.wal.recovery import LiveEntry, Recovered, recover
from ingest.wal.segment import SealedSegment, SegmentDraft, SegmentHeader, SegmentReader, seal

__all__ = ["Appended", "Log", "take_lock"]

_LOG = logging.getLogger(__name__)
_READERS_MAX: Final = 2
_NOT_ACKNOWLEDGED: Final = "the log stops, nothing of its last entry is acknowledged: "


@dataclass(frozen=True, slots=True)
class Appended:
    """An entry that is committed and published."""

    ref: EntryRef
    header: SegmentHeader
    size_bytes: int


def take_lock(filesystem: FileSystem, folder: Path, clock: Clock) -> FolderLock:
    """Rule 18: the exclusive lock on the pipeline's folder, before anything in it is looked at."""
    return filesystem.lock(folder, clock)


class Log:
    """An open log; it holds the folder's lock until `close`.

    Thread safe for one appending thread, one compacting thread (`headers`, `batches`, `reclaim`) and any number that ask for figures.
    No lock is held during I/O that another of them waits for.
    """

    def __init__(
        self, filesystem: FileSystem, folder: LogFolder, offsets: OffsetStore, clock: Clock, jitter: random.Random, lock: FolderLock,
        recovered: Recovered,
    ) -> None:
        self._filesystem, self._folder, self._offsets, self._clock, self._jitter = filesystem, folder, offsets, clock, jitter
        self._lock = lock
        self._key, self._wal_id, self._epoch = recovered.control.pipeline, recovered.control.wal_id, recovered.control.epoch
        self._appending, self._reclaiming, self._state = threading.Lock(), threading.Lock(), threading.Lock()
        self._running = RunningOffsets(offsets)
        self._failure: SkipprError | None = None
        self._closed = False
        # What follows belongs to `_state`.
        self._base, self._fed = recovered.control.base, dict(recovered.control.fed)
        self._entries: OrderedDict[int, LiveEntry] = OrderedDict((e.header.index, e) for e in recovered.entries)
        self._backlog_bytes = sum(entry.size_bytes for entry in recovered.entries)
        self._head = self._base
        if recovered.entries:
            header = recovered.entries[-1].header
            self._head = Base(header.epoch, header.index, header.entry_hash)
        self._published = self._head.index
        self._readers: OrderedDict[int, SegmentReader] = OrderedDict()

    @staticmethod
    def open(
        filesystem: FileSystem, folder: Path, key: PipelineKey, offsets: OffsetStore, clock: Clock, *, resetting: bool = False,
        jitter: random.Random | None = None,
    ) -> Log:
        """Lock, recover and open the log in `folder` (`LogFolder.of(data_dir, key).path`); a new one where there is none.

        `resetting`: the caller is about to call `reset`, so rows of another log do not stop it. On return every entry is durable and
        published. Raises Conflict (locked), DataCorruption, ConfigurationError, Fenced, Unavailable, OutcomeUnknown.
        """
        place, random_ = LogFolder(folder), jitter or random.Random()
        with disk_errors("locking", folder):
            lock = take_lock(filesystem, folder, clock)
        try:
            recovered = recover(filesystem, place, key, offsets, clock, random_, resetting=resetting)
            log = Log(filesystem, place, offsets, clock, random_, lock, recovered)
        except BaseException:
            lock.close()
            raise
        _LOG.info(
            "log open: %d entries wait for their tables", log.published_index() - log.base,
            extra={"pipeline": str(key), "wal_id": log.wal_id, "epoch": log.epoch, "index": log.published_index()},
        )
        return log

    @property
    def key(self) -> PipelineKey:
        return self._key

    @property
    def wal_id(self) -> str:
        """The log's name (rule 11)."""
        return self._wal_id

    @property
    def epoch(self) -> int:
        """Raised at each open; entries appended now carry it."""
        return self._epoch

    @property
    def base(self) -> int:
        """Index of the last reclaimed entry, 0 where none is."""
        with self._state:
            return self._base.index

    @property
    def backlog_bytes(self) -> int:
        """Bytes of entries that are not reclaimed."""
        with self._state:
            return self._backlog_bytes

    def published_index(self) -> int:
        """Index of the last published entry: what may be compacted and shown (rule 10)."""
        with self._state:
            return self._published

    def running(self, namespace: str, partition: str) -> OffsetPayload:
        """Position of the partition behind the last entry; zero where it has none. For the appending thread."""
        return self._running.position(namespace, partition)[0]

    # ---- appending

    def append(self, draft: SegmentDraft) -> Appended:
        """Commit and publish one entry; on return it is durable and the caller may acknowledge.

        InvalidRequest: the draft cannot be an entry; nothing happened. After any other error the log takes nothing more, and nothing of
        the draft may be acknowledged or appended again: whether it is in the log is found out by the next start. Raises Fenced,
        Unavailable, OutcomeUnknown, DataCorruption, ConfigurationError (no rights).
        """
        with self._appending:
            self._check_usable()
            if not draft.offsets and not draft.checkpoints and not any(b.num_rows for _, _, batches in draft.groups for b in batches):
                raise InvalidRequest("an entry needs rows, positions or checkpoints: this one has none")
            with self._last_error():
                self._check_epoch()
            sealed = self._seal(draft)
            with self._last_error():
                self._commit(sealed)
                self._publish(sealed.header)
            return Appended(sealed.header.ref, sealed.header, sealed.size_bytes)

    @contextmanager
    def _last_error(self) -> Iterator[None]:
        """After an error inside the log takes nothing more."""
        try:
            yield
        except SkipprError as error:
            self._failure = error
            raise
        except OSError as error:
            self._failure = disk_error(error, _NOT_ACKNOWLEDGED + "writing", self._folder.segments)
            raise self._failure from error
        except BaseException as error:
            self._failure = Internal(f"an append was interrupted by {error!r}")
            raise

    def reset(self) -> Appended | None:
        """Append an entry of kind reset: every row starts its next claim, positions at zero. None where the pipeline has no rows.

        Checkpoints keep what they hold, but come under this log: a row of a lost log would refuse every later entry.
        """
        rows = [OffsetUpdate(row.namespace, row.partition, OffsetPayload.ZERO) for row in self._offsets.offsets()]
        kept = [CheckpointUpdate(row.logical_key, row.stored.payload) for row in self._offsets.checkpoints()]
        return self.append(SegmentDraft((), rows, kept, kind="reset")) if rows or kept else None

    def _seal(self, draft: SegmentDraft) -> SealedSegment:
        with self._state:
            head = self._head
        return seal(
            self._running.merged(draft), key=self._key, wal_id=self._wal_id, epoch=self._epoch, index=head.index + 1,
            previous_hash=head.entry_hash,
        )

    def _commit(self, sealed: SealedSegment) -> None:
        header = sealed.header
        partial, target = self._folder.partial(header.index), self._folder.segment(header.index)
        try:
            self._write(partial, sealed)
        except OSError as error:
            self._drop(partial)
            raise disk_error(error, _NOT_ACKNOWLEDGED + "writing", partial) from error
        try:
            self._filesystem.move_new(partial, target)
        except FileExistsError as error:
            raise Fenced(
                f"{target} exists already: another writer works in {self._folder.path}. Stop both, find out why the lock did not keep "
                "them apart (a network file system?), then start one"
            ) from error
        except OSError as error:
            raise disk_error(error, _NOT_ACKNOWLEDGED + "moving into place", target) from error
        failpoint.hit("wal.segment.linked")
        with disk_errors(_NOT_ACKNOWLEDGED + "making durable", target):
            self._filesystem.sync_folder(self._folder.segments)
        self._running.sealed(header)
        with self._state:
            self._entries[header.index] = LiveEntry(header, sealed.size_bytes)
            self._backlog_bytes += sealed.size_bytes
            self._head = Base(header.epoch, header.index, header.entry_hash)
        failpoint.hit("wal.segment.committed")

    def _write(self, partial: Path, sealed: SealedSegment) -> None:
        try:
            file = self._filesystem.create(partial)
        except FileExistsError as error:
            raise Fenced(f"{partial} exists already: another writer works in {self._folder.path}. Stop both, then start one") from error
        try:
            file.write(sealed.chunks)
            failpoint.hit("wal.segment.written")
            file.sync()
        finally:
            file.close()
        failpoint.hit("wal.segment.fsynced")

    def _drop(self, partial: Path) -> None:
        """Free the space of a file that failed. Not needed: the next start removes it too."""
        try:
            self._filesystem.unlink(partial)
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.warning("%s could not be removed (%s); the next start removes it", partial, error)

    def _publish(self, header: SegmentHeader) -> None:
        publish_entry(self._offsets, header, log_base=self.base, clock=self._clock, jitter=self._jitter)
        with self._state:
            self._published = header.index
        failpoint.hit("wal.segment.published")
        _LOG.debug(
            "entry published",
            extra={
                "pipeline": str(self._key), "wal_id": self._wal_id, "epoch": header.epoch, "index": header.index,
                "rows": sum(group.rows for group in header.groups), "size_bytes": header.payload_bytes,
            },
        )

    def _check_usable(self) -> None:
        if self._closed:
            raise Internal(f"the log of {self._key} is closed")
        if self._failure is not None:
            kind = type(self._failure) if isinstance(self._failure, Fenced | DataCorruption | Internal) else Unavailable
            raise kind(f"the log of {self._key} takes nothing more since an error; start again. The error: {self._failure}")

    def _check_epoch(self) -> None:
        """Nobody opened this log after us."""
        self._lock.verify()
        control = read_control(self._filesystem, self._folder)
        if control is None or (control.wal_id, control.epoch) != (self._wal_id, self._epoch):
            found = "is gone" if control is None else f"names log {control.wal_id} in epoch {control.epoch}"
            raise Fenced(
                f"{self._folder.control} {found}; this process writes log {self._wal_id} in epoch {self._epoch}: another writer took over. "
                "Stop both, then start one"
            )

    # ---- compacting

    def headers(self, after: int = 0, upto: int | None = None) -> list[SegmentHeader]:
        """Headers of the published entries with after < index <= upto that are not reclaimed, in order."""
        last = self.published_index() if upto is None else min(upto, self.published_index())
        with self._state:
            return [entry.header for index, entry in self._entries.items() if after < index <= last]

    def schemas(self, index: int, identifier: Identifier) -> list[pa.Schema]:
        """Schemas of the table's rows in one entry, without reading rows. Raises as `batches`."""
        reader = self._reader(index)
        return [reader.schema(group) for group in reader.groups(identifier)]

    def batches(self, index: int, identifier: Identifier) -> Iterator[pa.RecordBatch]:
        """Rows of the table in one entry, in order, straight from the file; readable to their end whatever is reclaimed meanwhile.

        Raises Internal for an entry that is not there, DataCorruption, Unavailable.
        """
        return self._reader(index).batches(identifier)

    def _reader(self, index: int) -> SegmentReader:
        with self._state:
            reader = self._readers.get(index)
            known = index in self._entries
        if not known:
            raise Internal(f"entry {index} of log {self._wal_id} is reclaimed or not committed")
        if reader is None:
            path = self._folder.segment(index)
            with disk_errors("reading", path):
                reader = SegmentReader(self._filesystem.map(path), str(path))
            with self._state:
                self._readers[index] = reader
                while len(self._readers) > _READERS_MAX:
                    self._readers.popitem(last=False)
        return reader

    def feeds(self, identifier: Identifier) -> int:
        """The highest index that fed the table, reclaimed or not; 0 where none did."""
        with self._state:
            live = (index for index, entry in reversed(self._entries.items()) if entry.header.feeds(identifier))
            return next(live, self._fed.get(identifier, 0))

    @property
    def fed(self) -> Mapping[Identifier, int]:
        """Per table the highest reclaimed index that fed it (rule 13)."""
        with self._state:
            return dict(self._fed)

    def reclaim(self, upto: int) -> None:
        """Give back the entries up to `upto`, all of which every table they fed holds (rule 13: the caller has checked the marks).

        Durable order: control file, then the log's row, so that a reader that misses a file finds the base above it; then the files.
        Raises Internal for an entry that is not published, Fenced, Unavailable, OutcomeUnknown.
        """
        with self._reclaiming, disk_errors("reclaiming entries in", self._folder.segments):
            if upto <= self.base:
                return
            if upto > self.published_index():
                raise Internal(f"entry {upto} of log {self._wal_id} is not published, so it cannot be reclaimed (rule 10)")
            self._check_epoch()
            with self._state:
                gone = [entry for index, entry in self._entries.items() if index <= upto]
                fed = dict(self._fed)
            for entry in gone:
                fed.update((group.identifier, entry.header.index) for group in entry.header.groups)
            last = gone[-1].header
            base = Base(last.epoch, last.index, last.entry_hash)
            write_control(self._filesystem, self._folder, Control(self._key, self._wal_id, self._epoch, base, fed))
            failpoint.hit("wal.reclaim.based")
            with self._state:
                self._base, self._fed = base, fed
                for entry in gone:
                    del self._entries[entry.header.index]
                    self._readers.pop(entry.header.index, None)
                self._backlog_bytes -= sum(entry.size_bytes for entry in gone)
            self._offsets.set_log_base(self._wal_id, upto)
            failpoint.hit("wal.reclaim.row")
            self._remove([entry.header.index for entry in gone])

    def _remove(self, indexes: list[int]) -> None:
        for index in indexes:
            with suppress(FileNotFoundError):
                self._filesystem.unlink(self._folder.segment(index))
            failpoint.hit("wal.reclaim.unlinked")
        self._filesystem.sync_folder(self._folder.segments)
        failpoint.hit("wal.reclaim.synced")

    def close(self) -> None:
        """Give the folder's lock up; idempotent. What was appended stays as it is."""
        self._closed = True
        self._lock.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
