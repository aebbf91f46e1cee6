"""What becomes of a statement's text: edited in place where that is proven equal, else DuckDB's own text of the tree."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from catalog.errors import InvalidRequest
from flight.engine import resolve
from flight.engine.duckdb import Connection
from flight.engine.engine import DuckEngine
from flight.engine.lexer import first_word, read_path, strip_semicolons, tokens
from flight.engine.portable import Conversion, portable_schema
from flight.engine.resolve import Template, analyze
from flight.engine.trees import equal_trees
from tests.helpers_engine import make_engine, make_lake


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckEngine]:
    folder = tmp_path_factory.mktemp("lake")
    made = make_engine(folder, make_lake(folder))
    yield made
    made.close()


def filled(engine: DuckEngine, sql: str, schema: str | None = None) -> str:
    template = engine.template(sql, schema)
    return template.text(lambda at: f"<{template.holes[at].schema}.{template.holes[at].table}>")


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 42 -- nothing", "select 42 -- nothing"),
        ("select * from gold.x", 'select * from (FROM <gold.x>) AS "x"'),
        ("SELECT  a FROM Gold . \"X\" t", "SELECT  a FROM (FROM <gold.x>) t"),
        ("select gold.x.a, dev.gold.x.b from dev.gold.x", 'select "x".a, "x".b from (FROM <gold.x>) AS "x"'),
        ("select é from gold.x t(é) where t.é = 'gold.x'", "select é from (FROM <gold.x>) t(é) where t.é = 'gold.x'"),
        ("with x as (select 1) select * from x, gold.y", 'with x as (select 1) select * from x, (FROM <gold.y>) AS "y"'),
        (
            "select gold.x.a, silver.x.a from gold.x, silver.x",
            'select "x".a, "silver.x".a from (FROM <gold.x>) AS "x", (FROM <silver.x>) AS "silver.x"',
        ),
        ("describe gold.x", 'describe SELECT * FROM (FROM <gold.x>) AS "x"'),
        ("explain select a from gold.x", 'explain select a from (FROM <gold.x>) AS "x"'),
        ("pivot gold.x on b in ('b0') using sum(a)", "pivot (FROM <gold.x>) AS \"x\" on b in ('b0') using sum(a)"),
        ("select (select max(k) from gold.y where k = x.a) from gold.x",
         'select (select max(k) from (FROM <gold.y>) AS "y" where k = x.a) from (FROM <gold.x>) AS "x"'),
        # no edit gives an equal tree here: the text is DuckDB's own
        ("table gold.x", 'SELECT * FROM (SELECT * FROM <gold.x>) AS x'),
        ("select * from gold.x at (version => 7)", "SELECT * FROM (SELECT * FROM <gold.x>) AS x"),
        ("select * exclude (gold.x.a) from gold.x", "SELECT * EXCLUDE (x.a) FROM (SELECT * FROM <gold.x>) AS x"),
    ],
)
def test_text(engine: DuckEngine, sql: str, text: str) -> None:
    assert filled(engine, sql) == text


def test_current_schema_decides(engine: DuckEngine) -> None:
    assert filled(engine, "select * from x", "gold") == 'select * from (FROM <gold.x>) AS "x"'
    assert filled(engine, "select * from x", "silver") == 'select * from (FROM <silver.x>) AS "x"'
    assert filled(engine, "select silver.x.a from x", "silver") == 'select "x".a from (FROM <silver.x>) AS "x"'


def test_one_hole_per_table_and_moment(engine: DuckEngine) -> None:
    template = engine.template("select * from gold.x a, gold.x b, gold.x c at (version => 1), gold.y", None)
    assert [(hole.table, hole.at is None) for hole in template.holes] == [("x", True), ("x", False), ("y", True)]


def test_an_edit_that_is_not_equal_is_never_run(engine: DuckEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the edit does, the text that runs has the tree that was checked."""

    class Wrong(resolve.Rewriter):
        def edited_text(self) -> str | None:
            text = super().edited_text()
            return None if text is None else text + ", (select 1)"

    monkeypatch.setattr(resolve, "Rewriter", Wrong)
    with engine.instance.connection() as connection:
        template = analyzed(engine, "select a from gold.x", connection)
        assert template.text(lambda at: "t") == "SELECT a FROM (SELECT * FROM t) AS x"
        monkeypatch.setattr(resolve, "_deserialize", lambda root, connection: "select 1")
        with pytest.raises(InvalidRequest, match="cannot be tied to a snapshot"):
            analyzed(engine, "select a from gold.x", connection)


