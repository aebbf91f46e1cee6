"""What offset and checkpoint rows have in common, and the decision that stands before each write of one.

A row is an index of what the log already holds, never a promise ahead of it. Beside its payload it carries a stamp: which entry of
which log it was published from, under which claim. `decide` compares the stamp of the row as read with the entry to publish
(rules 10 and 24 of docs/protocol.md, I5). Everything here is pure: no I/O, no clock.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from catalog.errors import ConfigurationError, DataCorruption, Fenced
from catalog.items.table import ABSENT, Equals, Expect, Item, Value

__all__ = ["ROW_FORMAT", "EntryRef", "Incoming", "Stamp", "StoredRow", "check_format", "decide", "payload_sha256", "row_item"]

ROW_FORMAT: Final = 1
"""Format of the rows written here. A row without a format was written by others and is read as format 1."""

_STAMP_ATTRIBUTES: Final = ("wal_id", "wal_epoch", "wal_commit_index", "wal_entry_hash", "claim", "payload_sha256")
_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")


def payload_sha256(payload: bytes) -> str:
    """Lower-case hex sha256 of exactly these bytes."""
    return hashlib.sha256(payload).hexdigest()


@dataclass(frozen=True, slots=True)
class EntryRef:
    """Names one entry of one log. Within a log (epoch, index) is one entry for ever, and `entry_hash` says which."""

    wal_id: str
    epoch: int
    index: int
    entry_hash: str

    def __str__(self) -> str:
        return f"entry {self.epoch}:{self.index} of log {self.wal_id}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a row's payload came from. None: the row does not say (written by others)."""

    wal_id: str | None
    epoch: int | None
    index: int | None
    entry_hash: str | None
    claim: int

    def __str__(self) -> str:
        return f"entry {self.epoch}:{self.index} of log {self.wal_id}, claim {self.claim}"


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as read and verified: the payload is the bytes its digest names."""

    where: str
    payload: bytes
    sha256: str
    stamp: Stamp
    attributes: Item

    @staticmethod
    def parse(item: Item) -> StoredRow:
        """Verify a row. Raises DataCorruption naming the row, ConfigurationError where a newer skipprd wrote it."""
        where = f"row {item['PK']!r} {item['SK']!r}"
        check_format(item, where)
        digest = _text(item, "payload_sha256", where)
        try:
            payload = base64.b64decode(_text(item, "payload_b64", where) or "", validate=True)
        except (binascii.Error, ValueError):
            raise DataCorruption(f"{where}: payload_b64 {item.get('payload_b64')!r} is not base64") from None
        if digest is None or not _SHA256_HEX.fullmatch(digest) or payload_sha256(payload) != digest:
            raise DataCorruption(
                f"{where}: payload_sha256 is {digest!r}, its {len(payload)} payload bytes have {payload_sha256(payload)}; "
                "restore the row from a backup, or reset the pipeline's offsets"
            )
        stamp = Stamp(
            _text(item, "wal_id", where), _number(item, "wal_epoch", where), _number(item, "wal_commit_index", where),
            _text(item, "wal_entry_hash", where), _number(item, "claim", where) or 0,
        )
        if stamp.entry_hash is not None and None in (stamp.wal_id, stamp.epoch, stamp.index):
            raise DataCorruption(f"{where}: it names entry hash {stamp.entry_hash} but not the log, epoch and index of that entry")
        return StoredRow(where, payload, digest, stamp, item)

    def unchanged(self) -> Equals:
        """The condition that the row still is what was read: its whole stamp and its payload."""
        return Equals({name: self.attributes.get(name) for name in _STAMP_ATTRIBUTES})


@dataclass(frozen=True, slots=True)
class Incoming:
    """What an entry wants a row to hold. `merged` is stored + incoming by the merge rule of the row's kind.

    `reset` marks an entry of kind reset, the only one that may start the next claim and so lower a row.
    """

    entry: EntryRef
    claim: int
    payload: bytes
    reset: bool = False


def decide(row: StoredRow | None, incoming: Incoming, merged: bytes, head: tuple[int, int] | None = None) -> Expect | None:
    """The condition under which the entry is to be written into the row, or None where the row already holds it (idempotent).

    `merged` is what the row would hold if the incoming payload were merged into the stored one. `head`, given by recovery only, is
    the highest (epoch, index) of the caller's own log: a row of that log between the entry and the head was published by a later
    entry and needs nothing.

    Raises Fenced where the row is of a newer entry, a higher claim or another log, DataCorruption where row and log contradict
    each other. (epoch, index) are compared only where wal_id and claim are equal.
    """
    if row is None:
        return ABSENT
    entry, stamp = incoming.entry, row.stamp
    if _later_entry_of_own_log(stamp, entry, head):
        return None
    if stamp.claim != incoming.claim:
        return _decide_claim(row, incoming)
    if stamp.wal_id is None or stamp.epoch is None or stamp.index is None:
        return _adopt(row, incoming, merged)
    if stamp.wal_id != entry.wal_id:
        raise Fenced(
            f"{row.where} was published by {stamp}; {entry} belongs to another log. One pipeline has one log: stop the writer of the "
            "other one, or give this writer back the data folder of that log, or reset the pipeline's offsets (RESET_OFFSETS), which "
            "reads the source again from the start"
        )
    if (stamp.epoch, stamp.index) > (entry.epoch, entry.index):
        raise Fenced(f"{row.where} was published by {stamp}, which is newer than {entry}: another writer took over this log")
    if (stamp.epoch, stamp.index) == (entry.epoch, entry.index):
        _check_replay(row, incoming, merged)
        return None
    if merged != incoming.payload:
        raise DataCorruption(
            f"{row.where}: {entry} would lower it (stored payload {row.sha256}, incoming {payload_sha256(incoming.payload)}) "
            "without starting a new claim"
        )
    return row.unchanged()


def _later_entry_of_own_log(stamp: Stamp, entry: EntryRef, head: tuple[int, int] | None) -> bool:
    if head is None or stamp.wal_id != entry.wal_id or stamp.epoch is None or stamp.index is None:
        return False
    return (entry.epoch, entry.index) < (stamp.epoch, stamp.index) <= head


def _decide_claim(row: StoredRow, incoming: Incoming) -> Expect:
    if incoming.claim < row.stamp.claim:
        raise Fenced(f"{row.where} is at claim {row.stamp.claim} ({row.stamp}); {incoming.entry} still has claim {incoming.claim}")
    if not incoming.reset or incoming.claim != row.stamp.claim + 1:
        kind = "a reset" if incoming.reset else "not a reset"
        raise DataCorruption(
            f"{row.where} is at claim {row.stamp.claim}; {incoming.entry} has claim {incoming.claim} and is {kind}: only a reset "
            "starts a claim, and only the next one"
        )
    return row.unchanged()


def _adopt(row: StoredRow, incoming: Incoming, merged: bytes) -> Expect | None:
    """A row written by others, that names no log: compare by digest of the merge, never by the raw incoming payload (rule 24)."""
    if payload_sha256(merged) == row.sha256:
        return None
    if merged != incoming.payload:
        raise DataCorruption(
            f"{row.where} names no log, and {incoming.entry} was not built on what it holds "
            f"(stored payload {row.sha256}, incoming {payload_sha256(incoming.payload)})"
        )
    return row.unchanged()


def _check_replay(row: StoredRow, incoming: Incoming, merged: bytes) -> None:
    """Same (epoch, index): the same entry is a replay, any other is corruption (rule 24)."""
    entry, stored_hash = incoming.entry, row.stamp.entry_hash
    if stored_hash is None:
        if payload_sha256(merged) != row.sha256:
            raise DataCorruption(f"{row.where} was published from {row.stamp}, and holds less than {entry}, the same entry")
    elif stored_hash != entry.entry_hash:
        raise DataCorruption(f"{row.where} was published from {row.stamp} with hash {stored_hash}; the log has {entry.entry_hash} there")
    elif row.payload != incoming.payload:
        raise DataCorruption(
            f"{row.where} was published from {row.stamp}, but its payload {row.sha256} is not the entry's "
            f"{payload_sha256(incoming.payload)}"
        )


def row_item(pk: str, sk: str, partition_name: str | None, incoming: Incoming, updated_at: str) -> dict[str, Value]:
    """The whole row for the entry. `updated_at` is for people; no decision reads it."""
    entry = incoming.entry
    item: dict[str, Value] = {
        "PK": pk, "SK": sk, "format": ROW_FORMAT,
        "payload_b64": base64.b64encode(incoming.payload).decode("ascii"), "payload_sha256": payload_sha256(incoming.payload),
        "wal_id": entry.wal_id, "wal_epoch": entry.epoch, "wal_commit_index": entry.index, "wal_entry_hash": entry.entry_hash,
        "claim": incoming.claim, "updated_at": updated_at,
    }
    if partition_name is not None:
        item["partition_name"] = partition_name
    return item


def check_format(item: Item, where: str) -> None:
    """Accept our own format and rows without one. Raises ConfigurationError for a newer one, DataCorruption for nonsense."""
    found = _number(item, "format", where)
    if found is not None and found > ROW_FORMAT:
        raise ConfigurationError(
            f"{where} has format {found}; this skipprd reads formats up to {ROW_FORMAT}: run the newer skipprd that wrote it"
        )


def _text(item: Item, name: str, where: str) -> str | None:
    value = item.get(name)
    if value is not None and not isinstance(value, str):
        raise DataCorruption(f"{where}: {name} is {value!r}, not a string")
    return value


def _number(item: Item, name: str, where: str) -> int | None:
    value = item.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise DataCorruption(f"{where}: {name} is {value!r}, not a whole number from 0")
    return value
