"""Moving a table from one metadata file to the next: write the new file, make everything durable, then move the pointer once.

The outcome of the move is decided by the row alone (rule 17): `MOVED` and `LOST` are certain, and only a certain loss deletes
the file that was written for it and raises CommitFailedException, after which pyiceberg deletes manifests and tries again. In
doubt the same conditional write is sent once more, which settles it in almost every case; what is still in doubt then raises
CommitStateUnknownException and deletes nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata

from catalog import failpoint
from catalog.errors import DataCorruption, OutcomeUnknown, Unavailable
from catalog.iceberg._pyiceberg import CatalogBase
from catalog.iceberg.local_io import file_io, local_path, make_durable, write_new
from catalog.iceberg.rows import CatalogRows, Pointer, Verdict, judge
from catalog.items.table import ConditionFailed
from catalog.lake import Identifier, table_label

__all__ = ["RESTORE", "Cache", "Committer", "MetadataFiles"]

_log = logging.getLogger(__name__)
_METADATA_ENTRIES: Final = 64
_SENDS_MAX: Final = 3
RESTORE: Final = "bring the file back from a backup of the warehouse; until then nothing of the table is read or written"
"""What to do about a metadata file that is lost or damaged."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class Cache(Generic[_K, _V]):
    """Least-recently-used map of immutable values, bounded by count. Thread safe."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: _K, value: _V) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)


class MetadataFiles:
    """Metadata files by location. They never change once written, so parsed ones are kept and shared; treat them as read-only."""

    def __init__(self, properties: dict[str, str], warehouse: str) -> None:
        self._properties = properties
        self.warehouse = warehouse
        self._parsed: Cache[str, TableMetadata] = Cache(_METADATA_ENTRIES)

    def io(self, location: str, properties: dict[str, str] | None = None) -> FileIO:
        """The FileIO for files near `location`; table properties take part in choosing it."""
        return file_io({**self._properties, **(properties or {})}, location)

    def quick_io(self, location: str, properties: dict[str, str]) -> FileIO:
        """A FileIO for files that the caller makes durable itself, all at once (`write(files=...)`)."""
        return PyArrowFileIO() if local_path(location) is not None else self.io(location, properties)

    def read(self, location: str) -> TableMetadata:
        """Raises FileNotFoundError, DataCorruption, Unavailable."""
        metadata = self._parsed.get(location)
        if metadata is None:
            try:
                metadata = FromInputFile.table_metadata(self.io(location).new_input(location))
            except FileNotFoundError:
                raise
            except OSError as error:
                raise Unavailable(f"the table metadata file {location} cannot be read now: {error}") from error
            except (ValueError, ValidationError) as error:
                why = str(error).splitlines()
                raise DataCorruption(
                    f"the table metadata file {location} is damaged ({' '.join(why[:1] + why[2:3])}): {RESTORE}"
                ) from error
            self._parsed.put(location, metadata)
        return metadata

    def write(self, metadata: TableMetadata, location: str, files: Iterable[str] = ()) -> None:
        """Write the metadata file and make it, its folders and `files` durable. Raises Unavailable (disk full, I/O error)."""
        root = self.root(metadata.location)
        try:
            write_new(location, metadata.model_dump_json().encode(), self.io(location, metadata.properties))
            make_durable([*files, location], root)
        except OSError as error:
            raise Unavailable(f"cannot write the table metadata file {location}: {error}") from error
        failpoint.hit("lake.metadata_written")
        self._parsed.put(location, metadata)

    def root(self, table_location: str) -> str:
        """The folder up to which folders must be durable for files of a table."""
        path, top = local_path(table_location), local_path(self.warehouse)
        inside = path is not None and top is not None and path.startswith(top.rstrip("/") + "/")
        return self.warehouse if inside else table_location

    def delete(self, locations: Iterable[str]) -> None:
        """Best effort: a file that stays is an orphan, which maintenance finds."""
        for location in locations:
            try:
                path = local_path(location)
                if path is None:
                    self.io(location).delete(location)
                else:
                    os.unlink(path)
            except OSError as error:
                _log.warning("could not delete %s: %s", location, error)


class Committer:
    """The one way a pointer moves. Thread safe."""

    def __init__(self, rows: CatalogRows, files: MetadataFiles) -> None:
        self._rows = rows
        self._files = files

    @staticmethod
    def next_location(metadata: TableMetadata, base_location: str | None) -> str:
        """A fresh location for `metadata`, numbered after the one it was made from."""
        version = 0 if base_location is None else CatalogBase.metadata_version(base_location) + 1
        return load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(version)

    def commit(self, identifier: Identifier, base: Pointer, metadata: TableMetadata, files: Iterable[str] = ()) -> Pointer:
        """Write `metadata` and move the pointer to it from exactly `base` (I6); `files` are made durable with it.

        Raises CommitFailedException (certainly lost), CommitStateUnknownException, Unavailable (nothing was sent).
        """
        location = self.next_location(metadata, base.metadata_location)
        self._files.write(metadata, location, files)
        pointer = self.move(identifier, base, location)
        failpoint.hit("lake.pointer_moved")
        return pointer

    def move(self, identifier: Identifier, base: Pointer, location: str) -> Pointer:
        """Move the pointer to a metadata file that is already durable. Deletes the file where the move is certainly lost."""
        return self.settle(identifier, base, location, lambda: self._rows.move(identifier, base, location))

    def settle(self, identifier: Identifier, base: Pointer, location: str, send: Callable[[], Pointer]) -> Pointer:
        """Send the conditional write until its outcome is known, at most `_SENDS_MAX` times. Raises as `commit`."""
        reason: Exception | None = None
        for _ in range(_SENDS_MAX):
            try:
                return send()
            except ConditionFailed as failed:
                reason = failed
                break
            except (OutcomeUnknown, Unavailable) as unknown:
                reason = unknown
        row = self._read_row(identifier)
        match judge(base, location, row):
            case Verdict.MOVED:
                return Pointer(location, base.table_uuid, base.generation + 1, base.metadata_location)
            case Verdict.LOST:
                self._files.delete([location])
                raise CommitFailedException(f"table {table_label(identifier)} moved on to another commit") from reason
        if row is not None and self._next_was_another(base, location, row):
            raise CommitFailedException(f"table {table_label(identifier)} moved on by several commits") from reason
        raise CommitStateUnknownException(
            f"table {table_label(identifier)}: it is unknown whether the commit {location} took place; read the table again"
        ) from reason

    def _read_row(self, identifier: Identifier) -> Pointer | None:
        try:
            return self._rows.pointer(identifier)
        except (NoSuchTableError, Unavailable):
            return None

    def _next_was_another(self, base: Pointer, location: str, row: Pointer) -> bool:
        """Whether the table's own metadata log shows which file followed `base`, and that it was not ours.

        Every commit appends the location it replaces, so the entry after `base` is the one of generation base + 1.
        """
        if row.table_uuid != base.table_uuid or row.generation <= base.generation:
            return False
        try:
            history = [entry.metadata_file for entry in self._files.read(row.metadata_location).metadata_log]
        except (OSError, DataCorruption, Unavailable):
            return False
        chain = [*history, row.metadata_location]
        return location not in chain and base.metadata_location in history