def analyzed(engine: DuckEngine, sql: str, connection: Connection) -> Template:
    from flight.engine.catalog import ScopeTables

    return analyze(sql, connection, ScopeTables("dev", engine.names, None))


@pytest.mark.parametrize("sql", ["select '\ud800'", "select " + "+".join(["1"] * 900), "select " + "-" * 5000 + "1"])
def test_hostile_text(engine: DuckEngine, sql: str) -> None:
    with pytest.raises(InvalidRequest):
        engine.template(sql, None)


@pytest.mark.parametrize(
    ("sql", "hints"),
    [
        ("select ?::date, cast(? as decimal(5, 2))", [("1", "DATE", None), ("2", "DECIMAL(5,2)", None)]),
        ("select 1 where a = ? and ? < x.b", [("1", None, "a"), ("2", None, "b")]),
        ("select 1 where a in (?, ?) limit ? offset ?", [("1", None, "a"), ("2", None, "a"), ("3", "BIGINT", None), ("4", "BIGINT", None)]),
        ("select 1 where a between ? and ? or b like ?", [("1", None, "a"), ("2", None, "a"), ("3", "VARCHAR", None)]),
        ("select $b, $a, $b, 1 = $c", [("b", None, None), ("a", None, None), ("c", "INTEGER", None)]),
        ("select $2, $1", [("1", None, None), ("2", None, None)]),
    ],
)
def test_parameters(engine: DuckEngine, sql: str, hints: list[tuple[str, str | None, str | None]]) -> None:
    found = engine.template(sql, None).parameters
    assert [(one.name, one.type_name, one.column) for one in found] == hints


def test_lexer() -> None:
    text = "select /* a /* nested */ ; */ \"a;\"\"b\", 'x;''y', e'\\';', $q$;$q$, $$;$$, 1.5 -- ;\n , b;  ; -- end"
    assert [token.value for token in tokens(text.encode()) if token.value == ";"] == [";", ";"]
    assert strip_semicolons(text).endswith(" , b")
    assert strip_semicolons(";; select 1 ;") == " select 1 "
    assert strip_semicolons("select ';'") == "select ';'"
    assert first_word(" -- x\n ( (SELECT 1))") == "SELECT"
    assert first_word("/* open") == ""
    path = read_path('é, "A""b" . /* x */ c'.encode(), 4, 2)
    assert path is not None
    assert [token.value for token in path] == ['A"b', "c"]
    assert read_path(b"a + b", 0, 2) is None
    assert read_path(b" a.b", 0, 2) is None


def test_equal_trees() -> None:
    assert equal_trees({"a": [1, {"query_location": 1}]}, {"a": [1, {"query_location": 2}], "query_location": 3})
    assert not equal_trees({"a": 1}, {"a": True})
    assert not equal_trees({"a": 1}, {"a": 1, "b": None})
    assert not equal_trees([1], [1, 2])


def test_conversion_of_nested_dictionaries_and_zones() -> None:
    colours = pa.array(["a", "b", "a"]).dictionary_encode()
    struct = pa.StructArray.from_arrays([colours, pa.array([1, 2, 3])], ["c", "n"], mask=pa.array([False, True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), colours, mask=pa.array([False, True, False]))
    zoned = pa.array([1, 2, None], pa.timestamp("us", "Etc/UTC"))
    batch = pa.RecordBatch.from_arrays([colours, struct, lists, zoned], ["d", "s", "l", "z"])
    promised = portable_schema(batch.schema)
    assert [str(field.type) for field in promised] == ["string", "struct<c: string, n: int64>", "list<l: string>", "timestamp[us, tz=UTC]"]
    converted = Conversion(batch.schema, promised)(batch)
    assert converted.schema.equals(promised)
    assert converted.to_pylist() == batch.to_pylist()
    same = Conversion(promised, promised)
    assert same(converted) is converted
    with pytest.raises(InvalidRequest, match="2 columns"):
        Conversion(pa.schema([("a", pa.int8()), ("b", pa.int8())]), promised)
