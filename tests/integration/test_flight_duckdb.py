"""The server over the real engine: an Iceberg table in a folder, read and browsed with ADBC."""

from __future__ import annotations

import datetime
import decimal
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from flight.engine.api import Engine
from flight.engine.scope import Scope, open_engine
from flight.server import FlightSqlServer
from tests.helpers_lake import FakeLake, MemoryCatalog

RIDES = pa.table({
    "id": pa.array(range(1000), pa.int64()),
    "price": pa.array([decimal.Decimal(at) / 4 for at in range(1000)], pa.decimal128(10, 2)),
    "at": pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 1000, pa.timestamp("us", "UTC")),
    "tags": pa.array([["a", None]] * 1000, pa.list_(pa.string())),
    "who": pa.array([{"name": "x"}] * 1000, pa.struct([("name", pa.string())])),
})
# Far more work than any test waits for, with one row at the end of it.
ENDLESS = "SELECT count(*) FROM range(100000000) a(x), range(100000000) b(y) WHERE x + y = -1"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> MemoryCatalog:
    return MemoryCatalog(warehouse)


@pytest.fixture(scope="module")
def engine(warehouse: Path, catalog: MemoryCatalog) -> Iterator[Engine]:
    catalog.create_namespace("bronze")
    catalog.create_namespace(("silver", "deep"))
    catalog.create_table("bronze.rides", RIDES.schema).append(RIDES)
    engine = open_engine(Scope(tenant="default", workspace="demo", lake=FakeLake(catalog), warehouse=str(warehouse)))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[FlightSqlServer]:
    server = FlightSqlServer([engine], "127.0.0.1:0")
    yield server
    assert server.shutdown(1)


@pytest.fixture
def cursor(server: FlightSqlServer) -> Iterator[flightsql.Cursor]:
    with flightsql.connect(server.address) as connection, connection.cursor() as cursor:
        yield cursor


def ask(cursor: flightsql.Cursor, sql: str) -> list[tuple[object, ...]]:
    cursor.execute(sql)
    return cursor.fetchall()


def test_a_table_round_trips(cursor: flightsql.Cursor) -> None:
    cursor.execute("SELECT * FROM bronze.rides ORDER BY id")
    assert cursor.fetch_arrow_table().to_pylist() == RIDES.to_pylist()
    cursor.execute("SELECT count(*), sum(price) FROM demo.bronze.rides WHERE id < ?", (10,))
    assert cursor.fetchall() == [(10, decimal.Decimal("11.25"))]
    cursor.execute("SELECT ?, ?", (1.5, "x"))
    assert cursor.fetchall() == [(1.5, "x")]


def test_use_and_set(server: FlightSqlServer) -> None:
    with flightsql.connect(server.address) as connection, connection.cursor() as cursor:
        for at in range(20):  # takes effect before the next statement is planned, although nobody fetches a row
            cursor.execute(("USE bronze", 'USE "silver.deep"')[at % 2])
            assert connection.adbc_current_db_schema == ("bronze", "silver.deep")[at % 2]
        cursor.execute("SET schema = 'bronze'")
        cursor.execute("SELECT count(*) FROM rides")
        assert cursor.fetchall() == [(1000,)]


def test_set_schema_and_options(server: FlightSqlServer) -> None:
    with flightsql.connect(server.address) as connection:
        assert (connection.adbc_current_catalog, connection.adbc_current_db_schema) == ("demo", "")
        connection.adbc_current_db_schema = "bronze"
        with connection.cursor() as cursor:
            cursor.execute("SELECT max(id) FROM rides")
            assert cursor.fetchall() == [(999,)]
            with pytest.raises(flightsql.Error):
                connection.adbc_current_db_schema = "nowhere"


