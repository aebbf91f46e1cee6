"""One JSON record at a time, exactly: does it fit the schema, what does it add, why is it refused.

Used only for the lines the fast path cannot vouch for. Nothing is lost or guessed here: integers keep every digit, text that looks
like a date stays text (unless `infer_dates`), a key given twice is an error instead of a choice between the two values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ingest.exact import text_as
from ingest.growth import COLUMNS_MAX, grown, merge_scalars
from ingest.typetree import (
    DEPTH_MAX,
    EXACT_IN_DOUBLE,
    TEXTUAL,
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

__all__ = ["Rejected", "Rules", "read_record", "widen_record"]

BOOL: Final = Scalar(pa.bool_())
LONG: Final = Scalar(pa.int64())
WIDE_LONG: Final = Scalar(pa.int64(), wide=True)
DOUBLE: Final = Scalar(pa.float64())
STRING: Final = Scalar(pa.string())
DATE: Final = Scalar(pa.date32())
INSTANT: Final = Scalar(pa.timestamp("us", "UTC"))
_DATE_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")
_INSTANT_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)\Z")


class Rejected(Exception):
    """The record as a whole cannot land: a stable code and words for people."""

    def __init__(self, code: str, error: str) -> None:
        super().__init__(error)
        self.code, self.error = code, error


@dataclass(frozen=True, slots=True)
class Rules:
    """`object_keys_max` and `infer_dates` of DecodeSettings."""

    keys_max: int
    infer_dates: bool


class _Repeated(dict[str, Any]):
    """An object that names a key twice. Refused where it becomes a struct, kept word for word inside JSON text."""

    key: str = ""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    repeated = _Repeated(made)
    repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return repeated


def _integer(text: str) -> int | float:
    """Beyond 38 digits no column type is left: infinity stands for "out of range"."""
    return int(text) if len(text) <= 40 else math.inf


def _constant(text: str) -> Any:
    raise Rejected("json.syntax", f"{text} is not JSON")


_decode: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_constant=_constant).decode


def read_record(line: bytes) -> dict[str, Any]:
    """The record's object. Raises Rejected with `json.syntax`, `json.not_object`, `json.too_deep` or `utf8`."""
    try:
        value = _decode(line.decode())
    except UnicodeDecodeError as error:
        raise Rejected("utf8", f"byte {error.start} of the record is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise Rejected("json.too_deep", f"more than {DEPTH_MAX} levels of nesting") from None
    except json.JSONDecodeError as error:
        raise Rejected("json.syntax", f"{error.msg} at character {error.pos} of the record") from None
    if not isinstance(value, dict):
        raise Rejected("json.not_object", f"the record is a JSON {_word(value)}, not an object")
    return value


def _word(value: object) -> str:
    return _WORDS.get(type(value), "object")


_WORDS: Final = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", _Repeated: "object",
    type(None): "null",
}


def widen_record(root: Struct, record: dict[str, Any], rules: Rules) -> Struct:
    """The schema with this record's needs in it; `root` itself where it already fits. Raises Rejected; `root` is never changed."""
    try:
        made = _object(root, record, rules, 1, COLUMNS_MAX)
    except TypeConflict as conflict:
        raise Rejected(conflict.code, str(conflict)) from None
    if not isinstance(made, Struct):
        raise Rejected("object.too_many_keys", f"the record would give the table more than {COLUMNS_MAX} columns")
    return made


def _widen(node: Node, value: Any, rules: Rules, depth: int) -> Node:
    if value is None or isinstance(node, JsonText):
        return node
    widen = _BY_TYPE[type(value)]
    return widen(node, value, rules, depth)


def _string(node: Node, value: str, rules: Rules, depth: int) -> Node:
    if not value.isascii():
        _check_text(value)
    match node:
        case Scalar(kind):
            if kind == STRING.type or ((kind in TEXTUAL or pa.types.is_decimal(kind)) and _converts(value, kind)):
                return node
        case Unknown():
            if rules.infer_dates and _INSTANT_TEXT.match(value) and _converts(value, INSTANT.type):
                return INSTANT
            if rules.infer_dates and _DATE_TEXT.match(value) and _converts(value, DATE.type):
                return DATE
            return STRING
    raise TypeConflict("type.conflict", describe(node), f"string {value[:40]!r}")


def _converts(value: str, kind: pa.DataType) -> bool:
    return not text_as(pa.array([value]), kind)[1].any()


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeConflict("json.syntax", "text", "half a surrogate pair (\\ud800 to \\udfff alone), which no text can hold") from None


