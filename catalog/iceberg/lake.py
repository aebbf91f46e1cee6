"""`IcebergLake`: the lake of `catalog.lake` over `SkipprCatalog`, for ingest (append exactly once) and for queries (load, list).

A commit here is one manifest, one manifest list, one metadata file and one conditional pointer update, built from the metadata the
caller's `TableState` names: nothing is re-read and no transaction is replayed, so its cost hardly grows with the table's history.
The log's mark moves in the very same commit (I7).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from catalog import failpoint
from catalog.errors import Conflict, DataCorruption, Internal, InvalidRequest, NotFound, OutcomeUnknown, Unavailable
from catalog.iceberg._pyiceberg import apply_updates
from catalog.iceberg.commit import Cache
from catalog.iceberg.local_io import local_path, make_durable
from catalog.iceberg.parquet import DataWriter, local_sink
from catalog.iceberg.rows import Pointer
from catalog.iceberg.schemas import Evolution, arrow_schema, evolve, new_schema, partition_spec, sort_order
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.iceberg.snapshots import AppendWriter
from catalog.lake import (
    MARK_PREFIX,
    PIPELINES_PROPERTY,
    DataFiles,
    Identifier,
    Mark,
    StaleFiles,
    TableLayout,
    TableState,
    table_label,
)

__all__ = ["IcebergLake"]

_log = logging.getLogger(__name__)
_MIB: Final = 1024 * 1024
_ATTEMPTS: Final = 20
_PREVIOUS_VERSIONS_MAX: Final = 100
"""Metadata files kept behind the current one: a query keeps reading the one it pinned while this many commits pass."""

_TABLE_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.delete.isolation-level": "snapshot",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(_PREVIOUS_VERSIONS_MAX),
}


@dataclass(slots=True)
class _Written:
    """What `DataFiles.handle` holds. The files fit any version of the table with the same schema, column ids and spec."""

    table_uuid: str
    base_schema_id: int
    base_last_column_id: int
    spec_id: int
    evolution: Evolution
    files: tuple[DataFile, ...]
    root: str
    poisoned: bool = False


class IcebergLake:
    """Implements `catalog.lake.Lake`. Thread safe; `memory_bytes_max` bounds the rows one `write` holds."""

    def __init__(self, catalog: SkipprCatalog, *, memory_bytes_max: int = 48 * _MIB) -> None:
        self.catalog = catalog
        self._memory_bytes_max = memory_bytes_max
        self._states: Cache[str, TableState] = Cache(4096)
        self._appends = AppendWriter(catalog.files)

    # -- reading

    def load(self, identifier: Identifier) -> TableState:
        """The table as its pointer stands now: one item read while it has not changed. Raises NotFound, DataCorruption."""
        try:
            pointer = self.catalog.pointer(identifier)
            known = self._states.get(pointer.metadata_location)
            if known is not None and known.identifier == identifier and known.generation == pointer.generation:
                return known
            pointer, metadata = self.catalog.load(identifier)
        except NoSuchTableError as error:
            raise NotFound(f"table {table_label(identifier)} does not exist") from error
        return self._remember(identifier, pointer, metadata)

    def list_tables(self) -> list[Identifier]:
        """Every table of the warehouse, by namespace; reads no table metadata."""
        return [table for namespace in self.catalog.rows.namespaces() for table in self.catalog.rows.tables(namespace)]

    def list_namespaces(self) -> list[Identifier]:
        """Every namespace at any depth."""
        return self.catalog.rows.namespaces()

    # -- creating

    def create(
        self, identifier: Identifier, schema: pa.Schema, layout: TableLayout, pipeline: str, marks: Mapping[str, Mark] | None = None
    ) -> TableState:
        """See `Lake.create`. A new table starts with `marks`: a table made anew after a loss must not receive reclaimed rows' marks
        from zero. Raises ConfigurationError (layout does not fit), InvalidRequest (schema), OutcomeUnknown, Unavailable."""
        for _ in range(_ATTEMPTS):
            try:
                return self._with_pipeline(self.load(identifier), pipeline)
            except NotFound:
                self._create(identifier, schema, layout, pipeline, marks or {})
        raise Conflict(f"table {table_label(identifier)} is created and dropped by others over and over; try again")

    def evolve(self, identifier: Identifier, schema: pa.Schema) -> TableState:
        """Add columns and widen types so that rows of `schema` fit, as a write and commit would, without rows.

        Raises NotFound, InvalidRequest, OutcomeUnknown, Conflict.
        """
        for _ in range(_ATTEMPTS):
            state = self.load(identifier)
            base = self._base(state)
            change = self._evolution(state, base, schema)
            if not change.changed:
                return state
            try:
                return self._commit(state, base, _schema_updates(change), ())
            except Conflict:
                continue
        raise Conflict(f"table {table_label(identifier)} kept changing in {_ATTEMPTS} attempts to evolve it; try again")

    def _create(
        self, identifier: Identifier, schema: pa.Schema, layout: TableLayout, pipeline: str, marks: Mapping[str, Mark]
    ) -> None:
        columns = new_schema(schema)
        with suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(identifier[:-1])
        properties = {
            **_TABLE_PROPERTIES,
            PIPELINES_PROPERTY: json.dumps([pipeline]),
            **{MARK_PREFIX + wal_id: str(mark) for wal_id, mark in marks.items()},
        }
        spec, order = partition_spec(columns, layout), sort_order(columns, layout)
        try:
            self.catalog.create_table(identifier, columns, None, spec, order, properties)
        except (TableAlreadyExistsError, NoSuchNamespaceError) as error:
            _log.debug("creating %s again: %s", table_label(identifier), error)
            return
        except CommitStateUnknownException as error:
            raise OutcomeUnknown(str(error)) from error
        failpoint.hit("lake.table_created")

    def _with_pipeline(self, state: TableState, pipeline: str) -> TableState:
        for _ in range(_ATTEMPTS):
            if pipeline in state.pipelines:
                return state
            names = json.dumps(sorted({*state.pipelines, pipeline}))
            try:
                return self._commit(state, self._base(state), [SetPropertiesUpdate(updates={PIPELINES_PROPERTY: names})], ())
            except Conflict:
                state = self.load(state.identifier)
        raise Conflict(f"table {table_label(state.identifier)} kept changing in {_ATTEMPTS} attempts to enter {pipeline}; try again")

    # -- writing

    def write(self, state: TableState, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFiles:
        """See `Lake.write`.

        Raises InvalidRequest (a value does not fit its column), Conflict (somebody gave the table a required column that rows lack, or
        left it no column), Unavailable (disk full, I/O error).
        """
        base = self._base(state)
        change = self._evolution(state, base, schema)
        label = table_label(state.identifier)
        if not change.schema.fields:
            raise Conflict(f"table {label} has no column left, so nothing can be written to it: add one back, then run again")
        provider = load_location_provider(base.location, base.properties)
        writer = DataWriter(
            change.schema, base.spec(), base.sort_order(), new_location=provider.new_data_location, open_sink=self._sink(base),
            memory_bytes_max=self._memory_bytes_max,
        )
        try:
            writer.write(batches)
        except pa.ArrowInvalid as error:
            self.catalog.files.delete(writer.locations)
            raise Conflict(
                f"rows do not fit table {label} as somebody else changed it ({error}): make the column optional or drop it, then run "
                "again; until then the rows wait in the log"
            ) from error
        except BaseException:
            self.catalog.files.delete(writer.locations)
            raise
        failpoint.hit("lake.data_written")
        handle = _Written(
            state.table_uuid, base.current_schema_id, base.last_column_id, base.default_spec_id, change, tuple(writer.files),
            self.catalog.files.root(base.location),
        )
        size = sum(file.file_size_in_bytes for file in writer.files)
        return DataFiles(paths=tuple(writer.locations), rows=writer.rows, size_bytes=size, handle=handle)

    def sync(self, files: DataFiles) -> None:
        """See `Lake.sync`. After an I/O error the files can never be committed: the system may have dropped what it did not write."""
        written = _written(files)
        try:
            make_durable(files.paths, written.root)
        except OSError as error:
            written.poisoned = True
            raise Unavailable(f"the data files of a commit could not be made durable ({error}); run again to write them anew") from error
        failpoint.hit("lake.data_synced")

    def commit(self, state: TableState, files: DataFiles, wal_id: str, mark: Mark, summary: Mapping[str, str]) -> TableState:
        """See `Lake.commit`. Raises StaleFiles (a Conflict) where the files have to be written anew for the table's new schema."""
        written = _written(files)
        label = table_label(state.identifier)
        if written.poisoned:
            raise Internal(f"data files of {label} that failed to become durable were committed")
        if state.mark(wal_id) >= mark:
            raise Conflict(f"table {label} already holds log {wal_id} up to {state.mark(wal_id)}; {mark} adds nothing")
        base = self._base(state)
        found = (str(base.table_uuid), base.current_schema_id, base.last_column_id, base.default_spec_id)
        if found != (written.table_uuid, written.base_schema_id, written.base_last_column_id, written.spec_id):
            raise StaleFiles(f"table {label} has another schema or spec than its data files were written for; write them anew")
        updates = _schema_updates(written.evolution)
        updates.append(SetPropertiesUpdate(updates={MARK_PREFIX + wal_id: str(mark)}))
        made: list[str] = []
        if written.files:
            snapshot, made = self._appends.write(base, written.evolution.schema, written.files, summary)
            updates += [
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate.model_validate(
                    {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot.snapshot_id}
                ),
            ]
            failpoint.hit("lake.manifests_written")
        return self._commit(state, base, updates, made)

    def discard(self, files: DataFiles) -> None:
        """See `Lake.discard`. What cannot be deleted is only logged: it is an orphan."""
        self.catalog.files.delete(files.paths)

    # -- parts

    def _remember(self, identifier: Identifier, pointer: Pointer, metadata: TableMetadata) -> TableState:
        state = _state(identifier, pointer, metadata)
        self._states.put(pointer.metadata_location, state)
        return state

    def _base(self, state: TableState) -> TableMetadata:
        try:
            base = self.catalog.files.read(state.metadata_location)
        except FileNotFoundError as error:
            raise Conflict(f"table {table_label(state.identifier)} moved on: {state.metadata_location} is gone") from error
        if base.format_version != 2:
            raise InvalidRequest(
                f"table {table_label(state.identifier)} has format version {base.format_version}; rows are appended to version 2 only"
            )
        return base

    def _evolution(self, state: TableState, base: TableMetadata, schema: pa.Schema) -> Evolution:
        next_id = max(known.schema_id for known in base.schemas) + 1
        try:
            return evolve(base.schema(), base.last_column_id, next_id, schema, state.dropped)
        except InvalidRequest as error:
            raise InvalidRequest(f"table {table_label(state.identifier)}: {error}") from error

    def _sink(self, base: TableMetadata) -> Any:
        def open_sink(location: str) -> Any:
            path = local_path(location)
            if path is not None:
                return local_sink(path)
            return self.catalog.files.io(location, base.properties).new_output(location).create(overwrite=False)

        return open_sink

    def _commit(self, state: TableState, base: TableMetadata, updates: list[TableUpdate], made: Iterable[str]) -> TableState:
        """Move the table from exactly `state`. On a certain loss the manifests in `made` are deleted."""
        made = list(made)
        pointer = Pointer(state.metadata_location, state.table_uuid, state.generation)
        metadata = apply_updates(base, updates, state.metadata_location)
        try:
            moved = self.catalog.committer.commit(state.identifier, pointer, metadata, made)
        except CommitFailedException as error:
            self.catalog.files.delete(made)
            raise Conflict(str(error)) from error
        except CommitStateUnknownException as error:
            self._check_not_gone(state, error)
            raise OutcomeUnknown(str(error)) from error
        self._delete_old(base, metadata)
        return self._remember(state.identifier, moved, metadata)

    def _check_not_gone(self, state: TableState, error: Exception) -> None:
        """Raises NotFound where the name has no table any more, or another one: then nothing was or will be committed to it."""
        try:
            pointer = self.catalog.pointer(state.identifier)
        except NoSuchTableError:
            raise NotFound(f"table {table_label(state.identifier)} was dropped") from error
        if pointer.table_uuid != state.table_uuid:
            raise NotFound(f"table {table_label(state.identifier)} was dropped and made anew by others") from error

    def _delete_old(self, base: TableMetadata, metadata: TableMetadata) -> None:
        """Metadata files that fell out of the log, as `write.metadata.delete-after-commit.enabled` asks."""
        if metadata.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() == "true":
            kept = {entry.metadata_file for entry in metadata.metadata_log}
            self.catalog.files.delete([e.metadata_file for e in base.metadata_log if e.metadata_file not in kept])


