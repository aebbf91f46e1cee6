"""Claim: draining a 20M-row Iceberg table over Flight SQL, and small statements, beside Quack and DuckDB in process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measure import ROOT, Claim, run, worker

__all__ = ["claims"]

CONFIG = """\
pipelines:
  numbers: {data_source: data_sources.files, data_sink: data_sinks.lake}
data_sources:
  files: {File: {path: numbers.parquet}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze}}
"""


def _table(folder: Path, rows: int) -> Path:
    """A lake with `bronze.numbers`: id, two doubles and a string of 20 bytes. Made once; the folder it lies in."""
    home = folder / f"numbers-{rows}"
    if (home / "done").exists():
        return home
    home.mkdir(exist_ok=True)
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("name", pa.string())])
    with pq.ParquetWriter(home / "numbers.parquet", schema) as out:
        for first in range(0, rows, 1_000_000):
            ids = pa.array(range(first, first + 1_000_000), pa.int64())
            names = pc.binary_join_element_wise("name-of-", pc.utf8_lpad(pc.cast(ids, pa.string()), 12, "0"), "")
            out.write_table(pa.table([ids, pc.sqrt(ids), pc.sin(ids), names], schema=schema))
    (home / "skippr.yml").write_text(CONFIG)
    run([sys.executable, "-m", "skipprd", "sync", "--pipeline", "numbers", "--once"], cwd=home, env={"DATA_DIR": str(home / "data")})
    (home / "done").touch()
    return home


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _ours(home: Path) -> Iterator[tuple[str, int]]:
    """Our server; its address and process id."""
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "skipprd", "serve", "--flight-bind", "127.0.0.1:0", "--ready-file", str(ready)]
    environment = os.environ | {"DATA_DIR": str(home / "data"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, "--log-level", "error"], cwd=home, env=environment)
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(f"skipprd serve ended with {process.returncode}")
            time.sleep(0.02)
        yield json.loads(ready.read_text())["flight"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def _quack(home: Path, files: str) -> Iterator[int]:
    """DuckDB serving the same files; its port."""
    port = _free_port()
    command = [str(c) for c in worker("quack_server", files, str(port))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=home, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise RuntimeError("the Quack server did not start")
        yield port
    finally:
        process.communicate(timeout=30)


class _Memory(threading.Thread):
    """Samples the resident size of a process every 10 ms."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.first_bytes = self.max_bytes = self._process.memory_info().rss
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self.max_bytes = max(self.max_bytes, self._process.memory_info().rss)

    def grown_mb(self) -> float:
        self._over.set()
        self.join()
        return (self.max_bytes - self.first_bytes) / 1e6


def _rate(output: str) -> float:
    """GB/s of Arrow bytes from a client's closing line."""
    _, nbytes, seconds = output.split()[-3:]
    return int(nbytes) / float(seconds) / 1e9


def _best(times: int, command: list[str | Path], cwd: Path) -> float:
    return max(_rate(run(command, cwd=cwd).output) for _ in range(times))


def _scans(home: Path, files: str, times: int) -> list[Claim]:
    found: list[Claim] = []
    for label, columns in (("without strings", "id, x, y"), ("with a string column", "id, x, y, name")):
        with _ours(home) as (uri, pid):
            ask = worker("adbc_client", "scan", uri, f"SELECT {columns} FROM bronze.numbers")
            memory = _Memory(pid)
            memory.start()
            ours = _best(times, ask, home)
            grown = memory.grown_mb()
        with _quack(home, files) as port:
            quack = _best(times, worker("quack_client", "scan", str(port), columns), home)
        local = _best(times, worker("duckdb_scan", files, columns), home)
        rates: dict[str, float | str] = {"ours GB/s": ours, "Quack GB/s": quack, "in process GB/s": local}
        found += [
            Claim(f"Flight scan {label} / Quack", "x", ours / quack, 2.5, detail=rates),
            Claim(f"Flight scan {label} / DuckDB in process", "x", ours / local, 0.4),
            Claim(f"server memory growth {label}", "MB", grown, 300, at_least=False),
        ]
    return found


def _statements(home: Path, files: str, seconds: float) -> list[Claim]:
    found: list[Claim] = []
    for clients in (1, 8):
        with _ours(home) as (uri, _):
            ours = float(run(worker("adbc_client", "statements", uri, str(clients), str(seconds)), cwd=home).output.split()[-1])
        who = f"{clients} client{'s' if clients > 1 else ''}"
        for how, label in (("function", "Quack, quack_query()"), ("attached", "Quack, attached")):
            with _quack(home, files) as port:
                ask = worker("quack_client", "statements", str(port), str(clients), str(seconds), how)
                quack = float(run(ask, cwd=home).output.split()[-1])
            detail: dict[str, float | str] = {"ours 1/s": ours, "Quack 1/s": quack}
            found.append(Claim(f"SELECT 42, {who} / {label}", "x", ours / quack, 0.9, detail=detail))
    return found


def claims(folder: Path, *, quick: bool) -> list[Claim]:
    """20M rows; a tenth when quick."""
    home = _table(folder, 2_000_000 if quick else 20_000_000)
    files = str(home / "data" / "warehouse" / "**" / "*.parquet")
    times = 1 if quick else 3
    return _scans(home, files, times) + _statements(home, files, 2.0 if quick else 5.0)
