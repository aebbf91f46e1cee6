"""The engine of one scope: names, stubs, checked statements and the DuckDB instance that runs them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa

from catalog.clock import Clock, SystemClock
from catalog.errors import NotFound, SkipprError, Unavailable
from catalog.lake import TableState
from flight.engine.api import EngineSession, TableEntry
from flight.engine.catalog import ScopeTables, StubCatalog
from flight.engine.duckdb import Connection, Instance
from flight.engine.functions import ALLOWED_FUNCTIONS
from flight.engine.names import Names
from flight.engine.pins import LiveWal, Pins, take
from flight.engine.plan import Plan, plan, plan_with
from flight.engine.portable import portable_schema
from flight.engine.resolve import Template, analyze
from flight.engine.scope import Scope
from flight.engine.session import DuckSession
from flight.engine.types import TypeTexts, empty_select
from flight.live import LiveSource, StaleCapture

__all__ = ["DuckEngine"]

_log = logging.getLogger("skippr.engine")

_TEMPLATES_KEPT: Final = 512
_TEMPLATE_CHARS_MAX: Final = 16 * 1024
FunctionKind = Literal["numeric", "string", "system", "datetime", "keywords"]
_SYSTEM: Final = ("current_catalog", "current_database", "current_schema", "current_user", "session_user", "user", "version")


class DuckEngine:
    """`api.Engine` over DuckDB. Thread safe. See `flight.engine.scope.open_engine`."""

    def __init__(self, scope: Scope, live: LiveSource | None = None, clock: Clock | None = None) -> None:
        self._scope = scope
        self._live = live
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._templates: OrderedDict[tuple[str | None, str], Template] = OrderedDict()
        self._closed = False
        self.types = TypeTexts()
        self.names = Names(scope, self._clock)
        self.instance = Instance(scope)
        self.stubs = StubCatalog(self.instance, self.names, scope.lake, self.types)

    @property
    def catalog(self) -> str:
        return self._scope.workspace

    def open_session(self) -> EngineSession:
        return DuckSession(self)

    def schemas(self) -> list[str]:
        return sorted(self.names.listing().schemas)

    def tables(self) -> list[TableEntry]:
        listing = self.names.listing()
        return [
            TableEntry(schema, table, "TABLE")
            for schema, tables in sorted(listing.tables.items())
            for table in sorted(tables)
        ]

    def table_schema(self, entry: TableEntry) -> pa.Schema:
        """The columns as a query gives them, those that only live rows have included; no manifest is read.

        Raises NotFound, or DataCorruption for a broken table.
        """
        identifier = self.names.find(entry.schema_name, entry.table_name)
        if identifier is None:
            raise NotFound(f"table {entry.schema_name}.{entry.table_name} does not exist in catalog {self.catalog}")
        state = self._scope.lake.load(identifier)
        live = self._live_schema(state)
        with self.instance.connection() as connection:
            text = empty_select(self.types.columns(state.schema, connection))
            if live is not None:
                text += f" UNION ALL BY NAME {empty_select(self.types.columns(live, connection))}"
            return portable_schema(connection.execute(text).to_arrow_reader(1).schema)

    def functions(self) -> dict[FunctionKind, list[str]]:
        """Names of what statements may call, sorted; `keywords` are the reserved words."""
        with self.instance.connection() as connection:
            rows = connection.execute(
                "SELECT DISTINCT function_name, parameter_types[1] FROM duckdb_functions()"
                " WHERE function_type IN ('scalar', 'macro') AND regexp_full_match(function_name, '[a-z][a-z0-9_]*')"
            ).fetchall()
            keywords = connection.execute(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved' ORDER BY 1"
            ).fetchall()
        kinds: dict[FunctionKind, set[str]] = {"numeric": set(), "string": set(), "datetime": set(), "system": set(_SYSTEM)}
        for name, kind in rows:
            group = _group(str(kind))
            if group is not None and name in ALLOWED_FUNCTIONS and not name.startswith("icu_collate"):
                kinds[group].add(str(name))
        return {**{group: sorted(names) for group, names in kinds.items()}, "keywords": [str(row[0]) for row in keywords]}

    def close(self) -> None:
        """Close the instance; idempotent. Statements that still run end with an error."""
        with self._lock:
            self._closed = True
            instance = self.instance
        instance.close()

    # --- for sessions and statements -------------------------------------------------------------------------------

    def template(self, sql: str, schema: str | None) -> Template:
        """The checked statement, from memory where it was seen before under this current schema."""
        key = (schema, sql)
        with self._lock:
            if self._closed:
                raise Unavailable("the query engine is closed")
            known = self._templates.get(key)
            if known is not None:
                self._templates.move_to_end(key)
        if known is not None and self._still_there(known):
            return known
        with self.instance.connection() as connection:
            template = analyze(sql, connection, ScopeTables(self.catalog, self.names, schema))
        if len(sql) <= _TEMPLATE_CHARS_MAX:
            with self._lock:
                self._templates[key] = template
                while len(self._templates) > _TEMPLATES_KEPT:
                    self._templates.popitem(last=False)
        return template

    def pin(self, template: Template, live: LiveWal) -> Pins:
        """Pin the tables of the statement now (rule 14)."""
        return take(template.holes, self._scope.lake, self._live, live, self._clock)

    def plan(self, template: Template, pins: Pins) -> Plan:
        """The statement's plan over tables of these shapes."""
        known = template.probes.get(pins.shape)
        if isinstance(known, Plan):
            return known
        if template.listed != "nothing":
            self.stubs.refresh(template.listed)
        with self.instance.connection() as connection:
            return plan(template, pins, self.types, connection)

    def plan_with(self, template: Template, pins: Pins, values: Sequence[object]) -> pa.Schema:
        """The schema the rows have with exactly these parameter values."""
        with self.instance.connection() as connection:
            return plan_with(template, pins, values, self.types, connection)

    def use_schema(self, connection: Connection, schema: str | None) -> None:
        """Give the connection the session's current schema, as current_schema() and SHOW TABLES see it."""
        wanted = schema or "main"
        if connection.schema == wanted:
            return
        if not self.stubs.has_schema(wanted):
            self.stubs.refresh("names")
        connection.use(wanted if self.stubs.has_schema(wanted) else "main")

    def replace_instance(self) -> None:
        """Start DuckDB anew after it declared its instance unusable."""
        with self._lock:
            if self._closed:
                return
            old = self.instance
            self.instance = Instance(self._scope)
            self.stubs = StubCatalog(self.instance, self.names, self._scope.lake, self.types)
        _log.error("the DuckDB instance of workspace %s became unusable and was replaced", self.catalog)
        old.close()

    def _still_there(self, template: Template) -> bool:
        """Whether the names still lead to the same tables."""
        try:
            return all(self.names.find(hole.schema, hole.table) == hole.identifier for hole in template.holes)
        except SkipprError:
            return False

    def _live_schema(self, state: TableState) -> pa.Schema | None:
        """Columns of the live rows; None where there are none or they cannot be read now."""
        if self._live is None or not state.pipelines:
            return None
        try:
            capture = self._live.capture(state.pipelines)
        except Unavailable as error:
            _log.warning("the schema of a table is shown without its live rows: %s", error)
            return None
        try:
            rows = capture.rows(state)
            return None if rows is None else rows.schema
        except StaleCapture:
            return None
        finally:
            capture.close()


def _group(kind: str) -> FunctionKind | None:
    if kind.startswith(("DATE", "TIME", "INTERVAL")):
        return "datetime"
    if kind == "VARCHAR":
        return "string"
    if kind.startswith("DECIMAL") or kind in ("DOUBLE", "FLOAT", "HUGEINT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "UBIGINT"):
        return "numeric"
    return None
