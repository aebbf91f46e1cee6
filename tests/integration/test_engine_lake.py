"""The query engine over real Iceberg tables: evolution, nesting, live rows, catalog listings, concurrency, cancellation."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, LongType, StringType

from catalog.errors import ConfigurationError, Conflict, DataCorruption, InvalidRequest, NotFound, Unavailable
from catalog.lake import Identifier
from flight.engine.api import TableEntry
from flight.engine.duckdb import Connection
from flight.engine.engine import DuckEngine
from tests.helpers_engine import FakeLive, X, make_engine, make_lake, rows_of
from tests.helpers_lake import FakeLake, MemoryCatalog

GOLD_X: Identifier = ("gold", "x")
ONE = pa.table({"a": pa.array([1], pa.int32())})
LIVE = pa.table({"a": pa.array([10, 11], pa.int64()), "b": ["b1", None], "new": [1.5, 2.5]})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DuckEngine, FakeLake]]:
    """One engine for tests that leave gold.x, gold.y and silver.x as they are."""
    folder = tmp_path_factory.mktemp("shared") / "warehouse"
    folder.mkdir()
    lake = make_lake(folder)
    made = make_engine(folder, lake)
    yield made, lake
    made.close()


@pytest.fixture
def engine(shared: tuple[DuckEngine, FakeLake]) -> DuckEngine:
    return shared[0]


@pytest.fixture
def catalog(shared: tuple[DuckEngine, FakeLake]) -> MemoryCatalog:
    return shared[1].catalog


@pytest.fixture
def lake(tmp_path: Path) -> FakeLake:
    """A lake of the test's own, for `live_engine` and `own_engine`."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return make_lake(folder)


@pytest.fixture
def own_engine(tmp_path: Path, lake: FakeLake) -> Iterator[DuckEngine]:
    made = make_engine(tmp_path / "warehouse", lake)
    yield made
    made.close()


def make_table(catalog: MemoryCatalog, name: str, rows: pa.Table) -> None:
    catalog.create_table(name, rows.schema).append(rows)


def value(engine: DuckEngine, sql: str, *parameters: object, **options: str) -> object:
    table = rows_of(engine, sql, parameters, **options)
    assert table.num_rows == 1
    return table.column(0)[0].as_py()


