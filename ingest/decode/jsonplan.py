"""A running schema made ready for JSON: what pyarrow is told, which columns need a second look, and a per-line checker.

pyarrow.json is strict when its schema is explicit and unknown fields are errors: it then infers nothing, so no text becomes a
date, no integer a double, and no object with a thousand keys a thousand columns. A plan is built once per schema and kept.
"""

from __future__ import annotations

import decimal
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from ingest.typetree import Field, JsonText, ListOf, MapOf, Node, Scalar, Struct, Unknown, from_arrow, to_arrow

__all__ = ["JsonPlan", "LeafPath", "leaves", "plan_for"]

LeafPath = tuple[int | None, ...]
"""Way from a top-level column to a leaf: field numbers, None steps into a list."""

_TEXT: Final = pa.string()
_AS_IS: Final = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string())


@dataclass(frozen=True)
class JsonPlan:
    """Immutable and shared by threads. `root` is the schema as a tree with every column named."""

    root: Struct
    schema: pa.Schema

    @cached_property
    def parse_schema(self) -> pa.Schema:
        """Schema for pyarrow.json: fields under the keys they have in the data."""
        return pa.schema([pa.field(key, _parse_type(one.node)) for key, one in self.root.fields.items()])

    @cached_property
    def parse_root(self) -> Struct:
        """`root` as the parser delivers it; texts that stand for other types are still strings."""
        fields = {key: Field(_parsed(one.node), key) for key, one in self.root.fields.items()}
        return Struct(fields)

    @cached_property
    def converts(self) -> bool:
        """Whether the parser's table needs names or types changed."""
        return self.parse_root != Struct(self.root.fields)

    @cached_property
    def doubles(self) -> tuple[LeafPath, ...]:
        """Leaves the parser fills with doubles: NaN, infinities and inexact integers have to be looked for."""
        return tuple(leaves(self.parse_root, pa.float64()))

    @cached_property
    def untyped(self) -> tuple[LeafPath, ...]:
        """List items that were always null. pyarrow miscounts lists of the null type, so they are parsed as booleans and must be null."""
        return tuple(path for path in _unknown_items(self.root))

    @cached_property
    def longs(self) -> tuple[LeafPath, ...]:
        """Integer leaves that could still widen to double, so a value beyond 2^53 has to be noticed."""
        return tuple(leaves(self.root, pa.int64()))

    @cached_property
    def checker(self) -> msgspec.json.Decoder[Any]:
        """Accepts a line exactly where the parser will, duplicate keys aside; reads about as fast."""
        return msgspec.json.Decoder(_check_struct(self.root))

    @cached_property
    def splicer(self) -> msgspec.json.Decoder[Any] | None:
        """Finds the values that stay JSON text, None where the schema has none."""
        return msgspec.json.Decoder(_raw_type(self.root)) if _has_text(self.root) else None


def _parse_type(node: Node) -> pa.DataType:
    match node:
        case Unknown():
            return pa.null()
        case ListOf(item):
            return pa.list_(pa.field("element", pa.bool_() if isinstance(item, Unknown) else _parse_type(item)))
        case Struct(fields):
            return pa.struct([pa.field(key, _parse_type(one.node)) for key, one in fields.items()])
        case Scalar(kind) if kind in _AS_IS or pa.types.is_decimal(kind):
            return kind
        case _:
            return _TEXT


def _parsed(node: Node) -> Node:
    match node:
        case Unknown() | JsonText():
            return node
        case ListOf(item):
            return ListOf(Scalar(pa.bool_()) if isinstance(item, Unknown) else _parsed(item))
        case Struct(fields):
            return Struct({key: Field(_parsed(one.node), key) for key, one in fields.items()}, node.landed)
        case MapOf():
            return JsonText()
        case Scalar(kind) if kind == _parse_type(node):
            return node
        case Scalar():
            return Scalar(_parse_type(node), landed=node.landed)


