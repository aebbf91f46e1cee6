"""How a table's schema grows, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.errors import InvalidRequest
from catalog.iceberg.schemas import Evolution, arrow_schema, evolve, new_schema

BASE = pa.schema([
    ("i", pa.int32()), ("f", pa.float32()), ("l", pa.int64()), ("dec", pa.decimal128(5, 2)),
    ("s", pa.struct([("a", pa.int32()), ("deep", pa.list_(pa.struct([("x", pa.int32())])))])), ("m", pa.map_(pa.string(), pa.int32())),
])


def grow(wanted: pa.Schema, *dropped: str) -> Evolution:
    schema = new_schema(BASE)
    return evolve(schema, schema.highest_field_id, 7, wanted, frozenset(dropped))


def ids(evolution: Evolution) -> dict[str, int]:
    return {name: evolution.schema.find_field(name).field_id for name in evolution.schema.column_names}


def test_arrow_and_back() -> None:
    assert arrow_schema(new_schema(BASE)) == BASE
    documented = pa.schema([pa.field("x", pa.int32(), metadata={"doc": "what it is", "other": "1"})])
    assert arrow_schema(new_schema(documented)).field("x").metadata == {b"doc": b"what it is"}
    with_ids = arrow_schema(new_schema(BASE), field_ids=True)
    assert with_ids.field("i").metadata == {b"PARQUET:field_id": b"1"}
    assert with_ids.field("s").type.field("a").metadata[b"PARQUET:field_id"] == b"6"


def test_the_same_or_less_changes_nothing() -> None:
    for wanted in (BASE, pa.schema([]), pa.schema([("i", pa.int8()), ("l", pa.int32()), ("s", pa.struct([("a", pa.int16())]))])):
        evolution = grow(wanted)
        assert not evolution.changed
        assert evolution.schema == new_schema(BASE)


def test_types_widen_and_columns_are_added_with_new_ids() -> None:
    before = {name: new_schema(BASE).find_field(name).field_id for name in new_schema(BASE).column_names}
    evolution = grow(pa.schema([
        ("new", pa.struct([("n", pa.string())])), ("i", pa.int64()), ("f", pa.float64()), ("dec", pa.decimal128(9, 2)),
        ("s", pa.struct([("b", pa.string()), ("a", pa.int64()), ("deep", pa.list_(pa.struct([("y", pa.bool_()), ("x", pa.int64())])))])),
        ("m", pa.map_(pa.string(), pa.int64())), ("nothing", pa.null()),
    ]))
    assert evolution.changed
    assert evolution.schema.schema_id == 7
    after = ids(evolution)
    assert {name: after[name] for name in before} == before
    new = {name: after[name] for name in after if name not in before}
    assert set(new) == {"new", "new.n", "s.b", "s.deep.element.y"}
    assert sorted(new.values()) == list(range(max(before.values()) + 1, max(before.values()) + 5))
    assert evolution.last_column_id == max(new.values())
    grown = arrow_schema(evolution.schema)
    assert grown.names == [*BASE.names, "new"]
    assert grown.field("s").type == pa.struct(
        [("a", pa.int64()), ("deep", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.bool_())]))), ("b", pa.string())]
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("l", pa.float64()), ("i", pa.float64()), ("dec", pa.decimal128(9, 4)), ("dec", pa.decimal128(4, 2))]
)
def test_where_iceberg_has_no_promotion_the_column_keeps_its_type(name: str, kind: pa.DataType) -> None:
    assert not grow(pa.schema([(name, kind)])).changed


def test_dropped_columns_stay_dropped() -> None:
    evolution = grow(pa.schema([("gone", pa.int64()), ("new", pa.int64())]), "gone")
    assert evolution.schema.column_names[-1] == "new"
    assert "gone" not in evolution.schema.column_names


@pytest.mark.parametrize(
    ("name", "kind", "where"),
    [
        ("i", pa.string(), "column i"), ("s", pa.string(), "column s"), ("l", pa.list_(pa.int64()), "column l"),
        ("s", pa.struct([("deep", pa.list_(pa.struct([("x", pa.bool_())])))]), r"column s\.deep\[\]\.x"),
    ],
)
def test_another_kind_is_refused_by_name(name: str, kind: pa.DataType, where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        grow(pa.schema([(name, kind)]))


def test_two_columns_with_one_full_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="one full name"):
        new_schema(pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]))
