"""Which partition a file is: the one that holds its rows already, under whatever name the file has now.

A partition is named after the path at which its file was first read; the file may move on (rotation) and another one take the path.
One poll settles all files together, in this order:

1. A file that still shows the fingerprint of the partition last read at its path *is* that partition, and is read on.
2. Any other file may be a partition whose file left its own path: same prefix, same bytes before the consumed position, not shorter.
   Where the partition's path holds or held other content since (rotation by rename with a new file, copytruncate), that is enough.
   Where the path is gone, inode and modification time must agree too: else a new file that happens to say the same would be taken for
   read.
3. What is left is new: incarnation 0 of its path, or the next one where the path had content before. That is logged and counted.

While files are followed, a file that repeats what another path still holds may be a copytruncate before its truncation: it waits
`defer_s` before rule 3 takes it for a copy that is meant to count.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.clock import Clock
from catalog.control.offsets import OffsetPayload, OffsetStore
from ingest.sources.fingerprint import FilePosition, FileSeen
from ingest.sources.listing import base_name, partition_name

__all__ = ["CHECKPOINT_KEY_PREFIX", "NAMESPACE", "Identities", "Known"]

NAMESPACE: Final = "file"
"""Namespace of the offset rows of every file source."""
CHECKPOINT_KEY_PREFIX: Final = "file#"

_log = logging.getLogger("skippr.ingest.source")


@dataclass(slots=True)
class Known:
    """A partition and how far it is read: as published when the source was opened, then as read since."""

    name: str
    payload: OffsetPayload = OffsetPayload.ZERO
    claim: int = 0
    checkpoint_claim: int = 0
    position: FilePosition | None = None

    def is_file(self, seen: FileSeen) -> bool:
        """Whether the file is this partition's by content. Raises OSError."""
        position = self.position
        if position is None:
            return seen.size_bytes >= self.payload.filesize
        if seen.size_bytes < position.tail_end or not position.same_prefix(seen):
            return False
        if position.tail_end == 0 and seen.size_bytes < self.payload.filesize:
            return False
        if self.payload.closed and seen.size_bytes == self.payload.filesize:
            return True
        return position.same_tail(seen)

    def same_inode(self, seen: FileSeen) -> bool:
        """Whether the file is the very one that was read, not another with the same bytes."""
        position = self.position
        if position is None or position.inode != seen.inode:
            return False
        return seen.size_bytes > self.payload.filesize or position.mtime_ns == seen.mtime_ns


