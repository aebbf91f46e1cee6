"""Rows for people and programs."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from catalog.errors import InvalidRequest
from skipprd import render
from skipprd.cli.query import parameter

TABLE = pa.table({
    "n": pa.array([1, None], pa.int64()),
    "d": pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)),
    "big": pa.array([Decimal(2**70), None], pa.decimal128(38, 0)),
    "f": [float("nan"), 0.5],
    "at": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), None], pa.timestamp("us", "UTC")),
    "b": [b"\x00\xff", None],
    "deep": [{"k": [1, 2]}, None],
    "text": ['a,"b"\nc', ""],
})


def written(form: str, table: pa.Table = TABLE) -> str:
    out = io.StringIO()
    assert render.write(form, table.to_reader(), out) == table.num_rows
    return out.getvalue()


def test_json_is_exact_and_valid() -> None:
    first, second = json.loads(written("json"))
    assert first == {"n": 1, "d": "1.50", "big": 2**70, "f": "nan", "at": "2026-01-02T03:04:05+00:00", "b": "AP8=", "deep": {"k": [1, 2]},
                     "text": 'a,"b"\nc'}
    assert (second["n"], second["deep"], second["text"]) == (None, None, "")
    assert json.loads(written("json", TABLE.slice(0, 0))) == []


def test_columns_of_one_name_are_kept_apart() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert json.loads(written("json", table)) == [{"a": 1, "a_2": 2}]


def test_csv_quotes_and_nests() -> None:
    assert written("csv", TABLE.select(["n", "deep", "text"])) == 'n,deep,text\n1,"{""k"": [1, 2]}","a,""b""\nc"\n,,\n'


def test_table_aligns_and_counts() -> None:
    lines = written("table", TABLE.select(["n", "text"])).splitlines()
    assert lines == ["   n  text", "----  --------", '   1  a,"b"\\nc', "NULL", "(2 rows)"]


def test_arrow_keeps_types() -> None:
    out = io.TextIOWrapper(io.BytesIO())
    render.write("arrow", TABLE.to_reader(), out)
    raw = out.buffer
    assert isinstance(raw, io.BytesIO)
    assert pa.ipc.open_stream(raw.getvalue()).read_all().drop_columns("f").equals(TABLE.drop_columns("f"))  # NaN != NaN


def test_arrow_is_not_for_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with pytest.raises(InvalidRequest, match="not for a terminal"):
        render.write("arrow", TABLE.to_reader(), Terminal())


@pytest.mark.parametrize(("text", "value"), [
    ("5", 5), ("1.5", 1.5), ("true", True), ("null", None), ('"5"', "5"), ("five", "five"), ("[1]", "[1]"), ("2026-01-01", "2026-01-01"),
])
def test_parameters(text: str, value: object) -> None:
    assert parameter(text) == value


def test_values_that_python_has_not_are_shown_all_the_same() -> None:
    far = pa.table({
        "d": pa.array([2**31 - 1, -(2**31) + 1, 105_200_797, None, -1_084_770, 0], pa.int32()).cast(pa.date32()),
        "t": pa.array(
            [2**63 - 1, -(2**63) + 1, 253_402_300_800_000_001, None, -93_724_128_000_000_000, 1], pa.int64()).cast(pa.timestamp("us")),
        "z": pa.array([[2**62], [0], None, [], [None], [1]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", "UTC"))),
        "n": pa.array([1_577_836_800_123_456_789] * 6, pa.timestamp("ns")),
        "i": pa.array([pa.MonthDayNano([1, 2, 3_500_000_000])] * 6),
        "m": pa.array([[("k", 2**31 - 1)]] * 6, pa.map_(pa.string(), pa.int32())).cast(pa.map_(pa.string(), pa.date32())),
        "s": pa.StructArray.from_arrays([pa.array([1] * 6), pa.array(["x"] * 6)], names=["", ""]),
    })
    rows = json.loads(written("json", far))
    assert [row["d"] for row in rows] == ["infinity", "-infinity", "290000-01-01", None, "-1000-01-01", "1970-01-01"]
    assert [row["t"] for row in rows] == ["infinity", "-infinity", "10000-01-01T00:00:00.000001", None, "-1000-01-01T00:00:00",
                                          "1970-01-01T00:00:00.000001"]
    assert [row["z"] for row in rows] == [["148108-07-06T14:00:27.387904+00:00"],
                                          ["1970-01-01T00:00:00+00:00"], None, [], [None], ["1970-01-01T00:00:00.000001+00:00"]]
    assert (rows[0]["n"], rows[0]["i"]) == ("2020-01-01T00:00:00.123456789", "P1M2DT3.5S")
    assert (rows[0]["m"], rows[0]["s"]) == ([["k", "infinity"]], {"": 1, "_2": "x"})
    for form in ("table", "csv"):
        assert "infinity" in written(form, far)