def leaves(node: Node, kind: pa.DataType, path: LeafPath = ()) -> list[LeafPath]:
    """Leaves of the type; of integers only those that could still widen to double."""
    match node:
        case Struct(fields):
            return [leaf for i, one in enumerate(fields.values()) for leaf in leaves(one.node, kind, (*path, i))]
        case ListOf(item):
            return leaves(item, kind, (*path, None))
        case Scalar(of, wide, landed) if of == kind and not wide and not (landed and kind == pa.int64()):
            return [path]
    return []


def _unknown_items(node: Node, path: LeafPath = ()) -> list[LeafPath]:
    match node:
        case Struct(fields):
            return [leaf for i, one in enumerate(fields.values()) for leaf in _unknown_items(one.node, (*path, i))]
        case ListOf(item):
            return [(*path, None)] if isinstance(item, Unknown) else _unknown_items(item, (*path, None))
    return []


def _has_text(node: Node) -> bool:
    match node:
        case Struct(fields):
            return any(_has_text(one.node) for one in fields.values())
        case ListOf(item):
            return _has_text(item)
    return isinstance(node, JsonText | MapOf)


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def _renames(fields: dict[str, Field]) -> dict[str, str] | None:
    """Attribute names for keys, None where a key cannot be one of a msgspec struct."""
    if any(ord(c) < 32 or c in '"\\' for key in fields for c in key):
        return None
    return {f"f{i}": key for i, key in enumerate(fields)}


def _check_type(node: Node) -> Any:
    match node:
        case Unknown():
            return None
        case ListOf(item):
            return list[_check_type(item)] | None  # type: ignore[misc]
        case Struct():
            return _check_struct(node) | None
        case JsonText() | MapOf():
            return Any
        case Scalar(kind):
            return _check_scalar(kind)


def _check_struct(node: Struct) -> Any:
    renames = _renames(dict(node.fields))
    if renames is None:
        return dict[str, Any]
    members = [(f"f{i}", _check_type(one.node), None) for i, one in enumerate(node.fields.values())]
    return msgspec.defstruct("Checked", members, rename=renames, forbid_unknown_fields=True, gc=False)


def _check_scalar(kind: pa.DataType) -> Any:
    if kind == pa.int64():
        return _Int64 | None
    if kind == pa.int32():
        return _Int32 | None
    if pa.types.is_floating(kind):
        return float | None
    if kind == pa.bool_():
        return bool | None
    if pa.types.is_decimal(kind):
        return decimal.Decimal | None
    return str | None


def _raw_type(node: Node) -> Any:
    """A struct with only the ways to JSON texts in it; every other value is skipped."""
    match node:
        case JsonText() | MapOf():
            return msgspec.Raw
        case ListOf(item):
            return list[_raw_type(item)] | None  # type: ignore[misc]
        case Struct(fields):
            wanted = {key: one for key, one in fields.items() if _has_text(one.node)}
            members = [(f"f{i}", _raw_type(one.node) | msgspec.UnsetType, msgspec.UNSET) for i, one in enumerate(wanted.values())]
            return msgspec.defstruct("Raws", members, rename={f"f{i}": key for i, key in enumerate(wanted)}) | None
    return Any


def _doubled(node: Any) -> Any:
    """JSON numbers are doubles: a float column widens at the first JSON it gets, as Iceberg allows."""
    match node:
        case Scalar(kind) if kind == pa.float32():
            return Scalar(pa.float64(), landed=node.landed)
        case ListOf(item):
            return ListOf(_doubled(item))
        case Struct(fields, landed):
            return Struct({key: Field(_doubled(one.node), one.name) for key, one in fields.items()}, landed)
    return node


_plans: OrderedDict[bytes, JsonPlan] = OrderedDict()
_lock = threading.Lock()
_PLANS_MAX: Final = 32


def plan_for(schema: pa.Schema) -> JsonPlan:
    """The plan of a schema, metadata included; kept for the schemas used last. Thread safe."""
    identity = schema.serialize().to_pybytes()
    with _lock:
        plan = _plans.get(identity)
        if plan is not None:
            _plans.move_to_end(identity)
            return plan
    root = _doubled(from_arrow(schema))
    plan = JsonPlan(root, to_arrow(root))
    with _lock:
        _plans[identity] = plan
        while len(_plans) > _PLANS_MAX:
            _plans.popitem(last=False)
    return plan