def _bool(node: Node, value: bool, rules: Rules, depth: int) -> Node:
    if isinstance(node, Unknown):
        return BOOL
    if isinstance(node, Scalar) and node.type == BOOL.type:
        return node
    raise TypeConflict("type.conflict", describe(node), f"boolean {str(value).lower()}")


def _int(node: Node, value: int, rules: Rules, depth: int) -> Node:
    fits = -(2**63) <= value < 2**63
    match node:
        case Unknown() if fits:
            return LONG if -EXACT_IN_DOUBLE < value < EXACT_IN_DOUBLE else WIDE_LONG
        case Unknown() if abs(value) < 10**38:
            return Scalar(pa.decimal128(38, 0))
        case Scalar(kind, wide, landed) if kind == LONG.type and fits:
            return node if wide or landed or -EXACT_IN_DOUBLE < value < EXACT_IN_DOUBLE else WIDE_LONG
        case Scalar(kind) if kind == pa.int32() and fits:
            return node if -(2**31) <= value < 2**31 else merge_scalars(node, LONG)
        case Scalar(kind) if pa.types.is_floating(kind) and int(float(value)) == value:
            return merge_scalars(node, DOUBLE)
        case Scalar(kind) if pa.types.is_decimal(kind) and abs(value) * 10**kind.scale < 10**kind.precision:
            return node
        case Scalar(kind) if pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_integer(kind):
            raise TypeConflict("number.range", f"{describe(node)}, exactly", f"integer {value}")
        case Unknown():
            raise TypeConflict("number.range", "at most 38 digits", f"integer of {len(str(abs(value)))} digits")
    raise TypeConflict("type.conflict", describe(node), f"integer {value}")


def _float(node: Node, value: float, rules: Rules, depth: int) -> Node:
    if math.isinf(value):
        raise TypeConflict("number.range", describe(node), "a number outside the range of a double")
    match node:
        case Unknown():
            return DOUBLE
        case Scalar(kind) if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            try:
                return merge_scalars(node, DOUBLE)
            except TypeConflict:
                raise TypeConflict("type.conflict", describe(node), f"number {value!r}") from None
        case Scalar(kind) if pa.types.is_decimal(kind) and _converts(repr(value), kind):
            return node
    raise TypeConflict("type.conflict", describe(node), f"number {value!r}")


def _list(node: Node, value: list[Any], rules: Rules, depth: int) -> Node:
    if depth >= DEPTH_MAX:
        raise TypeConflict("json.too_deep", f"at most {DEPTH_MAX} levels of nesting", "more")
    if isinstance(node, ListOf):
        item: Node = node.item
    elif isinstance(node, Unknown):
        item = UNKNOWN
    else:
        raise TypeConflict("type.conflict", describe(node), "array")
    was = item
    for index, one in enumerate(value):
        try:
            item = _widen(item, one, rules, depth + 1)
        except TypeConflict as conflict:
            conflict.path.append(f"[{index}]")
            raise
    return node if item is was and isinstance(node, ListOf) else ListOf(item)


def _struct(node: Node, value: dict[str, Any], rules: Rules, depth: int) -> Node:
    if depth >= DEPTH_MAX:
        raise TypeConflict("json.too_deep", f"at most {DEPTH_MAX} levels of nesting", "more")
    match node:
        case Struct():
            return _object(node, value, rules, depth + 1, rules.keys_max)
        case Unknown():
            return _object(Struct(), value, rules, depth + 1, rules.keys_max)
        case MapOf():
            return node
    raise TypeConflict("type.conflict", describe(node), "object")


def _object(node: Struct, value: dict[str, Any], rules: Rules, depth: int, keys_max: int) -> Struct | JsonText:
    if isinstance(value, _Repeated):
        conflict = TypeConflict("json.duplicate_key", "every key once", "it twice in one object")
        conflict.path.append(value.key)
        raise conflict
    fields, changed = node.fields, {}
    if len(value) > keys_max and not node.landed and len(value.keys() | fields.keys()) > keys_max:
        return grown(node, {key: Field(UNKNOWN) for key in value if key not in fields}, keys_max)
    for key, one in value.items():
        known = fields.get(key)
        was = UNKNOWN if known is None else known.node
        try:
            if known is None and not key.isascii():
                _check_text(key)
            now = _widen(was, one, rules, depth)
        except TypeConflict as conflict:
            conflict.path.append(key)
            raise
        if known is None:
            changed[key] = Field(now)
        elif now is not was:
            changed[key] = Field(now, known.name)
    return grown(node, changed, keys_max) if changed else node


_BY_TYPE: Final[dict[type, Callable[[Node, Any, Rules, int], Node]]] = {
    str: _string, bool: _bool, int: _int, float: _float, list: _list, dict: _struct, _Repeated: _struct,
}
