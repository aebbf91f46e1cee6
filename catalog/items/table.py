"""The conditional item table: the only kind of storage the control plane knows.

An item is a map with string keys `PK` and `SK` and typed attributes. Every write names the condition it relies on. Semantics
are those of DynamoDB, so that one code runs on SQLite, in memory and on DynamoDB:

* `get` and `query` are strongly consistent; `query` is ordered by SK (by UTF-8 bytes) and pages internally;
* a failed condition raises `ConditionFailed` carrying the item as it stands (None where there is none). An SDK retry can make our
  own successful write look like a failure, so a caller compares that item with what it meant to write before it decides it lost;
* a write whose answer was lost raises `catalog.errors.OutcomeUnknown`; the old value read back then proves nothing;
* throttling and transaction conflicts are retried with jitter inside the adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from catalog.errors import Conflict

__all__ = [
    "ABSENT", "EXISTS", "TRANSACT_OPS_MAX", "Absent", "ConditionFailed", "Delete", "Equals", "Exists", "Expect", "Item",
    "ItemTable",
    "Op", "Put", "Update", "Value", "holds",
]

Value = str | int | bool | bytes | tuple[str, ...]
"""Attribute types. Lists of strings are tuples in memory. bool and int are distinct types, as in DynamoDB; numbers fit 64 bits.
Keys, items and transactions keep DynamoDB's limits on every backend (`catalog.items.checks`)."""

Item = Mapping[str, Value]

TRANSACT_OPS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Absent:
    """No item stands under the key."""


@dataclass(frozen=True, slots=True)
class Exists:
    """An item stands under the key."""


@dataclass(frozen=True, slots=True)
class Equals:
    """An item stands there and every named attribute equals the value, type included. A None value means: attribute absent."""

    attributes: Mapping[str, Value | None]


Expect = Absent | Exists | Equals
ABSENT: Final = Absent()
EXISTS: Final = Exists()


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the whole item (PK and SK inside) where `expect` holds."""

    item: Item
    expect: Expect


@dataclass(frozen=True, slots=True)
class Update:
    """Set, add to (numbers; absent counts as 0) and remove attributes where `expect` holds; may create the item."""

    pk: str
    sk: str
    expect: Expect
    set: Mapping[str, Value] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item where `expect` holds."""

    pk: str
    sk: str
    expect: Expect


Op = Put | Update | Delete


class ConditionFailed(Conflict):
    """A condition did not hold. `items[i]` is what stood under the key of operation i when it was tested.

    A single write has one element. In a transaction `failed` holds the positions whose own condition failed.
    """

    def __init__(self, message: str, items: Sequence[Item | None], failed: Sequence[int] = (0,)) -> None:
        super().__init__(message)
        self.items = tuple(items)
        self.failed = tuple(failed)

    @property
    def item(self) -> Item | None:
        """The item that stood under the first key whose condition failed."""
        return self.items[self.failed[0]]


class ItemTable(Protocol):
    """A table of items. Implementations are safe for several threads, and (all but memory) several processes.

    Every write is durable on return. Raises ConditionFailed, OutcomeUnknown, Unavailable; InvalidRequest for a bad item.
    """

    @property
    def name(self) -> str: ...

    def get(self, pk: str, sk: str) -> Item | None:
        """The item under the key, or None."""
        ...

    def query(self, pk: str, sk_prefix: str = "") -> Iterator[Item]:
        """Every item of the partition whose SK starts with the prefix, in SK order."""
        ...

    def put(self, item: Item, expect: Expect) -> None: ...

    def update(self, update: Update) -> Item:
        """Apply and return the whole item as this write left it."""
        ...

    def delete(self, pk: str, sk: str, expect: Expect) -> None: ...

    def transact(self, ops: Sequence[Op]) -> None:
        """All or nothing; 1 to TRANSACT_OPS_MAX operations on distinct keys."""
        ...

    def close(self) -> None:
        """Release connections; idempotent."""
        ...


def holds(expect: Expect, item: Item | None) -> bool:
    """Whether the condition holds for the item that stands there (None = no item)."""
    match expect:
        case Absent():
            return item is None
        case Exists():
            return item is not None
        case Equals(attributes):
            return item is not None and all(_same(item.get(name), value) for name, value in attributes.items())


def _same(stored: Value | None, wanted: Value | None) -> bool:
    return type(stored) is type(wanted) and stored == wanted
