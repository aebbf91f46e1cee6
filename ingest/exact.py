"""Casts that say which cells the target cannot hold exactly, and looks at the leaves of nested columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.arrays import bits, bools
from ingest.typetree import EXACT_IN_DOUBLE

__all__ = ["exactly", "leaf_has_values", "leaf_rows_beyond", "list_lengths", "one_array", "text_as"]

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def exactly(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Cast and say which cells the target cannot hold exactly (they are NULL in the result)."""
    clean = np.zeros(len(array), np.bool_)
    if array.type == pa.float64() and kind == pa.float32():
        made = array.cast(kind)
        bad = bools(pc.not_equal(made.cast(pa.float64()), array))
        return pc.if_else(bits(bad), None, made), bad
    try:
        return array.cast(kind), clean
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass  # some cell refuses, or Arrow has no cast for the pair: below, cell by cell
    if array.type == pa.int64() and kind == pa.float64():
        values = _numbers(array)
        floats = values.astype(np.float64)
        inside = (floats >= -(2.0**63)) & (floats < 2.0**63)
        bad = (~inside | (np.where(inside, floats, 0.0).astype(np.int64) != values)) & bools(array.is_valid())
        return pc.if_else(bits(bad), None, array.cast(kind, safe=False)), bad
    return _cells_exactly(array, lambda part: part.cast(kind), kind)


def text_as(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Strings as the textual type `kind`: ISO 8601, time zone optional (none means UTC), at most microseconds."""
    return _cells_exactly(array, lambda part: _read_text(part, kind), kind)


def _read_text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _read_instants(array, kind)
    if pa.types.is_time(kind):
        return pc.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp("us")).cast(kind)
    return array.cast(kind)


_ZONE: Final = r"(Z|[+-]\d\d:?\d\d)$"


def _read_instants(array: pa.Array, kind: pa.DataType) -> pa.Array:
    zoned = pc.match_substring_regex(array, _ZONE)
    if pc.all(zoned).as_py() is not False:
        return array.cast(pa.timestamp("us", "UTC")).cast(kind)
    if not pc.any(zoned).as_py():
        naive = array.cast(pa.timestamp("us"))
        return naive.cast(kind) if kind.tz is None else pc.assume_timezone(naive, "UTC")
    both = pc.if_else(zoned, array, pc.binary_join_element_wise(array, "Z", ""))
    return both.cast(pa.timestamp("us", "UTC")).cast(kind)


def _cells_exactly(array: pa.Array, cast: Any, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Cast in halves until the cells that refuse stand alone."""
    try:
        return cast(array), np.zeros(len(array), np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    half = len(array) // 2
    first, bad1 = _cells_exactly(array.slice(0, half), cast, kind)
    second, bad2 = _cells_exactly(array.slice(half), cast, kind)
    return pa.concat_arrays([first, second]), np.concatenate([bad1, bad2])


def leaf_has_values(table: pa.Table, path: tuple[int | None, ...]) -> bool:
    """Whether anything but NULL stands at the leaf."""
    array, _ = _leaf(table, path)
    return bool(array.null_count < len(array))


def _leaf(table: pa.Table, path: tuple[int | None, ...]) -> tuple[pa.Array, list[pa.Array]]:
    """The leaf's values, lists flattened, and those lists from the outside in."""
    array = one_array(table.column(path[0]))
    lists: list[pa.Array] = []
    for step in path[1:]:
        if step is None:
            lists.append(array)
            array = array.flatten()
        else:
            array = array.field(step)
    return array, lists


def leaf_rows_beyond(table: pa.Table, path: tuple[int | None, ...]) -> Indices:
    """Rows whose numeric leaf `path` is not finite or at least 2^53 in size: what a double may not hold exactly."""
    array, lists = _leaf(table, path)
    values = _numbers(array)
    if not len(values) or (values.max() < EXACT_IN_DOUBLE and values.min() > -EXACT_IN_DOUBLE):
        return np.zeros(0, np.int64)
    beyond = ~((values < EXACT_IN_DOUBLE) & (values > -EXACT_IN_DOUBLE)) & bools(array.is_valid())
    rows = np.flatnonzero(beyond)
    for outer in reversed(lists):
        lengths = list_lengths(outer)
        rows = np.repeat(np.arange(len(outer)), lengths)[rows]
    return np.unique(rows)


def list_lengths(array: pa.Array) -> Indices:
    """Items per list, 0 for NULL."""
    return _numbers(pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64()))


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The values buffer as it is, NULL slots included (they hold anything, the caller asks `is_valid`)."""
    data = array.buffers()[1]
    kind = np.int64 if array.type == pa.int64() else np.float64
    if data is None:
        return np.zeros(0, kind)
    return np.frombuffer(data, kind)[array.offset : array.offset + len(array)]


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
