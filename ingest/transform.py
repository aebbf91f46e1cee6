"""What a pipeline does to rows between decoding and log: which table, what shape, what time.

Names of tables made from values (`TRANSFORM_NAMESPACE_FIELDS`) are reversible, so two values never share a table:

* letters, digits, `_` and `-` stay; any other byte of the UTF-8 value is `~` and two hex digits; the empty value is `~`;
* several fields are joined by `__`; then `__` inside a value and `_` at its ends are escaped too;
* a name that would start like a dead-letter table (`_dl_`) has its first `_` escaped;
* beyond 200 bytes a name is its first 100 bytes, `~~` and the first 32 hex digits of the sha256 of the whole (no longer reversible,
  still one table per value).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ingest.deadletter import DEAD_LETTER_PREFIX

__all__ = ["column_at", "convert_times", "has_path", "table_name", "table_values"]

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_-]")
_NAME_BYTES_MAX: Final = 200
_UTC_US: Final = pa.timestamp("us", tz="UTC")


def table_name(values: Sequence[str]) -> str:
    """Name of the table for these values of the namespace fields."""
    several = len(values) > 1
    name = "__".join(_escape(value, several) for value in values)
    if name.startswith(DEAD_LETTER_PREFIX):
        name = "~5F" + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:100]}~~{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return name


def table_values(name: str) -> tuple[str, ...] | None:
    """Inverse of `table_name`; None for a name that was shortened."""
    if "~~" in name:
        return None
    parts = name.split("__")
    return tuple(re.sub(r"(?:~[0-9A-F]{2})+", _unescape, part.removesuffix("~") if part == "~" else part) for part in parts)


def _escape(value: str, several: bool) -> str:
    data = value.encode(errors="surrogatepass")
    if not data:
        return "~"
    text = "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f"~{byte:02X}" for byte in data)
    if several:
        text = text.replace("__", "~5F~5F")
        text = f"~5F{text[1:]}" if text.startswith("_") else text
        text = f"{text[:-1]}~5F" if text.endswith("_") else text
    return text


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match.group().replace("~", "")).decode(errors="surrogatepass")


def column_at(table: pa.Table, path: str) -> pa.ChunkedArray | None:
    """The column `path`: by its whole name, else by walking structs at the dots; None where there is none."""
    if path in table.column_names:
        return table.column(path)
    head, dot, rest = path.partition(".")
    while dot:
        if head in table.column_names and pa.types.is_struct(table.schema.field(head).type):
            column = _struct_at(table.column(head), rest)
            if column is not None:
                return column
        part, dot, rest = rest.partition(".")
        head = f"{head}.{part}"
    return None


def _struct_at(column: pa.ChunkedArray, path: str) -> pa.ChunkedArray | None:
    names = [field.name for field in column.type]
    if path in names:
        return pc.struct_field(column, [names.index(path)])
    head, dot, rest = path.partition(".")
    if not dot or head not in names or not pa.types.is_struct(column.type.field(names.index(head)).type):
        return None
    return _struct_at(pc.struct_field(column, [names.index(head)]), rest)


def has_path(schema: pa.Schema, path: str) -> bool:
    """Whether `column_at` would find a column."""
    return column_at(schema.empty_table(), path) is not None


def convert_times(table: pa.Table, paths: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """Make the columns at `paths` timestamps (microseconds, UTC). Returns the table and which rows hold what is no time (None: none).

    Accepts timestamps and dates, ISO 8601 text (without an offset it means UTC; digits beyond microseconds are cut), and numbers since
    1970 in seconds, milliseconds, microseconds or nanoseconds, told apart by magnitude (below 1e11, 1e14, 1e17). NULL stays NULL.
    """
    invalid: Any = None
    for path in paths:
        column = column_at(table, path)
        if column is None or column.type == _UTC_US or pa.types.is_null(column.type):
            continue
        times = _to_time(column)
        wrong = pc.and_(pc.is_valid(column), pc.is_null(times))
        if pc.any(wrong).as_py():
            invalid = wrong if invalid is None else pc.or_(invalid, wrong)
        table = _replaced(table, path, times)
    return table, invalid


def _to_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as timestamps, NULL where a value is no time."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False).cast(_UTC_US)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _number_to_time(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_to_time(column)
    return pa.chunked_array([pa.nulls(len(column), _UTC_US)], _UTC_US)


def _number_to_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    value = column.cast(pa.float64(), safe=False) if pa.types.is_floating(column.type) else column.cast(pa.int64(), safe=False)
    size = pc.abs(value)
    if pa.types.is_floating(column.type):
        value = pc.if_else(pc.and_(pc.is_finite(value), pc.less(size, 9.2e18)), value, None)
        size = pc.abs(value)
        micros = pc.case_when(
            pc.make_struct(pc.less(size, 1e11), pc.less(size, 1e14), pc.less(size, 1e17)),
            pc.multiply(value, 1e6), pc.multiply(value, 1e3), value, pc.divide(value, 1e3),
        )
        micros = pc.round(micros).cast(pa.int64(), safe=False)
    else:
        seconds = pc.if_else(pc.less(size, 10**11), value, 0)
        millis = pc.if_else(pc.less(size, 10**14), value, 0)
        micros = pc.case_when(
            pc.make_struct(pc.less(size, 10**11), pc.less(size, 10**14), pc.less(size, 10**17)),
            pc.multiply(seconds, 10**6), pc.multiply(millis, 10**3), value, pc.divide(value, 10**3),
        )
    return _chunked(micros.cast(_UTC_US))


_ISO: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
_ZONE: Final = r"[T ][^ ]*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def _text_to_time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    for kind in (_UTC_US, pa.timestamp("us")):
        try:
            return text.cast(kind).cast(_UTC_US)
        except pa.ArrowInvalid:
            continue
    text = pc.replace_substring_regex(text, r"([.][0-9]{6})[0-9]+", r"\1")
    formed = pc.if_else(pc.match_substring_regex(text, _ISO), text, None)
    zoned = pc.match_substring_regex(formed, _ZONE)
    with_zone = _cast_each(pc.if_else(zoned, formed, None), _UTC_US)
    without = _cast_each(pc.if_else(zoned, None, formed), pa.timestamp("us")).cast(_UTC_US)
    return _chunked(pc.coalesce(with_zone, without))


def _cast_each(text: Any, kind: pa.DataType) -> Any:
    """Cast well-formed text; where one value is no time (month 13), go value by value: only blocks that hold one pay for it."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_one(value, kind) for value in text], kind)


