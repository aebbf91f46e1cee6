"""JSON as the log stores it: one spelling per value, and members that have to be there with their type."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["Fields", "canonical_json"]

_T = TypeVar("_T")


def canonical_json(plain: object) -> bytes:
    """Sorted keys, no blanks, ASCII: equal values have equal bytes."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


class Fields:
    """A JSON object whose members have to be there with their type."""

    def __init__(self, plain: object, what: str) -> None:
        if not isinstance(plain, Mapping):
            raise TypeError(f"{what} is not an object")
        self._plain, self._what = plain, what

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def number(self, name: str) -> int:
        value = self._typed(name, int)
        if value < 0:
            raise ValueError(f"{name} of {self._what} is {value}")
        return value

    def digest(self, name: str) -> str:
        value = self.text(name)
        if len(bytes.fromhex(value)) != 32:
            raise ValueError(f"{name} of {self._what} is no sha256")
        return value

    def base64(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.text(name), validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name} of {self._what} is not base64: {error}") from None

    def object(self, name: str) -> Fields:
        return Fields(self._typed(name, dict), name)

    def objects(self, name: str) -> list[Fields]:
        return [Fields(item, f"an element of {name}") for item in self._typed(name, list)]

    def texts(self, name: str) -> tuple[str, ...]:
        items = self._typed(name, list)
        if not items or not all(isinstance(item, str) for item in items):
            raise TypeError(f"{name} of {self._what} is not a list of strings")
        return tuple(items)

    def _typed(self, name: str, kind: type[_T]) -> _T:
        value = self._plain[name]
        if type(value) is not kind:
            raise TypeError(f"{name} of {self._what} is {value!r}")
        return value
