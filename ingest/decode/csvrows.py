"""CSV records to typed rows.

Every cell is read as text first; a column then gets the type that all its cells have, exactly:

* boolean: only true and false (any case); long: only integers as they would be printed (`007`, `+5` and ` 5` are text); double: JSON
  numbers, integers among them exact in a double; with `infer_dates` date or timestamp; else string;
* NULL: an unquoted cell that is one of `csv_null_values`; in a column that is not text also a quoted one. A quoted empty cell of a text
  column is the empty string. A column that was always NULL waits for a type.

The first block of a new column decides; later, long -> double as in any format, and a cell that does not fit the column makes its
record a bad one (`type.conflict`, `number.range`). A record with another number of cells than the header is `csv.columns`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from catalog.errors import Internal
from ingest.arrays import bits, bools
from ingest.decode.base import RAW_BYTES_MAX, RawUnit
from ingest.decode.container import Source
from ingest.decode.csvlines import CsvReader
from ingest.decode.framing import Lines, LineUnit, Offsets, not_utf8
from ingest.decode.typed import decode_table
from ingest.exact import text_as
from ingest.settings import DecodeSettings
from ingest.sources.base import BadRecord, Decoded
from ingest.typetree import TEXTUAL, Node, Scalar, Struct, Unknown, describe, from_arrow

__all__ = ["Dialect", "csv_units"]

Mask = npt.NDArray[np.bool_]
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_INTEGER: Final = r"^-?(0|[1-9][0-9]*)$"
_BOOLEAN: Final = r"^(?i:true|false)$"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What separates cells, what quotes them ("" = nothing does), and the columns' names."""

    delimiter: str
    quote: str
    names: tuple[str, ...]


def csv_units(
    source: Source, settings: DecodeSettings, kind: str, *, skip: int, start_byte: int, at_eof_complete: bool
) -> Iterator[RawUnit]:
    """Units of a CSV or TSV file; `skip` records are passed over, or already are by a seek to `start_byte` (0 = none)."""
    delimiter = settings.csv_delimiter or ("\t" if kind == "tsv" else ",")

    def reader(base: int, first_record: int) -> CsvReader:
        return CsvReader(
            source, delimiter=delimiter, quote=settings.csv_quote, block_bytes=settings.block_bytes,
            line_bytes_max=settings.line_bytes_max, base=base, first_record=first_record, at_eof_complete=at_eof_complete,
        )

    blocks = reader(0, -1 if settings.csv_header else 0).blocks()
    first = next(blocks, None)
    if first is None:
        return
    dialect = Dialect(delimiter, settings.csv_quote, _names(first, delimiter, settings))
    if start_byte and source.seek_to(start_byte):
        for lines in reader(start_byte, skip).blocks():
            yield CsvUnit(lines, settings, dialect)
        return
    for lines in _behind_header(first, blocks, settings.csv_header):
        passed = max(0, min(len(lines), skip - lines.first_record))
        if passed < len(lines):
            yield CsvUnit(lines.after(passed) if passed else lines, settings, dialect)


def _behind_header(first: Lines, blocks: Iterator[Lines], header: bool) -> Iterator[Lines]:
    lines = first.after(1) if header else first
    if len(lines):
        yield lines
    yield from blocks


def _names(first: Lines, delimiter: str, settings: DecodeSettings) -> tuple[str, ...]:
    """Names from the header; an empty one is `column_{n}`, a second `a` is `a_1`."""
    text = first.line(0).decode(errors="replace")
    if settings.csv_quote:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=settings.csv_quote)
    else:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=csv.QUOTE_NONE)
    cells = next(rows, [])
    if not settings.csv_header:
        return tuple(f"column_{i + 1}" for i in range(len(cells)))
    names: list[str] = []
    for number, cell in enumerate(cells):
        base = name = cell.strip() or f"column_{number + 1}"
        again = 0
        while name in names:
            again += 1
            name = f"{base}_{again}"
        names.append(name)
    return tuple(names)


