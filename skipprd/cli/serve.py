"""`skipprd serve`: the Flight SQL server over one warehouse, until it is told to stop."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

__all__ = ["arguments", "run"]


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
            with app.telemetry(lambda: not stop.is_set(), lambda: server_metrics(*server.sessions.counts(), server.streams.count())):
                _announce(config.values.path_or_none("ready_file"), server.address)
                log.info("serving catalog %s of %s on %s", config.values.text("workspace"), app.data_dir(create=True), server.address)
                while not stop.wait(1.0):
                    pass
        finally:
            drained = server.shutdown()
    log.info("stopped")
    if not drained:
        os._exit(0)  # a client that reads nothing holds a call which only the end of the process frees
    return 0


def _announce(path: Path | None, address: str) -> None:
    """Write the ready file whole: it appears with its content or not at all."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({"flight": address}) + "\n", encoding="utf-8")
    draft.replace(path)
