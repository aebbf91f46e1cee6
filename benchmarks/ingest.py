"""Claim: ingest of nested JSON lines, write-ahead log, fsyncs and Iceberg commits included, beside pyarrow.json and dlt; and its memory.

Every figure is a whole process from start to end, imports included, ours and the peers' alike.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.measure import Claim, Run, median, repeat, run, worker

__all__ = ["claims"]

CONFIG = """\
pipelines:
  events: {data_source: data_sources.files, data_sink: data_sinks.lake}
data_sources:
  files: {File: {path: IN}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze}}
"""


def _generate(folder: Path, rows: int, bad_share: float) -> Path:
    path = folder / f"events-{rows}-{bad_share}.jsonl"
    if not path.exists():
        run([sys.executable, "-m", "benchmarks.generate", "--rows", str(rows), "--out", path, "--bad-share", str(bad_share)], cwd=folder)
    return path


def _sync(folder: Path, source: Path) -> Run:
    home = folder / "ours"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    config = home / "skippr.yml"
    config.write_text(CONFIG.replace("IN", str(source)))
    command = [sys.executable, "-m", "skipprd", "sync", "--config", config, "--pipeline", "events", "--once"]
    return run([*command, "--log-level", "warning"], cwd=home, env={"DATA_DIR": str(home / "data")})


def _pyarrow(folder: Path, source: Path) -> Run:
    return run(worker("pyarrow_json", source, folder / "peer.parquet"), cwd=folder)


def _dlt(folder: Path, source: Path) -> Run:
    home = folder / "dlt"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    return run(worker("dlt_iceberg", source, home), cwd=home)


def claims(folder: Path, *, quick: bool) -> list[Claim]:
    """300 MB for the rate, 1.2 GB for flat memory, 30 MB for dlt (whose rate does not depend on size); a tenth of each when quick."""
    rows = 30_000 if quick else 300_000
    times = 1 if quick else 3
    clean, dirty, long = (_generate(folder, *of) for of in ((rows, 0.0), (rows, 0.0005), (rows * 4, 0.0)))
    small = _generate(folder, rows // 10, 0.0)
    mb = clean.stat().st_size / 1e6
    ours = median(repeat(times, lambda: _sync(folder, clean)))
    peer = median(repeat(times, lambda: _pyarrow(folder, clean)))
    bad = median(repeat(times, lambda: _sync(folder, dirty)))
    four = _sync(folder, long)
    dlt = _dlt(folder, small)
    ours_rate, peer_rate, bad_rate = mb / ours.seconds, mb / peer.seconds, mb / bad.seconds
    dlt_rate = small.stat().st_size / 1e6 / dlt.seconds
    peak, peak4 = ours.memory_bytes_max / 1e6, four.memory_bytes_max / 1e6
    rates = {"ours MB/s": ours_rate, "pyarrow.json MB/s": peer_rate, "input MB": mb, "dlt MB/s": dlt_rate, "0.05 % bad MB/s": bad_rate}
    return [
        Claim("ingest / pyarrow.json -> one Parquet file", "x", ours_rate / peer_rate, 0.8, detail=rates),
        Claim("the same with 0.05 % bad lines", "x", bad_rate / peer_rate, 0.6),
        Claim("ingest / dlt -> Iceberg", "x", ours_rate / dlt_rate, 8.0),
        Claim("peak memory of ingest", "MB", peak, 500, at_least=False, detail={"pyarrow.json MB": peer.memory_bytes_max / 1e6}),
        Claim("peak memory, 4 times the input / once", "x", peak4 / peak, 1.1, at_least=False, detail={"MB": peak4}),
    ]
