"""From the bytes of a file to Arrow rows and bad records.

    stream = open_decoder(raw, name="a.jsonl.gz", uri="file:///in/a.jsonl.gz", settings=DecodeSettings(), start_record=0)
    for unit in stream.units():                  # reader thread: cheap, whole records only
        decoded = unit.decode(running_schema)    # any thread: rows + bad records == unit.records

Formats, compressions, types and failure codes: docs/formats.md. Blocks, not files, are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from catalog.errors import ConfigurationError
from ingest.decode.base import ByteStream, DecodedStream, RawUnit
from ingest.decode.container import Source, detect_compression, unpack
from ingest.decode.detect import detect_format
from ingest.settings import DecodeSettings

__all__ = ["DecodedStream", "RawUnit", "open_decoder"]

APPENDABLE = ("jsonl", "csv", "tsv")


def open_decoder(
    stream: ByteStream, *, name: str, uri: str, settings: DecodeSettings, start_record: int = 0, start_byte: int | None = None,
    at_eof_complete: bool = True,
) -> DecodedStream:
    """Open the raw bytes of a file. `stream` stands at its start and belongs to the result, which closes it where it has a `close`.

    `name` is the file's name with its endings ("" = only the content tells), `uri` what errors call it. Records before `start_record`
    are passed over; `start_byte` (the `byte_end` of the unit that ended at `start_record`; None or 0 = not known) makes that a seek
    for plain line formats and is ignored elsewhere. `at_eof_complete`: nothing can follow the present end, so a last record without
    newline is one; otherwise it is left for later. A read of `stream` may be short: what has arrived is then given out as a unit.

    Raises ConfigurationError (unknown format, a zip of several files), DataCorruption (broken container).
    """
    raw = Source(stream, name, getattr(stream, "close", None))
    compression = settings.compression or detect_compression(raw.peek())
    content = unpack(raw, compression, uri)
    kind = settings.format or detect_format(content.name, content.peek(), uri)
    appendable = compression == "none" and kind in APPENDABLE
    return _Stream(
        kind, compression, appendable, content, uri, settings, start_record, (start_byte or 0) if appendable else 0,
        at_eof_complete or not appendable,
    )


@dataclass(slots=True)
class _Stream:
    """A `DecodedStream`; formats are imported when they are met."""

    format: str
    compression: str
    appendable: bool
    _content: Source
    _uri: str
    _settings: DecodeSettings
    _start_record: int
    _start_byte: int
    _at_eof_complete: bool

    def units(self) -> Iterator[RawUnit]:
        content, settings, skip = self._content, self._settings, self._start_record
        if not content.peek(1):
            return iter(())
        match self.format:
            case "jsonl":
                return self._json_lines()
            case "json":
                from ingest.decode.jsonarray import ArrayLines
                from ingest.decode.jsonl import json_units

                lines = ArrayLines(content, self._uri)
                return json_units(lines, settings, skip=skip, first_record=0, base=0, at_eof_complete=True)
            case "csv" | "tsv":
                from ingest.decode.csvrows import csv_units

                return csv_units(
                    content, settings, self.format, skip=skip, start_byte=self._start_byte, at_eof_complete=self._at_eof_complete
                )
            case "parquet":
                from ingest.decode.binary import parquet_units

                return parquet_units(content, settings, self._uri, skip)
            case "arrow":
                from ingest.decode.binary import arrow_units

                return arrow_units(content, settings, self._uri, skip)
        raise ConfigurationError(f"{self._uri}: unknown format {self.format!r}; one of jsonl, json, csv, tsv, parquet, arrow")

    def _json_lines(self) -> Iterator[RawUnit]:
        from ingest.decode.jsonl import json_units

        skip, base, first = self._start_record, 0, 0
        if self._start_byte and self._content.seek_to(self._start_byte):
            skip, base, first = 0, self._start_byte, self._start_record
        return json_units(
            self._content, self._settings, skip=skip, first_record=first, base=base, at_eof_complete=self._at_eof_complete
        )

    def close(self) -> None:
        self._content.close()
