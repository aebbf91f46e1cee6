"""The log on a real disk: what append, reopen and reclaim promise, and how it stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import failpoint
from catalog.clock import ManualClock
from catalog.control.checkpoints import CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.errors import ConfigurationError, Conflict, DataCorruption, Fenced, Internal, InvalidRequest, OutcomeUnknown, Unavailable
from catalog.items.memory import MemoryItemTable
from catalog.keys import PipelineKey
from ingest.compactor import CompactableLog
from ingest.wal.disk import LogFolder, read_control, write_control
from ingest.wal.filesystem import LocalFileSystem
from ingest.wal.log import Log
from ingest.wal.segment import SegmentDraft
from tests.unit.wal.samples import DEAD, KEY, TABLE, draft, numbers, rich_draft

OTHER = ("bronze", "other")


class Kill(BaseException):
    """The process dies here."""


class World:
    """A data folder and an offset table that outlive the logs opened over them."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = LogFolder.of(data_dir, KEY)
        self.items = MemoryItemTable()
        self.offsets = OffsetStore(self.items, KEY, ManualClock())
        self.filesystem = LocalFileSystem()

    def open(self, *, resetting: bool = False, key: PipelineKey = KEY) -> Log:
        return Log.open(self.filesystem, self.folder.path, key, self.offsets, ManualClock(), resetting=resetting)

    def ids(self, log: Log) -> list[int]:
        """Every id in the published entries, in order."""
        return [
            value for header in log.headers() for batch in log.batches(header.index, TABLE) for value in batch.column("id").to_pylist()
        ]

    def line(self, partition: str = "a.jsonl") -> int | None:
        row = self.offsets.read("files", partition)
        return None if row is None else row.payload.line


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def at() -> Iterator[Callable[[str, BaseException], None]]:
    """Raise an error at a failpoint, once."""

    def arm(name: str, error: BaseException) -> None:
        def handler(hit: str) -> None:
            if hit == name:
                failpoint.install(None)
                raise error
        failpoint.install(handler)

    yield arm
    failpoint.install(None)


def test_appended_rows_are_published_and_survive(world: World) -> None:
    with world.open() as log:
        first = log.append(draft(0, 3))
        second = log.append(draft(3, 4))
        assert (first.ref.index, second.ref.index, second.ref.epoch) == (1, 2, 1)
        assert second.header.previous_hash == first.ref.entry_hash
        assert world.line() == 7
        assert log.published_index() == 2
        assert log.running("files", "a.jsonl") == OffsetPayload(70, 7, False)
        assert log.backlog_bytes == sum(p.stat().st_size for p in world.folder.segments.iterdir())
        assert world.ids(log) == list(range(7))
        wal_id = log.wal_id
    with world.open() as log:
        assert (log.wal_id, log.epoch, log.published_index()) == (wal_id, 2, 2)
        assert world.ids(log) == list(range(7))
        assert log.append(draft(7, 1)).ref.epoch == 2


def test_a_second_writer_is_kept_out_and_told_who_holds_the_log(world: World) -> None:
    with world.open() as log:
        log.append(draft(0, 3))
        with pytest.raises(Conflict, match=str(os.getpid())):
            world.open()
        log.append(draft(3, 3))
    world.open().close()


def test_a_log_opened_by_another_writer_is_fenced(world: World) -> None:
    log = world.open()
    log.append(draft(0, 3))
    control = read_control(world.filesystem, world.folder)
    assert control is not None
    write_control(world.filesystem, world.folder, replace(control, epoch=9))
    with pytest.raises(Fenced, match=r"in epoch 9; this process writes log .* in epoch 1"):
        log.append(draft(3, 3))
    with pytest.raises(Fenced, match="takes nothing more"):
        log.append(draft(3, 3))
    with pytest.raises(Fenced):
        log.reclaim(1)


