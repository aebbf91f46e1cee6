"""The result schemas of every metadata command, exact to nullability: drivers compare them with `equals`, or cast blindly."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = [
    "CATALOGS", "DB_SCHEMAS", "FOREIGN_KEYS", "PRIMARY_KEYS", "SQL_INFO", "SQL_INFO_VALUE", "TABLES", "TABLES_WITH_SCHEMA",
    "TABLE_TYPES", "XDBC_TYPE_INFO",
]


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    """A name that ends with `!` is a field that is never null."""
    return pa.schema([pa.field(name.rstrip("!"), kind, nullable=not name.endswith("!")) for name, kind in fields])


_TEXT: Final = pa.string()

CATALOGS: Final = _schema(("catalog_name!", _TEXT))
DB_SCHEMAS: Final = _schema(("catalog_name", _TEXT), ("db_schema_name!", _TEXT))
TABLES: Final = _schema(("catalog_name", _TEXT), ("db_schema_name", _TEXT), ("table_name!", _TEXT), ("table_type!", _TEXT))
TABLES_WITH_SCHEMA: Final = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES: Final = _schema(("table_type!", _TEXT))
PRIMARY_KEYS: Final = _schema(
    ("catalog_name", _TEXT), ("db_schema_name", _TEXT), ("table_name!", _TEXT), ("column_name!", _TEXT),
    ("key_name", _TEXT), ("key_sequence!", pa.int32()),
)
FOREIGN_KEYS: Final = _schema(
    ("pk_catalog_name", _TEXT), ("pk_db_schema_name", _TEXT), ("pk_table_name!", _TEXT), ("pk_column_name!", _TEXT),
    ("fk_catalog_name", _TEXT), ("fk_db_schema_name", _TEXT), ("fk_table_name!", _TEXT), ("fk_column_name!", _TEXT),
    ("key_sequence!", pa.int32()), ("fk_key_name", _TEXT), ("pk_key_name", _TEXT),
    ("update_rule!", pa.uint8()), ("delete_rule!", pa.uint8()),
)
XDBC_TYPE_INFO: Final = _schema(
    ("type_name!", _TEXT), ("data_type!", pa.int32()), ("column_size", pa.int32()), ("literal_prefix", _TEXT),
    ("literal_suffix", _TEXT), ("create_params", pa.list_(pa.field("item", _TEXT, nullable=False))),
    ("nullable!", pa.int32()), ("case_sensitive!", pa.bool_()), ("searchable!", pa.int32()),
    ("unsigned_attribute", pa.bool_()), ("fixed_prec_scale!", pa.bool_()), ("auto_increment", pa.bool_()),
    ("local_type_name", _TEXT), ("minimum_scale", pa.int32()), ("maximum_scale", pa.int32()), ("sql_data_type!", pa.int32()),
    ("datetime_subcode", pa.int32()), ("num_prec_radix", pa.int32()), ("interval_precision", pa.int32()),
)
SQL_INFO_VALUE: Final = pa.dense_union(
    [
        pa.field("string_value", _TEXT),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.field("item", _TEXT))),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("item", pa.int32())))),
    ],
    [0, 1, 2, 3, 4, 5],
)
SQL_INFO: Final = _schema(("info_name!", pa.uint32()), ("value!", SQL_INFO_VALUE))
