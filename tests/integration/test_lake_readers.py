"""Tables we write, read by plain DuckDB and by pyiceberg: the same rows, with filters that prune files, after evolution."""

from __future__ import annotations

import decimal
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    IsNull,
    LessThan,
    NotNull,
    StartsWith,
)

from catalog.iceberg.lake import IcebergLake
from catalog.lake import Mark
from tests.helpers_iceberg import TABLE, make_lake, make_table, select

FIRST = datetime(1969, 12, 30, 22, 0, tzinfo=UTC)
SCHEMA = pa.schema([
    ("id", pa.int32()), ("t", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("f", pa.float64()), ("g", pa.float32()),
    ("dec", pa.decimal128(30, 2)), ("small", pa.decimal128(7, 2)), ("b", pa.binary()), ("flag", pa.bool_()), ("day", pa.date32()),
    ("s", pa.struct([("n", pa.int64()), ("text", pa.string())])), ("l", pa.list_(pa.struct([("x", pa.float64())]))),
    ("m", pa.map_(pa.string(), pa.int64())), ("tags", pa.list_(pa.string())), ("late", pa.null()),
])


def row(i: int) -> dict[str, Any]:
    floats = [1.0, math.nan, math.inf, -math.inf, None, -5.5, 1e300]
    return {
        "id": i, "t": FIRST + timedelta(hours=i), "kind": ["a/b", "ü#%", "c d", None, ""][i % 5],
        "f": floats[i % 7] if i < 70 else float(i), "g": math.nan if i % 50 == 49 else i / 2,
        "dec": decimal.Decimal(i * 1000) - decimal.Decimal("3.25"), "small": decimal.Decimal(-i).quantize(decimal.Decimal("0.01")),
        "b": bytes([i % 256]) * 20 if i % 3 else None, "flag": None if i % 11 == 0 else i % 2 == 0,
        "day": (FIRST + timedelta(days=i)).date(),
        "s": None if i % 7 == 0 else {"n": i * 10, "text": f"text-{i:04d}-" + "z" * 30 if i % 4 else None},
        "l": None if i % 5 == 0 else [] if i % 5 == 1 else [{"x": 1.5}, None], "m": None if i % 6 == 0 else {"k": i},
        "tags": [f"tag{i}"] * (i % 3),
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> IcebergLake:
    """Four commits: 80 rows each, then a wider schema."""
    lake = make_lake(tmp_path_factory.mktemp("readers") / "a folder")
    state = make_table(lake, SCHEMA, partition_fields=("kind",), time_fields=("t",), time_unit="month", order_fields=("s.n", "f"))
    for index in range(3):
        rows = pa.RecordBatch.from_pylist([row(i) for i in range(index * 80, index * 80 + 80)], schema=SCHEMA)
        files = lake.write(state, SCHEMA, [rows.slice(0, 30), rows.slice(30)])
        lake.sync(files)
        state = lake.commit(state, files, "w1", Mark(1, index + 1), {})
    wide = pa.schema([
        ("id", pa.int64()), ("kind", pa.string()), ("late", pa.string()), ("g", pa.float64()),
        ("s", pa.struct([("n", pa.int64()), ("more", pa.list_(pa.int32()))])), ("l", pa.list_(pa.struct([("y", pa.string())]))),
    ])
    grown = [
        {"id": 2**40 + i, "kind": "new", "late": f"l{i}", "g": 1e200, "s": {"n": i, "more": [i]}, "l": [{"y": "y"}]} for i in range(20)
    ]
    files = lake.write(state, wide, [pa.RecordBatch.from_pylist(grown, schema=wide)])
    lake.sync(files)
    lake.commit(state, files, "w1", Mark(1, 4), {})
    return lake


FILTERS: list[tuple[str, BooleanExpression | None]] = [
    ("id >= 230", GreaterThanOrEqual("id", 230)),
    ("id > 1000000000000", GreaterThan("id", 10**12)),
    ("t < '1970-01-01T00:00:00Z'", LessThan("t", "1970-01-01T00:00:00+00:00")),
    ("t >= '1970-01-05T03:00:00Z'", GreaterThanOrEqual("t", "1970-01-05T03:00:00+00:00")),
    ("kind = 'a/b'", EqualTo("kind", "a/b")),
    ("kind IS NULL", IsNull("kind")),
    ("kind = ''", EqualTo("kind", "")),
    ("f < -1", LessThan("f", -1.0)),
    ("f > 1e10", None),
    ("isnan(f)", IsNaN("f")),
    ("f IS NULL", IsNull("f")),
    ("g >= 100 AND NOT isnan(g)", GreaterThanOrEqual("g", 100.0)),
    ("g > 1e100", None),
    ("dec < 996.75", LessThan("dec", decimal.Decimal("996.75"))),
    ("small = -77", EqualTo("small", decimal.Decimal("-77.00"))),
    (r"b >= '\xE0'::BLOB", GreaterThanOrEqual("b", b"\xe0")),
    ("b IS NULL", IsNull("b")),
    ("flag", EqualTo("flag", True)),
    ("flag IS NULL", IsNull("flag")),
    ("day >= '1970-06-01'", GreaterThanOrEqual("day", "1970-06-01")),
    ("s.n = 1230", EqualTo("s.n", 1230)),
    ("s.text LIKE 'text-0123%'", StartsWith("s.text", "text-0123")),
    ("s.text >= 'text-0200-zzzzzzzzzzz'", GreaterThanOrEqual("s.text", "text-0200-zzzzzzzzzzz")),
    ("s.n IS NOT NULL", NotNull("s.n")),
    ("s IS NULL", None),
    ("late IS NOT NULL", NotNull("late")),
    ("late <> 'l3'", None),
    ("l[1].x = 1.5", None),
    ("m['k'] = 77", None),
    ("list_contains(tags, 'tag77')", None),
]


def _truth(lake: IcebergLake, where: str) -> list[int]:
    """The rows as DuckDB filters them when nothing can be pruned: the whole table, read by pyiceberg, in memory."""
    import duckdb

    whole = lake.catalog.load_table(TABLE).scan().to_arrow()
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    connection.register("arrow", whole)
    connection.execute("CREATE TABLE whole AS SELECT * FROM arrow")  # over Arrow itself it would compare NaN as Arrow does
    return [r[0] for r in connection.execute(f"SELECT id FROM whole WHERE {where} ORDER BY id").fetchall()]


@pytest.mark.parametrize(("where", "expression"), FILTERS, ids=[where for where, _ in FILTERS])
def test_filters_find_the_same_rows(lake: IcebergLake, where: str, expression: BooleanExpression | None) -> None:
    expected = _truth(lake, where)
    assert expected
    assert sorted(r[0] for r in select(lake, "id", where)) == expected
    if expression is not None:
        assert sorted(lake.catalog.load_table(TABLE).scan(row_filter=expression).to_arrow()["id"].to_pylist()) == expected


def test_nan_is_found_above_every_number_by_an_engine_that_sorts_it_there(lake: IcebergLake) -> None:
    nans = [i for i in range(240) if (i < 70 and i % 7 == 1)]
    found = sorted(r[0] for r in select(lake, "id", "f > 1e305"))
    assert found == sorted([*nans, *(i for i in range(70) if i % 7 == 2)])


def test_values_come_back_as_they_went_in(lake: IcebergLake) -> None:
    read = {r["id"]: r for r in lake.catalog.load_table(TABLE).scan().to_arrow().to_pylist()}
    assert len(read) == 260
    lists = dict(select(lake, "id, l"))  # pyiceberg 0.12 itself reads a NULL list of structs as an empty list
    for i in range(0, 240, 7):
        wanted = row(i)
        got = {key: read[i][key] for key in wanted}
        got["m"] = None if got["m"] is None else dict(got["m"])
        wanted["s"] = wanted["s"] and {**wanted["s"], "more": None}
        wanted["l"] = wanted["l"] and [None if x is None else {**x, "y": None} for x in wanted["l"]]
        got["t"] = got["t"].astimezone(UTC)
        got["l"] = lists[i]
        assert repr(got) == repr(wanted)
    duck = dict(select(lake, "id, s", "id >= 2**40"))
    assert duck[2**40 + 7] == {"n": 7, "text": None, "more": [7]}


def test_filters_prune_files(lake: IcebergLake) -> None:
    table = lake.catalog.load_table(TABLE)
    everything = len(list(table.scan().plan_files()))
    for expression in (EqualTo("kind", "new"), EqualTo("s.n", 1230), GreaterThan("id", 10**12), LessThan("t", "1970-01-01T00:00:00+00:00")):
        assert 0 < len(list(table.scan(row_filter=expression).plan_files())) < everything / 2


def test_pyiceberg_goes_on_with_our_table(tmp_path: Path) -> None:
    """Appends and deletes by pyiceberg and appends by us, in turns, on one table."""
    lake = make_lake(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    state = make_table(lake, schema, partition_fields=("name",))
    for index in range(1, 4):
        state = lake.load(TABLE)
        rows = [{"id": index * 10 + i, "name": f"n{i}"} for i in range(3)]
        files = lake.write(state, schema, [pa.RecordBatch.from_pylist(rows, schema=schema)])
        lake.sync(files)
        lake.commit(state, files, "w1", Mark(1, index), {})
        table = lake.catalog.load_table(TABLE)
        table.append(pa.table({"id": [index * 100], "name": ["n1"]}, schema=schema))
        table.delete(f"id = {index * 10}")
    assert sorted(r[0] for r in select(lake, "id")) == [11, 12, 21, 22, 31, 32, 100, 200, 300]
    assert sorted(r[0] for r in select(lake, "id", "name = 'n1'")) == [11, 21, 31, 100, 200, 300]
    assert lake.load(TABLE).mark("w1") == Mark(1, 3)
    summary = lake.catalog.load_table(TABLE).current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary["total-records"] == "9"
