"""Looking at a file source without ingesting it: which partitions there are, and what the first block of each decodes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from catalog.clock import SystemClock
from catalog.control.offsets import OffsetStore
from catalog.errors import ConfigurationError, SkipprError
from catalog.keys import PipelineKey
from ingest.decode import open_decoder
from ingest.settings import DecodeSettings, FileSourceSettings
from ingest.sources.file import FileSource
from ingest.sources.listing import Found, Listing

if TYPE_CHECKING:
    from catalog.items.table import ItemTable

__all__ = ["Sample", "partitions", "sample"]

_EMPTY = pa.schema([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A partition as it was found. `waiting`: there is something to read. `schema` None: not sampled, or `error` says why not."""

    partition: str
    path: str
    size_bytes: int
    waiting: bool
    format: str = ""
    compression: str = ""
    records: int = 0
    bad: int = 0
    schema: pa.Schema | None = None
    error: SkipprError | None = None


def partitions(settings: FileSourceSettings, key: PipelineKey, offsets: ItemTable) -> Iterator[tuple[Found, bool]]:
    """Files of the source in the order they are read, and whether each has something to read. Writes nothing.

    Raises ConfigurationError for a path that is missing or unreadable.
    """
    listing = Listing(settings.path, recursive=settings.recursive, own_folders=settings.own_folders)
    listing.check()
    source = FileSource(settings, OffsetStore(offsets, key, SystemClock()), SystemClock(), once=True)
    try:
        waiting = {partition.uri for partition in source.poll()}
    finally:
        source.close()
    for found in listing.files():
        yield found, Path(found.path).as_uri() in waiting


def sample(found: Found, decode: DecodeSettings, *, waiting: bool, schema: pa.Schema = _EMPTY) -> Sample:
    """Decode the file's first block against `schema`. What is wrong with the file is in the answer, never raised."""
    plain = Sample(partition=found.name, path=found.path, size_bytes=found.size_bytes, waiting=waiting)
    try:
        return _decoded(plain, decode, schema)
    except SkipprError as error:
        failure: SkipprError = error
    except OSError as error:
        failure = ConfigurationError(f"file {found.path!r} cannot be read ({error.strerror}): give this user the right to read it")
    return Sample(partition=found.name, path=found.path, size_bytes=found.size_bytes, waiting=waiting, error=failure)


def _decoded(plain: Sample, decode: DecodeSettings, schema: pa.Schema) -> Sample:
    with open(plain.path, "rb", buffering=0) as file:
        stream = open_decoder(
            file, name=os.path.basename(plain.path), uri=Path(plain.path).as_uri(), settings=decode, start_record=0, start_byte=0,
            at_eof_complete=True,
        )
        try:
            unit = next(iter(stream.units()), None)
            found = unit.decode(schema) if unit is not None else None
        finally:
            stream.close()
    return Sample(
        partition=plain.partition, path=plain.path, size_bytes=plain.size_bytes, waiting=plain.waiting, format=stream.format,
        compression=stream.compression, records=found.records if found else 0, bad=len(found.bad) if found else 0,
        schema=found.rows.schema if found else _EMPTY,
    )
