"""Plugins, signals while nothing is open yet, a query that is interrupted, a server before the first sync."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import Project, Running, wait_for

PLUGIN = '''
from catalog.control.offsets import OffsetPayload
from ingest.settings import FileSourceSettings
from ingest.sources.file import FileSource
from catalog.clock import SystemClock


def open_source(options, offsets, once):
    assert set(options) == {"folder", "list", "secret"} and options["list"] == ["a", "b"], options
    return FileSource(FileSourceSettings(path=options["folder"]), offsets, SystemClock(), once=once)
'''


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def install_plugin(folder: Path, target: str) -> str:
    """A distribution with an entry point, as pip would leave it; the path to put on PYTHONPATH."""
    site = folder / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme_source.py").write_text(PLUGIN)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(f"[skippr.sources]\nAcme = {target}\n")
    return f"{Path(__file__).parents[2]}:{site}"


def use_plugin(project: Project) -> None:
    path = project.folder / "skippr.yml"
    text = path.read_text()
    path.write_text(text.replace("{File: {path: ./in, poll_interval: 50ms, idle_close: 200ms}}",
                                 "{Acme: {folder: '${ACME_FOLDER}', list: [a, b], secret: '${ACME_SECRET}'}}"))


def test_third_party_source(project: Project) -> None:
    python_path = install_plugin(project.folder, "acme_source:open_source")
    use_plugin(project)
    project.write("a.jsonl", 0, 10)
    env = {"PYTHONPATH": python_path, "ACME_FOLDER": str(project.input), "ACME_SECRET": "hunter2"}
    done = project.run("sync", "--pipeline", "events", "--once", "--log-level", "debug", **env)
    assert done.code == 0, done
    assert "hunter2" not in done.out + done.err
    assert project.select("SELECT count(*) AS n FROM bronze.events") == [{"n": 10}]
    doctor = project.run("doctor", **env)
    assert (doctor.code, "hunter2" in doctor.out) == (0, False)


def test_third_party_source_that_cannot_be_loaded(project: Project) -> None:
    use_plugin(project)
    env = {"ACME_FOLDER": "x", "ACME_SECRET": "x"}
    python_path = install_plugin(project.folder, "acme_source:no_such_name")
    done = project.run("sync", "--pipeline", "events", "--once", PYTHONPATH=python_path, **env)
    assert done.code == 3
    assert "the source plugin Acme (acme_source:no_such_name) cannot be loaded" in done.err
    missing = project.run("sync", "--pipeline", "events", "--once", **env)
    assert "there is no source plugin 'Acme'" in missing.err


def test_signal_during_recovery_drains(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    project.write("b.jsonl", 10, 10)
    with project.start("sync", "--pipeline", "events", SKIPPR_FAILPOINTS="recovery.synced=sleep:1500") as sync:
        wait_for(lambda: "pid" in next(project.data.glob("*/*/events/LOCK")).read_text())
        sync.signal(signal.SIGTERM)
        done = sync.finish()
        assert done.code == 0, done
    project.sync()
    assert project.select("SELECT count(*) AS n FROM bronze.events") == [{"n": 20}]


def busy_s(running: Running) -> float:
    """Processor seconds of the process so far."""
    numbers = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def test_interrupted_query_ends_at_once(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    sql = "SELECT count(*) FROM range(100000000) a, range(100000) b WHERE a.range + b.range = -1"
    with project.start("query", "--sql", sql, "--log-level", "debug") as query:
        wait_for(lambda: busy_s(query) > 4)
        query.signal(signal.SIGINT)
        done = query.finish(20)
        assert done.code == 130, done
        assert "Traceback" not in done.err


def test_one_row_cannot_take_all_memory(project: Project) -> None:
    with project.serve("--memory-limit", "64MB") as server:
        for sql in ("SELECT range(4000000000)", "SELECT len(range(r)) FROM (SELECT 4000000000 AS r)"):
            refused = project.run("query", "--to", server.uri, "--sql", sql)
            assert (refused.code, "Out of Memory" in refused.err) == (4, True), refused
        refused = project.run("query", "--to", server.uri, "--sql", "SELECT error('while ' || 'it runs')")
        assert (refused.code, refused.err.count("while it runs")) == (2, 1), refused
        found = project.ok("query", "--to", server.uri, "--sql", "SELECT 42 AS n", "--output", "json")
        assert json.loads(found) == [{"n": 42}]
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 2_000_000, "KiB"


def test_a_ready_file_that_cannot_be_written_is_named(project: Project) -> None:
    for path in ("/proc/none/ready", "skippr.yml/ready", "in"):
        refused = project.run("serve", "--flight-bind", "127.0.0.1:0", "--ready-file", path)
        assert (refused.code, refused.err.count("error: ready_file")) == (3, 1), refused
    assert not list(project.folder.glob(".*"))


def test_parameters_and_output_of_a_query(project: Project) -> None:
    project.write("a.jsonl", 0, 1)
    project.sync()
    assert project.rows("SELECT ? AS n, ? AS t", "--param", "1", "--param", "x") == [{"n": 1, "t": "x"}]
    refused = project.run("query", "--sql", "SELECT ?", "--param", '"\\ud800"')
    assert (refused.code, "--param" in refused.err) == (2, True)
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "skipprd", "query", "--sql", "SELECT 1"]
        done = subprocess.run(command, cwd=project.folder, env=project.environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr


def test_a_table_without_its_metadata_hurts_no_other(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    project.sync("piped", stdin='{"id": 1}\n')
    for path in (project.data / "warehouse" / "bronze" / "piped").rglob("*.metadata.json"):
        path.unlink()
    listed = project.run("tables", "list")
    assert (listed.code, "bronze.events  10 rows" in listed.out, "bronze.piped  " in listed.out) == (6, True, True), listed
    with project.serve() as server:
        assert project.run("query", "--to", server.uri, "--sql", "SELECT * FROM bronze.events").code == 0
        broken = project.run("query", "--to", server.uri, "--sql", "SELECT * FROM bronze.piped")
        assert "metadata.json" in broken.err
        assert str(project.folder) not in broken.err, "a client sees no folder of the server"


def test_serve_starts_before_the_first_sync(project: Project) -> None:
    with project.serve() as server:
        assert json.loads(project.ok("query", "--to", server.uri, "--sql", "SELECT 42 AS n", "--output", "json")) == [{"n": 42}]
        missing = project.run("query", "--to", server.uri, "--sql", "SELECT * FROM bronze.events")
        assert missing.code == 2
        assert missing.err.count("\n") == 1
        project.write("a.jsonl", 0, 10)
        project.sync()
        found = project.ok("query", "--to", server.uri, "--sql", "SELECT count(*) AS n FROM bronze.events", "--output", "json")
        assert json.loads(found) == [{"n": 10}]
        taken = project.run("serve", "--flight-bind", server.uri.removeprefix("grpc://"))
        assert taken.code == 3
        assert "in use" in taken.err
    gone = project.run("query", "--to", server.uri, "--sql", "SELECT 1")
    assert gone.code == 4
    assert "is a server running there?" in gone.err
