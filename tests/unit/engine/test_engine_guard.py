"""The guard: a corpus of statements to refuse, one to run as plain DuckDB does, and the reviewed lists of functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from catalog.errors import InvalidRequest, NotFound
from flight.engine import functions, guard
from flight.engine.engine import DuckEngine
from tests.helpers_engine import make_engine, make_lake, plain_duckdb, rows_of
from tests.helpers_sql import ATTACKS, LEGAL, PLACES


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckEngine]:
    folder: Path = tmp_path_factory.mktemp("lake")
    made = make_engine(folder, make_lake(folder))
    yield made
    made.close()


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    return plain_duckdb()


@pytest.mark.parametrize("sql", ATTACKS)
def test_refused(engine: DuckEngine, sql: str) -> None:
    session = engine.open_session()
    with pytest.raises((InvalidRequest, NotFound)) as caught:
        session.prepare(sql)
    message = str(caught.value)
    assert message
    assert "Traceback" not in message
    assert "iceberg_scan('" not in message


@pytest.mark.parametrize("place", PLACES)
def test_refused_wherever_it_stands(engine: DuckEngine, place: str) -> None:
    session = engine.open_session()
    for hidden, named in (("(select size from read_text('/etc/passwd'))", "read_text"), ("getenv('HOME')", "getenv")):
        with pytest.raises(InvalidRequest, match=rf"function {named} is not allowed"):
            session.prepare(place.replace("{}", hidden))


@pytest.mark.parametrize("sql", LEGAL)
def test_runs_as_plain_duckdb_does(engine: DuckEngine, oracle: duckdb.DuckDBPyConnection, sql: str) -> None:
    mine = rows_of(engine, sql)
    theirs = oracle.execute(sql).to_arrow_reader(1000).read_all()
    # Two kinds of column name come from the fallback text, where equal names differ by their spelling only.
    assert [_plain(name) for name in mine.schema.names] == [_plain(name) for name in theirs.schema.names]
    assert [_cells(column) for column in mine.columns] == [_cells(column) for column in theirs.columns]


def _plain(name: str) -> str:
    return name.replace('"', "")


def _cells(column: pa.ChunkedArray) -> str:
    values = [chunk.to_string(window=1000) for chunk in column.chunks if len(chunk)]
    return "".join(values)


def test_read_only_is_said_in_one_sentence(engine: DuckEngine) -> None:
    with pytest.raises(InvalidRequest, match=r"^INSERT is not allowed: this server is read-only") as caught:
        engine.open_session().prepare("insert into gold.x values (1)")
    assert "\n" not in str(caught.value)


def test_every_function_of_this_duckdb_was_reviewed(engine: DuckEngine) -> None:
    with engine.instance.connection() as connection:
        rows = connection.execute("SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()").fetchall()
    scalars = {name for name, kind in rows if kind in ("scalar", "aggregate", "macro") and not name.startswith("__internal")}
    tables = {name for name, kind in rows if kind in ("table", "table_macro")}
    reviewed = functions.ALLOWED_FUNCTIONS | functions.REFUSED_FUNCTIONS
    assert sorted(scalars - reviewed) == []
    assert sorted(tables - functions.ALLOWED_TABLE_FUNCTIONS - functions.REFUSED_TABLE_FUNCTIONS) == []
    assert not functions.ALLOWED_FUNCTIONS & functions.REFUSED_FUNCTIONS
    assert not functions.ALLOWED_TABLE_FUNCTIONS & functions.REFUSED_TABLE_FUNCTIONS


@pytest.mark.parametrize(
    "node",
    [
        {"type": "SOMETHING_NEW", "alias": ""},
        {"class": "SOMETHING_NEW", "type": "X"},
        {"class": "FUNCTION", "type": "FUNCTION", "function_name": "brand_new_function", "children": []},
        {"class": "FUNCTION", "type": "FUNCTION", "function_name": "sum", "children": [], "export_state": True},
        {"type": "TABLE_FUNCTION", "function": {"class": "SUBQUERY", "type": "SUBQUERY"}},
        {"type": "PIVOT", "pivots": [{"pivot_enum": "some_type"}]},
        {"type": "SHOW_REF", "show_type": "SOMETHING_NEW"},
    ],
)
def test_what_nobody_reviewed_is_refused(node: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        guard.check_tree({"statements": [{"node": {"type": "SELECT_NODE", "select_list": [node]}}]})


@pytest.mark.parametrize(
    ("sql", "name", "value"),
    [
        ("use gold", "schema", "gold"),
        ('use dev."a.b"', "schema", 'dev."a.b"'),
        ("set schema = 'gold'", "schema", "gold"),
        ("SET SESSION search_path TO gold;", "schema", "gold"),
        ("set live_wal = 'off'", "live_wal", "off"),
        ("set live_wal to best_effort", "live_wal", "best_effort"),
        ("reset schema", "schema", None),
    ],
)
def test_session_options_by_statement(sql: str, name: str, value: str | None) -> None:
    assert guard.parse_set(sql) == guard.SetOption(name, value)


@pytest.mark.parametrize(
    ("sql", "rest"),
    [
        ("explain select 1", "select 1"),
        ("EXPLAIN ANALYZE select 1", "select 1"),
        ("explain (format json) select 1", "select 1"),
        ("explain (analyze, format 'html') from x", "from x"),
        ("explain (select 1)", "(select 1)"),
        ("explain /* ( */ -- x\n (select 1) union all (select 2)", "(select 1) union all (select 2)"),
    ],
)
def test_explain_prefix(sql: str, rest: str) -> None:
    assert sql.encode()[guard.explain_prefix(sql):].decode() == rest
