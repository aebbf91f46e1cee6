"""From files to rows and back, with real processes: sync, query, serve, ADBC, signals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow as pa
import pytest

from catalog.control.lockfile import read_holder
from tests.cli import Project, exists, wait_for


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


COUNT = "SELECT count(*) AS n FROM bronze.events"


def count(project: Project) -> int:
    return int(str(project.select(COUNT)[0]["n"]))


def adbc_count(uri: str) -> tuple[int, int]:
    with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT id) FROM bronze.events")
        rows, distinct = cursor.fetchall()[0]
        return int(rows), int(distinct)


def test_sync_once_query_and_nothing_the_second_time(project: Project) -> None:
    project.write("a.jsonl", 0, 1000)
    (project.input / "b.jsonl").write_text('{"id": 1000}\n{"id": broken\n')
    summary = project.sync()
    assert (summary["read"], summary["landed_rows"], summary["dead_letters"]) == (1002, 1001, 1)
    assert project.rows("SELECT count(*) AS n, sum(id)::BIGINT AS s, max(deep.k) AS k FROM bronze.events") == [
        {"n": 1001, "s": 500500, "k": 6},
    ]
    dead = project.rows("SELECT * FROM bronze._dl_events")
    assert len(dead) == 1
    text = project.ok("sync", "--pipeline", "events", "--once")
    assert "events: nothing new to read" in text
    assert count(project) == 1001


def test_summary_for_people_adds_up(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    text = project.ok("sync", "--pipeline", "events", "--once")
    assert "events: read 10 records" in text
    assert "= 10 landed + 0 dead letters" in text
    assert re.search(r"bronze\.events: 10", text)


def test_stdin_with_and_without_an_id(project: Project) -> None:
    lines = "".join(f'{{"id": {n}}}\n' for n in range(5))
    assert project.sync("piped", "--stdin-id", "s1", stdin=lines)["read"] == 5
    assert project.sync("piped", "--stdin-id", "s1", stdin=lines)["read"] == 0
    assert project.sync("piped", "--stdin-id", "s1", stdin=lines + '{"id": 5}\n')["read"] == 1
    other = project.run("sync", "--pipeline", "piped", "--once", "--stdin-id", "s1", stdin='{"id": 77}\n')
    assert other.code == 3, other
    anonymous = project.sync("piped", stdin=lines)
    assert anonymous["read"] == 5
    assert anonymous["new_partitions"]
    assert project.rows("SELECT count(*) AS n FROM bronze.piped") == [{"n": 11}]


def test_serve_sees_rows_of_a_running_sync_each_once(project: Project) -> None:
    """Rows are visible while they are only in the log, and never twice while compaction moves them."""
    project.write("a.jsonl", 0, 500)
    project.sync()
    small = {"BUFFER_THRESHOLD_SECONDS": "50ms", "SKIPPR_COMPACTION_COMMIT_SECONDS": "300ms"}
    with project.serve() as server, project.start("sync", "--pipeline", "events", "--log-level", "warning", **small) as sync:
        assert adbc_count(server.uri) == (500, 500)
        seen = 500
        for part in range(6):
            project.write(f"more-{part}.jsonl", 500 + part * 100, 100)
            wanted = 600 + part * 100

            def arrived(wanted: int = wanted) -> bool:
                nonlocal seen
                rows, distinct = adbc_count(server.uri)
                assert rows == distinct, "a row was counted twice"
                assert rows >= seen, "an acknowledged row went away"
                seen = rows
                return rows >= wanted

            wait_for(arrived)
        sync.signal(signal.SIGTERM)
        assert sync.finish().code == 0
        assert adbc_count(server.uri) == (1100, 1100)
        assert project.rows(COUNT, "--to", server.uri) == [{"n": 1100}]
        server.signal(signal.SIGTERM)
        done = server.finish()
        assert done.code == 0, done.err


def test_rows_in_the_log_only_are_visible_and_live_wal_off_hides_them(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    project.write("b.jsonl", 10, 5)
    with project.start("sync", "--pipeline", "events", BUFFER_THRESHOLD_SECONDS="50ms") as sync:
        wait_for(lambda: count(project) == 15)
        assert project.rows(COUNT) == [{"n": 15}]
        assert project.rows(COUNT, "--live-wal", "off") == [{"n": 10}]
        sync.signal(signal.SIGINT)
        assert sync.finish().code == 0
    assert count(project) == 15


def test_growing_file_is_picked_up_and_the_last_open_line_waits(project: Project) -> None:
    config = project.folder / "skippr.yml"
    config.write_text(config.read_text().replace("idle_close: 200ms", "idle_close: 1h"))
    path = project.write("a.jsonl", 0, 10)
    with project.start("sync", "--pipeline", "events", BUFFER_THRESHOLD_SECONDS="50ms") as sync:
        wait_for(lambda: exists(project, "bronze.events"))
        with path.open("a") as out:
            out.write('{"id": 10}\n{"id": 1')
            out.flush()
            wait_for(lambda: count(project) == 11)
            out.write("1}\n")
        wait_for(lambda: count(project) == 12)
        sync.signal(signal.SIGTERM)
        assert sync.finish().code == 0
    assert project.rows("SELECT sum(id)::BIGINT AS s FROM bronze.events") == [{"s": 66}]


def test_second_writer_is_refused_and_told_who_holds_the_lock(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    with project.start("sync", "--pipeline", "events") as first:
        wait_for(lambda: read_holder(project.data / "default/test/events") is not None)
        done = project.run("sync", "--pipeline", "events", "--once")
        assert done.code == 5
        assert f"process {first.process.pid} on " in done.err
        first.signal(signal.SIGTERM)
        assert first.finish().code == 0


def test_second_signal_forces(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    points = "lake.data_synced=sleep:20000"
    with project.start("sync", "--pipeline", "events", "--once", SKIPPR_FAILPOINTS=points) as sync:
        wait_for(lambda: any(project.data.rglob("*.parquet")))
        sync.signal(signal.SIGTERM)
        sync.signal(signal.SIGINT)
        done = sync.finish(15)
        assert done.code in {128 + signal.SIGTERM, 128 + signal.SIGINT}
        assert "ended without draining" in done.err
    project.sync()
    assert count(project) == 10


def test_health_and_metrics_of_a_running_sync(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    with project.start("sync", "--pipeline", "events", "--http-bind", "127.0.0.1:0", "--log-format", "json") as sync:
        address = ""
        assert sync.process.stderr is not None
        while not address:
            entry = json.loads(sync.process.stderr.readline())
            if "health and metrics on " in entry["message"]:
                address = entry["message"].removeprefix("health and metrics on ")
        with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
        wait_for(lambda: b'skippr_ingest_read_records_total{pipeline="events"} 10' in urllib.request.urlopen(f"{address}/metrics").read())
        sync.signal(signal.SIGTERM)
        assert sync.finish().code == 0


def test_query_in_every_form(project: Project) -> None:
    project.write("a.jsonl", 0, 3)
    project.sync()
    sql = "SELECT id, text FROM bronze.events WHERE id < ? ORDER BY id"
    assert project.ok("query", "--sql", sql, "--param", "1", "--output", "csv") == "id,text\n0,row 0\n"
    assert project.ok("query", "--param", "1", stdin=sql).splitlines()[-1] == "(1 row)"
    (project.folder / "q.sql").write_text(sql)
    assert len(json.loads(project.ok("query", "--file", "q.sql", "--param", "2", "--output", "json"))) == 2
    target = project.folder / "rows.arrow"
    command = [sys.executable, "-m", "skipprd", "query", "--sql", "SELECT 1::INT AS n", "--output", "arrow"]
    with target.open("wb") as out:
        subprocess.run(command, cwd=project.folder, env=project.environment(), stdout=out, check=True)
    assert pa.ipc.open_stream(target.read_bytes()).read_all().to_pylist() == [{"n": 1}]


def test_broken_pipe_is_not_an_error(project: Project) -> None:
    project.write("a.jsonl", 0, 3)
    project.sync()
    with project.start("query", "--sql", "SELECT range AS n FROM range(2000000)", "--output", "csv") as query:
        assert query.process.stdout is not None
        assert query.process.stdout.readline() == "n\n"
        query.process.stdout.close()
        query.process.stdout = None
        assert query.process.wait(30) == 0
        assert query.process.stderr is not None
        assert query.process.stderr.read() == ""


def test_look_commands(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    (project.input / "b.csv").write_text("id,colour\n1,red\n")
    found = [json.loads(line) for line in project.ok("discover", "--pipeline", "events", "--output", "json").splitlines()]
    assert [(f["partition"], f["format"], f["waiting"]) for f in found] == [("a.jsonl", "jsonl", True), ("b.csv", "csv", True)]
    assert found[1]["columns"]["colour"] == "string"
    assert not project.data.exists(), "looking made something"
    (project.input / "b.csv").unlink()
    project.sync()
    assert "bronze.events  10 rows" in project.ok("tables", "list")
    described = json.loads(project.ok("tables", "describe", "bronze.events", "--output", "json"))[0]
    assert described["columns"]["id"] == "int64"
    assert described["pipelines"] == ["default#test#events"]
    assert len(described["marks"]) == 1
    snapshots = json.loads(project.ok("tables", "snapshots", "bronze.events", "--output", "json"))
    assert snapshots[-1]["summary"]["added-records"] == "10"
    assert project.run("tables", "describe", "bronze.nope").code == 2


def test_schema_change_stops_is_shown_and_approved(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    (project.input / "b.jsonl").write_text('{"id": 10, "colour": "red"}\n')
    done = project.run("sync", "--pipeline", "events", "--once", SCHEMA_AUTO_APPROVE="false")
    assert done.code == 5
    assert "colour" in done.out
    assert "SCHEMA_AUTO_APPROVE" in done.err
    assert count(project) == 10
    shown = json.loads(project.ok("schema", "--pipeline", "events", "--output", "json"))
    assert any("colour" in line for line in shown["pending"])
    assert "approved" in project.ok("schema", "approve", "--pipeline", "events")
    assert project.sync("events", "--schema-auto-approve", "false")["read"] == 1
    assert project.rows("SELECT colour FROM bronze.events WHERE id = 10") == [{"colour": "red"}]


def test_reset_offsets_reads_everything_again(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    assert project.sync("events", "--reset-offsets")["read"] == 10
    assert count(project) == 20
    assert project.sync()["read"] == 0


def test_fail_on_deadletter(project: Project) -> None:
    (project.input / "a.jsonl").write_text('{"id": 1}\nnot json\n')
    done = project.run("sync", "--pipeline", "events", "--once", "--fail-on-deadletter")
    assert done.code == 6
    assert "= 1 landed + 1 dead letters" in done.out
    assert "_dl_events" in done.err
    assert count(project) == 1
