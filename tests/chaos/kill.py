"""`skipprd sync` under SIGKILL: at named failpoints, and at random instants, while its input grows, rotates and carries bad lines.

The model is a count: every line ever written is either a row with its id, once, or a dead letter, once. It is checked after every few
rounds by a run that is left alone, and by plain SQL over the table and the dead letters, live rows included. All the time a client of a
server beside it counts the rows: they never fall, never double and never exceed what was written.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers_watch import CountWatcher

__all__ = ["KillRun", "Violation"]

CONFIG = """\
pipelines:
  events: {data_source: data_sources.files, data_sink: data_sinks.lake, deadletter_sink: data_sinks.lake}
data_sources:
  files: {File: {path: ./in}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze}}
"""
ROWS_SQL = "SELECT count(*) AS n, count(DISTINCT id) AS d, coalesce(sum(id), 0)::BIGINT AS s FROM bronze.events"
WATCH_SQL = "SELECT count(*), count(DISTINCT id) FROM bronze.events"
DEAD_SQL = "SELECT count(*) AS n, count(DISTINCT raw) AS d FROM bronze._dl_events"


class Violation(AssertionError):
    """Rows were lost, doubled or half-written; the message holds what is needed to look at it."""


@dataclass
class KillRun:
    """One seeded run in `folder`. Same seed, same input and same schedule of kills (their instants excepted)."""

    folder: Path
    seed: int
    failpoints: Sequence[str]
    written: int = 0
    bad: int = 0
    rounds: int = 0
    kills: int = 0
    counts: int = 0
    hits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        (self.folder / "in").mkdir(parents=True)
        (self.folder / "skippr.yml").write_text(CONFIG)
        self._grow(lines=200)

    def environment(self, **more: str) -> dict[str, str]:
        """Small buffers, so that a little input makes many segments and several commits."""
        small = {"DATA_DIR": str(self.folder / "data"), "BUFFER_THRESHOLD_BYTES": "20000", "SKIPPR_COMPACTION_COMMIT_BYTES": "60000"}
        return os.environ | small | more

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "skipprd", *arguments]

    def round(self) -> None:
        """Grow the input, start a run, kill it; every few rounds let one finish and check."""
        self.rounds += 1
        self._grow(lines=self.random.randrange(20, 800))
        if self.rounds % 4 == 0:
            self.finish_and_check()
            return
        env, name = self.environment(), ""
        if self.random.random() < 0.6:
            name = self.random.choice(self.failpoints)
            env = self.environment(SKIPPR_FAILPOINTS=f"{name}=kill@{self.random.randrange(1, 4)}")
        process = subprocess.Popen(
            self.command("sync", "--pipeline", "events", "--once", "--log-level", "error"), cwd=self.folder, env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            _, err = process.communicate(timeout=None if name else self.random.uniform(0.3, 2.5))
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
        if process.returncode == -signal.SIGKILL:
            self.kills += 1
            self.hits[name or "(instant)"] = self.hits.get(name or "(instant)", 0) + 1
        elif process.returncode:
            raise Violation(f"seed {self.seed} round {self.rounds}: sync after {name or 'nothing'} ended with {process.returncode}:\n{err}")

    def finish_and_check(self) -> None:
        """A run that is left alone; then every line is there once."""
        command = self.command("sync", "--pipeline", "events", "--once", "--log-level", "error")
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise Violation(f"seed {self.seed} round {self.rounds}: the closing run ended with {done.returncode}:\n{done.stderr}")
        self.check()
        left = sorted((self.folder / "data").glob("*/*/events/segments/*"))
        if left:
            raise Violation(f"seed {self.seed} round {self.rounds}: reclaim left {[p.name for p in left]}")

    def check(self) -> None:
        """Compare table and dead letters with what was written. Raises Violation."""
        good = self.written - self.bad
        rows = self._ask(ROWS_SQL)
        want = {"n": good, "d": good, "s": self._id_sum}
        if rows != want:
            raise Violation(f"seed {self.seed} round {self.rounds}: rows are {rows}, should be {want}")
        if self.bad:
            dead = self._ask(DEAD_SQL)
            if dead != {"n": self.bad, "d": self.bad}:
                raise Violation(f"seed {self.seed} round {self.rounds}: dead letters are {dead}, should be {self.bad} once each")

    _id_sum: int = 0

    def _ask(self, sql: str) -> dict[str, int]:
        command = self.command("query", "--sql", sql, "--output", "json")
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Violation(f"seed {self.seed} round {self.rounds}: {sql} ended with {done.returncode}:\n{done.stderr}")
        found: dict[str, int] = json.loads(done.stdout)[0]
        return found

    def _grow(self, *, lines: int) -> None:
        """Append whole lines to one of five files; sometimes start a new file."""
        name = f"part-{self.random.randrange(5)}.jsonl" if self.random.random() < 0.8 else f"new-{self.rounds}-{self.written}.jsonl"
        with (self.folder / "in" / name).open("a") as out:
            for _ in range(lines):
                if self.random.random() < 0.01:
                    self.bad += 1
                    out.write(f'{{"id": {self.written}, "broken\n')
                else:
                    self._id_sum += self.written
                    row = {"id": self.written, "text": "x" * self.random.randrange(100), "deep": {"a": [self.written % 7]}}
                    if self.random.random() < 0.01:
                        row[f"late_{self.written % 3}"] = 1.5
                    out.write(json.dumps(row) + "\n")
                self.written += 1


    @contextlib.contextmanager
    def watched(self) -> Iterator[CountWatcher]:
        """A server over the same DATA_DIR and a client that counts; raises Violation at the end for what it saw."""
        ready = self.folder / "ready.json"
        command = self.command("serve", "--flight-bind", "127.0.0.1:0", "--ready-file", str(ready), "--log-level", "error")
        server = subprocess.Popen(command, cwd=self.folder, env=self.environment())
        try:
            while not ready.exists():
                if server.poll() is not None:
                    raise Violation(f"seed {self.seed}: serve ended with {server.returncode}")
                time.sleep(0.05)
            with CountWatcher(json.loads(ready.read_text())["flight"], WATCH_SQL, lambda: self.written) as watcher:
                yield watcher
            if watcher.wrong:
                raise Violation(f"seed {self.seed} round {self.rounds}: a client saw {watcher.wrong}")
        finally:
            server.kill()
            server.wait()


def run_for(folder: Path, seed: int, failpoints: Sequence[str], minutes: float) -> KillRun:
    """Rounds until the time is over, then a last check."""
    ends = time.monotonic() + minutes * 60
    run = KillRun(folder, seed, failpoints)
    run.finish_and_check()
    with run.watched() as watcher:
        while time.monotonic() < ends and not watcher.wrong:
            run.round()
        run.finish_and_check()
    run.counts = watcher.counts
    return run
