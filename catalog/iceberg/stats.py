"""Column statistics of a data file for its manifest entry, from the Parquet footer and what was counted while writing.

Values are taken from the footer in their physical form, so nothing passes through Python dates, and order is that of the type.
Bounds are left out wherever they could hide a row from a reader that compares in its own way: columns that hold a NaN (some engines
sort it above every number, others never match it), columns inside lists and maps, chunks without bounds of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

__all__ = ["Leaf", "file_stats", "leaves"]

_TEXT_CHARS: Final = 16
_BOUNDS_MAX: Final = 200
"""Only so many columns get bounds: a manifest entry is read whole for every query."""

_FORMATS: dict[type[IcebergType], str] = {
    BooleanType: "<?", IntegerType: "<i", DateType: "<i", LongType: "<q", TimeType: "<q", TimestampType: "<q", TimestamptzType: "<q",
    FloatType: "<f", DoubleType: "<d",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One Parquet column. `top` is the index of the top-level column it is, None for one inside a struct, list or map."""

    field_id: int
    kind: IcebergType
    path: str
    top: int | None
    repeated: bool

    @property
    def is_float(self) -> bool:
        return isinstance(self.kind, FloatType | DoubleType)


def leaves(schema: Schema) -> list[Leaf]:
    """Parquet columns of a file with this schema, in the order the file has them."""
    found: list[Leaf] = []
    for index, field in enumerate(schema.fields):
        _walk(field, field.name, index, False, found)
    return found


def _walk(field: NestedField, path: str, top: int | None, repeated: bool, found: list[Leaf]) -> None:
    match field.field_type:
        case StructType() as kind:
            for child in kind.fields:
                _walk(child, f"{path}.{child.name}", None, repeated, found)
        case ListType() as kind:
            _walk(kind.element_field, f"{path}.list.element", None, True, found)
        case MapType() as kind:
            _walk(kind.key_field, f"{path}.key_value.key", None, True, found)
            _walk(kind.value_field, f"{path}.key_value.value", None, True, found)
        case kind:
            found.append(Leaf(field.field_id, kind, path, top, repeated))


def file_stats(footer: Any, columns: list[Leaf], nulls: Mapping[int, int], nans: Mapping[int, int]) -> dict[str, Any]:
    """Statistics as the fields of a manifest's data file. `nulls` and `nans` are counts by field id, exact where present."""
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    null_counts: dict[int, int | None] = {}
    bounds: dict[int, tuple[Any, Any] | None] = {}
    splits: list[int] = []
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        splits.append(_chunk_offset(row_group.column(0)))
        for position, leaf in enumerate(columns):
            chunk = row_group.column(position)
            stats = chunk.statistics
            key = leaf.field_id
            sizes[key] = sizes.get(key, 0) + chunk.total_compressed_size
            values[key] = values.get(key, 0) + chunk.num_values
            known = stats.null_count if stats is not None and stats.has_null_count else None
            null_counts[key] = None if known is None or (group and null_counts[key] is None) else (null_counts.get(key) or 0) + known
            if position < _BOUNDS_MAX and not leaf.repeated and not nans.get(key):
                bounds[key] = _merge(bounds, key, leaf, stats, group == 0)
    counted = {key: count for key, count in null_counts.items() if count is not None}
    counted.update(nulls)
    lower, upper = _encode(columns, bounds)
    return {
        "record_count": footer.num_rows,
        "column_sizes": sizes,
        "value_counts": values,
        "null_value_counts": counted,
        "nan_value_counts": dict(nans),
        "lower_bounds": lower,
        "upper_bounds": upper,
        "split_offsets": sorted(splits),
    }


def _chunk_offset(chunk: Any) -> int:
    offset = int(chunk.data_page_offset)
    return min(offset, int(chunk.dictionary_page_offset)) if chunk.has_dictionary_page else offset


_NOTHING: Final = (None, None)


def _merge(bounds: dict[int, tuple[Any, Any] | None], key: int, leaf: Leaf, stats: Any, first: bool) -> tuple[Any, Any] | None:
    """Bounds so far with those of one more chunk; None means that there are none any more."""
    known = _NOTHING if first else bounds[key]
    if known is None or stats is None:
        return None
    if not stats.has_min_max:
        return known if stats.num_values == 0 else None
    low, high = _ordered(leaf.kind, stats.min_raw), _ordered(leaf.kind, stats.max_raw)
    return (low if known[0] is None else min(low, known[0]), high if known[1] is None else max(high, known[1]))


def _ordered(kind: IcebergType, raw: Any) -> Any:
    """A physical value in a form that Python orders as the type does."""
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw.encode() if isinstance(raw, str) else raw


def _encode(columns: list[Leaf], bounds: Mapping[int, tuple[Any, Any] | None]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for leaf in columns:
        found = bounds.get(leaf.field_id)
        if found is None or found[0] is None:
            continue
        low, high = _lower(leaf.kind, found[0]), _upper(leaf.kind, found[1])
        if low is not None:
            lower[leaf.field_id] = low
        if high is not None:
            upper[leaf.field_id] = high
    return lower, upper


def _lower(kind: IcebergType, value: Any) -> bytes | None:
    if isinstance(kind, StringType):
        text = _text(value)
        return None if text is None else text[:_TEXT_CHARS].encode()
    if isinstance(kind, BinaryType):
        return bytes(value[:_TEXT_CHARS])
    return _exact(kind, value)


def _upper(kind: IcebergType, value: Any) -> bytes | None:
    if isinstance(kind, StringType):
        text = _text(value)
        return None if text is None else _text_above(text)
    if isinstance(kind, BinaryType):
        return _bytes_above(value)
    return _exact(kind, value)


def _exact(kind: IcebergType, value: Any) -> bytes | None:
    if isinstance(kind, DecimalType):
        return int(value).to_bytes((int(value).bit_length() + 8) // 8, "big", signed=True)
    if isinstance(kind, FixedType):
        return bytes(value)
    form = _FORMATS.get(type(kind))
    return None if form is None else struct.pack(form, value)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _text_above(text: str) -> bytes | None:
    """A text that is not below `text`, at most `_TEXT_CHARS` long; None where there is none."""
    if len(text) <= _TEXT_CHARS:
        return text.encode()
    for end in range(_TEXT_CHARS, 0, -1):
        code = ord(text[end - 1]) + 1
        code = 0xE000 if 0xD800 <= code <= 0xDFFF else code
        if code <= 0x10FFFF:
            return (text[: end - 1] + chr(code)).encode()
    return None


def _bytes_above(value: bytes) -> bytes | None:
    if len(value) <= _TEXT_CHARS:
        return value
    for end in range(_TEXT_CHARS, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None
