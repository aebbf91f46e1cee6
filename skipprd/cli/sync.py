"""`skipprd sync`: one pipeline, once or until it is told to stop."""

from __future__ import annotations

import argparse
import sys

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline", required=True, metavar="NAME", help="the pipeline of skippr.yml to run")
    parser.add_argument("--once", action="store_true", help="end when everything that is there now is in the tables")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="summary and progress as text, or JSON events on stdout")


def run(options: argparse.Namespace) -> int:
    """Exit 0 when everything landed; a failed partition or dead letters (--fail-on-deadletter) are told after the summary."""
    from skipprd.memory import give_memory_back

    give_memory_back()
    from catalog.errors import DataCorruption
    from ingest.pipeline import SchemaChangeRefused
    from skipprd import logs
    from skipprd.app import App
    from skipprd.cli.common import start
    from skipprd.console import Console
    from skipprd.lifecycle import DrainSignals
    from skipprd.process_metrics import process_metrics
    from skipprd.progress import Reporter, metrics, summary_event, summary_text

    console = Console()
    config = start(options, console)
    as_json = options.output == "json"
    name: str = options.pipeline
    with DrainSignals() as signals, App(config) as app:
        logs.bind(pipeline=str(config.pipeline(name).key))
        pipeline = app.open_pipeline(name)
        signals.on_drain(pipeline.stop)
        with app.telemetry(lambda: True, lambda: [*metrics(name, pipeline.snapshot()), *process_metrics()]):
            try:
                with Reporter(name, pipeline, console, as_json=as_json):
                    summary = pipeline.run(once=options.once)
            except SchemaChangeRefused as refused:
                if not as_json:
                    for line in refused.diff:
                        print(line)
                raise
    print(summary_event(name, summary) if as_json else summary_text(name, summary))
    sys.stdout.flush()
    if summary.error is not None:
        raise summary.error
    if summary.dead_letters and config.values.on("fail_on_deadletter"):
        raise DataCorruption(
            f"{summary.dead_letters:,} records of pipeline {name} are dead letters (--fail-on-deadletter); the table _dl_{name} has "
            "each with its raw bytes, place and reason"
        )
    return 0
