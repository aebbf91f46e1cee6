"""What the query side needs of the write-ahead log: the rows that are published there and not yet in Iceberg.

`ingest.wal.live` implements it; `skipprd.app` joins the two. The order of a live read is protocol: capture the logs first, then
read the table pointers, then ask the capture for the rows above each pointer's high-water marks. Everything captured stays
readable until the capture is closed, whatever is reclaimed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import pyarrow as pa

from catalog.lake import StaleCapture, TableState

__all__ = ["LiveCapture", "LiveRows", "LiveSource", "StaleCapture"]


class LiveRows(Protocol):
    """Rows of one table as an Arrow stream that can be opened any number of times; nothing is loaded before it is scanned."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def num_rows(self) -> int: ...

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class LiveCapture(Protocol):
    """Pinned segments of every log asked for, at one moment. Thread safe for reading; close() is idempotent."""

    def rows(self, state: TableState) -> LiveRows | None:
        """Rows of the table above `state.marks`, None where there are none. Schema: the union of the segments' schemas,
        widened with the table's, without `state.dropped`. Raises StaleCapture."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever a capture of the same logs could hold other rows."""
        ...

    def close(self) -> None: ...


class LiveSource(Protocol):
    """Where live rows come from."""

    def capture(self, pipelines: Collection[str]) -> LiveCapture:
        """Pin the published, unreclaimed segments of the pipelines (`str(PipelineKey)`, as in `TableState.pipelines`).

        Raises Unavailable where a log cannot be read. A pipeline without a log counts as empty.
        """
        ...
