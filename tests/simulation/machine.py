"""One simulated machine: a disk, a database, a source, and the processes that run the real log, recovery, offsets and compactor on it.

The source is a set of partitions whose records never change. The machine remembers what was acknowledged; `check` compares that
with what tables and log hold. Every step a process takes outside of itself, and every failpoint it passes, goes through `Machine.step`,
where chance may end the process, cut the power, fail the call, or let others run in the middle of it.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from catalog import failpoint
from catalog.clock import ManualClock
from catalog.control.checkpoints import CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.errors import Conflict, NotFound, OutcomeUnknown, SkipprError, Unavailable
from catalog.items.table import EXISTS, Update
from catalog.keys import PipelineKey
from catalog.lake import Identifier, TableLayout, TableState, table_label
from ingest.compactor import Compactor
from ingest.settings import CompactionSettings
from ingest.wal.disk import LogFolder, read_control
from ingest.wal.live import DiskLiveCapture, DiskLiveSource
from ingest.wal.log import Log
from ingest.wal.segment import GroupKind, SegmentDraft
from tests.simulation.disk import SimDisk, SimFileSystem
from tests.simulation.faults import Chance, Death
from tests.simulation.items import SimItems, SimStore
from tests.simulation.lake import CATALOG, SCHEMA, SimLake, table_ids

__all__ = ["DATA", "KEY", "Faults", "Machine", "Process", "Query", "Violation"]

DATA = Path("/data")
KEY = PipelineKey("t", "w", "sim")
PARTITIONS = ("p0", "p1", "p2")
TABLES: tuple[tuple[Identifier, GroupKind], ...] = ((("n", "a"), "rows"), (("n", "b"), "rows"), (("n", "_dl"), "dead_letter"))
_ROWS_PER_PARTITION = 100_000
_SETTINGS = CompactionSettings(commit_bytes=1500, commit_seconds=60.0, attempts_max=12)
_DISK_FAILS = frozenset({
    "disk.create", "disk.write", "disk.sync", "disk.sync_folder", "disk.link", "disk.replace", "disk.unlink",
    "disk.make_folder", "disk.map",
})


class Violation(AssertionError):
    """The machine found an invariant broken."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what happens, per step (or per write of the item table, or per commit of the lake)."""

    crash: float = 0.0
    power: float = 0.0
    disk: float = 0.0
    items: float = 0.0
    pause: float = 0.0
    stale: float = 0.0
    opener: float = 0.0


@dataclass(slots=True)
class Query:
    """A live read between its capture and its end."""

    capture: DiskLiveCapture
    acknowledged: dict[str, int]


