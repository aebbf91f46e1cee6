"""A decoder's unit with a source's bookkeeping around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from catalog.control.checkpoints import CheckpointUpdate
from catalog.control.offsets import OffsetPayload
from ingest.decode.base import RawUnit
from ingest.sources.base import Decoded

__all__ = ["SourceUnit"]

_EMPTY: Final = pa.table({})


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """A raw unit with the position after it. `raw_unit` None: nothing but a position (the end of a file that is a whole)."""

    raw_unit: RawUnit | None
    end: OffsetPayload
    checkpoint: CheckpointUpdate | None

    @property
    def first_record(self) -> int:
        return self.end.line if self.raw_unit is None else self.raw_unit.first_record

    @property
    def records(self) -> int:
        """How many records the unit holds."""
        return 0 if self.raw_unit is None else self.raw_unit.records

    @property
    def size_bytes(self) -> int:
        return 0 if self.raw_unit is None else self.raw_unit.size_bytes

    def checkpoints(self) -> tuple[CheckpointUpdate, ...]:
        return () if self.checkpoint is None else (self.checkpoint,)

    def decode(self, schema: pa.Schema) -> Decoded:
        if self.raw_unit is None:
            return Decoded(_EMPTY, (), self.end.line, 0)
        return self.raw_unit.decode(schema)

    def raw(self, record: int) -> bytes:
        return b"" if self.raw_unit is None else self.raw_unit.raw(record)
