"""JSON arrays and documents over several lines, streamed element by element."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import DataCorruption
from ingest.decode.jsonarray import ArrayLines
from tests.helpers_decode import decode

TEXTS = st.text(alphabet='ab"\\{}[],:\n é', max_size=6)
ELEMENTS = st.recursive(
    st.one_of(TEXTS, st.integers(0, 9), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def test_the_elements_of_an_array_are_the_records() -> None:
    data = json.dumps([{"a": 1, "t": "x,]}\n"}, {"a": 2, "t": None}, {"a": 3, "o": {"l": [1, 2]}}], indent=2).encode()
    out = decode(data, "a.json")
    assert out.format == "json"
    assert not out.appendable
    assert [row["a"] for row in out.rows] == [1, 2, 3]
    assert out.rows[0]["t"] == "x,]}\n"


@pytest.mark.parametrize("block_bytes", [1, 2, 7, 64, 1 << 20])
def test_where_blocks_are_cut_changes_nothing(block_bytes: int) -> None:
    records = [{"a": i, "t": '\\"[{,' * (i % 4), "é": ["x" * i]} for i in range(30)]
    out = decode(json.dumps(records, indent=1, ensure_ascii=False).encode(), "a.json", block_bytes=block_bytes)
    assert [(row["a"], row["t"], row["é"]) for row in out.rows] == [(r["a"], r["t"], r["é"]) for r in records]


@settings(max_examples=150, deadline=None)
@given(st.lists(ELEMENTS, max_size=6), st.integers(1, 40), st.sampled_from([None, 0, 2]))
def test_lines_hold_exactly_the_elements(elements: list[Any], step: int, indent: int | None) -> None:
    data = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    stream = ArrayLines(io.BytesIO(data), "mem:")
    out = b"".join(iter(lambda: stream.read(step), b""))
    assert len(out) == len(data)
    assert [json.loads(line) for line in out.split(b"\n") if line.strip()] == elements


def test_an_element_that_is_no_object_or_no_json_is_one_dead_letter() -> None:
    out = decode(b'[{"a":1}, 5, {"a":nope}, [1,{"x":2}], {"a":2} {"a":3}, "t", {"a":"\n"}, {"a":4}]', "a.json")
    assert out.rows == [{"a": 1}, {"a": 4}]
    assert out.codes == [
        (1, "json.not_object"),
        (2, "json.syntax"),
        (3, "json.not_object"),
        (4, "json.syntax"),
        (5, "json.not_object"),
        (6, "json.syntax"),
    ]
    assert out.bad[0].raw == b"5"


@pytest.mark.parametrize("data", [b"[]", b"  [ ]  ", b"[\n]\n", b"", b"\xef\xbb\xbf[]"])
def test_an_empty_array_is_no_rows(data: bytes) -> None:
    assert decode(data, "a.json").records == 0


def test_a_document_over_several_lines_is_one_record() -> None:
    out = decode(json.dumps({"type": "FeatureCollection", "features": [{"id": 1}]}, indent=2).encode(), "a.geojson")
    assert out.rows == [{"type": "FeatureCollection", "features": [{"id": 1}]}]


def test_documents_one_after_the_other_are_records() -> None:
    out = decode(b'{\n "a": 1\n}\n{\n "a": 2\n}\n[{"a":3},\n{"a":4}]\n', "a.json")
    assert [row["a"] for row in out.rows] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "data",
    [b'[{"a":1},{"a":2}', b'[{"a":1},{"a":2},', b'[{"a":1},{"a":2},{"a":', b'[{"a":1},{"a":2},{"a":"x', b'[{"a":1},{"a":2},{"a":[1}'],
)
def test_an_array_that_breaks_off_is_corrupt_and_names_the_place(data: bytes) -> None:
    with pytest.raises(DataCorruption, match=rf"mem:a.json: the JSON breaks off after {len(data)} bytes.*whole copy"):
        decode(data, "a.json")


def test_a_bracket_too_many_is_corrupt_and_names_the_place() -> None:
    with pytest.raises(DataCorruption, match="byte 10 closes an array or object that was never opened"):
        decode(b'[{"a":1}]\n]', "a.json")


def test_an_element_that_is_too_long_is_passed_over_once() -> None:
    data = json.dumps([{"a": 1}, {"a": "x" * 5000}, {"a": 3}]).encode()
    out = decode(data, "a.json", line_bytes_max=1000, block_bytes=64)
    assert out.codes == [(1, "line.too_long")]
    assert [row["a"] for row in out.rows] == [1, 3]


def test_reading_goes_on_at_an_element() -> None:
    data = json.dumps([{"a": i} for i in range(20)]).encode()
    for start in (0, 1, 7, 19, 20):
        out = decode(data, "a.json", start_record=start, start_byte=5, block_bytes=32)
        assert [row["a"] for row in out.rows] == list(range(start, 20))
        assert out.at == list(range(start, 20))


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.json", b'{"a":1}\n{"a":2}\n', "jsonl"),
        ("a.json", b'{"a":1}', "jsonl"),
        ("a.json", b"{\n", "json"),
        ("", b'[{"a":1}]', "json"),
        ("", b'{"a":1}\n', "jsonl"),
        ("a.jsonl", b"[1,2]\n", "jsonl"),
        ("a.ndjson", b"oops\n", "jsonl"),
        ("a.JSONL", b"", "jsonl"),
        ("a.csv", b'{"a":1}\n', "csv"),
        ("a.jsonl.gz", b'{"a":1}\n', "jsonl"),
    ],
)
def test_formats_are_told_by_name_and_content(name: str, data: bytes, kind: str) -> None:
    from ingest.decode.detect import detect_format

    assert detect_format(name, data, "mem:") == kind
