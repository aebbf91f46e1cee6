"""Making a table anew that was dropped while logs had moved on, without taking a row twice and without hiding what is lost.

A log that fed the table and has reclaimed those entries cannot give their rows again: they were in the dropped table. The new table
starts with the log's mark at the last of them (rule 13), so entries that still wait land and nothing older is expected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from catalog.arrow_schema import union_all
from catalog.clock import SystemClock
from catalog.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from catalog.keys import PipelineKey
from catalog.lake import Identifier, Mark, TableLayout, table_label
from ingest.settings import FileSourceSettings
from ingest.shape import Shape, layout_of
from ingest.wal.disk import Control, LogFolder, read_control
from ingest.wal.filesystem import LocalFileSystem
from ingest.wal.log import take_lock
from ingest.wal.segment import SegmentReader
from skipprd.app import App

__all__ = ["recreate"]


@dataclass(frozen=True, slots=True)
class _Feeder:
    """A log that fed the table: `lost` is the last reclaimed entry that did, `waiting` are schema and rows of those still there."""

    control: Control
    lost: int
    waiting: tuple[tuple[pa.Schema, int], ...]


def recreate(app: App, identifier: Identifier) -> list[Mapping[str, object]]:
    """Create the table with the marks of every log that fed it; one row per log telling what is gone and what waits.

    Takes the lock of each pipeline meanwhile. Raises Conflict (the table exists, a pipeline runs), NotFound (no log fed it),
    InvalidRequest (nothing tells its columns).
    """
    label = table_label(identifier)
    lake = app.lake(app.config.query_sink())
    with contextlib.suppress(NotFound):
        lake.load(identifier)
        raise Conflict(f"table {label} exists; there is nothing to make anew")
    with contextlib.ExitStack() as locks:
        feeders = list(_feeders(app, identifier, locks))
        if not feeders:
            raise NotFound(f"no log in {app.data_dir(create=False)} ever fed a table {label}; sync creates tables by itself")
        schema = union_all([schema for feeder in feeders for schema, _ in feeder.waiting]) or _sampled(app, feeders, label)
        marks = {f.control.wal_id: Mark(f.control.base.epoch, f.lost) for f in feeders if f.lost}
        first, *others = (str(feeder.control.pipeline) for feeder in feeders)
        lake.create(identifier, schema, _layout(app, feeders, schema, label), first, marks)
        for pipeline in others:
            lake.create(identifier, schema, TableLayout(), pipeline)
    return [_told(feeder, label) for feeder in feeders]


def _told(feeder: _Feeder, label: str) -> Mapping[str, object]:
    rows = sum(rows for _, rows in feeder.waiting)
    gone = f"what its entries up to {feeder.lost} gave to the dropped table is gone" if feeder.lost else "nothing of it was reclaimed"
    return {
        "table": label, "pipeline": str(feeder.control.pipeline), "wal_id": feeder.control.wal_id, "lost_up_to": feeder.lost,
        "waiting_entries": len(feeder.waiting), "waiting_rows": rows,
        "told": f"{label} is made anew; log {feeder.control.wal_id} of {feeder.control.pipeline}: {gone}; {rows:,} rows of "
                f"{len(feeder.waiting):,} entries wait and land with the next sync. To read everything again: sync --reset-offsets",
    }


def _feeders(app: App, identifier: Identifier, locks: contextlib.ExitStack) -> Iterator[_Feeder]:
    filesystem = LocalFileSystem()
    values = app.config.values
    root = app.data_dir(create=False) / values.text("tenant") / values.text("workspace")
    for path in sorted(root.glob("*/log.json")):
        folder = LogFolder.of(app.data_dir(create=False), PipelineKey(values.text("tenant"), values.text("workspace"), path.parent.name))
        locks.callback(take_lock(filesystem, folder.path, SystemClock()).close)
        control = read_control(filesystem, folder)
        if control is None:
            continue
        waiting = tuple(_waiting(folder, control, identifier))
        lost = control.fed.get(identifier, 0)
        if lost or waiting:
            yield _Feeder(control, lost, waiting)


def _waiting(folder: LogFolder, control: Control, identifier: Identifier) -> Iterator[tuple[pa.Schema, int]]:
    filesystem = LocalFileSystem()
    for name in sorted(filesystem.list(folder.segments)):
        index = LogFolder.index_of(name)
        if index is None or index <= control.base.index:
            continue
        reader = SegmentReader(filesystem.map(folder.segment(index)), str(folder.segment(index)))
        groups = reader.groups(identifier)
        if groups:
            yield union_all([reader.schema(group) for group in groups]) or pa.schema([]), sum(group.rows for group in groups)


def _sampled(app: App, feeders: list[_Feeder], label: str) -> pa.Schema:
    """Columns as the source of a feeding pipeline shows them in its first readable file."""
    from skipprd.sampling import partitions, sample

    for feeder in feeders:
        spec = app.config.pipelines.get(feeder.control.pipeline.pipeline)
        if spec is None or not isinstance(spec.source.settings, FileSourceSettings):
            continue
        with contextlib.suppress(ConfigurationError):  # a source that is gone tells nothing; the next may
            for found, waiting in partitions(spec.source.settings, spec.key, app.items("offsets")):
                one = sample(found, spec.source.settings.decode, waiting=waiting)
                if one.schema is not None and len(one.schema):
                    return Shape(spec.transform.flatten_events, spec.transform.time_fields).log_schema(one.schema)
    raise InvalidRequest(
        f"nothing tells the columns of {label}: no entry waits in a log and no source has a readable file. Register the dropped table's "
        "last metadata file instead, or read the source again under another pipeline name"
    )


def _layout(app: App, feeders: list[_Feeder], schema: pa.Schema, label: str) -> TableLayout:
    for feeder in feeders:
        spec = app.config.pipelines.get(feeder.control.pipeline.pipeline)
        if spec is not None:
            shape = Shape(spec.transform.flatten_events, spec.transform.time_fields)
            return shape.layout_for(schema, layout_of(spec.transform), label, several=True)
    return TableLayout()
