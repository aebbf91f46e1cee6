"""What `sync` shows while it runs and at its end: a live line on a terminal, plain lines elsewhere, JSON events with --output json."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from ingest.progress import Progress, ProgressSnapshot, RunSummary
from skipprd.console import Console
from skipprd.telemetry import Metric

__all__ = ["Reporter", "line", "metrics", "summary_event", "summary_text"]

_LIVE_S: Final = 0.25
_PLAIN_S: Final = 10.0
_EVENT_S: Final = 1.0


def _rate(of: int, before: int, seconds: float) -> float:
    return max(0, of - before) / seconds if seconds > 0 else 0.0


def line(pipeline: str, now: ProgressSnapshot, before: ProgressSnapshot | None) -> str:
    """One line, meant to fit 80 columns: totals, rates since `before`, what waits in the log, table commits."""
    seconds = now.seconds - (before.seconds if before else 0.0)
    rows = _rate(now.read_records, before.read_records if before else 0, seconds)
    mb = _rate(now.read_bytes, before.read_bytes if before else 0, seconds) / 1e6
    dead = f", {now.dead_letters:,} dead letters" if now.dead_letters else ""
    return (
        f"{pipeline}: {now.read_records:,} rows ({rows:,.0f}/s, {mb:,.1f} MB/s), backlog {now.wal_backlog_bytes / 1e6:,.1f} MB, "
        f"{_count(now.commits, 'commit')}{dead}{', draining' if now.draining else ''}"
    )


def _event(kind: str, pipeline: str, now: ProgressSnapshot) -> str:
    return json.dumps({"event": kind, "pipeline": pipeline, **{name: getattr(now, name) for name in ProgressSnapshot.__slots__}})


def summary_event(pipeline: str, summary: RunSummary) -> str:
    """The closing summary as one JSON line; `read == landed_rows + dead_letters`."""
    return json.dumps({
        "event": "summary", "pipeline": pipeline, "read": summary.read, "landed_rows": summary.landed_rows,
        "dead_letters": summary.dead_letters, "landed": dict(summary.landed),
        "dead_letters_by_code": dict(summary.dead_letters_by_code), "read_bytes": summary.read_bytes,
        "partitions": summary.partitions, "incarnations": summary.incarnations, "new_partitions": list(summary.new_partitions),
        "failed": [{"uri": f.uri, "error": str(f.error)} for f in summary.failed], "segments": summary.segments,
        "segment_bytes": summary.segment_bytes, "commits": summary.commits, "seconds": round(summary.seconds, 3),
    })


def summary_text(pipeline: str, summary: RunSummary) -> str:
    """The closing summary for people."""
    if summary.read == 0 and not summary.failed:
        return f"{pipeline}: nothing new to read ({summary.seconds:.1f} s)"
    rate = summary.read_bytes / 1e6 / summary.seconds if summary.seconds else 0.0
    size = f"{summary.read_bytes / 1e6:,.1f} MB of {_count(summary.partitions, 'partition')}"
    lines = [
        f"{pipeline}: read {summary.read:,} records, {size} in {summary.seconds:.1f} s ({rate:,.1f} MB/s)",
        f"  = {summary.landed_rows:,} landed + {summary.dead_letters:,} dead letters",
    ]
    lines += [f"    {table}: {rows:,}" for table, rows in sorted(summary.landed.items())]
    lines += [f"    dead letters, {code}: {rows:,}" for code, rows in sorted(summary.dead_letters_by_code.items())]
    segments = f"{_count(summary.segments, 'segment')} ({summary.segment_bytes / 1e6:,.1f} MB)"
    lines.append(f"  {segments}, {_count(summary.commits, 'table commit')}")
    if summary.incarnations:
        lines.append(f"  {_count(summary.incarnations, 'file')} began again (rotated or rewritten) and were read from the start")
    lines += [f"  standard input was read as the new partition {name}: give it a name with --stdin-id to go on from here next time"
              for name in summary.new_partitions]
    lines += [f"  FAILED {failed.uri}: {failed.error}" for failed in summary.failed]
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def metrics(pipeline: str, now: ProgressSnapshot) -> Iterable[Metric]:
    """The counters of a run as Prometheus samples."""
    labels = (("pipeline", pipeline),)
    for name, kind, text, value in (
        ("skippr_ingest_read_records_total", "counter", "Records decoded.", now.read_records),
        ("skippr_ingest_read_bytes_total", "counter", "Bytes decoded.", now.read_bytes),
        ("skippr_ingest_landed_rows_total", "counter", "Rows published in the write-ahead log.", now.landed_rows),
        ("skippr_ingest_dead_letters_total", "counter", "Dead letters published in the write-ahead log.", now.dead_letters),
        ("skippr_ingest_partitions_total", "counter", "Partitions opened.", now.partitions),
        ("skippr_wal_segments_total", "counter", "Segments committed.", now.segments),
        ("skippr_wal_segment_bytes_total", "counter", "Bytes of committed segments.", now.segment_bytes),
        ("skippr_table_commits_total", "counter", "Iceberg commits of the compactor.", now.commits),
        ("skippr_wal_backlog_bytes", "gauge", "Bytes the log holds and the tables do not yet.", now.wal_backlog_bytes),
        ("skippr_draining", "gauge", "1 while the process drains.", int(now.draining)),
    ):
        yield Metric(name, kind, text, float(value), labels)


class Reporter:
    """Shows `source`'s counters from a thread of its own until the end of the `with` block."""

    def __init__(self, pipeline: str, source: Progress, console: Console, *, as_json: bool) -> None:
        self._pipeline = pipeline
        self._source = source
        self._console = console
        self._json = as_json
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Reporter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._console.live("")

    def _run(self) -> None:
        before: ProgressSnapshot | None = None
        pause = _EVENT_S if self._json else _LIVE_S if self._console.is_terminal else _PLAIN_S
        while not self._over.wait(pause):
            now = self._source.snapshot()
            if self._json:
                try:
                    sys.stdout.write(_event("progress", self._pipeline, now) + "\n")
                    sys.stdout.flush()
                except BrokenPipeError:  # nobody listens any more; the run goes on, and its end says so again
                    return
            elif self._console.is_terminal:
                self._console.live(line(self._pipeline, now, before))
            else:
                self._console.write_line(line(self._pipeline, now, before))
            before = now
