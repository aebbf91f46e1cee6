"""The types of a table as a tree, and its form at every boundary: an Arrow schema.

How a tree grows: `ingest.growth`.

Names: Iceberg compares column names exactly, SQL engines often without case. A key that differs from an earlier column of the same
struct only by case, is empty, or whose dotted path equals another column's, is kept under the next free name `{key}_1`, `{key}_2`.

What has to outlive the process travels as field metadata. `doc` becomes the Iceberg column doc and is read back from it:
`skippr {"key": "A"}` (the field name in the data, where it differs from the column's) and `skippr {"json": true}` (a string column
that holds JSON text). `skippr.wide` and `skippr.landed` live in Arrow schemas only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from catalog.errors import ConfigurationError

__all__ = [
    "DEPTH_MAX", "DOC", "EXACT_IN_DOUBLE", "TEXTUAL", "UNKNOWN", "Field", "JsonText", "ListOf", "MapOf", "Node", "Scalar", "Struct",
    "TypeConflict", "Unknown", "describe", "field_key", "from_arrow", "is_deferred", "landed", "mark_wide", "to_arrow",
]

DEPTH_MAX: Final = 64
"""Levels of nesting a record may have."""

DOC: Final = b"doc"
LANDED: Final = b"skippr.landed"
WIDE: Final = b"skippr.wide"
EXACT_IN_DOUBLE: Final = 2**53
"""Integers up to this size are doubles exactly."""


class TypeConflict(Exception):
    """A value or type does not fit a column. `path` is filled from the inside out while the error travels up."""

    def __init__(self, code: str, wanted: str, found: str) -> None:
        super().__init__(code)
        self.code, self.wanted, self.found = code, wanted, found
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"field {'.'.join(reversed(self.path)) or '(record)'}: wanted {self.wanted}, found {self.found}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Only nulls so far."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A normalized Arrow type. `wide`: an integer column that held values no double can hold. `landed`: the table has it."""

    type: pa.DataType
    wide: bool = False
    landed: bool = False


@dataclass(frozen=True, slots=True)
class JsonText:
    """A string column whose cells are JSON texts."""

    landed: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; `item` may be Unknown."""

    item: Node


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map that a table brought along; the decoders never infer one."""

    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct. `name` is the column's, None until `to_arrow` gives one."""

    node: Node
    name: str | None = None


@dataclass(frozen=True)
class Struct:
    """Fields by the key they have in the data, in column order. Never changed in place."""

    fields: Mapping[str, Field] = field(default_factory=dict)
    landed: bool = False


Node = Unknown | Scalar | JsonText | ListOf | MapOf | Struct
UNKNOWN: Final = Unknown()

TEXTUAL: Final = (pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.binary())
"""Types that text is read as where a column already has them."""
INTS: Final = (pa.int32(), pa.int64())
FLOATS: Final = (pa.float32(), pa.float64())


# ------------------------------------------------------------------------------------------------ Arrow <-> nodes

def field_key(of: pa.Field) -> str:
    """The name the field has in the data."""
    return str(_doc(of).get("key", of.name))


def _doc(of: pa.Field) -> dict[str, object]:
    text = (of.metadata or {}).get(DOC, b"")
    if not text.startswith(b"skippr {"):
        return {}
    try:
        marks = json.loads(text[7:])
    except ValueError:
        return {}
    return marks if isinstance(marks, dict) else {}


def normalize(of: pa.DataType, path: str = "") -> pa.DataType:
    """The scalar type a table holds values of `of` in. Raises ConfigurationError where there is none."""
    types = pa.types
    if types.is_dictionary(of):
        return normalize(of.value_type, path)
    if isinstance(of, pa.BaseExtensionType):
        return normalize(of.storage_type, path)
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return pa.string()
    if types.is_binary(of) or types.is_large_binary(of) or types.is_binary_view(of):
        return pa.binary()
    if types.is_boolean(of) or types.is_fixed_size_binary(of) or of in INTS or of in FLOATS:
        return of
    if types.is_integer(of):
        return pa.int32() if of.bit_width < 32 else pa.int64() if of == pa.uint32() else pa.decimal128(20, 0)
    if types.is_float16(of):
        return pa.float32()
    if types.is_timestamp(of):
        return pa.timestamp("us", "UTC" if of.tz else None)
    if types.is_date(of):
        return pa.date32()
    if types.is_time(of):
        return pa.time64("us")
    if types.is_decimal(of) and of.precision <= 38 and of.scale >= 0:
        return pa.decimal128(of.precision, of.scale)
    raise ConfigurationError(f"field {path}: no table column can hold the type {of}; leave the field out or convert it at the source")


def from_arrow(schema: pa.Schema) -> Struct:
    """The tree of an Arrow schema. Raises ConfigurationError for types no table can hold."""
    return _struct(list(schema), "", landed=False)


def _struct(fields: list[pa.Field], path: str, *, landed: bool) -> Struct:
    found: dict[str, Field] = {}
    for child in fields:
        key = field_key(child)
        at = f"{path}.{child.name}" if path else child.name
        if key in found:
            raise ConfigurationError(f"field {at} appears twice; rename one of the two at the source")
        found[key] = Field(_node(child, at), child.name)
    return Struct(found, landed)


