"""Arrow schemas as text that DuckDB reads back: the columns of stubs and of the empty stand-ins statements are planned on."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from flight.engine.duckdb import Connection
from flight.engine.lexer import quote

__all__ = ["TypeTexts", "empty_select", "null_select"]

_KEPT: Final = 4096


class TypeTexts:
    """DuckDB's own names for the types of Arrow schemas, asked of DuckDB once per schema. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[tuple[str, str], ...]] = OrderedDict()
        self._numbers = itertools.count()

    def columns(self, schema: pa.Schema, connection: Connection) -> tuple[tuple[str, str], ...]:
        """(name, type) of each column, as a scan of a table of this schema gives them. Raises duckdb.Error for an unreadable type."""
        key = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        name = f"__skippr_types_{next(self._numbers)}"
        connection.raw.register(name, schema.empty_table())
        try:
            rows = connection.raw.execute(f"DESCRIBE FROM {name}").fetchall()
        finally:
            connection.raw.unregister(name)
        columns = tuple((str(row[0]), str(row[1])) for row in rows)
        with self._lock:
            self._known[key] = columns
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return columns


def null_select(columns: Sequence[tuple[str, str]]) -> str:
    """A SELECT of one NULL per column, typed."""
    return "SELECT " + ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in columns)


def empty_select(columns: Sequence[tuple[str, str]]) -> str:
    """A SELECT that has these columns and no rows."""
    return null_select(columns) + " WHERE false"
