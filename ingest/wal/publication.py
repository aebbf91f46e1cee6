"""Publishing an entry: its offset and checkpoint rows, and with them the log's own row (rule 10). Also: what those rows hold next."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Final, Generic, TypeVar

from catalog.clock import Clock
from catalog.control.checkpoints import ENVELOPE_BYTES_MAX, CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.errors import DataCorruption, InvalidRequest, OutcomeUnknown, Unavailable
from ingest.wal.header import SegmentDraft, SegmentHeader

__all__ = ["RunningOffsets", "merge_running", "publish_entry"]

_ATTEMPTS_MAX: Final = 6
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 5.0
_KNOWN_MAX: Final = 20_000
"""Partitions whose position is kept in memory; the others are read from their rows again."""

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


def publish_entry(
    offsets: OffsetStore, header: SegmentHeader, *, log_base: int, clock: Clock, jitter: random.Random, head: tuple[int, int] | None = None,
) -> None:
    """Write the entry's rows, trying again with growing pauses while the store does not answer.

    The entry stays in the log whatever happens here: what is raised (Unavailable, OutcomeUnknown, Fenced, DataCorruption) means that
    it must not be acknowledged now, and that the next start publishes it. `head` is for recovery (see `OffsetStore.publish`).
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            offsets.publish(
                header.ref, header.offsets, header.checkpoints, log_base=log_base, reset=header.kind == "reset", head=head,
            )
        except (Unavailable, OutcomeUnknown) as error:
            if attempt == _ATTEMPTS_MAX - 1:
                raise type(error)(
                    f"{header.ref} is in the log, but its offsets could not be published: {error}. Nothing of it was acknowledged; the "
                    "next start publishes it"
                ) from error
            clock.sleep(min(_PAUSE_S_MAX, _FIRST_PAUSE_S * 2**attempt) * (0.5 + jitter.random() / 2))
        else:
            return


def merge_running(running: OffsetPayload, incoming: OffsetPayload) -> OffsetPayload:
    """What the row will hold (rule 24): so that an entry carries the very bytes of its row, and a replay is recognised by them."""
    return running.merge(incoming)


class RunningOffsets:
    """The position of every partition behind the last sealed entry, and the claims that rows stand under. Used by the appender only."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._positions = _Recent[tuple[str, str], tuple[OffsetPayload, int]](_KNOWN_MAX)
        self._claims = _Recent[str, int](_KNOWN_MAX)

    def position(self, namespace: str, partition: str) -> tuple[OffsetPayload, int]:
        """Running payload and claim; zero and claim 0 where the partition has no row."""
        known = self._positions.get((namespace, partition))
        if known is None:
            row = self._offsets.read(namespace, partition)
            known = (OffsetPayload.ZERO, 0) if row is None else (row.payload, row.claim)
            self._positions.put((namespace, partition), known)
        return known

    def merged(self, draft: SegmentDraft) -> SegmentDraft:
        """The draft as it is to be sealed: one update per row, payloads merged with the running values (rule 24), claims set.

        Kind reset starts the next claim of each row: of a partition at zero, of a checkpoint with what the draft holds. Raises
        InvalidRequest for a name or a checkpoint that no row can hold: such an entry, once in the log, could never be published.
        """
        offsets: dict[tuple[str, str], OffsetUpdate] = {}
        for update in draft.offsets:
            name = (update.namespace, update.partition)
            payload, claim = self.position(*name)
            if draft.kind == "reset":
                offsets[name] = replace(update, payload=OffsetPayload.ZERO, claim=claim + 1)
            else:
                before = offsets[name].payload if name in offsets else payload
                offsets[name] = replace(update, payload=merge_running(before, update.payload), claim=claim)
        checkpoints: dict[str, CheckpointUpdate] = {}
        for checkpoint in draft.checkpoints:
            _check_envelope(checkpoint)
            claim = self._claim(checkpoint.logical_key) + (1 if draft.kind == "reset" else 0)
            checkpoints[checkpoint.logical_key] = replace(checkpoint, claim=claim)
        return replace(draft, offsets=tuple(offsets.values()), checkpoints=tuple(checkpoints.values()))

    def sealed(self, header: SegmentHeader) -> None:
        """The entry is in the log: its positions and claims are the running ones now."""
        for update in header.offsets:
            self._positions.put((update.namespace, update.partition), (update.payload, update.claim))
        for checkpoint in header.checkpoints:
            self._claims.put(checkpoint.logical_key, checkpoint.claim)

    def _claim(self, logical_key: str) -> int:
        claim = self._claims.get(logical_key)
        if claim is None:
            row = self._offsets.read_checkpoint(logical_key)
            claim = 0 if row is None else row.claim
            self._claims.put(logical_key, claim)
        return claim


def _check_envelope(checkpoint: CheckpointUpdate) -> None:
    where = f"checkpoint {checkpoint.logical_key!r}"
    if len(checkpoint.envelope) > ENVELOPE_BYTES_MAX:
        raise InvalidRequest(f"{where}: its envelope has {len(checkpoint.envelope)} bytes, at most {ENVELOPE_BYTES_MAX} are allowed")
    try:
        CheckpointEnvelope.decode(checkpoint.envelope, where)
    except DataCorruption as error:
        raise InvalidRequest(str(error)) from error


class _Recent(Generic[_K, _V]):
    """The entries used last, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        if key in self._items:
            self._items.move_to_end(key)
        return self._items.get(key)

    def put(self, key: _K, value: _V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        while len(self._items) > self._limit:
            self._items.popitem(last=False)