def live_engine(tmp_path: Path, lake: FakeLake, live: FakeLive) -> DuckEngine:
    lake.pipelines[GOLD_X] = frozenset(["t#w#p"])
    return make_engine(tmp_path / "warehouse", lake, live)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_schema_evolution_and_nested_fields(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    first = pa.schema([("id", pa.int32()), ("v", pa.float32()), ("s", pa.struct([("x", pa.int32())]))])
    make_table(catalog, "gold.evo", pa.Table.from_pylist([{"id": 1, "v": 1.5, "s": {"x": 1}}], schema=first))
    with catalog.load_table("gold.evo").update_schema() as update:
        update.update_column("id", LongType()).update_column("v", DoubleType()).rename_column("v", "w")
        update.add_column(("s", "y"), StringType())
    with catalog.load_table("gold.evo").update_schema() as update:
        update.add_column("v", StringType())
    table = catalog.load_table("gold.evo")
    table.append(pa.Table.from_pylist([{"id": 2**40, "w": 2.5, "s": {"x": 2, "y": "q"}, "v": "new"}], schema=table.schema().as_arrow()))
    rows = rows_of(engine, "select * from gold.evo order by id").to_pylist()
    assert rows == [
        {"id": 1, "w": 1.5, "s": {"x": 1, "y": None}, "v": None},
        {"id": 2**40, "w": 2.5, "s": {"x": 2, "y": "q"}, "v": "new"},
    ]
    assert value(engine, "select s.y from gold.evo where v = ?", "new") == "q"


def test_rows_deleted_by_another_writer(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    make_table(catalog, "gold.deleted", X)
    catalog.load_table("gold.deleted").delete("a >= 7")
    assert value(engine, "select count(*) from gold.deleted") == 7
    catalog.load_table("gold.deleted").delete("a = 3")
    assert value(engine, "select sum(a) from gold.deleted") == 18


def test_every_type_of_iceberg(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    schema = pa.schema(
        [
            ("bo", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
            ("de", pa.decimal128(12, 3)), ("da", pa.date32()),
            ("ti", pa.time64("us")), ("ts", pa.timestamp("us")), ("tz", pa.timestamp("us", "UTC")), ("s", pa.string()),
            ("fx", pa.binary(4)), ("bi", pa.binary()), ("li", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())),
            ("st", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("q", pa.string())])))])),
        ]
    )
    row = {
        "bo": True, "i": 1, "l": 2**40, "f": 1.5, "d": 2.5, "de": Decimal("1.234"), "da": dt.date(2020, 1, 1), "ti": dt.time(1, 2, 3, 4),
        "ts": dt.datetime(2020, 1, 1), "tz": dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "s": "é", "fx": b"abcd", "bi": b"x", "li": [1, 2],
        "m": [("a", 1)], "st": {"x": 1, "y": [{"q": "z"}]},
    }
    catalog.create_table("gold.types", schema).append(pa.Table.from_pylist([row, dict.fromkeys(row)], schema=schema))
    table = rows_of(engine, "select * from gold.types order by bo nulls last")
    assert table.to_pylist() == [row, dict.fromkeys(row)]
    assert table.schema.field("tz").type == pa.timestamp("us", "UTC")
    assert table.schema.field("fx").type == pa.binary()
    assert engine.table_schema(TableEntry("gold", "types", "TABLE")).equals(table.schema)
    assert rows_of(engine, "select * from gold.types where li is not null and st.y[1].q = 'z' and m['a'] = 1").num_rows == 1


def test_types_without_a_portable_form_are_text(engine: DuckEngine) -> None:
    table = rows_of(
        engine,
        "select '101'::bit, 'a'::enum('a', 'b') as e, ['a'::enum('a')] as l, {'e': 'a'::enum('a')} as s, '12:00:00+02'::timetz as t,"
        " 1::union(n int, s varchar) as u, 170141183460469231731687303715884105::hugeint as h,"
        " uuid '00000000-0000-0000-0000-000000000001' as id, 1 as a, 2 as a, interval 1 day as i",
    )
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["e"] == kinds["t"] == kinds["u"] == kinds["id"] == "string"
    assert kinds["l"] == "list<l: string>"
    assert kinds["s"] == "struct<e: string>"
    assert kinds["h"] == "decimal128(38, 0)"
    assert kinds["i"] == "month_day_nano_interval"
    assert table.schema.names.count("a") == 2
    assert table.column(0).to_pylist() == ["101"]
    deep = rows_of(
        engine,
        "select ['101'::bit] as b, {'t': '12:00:00+02'::timetz} as t, map {'k': 1::bignum} as m,"
        " 340282366920938463463374607431768211455::uhugeint as h,"
        " {'BIT': 1, 'VARIANT': 2, 'UNION': 3} as names, 'BIT'::enum('BIT', 'x''UHUGEINT') as e",
    ).to_pylist()[0]
    assert deep == {"b": "[101]", "t": "{'t': '12:00:00+02'}", "m": "{k=1}", "h": str(2**128 - 1),
                    "names": {"BIT": 1, "VARIANT": 2, "UNION": 3}, "e": "BIT"}


