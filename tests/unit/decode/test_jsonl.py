"""JSON lines: the behaviour matrix and the hazards of real files, one test each."""

from __future__ import annotations

import io
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ingest.decode import jsonblock
from ingest.schema import TableSchema
from tests.helpers_decode import decode, lines

BOM = b"\xef\xbb\xbf"


def test_nested_values_become_structs_and_lists() -> None:
    out = decode(lines('{"a":{"b":[{"c":1},{"c":2}]},"t":"x"}', '{"t":null}'))
    assert out.rows == [{"a": {"b": [{"c": 1}, {"c": 2}]}, "t": "x"}, {"a": None, "t": None}]
    assert out.type("a") == "struct<b: list<element: struct<c: int64>>>"


def test_a_field_first_seen_late_is_kept() -> None:
    out = decode(lines(*(['{"a":1}'] * 30_000), '{"a":2,"late":{"x":"y"}}'))
    assert out.rows[-1] == {"a": 2, "late": {"x": "y"}}
    assert out.records == 30_001
    assert not out.bad


def test_a_late_field_in_a_later_block_is_kept() -> None:
    out = decode(lines(*(['{"a":1}'] * 50), '{"b":2}', *(['{"a":1}'] * 50)), block_bytes=64)
    assert out.units > 5
    assert out.rows[50] == {"a": None, "b": 2}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("1", '"x"', "string 'x'"),
        ("true", "1", "integer 1"),
        ("1", "true", "boolean true"),
        ('{"x":1}', "5", "integer 5"),
        ("[1]", "5", "integer 5"),
        ('"x"', "1", "integer 1"),
        ('"x"', '{"y":1}', "object"),
        ("5", '{"y":1}', "object"),
        ("5", "[5]", "array"),
        ('{"x":1}', "[1]", "array"),
        ("[1]", '["x"]', "string 'x'"),
        ('[{"x":1}]', '["x"]', "string 'x'"),
        ('{"x":1}', '{"x":"1"}', "string '1'"),
    ],
)
@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_an_incompatible_value_sends_its_record_to_the_dead_letters(first: str, second: str, found: str, block_bytes: int) -> None:
    out = decode(lines(f'{{"v":{first}}}', f'{{"v":{second}}}', f'{{"v":{first}}}'), block_bytes=block_bytes)
    assert out.codes == [(1, "type.conflict")]
    assert "field v" in out.bad[0].error
    assert found in out.bad[0].error
    assert out.bad[0].raw == f'{{"v":{second}}}'.encode()
    assert out.bad[0].byte_offset == len(f'{{"v":{first}}}\n')
    assert len(out.rows) == 2
    assert out.rows[0] == out.rows[1]


def test_a_refused_record_leaves_no_column_behind() -> None:
    out = decode(lines('{"a":1}', '{"new":1,"a":"x"}'))
    assert out.schema.arrow.names == ["a"]


def test_the_path_of_a_conflict_names_every_level() -> None:
    out = decode(lines('{"a":{"b":[{"c":1}]}}', '{"a":{"b":[{"c":1},{"c":"x"}]}}'))
    assert "field a.b.[1].c: wanted long, found string 'x'" in out.bad[0].error


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_integers_widen_to_double_where_exact(block_bytes: int) -> None:
    out = decode(lines('{"v":1}', '{"v":1.5}', '{"v":2}', '{"v":9007199254740993}', '{"v":9007199254740992}'), block_bytes=block_bytes)
    assert [row["v"] for row in out.rows] == [1.0, 1.5, 2.0, 9007199254740992.0]
    assert out.codes == [(3, "number.range")]


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_a_column_with_large_integers_stays_an_integer_column(block_bytes: int) -> None:
    out = decode(lines('{"v":9007199254740993}', '{"v":1.5}', '{"v":2}'), block_bytes=block_bytes)
    assert [row["v"] for row in out.rows] == [9007199254740993, 2]
    assert out.codes == [(1, "type.conflict")]


def test_large_integers_among_known_small_ones_keep_the_column_an_integer_column_in_record_order() -> None:
    start = decode(lines('{"v":1}')).schema
    out = decode(lines('{"v":9007199254740993}', '{"v":1.5}', '{"v":2}'), schema=start)
    assert [row["v"] for row in out.rows] == [9007199254740993, 2]


