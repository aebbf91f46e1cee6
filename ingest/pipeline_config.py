"""What a pipeline is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from catalog.control.offsets import OffsetStore
from catalog.keys import PipelineKey
from ingest.settings import BufferSettings, CompactionSettings, FileSourceSettings, StdinSourceSettings, TransformSettings
from ingest.sources.base import Source

__all__ = ["PipelineConfig", "SourceFactory", "with_source"]

SourceFactory = Callable[[OffsetStore, bool], Source]
"""How a source that is not built in (entry-point group `skippr.sources`) is opened: over the pipeline's offsets, for one pass or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Plain settings of one pipeline. `table` None means: named after the pipeline.

    `poll_ms`, `decode_threads` and `object_keys_max` are for sources that are not built in; the built-in ones bring their own.
    """

    key: PipelineKey
    sink_namespace: tuple[str, ...]
    deadletter_namespace: tuple[str, ...]
    table: str | None = None
    buffer: BufferSettings = field(default_factory=BufferSettings)
    transform: TransformSettings = field(default_factory=TransformSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    schema_auto_approve: bool = True
    reset_offsets: bool = False
    poll_ms: int = 1000
    decode_threads: int = 2
    object_keys_max: int = 500


def with_source(config: PipelineConfig, source: FileSourceSettings | StdinSourceSettings | SourceFactory) -> PipelineConfig:
    """The settings of the run that a source brings along."""
    if not isinstance(source, FileSourceSettings | StdinSourceSettings):
        return config
    poll_ms = source.poll_ms if isinstance(source, FileSourceSettings) else config.poll_ms
    decode = source.decode
    return replace(config, poll_ms=poll_ms, decode_threads=decode.threads, object_keys_max=decode.object_keys_max)
