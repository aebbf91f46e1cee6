"""An engine over small Iceberg tables, and a plain DuckDB with the same tables beside it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from catalog.lake import TableState
from flight.engine.engine import DuckEngine
from flight.engine.scope import Scope
from flight.live import LiveSource
from tests.helpers_lake import FakeLake, MemoryCatalog

START = dt.datetime(2020, 1, 1)

X = pa.table(
    {
        "a": pa.array(range(10), pa.int32()),
        "b": [f"b{i % 3}" for i in range(10)],
        "s": pa.array([{"u": i, "v": "q"} for i in range(10)], pa.struct([("u", pa.int32()), ("v", pa.string())])),
        "l": pa.array([[i, i + 1] for i in range(10)], pa.list_(pa.int32())),
        "ts": pa.array([START + dt.timedelta(hours=i) for i in range(10)], pa.timestamp("us")),
        "d": pa.array([START.date() + dt.timedelta(days=i) for i in range(10)], pa.date32()),
    }
)
Y = pa.table(
    {
        "k": pa.array(range(10), pa.int32()),
        "ts2": pa.array([START + dt.timedelta(hours=i, minutes=30) for i in range(10)], pa.timestamp("us")),
        "w": pa.array([2 * i for i in range(10)], pa.int32()),
    }
)
SILVER_X = pa.table({"a": pa.array([100, 101], pa.int32())})


def make_lake(folder: Path) -> FakeLake:
    """gold.x, gold.y and silver.x."""
    catalog = MemoryCatalog(folder)
    for name, rows in (("gold.x", X), ("gold.y", Y), ("silver.x", SILVER_X)):
        catalog.create_table(name, rows.schema).append(rows)
    return FakeLake(catalog)


def make_engine(folder: Path, lake: FakeLake, live: LiveSource | None = None, **settings: Any) -> DuckEngine:
    """An engine of workspace `dev` over the lake in `folder`."""
    values: dict[str, Any] = {"memory_limit_bytes": 512 << 20, "threads": 2, "spill_dir": folder.parent / "spill", **settings}
    return DuckEngine(Scope(tenant="t", workspace="dev", lake=lake, warehouse=str(folder), **values), live)


def plain_duckdb() -> duckdb.DuckDBPyConnection:
    """The oracle: the same tables in a DuckDB of its own, catalog `dev`."""
    con = duckdb.connect(":memory:")
    con.execute("SET TimeZone = 'UTC'; ATTACH ':memory:' AS dev; USE dev; CREATE SCHEMA gold; CREATE SCHEMA silver")
    for name, rows in (("gold.x", X), ("gold.y", Y), ("silver.x", SILVER_X)):
        con.register("rows", rows)
        con.execute(f"CREATE TABLE {name} AS FROM rows")
        con.unregister("rows")
    return con


def rows_of(engine: DuckEngine, sql: str, parameters: Sequence[object] = (), schema: str | None = None, live: str = "required") -> pa.Table:
    """All rows of a statement."""
    session = engine.open_session()
    if schema is not None:
        session.set_schema(schema)
    session.set_option("live_wal", live)
    statement = session.prepare(sql)
    stream = statement.execute(parameters)
    table = pa.Table.from_batches(list(stream), stream.schema)
    assert table.schema.equals(statement.schema)
    return table


class FakeRows:
    """Live rows that open a new stream each time they are scanned; counts the scans."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.opened = 0

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        self.opened += 1
        return self.table.to_reader(max_chunksize=4).__arrow_c_stream__(requested_schema)


class FakeCapture:
    """What a FakeLive gave out; `rows` asks the FakeLive's function."""

    def __init__(self, live: FakeLive) -> None:
        self._live = live
        self.closed = False
        self.version = str(live.captures)

    def rows(self, state: TableState) -> FakeRows | None:
        self._live.log.append("rows")
        return self._live.rows_for(state)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._live.open -= 1


class FakeLive:
    """`flight.live.LiveSource` with one fixed table of rows per Iceberg table; records the order of calls in `log`."""

    def __init__(self, rows: dict[tuple[str, ...], pa.Table] | None = None) -> None:
        self.tables = {name: FakeRows(table) for name, table in (rows or {}).items()}
        self.log: list[str] = []
        self.captures = 0
        self.open = 0
        self.fail: list[Exception] = []
        self.stale: list[Exception] = []

    def capture(self, pipelines: Collection[str]) -> FakeCapture:
        self.log.append("capture " + ",".join(sorted(pipelines)))
        if self.fail:
            raise self.fail.pop(0)
        self.captures += 1
        self.open += 1
        return FakeCapture(self)

    def rows_for(self, state: TableState) -> FakeRows | None:
        if self.stale:
            raise self.stale.pop(0)
        return self.tables.get(state.identifier)