def test_a_landed_integer_column_never_becomes_double() -> None:
    landed = TableSchema.landed(pa.schema([("v", pa.int64())]))
    out = decode(lines('{"v":1}', '{"v":1.5}'), schema=landed)
    assert out.codes == [(1, "type.conflict")]
    assert out.type("v") == "int64"


def test_int_and_float_columns_of_a_table_widen_as_iceberg_allows() -> None:
    landed = TableSchema.landed(pa.schema([("i", pa.int32()), ("f", pa.float32())]))
    out = decode(lines('{"i":1,"f":1}', '{"i":3000000000,"f":0.1}'), schema=landed)
    assert (out.type("i"), out.type("f")) == ("int64", "double")
    assert out.rows == [{"i": 1, "f": 1.0}, {"i": 3_000_000_000, "f": 0.1}]


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**63) - 1, 10**37])
def test_integers_beyond_int64_are_exact(number: int) -> None:
    out = decode(lines(f'{{"v":{number}}}', '{"v":1}'))
    assert out.rows == [{"v": Decimal(number)}, {"v": Decimal(1)}]


@pytest.mark.parametrize("number", [2**63, 2**70, 10**40])
def test_an_integer_beyond_an_integer_column_is_a_dead_letter(number: int) -> None:
    out = decode(lines('{"v":1}', f'{{"v":{number}}}'))
    assert out.codes == [(1, "number.range")]


def test_numbers_beyond_38_digits_or_a_double_are_dead_letters() -> None:
    out = decode(lines('{"v":1e400}', '{"w":' + "9" * 39 + "}", '{"x":' + "9" * 5000 + "}", '{"v":1e300}'))
    assert out.codes == [(0, "number.range"), (1, "number.range"), (2, "number.range")]
    assert out.rows == [{"v": 1e300}]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf", "nan"])
def test_not_a_number_is_not_json(constant: str) -> None:
    out = decode(lines('{"v":1.5}', f'{{"v":{constant}}}', f'{{"w":[{{"x":{constant}}}]}}', '{"w":[{"x":0.5}]}'))
    assert out.codes == [(1, "json.syntax"), (2, "json.syntax")]
    again = decode(lines('{"v":1.5}', f'{{"v":{constant}}}', f'{{"w":[{{"x":1.0}},{{"x":{constant}}}]}}'), schema=out.schema)
    assert again.codes == [(1, "json.syntax"), (2, "json.syntax")]


def test_nulls_empty_objects_and_empty_lists_wait_for_a_type() -> None:
    out = decode(lines('{"n":null,"o":{},"l":[],"k":1}', '{"n":null,"o":null,"l":[null],"k":2}'), block_bytes=8)
    assert out.rows == [{"k": 1}, {"k": 2}]
    assert out.schema.arrow.names == ["n", "o", "l", "k"]
    then = decode(lines('{"n":{"x":1},"o":{"y":"a"},"l":[{"z":1}]}'), schema=out.schema)
    assert then.rows == [{"n": {"x": 1}, "o": {"y": "a"}, "l": [{"z": 1}], "k": None}]


def test_null_empty_and_missing_stay_apart_once_typed() -> None:
    out = decode(lines('{"l":[1],"o":{"a":1}}', '{"l":[],"o":{}}', '{"l":null,"o":null}', "{}", '{"l":[null]}'))
    assert [row["l"] for row in out.rows] == [[1], [], None, None, [None]]
    assert [row["o"] for row in out.rows] == [{"a": 1}, {"a": None}, None, None, None]


@pytest.mark.parametrize(
    "bad",
    [
        '{"a":2',
        '{"a":2}TRAILER',
        '{"a":2}{"a":3}',
        '{"a":"x',
        '{"a":tru}',
        '{"a" 1}',
        '{"a":1,}',
        "{'a':1}",
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":1.}',
        "plain text",
        '{"a":"\x01"}',
        '{"a":"\\x"}',
        '{"a":1}//c',
        '{"a":1}\x00',
        '{"a":\x001}',
        '{"a":"\x00"}',
        "}",
        "{",
        '{"a":"\\ud800"}',
        '{"a":[1,]}',
        '{"a":-}',
        '{"a":1}}',
        '{{"a":1}}',
    ],
)
def test_a_malformed_line_is_one_dead_letter_and_its_neighbours_land(bad: str) -> None:
    out = decode(lines('{"a":1}', bad, '{"a":2}'))
    assert out.codes == [(1, "json.syntax")]
    assert out.rows == [{"a": 1}, {"a": 2}]
    assert out.bad[0].raw == bad.encode()


