"""A simulated lake (`catalog.lake.Lake`) over the simulated disk and item table, with the durability steps of a real one.

Data files hold the ids of their rows. A table's metadata file names its data files and marks; a row of the item table points at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from catalog.errors import Conflict, DataCorruption, NotFound, OutcomeUnknown
from catalog.items.table import ABSENT, ConditionFailed, Equals, Item, ItemTable
from catalog.lake import DataFiles, Identifier, Mark, StaleFiles, TableLayout, TableState, table_label
from ingest.wal.filesystem import FileSystem, disk_errors

__all__ = ["CATALOG", "LAKE", "SimLake", "table_ids"]

LAKE = Path("/lake")
SCHEMA = pa.schema({"id": pa.int64()})
CATALOG = "catalog#sim"


@dataclass(frozen=True, slots=True)
class _Metadata:
    state: TableState
    files: tuple[str, ...]


class SimLake:
    """The lake as one process sees it. Safe for the nested runs of one simulated process, like the real one for threads."""

    def __init__(self, filesystem: FileSystem, items: ItemTable, name: str, stale: Callable[[Identifier], bool]) -> None:
        """`stale` says whether somebody else changes the table's schema right before a commit, and does it."""
        self._filesystem, self._items, self._name, self._stale = filesystem, items, name, stale
        self._made = 0

    def load(self, identifier: Identifier) -> TableState:
        return self._load(identifier).state

    def create(self, identifier: Identifier, schema: pa.Schema, layout: TableLayout, pipeline: str) -> TableState:
        with disk_errors("making", LAKE):
            self._filesystem.make_folder(LAKE)
            self._filesystem.sync_folder(LAKE.parent)
        state = TableState(
            identifier=identifier, table_uuid=table_label(identifier), metadata_location="", generation=0, schema=SCHEMA,
            pipelines=frozenset({pipeline}),
        )
        try:
            return self._point(state, (), ABSENT_GENERATION)
        except Conflict:
            return self.load(identifier)

    def write(self, state: TableState, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFiles:
        ids = [value for batch in batches for value in batch.column("id").to_pylist()]
        path = self._new("data")
        data = json.dumps(ids).encode()
        with disk_errors("writing", path):
            self._filesystem.create(path).write((data,))
        return DataFiles(paths=(str(path),), rows=len(ids), size_bytes=len(data), handle=None)

    def sync(self, files: DataFiles) -> None:
        with disk_errors("making durable", LAKE):
            for path in files.paths:
                self._filesystem.sync_file(Path(path))
            self._filesystem.sync_folder(LAKE)

    def commit(self, state: TableState, files: DataFiles, wal_id: str, mark: Mark, summary: Mapping[str, str]) -> TableState:
        if self._stale(state.identifier):
            raise StaleFiles(f"simulated: the schema of {table_label(state.identifier)} changed")
        known = self._load(state.identifier)
        if known.state.generation != state.generation:
            raise Conflict(f"{table_label(state.identifier)} is at generation {known.state.generation}, not {state.generation}")
        marks = {**state.marks, wal_id: mark}
        after = TableState(
            identifier=state.identifier, table_uuid=state.table_uuid, metadata_location="", generation=state.generation,
            schema=state.schema, marks=marks, pipelines=state.pipelines,
        )
        return self._point(after, (*known.files, *files.paths), state.generation)

    def discard(self, files: DataFiles) -> None:
        with disk_errors("removing from", LAKE):
            for path in files.paths:
                self._filesystem.unlink(Path(path))

    def _point(self, state: TableState, files: tuple[str, ...], base: int) -> TableState:
        """Write the metadata durably, then move the pointer from exactly `base` (rule 20, I6)."""
        path = self._new("metadata")
        plain = {
            "files": files, "marks": {wal_id: str(mark) for wal_id, mark in state.marks.items()}, "pipelines": sorted(state.pipelines),
        }
        with disk_errors("writing", path):
            file = self._filesystem.create(path)
            file.write((json.dumps(plain).encode(),))
            file.sync()
            self._filesystem.sync_folder(LAKE)
        item: Item = {"PK": CATALOG, "SK": table_label(state.identifier), "generation": base + 1, "metadata_location": str(path)}
        expect = ABSENT if base == ABSENT_GENERATION else Equals({"generation": base})
        try:
            self._items.put(item, expect)
        except ConditionFailed as lost:
            there = lost.item or {}
            if there.get("metadata_location") != str(path):
                if there.get("generation") == base + 1:
                    raise Conflict(f"{table_label(state.identifier)} moved on from generation {base}") from lost
                raise OutcomeUnknown(f"{table_label(state.identifier)} moved on, perhaps over us") from lost
        return self._load(state.identifier).state

    def _load(self, identifier: Identifier) -> _Metadata:
        item = self._items.get(CATALOG, table_label(identifier))
        if item is None:
            raise NotFound(f"no table {table_label(identifier)}")
        location, generation = Path(str(item["metadata_location"])), item["generation"]
        assert isinstance(generation, int)
        try:
            plain = json.loads(self._filesystem.read(location))
        except (FileNotFoundError, ValueError) as error:
            raise DataCorruption(f"{table_label(identifier)} points at {location}, which is gone or torn") from error
        state = TableState(
            identifier=identifier, table_uuid=table_label(identifier), metadata_location=str(location), generation=generation,
            schema=SCHEMA, marks={wal_id: Mark.parse(text, str(location)) for wal_id, text in plain["marks"].items()},
            pipelines=frozenset(plain["pipelines"]),
        )
        return _Metadata(state, tuple(plain["files"]))

    def ids(self, identifier: Identifier) -> list[int]:
        """Ids of every row of the table as it stands."""
        return table_ids(self, self._load(identifier))

    def _new(self, kind: str) -> Path:
        self._made += 1
        return LAKE / f"{self._name}-{self._made}.{kind}"


ABSENT_GENERATION = 0


def table_ids(lake: SimLake, metadata: _Metadata) -> list[int]:
    """Ids in the data files that a metadata file names. Raises DataCorruption where one is gone or torn."""
    ids: list[int] = []
    for name in metadata.files:
        try:
            ids += json.loads(lake._filesystem.read(Path(name)))
        except (FileNotFoundError, ValueError) as error:
            raise DataCorruption(f"{table_label(metadata.state.identifier)} names {name}, which is gone or torn") from error
    return ids
