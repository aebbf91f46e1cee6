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
