"""A small Iceberg catalog in memory, and the reading side of a lake over it, for tests of the query engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from catalog.errors import NotFound
from catalog.lake import Identifier, Mark, TableState, table_label


class MemoryCatalog(MetastoreCatalog, NoopCatalog):
    """Tables as a dict from identifier to metadata location; files under one warehouse folder."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__("memory", warehouse=f"file://{warehouse}")
        self.pointers: dict[Identifier, str] = {}
        self.known_namespaces: set[tuple[str, ...]] = set()

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:
        self.known_namespaces.add(Catalog.identifier_to_tuple(namespace))

    def load_namespace_properties(self, namespace: Any) -> dict[str, str]:
        return {}

    def create_table(  # type: ignore[override]
        self, identifier: Any, schema: Any, location: str | None = None, partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER, properties: Mapping[str, str] | None = None,
    ) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        self.known_namespaces.add(name[:-1])
        location = f"{self.properties['warehouse']}/{'/'.join(name)}-{len(self.pointers)}"
        metadata = new_table_metadata(
            self._convert_schema_if_needed(schema, 2), partition_spec, sort_order, location, dict(properties or {})
        )
        path = f"{location}/metadata/00000-created.metadata.json"
        self._write_metadata(metadata, load_file_io(self.properties, path), path)
        self.pointers[name] = path
        return self.load_table(name)

    def load_table(self, identifier: Any) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        path = self.pointers[name]
        io = load_file_io(self.properties, path)
        from pyiceberg.serializers import FromInputFile

        metadata = FromInputFile.table_metadata(io.new_input(path))
        return Table(name, metadata, path, io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        current = self.load_table(table.name())
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        if staged.metadata != current.metadata:
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
            self.pointers[table.name()] = staged.metadata_location
        return CommitTableResponse(metadata=staged.metadata, metadata_location=self.pointers[table.name()])


class FakeLake:
    """`flight.engine.scope.LakeReader` over a MemoryCatalog. Counts loads; `broken` names raise what they map to."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self.catalog = catalog
        self.loads = 0
        self.broken: dict[Identifier, Exception] = {}
        self.pipelines: dict[Identifier, frozenset[str]] = {}
        self.marks: dict[Identifier, dict[str, Mark]] = {}
        self.on_load: Callable[[Identifier], None] | None = None
        self._states: dict[str, TableState] = {}
        self._lock = threading.Lock()

    def load(self, identifier: Identifier) -> TableState:
        self.loads += 1
        if self.on_load is not None:
            self.on_load(identifier)
        if identifier in self.broken:
            raise self.broken[identifier]
        location = self.catalog.pointers.get(identifier)
        if location is None:
            raise NotFound(f"table {table_label(identifier)} does not exist")
        with self._lock:
            if location not in self._states:
                table = self.catalog.load_table(identifier)
                schema = table.schema().as_arrow()
                bare = pa.schema([field.remove_metadata() for field in schema])
                self._states[location] = TableState(
                    identifier=identifier, table_uuid=str(table.metadata.table_uuid), metadata_location=location,
                    generation=1, schema=bare, marks=self.marks.get(identifier, {}),
                    pipelines=self.pipelines.get(identifier, frozenset()),
                )
            return self._states[location]

    def namespaces(self) -> list[tuple[str, ...]]:
        return sorted(self.catalog.known_namespaces)

    def tables(self, namespace: tuple[str, ...]) -> list[Identifier]:
        return sorted(name for name in self.catalog.pointers if name[:-1] == namespace)
