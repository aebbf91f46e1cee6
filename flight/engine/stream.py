"""A running statement: rows as Arrow batches, stopped at once from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from catalog.errors import Unavailable
from flight.engine.duckdb import Connection, Instance
from flight.engine.failures import CANCELLED, is_interrupt, translate
from flight.engine.portable import Conversion

__all__ = ["BATCH_ROWS", "DuckStream", "ReadyStream"]

BATCH_ROWS: Final = 60_000
_INSIST_S: Final = 0.02

Start = Callable[[Connection], "pa.RecordBatchReader"]


class ReadyStream:
    """A stream whose rows are there already."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_batches())

    def cancel(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""


class DuckStream:
    """One execution. It starts at the first `next`, so that it can be cancelled from its first moment on.

    `start` runs the statement on a connection and gives its reader; `done` frees what was pinned for it and runs exactly once.
    A stream that ends early takes its connection down with it: that is what frees DuckDB's threads and memory at once.
    """

    def __init__(self, instance: Instance, schema: pa.Schema, start: Start, done: Callable[[], None], *, rewritten: bool) -> None:
        self._instance = instance
        self._schema = schema
        self._start = start
        self._done = done
        self._rewritten = rewritten
        self._state = threading.Lock()
        self._step = threading.Lock()  # held while DuckDB works for this stream
        self._connection: Connection | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._begun = False
        self._cancelled = False
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches, once. Raises what the statement raises, Unavailable when it was cancelled."""
        try:
            convert = self._open()
            while True:
                batch = self._next()
                if batch is None:
                    return
                yield convert(batch)
        finally:
            self.close()

    def cancel(self) -> None:
        """Interrupt DuckDB now; the iterator raises Unavailable. From any thread; without effect once all rows were given out."""
        with self._state:
            first, self._cancelled = not self._cancelled, True
            connection = self._connection
            if connection is not None:
                connection.raw.interrupt()
        if first and connection is not None:
            # DuckDB forgets an interrupt that arrives just before it starts.
            threading.Thread(target=self._insist, name="cancel-statement", daemon=True).start()

    def close(self) -> None:
        """Free connection, threads, memory and pins; idempotent, from any thread. Waits for DuckDB to let go."""
        with self._state:
            already, self._closed = self._closed, True
        if already:
            return
        if not self._step.acquire(blocking=False):
            self.cancel()
            self._step.acquire()
        try:
            self._free()
        finally:
            self._step.release()

    def _open(self) -> Conversion:
        with self._step:
            with self._state:
                if self._begun or self._closed:
                    raise Unavailable(CANCELLED if self._cancelled else "these rows were read already; execute the statement again")
                self._begun = True
            connection = self._instance.acquire()
            with self._state:
                self._connection = connection
            self._check()
            try:
                self._reader = self._start(connection)
            except Exception as error:
                raise self._translate(error) from error
            self._check()
            return Conversion(self._reader.schema, self._schema)

    def _next(self) -> pa.RecordBatch | None:
        with self._step:
            self._check()
            if self._reader is None:
                return None
            try:
                return self._reader.read_next_batch()
            except StopIteration:
                self._finish()
                return None
            except Exception as error:
                raise self._translate(error) from error

    def _check(self) -> None:
        with self._state:
            if self._cancelled or self._closed:
                raise Unavailable(CANCELLED)

    def _translate(self, error: BaseException) -> Exception:
        with self._state:
            if self._cancelled or is_interrupt(error):
                return Unavailable(CANCELLED)
        return translate(error, rewritten=self._rewritten)

    def _finish(self) -> None:
        """All rows are out: the connection may serve the next statement."""
        with self._state:
            connection, self._connection = self._connection, None
        self._reader = None
        if connection is not None:
            self._instance.release(connection)

    def _free(self) -> None:
        with self._state:
            connection, self._connection = self._connection, None
        reader, self._reader = self._reader, None
        try:
            if reader is not None:
                reader.close()
            if connection is not None:
                self._instance.discard(connection)
        finally:
            self._done()

    def _insist(self) -> None:
        while True:
            with self._state:
                if self._connection is None:
                    return
                self._connection.raw.interrupt()
            time.sleep(_INSIST_S)
