"""Rows of one schema under another, exactly, and the rows for which that is impossible.

`conform` never changes a value: where the target type cannot hold it exactly the row is left out and reported, and the caller puts
its record into dead letters. Work is done per column (never per row) except for cells that are not to be had otherwise: JSON texts,
maps, and the search for the bad cells of a text column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.arrays import bits, bools, ints
from ingest.exact import exactly, list_lengths, one_array, text_as
from ingest.typetree import (
    TEXTUAL,
    Field,
    JsonText,
    ListOf,
    MapOf,
    Node,
    Scalar,
    Struct,
    Unknown,
    describe,
    from_arrow,
    is_deferred,
    to_arrow,
)

__all__ = ["Conformed", "RowProblem", "conform", "writable", "writable_schema"]

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Row `row` of the input cannot be held by the target schema; `code` and `error` as in BadRecord."""

    row: int
    code: str
    error: str


class Conformed(NamedTuple):
    """`table` has the target schema and the rows without a problem; `kept` are their numbers in the input, None = all."""

    table: pa.Table
    problems: tuple[RowProblem, ...]
    kept: Indices | None


def conform(table: pa.Table, schema: pa.Schema, source: Struct | None = None) -> Conformed:
    """The table's rows under `schema`. Columns are matched by the key they have in the data; missing ones are NULL.

    `source` overrides what the table's own schema says its columns are. Thread safe; the input is not changed. Cost where the
    schemas are equal: one comparison.
    """
    if source is None and (table.schema is schema or table.schema.equals(schema, check_metadata=True)):
        return Conformed(table, (), None)
    source = from_arrow(table.schema) if source is None else source
    target = from_arrow(schema)
    work = _Conversion(table.num_rows)
    by_key = dict(zip(source.fields, table.columns, strict=True))
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for (key, wanted), made in zip(target.fields.items(), schema, strict=True):
        given = source.fields.get(key)
        if given is None:
            arrays.append(pa.nulls(table.num_rows, made.type))
            continue
        arrays.append(work.column(by_key[key], given.node, wanted.node, made.type, key))
    for key, given in source.fields.items():
        if key not in target.fields and not is_deferred(given.node):
            work.refuse_values(by_key[key], given.node, key)
    if not arrays:
        rows = table.select([]).cast(schema)
    else:
        rows = pa.Table.from_arrays(arrays, schema=schema)
    if not work.problems:
        return Conformed(rows, (), None)
    keep = np.ones(table.num_rows, np.bool_)
    keep[list(work.problems)] = False
    problems = tuple(work.problems[row] for row in sorted(work.problems))
    return Conformed(rows.filter(bits(keep)), problems, np.flatnonzero(keep))