def test_one_object_over_two_lines_is_two_dead_letters() -> None:
    out = decode(lines('{"a":1}', '{"a":', "3}", '{"a":{"b":1}', ',"c":2}', '{"a":2}'))
    assert out.codes == [(i, "json.syntax") for i in (1, 2, 3, 4)]
    assert [row["a"] for row in out.rows] == [1, 2]


def test_two_objects_on_one_line_beside_one_on_two_lines_do_not_cancel_out() -> None:
    out = decode(lines('{"a":1}{"a":2}', '{"a":', "3}", '{"a":4}'))
    assert out.rows == [{"a": 4}]


@pytest.mark.parametrize("value", ["[1,2]", "1", '"x"', "null", "true", "[]"])
def test_what_is_no_object_is_a_dead_letter(value: str) -> None:
    out = decode(lines('{"a":1}', value))
    assert out.codes == [(1, "json.not_object")]


def test_a_last_line_without_newline_is_a_record_where_nothing_can_follow() -> None:
    data = b'{"a":1}\n{"a":2}'
    assert [row["a"] for row in decode(data).rows] == [1, 2]
    growing = decode(data, at_eof_complete=False)
    assert [row["a"] for row in growing.rows] == [1]
    assert growing.byte_end == 8


def test_byte_order_mark_carriage_returns_and_blank_lines_are_not_data() -> None:
    out = decode(BOM + b'{"a":"x"}\r\n\r\n   \n\t\n\n  {"a":"y"}  \r\n{"a":1}\r\n')
    assert out.rows == [{"a": "x"}, {"a": "y"}]
    assert out.codes == [(2, "type.conflict")]
    assert out.bad[0].raw == b'{"a":1}'


def test_blank_lines_only_and_nothing_at_all_are_no_records() -> None:
    assert decode(b"\n\n  \r\n").records == 0
    assert decode(b"").records == 0
    assert decode(BOM).records == 0


def test_dates_stay_text() -> None:
    values = ["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00.123456789Z"]
    out = decode(lines(*(f'{{"d":"{v}"}}' for v in values)))
    assert [row["d"] for row in out.rows] == values


def test_dates_are_read_where_asked_for() -> None:
    out = decode(lines('{"d":"2024-01-01","t":"2024-01-01T00:00:00+02:00"}', '{"d":"soon","t":"2024-01-01T00:00:00Z"}'), infer_dates=True)
    assert (out.type("d"), out.type("t")) == ("date32[day]", "timestamp[us, tz=UTC]")
    assert out.codes == [(1, "type.conflict")]


