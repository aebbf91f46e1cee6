"""The item table in memory: for tests and as the model other backends are compared with. Nothing outlives the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from catalog.items.checks import applied, check_key, check_transaction, checked, op_key
from catalog.items.table import ConditionFailed, Delete, Expect, Item, Op, Put, Update, Value, holds

__all__ = ["MemoryItemTable"]

_PAGE_ITEMS = 500


class MemoryItemTable:
    """Items in a dictionary behind one lock. Safe for several threads."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._items: dict[tuple[str, str], dict[str, Value]] = {}

    @property
    def name(self) -> str:
        return self._name

    def get(self, pk: str, sk: str) -> Item | None:
        check_key(pk, sk)
        with self._lock:
            item = self._items.get((pk, sk))
            return None if item is None else dict(item)

    def query(self, pk: str, sk_prefix: str = "") -> Iterator[Item]:
        check_key(pk, sk_prefix or "-")
        return self._pages(pk, sk_prefix)

    def put(self, item: Item, expect: Expect) -> None:
        self._write((checked(Put(item, expect)),))

    def update(self, update: Update) -> Item:
        (item,) = self._write((checked(update),))
        return dict(item or {})

    def delete(self, pk: str, sk: str, expect: Expect) -> None:
        self._write((checked(Delete(pk, sk, expect)),))

    def transact(self, ops: Sequence[Op]) -> None:
        check_transaction(ops)
        self._write(ops)

    def close(self) -> None:
        """Nothing to release."""

    def _pages(self, pk: str, sk_prefix: str) -> Iterator[Item]:
        after: str | None = None
        while True:
            with self._lock:
                keys = sorted(
                    sk for p, sk in self._items if p == pk and sk.startswith(sk_prefix) and (after is None or sk > after)
                )[:_PAGE_ITEMS]
                page = [dict(self._items[pk, sk]) for sk in keys]
            yield from page
            if len(keys) < _PAGE_ITEMS:
                return
            after = keys[-1]

    def _write(self, ops: Sequence[Op]) -> list[dict[str, Value] | None]:
        with self._lock:
            before = [self._items.get(op_key(op)) for op in ops]
            failed = [i for i, op in enumerate(ops) if not holds(op.expect, before[i])]
            if failed:
                keys = [op_key(ops[i]) for i in failed]
                stood = [None if item is None else dict(item) for item in before]
                raise ConditionFailed(f"{self._name}: the condition on {keys} does not hold", stood, failed)
            after = [applied(op, item) for op, item in zip(ops, before, strict=True)]
            for op, item in zip(ops, after, strict=True):
                if item is None:
                    self._items.pop(op_key(op), None)
                else:
                    self._items[op_key(op)] = item
            return after
