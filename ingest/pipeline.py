"""One pipeline's run: source -> decode pool -> transform -> buffer -> log -> compactor, in one process.

Threads: one reads the source, a pool decodes, one assembles segments in record order, one writes the log, one compacts; the caller of
`run` waits. What is between source and log is bounded by `BufferSettings.queue_bytes_max`, what is between log and tables by
`CompactionSettings.backlog_bytes_max`: a full log or a slow sink slows the source down.

The first error of any thread ends the run: the source is read no further, nothing more is appended, `run` raises it. What was appended
before is durable and published; what was not is read again by the next run. A refused schema change is gentler: everything read
before the record that needs it still lands.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from catalog import failpoint
from catalog.clock import Clock
from catalog.control.offsets import OffsetStore
from catalog.errors import ConfigurationError, DataCorruption, Internal, SkipprError, Unavailable
from catalog.items.table import ItemTable
from catalog.lake import Lake
from ingest.budget import ByteBudget, Channel, Stopped
from ingest.buffer import Buffer, Sealed
from ingest.compactor import Compactor
from ingest.deadletter import dead_letter_table
from ingest.paced import PacedLake
from ingest.pipeline_config import PipelineConfig, SourceFactory, with_source
from ingest.progress import ProgressSnapshot, RunCounters, RunSummary
from ingest.routing import Router
from ingest.settings import FileSourceSettings, StdinSourceSettings
from ingest.shape import Shape, layout_of
from ingest.sources.base import Partition, Source
from ingest.sources.file import FileSource
from ingest.sources.stdin import StdinSource
from ingest.stages import Block, BrokenPartition, DecodedBlock, Decoder, finish_part
from ingest.tables import SchemaChangeRefused, Tables
from ingest.wal.disk import LogFolder
from ingest.wal.filesystem import LocalFileSystem
from ingest.wal.log import Log

__all__ = ["IngestPipeline", "PipelineConfig", "SchemaChangeRefused", "SourceFactory", "open_pipeline"]

_log = logging.getLogger("skippr.ingest.pipeline")
_TICK_S: Final = 0.1
_BLOCKS_MAX: Final = 64
_SEALED_MAX: Final = 2

class IngestPipeline:
    """An open pipeline: it holds the log's lock until `close`. `run` once; `stop` and `snapshot` from any thread or a signal handler."""

    def __init__(
        self, config: PipelineConfig, *, log: Log, lake: Lake, offsets: OffsetStore, source: SourceFactory, clock: Clock,
    ) -> None:
        self._config = config
        self._wal = log
        self._offsets = offsets
        self._open_source = source
        self._clock = clock
        self._source: Source | None = None
        self._counters = RunCounters(clock)
        self._stopping = False
        self._error: BaseException | None = None
        self._refused: SchemaChangeRefused | None = None
        self._failing = threading.Lock()
        self._budget = ByteBudget(config.buffer.queue_bytes_max, self._ended_early)
        self._blocks: Channel[Block] = Channel(_BLOCKS_MAX, self._ended_early)
        self._sealed: Channel[Sealed] = Channel(_SEALED_MAX, self._ended_early)
        self._broken: set[tuple[str, str]] = set()
        self._full = threading.Event()
        self._written = threading.Event()
        transform = config.transform
        self._router = Router(config.sink_namespace, config.table or config.key.pipeline, transform.namespace_fields)
        self._dead_table = dead_letter_table(config.deadletter_namespace, config.key.pipeline)
        self._tables = Tables(
            lake, log, str(config.key), layout_of(transform), Shape(transform.flatten_events, transform.time_fields),
            keys_max=config.object_keys_max, auto_approve=config.schema_auto_approve, several=self._router.several,
        )
        self._decoder = Decoder(self._router, self._tables)
        paced = PacedLake(lake, self._budget, config.buffer.threshold_bytes)
        self._compactor = Compactor(log, paced, config.compaction, clock, pipeline=str(config.key))

    # ---- what others call

    def run(self, *, once: bool) -> RunSummary:
        """Read until the source has nothing more (`once`), or until `stop`; then seal, publish and (once) compact everything.

        Raises the first error of any stage; what was acknowledged before it is durable and published. A partition that cannot be
        read does not stop the others: see `RunSummary.error`, which the caller raises after showing the summary.
        """
        self._counters = RunCounters(self._clock)
        self._compact(force=True)
        source = self._source = self._open_source(self._offsets, once)
        stages = [
            threading.Thread(target=self._guarded, args=(stage, *arguments), name=f"skippr-{name}", daemon=True)
            for name, stage, *arguments in (
                ("read", self._read, source, once), ("assemble", self._assemble), ("log", self._write),
                ("compact", self._keep_compacting, once),
            )
        ]
        for thread in stages:
            thread.start()
        try:
            for thread in stages:
                while thread.is_alive():
                    thread.join(_TICK_S)
        except BaseException as error:
            # Not ours to swallow, but nobody may close the log under a thread that writes it.
            self._fail(error)
            for thread in stages:
                thread.join()
            raise
        if self._error is not None:
            raise self._error
        if self._refused is not None:
            raise self._refused
        return self._counters.summary(getattr(source, "incarnations", 0), getattr(source, "new_partitions", ()))

    def stop(self) -> None:
        """Drain and return from `run`: what was read is sealed and published. Idempotent, safe in a signal handler."""
        self._stopping = True
        self._counters.draining = True
        if self._source is not None:
            self._source.interrupt()

    def snapshot(self) -> ProgressSnapshot:
        """The counters now. Safe from any thread."""
        return self._counters.snapshot(self._wal.backlog_bytes)

    def close(self) -> None:
        """Release source, log and its lock. Idempotent."""
        if self._source is not None:
            self._source.close()
        self._wal.close()

    def __enter__(self) -> IngestPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- ending

    def _ended_early(self) -> bool:
        return self._error is not None

    def _guarded(self, stage: Callable[..., None], *arguments: object) -> None:
        """Run a stage; its error, if it is the first, is the run's."""
        try:
            stage(*arguments)
        except Stopped:
            return
        except BaseException as error:  # noqa: BLE001 (a thread has nobody to raise to: `run` raises it)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._failing:
            if self._error is None:
                self._error = error
        if self._source is not None:
            self._source.interrupt()

    # ---- reading

    def _read(self, source: Source, once: bool) -> None:
        pool = ThreadPoolExecutor(self._config.decode_threads, thread_name_prefix="skippr-decode")
        try:
            while not self._stopping:
                for partition in source.poll():
                    if self._stopping or self._error is not None:
                        break
                    self._read_partition(source, partition, pool)
                if once or source.finite or self._error is not None:
                    break
                self._pause(self._config.poll_ms / 1000)
        except Stopped:
            if not self._stopping:
                raise
        finally:
            pool.shutdown(wait=False)
        self._counters.draining = True
        self._blocks.end()

    def _pause(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._stopping and self._error is None and (left := until - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, _TICK_S))

    def _read_partition(self, source: Source, partition: Partition, pool: ThreadPoolExecutor) -> None:
        """Hand over the units of one partition. A partition that cannot be read fails alone."""
        try:
            reader = source.open(partition)
            try:
                self._counters.partition_opened()
                for unit in reader.units():
                    held = unit.size_bytes
                    self._budget.take(held)
                    read_at = datetime.fromisoformat(self._clock.wall_iso())
                    self._blocks.put(Block(partition, unit, pool.submit(self._decoder, unit), held, read_at))
                    if self._stopping or (partition.namespace, partition.name) in self._broken:
                        break
            finally:
                reader.close()
        except (ConfigurationError, DataCorruption) as error:
            self._partition_failed(partition, error)
        except OSError as error:
            self._partition_failed(partition, Unavailable(f"{partition.uri} cannot be read on: {error}"))

    def _partition_failed(self, partition: Partition, error: SkipprError) -> None:
        _log.error("partition %s fails: %s", partition.name, error)
        self._counters.partition_failed(partition.uri, error)

    # ---- assembling

    def _assemble(self) -> None:
        buffer = self._new_buffer()
        while True:
            block = self._blocks.get(_TICK_S)
            if block is None:
                if self._blocks.ended:
                    break
            elif self._refused is not None:
                self._budget.change(block.held_bytes, 0)
            else:
                buffer = self._add(buffer, block)
            if (not buffer.empty and self._budget.starved_by(buffer.held_bytes)) or buffer.full(self._clock.monotonic()):
                buffer = self._seal(buffer)
        if not buffer.empty:
            self._seal(buffer)
        self._sealed.end()

    def _new_buffer(self) -> Buffer:
        return Buffer(self._config.buffer, self._dead_table, str(self._config.key), self._clock.monotonic())

    def _add(self, buffer: Buffer, block: Block) -> Buffer:
        """Take one decoded block into the buffer; seals first where it would grow too large."""
        partition, unit = block.partition, block.unit
        decoded = self._result(block)
        if decoded is None:
            self._budget.change(block.held_bytes, 0)
            return buffer
        try:
            parts = [finish_part(self._tables, part, unit) for part in decoded.parts]
        except SchemaChangeRefused as refused:
            self._refuse(refused)
            self._budget.change(block.held_bytes, 0)
            return buffer
        bad = [*decoded.bad, *(one for part in parts for one in part.bad)]
        rows_bytes = sum(part.rows.nbytes for part in parts)
        if not buffer.has_room(rows_bytes):
            buffer = self._seal(buffer)
        if buffer.empty:
            buffer.opened_s = self._clock.monotonic()
        before = buffer.size_bytes
        for part in parts:
            buffer.add_rows(part.view.identifier, part.rows)
        buffer.add_bad(partition, bad, block.read_at)
        buffer.move(partition, unit.end, unit.checkpoints())
        grown = buffer.size_bytes - before
        self._budget.change(block.held_bytes, grown)
        buffer.held_bytes += grown
        self._counters.unit_decoded(decoded.records, unit.size_bytes)
        return buffer

    def _result(self, block: Block) -> DecodedBlock | None:
        """The decoded block; None where its partition is broken, here or before: its position stays where it is."""
        name = (block.partition.namespace, block.partition.name)
        if name in self._broken:
            return None
        while not block.result.done():
            if self._error is not None:
                raise Stopped
            wait([block.result], _TICK_S)
        try:
            return block.result.result()
        except BrokenPartition as broken:
            self._broken.add(name)
            self._partition_failed(block.partition, broken.error)
            return None

    def _refuse(self, refused: SchemaChangeRefused) -> None:
        """Stop reading; what is in the buffer lands, then `run` raises."""
        self._refused = refused
        self._stopping = True
        if self._source is not None:
            self._source.interrupt()

    def _seal(self, buffer: Buffer) -> Buffer:
        for identifier in buffer.tables:
            self._tables.land(identifier)
        sealed = buffer.seal()
        failpoint.hit("ingest.sealed")
        self._sealed.put(sealed)
        return self._new_buffer()

    # ---- writing

    def _write(self) -> None:
        while (sealed := self._sealed.get()) is not None:
            self._wait_for_compaction()
            self._tables.ensure(sealed.tables)
            failpoint.hit("ingest.tables_ensured")
            appended = self._wal.append(sealed.draft)
            failpoint.hit("ingest.acknowledged")
            self._counters.segment_published(sealed.landed, sealed.dead, appended.size_bytes)
            self._budget.change(sealed.held_bytes, 0)
        self._written.set()

    def _wait_for_compaction(self) -> None:
        while self._wal.backlog_bytes > self._config.compaction.backlog_bytes_max:
            if self._error is not None:
                raise Stopped
            self._full.set()
            self._clock.sleep(_TICK_S)

    # ---- compacting

    def _keep_compacting(self, once: bool) -> None:
        while not self._written.wait(_TICK_S):
            if self._error is not None:
                return
            if self._full.is_set() or self._compactor.due(self._clock.monotonic()):
                self._full.clear()
                self._compact(force=True)
        if once:
            self._compact(force=True)

    def _compact(self, *, force: bool) -> None:
        self._counters.committed(self._compactor.run_once(force=force).commits)


