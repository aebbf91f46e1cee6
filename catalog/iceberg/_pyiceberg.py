"""Every private name of pyiceberg that this project uses, and nowhere else: what an upgrade of pyiceberg has to check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
    update_table_metadata,
)
from pyiceberg.typedef import Properties, TableVersion

__all__ = ["CatalogBase", "apply_updates", "build_metadata"]


class CatalogBase(MetastoreCatalog):
    """The private helpers of pyiceberg's catalog base under names of our own."""

    @staticmethod
    def iceberg_schema(schema: Schema | pa.Schema, format_version: TableVersion) -> Schema:
        """The schema in Iceberg's terms. Raises TypeError or ValueError for a type that the format version cannot hold."""
        return MetastoreCatalog._convert_schema_if_needed(schema, format_version)

    def changed_properties(
        self, current: Properties, removals: set[str] | None, updates: Properties
    ) -> tuple[PropertiesUpdateSummary, Properties]:
        """Properties after the change, and its summary. Raises ValueError where a key is both removed and set."""
        return self._get_updated_props_and_update_summary(current, removals, updates)

    @staticmethod
    def metadata_version(location: str) -> int:
        """The number at the head of a metadata file's name, -1 where it has none."""
        return MetastoreCatalog._parse_metadata_version(location)


def apply_updates(base: TableMetadata, updates: Sequence[TableUpdate], base_location: str) -> TableMetadata:
    """`base` with the updates applied and its own location in the metadata log; `base` itself if nothing changed.

    Unlike pyiceberg's `update_table_metadata` the result shares its parts with `base` (all of them immutable), because a deep copy
    costs more than everything else in a commit once a table has some hundred snapshots.
    """
    context = _TableMetadataUpdateContext()
    metadata = base
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if not context.has_changes():
        return base
    metadata = _update_table_metadata_log(metadata, base_location, base.last_updated_ms)
    if metadata.last_updated_ms == base.last_updated_ms:
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        metadata = metadata.model_copy(update={"last_updated_ms": now_ms})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def build_metadata(updates: Sequence[TableUpdate]) -> TableMetadata:
    """The metadata of a new table from the updates of a create transaction, validated as a whole."""
    return update_table_metadata(MetastoreCatalog._empty_table_metadata(), tuple(updates), enforce_validation=True)
