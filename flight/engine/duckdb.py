"""One locked-down DuckDB instance per scope, and its connections.

What is locked: extensions come by absolute path from the packages that carry them (DuckDB checks their signature), nothing is
installed or loaded later, the warehouse is the only place files are read from, no setting can change, and names never resolve to
Python variables. The instance has one attached in-memory database, named as the workspace, that holds stub views only.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from catalog.errors import ConfigurationError, Unavailable
from flight.engine.lexer import quote
from flight.engine.scope import Scope
from flight.engine.spill import SpillFolder

__all__ = ["Connection", "Instance", "warehouse_folder"]

_IDLE_MAX: Final = 64
_MEMORY_MIN_BYTES: Final = 16 << 20
_INSIST_EVERY_S: Final = 0.02
_INSIST_FOR_S: Final = 5.0
_RESERVED: Final = frozenset(["system", "temp", "memory"])
_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "produce_arrow_string_view": "false",
    "arrow_output_list_view": "false",
    "arrow_large_buffer_size": "false",
    "arrow_lossless_conversion": "false",
    "arrow_output_version": "1.0",
}


class Connection:
    """One connection of the instance. Used by one statement at a time; `interrupt` may come from any thread."""

    def __init__(self, raw: duckdb.DuckDBPyConnection, catalog: str) -> None:
        self.raw = raw
        self.schema = "main"
        self.keep = True
        """False once something of one statement is registered on it: then it serves no other."""
        self._catalog = catalog
        self.use("main")

    def use(self, schema: str) -> None:
        """Make `schema` of the workspace the connection's current schema."""
        self.raw.execute(f"USE {quote(self._catalog)}.{quote(schema)}")
        self.schema = schema

    def execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        """Run one statement; DuckDB's exceptions as they are."""
        return self.raw.execute(sql, parameters) if parameters else self.raw.execute(sql)


class Instance:
    """The DuckDB instance of a scope. Thread safe."""

    def __init__(self, scope: Scope) -> None:
        if scope.workspace.lower() in _RESERVED:
            raise ConfigurationError(
                f"workspace {scope.workspace!r} cannot be queried: DuckDB keeps the catalog names {', '.join(sorted(_RESERVED))} for itself"
            )
        self.catalog = scope.workspace
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[duckdb.DuckDBPyConnection] = set()
        self._closed = False
        if scope.memory_limit_bytes < _MEMORY_MIN_BYTES:
            raise ConfigurationError(
                f"memory_limit of {scope.memory_limit_bytes} bytes is too little for any query; give {_MEMORY_MIN_BYTES >> 20}MiB or more")
        self._spill = None if scope.spill_dir is None else SpillFolder(scope.spill_dir)
        try:
            self._root = _open(scope, None if self._spill is None else self._spill.path)
        except BaseException:
            self._remove_spill()
            raise

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the block."""
        connection = self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)

    def acquire(self) -> Connection:
        """A connection that nobody else uses; give it back with `release` or `discard`. Raises Unavailable once closed."""
        with self._lock:
            if self._closed:
                raise Unavailable("the query engine is closed")
            connection = self._idle.pop() if self._idle else None
            raw = connection.raw if connection is not None else self._root.cursor()
            self._busy.add(raw)
        return connection if connection is not None else Connection(raw, self.catalog)

    def release(self, connection: Connection) -> None:
        """Take a connection back. Whatever result it still holds is gone."""
        with self._lock:
            self._busy.discard(connection.raw)
            if connection.keep and not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.raw.close()

    def discard(self, connection: Connection) -> None:
        """Close a connection: what runs on it or is registered on it ends here."""
        with self._lock:
            self._busy.discard(connection.raw)
        connection.raw.close()

    def close(self) -> None:
        """Interrupt what runs and close the instance; idempotent. Connections in use close when they are given back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle, self._idle = self._idle, []
        if self._interrupt():
            threading.Thread(target=self._insist, name="close-engine", daemon=True).start()
        for connection in idle:
            connection.raw.close()
        self._root.close()
        self._remove_spill()

    def _remove_spill(self) -> None:
        if self._spill is not None:
            self._spill.close()

    def _interrupt(self) -> bool:
        """Interrupt every connection in use; whether there is any."""
        with self._lock:
            for raw in self._busy:
                raw.interrupt()
            return bool(self._busy)

    def _insist(self) -> None:
        """DuckDB forgets an interrupt that arrives just before it starts a statement."""
        for _ in range(int(_INSIST_FOR_S / _INSIST_EVERY_S)):
            time.sleep(_INSIST_EVERY_S)
            if not self._interrupt():
                return


def warehouse_folder(warehouse: str) -> str:
    """The prefix every file of the warehouse has, as DuckDB compares it. Raises ConfigurationError for a relative folder."""
    path = warehouse.removeprefix("file://") if warehouse.startswith("file://") else warehouse
    if "://" not in path:
        if not path.startswith("/"):
            raise ConfigurationError(f"warehouse {warehouse!r} is not an absolute folder or an object store URI")
        path = str(Path(path).resolve())
    return path.rstrip("/") + "/"


def _open(scope: Scope, spill: Path | None) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        **_SETTINGS,
        "memory_limit": f"{scope.memory_limit_bytes}B",
        "threads": str(scope.threads),
        "temp_directory": "" if spill is None else str(spill),
    }
    if spill is not None:
        settings["max_temp_directory_size"] = f"{scope.spill_bytes_max}B"
    folder = warehouse_folder(scope.warehouse)
    root = duckdb.connect(":memory:", config=settings)
    try:
        for name in ("avro", "iceberg") if "://" not in folder else ("avro", "httpfs", "iceberg"):
            root.execute(f"LOAD {_literal(str(_extension(name)))}")
        root.execute("SET GLOBAL TimeZone = 'UTC'")
        root.execute(f"ATTACH ':memory:' AS {quote(scope.workspace)}")
        root.execute(f"SET allowed_directories = [{', '.join(_literal(one) for one in _spellings(folder, scope.warehouse))}]")
        root.execute("SET enable_external_access = false")
        root.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        root.close()
        raise ConfigurationError(f"DuckDB {duckdb.__version__} could not be set up for warehouse {scope.warehouse}: {error}") from error
    return root


def _spellings(folder: str, warehouse: str) -> list[str]:
    """The folder and, where its configured spelling goes through a link, that spelling too: metadata may name either."""
    configured = warehouse.removeprefix("file://").rstrip("/") + "/"
    return [folder] if configured == folder else [folder, configured]


def _extension(name: str) -> Path:
    """The file of an extension. Raises ConfigurationError where its package is missing or made for another DuckDB."""
    package = f"duckdb_extension_{name}"
    try:
        folder = Path(next(iter(importlib.import_module(package).__path__)))
    except ImportError as error:
        raise ConfigurationError(f"DuckDB's extension {name} is missing; install duckdb-extension-{name}=={duckdb.__version__}") from error
    path = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise ConfigurationError(f"{path} does not exist; install duckdb-extension-{name}=={duckdb.__version__}")
    return path


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
