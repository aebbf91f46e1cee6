"""What can be watched while something runs: progress, summary, metrics, health, logs."""

from __future__ import annotations

import io
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from catalog.errors import ConfigurationError, DataCorruption
from ingest.progress import FailedPartition, ProgressSnapshot, RunSummary
from skipprd import logs
from skipprd.console import Console
from skipprd.progress import line, metrics, summary_event, summary_text
from skipprd.telemetry import Metric, Telemetry, exposition


def snapshot(seconds: float = 2.0, records: int = 3000, **more: int) -> ProgressSnapshot:
    counts = {"landed_rows": 2900, "dead_letters": 0, "partitions": 1, "blocks": 1, "segments": 1, "segment_bytes": 10, "commits": 2,
              "wal_backlog_bytes": 1_500_000} | more
    return ProgressSnapshot(seconds=seconds, read_records=records, read_bytes=records * 1000, draining=False, **counts)


def summary(**more: object) -> RunSummary:
    values: dict[str, object] = {
        "read": 12, "landed": {"bronze.events": 9}, "dead_letters_by_code": {"json.syntax": 3}, "read_bytes": 4_000_000, "blocks": 1,
        "partitions": 1, "incarnations": 0, "segments": 1, "segment_bytes": 2_000_000, "commits": 2, "seconds": 2.0,
    }
    return RunSummary(**(values | more))  # type: ignore[arg-type]


def test_rates_are_those_since_the_last_line() -> None:
    text = line("events", snapshot(), snapshot(1.0, 1000))
    assert text == "events: 3,000 rows (2,000/s, 2.0 MB/s), backlog 1.5 MB, 2 commits"
    assert "dead letters" not in text
    assert ", 4 dead letters" in line("events", snapshot(dead_letters=4), None)


def test_summary_adds_up_in_text_and_json() -> None:
    text = summary_text("events", summary())
    assert "read 12 records, 4.0 MB of 1 partition in 2.0 s (2.0 MB/s)" in text
    assert "= 9 landed + 3 dead letters" in text
    event = json.loads(summary_event("events", summary()))
    assert event["read"] == event["landed_rows"] + event["dead_letters"] == 12


def test_summary_says_what_needs_attention() -> None:
    assert summary_text("events", summary(read=0, landed={}, dead_letters_by_code={})) == "events: nothing new to read (2.0 s)"
    failed = (FailedPartition("file:///x.gz", DataCorruption("x.gz is cut short")),)
    text = summary_text("events", summary(incarnations=2, new_partitions=("stdin-1",), failed=failed))
    assert "2 files began again" in text
    assert "stdin-1: give it a name with --stdin-id" in text
    assert "FAILED file:///x.gz: x.gz is cut short" in text


def test_metrics_are_valid_prometheus_text() -> None:
    text = exposition([*metrics("events", snapshot()), Metric("a_total", "counter", "A.", 1.5, (("x", 'q"\\\n'),))])
    lines = text.splitlines()
    assert 'skippr_ingest_read_records_total{pipeline="events"} 3000' in lines
    assert lines.count("# TYPE skippr_wal_backlog_bytes gauge") == 1
    assert 'a_total{x="q\\"\\\\\\n"} 1.5' in lines


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_readiness_and_metrics() -> None:
    ready = False
    with Telemetry("127.0.0.1:0", lambda: ready, lambda: metrics("events", snapshot(records=12_345_678)), "test") as telemetry:
        assert get(telemetry.address, "/healthz") == (200, "ok\n")
        assert get(telemetry.address, "/readyz")[0] == 503
        ready = True
        assert get(telemetry.address, "/readyz")[0] == 200
        assert 'read_records_total{pipeline="events"} 12345678' in get(telemetry.address, "/metrics")[1]
        assert get(telemetry.address, "/other")[0] == 404
        with pytest.raises(ConfigurationError, match=r"\(from test\) cannot be bound"):
            Telemetry(telemetry.address, lambda: True, list, "test")
    with pytest.raises(ConfigurationError, match="reachable from other machines"):
        Telemetry("0.0.0.0:0", lambda: True, list, "flag --http-bind")


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


@pytest.mark.usefixtures("_logging")
def test_logs_are_one_line_with_known_fields_only() -> None:
    writer = Lines()
    logs.setup("json", "info", writer)
    log = logging.getLogger("ingest.wal")
    logs.bind(node="n1")
    log.info("sealed\n%s", "x", extra={"pipeline": "events", "index": 7, "row": {"secret": 1}})
    log.debug("not shown")
    entry = json.loads(writer.lines[0])
    assert (entry["message"], entry["pipeline"], entry["index"], entry["node"], "row" in entry) == ("sealed x", "events", 7, "n1", False)
    logs.bind()
    logs.setup("text", "debug", writer)
    log.debug("shown", extra={"wal_id": "w"})
    assert writer.lines[1].endswith("debug   shown wal_id=w")
    assert len(writer.lines) == 2


def test_lines_and_live_line_do_not_mix() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    console = Console(stream)
    console.live("12 rows")
    console.write_line("a log line")
    console.live("")
    assert stream.getvalue() == "12 rows\r\x1b[2Ka log line\n12 rows\r\x1b[2K"
    plain = io.StringIO()
    Console(plain).live("12 rows")
    assert plain.getvalue() == ""
