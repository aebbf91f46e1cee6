"""Any JSON lines, whole or damaged: every line is a row equal to what the standard library reads, or a dead letter."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.decode.framing import split
from ingest.typetree import DEPTH_MAX
from tests.helpers_decode import Outcome, decode

KEYS = st.sampled_from(["a", "b", "c", "A", "a.b", "", "é", 'q"'])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "1", "true"]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)), max_leaves=8)
RECORDS = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=12)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _plain(value: Any) -> Any:
    """What a table can say of a JSON value: keys without a value are NULL, so they are left out on both sides."""
    if isinstance(value, dict):
        kept = {key: _plain(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one is not None and not _void(one)}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value == int(value) and math.isfinite(value):
        return int(value)
    return int(value) if hasattr(value, "as_tuple") else value


def _void(value: Any) -> bool:
    """Nothing that has a type: null, {}, [] and lists of those wait for one and are not written before."""
    return value is None or value == {} or (isinstance(value, list) and all(_void(one) for one in value))


def _by_key(outcome: Outcome) -> list[dict[str, Any]]:
    """Rows with the keys of the data instead of column names."""
    from ingest.typetree import ListOf, Node, Struct, from_arrow

    def back(value: Any, node: Node) -> Any:
        if value is None:
            return None
        if isinstance(node, Struct):
            return {key: back(value[one.name], one.node) for key, one in node.fields.items() if one.name in value}
        if isinstance(node, ListOf):
            return [back(one, node.item) for one in value]
        return value

    root = from_arrow(outcome.table.schema)
    return [back(row, root) for row in outcome.rows]


def _strip_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strip_lists(one) for key, one in value.items() if not _void(one)}
    if isinstance(value, list):
        return [None if _void(one) else _strip_lists(one) for one in value]
    return value


@QUICK
@given(RECORDS, st.sampled_from([16, 64, 1 << 20]))
def test_rows_are_what_was_written_or_dead_letters(records: list[dict[str, Any]], block_bytes: int) -> None:
    data = b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in records)
    out = decode(data, block_bytes=block_bytes)
    assert out.records == len(records)
    assert {code for _, code in out.codes} <= {"type.conflict", "number.range"}
    for number, row in zip(out.at, _by_key(out), strict=True):
        assert _strip_lists(_plain(row)) == _strip_lists(_plain(records[number]))


@QUICK
@given(RECORDS, st.data())
def test_a_damaged_byte_costs_its_line_only(records: list[dict[str, Any]], draw: st.DataObject) -> None:
    texts = [json.dumps(r, ensure_ascii=draw.draw(st.booleans())).encode() for r in records]
    for _ in range(draw.draw(st.integers(0, 4)) if texts else 0):
        at = draw.draw(st.integers(0, len(texts) - 1))
        place = draw.draw(st.integers(0, len(texts[at]) - 1)) if texts[at] else 0
        byte = draw.draw(st.sampled_from([b"", b"}", b"{", b'"', b",", b":", b"\\", b"\xff", b"\x00", b"]", b"1", b" ", b"\r", b"-"]))
        texts[at] = texts[at][:place] + byte + texts[at][place + 1 :]
    kept = [text for text in texts if text.strip(b" \t\r\n")]
    out = decode(b"".join(text + b"\n" for text in texts), block_bytes=draw.draw(st.sampled_from([16, 1 << 20])))
    assert out.records == len(kept)
    rows = dict(zip(out.at, _by_key(out), strict=True))
    for number, text in enumerate(kept):
        wanted = _strict(text)
        if wanted is None:
            assert number not in rows, text
        elif number in rows:
            assert _strip_lists(_plain(rows[number])) == _strip_lists(_plain(wanted))


def _strict(text: bytes) -> dict[str, Any] | None:
    """The record as strict JSON reads it, None where it is none."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(found)) != len(found):
            raise ValueError("twice")
        return dict(found)

    def constant(name: str) -> Any:
        raise ValueError(name)

    try:
        value = json.loads(text.decode(), object_pairs_hook=pairs, parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@QUICK
@given(RECORDS, st.lists(st.integers(8, 200), min_size=2, max_size=4))
def test_how_blocks_are_cut_changes_nothing(records: list[dict[str, Any]], sizes: list[int]) -> None:
    data = b"".join(json.dumps(r).encode() + b"\n" for r in records)
    outcomes = [decode(data, block_bytes=size) for size in sizes]
    first = outcomes[0]
    for other in outcomes[1:]:
        assert other.at == first.at
        assert other.codes == first.codes
        assert other.rows == first.rows
        assert other.schema.arrow.equals(first.schema.arrow, check_metadata=True)


@QUICK
@given(st.lists(st.sampled_from([b"", b" ", b"\r", b"\t \r", b'{"a":1}', b' {"a":1} \r', b"x", b"\r\r{}"]), min_size=1, max_size=9))
def test_lines_are_what_strip_says(texts: list[bytes]) -> None:
    data = b"\n".join(texts) + b"\n"
    cut = split(data, 0, 0, 0)
    assert [cut.line(i) for i in range(len(cut))] == [t.strip(b" \t\r\n") for t in data.split(b"\n") if t.strip(b" \t\r\n")]
    assert DEPTH_MAX > 10
