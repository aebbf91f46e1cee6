"""What every item table promises. Runs over each backend of `tests.helpers_items`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog.errors import InvalidRequest
from catalog.items.table import ABSENT, EXISTS, ConditionFailed, Delete, Equals, ItemTable, Put, Update
from tests.helpers_items import BACKENDS, claim_keys, count_up, move_pairs, open_table, race_processes, seed


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(backend: str, tmp_path: Path) -> Iterator[ItemTable]:
    opened = open_table(backend, tmp_path)
    yield opened
    opened.close()


def test_get_of_nothing_is_none(table: ItemTable) -> None:
    assert table.get("p", "s") is None


def test_every_type_comes_back_as_it_was(table: ItemTable) -> None:
    item = {
        "PK": "p", "SK": "s", "text": "żółw \x00 \U0001f422", "empty": "", "zero": 0, "one": 1, "yes": True, "no": False,
        "big": 2**63 - 1, "small": -(2**63) + 1, "raw": bytes(range(256)), "no_bytes": b"", "list": ("a", "ł", ""), "no_list": (),
    }
    table.put(item, ABSENT)
    found = table.get("p", "s")
    assert found == item
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in item.items()}


def test_what_get_returns_is_not_the_table_itself(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "n": 1}, ABSENT)
    found = table.get("p", "s")
    assert isinstance(found, dict)
    found["n"] = 2
    assert table.get("p", "s") == {"PK": "p", "SK": "s", "n": 1}


def test_put_replaces_the_whole_item(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "a": 1, "b": 2}, ABSENT)
    table.put({"PK": "p", "SK": "s", "c": 3}, EXISTS)
    assert table.get("p", "s") == {"PK": "p", "SK": "s", "c": 3}


def test_put_absent_fails_on_an_item_and_carries_it(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "a": 1}, ABSENT)
    with pytest.raises(ConditionFailed) as failure:
        table.put({"PK": "p", "SK": "s", "a": 2}, ABSENT)
    assert failure.value.item == {"PK": "p", "SK": "s", "a": 1}
    assert table.get("p", "s") == {"PK": "p", "SK": "s", "a": 1}


def test_put_exists_fails_on_nothing(table: ItemTable) -> None:
    with pytest.raises(ConditionFailed) as failure:
        table.put({"PK": "p", "SK": "s"}, EXISTS)
    assert failure.value.items == (None,)
    assert table.get("p", "s") is None


@pytest.mark.parametrize(
    ("stored", "wanted", "same"),
    [
        (1, 1, True), (1, 2, False), (1, True, False), (True, 1, False), (0, False, False), ("1", 1, False), (b"1", "1", False),
        ("", None, False), (None, "", False), (None, None, True), (("a",), ("a",), True), (("a",), ("a", "b"), False),
    ],
)
def test_equals_compares_type_and_value_and_none_is_absence(table: ItemTable, stored: object, wanted: object, same: bool) -> None:
    item = {"PK": "p", "SK": "s", "x": 7}
    if stored is not None:
        item["a"] = stored
    table.put(item, ABSENT)
    expect = Equals({"a": wanted, "x": 7})  # type: ignore[dict-item]
    if same:
        assert table.update(Update("p", "s", expect, set={"done": True}))["done"] is True
    else:
        with pytest.raises(ConditionFailed) as failure:
            table.update(Update("p", "s", expect, set={"done": True}))
        assert failure.value.item == item


def test_equals_never_holds_without_an_item(table: ItemTable) -> None:
    with pytest.raises(ConditionFailed):
        table.put({"PK": "p", "SK": "s"}, Equals({"a": None}))
    with pytest.raises(ConditionFailed):
        table.put({"PK": "p", "SK": "s"}, Equals({}))


def test_equals_may_name_the_key(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s"}, ABSENT)
    assert table.update(Update("p", "s", Equals({"SK": "s"}), set={"a": 1})) == {"PK": "p", "SK": "s", "a": 1}


def test_update_sets_adds_removes_and_returns_the_item(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "a": 1, "n": 5, "gone": "x"}, ABSENT)
    left = table.update(Update("p", "s", EXISTS, set={"a": "text"}, add={"n": -7, "new": 3}, remove=("gone", "never")))
    assert left == {"PK": "p", "SK": "s", "a": "text", "n": -2, "new": 3}
    assert table.get("p", "s") == left


def test_update_creates_where_the_condition_allows(table: ItemTable) -> None:
    assert table.update(Update("p", "s", ABSENT, set={"a": 1}, add={"n": 2})) == {"PK": "p", "SK": "s", "a": 1, "n": 2}
    with pytest.raises(ConditionFailed):
        table.update(Update("p", "other", EXISTS, set={"a": 1}))
    assert table.get("p", "other") is None


@pytest.mark.parametrize("stored", ["5", True, b"5", ("5",)])
def test_add_to_no_number_is_refused_and_changes_nothing(table: ItemTable, stored: object) -> None:
    item = {"PK": "p", "SK": "s", "n": stored}
    table.put(item, ABSENT)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="not a number"):
        table.update(Update("p", "s", EXISTS, set={"a": 1}, add={"n": 1}))
    assert table.get("p", "s") == item


def test_delete_needs_its_condition(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "beat": 4}, ABSENT)
    with pytest.raises(ConditionFailed) as failure:
        table.delete("p", "s", Equals({"beat": 3}))
    assert failure.value.item == {"PK": "p", "SK": "s", "beat": 4}
    table.delete("p", "s", Equals({"beat": 4}))
    assert table.get("p", "s") is None
    with pytest.raises(ConditionFailed):
        table.delete("p", "s", EXISTS)


BAD_ITEMS = {
    "no sk": {"PK": "p"}, "no pk": {"SK": "s"}, "empty pk": {"PK": "", "SK": "s"}, "empty sk": {"PK": "p", "SK": ""},
    "number key": {"PK": "p", "SK": 1}, "long pk": {"PK": "p" * 2049, "SK": "s"}, "long sk": {"PK": "p", "SK": "s" * 1025},
    "long sk in bytes": {"PK": "p", "SK": "ł" * 513}, "surrogate key": {"PK": "p", "SK": "\udcff"},
    "surrogate value": {"PK": "p", "SK": "s", "a": "\udcff"}, "float": {"PK": "p", "SK": "s", "a": 1.5},
    "none": {"PK": "p", "SK": "s", "a": None}, "list": {"PK": "p", "SK": "s", "a": ["x"]}, "map": {"PK": "p", "SK": "s", "a": {}},
    "tuple of numbers": {"PK": "p", "SK": "s", "a": (1,)}, "too big a number": {"PK": "p", "SK": "s", "a": 2**63},
    "too big": {"PK": "p", "SK": "s", "a": "x" * (400 * 1024)}, "too big in bytes": {"PK": "p", "SK": "s", "a": "ł" * (200 * 1024)},
}


@pytest.mark.parametrize("item", BAD_ITEMS.values(), ids=BAD_ITEMS.keys())
def test_what_no_backend_can_hold_is_refused(table: ItemTable, item: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        table.put(item, ABSENT)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        table.transact([Put({"PK": "ok", "SK": "ok"}, ABSENT), Put(item, ABSENT)])  # type: ignore[arg-type]
    assert table.get("ok", "ok") is None


def test_longest_keys_and_items_are_held(table: ItemTable) -> None:
    item = {"PK": "p" * 2048, "SK": "ł" * 512, "a": b"x" * (400 * 1024 - 2048 - 1024 - 5)}
    table.put(item, ABSENT)
    assert table.get("p" * 2048, "ł" * 512) == item


def test_an_update_cannot_grow_an_item_past_the_limit(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s", "a": "x" * (300 * 1024)}, ABSENT)
    with pytest.raises(InvalidRequest, match="at most"):
        table.update(Update("p", "s", EXISTS, set={"b": "x" * (110 * 1024)}))
    assert table.get("p", "s") == {"PK": "p", "SK": "s", "a": "x" * (300 * 1024)}


@pytest.mark.parametrize(
    "update",
    [
        Update("p", "s", EXISTS, set={"SK": "t"}), Update("p", "s", EXISTS, remove=("PK",)), Update("", "s", EXISTS),
        Update("p", "s", EXISTS, set={"n": 1}, add={"n": 1}), Update("p", "s", EXISTS, add={"n": True}),
        Update("p", "s", EXISTS, set={"n": 1}, remove=("n",)),
    ],
    ids=["key", "remove key", "empty key", "twice", "add bool", "set and remove"],
)
def test_updates_that_cannot_be_meant_are_refused(table: ItemTable, update: Update) -> None:
    table.put({"PK": "p", "SK": "s", "n": 0}, ABSENT)
    with pytest.raises(InvalidRequest):
        table.update(update)
    assert table.get("p", "s") == {"PK": "p", "SK": "s", "n": 0}


def test_query_is_ordered_by_utf8_bytes(table: ItemTable) -> None:
    keys = ["a", "B", "b", "a#", "ab", "a\x00", "é", "\uffee", "\U0001f600", "\ud7ff", "\ue000", "~"]
    for sk in keys:
        table.put({"PK": "p", "SK": sk}, ABSENT)
    assert [item["SK"] for item in table.query("p")] == sorted(keys, key=lambda sk: sk.encode())


@pytest.mark.parametrize("prefix", ["offset#", "offset#n", "offset#n#", "o", "x", "\ud7ff", "\U0010ffff", "a\U0010ffff"])
def test_query_finds_exactly_the_prefix(table: ItemTable, prefix: str) -> None:
    keys = [
        "o", "offset", "offset#", "offset#m#1", "offset#n", "offset#n#1", "offset#n#2", "offset#o#1", "offset$", "p", "\ud7ff",
        "\ud7ff1", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff", "a", "a\U0010ffff", "a\U0010ffffz", "b",
    ]
    for sk in keys:
        table.put({"PK": "p", "SK": sk}, ABSENT)
        table.put({"PK": "other", "SK": sk}, ABSENT)
    wanted = sorted((sk for sk in keys if sk.startswith(prefix)), key=lambda sk: sk.encode())
    assert [item["SK"] for item in table.query("p", prefix)] == wanted
    assert all(item["PK"] == "p" for item in table.query("p", prefix))


def test_query_pages_through_more_than_a_page_holds(table: ItemTable) -> None:
    big, small = 7, 1300
    for i in range(big):
        table.put({"PK": "big", "SK": f"{i:04}", "x": bytes(390 * 1024)}, ABSENT)
    for start in range(0, small, 100):
        table.transact([Put({"PK": "small", "SK": f"{i:04}", "n": i}, ABSENT) for i in range(start, start + 100)])
    assert [item["SK"] for item in table.query("big")] == [f"{i:04}" for i in range(big)]
    assert [item["n"] for item in table.query("small")] == list(range(small))
    assert [item["n"] for item in table.query("small", "12")] == list(range(1200, 1300))


def test_a_query_left_halfway_blocks_nobody(table: ItemTable) -> None:
    for i in range(5):
        table.put({"PK": "p", "SK": str(i)}, ABSENT)
    left = table.query("p")
    assert next(left)["SK"] == "0"
    table.put({"PK": "p", "SK": "5"}, ABSENT)
    table.delete("p", "0", EXISTS)
    assert [item["SK"] for item in table.query("p")] == ["1", "2", "3", "4", "5"]


def test_query_of_an_empty_partition_key_is_refused(table: ItemTable) -> None:
    with pytest.raises(InvalidRequest):
        table.query("")


def test_transact_applies_all(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "old"}, ABSENT)
    table.put({"PK": "p", "SK": "n", "n": 1}, ABSENT)
    table.transact([
        Put({"PK": "p", "SK": "new"}, ABSENT), Update("p", "n", Equals({"n": 1}), add={"n": 1}), Delete("p", "old", EXISTS),
        Update("q", "made", ABSENT, set={"a": 1}),
    ])
    assert [item["SK"] for item in table.query("p")] == ["n", "new"]
    assert table.get("p", "n") == {"PK": "p", "SK": "n", "n": 2}
    assert table.get("q", "made") == {"PK": "q", "SK": "made", "a": 1}


def test_transact_fails_whole_and_carries_the_items(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "b", "n": 1}, ABSENT)
    table.put({"PK": "p", "SK": "d", "n": 9}, ABSENT)
    with pytest.raises(ConditionFailed) as failure:
        table.transact([
            Put({"PK": "p", "SK": "a"}, ABSENT), Put({"PK": "p", "SK": "b", "n": 2}, ABSENT), Put({"PK": "p", "SK": "c"}, EXISTS),
            Update("p", "d", Equals({"n": 9}), set={"n": 10}),
        ])
    assert failure.value.failed == (1, 2)
    assert failure.value.items[1] == {"PK": "p", "SK": "b", "n": 1}
    assert failure.value.items[2] is None
    assert failure.value.item == {"PK": "p", "SK": "b", "n": 1}
    assert list(table.query("p")) == [{"PK": "p", "SK": "b", "n": 1}, {"PK": "p", "SK": "d", "n": 9}]


def test_transact_with_an_impossible_update_changes_nothing(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "text", "n": "x"}, ABSENT)
    with pytest.raises(InvalidRequest):
        table.transact([Put({"PK": "p", "SK": "a"}, ABSENT), Update("p", "text", EXISTS, add={"n": 1})])
    assert [item["SK"] for item in table.query("p")] == ["text"]


def test_transact_refuses_a_key_twice_none_and_more_than_100(table: ItemTable) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        table.transact([Put({"PK": "p", "SK": "a"}, ABSENT), Delete("p", "a", EXISTS)])
    with pytest.raises(InvalidRequest, match="1 to 100"):
        table.transact([])
    with pytest.raises(InvalidRequest, match="1 to 100"):
        table.transact([Put({"PK": "p", "SK": str(i)}, ABSENT) for i in range(101)])
    with pytest.raises(InvalidRequest, match="limit"):
        table.transact([Put({"PK": "p", "SK": str(i), "x": bytes(390 * 1024)}, ABSENT) for i in range(11)])
    assert list(table.query("p")) == []
    table.transact([Put({"PK": "p", "SK": f"{i:03}"}, ABSENT) for i in range(100)])
    assert sum(1 for _ in table.query("p")) == 100


def test_close_is_idempotent(table: ItemTable) -> None:
    table.put({"PK": "p", "SK": "s"}, ABSENT)
    table.close()
    table.close()


def _race_threads(work: list[Callable[[], int]]) -> list[int]:
    barrier = threading.Barrier(len(work))

    def started(job: Callable[[], int]) -> int:
        barrier.wait(30)
        return job()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(started, work))


def test_threads_racing_for_one_counter_win_each_step_once(table: ItemTable) -> None:
    seed(table)
    won = _race_threads([lambda: count_up(table, 120)] * 6)
    assert sum(won) == 120
    assert table.get("race", "counter") == {"PK": "race", "SK": "counter", "n": 120}


def test_threads_racing_for_keys_win_each_once(table: ItemTable) -> None:
    won = _race_threads([lambda owner=owner: claim_keys(table, 60, owner) for owner in range(6)])  # type: ignore[misc]
    assert sum(won) == 60
    owners = [item["owner"] for item in table.query("claims")]
    assert [owners.count(owner) for owner in range(6)] == won


def test_threads_racing_in_transactions_keep_both_items_equal(table: ItemTable) -> None:
    seed(table)
    assert _race_threads([lambda: move_pairs(table, 20)] * 6) == [20] * 6
    assert [item["n"] for item in table.query("pair")] == [120, 120]


@pytest.fixture
def shared(backend: str) -> str:
    if not BACKENDS[backend].shared:
        pytest.skip("lives in one process")
    return backend


def test_processes_racing_for_one_counter_win_each_step_once(shared: str, table: ItemTable, tmp_path: Path) -> None:
    seed(table)
    won = race_processes(shared, tmp_path, "count_up", [(150,)] * 4)
    assert sum(won) == 150
    assert table.get("race", "counter") == {"PK": "race", "SK": "counter", "n": 150}


def test_processes_racing_for_keys_win_each_once(shared: str, table: ItemTable, tmp_path: Path) -> None:
    arguments = [(100, owner) for owner in range(4)]
    assert sum(race_processes(shared, tmp_path, "claim_keys", arguments)) == 100
    assert sum(1 for _ in table.query("claims")) == 100


def test_processes_racing_in_transactions_keep_both_items_equal(shared: str, table: ItemTable, tmp_path: Path) -> None:
    seed(table)
    assert race_processes(shared, tmp_path, "move_pairs", [(25,)] * 4) == [25] * 4
    assert [item["n"] for item in table.query("pair")] == [100, 100]


def test_another_handle_sees_a_write_at_once(shared: str, table: ItemTable, tmp_path: Path) -> None:
    other = open_table(shared, tmp_path)
    for n in range(20):
        table.put({"PK": "p", "SK": "s", "n": n}, EXISTS if n else ABSENT)
        assert other.get("p", "s") == {"PK": "p", "SK": "s", "n": n}
    other.close()