def test_browsing(cursor: flightsql.Cursor, server: FlightSqlServer) -> None:
    with flightsql.connect(server.address) as connection:
        [catalog] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        assert catalog["catalog_name"] == "demo"
        schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for schema in catalog["catalog_db_schemas"]}
        assert {"bronze", "silver.deep"} <= set(schemas)
        [rides] = schemas["bronze"]
        assert [(c["column_name"], c["xdbc_type_name"]) for c in rides["table_columns"]] == [
            ("id", "BIGINT"), ("price", "DECIMAL"),
            ("at", "TIMESTAMP WITH TIME ZONE"), ("tags", "VARCHAR[]"), ("who", "STRUCT(name VARCHAR)")]
        schema = connection.adbc_get_table_schema("rides", db_schema_filter="bronze")
    cursor.execute("SELECT * FROM bronze.rides LIMIT 0")
    assert cursor.fetch_arrow_table().schema.equals(schema), "a table's schema is that of a query of all its columns"


@pytest.mark.parametrize(("sql", "status", "text"), [
    ("SELEC 1", "INVALID_ARGUMENT", "syntax error"),
    ("SELECT * FROM nothing", "NOT_FOUND|INVALID_ARGUMENT", "nothing"),
    ("DROP TABLE bronze.rides", "INVALID_ARGUMENT", "(?i)read-only|DROP"),
    ("SELECT * FROM read_csv('/etc/passwd')", "INVALID_ARGUMENT", "read_csv"),
    ("SELECT 1; SELECT 2", "INVALID_ARGUMENT", "2 statements at once"),
    ("SELECT error('boom') FROM range(3)", "INVALID_ARGUMENT", "boom|error"),
])
def test_errors(cursor: flightsql.Cursor, sql: str, status: str, text: str) -> None:
    with pytest.raises(flightsql.Error, match=f"^({status}).*") as caught:
        ask(cursor, sql)
    assert re.search(text, str(caught.value))
    assert "Traceback" not in str(caught.value)


def test_cancel_interrupts_duckdb(server: FlightSqlServer, cursor: flightsql.Cursor) -> None:
    def cancel() -> None:
        while not server.streams.count():
            time.sleep(0.01)
        cursor.adbc_cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(flightsql.Error, match=r"(?i)cancel"):
        ask(cursor, ENDLESS)
    canceller.join()
    assert server.streams.wait_idle(10), "DuckDB still works for a client that left"
    cursor.execute("SELECT 42")
    assert cursor.fetchall() == [(42,)]


def test_a_large_result_streams(cursor: flightsql.Cursor) -> None:
    cursor.execute("SELECT range AS n, repeat('x', 100) AS text FROM range(1000000)")
    rows = 0
    for batch in cursor.fetch_record_batch():
        assert batch.nbytes <= 16 << 20
        rows += batch.num_rows
    assert rows == 1_000_000


def test_many_clients(server: FlightSqlServer) -> None:
    failures: list[object] = []

    def client(number: int) -> None:
        try:
            with flightsql.connect(server.address) as connection, connection.cursor() as cursor:
                for at in range(5):
                    cursor.execute("SELECT count(*) FROM bronze.rides WHERE id <= ?", (number + at,))
                    if cursor.fetchall() != [(number + at + 1,)]:
                        failures.append(number)
        except Exception as error:  # noqa: BLE001  told by the test, not lost with the thread
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_cursor_follows_the_columns_of_its_table(server: FlightSqlServer, catalog: MemoryCatalog, cursor: flightsql.Cursor) -> None:
    one = pa.table({"a": pa.array([1], pa.int64())})
    table = catalog.create_table("bronze.widens", one.schema)
    table.append(one)
    with flightsql.connect(server.address) as connection, connection.cursor() as other:
        for names in (["a"], ["a", "z"]):
            cursor.execute("SELECT * FROM bronze.widens")
            assert [column[0] for column in cursor.description] == names
            assert cursor.fetchall() == [(1, None)[:len(names)]]
            other.execute("SELECT *, ? AS given FROM bronze.widens", (7,))
            assert other.fetchall() == [(*(1, None)[:len(names)], 7)]
            if names == ["a"]:
                with table.update_schema() as update:
                    update.add_column("z", StringType())
    del catalog.pointers["bronze", "widens"]
    with pytest.raises(flightsql.ProgrammingError, match="NOT_FOUND"):
        ask(cursor, "SELECT * FROM bronze.widens")
