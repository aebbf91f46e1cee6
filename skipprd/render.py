"""Rows for people and programs: a table, JSON, CSV or an Arrow stream, batch by batch, so that memory stays bounded."""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, Protocol, TextIO

import pyarrow as pa

from catalog.errors import InvalidRequest

__all__ = ["RowSource", "plain", "write"]

_WIDTHS_FROM_ROWS: Final = 1000
_CELL_MAX: Final = 120
# DuckDB's infinite values.
_DATE_INFINITY: Final = 2**31 - 1
_TIMESTAMP_INFINITY: Final = 2**63 - 1


class RowSource(Protocol):
    """A schema and batches, read once."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def write(form: str, rows: RowSource, out: TextIO) -> int:
    """Write all rows in the form `table`, `json`, `csv` or `arrow`; their number. Raises InvalidRequest for Arrow on a terminal."""
    if form == "arrow":
        if out.isatty():
            raise InvalidRequest("an Arrow stream is not for a terminal; send it to a file or program: --output arrow > rows.arrow")
        return _arrow(rows, out.buffer)
    return {"table": _table, "json": _json, "csv": _csv}[form](rows, out)


def plain(value: object) -> object:
    """A value as JSON has it: decimals without fraction are numbers, others text, as are times; bytes are base64, NaN and infinity text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() and value.as_tuple().exponent == 0 else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case pa.MonthDayNano():
            return f"P{value.months}M{value.days}DT{decimal.Decimal(value.nanoseconds).scaleb(-9).normalize():f}S"
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


def _values(array: pa.Array) -> list[object]:
    """An array as JSON has it, also where Python has no such value: dates past 9999 or before 1, infinity, a struct's equal names."""
    try:
        return [plain(value) for value in array.to_pylist()]
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in array]


def _value(scalar: pa.Scalar) -> object:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _value(scalar[at]) for at, name in enumerate(_names([field.name for field in kind]))}
    if pa.types.is_map(kind):
        return [[_value(entry[0]), _value(entry[1])] for entry in scalar.values]
    if pa.types.is_nested(kind):
        return [_value(one) for one in scalar.values]
    if pa.types.is_date32(kind):
        return _date(scalar.value) if abs(scalar.value) < _DATE_INFINITY else _infinity(scalar.value)
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar.value, kind)
    return plain(scalar.as_py())


def _timestamp(value: int, kind: pa.DataType) -> str:
    if abs(value) == _TIMESTAMP_INFINITY:
        return _infinity(value)
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
    seconds, fraction = divmod(value, 10**digits)
    days, second = divmod(seconds, 86400)
    parts = f".{fraction:0{digits}d}" if fraction else ""
    return f"{_date(days)}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{parts}{'' if kind.tz is None else '+00:00'}"


def _date(days: int) -> str:
    """Days since 1970 in the Gregorian calendar, whatever the year: it repeats every 400 years."""
    cycles, rest = divmod(days + datetime.date(1970, 1, 1).toordinal() - 1, 146_097)
    day = datetime.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def _infinity(value: int) -> str:
    return "infinity" if value > 0 else "-infinity"


def _names(given: Sequence[str]) -> list[str]:
    """Names made different from each other: a, a_2."""
    seen: dict[str, int] = {}
    names: list[str] = []
    for name in given:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names


def _lists(rows: RowSource) -> Iterator[list[list[object]]]:
    """Batches as lists of rows."""
    for batch in rows:
        for start in range(0, batch.num_rows, 4096):
            part = batch.slice(start, 4096)
            columns = [_values(column) for column in part.columns]
            yield [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(part.num_rows)]


def _json(rows: RowSource, out: TextIO) -> int:
    names = _names(rows.schema.names)
    count = 0
    out.write("[")
    for row in itertools.chain.from_iterable(_lists(rows)):
        out.write(",\n " if count else "")
        out.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))
        count += 1
    out.write("]\n")
    return count


def _csv(rows: RowSource, out: TextIO) -> int:
    import csv

    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.schema.names)
    count = 0
    for block in _lists(rows):
        writer.writerows([[_cell(value, "") for value in row] for row in block])
        count += len(block)
    return count


def _cell(value: object, null: str) -> str:
    match value:
        case None:
            return null
        case str():
            return value
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
    return str(value)


def _table(rows: RowSource, out: TextIO) -> int:
    names = rows.schema.names
    numeric = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in rows.schema]
    shown = (["\\n".join(_cell(v, "NULL").splitlines()) for v in row] for row in itertools.chain.from_iterable(_lists(rows)))
    first = list(itertools.islice(shown, _WIDTHS_FROM_ROWS))
    limit = min(_CELL_MAX, shutil.get_terminal_size().columns - 1) if out.isatty() else None
    widths = [max([len(name), *(len(row[at]) for row in first)]) for at, name in enumerate(names)]
    if limit is not None:
        widths = [min(width, limit) for width in widths]

    def line(cells: list[str], right: list[bool]) -> str:
        cut = [c if limit is None or len(c) <= w else c[: w - 1] + "…" for c, w in zip(cells, widths, strict=True)]
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cut, widths, right, strict=True)).rstrip() + "\n"

    out.write(line(list(names), numeric))
    out.write("  ".join("-" * width for width in widths) + "\n")
    count = 0
    for row in itertools.chain(first, shown):
        out.write(line(row, numeric))
        count += 1
    out.write(f"({count:,} row{'' if count == 1 else 's'})\n")
    return count


def _arrow(rows: RowSource, out: BinaryIO) -> int:
    count = 0
    with pa.ipc.new_stream(out, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    out.flush()
    return count
