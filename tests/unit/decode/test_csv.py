"""CSV and TSV: framing by a real state machine, types by what every cell is."""

from __future__ import annotations

import csv
import datetime
import io
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.schema import TableSchema
from tests.helpers_decode import decode

CELLS = st.text(alphabet='ab",\n\r x1é', max_size=5)


def test_cells_get_the_type_that_all_of_them_have() -> None:
    out = decode(b"i,f,b,s,z,n\n1,1,true,x,01234,\n-2,2.5,FALSE,5,1,\n,1e3,,,7,\n", "a.csv")
    assert [out.type(name) for name in "ifbszn"] == ["int64", "double", "bool", "string", "string", "null"]
    assert out.rows == [
        {"i": 1, "f": 1.0, "b": True, "s": "x", "z": "01234"},
        {"i": -2, "f": 2.5, "b": False, "s": "5", "z": "1"},
        {"i": None, "f": 1000.0, "b": None, "s": None, "z": "7"},
    ]


@pytest.mark.parametrize(
    "cell", ["007", "+5", " 5", "0x10", "1_000", "9223372036854775808", "9007199254740993.0x", "nan", "inf", "1.", ".5", "1,5"]
)
def test_what_is_no_plain_number_stays_text(cell: str) -> None:
    out = decode(f'a\n"{cell}"\n'.encode(), "a.csv")
    assert out.rows == [{"a": cell}]


def test_integers_that_a_double_would_round_keep_a_mixed_column_text() -> None:
    assert decode(b"a\n1.5\n9007199254740993\n", "a.csv").rows == [{"a": "1.5"}, {"a": "9007199254740993"}]
    assert decode(b"a\n1.5\n9007199254740992\n", "a.csv").rows == [{"a": 1.5}, {"a": 9007199254740992.0}]


def test_types_hold_over_blocks_and_files_and_widen_like_any() -> None:
    out = decode(b"a,b\n1,x\n2,5\n1.5,6\nx,7\n3,8\n", "a.csv", block_bytes=8)
    assert out.units > 2
    assert out.rows == [{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "5"}, {"a": 1.5, "b": "6"}, {"a": 3.0, "b": "8"}]
    assert out.codes == [(3, "type.conflict")]
    assert "field a: wanted double, found the cell 'x'" in out.bad[0].error
    assert out.bad[0].raw == b"x,7"
    assert out.bad[0].byte_offset == 18


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_a_landed_integer_column_refuses_fractions_and_what_is_out_of_range(block_bytes: int) -> None:
    landed = TableSchema.landed(pa.schema([("a", pa.int64())]))
    out = decode(b"a\n1\n1.5\n9223372036854775808\n2\n007\n", "a.csv", schema=landed, block_bytes=block_bytes)
    assert out.codes == [(1, "type.conflict"), (2, "number.range"), (4, "type.conflict")]
    assert out.rows == [{"a": 1}, {"a": 2}]


def test_cells_take_the_types_a_table_has() -> None:
    kinds = {
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "c": pa.decimal128(8, 2),
        "b": pa.bool_(),
        "f": pa.float64(),
        "i": pa.int32(),
    }
    landed = TableSchema.landed(pa.schema(list(kinds.items())))
    good = b"2024-01-01,2024-01-01T01:00:00+01:00,1.25,true,7,5"
    bad = [b"x,,,,,", b",soon,,,,", b",,1.255,,,", b",,,yes,,", b",,,,x,", b",,,,,y", b",,,,9007199254740993,"]
    out = decode(b"d,t,c,b,f,i\n" + good + b"\n" + b"\n".join(bad) + b"\n", "a.csv", schema=landed)
    utc = datetime.UTC
    assert out.rows == [
        {"d": datetime.date(2024, 1, 1), "t": datetime.datetime(2024, 1, 1, tzinfo=utc), "c": Decimal("1.25"), "b": True, "f": 7.0, "i": 5}
    ]
    assert [record for record, _ in out.codes] == list(range(1, 8))


