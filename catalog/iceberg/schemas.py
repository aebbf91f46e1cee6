"""Between Arrow schemas and Iceberg's: field ids, evolution, and how a layout becomes a partition spec and a sort order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.arrow_schema import storable, union
from catalog.errors import ConfigurationError, InvalidRequest
from catalog.lake import TableLayout

__all__ = ["Evolution", "arrow_schema", "evolve", "new_schema", "partition_spec", "sort_order"]

_DOC = b"doc"
_FIELD_ID = b"PARQUET:field_id"

_ARROW: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(), IntegerType: pa.int32(), LongType: pa.int64(), FloatType: pa.float32(), DoubleType: pa.float64(),
    DateType: pa.date32(), TimeType: pa.time64("us"), TimestampType: pa.timestamp("us"), TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"), TimestamptzNanoType: pa.timestamp("ns", "UTC"), StringType: pa.string(),
    BinaryType: pa.binary(), UUIDType: pa.uuid(),
}


# -- Iceberg to Arrow


def arrow_schema(schema: Schema, *, field_ids: bool = False) -> pa.Schema:
    """The Arrow form of an Iceberg schema; docs travel as field metadata `doc`, ids (if asked for) as Parquet needs them."""
    return pa.schema([_arrow_field(field, field_ids) for field in schema.fields])


def _arrow_field(field: NestedField, ids: bool) -> pa.Field:
    metadata: dict[bytes, bytes] = {}
    if field.doc:
        metadata[_DOC] = field.doc.encode()
    if ids:
        metadata[_FIELD_ID] = str(field.field_id).encode()
    return pa.field(field.name, _arrow_type(field.field_type, ids), not field.required, metadata or None)


def _arrow_type(kind: IcebergType, ids: bool) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_arrow_field(field, ids) for field in kind.fields])
        case ListType():
            return pa.list_(_arrow_field(kind.element_field, ids))
        case MapType():
            return pa.map_(_arrow_field(kind.key_field, ids), _arrow_field(kind.value_field, ids))
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case FixedType():
            return pa.binary(len(kind))
    return _ARROW.get(type(kind), pa.binary())


# -- Arrow to Iceberg


def _iceberg_field(field: pa.Field, next_id: Callable[[], int], path: str) -> NestedField:
    field_id = next_id()
    doc = (field.metadata or {}).get(_DOC)
    kind = _iceberg_type(field.type, next_id, f"{path}{field.name}")
    return NestedField(field_id, field.name, kind, required=False, doc=doc.decode() if doc else None)


def _iceberg_type(kind: pa.DataType, next_id: Callable[[], int], path: str) -> IcebergType:
    t = pa.types
    if t.is_struct(kind):
        return StructType(*[_iceberg_field(kind.field(i), next_id, f"{path}.") for i in range(kind.num_fields)])
    if t.is_list(kind):
        element = _iceberg_field(pa.field("element", kind.value_type), next_id, f"{path}.")
        return ListType(element.field_id, element.field_type, element_required=False)
    if t.is_map(kind):
        key, value = next_id(), next_id()
        key_type, value_type = _iceberg_type(kind.key_type, next_id, f"{path}.key"), _iceberg_type(kind.item_type, next_id, f"{path}.value")
        return MapType(key, key_type, value, value_type, value_required=False)
    if t.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if t.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    found = next((iceberg for iceberg, arrow in _ARROW.items() if arrow == kind), None)
    if found is None:
        raise InvalidRequest(f"column {path}: the Arrow type {kind} is not in normal form")
    return found()


def new_schema(schema: pa.Schema) -> Schema:
    """An Iceberg schema with fresh ids from 1. Raises InvalidRequest (types, names that collide)."""
    counter = itertools.count(1)
    fields = [_iceberg_field(field, lambda: next(counter), "") for field in storable(schema)]
    return _checked(fields, 0)


def _checked(fields: list[NestedField], schema_id: int) -> Schema:
    try:
        return Schema(*fields, schema_id=schema_id)
    except ValueError as error:
        raise InvalidRequest(f"two columns of the table would have one full name: {error}; rename one of them at the source") from error


# -- evolution


@dataclass(frozen=True, slots=True)
class Evolution:
    """A schema that a table is to have; `changed` is False where it has it already."""

    schema: Schema
    last_column_id: int
    changed: bool


def evolve(current: Schema, last_column_id: int, next_schema_id: int, wanted: pa.Schema, dropped: frozenset[str]) -> Evolution:
    """`current` with new columns added and types widened as far as Iceberg allows: int -> long, float -> double, longer decimals.

    Where Iceberg has no such promotion (long to double) the column keeps its type and rows have to fit it exactly. Columns in
    `dropped` stay dropped; nothing is ever removed. Raises InvalidRequest where a column changes its kind.
    """
    have = {field.name: field for field in current.fields}
    plan = pa.schema([field for field in storable(wanted) if field.name not in dropped or field.name in have])
    union(_primitive_kinds(arrow_schema(current)), plan)
    counter = itertools.count(last_column_id + 1)
    fields, changed = _evolve_fields(list(current.fields), list(plan), lambda: next(counter))
    if not changed:
        return Evolution(current, last_column_id, False)
    return Evolution(_checked(fields, next_schema_id), next(counter) - 1, True)


def _primitive_kinds(schema: pa.Schema) -> pa.Schema:
    """The table's schema as `union` understands it: types that only foreign tables have stand for what rows bring."""
    swap = {pa.timestamp("ns"): pa.timestamp("us"), pa.timestamp("ns", "UTC"): pa.timestamp("us", "UTC"), pa.uuid(): pa.binary(16)}
    return pa.schema([pa.field(field.name, swap.get(field.type, field.type)) for field in schema])


