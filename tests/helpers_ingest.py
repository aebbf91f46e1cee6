"""A whole ingest side over one folder: SQLite store, local warehouse, real log. For tests of runs in process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from catalog.clock import Clock, SystemClock
from catalog.iceberg.lake import IcebergLake
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.items.sqlite import SqliteItemTable
from catalog.keys import PipelineKey
from ingest.pipeline import IngestPipeline, PipelineConfig, open_pipeline
from ingest.progress import RunSummary
from ingest.settings import FileSourceSettings, StdinSourceSettings

__all__ = ["KEY", "World", "lines"]

KEY = PipelineKey("default", "dev", "events")


def lines(rows: Iterable[Mapping[str, Any] | str]) -> str:
    """JSON lines; a string stands for a line as it is."""
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@dataclass
class World:
    """Everything of one DATA_DIR under `root`; each `run` opens it anew, as a new process would."""

    root: Path
    clock: Clock = field(default_factory=SystemClock)

    @property
    def source(self) -> Path:
        return self.root / "in"

    def write(self, name: str, text: str | bytes, *, append: bool = False) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if append else "wb") as out:
            out.write(text.encode() if isinstance(text, str) else text)
        return path

    def run(
        self, *, path: str | None = None, stdin: BinaryIO | None = None, stdin_id: str | None = None, once: bool = True,
        during: Callable[[IngestPipeline], None] | None = None, source: FileSourceSettings | None = None, **config: Any,
    ) -> RunSummary:
        """One run over the folder `in` (or `path`, or standard input). `during` runs before the source is opened."""
        chosen: FileSourceSettings | StdinSourceSettings
        if stdin is not None:
            chosen = StdinSourceSettings(stdin_id=stdin_id)
        else:
            chosen = source or FileSourceSettings(path=path or str(self.source))
        offsets, catalog = self.items("offsets"), self.items("catalog")
        try:
            settings = PipelineConfig(**{"key": KEY, "sink_namespace": ("bronze",), "deadletter_namespace": ("bronze",)} | config)
            with open_pipeline(
                settings, source=chosen, data_dir=self.root / "data", items=offsets, lake=self.lake(catalog), clock=self.clock, stdin=stdin,
            ) as pipeline:
                if during is not None:
                    during(pipeline)
                return pipeline.run(once=once)
        finally:
            offsets.close()
            catalog.close()

    def items(self, table: str) -> SqliteItemTable:
        (self.root / "data").mkdir(parents=True, exist_ok=True)
        return SqliteItemTable(self.root / "data" / "skippr.db", table)

    def lake(self, catalog: SqliteItemTable) -> IcebergLake:
        return IcebergLake(self.catalog(catalog))

    def catalog(self, items: SqliteItemTable) -> SkipprCatalog:
        return SkipprCatalog.over(items, "dev", f"file://{self.root}/warehouse")

    def scan(self, table: str = "events", namespace: str = "bronze") -> pa.Table:
        """The table's rows as pyiceberg reads them."""
        items = self.items("catalog")
        try:
            return self.catalog(items).load_table((namespace, table)).scan().to_arrow()
        finally:
            items.close()

    def exists(self, table: str, namespace: str = "bronze") -> bool:
        items = self.items("catalog")
        try:
            return self.catalog(items).table_exists((namespace, table))
        finally:
            items.close()

    def ids(self, table: str = "events") -> list[int]:
        """Sorted values of column `id`."""
        return sorted(self.scan(table)["id"].to_pylist())

    def segments(self) -> list[str]:
        """Segment files that are left."""
        folder = self.root / "data" / KEY.tenant / KEY.workspace / KEY.pipeline / "segments"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
