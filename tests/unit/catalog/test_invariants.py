"""Each predicate on rows fails on what it forbids, and stands before the write it guards."""

from __future__ import annotations

import pytest

from catalog.clock import ManualClock
from catalog.control import invariants, offsets
from catalog.control.offsets import EntryRef, OffsetPayload, OffsetStore, OffsetUpdate
from catalog.control.rows import Incoming, Stamp, StoredRow
from catalog.errors import Internal
from catalog.items.memory import MemoryItemTable
from catalog.items.table import EXISTS, Equals, Update
from catalog.keys import PipelineKey

KEY = PipelineKey("t", "w", "p")


def incoming(epoch: int, index: int, claim: int = 0, reset: bool = False, wal_id: str = "wal", payload: bytes = b"new") -> Incoming:
    return Incoming(EntryRef(wal_id, epoch, index, f"{epoch}:{index}"), claim, payload, reset)


STORED = Stamp("wal", 2, 5, "2:5", 1)


@pytest.mark.parametrize(
    "allowed",
    [incoming(2, 6, 1), incoming(3, 6, 1), incoming(1, 1, 2, reset=True), incoming(1, 1, 2, reset=True, wal_id="other")],
)
def test_i5_allows_later_entries_and_the_next_claim(allowed: Incoming) -> None:
    invariants.i5_never_older(STORED, allowed)


@pytest.mark.parametrize(
    "forbidden",
    [
        incoming(2, 4, 1), incoming(1, 9, 1), incoming(2, 5, 1), incoming(2, 6, 0), incoming(9, 9, 1, wal_id="other"),
        incoming(3, 6, 2), incoming(3, 6, 3, reset=True), incoming(3, 6, 0, reset=True),
    ],
)
def test_i5_forbids_older_entries_other_logs_and_claims_out_of_turn(forbidden: Incoming) -> None:
    with pytest.raises(Internal, match="I5"):
        invariants.i5_never_older(STORED, forbidden)


def test_i5_says_nothing_about_a_row_that_names_no_log() -> None:
    invariants.i5_never_older(Stamp(None, None, None, None, 0), incoming(1, 1))


def test_i2_forbids_taking_anything_off_a_row_under_one_claim() -> None:
    row = StoredRow("row", b"old", "", STORED, {})
    invariants.i2_never_lower(row, incoming(3, 6, 1, payload=b"new"), merged=b"new")
    invariants.i2_never_lower(row, incoming(3, 6, 2, reset=True, payload=b"zero"), merged=b"old")
    with pytest.raises(Internal, match="I2"):
        invariants.i2_never_lower(row, incoming(3, 6, 1, payload=b"new"), merged=b"old and new")


@pytest.mark.parametrize(("base", "published", "new_base", "new_published"), [(0, 0, 0, 1), (2, 5, 2, 6), (2, 5, 5, 5), (0, 0, 0, 0)])
def test_log_rows_may_move_on_in_order(base: int, published: int, new_base: int, new_published: int) -> None:
    invariants.log_row_in_order(base, published, new_base, new_published)


@pytest.mark.parametrize(
    ("base", "published", "new_base", "new_published", "told"),
    [(0, 1, 0, 3, "I2"), (0, 3, 0, 2, "I2"), (0, 3, 4, 3, "I7"), (2, 3, 1, 3, "I7")],
)
def test_log_rows_never_skip_fall_or_lose_unpublished_entries(
    base: int, published: int, new_base: int, new_published: int, told: str
) -> None:
    with pytest.raises(Internal, match=told):
        invariants.log_row_in_order(base, published, new_base, new_published)


@pytest.mark.parametrize(
    ("index", "payload", "told"), [(1, OffsetPayload(90, 9, False), "I5"), (3, OffsetPayload(10, 1, False), "I2")]
)
def test_a_decision_that_lets_everything_through_is_stopped_before_the_write(
    monkeypatch: pytest.MonkeyPatch, index: int, payload: OffsetPayload, told: str
) -> None:
    table = MemoryItemTable()
    store = OffsetStore(table, KEY, ManualClock())
    store.publish(EntryRef("wal", 1, 2, "two"), [OffsetUpdate("ns", "a", OffsetPayload(50, 5, False))], (), log_base=None)
    before = list(table.query(str(KEY)))
    monkeypatch.setattr(offsets, "decide", lambda *_: EXISTS)
    with pytest.raises(Internal, match=told):
        store.publish(EntryRef("wal", 1, index, "x"), [OffsetUpdate("ns", "a", payload)], (), log_base=None)
    assert list(table.query(str(KEY))) == before


BASE = Equals({"table_uuid": "u", "generation": 4, "metadata_location": "a"})


@pytest.mark.parametrize(
    ("expect", "moved"),
    [
        (EXISTS, {"generation": 5, "metadata_location": "b"}),
        (Equals({"table_uuid": "u", "generation": 4}), {"generation": 5, "metadata_location": "b"}),
        (Equals({"table_uuid": "u", "generation": 3, "metadata_location": "a"}), {"generation": 5, "metadata_location": "b"}),
        (BASE, {"generation": 6, "metadata_location": "b"}),
        (BASE, {"generation": 5, "metadata_location": "a"}),
    ],
)
def test_i6_forbids_moves_from_anything_but_the_base(expect: Equals, moved: dict[str, str | int]) -> None:
    with pytest.raises(Internal, match="I6"):
        invariants.i6_from_exactly("u", 4, "a", Update("p", "s", expect, set=moved))
    invariants.i6_from_exactly("u", 4, "a", Update("p", "s", BASE, set={"generation": 5, "metadata_location": "b"}))


@pytest.mark.parametrize("name", ["/srv/in/a.jsonl", "../a.jsonl", "srv/in/a.jsonl"])
def test_i10_forbids_names_that_depend_on_where_the_root_lies(name: str) -> None:
    with pytest.raises(Internal, match="I10"):
        invariants.i10_no_machine_path(name, "/srv/in")
    invariants.i10_no_machine_path("a.jsonl", "/srv/in")
