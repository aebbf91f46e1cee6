"""`SkipprCatalog`: a pyiceberg catalog whose rows live in a conditional item table.

Tables are plain Iceberg (format version 2 unless 1 is asked for) and readable by any engine from their metadata files. See
`catalog.iceberg.rows` for the rows and `catalog.iceberg.commit` for what a commit promises. Views are not kept.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Final, NoReturn

import pyarrow as pa
from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties, TableVersion
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewVersion

from catalog.errors import ConfigurationError, DataCorruption, OutcomeUnknown
from catalog.iceberg._pyiceberg import CatalogBase, apply_updates, build_metadata
from catalog.iceberg.commit import RESTORE, Committer, MetadataFiles
from catalog.iceberg.local_io import local_path, make_folder
from catalog.iceberg.rows import CatalogRows, Pointer
from catalog.items.table import ConditionFailed, ItemTable
from catalog.keys import normalize_warehouse
from catalog.lake import table_label

__all__ = ["SkipprCatalog"]

_CATALOG_TABLE: Final = "catalog"
_FOLDER_CHARS: Final = re.compile(r"[A-Za-z0-9_-]")
_FOLDER_BYTES_MAX: Final = 180
_READ_ATTEMPTS: Final = 5


class SkipprCatalog(CatalogBase):
    """A pyiceberg catalog. Thread safe; several processes may share its item table.

    Properties: `warehouse` (a local folder, a `file://` URI or an object store URI) and `item_store` (path of the SQLite file that
    holds the rows). Everything else is passed on to pyiceberg's file access. Raises ConfigurationError.
    """

    def __init__(self, name: str, **properties: str) -> None:
        path = properties.get("item_store")
        if not path:
            raise ConfigurationError(
                f"catalog {name!r} has no property item_store: give the path of the SQLite file that holds its rows"
            )
        from catalog.items.sqlite import SqliteItemTable

        self._open(name, SqliteItemTable(path, _CATALOG_TABLE), properties)
        self._owns_items = True

    @classmethod
    def over(cls, items: ItemTable, name: str, warehouse: str, **properties: str) -> SkipprCatalog:
        """A catalog over an item table that the caller opened and closes."""
        catalog = cls.__new__(cls)
        catalog._open(name, items, {**properties, "warehouse": warehouse})
        catalog._owns_items = False
        return catalog

    def _open(self, name: str, items: ItemTable, properties: dict[str, str]) -> None:
        location, uri = _warehouse(name, properties.get("warehouse", ""))
        super().__init__(name, **{**properties, "warehouse": location})
        self.warehouse = location
        self._items = items
        self.rows = CatalogRows(items, uri)
        self.files = MetadataFiles(dict(self.properties), location)
        self.committer = Committer(self.rows, self.files)

    def close(self) -> None:
        """Release the item table if this catalog opened it; idempotent."""
        if self._owns_items:
            self._items.close()

    # -- namespaces

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        self.rows.create_namespace(self.identifier_to_tuple(namespace), {k: str(v) for k, v in properties.items()})

    def drop_namespace(self, namespace: str | Identifier) -> None:
        self.rows.drop_namespace(self.identifier_to_tuple(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Namespaces one level below the one given; the top level for `()`."""
        levels = self.identifier_to_tuple(namespace)
        if levels:
            self.rows.namespace(levels)
        depth = len(levels) + 1
        return list(dict.fromkeys(found[:depth] for found in self.rows.namespaces(levels)))

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        return self.rows.properties(self.identifier_to_tuple(namespace))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        summary = PropertiesUpdateSummary([], [], [])

        def change(current: dict[str, str]) -> dict[str, str]:
            nonlocal summary
            summary, changed = self.changed_properties(current, removals, updates)
            return {key: str(value) for key, value in changed.items()}

        self.rows.change_properties(self.identifier_to_tuple(namespace), change)
        return summary

    # -- reading

    def pointer(self, identifier: str | Identifier) -> Pointer:
        """Where the table stands now, without reading its metadata. Raises NoSuchTableError."""
        return self.rows.pointer(self.identifier_to_tuple(identifier))

    def load(self, identifier: str | Identifier) -> tuple[Pointer, TableMetadata]:
        """The pointer and the metadata it names. Raises NoSuchTableError, DataCorruption (the file is gone or broken)."""
        levels = self.identifier_to_tuple(identifier)
        pointer = self.rows.pointer(levels)
        for _ in range(_READ_ATTEMPTS):
            try:
                return pointer, self.files.read(pointer.metadata_location)
            except FileNotFoundError as error:
                fresh = self.rows.pointer(levels)
                if fresh == pointer:
                    raise DataCorruption(
                        f"table {table_label(levels)} points to {pointer.metadata_location}, which does not exist: {RESTORE}"
                    ) from error
                pointer = fresh
        raise DataCorruption(f"table {table_label(levels)}: its metadata files vanish faster than they can be read")

    def load_table(self, identifier: str | Identifier) -> Table:
        pointer, metadata = self.load(identifier)
        return self._table(self.identifier_to_tuple(identifier), pointer.metadata_location, metadata)

    def table_exists(self, identifier: str | Identifier) -> bool:
        try:
            self.pointer(identifier)
        except NoSuchTableError:
            return False
        return True

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        levels = self.identifier_to_tuple(namespace)
        self.rows.namespace(levels)
        return self.rows.tables(levels)

    # -- writing

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        staged = self._stage_new(identifier, schema, location, partition_spec, sort_order, properties)
        levels = staged.name()
        if self.table_exists(levels):
            raise TableAlreadyExistsError(f"Table {table_label(levels)} already exists")
        self._create(levels, staged.metadata, staged.metadata_location)
        return self._table(levels, staged.metadata_location, staged.metadata)

    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        return CreateTableTransaction(self._stage_new(identifier, schema, location, partition_spec, sort_order, properties))

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Adopt a table from its metadata file; with `overwrite` the name's present table makes way for it."""
        levels = self.identifier_to_tuple(identifier)
        self.rows.namespace(levels[:-1])
        metadata = self.files.read(metadata_location)
        uuid = str(metadata.table_uuid)
        try:
            self.rows.create_table(levels, Pointer(metadata_location, uuid, 1))
        except TableAlreadyExistsError:
            if not overwrite:
                raise
            base = self.rows.pointer(levels)
            if base.metadata_location != metadata_location:
                self._overwrite(levels, base, uuid, metadata_location)
        return self._table(levels, metadata_location, metadata)

    def drop_table(self, identifier: str | Identifier) -> None:
        self.rows.drop_table(self.identifier_to_tuple(identifier))

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table, then delete its files; a file that cannot be deleted is only logged."""
        levels = self.identifier_to_tuple(identifier)
        dropped = self.rows.drop_table(levels)
        metadata = self.files.read(dropped.metadata_location)
        io = load_file_io(dict(self.properties), dropped.metadata_location)
        manifests: dict[str, ManifestFile] = {}
        for snapshot in metadata.snapshots:
            manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(io)})
        data = {entry.data_file.file_path for m in manifests.values() for entry in m.fetch_manifest_entry(io, discard_deleted=False)}
        lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
        old = [entry.metadata_file for entry in metadata.metadata_log]
        for locations in (sorted(data), list(manifests), lists, old, [dropped.metadata_location]):
            self.files.delete(locations)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        target = self.identifier_to_tuple(to_identifier)
        self.rows.rename_table(self.identifier_to_tuple(from_identifier), target)
        return self.load_table(target)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        levels = table.name()
        try:
            pointer, base = self.load(levels)
        except NoSuchTableError:
            return self._commit_new(levels, requirements, updates)
        for requirement in requirements:
            requirement.validate(base)
        metadata = apply_updates(base, updates, pointer.metadata_location)
        if metadata is base:
            return _response(base, pointer.metadata_location)
        moved = self.committer.commit(levels, pointer, metadata)
        return _response(metadata, moved.metadata_location)

    # -- views: none are kept

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        self.rows.namespace(self.identifier_to_tuple(namespace))
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        return False

    def load_view(self, identifier: str | Identifier) -> View:
        self._no_views()

    def drop_view(self, identifier: str | Identifier) -> None:
        self._no_views()

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        self._no_views()

    def create_view(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        view_version: ViewVersion,
        location: str | None = None,
        properties: Properties = EMPTY_DICT,
    ) -> View:
        self._no_views()

    def _no_views(self) -> NoReturn:
        raise NotImplementedError(f"catalog {self.name!r} keeps tables only, no Iceberg views: define the view where it is queried")

    # -- parts

    def _table(self, identifier: Identifier, location: str, metadata: TableMetadata) -> Table:
        return Table(identifier, metadata, location, self.files.io(location, metadata.properties), self)

    def _stage_new(
        self, identifier: str | Identifier, schema: Schema | pa.Schema, location: str | None, partition_spec: PartitionSpec,
        sort_order: SortOrder, properties: Properties,
    ) -> StagedTable:
        levels = self.identifier_to_tuple(identifier)
        if len(levels) < 2:
            raise NoSuchNamespaceError(f"{identifier!r} names no namespace: write it as namespace.table")
        namespace = self.load_namespace_properties(levels[:-1])
        version = _format_version(properties)
        location = location.rstrip("/") if location else self._default_location(levels, namespace)
        metadata = new_table_metadata(
            location=location,
            schema=self.iceberg_schema(schema, version),
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties={**properties, TableProperties.FORMAT_VERSION: str(version)},
        )
        file = self.committer.next_location(metadata, None)
        return StagedTable(levels, metadata, file, self.files.io(file, metadata.properties), self)

    def _default_location(self, identifier: Identifier, namespace: Properties) -> str:
        parent = namespace.get("location") or f"{self.warehouse}/{'.'.join(_folder(level) for level in identifier[:-1])}"
        return f"{parent.rstrip('/')}/{_folder(identifier[-1])}"

    def _create(self, identifier: Identifier, metadata: TableMetadata, location: str) -> None:
        path = local_path(self.warehouse)
        if path is not None:
            try:
                make_folder(path)
            except OSError as error:
                raise ConfigurationError(
                    f"the warehouse {self.warehouse} of catalog {self.name!r} cannot be made: {error.strerror}; name another folder or "
                    "change its rights"
                ) from error
        self.files.write(metadata, location)
        try:
            self.rows.create_table(identifier, Pointer(location, str(metadata.table_uuid), 1))
        except (TableAlreadyExistsError, NoSuchNamespaceError):
            self.files.delete([location])
            raise

    def _commit_new(
        self, identifier: Identifier, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(None)
        metadata = build_metadata(updates)
        location = self.committer.next_location(metadata, None)
        try:
            self._create(identifier, metadata, location)
        except TableAlreadyExistsError as error:
            raise CommitFailedException(f"Table {table_label(identifier)} already exists") from error
        return _response(metadata, location)

    def _overwrite(self, identifier: Identifier, base: Pointer, uuid: str, location: str) -> None:
        try:
            self.rows.replace_table(identifier, base, uuid, location)
        except (ConditionFailed, OutcomeUnknown) as error:
            if self.rows.pointer(identifier).metadata_location != location:
                raise CommitFailedException(f"Table {table_label(identifier)} changed while it was registered") from error


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _warehouse(name: str, warehouse: str) -> tuple[str, str]:
    """(location for files, URI that identifies the catalog). A local folder is identified by its absolute `file://` URI.

    Raises ConfigurationError.
    """
    if not warehouse:
        raise ConfigurationError(f"catalog {name!r} has no property warehouse: give a folder or a URI such as s3://lake")
    path = local_path(warehouse)
    if path is None:
        location = normalize_warehouse(warehouse)
        return location, location
    if warehouse.startswith("file:"):
        if not path.startswith("/") or path.startswith("//") or re.search(r"[%#?]", path):
            raise ConfigurationError(
                f"warehouse {warehouse!r} of catalog {name!r}: a file URI needs an absolute path without host, %, # and ?; "
                "give a plain folder instead"
            )
        path = os.path.normpath(path)
        return f"file://{path}", normalize_warehouse(f"file://{path}")
    return path, normalize_warehouse(f"file://{path}")


def _folder(level: str) -> str:
    """A name as one path component that every file system, object store and URI parser takes as it is."""
    text = "".join(c if _FOLDER_CHARS.fullmatch(c) else "".join(f"~{byte:02x}" for byte in c.encode()) for c in level)
    if len(text) <= _FOLDER_BYTES_MAX:
        return text
    return f"{text[:100]}~{sha256(level.encode()).hexdigest()[:40]}"


def _format_version(properties: Properties) -> TableVersion:
    asked = str(properties.get(TableProperties.FORMAT_VERSION, "2"))
    if asked == "1":
        return 1
    if asked == "2":
        return 2
    raise ConfigurationError(f"format-version {asked!r} cannot be written: leave it out (2) or give 1 or 2")
