"""Settings of the ingest side as plain values; `skipprd.config` fills them from flags, environment and file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "MIB", "BufferSettings", "CompactionSettings", "DecodeSettings", "FileSourceSettings",
    "StdinSourceSettings", "TransformSettings",
]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """How bytes become rows. `format` and `compression` None mean: by name and content.

    `block_bytes` is the size of one unit of decoding; a line longer than `line_bytes_max` goes to dead letters.
    `object_keys_max`: an
    object column with more distinct keys than this becomes one JSON string column. CSV cells stay strings where a column is not
    wholly numeric, boolean or (with `infer_dates`) a timestamp.
    """

    format: Literal["jsonl", "json", "csv", "tsv", "parquet", "arrow"] | None = None
    compression: Literal["none", "gzip", "zstd", "bz2", "zip"] | None = None
    block_bytes: int = 4 * MIB
    line_bytes_max: int = 64 * MIB
    threads: int = 2
    infer_dates: bool = False
    object_keys_max: int = 500
    csv_delimiter: str | None = None
    csv_quote: str = '"'
    csv_header: bool = True
    csv_null_values: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSourceSettings:
    """`path` is a file, a folder (recursive) or a glob. Partition names are relative to the root (I10)."""

    path: str
    recursive: bool = True
    own_folders: tuple[str, ...] = ()
    """Folders that skippr writes (DATA_DIR, the warehouse): never read, or a run would find its own files."""
    poll_ms: int = 1000
    idle_close_ms: int = 5000
    """Without --once: a last line without newline counts as a record after the file has not grown for this long."""
    decode: DecodeSettings = field(default_factory=DecodeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinSourceSettings:
    """`stdin_id` names the stream across runs; None makes each run a partition of its own."""

    stdin_id: str | None = None
    decode: DecodeSettings = field(default_factory=DecodeSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSettings:
    """Top-level or dotted field names. See `catalog.lake.TableLayout` for what partition, time and order fields do."""

    namespace_fields: tuple[str, ...] = ()
    partition_fields: tuple[str, ...] = ()
    time_fields: tuple[str, ...] = ()
    time_unit: Literal["year", "month", "day", "hour"] = "day"
    order_fields: tuple[str, ...] = ()
    flatten_events: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSettings:
    """When the buffer is sealed into a segment: bytes are Arrow bytes in memory.

    `queue_bytes_max` bounds all rows between source and log.
    """

    threshold_bytes: int = 10 * MIB
    threshold_seconds: float = 60.0
    partitions_max: int = 500
    segment_bytes_max: int = 64 * MIB
    queue_bytes_max: int = 48 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """One Iceberg commit per table when this much waits. `memory_bytes_max` bounds the rows a compaction holds at once."""

    commit_bytes: int = 128 * MIB
    commit_seconds: float = 300.0
    memory_bytes_max: int = 48 * MIB
    backlog_bytes_max: int = 2048 * MIB
    """Unreclaimed log bytes above this slow the source down until compaction catches up."""
    attempts_max: int = 20