def test_moving_into_place_never_replaces(world: World) -> None:
    log = world.open()
    log.append(draft(0, 3))
    other = world.folder.segment(2)
    other.write_bytes(b"another writer's")
    with pytest.raises(Fenced, match="another writer works in"):
        log.append(draft(3, 3))
    assert other.read_bytes() == b"another writer's"
    assert world.line() == 3


def test_a_payload_is_merged_before_it_is_sealed(world: World) -> None:
    """Rule 24: filesize, line and closed never fall, and the header holds what the row holds."""
    with world.open() as log:
        log.append(draft(0, 5, filesize=900))
        smaller = log.append(SegmentDraft((), [
            OffsetUpdate("files", "a.jsonl", OffsetPayload(100, 6, False)), OffsetUpdate("files", "a.jsonl", OffsetPayload(50, 7, True)),
        ]))
        assert [o.payload for o in smaller.header.offsets] == [OffsetPayload(900, 7, True)]
    row = world.offsets.read("files", "a.jsonl")
    assert row is not None
    assert row.payload == OffsetPayload(900, 7, True)
    assert row.stored.stamp.entry_hash == smaller.ref.entry_hash


def test_a_reset_lowers_rows_under_the_next_claim(world: World) -> None:
    with world.open() as log:
        assert log.reset() is None
        log.append(draft(0, 5))
        done = log.reset()
        assert done is not None
        assert done.header.kind == "reset"
        assert world.line() == 0
        log.append(draft(0, 2))
        assert world.line() == 2
        row = world.offsets.read("files", "a.jsonl")
        assert row is not None
        assert row.claim == 1
    with world.open() as log:
        assert log.running("files", "a.jsonl").line == 2


def test_checkpoints_are_published_with_the_offsets(world: World) -> None:
    with world.open() as log:
        log.append(rich_draft())
        again = CheckpointEnvelope("file", "prefix", 1, b"2").encode()
        once = CheckpointEnvelope("file", "prefix", 1, b"1").encode()
        log.append(SegmentDraft((), (), [CheckpointUpdate("k", once), CheckpointUpdate("k", again)]))
    row = world.offsets.read_checkpoint("k")
    assert row is not None
    assert row.envelope.payload == b"2"


def test_an_entry_without_anything_is_refused_and_the_log_goes_on(world: World) -> None:
    with world.open() as log:
        with pytest.raises(InvalidRequest, match="has none"):
            log.append(SegmentDraft([(TABLE, "rows", [numbers(0, 0)])]))
        with pytest.raises(InvalidRequest, match="does not fit"):
            log.append(SegmentDraft((), [OffsetUpdate("files", "a", OffsetPayload(2**64, 0, False))]))
        with pytest.raises(InvalidRequest, match="no row key of 1000 bytes can hold"):
            log.append(SegmentDraft((), [OffsetUpdate("n" * 2000, "a", OffsetPayload(1, 1, False))]))
        for envelope in (bytes(2**20), b"no envelope"):
            with pytest.raises(InvalidRequest, match="checkpoint 'k': "):
                log.append(SegmentDraft((), (), [CheckpointUpdate("k", envelope)]))
        assert log.append(draft(0, 1)).ref.index == 1


def test_reclaim_keeps_which_table_was_fed_and_removes_the_files(world: World) -> None:
    with world.open() as log:
        log.append(draft(0, 2))
        log.append(SegmentDraft([(OTHER, "rows", [numbers(0, 1)]), (DEAD, "dead_letter", [numbers(0, 1)])], draft(2, 1).offsets))
        log.append(draft(3, 1))
        log.append(draft(4, 1))
        log.reclaim(3)
        assert (log.base, [h.index for h in log.headers()]) == (3, [4])
        assert log.fed == {TABLE: 3, OTHER: 2, DEAD: 2}
        assert (log.feeds(TABLE), log.feeds(OTHER), log.feeds(("x", "y"))) == (4, 2, 0)
        row = world.offsets.read_log(log.wal_id)
        assert row is not None
        assert (row.base, row.published) == (3, 4)
        assert os.listdir(world.folder.segments) == [world.folder.segment(4).name]
        with pytest.raises(Internal, match="reclaimed or not committed"):
            log.batches(3, TABLE)
        with pytest.raises(Internal, match=r"not published.*rule 10"):
            log.reclaim(5)
        log.reclaim(2)
        log.reclaim(4)
        assert log.backlog_bytes == 0
    with world.open() as log:
        assert (log.base, log.fed, log.published_index()) == (4, {TABLE: 4, OTHER: 2, DEAD: 2}, 4)
        assert log.append(draft(5, 1)).ref.index == 5


