"""Counters and the closing summary."""

from __future__ import annotations

import pytest

from catalog.clock import ManualClock
from catalog.errors import DataCorruption, Internal
from ingest.progress import RunCounters, i8_adds_up


def test_i8_is_broken_by_one_record() -> None:
    i8_adds_up(3, 2, 1)
    for wrong in ((3, 2, 0), (3, 2, 2)):
        with pytest.raises(Internal, match="I8"):
            i8_adds_up(*wrong)


def test_a_summary_adds_up_or_is_refused() -> None:
    clock = ManualClock()
    counters = RunCounters(clock)
    counters.unit_decoded(10, 1000)
    clock.advance(2)
    with pytest.raises(Internal, match="10 records were read"):
        counters.summary(0, ())
    counters.segment_published({"a.b": 7}, {"utf8": 3}, 500)
    counters.committed(2)
    counters.partition_opened()
    error = DataCorruption("broken")
    counters.partition_failed("file:///x", error)
    summary = counters.summary(1, ("run-1",))
    assert (summary.read, summary.landed_rows, summary.dead_letters, summary.seconds) == (10, 7, 3, 2.0)
    assert (summary.commits, summary.segments, summary.segment_bytes, summary.incarnations) == (2, 1, 500, 1)
    assert summary.error is error
    shown = counters.snapshot(77)
    assert (shown.landed_rows, shown.dead_letters, shown.wal_backlog_bytes, shown.read_records, shown.draining) == (7, 3, 77, 10, False)


def test_without_failed_partitions_there_is_no_error() -> None:
    assert RunCounters(ManualClock()).summary(0, ()).error is None
