"""Wiring only: which parts a command gets, made from the configuration. Everything heavy is imported where it is made."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from catalog.clock import SystemClock
from catalog.errors import ConfigurationError
from skipprd.endpoints import PluginSourceSettings, SinkConfig
from skipprd.sections import Configuration, PipelineSpec
from skipprd.telemetry import Metric, Telemetry

if TYPE_CHECKING:
    from catalog.iceberg.lake import IcebergLake
    from catalog.items.sqlite import SqliteItemTable
    from catalog.items.table import ItemTable
    from catalog.lake import Identifier
    from flight.engine.api import Engine, EngineSession
    from flight.server import FlightSqlServer
    from ingest.pipeline import IngestPipeline, SourceFactory
    from ingest.settings import BufferSettings, CompactionSettings, FileSourceSettings, StdinSourceSettings

__all__ = ["STORE_NAME", "App", "check_data_dir"]

_log = logging.getLogger(__name__)

STORE_NAME: Final = "skippr.db"
"""The embedded store inside DATA_DIR; its item tables are `offsets` and `catalog`."""


def check_data_dir(path: Path, origin: str, *, create: bool) -> Path:
    """The folder, made where `create`. Raises ConfigurationError naming it, its origin and the remedy."""
    name = f"data_dir {str(path)!r} (from {origin})"
    try:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        is_folder = path.is_dir()
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be made: {error.strerror}; name a folder that this user can write (--data-dir)") from None
    if not is_folder:
        what = "is not a folder" if path.exists() else "does not exist, so there is nothing to read"
        raise ConfigurationError(f"{name} {what}; run skipprd sync first, or name the right folder (--data-dir)")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigurationError(f"{name} cannot be written by this user; change its rights or name another (--data-dir)")
    return path


class _Reader:
    """The query side's view of a lake."""

    def __init__(self, lake: IcebergLake) -> None:
        self._lake = lake
        self.load = lake.load

    def namespaces(self) -> list[tuple[str, ...]]:
        return sorted(self._lake.list_namespaces())

    def tables(self, namespace: tuple[str, ...]) -> list[Identifier]:
        return sorted(self._lake.catalog.rows.tables(namespace))