def test_dates_are_read_where_asked_for() -> None:
    data = b"d,t\n2024-01-01,2024-01-01T00:00:00Z\n"
    assert decode(data, "a.csv").rows == [{"d": "2024-01-01", "t": "2024-01-01T00:00:00Z"}]
    out = decode(data, "a.csv", infer_dates=True)
    assert (out.type("d"), out.type("t")) == ("date32[day]", "timestamp[us, tz=UTC]")


def test_null_and_the_empty_string_stay_apart_in_text() -> None:
    out = decode(b'a,b,n\nx,NA,1\n"",,NA\n,"NA",2\n', "a.csv", csv_null_values=("", "NA"))
    assert out.rows == [{"a": "x", "b": None, "n": 1}, {"a": "", "b": None, "n": None}, {"a": None, "b": "NA", "n": 2}]


def test_a_quoted_empty_cell_is_null_in_a_column_of_numbers() -> None:
    assert decode(b'"a","b"\n"1","x"\n"",""\n', "a.csv").rows == [{"a": 1, "b": "x"}, {"a": None, "b": ""}]


def test_a_record_with_another_number_of_cells_is_a_dead_letter() -> None:
    out = decode(b'a,b\n1,2\n3\n4,5,6\n\n"7\n7",8\n', "a.csv")
    assert out.codes == [(1, "csv.columns"), (2, "csv.columns")]
    assert out.bad[1].raw == b"4,5,6"
    assert "3 cells, the header 2" in out.bad[1].error
    assert out.rows == [{"a": "1", "b": 2}, {"a": "7\n7", "b": 8}]


@pytest.mark.parametrize("data", [b"a,b\n", b"a,b", b"a,b\r\n\r\n", b"\xef\xbb\xbfa,b\n", b""])
def test_a_header_alone_is_no_rows(data: bytes) -> None:
    assert decode(data, "a.csv").records == 0


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("block_bytes", [1, 3, 5, 1 << 20])
@pytest.mark.parametrize("last", [True, False])
def test_line_endings_and_newlines_in_quotes(ending: bytes, block_bytes: int, last: bool) -> None:
    data = ending.join([b'"a\nx",b', b'"1\r\n2",x', b"", b'"say ""hi""",y', b"z,w"]) + (ending if last else b"")
    out = decode(data, "a.csv", block_bytes=block_bytes)
    assert out.schema.arrow.names == ["a\nx", "b"]
    assert [tuple(row.values()) for row in out.rows] == [("1\r\n2", "x"), ('say "hi"', "y"), ("z", "w")]
    assert out.byte_end == len(data)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), max_size=8), st.sampled_from(["\n", "\r\n"]), st.integers(1, 60), st.booleans())
def test_what_the_csv_module_writes_is_read_back(rows: list[tuple[str, str]], ending: str, block_bytes: int, everything: bool) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=ending, quoting=csv.QUOTE_ALL if everything else csv.QUOTE_NONNUMERIC)
    writer.writerow(["h1", "h2"])
    writer.writerows(rows)
    landed = TableSchema.landed(pa.schema([("h1", pa.string()), ("h2", pa.string())]))
    out = decode(text.getvalue().encode(), "a.csv", block_bytes=block_bytes, schema=landed)
    assert [tuple(row.values()) for row in out.rows] == rows


@settings(max_examples=120, deadline=None)
@given(st.text(alphabet='a",\n\r', max_size=40), st.integers(1, 30))
def test_any_text_is_read_the_same_however_it_is_cut(text: str, block_bytes: int) -> None:
    data = b"h1,h2\n" + text.encode()
    landed = TableSchema.landed(pa.schema([("h1", pa.string()), ("h2", pa.string())]))
    whole = decode(data, "a.csv", schema=landed)
    cut = decode(data, "a.csv", schema=landed, block_bytes=block_bytes)
    assert cut.rows == whole.rows
    assert cut.codes == whole.codes
    assert cut.records == whole.records


