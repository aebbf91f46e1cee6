"""Answers to the metadata commands: what there is, as rows of the exact result schemas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from catalog.errors import SkipprError
from flight.engine.api import Engine, TableEntry
from flight.protocol import messages as m
from flight.protocol import schemas
from flight.protocol.patterns import LikePattern
from flight.protocol.sql_info import Functions, sql_info_table, sql_info_values
from flight.protocol.types import describe_columns, xdbc_type_info
from flight.protocol.wire import Message
from flight.sessions import Limits

__all__ = ["Metadata", "Rows"]

TABLE_TYPES: Final = ("TABLE", "VIEW")
_ALIASES: Final = {"BASE TABLE": "TABLE"}
_TABLES_PER_BATCH: Final = 64
_log = logging.getLogger("skippr.flight")


class Rows(NamedTuple):
    """A result: its schema, and batches that are made as they are asked for."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def _rows(table: pa.Table) -> Rows:
    return Rows(table.schema, iter(table.to_batches()))


def _table(schema: pa.Schema, *columns: Sequence[object]) -> Rows:
    return _rows(pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema))


class Metadata:
    """Metadata of all scopes of a server. Thread safe; reads the engines anew for each request."""

    def __init__(self, engines: Sequence[Engine], version: str, limits: Limits) -> None:
        self._engines: Final = sorted(engines, key=lambda engine: engine.catalog)
        self._sql_info: Final = sql_info_values(
            version, _functions(engines), int(limits.session_idle_s * 1000), limits.max_sessions, limits.statement_chars)
        self._answers: Final[dict[type[Message], Callable[..., Rows]]] = {
            m.CommandGetSqlInfo: lambda command: _rows(sql_info_table(self._sql_info, command.info)),
            m.CommandGetXdbcTypeInfo: lambda command: _rows(xdbc_type_info(command.data_type)),
            m.CommandGetCatalogs: lambda _: _table(schemas.CATALOGS, [engine.catalog for engine in self._engines]),
            m.CommandGetDbSchemas: self._db_schemas,
            m.CommandGetTables: self._tables,
            m.CommandGetTableTypes: lambda _: _table(schemas.TABLE_TYPES, TABLE_TYPES),
            # Iceberg tables have neither primary nor foreign keys.
            m.CommandGetPrimaryKeys: lambda _: _rows(schemas.PRIMARY_KEYS.empty_table()),
            m.CommandGetImportedKeys: lambda _: _rows(schemas.FOREIGN_KEYS.empty_table()),
            m.CommandGetExportedKeys: lambda _: _rows(schemas.FOREIGN_KEYS.empty_table()),
            m.CommandGetCrossReference: lambda _: _rows(schemas.FOREIGN_KEYS.empty_table()),
        }

    def schema(self, command: Message) -> pa.Schema | None:
        """Result schema of a metadata command, None where the command is no metadata command. Reads nothing."""
        if isinstance(command, m.CommandGetTables):
            return schemas.TABLES_WITH_SCHEMA if command.include_schema else schemas.TABLES
        return _SCHEMAS.get(type(command))

    def rows(self, command: Message) -> Rows:
        """Answer a metadata command. Raises what the engines raise."""
        return self._answers[type(command)](command)

    def _in_catalog(self, catalog: str | None) -> list[Engine]:
        """None: every catalog; a name: that one; the empty name: tables without a catalog, which do not exist here."""
        return [engine for engine in self._engines if catalog is None or engine.catalog == catalog]

    def _db_schemas(self, command: m.CommandGetDbSchemas) -> Rows:
        pattern = LikePattern(command.db_schema_filter_pattern)
        names = [(engine.catalog, name) for engine in self._in_catalog(command.catalog)
                 for name in sorted(engine.schemas()) if pattern.matches(name)]
        return _table(schemas.DB_SCHEMAS, [name[0] for name in names], [name[1] for name in names])

    def _tables(self, command: m.CommandGetTables) -> Rows:
        in_schema = LikePattern(command.db_schema_filter_pattern)
        named = LikePattern(command.table_name_filter_pattern)
        kinds = {_ALIASES.get(kind, kind) for kind in command.table_types} or set(TABLE_TYPES)
        found = [(engine, entry) for engine in self._in_catalog(command.catalog)
                 for entry in sorted(engine.tables(), key=lambda e: (e.schema_name, e.table_name, e.table_type))
                 if entry.table_type in kinds and in_schema.matches(entry.schema_name) and named.matches(entry.table_name)]
        if not command.include_schema:
            return _table(schemas.TABLES, *_names(found))
        return Rows(schemas.TABLES_WITH_SCHEMA, self._tables_with_schemas(found))

    def _tables_with_schemas(self, found: Sequence[tuple[Engine, TableEntry]]) -> Iterator[pa.RecordBatch]:
        """In small batches: a browser asks for all schemas of all tables at once, and reading them takes time."""
        for part in _batched(found):
            described = [_serialized_schema(engine, entry, alone=len(found) == 1) for engine, entry in part]
            yield from _table(schemas.TABLES_WITH_SCHEMA, *_names(part), described).batches


def _batched(found: Sequence[tuple[Engine, TableEntry]]) -> Iterator[Sequence[tuple[Engine, TableEntry]]]:
    for start in range(0, len(found), _TABLES_PER_BATCH):
        yield found[start:start + _TABLES_PER_BATCH]


def _names(found: Sequence[tuple[Engine, TableEntry]]) -> list[list[str]]:
    """Columns catalog, schema, table, type."""
    return [
        [engine.catalog for engine, _ in found],
        [entry.schema_name for _, entry in found],
        [entry.table_name for _, entry in found],
        [entry.table_type for _, entry in found],
    ]


def _serialized_schema(engine: Engine, entry: TableEntry, *, alone: bool) -> bytes:
    """The table's schema as an IPC message.

    One broken table must not hide all others: among several it is listed without columns, its error in the schema's metadata
    `skippr:error`. Asked for alone it is that error.
    """
    try:
        schema = engine.table_schema(entry)
    except SkipprError as error:
        if alone:
            raise
        _log.warning("no schema of table %s.%s.%s: %s", engine.catalog, entry.schema_name, entry.table_name, error)
        return bytes(pa.schema([], metadata={"skippr:error": str(error)}).serialize())
    return bytes(describe_columns(schema, engine.catalog, entry.schema_name, entry.table_name).serialize())


def _functions(engines: Sequence[Engine]) -> Functions:
    """Functions and keywords of the engine; all scopes run the same one."""
    return engines[0].functions()


_SCHEMAS: Final[dict[type[Message], pa.Schema]] = {
    m.CommandGetSqlInfo: schemas.SQL_INFO,
    m.CommandGetXdbcTypeInfo: schemas.XDBC_TYPE_INFO,
    m.CommandGetCatalogs: schemas.CATALOGS,
    m.CommandGetDbSchemas: schemas.DB_SCHEMAS,
    m.CommandGetTableTypes: schemas.TABLE_TYPES,
    m.CommandGetPrimaryKeys: schemas.PRIMARY_KEYS,
    m.CommandGetImportedKeys: schemas.FOREIGN_KEYS,
    m.CommandGetExportedKeys: schemas.FOREIGN_KEYS,
    m.CommandGetCrossReference: schemas.FOREIGN_KEYS,
}