@dataclass(slots=True)
class Machine:
    """Everything that outlives a process, and what a perfect observer knows."""

    chance: Chance
    faults: Faults
    full: bool = True
    disk: SimDisk = field(default_factory=SimDisk)
    clock: ManualClock = field(default_factory=ManualClock)
    written: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    processes: list[Process] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    trace: list[str] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    quiet: bool = False
    nested: Callable[[Process], None] | None = None
    store: SimStore = field(init=False)
    reader: Process = field(init=False)
    source: DiskLiveSource = field(init=False)
    _running: list[Process] = field(default_factory=list)
    _names: int = 0

    def __post_init__(self) -> None:
        self.store = SimStore(full=self.full)
        self.reader = Process(self, "reader", faultless=True)
        self.source = DiskLiveSource(DATA, self.reader.items, filesystem=self.reader.filesystem, clock=self.clock)

    # ---- time and trouble

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(text)

    @contextmanager
    def running(self, process: Process, what: str) -> Iterator[None]:
        """Failpoints passed inside belong to the process."""
        self.note(f"{process.name}: {what}")
        self._running.append(process)
        try:
            yield
        finally:
            self._running.pop()

    def failpoint(self, name: str) -> None:
        self.counts[name] += 1
        if self._running:
            self.step(self._running[-1], name, crash=2 * self.faults.crash)

    def step(self, process: Process, name: str, crash: float) -> None:
        """What chance does to a process at this step."""
        if not process.alive:
            raise Death("a dead process does nothing")
        if self.quiet or process.faultless:
            return
        if self.trace is not None:
            self.trace.append(f"{process.name}:   {name}")
        draw = self.chance.random.random()
        faults = self.faults
        if (draw := draw - crash) < 0:
            self.note(f"{process.name}: *** dies at {name}")
            self.counts["crash"] += 1
            self.counts[f"killed at {name}"] += 1
            process.die()
            raise Death(name)
        if (draw := draw - faults.power) < 0:
            self.power_cut()
            raise Death(name)
        if (draw := draw - faults.disk) < 0:
            if name in _DISK_FAILS:
                number = errno.ENOSPC if name in ("disk.create", "disk.write") and self.chance.happens(0.5) else errno.EIO
                self.note(f"{process.name}: *** {os.strerror(number)} at {name}")
                self.counts["disk error"] += 1
                raise OSError(number, os.strerror(number), name)
        elif (draw := draw - faults.pause) < 0 and self.nested is not None and len(self._running) == 1:
            self.counts["pause"] += 1
            self.note(f"{process.name}: paused at {name}")
            self.nested(process)
            if not process.alive:
                raise Death("died while paused")
            self.note(f"{process.name}: goes on")

    def fate(self) -> str:
        """What becomes of a write to the item table."""
        if self.quiet or not self.chance.happens(self.faults.items):
            return "ok"
        fate = self.chance.one_of(["refused", "before", "after", "late"])
        self.note(f"*** item write: {fate}")
        self.counts[f"item write {fate}"] += 1
        return fate

    def schema_change(self, identifier: Identifier) -> bool:
        """Somebody else commits a new schema to the table: its generation moves on, its rows stay."""
        if self.quiet or not self.chance.happens(self.faults.stale):
            return False
        self.note("*** somebody changes the schema")
        self.counts["schema change"] += 1
        self.store.apply([Update(CATALOG, table_label(identifier), EXISTS, add={"generation": 1})])
        return True

    def power_cut(self) -> None:
        """Every process is gone, and what was not synced is decided by chance."""
        self.note("*** power cut")
        self.counts["power cut"] += 1
        for process in (*self.processes, *self._running):
            process.alive = False
        self.processes.clear()
        self.queries.clear()
        self.source = DiskLiveSource(DATA, self.reader.items, filesystem=self.reader.filesystem, clock=self.clock)
        self.disk.power_cut(self.chance)
        self.store.power_cut(self.chance)

    def new_process(self) -> Process:
        self._names += 1
        return Process(self, f"w{self._names}")

    # ---- what must hold

    def ids(self, lines: dict[str, int]) -> set[int]:
        """Ids of the records below these lines."""
        return {_row_id(partition, line) for partition, upto in lines.items() for line in range(upto)}

    def offset_lines(self) -> dict[str, int]:
        """The lines the offset rows stand at."""
        rows = {row.partition: row.payload.line for row in self.reader.offsets.offsets()}
        return {partition: rows.get(partition, 0) for partition in PARTITIONS}

    def check_rows(self) -> None:
        """I2 at any time: a row is at or past what was acknowledged."""
        lines = self.offset_lines()
        for partition, acknowledged in self.acknowledged.items():
            if lines[partition] < acknowledged:
                raise Violation(f"I2: {partition} is acknowledged up to {acknowledged}, its row is at {lines[partition]}")

    def begin_query(self) -> None:
        """Capture the log; what is acknowledged now must be seen."""
        before = dict(self.acknowledged)
        self.queries.append(Query(self.source.capture([str(KEY)]), before))

    def finish_query(self, number: int) -> None:
        """I9: read the pointers, then tables and live rows: each row once, none missing that was acknowledged before the capture."""
        query = self.queries.pop(number)
        found = Counter(self.landed_and_live(query.capture))
        query.capture.close()
        self._compare("I9", found, self.ids(query.acknowledged), self.ids(self.written))

    def landed_and_live(self, capture: DiskLiveCapture) -> list[int]:
        ids: list[int] = []
        for identifier, _ in TABLES:
            try:
                metadata = self.reader.lake._load(identifier)
            except NotFound:
                state = TableState(identifier=identifier, table_uuid="", metadata_location="", generation=0, schema=SCHEMA)
            else:
                state = metadata.state
                ids += table_ids(self.reader.lake, metadata)
            live = capture.rows(state)
            if live is not None:
                ids += [value for batch in live.batches() for value in batch.column(0).to_pylist()]
        return ids

    def check_exact(self, where: str) -> None:
        """I1, I7: with every writer's entries published, tables and log hold each record below the offset rows once, and no other."""
        capture = self.source.capture([str(KEY)])
        expected = self.ids(self.offset_lines())
        self._compare(f"I1/I7 {where}", Counter(self.landed_and_live(capture)), expected, expected)
        capture.close()
        self.check_rows()

    def check_landed(self, where: str) -> None:
        """Everything written is in the tables, once, and the log is empty."""
        expected = self.ids(self.written)
        found = Counter(value for identifier, _ in TABLES for value in self.reader.lake.ids(identifier))
        self._compare(f"I7/I8 {where}", found, expected, expected)
        segments = [name for name in self.reader.filesystem.list(LogFolder.of(DATA, KEY).segments) if not name.endswith(".broken")]
        if segments:
            raise Violation(f"{where}: reclaim left {segments} behind")

    def _compare(self, what: str, found: Counter[int], least: set[int], most: set[int]) -> None:
        double = sorted(value for value, times in found.items() if times > 1)
        lost, foreign = sorted(least - found.keys()), sorted(found.keys() - most)
        if double or lost or foreign:
            raise Violation(f"{what}: double {double[:9]}, lost {lost[:9]}, never written or not published {foreign[:9]}")


