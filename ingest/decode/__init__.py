"""From the bytes of a file to Arrow rows and bad records.

    stream = open_decoder(raw, name="a.jsonl.gz", uri="file:///in/a.jsonl.gz", settings=DecodeSettings(), start_record=0)
    for unit in stream.units():                  # reader thread: cheap, whole records only
        decoded = unit.decode(running_schema)    # any thread: rows + bad records == unit.records

Formats, compressions, types and failure codes: docs/formats.md. Blocks, not files, are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from catalog.errors import ConfigurationError
from ingest.decode.base import DecodedStream, RawUnit
from ingest.decode.container import Peekable, detect_compression, unpack
from ingest.decode.detect import detect_format
from ingest.decode.jsonl import json_units
from ingest.settings import DecodeSettings

__all__ = ["DecodedStream", "RawUnit", "open_decoder"]


def open_decoder(
    stream: BinaryIO, *, name: str, uri: str, settings: DecodeSettings, start_record: int = 0, start_byte: int | None = None,
    at_eof_complete: bool = True,
) -> DecodedStream:
    """Open the raw bytes of a file; `stream` is positioned at its start and belongs to the result, which closes it.

    `name` is the file's name with its endings, `uri` what errors call it. Records before `start_record` are passed over. `start_byte`
    (a `byte_end` that an earlier unit of the same file had when the position was `start_record`) makes that a seek for plain
    line formats; elsewhere it is ignored. `at_eof_complete`: nothing can follow the present end, so a last line without newline is
    a record; otherwise it is left for later.

    Raises ConfigurationError (unknown format, a zip of several files), DataCorruption (broken container).
    """
    raw = Peekable(stream, stream.close)
    head = raw.peek()
    compression = settings.compression or detect_compression(name, head)
    if compression == "none":
        content = raw
    elif stream.seekable():
        stream.seek(0)
        content = unpack(stream, compression, uri)
    else:
        raise ConfigurationError(f"{uri}: {compression} data needs a seekable stream")
    kind = settings.format or detect_format(name, content.peek(), uri)
    appendable = compression == "none" and kind in ("jsonl", "csv", "tsv")
    if kind == "jsonl":
        return _LineStream(content, stream, kind, compression, settings, start_record, start_byte, at_eof_complete)
    raise ConfigurationError(f"{uri}: format {kind!r}, appendable {appendable}")


class _LineStream:
    """A `DecodedStream` over lines."""

    def __init__(
        self, content: Peekable, stream: BinaryIO, kind: str, compression: str, settings: DecodeSettings, start_record: int,
        start_byte: int | None, at_eof_complete: bool,
    ) -> None:
        self.format, self.compression = kind, compression
        self.appendable = compression == "none"
        self._content, self._stream = content, stream
        self._settings = settings
        self._start_record, self._start_byte = start_record, start_byte
        self._at_eof_complete = at_eof_complete or not self.appendable

    def units(self) -> Iterator[RawUnit]:
        settings = self._settings
        if self._start_byte is not None and self.appendable and self._stream.seekable():
            self._stream.seek(self._start_byte)
            return json_units(
                self._stream, settings, skip=0, first_record=self._start_record, base=self._start_byte,
                at_eof_complete=self._at_eof_complete,
            )
        return json_units(
            self._content, settings, skip=self._start_record, first_record=0, base=0, at_eof_complete=self._at_eof_complete
        )

    def close(self) -> None:
        self._content.close()
