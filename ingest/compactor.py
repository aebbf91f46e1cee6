"""From log to tables: published entries become Parquet, each row once (rules 10 to 13, docs/protocol.md).

The table is the ledger: it carries the log's mark, and one commit appends the rows of the entries behind the mark and moves it. So a
crash at any point is repaired by reading the mark again, and there is no other record of progress that could disagree with it.

The planning is pure (`ingest.compaction`); `Compactor` is the loop around it. However large the backlog,
entries are taken in windows, a table's share of a window in commits of about `commit_bytes`, and rows are streamed, so memory stays
within what the lake's writer is allowed. Entries are reclaimed after every window, once every table they feed is past them.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import pyarrow as pa

from catalog import failpoint
from catalog.arrow_schema import union_all
from catalog.clock import Clock
from catalog.errors import Conflict, DataCorruption, NotFound, OutcomeUnknown, SkipprError, Unavailable
from catalog.lake import DataFiles, Identifier, Lake, Mark, StaleFiles, TableState, table_label
from ingest.compaction import EntryHeader, Take, check_mark, log_bytes, plan, reclaimable, tables_of, windows
from ingest.settings import CompactionSettings

__all__ = ["CompactableLog", "CompactionReport", "Compactor"]

_log = logging.getLogger(__name__)
_WINDOW_COMMITS: Final = 4
_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 2.0


class CompactableLog(Protocol):
    """What compaction needs of a log. `ingest.wal.log.Log` is one."""

    @property
    def wal_id(self) -> str: ...

    @property
    def base(self) -> int:
        """Index of the last reclaimed entry."""
        ...

    @property
    def fed(self) -> Mapping[Identifier, int]:
        """Per table the highest reclaimed index that fed it (rule 13)."""
        ...

    def published_index(self) -> int: ...

    def headers(self, after: int, upto: int) -> Sequence[EntryHeader]:
        """Headers of the entries with after < index <= upto that are not reclaimed, in order."""
        ...

    def schemas(self, index: int, identifier: Identifier) -> Sequence[pa.Schema]:
        """Schemas of the entry's batches for the table, without reading rows."""
        ...

    def batches(self, index: int, identifier: Identifier) -> Iterator[pa.RecordBatch]: ...

    def reclaim(self, upto: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What one run did. `size_bytes` is Parquet; `reclaimed_upto` is the log's base afterwards."""

    tables: tuple[Identifier, ...] = ()
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    commits: int = 0
    reclaimed_upto: int = 0

    def plus(self, identifier: Identifier, files: DataFiles) -> CompactionReport:
        """With one more commit."""
        return replace(
            self, tables=tuple(dict.fromkeys([*self.tables, identifier])), rows=self.rows + files.rows,
            files=self.files + len(files.paths), size_bytes=self.size_bytes + files.size_bytes, commits=self.commits + 1,
        )


@dataclass(slots=True)
class _Pending:
    """Published entries that no run has seen to yet, as noticed so far."""

    noticed: int
    size_bytes: int = 0
    since_s: float | None = None


@dataclass(slots=True)
class _Attempt:
    """Files of one commit on their way. `doubt` is the generation they were last sent on with an unknown outcome."""

    files: DataFiles | None = None
    doubt: int | None = None
    reasons: list[str] = field(default_factory=list)


class Compactor:
    """Compacts one log. `run_once` is for one thread at a time; `due` and `pending_bytes` may be asked from any.

    `pipeline` is the pipeline key, for the snapshot summaries that people read.
    """

    def __init__(
        self, log: CompactableLog, lake: Lake, settings: CompactionSettings, clock: Clock, *, pipeline: str,
        jitter: random.Random | None = None,
    ) -> None:
        self._log = log
        self._lake = lake
        self._settings = settings
        self._clock = clock
        self._pipeline = pipeline
        self._jitter = jitter or random.Random()
        self._lock = threading.Lock()
        self._pending = _Pending(log.base)

    def due(self, now_s: float) -> bool:
        """Whether enough waits, by bytes or by age, for a run at `now_s` of the monotonic clock."""
        with self._lock:
            pending = self._notice(now_s)
            if pending.since_s is None:
                return False
            old = now_s - pending.since_s >= self._settings.commit_seconds
            return old or pending.size_bytes >= self._settings.commit_bytes

    def pending_bytes(self) -> int:
        """Log bytes of published entries that no run has seen to yet."""
        with self._lock:
            return self._notice(self._clock.monotonic()).size_bytes

    def run_once(self, force: bool = False) -> CompactionReport:
        """Commit everything published so far, and reclaim. Without `force` only where it is due.

        On return every table holds every published row that waited when the run began, durably. Raises Conflict (a table was
        dropped, or others kept winning), DataCorruption, InvalidRequest (rows that fit no column), Unavailable, OutcomeUnknown; what
        was committed before the error stays, and a next run goes on from there.
        """
        report = CompactionReport(reclaimed_upto=self._log.base)
        if not force and not self.due(self._clock.monotonic()):
            return report
        published = self._log.published_index()
        headers = self._log.headers(self._log.base, published)
        for window in windows(headers, _WINDOW_COMMITS * self._settings.commit_bytes):
            marks: dict[Identifier, Mark] = {}
            for identifier in tables_of(window):
                marks[identifier], report = self._compact(identifier, window, report)
            upto = reclaimable(window, marks, self._log.base)
            if upto > self._log.base:
                self._log.reclaim(upto)
                failpoint.hit("compactor.reclaimed")
            report = replace(report, reclaimed_upto=self._log.base)
        self._done(published)
        return report

    def _notice(self, now_s: float) -> _Pending:
        pending = self._pending
        published = self._log.published_index()
        if published > pending.noticed:
            pending.size_bytes += sum(log_bytes(header) for header in self._log.headers(pending.noticed, published))
            pending.noticed = published
            if pending.since_s is None:
                pending.since_s = now_s
        return pending

    def _done(self, published: int) -> None:
        """Everything up to `published` is in its tables; what was noticed beyond waits from now."""
        with self._lock:
            self._pending = _Pending(published)
            self._notice(self._clock.monotonic())

    def _compact(
        self, identifier: Identifier, window: Sequence[EntryHeader], report: CompactionReport
    ) -> tuple[Mark, CompactionReport]:
        """Bring one table through the window."""
        state = self._load(identifier)
        while True:
            mark = state.mark(self._log.wal_id)
            takes = plan(window, identifier, mark, self._settings.commit_bytes)
            if not takes:
                return mark, report
            state, files = self._commit(state, takes[0])
            if files is not None:
                report = report.plus(identifier, files)

    def _commit(self, state: TableState, take: Take) -> tuple[TableState, DataFiles | None]:
        """One commit through all retries. None for the files where the table came to hold the rows, or another mark, without us."""
        attempt = _Attempt()
        summary = self._summary(take)
        for number in range(self._settings.attempts_max):
            if state.mark(self._log.wal_id) != take.after:
                return state, self._overtaken(state, take, attempt)
            if attempt.files is None:
                attempt.files = self._write(state, take)
            try:
                failpoint.hit("compactor.before_commit")
                committed = self._lake.commit(state, attempt.files, self._log.wal_id, take.upto, summary)
                failpoint.hit("compactor.committed")
                _log.info(
                    "table committed",
                    extra={
                        "table": table_label(state.identifier), "wal_id": self._log.wal_id, "epoch": take.upto.epoch,
                        "index": take.upto.index, "rows": attempt.files.rows, "size_bytes": attempt.files.size_bytes,
                    },
                )
                return committed, attempt.files
            except StaleFiles as error:
                attempt.reasons.append(str(error))
                self._lake.discard(attempt.files)
                attempt.files = None
            except Conflict as error:
                attempt.reasons.append(str(error))
            except OutcomeUnknown as error:
                attempt.reasons.append(str(error))
                attempt.doubt = state.generation
            except NotFound as error:
                raise self._gone(state.identifier) from error
            self._pause(number)
            state = self._load(state.identifier)
            if attempt.doubt is not None and state.generation > attempt.doubt and state.mark(self._log.wal_id) == take.after:
                attempt.doubt = None  # another commit took that generation, so ours never can
        raise Conflict(
            f"table {table_label(state.identifier)}: no commit of log {self._log.wal_id} up to {take.upto} went through in "
            f"{self._settings.attempts_max} attempts (last: {attempt.reasons[-1]}); run again when there are fewer writers"
        )

    def _overtaken(self, state: TableState, take: Take, attempt: _Attempt) -> DataFiles | None:
        """The mark is not the one the files were made for: ours after all, or somebody else took these entries."""
        if attempt.files is None:
            return None
        if attempt.doubt is None:
            self._lake.discard(attempt.files)
            return None
        _log.info("table %s: the commit up to %s, whose outcome was unknown, took place", table_label(state.identifier), take.upto)
        return attempt.files

    def _write(self, state: TableState, take: Take) -> DataFiles:
        """Data files of the take's rows, durable. Raises DataCorruption where the rows are not as many as the headers say."""
        identifier = state.identifier
        schema = union_all(s for index in take.indexes for s in self._log.schemas(index, identifier))
        rows = (batch for index in take.indexes for batch in self._log.batches(index, identifier))
        files = self._lake.write(state, schema, rows)
        if files.rows != take.rows:
            self._lake.discard(files)
            raise DataCorruption(
                f"log {self._log.wal_id}: entries {take.indexes[0]} to {take.indexes[-1]} gave {files.rows} rows for "
                f"{table_label(identifier)}, their headers say {take.rows}"
            )
        try:
            self._lake.sync(files)
        except SkipprError:
            self._lake.discard(files)
            raise
        return files

    def _load(self, identifier: Identifier) -> TableState:
        """The table now, its mark checked against the log. Raises Conflict where it is gone, DataCorruption, Unavailable."""
        for number in range(self._settings.attempts_max):
            try:
                state = self._lake.load(identifier)
                break
            except NotFound as error:
                raise self._gone(identifier) from error
            except Unavailable as error:
                if number + 1 == self._settings.attempts_max:
                    raise
                _log.warning("table %s cannot be read now: %s", table_label(identifier), error)
                self._pause(number)
        mark = state.mark(self._log.wal_id)
        published = self._log.published_index()  # read after the table: its mark never passes what is published
        headers = self._log.headers(mark.index - 1, mark.index) if mark.index else []
        check_mark(identifier, self._log.wal_id, mark, headers, published, self._log.fed.get(identifier, 0))
        return state

    def _gone(self, identifier: Identifier) -> Conflict:
        label = table_label(identifier)
        return Conflict(
            f"table {label} is gone from the catalog, but the log of this pipeline feeds it: it was dropped or renamed by somebody else. "
            f"Bring it back, or run `skipprd tables recreate {label}`, which makes it anew and says which rows are lost"
        )

    def _pause(self, attempt: int) -> None:
        pause_s = min(_PAUSE_MAX_S, _PAUSE_S * 2.0 ** min(attempt, 16))
        self._clock.sleep(pause_s * (0.5 + self._jitter.random() / 2))

    def _summary(self, take: Take) -> dict[str, str]:
        """For people only: no decision reads it."""
        return {
            "skippr.compaction-id": str(uuid.uuid4()),
            "skippr.pipeline": self._pipeline,
            "skippr.wal-segment-ids": f"{self._log.wal_id}:{_ranges(take.indexes)}",
        }


def _ranges(indexes: Sequence[int]) -> str:
    """Rising numbers as ranges: 3-7,9."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
