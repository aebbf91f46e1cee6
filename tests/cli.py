"""Running the command line as a user does: a real process with a clean environment, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.errors import ConfigurationError, NotFound
from skipprd.app import App
from skipprd.sections import Configuration

__all__ = ["CONFIG", "Finished", "Project", "Running"]

CONFIG = """\
skippr: {workspace: test}
pipelines:
  events: {data_source: data_sources.files, data_sink: data_sinks.lake, deadletter_sink: data_sinks.lake}
  piped: {data_source: data_sources.stdin, data_sink: data_sinks.lake}
data_sources:
  files: {File: {path: ./in, poll_interval: 50ms, idle_close: 200ms}}
  stdin: {Stdin: {}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze}}
"""
SETTINGS_PREFIXES = ("SKIPPR_", "TRANSFORM_", "BUFFER_", "WAL_", "DATA_DIR", "SCHEMA_AUTO_APPROVE", "RESET_OFFSETS")


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Running:
    """A process that still runs; `uri` where it serves."""

    process: subprocess.Popen[str]
    uri: str = ""

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, timeout_s: float = 60) -> Finished:
        out, err = self.process.communicate(timeout=timeout_s)
        return Finished(self.process.returncode, out, err)


class Project:
    """A folder with skippr.yml, an input folder `in` and DATA_DIR `data`."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        self.input = folder / "in"
        self.data = folder / "data"
        self.input.mkdir(exist_ok=True)
        (folder / "skippr.yml").write_text(config)

    def environment(self, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS_PREFIXES)}
        return clean | {"DATA_DIR": str(self.data), "PYTHONPATH": str(Path(__file__).parents[1])} | more

    def run(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60, **env: str) -> Finished:
        """Run to the end."""
        done = subprocess.run(
            [sys.executable, "-m", "skipprd", *arguments], cwd=self.folder, env=self.environment(**env), capture_output=True, text=True,
            timeout=timeout_s, **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str | None = None, **env: str) -> str:
        """Run to success; its stdout."""
        done = self.run(*arguments, stdin=stdin, **env)
        assert done.code == 0, f"skipprd {' '.join(arguments)} ended with {done.code}\n{done.out}\n{done.err}"
        return done.out

    def sync(self, pipeline: str = "events", *arguments: str, stdin: str | None = None, **env: str) -> dict[str, object]:
        """`sync --once` to success; its summary."""
        out = self.ok("sync", "--pipeline", pipeline, "--once", "--output", "json", *arguments, stdin=stdin, **env)
        summary: dict[str, object] = json.loads(out.splitlines()[-1])
        assert summary["event"] == "summary"
        return summary

    def rows(self, sql: str, *arguments: str) -> list[dict[str, object]]:
        """`query` to success; its rows."""
        found: list[dict[str, object]] = json.loads(self.ok("query", "--sql", sql, "--output", "json", *arguments))
        return found

    def select(self, sql: str) -> list[dict[str, object]]:
        """The same rows, read by this process: quicker than a process of its own."""
        config = Configuration({"config": str(self.folder / "skippr.yml"), "data_dir": str(self.data)}, {}, self.folder)
        with App(config) as app:
            rows = app.open_session().prepare(sql).execute()
            try:
                return [row for batch in rows for row in batch.to_pylist()]
            finally:
                rows.close()

    @contextlib.contextmanager
    def start(self, *arguments: str, **env: str) -> Iterator[Running]:
        """Run beside the test; killed at the end if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "skipprd", *arguments], cwd=self.folder, env=self.environment(**env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    @contextlib.contextmanager
    def serve(self, *arguments: str, **env: str) -> Iterator[Running]:
        """A server on a free port, ready."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with self.start("serve", "--flight-bind", "127.0.0.1:0", "--ready-file", str(ready), *arguments, **env) as running:
            wait_for(lambda: ready.exists() or running.process.poll() is not None)
            assert ready.exists(), f"serve ended with {running.process.returncode}\n{running.finish().err}"
            running.uri = json.loads(ready.read_text())["flight"]
            yield running

    def write(self, name: str, first: int, count: int, *, append: bool = False) -> Path:
        """`count` JSON lines with ids from `first`."""
        path = self.input / name
        with path.open("a" if append else "w") as out:
            out.writelines(f'{{"id": {n}, "text": "row {n}", "deep": {{"k": {n % 7}}}}}\n' for n in range(first, first + count))
        return path


def exists(project: Project, table: str) -> bool:
    """Whether a query finds the table."""
    try:
        project.select(f"SELECT 1 FROM {table} LIMIT 1")
    except (NotFound, ConfigurationError):
        return False
    return True


def wait_for(condition: object, timeout_s: float = 30) -> None:
    """Poll until it holds; AssertionError after `timeout_s`."""
    ends = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.02)
