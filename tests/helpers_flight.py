"""An engine without SQL, for the Flight layer's tests: each statement is a word that says how its stream behaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa

from catalog.errors import DataCorruption, InvalidRequest, NotFound, Unavailable
from flight.engine.api import TableEntry

ONE = pa.schema([pa.field("answer", pa.int32())])
NUMBERS = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
DONE = pa.schema([pa.field("Success", pa.bool_())])
ECHO = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])


class FakeStream:
    """Batches from an iterator; `cancel` wakes a blocked one."""

    def __init__(self, schema: pa.Schema, engine: FakeEngine, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.cancelled = threading.Event()
        self._batches = batches
        self._engine = engine
        self._closed = False
        engine.open_streams += 1

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self.cancelled.is_set():
                raise Unavailable("query cancelled")
            self._engine.batches_made += 1
            yield batch

    def block(self, limit_s: float = 30) -> Iterator[pa.RecordBatch]:
        """Give nothing until cancelled."""
        self._engine.blocked.set()
        if self.cancelled.wait(limit_s):
            self._engine.interrupted.set()
            raise Unavailable("query cancelled")
        yield from ()

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.open_streams -= 1


class FakeStatement:
    def __init__(self, engine: FakeEngine, sql: str) -> None:
        self.sql = sql
        self._engine = engine
        self._word, *self._args = sql.split()
        self.schema = {"SELECT": ONE, "ECHO": ECHO, "USE": DONE}.get(self._word, NUMBERS)
        self.immediate = self._word == "USE"
        count = 2 if self._word == "ECHO" else 0
        self.parameter_schema = pa.schema([pa.field(f"p{i}", (pa.int64(), pa.string())[i]) for i in range(count)])
        engine.open_statements += 1

    def schema_for(self, parameters: Sequence[object]) -> pa.Schema:
        """ECHO gives back the type of its number."""
        if self._word != "ECHO":
            return self.schema
        number = pa.float64() if isinstance(parameters[0], float) else pa.int64()
        return pa.schema([ECHO.field("number").with_type(number), ECHO.field("text")])

    def renew(self) -> bool:
        return False

    def execute(self, parameters: Sequence[object] = (), *, schema: pa.Schema | None = None) -> FakeStream:
        if self.immediate:
            self._engine.used.append(self._args[0])
        make = getattr(self, "_" + self._word.lower())
        stream = FakeStream(self.schema if schema is None else schema, self._engine, iter(()))
        stream._batches = make(stream, parameters)
        return stream

    def _select(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([42], pa.int32())], schema=ONE)

    def _echo(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        columns = [pa.array([v], f.type) for v, f in zip(parameters, stream.schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=stream.schema)

    def _use(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        yield from ()

    def _rows(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        """ROWS rows-per-batch batches text-bytes"""
        rows, batches, width = (int(a) for a in self._args)
        text = pa.array(["x" * width] * rows)
        for at in range(batches):
            yield pa.RecordBatch.from_arrays([pa.array(range(at * rows, (at + 1) * rows), pa.int64()), text], schema=NUMBERS)

    def _skew(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        """One batch, small rows, then rows of 3 MB."""
        text = ["x"] * 1000 + ["y" * 3_000_000] * 8
        yield pa.RecordBatch.from_arrays([pa.array(range(len(text)), pa.int64()), pa.array(text)], schema=NUMBERS)

    def _block(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        yield from stream.block()

    def _break(self, stream: FakeStream, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        """BREAK unavailable|corrupt|bug: one batch, then an error."""
        yield pa.RecordBatch.from_arrays([pa.array([1], pa.int64()), pa.array(["a"])], schema=NUMBERS)
        raise {"unavailable": Unavailable("the log is away"), "corrupt": DataCorruption("bad bytes"),
               "bug": ZeroDivisionError("secret /home path")}[self._args[0]]

    def close(self) -> None:
        self._engine.open_statements -= 1


class FakeSession:
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._options = {"catalog": engine.catalog, "schema": "", "live_wal": "required"}
        engine.open_sessions += 1

    @property
    def catalog(self) -> str:
        return self._options["catalog"]

    @property
    def schema(self) -> str | None:
        return self._options["schema"] or None

    def set_schema(self, name: str) -> None:
        if name and name not in self._engine.schemas():
            raise NotFound(f"no schema {name!r}")
        self._options["schema"] = name

    def options(self) -> dict[str, str]:
        return dict(self._options)

    def set_option(self, name: str, value: str) -> None:
        if name == "schema":
            self.set_schema(value)
        elif name == "live_wal":
            if value not in ("required", "best_effort", "off"):
                raise InvalidRequest(f"live_wal cannot be {value!r}")
            self._options[name] = value
        elif name != "catalog" or value != self._engine.catalog:
            raise NotFound(name)

    def prepare(self, sql: str) -> FakeStatement:
        if sql.startswith("BUG"):
            raise ZeroDivisionError("secret /home path")
        if sql.split()[0] not in ("SELECT", "ECHO", "ROWS", "SKEW", "BLOCK", "BREAK", "USE"):
            raise InvalidRequest(f"Parser Error: syntax error at or near {sql.split()[0]!r}")
        return FakeStatement(self._engine, sql)

    def close(self) -> None:
        self._engine.open_sessions -= 1


class FakeEngine:
    """Counts what is open, so that a test sees what leaks."""

    def __init__(self, catalog: str = "lake", broken: str | None = None) -> None:
        self.catalog = catalog
        self.broken = broken
        self.used: list[str] = []
        self.open_sessions = self.open_statements = self.open_streams = self.batches_made = 0
        self.blocked, self.interrupted = threading.Event(), threading.Event()

    def stands_still(self) -> int:
        """Wait until nobody pulls any more batch; how many were made."""
        made = -1
        while made != self.batches_made:
            made = self.batches_made
            threading.Event().wait(0.3)
        return made

    def open_session(self) -> FakeSession:
        return FakeSession(self)

    def schemas(self) -> list[str]:
        return ["bronze", "silver_x", "silveryx"]

    def tables(self) -> list[TableEntry]:
        return [TableEntry("bronze", "rides", "TABLE"), TableEntry("bronze", "rides_v", "VIEW"),
                TableEntry("silver_x", "a_b", "TABLE"), TableEntry("silver_x", "axb", "TABLE")]

    def table_schema(self, entry: TableEntry) -> pa.Schema:
        if entry.table_name == self.broken:
            raise DataCorruption(f"the metadata of {entry.table_name} cannot be read")
        return pa.schema([
            pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", pa.timestamp("us", "UTC")), pa.field("tags", pa.list_(pa.string())),
            pa.field("name", pa.string(), metadata={"doc": "who rode"}),
        ])

    def functions(self) -> dict[Literal["numeric", "string", "system", "datetime", "keywords"], list[str]]:
        return {"numeric": ["abs"], "string": ["lower"], "system": [], "datetime": ["now"], "keywords": ["SELECT"]}

    def close(self) -> None:
        return
