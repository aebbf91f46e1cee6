"""SQL names of Arrow types, the metadata each column carries, and the rows of GetXdbcTypeInfo.

Names are DuckDB's, and the names in column metadata are those of GetXdbcTypeInfo: some clients join the two.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types as t

from flight.protocol.schemas import XDBC_TYPE_INFO

__all__ = ["describe_columns", "sql_type_name", "type_size", "xdbc_type_info"]

_KEY: Final = "ARROW:FLIGHT:SQL:"
_NAMES: Final[dict[pa.DataType, str]] = {
    pa.null(): "NULL", pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
    pa.float16(): "FLOAT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR", pa.large_string(): "VARCHAR", pa.string_view(): "VARCHAR",
    pa.binary(): "BLOB", pa.large_binary(): "BLOB", pa.binary_view(): "BLOB",
    pa.date32(): "DATE", pa.date64(): "DATE",
    pa.timestamp("s"): "TIMESTAMP_S", pa.timestamp("ms"): "TIMESTAMP_MS", pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("ns"): "TIMESTAMP_NS", pa.month_day_nano_interval(): "INTERVAL",
}
# Digits of exact numbers, bits of approximate ones, characters of the text form of dates and times.
_PRECISION: Final[dict[str, int]] = {
    "TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "UTINYINT": 3, "USMALLINT": 5, "UINTEGER": 10, "UBIGINT": 20,
    "FLOAT": 24, "DOUBLE": 53, "BOOLEAN": 1, "DATE": 10, "TIME": 15, "TIMESTAMP": 26, "TIMESTAMP_S": 19, "TIMESTAMP_MS": 23,
    "TIMESTAMP_NS": 29, "TIMESTAMP WITH TIME ZONE": 32,
}
_TIME_SCALE: Final[dict[str, int]] = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def sql_type_name(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type; for a decimal without precision and scale, for a nested type with its parts."""
    name = _NAMES.get(kind)
    if name is not None:
        return name
    if t.is_decimal(kind):
        return "DECIMAL"
    if t.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE"
    if t.is_time(kind):
        return "TIME"
    if t.is_duration(kind):
        return "INTERVAL"
    if t.is_dictionary(kind):
        return sql_type_name(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return "UUID" if kind.extension_name == "arrow.uuid" else sql_type_name(kind.storage_type)
    if t.is_fixed_size_binary(kind):
        return "BLOB"
    return _nested_name(kind)


def _nested_name(kind: pa.DataType) -> str:
    if t.is_map(kind):
        return f"MAP({_part(kind.key_type)}, {_part(kind.item_type)})"
    if t.is_fixed_size_list(kind):
        return f"{_part(kind.value_type)}[{kind.list_size}]"
    if t.is_list(kind) or t.is_large_list(kind) or t.is_list_view(kind) or t.is_large_list_view(kind):
        return f"{_part(kind.value_type)}[]"
    if t.is_struct(kind):
        inner = ", ".join(f"{_quoted(field.name)} {_part(field.type)}" for field in kind)
        return f"STRUCT({inner})"
    return str(kind).upper()


def _part(kind: pa.DataType) -> str:
    if t.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return sql_type_name(kind)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else '"' + name.replace('"', '""') + '"'


def type_size(kind: pa.DataType) -> tuple[int | None, int | None]:
    """(precision, scale) as JDBC and ODBC mean them; None where they do not apply."""
    if t.is_decimal(kind):
        return kind.precision, kind.scale
    if t.is_timestamp(kind) or t.is_time(kind):
        return _PRECISION[sql_type_name(kind)], _TIME_SCALE[kind.unit]
    if t.is_integer(kind):
        return _PRECISION[_NAMES[kind]], 0
    return _PRECISION.get(sql_type_name(kind)), None


def describe_columns(schema: pa.Schema, catalog: str | None = None, db_schema: str | None = None,
                     table: str | None = None) -> pa.Schema:
    """The schema with the per-column metadata of Flight SQL, own metadata of the fields kept.

    Drivers ignore metadata where they compare schemas, so a described schema may stand for the plain one.
    """
    base = {"IS_AUTO_INCREMENT": "0", "IS_CASE_SENSITIVE": "0", "IS_READ_ONLY": "1", "IS_SEARCHABLE": "1"}
    for key, value in (("CATALOG_NAME", catalog), ("SCHEMA_NAME", db_schema), ("TABLE_NAME", table)):
        if value is not None:
            base[key] = value
    fields = []
    for field in schema:
        own = field.metadata or {}
        name = sql_type_name(field.type)
        described = {**base, "TYPE_NAME": name}
        if name == "VARCHAR":
            described["IS_CASE_SENSITIVE"] = "1"
        for key, number in zip(("PRECISION", "SCALE"), type_size(field.type), strict=True):
            if number is not None:
                described[key] = str(number)
        remarks = own.get(b"doc") or own.get(b"comment")
        if remarks:
            described["REMARKS"] = remarks.decode(errors="replace")
        fields.append(field.with_metadata({**own, **{(_KEY + k).encode(): v.encode() for k, v in described.items()}}))
    return pa.schema(fields, metadata=schema.metadata)


class _Type(NamedTuple):
    """One row of GetXdbcTypeInfo, in columns that differ between types."""

    type_name: str
    data_type: int
    column_size: int | None = None
    quote: str | None = None
    create_params: list[str] | None = None
    unsigned: bool | None = None
    scale: tuple[int, int] | None = None
    radix: int | None = None
    sql_data_type: int | None = None
    subcode: int | None = None


# Codes of XdbcDataType; sql_data_type is 9 for dates and times, 10 for intervals, with a subcode.
_TYPES: Final = (
    _Type("BOOLEAN", -7, 1),
    _Type("TINYINT", -6, 3, unsigned=False, scale=(0, 0), radix=10),
    _Type("UTINYINT", -6, 3, unsigned=True, scale=(0, 0), radix=10),
    _Type("BIGINT", -5, 19, unsigned=False, scale=(0, 0), radix=10),
    _Type("UBIGINT", -5, 20, unsigned=True, scale=(0, 0), radix=10),
    _Type("BLOB", -3, 2147483647, quote="'"),
    _Type("NULL", 0),
    _Type("UUID", 1, 36, quote="'"),
    _Type("DECIMAL", 3, 38, create_params=["precision", "scale"], unsigned=False, scale=(0, 38), radix=10),
    _Type("INTEGER", 4, 10, unsigned=False, scale=(0, 0), radix=10),
    _Type("UINTEGER", 4, 10, unsigned=True, scale=(0, 0), radix=10),
    _Type("SMALLINT", 5, 5, unsigned=False, scale=(0, 0), radix=10),
    _Type("USMALLINT", 5, 5, unsigned=True, scale=(0, 0), radix=10),
    _Type("FLOAT", 7, 24, unsigned=False, radix=2),
    _Type("DOUBLE", 8, 53, unsigned=False, radix=2),
    _Type("INTERVAL", 10, None, quote="'", sql_data_type=10),
    _Type("VARCHAR", 12, 2147483647, quote="'"),
    _Type("DATE", 91, 10, quote="'", sql_data_type=9, subcode=1),
    _Type("TIME", 92, 15, quote="'", scale=(0, 6), sql_data_type=9, subcode=2),
    _Type("TIMESTAMP", 93, 26, quote="'", scale=(0, 6), sql_data_type=9, subcode=3),
    _Type("TIMESTAMP WITH TIME ZONE", 93, 32, quote="'", scale=(0, 6), sql_data_type=9, subcode=5),
    _Type("TIMESTAMP_MS", 93, 23, quote="'", scale=(3, 3), sql_data_type=9, subcode=3),
    _Type("TIMESTAMP_NS", 93, 29, quote="'", scale=(9, 9), sql_data_type=9, subcode=3),
    _Type("TIMESTAMP_S", 93, 19, quote="'", scale=(0, 0), sql_data_type=9, subcode=3),
)


def xdbc_type_info(data_type: int | None) -> pa.Table:
    """Rows of GetXdbcTypeInfo, all or of one data type, ordered by data type and name. Schema: XDBC_TYPE_INFO."""
    rows = [
        {
            "type_name": kind.type_name, "data_type": kind.data_type, "column_size": kind.column_size,
            "literal_prefix": kind.quote, "literal_suffix": kind.quote, "create_params": kind.create_params,
            "nullable": 1, "case_sensitive": kind.type_name == "VARCHAR", "searchable": 3,
            "unsigned_attribute": kind.unsigned, "fixed_prec_scale": False,
            "auto_increment": None if kind.unsigned is None else False, "local_type_name": kind.type_name,
            "minimum_scale": kind.scale[0] if kind.scale else None, "maximum_scale": kind.scale[1] if kind.scale else None,
            "sql_data_type": kind.data_type if kind.sql_data_type is None else kind.sql_data_type,
            "datetime_subcode": kind.subcode, "num_prec_radix": kind.radix, "interval_precision": None,
        }
        for kind in sorted(_TYPES, key=lambda kind: (kind.data_type, kind.type_name))
        if data_type is None or kind.data_type == data_type
    ]
    return pa.Table.from_pylist(rows, schema=XDBC_TYPE_INFO)
