"""The lake as the compactor of a running pipeline sees it: while it writes data files, the source waits.

Both sides hold blocks of rows and keep every core busy. Taking turns costs no time and keeps the memory of a long run what it is for a
short one. Only writing is paced: a catalog that answers slowly, or not, holds up nobody until the log is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from catalog.lake import DataFiles, Identifier, Lake, Mark, TableLayout, TableState
from ingest.budget import ByteBudget

__all__ = ["PacedLake"]

_PATIENCE_S: Final = 1.0


class PacedLake:
    """Implements `catalog.lake.Lake` over another one. Thread safe where that is. `rest_bytes`: what a buffer holds that is not full."""

    def __init__(self, lake: Lake, budget: ByteBudget, rest_bytes: int) -> None:
        self._lake = lake
        self._budget = budget
        self._rest_bytes = rest_bytes

    def load(self, identifier: Identifier) -> TableState:
        return self._lake.load(identifier)

    def create(self, identifier: Identifier, schema: pa.Schema, layout: TableLayout, pipeline: str) -> TableState:
        return self._lake.create(identifier, schema, layout, pipeline)

    def write(self, state: TableState, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFiles:
        """While it runs the budget is spent: nothing more is read, and what was read goes into the log first, but for a rest."""
        held = self._budget.limit_bytes
        self._budget.change(0, held)
        try:
            self._budget.settle(held + self._rest_bytes, _PATIENCE_S)
            pa.default_memory_pool().release_unused()
            return self._lake.write(state, schema, batches)
        finally:
            pa.default_memory_pool().release_unused()  # before the source fills it again
            self._budget.change(held, 0)

    def sync(self, files: DataFiles) -> None:
        self._lake.sync(files)

    def commit(self, state: TableState, files: DataFiles, wal_id: str, mark: Mark, summary: Mapping[str, str]) -> TableState:
        return self._lake.commit(state, files, wal_id, mark, summary)

    def discard(self, files: DataFiles) -> None:
        self._lake.discard(files)