def _evolve_fields(have: list[NestedField], wanted: list[pa.Field], next_id: Callable[[], int]) -> tuple[list[NestedField], bool]:
    by_name = {field.name: field for field in wanted}
    changed = False
    fields: list[NestedField] = []
    for field in have:
        asked = by_name.pop(field.name, None)
        kind, changes = (field.field_type, False) if asked is None else _evolve_type(field.field_type, asked.type, next_id)
        fields.append(field.model_copy(update={"field_type": kind}) if changes else field)
        changed = changed or changes
    for field in wanted:
        if field.name in by_name:
            fields.append(_iceberg_field(field, next_id, ""))
            changed = True
    return fields, changed


def _evolve_type(have: IcebergType, wanted: pa.DataType, next_id: Callable[[], int]) -> tuple[IcebergType, bool]:
    t = pa.types
    match have:
        case StructType() if t.is_struct(wanted):
            children = [wanted.field(i) for i in range(wanted.num_fields)]
            fields, changed = _evolve_fields(list(have.fields), children, next_id)
            return (StructType(*fields), True) if changed else (have, False)
        case ListType() if t.is_list(wanted):
            element, changed = _evolve_type(have.element_type, wanted.value_type, next_id)
            return (ListType(have.element_id, element, have.element_required), True) if changed else (have, False)
        case MapType() if t.is_map(wanted):
            value, changed = _evolve_type(have.value_type, wanted.item_type, next_id)
            return (MapType(have.key_id, have.key_type, have.value_id, value, have.value_required), True) if changed else (have, False)
        case IntegerType() if wanted == pa.int64():
            return LongType(), True
        case FloatType() if wanted == pa.float64():
            return DoubleType(), True
        case DecimalType() if t.is_decimal(wanted) and wanted.scale == have.scale and wanted.precision > have.precision:
            return DecimalType(wanted.precision, wanted.scale), True
    return have, False


# -- layout


_TIME: dict[str, Callable[[], Transform[int, int]]] = {
    "year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform,
}


def partition_spec(schema: Schema, layout: TableLayout) -> PartitionSpec:
    """Identity fields first, then time fields. Raises ConfigurationError naming field and remedy."""
    counter = itertools.count(PARTITION_FIELD_ID_START)
    taken = {field.name for field in schema.fields}
    fields = []
    for name in layout.partition_fields:
        source = _source(schema, name, "TRANSFORM_BATCH_PARTITION_FIELDS")
        label = name if name in taken else _free(name.replace(".", "_"), taken)
        fields.append(PartitionField(source.field_id, next(counter), IdentityTransform(), label))
    for name in layout.time_fields:
        source = _source(schema, name, "TRANSFORM_BATCH_TIME_FIELDS")
        transform = _TIME[layout.time_unit]()
        if not transform.can_transform(source.field_type):
            raise ConfigurationError(
                f"TRANSFORM_BATCH_TIME_FIELDS: column {name} is {source.field_type}, but tables are partitioned by {layout.time_unit} "
                "only on timestamp columns" + ("" if layout.time_unit == "hour" else " and dates")
                + "; make it a timestamp before it is written, or take the field out"
            )
        label = _free(f"{name.replace('.', '_')}_{layout.time_unit}", taken)
        fields.append(PartitionField(source.field_id, next(counter), transform, label))
    return PartitionSpec(*fields)


def sort_order(schema: Schema, layout: TableLayout) -> SortOrder:
    """Ascending, NULL first. Raises ConfigurationError naming field and remedy."""
    fields = [
        SortField(
            _source(schema, name, "TRANSFORM_BATCH_ORDER_FIELDS").field_id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST
        )
        for name in layout.order_fields
    ]
    return SortOrder(*fields, order_id=1) if fields else SortOrder(order_id=0)


def _source(schema: Schema, name: str, setting: str) -> NestedField:
    try:
        field = schema.find_field(name)
    except ValueError:
        known = ", ".join(schema.column_names)
        raise ConfigurationError(
            f"{setting} names {name!r}, which the table does not have when it is created; it has: {known}"
        ) from None
    if not isinstance(field.field_type, PrimitiveType):
        raise ConfigurationError(f"{setting}: column {name} is {field.field_type}; name a field with a single value in it")
    if any(isinstance(parent, ListType | MapType) for parent in _ancestors(schema, field.field_id)):
        raise ConfigurationError(f"{setting}: column {name} lies inside a list or map, where a row has many values")
    return field


def _ancestors(schema: Schema, field_id: int) -> list[IcebergType]:
    """Types of the fields around a field, from the outside in."""
    name = schema.find_column_name(field_id) or ""
    found: list[IcebergType] = []
    for end in [i for i, c in enumerate(name) if c == "."]:
        try:
            found.append(schema.find_type(name[:end]))
        except ValueError:
            continue
    return found


def _free(name: str, taken: set[str]) -> str:
    label = next(candidate for candidate in itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2))) if candidate not in taken)
    taken.add(label)
    return label
