"""What every item table refuses and how it applies an update, in one place, so that no backend accepts what another would not.

The limits are DynamoDB's, checked before anything is sent: an item that fits SQLite and fails in production helps nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from catalog.errors import InvalidRequest
from catalog.items.table import TRANSACT_OPS_MAX, Delete, Item, Op, Put, Update, Value

__all__ = [
    "ITEM_BYTES_MAX", "PK_BYTES_MAX", "SK_BYTES_MAX", "TRANSACT_BYTES_MAX", "applied", "check_item", "check_key", "check_op",
    "check_transaction", "checked", "item_bytes", "op_key", "prefix_end",
]

PK_BYTES_MAX: Final = 2048
SK_BYTES_MAX: Final = 1024
ITEM_BYTES_MAX: Final = 400 * 1024
TRANSACT_BYTES_MAX: Final = 4 * 1024 * 1024
_INT_MAX: Final = 2**63 - 1
_NUMBER_BYTES: Final = 21
_LIST_BYTES: Final = 3


def check_key(pk: str, sk: str) -> None:
    """Raise InvalidRequest where the key is empty, too long or not text."""
    for name, value, bytes_max in (("PK", pk, PK_BYTES_MAX), ("SK", sk, SK_BYTES_MAX)):
        if not isinstance(value, str) or not value:
            raise InvalidRequest(f"{name} {value!r} of an item is not a non-empty string")
        if len(value) * 4 > bytes_max and _text_bytes(value, name) > bytes_max:
            raise InvalidRequest(f"{name} {value[:100]!r}... has {_text_bytes(value, name)} bytes, at most {bytes_max} are allowed")
        if not value.isascii():
            _text_bytes(value, name)


def check_item(item: Item) -> int:
    """Size of the item in bytes. Raises InvalidRequest where no backend could hold it: key, types, numbers beyond 64 bits, size."""
    check_key(item.get("PK"), item.get("SK"))  # type: ignore[arg-type]  # None and other types are what is refused
    size = item_bytes(item)
    if size > ITEM_BYTES_MAX:
        raise InvalidRequest(f"item {item['PK']!r} {item['SK']!r} has {size} bytes, at most {ITEM_BYTES_MAX} are allowed")
    return size


def item_bytes(attributes: Mapping[str, Value]) -> int:
    """Size as DynamoDB counts it (numbers at their upper bound). Raises InvalidRequest for a value of a foreign type."""
    size = 0
    for name, value in attributes.items():
        if type(value) is str and value.isascii() and name.isascii():  # nearly every attribute of ours
            size += len(name) + len(value)
        else:
            size += _text_bytes(name, "attribute name") + _value_bytes(name, value)
    return size


def op_key(op: Op) -> tuple[str, str]:
    """(PK, SK) the operation writes."""
    if isinstance(op, Put):
        return str(op.item["PK"]), str(op.item["SK"])
    return op.pk, op.sk


def check_op(op: Op) -> int:
    """Bytes the operation carries. Raises InvalidRequest where it could never be applied."""
    if isinstance(op, Put):
        return check_item(op.item)
    check_key(op.pk, op.sk)
    return _check_update(op) if isinstance(op, Update) else 0


def checked(op: Op) -> Op:
    """The operation. Raises InvalidRequest where it could never be applied."""
    check_op(op)
    return op


def check_transaction(ops: Sequence[Op]) -> None:
    """Raise InvalidRequest for an empty or too big transaction, a key written twice, or an operation that could never be applied."""
    if not 1 <= len(ops) <= TRANSACT_OPS_MAX:
        raise InvalidRequest(f"a transaction has 1 to {TRANSACT_OPS_MAX} operations, not {len(ops)}")
    keys: set[tuple[str, str]] = set()
    size = 0
    for op in ops:
        size += check_op(op)
        key = op_key(op)
        if key in keys:
            raise InvalidRequest(f"a transaction writes the key {key!r} twice")
        keys.add(key)
    if size > TRANSACT_BYTES_MAX:
        raise InvalidRequest(f"a transaction of {size} bytes is over the limit of {TRANSACT_BYTES_MAX}")


def applied(op: Op, item: Item | None) -> dict[str, Value] | None:
    """The item after the operation, whose condition holds; None after a delete. Raises InvalidRequest."""
    if isinstance(op, Put):
        return dict(op.item)
    if isinstance(op, Delete):
        return None
    result: dict[str, Value] = {"PK": op.pk, "SK": op.sk} if item is None else dict(item)
    result.update(op.set)
    for name, amount in op.add.items():
        stored = result.get(name, 0)
        if isinstance(stored, bool) or not isinstance(stored, int):
            raise InvalidRequest(f"cannot add {amount} to {name} of {op.pk!r} {op.sk!r}: it is {stored!r}, not a number")
        result[name] = stored + amount
    for name in op.remove:
        result.pop(name, None)
    check_item(result)
    return result


def prefix_end(prefix: str) -> str | None:
    """The least string above everything that starts with the prefix, in UTF-8 byte order; None where there is none."""
    while prefix:
        last = ord(prefix[-1])
        prefix = prefix[:-1]
        if last < 0x10FFFF:
            return prefix + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def _check_update(update: Update) -> int:
    names = [*update.set, *update.add, *update.remove]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"an update of {update.pk!r} {update.sk!r} names an attribute twice: {sorted(names)}")
    if "PK" in names or "SK" in names:
        raise InvalidRequest(f"an update of {update.pk!r} {update.sk!r} cannot change its key")
    for name, amount in update.add.items():
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise InvalidRequest(f"cannot add {amount!r} to {name}: it is not a number")
    return item_bytes(update.set) + item_bytes(update.add)


def _value_bytes(name: str, value: Value) -> int:
    if isinstance(value, str):
        return _text_bytes(value, name)
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        if not -_INT_MAX <= value <= _INT_MAX:
            raise InvalidRequest(f"attribute {name}: {value} does not fit 64 bits")
        return _NUMBER_BYTES
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, tuple) and all(isinstance(element, str) for element in value):
        return _LIST_BYTES + sum(1 + _text_bytes(element, name) for element in value)
    raise InvalidRequest(f"attribute {name}: {value!r} is none of str, int, bool, bytes, tuple of str")


def _text_bytes(text: str, name: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} {text[:100]!r} is not valid Unicode text") from None