class Process:
    """One life of a writer: it opens the log, reads the source on from the offset rows, appends, compacts."""

    def __init__(self, machine: Machine, name: str, *, faultless: bool = False) -> None:
        self.machine, self.name, self.faultless = machine, name, faultless
        self.alive = True
        self.busy = ""
        self.epoch = 0
        self.filesystem = SimFileSystem(machine.disk, self._hook, machine.chance)
        self.items = SimItems(machine.store, self._hook, self._fate)
        self.offsets = OffsetStore(self.items, KEY, machine.clock)
        self.lake = SimLake(self.filesystem, self.items, name, machine.schema_change)
        self.cursors: dict[str, int] = {}
        self.log: Log | None = None
        self.compactor: Compactor | None = None

    def _hook(self, name: str) -> None:
        self.machine.step(self, name, self.machine.faults.crash)

    def _fate(self) -> str:
        return "ok" if self.faultless else self.machine.fate()

    def die(self) -> None:
        """SIGKILL: the lock goes, nothing else happens."""
        self.alive = False
        if self in self.machine.processes:
            self.machine.processes.remove(self)
        for folder, lock in list(self.machine.disk.locks.items()):
            if lock.owner is self.filesystem:
                del self.machine.disk.locks[folder]

    def attempt(self, what: str, act: Callable[[], None]) -> bool:
        """Run one action of this process. True where it succeeded; an error that a run may end with ends the process."""
        before, self.busy = self.busy, what
        try:
            with self.machine.running(self, what):
                act()
        except Death:
            return False
        except SkipprError as error:
            if not isinstance(error, Unavailable | OutcomeUnknown | Conflict) and not self.is_overtaken():
                raise Violation(f"{self.name}: {what}: {type(error).__name__}: {error}") from error
            self.machine.note(f"{self.name}: {what} ends the run: {type(error).__name__}: {error}")
            self.machine.counts[f"{what} ended by {type(error).__name__}"] += 1
            self.die()
            return False
        finally:
            self.busy = before
        self.machine.counts[what] += 1
        return True

    def is_overtaken(self) -> bool:
        """Whether another process opened the log after this one: then whatever stops this one is right, if only it stops."""
        control = read_control(self.machine.reader.filesystem, LogFolder.of(DATA, KEY))
        return self.epoch > 0 and control is not None and control.epoch > self.epoch

    # ---- the actions

    def start(self) -> None:
        """Open the log, make the tables, read on from the rows."""
        machine = self.machine
        self.log = Log.open(
            self.filesystem, LogFolder.of(DATA, KEY).path, KEY, self.offsets, machine.clock,
            jitter=random.Random(machine.chance.below(2**32)),
        )
        self.epoch = self.log.epoch
        machine.processes.append(self)
        for identifier, _ in TABLES:
            try:
                self.lake.load(identifier)
            except NotFound:
                self.lake.create(identifier, SCHEMA, TableLayout(), str(KEY))
        self.compactor = Compactor(
            self.log, self.lake, _SETTINGS, machine.clock, pipeline=str(KEY), jitter=random.Random(machine.chance.below(2**32)),
        )
        for partition in PARTITIONS:
            row = self.offsets.read("files", partition)
            self.cursors[partition] = 0 if row is None else row.payload.line

    def append(self) -> None:
        """One entry of the next records of some partitions, then the acknowledgement."""
        assert self.log is not None
        machine, chance = self.machine, self.machine.chance
        ends: dict[str, int] = {}
        updates: list[OffsetUpdate] = []
        checkpoints: list[CheckpointUpdate] = []
        rows: dict[Identifier, list[int]] = {}
        for partition in PARTITIONS:
            first = self.cursors[partition]
            end = min(machine.written[partition], first + (20 if machine.quiet else chance.below(4)))
            if end == first:
                continue
            ends[partition] = end
            # A source may report a smaller size than before: the row's never falls (rule 24).
            payload = OffsetPayload(max(0, end * 10 - chance.below(30)), end, False)
            updates.append(OffsetUpdate("files", partition, payload))
            if chance.happens(0.3):
                checkpoints.append(CheckpointUpdate(f"file#{partition}", CheckpointEnvelope("sim", "line", 1, bytes([end % 256])).encode()))
            for line in range(first, end):
                rows.setdefault(_table_of(partition, line), []).append(_row_id(partition, line))
        if not updates:
            return
        kinds = dict(TABLES)
        groups = [(table, kinds[table], [pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA)]) for table, ids in rows.items()]
        self.log.append(SegmentDraft(groups, updates, checkpoints))
        self.cursors.update(ends)
        for partition, end in ends.items():
            machine.acknowledged[partition] = max(machine.acknowledged[partition], end)
        machine.note(f"{self.name}: acknowledged {ends}")

    def compact(self) -> None:
        assert self.compactor is not None
        self.compactor.run_once(force=True)

    def close(self) -> None:
        assert self.log is not None
        self.log.close()
        self.die()


def _row_id(partition: str, line: int) -> int:
    return PARTITIONS.index(partition) * _ROWS_PER_PARTITION + line


def _table_of(partition: str, line: int) -> Identifier:
    number = line * 7 + PARTITIONS.index(partition)
    return TABLES[2][0] if number % 11 == 0 else TABLES[1][0] if number % 3 == 0 else TABLES[0][0]


def install(machine: Machine | None) -> None:
    """Make the machine see every failpoint of the code; None takes it away."""
    failpoint.install(None if machine is None else machine.failpoint)