class App:
    """Owns what it opens and closes it in reverse order at the end of the `with` block. Used by one thread."""

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self._stack = contextlib.ExitStack()
        self._tables: dict[str, SqliteItemTable] = {}
        self._data_dir: Path | None = None

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def data_dir(self, *, create: bool) -> Path:
        """DATA_DIR, checked once. Raises ConfigurationError."""
        if self._data_dir is None:
            values = self.config.values
            self._data_dir = check_data_dir(values.path("data_dir"), values.origin("data_dir"), create=create)
        return self._data_dir

    def items(self, table: str, *, create: bool = False) -> SqliteItemTable:
        """An item table of the embedded store. Raises ConfigurationError."""
        from catalog.items.sqlite import SqliteItemTable

        if table not in self._tables:
            opened = SqliteItemTable(self.data_dir(create=create) / STORE_NAME, table)
            self._stack.callback(opened.close)
            self._tables[table] = opened
        return self._tables[table]

    def items_to_read(self, table: str) -> ItemTable:
        """An item table for looking only: an empty one where DATA_DIR has none yet, so that looking makes nothing."""
        if not (self.config.values.path("data_dir") / STORE_NAME).is_file():
            from catalog.items.memory import MemoryItemTable

            return MemoryItemTable(table)
        return self.items(table)

    def lake(self, sink: SinkConfig, *, create: bool = False) -> IcebergLake:
        """The tables of a sink's warehouse."""
        from catalog.iceberg.lake import IcebergLake
        from catalog.iceberg.skippr_catalog import SkipprCatalog

        catalog = SkipprCatalog.over(self.items("catalog", create=create), self.config.values.text("workspace"), str(sink.warehouse))
        self._stack.callback(catalog.close)
        return IcebergLake(catalog, memory_bytes_max=self.config.values.count("compaction_memory_bytes"))

    def open_pipeline(self, name: str) -> IngestPipeline:
        """The pipeline, its lock taken and its log recovered. Raises ConfigurationError, Conflict, DataCorruption."""
        from ingest.pipeline import PipelineConfig, open_pipeline

        values = self.config.values
        spec = self.config.pipeline(name)
        settings = PipelineConfig(
            key=spec.key, sink_namespace=spec.sink.namespace, deadletter_namespace=spec.deadletter_sink.namespace, buffer=self._buffer(),
            transform=spec.transform, compaction=self._compaction(), schema_auto_approve=values.on("schema_auto_approve"),
            reset_offsets=values.on("reset_offsets"),
        )
        pipeline = open_pipeline(
            settings, source=self._source(spec), data_dir=self.data_dir(create=True), items=self.items("offsets", create=True),
            lake=self.lake(spec.sink, create=True), clock=SystemClock(), stdin=sys.stdin.buffer if spec.source.kind == "Stdin" else None,
        )
        return self._stack.enter_context(pipeline)

    def open_engine(self, *, create: bool = False) -> Engine:
        """DuckDB over the warehouse, with the live rows of this DATA_DIR, made where `create`. Raises ConfigurationError."""
        from flight.engine.scope import Scope, open_engine
        from ingest.wal.live import DiskLiveSource

        values = self.config.values
        sink = self.config.query_sink()
        data_dir = self.data_dir(create=create)
        scope = Scope(
            tenant=values.text("tenant"), workspace=values.text("workspace"), lake=_Reader(self.lake(sink)), warehouse=str(sink.warehouse),
            memory_limit_bytes=values.count("memory_limit"), threads=values.count_or_none("threads") or os.cpu_count() or 1,
            spill_dir=values.path_or_none("spill_dir") or data_dir / "spill",
        )
        engine = open_engine(scope, DiskLiveSource(data_dir, self.items("offsets")))
        self._stack.callback(engine.close)
        return engine

    def open_session(self) -> EngineSession:
        """A session of the embedded engine, `live_wal` set."""
        session = self.open_engine().open_session()
        self._stack.callback(session.close)
        session.set_option("live_wal", self.config.values.text("live_wal"))
        return session

    def open_server(self) -> FlightSqlServer:
        """The Flight SQL server over the engine; it answers when this returns. Raises ConfigurationError.

        It may start before the first sync, so DATA_DIR is made where it is missing.
        """
        from flight.server import FlightSqlServer

        return FlightSqlServer([self.open_engine(create=True)], self.config.values.text("flight_bind"))

    @contextlib.contextmanager
    def telemetry(self, ready: Callable[[], bool], metrics: Callable[[], Iterable[Metric]]) -> Iterator[None]:
        """/healthz, /readyz and /metrics while inside, where http_bind asks for them. Raises ConfigurationError."""
        bind = self.config.values.text_or_none("http_bind")
        if bind is None:
            yield
            return
        with Telemetry(bind, ready, metrics, self.config.values.origin("http_bind")) as server:
            _log.info("health and metrics on http://%s", server.address)
            yield

    def _buffer(self) -> BufferSettings:
        from ingest.settings import BufferSettings

        values = self.config.values
        segment_max = values.count("wal_bytes_per_file")
        threshold = values.count("buffer_threshold_bytes")
        if threshold > segment_max:
            raise ConfigurationError(
                f"buffer_threshold_bytes {threshold} (from {values.origin('buffer_threshold_bytes')}) is more than wal_bytes_per_file "
                f"{segment_max} (from {values.origin('wal_bytes_per_file')}): one seal makes one segment; lower the first"
            )
        return BufferSettings(
            threshold_bytes=threshold, threshold_seconds=values.seconds("buffer_threshold_seconds"),
            partitions_max=values.count("buffer_partitions_max"), segment_bytes_max=segment_max,
            queue_bytes_max=values.count("queue_bytes_max"),
        )

    def _compaction(self) -> CompactionSettings:
        from ingest.settings import CompactionSettings

        values = self.config.values
        return CompactionSettings(
            commit_bytes=values.count("compaction_commit_bytes"), commit_seconds=values.seconds("compaction_commit_seconds"),
            memory_bytes_max=values.count("compaction_memory_bytes"), backlog_bytes_max=values.count("compaction_backlog_bytes"),
        )

    def _source(self, spec: PipelineSpec) -> FileSourceSettings | StdinSourceSettings | SourceFactory:
        settings = spec.source.settings
        if not isinstance(settings, PluginSourceSettings):
            return settings
        from skipprd.plugins import plugin_factory

        return plugin_factory(settings.plugin, settings.options, spec.source.place)
