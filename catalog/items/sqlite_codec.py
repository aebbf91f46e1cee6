"""Attributes of an item as the JSON text of a SQLite row, types preserved.

str, int and bool are themselves; a tuple of strings is an array; bytes are `{"b64": "..."}`. The keys are columns and left out.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from catalog.errors import DataCorruption
from catalog.items.table import Item, Value

__all__ = ["decode_item", "encode_item"]

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(dict[str, str | int | bool | list[str] | dict[str, str]])


def encode_item(item: Item) -> str:
    """JSON text of the item's attributes without PK and SK."""
    attributes: dict[str, object] = {}
    for name, value in item.items():
        if name == "PK" or name == "SK":
            continue
        attributes[name] = {"b64": base64.b64encode(value).decode("ascii")} if isinstance(value, bytes) else value
    return _ENCODER.encode(attributes).decode()


def decode_item(pk: str, sk: str, text: str, where: str) -> dict[str, Value]:
    """Inverse of `encode_item`. Raises DataCorruption naming the row."""
    try:
        attributes = _DECODER.decode(text)
    except (msgspec.DecodeError, TypeError) as error:
        raise DataCorruption(f"{where}: row {pk!r} {sk!r} does not hold an item ({error})") from error
    item: dict[str, Value] = {"PK": pk, "SK": sk}
    for name, value in attributes.items():
        if isinstance(value, list):
            item[name] = tuple(value)
        elif isinstance(value, dict):
            item[name] = _bytes(value, f"{where}: row {pk!r} {sk!r}, attribute {name}")
        else:
            item[name] = value
    return item


def _bytes(value: dict[str, str], where: str) -> bytes:
    try:
        if value.keys() == {"b64"}:
            return base64.b64decode(value["b64"], validate=True)
    except binascii.Error:
        pass
    raise DataCorruption(f"{where}: {value!r} is not bytes in base64")