def open_pipeline(
    config: PipelineConfig, *, source: FileSourceSettings | StdinSourceSettings | SourceFactory, data_dir: Path, items: ItemTable,
    lake: Lake, clock: Clock, stdin: BinaryIO | None = None,
) -> IngestPipeline:
    """Take the pipeline's lock under `data_dir` and recover its log; `run` opens the source over the published offsets.

    `items` is the offsets table of the embedded store; the caller closes it and the lake after the pipeline. With `reset_offsets` every
    position goes back to zero, in an entry of the log. Raises Conflict where another process holds the lock, ConfigurationError (an
    unwritable folder), DataCorruption, Fenced.
    """
    config = with_source(config, source)
    offsets = OffsetStore(items, config.key, clock)
    folder = LogFolder.of(data_dir, config.key).path
    log = Log.open(LocalFileSystem(), folder, config.key, offsets, clock, resetting=config.reset_offsets)
    try:
        if config.reset_offsets:
            log.reset()
            failpoint.hit("ingest.reset")
        return IngestPipeline(config, log=log, lake=lake, offsets=offsets, source=_factory(source, clock, stdin), clock=clock)
    except BaseException:
        log.close()
        raise


def _factory(source: FileSourceSettings | StdinSourceSettings | SourceFactory, clock: Clock, stdin: BinaryIO | None) -> SourceFactory:
    match source:
        case FileSourceSettings():
            return lambda offsets, once: FileSource(source, offsets, clock, once=once)
        case StdinSourceSettings():
            return lambda offsets, once: StdinSource(source, offsets, stdin)
    if not callable(source):
        raise Internal(f"{source!r} is no source")
    return source
