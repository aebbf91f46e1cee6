"""The rules of docs/protocol.md switched off in the real code, one at a time. The simulator has to notice each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from catalog.clock import Clock
from catalog.control.offsets import OffsetPayload
from ingest.wal import log as log_module
from ingest.wal import publication, recovery
from ingest.wal.filesystem import FileSystem
from ingest.wal.log import Log
from tests.simulation.disk import SimFileSystem
from tests.simulation.lake import SimLake

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """`rule` without which something is lost or doubled. `full=False`: the database does not sync its transactions."""

    rule: int
    what: str
    apply: Callable[[pytest.MonkeyPatch], None]
    full: bool = True


class _NoLock:
    def verify(self) -> None:
        """Nothing is held, so nothing can be lost."""

    def close(self) -> None:
        """Nothing is held."""


def _compact_before_publish(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "published_index", lambda self: self._head.index)


def _no_lock(patch: pytest.MonkeyPatch) -> None:
    def take(filesystem: FileSystem, folder: Path, clock: Clock) -> _NoLock:
        filesystem.make_folder(folder)
        return _NoLock()

    patch.setattr(log_module, "take_lock", take)


def _no_lock_and_replace(patch: pytest.MonkeyPatch) -> None:
    _no_lock(patch)
    patch.setattr(SimFileSystem, "move_new", SimFileSystem.replace)


def _trusting_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "sync_everything", lambda filesystem, folder: None)


def _recovery_trusting_the_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "sync_entries", lambda filesystem, folder: None)


def _lake_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimLake, "sync", lambda self, files: None)


def _nothing(patch: pytest.MonkeyPatch) -> None:
    """Only the database differs."""


def _raw_payload(patch: pytest.MonkeyPatch) -> None:
    def raw(running: OffsetPayload, incoming: OffsetPayload) -> OffsetPayload:
        return incoming

    patch.setattr(publication, "merge_running", raw)


MUTATIONS = (
    Mutation(10, "entries are compacted before they are published", _compact_before_publish),
    Mutation(18, "no lock on the folder", _no_lock),
    Mutation(18, "no lock, and moving into place replaces", _no_lock_and_replace),
    Mutation(19, "recovery syncs nothing before it publishes", _trusting_recovery),
    Mutation(19, "recovery syncs the folders above the entries, but not the entries", _recovery_trusting_the_entries),
    Mutation(20, "data files are not synced before the pointer moves", _lake_not_synced),
    Mutation(20, "the database does not sync its transactions", _nothing, full=False),
    Mutation(24, "payloads are sealed without being merged", _raw_payload),
)
