"""Arrow schemas as tables hold them: one normal form, the union of several, and exact casts of rows to a wanted schema.

Pure functions over pyarrow, shared by whoever writes rows to tables and whoever reads rows that are not there yet, so that both
agree on what a row looks like.

Normal form (`storable`): the types Iceberg format 2 has. Columns without a type yet (null, a struct or list of nothing else) are
left out: they wait for a type. Field metadata keeps `doc` and whatever else its owner put there; lists name their element `element`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catalog.errors import InvalidRequest

__all__ = ["cast_batch", "storable", "storable_type", "union", "union_all"]


def storable(schema: pa.Schema) -> pa.Schema:
    """The schema in normal form. Raises InvalidRequest naming the column for a type no table can hold."""
    fields = []
    for field in schema:
        kind = storable_type(field.type, field.name)
        if kind is not None:
            fields.append(pa.field(field.name, kind, metadata=field.metadata))
    return pa.schema(fields)


def storable_type(kind: pa.DataType, path: str) -> pa.DataType | None:
    """The type a table column holds values of `kind` in, None where there is no type yet. Raises InvalidRequest naming `path`."""
    t = pa.types
    if t.is_null(kind):
        return None
    if t.is_struct(kind):
        fields = [(kind.field(i), storable_type(kind.field(i).type, f"{path}.{kind.field(i).name}")) for i in range(kind.num_fields)]
        kept = [pa.field(field.name, child, metadata=field.metadata) for field, child in fields if child is not None]
        return pa.struct(kept) if kept else None
    if _is_list(kind):
        element = storable_type(kind.value_type, f"{path}[]")
        return None if element is None else pa.list_(pa.field("element", element, metadata=kind.value_field.metadata))
    if t.is_map(kind):
        key, item = storable_type(kind.key_type, f"{path}.key"), storable_type(kind.item_type, f"{path}.value")
        return None if key is None or item is None else pa.map_(key, item)
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return storable_type(kind.value_type, path)
    if isinstance(kind, pa.BaseExtensionType):
        return storable_type(kind.storage_type, path)
    return _storable_scalar(kind, path)


def _storable_scalar(kind: pa.DataType, path: str) -> pa.DataType:
    t = pa.types
    if t.is_boolean(kind) or t.is_fixed_size_binary(kind) or t.is_float32(kind) or t.is_float64(kind):
        return kind
    if t.is_integer(kind):
        return pa.int32() if kind.bit_width < 32 or kind == pa.int32() else pa.decimal128(20, 0) if kind == pa.uint64() else pa.int64()
    if t.is_float16(kind):
        return pa.float32()
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return pa.string()
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return pa.binary()
    if t.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if t.is_date(kind):
        return pa.date32()
    if t.is_time(kind):
        return pa.time64("us")
    if t.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise InvalidRequest(f"column {path}: no table column can hold the Arrow type {kind}; convert it at the source")


def union_all(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """`union` over any number of schemas; the empty schema for none."""
    result = pa.schema([])
    seen: list[pa.Schema] = []
    for schema in schemas:
        if not any(schema.equals(other, check_metadata=True) for other in seen):
            seen.append(schema)
            result = union(result, schema)
    return result


def union(a: pa.Schema, b: pa.Schema) -> pa.Schema:
    """The smallest schema in normal form that rows of both fit into: columns of `a` in order, then new ones of `b`.

    Widens int -> long -> double, float -> double and decimals; structs and lists are united inside. Associative but for the order
    of columns. Raises InvalidRequest naming the column where two types have nothing in common.
    """
    return pa.schema(_union_fields(list(storable(a)), list(storable(b)), ""))


def _union_fields(a: Sequence[pa.Field], b: Sequence[pa.Field], path: str) -> list[pa.Field]:
    fields = {field.name: field for field in a}
    for field in b:
        known = fields.get(field.name)
        if known is not None:
            at = f"{path}.{field.name}" if path else field.name
            field = pa.field(field.name, _union_type(known.type, field.type, at), metadata=known.metadata or field.metadata)
        fields[field.name] = field
    return list(fields.values())


def _union_type(a: pa.DataType, b: pa.DataType, path: str) -> pa.DataType:
    t = pa.types
    if t.is_struct(a) and t.is_struct(b):
        return pa.struct(_union_fields([a.field(i) for i in range(a.num_fields)], [b.field(i) for i in range(b.num_fields)], path))
    if t.is_list(a) and t.is_list(b):
        element = _union_type(a.value_type, b.value_type, f"{path}[]")
        return pa.list_(pa.field("element", element, metadata=a.value_field.metadata or b.value_field.metadata))
    if a == b:
        return a
    if t.is_map(a) and t.is_map(b):
        return pa.map_(_union_type(a.key_type, b.key_type, f"{path}.key"), _union_type(a.item_type, b.item_type, f"{path}.value"))
    if t.is_integer(a) and t.is_integer(b):
        return pa.int64()
    if (t.is_integer(a) or t.is_floating(a)) and (t.is_integer(b) or t.is_floating(b)):
        return pa.float64()
    wide = _union_decimal(a, b)
    if wide is None:
        raise InvalidRequest(f"column {path} is {a} in some rows and {b} in others, and no column type holds both")
    return wide


def _union_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """A decimal both fit into exactly; None where there is none of at most 38 digits or neither is a decimal."""
    if not (pa.types.is_decimal(a) or pa.types.is_decimal(b)):
        return None
    digits, scale = 0, 0
    for kind in (a, b):
        if pa.types.is_decimal(kind):
            whole, fraction = kind.precision - kind.scale, kind.scale
        elif pa.types.is_integer(kind):
            whole, fraction = (10 if kind == pa.int32() else 19), 0
        else:
            return None
        digits, scale = max(digits, whole), max(scale, fraction)
    return pa.decimal128(digits + scale, scale) if digits + scale <= 38 else None


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`, matched by name at every level: missing ones are NULL, others are left out.

    Casts are exact, except that timestamps and times finer than microseconds are cut to microseconds. Columns that already fit are
    not copied. Raises InvalidRequest naming the column where a value does not fit.
    """
    names = batch.schema.names
    arrays = []
    for field in schema:
        index = names.index(field.name) if field.name in names else -1
        arrays.append(pa.nulls(batch.num_rows, field.type) if index < 0 else _cast(batch.column(index), field.type, field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    t = pa.types
    have = array.type
    if have == kind:
        return array
    if isinstance(have, pa.BaseExtensionType) and not isinstance(kind, pa.BaseExtensionType):
        return _cast(array.storage, kind, path)
    if t.is_null(have):
        return pa.nulls(len(array), kind)
    if t.is_dictionary(have):
        return _cast(array.dictionary_decode(), kind, path)
    if t.is_struct(have) and t.is_struct(kind):
        return _cast_struct(array, kind, path)
    if _is_list(have) and t.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths)])
        values = _cast(array.flatten(), kind.value_type, f"{path}[]")
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null() if array.null_count else None)
    try:
        if t.is_timestamp(have) and t.is_timestamp(kind) and bool(have.tz) == bool(kind.tz):
            return _cut(array, have.unit).cast(kind)
        if t.is_time(have) and t.is_time(kind):
            return array.cast(kind, safe=have.unit != "ns")
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequest(f"column {path}: its values of type {have} do not all fit {kind}: {error}") from error


def _cut(array: pa.Array, unit: str) -> pa.Array:
    """Nanoseconds cut to microseconds, towards the past also before 1970."""
    return pc.floor_temporal(array, unit="microsecond") if unit == "ns" else array


def _cast_struct(array: pa.StructArray, kind: pa.DataType, path: str) -> pa.Array:
    children = []
    for index in range(kind.num_fields):
        wanted = kind.field(index)
        have = array.type.get_field_index(wanted.name)
        if have < 0:
            children.append(pa.nulls(len(array), wanted.type))
        else:
            children.append(_cast(array.field(have), wanted.type, f"{path}.{wanted.name}"))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=[kind.field(i) for i in range(kind.num_fields)], mask=mask)


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind) or t.is_large_list_view(kind)
    )
