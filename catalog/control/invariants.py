"""Invariants of rows as named predicates, called before the conditional write they guard.

The decision before each write (`rows.decide`) already refuses what a crash, a late message or another writer can cause, with an
error for the caller. A predicate that fails here means that this decision itself is wrong: it raises Internal and nothing is
written. docs/design.md lists the invariants by number.
"""

from __future__ import annotations

from catalog.control.rows import Incoming, Stamp, StoredRow
from catalog.errors import Internal
from catalog.items.table import Equals, Update

__all__ = ["i2_never_lower", "i5_never_older", "i6_from_exactly", "i10_no_machine_path", "log_row_in_order"]


def i2_never_lower(row: StoredRow, incoming: Incoming, merged: bytes) -> None:
    """I2: what was acknowledged stays at or below its row. Under one claim a write never takes anything off a row."""
    if incoming.claim == row.stamp.claim and merged != incoming.payload:
        raise Internal(f"I2: {incoming.entry} would lower {row.where} under claim {incoming.claim}")


def i5_never_older(stored: Stamp, incoming: Incoming) -> None:
    """I5: an older (epoch, index) never overwrites a newer one, and tuples of different logs are never compared.

    A row of a lower claim may be overwritten by the next claim; under the same claim only by a later entry of the same log, or
    where the row does not name a log.
    """
    entry = incoming.entry
    if incoming.claim != stored.claim:
        if incoming.claim == stored.claim + 1 and incoming.reset:
            return
        raise Internal(f"I5: claim {incoming.claim} of {entry} would overwrite claim {stored.claim}")
    if stored.wal_id is None or stored.epoch is None or stored.index is None:
        return
    if stored.wal_id != entry.wal_id:
        raise Internal(f"I5: {entry} would overwrite {stored} of another log under the same claim")
    if (entry.epoch, entry.index) <= (stored.epoch, stored.index):
        raise Internal(f"I5: {entry} would overwrite {stored}, which is not older")


def log_row_in_order(base: int, published: int, new_base: int, new_published: int) -> None:
    """A log is published one entry after the other, its base never falls and never passes what is published (I2, I7)."""
    if new_published not in (published, published + 1):
        raise Internal(f"I2: entry {new_published} would be published after entry {published}: entries between them would be skipped")
    if not base <= new_base <= new_published:
        raise Internal(f"I7: the log's base would move from {base} to {new_base}, with {new_published} published")


def i6_from_exactly(table_uuid: str, generation: int, location: str, move: Update) -> None:
    """I6: a table's pointer moves only from the exact generation and location that the commit was based on, one generation on."""
    base = {"table_uuid": table_uuid, "generation": generation, "metadata_location": location}
    if not isinstance(move.expect, Equals) or any(move.expect.attributes.get(name) != value for name, value in base.items()):
        raise Internal(f"I6: a pointer would move under {move.expect}, which does not name its base {base}")
    if move.set.get("generation") != generation + 1 or move.set.get("metadata_location") == location:
        raise Internal(f"I6: a pointer would move from generation {generation} at {location} to {dict(move.set)}")


def i10_no_machine_path(name: str, root: str) -> None:
    """I10: no path of one machine is part of any durable identity, so a source may lie elsewhere tomorrow.

    `name` is what a file under the folder `root` is called in rows: relative to that folder, and below it.
    """
    if name.startswith(("/", "../")) or name == ".." or (len(root) > 1 and name.startswith(root.lstrip("/") + "/")):
        raise Internal(f"I10: {name!r} would be stored for ever, and depends on {root!r}, a path of this machine")
