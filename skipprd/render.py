"""Rows for people and programs: a table, JSON, CSV or an Arrow stream, batch by batch, so that memory stays bounded."""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import math
import shutil
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol, TextIO

import pyarrow as pa

from catalog.errors import InvalidRequest

__all__ = ["RowSource", "plain", "write"]

_WIDTHS_FROM_ROWS: Final = 1000
_CELL_MAX: Final = 120


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
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
    return str(value)


def _names(schema: pa.Schema) -> list[str]:
    """Column names, made different from each other: a, a_2."""
    seen: dict[str, int] = {}
    names: list[str] = []
    for name in schema.names:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return names


def _lists(rows: RowSource) -> Iterator[list[list[object]]]:
    """Batches as lists of rows."""
    for batch in rows:
        for start in range(0, batch.num_rows, 4096):
            part = batch.slice(start, 4096)
            columns = [[plain(v) for v in column.to_pylist()] for column in part.columns]
            yield [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(part.num_rows)]


def _json(rows: RowSource, out: TextIO) -> int:
    names = _names(rows.schema)
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
