"""Schema changes that the waiting data of a pipeline would bring, foreseen from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from catalog.lake import Identifier, TableState, table_label
from ingest.settings import FileSourceSettings
from ingest.shape import Shape, schema_diff
from skipprd.sampling import partitions, sample

if TYPE_CHECKING:
    from catalog.iceberg.lake import IcebergLake
    from skipprd.app import App
    from skipprd.sections import PipelineSpec

__all__ = ["TableChange", "approve", "changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table of the pipeline: `schema` as it is, `foreseen` as the samples want it (None: cannot be told, `note` says why)."""

    identifier: Identifier
    exists: bool
    schema: pa.Schema
    foreseen: pa.Schema | None = None
    diff: tuple[str, ...] = ()
    note: str = ""

    @property
    def label(self) -> str:
        return table_label(self.identifier)


def changes(app: App, spec: PipelineSpec, samples_max: int) -> list[TableChange]:
    """The pipeline's tables, and for its own table what the first blocks of the waiting files would change. Writes nothing."""
    lake = app.lake(spec.sink)
    states = [state for one in sorted(lake.list_tables()) if str(spec.key) in (state := lake.load(one)).pipelines]
    own = (*spec.sink.namespace, spec.key.pipeline)
    note = _unforeseeable(spec)
    if note:
        return [TableChange(identifier=s.identifier, exists=True, schema=s.schema, note=note) for s in states]
    found = [TableChange(identifier=s.identifier, exists=True, schema=s.schema, foreseen=s.schema) for s in states if s.identifier != own]
    mine = _own(app, spec, next((s for s in states if s.identifier == own), None), own, samples_max)
    return sorted([*found, mine] if mine is not None else found, key=lambda change: change.identifier)


def approve(app: App, spec: PipelineSpec, found: list[TableChange]) -> None:
    """Change every table as foreseen; durable on return. A table that does not exist is made by the first sync.

    Raises Conflict, InvalidRequest, OutcomeUnknown.
    """
    lake: IcebergLake = app.lake(spec.sink)
    for change in found:
        if change.exists and change.diff and change.foreseen is not None:
            lake.evolve(change.identifier, change.foreseen)


def _unforeseeable(spec: PipelineSpec) -> str:
    if not isinstance(spec.source.settings, FileSourceSettings):
        return f"what a source of kind {spec.source.kind} would change cannot be foreseen"
    if spec.transform.namespace_fields:
        return "what waits is split over tables by its values, so changes cannot be foreseen"
    return ""


def _own(app: App, spec: PipelineSpec, state: TableState | None, identifier: Identifier, samples_max: int) -> TableChange | None:
    assert isinstance(spec.source.settings, FileSourceSettings)
    shape = Shape(spec.transform.flatten_events, spec.transform.time_fields)
    if state is not None:
        shape = shape.for_table(state.schema)
    have = state.schema if state is not None else pa.schema([])
    decoding = shape.decoding_schema(have)
    unread: list[str] = []
    for at, (found, waiting) in enumerate(partitions(spec.source.settings, spec.key, app.items_to_read("offsets"))):
        if not waiting:
            continue
        if at >= samples_max:
            break
        one = sample(found, spec.source.settings.decode, waiting=True, schema=decoding)
        if one.schema is None:
            unread.append(f"{found.name}: {one.error}")
        elif len(one.schema):
            decoding = one.schema
    wanted = shape.log_schema(decoding)
    if state is None and not len(wanted):
        return None
    known = pa.schema([*have, *(pa.field(name, pa.null()) for name in (state.dropped if state else ()) if have.get_field_index(name) < 0)])
    diff = tuple(schema_diff(known, wanted)) if state is not None else ()
    schema = have if state is not None else wanted
    return TableChange(identifier=identifier, exists=state is not None, schema=schema, foreseen=wanted, diff=diff, note="\n".join(unread))
