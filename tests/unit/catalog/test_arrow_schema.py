"""Union and cast: one normal form, no value changed, no row lost."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.arrow_schema import cast_batch, storable, union, union_all
from catalog.errors import InvalidRequest


def schema(**fields: Any) -> pa.Schema:
    return pa.schema(list(fields.items()))


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.int8(), pa.int32()), (pa.uint16(), pa.int32()), (pa.uint32(), pa.int64()), (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()), (pa.large_string(), pa.string()), (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()), (pa.large_binary(), pa.binary()), (pa.date64(), pa.date32()),
        (pa.time32("ms"), pa.time64("us")), (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")), (pa.decimal256(30, 2), pa.decimal128(30, 2)),
        (pa.list_(pa.int16(), 3), pa.list_(pa.int32())), (pa.large_list(pa.null()), None), (pa.struct([]), None), (pa.null(), None),
        (pa.struct([("a", pa.null())]), None), (pa.struct([("a", pa.null()), ("b", pa.int8())]), pa.struct([("b", pa.int32())])),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int32())), (pa.uuid(), pa.binary(16)),
    ],
)
def test_normal_form(kind: pa.DataType, stored: pa.DataType | None) -> None:
    found = storable(schema(x=kind))
    assert found == (schema() if stored is None else schema(x=stored))
    assert storable(found) == found


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.month_day_nano_interval(), pa.decimal256(60, 2)])
def test_types_without_a_column_type_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match=r"column s\.x\[\]"):
        storable(schema(s=pa.struct([("x", pa.list_(kind))])))


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()), (pa.int64(), pa.float32(), pa.float64()), (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)), (pa.decimal128(5, 2), pa.decimal128(6, 4), pa.decimal128(7, 4)),
        (pa.null(), pa.string(), pa.string()),
        (pa.list_(pa.int32()), pa.large_list(pa.float64()), pa.list_(pa.float64())),
        (
            pa.struct([("a", pa.int32()), ("b", pa.string())]), pa.struct([("c", pa.bool_()), ("a", pa.int64())]),
            pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())]),
        ),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_union_of_types(a: pa.DataType, b: pa.DataType, both: pa.DataType) -> None:
    assert union(schema(x=a), schema(x=b)) == schema(x=both)
    turned = union(schema(x=b), schema(x=a)).field("x").type
    assert turned == both if not pa.types.is_struct(both) else {f.name: f.type for f in turned} == {f.name: f.type for f in both}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.int64(), pa.string()), (pa.struct([("a", pa.int32())]), pa.string()), (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.int32()), (pa.decimal128(38, 0), pa.decimal128(38, 20)), (pa.decimal128(5, 2), pa.float64()),
    ],
)
def test_types_that_have_nothing_in_common(a: pa.DataType, b: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match=r"column s\.x"):
        union(schema(s=pa.struct([("x", a)])), schema(s=pa.struct([("x", b)])))


def test_order_and_docs_are_those_of_the_first_schema_that_has_them() -> None:
    a = pa.schema([pa.field("b", pa.int32(), metadata={"doc": "from a"}), pa.field("n", pa.null())])
    b = pa.schema([pa.field("a", pa.string(), metadata={"doc": "from b"}), pa.field("b", pa.int64(), metadata={"doc": "late"})])
    both = union_all([a, b, a, schema(n=pa.bool_())])
    assert both.names == ["b", "a", "n"]
    assert [(f.metadata or {}).get(b"doc") for f in both] == [b"from a", b"from b", None]


def test_cast_fills_leaves_out_and_reorders_at_every_level() -> None:
    have = schema(
        gone=pa.string(), s=pa.struct([("b", pa.int32()), ("gone", pa.int8())]), n=pa.null(),
        l=pa.large_list(pa.struct([("v", pa.int16())])),
    )
    rows = [{"s": {"b": 1}, "l": [{"v": 1}, None]}, {"s": None, "l": None}, {"s": {}, "l": []}]
    wanted = schema(
        l=pa.list_(pa.struct([("w", pa.string()), ("v", pa.int64())])), n=pa.string(), s=pa.struct([("a", pa.string()), ("b", pa.int64())]),
        new=pa.float64(),
    )
    batch = pa.RecordBatch.from_pylist(rows, schema=have)
    expected = [
        {"l": [{"w": None, "v": 1}, None], "n": None, "s": {"a": None, "b": 1}, "new": None},
        {"l": None, "n": None, "s": None, "new": None},
        {"l": [], "n": None, "s": {"a": None, "b": None}, "new": None},
    ]
    for start in range(3):
        cast = cast_batch(batch.slice(start), wanted)
        cast.validate(full=True)
        assert cast.to_pylist() == expected[start:]


def test_a_batch_that_fits_is_not_copied() -> None:
    batch = pa.RecordBatch.from_pylist([{"a": "x", "b": 1}], schema=schema(a=pa.string(), b=pa.int64()))
    cast = cast_batch(batch, schema(b=pa.int64(), a=pa.string()))
    assert cast.column(1).buffers()[2].address == batch.column(0).buffers()[2].address


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.int64(), 2**53 + 1, pa.float64()), (pa.float64(), 1.5, pa.int64()), (pa.int64(), 2**40, pa.int32()),
        (pa.decimal128(5, 2), decimal.Decimal("1.25"), pa.decimal128(5, 1)), (pa.string(), "x", pa.struct([("a", pa.int32())])),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(kind: pa.DataType, value: object, wanted: pa.DataType) -> None:
    batch = pa.RecordBatch.from_pylist([{"s": {"x": value}}], schema=schema(s=pa.struct([("x", kind)])))
    with pytest.raises(InvalidRequest, match=r"column s\.x"):
        cast_batch(batch, schema(s=pa.struct([("x", wanted)])))


def test_finer_times_are_cut_towards_the_past() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([-1, 1999, None], pa.timestamp("ns"))], names=["t"])
    assert cast_batch(batch, schema(t=pa.timestamp("us"))).column(0).cast(pa.int64()).to_pylist() == [-1, 1, None]


_SCALARS = st.sampled_from([pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.null()])
_TYPES = st.recursive(
    _SCALARS,
    lambda inner: inner.map(pa.list_)
    | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    max_leaves=6,
)
_SCHEMAS = st.dictionaries(st.sampled_from("xyz"), _TYPES, max_size=3).map(lambda fields: pa.schema(list(fields.items())))


def _sorted(kind: Any) -> Any:
    """A schema or type without its order of fields."""
    if isinstance(kind, pa.Schema):
        return {field.name: _sorted(field.type) for field in kind}
    if pa.types.is_struct(kind):
        return {kind.field(i).name: _sorted(kind.field(i).type) for i in range(kind.num_fields)}
    return ["list", _sorted(kind.value_type)] if pa.types.is_list(kind) else kind


def _united(*schemas: pa.Schema) -> Any:
    try:
        return _sorted(union_all(schemas))
    except InvalidRequest:
        return None


@settings(max_examples=150, deadline=None)
@given(_SCHEMAS, _SCHEMAS, _SCHEMAS)
def test_union_does_not_depend_on_order(a: pa.Schema, b: pa.Schema, c: pa.Schema) -> None:
    assert _united(a, b, c) == _united(c, a, b) == _united(b, c, a)
    assert _united(a, a) == _sorted(storable(a))


_ROW = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | st.fixed_dictionaries({}, optional={"p": st.none() | st.integers(0, 9), "q": st.none() | st.text(max_size=3)}),
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"p": st.none() | st.integers(0, 9)}), max_size=3),
    },
)
_HAVE = schema(i=pa.int32(), s=pa.struct([("p", pa.int32()), ("q", pa.string())]), l=pa.list_(pa.struct([("p", pa.int32())])))
_WIDE = schema(
    l=pa.list_(pa.struct([("z", pa.string()), ("p", pa.int64())])), new=pa.bool_(), i=pa.float64(),
    s=pa.struct([("q", pa.string()), ("p", pa.int64()), ("z", pa.int32())]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_ROW, max_size=8), st.integers(0, 3))
def test_casting_to_a_wider_schema_and_back_loses_nothing(rows: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=_HAVE).slice(start)
    wide = cast_batch(batch, _WIDE)
    wide.validate(full=True)
    assert cast_batch(wide, _HAVE).to_pylist() == batch.to_pylist()
