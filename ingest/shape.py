"""From decoded rows to rows of the log: flattening, time columns, and what that means for schemas and layouts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from catalog.errors import ConfigurationError
from catalog.lake import TableLayout
from ingest.conform import writable
from ingest.settings import TransformSettings
from ingest.transform import convert_times, has_path
from ingest.typetree import DOC

__all__ = ["Shape", "layout_of", "schema_diff"]

_log = logging.getLogger("skippr.ingest.schema")


def layout_of(settings: TransformSettings) -> TableLayout:
    """How new tables are partitioned and sorted."""
    return TableLayout(
        partition_fields=settings.partition_fields, time_fields=settings.time_fields, time_unit=settings.time_unit,
        order_fields=settings.order_fields,
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """What is done to the rows of a table. Pure: the schema of the result follows from the schema of the input alone."""

    flatten: bool = False
    times: tuple[str, ...] = ()

    def rows(self, table: pa.Table) -> tuple[pa.Table, pa.ChunkedArray | None]:
        """The rows for the log, and which of them hold what is no time where a time has to be (None: none)."""
        if self.flatten:
            table = _flattened(table)
        invalid = None
        if self.times:
            table, invalid = convert_times(table, self.times)
        return writable(table), invalid

    def log_schema(self, decoding: pa.Schema) -> pa.Schema:
        """Schema of `rows` for input of the schema `decoding`."""
        return self.rows(decoding.empty_table())[0].schema

    def for_table(self, schema: pa.Schema) -> Shape:
        """The shape for a table that exists: a time column that is there with another type stays as it is."""
        kept = tuple(path for path in self.times if not has_path(schema, path) or _is_time(schema, path))
        return replace(self, times=kept)

    def decoding_schema(self, table: pa.Schema) -> pa.Schema:
        """The fields of the data behind a table's columns: nested again, and without the times, whose form in the data is not known."""
        fields = list(table)
        for path in self.times:
            fields = _without(fields, path)
        return pa.schema(_nested(fields) if self.flatten else fields)

    def layout_for(self, schema: pa.Schema, layout: TableLayout, label: str, *, several: bool) -> TableLayout:
        """The layout with the fields the new table has.

        Raises ConfigurationError for a partition or time field it has not; where a pipeline feeds several tables, such a table is made
        without it.
        """
        missing = [path for path in (*layout.partition_fields, *layout.time_fields) if not has_path(schema, path)]
        if missing and not several:
            raise ConfigurationError(
                f"TRANSFORM_BATCH_PARTITION_FIELDS / TRANSFORM_BATCH_TIME_FIELDS name {', '.join(map(repr, missing))}, but no row of the "
                f"first segment of table {label} has a value there; it has {', '.join(schema.names[:50])}. Correct it, or leave it out"
            )
        if missing:
            _log.warning("table %s is created without the partition fields %s: no row has them yet", label, ", ".join(missing))
        return replace(
            layout, partition_fields=_known(layout.partition_fields, schema), time_fields=_known(layout.time_fields, schema),
            order_fields=_known(layout.order_fields, schema),
        )


def schema_diff(have: pa.Schema, wanted: pa.Schema) -> list[str]:
    """What `wanted` adds to or changes in `have`, one line each. A column that `have` holds as null type is of no interest."""
    return list(_diff(list(have), list(wanted), ""))


def _diff(have: Sequence[pa.Field], wanted: Sequence[pa.Field], path: str) -> Iterable[str]:
    known = {field.name: field for field in have}
    for field in wanted:
        at = f"{path}{field.name}"
        old = known.get(field.name)
        if old is None:
            yield f"+ {at}: {field.type}"
        elif pa.types.is_null(old.type) or old.type == field.type:
            continue
        elif pa.types.is_struct(old.type) and pa.types.is_struct(field.type):
            yield from _diff(list(old.type), list(field.type), f"{at}.")
        elif _is_list(old.type) and _is_list(field.type):
            yield from _diff([_element(old.type)], [_element(field.type)], f"{at}.")
        else:
            yield f"~ {at}: {old.type} -> {field.type}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _element(kind: pa.DataType) -> pa.Field:
    return pa.field("element", kind.value_type)


def _known(paths: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    return tuple(path for path in paths if has_path(schema, path))


def _is_time(schema: pa.Schema, path: str) -> bool:
    empty, _ = convert_times(schema.empty_table(), (path,))
    return bool(empty.schema.equals(schema))


def _flattened(table: pa.Table) -> pa.Table:
    """Structs as dotted columns, all levels; lists stay. A NULL struct gives NULL columns."""
    flat = False
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table, flat = table.flatten(), True
    if not flat:
        return table
    return table.cast(pa.schema([_dotted(field) for field in table.schema])) if table.num_columns else table


def _dotted(field: pa.Field) -> pa.Field:
    """A dotted column is known by its whole name; what its last part was called in the data says nothing any more."""
    text = (field.metadata or {}).get(DOC, b"")
    if "." not in field.name or not text.startswith(b"skippr {"):
        return field
    marks: dict[str, Any] = json.loads(text[7:])
    marks.pop("key", None)
    metadata = {name: value for name, value in field.metadata.items() if name != DOC}
    if marks:
        metadata[DOC] = b"skippr " + json.dumps(marks, ensure_ascii=False).encode()
    return field.with_metadata(metadata or None)


def _nested(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Dotted columns as structs again; a name stays whole where its beginning is a column of its own."""
    names = {field.name for field in fields}
    made: list[pa.Field] = []
    inner: dict[str, list[pa.Field]] = {}
    for field in fields:
        head, dot, rest = field.name.partition(".")
        if not dot or not head or not rest or head in names:
            made.append(field)
        elif head in inner:
            inner[head].append(field.with_name(rest))
        else:
            inner[head] = [field.with_name(rest)]
            made.append(pa.field(head, pa.null()))
    return [pa.field(f.name, pa.struct(_nested(inner[f.name]))) if f.name in inner else f for f in made]


def _without(fields: Sequence[pa.Field], path: str) -> list[pa.Field]:
    """The fields without the one at `path`."""
    if any(field.name == path for field in fields):
        return [field for field in fields if field.name != path]
    made: list[pa.Field] = []
    for field in fields:
        if pa.types.is_struct(field.type) and path.startswith(f"{field.name}."):
            field = field.with_type(pa.struct(_without(list(field.type), path[len(field.name) + 1:])))
        made.append(field)
    return made
