"""The catalog's rows over a conditional item table, free of Iceberg metadata: namespaces, and the pointer of each table.

    catalog#{hash}                       namespace#{encoded}   properties (JSON), table_count, namespace_count
    catalog#{hash}#namespace#{encoded}   table#{encoded}       table_uuid, metadata_location, previous_metadata_location, generation

`table_count` and `namespace_count` (children one level below) change in the same transaction as what they count, so a namespace
is dropped only where nothing can appear in it meanwhile. Errors are pyiceberg's own types. Everything is durable on return.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from catalog import keys
from catalog.control import invariants
from catalog.errors import Conflict, DataCorruption, OutcomeUnknown
from catalog.items.table import ABSENT, EXISTS, ConditionFailed, Delete, Equals, Item, ItemTable, Op, Put, Update, Value
from catalog.lake import Identifier, table_label

__all__ = ["CatalogRows", "Pointer", "Verdict", "judge"]

NAMESPACE_LEVELS_MAX: Final = 3
_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a table stands. `generation` starts at 1 and rises by one with every move."""

    metadata_location: str
    table_uuid: str
    generation: int
    previous_metadata_location: str | None = None


class Verdict(Enum):
    """What a row shows about a pointer move whose condition failed or whose answer was lost."""

    MOVED = "moved"
    LOST = "lost"
    UNKNOWN = "unknown"


def judge(base: Pointer, location: str, row: Pointer | None) -> Verdict:
    """Whether the move from `base` to `location` took place, from the row as it stands (rule 17).

    Only generation = base + 1 tells: with our location it was ours, with another location it certainly was not. A later
    generation says nothing, since another commit may stand on top of ours; the old value says nothing either, since the write may
    still be on its way.
    """
    if row is None or row.table_uuid != base.table_uuid or row.generation != base.generation + 1:
        return Verdict.UNKNOWN
    return Verdict.MOVED if row.metadata_location == location else Verdict.LOST


