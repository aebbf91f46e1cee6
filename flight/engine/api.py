"""What the Flight SQL layer needs of an engine. `flight.engine.session` implements it over DuckDB; tests have a fake.

Errors are those of `catalog.errors`: InvalidRequest for SQL the engine or the guard refuses (DuckDB's message first), NotFound,
Unavailable, Internal. Nothing of DuckDB leaks through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

__all__ = ["Engine", "EngineSession", "RowStream", "Statement", "TableEntry"]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table or view of the scope. `schema_name` is the namespace, levels joined by dots."""

    schema_name: str
    table_name: str
    table_type: Literal["TABLE", "VIEW"]


class RowStream(Protocol):
    """A running statement. Iterated by one thread; `cancel` may come from any thread and stops the engine at once."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches as the engine makes them, not yet sliced for the wire."""
        ...

    def cancel(self) -> None:
        """Interrupt; the iterator then raises Unavailable('query cancelled'). Safe after the end."""
        ...

    def close(self) -> None:
        """Free the engine's resources; idempotent; from any thread."""
        ...


class Statement(Protocol):
    """A checked, resolved and planned statement. Its snapshots are pinned when it is executed."""

    @property
    def sql(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows; equal to that of every RowStream it makes until `renew`, unless `execute` is asked for another."""
        ...

    @property
    def parameter_schema(self) -> pa.Schema:
        """One field per parameter in order; utf8 where the type is unknown."""
        ...

    @property
    def immediate(self) -> bool:
        """True for SET, USE and RESET: what counts is its effect on the session, so it is executed once, when a client asks for
        it, and not when its (empty) result is fetched."""
        ...

    def schema_for(self, parameters: Sequence[object]) -> pa.Schema:
        """Schema of the rows with these values: where a parameter's type is not told by its place, its value decides.

        `SELECT ?` promises text; with 42 it gives int32. Equal to `schema` for a statement without parameters.
        """
        ...

    def renew(self) -> bool:
        """Plan anew where the tables' columns changed; whether `schema` is another one now.

        Raises what preparing it raises now, such as NotFound for a table that was dropped.
        """
        ...

    def execute(self, parameters: Sequence[object] = (), *, schema: pa.Schema | None = None) -> RowStream:
        """Start the statement with one row of parameter values. `schema` None means the statement's own.

        Every RowStream has exactly the schema asked for; values that do not fit it raise InvalidRequest.
        """
        ...

    def close(self) -> None: ...


class EngineSession(Protocol):
    """One client's state: current catalog and schema, options. Thread safe; statements of one session run in parallel."""

    @property
    def catalog(self) -> str: ...

    @property
    def schema(self) -> str | None: ...

    def set_schema(self, name: str) -> None:
        """Raises NotFound."""
        ...

    def options(self) -> dict[str, str]:
        """Settable session options and their values: at least `catalog`, `schema`, `live_wal` (required | best_effort | off)."""
        ...

    def set_option(self, name: str, value: str) -> None:
        """Raises NotFound for an unknown name, InvalidRequest for a bad value."""
        ...

    def prepare(self, sql: str) -> Statement: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """One scope (tenant/workspace): its tables and the DuckDB instance that reads them. Thread safe."""

    @property
    def catalog(self) -> str:
        """Name of the scope's Flight SQL catalog."""
        ...

    def open_session(self) -> EngineSession: ...

    def schemas(self) -> list[str]:
        """Names of all schemas (namespaces, levels joined by dots), sorted."""
        ...

    def tables(self) -> list[TableEntry]:
        """All tables and views, sorted by schema and name. Reads no table metadata."""
        ...

    def table_schema(self, entry: TableEntry) -> pa.Schema:
        """Arrow schema as a query would return it. Raises NotFound, or DataCorruption for a broken table."""
        ...

    def functions(self) -> dict[Literal["numeric", "string", "system", "datetime", "keywords"], list[str]]:
        """Names for GetSqlInfo."""
        ...

    def close(self) -> None: ...
