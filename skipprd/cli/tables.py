"""`skipprd tables`: the tables of the warehouse."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from catalog.errors import EXIT_CODE, DataCorruption, InvalidRequest

if TYPE_CHECKING:
    from catalog.iceberg.lake import IcebergLake
    from catalog.lake import Identifier

__all__ = ["arguments", "run"]

_Row = Mapping[str, object]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("list", "describe", "snapshots", "recreate"),
                        help="list all tables; describe NAME: columns, pipelines, marks; snapshots NAME; recreate NAME: make a table anew "
                             "that was dropped although a log fed it, and say which rows are gone")
    parser.add_argument("table", nargs="?", metavar="NAME", help="namespace.table, as a query names it")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="as text, or JSON [text]")


def run(options: argparse.Namespace) -> int:
    from skipprd.app import App
    from skipprd.cli.common import start

    what: str = options.what
    if (options.table is None) != (what == "list"):
        raise InvalidRequest(f"skipprd tables {what} takes {'no NAME' if what == 'list' else 'NAME, such as bronze.events'}")
    as_json = options.output == "json"
    with App(start(options)) as app:
        if what == "recreate":
            from skipprd.recreate import recreate

            _print(recreate(app, parse_name(options.table)), as_json, lambda row: str(row["told"]))
            return 0
        lake = app.lake(app.config.query_sink())
        if what == "list":
            rows = [_entry_or_error(lake, one) for one in sorted(lake.list_tables())]
            _print(rows, as_json, _entry_text)
            return EXIT_CODE[DataCorruption] if any("error" in row for row in rows) else 0
        elif what == "describe":
            _print([_description(lake, parse_name(options.table))], as_json, _description_text)
        else:
            _print(_snapshots(lake, parse_name(options.table)), as_json, _snapshot_text)
    return 0


def parse_name(text: str) -> Identifier:
    """`a.b.table` as an identifier; a table without namespace is in `default`. Raises InvalidRequest."""
    levels = tuple(text.split("."))
    if not all(levels):
        raise InvalidRequest(f"{text!r} is not the name of a table: write namespace.table")
    return levels if len(levels) > 1 else ("default", *levels)


def _print(rows: list[_Row], as_json: bool, text: Callable[[_Row], str]) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(text(row))


def _entry(lake: IcebergLake, identifier: Identifier) -> _Row:
    state = lake.load(identifier)
    snapshot = lake.catalog.load_table(identifier).current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    return {
        "table": ".".join(identifier), "rows": int(summary["total-records"] or 0) if summary else 0,
        "files": int(summary["total-data-files"] or 0) if summary else 0, "columns": len(state.schema),
        "pipelines": sorted(state.pipelines),
    }


def _entry_or_error(lake: IcebergLake, identifier: Identifier) -> _Row:
    """A broken table is listed with what is wrong with it and hides no other."""
    try:
        return _entry(lake, identifier)
    except DataCorruption as error:
        return {"table": ".".join(identifier), "error": str(error)}


def _entry_text(row: _Row) -> str:
    if "error" in row:
        return f"{row['table']}  {row['error']}"
    return f"{row['table']}  {row['rows']:,} rows, {row['files']:,} files, {row['columns']} columns"


def _description(lake: IcebergLake, identifier: Identifier) -> _Row:
    state = lake.load(identifier)
    table = lake.catalog.load_table(identifier)
    return {
        **_entry(lake, identifier), "columns": {field.name: str(field.type) for field in state.schema}, "dropped": sorted(state.dropped),
        "partitioned_by": [str(field) for field in table.spec().fields], "sorted_by": [str(field) for field in table.sort_order().fields],
        "marks": {wal_id: str(mark) for wal_id, mark in sorted(state.marks.items())}, "metadata": state.metadata_location,
        "uuid": state.table_uuid, "generation": state.generation,
    }


def _description_text(row: _Row) -> str:
    columns = row["columns"]
    assert isinstance(columns, dict)
    lines = [f"{row['table']}  {row['rows']:,} rows, {row['files']:,} files"]
    lines += [f"  {name}: {kind}" for name, kind in columns.items()]
    for key in ("partitioned_by", "sorted_by", "dropped", "pipelines"):
        values = row[key]
        assert isinstance(values, list)
        if values:
            lines.append(f"{key.replace('_', ' ')}: {', '.join(values)}")
    marks = row["marks"]
    assert isinstance(marks, dict)
    lines += [f"mark of log {wal_id}: {mark}" for wal_id, mark in marks.items()]
    return "\n".join([*lines, f"metadata: {row['metadata']}"])


def _snapshots(lake: IcebergLake, identifier: Identifier) -> list[_Row]:
    found: list[_Row] = []
    for snapshot in lake.catalog.load_table(identifier).snapshots():
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
        found.append({
            "snapshot_id": snapshot.snapshot_id, "parent_id": snapshot.parent_snapshot_id, "at": at,
            "operation": snapshot.summary.operation.value if snapshot.summary is not None else None, "summary": dict(summary),
        })
    return found


def _snapshot_text(row: _Row) -> str:
    summary = row["summary"]
    assert isinstance(summary, dict)
    shown = {k: v for k, v in summary.items() if k in {"added-records", "added-data-files", "total-records"} or k.startswith("skippr.")}
    return f"{row['at']}  {row['snapshot_id']}  {row['operation']}  " + "  ".join(f"{k}={v}" for k, v in shown.items())
