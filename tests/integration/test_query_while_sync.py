"""Queries in one process while `sync` in another publishes, compacts, reclaims, is killed and starts again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli import Project, wait_for
from tests.helpers_watch import CountWatcher

SMALL = {
    "BUFFER_THRESHOLD_BYTES": "4KiB", "WAL_BYTES_PER_FILE": "8KiB", "BUFFER_THRESHOLD_SECONDS": "50ms",
    "SKIPPR_COMPACTION_COMMIT_BYTES": "16KiB", "SKIPPR_COMPACTION_COMMIT_SECONDS": "100ms",
}
SQL = "SELECT count(*), count(DISTINCT id) FROM bronze.events"


def test_a_count_never_falls_and_never_exceeds_what_was_written(tmp_path: Path) -> None:
    project = Project(tmp_path)
    written = 100
    project.write("a.jsonl", 0, written)
    project.sync(**SMALL)
    with project.serve() as server, CountWatcher(server.uri, SQL, lambda: written) as watcher:
        for end in ("kill", "drain"):
            with project.start("sync", "--pipeline", "events", "--log-level", "error", **SMALL) as sync:
                for _ in range(4):
                    written += 150
                    project.write("a.jsonl", written - 150, 150, append=True)
                    seen = watcher.counts
                    wait_for(lambda so_far=written: watcher.wrong or watcher.last >= so_far - 300)
                    wait_for(lambda so_far=seen: watcher.wrong or watcher.counts > so_far)
                sync.signal(signal.SIGKILL if end == "kill" else signal.SIGTERM)
                assert sync.finish().code == (-signal.SIGKILL if end == "kill" else 0)
        project.sync(**SMALL)
        wait_for(lambda: watcher.wrong or watcher.last == written)
    assert not watcher.wrong
    assert watcher.last == written