def test_the_log_is_what_the_compactor_asks_for(world: World) -> None:
    with world.open() as log:
        compactable: CompactableLog = log
        assert [name for name in dir(CompactableLog) if not name.startswith("_") and not hasattr(compactable, name)] == []


def test_batches_stay_readable_while_their_entry_is_reclaimed(world: World) -> None:
    with world.open() as log:
        log.append(draft(0, 3))
        assert log.schemas(1, TABLE) == [numbers(0, 1).schema]
        assert log.schemas(1, OTHER) == []
        batches = log.batches(1, TABLE)
        log.reclaim(1)
        assert [b.num_rows for b in batches] == [3]


STEPS = [
    "wal.segment.written", "wal.segment.fsynced", "wal.segment.linked", "wal.segment.committed", "offsets.before_publish",
    "offsets.published", "wal.segment.published",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_while_appending(world: World, at: Callable[[str, BaseException], None], step: str) -> None:
    log = world.open()
    log.append(draft(0, 3))
    at(step, Kill())
    with pytest.raises(Kill):
        log.append(draft(3, 3))
    with pytest.raises(Internal, match="interrupted"):
        log.append(draft(6, 3))
    log.close()
    with world.open() as log:
        line = world.line()
        assert line == (3 if step in STEPS[:2] else 6)
        assert world.ids(log) == list(range(line))
        log.append(draft(line, 3))
        assert world.ids(log) == list(range(line + 3))
    assert not [name for name in os.listdir(world.folder.segments) if not name.endswith(".seg")]


@pytest.mark.parametrize("step", STEPS)
def test_a_device_error_at_any_step_is_one_of_ours(world: World, at: Callable[[str, BaseException], None], step: str) -> None:
    log = world.open()
    at(step, OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(Unavailable, match=r"nothing of its last entry is acknowledged: .*failing"):
        log.append(draft(0, 3))
    log.close()
    at("recovery.synced", OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(Unavailable, match=r"recovering .*failing"):
        world.open()
    with world.open() as log:
        assert world.ids(log) == ([] if step in STEPS[:2] else [0, 1, 2])


@pytest.mark.parametrize("step", [
    "wal.control.written", "wal.control.fsynced", "wal.control.renamed", "wal.control.committed", "wal.reclaim.based",
    "offsets.before_log_base", "offsets.log_base_set", "wal.reclaim.row", "wal.reclaim.unlinked", "wal.reclaim.synced",
])
def test_killed_while_reclaiming(world: World, at: Callable[[str, BaseException], None], step: str) -> None:
    log = world.open()
    for n in range(4):
        log.append(draft(n, 1))
    at(step, Kill())
    with pytest.raises(Kill):
        log.reclaim(3)
    log.close()
    with world.open() as log:
        base = log.base
        assert base == (0 if step in ("wal.control.written", "wal.control.fsynced") else 3)
        row = world.offsets.read_log(log.wal_id)
        assert row is not None
        assert (row.base, row.published) == (base, 4)
        assert world.ids(log) == list(range(base, 4))
        assert len(os.listdir(world.folder.segments)) == 4 - base


@pytest.mark.parametrize("step", [
    "recovery.synced", "wal.control.written", "wal.control.committed", "recovery.epoch_raised", "recovery.published",
    "recovery.based", "recovery.unlinked", "recovery.cleaned",
])
def test_killed_while_recovering(world: World, at: Callable[[str, BaseException], None], step: str) -> None:
    log = world.open()
    log.append(draft(0, 3))
    at("wal.segment.committed", Kill())
    with pytest.raises(Kill):
        log.append(draft(3, 3))
    log.close()
    world.folder.partial(3).write_bytes(b"half an entry")
    at(step, Kill())
    with pytest.raises(Kill):
        world.open()
    with world.open() as log:
        assert world.line() == 6
        assert world.ids(log) == list(range(6))


class FailingFile:
    def __init__(self, file: object, call: str, number: int) -> None:
        self._file, self._call, self._number = file, call, number

    def __getattr__(self, name: str) -> object:
        if name == self._call:
            raise OSError(self._number, os.strerror(self._number))
        return getattr(self._file, name)


class FailingFileSystem(LocalFileSystem):
    """Fails one kind of call with an errno."""

    def __init__(self, call: str, number: int) -> None:
        self._call, self._number = call, number

    def create(self, path: Path) -> object:  # type: ignore[override]
        self._fail("create")
        return FailingFile(super().create(path), self._call, self._number)

    def move_new(self, source: Path, target: Path) -> None:
        self._fail("move_new")
        super().move_new(source, target)

    def sync_folder(self, folder: Path) -> None:
        self._fail("sync_folder")
        super().sync_folder(folder)

    def _fail(self, call: str) -> None:
        if call == self._call:
            raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(("call", "number", "remedy"), [
    ("write", errno.ENOSPC, "free space on that volume"), ("sync", errno.EIO, "the disk or its file system is failing"),
    ("create", errno.EROFS, "read-only"), ("move_new", errno.EIO, "failing"), ("sync_folder", errno.EIO, "failing"),
])
def test_a_disk_error_ends_the_writer_and_the_next_run_completes(world: World, call: str, number: int, remedy: str) -> None:
    log = world.open()
    log.append(draft(0, 3))
    log._filesystem = FailingFileSystem(call, number)  # type: ignore[assignment]
    with pytest.raises(Unavailable, match=f"nothing of its last entry is acknowledged.*{KEY.pipeline}.*{remedy}"):
        log.append(draft(3, 3))
    log._filesystem = world.filesystem
    with pytest.raises(Unavailable, match=f"takes nothing more since an error.*{remedy}"):
        log.append(draft(3, 3))
    assert world.line() == 3
    log.close()
    with world.open() as log:
        line = world.line()
        assert line == (6 if call == "sync_folder" else 3)
        log.append(draft(line, 3))
        assert world.ids(log) == list(range(line + 3))


def test_no_rights_is_a_configuration_error(world: World) -> None:
    log = world.open()
    log._filesystem = FailingFileSystem("create", errno.EACCES)  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="DATA_DIR must be a folder that this user can write"):
        log.append(draft(0, 3))


def test_publication_that_fails_keeps_the_entry_and_its_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.open()
    calls = []

    def unanswered(*arguments: object, **_: object) -> None:
        calls.append(arguments)
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(world.offsets, "publish", unanswered)
    with pytest.raises(OutcomeUnknown, match=r"entry 1:1 of log .* is in the log, but .* the next start publishes it"):
        log.append(draft(0, 3))
    assert len(calls) > 1
    assert (log.published_index(), log.headers()) == (0, [])
    with pytest.raises(Unavailable, match="takes nothing more"):
        log.append(draft(3, 3))
    log.close()
    monkeypatch.undo()
    with world.open() as log:
        assert world.line() == 3
        assert log.append(draft(3, 1)).ref.index == 2


# ---- what a start refuses


def make(world: World, entries: int) -> None:
    with world.open() as log:
        for n in range(entries):
            log.append(draft(n, 1))


def test_a_damaged_entry_stops_the_start_and_is_named(world: World) -> None:
    make(world, 3)
    path = world.folder.segment(2)
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataCorruption, match=f"{path} is damaged: its checksum does not match its bytes. Restore the file"):
        world.open()


def test_a_damaged_last_entry_that_was_published_stops_the_start(world: World) -> None:
    make(world, 3)
    path = world.folder.segment(3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataCorruption, match=f"{path} is damaged"):
        world.open()


def test_a_torn_last_entry_that_was_never_published_is_set_aside(world: World, at: Callable[[str, BaseException], None]) -> None:
    log = world.open()
    log.append(draft(0, 3))
    at("wal.segment.committed", Kill())
    with pytest.raises(Kill):
        log.append(draft(3, 3))
    log.close()
    path = world.folder.segment(2)
    path.write_bytes(path.read_bytes()[:100])
    with world.open() as log:
        assert world.ids(log) == [0, 1, 2]
        assert log.append(draft(3, 1)).ref.index == 2
    assert world.folder.broken(2).stat().st_size == 100


def test_a_missing_entry_stops_the_start(world: World) -> None:
    make(world, 3)
    world.folder.segment(2).unlink()
    with pytest.raises(DataCorruption, match=f"{world.folder.segment(2)} is missing, later entries"):
        world.open()


def test_a_missing_published_tail_stops_the_start(world: World) -> None:
    make(world, 3)
    world.folder.segment(3).unlink()
    with pytest.raises(DataCorruption, match=r"published through entry 3, but .* ends at entry 2: entries 3 to 3 are lost"):
        world.open()


def test_a_foreign_entry_stops_the_start(world: World, tmp_path: Path) -> None:
    make(world, 2)
    other = World(tmp_path / "other")
    make(other, 2)
    world.folder.segment(2).write_bytes(other.folder.segment(2).read_bytes())
    with pytest.raises(DataCorruption, match="it was copied from elsewhere"):
        world.open()


def test_an_entry_of_the_same_log_that_does_not_follow_stops_the_start(world: World, at: Callable[[str, BaseException], None]) -> None:
    make(world, 1)
    stale = world.folder.segment(1).read_bytes()
    log = world.open()
    at("wal.segment.linked", Kill())
    with pytest.raises(Kill):
        log.append(draft(1, 1))
    log.close()
    kept = world.folder.segment(2).read_bytes()
    world.folder.segment(2).unlink()
    with world.open() as log:
        log.append(draft(1, 2))
        log.append(draft(3, 1))
    world.folder.segment(2).write_bytes(kept)
    with pytest.raises(DataCorruption, match=f"{world.folder.segment(3)} follows the entry"):
        world.open()
    assert stale == world.folder.segment(1).read_bytes()


def test_a_missing_control_file_stops_the_start(world: World) -> None:
    make(world, 1)
    world.folder.control.unlink()
    with pytest.raises(DataCorruption, match=f"{world.folder.control} is missing: restore it"):
        world.open()


def test_a_control_file_of_another_time_stops_the_start(world: World) -> None:
    make(world, 2)
    kept = world.folder.control.read_bytes()
    with world.open() as log:
        log.reclaim(1)
    world.folder.control.write_bytes(kept)
    with pytest.raises(DataCorruption, match=r"reclaimed through entry 1 .* says reclaimed through 0: they are not of one time"):
        world.open()


def test_a_control_file_older_than_the_entries_stops_the_start(world: World) -> None:
    make(world, 2)
    control = read_control(world.filesystem, world.folder)
    assert control is not None
    write_control(world.filesystem, world.folder, replace(control, epoch=0))
    with pytest.raises(DataCorruption, match="has epoch 1, the entry before it 0"):
        world.open()


def test_the_folder_of_another_pipeline_stops_the_start(world: World) -> None:
    make(world, 1)
    with pytest.raises(ConfigurationError, match="holds the log of pipeline acme#dev#rides, not of acme#dev#Rides"):
        world.open(key=PipelineKey("acme", "dev", "Rides"))


def test_missing_rows_are_rebuilt_from_the_headers(world: World) -> None:
    """Rule 23."""
    with world.open() as log:
        log.append(draft(0, 3))
        log.append(draft(0, 2, partition="b.jsonl"))
        log.append(draft(3, 3))
    world.items = MemoryItemTable()
    world.offsets = OffsetStore(world.items, KEY, ManualClock())
    with world.open() as log:
        assert (world.line(), world.line("b.jsonl")) == (6, 2)
        row = world.offsets.read_log(log.wal_id)
        assert row is not None
        assert (row.base, row.published) == (0, 3)


def test_missing_rows_that_no_header_tells_stop_the_start(world: World) -> None:
    """Rule 23: the first index is above 1 and the rows are gone."""
    with world.open() as log:
        log.append(draft(0, 3))
        log.append(draft(3, 3))
        log.reclaim(1)
    world.offsets = OffsetStore(MemoryItemTable(), KEY, ManualClock())
    with pytest.raises(DataCorruption, match=r"begins at entry 2, and the offset store has no row for log .*skippr\.db"):
        world.open()


def test_a_lost_folder_is_not_taken_for_a_new_pipeline(world: World, tmp_path: Path) -> None:
    make(world, 3)
    world.folder = LogFolder.of(tmp_path / "elsewhere", KEY)
    for _ in range(2):  # and again: the refused start left nothing behind that would let the next one pass
        with pytest.raises(Fenced, match="the folder of that log was lost, replaced, or is on another machine"):
            world.open()
    with world.open(resetting=True) as log:
        log.reset()
        assert world.line() == 0
        log.append(draft(0, 1))
    with world.open() as log:
        assert world.ids(log) == [0]


def test_checkpoints_of_a_lost_log_come_under_the_new_one(world: World, tmp_path: Path) -> None:
    def entry(lines: int, seen: bytes) -> SegmentDraft:
        envelope = CheckpointEnvelope("file", "prefix", 1, seen).encode()
        return SegmentDraft((), [OffsetUpdate("files", "a", OffsetPayload(lines, lines, False))], [CheckpointUpdate("file#a", envelope)])

    with world.open() as log:
        log.append(entry(5, b"old"))
    world.folder = LogFolder.of(tmp_path / "elsewhere", KEY)
    with world.open(resetting=True) as log:
        log.reset()
        kept = world.offsets.read_checkpoint("file#a")
        assert kept is not None
        assert CheckpointEnvelope.decode(kept.stored.payload, "test").payload == b"old"
        log.append(entry(3, b"new"))
    with world.open() as log:
        row = world.offsets.read_checkpoint("file#a")
        assert row is not None
        assert CheckpointEnvelope.decode(row.stored.payload, "test").payload == b"new"


def test_a_reset_killed_before_its_end_is_finished_or_asked_for_again(
    world: World, tmp_path: Path, at: Callable[[str, BaseException], None],
) -> None:
    make(world, 1)
    world.folder = LogFolder.of(tmp_path / "elsewhere", KEY)
    log = world.open(resetting=True)
    log.close()
    with pytest.raises(Fenced):
        world.open()
    log = world.open(resetting=True)
    at("wal.segment.committed", Kill())
    with pytest.raises(Kill):
        log.reset()
    log.close()
    with world.open() as log:
        assert world.line() == 0


def test_many_partitions_are_published_whole(world: World, at: Callable[[str, BaseException], None]) -> None:
    updates = [OffsetUpdate("files", f"p{n}", OffsetPayload(1, 1, False)) for n in range(250)]
    log = world.open()
    at("offsets.chunk_published", Kill())
    with pytest.raises(Kill):
        log.append(SegmentDraft((), updates))
    log.close()
    with world.open():
        assert sum(1 for _ in world.offsets.offsets()) == 250
