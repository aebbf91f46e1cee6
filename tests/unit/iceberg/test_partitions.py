"""Splitting and sorting in Arrow gives what the definition of each transform says, for every row once."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform, Transform, YearTransform

from catalog.errors import ConfigurationError
from catalog.iceberg.partitions import Splitter
from catalog.iceberg.schemas import arrow_schema, new_schema, partition_spec, sort_order
from catalog.lake import TableLayout

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([
    ("t", pa.timestamp("us", "UTC")), ("k", pa.string()), ("d", pa.date32()), ("s", pa.struct([("n", pa.int64())])), ("f", pa.float64()),
])


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def _expected(transform: Transform[int, int], moment: datetime) -> int:
    match transform:
        case YearTransform():
            return moment.year - 1970
        case MonthTransform():
            return (moment.year - 1970) * 12 + moment.month - 1
        case DayTransform():
            return _micros(moment) // 86_400_000_000
    return _micros(moment) // 3_600_000_000


_MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
_ROWS = st.lists(st.tuples(st.none() | _MOMENTS, st.sampled_from([None, "", "a", "b/=c"])))


@settings(max_examples=60, deadline=None)
@given(_ROWS, st.sampled_from(["year", "month", "day", "hour"]))
def test_every_row_lands_in_the_part_of_its_values(rows: list[tuple[datetime | None, str | None]], unit: str) -> None:
    schema = new_schema(SCHEMA)
    layout = TableLayout(partition_fields=("k",), time_fields=("t",), time_unit=unit, order_fields=("s.n",))  # type: ignore[arg-type]
    spec = partition_spec(schema, layout)
    plain = [{"t": t, "k": k, "s": {"n": -i}} for i, (t, k) in enumerate(rows)]
    table = pa.Table.from_pylist(plain, schema=arrow_schema(schema))
    parts = list(Splitter(schema, spec, sort_order(schema, layout)).split(table)) if rows else []
    assert len({part.key for part in parts}) == len(parts)
    seen = []
    for part in parts:
        numbers = [row["s"]["n"] for row in part.rows.to_pylist()]
        assert numbers == sorted(numbers)
        for row in part.rows.to_pylist():
            wanted = None if row["t"] is None else _expected(spec.fields[1].transform, row["t"])
            assert part.key == (row["k"], wanted)
            seen.append(row["s"]["n"])
    assert sorted(seen, reverse=True) == [-i for i in range(len(rows))]


def test_dates_before_1970_and_identity_of_times() -> None:
    schema = new_schema(SCHEMA)
    spec = partition_spec(schema, TableLayout(partition_fields=("d", "t"), time_fields=("d",), time_unit="month"))
    table = pa.table({
        "t": pa.array([-1, 2], pa.timestamp("us", "UTC")), "k": ["a", "b"], "d": pa.array([-1, -40], pa.date32()),
        "s": [{"n": 1}, {"n": 2}], "f": [1.0, 2.0],
    }, schema=arrow_schema(schema))
    keys = {part.key for part in Splitter(schema, spec, SortOrder(order_id=0)).split(table)}
    assert keys == {(-1, -1, -1), (-40, 2, -2)}


def test_descending_and_null_last() -> None:
    schema = new_schema(SCHEMA)
    order = SortOrder(SortField(5 + 1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST), order_id=1)
    name = schema.find_column_name(order.fields[0].source_id)
    assert name == "f"
    table = pa.Table.from_pylist([{"f": v} for v in (1.0, None, 3.0, 2.0)], schema=arrow_schema(schema))
    (part,) = Splitter(schema, PartitionSpec(), order).split(table)
    assert part.rows["f"].to_pylist() == [3.0, 2.0, 1.0, None]


def test_nan_is_one_partition() -> None:
    schema = new_schema(SCHEMA)
    spec = partition_spec(schema, TableLayout(partition_fields=("f",)))
    table = pa.Table.from_pylist([{"f": v} for v in (math.nan, 1.0, math.nan, None)], schema=arrow_schema(schema))
    assert sorted(part.rows.num_rows for part in Splitter(schema, spec, SortOrder(order_id=0)).split(table)) == [1, 1, 2]


def test_a_spec_of_others_that_we_cannot_write_is_refused() -> None:
    schema = new_schema(SCHEMA)
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "k_bucket"))
    with pytest.raises(ConfigurationError, match="bucket"):
        Splitter(schema, spec, SortOrder(order_id=0))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (TableLayout(partition_fields=("nope",)), "TRANSFORM_BATCH_PARTITION_FIELDS names 'nope'.*it has: t, k"),
        (TableLayout(time_fields=("k",)), "column k is string.*timestamp"),
        (TableLayout(time_fields=("d",), time_unit="hour"), "column d is date"),
        (TableLayout(order_fields=("s",)), "TRANSFORM_BATCH_ORDER_FIELDS: column s is struct"),
    ],
)
def test_a_layout_that_does_not_fit_names_setting_and_column(layout: TableLayout, message: str) -> None:
    schema = new_schema(SCHEMA)
    build = sort_order if layout.order_fields else partition_spec
    with pytest.raises(ConfigurationError, match=message):
        build(schema, layout)


def test_partition_names_do_not_collide_with_columns() -> None:
    schema = new_schema(pa.schema([("t", pa.timestamp("us")), ("t_day", pa.string()), ("s", pa.struct([("n", pa.int64())]))]))
    spec = partition_spec(schema, TableLayout(partition_fields=("t_day", "s.n"), time_fields=("t",)))
    assert [field.name for field in spec.fields] == ["t_day", "s_n", "t_day_2"]
