"""Bounds never exclude a value of the file, and are absent where an engine could misread them."""

from __future__ import annotations

import decimal
import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from catalog.iceberg.schemas import new_schema
from catalog.iceberg.stats import file_stats, leaves

LOW, HIGH = decimal.Decimal("-3.25"), decimal.Decimal("129.00")


def stats_of(column: pa.Array, *, row_group_size: int = 2, nans: int = 0) -> tuple[Any, Any, dict[str, Any]]:
    """(lower, upper, all) of a one-column file."""
    schema = new_schema(pa.schema([("x", column.type)]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": column}), sink, row_group_size=row_group_size, store_decimal_as_integer=True)
    footer = pq.read_metadata(io.BytesIO(sink.getvalue()))
    found = file_stats(footer, leaves(schema), {1: column.null_count}, {1: nans} if nans else {})
    kind = schema.find_type(1)
    if not isinstance(kind, PrimitiveType):
        return None, None, found
    low, high = found["lower_bounds"].get(1), found["upper_bounds"].get(1)
    return (from_bytes(kind, low) if low is not None else None), (from_bytes(kind, high) if high is not None else None), found


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        (pa.array([3, None, -7, 2**31 - 1], pa.int32()), -7, 2**31 - 1),
        (pa.array([-(2**63), 2**63 - 1], pa.int64()), -(2**63), 2**63 - 1),
        (pa.array([True, False]), False, True),
        (pa.array([-math.inf, 2.5, None]), -math.inf, 2.5),
        (pa.array([10**17, -(10**17)], pa.timestamp("us", "UTC")), -(10**17), 10**17),
        (pa.array([-1, 40000], pa.date32()), -1, 40000),
        (pa.array(["b", "ä", None, "a"]), "a", "ä"),
        (pa.array([b"\x80", b"\x00"]), b"\x00", b"\x80"),
        (pa.array([b"ab", b"aa"], pa.binary(2)), b"aa", b"ab"),
        (pa.array([None, None], pa.int64()), None, None),
        *[(pa.array([LOW, HIGH], pa.decimal128(digits, 2)), LOW, HIGH) for digits in (7, 15, 30)],
    ],
)
def test_bounds_by_type(column: pa.Array, low: Any, high: Any) -> None:
    found_low, found_high, found = stats_of(column, row_group_size=1)
    assert (found_low, found_high) == (low, high)
    assert found["record_count"] == len(column)
    assert found["value_counts"] == {1: len(column)}
    assert found["null_value_counts"] == {1: column.null_count}
    assert len(found["split_offsets"]) == len(column)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(min_size=0, max_size=40), min_size=1, max_size=6))
def test_text_bounds_hold_every_text(values: list[str]) -> None:
    low, high, _ = stats_of(pa.array(values, pa.string()))
    assert len(low) <= 16
    assert all(low.encode() <= value.encode() for value in values)
    assert high is None or all(value.encode() <= high.encode() for value in values)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(min_size=0, max_size=40), min_size=1, max_size=6))
def test_binary_bounds_hold_every_value(values: list[bytes]) -> None:
    low, high, _ = stats_of(pa.array(values, pa.binary()))
    assert all(low <= value for value in values)
    assert high is None or all(value <= high for value in values)


def test_a_text_above_which_there_is_none_has_no_upper_bound() -> None:
    low, high, _ = stats_of(pa.array(["\U0010ffff" * 20]))
    assert (low, high) == ("\U0010ffff" * 16, None)
    assert stats_of(pa.array(["a" + "\U0010ffff" * 20]))[1] == "b"
    assert stats_of(pa.array(["\ud7ff" * 20]))[1] == "\ud7ff" * 15 + "\ue000"
    assert stats_of(pa.array([b"\xff" * 20]))[1] is None


def test_a_column_with_nan_has_no_bounds() -> None:
    low, high, found = stats_of(pa.array([1.0, math.nan, 5.0]), nans=1)
    assert (low, high) == (None, None)
    assert found["nan_value_counts"] == {1: 1}


def test_structs_have_bounds_inside_lists_and_maps_have_none() -> None:
    column = pa.array([{"a": 1, "l": [1, 2]}, None, {"a": 5, "l": None}], pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))]))
    _, _, found = stats_of(column)
    inside = new_schema(pa.schema([("x", column.type)]))
    assert set(found["lower_bounds"]) == {inside.find_field("x.a").field_id}
    assert found["null_value_counts"][inside.find_field("x.a").field_id] == 1
