"""`skipprd serve`: the Flight SQL server over one warehouse, until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["arguments", "bound_memory", "run"]

_HEADROOM_BYTES: Final = 4 << 30


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answer SQL over Arrow Flight SQL (JDBC, ADBC, skipprd query --to). Rows are visible as soon as sync has published them in the "
        "log. SIGTERM drains: running statements end, new ones are refused."
    )


def run(options: argparse.Namespace) -> int:
    """Exit 0 after a drain."""
    import logging
    import threading

    from skipprd.app import App
    from skipprd.cli.common import start
    from skipprd.lifecycle import DrainSignals
    from skipprd.process_metrics import server_metrics

    log = logging.getLogger("skipprd.serve")
    config = start(options)
    stop = threading.Event()
    with DrainSignals() as signals, App(config) as app:
        signals.on_drain(stop.set)
        server = app.open_server()
        try:
            bound_memory(config.values.count("memory_limit"))
            with app.telemetry(lambda: not stop.is_set(), lambda: server_metrics(*server.sessions.counts(), server.streams.count())):
                _announce(config.values.path_or_none("ready_file"), server.address)
                log.info("serving catalog %s of %s on %s", config.values.text("workspace"), app.data_dir(create=True), server.address)
                while not stop.wait(1.0):
                    pass
        finally:
            drained = server.shutdown()
        if not drained:  # a client that reads nothing, or one function of one row, holds a call which only the end of the process frees
            log.info("stopped; calls that did not end are cut")
            os._exit(0)
    log.info("stopped")
    return 0


def bound_memory(memory_limit_bytes: int) -> None:
    """Let an allocation fail before the machine runs out of memory; a limit that is lower already stays. Linux only.

    DuckDB's own limit does not count what one function makes of one row: `range(4000000000)` takes 32 GB under any. Beyond what the process
    has now it may take twice that limit, and half of the machine but at most 4 GiB. What fails is the large allocation, and the query.
    """
    if sys.platform != "linux":
        return
    import resource

    used = next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = used + 2 * memory_limit_bytes + min(_HEADROOM_BYTES, machine_bytes // 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [wanted, *(one for one in (soft, hard) if one != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


def _announce(path: Path | None, address: str) -> None:
    """Write the ready file whole: it appears with its content or not at all."""
    if path is None:
        return
    from catalog.errors import ConfigurationError

    draft = path.with_name(f".{path.name or 'ready'}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"flight": address}) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise ConfigurationError(f"ready_file {path} cannot be written: {error.strerror}; name a file in a folder that can be") from error
