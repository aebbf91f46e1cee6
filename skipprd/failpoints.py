"""Every failpoint of the system, and the handler that acts on them in a test.

    SKIPPR_FAILPOINTS="wal.segment.fsynced=kill@2,lake.data_synced=sleep:500"

An action is `kill` (SIGKILL to this process), `error` (OSError EIO) or `error:ENOSPC`, `sleep:MS`, `pause` (SIGSTOP). `@n` means the
nth time the step is reached, `@n+` from then on; without it `kill` and `pause` act the first time, `error` and `sleep` every time.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from catalog import failpoint
from catalog.errors import ConfigurationError

__all__ = ["ALL", "Action", "install", "parse"]

# One constant for each literal that is given to `failpoint.hit`, named like it (a test compares the two).
COMPACTOR_BEFORE_COMMIT: Final = "compactor.before_commit"
COMPACTOR_COMMITTED: Final = "compactor.committed"
COMPACTOR_RECLAIMED: Final = "compactor.reclaimed"
INGEST_ACKNOWLEDGED: Final = "ingest.acknowledged"
INGEST_RESET: Final = "ingest.reset"
INGEST_SEALED: Final = "ingest.sealed"
INGEST_TABLES_ENSURED: Final = "ingest.tables_ensured"
ITEMS_SQLITE_BEFORE_COMMIT: Final = "items.sqlite.before_commit"
ITEMS_SQLITE_COMMITTED: Final = "items.sqlite.committed"
LAKE_DATA_SYNCED: Final = "lake.data_synced"
LAKE_DATA_WRITTEN: Final = "lake.data_written"
LAKE_MANIFESTS_WRITTEN: Final = "lake.manifests_written"
LAKE_METADATA_WRITTEN: Final = "lake.metadata_written"
LAKE_POINTER_MOVED: Final = "lake.pointer_moved"
LAKE_TABLE_CREATED: Final = "lake.table_created"
OFFSETS_BEFORE_LOG_BASE: Final = "offsets.before_log_base"
OFFSETS_BEFORE_PUBLISH: Final = "offsets.before_publish"
OFFSETS_CHUNK_PUBLISHED: Final = "offsets.chunk_published"
OFFSETS_LOG_BASE_SET: Final = "offsets.log_base_set"
OFFSETS_PUBLISHED: Final = "offsets.published"
RECOVERY_BASED: Final = "recovery.based"
RECOVERY_CLEANED: Final = "recovery.cleaned"
RECOVERY_EPOCH_RAISED: Final = "recovery.epoch_raised"
RECOVERY_PUBLISHED: Final = "recovery.published"
RECOVERY_SYNCED: Final = "recovery.synced"
RECOVERY_UNLINKED: Final = "recovery.unlinked"
WAL_CONTROL_COMMITTED: Final = "wal.control.committed"
WAL_CONTROL_FSYNCED: Final = "wal.control.fsynced"
WAL_CONTROL_RENAMED: Final = "wal.control.renamed"
WAL_CONTROL_WRITTEN: Final = "wal.control.written"
WAL_RECLAIM_BASED: Final = "wal.reclaim.based"
WAL_RECLAIM_ROW: Final = "wal.reclaim.row"
WAL_RECLAIM_SYNCED: Final = "wal.reclaim.synced"
WAL_RECLAIM_UNLINKED: Final = "wal.reclaim.unlinked"
WAL_SEGMENT_COMMITTED: Final = "wal.segment.committed"
WAL_SEGMENT_FSYNCED: Final = "wal.segment.fsynced"
WAL_SEGMENT_LINKED: Final = "wal.segment.linked"
WAL_SEGMENT_PUBLISHED: Final = "wal.segment.published"
WAL_SEGMENT_WRITTEN: Final = "wal.segment.written"

ALL: Final[frozenset[str]] = frozenset(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str))

_RULE: Final = re.compile(r"(?P<name>[^=]+)=(?P<verb>[a-z]+)(?::(?P<detail>[^@]+))?(?:@(?P<at>\d+)(?P<on>\+)?)?")


@dataclass(frozen=True, slots=True)
class Action:
    """What happens at a failpoint: `run` on the `first`th time it is reached, and each time after that where `again`."""

    text: str
    run: Callable[[], None]
    first: int
    again: bool

    def applies(self, count: int) -> bool:
        return count == self.first or (self.again and count > self.first)


def parse(text: str, origin: str) -> dict[str, list[Action]]:
    """Actions by failpoint. Raises ConfigurationError naming the rule and `origin`."""
    actions: dict[str, list[Action]] = {}
    for rule in filter(None, (part.strip() for part in text.split(","))):
        found = _RULE.fullmatch(rule)
        if found is None:
            raise ConfigurationError(f"failpoint rule {rule!r} (from {origin}) is not understood; write name=action[@n]")
        name = found["name"].strip()
        if name not in ALL:
            from skipprd.config import near

            raise ConfigurationError(f"there is no failpoint {name!r} (from {origin}); {near(name, sorted(ALL))}")
        run = _verb(found["verb"], found["detail"], name, f"{rule!r} (from {origin})")
        repeats = found["on"] == "+" if found["at"] else found["verb"] in {"error", "sleep"}
        actions.setdefault(name, []).append(Action(rule, run, max(1, int(found["at"] or 1)), repeats))
    return actions


def install(text: str, origin: str) -> None:
    """Make the rules of `text` act in this process from now on."""
    actions = parse(text, origin)
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def handle(name: str) -> None:
        rules = actions.get(name)
        if rules is None:
            return
        with lock:
            counts[name] += 1
            count = counts[name]
        for rule in rules:
            if rule.applies(count):
                rule.run()

    failpoint.install(handle)


def _verb(verb: str, detail: str | None, name: str, place: str) -> Callable[[], None]:
    match verb, detail:
        case "kill", None:
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "pause", None:
            return lambda: os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep", str(ms) if ms.isdigit():
            return lambda: time.sleep(int(ms) / 1000)
        case "error", _ if detail is None or isinstance(getattr(errno, detail, None), int):
            code: int = getattr(errno, detail or "EIO")

            def fail() -> None:
                raise OSError(code, f"{os.strerror(code)} (injected at the failpoint {name})")

            return fail
    raise ConfigurationError(f"failpoint rule {place}: the action must be kill, pause, error, error:ENOSPC or sleep:MS")
