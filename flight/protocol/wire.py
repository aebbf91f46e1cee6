"""A small protobuf codec: proto3 messages declared as frozen dataclasses.

A message subclasses `Message` and declares each field as `Annotated[type, Proto(number, kind)]`. The wire rules kept are those of protobuf:
unknown fields and fields of another wire type are skipped, the last of several scalars wins, several parts of one sub-message
are merged, packed and unpacked repeated numbers are both read, and an `optional` field that is absent stays None, which is not
the same as present and empty. What cannot be decoded raises `InvalidRequest` and nothing else, whatever the bytes.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, TypeVar, dataclass_transform, get_type_hints

from catalog.errors import InvalidRequest

__all__ = ["Message", "Proto", "decode", "encode"]

Scalar = Literal["string", "bytes", "bool", "int32", "int64", "uint32", "sfixed64", "double"]
Label = Literal["singular", "optional", "repeated", "map"]
M = TypeVar("M", bound="Message")

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED32: Final = 5
_MAX_DEPTH: Final = 32
_WIRE_TYPE: Final[Mapping[str, int]] = {
    "string": _LENGTH, "bytes": _LENGTH, "bool": _VARINT, "int32": _VARINT, "int64": _VARINT, "uint32": _VARINT,
    "sfixed64": _FIXED64, "double": _FIXED64,
}
_DEFAULT: Final[Mapping[str, object]] = {
    "string": "", "bytes": b"", "bool": False, "int32": 0, "int64": 0, "uint32": 0, "sfixed64": 0, "double": 0.0,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Proto:
    """A field on the wire: its number, its type (of the values, for a `map` from strings), and its label."""

    number: int
    kind: Scalar | type[Message]
    label: Label = "singular"


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    number: int
    kind: str | type[Message]
    label: Label
    wire_type: int


@dataclass_transform(field_specifiers=(dataclasses.field,), frozen_default=True)
class Message:
    """Base of every message; `NAME` is its full protobuf name, used as the type URL inside an Any.

    A default is what protobuf gives an absent field: zero or empty; None for `optional` and for sub-messages.
    """

    NAME: ClassVar[str] = ""
    FIELDS: ClassVar[Mapping[int, _Field]] = {}

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        fields = {}
        for name, hint in get_type_hints(cls, include_extras=True).items():
            proto = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Proto)), None)
            if proto is None:
                continue
            wire_type = _WIRE_TYPE[proto.kind] if isinstance(proto.kind, str) and proto.label != "map" else _LENGTH
            fields[proto.number] = _Field(name, proto.number, proto.kind, proto.label, wire_type)
        cls.FIELDS = fields


# Encoding

def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _payload(kind: str | type[Message], value: Any) -> bytes:
    if not isinstance(kind, str):
        body = encode(value)
        return _varint(len(body)) + body
    if kind in ("string", "bytes"):
        body = value.encode() if kind == "string" else bytes(value)
        return _varint(len(body)) + body
    if kind == "sfixed64":
        return struct.pack("<q", value)
    if kind == "double":
        return struct.pack("<d", value)
    return _varint(int(value))


def encode(message: Message) -> bytes:
    """The message on the wire, fields in order of declaration; what equals its default is left out."""
    out = []
    for field in message.FIELDS.values():
        value = getattr(message, field.name)
        if value is None:
            continue
        if field.label == "map":
            for key, item in value.items():
                entry = _tag(1, _LENGTH) + _payload("string", key)
                entry += _tag(2, _LENGTH if not isinstance(field.kind, str) else _WIRE_TYPE[field.kind])
                entry += _payload(field.kind, item)
                out.append(_tag(field.number, _LENGTH) + _varint(len(entry)) + entry)
        elif field.label == "repeated":
            out.extend(_tag(field.number, field.wire_type) + _payload(field.kind, item) for item in value)
        elif field.label == "optional" or not isinstance(field.kind, str) or value != _DEFAULT[field.kind]:
            out.append(_tag(field.number, field.wire_type) + _payload(field.kind, value))
    return b"".join(out)


# Decoding

def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while shift < 70:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at + 1
            shift += 7
    except IndexError:
        raise InvalidRequest("malformed protobuf message: it ends inside a number") from None
    raise InvalidRequest("malformed protobuf message: a number longer than 10 bytes")


def _skip_group(data: bytes, at: int, number: int, depth: int) -> int:
    """Position after the end of the group that starts before `at`."""
    if depth > _MAX_DEPTH:
        raise InvalidRequest(f"malformed protobuf message: groups nested deeper than {_MAX_DEPTH}")
    while True:
        tag, at = _read_varint(data, at)
        if tag & 7 == _END_GROUP:
            if tag >> 3 != number:
                raise InvalidRequest("malformed protobuf message: a group ends that did not start")
            return at
        _, at = _read_value(data, at, tag, depth)


def _read_value(data: bytes, at: int, tag: int, depth: int) -> tuple[int | bytes, int]:
    """The raw value after `tag` (a number, or the bytes of anything else) and the position after it."""
    wire_type = tag & 7
    if wire_type == _VARINT:
        return _read_varint(data, at)
    if wire_type == _LENGTH:
        length, at = _read_varint(data, at)
    elif wire_type == _FIXED64:
        length = 8
    elif wire_type == _FIXED32:
        length = 4
    elif wire_type == _START_GROUP:
        return b"", _skip_group(data, at, tag >> 3, depth + 1)
    else:
        raise InvalidRequest(f"malformed protobuf message: unknown wire type {wire_type}")
    end = at + length
    if end > len(data):
        raise InvalidRequest("malformed protobuf message: it ends inside a field")
    return data[at:end], end


def _records(data: bytes, depth: int) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, raw value) of every field of a message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        if not 0 < tag >> 3 < 1 << 29:
            raise InvalidRequest(f"malformed protobuf message: field number {tag >> 3}")
        value, at = _read_value(data, at, tag, depth)
        yield tag >> 3, tag & 7, value


def _number(kind: str, raw: int) -> int | bool:
    if kind == "bool":
        return raw != 0
    if kind == "uint32":
        return raw & 0xFFFFFFFF
    if kind == "int32":
        raw &= 0xFFFFFFFF
        return raw - (1 << 32) if raw >= 1 << 31 else raw
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _scalar(kind: str, raw: Any) -> Any:
    if kind == "string":
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"malformed protobuf message: text that is not UTF-8 ({error.reason})") from None
    if kind == "bytes":
        return raw
    if kind == "sfixed64":
        return struct.unpack("<q", raw)[0]
    if kind == "double":
        return struct.unpack("<d", raw)[0]
    return _number(kind, raw)


def _packed(kind: str, raw: bytes) -> Iterator[Any]:
    if kind in ("sfixed64", "double"):
        if len(raw) % 8:
            raise InvalidRequest("malformed protobuf message: a packed field ends inside a number")
        for at in range(0, len(raw), 8):
            yield _scalar(kind, raw[at:at + 8])
        return
    at = 0
    while at < len(raw):
        value, at = _read_varint(raw, at)
        yield _number(kind, value)


def _map_entry(field: _Field, raw: bytes, depth: int) -> tuple[str, Any]:
    key, value = "", None
    parts = b""
    for number, wire_type, item in _records(raw, depth):
        if number == 1 and wire_type == _LENGTH:
            key = _scalar("string", item)
        elif number == 2 and isinstance(field.kind, str) and wire_type == _WIRE_TYPE[field.kind]:
            value = _scalar(field.kind, item)
        elif number == 2 and not isinstance(field.kind, str) and wire_type == _LENGTH:
            parts += item  # type: ignore[operator]  # a field of wire type 2 is bytes
    if not isinstance(field.kind, str):
        return key, decode(field.kind, parts, depth + 1)
    return key, _DEFAULT[field.kind] if value is None else value


def decode(cls: type[M], data: bytes, depth: int = 0) -> M:
    """Read a message of class `cls`. Raises InvalidRequest for anything that is not one, and no other error."""
    if depth > _MAX_DEPTH:
        raise InvalidRequest(f"malformed protobuf message: nested deeper than {_MAX_DEPTH}")
    values: dict[str, Any] = {}
    parts: dict[str, bytes] = {}
    for number, wire_type, raw in _records(data, depth):
        field = cls.FIELDS.get(number)
        if field is None:
            continue
        kind = field.kind
        if wire_type != field.wire_type:
            if field.label == "repeated" and wire_type == _LENGTH and isinstance(kind, str) and isinstance(raw, bytes):
                values.setdefault(field.name, []).extend(_packed(kind, raw))
            continue
        if field.label == "map":
            key, item = _map_entry(field, raw, depth + 1)  # type: ignore[arg-type]  # wire type 2 is bytes
            values.setdefault(field.name, {})[key] = item
        elif field.label == "repeated":
            item = _scalar(kind, raw) if isinstance(kind, str) else decode(kind, raw, depth + 1)  # type: ignore[arg-type]
            values.setdefault(field.name, []).append(item)
        elif isinstance(kind, str):
            values[field.name] = _scalar(kind, raw)
        else:
            parts[field.name] = parts.get(field.name, b"") + raw  # type: ignore[operator]  # several parts are one message
    for field in cls.FIELDS.values():
        if field.name in parts:
            values[field.name] = decode(field.kind, parts[field.name], depth + 1)  # type: ignore[arg-type]
        elif field.label == "repeated" and field.name in values:
            values[field.name] = tuple(values[field.name])
    return cls(**values)
