"""Publication of a log's entries into rows: what is written, what is a replay, what is refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import failpoint
from catalog.clock import ManualClock
from catalog.control.checkpoints import CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import EntryRef, LogRow, OffsetPayload, OffsetStore, OffsetUpdate
from catalog.errors import ConfigurationError, DataCorruption, Fenced, Internal, InvalidRequest, OutcomeUnknown, Unavailable
from catalog.items.memory import MemoryItemTable
from catalog.items.table import ABSENT, EXISTS, Equals, Item, Put, Update
from catalog.keys import PipelineKey
from tests.helpers_faults import Fault, FaultyTable

KEY = PipelineKey("t", "w", "p")
ROW_ATTRIBUTES = {
    "PK", "SK", "payload_b64", "payload_sha256", "wal_epoch", "wal_commit_index", "wal_id", "wal_entry_hash", "claim", "format",
    "updated_at",
}
PAYLOADS = st.builds(OffsetPayload, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.booleans())


def entry(index: int, epoch: int = 1, wal_id: str = "wal", salt: str = "") -> EntryRef:
    return EntryRef(wal_id, epoch, index, hashlib.sha256(f"{wal_id}{epoch}{index}{salt}".encode()).hexdigest())


def at(line: int, partition: str = "a", claim: int = 0, closed: bool = False) -> OffsetUpdate:
    return OffsetUpdate("ns", partition, OffsetPayload(line * 10, line, closed), claim)


def store_on(table: object) -> OffsetStore:
    return OffsetStore(table, KEY, ManualClock())  # type: ignore[arg-type]


def line(store: OffsetStore, partition: str = "a") -> int | None:
    row = store.read("ns", partition)
    return None if row is None else row.payload.line


def publish(store: OffsetStore, ref: EntryRef, *updates: OffsetUpdate, base: int | None = None, **more: object) -> None:
    store.publish(ref, updates, (), log_base=base, **more)  # type: ignore[arg-type]


@pytest.fixture
def table() -> MemoryItemTable:
    return MemoryItemTable()


@pytest.fixture
def store(table: MemoryItemTable) -> OffsetStore:
    return store_on(table)


def raw_row(payload: OffsetPayload, **attributes: object) -> Item:
    """A row as others write it; attributes set to None are left out."""
    data = payload.encode()
    item = {
        "PK": str(KEY), "SK": "offset#ns#a", "payload_b64": base64.b64encode(data).decode(), "payload_sha256": payload.sha256(),
        **attributes,
    }
    return {name: value for name, value in item.items() if value is not None}  # type: ignore[misc]


# --- payload


def test_payload_is_24_little_endian_bytes() -> None:
    payload = OffsetPayload(0x0102, 3, True)
    assert payload.encode() == b"\x02\x01" + bytes(6) + b"\x03" + bytes(7) + b"\x01" + bytes(7)
    assert payload.sha256() == hashlib.sha256(payload.encode()).hexdigest()
    assert OffsetPayload.ZERO.encode() == bytes(24)


@given(PAYLOADS)
def test_payload_reverses(payload: OffsetPayload) -> None:
    assert OffsetPayload.decode(payload.encode()) == payload


@given(PAYLOADS, PAYLOADS, PAYLOADS)
def test_merge_is_a_join(a: OffsetPayload, b: OffsetPayload, c: OffsetPayload) -> None:
    assert a.merge(a) == a
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(OffsetPayload.ZERO) == a


@pytest.mark.parametrize("data", [b"", bytes(23), bytes(25), bytes(16) + b"\x02" + bytes(7), bytes(23) + b"\x01"])
def test_broken_payloads_are_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption, match="here"):
        OffsetPayload.decode(data, "here")


@pytest.mark.parametrize("payload", [OffsetPayload(-1, 0, False), OffsetPayload(0, 2**64, False)])
def test_payload_beyond_64_bits_is_refused(payload: OffsetPayload) -> None:
    with pytest.raises(InvalidRequest):
        payload.encode()


# --- what is written


def test_row_carries_exactly_the_attributes_of_its_format(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5))
    row = table.get("t#w#p", "offset#ns#a")
    assert row is not None
    assert set(row) == ROW_ATTRIBUTES
    payload = OffsetPayload(50, 5, False)
    assert base64.b64decode(str(row["payload_b64"])) == payload.encode()
    assert (row["payload_sha256"], row["wal_entry_hash"]) == (payload.sha256(), entry(1).entry_hash)
    assert (row["wal_id"], row["wal_epoch"], row["wal_commit_index"], row["claim"], row["format"]) == ("wal", 1, 1, 0, 1)


def test_long_partition_carries_its_name(store: OffsetStore, table: MemoryItemTable) -> None:
    partition = "long/" * 300
    publish(store, entry(1), at(5, partition), at(6, "a#b%"))
    (row,) = [row for row in table.query("t#w#p", "offset#") if "partition_name" in row]
    assert set(row) == ROW_ATTRIBUTES | {"partition_name"}
    assert row["partition_name"] == partition
    assert {row.partition: row.payload.line for row in store.offsets()} == {partition: 5, "a#b%": 6}
    assert line(store, partition) == 5


def test_pipelines_do_not_see_each_other(store: OffsetStore, table: MemoryItemTable) -> None:
    other = OffsetStore(table, PipelineKey("t", "w", "p2"), ManualClock())
    publish(store, entry(1), at(5))
    assert line(other) is None
    assert list(other.offsets()) == []


def test_checkpoint_is_published_with_its_offset(store: OffsetStore) -> None:
    envelope = CheckpointEnvelope("file", "prefix", 1, b"\x00\xff")
    store.publish(entry(1), [at(5)], [CheckpointUpdate("file#a", envelope.encode())], log_base=0)
    row = store.read_checkpoint("file#a")
    assert row is not None
    assert (row.logical_key, row.envelope, row.claim) == ("file#a", envelope, 0)
    assert [row.logical_key for row in store.checkpoints()] == ["file#a"]
    later = CheckpointEnvelope("file", "prefix", 1, b"")
    store.publish(entry(2), [], [CheckpointUpdate("file#a", later.encode())], log_base=0)
    assert next(store.checkpoints()).envelope == later
    assert store.read_checkpoint("file#b") is None


def test_log_row_travels_with_the_last_offsets(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table)
    store = store_on(faulty)
    updates = [at(5, f"{i:03}") for i in range(250)]
    publish(store, entry(1), *updates, base=0)
    assert [len(ops) for ops in faulty.writes] == [99, 99, 53]
    assert [op.item["SK"] for ops in faulty.writes for op in ops if isinstance(op, Put) and "base" in op.item] == ["log#wal"]
    assert any("base" in op.item for op in faulty.writes[-1] if isinstance(op, Put))
    assert store.read_log("wal") == LogRow("wal", 0, 1)
    assert sum(1 for _ in store.offsets()) == 250


@pytest.mark.parametrize("count", [0, 1, 98, 99, 100, 198, 199, 500])
def test_every_number_of_offsets_is_published_whole(store: OffsetStore, count: int) -> None:
    publish(store, entry(1), *[at(5, f"{i:03}") for i in range(count)], base=0)
    assert sum(1 for _ in store.offsets()) == count
    assert store.read_log("wal") == LogRow("wal", 0, 1)


def test_big_checkpoints_are_split_before_a_transaction_gets_too_big(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table)
    envelope = CheckpointEnvelope("file", "prefix", 1, bytes(250 * 1024)).encode()
    store_on(faulty).publish(entry(1), [at(1)], [CheckpointUpdate(f"k{i}", envelope) for i in range(20)], log_base=0)
    assert len(faulty.writes) == 4
    assert sum(1 for _ in store_on(table).checkpoints()) == 20


def test_without_a_log_base_there_is_no_log_row(store: OffsetStore) -> None:
    publish(store, entry(1), at(5))
    assert list(store.logs()) == []
    assert store.read_log("wal") is None


def test_log_row_moves_one_entry_at_a_time(store: OffsetStore) -> None:
    publish(store, entry(4), at(5), base=3)
    assert list(store.logs()) == [LogRow("wal", 3, 4)]
    with pytest.raises(Internal, match="I2"):
        publish(store, entry(6), at(6), base=3)
    assert line(store) == 5
    publish(store, entry(5), at(6), base=3)
    publish(store, entry(5), at(6), base=3)
    assert store.read_log("wal") == LogRow("wal", 3, 5)


def test_base_of_a_log_only_rises_and_stays_below_what_is_published(store: OffsetStore) -> None:
    with pytest.raises(Internal):
        store.set_log_base("wal", 1)
    for index in (1, 2, 3):
        publish(store, entry(index), at(index), base=0)
    store.set_log_base("wal", 2)
    store.set_log_base("wal", 1)
    assert store.read_log("wal") == LogRow("wal", 2, 3)
    with pytest.raises(Internal, match="I7"):
        store.set_log_base("wal", 4)
    publish(store, entry(4), at(4), base=0)
    assert store.read_log("wal") == LogRow("wal", 2, 4)


# --- replays and refusals (rules 10 and 24)


def test_same_entry_again_writes_nothing(table: MemoryItemTable) -> None:
    publish(store_on(table), entry(1), at(5), base=0)
    faulty = FaultyTable(table)
    publish(store_on(faulty), entry(1), at(5), base=0)
    assert faulty.writes == []


def test_same_tuple_with_another_entry_is_corruption(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5))
    with pytest.raises(DataCorruption, match="offset#ns#a"):
        publish(store_on(table), entry(1, salt="other"), at(5))
    with pytest.raises(DataCorruption, match="payload"):
        publish(store_on(table), entry(1), at(6))
    assert line(store) == 5


def test_newer_tuple_in_the_row_is_fenced(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(5, epoch=2), at(5))
    for stale in (entry(4, epoch=2), entry(9, epoch=1)):
        with pytest.raises(Fenced):
            publish(store_on(table), stale, at(9))
    assert line(store) == 5


def test_a_store_with_a_stale_memory_of_the_row_is_fenced(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5))
    publish(store_on(table), entry(2, epoch=2), at(6))
    with pytest.raises(Fenced):
        publish(store, entry(2), at(7))
    assert line(store) == 6


def test_recovery_passes_over_rows_its_own_later_entries_wrote(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(1), at(1, "b"))
    publish(store, entry(2), at(2))
    fresh = store_on(table)
    publish(fresh, entry(1), at(1), at(1, "b"), head=(1, 2))
    publish(fresh, entry(2), at(2), head=(1, 2))
    assert (line(fresh), line(fresh, "b")) == (2, 1)
    with pytest.raises(Fenced):  # the row is above everything this log holds
        publish(fresh, entry(1), at(1), head=(1, 1))


def test_lower_payload_without_a_new_claim_is_corruption(store: OffsetStore) -> None:
    publish(store, entry(1), at(5))
    with pytest.raises(DataCorruption, match="lower"):
        publish(store, entry(2), at(4))
    publish(store, entry(2), at(5, closed=True))
    with pytest.raises(DataCorruption, match="lower"):
        publish(store, entry(3), at(6))
    assert line(store) == 5


def test_row_of_another_log_is_refused_with_the_remedy(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5))
    for foreign in (entry(1, wal_id="new"), entry(9, epoch=9, wal_id="new")):
        with pytest.raises(Fenced, match="RESET_OFFSETS"):
            publish(store_on(table), foreign, at(9))
    with pytest.raises(Fenced, match="log new"):
        store.require_log("new")
    store.require_log("wal")
    assert line(store) == 5


def test_reset_with_the_next_claim_lowers_the_row_and_takes_it_over(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(7), at(5))
    new = store_on(table)
    zero = OffsetUpdate("ns", "a", OffsetPayload.ZERO, 1)
    publish(new, entry(1, wal_id="new"), zero, reset=True)
    publish(new, entry(1, wal_id="new"), zero, reset=True)
    assert line(store) == 0
    new.require_log("new")
    with pytest.raises(Fenced):
        new.require_log("third")
    publish(new, entry(2, wal_id="new"), at(3, claim=1))
    with pytest.raises(Fenced, match="claim"):
        publish(store, entry(8), at(6))
    assert line(store) == 3


def test_only_a_reset_starts_a_claim_and_only_the_next(store: OffsetStore) -> None:
    publish(store, entry(1), at(5))
    with pytest.raises(DataCorruption, match="not a reset"):
        publish(store, entry(2), at(6, claim=1))
    with pytest.raises(DataCorruption, match="the next"):
        publish(store, entry(2), OffsetUpdate("ns", "a", OffsetPayload.ZERO, 2), reset=True)
    with pytest.raises(Internal, match="zero"):
        publish(store, entry(2), at(1, claim=1), reset=True)
    assert line(store) == 5


def test_reset_entry_is_passed_over_in_recovery(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5))
    publish(store, entry(2), OffsetUpdate("ns", "a", OffsetPayload.ZERO, 1), reset=True)
    publish(store, entry(3), at(2, claim=1))
    fresh = store_on(table)
    publish(fresh, entry(1), at(5), head=(1, 3))
    publish(fresh, entry(2), OffsetUpdate("ns", "a", OffsetPayload.ZERO, 1), reset=True, head=(1, 3))
    publish(fresh, entry(3), at(2, claim=1), head=(1, 3))
    assert line(fresh) == 2


# --- rows that others wrote, without wal_entry_hash


def test_row_without_hash_is_compared_by_the_digest_of_the_merge(store: OffsetStore, table: MemoryItemTable) -> None:
    """A file that shrank: the raw incoming payload is not what the row holds, the merged one is."""
    table.put(raw_row(OffsetPayload(100, 9, False), wal_id="wal", wal_epoch=1, wal_commit_index=4), ABSENT)
    store.publish(entry(4), [OffsetUpdate("ns", "a", OffsetPayload(90, 9, False))], (), log_base=None)
    with pytest.raises(DataCorruption, match="holds less"):
        store.publish(entry(4), [OffsetUpdate("ns", "a", OffsetPayload(90, 10, False))], (), log_base=None)
    with pytest.raises(Fenced):
        store.publish(entry(3), [OffsetUpdate("ns", "a", OffsetPayload(200, 10, False))], (), log_base=None)
    store.publish(entry(5), [OffsetUpdate("ns", "a", OffsetPayload(100, 10, False))], (), log_base=None)
    assert line(store) == 10


@pytest.mark.parametrize("legacy", [{}, {"wal_epoch": 7, "wal_commit_index": 70}])
def test_row_that_names_no_log_is_adopted_when_built_on(store: OffsetStore, table: MemoryItemTable, legacy: dict[str, int]) -> None:
    table.put(raw_row(OffsetPayload(100, 9, False), **legacy), ABSENT)
    store.require_log("wal")
    publish(store, entry(1), OffsetUpdate("ns", "a", OffsetPayload(100, 9, False)))  # nothing new: the row already holds it
    row = store.read("ns", "a")
    assert row is not None
    assert row.stored.stamp.wal_id is None
    with pytest.raises(DataCorruption, match="built on"):
        publish(store, entry(2), OffsetUpdate("ns", "a", OffsetPayload(0, 10, False)))
    publish(store, entry(2), OffsetUpdate("ns", "a", OffsetPayload(120, 12, False)))
    assert line(store) == 12


def test_row_that_names_no_log_already_holds_a_position_it_covers(store: OffsetStore, table: MemoryItemTable) -> None:
    """The file shrank: the digest of the merge tells a replay, that of the raw payload would not."""
    table.put(raw_row(OffsetPayload(100, 9, False)), ABSENT)
    publish(store, entry(1), OffsetUpdate("ns", "a", OffsetPayload(90, 9, False)))
    assert line(store) == 9


# --- rows that cannot be trusted


def test_write_is_conditional_on_the_whole_stamp_and_payload(table: MemoryItemTable) -> None:
    store = store_on(table)
    publish(store, entry(1), at(1))
    row = store.read("ns", "a")
    assert row is not None
    wanted = {
        "wal_id": "wal", "wal_epoch": 1, "wal_commit_index": 1, "wal_entry_hash": entry(1).entry_hash, "claim": 0,
        "payload_sha256": row.payload.sha256(),
    }
    faulty = FaultyTable(table)
    publish(store_on(faulty), entry(2), at(2))
    ((op,),) = faulty.writes
    assert op.expect == Equals(wanted)


def test_row_under_the_key_of_another_long_name_is_corruption(store: OffsetStore, table: MemoryItemTable) -> None:
    publish(store, entry(1), at(5, "long/" * 300))
    (row,) = table.query(str(KEY), "offset#")
    table.put({**row, "partition_name": "other"}, EXISTS)
    with pytest.raises(DataCorruption, match="other"):
        publish(store_on(table), entry(2), at(6, "long/" * 300))


@pytest.mark.parametrize(
    "attributes",
    [
        {"payload_sha256": "0" * 64}, {"payload_sha256": None}, {"payload_b64": "!!"}, {"payload_b64": None}, {"payload_b64": 5},
        {"payload_b64": base64.b64encode(bytes(23)).decode(), "payload_sha256": hashlib.sha256(bytes(23)).hexdigest()},
        {"claim": "1"}, {"claim": -1}, {"claim": True}, {"wal_id": 3}, {"wal_epoch": "1"}, {"format": "1"},
        {"wal_entry_hash": "f" * 64}, {"partition_name": "zzz"},
    ],
)
def test_broken_row_is_corruption_naming_the_row(store: OffsetStore, table: MemoryItemTable, attributes: dict[str, object]) -> None:
    table.put(raw_row(OffsetPayload(1, 1, False), **attributes), ABSENT)
    with pytest.raises(DataCorruption, match="offset#ns#a"):
        store.read("ns", "a")
    with pytest.raises(DataCorruption):
        list(store.offsets())
    if "partition_name" not in attributes:
        with pytest.raises(DataCorruption):
            publish(store, entry(1), at(9))


def test_newer_row_format_is_refused_by_name(store: OffsetStore, table: MemoryItemTable) -> None:
    table.put(raw_row(OffsetPayload(1, 1, False), format=2), ABSENT)
    table.put({"PK": str(KEY), "SK": "log#wal", "base": 0, "published_index": 1, "format": 2}, ABSENT)
    for read in (lambda: store.read("ns", "a"), lambda: list(store.offsets()), lambda: store.read_log("wal")):
        with pytest.raises(ConfigurationError, match=r"format 2.*newer skipprd"):
            read()


@pytest.mark.parametrize("change", [{"base": 5}, {"base": -1}, {"base": "0"}, {"published_index": True}])
def test_broken_log_row_is_corruption(store: OffsetStore, table: MemoryItemTable, change: dict[str, object]) -> None:
    publish(store, entry(1), at(1), base=0)
    table.update(Update(str(KEY), "log#wal", EXISTS, set=change))  # type: ignore[arg-type]
    with pytest.raises(DataCorruption, match="log#wal"):
        store.read_log("wal")


# --- lost answers


def many(n: int) -> list[OffsetUpdate]:
    return [at(5, f"{i:03}") for i in range(n)]


@pytest.mark.parametrize("script", [["lost_after"], ["sdk_retry"], ["lost_before"], ["lost_before", "lost_after"], ["late", "ok"]])
@pytest.mark.parametrize("count", [1, 150])
def test_a_lost_answer_is_settled(table: MemoryItemTable, script: list[Fault], count: int) -> None:
    faulty = FaultyTable(table, script)
    store = store_on(faulty)
    publish(store, entry(1), *many(count), base=0)
    assert not any(faulty.deliver())  # what was held back finds another version of its rows
    assert store.read_log("wal") == LogRow("wal", 0, 1)
    assert [row.payload.line for row in store.offsets()] == [5] * count
    publish(store, entry(2), at(6, "000"), base=0)
    assert line(store, "000") == 6


def test_old_value_read_back_is_no_proof_and_is_written_again(table: MemoryItemTable) -> None:
    publish(store_on(table), entry(1), at(1), base=0)
    faulty = FaultyTable(table, ["late"])
    store = store_on(faulty)
    publish(store, entry(2), at(2), base=0)
    assert len(faulty.writes) == 2
    publish(store, entry(3), at(3), base=0)
    assert faulty.deliver() == [False]
    assert line(store) == 3
    assert store.read_log("wal") == LogRow("wal", 0, 3)


def test_new_value_read_back_settles_it_without_another_write(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table, ["ok", "lost_after"])
    store = store_on(faulty)
    publish(store, entry(1), at(1))
    publish(store, entry(2), at(2))
    assert len(faulty.writes) == 2
    assert line(store) == 2


def test_no_answer_at_all_is_reported_as_unknown(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table, ["lost_before"] * 50)
    with pytest.raises(OutcomeUnknown, match="entry 1:1"):
        publish(store_on(faulty), entry(1), at(1))
    assert len(faulty.writes) < 20


def test_unavailable_reaches_the_caller_and_a_retry_completes(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table, ["ok", "down"])
    store = store_on(faulty)
    with pytest.raises(Unavailable):
        publish(store, entry(1), *many(150), base=0)
    assert store.read_log("wal") is None
    publish(store, entry(1), *many(150), base=0)
    assert store.read_log("wal") == LogRow("wal", 0, 1)
    assert sum(1 for _ in store.offsets()) == 150


def test_another_writer_between_lost_answer_and_rewrite_is_fenced(table: MemoryItemTable) -> None:
    faulty = FaultyTable(table, ["lost_before"])
    store = store_on(faulty)
    publish_other = store_on(table)

    class Meddling(ManualClock):
        def sleep(self, seconds: float) -> None:
            publish_other.publish(entry(1, epoch=2), [at(9)], (), log_base=None)
            super().sleep(seconds)

    store = OffsetStore(faulty, KEY, Meddling())
    with pytest.raises(Fenced):
        publish(store, entry(1), at(1))
    assert line(publish_other) == 9


@pytest.mark.parametrize("fault", ["lost_after", "lost_before", "sdk_retry", "late"])
def test_base_of_a_log_survives_a_lost_answer(table: MemoryItemTable, fault: Fault) -> None:
    publish(store_on(table), entry(1), at(1), base=0)
    publish(store_on(table), entry(2), at(2), base=0)
    faulty = FaultyTable(table, [fault])
    store_on(faulty).set_log_base("wal", 2)
    faulty.deliver()
    assert store_on(table).read_log("wal") == LogRow("wal", 2, 2)


# --- crashes


def crash_at(name: str, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def handler(hit: str) -> None:
        if hit == name:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt(name)

    return handler


@pytest.mark.parametrize(
    ("name", "times", "rows", "published"),
    [
        ("offsets.before_publish", 1, 0, None), ("offsets.chunk_published", 1, 99, None), ("offsets.chunk_published", 2, 198, None),
        ("offsets.published", 1, 250, 1),
    ],
)
def test_a_crash_leaves_whole_chunks_and_is_repaired_by_publishing_again(
    table: MemoryItemTable, name: str, times: int, rows: int, published: int | None
) -> None:
    store = store_on(table)
    failpoint.install(crash_at(name, times))
    try:
        with pytest.raises(KeyboardInterrupt):
            publish(store, entry(1), *many(250), base=0)
    finally:
        failpoint.install(None)
    after = store_on(table)
    log = after.read_log("wal")
    assert sum(1 for _ in after.offsets()) == rows
    assert (None if log is None else log.published) == published
    publish(after, entry(1), *many(250), base=0)
    assert sum(1 for _ in after.offsets()) == 250
    assert after.read_log("wal") == LogRow("wal", 0, 1)


@pytest.mark.parametrize("name", ["offsets.before_log_base", "offsets.log_base_set"])
def test_a_crash_around_the_base_is_repaired_by_setting_it_again(table: MemoryItemTable, name: str) -> None:
    store = store_on(table)
    publish(store, entry(1), at(1), base=0)
    failpoint.install(crash_at(name))
    try:
        with pytest.raises(KeyboardInterrupt):
            store.set_log_base("wal", 1)
    finally:
        failpoint.install(None)
    assert store.read_log("wal") == LogRow("wal", int(name == "offsets.log_base_set"), 1)
    store.set_log_base("wal", 1)
    assert store.read_log("wal") == LogRow("wal", 1, 1)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.lists(st.sampled_from(["lost_after", "lost_before", "late", "sdk_retry"]))),
        max_size=12,
    )
)
def test_rows_end_at_the_last_entry_whatever_answers_are_lost(steps: Sequence[tuple[str, int, list[Fault]]]) -> None:
    table = MemoryItemTable()
    faulty = FaultyTable(table)
    store = store_on(faulty)
    position = {"a": 0, "b": 0}
    for index, (partition, grow, faults) in enumerate(steps, start=1):
        position[partition] += grow
        faulty.script = faults[:3]
        publish(store, entry(index), at(position[partition], partition), base=0)
        if index % 3 == 0:
            faulty.deliver()
    faulty.deliver()
    assert {p: line(store_on(table), p) or 0 for p in "ab"} == position
    log = store_on(table).read_log("wal")
    assert (log.published if log else 0) == len(steps)
