"""The tables a run feeds: the running schema of each, and how it may grow.

A table's *decoding schema* is what the next block is decoded with: the fields of the data, with those whose type is still deferred. Its
*log schema* is what rows have when they go into the log: after flattening and time conversion, without deferred fields. The second
follows from the first, so only the first is kept.

A column is *landed* as soon as a segment with it is sealed: from then on it may change only as Iceberg can (int -> long, ...), because
compaction may give it to the table at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from catalog.errors import ConfigurationError, Conflict, NotFound
from catalog.lake import Identifier, Lake, TableLayout, table_label
from ingest.deadletter import DEAD_LETTER_PREFIX
from ingest.schema import TableSchema
from ingest.shape import Shape, schema_diff
from ingest.typetree import Field, JsonText, ListOf, Node, Scalar, Struct, landed, to_arrow
from ingest.wal.log import Log

__all__ = ["SchemaChangeRefused", "TableView", "Tables"]

_TABLES_MAX = 10_000


class SchemaChangeRefused(Conflict):
    """SCHEMA_AUTO_APPROVE=false and the data needs another schema; `diff` holds one line per change. Everything before it landed."""

    def __init__(self, message: str, diff: tuple[str, ...]) -> None:
        super().__init__(message)
        self.diff = diff


@dataclass(frozen=True)
class TableView:
    """One version of a table's running schema. Immutable and shared by threads."""

    identifier: Identifier
    running: TableSchema
    shape: Shape
    approved: pa.Schema | None = field(default=None, compare=False)

    @property
    def schema(self) -> pa.Schema:
        """The decoding schema."""
        return self.running.arrow

    @cached_property
    def log_schema(self) -> pa.Schema:
        """What the table has to have before rows of this version may be logged: no deferred columns, no marks of this process."""
        return self.shape.log_schema(to_arrow(_plain(self.running.root)))

    def landed(self) -> TableView:
        """The same with every column landed; itself where they are."""
        root = landed(self.running.root)
        if root == self.running.root or not isinstance(root, Struct):
            return self
        return replace(self, running=replace(self.running, root=root))


class Tables:
    """Running schemas of the tables of one pipeline.

    `view` from any thread; `grown` and `land` from the assembling thread only; `ensure` from the writing thread only.
    """

    def __init__(
        self, lake: Lake, log: Log, pipeline: str, layout: TableLayout, shape: Shape, *, keys_max: int, auto_approve: bool,
        several: bool,
    ) -> None:
        self._lake = lake
        self._log = log
        self._pipeline = pipeline
        self._layout = layout
        self._shape = shape
        self._keys_max = keys_max
        self._auto_approve = auto_approve
        self._several = several
        self._lock = threading.Lock()
        self._views: dict[Identifier, TableView] = {}
        self._ready: set[Identifier] = set()

    def view(self, identifier: Identifier) -> TableView:
        """The newest version; reads the table the first time. Raises Conflict where a table that the log fed is gone."""
        with self._lock:
            view = self._views.get(identifier)
            if view is None:
                if len(self._views) >= _TABLES_MAX:
                    raise ConfigurationError(
                        f"TRANSFORM_NAMESPACE_FIELDS gives this pipeline more than {_TABLES_MAX} tables (the next: "
                        f"{table_label(identifier)}): choose a field with fewer values"
                    )
                view = self._views[identifier] = self._load(identifier)
            return view

    def _load(self, identifier: Identifier) -> TableView:
        try:
            state = self._lake.load(identifier)
        except NotFound as error:
            fed = self._log.feeds(identifier)
            if fed:
                raise _gone(identifier, fed) from error
            return TableView(identifier, TableSchema.empty(self._keys_max), self._shape)
        if self._pipeline in state.pipelines:
            self._ready.add(identifier)
        shape = self._shape.for_table(state.schema)
        running = TableSchema.landed(shape.decoding_schema(state.schema), self._keys_max)
        approved = None if self._auto_approve else pa.schema(
            [*state.schema, *(pa.field(name, pa.null()) for name in state.dropped if state.schema.get_field_index(name) < 0)]
        )
        return TableView(identifier, running, shape, approved)

    def grown(self, view: TableView, come: pa.Schema) -> TableView:
        """The newest version with what a block of schema `come` adds; what does not fit is left to `conform`.

        Raises SchemaChangeRefused.
        """
        running = view.running.evolve(come).schema
        if running is view.running:
            return view
        grown = replace(view, running=running)
        if grown.approved is not None:
            self._check_approved(grown, grown.approved)
        with self._lock:
            self._views[view.identifier] = grown
        return grown

    def _check_approved(self, view: TableView, approved: pa.Schema) -> None:
        diff = schema_diff(approved, view.log_schema)
        if diff:
            label = table_label(view.identifier)
            raise SchemaChangeRefused(
                f"the data needs another schema of table {label}, and SCHEMA_AUTO_APPROVE is false:\n"
                + "\n".join(f"  {line}" for line in diff)
                + "\nEverything before the first such record landed. Run once with SCHEMA_AUTO_APPROVE=true to accept the change, or "
                "correct the source",
                tuple(diff),
            )

    def land(self, identifier: Identifier) -> TableView:
        """A segment with rows of this version is being sealed."""
        view = self.view(identifier).landed()
        if not self._auto_approve and view.approved is None:
            view = replace(view, approved=view.log_schema)
        with self._lock:
            self._views[identifier] = view
        return view

    def ensure(self, tables: Mapping[Identifier, pa.Schema]) -> None:
        """Create what is missing, and name this pipeline in the table's properties, before the first segment that feeds it.

        Raises Conflict where a table that the log fed is gone, ConfigurationError where the layout does not fit a new table.
        """
        for identifier, schema in tables.items():
            self.view(identifier)
            if identifier not in self._ready:
                self._lake.create(identifier, schema, self._layout_for(identifier, schema), self._pipeline)
                self._ready.add(identifier)

    def _layout_for(self, identifier: Identifier, schema: pa.Schema) -> TableLayout:
        if identifier[-1].startswith(DEAD_LETTER_PREFIX):
            return TableLayout()
        return self._shape.layout_for(schema, self._layout, table_label(identifier), several=self._several)


def _gone(identifier: Identifier, fed: int) -> Conflict:
    label = table_label(identifier)
    return Conflict(
        f"table {label} is gone from the catalog, but the log of this pipeline fed it (last by entry {fed}): it was dropped or renamed by "
        f"somebody else. Bring it back, or run `skipprd tables recreate {label}`, which makes it anew and says which rows are lost"
    )


def _plain(root: Struct) -> Struct:
    """Without what only this process has to know (landed, wide)."""
    made = _plain_node(root)
    assert isinstance(made, Struct)
    return made


def _plain_node(node: Node) -> Node:
    match node:
        case Scalar(kind):
            return Scalar(kind)
        case JsonText():
            return JsonText()
        case ListOf(item):
            return ListOf(_plain_node(item))
        case Struct(fields):
            return Struct({key: Field(_plain_node(one.node), one.name) for key, one in fields.items()})
    return node