def test_text_is_read_as_the_time_a_table_wants() -> None:
    kinds = [("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("c", pa.decimal128(10, 2))]
    landed = TableSchema.landed(pa.schema(kinds))
    out = decode(
        lines(
            '{"d":"2024-01-01","t":"2024-01-01T00:00:00+02:00","n":"2024-01-01T00:00:00","c":1.25}',
            '{"t":"2024-01-01T00:00:00"}',
            '{"t":"2024-01-01T00:00:00.123456789Z"}',
            '{"d":"x"}',
            '{"c":"7.5"}',
            '{"c":1.255}',
            '{"d":12}',
        ),
        schema=landed,
    )
    assert out.codes == [(2, "type.conflict"), (3, "type.conflict"), (5, "type.conflict"), (6, "type.conflict")]
    assert [str(row["t"]) for row in out.rows] == ["2023-12-31 22:00:00+00:00", "2024-01-01 00:00:00+00:00", "None"]
    assert [row["c"] for row in out.rows] == [Decimal("1.25"), None, Decimal("7.50")]


def test_bytes_that_are_not_utf8_cost_their_line_only() -> None:
    out = decode(
        lines(b'{"a":"x"}', b'{"a":"\xff\xfe"}', '{"a":"é€😀"}', b'{"a":"\xed\xa0\x80"}', b'{"\xc3":1}', b'{"a":"\xc3"}', b'{"a":"z"}')
    )
    assert out.codes == [(1, "utf8"), (3, "utf8"), (4, "utf8"), (5, "utf8")]
    assert [row["a"] for row in out.rows] == ["x", "é€😀", "z"]


@pytest.mark.parametrize(
    "record",
    [
        '{"a":1,"a":1}',
        '{"a":1,"a":2}',
        '{"a":null,"a":1}',
        '{"a":1,"\\u0061":2}',
        '{"o":{"b":1,"b":2}}',
        '{"new":1,"new":1}',
        '{"l":[{"x":1,"x":1}]}',
    ],
)
def test_a_key_given_twice_is_a_dead_letter(record: str) -> None:
    start = decode(lines('{"a":1,"o":{"b":1},"l":[{"x":1}]}'))
    out = decode(lines('{"a":5}', record, '{"a":6}'), schema=start.schema)
    assert out.codes == [(1, "json.duplicate_key")]
    assert [row["a"] for row in out.rows] == [5, 6]


def test_keys_that_differ_by_case_are_both_kept_under_names_no_engine_confuses() -> None:
    out = decode(lines('{"a":1,"A":2,"o":{"x":1,"X":2}}', '{"A":3}', '{"a":4}'), block_bytes=8)
    assert out.rows[0] == {"a": 1, "A_1": 2, "o": {"x": 1, "X_1": 2}}
    assert [(row["a"], row["A_1"]) for row in out.rows] == [(1, 2), (None, 3), (4, None)]


def test_names_survive_a_table_that_keeps_only_docs() -> None:
    first = decode(lines('{"a":1,"A":2,"":3,"A_1":4}'))
    assert first.rows == [{"a": 1, "A_1": 2, "_1": 3, "A_1_1": 4}]
    kept = pa.schema(
        [f.with_metadata({b"doc": f.metadata[b"doc"]} if f.metadata and b"doc" in f.metadata else None) for f in first.schema.writable]
    )
    again = decode(lines('{"A_1":4,"":3,"A":2,"a":1}'), schema=TableSchema.landed(kept))
    assert again.rows == first.rows
    assert again.schema.arrow.names == first.schema.arrow.names


def test_an_empty_key_and_odd_keys_are_kept() -> None:
    record = '{"":1,"a b":2,"a.b":3,"a":{"b":4},"\\"q\\"":5,"back\\\\slash":6,"é":7,"tab\\t":8}'
    out = decode(lines(record, record))
    values = list(out.rows[1].values())
    assert sorted(v for v in values if isinstance(v, int)) == [1, 2, 3, 5, 6, 7, 8]
    assert {"b_1": 4} in values
    lowered = [name.lower() for name in out.schema.arrow.names]
    assert len(set(lowered)) == len(lowered)
    assert "" not in lowered


def test_a_dotted_key_never_takes_the_path_of_a_nested_column() -> None:
    out = decode(lines('{"a":{"b":1}}', '{"a.b":2}', '{"a":{"b":3},"a.b":4}'), block_bytes=8)
    assert out.rows == [{"a": {"b": 1}, "a.b_1": None}, {"a": None, "a.b_1": 2}, {"a": {"b": 3}, "a.b_1": 4}]


def test_three_hundred_flat_keys_are_three_hundred_columns() -> None:
    record = "{" + ",".join(f'"k{i}":{i}' for i in range(300)) + "}"
    out = decode(lines(record, record))
    assert out.schema.arrow.names == [f"k{i}" for i in range(300)]


def test_objects_with_arbitrary_keys_become_json_text_word_for_word() -> None:
    out = decode(lines(*(f'{{"m":{{"k{i}": {{"x":{i}, "y":"é"}}}},"n":{i}}}' for i in range(600))), object_keys_max=100)
    assert out.type("m") == "string"
    assert out.rows[599] == {"m": '{"k599": {"x":599, "y":"é"}}', "n": 599}
    more = decode(
        lines('{"m":{"z":[1,{"dup":1,"dup":2}],"s":"a\\nb"}}', '{"m":"text"}', '{"m":null}', '{"m":5}', '{"m":[1]}'), schema=out.schema
    )
    assert [row["m"] for row in more.rows] == ['{"z":[1,{"dup":1,"dup":2}],"s":"a\\nb"}', '"text"', None, "5", "[1]"]


def test_nested_objects_with_arbitrary_keys_become_json_text_too() -> None:
    records = [f'{{"p":[{{"m":{{"k{i}":1}}}},{{"m":{{"j{i}":{{"x":1}}}}}}]}}' for i in range(60)]
    out = decode(lines(*records), object_keys_max=20)
    assert out.rows[59] == {"p": [{"m": '{"k59":1}'}, {"m": '{"j59":{"x":1}}'}]}


def test_an_object_that_outgrows_a_landed_struct_is_a_dead_letter() -> None:
    landed = TableSchema.landed(pa.schema([("m", pa.struct([(f"k{i}", pa.int64()) for i in range(5)]))]), object_keys_max=5)
    out = decode(lines('{"m":{"k1":1}}', '{"m":{"other":1}}'), schema=landed, object_keys_max=5)
    assert out.codes == [(1, "object.too_many_keys")]


def test_duplicate_keys_beside_json_text_are_still_refused() -> None:
    start = decode(lines('{"m":{"a":1,"b":2},"n":1}'), object_keys_max=1)
    out = decode(lines('{"m":{"a":1},"m":{"a":2}}', '{"m":{"c":1},"n":1,"n":2}', '{"m":{"d":1}}'), schema=start.schema, object_keys_max=1)
    assert out.codes == [(0, "json.duplicate_key"), (1, "json.duplicate_key")]
    assert [row["m"] for row in out.rows] == ['{"d":1}']


@pytest.mark.parametrize(
    "record", ['{"a":' * 2000 + "1" + "}" * 2000, '{"a":' + "[" * 50_000 + "]" * 50_000 + "}", '{"a":' + "[" * 100 + "]" * 100 + "}"]
)
def test_nesting_beyond_the_limit_is_a_dead_letter_and_harms_nobody(record: str) -> None:
    out = decode(lines('{"b":1}', record, '{"b":2}'))
    assert out.codes == [(1, "json.too_deep")]
    assert [row["b"] for row in out.rows] == [1, 2]


def test_sixty_levels_are_read() -> None:
    out = decode(lines('{"a":' * 60 + "1" + "}" * 60))
    assert not out.bad


@pytest.mark.parametrize("block_bytes", [64, 1000, 100_000])
def test_a_line_that_is_too_long_is_skipped_to_its_newline_exactly_once(block_bytes: int) -> None:
    long = '{"a":"' + "x" * 5000 + '"}'
    data = lines('{"a":"1"}', long, '{"a":"2"}', long, '{"a":"3"}')
    out = decode(data, block_bytes=block_bytes, line_bytes_max=1000)
    assert out.codes == [(1, "line.too_long"), (3, "line.too_long")]
    assert [row["a"] for row in out.rows] == ["1", "2", "3"]
    assert out.byte_end == len(data)
    assert long.encode().startswith(out.bad[0].raw)


def test_a_long_line_still_being_written_is_not_consumed() -> None:
    out = decode(b'{"a":1}\n{"a":"' + b"x" * 5000, block_bytes=64, line_bytes_max=1000, at_eof_complete=False)
    assert (out.records, out.byte_end) == (1, 8)
    whole = decode(b'{"a":1}\n{"a":"' + b"x" * 5000, block_bytes=64, line_bytes_max=1000)
    assert whole.codes == [(1, "line.too_long")]


def test_a_dead_letter_keeps_at_most_a_mebibyte() -> None:
    out = decode(lines('{"a":"' + "x" * 3_000_000))
    assert out.codes == [(0, "json.syntax")]
    assert len(out.bad[0].raw) == 1 << 20


def test_a_line_of_ten_megabytes_is_a_record() -> None:
    out = decode(lines('{"a":1,"t":"' + "x" * 10_000_000 + '"}', '{"a":2}'), block_bytes=1 << 20)
    assert [len(row["t"] or "") for row in out.rows] == [10_000_000, 0]


def test_reading_goes_on_at_every_position_exactly() -> None:
    data = BOM + lines('{"a":0}', "", '{"a":1}', "  ", '{"a":"bad"}', '{"a":3}', "{", '{"a":5}')
    whole = decode(data)
    assert whole.records == 6
    for start in range(whole.records + 1):
        rest = decode(data, start_record=start, schema=whole.schema)
        assert rest.at == [n for n in whole.at if n >= start]
        assert rest.codes == [c for c in whole.codes if c[0] >= start]


def test_reading_goes_on_at_the_byte_where_a_unit_ended() -> None:
    data = BOM + lines(*(f'{{"a":{i}}}' for i in range(100)))
    head = decode(data[:310], at_eof_complete=False)
    rest = decode(data, start_record=head.records, start_byte=head.byte_end, schema=head.schema)
    assert [row["a"] for row in head.rows + rest.rows] == list(range(100))
    assert rest.at[0] == head.records
    assert rest.byte_end == len(data)


class _Dripping:
    """A stream that gives a few bytes at a time and cannot seek."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data = io.BytesIO(data)
        self._step = step

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(self._step, size) if size >= 0 else self._step)


@pytest.mark.parametrize("step", [1, 3, 7, 50])
def test_short_reads_change_nothing(step: int) -> None:
    data = BOM + lines('{"a":1}', "", '{"a":"é"}', '{"a":3}')
    out = decode(data, stream=_Dripping(data, step))
    assert out.at == [0, 2]
    assert out.codes == [(1, "type.conflict")]
    assert out.byte_end == len(data)


def test_many_bad_lines_never_stop_a_file() -> None:
    records = [f'{{"a":{i}}}' if i % 3 else f'{{"a":{i}' for i in range(20_000)]
    out = decode(lines(*records), block_bytes=1 << 16)
    assert len(out.bad) == 6667
    assert out.at == [i for i in range(20_000) if i % 3]


def test_a_user_schema_wins_over_what_is_inferred() -> None:
    out = decode(lines('{"a":1}', '{"a":"x"}'), schema=TableSchema.landed(pa.schema([("a", pa.string())])))
    assert out.codes == [(0, "type.conflict")]
    assert out.rows == [{"a": "x"}]


def test_a_list_of_objects_where_a_list_of_text_is_wanted_is_a_dead_letter() -> None:
    out = decode(lines('{"a":[{"x":1}]}', '{"a":["y"]}'), schema=TableSchema.landed(pa.schema([("a", pa.list_(pa.string()))])))
    assert out.codes == [(0, "type.conflict")]


def test_schema_columns_come_first_and_in_order() -> None:
    start = TableSchema.landed(pa.schema([("b", pa.int64()), ("a", pa.int64())]))
    out = decode(lines('{"c":1,"a":2,"b":3}'), schema=start)
    assert out.schema.arrow.names == ["b", "a", "c"]


def test_a_map_column_takes_objects() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    out = decode(
        lines('{"m":{"x":1,"y":null}}', '{"m":{"x":"no"}}', '{"m":null}', '{"m":5}'), schema=TableSchema.landed(pa.schema([("m", kind)]))
    )
    assert out.rows == [{"m": [("x", 1), ("y", None)]}, {"m": None}]
    assert [code for _, code in out.codes] == ["type.conflict", "type.conflict"]


def test_changes_are_told_in_words() -> None:
    out = decode(lines('{"a":1,"o":{"x":[{"y":1}]},"n":null}', '{"a":1.5,"o":{"z":true}}'), block_bytes=8)
    assert out.changes == ["+ a long", "+ o.x[].y long", "~ a long -> double", "+ o.z boolean"]


def test_what_only_the_parser_refuses_costs_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = jsonblock.pj.read_json

    def fussy(source: pa.BufferReader, **options: Any) -> pa.Table:
        if b"poison" in source.read():
            raise pa.ArrowInvalid("not to my taste")
        source.seek(0)
        return real(source, **options)

    monkeypatch.setattr(jsonblock.pj, "read_json", fussy)
    out = decode(lines(*(f'{{"a":{i},"t":"{"poison" if i in (7, 90) else ""}"}}' for i in range(100))))
    assert out.codes == [(7, "json.unreadable"), (90, "json.unreadable")]
    assert "not to my taste" in out.bad[0].error
    assert [row["a"] for row in out.rows] == [i for i in range(100) if i not in (7, 90)]


def test_bad_lines_make_the_next_blocks_be_read_in_pieces_with_the_same_outcome() -> None:
    records = [f'{{"a":{i},"t":"{"x" * 200}"}}' if i % 997 else f'{{"a":"{i}"}}' for i in range(1, 30_001)]
    out = decode(lines(*records))
    assert out.at == [i - 1 for i in range(1, 30_001) if i % 997]
    assert {code for _, code in out.codes} == {"type.conflict"}
    assert [row["a"] for row in out.rows] == [i for i in range(1, 30_001) if i % 997]


def test_reading_lines_does_not_import_pandas() -> None:
    program = (
        "import io, sys, pyarrow as pa\n"
        "from ingest.decode import open_decoder\n"
        "from ingest.settings import DecodeSettings\n"
        'data = b\'{"a":1}\\n{"a":"x"}\\n{"a":2}\\n\'\n'
        "stream = open_decoder(io.BytesIO(data), name='a.jsonl', uri='', settings=DecodeSettings())\n"
        "print([len(u.decode(pa.schema([])).bad) for u in stream.units()], 'pandas' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[1] False\n"
