"""From the names in a statement to tables of the lake.

A schema is a namespace with its levels joined by dots. Names match without regard to case, an exact spelling first, as DuckDB
does. The listing is kept in memory; a name that is not in it makes it read anew, so a table is found as soon as it exists.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from catalog.clock import Clock, SystemClock
from catalog.errors import InvalidRequest, NotFound
from catalog.lake import Identifier
from flight.engine.scope import LakeReader, Scope

__all__ = ["Listing", "Names", "schema_name"]

_SETTLED_S: Final = 1.0
"""A listing younger than this is not read again for the sake of a better spelling."""


def schema_name(namespace: tuple[str, ...]) -> str:
    """The namespace as a schema: its levels joined by dots."""
    return ".".join(namespace)


@dataclass(frozen=True, slots=True)
class Listing:
    """All tables of the scope at one moment. `schemas`: name -> namespaces that spell it so; `tables`: per schema, per name."""

    schemas: dict[str, list[tuple[str, ...]]]
    tables: dict[str, dict[str, list[Identifier]]]
    folded_schemas: dict[str, list[str]]
    folded_tables: dict[str, dict[str, list[str]]]
    read_at: float

    def find(self, schema: str, table: str) -> Identifier | None:
        """The table, or None. Raises InvalidRequest where only the case tells two tables or schemas apart and neither fits."""
        real_schema = _pick(schema, self.schemas, self.folded_schemas.get(schema.lower(), []), "schema")
        if real_schema is None:
            return None
        tables = self.tables[real_schema]
        name = _pick(table, tables, self.folded_tables[real_schema].get(table.lower(), []), f"table of schema {real_schema}")
        if name is None:
            return None
        if len(tables[name]) > 1:
            raise InvalidRequest(f"{real_schema}.{name} names {len(tables[name])} tables whose namespaces differ only in their dots")
        return tables[name][0]

    def schema(self, name: str) -> str | None:
        """The schema's real spelling, or None."""
        return _pick(name, self.schemas, self.folded_schemas.get(name.lower(), []), "schema")


class Names:
    """The scope's listing and what resolves against it. Thread safe."""

    def __init__(self, scope: Scope, clock: Clock | None = None) -> None:
        self._lake: LakeReader = scope.lake
        self._scope = scope
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._listing: Listing | None = None

    def listing(self) -> Listing:
        """The listing, read now."""
        schemas: dict[str, list[tuple[str, ...]]] = {}
        tables: dict[str, dict[str, list[Identifier]]] = {}
        started = self._clock.monotonic()
        for namespace in self._lake.namespaces():
            if not self._scope.allows(namespace):
                continue
            name = schema_name(namespace)
            schemas.setdefault(name, []).append(namespace)
            below = tables.setdefault(name, {})
            try:
                found = self._lake.tables(namespace)
            except NotFound:
                continue  # dropped since it was listed
            for identifier in found:
                below.setdefault(identifier[-1], []).append(identifier)
        listing = Listing(
            schemas, tables, _fold(schemas), {schema: _fold(below) for schema, below in tables.items()}, started
        )
        with self._lock:
            if self._listing is None or self._listing.read_at <= started:
                self._listing = listing
        return listing

    def find(self, schema: str, table: str) -> Identifier | None:
        """The table that `schema.table` names, or None where there is none even now."""
        known = self._known()
        found = known.find(schema, table) if known is not None else None
        if found is not None and found[-1] == table:
            return found
        if known is not None and found is not None and self._clock.monotonic() - known.read_at < _SETTLED_S:
            return found
        return self.listing().find(schema, table)

    def schema(self, name: str) -> str | None:
        """The real spelling of a schema, or None where there is none even now."""
        known = self._known()
        found = known.schema(name) if known is not None else None
        return found if found is not None else self.listing().schema(name)

    def _known(self) -> Listing | None:
        with self._lock:
            return self._listing


def _fold(names: dict[str, object] | dict[str, list[tuple[str, ...]]] | dict[str, list[Identifier]]) -> dict[str, list[str]]:
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.lower(), []).append(name)
    return folded


def _pick(name: str, exact: dict[str, list[tuple[str, ...]]], alike: list[str], kind: str) -> str | None:
    if name in exact:
        return name
    if len(alike) > 1:
        raise InvalidRequest(f"{name} could be any {kind} of {', '.join(sorted(alike))}: write its name exactly")
    return alike[0] if alike else None
