"""`skipprd schema`: what a pipeline's tables look like, what the waiting data would change, and letting that in."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from catalog.errors import InvalidRequest

if TYPE_CHECKING:
    from skipprd.pending import TableChange

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("show", "approve"), default="show",
                        help="show: columns, and what the waiting data would change; approve: change the tables so [show]")
    parser.add_argument("--pipeline", required=True, metavar="NAME", help="the pipeline of skippr.yml")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="decode the first block of this many waiting partitions [100]")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="as text, or one JSON object a table [text]")


def run(options: argparse.Namespace) -> int:
    """Exit 0; approve raises InvalidRequest where nothing can be foreseen."""
    from skipprd.app import App
    from skipprd.cli.common import start
    from skipprd.pending import approve, changes

    with App(start(options)) as app:
        spec = app.config.pipeline(options.pipeline)
        found = changes(app, spec, options.sample)
        if options.what == "approve":
            if any(one.foreseen is None for one in found):
                raise InvalidRequest(
                    f"pipeline {options.pipeline}: what its source would change cannot be foreseen (see: skipprd schema); let it in by "
                    "running once with SCHEMA_AUTO_APPROVE=true"
                )
            approve(app, spec, found)
        for one in found:
            print(_json(one) if options.output == "json" else _text(one))
            if options.what == "approve" and options.output == "text" and one.diff:
                print("  approved")
        if not found and options.output == "text":
            print(f"pipeline {options.pipeline} has no table yet; the first sync makes it")
    return 0


def _json(one: TableChange) -> str:
    columns = {field.name: str(field.type) for field in one.schema}
    return json.dumps({"table": one.label, "exists": one.exists, "columns": columns, "pending": list(one.diff), "note": one.note or None})


def _text(one: TableChange) -> str:
    lines = [one.label + ("" if one.exists else " (does not exist yet)")]
    lines += [f"  {field.name}: {field.type}" for field in one.schema]
    if one.diff:
        lines.append("pending:")
        lines += [f"  {line}" for line in one.diff]
    if one.note:
        lines.append(one.note)
    return "\n".join(lines)
