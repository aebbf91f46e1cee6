"""The running schema: growth, names, what is written, and rows under another schema."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import ConfigurationError
from ingest.schema import TableSchema, conform, writable, writable_schema

WIDE = {b"skippr.wide": b"1"}


def schema(**fields: Any) -> pa.Schema:
    return pa.schema([f if isinstance(f, pa.Field) else pa.field(name, f) for name, f in fields.items()])


@pytest.mark.parametrize(
    ("have", "come", "becomes"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.null(), pa.string(), pa.string()),
        (pa.string(), pa.null(), pa.string()),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.struct([]), pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64())])),
        (pa.large_string(), pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.uint64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
    ],
)
def test_types_that_widen(have: pa.DataType, come: pa.DataType, becomes: pa.DataType) -> None:
    change = TableSchema.of(schema(v=have)).evolve(schema(v=come))
    assert not change.conflicts
    assert change.schema.arrow.field("v").type == becomes


@pytest.mark.parametrize(
    ("have", "come"),
    [
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.struct([("a", pa.int64())])),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.date32(), pa.timestamp("us")),
    ],
)
def test_types_that_do_not(have: pa.DataType, come: pa.DataType) -> None:
    before = TableSchema.of(schema(v=have))
    change = before.evolve(schema(v=come, w=pa.int64()))
    assert len(change.conflicts) == 1
    assert "field v" in change.conflicts[0]
    assert change.schema.arrow == schema(v=have, w=pa.int64())
    assert change.lines == ("+ w long",)


def test_a_conflict_deep_inside_names_its_path_and_keeps_the_rest() -> None:
    before = TableSchema.of(schema(a=pa.struct([("b", pa.struct([("c", pa.int64())]))])))
    change = before.evolve(schema(a=pa.struct([("b", pa.struct([("c", pa.string()), ("d", pa.int64())]))])))
    assert change.conflicts == ("field a.b.c: wanted long, found string",)
    assert change.lines == ("+ a.b.d long",)


def test_wide_and_landed_integers_do_not_become_doubles() -> None:
    wide = TableSchema.of(schema(v=pa.field("v", pa.int64(), metadata=WIDE)))
    assert wide.evolve(schema(v=pa.float64())).conflicts
    landed = TableSchema.landed(schema(v=pa.int64(), l=pa.list_(pa.int64())))
    assert len(landed.evolve(schema(v=pa.float64(), l=pa.list_(pa.float64()))).conflicts) == 2
    assert not landed.evolve(schema(v=pa.int64(), new=pa.int64())).conflicts


def test_an_unchanged_schema_is_the_same_object() -> None:
    before = TableSchema.of(schema(a=pa.int64(), n=pa.null()))
    assert before.evolve(before.arrow).schema is before
    assert before.evolve(schema(a=pa.int32())).schema is before


def test_deferred_columns_change_the_schema_without_anything_to_approve() -> None:
    change = TableSchema.empty().evolve(schema(n=pa.null(), o=pa.struct([]), l=pa.list_(pa.null()), d=pa.struct([("x", pa.null())])))
    assert change.lines == ()
    assert change.schema.arrow.names == ["n", "o", "l", "d"]
    assert change.schema.writable.names == []
    then = change.schema.evolve(schema(n=pa.int64(), d=pa.struct([("x", pa.null()), ("y", pa.bool_())])))
    assert then.lines == ("+ n long", "+ d.y boolean")
    assert then.schema.writable == schema(n=pa.int64(), d=pa.struct([("y", pa.bool_())]))


def test_an_object_with_too_many_keys_becomes_json_text_and_its_rows_with_it() -> None:
    kind = pa.struct([(f"k{i}", pa.int64()) for i in range(4)])
    before = TableSchema.of(schema(m=pa.struct([("k0", pa.int64())])), object_keys_max=3)
    after = before.evolve(schema(m=kind)).schema
    assert after.arrow.field("m").type == pa.string()
    rows = conform(pa.table({"m": pa.array([{"k0": 1, "k1": None, "k2": None, "k3": 4}, None], kind)}), after.arrow)
    assert rows.table.to_pylist() == [{"m": '{"k0":1,"k3":4}'}, {"m": None}]
    assert TableSchema.landed(schema(m=pa.struct([("k0", pa.int64())])), object_keys_max=3).evolve(schema(m=kind)).conflicts


def test_a_table_never_gets_more_than_two_thousand_columns() -> None:
    many = pa.schema([(f"c{i}", pa.int64()) for i in range(1990)])
    before = TableSchema.of(many)
    change = before.evolve(pa.schema([(f"d{i}", pa.int64()) for i in range(20)]))
    assert change.schema is before
    assert "at most 2000 columns" in change.conflicts[0]


def test_names_that_engines_confuse_are_told_apart_and_remembered() -> None:
    made = TableSchema.empty().evolve(schema(a=pa.int64(), A=pa.int64(), s=pa.struct([("x", pa.int64()), ("X", pa.int64())]))).schema
    assert made.arrow.names == ["a", "A_1", "s"]
    assert [f.name for f in made.arrow.field("s").type] == ["x", "X_1"]
    again = conform(pa.table({"A": [2], "s": [{"X": 4, "x": 3}], "a": [1]}), made.arrow)
    assert again.table.to_pylist() == [{"a": 1, "A_1": 2, "s": {"x": 3, "X_1": 4}}]


def test_a_dotted_column_and_a_nested_one_are_told_apart() -> None:
    made = TableSchema.empty().evolve(pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64()), ("A.B", pa.int64())])).schema
    assert made.arrow.names == ["a", "a.b_1", "A.B_2"]


def test_a_field_twice_in_a_typed_file_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="field x appears twice"):
        TableSchema.of(pa.schema([("x", pa.int64()), ("x", pa.int64())]))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_files_does_not_matter(order: tuple[int, ...]) -> None:
    files = [
        schema(a=pa.int64(), b=pa.null()),
        schema(b=pa.string(), c=pa.struct([("x", pa.int64())])),
        schema(a=pa.float64()),
        schema(c=pa.struct([("x", pa.float64()), ("y", pa.bool_())]), l=pa.list_(pa.null())),
    ]
    running = TableSchema.empty()
    for at in order:
        change = running.evolve(files[at])
        assert not change.conflicts
        running = change.schema
    kinds = {f.name: f.type for f in running.arrow}
    assert kinds["a"] == pa.float64()
    assert kinds["b"] == pa.string()
    assert {f.name: f.type for f in kinds["c"]} == {"x": pa.float64(), "y": pa.bool_()}


# ------------------------------------------------------------------------------------------------ conform


def test_rows_that_do_not_fit_are_reported_by_row_and_left_out() -> None:
    table = pa.table({"v": ["a", None, "b"], "k": [1, 2, 3]})
    rows, problems, kept = conform(table, schema(k=pa.float64(), v=pa.int64(), new=pa.string()))
    assert rows.to_pylist() == [{"k": 2.0, "v": None, "new": None}]
    assert [(p.row, p.code) for p in problems] == [(0, "type.conflict"), (2, "type.conflict")]
    assert problems[0].error == "field v: wanted long, found string a"
    assert kept is not None
    assert kept.tolist() == [1]


def test_a_bad_cell_deep_inside_lists_belongs_to_its_row() -> None:
    kind = pa.list_(pa.struct([("x", pa.list_(pa.int64()))]))
    table = pa.table({"l": pa.array([[{"x": [1]}], None, [], [{"x": [1, 2]}, {"x": [2**53 + 1]}], [None, {"x": None}]], kind)})
    target = schema(l=pa.list_(pa.struct([("x", pa.list_(pa.float64()))])))
    rows, problems, _ = conform(table, target)
    assert [(p.row, p.code) for p in problems] == [(3, "number.range")]
    assert rows.to_pylist() == [{"l": [{"x": [1.0]}]}, {"l": None}, {"l": []}, {"l": [None, {"x": None}]}]


@pytest.mark.parametrize(
    ("value", "kind", "target", "fits"),
    [
        (2**53, pa.int64(), pa.float64(), True),
        (2**53 + 1, pa.int64(), pa.float64(), False),
        (2**60, pa.int64(), pa.float64(), True),
        (2**63 - 1, pa.int64(), pa.float64(), False),
        (-(2**63), pa.int64(), pa.float64(), True),
        (1.5, pa.float64(), pa.int64(), False),
        (2.0, pa.float64(), pa.int64(), True),
        (2**31, pa.int64(), pa.int32(), False),
        (Decimal("1.25"), pa.decimal128(5, 2), pa.decimal128(5, 1), False),
        (1_001, pa.timestamp("ns"), pa.timestamp("us"), False),
        (1_000, pa.timestamp("ns"), pa.timestamp("us"), True),
        (7, pa.uint64(), pa.decimal128(20, 0), True),
        ("2024-02-30", pa.string(), pa.date32(), False),
        ("2024-02-29", pa.string(), pa.date32(), True),
        ("x", pa.string(), pa.timestamp("us", "UTC"), False),
        ("2024-01-01T00:00:00+0530", pa.string(), pa.timestamp("us", "UTC"), True),
        ("12:00:00", pa.string(), pa.time64("us"), True),
        (7, pa.int64(), pa.string(), False),
        (True, pa.bool_(), pa.int64(), False),
        ("7", pa.string(), pa.int64(), False),
    ],
)
def test_values_are_kept_exactly_or_refused(value: Any, kind: pa.DataType, target: pa.DataType, fits: bool) -> None:
    rows, problems, _ = conform(pa.table({"v": pa.array([None, value], kind), "k": [0, 1]}), schema(k=pa.int64(), v=target))
    assert rows.num_rows == (2 if fits else 1)
    assert len(problems) == (0 if fits else 1)
    if fits:
        assert rows.column("v")[1].is_valid


def test_a_column_that_is_nowhere_in_the_target_is_refused_where_it_holds_something() -> None:
    rows, problems, _ = conform(pa.table({"a": [1, 2], "x": pa.array([None, 5], pa.int64())}), schema(a=pa.int64()))
    assert rows.to_pylist() == [{"a": 1}]
    assert problems[0].error == "field x: wanted no such column, found long 5"


def test_zones_may_be_mixed_and_none_means_utc() -> None:
    texts = ["2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 02:00:00+02:00", None]
    rows = conform(pa.table({"t": texts}), schema(t=pa.timestamp("us", "UTC"))).table.to_pylist()
    assert [row["t"] for row in rows] == [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 3 + [None]


def test_slices_and_chunks_are_read_like_whole_arrays() -> None:
    kind = pa.struct([("x", pa.list_(pa.int32())), ("n", pa.null())])
    values = [{"x": [i, None], "n": None} if i % 3 else None for i in range(20)]
    whole = pa.table({"s": pa.array(values, kind)})
    pieces = pa.concat_tables([whole.slice(3, 5), whole.slice(0, 2), whole.slice(11)])
    rows = conform(pieces, schema(s=pa.struct([("x", pa.list_(pa.int64()))]))).table
    wanted = [None if v is None else {"x": v["x"]} for v in values]
    assert [row["s"] for row in rows.to_pylist()] == wanted[3:8] + wanted[0:2] + wanted[11:]


def test_writable_leaves_out_what_has_no_type_and_copies_nothing_else() -> None:
    kind = pa.struct([("x", pa.int64()), ("n", pa.null()), ("e", pa.struct([]))])
    table = pa.table(
        {"k": [1, 2], "n": pa.nulls(2), "s": pa.array([{"x": 1}, None], kind), "l": pa.array([[{"x": 5}], []], pa.list_(kind))}
    )
    made = writable(table)
    assert (
        made.schema
        == writable_schema(table.schema)
        == schema(k=pa.int64(), s=pa.struct([("x", pa.int64())]), l=pa.list_(pa.struct([("x", pa.int64())])))
    )
    assert made.to_pylist() == [{"k": 1, "s": {"x": 1}, "l": [{"x": 5}]}, {"k": 2, "s": None, "l": []}]
    assert made.column("k").chunk(0).buffers()[1].address == table.column("k").chunk(0).buffers()[1].address
    plain = pa.table({"k": [1]})
    assert writable(plain) is plain


KINDS = st.sampled_from([pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.null()])
FIELDS = st.dictionaries(
    st.sampled_from(["a", "A", "b", "c", ""]),
    st.one_of(
        KINDS,
        st.lists(st.tuples(st.sampled_from(["x", "X", "y"]), KINDS), max_size=3, unique_by=lambda f: f[0]).map(pa.struct),
        KINDS.map(pa.list_),
    ),
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(FIELDS, max_size=5))
def test_growing_is_stable_and_names_never_collide(files: list[dict[str, pa.DataType]]) -> None:
    running = TableSchema.empty()
    for fields in files:
        grown = running.evolve(pa.schema(list(fields.items()))).schema
        assert grown.arrow.names[: len(running.arrow.names)] == running.arrow.names
        assert grown.evolve(running.arrow).schema is grown
        lowered = [name.lower() for name in grown.arrow.names]
        assert len(set(lowered)) == len(lowered)
        assert "" not in lowered
        running = grown
    assert TableSchema.of(running.arrow).arrow.equals(running.arrow, check_metadata=True)
