"""The server as an ADBC client sees it (the Go driver, as notebooks use it)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import adbc_driver_flightsql.dbapi as flightsql
import adbc_driver_manager as adbc
import pyarrow as pa
import pytest

from flight.server import FlightSqlServer
from tests.helpers_flight import FakeEngine

COOKIES = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(broken="axb")


@pytest.fixture
def server(engine: FakeEngine) -> Iterator[FlightSqlServer]:
    server = FlightSqlServer([engine, FakeEngine("other")], "127.0.0.1:0")
    yield server
    assert server.shutdown(1)
    assert (engine.open_sessions, engine.open_statements, engine.open_streams) == (0, 0, 0), "nothing leaks"


@pytest.fixture
def connection(server: FlightSqlServer) -> Iterator[flightsql.Connection]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "Cannot disable autocommit" is a warning
        connection = flightsql.connect(server.address)
    with connection:
        yield connection


def ask(cursor: flightsql.Cursor, sql: str) -> list[tuple[object, ...]]:
    cursor.execute(sql)
    return cursor.fetchall()


def test_connect_query_commit_close(server: FlightSqlServer, engine: FakeEngine, connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 42")
        assert cursor.fetchall() == [(42,)]
        connection.commit()
        cursor.execute("SELECT 42")
        assert cursor.fetchone() == (42,)
        connection.rollback()
    assert engine.open_statements == 0, "closing a cursor closes its statement"
    assert server.sessions.counts() == (1, 0)
    connection.close()
    assert server.sessions.counts() == (0, 0), "closing a connection closes its session"
    assert engine.open_sessions == 0


def test_parameters_and_reuse_of_a_statement(connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        for number, text in ((1, "a"), (2, None), (-(2**62), "ä\0")):
            cursor.execute("ECHO ? ?", (number, text))
            assert cursor.fetchall() == [(number, text)]
        cursor.execute("ECHO ? ?", (1.5, "the value decides the type"))
        assert cursor.fetchall() == [(1.5, "the value decides the type")]
        with pytest.raises(flightsql.ProgrammingError, match="2 parameters and 1 were bound"):
            cursor.execute("ECHO ? ?", (1,))


def test_several_parameter_rows_are_one_result(connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("ECHO ? ?")
        cursor.adbc_statement.prepare()
        rows = pa.record_batch([pa.array([1, 2, 3]), pa.array(["a", "b", "c"])], ["x", "y"])
        cursor.adbc_statement.bind(rows)
        handle, _ = cursor.adbc_statement.execute_query()
        table = pa.RecordBatchReader.from_stream(handle).read_all()
        assert table.to_pydict() == {"number": [1, 2, 3], "text": ["a", "b", "c"]}


def test_updates_are_refused(connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(flightsql.ProgrammingError, match=r"INVALID_ARGUMENT.*read-only"):
            cursor.executemany("ECHO ? ?", [(1, "a"), (2, "b")])
        with pytest.raises(flightsql.ProgrammingError, match=r"INVALID_ARGUMENT.*read-only"):
            cursor.adbc_ingest("t", pa.table({"a": [1]}), mode="create")
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("DELETE FROM t")
        with pytest.raises(flightsql.ProgrammingError, match=r"INVALID_ARGUMENT.*read-only"):
            cursor.adbc_statement.execute_update()
        cursor.execute("SELECT 42")
        assert cursor.fetchall() == [(42,)]


def test_errors_are_mapped_and_leak_nothing(connection: flightsql.Connection) -> None:
    cases = [
        ("INSERT INTO t", flightsql.ProgrammingError, adbc.AdbcStatusCode.INVALID_ARGUMENT, r"^INVALID_ARGUMENT: .FlightSQL. Parser"),
        ("BREAK unavailable", flightsql.OperationalError, adbc.AdbcStatusCode.IO, "the log is away"),
        ("BREAK corrupt", flightsql.InternalError, adbc.AdbcStatusCode.INTERNAL, "bad bytes"),
        ("BREAK bug", flightsql.InternalError, adbc.AdbcStatusCode.INTERNAL, "internal error, reference"),
        ("BUG", flightsql.InternalError, adbc.AdbcStatusCode.INTERNAL, "internal error, reference"),
    ]
    with connection.cursor() as cursor:
        for sql, kind, code, text in cases:
            with pytest.raises(kind, match=text) as caught:
                ask(cursor, sql)
            assert caught.value.status_code == code
            shown = str(caught.value) + repr(caught.value.details)
            for secret in ("Traceback", "ZeroDivision", "/home", ".py", "flight."):
                assert secret not in shown


@pytest.mark.parametrize(("depth", "deep"), [("catalogs", 0), ("db_schemas", 1), ("tables", 2), ("all", 3)])
def test_get_objects(connection: flightsql.Connection, depth: str, deep: int) -> None:
    catalogs = connection.adbc_get_objects(depth=depth).read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in catalogs] == ["lake", "other"]
    if deep < 1:
        return
    names = [schema["db_schema_name"] for schema in catalogs[0]["catalog_db_schemas"]]
    assert names == ["bronze", "silver_x", "silveryx"]
    if deep < 2:
        return
    tables = {table["table_name"]: table for schema in catalogs[0]["catalog_db_schemas"] for table in schema["db_schema_tables"]}
    types = {name: table["table_type"] for name, table in tables.items()}
    assert types == {"rides": "TABLE", "rides_v": "VIEW", "a_b": "TABLE", "axb": "TABLE"}
    if deep < 3:
        return
    columns = {column["column_name"]: column for column in tables["rides"]["table_columns"]}
    assert list(columns) == ["id", "price", "at", "tags", "name"]
    assert columns["price"]["xdbc_type_name"] == "DECIMAL"
    assert columns["tags"]["xdbc_type_name"] == "VARCHAR[]"
    assert not tables["axb"]["table_columns"], "one broken table does not hide the others"


def test_get_objects_honours_filters(connection: flightsql.Connection) -> None:
    found = connection.adbc_get_objects(
        depth="tables", catalog_filter="lake", db_schema_filter="silver\\_x", table_name_filter="a\\_b", table_types_filter=["TABLE"],
    ).read_all().to_pylist()
    tables = [(schema["db_schema_name"], table["table_name"]) for catalog in found
              for schema in catalog["catalog_db_schemas"] or () for table in schema["db_schema_tables"]]
    assert tables == [("silver_x", "a_b")]


def test_table_schema(connection: flightsql.Connection) -> None:
    schema = connection.adbc_get_table_schema("rides", catalog_filter="lake", db_schema_filter="bronze")
    assert schema.names == ["id", "price", "at", "tags", "name"]
    assert not schema.field("id").nullable
    with pytest.raises(flightsql.ProgrammingError, match="NOT_FOUND"):
        connection.adbc_get_table_schema("nothing")
    with pytest.raises(flightsql.InternalError, match="the metadata of axb cannot be read"):
        connection.adbc_get_table_schema("axb", catalog_filter="lake", db_schema_filter="silver\\_x")


def test_info_and_types(connection: flightsql.Connection) -> None:
    info = connection.adbc_get_info()
    assert info["vendor_name"] == "skippr"
    assert info["vendor_arrow_version"] == pa.__version__
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]


@pytest.mark.parametrize("options", [{}, COOKIES])
def test_current_catalog_and_schema(server: FlightSqlServer, connection: flightsql.Connection, options: dict[str, str]) -> None:
    with flightsql.connect(server.address, db_kwargs=options) as other:
        assert (other.adbc_current_catalog, other.adbc_current_db_schema) == ("lake", "")
        other.adbc_current_db_schema = "bronze"
        other.adbc_current_catalog = "other"
        assert (other.adbc_current_catalog, other.adbc_current_db_schema) == ("other", "")
        other.adbc_current_db_schema = "silver_x"
        assert (other.adbc_current_catalog, other.adbc_current_db_schema) == ("other", "silver_x")
        assert (connection.adbc_current_catalog, connection.adbc_current_db_schema) == ("lake", ""), "sessions are separate"
        with pytest.raises(flightsql.Error):
            other.adbc_current_db_schema = "nowhere"
        with other.cursor() as cursor:
            cursor.execute("SELECT 42")
            assert cursor.fetchall() == [(42,)]


def test_use_takes_effect_although_nobody_fetches(engine: FakeEngine, connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("USE bronze")
    assert engine.used == ["bronze"]


def test_cancel_frees_the_engine(server: FlightSqlServer, engine: FakeEngine, connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        canceller = threading.Thread(target=lambda: (engine.blocked.wait(10), cursor.adbc_cancel()))
        canceller.start()
        with pytest.raises(flightsql.OperationalError, match=r"(?i)cancel"):
            ask(cursor, "BLOCK")
        canceller.join()
        assert engine.interrupted.wait(10), "the engine was interrupted, and did not time out"
        assert server.streams.wait_idle(10)
        assert engine.open_streams == 0
        cursor.execute("SELECT 42")
        assert cursor.fetchall() == [(42,)]


def test_a_cursor_closed_early_stops_the_engine(server: FlightSqlServer, engine: FakeEngine, connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROWS 10000 1000000 10")
        assert len(cursor.fetchmany(5)) == 5
    assert server.streams.wait_idle(10)
    assert engine.open_streams == engine.open_statements == 0
    assert engine.batches_made < 10_000


def test_a_slow_reader_makes_the_engine_wait(server: FlightSqlServer, engine: FakeEngine, connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROWS 100000 1000000 100")
        reader = cursor.fetch_record_batch()
        for _ in range(3):
            reader.read_next_batch()
        assert engine.stands_still() < 40
        reader.close()


def test_batches_beyond_the_drivers_message_limit(connection: flightsql.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROWS 500000 2 60")
        table = cursor.fetch_arrow_table()
        assert table["n"].to_pylist() == list(range(1_000_000))
        cursor.execute("SKEW")
        table = cursor.fetch_arrow_table()
        assert (table.num_rows, sum(map(len, table["text"].to_pylist()))) == (1008, 1000 + 8 * 3_000_000)


def test_many_connections_at_once(server: FlightSqlServer) -> None:
    failures: list[object] = []

    def client(number: int) -> None:
        try:
            with flightsql.connect(server.address) as mine, mine.cursor() as cursor:
                for at in range(10):
                    cursor.execute("ECHO ? ?", (number * 100 + at, "x"))
                    rows = cursor.fetchall()
                    if rows != [(number * 100 + at, "x")]:
                        failures.append(rows)
        except Exception as error:  # noqa: BLE001  told by the test, not lost with the thread
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert server.sessions.counts() == (0, 0)