class CatalogRows:
    """Typed verbs over the rows of one warehouse. Thread safe as the item table is."""

    def __init__(self, items: ItemTable, warehouse_uri: str) -> None:
        self.items = items
        self._warehouse = warehouse_uri
        self._pk = keys.catalog_pk(warehouse_uri)

    # -- namespaces

    def namespace(self, levels: Identifier) -> Item:
        """The namespace's row. Raises NoSuchNamespaceError."""
        row = self.items.get(self._pk, keys.namespace_sk(levels)) if _valid(levels) else None
        if row is None:
            raise NoSuchNamespaceError(f"Namespace does not exist: {table_label(levels)!r}")
        return row

    def namespaces(self, below: Identifier = ()) -> list[Identifier]:
        """Every namespace at any depth below the one given, in key order."""
        prefix = keys.namespace_sk(below) if below else keys.NAMESPACE_PREFIX
        found = [keys.parse_namespace_sk(str(item["SK"])) for item in self.items.query(self._pk, prefix)]
        return [levels for levels in found if len(levels) > len(below)]

    def create_namespace(self, levels: Identifier, properties: Mapping[str, str]) -> None:
        """Create it, and parents that are missing with no properties. Raises NamespaceAlreadyExistsError."""
        if not _valid(levels):
            raise NoSuchNamespaceError(
                f"{levels!r} cannot name a namespace: use 1 to {NAMESPACE_LEVELS_MAX} levels, none of them empty"
            )
        for _ in range(_ATTEMPTS):
            missing = [levels[:depth] for depth in range(1, len(levels)) if self._row(levels[:depth]) is None]
            ops: list[Op] = [self._namespace_put(levels, properties, 0)]
            ops += [self._namespace_put(parent, {}, 1) for parent in missing]
            first_new = missing[0] if missing else levels
            if len(first_new) > 1:
                ops.append(self._count(first_new[:-1], "namespace_count", 1))
            try:
                self.items.transact(ops)
            except ConditionFailed as failed:
                if 0 in failed.failed:
                    raise NamespaceAlreadyExistsError(f"Namespace {table_label(levels)!r} already exists") from failed
                continue
            return
        raise Conflict(f"namespace {table_label(levels)!r}: its parents kept changing in {_ATTEMPTS} attempts; try again")

    def drop_namespace(self, levels: Identifier) -> None:
        """Raises NoSuchNamespaceError, NamespaceNotEmptyError."""
        for _ in range(_ATTEMPTS):
            row = self.namespace(levels)
            children = row.get("namespace_count")
            if row.get("table_count") != 0 or children not in (None, 0) or self.namespaces(levels):
                raise NamespaceNotEmptyError(f"Namespace {table_label(levels)!r} is not empty")
            condition = Equals({"table_count": 0, "namespace_count": children})
            ops: list[Op] = [Delete(self._pk, keys.namespace_sk(levels), condition)]
            if len(levels) > 1 and self._row(levels[:-1]) is not None:
                ops.append(self._count(levels[:-1], "namespace_count", -1))
            try:
                self.items.transact(ops)
            except ConditionFailed:
                continue
            return
        raise Conflict(f"namespace {table_label(levels)!r} kept changing in {_ATTEMPTS} attempts; try again")

    def properties(self, levels: Identifier) -> dict[str, str]:
        """Raises NoSuchNamespaceError."""
        return _load_properties(self.namespace(levels), levels)

    def change_properties(self, levels: Identifier, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace the properties by `change(properties)`, again on fresh ones while others write. Raises NoSuchNamespaceError."""
        for _ in range(_ATTEMPTS):
            row = self.namespace(levels)
            wanted = _dump_properties(change(_load_properties(row, levels)))
            unchanged = Equals({"properties": row.get("properties")})
            try:
                self.items.update(Update(self._pk, keys.namespace_sk(levels), unchanged, set={"properties": wanted}))
            except ConditionFailed:
                continue
            return
        raise Conflict(f"properties of namespace {table_label(levels)!r} kept changing in {_ATTEMPTS} attempts; try again")

    # -- tables

    def pointer(self, identifier: Identifier) -> Pointer:
        """The table's pointer, strongly consistent: one item read. Raises NoSuchTableError."""
        row = None
        if len(identifier) > 1 and _valid(identifier[:-1]) and identifier[-1].strip():
            row = self.items.get(*self._table_key(identifier))
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {table_label(identifier)}")
        return _pointer(row, identifier)

    def tables(self, levels: Identifier) -> list[Identifier]:
        """Tables of one namespace, in key order."""
        items = self.items.query(keys.tables_pk(self._warehouse, levels), keys.TABLE_PREFIX)
        return [(*levels, keys.parse_table_sk(str(item["SK"]))) for item in items]

    def create_table(self, identifier: Identifier, pointer: Pointer) -> None:
        """Raises NoSuchNamespaceError, TableAlreadyExistsError, CommitStateUnknownException."""
        if not identifier[-1].strip():
            raise NoSuchTableError(f"{identifier!r} cannot name a table: its last level is empty")
        ops: list[Op] = [self._count(identifier[:-1], "table_count", 1), Put(self._table_row(identifier, pointer), ABSENT)]
        try:
            self.items.transact(ops)
        except ConditionFailed as failed:
            row = failed.items[1]
            if row is not None and row.get("metadata_location") == pointer.metadata_location:
                return  # a retry below us met our own write
            if row is not None:
                raise TableAlreadyExistsError(f"Table {table_label(identifier)} already exists") from failed
            raise NoSuchNamespaceError(f"Namespace does not exist: {table_label(identifier[:-1])!r}") from failed
        except OutcomeUnknown as unknown:
            self._confirm(identifier, pointer, unknown)

    def drop_table(self, identifier: Identifier) -> Pointer:
        """Remove the row and return it as it was. Raises NoSuchTableError."""
        for _ in range(_ATTEMPTS):
            pointer = self.pointer(identifier)
            ops: list[Op] = [
                Delete(*self._table_key(identifier), Equals({"table_uuid": pointer.table_uuid})),
                self._count(identifier[:-1], "table_count", -1),
            ]
            try:
                self.items.transact(ops)
            except (ConditionFailed, OutcomeUnknown) as error:
                row = self.items.get(*self._table_key(identifier))
                if row is not None and row.get("table_uuid") == pointer.table_uuid:
                    if isinstance(error, ConditionFailed):
                        continue
                    raise
            return pointer
        raise Conflict(f"table {table_label(identifier)} kept changing in {_ATTEMPTS} attempts; try again")

    def rename_table(self, source: Identifier, target: Identifier) -> Pointer:
        """Raises NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError."""
        if len(target) < 2 or not target[-1].strip():
            raise NoSuchTableError(f"{target!r} cannot name a table: give a namespace and a name")
        for _ in range(_ATTEMPTS):
            pointer = self.pointer(source)
            self.namespace(target[:-1])
            ops: list[Op] = [
                Delete(*self._table_key(source), Equals(_conditions(pointer))),
                Put(self._table_row(target, pointer), ABSENT),
            ]
            if source[:-1] != target[:-1]:
                ops += [self._count(source[:-1], "table_count", -1), self._count(target[:-1], "table_count", 1)]
            try:
                self.items.transact(ops)
            except ConditionFailed as failed:
                there = failed.items[1]
                if there is not None and there.get("table_uuid") == pointer.table_uuid:
                    return pointer
                if there is not None:
                    raise TableAlreadyExistsError(f"Table {table_label(target)} already exists") from failed
                continue
            return pointer
        raise Conflict(f"table {table_label(source)} kept changing in {_ATTEMPTS} attempts; try again")

    def move(self, identifier: Identifier, base: Pointer, location: str) -> Pointer:
        """Move the pointer from exactly `base` (I6). Raises what the item table raises: ConditionFailed, OutcomeUnknown."""
        moved = Pointer(location, base.table_uuid, base.generation + 1, base.metadata_location)
        changes: dict[str, Value] = {
            "metadata_location": location,
            "previous_metadata_location": base.metadata_location,
            "generation": moved.generation,
        }
        update = Update(*self._table_key(identifier), Equals(_conditions(base)), set=changes)
        invariants.i6_from_exactly(base.table_uuid, base.generation, base.metadata_location, update)
        self.items.update(update)
        return moved

    def replace_table(self, identifier: Identifier, base: Pointer, table_uuid: str, location: str) -> Pointer:
        """Point the name at another table's metadata (register with overwrite), from exactly `base`."""
        pointer = Pointer(location, table_uuid, base.generation + 1, base.metadata_location)
        self.items.put(self._table_row(identifier, pointer), Equals(_conditions(base)))
        return pointer

    # -- rows and keys

    def _row(self, levels: Identifier) -> Item | None:
        return self.items.get(self._pk, keys.namespace_sk(levels))

    def _namespace_put(self, levels: Identifier, properties: Mapping[str, str], children: int) -> Put:
        row: dict[str, Value] = {
            "PK": self._pk, "SK": keys.namespace_sk(levels), "properties": _dump_properties(properties), "table_count": 0,
            "namespace_count": children,
        }
        return Put(row, ABSENT)

    def _count(self, levels: Identifier, attribute: str, by: int) -> Update:
        return Update(self._pk, keys.namespace_sk(levels), EXISTS, add={attribute: by})

    def _table_key(self, identifier: Identifier) -> tuple[str, str]:
        return keys.tables_pk(self._warehouse, identifier[:-1]), keys.table_sk(identifier[-1])

    def _table_row(self, identifier: Identifier, pointer: Pointer) -> Item:
        pk, sk = self._table_key(identifier)
        row: dict[str, Value] = {"PK": pk, "SK": sk, **_conditions(pointer)}
        if pointer.previous_metadata_location is not None:
            row["previous_metadata_location"] = pointer.previous_metadata_location
        return row

    def _confirm(self, identifier: Identifier, pointer: Pointer, unknown: OutcomeUnknown) -> None:
        row = self.items.get(*self._table_key(identifier))
        if row is None or row.get("metadata_location") != pointer.metadata_location:
            raise CommitStateUnknownException(f"creation of {table_label(identifier)}: {unknown}") from unknown


def _conditions(pointer: Pointer) -> dict[str, Value]:
    return {
        "table_uuid": pointer.table_uuid,
        "metadata_location": pointer.metadata_location,
        "generation": pointer.generation,
    }


def _pointer(row: Item, identifier: Identifier) -> Pointer:
    location, uuid, generation = row.get("metadata_location"), row.get("table_uuid"), row.get("generation")
    previous = row.get("previous_metadata_location")
    if not isinstance(location, str) or not isinstance(uuid, str) or type(generation) is not int:
        raise DataCorruption(f"the catalog row of table {table_label(identifier)} is incomplete: {dict(row)}")
    return Pointer(location, uuid, generation, previous if isinstance(previous, str) else None)


def _valid(levels: Identifier) -> bool:
    return 1 <= len(levels) <= NAMESPACE_LEVELS_MAX and all(isinstance(level, str) and level.strip() for level in levels)


def _dump_properties(properties: Mapping[str, str]) -> str:
    return json.dumps(properties, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _load_properties(row: Item, levels: Identifier) -> dict[str, str]:
    try:
        properties = json.loads(str(row.get("properties", "{}")))
    except ValueError as error:
        raise DataCorruption(f"properties of namespace {table_label(levels)!r} are not JSON: {error}") from error
    if not isinstance(properties, dict):
        raise DataCorruption(f"properties of namespace {table_label(levels)!r} are not a JSON object: {properties!r}")
    return {str(key): str(value) for key, value in properties.items()}
