"""An item table whose answers get lost, as on a network: applied and lost, held back and applied later, retried by an SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from catalog.errors import OutcomeUnknown, Unavailable
from catalog.items.table import ConditionFailed, Delete, Expect, Item, ItemTable, Op, Put, Update

Fault = Literal["ok", "lost_after", "lost_before", "late", "sdk_retry", "down"]


class FaultyTable:
    """Each write takes the next fault of the script; after its end everything works.

    lost_after: applied, then no answer. lost_before: never arrives, no answer. late: no answer, applied when `deliver` is called.
    sdk_retry: applied, and sent again by the client library, whose condition then fails. down: refused before it is sent.
    """

    def __init__(self, table: ItemTable, script: Sequence[Fault] = ()) -> None:
        self._table = table
        self.script = list(script)
        self.writes: list[tuple[Op, ...]] = []
        self.gets: list[str] = []
        self._late: list[Callable[[], object]] = []

    @property
    def name(self) -> str:
        return self._table.name

    def get(self, pk: str, sk: str) -> Item | None:
        self.gets.append(sk)
        return self._table.get(pk, sk)

    def query(self, pk: str, sk_prefix: str = "") -> Iterator[Item]:
        return self._table.query(pk, sk_prefix)

    def put(self, item: Item, expect: Expect) -> None:
        self._run((Put(item, expect),), lambda: self._table.put(item, expect))

    def update(self, update: Update) -> Item:
        return self._run((update,), lambda: self._table.update(update))  # type: ignore[return-value]

    def delete(self, pk: str, sk: str, expect: Expect) -> None:
        self._run((Delete(pk, sk, expect),), lambda: self._table.delete(pk, sk, expect))

    def transact(self, ops: Sequence[Op]) -> None:
        self._run(tuple(ops), lambda: self._table.transact(ops))

    def close(self) -> None:
        self._table.close()

    def deliver(self) -> list[bool]:
        """Let every held-back write arrive; whether each was applied."""
        arrived = []
        for write in self._late:
            try:
                write()
                arrived.append(True)
            except ConditionFailed:
                arrived.append(False)
        self._late.clear()
        return arrived

    def _run(self, ops: tuple[Op, ...], write: Callable[[], object]) -> object:
        self.writes.append(ops)
        match self.script.pop(0) if self.script else "ok":
            case "lost_before":
                raise OutcomeUnknown("the request timed out")
            case "late":
                self._late.append(write)
                raise OutcomeUnknown("the request timed out")
            case "down":
                raise Unavailable("the table does not answer")
            case "lost_after":
                write()
                raise OutcomeUnknown("the answer timed out")
            case "sdk_retry":
                write()
                return write()
            case _:
                return write()
