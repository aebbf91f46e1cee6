"""Decoding bytes in tests the way a pipeline does: units in order, the running schema grown after each."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ingest.decode import open_decoder
from ingest.schema import TableSchema, conform, writable
from ingest.settings import DecodeSettings
from ingest.sources.base import BadRecord


@dataclass
class Outcome:
    """Everything a file became. `rows` are of the final schema; `at` are their record numbers."""

    schema: TableSchema
    tables: list[pa.Table] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    records: int = 0
    byte_end: int = 0
    changes: list[str] = field(default_factory=list)
    format: str = ""
    compression: str = ""
    appendable: bool = False
    units: int = 0

    @property
    def table(self) -> pa.Table:
        whole = []
        for one in self.tables:
            fitted = conform(one, self.schema.arrow)
            assert not fitted.problems
            whole.append(writable(fitted.table))
        return pa.concat_tables(whole) if whole else self.schema.writable.empty_table()

    @property
    def rows(self) -> list[dict[str, Any]]:
        table = self.table
        return table.to_pylist() if table.num_columns else [{} for _ in self.at]

    @property
    def codes(self) -> list[tuple[int, str]]:
        return [(one.record, one.code) for one in self.bad]

    def type(self, name: str) -> str:
        return str(self.schema.arrow.field(name).type)


def decode(
    data: bytes,
    name: str = "a.jsonl",
    *,
    schema: TableSchema | None = None,
    start_record: int = 0,
    start_byte: int | None = None,
    at_eof_complete: bool = True,
    stream: Any = None,
    **settings: Any,
) -> Outcome:
    """Decode a whole file; asserts that every record became a row or a bad record, in order."""
    made = DecodeSettings(**settings)
    out = Outcome(schema or TableSchema.empty(made.object_keys_max))
    opened = open_decoder(
        stream or io.BytesIO(data),
        name=name,
        uri=f"mem:{name}",
        settings=made,
        start_record=start_record,
        start_byte=start_byte,
        at_eof_complete=at_eof_complete,
    )
    out.format, out.compression, out.appendable = opened.format, opened.compression, opened.appendable
    expected = start_record
    try:
        for unit in opened.units():
            out.units += 1
            assert unit.first_record == expected
            expected += unit.records
            done = unit.decode(out.schema.arrow)
            assert (done.first_record, done.records) == (unit.first_record, unit.records)
            assert done.rows.num_rows + len(done.bad) == unit.records
            numbers = (
                list(range(done.first_record, done.first_record + done.records))
                if done.row_records is None
                else done.row_records.to_pylist()
            )
            assert sorted([*numbers, *(b.record for b in done.bad)]) == list(range(unit.first_record, expected))
            change = out.schema.evolve(done.rows.schema)
            assert not change.conflicts
            out.schema = change.schema
            out.changes += change.lines
            done.rows.validate(full=True)
            out.tables.append(done.rows)
            out.at += numbers
            out.bad += done.bad
            for one in done.bad:
                assert unit.raw(one.record) == one.raw
            out.byte_end = unit.byte_end
    finally:
        opened.close()
    out.records = expected - start_record
    return out


def lines(*records: str | bytes) -> bytes:
    """Records as lines."""
    return b"".join((r.encode() if isinstance(r, str) else r) + b"\n" for r in records)
