"""Result types that every client can read, and the way from DuckDB's types to them.

Already settled by the instance's settings: no string or list views, 32-bit offsets, HUGEINT as decimal128(38, 0), UUID and JSON as
strings, times with zone as timestamp[us, UTC]. What is left is done here, per batch: dictionaries (ENUM) become their values,
opaque extension types their storage, every zone name that means UTC becomes `UTC`. Columns of types that Arrow has no fit form for
(BIT, TIME WITH TIME ZONE, BIGNUM, UHUGEINT, VARIANT, UNION), also deep inside, are read as text by a SELECT around the statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.errors import InvalidRequest
from flight.engine.lexer import quote

__all__ = ["Conversion", "portable_schema", "read_as_text", "wrap_as_text"]

# A type ends its place in a nested type; a field of that name is quoted, or has its own type behind it.
_AS_TEXT: Final = re.compile(r"\b(?:(?:BIT|TIME WITH TIME ZONE|BIGNUM|UHUGEINT|VARIANT)(?=[\[,)]|\Z)|UNION\()")
_QUOTED: Final = re.compile(r"""\"(?:[^"]|"")*"|'(?:[^']|'')*'""")
_UTC_NAMES: Final = frozenset(["Etc/UTC", "UTC", "Etc/UCT", "Zulu", "Etc/Zulu", "UCT"])


def read_as_text(duckdb_type: str) -> bool:
    """Whether columns of this DuckDB type are read as text: Arrow would show raw bits, lose the offset or the highest bit of a value."""
    return _AS_TEXT.search(_QUOTED.sub("", duckdb_type)) is not None


def wrap_as_text(sql: str, names: Sequence[str], as_text: Sequence[bool]) -> str:
    """The statement inside a SELECT that casts some columns to text. Order and names of columns stay."""
    columns = ", ".join(
        (f"CAST(c{at} AS VARCHAR)" if text else f"c{at}") + f" AS {quote(name)}"
        for at, (name, text) in enumerate(zip(names, as_text, strict=True))
    )
    return f"SELECT {columns} FROM (\n{sql}\n) AS t({', '.join(f'c{at}' for at in range(len(names)))})"


def portable_schema(schema: pa.Schema, names: Sequence[str] | None = None) -> pa.Schema:
    """The schema with portable types, and with `names` where they are given."""
    return pa.schema(
        [
            pa.field(field.name if names is None else names[at], _portable(field.type), nullable=True)
            for at, field in enumerate(schema)
        ]
    )


def _portable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _portable(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if str(kind) == "extension<arrow.uuid>" else _portable(kind.storage_type)
    if pa.types.is_timestamp(kind) and kind.tz in _UTC_NAMES:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _portable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_portable(kind.key_type), _portable(kind.item_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _portable(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        # DuckDB calls the elements of every list l.
        return pa.list_(pa.field("l", _portable(kind.value_type)))
    return kind


class Conversion:
    """From the schema DuckDB gives to the schema that was promised. Free where they are equal."""

    def __init__(self, actual: pa.Schema, promised: pa.Schema) -> None:
        if len(actual) != len(promised):
            raise InvalidRequest(f"the statement gives {len(actual)} columns where it was planned with {len(promised)}; prepare it again")
        self._promised = promised
        self._casts = [
            at for at in range(len(actual)) if not actual.field(at).type.equals(promised.field(at).type)
        ]
        self._equal = not self._casts and actual.equals(promised, check_metadata=True)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the promised schema. Raises InvalidRequest where a value does not fit the promised type."""
        if self._equal:
            return batch
        columns = list(batch.columns)
        for at in self._casts:
            field = self._promised.field(at)
            try:
                columns[at] = _cast(columns[at], field.type)
            except pa.ArrowException as error:
                raise InvalidRequest(
                    f"column {field.name} was planned as {field.type} and gives {columns[at].type} with these parameter values;"
                    f" cast the parameter in the statement ({error})"
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self._promised)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type.equals(target):
        return array
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), target)
    if isinstance(array, pa.ExtensionArray):
        return _cast(array.storage, target)
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        fields = [_cast(child, target.field(at).type) for at, child in enumerate(array.flatten())]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target) and pa.types.is_list(array.type) and array.offset == 0:
        values = _cast(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=array.is_null() if array.null_count else None)
    return pc.cast(array, target, safe=True)