class _Conversion:
    """One call of `conform`: the first problem of each row wins."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self.problems: dict[int, RowProblem] = {}

    def column(self, given: pa.ChunkedArray, source: Node, target: Node, kind: pa.DataType, path: str) -> pa.Array | pa.ChunkedArray:
        if source == target and given.type == kind:
            return given
        array = one_array(given)
        return self._convert(array, source, target, kind, path, np.arange(self._num_rows, dtype=np.int64))

    def refuse_values(self, given: pa.ChunkedArray, source: Node, path: str) -> None:
        array = one_array(given)
        bad = bools(array.is_valid())
        self._refuse(bad, np.arange(self._num_rows, dtype=np.int64), array, "type.conflict", path, "no such column", describe(source))

    def _refuse(self, bad: Mask, rows: Indices, array: pa.Array, code: str, path: str, wanted: str, found: str) -> None:
        for at in np.flatnonzero(bad).tolist():
            row = int(rows[at])
            if row not in self.problems:
                value = _show(array[at])
                self.problems[row] = RowProblem(row, code, f"field {path}: wanted {wanted}, found {found}{value}")

    def _convert(self, array: pa.Array, source: Node, target: Node, kind: pa.DataType, path: str, rows: Indices) -> pa.Array:
        if isinstance(source, Unknown) or (is_deferred(source) and not isinstance(target, Struct | ListOf | JsonText | MapOf)):
            if array.null_count < len(array) and not isinstance(target, Unknown):
                return self._conflict(array, source, target, kind, path, rows)
            return pa.nulls(len(array), kind)
        match source, target:
            case Struct(), Struct():
                return self._struct(array, source, target, kind, path, rows)
            case ListOf(), ListOf():
                return self._list(array, source, target, kind, path, rows)
            case JsonText(), JsonText():
                return array.cast(kind)
            case JsonText(), MapOf():
                return self._cells(array, [None if v is None else _entries(v) for v in array.to_pylist()], target, kind, path, rows)
            case _, JsonText():
                texts = [None if v is None else _json(v) for v in array.to_pylist()]
                return pa.array(texts, kind)
            case MapOf(), MapOf() if source == target:
                return array.cast(kind)
            case Scalar(), Scalar():
                return self._scalar(array, source, target, path, rows)
        return self._conflict(array, source, target, kind, path, rows)

    def _conflict(self, array: pa.Array, source: Node, target: Node, kind: pa.DataType, path: str, rows: Indices) -> pa.Array:
        bad = bools(array.is_valid())
        self._refuse(bad, rows, array, "type.conflict", path, describe(target), describe(source))
        return pa.nulls(len(array), kind)

    def _struct(self, array: pa.Array, source: Struct, target: Struct, kind: pa.DataType, path: str, rows: Indices) -> pa.Array:
        children = dict(zip(source.fields, array.flatten(), strict=True))
        made: list[pa.Array] = []
        for index, (key, wanted) in enumerate(target.fields.items()):
            of = kind.field(index).type
            given = source.fields.get(key)
            if given is None:
                made.append(pa.nulls(len(array), of))
            else:
                made.append(self._convert_or_same(children[key], given.node, wanted.node, of, f"{path}.{key}", rows))
        for key, given in source.fields.items():
            if key not in target.fields and not is_deferred(given.node):
                child = children[key]
                bad = bools(child.is_valid())
                self._refuse(bad, rows, child, "type.conflict", f"{path}.{key}", "no such field", describe(given.node))
        fields = [kind.field(i) for i in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        if not fields:
            return _empty_structs(array, kind)
        return pa.StructArray.from_arrays(made, fields=fields, mask=mask)

    def _convert_or_same(self, array: pa.Array, source: Node, target: Node, kind: pa.DataType, path: str, rows: Indices) -> pa.Array:
        if source == target and array.type == kind:
            return array
        return self._convert(array, source, target, kind, path, rows)

    def _list(self, array: pa.Array, source: ListOf, target: ListOf, kind: pa.DataType, path: str, rows: Indices) -> pa.Array:
        lengths = list_lengths(array)
        offsets = np.zeros(len(array) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        items = self._convert_or_same(
            array.flatten(), source.item, target.item, kind.value_type, f"{path}[]", np.repeat(rows, lengths)
        )
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(ints(offsets), items, type=kind, mask=mask)

    def _cells(
        self, array: pa.Array, values: Sequence[Any], target: Node, kind: pa.DataType, path: str, rows: Indices
    ) -> pa.Array:
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
        bad = np.zeros(len(values), np.bool_)
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                bad[i] = True
        self._refuse(bad, rows, array, "type.conflict", path, str(kind), "JSON")
        return pa.array([None if b else v for b, v in zip(bad, values, strict=True)], kind)

    def _scalar(self, array: pa.Array, source: Scalar, target: Scalar, path: str, rows: Indices) -> pa.Array:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if array.type == target.type:
            return array
        if source.type == target.type or (_numeric(source.type) and _numeric(target.type)):
            made, bad = exactly(array, target.type)
            code = "timestamp.precision" if pa.types.is_timestamp(array.type) else "number.range"
        elif source.type == pa.string() and target.type in TEXTUAL:
            made, bad = text_as(array.cast(pa.string()), target.type)
            code = "type.conflict"
        else:
            return self._conflict(array, source, target, target.type, path, rows)
        if bad.any():
            self._refuse(bad, rows, array, code, path, f"{describe(target)}, exactly", describe(source))
        return made


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _empty_structs(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([None if null else {} for null in array.is_null().to_pylist()], kind)


def _show(cell: Any) -> str:
    text = str(cell)
    return f" {text[:80]}"


def _json(value: Any) -> str:
    return msgspec.json.encode(_without_nulls(value)).decode()


def _without_nulls(value: Any) -> Any:
    """A struct that becomes JSON text again does not show the keys its object never had."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _entries(text: str) -> Any:
    value = msgspec.json.decode(text)
    return list(value.items()) if isinstance(value, dict) else value


# ------------------------------------------------------------------------------------------------ what is written

@lru_cache(maxsize=64)
def _writable_root(identity: bytes) -> tuple[Struct, pa.Schema] | None:
    schema = pa.ipc.read_schema(pa.py_buffer(identity))
    root = from_arrow(schema)
    kept = _written(root) or Struct()
    return None if kept is root or not isinstance(kept, Struct) else (kept, to_arrow(kept))


def _written(node: Node) -> Node | None:
    """The node without deferred parts, None where nothing is left; the same object where there are none."""
    match node:
        case Unknown():
            return None
        case ListOf(item):
            kept = _written(item)
            return node if kept is item else None if kept is None else ListOf(kept)
        case Struct(fields, landed):
            left = {key: (one, _written(one.node)) for key, one in fields.items()}
            if all(kept is one.node for one, kept in left.values()) and left:
                return node
            made = {key: Field(kept, one.name) for key, (one, kept) in left.items() if kept is not None}
            return Struct(made, landed) if made else None
    return node


def writable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without columns and fields whose type is still deferred (only null, `{}` or `[]` seen)."""
    made = _writable_root(schema.serialize().to_pybytes())
    return schema if made is None else made[1]


def writable(table: pa.Table) -> pa.Table:
    """The table as it may be written: deferred columns and fields left out, everything else untouched and not copied."""
    given = table.schema
    schema = writable_schema(given)
    if schema is given:
        return table
    work = _Conversion(table.num_rows)
    root, kept = from_arrow(given), from_arrow(schema)
    by_key = dict(zip(root.fields, table.columns, strict=True))
    arrays = [
        work.column(by_key[key], root.fields[key].node, one.node, made.type, key)
        for (key, one), made in zip(kept.fields.items(), schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema) if arrays else table.select([])
