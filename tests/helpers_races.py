"""Work that racing processes do on one lake; top-level functions, so that processes find them by name."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

from catalog.clock import SystemClock
from catalog.iceberg.lake import IcebergLake
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.items.sqlite import SqliteItemTable
from catalog.lake import Mark, TableLayout
from ingest.compactor import Compactor
from ingest.settings import CompactionSettings
from tests.helpers_iceberg import SCHEMA, TABLE, ListLog, batch

ENTRIES = 8
ROWS = 5


def open_lake(folder: Path) -> IcebergLake:
    items = SqliteItemTable(folder / "control.db", "catalog")
    return IcebergLake(SkipprCatalog.over(items, "race", str(folder / "lake")))


def log_of(wal_id: str, first: int) -> ListLog:
    """The same log in every process: `ENTRIES` entries with ids from `first` on."""
    log = ListLog(wal_id)
    for number in range(ENTRIES):
        log.append({TABLE: [batch(first + number * ROWS, ROWS)]}, size_bytes=60)
    return log


def compact(folder: Path, wal_id: str, first: int, seed: int) -> int:
    """Compact the whole log, whoever else does; returns the commits made here."""
    lake = open_lake(folder)
    lake.create(TABLE, SCHEMA, TableLayout(partition_fields=("name",) if seed % 2 else ()), f"default#default#{wal_id}")
    settings = CompactionSettings(commit_bytes=60 * (1 + seed % 3), attempts_max=200)
    log = log_of(wal_id, first)
    compactor = Compactor(log, lake, settings, SystemClock(), pipeline=f"default#default#{wal_id}", jitter=random.Random(seed))
    return compactor.run_once(force=True).commits


def append_by_pyiceberg(folder: Path, first: int) -> int:
    """A foreign writer beside them."""
    lake = open_lake(folder)
    lake.create(TABLE, SCHEMA, TableLayout(), "default#default#foreign")
    with lake.catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "200", "commit.retry.min-wait-ms": "5"})
    for number in range(4):
        lake.catalog.load_table(TABLE).append(pa.table({"id": [first + number], "name": ["foreign"]}, schema=SCHEMA))
    return 4


def mark_of(folder: Path, wal_id: str) -> Mark:
    return open_lake(folder).load(TABLE).mark(wal_id)
