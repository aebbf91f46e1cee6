"""A lake in a folder, plain DuckDB over its metadata files, and a log made of lists, for tests of tables and compaction."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from catalog.iceberg.lake import IcebergLake
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.items.memory import MemoryItemTable
from catalog.items.table import ItemTable
from catalog.lake import Identifier, TableLayout, TableState

PIPELINE = "default#default#rides"
TABLE: Identifier = ("bronze", "rides")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def make_lake(folder: Path, items: ItemTable | None = None, *, memory_bytes_max: int = 64 * 1024 * 1024) -> IcebergLake:
    """A lake whose warehouse is `folder/lake`."""
    catalog = SkipprCatalog.over(items or MemoryItemTable("catalog"), "test", str(folder / "lake"))
    return IcebergLake(catalog, memory_bytes_max=memory_bytes_max)


def make_table(lake: IcebergLake, schema: pa.Schema = SCHEMA, identifier: Identifier = TABLE, **layout: Any) -> TableState:
    return lake.create(identifier, schema, TableLayout(**layout), PIPELINE)


def batch(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Rows with ids from `first` on."""
    ids = range(first, first + count)
    return pa.RecordBatch.from_pylist([{"id": i, "name": f"n{i}"} for i in ids], schema=schema)


def plain_duckdb() -> duckdb.DuckDBPyConnection:
    """DuckDB with nothing but its own Iceberg extension, loaded from the installed file."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for name in ("avro", "iceberg"):
        package = import_module(f"duckdb_extension_{name}").__file__ or ""
        path = os.path.join(os.path.dirname(package), "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone='UTC'")
    return connection


@cache
def _shared_duckdb() -> duckdb.DuckDBPyConnection:
    return plain_duckdb()


def select(lake: IcebergLake, what: str, where: str = "true", identifier: Identifier = TABLE) -> list[tuple[Any, ...]]:
    """`SELECT what FROM table WHERE where` by plain DuckDB on the table's metadata file."""
    location = lake.load(identifier).metadata_location.replace("'", "''")
    return _shared_duckdb().execute(f"SELECT {what} FROM iceberg_scan('{location}') WHERE {where}").fetchall()


def ids(lake: IcebergLake, identifier: Identifier = TABLE) -> list[int]:
    """The ids in the table, sorted, as DuckDB reads them; pyiceberg has to read the same."""
    found = sorted(row[0] for row in select(lake, "id", identifier=identifier))
    assert sorted(lake.catalog.load_table(identifier).scan().to_arrow()["id"].to_pylist()) == found
    return found


def warehouse_files(lake: IcebergLake, suffix: str) -> set[str]:
    """Names of all files in the warehouse that end in `suffix`."""
    return {name for _, _, names in os.walk(lake.catalog.warehouse) for name in names if name.endswith(suffix)}


@dataclass(frozen=True)
class Group:
    identifier: Identifier
    rows: int
    length_bytes: int


@dataclass(frozen=True)
class Header:
    index: int
    epoch: int
    groups: tuple[Group, ...]


class ListLog:
    """A log over lists, with the figures a test wants."""

    def __init__(self, wal_id: str = "w1") -> None:
        self.wal_id = wal_id
        self.base = 0
        self.fed: dict[Identifier, int] = {}
        self.reclaims: list[int] = []
        self._entries: dict[int, tuple[Header, Mapping[Identifier, Sequence[pa.RecordBatch]]]] = {}

    def append(self, groups: Mapping[Identifier, Sequence[pa.RecordBatch]], *, epoch: int = 1, size_bytes: int | None = None) -> int:
        index = len(self._entries) + 1
        made = tuple(
            Group(identifier, sum(b.num_rows for b in batches), size_bytes if size_bytes is not None else sum(b.nbytes for b in batches))
            for identifier, batches in groups.items()
        )
        self._entries[index] = (Header(index, epoch, made), groups)
        return index

    def published_index(self) -> int:
        return len(self._entries)

    def headers(self, after: int, upto: int) -> list[Header]:
        return [header for index, (header, _) in self._entries.items() if max(after, self.base) < index <= upto]

    def schemas(self, index: int, identifier: Identifier) -> list[pa.Schema]:
        assert index > self.base
        return [b.schema for b in self._entries[index][1][identifier]]

    def batches(self, index: int, identifier: Identifier) -> Iterator[pa.RecordBatch]:
        assert index > self.base
        yield from self._entries[index][1][identifier]

    def reclaim(self, upto: int) -> None:
        assert self.base < upto <= self.published_index()
        for header in self.headers(self.base, upto):
            self.fed.update((group.identifier, header.index) for group in header.groups)
        self.base = upto
        self.reclaims.append(upto)