def test_time_travel(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    make_table(catalog, "gold.travel", ONE)
    first = catalog.load_table("gold.travel").current_snapshot()
    assert first is not None
    catalog.load_table("gold.travel").append(ONE)
    version = f"at (version => {first.snapshot_id})"
    assert value(engine, "select count(*) from gold.travel") == 2
    assert value(engine, f"select count(*) from gold.travel {version}") == 1
    assert value(engine, f"select count(*) from gold.travel as n join gold.travel as o {version} using (a)") == 2
    later = dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(days=1)
    assert value(engine, f"select count(*) from gold.travel at (timestamp => '{later}')") == 2
    with pytest.raises(InvalidRequest, match="snapshot"):
        rows_of(engine, "select * from gold.travel at (version => 5)")
    with pytest.raises(InvalidRequest, match="AT takes"):
        rows_of(engine, "select * from gold.travel at (version => 1 + 1)")


def test_what_is_committed_is_seen_at_once(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    make_table(catalog, "gold.grows", ONE)
    statement = engine.open_session().prepare("select count(*) as n from gold.grows")
    catalog.load_table("gold.grows").append(ONE)
    stream = statement.execute()
    catalog.load_table("gold.grows").append(ONE)
    # as of the execution: neither the preparation nor the reading
    assert next(iter(stream)).to_pylist() == [{"n": 2}]


def test_changed_columns_end_a_prepared_statement(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    make_table(catalog, "gold.widens", ONE)
    statement = engine.open_session().prepare("select * from gold.widens")
    same = engine.open_session().prepare("select a from gold.widens")
    with catalog.load_table("gold.widens").update_schema() as update:
        update.add_column("z", StringType())
    with pytest.raises(Conflict, match="prepare it again"):
        statement.execute()
    assert (statement.renew(), same.renew()) == (True, False)
    assert statement.schema.names == ["a", "z"]
    assert [batch.to_pylist() for batch in statement.execute()] == [[{"a": 1, "z": None}]]
    assert sum(batch.num_rows for batch in same.execute()) == 1
    assert engine.open_session().prepare("select * from gold.widens").schema.names == ["a", "z"]


def test_metadata_that_expires_between_pin_and_read(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    make_table(catalog, "gold.expires", ONE)
    stream = engine.open_session().prepare("select count(*) as n from gold.expires").execute()
    old = catalog.pointers["gold", "expires"]
    catalog.load_table("gold.expires").append(ONE)
    Path(old.removeprefix("file://")).unlink()
    assert next(iter(stream)).to_pylist() == [{"n": 2}]
    gone = engine.open_session().prepare("select count(*) as n from gold.expires")
    Path(catalog.pointers["gold", "expires"].removeprefix("file://")).unlink()
    with pytest.raises((Unavailable, InvalidRequest)) as caught:
        list(gone.execute())
    assert ".metadata.json" not in str(caught.value)


def test_tables_come_and_go(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    with pytest.raises(NotFound, match=r"gold\.later does not exist"):
        rows_of(engine, "select * from gold.later")
    make_table(catalog, "gold.later", ONE)
    assert rows_of(engine, "select * from gold.later").num_rows == 1
    del catalog.pointers["gold", "later"]
    with pytest.raises(NotFound, match="later"):
        rows_of(engine, "select * from gold.later")


def test_names(engine: DuckEngine, catalog: MemoryCatalog) -> None:
    for name in (("gold", "Odd Name"), ("n1", "n2", "t"), ("Gold2", "t"), ("gold", "case"), ("gold", "CASE")):
        catalog.create_table(name, ONE.schema)
    assert rows_of(engine, 'select * from gold."odd name"').num_rows == 0
    assert rows_of(engine, 'select * from "n1.n2".t').num_rows == 0
    assert rows_of(engine, "select n1.n2.t.a from n1.n2.t").num_rows == 0
    assert rows_of(engine, "select t.a from gold2.T").num_rows == 0
    assert rows_of(engine, 'select * from gold."case"').num_rows == 0
    with pytest.raises(InvalidRequest, match="CASE, case"):
        rows_of(engine, 'select * from gold."Case"')
    assert value(engine, "select count(*) from x", schema="silver") == 2
    assert value(engine, "select count(*) from x, gold.x as g", schema="silver") == 20
    with pytest.raises(NotFound, match=r"Did you mean gold\.x, silver\.x"):
        rows_of(engine, "select * from x")


def test_scope_hides_other_namespaces(tmp_path: Path, lake: FakeLake) -> None:
    engine = make_engine(tmp_path / "warehouse", lake, namespaces=frozenset([("silver",)]))
    try:
        assert engine.schemas() == ["silver"]
        with pytest.raises(NotFound):
            rows_of(engine, "select * from gold.x")
        assert rows_of(engine, "select table_schema from information_schema.tables").to_pylist() == [{"table_schema": "silver"}]
    finally:
        engine.close()


# --- live rows -------------------------------------------------------------------------------------------------------


def test_live_rows_join_the_snapshot_twice(tmp_path: Path, lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: LIVE})
    engine = live_engine(tmp_path, lake, live)
    try:
        assert value(engine, "select count(*) from gold.x") == 12
        assert value(engine, "select count(*) from gold.x, gold.y, gold.x as again where gold.x.a = again.a") == 120
        rows = rows_of(engine, "select a, b, s, new from gold.x where a >= 9 order by a").to_pylist()
        assert rows == [
            {"a": 9, "b": "b0", "s": {"u": 9, "v": "q"}, "new": None},
            {"a": 10, "b": "b1", "s": None, "new": 1.5},
            {"a": 11, "b": None, "s": None, "new": 2.5},
        ]
        assert engine.table_schema(TableEntry("gold", "x", "TABLE")).equals(rows_of(engine, "select * from gold.x").schema)
        assert value(engine, "select count(*) from gold.x", live="off") == 10
        assert rows_of(engine, "explain select * from gold.x").num_rows == 1
        assert "new" in rows_of(engine, "describe gold.x").column(0).to_pylist()
        assert live.open == 0
    finally:
        engine.close()


def test_live_wal_option(tmp_path: Path, lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: LIVE})
    engine = live_engine(tmp_path, lake, live)
    try:
        live.fail = [Unavailable("log p of this machine cannot be read")] * 10
        with pytest.raises(Unavailable, match="log p"):
            rows_of(engine, "select * from gold.x")
        assert value(engine, "select count(*) from gold.x", live="best_effort") == 10
        session = engine.open_session()
        list(session.prepare("set live_wal = 'off'").execute())
        assert session.options() == {"catalog": "dev", "schema": "", "live_wal": "off"}
        list(session.prepare("reset live_wal").execute())
        assert session.options()["live_wal"] == "required"
        for name, bad in (("live_wal", "maybe"), ("catalog", "other")):
            with pytest.raises(InvalidRequest):
                session.set_option(name, bad)
        with pytest.raises(NotFound, match="colour"):
            session.set_option("colour", "red")
    finally:
        engine.close()


def test_captures_are_freed_whatever_happens(tmp_path: Path, lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: LIVE})
    engine = live_engine(tmp_path, lake, live)
    try:
        session = engine.open_session()
        statement = session.prepare("select a from gold.x, range(1000000)")
        assert live.open == 0
        never_read = statement.execute()
        assert live.open == 1
        never_read.close()
        assert live.open == 0
        half_read = statement.execute()
        next(iter(half_read))
        half_read.close()
        assert live.open == 0
        with pytest.raises(InvalidRequest):
            list(session.prepare("select (b || 'x')::int from gold.x").execute())
        assert live.open == 0
    finally:
        engine.close()


# --- the catalog -----------------------------------------------------------------------------------------------------


def test_listings(own_engine: DuckEngine, lake: FakeLake) -> None:
    lake.catalog.create_namespace("empty")
    assert own_engine.schemas() == ["empty", "gold", "silver"]
    assert own_engine.tables() == [TableEntry("gold", "x", "TABLE"), TableEntry("gold", "y", "TABLE"), TableEntry("silver", "x", "TABLE")]
    tables = rows_of(own_engine, "select table_catalog, table_schema, table_name, table_type from information_schema.tables order by all")
    assert [tuple(row.values()) for row in tables.to_pylist()] == [
        ("dev", "gold", "x", "BASE TABLE"), ("dev", "gold", "y", "BASE TABLE"), ("dev", "silver", "x", "BASE TABLE"),
    ]
    listed = "select column_name, data_type from information_schema.columns where table_schema = 'gold' and table_name = 'y'"
    columns = rows_of(own_engine, listed)
    assert [tuple(row.values()) for row in columns.to_pylist()] == [("k", "INTEGER"), ("ts2", "TIMESTAMP"), ("w", "INTEGER")]
    assert rows_of(own_engine, "show tables", schema="gold").column(0).to_pylist() == ["x", "y"]
    assert rows_of(own_engine, "show tables from silver").column(0).to_pylist() == ["x"]
    assert "empty" in rows_of(own_engine, "select schema_name from information_schema.schemata").column(0).to_pylist()
    assert rows_of(own_engine, "show all tables").num_rows == 3
    assert value(own_engine, "select count(*) from duckdb_columns() where schema_name = 'gold' and column_name = 'ts2'") == 1
    assert value(own_engine, "select current_schema() || current_database()", schema="gold") == "golddev"
    assert rows_of(own_engine, "show x", schema="gold").column(0).to_pylist() == ["a", "b", "s", "l", "ts", "d"]
    assert rows_of(own_engine, "select relname from pg_catalog.pg_class where relname = 'y'").num_rows == 1
    del lake.catalog.pointers["gold", "y"]
    lake.catalog.create_table("gold.z", pa.schema([("q", pa.int64())]))
    assert rows_of(own_engine, "show tables", schema="gold").column(0).to_pylist() == ["x", "z"]
    functions = own_engine.functions()
    assert "abs" in functions["numeric"]
    assert "upper" in functions["string"]
    assert "select" in functions["keywords"]
    assert "read_csv" not in functions["string"]


def test_many_tables_with_a_broken_one(own_engine: DuckEngine, lake: FakeLake) -> None:
    location = lake.catalog.pointers["silver", "x"]
    for number in range(2000):
        lake.catalog.pointers["many", f"t{number:04}"] = location
    lake.catalog.known_namespaces.add(("many",))
    broken: Identifier = ("many", "t0007")
    lake.broken[broken] = DataCorruption("metadata of many.t0007 is not JSON")
    lake.loads = 0
    assert len(rows_of(own_engine, "show tables", schema="many")) == 2000
    assert lake.loads == 0
    assert value(own_engine, "select count(distinct table_name) from information_schema.columns where table_schema = 'many'") == 1999
    assert value(own_engine, "select count(*) from many.t1999") == 2
    with pytest.raises(DataCorruption, match="t0007"):
        rows_of(own_engine, "select * from many.t0007")
    with pytest.raises(DataCorruption):
        own_engine.table_schema(TableEntry("many", "t0007", "TABLE"))


def test_a_stub_is_loud_if_it_is_ever_read(engine: DuckEngine) -> None:
    engine.stubs.refresh("columns")
    with engine.instance.connection() as connection, pytest.raises(duckdb.Error, match="stub view was read"):
        connection.execute("SELECT count(*) FROM dev.gold.x").fetchall()


def test_lock_down_holds_without_the_guard(engine: DuckEngine, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    engine_rows = pa.table({"a": [1]})
    assert engine_rows.num_rows == 1
    for sql in (
        f"FROM read_csv('{secret}')", f"COPY (SELECT 1) TO '{tmp_path}/out.csv'", f"ATTACH '{tmp_path}/x.db'",
        "INSTALL httpfs", "LOAD httpfs",
        "SET threads = 8", "SET enable_external_access = true", "SET TimeZone = 'Asia/Tokyo'", "FROM engine_rows",
        "FROM read_text('https://example.org/x')",
    ):
        with engine.instance.connection() as connection, pytest.raises(duckdb.Error):
            connection.execute(sql).fetchall()


# --- running ---------------------------------------------------------------------------------------------------------


def test_sixteen_threads(tmp_path: Path, lake: FakeLake) -> None:
    live = FakeLive({GOLD_X: LIVE})
    engine = live_engine(tmp_path, lake, live)

    def work(number: int) -> int:
        session = engine.open_session()
        session.set_schema("gold" if number % 2 else "silver")
        for _ in range(5):
            table = rows_of(engine, "select sum(gold.x.a) from gold.x join gold.x as again using (a) where a <> ?", [number])
            assert int(table.column(0)[0].as_py()) == 66 - (number if number < 12 else 0)
            statement = session.prepare("select count(*), current_schema() from x")
            assert list(next(iter(statement.execute())).to_pylist()[0].values()) == ([12, "gold"] if number % 2 else [2, "silver"])
        return number

    try:
        with ThreadPoolExecutor(16) as pool:
            assert sorted(pool.map(work, range(16))) == list(range(16))
        assert live.open == 0
    finally:
        engine.close()


SLOW = "select sum(a.range * b.range) from range(100000000) a, range(100000) b"


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_statement_that_computes_is_stopped(engine: DuckEngine, how: str) -> None:
    stream = engine.open_session().prepare(SLOW).execute()
    caught: list[Exception] = []

    def read() -> None:
        try:
            list(stream)
        except Unavailable as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    while stream._connection is None:  # type: ignore[attr-defined]
        time.sleep(0.001)
    getattr(stream, how)()
    reader.join(20)
    assert not reader.is_alive()
    assert [str(error) for error in caught] == ["query cancelled"]
    stream.close()
    assert value(engine, "select 42") == 42


def test_cancel_before_between_and_after(engine: DuckEngine) -> None:
    session = engine.open_session()
    before = session.prepare(SLOW).execute()
    before.cancel()
    with pytest.raises(Unavailable, match="query cancelled"):
        next(iter(before))
    between = session.prepare("select range, repeat('x', 50) from range(100000000)").execute()
    batches = iter(between)
    assert next(batches).num_rows > 0
    between.cancel()
    with pytest.raises(Unavailable, match="query cancelled"):
        list(batches)
    between.close()
    after = session.prepare("select 1").execute()
    assert len(list(after)) == 1
    after.cancel()
    after.close()
    with pytest.raises(Unavailable):
        next(iter(after))
    assert value(engine, "select 42") == 42


def test_closing_the_engine_stops_what_runs(tmp_path: Path, lake: FakeLake) -> None:
    engine = make_engine(tmp_path / "warehouse", lake)
    stream = engine.open_session().prepare(SLOW).execute()
    caught: list[Exception] = []

    def read() -> None:
        try:
            list(stream)
        except Unavailable as error:
            caught.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    while not engine.instance._busy:
        time.sleep(0.001)
    engine.close()
    engine.close()
    reader.join(20)
    assert not reader.is_alive()
    assert len(caught) == 1
    with pytest.raises(Unavailable, match="closed"):
        engine.open_session().prepare("select 1")


def test_an_unusable_instance_is_replaced(own_engine: DuckEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    session = own_engine.open_session()
    statement = session.prepare("select count(*) as n from gold.x")
    first = own_engine.instance
    real = Connection.execute

    def fail(self: Connection, sql: str, parameters: object = None) -> object:
        if "iceberg_scan" in sql:
            monkeypatch.setattr(Connection, "execute", real)
            raise duckdb.FatalException("FATAL Error: Failed: database has been invalidated because of a previous fatal error")
        return real(self, sql, parameters)

    monkeypatch.setattr(Connection, "execute", fail)
    with pytest.raises(Unavailable, match="run the statement again"):
        list(statement.execute())
    assert own_engine.instance is not first
    assert next(iter(statement.execute())).to_pylist() == [{"n": 10}]
    assert len(rows_of(own_engine, "show tables", schema="gold")) == 2


def test_memory_is_bounded_and_said(tmp_path: Path, lake: FakeLake) -> None:
    engine = make_engine(tmp_path / "warehouse", lake, memory_limit_bytes=64 << 20, spill_dir=None)
    try:
        with pytest.raises(Unavailable, match="more memory than the server gives") as caught:
            rows_of(engine, "select list(range) from range(100000000)")
        assert "SET " not in str(caught.value), "no advice that cannot be followed"
        assert value(engine, "select 42") == 42
    finally:
        engine.close()


def test_spilling(tmp_path: Path, lake: FakeLake) -> None:
    engine = make_engine(tmp_path / "warehouse", lake, memory_limit_bytes=64 << 20)
    try:
        sql = "select count(*) from (select hash(range) as h, repeat('x', 40) || range as s from range(2000000) order by h limit 1900000)"
        assert value(engine, sql) == 1900000
    finally:
        engine.close()


def test_engines_spill_into_folders_of_their_own(tmp_path: Path, lake: FakeLake) -> None:
    spill = tmp_path / "spill"
    (spill / "1-dead").mkdir(parents=True)
    (spill / "1-dead" / "LOCK").touch()
    (spill / "1-dead" / "duckdb_temp_storage_DEFAULT-0.tmp").write_bytes(b"left by a process that was killed")
    first = make_engine(tmp_path / "warehouse", lake, spill_dir=spill)
    second = make_engine(tmp_path / "warehouse", lake, spill_dir=spill)
    try:
        folders = {path.parent for path in spill.glob("*/LOCK")}
        assert len(folders) == 2, "one each, and the dead one's is gone"
        first.close()
        assert {path.parent for path in spill.glob("*/LOCK")} < folders
        assert value(second, "select 42") == 42
    finally:
        first.close()
        second.close()
    assert not list(spill.glob("*/"))


def test_too_little_memory_is_a_setting_of_yours(tmp_path: Path, lake: FakeLake) -> None:
    with pytest.raises(ConfigurationError, match="memory_limit of 1 bytes"):
        make_engine(tmp_path / "warehouse", lake, memory_limit_bytes=1)
    assert not list((tmp_path / "spill").glob("*/"))


def test_parameters(engine: DuckEngine) -> None:
    session = engine.open_session()
    statement = session.prepare("select a from gold.x where a between ? and ? and b like ? and ts < ? order by a limit ?")
    assert [str(field.type) for field in statement.parameter_schema] == ["int32", "int32", "string", "timestamp[us]", "int64"]
    assert [row["a"] for batch in statement.execute([2, 8, "b%", dt.datetime(2020, 1, 2), 3]) for row in batch.to_pylist()] == [2, 3, 4]
    with pytest.raises(InvalidRequest, match="5 parameters and 1 values"):
        statement.execute([1])
    assert value(engine, "select $b || $a", "1", "2") == "12"
    untyped = session.prepare("select ? as x")
    assert str(untyped.parameter_schema.field(0).type) == str(untyped.schema.field(0).type) == "string"
    typed = untyped.schema_for([42])
    assert str(typed.field("x").type) == "int32"
    assert next(iter(untyped.execute([42], schema=typed))).to_pylist() == [{"x": 42}]
    assert next(iter(untyped.execute([42]))).to_pylist() == [{"x": "42"}]
    with pytest.raises(InvalidRequest, match="cast the parameter"):
        list(session.prepare("select ? + 1").execute([1.5]))


def test_current_schema(engine: DuckEngine) -> None:
    session = engine.open_session()
    assert (session.catalog, session.schema) == ("dev", None)
    for spelled in ("gold", "GOLD", '"gold"', "dev.gold", 'dev."gold"'):
        session.set_schema("")
        list(session.prepare(f"use {spelled}").execute())
        assert session.schema == "gold"
    with pytest.raises(NotFound, match="nope"):
        session.set_schema("nope")
    assert session.schema == "gold"
    list(session.prepare("reset schema").execute())
    assert session.schema is None
    with pytest.raises(InvalidRequest, match="threads"):
        session.prepare("set threads = 1")
