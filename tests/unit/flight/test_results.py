"""Result schemas, SqlInfo, type names and column metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flight.protocol import schemas
from flight.protocol.sql_info import sql_info_table, sql_info_values
from flight.protocol.types import describe_columns, sql_type_name, xdbc_type_info

STRING, BOOL, BIGINT, INT32, LIST, MAP = range(6)
# As the JDBC and ADBC drivers read them.
CHILD_OF = {
    **dict.fromkeys((0, 1, 2, 504, 513, 514, 529, 530, 531), STRING),
    **dict.fromkeys((3, 4, 5, 9, 10, 11, 500, 501, 502, 506, 515, 516, 518, 519, 520, 521, 523, 524, 527, 532, 536, 537, 539, 556,
                     563, 565, 566, *range(572, 577)), BOOL),
    **dict.fromkeys((*range(541, 556), *range(557, 563)), BIGINT),
    **dict.fromkeys((8, 100, 101, 503, 505, 507, 522, 525, 526, 528, 533, 534, 535, 538, 540, 564, *range(567, 572)), INT32),
    **dict.fromkeys(range(508, 513), LIST),
    517: MAP,
}


def info(codes: list[int]) -> pa.Table:
    return sql_info_table(sql_info_values("1.2.3", {"keywords": ["SELECT"], "numeric": ["abs"]}, 5_000, 10, 1000), codes)


def test_sql_info_is_complete_and_each_value_in_the_child_the_drivers_read() -> None:
    table = info([])
    table.validate(full=True)
    assert table.schema.equals(schemas.SQL_INFO)
    [batch] = table.to_batches()
    kinds = batch["value"]
    assert dict(zip(table["info_name"].to_pylist(), kinds.type_codes.to_pylist(), strict=True)) == CHILD_OF
    assert set(CHILD_OF) == {*range(6), *range(8, 12), 100, 101, *range(500, 577)}


def test_sql_info_of_some_codes() -> None:
    assert info([8]).to_pylist() == [{"info_name": 8, "value": 1}]
    assert info([508, 9999, 508, 1]).to_pylist() == [{"info_name": 508, "value": ["SELECT"]}, {"info_name": 1, "value": "1.2.3"}]
    assert info([100, 549, 557])["value"].to_pylist() == [5_000, 10, 1000]
    assert info([9999]).num_rows == 0
    assert info([517]).to_pylist()[0]["value"]


@pytest.mark.parametrize(("schema", "text"), [
    (schemas.CATALOGS, "catalog_name!"),
    (schemas.DB_SCHEMAS, "catalog_name db_schema_name!"),
    (schemas.TABLES, "catalog_name db_schema_name table_name! table_type!"),
    (schemas.TABLES_WITH_SCHEMA, "catalog_name db_schema_name table_name! table_type! table_schema!"),
    (schemas.TABLE_TYPES, "table_type!"),
    (schemas.PRIMARY_KEYS, "catalog_name db_schema_name table_name! column_name! key_name key_sequence!"),
    (schemas.FOREIGN_KEYS, ("pk_catalog_name pk_db_schema_name pk_table_name! pk_column_name! fk_catalog_name fk_db_schema_name "
                           "fk_table_name! fk_column_name! key_sequence! fk_key_name pk_key_name update_rule! delete_rule!")),
    (schemas.XDBC_TYPE_INFO, ("type_name! data_type! column_size literal_prefix literal_suffix create_params nullable! "
                             "case_sensitive! searchable! unsigned_attribute fixed_prec_scale! auto_increment local_type_name "
                             "minimum_scale maximum_scale sql_data_type! datetime_subcode num_prec_radix interval_precision")),
    (schemas.SQL_INFO, "info_name! value!"),
])
def test_names_and_nullability(schema: pa.Schema, text: str) -> None:
    assert " ".join(field.name + ("" if field.nullable else "!") for field in schema) == text


@pytest.mark.parametrize(("kind", "name"), [
    (pa.int64(), "BIGINT"), (pa.string(), "VARCHAR"), (pa.large_string(), "VARCHAR"), (pa.decimal128(10, 2), "DECIMAL"),
    (pa.timestamp("us"), "TIMESTAMP"), (pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE"), (pa.time64("us"), "TIME"),
    (pa.list_(pa.int32()), "INTEGER[]"), (pa.list_(pa.int32(), 3), "INTEGER[3]"),
    (pa.map_(pa.string(), pa.int64()), "MAP(VARCHAR, BIGINT)"),
    (pa.struct([("a b", pa.decimal128(5, 1)), ("c", pa.list_(pa.date32()))]), 'STRUCT("a b" DECIMAL(5,1), c DATE[])'),
    (pa.dictionary(pa.int8(), pa.string()), "VARCHAR"), (pa.uuid(), "UUID"), (pa.binary(16), "BLOB"), (pa.null(), "NULL"),
    (pa.month_day_nano_interval(), "INTERVAL"), (pa.duration("us"), "INTERVAL"), (pa.bool_(), "BOOLEAN"),
])
def test_type_names(kind: pa.DataType, name: str) -> None:
    assert sql_type_name(kind) == name


def test_column_metadata() -> None:
    schema = pa.schema([pa.field("d", pa.decimal128(10, 2), nullable=False, metadata={"doc": "price", "own": "1"}),
                        pa.field("s", pa.string())], metadata={"table": "x"})
    described = describe_columns(schema, "lake", "bronze", "rides")
    assert described.equals(schema), "same names, types and nullability"
    assert described.metadata == {b"table": b"x"}
    prefix = b"ARROW:FLIGHT:SQL:"
    first = {key.removeprefix(prefix): value for key, value in described.field("d").metadata.items()}
    assert first == {
        b"own": b"1", b"doc": b"price", b"REMARKS": b"price", b"TYPE_NAME": b"DECIMAL", b"PRECISION": b"10", b"SCALE": b"2",
        b"CATALOG_NAME": b"lake", b"SCHEMA_NAME": b"bronze", b"TABLE_NAME": b"rides", b"IS_AUTO_INCREMENT": b"0",
        b"IS_CASE_SENSITIVE": b"0", b"IS_READ_ONLY": b"1", b"IS_SEARCHABLE": b"1",
    }
    assert described.field("s").metadata[prefix + b"IS_CASE_SENSITIVE"] == b"1"


def test_xdbc_type_info() -> None:
    table = xdbc_type_info(None)
    table.validate(full=True)
    assert table.schema.equals(schemas.XDBC_TYPE_INFO)
    keys = list(zip(table["data_type"].to_pylist(), table["type_name"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert xdbc_type_info(12)["type_name"].to_pylist() == ["VARCHAR"]
    assert xdbc_type_info(777).num_rows == 0
    named = set(table["type_name"].to_pylist())
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(3, 1), pa.binary()):
        assert sql_type_name(kind) in named, "names in column metadata are names of the type list"
