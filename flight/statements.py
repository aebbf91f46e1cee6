"""A prepared statement as clients see it: a handle, its schemas, its bound parameters, and how many streams run it."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from catalog.errors import InvalidRequest, NotFound
from flight.engine.api import Statement
from flight.protocol.types import describe_columns

if TYPE_CHECKING:
    from flight.sessions import Session

__all__ = ["HANDLE_BYTES", "Binding", "Prepared", "split_ticket"]

HANDLE_BYTES: Final = 16
_KEPT_BINDINGS: Final = 4
Row = tuple[object, ...]


class Binding(NamedTuple):
    """Parameter rows, and the schema of the rows they give."""

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema


class Prepared:
    """A statement of the engine under an unguessable handle. Thread safe.

    Each DoPut of parameters makes a new binding with a number. A ticket holds handle and number, so rows fetched late are those of
    the parameters they were asked for with; the last few bindings are kept. `one_shot` statements have no handle a client could
    close: the fetch of their rows uses them up.
    """

    def __init__(self, session: Session, statement: Statement, one_shot: bool, now_s: float) -> None:
        self.handle: Final = secrets.token_bytes(HANDLE_BYTES)
        self.session: Final = session
        self.statement: Final = statement
        self.one_shot: Final = one_shot
        self.created_s: Final = now_s
        self._schema: pa.Schema = describe_columns(statement.schema)
        self._lock = threading.Lock()
        self._bindings: OrderedDict[int, Binding] = OrderedDict()
        self._bound = 0
        self._users = 0
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows with the metadata of Flight SQL on each column, before any parameter is known."""
        return self._schema

    def renew(self) -> None:
        """Plan anew where columns were added or changed, as a client does that asks again: ADBC keeps one statement for equal texts.

        Raises what preparing it anew raises.
        """
        if not self.statement.renew():
            return
        self._schema = describe_columns(self.statement.schema)
        with self._lock:
            binding = self._bindings.get(self._bound)
        if binding is not None:
            self._bind(binding.batches)

    @property
    def parameter_count(self) -> int:
        return len(self.statement.parameter_schema)

    def bind(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        """Replace the parameters: the statement runs once per row, all with the schema that the first row gives.

        Raises InvalidRequest for another number of columns, and what planning with the values raises.
        """
        if len(schema) != self.parameter_count:
            raise InvalidRequest(f"the statement has {self.parameter_count} parameters and {len(schema)} were bound")
        self._bind(batches)

    def _bind(self, batches: Sequence[pa.RecordBatch]) -> None:
        first = next(_python_rows(batches), None)
        described = self.schema if first is None else describe_columns(self.statement.schema_for(first))
        with self._lock:
            self._bound += 1
            self._bindings[self._bound] = Binding(batches, described)
            while len(self._bindings) > _KEPT_BINDINGS:
                self._bindings.popitem(last=False)

    def binding_number(self) -> int:
        """Number of the present binding, 0 for none. Raises InvalidRequest where there are parameters and none was bound."""
        with self._lock:
            bound = self._bound
        if not bound and self.parameter_count:
            raise InvalidRequest(f"the statement has {self.parameter_count} parameters and none was bound")
        return bound

    def ticket(self, number: int) -> bytes:
        """Statement handle of a ticket for the rows under a binding."""
        return self.handle + number.to_bytes(4, "little")

    def bound(self, number: int) -> Binding:
        """A binding; without parameters one that runs the statement once.

        Raises NotFound where the binding is no longer kept.
        """
        if not self.parameter_count:
            return Binding((), self.schema)
        with self._lock:
            binding = self._bindings.get(number)
        if binding is None:
            raise NotFound("the parameters of this ticket were replaced by later ones; execute the statement again")
        return binding

    def rows(self, binding: Binding) -> Iterator[Row]:
        """Parameter rows of a binding; one empty row for a statement without parameters.

        Raises InvalidRequest for a value Python cannot hold.
        """
        return _python_rows(binding.batches) if self.parameter_count else iter(((),))

    def acquire(self) -> None:
        """A stream starts; the engine's statement stays open until it ends."""
        with self._lock:
            self._users += 1

    def release(self, *, close: bool = False) -> None:
        """A stream ended; with `close` the statement is closed too."""
        with self._lock:
            self._users -= 1
            self._closed = self._closed or close
            last = self._closed and not self._users
        if last:
            self.statement.close()

    def close(self) -> None:
        """Close the engine's statement, now or when its last stream ends. Idempotent."""
        with self._lock:
            already, self._closed = self._closed, True
            last = not already and not self._users
        if last:
            self.statement.close()


def _python_rows(batches: Sequence[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        try:
            columns = [column.to_pylist() for column in batch.columns]
        except (ValueError, OverflowError) as error:
            raise InvalidRequest(f"a parameter cannot be read: {error}") from error
        yield from zip(*columns, strict=True)


def split_ticket(ticket: bytes) -> tuple[bytes, int]:
    """(handle, binding number) of a ticket's statement handle."""
    return ticket[:HANDLE_BYTES], int.from_bytes(ticket[HANDLE_BYTES:HANDLE_BYTES + 4], "little")