@dataclass(frozen=True, slots=True)
class CsvUnit(LineUnit):
    """A block of records; see `ingest.decode.base.RawUnit`."""

    dialect: Dialect

    def raw(self, record: int) -> bytes:
        return self.lines.line(record - self.lines.first_record)[:RAW_BYTES_MAX]

    def decode(self, schema: pa.Schema) -> Decoded:
        work = _Cells(self)
        texts, numbers = work.read()
        running = from_arrow(schema)
        arrays, fields = [], []
        keep = np.ones(texts.num_rows, np.bool_)
        for name, column in zip(self.dialect.names, texts.columns, strict=True):
            known = running.fields.get(name)
            array, refused = work.typed(column, known.node if known else Unknown(), name)
            for row, (code, error) in refused.items():
                if keep[row]:
                    work.refuse(int(numbers[row]), code, error)
                    keep[row] = False
            arrays.append(array)
            fields.append(pa.field(name, array.type))
        table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        if not keep.all():
            table, numbers = table.filter(bits(keep)), numbers[keep]
        return decode_table(
            table, schema, self.first_record, self.settings.object_keys_max, self.raw, work.bad, numbers, len(self.lines)
        )


class _Cells:
    """One call of `CsvUnit.decode`."""

    def __init__(self, unit: CsvUnit) -> None:
        self._unit = unit
        self._lines = unit.lines
        self.bad: list[BadRecord] = []

    def refuse(self, index: int, code: str, error: str) -> None:
        lines = self._lines
        record = lines.first_record + index
        self.bad.append(BadRecord(record, code, error, self._unit.raw(record), lines.base + int(lines.starts[index])))

    def read(self) -> tuple[pa.Table, Offsets]:
        """All cells as text, and the line of each row."""
        lines = self._lines
        wanted = np.arange(len(lines), dtype=np.int64)
        if lines.refused is not None:
            self.refuse(0, *lines.refused)
            wanted = wanted[:0]
        bad = dict(not_utf8(lines)) if len(wanted) else {}
        for index, words in bad.items():
            self.refuse(index, "utf8", words)
        if bad:
            wanted = np.delete(wanted, list(bad))
        table, wanted = self._parse(wanted)
        if table.num_rows + len(self.bad) != len(lines):
            raise Internal(f"{len(lines)} CSV records became {table.num_rows} rows and {len(self.bad)} bad records")
        return table, wanted

    def _parse(self, wanted: Offsets) -> tuple[pa.Table, Offsets]:
        dialect, settings = self._unit.dialect, self._unit.settings
        ids = [f"f{i}" for i in range(len(dialect.names))]
        if not len(wanted):
            return pa.table({name: pa.array([], pa.string()) for name in ids}), wanted
        odd: list[tuple[int, int]] = []

        def note(row: pcsv.InvalidRow) -> str:
            odd.append((row.number - 1, row.actual_columns))
            return "skip"

        text = self._lines.text(wanted)
        table = pcsv.read_csv(
            pa.BufferReader(text),
            read_options=pcsv.ReadOptions(column_names=ids, use_threads=False, block_size=text.size + 1),
            parse_options=pcsv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=dialect.quote or False, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=pcsv.ConvertOptions(
                column_types=dict.fromkeys(ids, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False,
                null_values=list(settings.csv_null_values), check_utf8=False,
            ),
        )
        if table.num_rows + len(odd) != len(wanted):
            return self._halved(wanted)
        for at, columns in odd:
            self.refuse(int(wanted[at]), "csv.columns", f"the record has {columns} cells, the header {len(ids)}")
        return table, np.delete(wanted, [at for at, _ in odd]) if odd else wanted

    def _halved(self, wanted: Offsets) -> tuple[pa.Table, Offsets]:
        """Framing and parser disagree about some record: find it."""
        if len(wanted) == 1:
            self.refuse(int(wanted[0]), "csv.syntax", "the record is not one row of cells")
            return self._parse(wanted[:0])
        middle = len(wanted) // 2
        first, left = self._parse(wanted[:middle])
        second, right = self._parse(wanted[middle:])
        return pa.concat_tables([first, second]), np.concatenate([left, right])

    # -------------------------------------------------------------------------------------------- types

    def typed(self, column: pa.ChunkedArray, node: Node, name: str) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
        """The column's cells as the type it has or gets, and the rows whose cell does not fit."""
        cells = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(node, Scalar) and node.type == pa.string():
            return cells, {}
        values = self._without_null_texts(cells)
        match node:
            case Unknown():
                return self._inferred(cells, values), {}
            case Scalar(kind) if kind == pa.bool_():
                fits = _matches(values, _BOOLEAN)
                return _booleans(values, fits), self._refused(values, fits, node, name, "type.conflict")
            case Scalar(kind) if pa.types.is_integer(kind):
                return self._integers(values, node, name)
            case Scalar(kind) if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
                return self._numbers(values, node, name)
            case Scalar(kind) if kind in TEXTUAL:
                made, bad = text_as(values, kind)
                return made, self._refused(values, ~bad, node, name, "type.conflict")
            case Struct() | _:
                return cells, {}

    def _without_null_texts(self, cells: pa.Array) -> pa.Array:
        nulls = pa.array(list(self._unit.settings.csv_null_values), pa.string())
        return pc.if_else(pc.is_in(cells, nulls), None, cells) if len(nulls) else cells

    def _inferred(self, cells: pa.Array, values: pa.Array) -> pa.Array:
        if values.null_count == len(values):
            return pa.nulls(len(cells)) if cells.null_count == len(cells) else cells
        if _matches(values, _BOOLEAN).all():
            return _booleans(values, np.ones(len(values), np.bool_))
        if _matches(values, _NUMBER).all():
            if _matches(values, _INTEGER).all():
                whole, bad = exactly_long(values)
                return cells if bad.any() else whole
            made, bad = _doubles(values)
            return cells if bad.any() else made
        if self._unit.settings.infer_dates:
            for kind in (pa.date32(), pa.timestamp("us", "UTC")):
                made, bad = text_as(values, kind)
                if not bad.any():
                    return made
        return cells

    def _integers(self, values: pa.Array, node: Scalar, name: str) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
        integers = _matches(values, _INTEGER)
        numbers = integers | _matches(values, _NUMBER)
        may_widen = not (node.wide or node.landed)
        if may_widen and (numbers & ~integers).any():
            whole, _ = exactly_long(pc.if_else(bits(integers), values, None))
            largest = pc.max(pc.abs_checked(pc.if_else(pc.less(whole, -(2**62)), 2**62, whole))).as_py() or 0
            if largest < 2**53:
                return self._numbers(values, Scalar(pa.float64()), name)
        made, bad = exactly_long(pc.if_else(bits(integers), values, None))
        refused = self._refused(values, integers, node, name, "type.conflict")
        return made, refused | self._refused(values, ~bad, node, name, "number.range")

    def _numbers(self, values: pa.Array, node: Scalar, name: str) -> tuple[pa.Array, dict[int, tuple[str, str]]]:
        numbers = _matches(values, _NUMBER)
        kept = pc.if_else(bits(numbers), values, None)
        made, bad = _doubles(kept) if pa.types.is_floating(node.type) else text_as(kept, node.type)
        refused = self._refused(values, numbers, node, name, "type.conflict")
        return made, refused | self._refused(values, ~bad, node, name, "number.range")

    def _refused(self, values: pa.Array, fits: Mask, node: Node, name: str, code: str) -> dict[int, tuple[str, str]]:
        rows = np.flatnonzero(~fits)
        return {
            row: (code, f"field {name}: wanted {describe(node)}, found the cell {str(values[row])[:80]!r}") for row in rows.tolist()
        }


def _matches(values: pa.Array, pattern: str) -> Mask:
    """NULL cells match everything."""
    return bools(pc.fill_null(pc.match_substring_regex(values, pattern), True))


def _booleans(values: pa.Array, fits: Mask) -> pa.Array:
    return pc.if_else(bits(fits), pc.equal(pc.utf8_lower(values), "true"), None)


def exactly_long(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Integer texts as longs; the mask says which are out of range."""
    return text_as(values, pa.int64())


def _doubles(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Number texts as doubles; the mask says which a double cannot hold: out of range, or integers it would round."""
    made = values.cast(pa.float64())
    floats = np.frombuffer(pc.fill_null(made, 0.0).buffers()[1], np.float64)[: len(made)]
    bad = ~np.isfinite(floats)
    large = np.flatnonzero(np.abs(floats) >= 2.0**53)
    integers = _matches(values, _INTEGER)
    for row in large.tolist():
        if integers[row] and not bad[row] and int(floats[row]) != int(values[row].as_py()):
            bad[row] = True
    return (pc.if_else(bits(bad), None, made) if bad.any() else made), bad
