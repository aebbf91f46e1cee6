"""Metrics of a serving process."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable

from skipprd.telemetry import Metric

__all__ = ["process_metrics", "server_metrics"]

_STARTED_S = time.time()


def process_metrics() -> Iterable[Metric]:
    """What every process has, under Prometheus' usual names."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    yield Metric("process_start_time_seconds", "gauge", "Start of the process, Unix time.", _STARTED_S)
    yield Metric("process_cpu_seconds_total", "counter", "User and system CPU time.", usage.ru_utime + usage.ru_stime)
    yield Metric("skippr_process_peak_memory_bytes", "gauge", "Largest resident size so far.", float(peak_bytes))


def server_metrics(sessions: int, statements: int, streams: int) -> Iterable[Metric]:
    """What a Flight SQL server holds now."""
    yield Metric("skippr_flight_sessions", "gauge", "Open sessions.", float(sessions))
    yield Metric("skippr_flight_statements", "gauge", "Prepared statements.", float(statements))
    yield Metric("skippr_flight_streams", "gauge", "Results being streamed.", float(streams))
    yield from process_metrics()
