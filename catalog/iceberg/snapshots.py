"""The snapshot of an append: its manifest, and the manifest list over it and everything that was there before."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries

from catalog.errors import DataCorruption, Unavailable
from catalog.iceberg.commit import RESTORE, Cache, MetadataFiles

__all__ = ["AppendWriter"]


class AppendWriter:
    """Writes the files of appends. Keeps the manifest lists it wrote or read, which never change; thread safe."""

    def __init__(self, files: MetadataFiles) -> None:
        self._files = files
        self._manifests: Cache[str, tuple[ManifestFile, ...]] = Cache(64)

    def write(
        self, base: TableMetadata, schema: Schema, files: Sequence[DataFile], notes: Mapping[str, str]
    ) -> tuple[Snapshot, list[str]]:
        """A snapshot on top of `base`, and the locations written for it, which are not durable yet.

        Raises Unavailable (disk full, I/O error), DataCorruption (the manifest list of the base is gone).
        """
        snapshot_id, commit_id = base.new_snapshot_id(), uuid.uuid4()
        provider = load_location_provider(base.location, base.properties)
        manifest_at = provider.new_metadata_location(f"{commit_id}-m0.avro")
        list_at = provider.new_metadata_location(f"snap-{snapshot_id}-0-{commit_id}.avro")
        parent = base.current_snapshot()
        known = self._parent_manifests(base, parent)
        io = self._files.quick_io(manifest_at, base.properties)
        try:
            added = _write_manifest(io, manifest_at, base.spec(), schema, snapshot_id, files)
            manifests = _write_list(io, list_at, base, snapshot_id, parent, [added, *known])
        except OSError as error:
            raise Unavailable(f"the manifest {manifest_at} of a commit cannot be written ({error}); free space, run again") from error
        self._manifests.put(list_at, manifests)
        snapshot = Snapshot.model_validate({
            "snapshot-id": snapshot_id, "parent-snapshot-id": parent.snapshot_id if parent else None,
            "sequence-number": base.next_sequence_number(), "manifest-list": list_at, "schema-id": schema.schema_id,
            "timestamp-ms": max(time.time_ns() // 1_000_000, base.last_updated_ms),
            "summary": _summary(base.spec(), schema, files, notes, parent),
        })
        return snapshot, [manifest_at, list_at]

    def _parent_manifests(self, base: TableMetadata, parent: Snapshot | None) -> tuple[ManifestFile, ...]:
        if parent is None:
            return ()
        known = self._manifests.get(parent.manifest_list)
        if known is None:
            io = self._files.io(parent.manifest_list, base.properties)
            try:
                known = tuple(read_manifest_list(io.new_input(parent.manifest_list)))
            except FileNotFoundError as error:
                raise DataCorruption(
                    f"the table at {base.location} has lost its manifest list {parent.manifest_list}: {RESTORE}"
                ) from error
            except OSError as error:
                raise Unavailable(f"the manifest list {parent.manifest_list} cannot be read now: {error}; run again") from error
            except Exception as error:
                raise DataCorruption(f"the manifest list {parent.manifest_list} is damaged ({error}): {RESTORE}") from error
        return tuple(manifest for manifest in known if manifest.has_added_files() or manifest.has_existing_files())


def _write_manifest(
    io: FileIO, location: str, spec: PartitionSpec, schema: Schema, snapshot_id: int, files: Sequence[DataFile]
) -> ManifestFile:
    with write_manifest(2, spec, schema, io.new_output(location), snapshot_id, "deflate") as writer:
        for file in files:
            entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, sequence_number=None, data_file=file)
            writer.add_entry(entry)
    return writer.to_manifest_file()


def _write_list(
    io: FileIO, location: str, base: TableMetadata, snapshot_id: int, parent: Snapshot | None, manifests: list[ManifestFile]
) -> tuple[ManifestFile, ...]:
    """Write the list; the manifests as it holds them, sequence numbers assigned."""
    parent_id = parent.snapshot_id if parent else None
    with write_manifest_list(2, io.new_output(location), snapshot_id, parent_id, base.next_sequence_number(), "deflate") as writer:
        numbered = [writer.prepare_manifest(manifest) for manifest in manifests]
        writer.add_manifests(numbered)
    return tuple(numbered)


def _summary(
    spec: PartitionSpec, schema: Schema, files: Sequence[DataFile], notes: Mapping[str, str], parent: Snapshot | None
) -> Summary:
    collector = SnapshotSummaryCollector()
    for file in files:
        collector.add_file(file, schema, spec)
    summary = Summary(operation=Operation.APPEND, **{**notes, **collector.build()})
    return update_snapshot_summaries(summary, parent.summary.additional_properties if parent and parent.summary else None)
