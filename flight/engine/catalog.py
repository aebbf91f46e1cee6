"""The scope's tables as DuckDB's catalog shows them: cheap stub views in the database named as the workspace.

Statements never read a stub (see `resolve`); one that did would fail, not give an empty table. Stubs are made when a statement
lists the catalog, names from one listing of the lake, columns from each table's metadata, which is cached by location. A table
whose metadata cannot be read keeps a stub with one column that says so, and hurts no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final, Literal

import duckdb
import pyarrow as pa

from catalog.errors import Internal, InvalidRequest, NotFound, SkipprError
from catalog.lake import Identifier, table_label
from flight.engine.duckdb import Instance
from flight.engine.lexer import quote
from flight.engine.names import Names
from flight.engine.rewrite import Found, SystemView
from flight.engine.scope import LakeReader
from flight.engine.types import TypeTexts, null_select

__all__ = ["UNREADABLE", "ScopeTables", "StubCatalog"]

_log = logging.getLogger("skippr.engine")

UNREADABLE: Final = "metadata of this table cannot be read"
_NOT_LOADED: Final = "columns are loaded when they are listed"
_RESERVED_SCHEMAS: Final = frozenset(["information_schema", "pg_catalog"])

_COLUMN_LISTS: Final = frozenset(["columns", "duckdb_columns", "pg_attribute", "pg_attrdef", "duckdb_tables", "pragma_table_info"])
_INFORMATION_SCHEMA: Final = frozenset(
    [
        "character_sets", "check_constraints", "columns", "constraint_column_usage", "constraint_table_usage", "key_column_usage",
        "referential_constraints", "schemata", "table_constraints", "tables", "views",
    ]
)
_PG_CATALOG: Final = frozenset(
    [
        "pg_am", "pg_attrdef", "pg_attribute", "pg_class", "pg_collation", "pg_constraint", "pg_database", "pg_depend",
        "pg_description", "pg_enum", "pg_index", "pg_indexes", "pg_namespace", "pg_proc", "pg_sequence", "pg_sequences", "pg_tables",
        "pg_tablespace", "pg_type", "pg_views",
    ]
)
_MAIN: Final = frozenset(
    [
        "duckdb_columns", "duckdb_constraints", "duckdb_indexes", "duckdb_schemas", "duckdb_tables", "duckdb_types", "duckdb_views",
        "sqlite_master", "sqlite_schema",
    ]
)
_LISTING_FUNCTIONS: Final = frozenset(["duckdb_schemas", "duckdb_views"])


class ScopeTables:
    """`rewrite.Tables` for one current schema."""

    def __init__(self, catalog: str, names: Names, schema: str | None) -> None:
        self._catalog = catalog
        self._names = names
        self._schema = schema

    @property
    def catalog(self) -> str:
        return self._catalog

    def find(self, catalog: str, schema: str, table: str) -> Found | None:
        """The table a name means. `a.b` is schema and table, or this catalog and a table of its schema main; `a.b.t` may also
        be table t of the two-level namespace a.b."""
        mine = catalog.lower() == self._catalog.lower()
        tried: list[str] = []
        if catalog and not mine:
            tried = [f"{catalog}.{schema}"]
        elif schema:
            tried = [schema]
        elif self._schema is not None:
            tried = [self._schema]
        else:
            tried = ["main"]
        if schema and not catalog and schema.lower() == self._catalog.lower():
            tried.append("main")
        for one in tried:
            identifier = self._names.find(one, table)
            if identifier is not None:
                return Found(".".join(identifier[:-1]), identifier[-1], identifier)
        return None

    def system_view(self, catalog: str, schema: str, table: str) -> SystemView | None:
        if catalog and catalog.lower() not in (self._catalog.lower(), "system"):
            return None
        name, where = table.lower(), schema.lower()
        if where == "information_schema" and name in _INFORMATION_SCHEMA:
            return SystemView("columns" if name in _COLUMN_LISTS else "names", self._information_schema(name))
        if (where in ("pg_catalog", "") and name in _PG_CATALOG) or (where in ("main", "") and name in _MAIN):
            return SystemView("columns" if name in _COLUMN_LISTS else "names")
        return None

    def _information_schema(self, name: str) -> str | None:
        """Only this workspace, as tables, not as the views that stand for them."""
        mine = "'" + self._catalog.replace("'", "''") + "'"
        if name == "tables":
            return (
                f"(SELECT * REPLACE ('BASE TABLE' AS table_type)"
                f" FROM system.information_schema.tables WHERE table_catalog = {mine})"
            )
        if name == "columns":
            hidden = ", ".join("'" + column + "'" for column in (UNREADABLE, _NOT_LOADED))
            return (
                f"(SELECT * FROM system.information_schema.columns"
                f" WHERE table_catalog = {mine} AND column_name NOT IN ({hidden}))"
            )
        if name == "schemata":
            return f"(SELECT * FROM system.information_schema.schemata WHERE catalog_name = {mine})"
        if name == "views":
            return f"(SELECT * FROM system.information_schema.views WHERE table_catalog = {mine} AND false)"
        return None

    def listing_function(self, name: str) -> Literal["nothing", "names", "columns"]:
        if name in _LISTING_FUNCTIONS:
            return "names"
        return "columns" if name in _COLUMN_LISTS else "nothing"

    def missing(self, catalog: str, schema: str, table: str) -> NotFound | InvalidRequest:
        shown = ".".join(part for part in (catalog, schema, table) if part)
        if any(mark in table for mark in ("/", "\\", "://", "*")) or table.lower().endswith((".parquet", ".csv", ".json", ".jsonl", ".db")):
            return InvalidRequest(f"{shown} is not a table: files cannot be read here; name tables as schema.table")
        listing = self._names.listing()
        homes = sorted(name for name, tables in listing.folded_tables.items() if table.lower() in tables)
        hint = f" Did you mean {', '.join(f'{home}.{table}' for home in homes[:3])}?" if homes else ""
        return NotFound(f"Catalog Error: Table with name {shown} does not exist in catalog {self._catalog}!{hint}")


class StubCatalog:
    """The stub views of one instance. Thread safe."""

    def __init__(self, instance: Instance, names: Names, lake: LakeReader, types: TypeTexts) -> None:
        self._instance = instance
        self._names = names
        self._lake = lake
        self._types = types
        self._lock = threading.Lock()
        self._schemas: set[str] = {"main"}
        self._stubs: dict[tuple[str, str], str] = {}

    def refresh(self, listed: Literal["names", "columns"]) -> None:
        """Bring the stubs up to date with the lake: which tables there are, and with `columns` what columns they have."""
        with self._lock:
            wanted = self._wanted()
            bodies = {key: self._stubs.get(key, _placeholder(_NOT_LOADED)) for key in wanted}
            if listed == "columns":
                bodies = {key: self._body(identifier) for key, identifier in wanted.items()}
            schemas = {schema for schema, _ in wanted} | self._empty_schemas()
            ddl = [f"CREATE SCHEMA IF NOT EXISTS {self._path(schema)}" for schema in sorted(schemas - self._schemas)]
            ddl += [f"DROP VIEW IF EXISTS {self._path(*key)}" for key in sorted(self._stubs.keys() - bodies.keys())]
            ddl += [
                f"CREATE OR REPLACE VIEW {self._path(*key)} AS {body}"
                for key, body in sorted(bodies.items()) if self._stubs.get(key) != body
            ]
            ddl += [f"DROP SCHEMA IF EXISTS {self._path(schema)}" for schema in sorted(self._schemas - schemas - {"main"})]
            if ddl:
                self._apply(ddl)
            self._schemas = schemas | {"main"}
            self._stubs = bodies

    def _apply(self, ddl: list[str]) -> None:
        with self._instance.connection() as connection:
            connection.execute("BEGIN")
            try:
                connection.execute("; ".join(ddl))
                connection.execute("COMMIT")
            except duckdb.Error as error:
                connection.execute("ROLLBACK")
                raise Internal(f"the catalog of workspace {self._instance.catalog} could not be shown: {error}") from error

    def has_schema(self, schema: str) -> bool:
        """Whether DuckDB knows the schema now, so that it can be a current schema."""
        with self._lock:
            return schema in self._schemas

    def _wanted(self) -> dict[tuple[str, str], Identifier]:
        """Stub -> table. Of names that differ only in case DuckDB can show one."""
        wanted: dict[tuple[str, str], Identifier] = {}
        seen: set[tuple[str, str]] = set()
        for schema, tables in sorted(self._names.listing().tables.items()):
            if schema.lower() in _RESERVED_SCHEMAS:
                continue
            for table, identifiers in sorted(tables.items()):
                folded = (schema.lower(), table.lower())
                if folded not in seen:
                    seen.add(folded)
                    wanted[schema, table] = identifiers[0]
        return wanted

    def _empty_schemas(self) -> set[str]:
        return {schema for schema in self._names.listing().schemas if schema.lower() not in _RESERVED_SCHEMAS}

    def _body(self, identifier: Identifier) -> str:
        try:
            schema = self._lake.load(identifier).schema
            return _stub(self._columns(schema)) if len(schema) else _placeholder(UNREADABLE)
        except (SkipprError, duckdb.Error, pa.ArrowException) as error:
            _log.warning("table %s is listed without columns: %s", table_label(identifier), error)
            return _placeholder(UNREADABLE)

    def _columns(self, schema: pa.Schema) -> tuple[tuple[str, str], ...]:
        with self._instance.connection() as connection:
            return self._types.columns(schema, connection)

    def _path(self, *names: str) -> str:
        return ".".join(quote(name) for name in (self._instance.catalog, *names))


def _placeholder(column: str) -> str:
    return _stub(((column, "VARCHAR"),))


def _stub(columns: Sequence[tuple[str, str]]) -> str:
    return f"{null_select(columns)} WHERE error('a stub view was read: please report this statement')::BOOLEAN"
