"""What a log does before it goes on after any end of the process that wrote it.

The lock is held already (rule 18). Then, in this order:

1. fsync every entry and every folder, before anything that is seen is counted (rule 19);
2. read the control file, or make a new log where there is none and nothing that looks like a lost one;
3. scan the entries above the base: no gap, good checksums, one chain of hashes;
4. hold what the log has against what the rows say: nothing may be published that the log does not hold;
5. raise the epoch;
6. publish every entry again: idempotent, and so it writes rows that are missing (rule 23);
7. only then remove what a crash left: entries at or below the base, files never moved into place.

A file that was never moved into place was promised to nobody: its rows come from the source again, so it is removed. The last
entry, if its bytes are damaged *and* it was never published, is set aside as `.broken`: it was acknowledged to nobody either.
Damage anywhere else is DataCorruption.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from catalog import failpoint
from catalog.clock import Clock
from catalog.control.offsets import LogRow, OffsetStore
from catalog.control.rows import StoredRow
from catalog.errors import ConfigurationError, DataCorruption, Fenced
from catalog.keys import PipelineKey
from ingest.wal.disk import Base, Control, LogFolder, read_control, write_control
from ingest.wal.filesystem import FileSystem, disk_errors
from ingest.wal.publication import publish_entry
from ingest.wal.segment import SegmentDamaged, SegmentHeader, SegmentReader, require_chain

__all__ = ["LiveEntry", "Recovered", "recover", "sync_entries", "sync_everything"]

_LOG = logging.getLogger(__name__)
_RESET_HINT = "and run once with RESET_OFFSETS, which reads the source again from its start"


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """A committed entry that is not reclaimed."""

    header: SegmentHeader
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log ready to go on: `entries` are those above the base, in order, all of them durable and published."""

    control: Control
    entries: tuple[LiveEntry, ...]


def recover(
    filesystem: FileSystem, folder: LogFolder, key: PipelineKey, offsets: OffsetStore, clock: Clock, jitter: random.Random, *,
    resetting: bool = False,
) -> Recovered:
    """Run the steps above. The caller holds the folder's lock.

    `resetting` (RESET_OFFSETS) goes on where rows of another log would otherwise stop it: the caller then appends a reset before
    anything else. Raises DataCorruption, ConfigurationError, Fenced, Unavailable, OutcomeUnknown.
    """
    with disk_errors("recovering", folder.path):
        return _recover(filesystem, folder, key, offsets, clock, jitter, resetting)


def _recover(
    filesystem: FileSystem, folder: LogFolder, key: PipelineKey, offsets: OffsetStore, clock: Clock, jitter: random.Random, resetting: bool,
) -> Recovered:
    filesystem.make_folder(folder.segments)
    sync_everything(filesystem, folder)
    failpoint.hit("recovery.synced")
    names = filesystem.list(folder.segments)
    control = _control(filesystem, folder, key, names, jitter)
    row = offsets.read_log(control.wal_id)
    _check_base(folder, control, row)
    entries = _scan(filesystem, folder, control, names, row)
    _check_published(folder, control, entries, row)
    if control.epoch == 0 and not resetting:
        _check_rows(folder, control, Base(), offsets)
    control = replace(control, epoch=control.epoch + 1)
    write_control(filesystem, folder, control)
    failpoint.hit("recovery.epoch_raised")
    head = _head(control, entries)
    for entry in entries:
        publish_entry(
            offsets, entry.header, log_base=control.base.index, clock=clock, jitter=jitter, head=(head.epoch, head.index),
        )
        failpoint.hit("recovery.published")
    if not resetting:
        _check_rows(folder, control, head, offsets)
    _clean(filesystem, folder, control, offsets, names)
    return Recovered(control, tuple(entries))


def sync_everything(filesystem: FileSystem, folder: LogFolder) -> None:
    """Rule 19: make every entry and every name durable that this process is about to rely on."""
    sync_entries(filesystem, folder)
    for path in (folder.path, *list(folder.path.parents)[:3]):  # up to DATA_DIR
        filesystem.sync_folder(path)
    for path in list(folder.path.parents)[3:4]:
        with suppress(PermissionError):  # the folder around DATA_DIR may belong to somebody else, who then made DATA_DIR durable
            filesystem.sync_folder(path)


def sync_entries(filesystem: FileSystem, folder: LogFolder) -> None:
    """The entries and their names. Without it: a process died between moving an entry into place and syncing the folder, its successor
    publishes what it sees, the power goes, and rows are past an entry that is nowhere."""
    for name in filesystem.list(folder.segments):
        if LogFolder.index_of(name) is not None:
            filesystem.sync_file(folder.segments / name)
    filesystem.sync_folder(folder.segments)


def _control(filesystem: FileSystem, folder: LogFolder, key: PipelineKey, names: list[str], jitter: random.Random) -> Control:
    control = read_control(filesystem, folder)
    if control is None:
        if any(LogFolder.index_of(name) is not None for name in names):
            raise DataCorruption(
                f"{folder.segments} holds log entries, but {folder.control} is missing: restore it from a backup of the disk. Where there "
                f"is none, move {folder.path} aside {_RESET_HINT}"
            )
        return Control(key, uuid.UUID(int=jitter.getrandbits(128), version=4).hex, 0)
    if control.pipeline != key:
        raise ConfigurationError(
            f"{folder.path} holds the log of pipeline {control.pipeline}, not of {key}: give {key} another DATA_DIR or another name"
        )
    return control


