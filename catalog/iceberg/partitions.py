"""Splitting rows by a partition spec and sorting them by a sort order, in Arrow, without Python per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from catalog.errors import ConfigurationError

__all__ = ["Part", "Splitter"]

_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one partition, sorted. `key` is hashable and `record` is what the manifest holds."""

    key: tuple[Any, ...]
    record: Record
    rows: pa.Table


class Splitter:
    """Splits and sorts tables that have the Arrow form of `schema`. Raises ConfigurationError for a spec it cannot write."""

    def __init__(self, schema: Schema, spec: PartitionSpec, order: SortOrder) -> None:
        self._fields = [(_path(schema, field.source_id), field) for field in spec.fields]
        for path, field in self._fields:
            if not isinstance(field.transform, _KNOWN):
                raise ConfigurationError(
                    f"the table is partitioned by {field.transform}({'.'.join(path)}), which this writer does not know; "
                    "it writes identity, year, month, day and hour"
                )
        known = all(isinstance(field.transform, _KNOWN) for field in order.fields)
        self._order = [(_path(schema, f.source_id), f) for f in order.fields] if known else []
        self.sorts = bool(self._order)

    def split(self, table: pa.Table) -> Iterator[Part]:
        """The rows of each partition, in one run per partition."""
        columns = [_transformed(_column(table, path), field.transform) for path, field in self._fields]
        codes, count = _codes(columns, table.num_rows)
        keys = self._sort_keys(table)
        if count <= 1 and not keys:
            yield self._part(columns, 0, table)
            return
        by: list[tuple[str, str, str]] = []
        sorting: dict[str, Any] = {}
        if count > 1:
            sorting["p"] = codes
            by.append(("p", "ascending", "at_start"))
        for number, (column, direction, nulls) in enumerate(keys):
            sorting[f"k{number}"] = column
            by.append((f"k{number}", direction, nulls))
        order = pc.sort_indices(pa.table(sorting), sort_keys=by)
        table = table.take(order)
        columns = [column.take(order) for column in columns]
        start = 0
        for end in _run_ends(codes.take(order)) if count > 1 else [table.num_rows]:
            yield self._part(columns, start, table.slice(start, end - start))
            start = end

    def _part(self, columns: list[Any], row: int, rows: pa.Table) -> Part:
        values = tuple(_internal(column, row) for column in columns)
        return Part(values, Record(*values), rows)

    def _sort_keys(self, table: pa.Table) -> list[tuple[Any, str, str]]:
        keys = []
        for path, field in self._order:
            direction = "ascending" if field.direction == SortDirection.ASC else "descending"
            nulls = "at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end"
            keys.append((_transformed(_column(table, path), field.transform), direction, nulls))
        return keys


def _path(schema: Schema, field_id: int) -> list[str]:
    """Names from the top-level column down to the field; a name may itself hold dots."""
    parts: list[str] = []
    fields = list(schema.fields)
    while True:
        for field in fields:
            if field.field_id == field_id:
                return [*parts, field.name]
            if field.field_type.is_struct and field_id in _ids_below(field.field_type):
                parts.append(field.name)
                fields = list(field.field_type.fields)  # type: ignore[attr-defined]  # a struct has fields
                break
        else:
            raise ConfigurationError(f"the table is partitioned or sorted by column id {field_id}, which its schema does not have")


def _ids_below(kind: Any) -> set[int]:
    ids: set[int] = set()
    for field in kind.fields:
        ids.add(field.field_id)
        if field.field_type.is_struct:
            ids |= _ids_below(field.field_type)
    return ids


def _column(table: pa.Table, path: list[str]) -> Any:
    column = table.column(table.schema.get_field_index(path[0]))
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


_KNOWN = (IdentityTransform, YearTransform, MonthTransform, DayTransform, HourTransform, VoidTransform)


def _transformed(column: Any, transform: Transform[Any, Any]) -> Any:
    """The transform's result; time transforms give int32 counts since 1970, rounded towards the past."""
    match transform:
        case YearTransform():
            return pc.subtract(pc.year(column), 1970).cast(pa.int32())
        case MonthTransform():
            return pc.add(pc.multiply(pc.subtract(pc.year(column), 1970), 12), pc.subtract(pc.month(column), 1)).cast(pa.int32())
        case DayTransform():
            return pc.floor_temporal(column, unit="day").cast(pa.date32()).cast(pa.int32())
        case HourTransform():
            micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            hours = pc.divide(micros, _HOUR_US)
            below = pc.less(micros, pc.multiply(hours, _HOUR_US))
            return pc.subtract(hours, below.cast(pa.int64())).cast(pa.int32())
        case VoidTransform():
            return pa.chunked_array([pa.nulls(len(column), column.type)])
    return column


def _codes(columns: list[Any], rows: int) -> tuple[Any, int]:
    """One int64 per row, equal exactly where all columns are equal (NULL equals NULL), and how many there are."""
    if not columns:
        return None, 1
    codes: Any = None
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], encoded.type)
        index = encoded.indices.cast(pa.int64())
        if codes is None:
            codes = index
        else:
            combined = pc.add(pc.multiply(codes, len(encoded.dictionary)), index)
            codes = pc.dictionary_encode(combined).indices.cast(pa.int64())
    return codes, len(pc.unique(codes))


def _run_ends(codes: Any) -> list[int]:
    ends: list[int] = pc.run_end_encode(codes, run_end_type=pa.int64()).run_ends.to_pylist()
    return ends


def _internal(column: Any, row: int) -> Any:
    """A value as manifests hold it: dates and times as numbers."""
    kind = column.type
    value = column[row]
    if pa.types.is_date(kind):
        return value.cast(pa.int32()).as_py()
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return value.cast(pa.int64()).as_py()
    return value.as_py()
