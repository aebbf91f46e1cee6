"""One pipeline's run: source -> decode pool -> transform -> buffer -> log -> compactor, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from catalog.clock import Clock
from catalog.control.offsets import OffsetStore
from catalog.errors import Conflict, Internal
from catalog.items.table import ItemTable
from catalog.keys import PipelineKey
from catalog.lake import Lake
from ingest.progress import ProgressSnapshot, RunSummary
from ingest.settings import BufferSettings, CompactionSettings, FileSourceSettings, StdinSourceSettings, TransformSettings
from ingest.sources.base import Source

__all__ = ["IngestPipeline", "PipelineConfig", "SchemaChangeRefused", "SourceFactory", "open_pipeline"]

SourceFactory = Callable[[OffsetStore], Source]
"""How a source that is not built in (entry-point group `skippr.sources`) is opened over the pipeline's offsets."""


class SchemaChangeRefused(Conflict):
    """SCHEMA_AUTO_APPROVE=false and the data needs another schema; `diff` holds one line per change. Everything before it landed."""

    def __init__(self, message: str, diff: tuple[str, ...]) -> None:
        super().__init__(message)
        self.diff = diff


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Plain settings of one pipeline. `table` None means: named after the pipeline."""

    key: PipelineKey
    sink_namespace: tuple[str, ...]
    deadletter_namespace: tuple[str, ...]
    table: str | None = None
    buffer: BufferSettings = field(default_factory=BufferSettings)
    transform: TransformSettings = field(default_factory=TransformSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    schema_auto_approve: bool = True
    reset_offsets: bool = False


class IngestPipeline:
    """An open pipeline: it holds the log's lock until `close`. `run` once; `stop` and `snapshot` from any thread or a signal handler."""

    def run(self, *, once: bool) -> RunSummary:
        """Read until the source has nothing more (`once`), or until `stop`; then seal, publish and (once) compact everything.

        Raises the first error of any stage; what was acknowledged before it is durable and published. A partition that cannot be
        read does not stop the others: see `RunSummary.error`, which the caller raises after showing the summary.
        """
        raise Internal("not built yet")

    def stop(self) -> None:
        """Drain and return from `run`: what was read is sealed and published. Idempotent, safe in a signal handler."""

    def snapshot(self) -> ProgressSnapshot:
        raise Internal("not built yet")

    def close(self) -> None:
        """Release source, log and its lock. Idempotent."""

    def __enter__(self) -> IngestPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pipeline(
    config: PipelineConfig, *, source: FileSourceSettings | StdinSourceSettings | SourceFactory, data_dir: Path, items: ItemTable,
    lake: Lake, clock: Clock, stdin: BinaryIO | None = None,
) -> IngestPipeline:
    """Take the pipeline's lock under `data_dir`, recover its log, then open the source over its published offsets.

    `items` is the offsets table of the embedded store; the caller closes it and the lake after the pipeline. Raises Conflict where
    another process holds the lock, ConfigurationError (a path that is missing, an unwritable folder), DataCorruption.
    """
    raise Internal("not built yet")