def _one(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    try:
        return value.cast(kind)
    except pa.ArrowInvalid:
        return pa.scalar(None, kind)


def _chunked(values: Any) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _replaced(table: pa.Table, path: str, column: pa.ChunkedArray) -> pa.Table:
    """The table with the column at `path` replaced; structs on the way are rebuilt around it."""
    if path in table.column_names:
        index = table.column_names.index(path)
        return table.set_column(index, pa.field(path, column.type), column)
    head, dot, rest = path.partition(".")
    while dot and not (head in table.column_names and _struct_has(table.schema.field(head).type, rest)):
        part, dot, rest = rest.partition(".")
        head = f"{head}.{part}"
    index = table.column_names.index(head)
    struct = _replaced_in(_one_array(table.column(head)), rest, _one_array(column))
    return table.set_column(index, pa.field(head, struct.type), struct)


def _struct_has(kind: pa.DataType, path: str) -> bool:
    if not pa.types.is_struct(kind):
        return False
    if kind.get_field_index(path) >= 0:
        return True
    head, dot, rest = path.partition(".")
    return bool(dot) and kind.get_field_index(head) >= 0 and _struct_has(kind.field(head).type, rest)


def _replaced_in(struct: pa.StructArray, path: str, column: pa.Array) -> pa.StructArray:
    index = struct.type.get_field_index(path)
    rest = ""
    if index < 0:
        head, _, rest = path.partition(".")
        index = struct.type.get_field_index(head)
    children = [struct.field(i) for i in range(struct.type.num_fields)]
    children[index] = _replaced_in(children[index], rest, column) if rest else column
    fields = [f if i != index else pa.field(f.name, children[index].type) for i, f in enumerate(struct.type)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=struct.is_null())


def _one_array(column: pa.ChunkedArray) -> Any:
    combined = column.combine_chunks()
    return combined if not isinstance(combined, pa.ChunkedArray) else pa.concat_arrays(combined.chunks)
