"""A simulated item table: answers get lost before or after the write, or the write lands later; the power may take the last of them.

One store is one database file, as the embedded store is: offsets and catalog share it, and its transactions are durable in their
order. With `full` (SQLite's synchronous=FULL) each is durable when it returns; without, a power cut takes some of the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from catalog.errors import OutcomeUnknown, Unavailable
from catalog.items.memory import MemoryItemTable
from catalog.items.table import ConditionFailed, Delete, Expect, Item, Op, Put, Update
from tests.simulation.faults import Chance, Hook

__all__ = ["SimItems", "SimStore"]


class SimStore:
    """The database all processes of the machine share."""

    def __init__(self, *, full: bool = True) -> None:
        self.full = full
        self.table = MemoryItemTable("sim")
        self._synced: list[Sequence[Op]] = []
        self._journal: list[Sequence[Op]] = []
        self.late: list[Sequence[Op]] = []

    def apply(self, ops: Sequence[Op]) -> None:
        """One transaction. Raises ConditionFailed."""
        self.table.transact(ops)
        if not self.full:
            self._journal.append(ops)

    def sync(self) -> None:
        """A checkpoint: what was written so far is durable."""
        self._synced += self._journal
        self._journal.clear()

    def land(self, chance: Chance) -> None:
        """One of the writes whose answer was lost arrives now; its condition decides what becomes of it."""
        ops = self.late.pop(chance.below(len(self.late)))
        with suppress(ConditionFailed):
            self.apply(ops)

    def power_cut(self, chance: Chance) -> None:
        """Requests on their way are gone; without `full`, so are some of the last transactions."""
        self.late.clear()
        if self.full:
            return
        del self._journal[chance.between(0, len(self._journal)):]
        self.sync()
        self.table = MemoryItemTable("sim")
        for ops in self._synced:
            self.table.transact(ops)


class SimItems:
    """The store as one process sees it (an `ItemTable`). `hook` may end the process at any call."""

    def __init__(self, store: SimStore, hook: Hook, fate: Callable[[], str]) -> None:
        """`fate` says what becomes of the next write: "ok", "refused" (throttled), "before" (lost), "after" (answer lost), "late"."""
        self._store, self._hook, self._fate = store, hook, fate

    @property
    def name(self) -> str:
        return "sim"

    def get(self, pk: str, sk: str) -> Item | None:
        self._hook("items.get")
        return self._store.table.get(pk, sk)

    def query(self, pk: str, sk_prefix: str = "") -> Iterator[Item]:
        self._hook("items.query")
        return iter(list(self._store.table.query(pk, sk_prefix)))

    def put(self, item: Item, expect: Expect) -> None:
        self._write([Put(item, expect)])

    def update(self, update: Update) -> Item:
        self._write([update])
        return self._store.table.get(update.pk, update.sk) or {}

    def delete(self, pk: str, sk: str, expect: Expect) -> None:
        self._write([Delete(pk, sk, expect)])

    def transact(self, ops: Sequence[Op]) -> None:
        self._write(ops)

    def close(self) -> None:
        """Nothing to release."""

    def _write(self, ops: Sequence[Op]) -> None:
        self._hook("items.write")
        fate = self._fate()
        if fate == "refused":
            raise Unavailable("simulated: the store does not take the write now")
        if fate == "late":
            self._store.late.append(list(ops))
        if fate in ("ok", "after"):
            self._store.apply(ops)
        self._hook("items.written")
        if fate != "ok":
            raise OutcomeUnknown("simulated: the answer was lost")