def _scan(
    filesystem: FileSystem, folder: LogFolder, control: Control, names: list[str], row: LogRow | None,
) -> list[LiveEntry]:
    found = sorted(index for name in names if (index := LogFolder.index_of(name)) is not None and index > control.base.index)
    entries: list[LiveEntry] = []
    expected, before = control.base.index + 1, control.base
    for index in found:
        path = folder.segment(index)
        if index != expected:
            raise DataCorruption(
                f"{folder.segment(expected)} is missing, later entries of the log are there: restore it from a backup of the disk. Where "
                f"there is none, move {folder.path} aside {_RESET_HINT}"
            )
        try:
            entry = _read_entry(filesystem, folder, control, before, index)
        except SegmentDamaged as error:
            if index != found[-1] or index <= _published(control, row):
                raise
            with disk_errors("setting aside", path):
                filesystem.replace(path, folder.broken(index))
            _LOG.warning("entry %d is damaged and was never published: set aside as %s (%s)", index, folder.broken(index), error)
            break
        entries.append(entry)
        expected, before = index + 1, Base(entry.header.epoch, index, entry.header.entry_hash)
    return entries


def _published(control: Control, row: LogRow | None) -> int:
    return control.base.index if row is None else row.published


def _read_entry(filesystem: FileSystem, folder: LogFolder, control: Control, before: Base, index: int) -> LiveEntry:
    path = folder.segment(index)
    with disk_errors("reading", path):
        data = filesystem.map(path)
    reader = SegmentReader(data, str(path))
    reader.verify()
    header = reader.header
    found = (header.pipeline, header.wal_id, header.index)
    if found != (control.pipeline, control.wal_id, index):
        raise DataCorruption(
            f"{path} is entry {header.index} of log {header.wal_id} of pipeline {header.pipeline}; entry {index} of log {control.wal_id} "
            f"of {control.pipeline} belongs there: it was copied from elsewhere; restore the right one from a backup"
        )
    require_chain(before.entry_hash, header, str(path))
    if not before.epoch <= header.epoch <= control.epoch:
        raise DataCorruption(
            f"{path} has epoch {header.epoch}, the entry before it {before.epoch}, {folder.control} {control.epoch}: they are not of one "
            "time; restore them together from a backup"
        )
    return LiveEntry(header, reader.size_bytes)


def _head(control: Control, entries: list[LiveEntry]) -> Base:
    if not entries:
        return control.base
    header = entries[-1].header
    return Base(header.epoch, header.index, header.entry_hash)


def _check_base(folder: LogFolder, control: Control, row: LogRow | None) -> None:
    """Control file and rows are of one time; and rule 23: rows that no header tells any more are not made up."""
    if row is None:
        if control.base.index:
            raise DataCorruption(
                f"the log in {folder.path} begins at entry {control.base.index + 1}, and the offset store has no row for log "
                f"{control.wal_id}: offsets of reclaimed entries are told nowhere. Restore the offset store (skippr.db) that belongs to "
                f"this DATA_DIR. Where there is none, move {folder.path} aside {_RESET_HINT}"
            )
    elif row.base > control.base.index or row.published < control.base.index:
        raise DataCorruption(
            f"the offset store says that log {control.wal_id} is reclaimed through entry {row.base} and published through {row.published}, "
            f"{folder.control} says reclaimed through {control.base.index}: they are not of one time; restore them together from a backup"
        )


def _check_published(folder: LogFolder, control: Control, entries: list[LiveEntry], row: LogRow | None) -> None:
    """I2: what is published, the log holds."""
    head = _head(control, entries).index
    if row is not None and row.published > head:
        raise DataCorruption(
            f"the offset store says that log {control.wal_id} is published through entry {row.published}, but {folder.segments} ends at "
            f"entry {head}: entries {head + 1} to {row.published} are lost. Restore them from a backup of the disk. Where there is none, "
            f"move {folder.path} aside {_RESET_HINT}"
        )


def _check_rows(folder: LogFolder, control: Control, head: Base, offsets: OffsetStore) -> None:
    """I2, per row: no row is another log's, and none is ahead of this one."""
    for row in _rows(offsets):
        stamp = row.stamp
        if stamp.wal_id is None or stamp.epoch is None or stamp.index is None:
            continue
        if stamp.wal_id != control.wal_id:
            raise Fenced(
                f"{row.where} was published from {stamp}, but {folder.path} holds another log or none: the folder of that log was lost, "
                "replaced, or is on another machine. Put it back; or run once with RESET_OFFSETS, which reads the source again from its "
                "start"
            )
        if (stamp.epoch, stamp.index) > (head.epoch, head.index):
            raise DataCorruption(
                f"{row.where} was published from {stamp}, but the log in {folder.path} ends at entry {head.epoch}:{head.index}: entries "
                f"are lost. Restore them from a backup of the disk. Where there is none, move {folder.path} aside {_RESET_HINT}"
            )


def _rows(offsets: OffsetStore) -> Iterator[StoredRow]:
    yield from (row.stored for row in offsets.offsets())
    yield from (row.stored for row in offsets.checkpoints())


def _clean(filesystem: FileSystem, folder: LogFolder, control: Control, offsets: OffsetStore, names: list[str]) -> None:
    """Remove what a crash left. Readers are told of the base before a file goes."""
    row = offsets.read_log(control.wal_id)
    if row is not None and row.base < control.base.index:
        offsets.set_log_base(control.wal_id, control.base.index)
    failpoint.hit("recovery.based")
    dead = [
        name for name in names
        if name.endswith(".seg.partial") or ((index := LogFolder.index_of(name)) is not None and index <= control.base.index)
    ]
    if not dead:
        return
    for name in dead:
        with suppress(FileNotFoundError):
            filesystem.unlink(folder.segments / name)
    failpoint.hit("recovery.unlinked")
    filesystem.sync_folder(folder.segments)
    _LOG.info("removed %d files that a crash left in %s", len(dead), folder.segments)
    failpoint.hit("recovery.cleaned")
