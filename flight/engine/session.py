"""A client's session with an engine, and its statements."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from catalog.errors import Conflict, InvalidRequest, NotFound, SkipprError, Unavailable
from flight.engine.api import RowStream, Statement
from flight.engine.duckdb import Connection
from flight.engine.failures import is_fatal, is_missing_file
from flight.engine.lexer import tokens
from flight.engine.pins import LIVE_WAL, LiveWal, Pins
from flight.engine.plan import Plan, bind_values, scan
from flight.engine.resolve import Template
from flight.engine.stream import BATCH_ROWS, DuckStream, ReadyStream

if TYPE_CHECKING:
    from flight.engine.engine import DuckEngine

__all__ = ["DuckSession"]

_SET_SCHEMA: Final = pa.schema([("Success", pa.bool_())])
_NO_PARAMETERS: Final = pa.schema([])
_EXPIRED_RETRIES: Final = 3
_live_names = itertools.count()


class DuckSession:
    """`api.EngineSession`. Thread safe: options change under a lock, a statement takes them as they are when it is prepared."""

    def __init__(self, engine: DuckEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._schema: str | None = None
        self._live: LiveWal = "required"

    @property
    def catalog(self) -> str:
        return self._engine.catalog

    @property
    def schema(self) -> str | None:
        with self._lock:
            return self._schema

    def set_schema(self, name: str) -> None:
        """Make `name` the current schema: as it is, quoted, or behind the catalog's name; empty means none. Raises NotFound."""
        found = self._find_schema(name) if name else None
        with self._lock:
            self._schema = found

    def options(self) -> dict[str, str]:
        with self._lock:
            return {"catalog": self._engine.catalog, "schema": self._schema or "", "live_wal": self._live}

    def set_option(self, name: str, value: str) -> None:
        option = name.lower()
        if option == "schema":
            self.set_schema(value)
        elif option == "catalog":
            if value.lower() != self._engine.catalog.lower():
                raise InvalidRequest(f"catalog {value!r} does not exist here; the catalog of this session is {self._engine.catalog}")
        elif option == "live_wal":
            mode = next((one for one in LIVE_WAL if one == value.lower()), None)
            if mode is None:
                raise InvalidRequest(f"live_wal cannot be {value!r}: use {', '.join(LIVE_WAL)}")
            with self._lock:
                self._live = mode
        else:
            raise NotFound(f"session option {name!r} does not exist; there are catalog, schema and live_wal")

    def prepare(self, sql: str) -> Statement:
        """Check, resolve and plan one statement. Raises InvalidRequest, NotFound, Unavailable, DataCorruption."""
        with self._lock:
            schema, live = self._schema, self._live
        template = self._engine.template(sql, schema)
        if template.kind == "set":
            return SetStatement(self, template)
        return DuckStatement(self._engine, template, schema, live)

    def close(self) -> None:
        """Sessions hold nothing of the engine; running statements are closed by whoever runs them."""

    def _find_schema(self, name: str) -> str:
        found = self._engine.names.schema(name)
        if found is not None:
            return found
        path = [token.value for token in tokens(name.encode()) if token.kind in ("word", "quoted")]
        if len(path) == 2 and path[0].lower() == self._engine.catalog.lower():
            path = path[1:]
        found = self._engine.names.schema(".".join(path)) if path else None
        if found is None:
            raise NotFound(f"schema {name} does not exist in catalog {self._engine.catalog}")
        return found


class SetStatement:
    """SET, USE or RESET of a session option: takes effect when it is executed."""

    def __init__(self, session: DuckSession, template: Template) -> None:
        self._session = session
        self._template = template
        option = template.option
        if option is None or option.name not in ("schema", "live_wal"):
            raise InvalidRequest(f"SET {option.name if option else ''} is not allowed: only schema and live_wal can be set here")

    @property
    def sql(self) -> str:
        return self._template.sql

    @property
    def schema(self) -> pa.Schema:
        return _SET_SCHEMA

    @property
    def immediate(self) -> bool:
        return True

    @property
    def parameter_schema(self) -> pa.Schema:
        return _NO_PARAMETERS

    def schema_for(self, parameters: Sequence[object]) -> pa.Schema:
        return _SET_SCHEMA

    def renew(self) -> bool:
        return False

    def execute(self, parameters: Sequence[object] = (), *, schema: pa.Schema | None = None) -> RowStream:
        """Set it. Raises NotFound for a schema that does not exist, InvalidRequest for a value that does not fit."""
        option = self._template.option
        if option is not None:
            default = "" if option.name == "schema" else "required"
            self._session.set_option(option.name, default if option.value is None else option.value)
        return ReadyStream(_SET_SCHEMA.empty_table())

    def close(self) -> None:
        """Nothing is held."""


