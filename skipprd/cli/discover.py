"""`skipprd discover`: what a pipeline's source has, reading no more than the first block of each partition."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from catalog.errors import InvalidRequest, SkipprError

if TYPE_CHECKING:
    from skipprd.sampling import Sample

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline", required=True, metavar="NAME", help="the pipeline of skippr.yml to look at")
    parser.add_argument("--sample", type=int, default=20, metavar="N", help="decode the first block of this many partitions [20]")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="as text, or one JSON object a line [text]")


def run(options: argparse.Namespace) -> int:
    """Lists every partition; then raises the error of the first that cannot be read."""
    from ingest.settings import FileSourceSettings
    from skipprd.app import App
    from skipprd.cli.common import start
    from skipprd.sampling import Sample, partitions, sample

    failed: SkipprError | None = None
    with App(start(options)) as app:
        spec = app.config.pipeline(options.pipeline)
        settings = spec.source.settings
        if not isinstance(settings, FileSourceSettings):
            raise InvalidRequest(f"{spec.source.place}: a source of kind {spec.source.kind} has no partitions to list before it is read")
        count = 0
        for found, waiting in partitions(settings, spec.key, app.items_to_read("offsets")):
            if count < options.sample:
                one = sample(found, settings.decode, waiting=waiting)
            else:
                one = Sample(partition=found.name, path=found.path, size_bytes=found.size_bytes, waiting=waiting)
            failed = failed or one.error
            print(_json(one) if options.output == "json" else _text(one))
            count += 1
        if options.output == "text":
            print(f"{count:,} partition{'' if count == 1 else 's'}")
    if failed is not None:
        raise failed
    return 0


def _json(one: Sample) -> str:
    columns = None if one.schema is None else {name: str(kind) for name, kind in zip(one.schema.names, one.schema.types, strict=True)}
    return json.dumps({
        "partition": one.partition, "path": one.path, "size_bytes": one.size_bytes, "waiting": one.waiting, "format": one.format,
        "compression": one.compression, "sample_records": one.records, "sample_bad": one.bad, "columns": columns,
        "error": str(one.error) if one.error else None,
    })


def _text(one: Sample) -> str:
    from skipprd.setting_types import show_bytes

    lines = [f"{one.partition}  {show_bytes(one.size_bytes)}  {'to read' if one.waiting else 'read'}"]
    if one.error is not None:
        lines.append(f"  error: {one.error}")
    elif one.schema is not None:
        packed = f", {one.compression}" if one.compression not in ("", "none") else ""
        bad = f", {one.bad:,} of them bad" if one.bad else ""
        lines[0] += f"  {one.format}{packed}; sample of {one.records:,} records{bad}"
        lines += [f"  {name}: {kind}" for name, kind in zip(one.schema.names, one.schema.types, strict=True)]
    return "\n".join(lines)
