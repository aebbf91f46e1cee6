"""What an engine is opened over: one scope (tenant/workspace), and the lake it may read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from catalog.lake import Identifier, TableState

if TYPE_CHECKING:
    from flight.engine.api import Engine
    from flight.live import LiveSource

__all__ = ["LakeReader", "Scope", "open_engine"]

MIB = 1024 * 1024


class LakeReader(Protocol):
    """Reading side of the catalog. Thread safe; every answer is strongly consistent."""

    def load(self, identifier: Identifier) -> TableState:
        """The table as its pointer stands now; metadata is cached by location, so an unmoved pointer costs one row read.

        Raises NotFound, DataCorruption (metadata missing or broken), Unavailable.
        """
        ...

    def namespaces(self) -> list[tuple[str, ...]]:
        """Every namespace, all levels, sorted."""
        ...

    def tables(self, namespace: tuple[str, ...]) -> list[Identifier]:
        """Tables directly in the namespace, sorted. Reads no metadata. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One tenant's workspace as the query side sees it.

    `warehouse` is the only place DuckDB may read: a local folder (path or file:// URI) or an object store URI.
    `namespaces` None means all; otherwise these and everything below them.
    """

    tenant: str
    workspace: str
    lake: LakeReader
    warehouse: str
    namespaces: frozenset[tuple[str, ...]] | None = None
    memory_limit_bytes: int = 1024 * MIB
    threads: int = 2
    spill_dir: Path | None = None
    """Where DuckDB may spill; None means: never spill, fail instead."""
    spill_bytes_max: int = 8 * 1024 * MIB

    def allows(self, namespace: tuple[str, ...]) -> bool:
        """Whether tables of the namespace belong to the scope."""
        if self.namespaces is None:
            return True
        return any(namespace[:depth] in self.namespaces for depth in range(1, len(namespace) + 1))


def open_engine(scope: Scope, live: LiveSource | None = None) -> Engine:
    """The engine of a scope. `live` None means: Iceberg snapshots only.

    Loads DuckDB (0.1-0.2 s) on the call, not on import. Raises ConfigurationError for a warehouse or spill folder that cannot be
    used, and where the installed DuckDB has no Iceberg extension of its version.
    """
    from flight.engine.engine import DuckEngine

    return DuckEngine(scope, live)