def _written(files: DataFiles) -> _Written:
    if not isinstance(files.handle, _Written):
        raise Internal(f"data files of another lake were passed in: {type(files.handle)}")
    return files.handle


def _schema_updates(change: Evolution) -> list[TableUpdate]:
    if not change.changed:
        return []
    schema: Schema = change.schema
    return [AddSchemaUpdate.model_validate({"schema": schema}), SetCurrentSchemaUpdate.model_validate({"schema-id": schema.schema_id})]


def _state(identifier: Identifier, pointer: Pointer, metadata: TableMetadata) -> TableState:
    where = f"table {table_label(identifier)}"
    properties = metadata.properties
    marks = {
        key.removeprefix(MARK_PREFIX): Mark.parse(value, f"{where}, property {key}")
        for key, value in properties.items()
        if key.startswith(MARK_PREFIX)
    }
    try:
        pipelines = json.loads(properties.get(PIPELINES_PROPERTY, "[]"))
    except ValueError as error:
        raise DataCorruption(f"{where}: property {PIPELINES_PROPERTY} is not JSON: {error}") from error
    if not isinstance(pipelines, list) or not all(isinstance(name, str) for name in pipelines):
        raise DataCorruption(f"{where}: property {PIPELINES_PROPERTY} is not a list of names: {pipelines!r}")
    return TableState(
        identifier=identifier, table_uuid=pointer.table_uuid, metadata_location=pointer.metadata_location,
        generation=pointer.generation, schema=arrow_schema(metadata.schema()), dropped=_dropped(metadata), marks=marks,
        pipelines=frozenset(pipelines),
    )


def _dropped(metadata: TableMetadata) -> frozenset[str]:
    """Top-level names of earlier schemas whose column is gone. A renamed column is not gone: rows under its old name come back
    as a new column, rather than vanish."""
    current = metadata.schema()
    ids = {field.field_id for field in current.fields}
    names = {field.name for field in current.fields}
    return frozenset(
        field.name for schema in metadata.schemas for field in schema.fields if field.field_id not in ids and field.name not in names
    )