def test_quotes_in_odd_places_belong_to_the_cell() -> None:
    out = decode(b'a,b\n5" disk,x"y\n"q"z,w\n"p""q"r,"s\nt"\n', "a.csv")
    assert [tuple(row.values()) for row in out.rows] == [('5" disk', 'x"y'), ("qz", "w"), ('p"qr', "s\nt")]


@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_a_quote_that_never_closes_costs_its_line_only(block_bytes: int) -> None:
    out = decode(b'a,b\n1,x\n2,"open\n3,y\n4,z\n', "a.csv", block_bytes=block_bytes)
    assert out.codes == [(1, "csv.quote")]
    assert out.bad[0].raw == b'2,"open'
    assert [row["a"] for row in out.rows] == [1, 3, 4]


def test_a_quoted_cell_beyond_the_limit_costs_its_line_only() -> None:
    data = b'a,b\n1,x\n2,"open\n' + b"3,y\n" * 1000 + b'4,"z"\n'
    out = decode(data, "a.csv", block_bytes=64, line_bytes_max=500)
    assert out.codes == [(1, "csv.quote")]
    assert out.records == 1003


def test_a_line_beyond_the_limit_is_passed_over_once() -> None:
    out = decode(b"a,b\n1,x\n2," + b"y" * 5000 + b"\n3,z\n", "a.csv", block_bytes=64, line_bytes_max=500)
    assert out.codes == [(1, "line.too_long")]
    assert [row["a"] for row in out.rows] == [1, 3]


def test_bytes_that_are_not_utf8_cost_their_record_only() -> None:
    out = decode(b"a,b\n1,x\n2,\xff\n3,\xc3\xa9\n", "a.csv")
    assert out.codes == [(1, "utf8")]
    assert [row["b"] for row in out.rows] == ["x", "é"]


def test_tabs_other_delimiters_other_quotes_and_no_header() -> None:
    assert decode(b"a\tb\n1\tx,y\n", "a.tsv").rows == [{"a": 1, "b": "x,y"}]
    assert decode(b"a;b\n1;'x;y'\n", "a.csv", csv_delimiter=";", csv_quote="'").rows == [{"a": 1, "b": "x;y"}]
    assert decode(b"1,x\n2,y\n", "a.csv", csv_header=False).rows == [{"column_1": 1, "column_2": "x"}, {"column_1": 2, "column_2": "y"}]
    assert decode(b'a,b\n"1,x"\n', "a.csv", csv_quote="").rows == [{"a": '"1', "b": 'x"'}]


def test_header_names_are_made_distinct_and_none_is_empty() -> None:
    out = decode(b"a,a,,A\n1,2,3,4\n", "a.csv")
    assert out.rows == [{"a": 1, "a_1": 2, "column_3": 3, "A_2": 4}]


def test_reading_goes_on_at_every_position_and_byte() -> None:
    data = b'\xef\xbb\xbfa,b\r\n0,"x\n"\r\n\r\n1,y\r\n2\r\n3,z'
    whole = decode(data, "a.csv")
    for start in range(whole.records + 1):
        rest = decode(data, "a.csv", start_record=start, schema=whole.schema)
        assert rest.at == [n for n in whole.at if n >= start]
        assert rest.codes == [c for c in whole.codes if c[0] >= start]
    head = decode(data, "a.csv", at_eof_complete=False)
    assert head.at == [0, 1]
    rest = decode(data, "a.csv", start_record=head.records, start_byte=head.byte_end, schema=head.schema)
    assert rest.at == [3]
    assert rest.rows == [{"a": 3, "b": "z"}]


def test_json_inside_a_cell_stays_text() -> None:
    assert decode(b'a,b\n1,"{""x"": 1}"\n', "a.csv").rows == [{"a": 1, "b": '{"x": 1}'}]


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_a_column_of_large_integers_never_rounds(block_bytes: int) -> None:
    start = decode(b"a\n9007199254740993\n", "a.csv").schema
    out = decode(b"a\n9007199254740995\n1.5\n2\n", "a.csv", schema=start, block_bytes=block_bytes)
    assert out.rows == [{"a": 9007199254740995}, {"a": 2}]
    assert out.codes == [(1, "type.conflict")]
