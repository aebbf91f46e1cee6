"""Any sequence of operations does to an item table what it does to a plain dictionary written independently of it."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from catalog.items.table import (
    ABSENT,
    EXISTS,
    Absent,
    ConditionFailed,
    Delete,
    Equals,
    Exists,
    Expect,
    Item,
    ItemTable,
    Op,
    Put,
    Update,
)
from tests.helpers_items import BACKENDS, open_table

SORT_KEYS = st.sampled_from(["a", "a#", "a#1", "ą", "b", "\U0001f600"])
NAMES = st.sampled_from(["x", "y", "z"])
VALUES = st.one_of(
    st.integers(-3, 3), st.booleans(), st.sampled_from(["", "1", "ł"]), st.sampled_from([b"", b"1"]), st.sampled_from([(), ("a", "b")])
)
EXPECTS: st.SearchStrategy[Expect] = st.one_of(
    st.just(ABSENT), st.just(EXISTS), st.dictionaries(NAMES, st.none() | VALUES, max_size=2).map(Equals)
)
RUNS = itertools.count()


def allowed(expect: Expect, item: dict[str, object] | None) -> bool:
    if isinstance(expect, Absent):
        return item is None
    if isinstance(expect, Exists) or item is None:
        return item is not None
    # repr tells 1 from True and "1" from b"1"
    return all(repr(item.get(name)) == repr(value) for name, value in expect.attributes.items())


def after(op: Op, item: dict[str, object] | None) -> dict[str, object] | None:
    if isinstance(op, Delete):
        return None
    if isinstance(op, Put):
        return dict(op.item)
    left: dict[str, object] = {**(item or {"PK": op.pk, "SK": op.sk}), **op.set}
    for name, amount in op.add.items():
        left[name] = int(str(left.get(name, 0))) + amount
    return {name: value for name, value in left.items() if name not in op.remove}


class TableMachine(RuleBasedStateMachine):
    table: ItemTable

    @initialize()
    def fresh_partition(self) -> None:
        self.pk = f"run{next(RUNS)}"
        self.model: dict[str, dict[str, object]] = {}

    def item(self, sk: str, attributes: Item) -> Item:
        return {"PK": self.pk, "SK": sk, **attributes}

    def check(self, ops: list[Op], run: object) -> None:
        stood = [self.model.get(self.sk(op)) for op in ops]
        failed = [i for i, op in enumerate(ops) if not allowed(op.expect, stood[i])]
        assert callable(run)
        if failed:
            with pytest.raises(ConditionFailed) as failure:
                run()
            assert list(failure.value.failed) == failed
            assert all(failure.value.items[i] == stood[i] for i in failed)
            return
        returned = run()
        for op, item in zip(ops, stood, strict=True):
            left = after(op, item)
            if left is None:
                del self.model[self.sk(op)]
            else:
                self.model[self.sk(op)] = left
            if returned is not None:
                assert returned == left

    @staticmethod
    def sk(op: Op) -> str:
        return str(op.item["SK"]) if isinstance(op, Put) else op.sk

    def update_op(self, sk: str, expect: Expect, change: Item, add: dict[str, int], remove: set[str]) -> Update:
        stood = self.model.get(sk, {})
        numbers = {n: a for n, a in add.items() if n not in change and type(stood.get(n, 0)) is int}
        return Update(self.pk, sk, expect, set=change, add=numbers, remove=tuple(remove - change.keys() - numbers.keys()))

    @rule(sk=SORT_KEYS, attributes=st.dictionaries(NAMES, VALUES), expect=EXPECTS)
    def put(self, sk: str, attributes: Item, expect: Expect) -> None:
        item = self.item(sk, attributes)
        self.check([Put(item, expect)], lambda: self.table.put(item, expect))

    @rule(
        sk=SORT_KEYS, expect=EXPECTS, change=st.dictionaries(NAMES, VALUES, max_size=2),
        add=st.dictionaries(NAMES, st.integers(-5, 5)), remove=st.sets(NAMES),
    )
    def update(self, sk: str, expect: Expect, change: Item, add: dict[str, int], remove: set[str]) -> None:
        op = self.update_op(sk, expect, change, add, remove)
        self.check([op], lambda: self.table.update(op))

    @rule(sk=SORT_KEYS, expect=st.one_of(st.just(EXISTS), st.dictionaries(NAMES, VALUES, max_size=1).map(Equals)))
    def delete(self, sk: str, expect: Expect) -> None:
        self.check([Delete(self.pk, sk, expect)], lambda: self.table.delete(self.pk, sk, expect))

    @rule(
        parts=st.lists(st.tuples(SORT_KEYS, EXPECTS, st.dictionaries(NAMES, VALUES, max_size=2), st.sampled_from("pud")), min_size=1,
                       max_size=4, unique_by=lambda part: part[0])
    )
    def transact(self, parts: list[tuple[str, Expect, Item, str]]) -> None:
        ops: list[Op] = []
        for sk, expect, attributes, kind in parts:
            if kind == "p":
                ops.append(Put(self.item(sk, attributes), expect))
            elif kind == "u":
                ops.append(self.update_op(sk, expect, attributes, {}, set()))
            else:
                ops.append(Delete(self.pk, sk, EXISTS if isinstance(expect, Absent) else expect))
        self.check(ops, lambda: self.table.transact(ops))

    @rule(sk=SORT_KEYS)
    def get(self, sk: str) -> None:
        assert self.table.get(self.pk, sk) == self.model.get(sk)

    @rule(prefix=st.sampled_from(["", "a", "a#", "ą", "c"]))
    def query(self, prefix: str) -> None:
        wanted = [self.model[sk] for sk in sorted(self.model, key=lambda sk: sk.encode()) if sk.startswith(prefix)]
        assert list(self.table.query(self.pk, prefix)) == wanted


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_any_sequence_of_operations_is_that_of_a_dictionary(backend: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = open_table(backend, Path(folder))

        class Machine(TableMachine):
            table = opened

        run_state_machine_as_test(
            Machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
        )
        opened.close()
