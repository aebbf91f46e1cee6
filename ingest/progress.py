"""What a run counts: live counters for a progress line, and the closing summary whose numbers add up (I8)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from catalog.clock import Clock
from catalog.errors import Internal, SkipprError

__all__ = ["FailedPartition", "Progress", "ProgressSnapshot", "RunCounters", "RunSummary", "i8_adds_up"]


def i8_adds_up(read: int, landed: int, dead_lettered: int) -> None:
    """I8: every record read either landed in a table or is a dead letter. Raises Internal."""
    if read != landed + dead_lettered:
        raise Internal(
            f"I8 broken: {read} records were read, but {landed} landed and {dead_lettered} are dead letters "
            f"({read - landed - dead_lettered:+d}); nothing of the difference was acknowledged. Please report this"
        )


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that could not be read (unreadable, broken container). Everything before its place of failure landed."""

    uri: str
    error: SkipprError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """Counters of a run at one moment. `read_*` counts what was decoded, `landed_rows` and `dead_letters` what is published.

    `commits` are Iceberg commits of the compactor; `wal_backlog_bytes` is what the log holds and the tables do not yet.
    """

    seconds: float
    read_records: int
    read_bytes: int
    landed_rows: int
    dead_letters: int
    partitions: int
    blocks: int
    segments: int
    segment_bytes: int
    commits: int
    wal_backlog_bytes: int
    draining: bool


class Progress(Protocol):
    """Something whose counters the command line shows. Safe from any thread."""

    def snapshot(self) -> ProgressSnapshot: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What one run did; `read == landed_rows + dead_letters` was asserted. Rows are published in the log, and with --once compacted.

    `landed` maps table label to rows (dead-letter tables are not in it), `dead_letters_by_code` failure code to count.
    `failed` are partitions that could not be read to their end: the run is not a success where there are any.
    `new_partitions` says for Stdin without an id which partition this run was.
    """

    read: int
    landed: Mapping[str, int]
    dead_letters_by_code: Mapping[str, int]
    read_bytes: int
    blocks: int
    partitions: int
    incarnations: int
    segments: int
    segment_bytes: int
    commits: int
    seconds: float
    new_partitions: tuple[str, ...] = ()
    failed: tuple[FailedPartition, ...] = ()

    @property
    def landed_rows(self) -> int:
        return sum(self.landed.values())

    @property
    def dead_letters(self) -> int:
        return sum(self.dead_letters_by_code.values())

    @property
    def error(self) -> SkipprError | None:
        """The error the run ends with although everything else landed: that of the first failed partition."""
        return self.failed[0].error if self.failed else None


@dataclass(slots=True)
class RunCounters:
    """Counters the stages of a run add to, each under the one lock. Thread safe."""

    clock: Clock
    started_s: float = 0.0
    read_records: int = 0
    read_bytes: int = 0
    blocks: int = 0
    partitions: int = 0
    segments: int = 0
    segment_bytes: int = 0
    commits: int = 0
    draining: bool = False
    landed: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    failed: list[FailedPartition] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.started_s = self.clock.monotonic()

    def unit_decoded(self, records: int, size_bytes: int) -> None:
        """One block was decoded."""
        with self._lock:
            self.read_records += records
            self.read_bytes += size_bytes
            self.blocks += 1

    def segment_published(self, landed: Mapping[str, int], dead: Mapping[str, int], size_bytes: int) -> None:
        """One segment is committed and published."""
        with self._lock:
            self.landed.update(landed)
            self.dead.update(dead)
            self.segments += 1
            self.segment_bytes += size_bytes

    def partition_opened(self) -> None:
        with self._lock:
            self.partitions += 1

    def partition_failed(self, uri: str, error: SkipprError) -> None:
        with self._lock:
            self.failed.append(FailedPartition(uri, error))

    def committed(self, commits: int) -> None:
        """The compactor made Iceberg commits."""
        with self._lock:
            self.commits += commits

    def snapshot(self, wal_backlog_bytes: int) -> ProgressSnapshot:
        with self._lock:
            return ProgressSnapshot(
                seconds=self.clock.monotonic() - self.started_s, read_records=self.read_records, read_bytes=self.read_bytes,
                landed_rows=self.landed.total(), dead_letters=self.dead.total(), partitions=self.partitions, blocks=self.blocks,
                segments=self.segments, segment_bytes=self.segment_bytes, commits=self.commits,
                wal_backlog_bytes=wal_backlog_bytes, draining=self.draining,
            )

    def summary(self, incarnations: int, new_partitions: tuple[str, ...]) -> RunSummary:
        """The closing numbers. Raises Internal where they do not add up (I8)."""
        with self._lock:
            i8_adds_up(self.read_records, self.landed.total(), self.dead.total())
            return RunSummary(
                read=self.read_records, landed=dict(self.landed), dead_letters_by_code=dict(self.dead), read_bytes=self.read_bytes,
                blocks=self.blocks, partitions=self.partitions, incarnations=incarnations, segments=self.segments,
                segment_bytes=self.segment_bytes, commits=self.commits, seconds=self.clock.monotonic() - self.started_s,
                new_partitions=new_partitions, failed=tuple(self.failed),
            )
