"""JSON lines: one object per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ingest.decode.base import RAW_BYTES_MAX, ByteStream, RawUnit
from ingest.decode.framing import LineReader, LineUnit
from ingest.decode.jsonblock import Health, decode_lines
from ingest.decode.jsoninfer import Rules
from ingest.settings import DecodeSettings
from ingest.sources.base import Decoded

__all__ = ["JsonUnit", "json_units"]


@dataclass(frozen=True, slots=True)
class JsonUnit(LineUnit):
    """A block of lines; see `ingest.decode.base.RawUnit`."""

    health: Health

    def decode(self, schema: pa.Schema) -> Decoded:
        rules = Rules(self.settings.object_keys_max, self.settings.infer_dates)
        return decode_lines(self.lines, schema, rules, self.health, self.settings.line_bytes_max)

    def raw(self, record: int) -> bytes:
        return self.lines.line(record - self.lines.first_record)[:RAW_BYTES_MAX]


def json_units(
    stream: ByteStream, settings: DecodeSettings, *, skip: int, first_record: int, base: int, at_eof_complete: bool
) -> Iterator[RawUnit]:
    """Units of a stream of lines whose first byte is at `base` and whose first record is number `first_record`."""
    reader = LineReader(
        stream, block_bytes=settings.block_bytes, line_bytes_max=settings.line_bytes_max, base=base, first_record=first_record,
        at_eof_complete=at_eof_complete,
    )
    health = Health()
    for lines in reader.blocks(skip):
        yield JsonUnit(lines, settings, health)
