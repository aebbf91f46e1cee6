"""The running schema of one table, and the operations a pipeline needs on it.

    running = TableSchema.landed(table_state.schema)        # or TableSchema.empty()
    change = running.evolve(decoded.rows.schema)            # what this block would add or widen
    running = change.schema                                 # once `change.lines` are approved
    rows, problems, kept = conform(decoded.rows, running.arrow)
    write(writable(rows))                                   # without columns whose type is still deferred

Blocks are decoded in parallel against whatever schema was current then; `evolve` and `conform`, called in record order, make the
outcome the same. Rules of growth, names and marks: `ingest.typetree`. Everything here is immutable and thread safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ingest.conform import Conformed, RowProblem, conform, writable, writable_schema
from ingest.growth import COLUMNS_MAX, merge, merge_roots
from ingest.typetree import (
    DOC,
    UNKNOWN,
    Field,
    JsonText,
    ListOf,
    Node,
    Scalar,
    Struct,
    TypeConflict,
    describe,
    from_arrow,
    is_deferred,
    landed,
    to_arrow,
)

__all__ = [
    "COLUMNS_MAX", "DOC", "UNKNOWN", "Conformed", "Field", "JsonText", "ListOf", "Node", "RowProblem", "Scalar", "SchemaChange", "Struct",
    "TableSchema", "TypeConflict", "conform", "from_arrow", "merge", "to_arrow", "writable", "writable_schema",
]


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Outcome of `TableSchema.evolve`.

    `schema` is the schema to go on with (the old object where nothing changed). `lines` say, for people, what a table would see:
    `+ payload.size long`, `~ score long -> double`; empty when only deferred columns or marks changed, which needs no approval.
    `conflicts` name fields whose incoming type is refused: `conform` reports the rows that hold a value there.
    """

    schema: TableSchema
    lines: tuple[str, ...]
    conflicts: tuple[str, ...]


@dataclass(frozen=True)
class TableSchema:
    """An immutable schema: `root` as a tree, `arrow` as it goes into `Unit.decode`, `writable` as it goes into the log and the lake."""

    root: Struct
    object_keys_max: int = 500

    @classmethod
    def empty(cls, object_keys_max: int = 500) -> TableSchema:
        """No columns yet."""
        return cls(Struct(), object_keys_max)

    @classmethod
    def of(cls, schema: pa.Schema, object_keys_max: int = 500) -> TableSchema:
        """From rows that no table holds yet (the log's). Raises ConfigurationError for a type no table can hold."""
        return cls(_named(from_arrow(schema)), object_keys_max)

    @classmethod
    def landed(cls, schema: pa.Schema, object_keys_max: int = 500) -> TableSchema:
        """From a table's schema: only what Iceberg can promote widens from here on."""
        made = landed(from_arrow(schema))
        assert isinstance(made, Struct)
        return cls(made, object_keys_max)

    @cached_property
    def arrow(self) -> pa.Schema:
        """With deferred columns and marks."""
        return to_arrow(self.root)

    @cached_property
    def writable(self) -> pa.Schema:
        """Without deferred columns."""
        return writable_schema(self.arrow)

    def evolve(self, incoming: pa.Schema) -> SchemaChange:
        """The schema that holds both. Never raises for a conflict; one comparison where nothing differs."""
        if incoming is self.arrow or incoming.equals(self.arrow, check_metadata=True):
            return SchemaChange(self, (), ())
        conflicts: list[TypeConflict] = []
        grown = merge_roots(self.root, from_arrow(incoming), self.object_keys_max, conflicts)
        refused = tuple(str(one) for one in conflicts)
        if grown is self.root:
            return SchemaChange(self, (), refused)
        after = TableSchema(_named(grown), self.object_keys_max)
        return SchemaChange(after, tuple(_differences(self.root, after.root, "")), refused)


def _named(root: Struct) -> Struct:
    return from_arrow(to_arrow(root))


def _differences(old: Struct, new: Struct, path: str) -> Iterator[str]:
    for key, one in new.fields.items():
        known = old.fields.get(key)
        at = f"{path}.{one.name}" if path else str(one.name)
        yield from _difference(known, one, at)


def _difference(known: Field | None, one: Field, at: str) -> Iterator[str]:
    was = None if known is None or is_deferred(known.node) else known.node
    now: Node = one.node
    if is_deferred(now) or was == now:
        return
    while isinstance(now, ListOf) and (was is None or isinstance(was, ListOf)):
        was, now, at = (was.item if was is not None else None), now.item, f"{at}[]"
        if was is not None and is_deferred(was):
            was = None
    if isinstance(now, Struct) and (was is None or isinstance(was, Struct)):
        yield from _differences(was or Struct(), now, at)
    elif was is None:
        yield f"+ {at} {describe(now)}"
    elif describe(was) != describe(now):
        yield f"~ {at} {describe(was)} -> {describe(now)}"