class DuckStatement:
    """A planned statement. Safe for several threads: each execution has its own connection, pins and capture."""

    def __init__(self, engine: DuckEngine, template: Template, schema: str | None, live: LiveWal) -> None:
        self._engine = engine
        self._template = template
        self._session_schema = schema
        self._live = live
        self._plan: Plan = self._planned()

    @property
    def sql(self) -> str:
        return self._template.sql

    @property
    def schema(self) -> pa.Schema:
        return self._plan.schema

    @property
    def immediate(self) -> bool:
        return False

    @property
    def parameter_schema(self) -> pa.Schema:
        return self._plan.parameter_schema

    def schema_for(self, parameters: Sequence[object]) -> pa.Schema:
        self._check_count(parameters)
        if not parameters or self._template.kind == "explain":
            return self._plan.schema
        pins = self._engine.pin(self._template, self._live)
        try:
            return self._engine.plan_with(self._template, pins, parameters)
        finally:
            pins.close()

    def renew(self) -> bool:
        before, self._plan = self._plan, self._planned()
        return not self._plan.schema.equals(before.schema)

    def execute(self, parameters: Sequence[object] = (), *, schema: pa.Schema | None = None) -> RowStream:
        """Pin the tables now; the rows are those of this moment whenever they are read.

        Raises InvalidRequest for the wrong number of values, Conflict where a table's columns changed since the statement was
        planned so that its result would have another schema.
        """
        self._check_count(parameters)
        if self._template.listed != "nothing":
            self._engine.stubs.refresh(self._template.listed)
        execution = _Execution(self._engine, self._template, self._live, self._plan, parameters, self._session_schema)
        execution.pin()
        promised = self._plan.schema if schema is None else schema
        return DuckStream(self._engine.instance, promised, execution.start, execution.done, rewritten=self._template.rewritten)

    def close(self) -> None:
        """A statement holds nothing between executions."""

    def _planned(self) -> Plan:
        pins = self._engine.pin(self._template, self._live)
        try:
            return self._engine.plan(self._template, pins)
        finally:
            pins.close()  # an idle statement holds no segment; it is captured anew when it runs

    def _check_count(self, parameters: Sequence[object]) -> None:
        if len(parameters) != len(self._template.parameters):
            raise InvalidRequest(f"the statement has {len(self._template.parameters)} parameters and {len(parameters)} values were given")


class _Execution:
    """One run of a statement: its pins, the text that reads them, and the live rows registered under names of its own."""

    def __init__(
        self, engine: DuckEngine, template: Template, live: LiveWal, promised: Plan, parameters: Sequence[object], schema: str | None
    ) -> None:
        self._engine = engine
        self._template = template
        self._live = live
        self._promised = promised
        self._parameters = parameters
        self._schema = schema
        self._pins = Pins(())
        self._plan = promised

    def pin(self) -> None:
        """Pin the tables; a changed shape is planned anew and must give the promised schema."""
        self.done()
        pins = self._engine.pin(self._template, self._live)
        try:
            self._plan = self._engine.plan(self._template, pins)
            if not self._plan.schema.equals(self._promised.schema):
                raise Conflict("the columns of the statement's tables changed since it was prepared; run or prepare it again")
        except BaseException:
            pins.close()
            raise
        self._pins = pins

    def start(self, connection: Connection) -> pa.RecordBatchReader:
        """Run on the connection. DuckDB's own exceptions, or those of this system."""
        for attempt in itertools.count(1):
            try:
                return self._run(connection)
            except SkipprError:
                raise
            except Exception as error:
                if is_fatal(error):
                    self._engine.replace_instance()
                    raise Unavailable("the query engine had to start again; run the statement again") from error
                before = self._pins.locations
                if not before or attempt > _EXPIRED_RETRIES or not is_missing_file(error):
                    raise
                self.pin()  # the pinned metadata may have been expired since
                if self._pins.locations == before:
                    raise
        raise AssertionError("unreachable")

    def done(self) -> None:
        """Free the pins; idempotent."""
        pins, self._pins = self._pins, Pins(())
        pins.close()

    def _run(self, connection: Connection) -> pa.RecordBatchReader:
        self._engine.use_schema(connection, self._schema)
        names: dict[int, str] = {}
        for at, pin in enumerate(self._pins.pins):
            if pin.live is not None:
                names[at] = f"skippr_live_{next(_live_names)}"
                connection.raw.register(names[at], pin.live)
                connection.keep = False
        sql = self._template.text(lambda at: scan(self._pins.pins[at], names.get(at)))
        values = bind_values(self._template, self._parameters)
        return connection.execute(self._plan.final(sql), values).to_arrow_reader(BATCH_ROWS)