class Identities:
    """The partitions of a file source and the files that hold them. Loads every row once; about 1 KiB per partition. Not thread safe.

    `defer_s` None: nothing is deferred (a run with --once).
    """

    def __init__(self, offsets: OffsetStore, clock: Clock, defer_s: float | None) -> None:
        self._clock = clock
        self._defer_s = defer_s
        self._known: dict[str, Known] = {}
        self._at: dict[str, Known] = {}
        self._base_of: dict[str, str] = {}
        self._deferred: dict[str, float] = {}
        self.incarnations = 0
        for row in offsets.offsets():
            if row.namespace == NAMESPACE:
                self._known[row.partition] = Known(row.partition, row.payload, row.claim)
        for checkpoint in offsets.checkpoints():
            name = checkpoint.logical_key.removeprefix(CHECKPOINT_KEY_PREFIX)
            if checkpoint.logical_key.startswith(CHECKPOINT_KEY_PREFIX) and (known := self._known.get(name)) is not None:
                known.checkpoint_claim = checkpoint.claim
                # Zero is a reset: what was known of the content is void, or the file would pass for read.
                known.position = None if known.payload == OffsetPayload.ZERO else FilePosition.of_row(checkpoint)

    def settle(self, files: Sequence[tuple[str, FileSeen]], listed: frozenset[str]) -> list[tuple[str, FileSeen, Known]]:
        """The partition of each (base name, file) that is to be looked at now; `listed` are the base names of all files there now.

        The answer keeps the order of `files`; deferred ones are left out.
        """
        chosen: dict[str, Known] = {}
        for base, seen in files:
            own = self._at.get(base) or self._latest(base)
            if own is not None and _holds(own, seen):
                chosen[base] = own
        if len(chosen) < len(files):
            self._settle_strangers(files, listed, chosen)
        for base, known in chosen.items():
            self._at[base] = known
            self._base_of[known.name] = base
            self._deferred.pop(base, None)
        return [(base, seen, chosen[base]) for base, seen in files if base in chosen]

    def advance(self, known: Known, payload: OffsetPayload, position: FilePosition) -> None:
        """Remember what was read of a partition in this process."""
        known.payload = known.payload.merge(payload)
        known.position = position

    def _settle_strangers(self, files: Sequence[tuple[str, FileSeen]], listed: frozenset[str], chosen: dict[str, Known]) -> None:
        """Rules 2 and 3 for the files that are not what was last read at their path."""
        looked_at = {base for base, _ in files}
        held = {known.name for known in chosen.values()}
        # A listed file that is not to be looked at has not changed: it holds what it held.
        held |= {known.name for base, known in self._at.items() if base in listed and base not in looked_at}
        index = self._by_prefix()
        strangers = [(base, seen) for base, seen in files if base not in chosen]
        for base, seen in strangers:
            same = [known for known in _same_prefix(seen, index) if _holds(known, seen)]
            free = [known for known in same if known.name not in held]
            moved = next((known for known in free if known.same_inode(seen)), None)
            if moved is None:
                moved = next((known for known in free if self._left_its_path(known, listed)), None)
            if moved is not None:
                _log.info("file %s continues partition %s at record %d", base, moved.name, moved.payload.line)
            elif len(free) < len(same) and self._defer(base):
                continue
            else:
                moved = self._new(base)
            chosen[base] = moved
            held.add(moved.name)

    def _left_its_path(self, known: Known, listed: frozenset[str]) -> bool:
        """Whether its path holds something else now, or did so since: another file that has its content is its file then."""
        return self._base_of.get(known.name, base_name(known.name)) in listed or self._latest(base_name(known.name)) is not known

    def _latest_incarnation(self, base: str) -> int:
        """The highest incarnation known of a path, -1 for none. They have no gaps, so doubling finds it in a few look-ups."""
        if base not in self._known:
            return -1
        high = 1
        while partition_name(base, high) in self._known:
            high *= 2
        low = high // 2
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if partition_name(base, middle) in self._known else (low, middle)
        return low

    def _latest(self, base: str) -> Known | None:
        incarnation = self._latest_incarnation(base)
        return None if incarnation < 0 else self._known[partition_name(base, incarnation)]

    def _by_prefix(self) -> dict[int, dict[bytes, list[Known]]]:
        found: dict[int, dict[bytes, list[Known]]] = defaultdict(lambda: defaultdict(list))
        for known in self._known.values():
            if known.position is not None and known.position.tail_end > 0:
                found[known.position.prefix_bytes][known.position.prefix_sha256].append(known)
        return found

    def _defer(self, base: str) -> bool:
        """Whether to wait a little longer before the file counts as a copy."""
        if self._defer_s is None:
            return False
        now = self._clock.monotonic()
        return now - self._deferred.setdefault(base, now) < self._defer_s

    def _new(self, base: str) -> Known:
        latest = self._latest_incarnation(base)
        known = Known(partition_name(base, latest + 1))
        if latest >= 0:
            self.incarnations += 1
            _log.warning(
                "file %s was truncated or replaced: it is read from its start as partition %s (its content before stays in %s)",
                base, known.name, partition_name(base, latest),
            )
        self._known[known.name] = known
        return known


def _holds(known: Known, seen: FileSeen) -> bool:
    try:
        return known.is_file(seen)
    except FileNotFoundError:
        return False


def _same_prefix(seen: FileSeen, index: dict[int, dict[bytes, list[Known]]]) -> list[Known]:
    """Partitions whose recorded prefix the file starts with; one pass over its head whatever the number of lengths."""
    same: list[Known] = []
    digest, hashed = hashlib.sha256(), 0
    for length in sorted(index):
        if length > len(seen.head):
            break
        digest.update(seen.head[hashed:length])
        hashed = length
        same += index[length].get(digest.digest(), [])
    return same
