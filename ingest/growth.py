"""How the types of a table grow, and what they refuse.

Two records never disagree silently: a change is either exact for every row already read, or the record that would need it is a
`TypeConflict` and goes to dead letters.

Rules of growth (`merge`), the same for every format and independent of the order of files as far as rows already written allow:

* a field not seen before becomes a column; columns are never removed and never made required;
* only null, `{}` or `[]` seen: the type is deferred (`null`, `struct<>`, `list<null>` in Arrow), the column is not written yet;
* int -> long, float -> double, decimal(p, s) -> decimal(p', s);
* int or long -> double unless the column is *wide* (it held an integer beyond 2^53) or *landed* (the table has it as an integer:
  Iceberg has no such promotion). Then 1.5 is a conflict of that record;
* struct -> JSON text when an object shows more than `object_keys_max` distinct keys and is not landed;
* anything else is a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ingest.typetree import (
    FLOATS,
    INTS,
    UNKNOWN,
    Field,
    JsonText,
    ListOf,
    MapOf,
    Node,
    Scalar,
    Struct,
    TypeConflict,
    Unknown,
    describe,
)

__all__ = ["COLUMNS_MAX", "grown", "merge", "merge_roots", "merge_scalars", "merge_structs"]

COLUMNS_MAX: Final = 2000
"""Top-level fields a table may have; a record that would bring more goes to dead letters."""


def merge(have: Node, come: Node, keys_max: int, conflicts: list[TypeConflict] | None = None) -> Node:
    """The node both fit into; `have` itself where nothing changes.

    Where they do not fit: raises TypeConflict, or with `conflicts` given notes it there and keeps `have` at that place.
    """
    if isinstance(come, Unknown) or have == come:
        return have
    try:
        match have, come:
            case Unknown(), _:
                return _unnamed(come, keys_max)
            case Scalar(), Scalar():
                return merge_scalars(have, come)
            case Struct(), Struct():
                return merge_structs(have, come, keys_max, conflicts)
            case ListOf(item), ListOf(other):
                merged = merge(item, other, keys_max, conflicts)
                return have if merged is item else ListOf(merged)
            case JsonText(), _:
                return have
            case Struct(landed=False), JsonText():
                return come
            case MapOf(), Struct() | MapOf() | JsonText():
                return have
        raise TypeConflict("type.conflict", describe(have), describe(come))
    except TypeConflict as conflict:
        if conflicts is None:
            raise
        conflicts.append(conflict)
        return have


def _unnamed(node: Node, keys_max: int) -> Node:
    """A node as part of another tree: its columns are named there."""
    match node:
        case Struct(fields):
            if len(fields) > keys_max:
                return JsonText()
            return Struct({key: Field(_unnamed(one.node, keys_max)) for key, one in fields.items()})
        case ListOf(item):
            return ListOf(_unnamed(item, keys_max))
    return node


def merge_scalars(have: Scalar, come: Scalar) -> Scalar:
    """Widen exactly or raise TypeConflict."""
    old, new = have.type, come.type
    wide = have.wide or come.wide
    if old == new:
        return have if wide == have.wide else replace(have, wide=wide)
    if old in INTS and new in INTS:
        return replace(have, type=pa.int64(), wide=wide) if old == pa.int32() else have
    if old in FLOATS and new in FLOATS:
        return replace(have, type=pa.float64()) if old == pa.float32() else have
    if old in INTS and new in FLOATS and not (have.landed or have.wide):
        return Scalar(pa.float64())
    if old in FLOATS and new in INTS:
        return have if old == pa.float64() else replace(have, type=pa.float64())
    if pa.types.is_decimal(old) and pa.types.is_decimal(new) and old.scale == new.scale:
        return have if old.precision >= new.precision else replace(have, type=new)
    if pa.types.is_decimal(old) and old.scale == 0 and new in INTS and old.precision >= (10 if new == pa.int32() else 19):
        return have
    raise TypeConflict("type.conflict", describe(have), describe(come))


def merge_roots(have: Struct, come: Struct, keys_max: int, conflicts: list[TypeConflict]) -> Struct:
    """Union of the columns of two tables; conflicts are noted. Beyond COLUMNS_MAX new columns are left out, and noted."""
    merged = merge_structs(Struct(have.fields), come, keys_max, conflicts, COLUMNS_MAX)
    if isinstance(merged, Struct):
        return have if merged.fields is have.fields else Struct(merged.fields, have.landed)
    count = len(have.fields.keys() | come.fields.keys())
    conflicts.append(TypeConflict("object.too_many_keys", f"at most {COLUMNS_MAX} columns", str(count)))
    known = {key: one for key, one in come.fields.items() if key in have.fields}
    return merge_roots(have, Struct(known), keys_max, []) if known else have


def merge_structs(
    have: Struct, come: Struct, keys_max: int, conflicts: list[TypeConflict] | None = None, own_max: int | None = None
) -> Struct | JsonText:
    """Union of the fields; an inner conflict is raised, or noted, with its path. `own_max`: the limit for this level alone."""
    changed: dict[str, Field] = {}
    for key, one in come.fields.items():
        known = have.fields.get(key)
        noted = len(conflicts) if conflicts is not None else 0
        try:
            node = merge(known.node if known else UNKNOWN, one.node, keys_max, conflicts)
        except TypeConflict as conflict:
            conflict.path.append(key)
            raise
        for inner in (conflicts or [])[noted:]:
            inner.path.append(key)
        if known is None:
            changed[key] = Field(node)
        elif node is not known.node:
            changed[key] = Field(node, known.name)
    return grown(have, changed, own_max or keys_max) if changed else have


def grown(have: Struct, changed: Mapping[str, Field], keys_max: int) -> Struct | JsonText:
    """`have` with fields added or replaced, or JSON text where it would have too many."""
    fields = {**have.fields, **changed}
    if len(fields) > keys_max and len(fields) > len(have.fields):
        if have.landed:
            raise TypeConflict("object.too_many_keys", f"at most {keys_max} distinct keys", f"the new key {next(iter(changed))!r}")
        return JsonText()
    return Struct(fields, have.landed)