def _node(of: pa.Field, path: str) -> Node:
    kind = of.type
    marks = of.metadata or {}
    landed = LANDED in marks
    if pa.types.is_null(kind):
        return UNKNOWN
    if pa.types.is_struct(kind):
        return _struct([kind.field(i) for i in range(kind.num_fields)], path, landed=landed)
    if _is_list(kind):
        return ListOf(_node(kind.value_field, f"{path}[]"))
    if pa.types.is_map(kind):
        return MapOf(pa.map_(_held(kind.key_field, path), _held(kind.item_field, path)))
    if pa.types.is_string(kind) and _doc(of).get("json"):
        return JsonText(landed)
    return Scalar(normalize(kind, path), WIDE in marks, landed)


def _held(of: pa.Field, path: str) -> pa.DataType:
    """The type of a map's keys or values as a table holds it."""
    root = Struct({of.name: Field(_node(of, f"{path}{{}}"), of.name)})
    return to_arrow(root).field(0).type


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind)
                or types.is_large_list_view(kind))


def to_arrow(root: Struct) -> pa.Schema:
    """The Arrow schema of a tree; fields without a name get one."""
    return pa.schema(_Namer(root).fields(root, ""))


class _Namer:
    """Gives columns names that no engine takes for another column's."""

    def __init__(self, root: Struct) -> None:
        self.taken: set[str] = set()
        self._collect(root, "")

    def _collect(self, node: Node, path: str) -> None:
        while isinstance(node, ListOf):
            node, path = node.item, f"{path}.element"
        if isinstance(node, Struct):
            for one in node.fields.values():
                if one.name is not None:
                    at = f"{path}.{one.name}" if path else one.name
                    self.taken.add(at.lower())
                    self._collect(one.node, at)

    def fields(self, node: Struct, path: str) -> list[pa.Field]:
        return [self._field(key, one, path) for key, one in node.fields.items()]

    def _name(self, key: str, path: str) -> str:
        prefix = f"{path}." if path else ""
        name, number = key, 0
        while not name or (prefix + name).lower() in self.taken:
            number += 1
            name = f"{key}_{number}"
        self.taken.add((prefix + name).lower())
        return name

    def _field(self, key: str, one: Field, path: str) -> pa.Field:
        name = one.name if one.name is not None else self._name(key, path)
        at = f"{path}.{name}" if path else name
        node = one.node
        doc: dict[str, object] = {"key": key} if key != name else {}
        metadata: dict[bytes, bytes] = {}
        if isinstance(node, JsonText):
            doc["json"] = True
        if isinstance(node, Scalar) and node.wide:
            metadata[WIDE] = b"1"
        if isinstance(node, Scalar | JsonText | Struct) and node.landed:
            metadata[LANDED] = b"1"
        if doc:
            metadata[DOC] = b"skippr " + json.dumps(doc, ensure_ascii=False).encode()
        return pa.field(name, self._type(node, at), metadata=metadata or None)

    def _type(self, node: Node, path: str) -> pa.DataType:
        match node:
            case Unknown():
                return pa.null()
            case JsonText():
                return pa.string()
            case Scalar(kind) | MapOf(kind):
                return kind
            case ListOf(item):
                return pa.list_(self._field("element", Field(item, "element"), path))
            case Struct():
                return pa.struct(self.fields(node, path))


def is_deferred(node: Node) -> bool:
    """Only null, `{}` and `[]` seen at every level: there is nothing to write yet."""
    match node:
        case Unknown():
            return True
        case ListOf(item):
            return is_deferred(item)
        case Struct(fields):
            return all(is_deferred(one.node) for one in fields.values())
    return False


def describe(node: Node) -> str:
    """The node's type in the words of table schemas."""
    match node:
        case Unknown():
            return "null"
        case JsonText():
            return "JSON text"
        case ListOf():
            return "list"
        case Struct():
            return "struct"
        case MapOf():
            return "map"
        case Scalar(kind):
            return _NAMES.get(kind, str(kind))


_NAMES: Final = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean"}


def mark_wide(root: Struct, path: tuple[int | None, ...]) -> Struct:
    """The tree with the integer leaf at `path` (field numbers, None into lists) marked as wide."""
    made = _marked(root, path)
    assert isinstance(made, Struct)
    return made


def _marked(node: Node, path: tuple[int | None, ...]) -> Node:
    match node:
        case Scalar():
            return replace(node, wide=True)
        case ListOf(item):
            return ListOf(_marked(item, path[1:]))
        case Struct(fields, landed) if path[0] is not None:
            key = list(fields)[path[0]]
            one = fields[key]
            return Struct({**fields, key: Field(_marked(one.node, path[1:]), one.name)}, landed)
    return node


def landed(node: Node) -> Node:
    """The tree marked as what a table has: its integers can no longer become doubles, its structs no JSON texts."""
    match node:
        case Scalar():
            return replace(node, landed=True)
        case JsonText():
            return JsonText(landed=True)
        case ListOf(item):
            return ListOf(landed(item))
        case Struct(fields):
            return Struct({key: Field(landed(one.node), one.name) for key, one in fields.items()}, landed=True)
    return node
