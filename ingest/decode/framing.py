"""Blocks of whole lines, cut out of a byte stream by ourselves.

No parser decides where a record ends: a line ends at `\\n`, whatever is in it (JSON escapes newlines inside strings). Rules:

* a byte order mark at the very start, `\\r` before `\\n` and white space around a line are not part of the record;
* a line of white space only is no record and moves no position but the byte offset;
* a line longer than `line_bytes_max` is one bad record (`line.too_long`), skipped to its newline exactly once;
* what follows the last newline is a record only where nothing can follow (`at_eof_complete`); until then it is not consumed, so the
  position moves by whole lines only while a file grows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.base import RAW_BYTES_MAX, ByteStream
from ingest.settings import DecodeSettings

__all__ = ["BOM", "LineReader", "LineUnit", "Lines", "Offsets", "not_utf8", "split"]

BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lines:
    """Non-blank lines of one block: line i is `data[starts[i]:ends[i]]`, without surrounding white space.
    `data` is never changed.

    `base` is the offset of `data[0]` in the stream, `byte_end` the offset after the last newline. `refused`: the block is one record
    (or its beginning) that cannot be read, with failure code and words.
    """

    data: bytes | bytearray
    starts: Offsets
    ends: Offsets
    first_record: int
    base: int
    byte_end: int
    refused: tuple[str, str] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, index: int) -> bytes:
        return bytes(memoryview(self.data)[self.starts[index] : self.ends[index]])

    def text(self, wanted: Offsets) -> pa.Buffer:
        """The wanted lines, in order, each with its line end, as one buffer; no copy where they follow each other."""
        starts, ends = self.starts, self.ends
        first, last = int(wanted[0]), int(wanted[-1])
        if last - first + 1 == len(wanted) and ends[last] < len(self.data):
            return pa.py_buffer(self.data).slice(int(starts[first]), int(ends[last] + 1 - starts[first]))
        breaks = np.flatnonzero(np.diff(wanted) != 1)
        heads = wanted[np.concatenate([[0], breaks + 1])]
        tails = wanted[np.concatenate([breaks, [len(wanted) - 1]])]
        view = memoryview(self.data)
        parts = [view[starts[a] : ends[b]] for a, b in zip(heads.tolist(), tails.tolist(), strict=True)]
        return pa.py_buffer(b"\n".join([*parts, b""]))

    def after(self, count: int) -> Lines:
        """Without the first `count` lines."""
        return Lines(
            self.data, self.starts[count:], self.ends[count:], self.first_record + count, self.base, self.byte_end, self.refused
        )


@dataclass(frozen=True, slots=True)
class LineUnit:
    """What units made of lines have in common; see `ingest.decode.base.RawUnit`."""

    lines: Lines
    settings: DecodeSettings

    @property
    def first_record(self) -> int:
        return self.lines.first_record

    @property
    def records(self) -> int:
        return len(self.lines)

    @property
    def byte_end(self) -> int:
        return self.lines.byte_end

    @property
    def size_bytes(self) -> int:
        return len(self.lines.data)


def not_utf8(lines: Lines) -> Iterator[tuple[int, str]]:
    """Lines that are not UTF-8, with the place of their first wrong byte."""
    data = lines.data
    if data.isascii():
        return
    at, view = 0, memoryview(data)
    while not _is_utf8(view[at:]):
        try:
            str(view[at:], "utf-8")
        except UnicodeDecodeError as error:
            place = at + error.start
            index = int(np.searchsorted(lines.starts, place, "right")) - 1
            if index >= 0 and place < lines.ends[index]:
                yield index, f"byte {place - int(lines.starts[index])} of the record is not UTF-8: {error.reason}"
                at = int(lines.ends[index])
            else:
                at = place + 1


def _is_utf8(view: memoryview) -> bool:
    """Checked by Arrow, which lets other threads run meanwhile and makes no copy."""
    offsets = pa.py_buffer(np.array([0, len(view)], np.int32))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(view)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def split(data: bytes | bytearray, begin: int, first_record: int, base: int) -> Lines:
    """The lines of `data[begin:]`; a missing newline at the end counts as one."""
    view = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(view == 10).astype(np.int64, copy=False)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.empty_like(ends)
    starts[0] = begin
    starts[1:] = ends[:-1] + 1
    ends -= view[np.maximum(ends - 1, starts.clip(max=len(data) - 1))] == 13
    return _trim(data, view, Lines(data, starts, ends, first_record, base, base + len(data)))


def _trim(data: bytes | bytearray, view: npt.NDArray[np.uint8], lines: Lines) -> Lines:
    """Drop blank lines and surrounding spaces; only lines with a space or control character at an edge cost Python time."""
    starts, ends = lines.starts, lines.ends
    last = len(data) - 1
    odd = np.flatnonzero((ends <= starts) | (view[starts.clip(max=last)] <= 32) | (view[(ends - 1).clip(min=0)] <= 32))
    if not len(odd):
        return lines
    for i in odd.tolist():
        text = data[starts[i] : max(ends[i], starts[i])]
        kept = text.lstrip(_SPACE)
        starts[i] += len(text) - len(kept)
        ends[i] = starts[i] + len(kept.rstrip(_SPACE))
    full = ends > starts
    return Lines(data, starts[full], ends[full], lines.first_record, lines.base, lines.byte_end)


class LineReader:
    """Reads a stream block by block. `base` is the stream's offset, `first_record` the number of the next line."""

    def __init__(
        self, stream: ByteStream, *, block_bytes: int, line_bytes_max: int, base: int, first_record: int, at_eof_complete: bool
    ) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._line_bytes_max = line_bytes_max
        self._base = base
        self._record = first_record
        self._at_eof_complete = at_eof_complete
        self._readinto: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)

    def blocks(self, skip: int = 0) -> Iterator[Lines]:
        """Blocks of at least one record each, without the first `skip` records."""
        for lines in self._blocks():
            if skip >= len(lines):
                skip -= len(lines)
            elif skip:
                yield lines.after(skip)
                skip = 0
            else:
                yield lines

    def _blocks(self) -> Iterator[Lines]:
        tail = bytearray()
        while (data := self._more(tail)) is not None:
            if len(tail) > self._line_bytes_max:
                data = yield from self._skip_line(tail, data[len(tail) :])
                tail = bytearray()
            cut = data.rfind(b"\n", len(tail)) + 1
            if not cut:
                tail = data
                continue
            tail = data[cut:]
            del data[cut:]
            yield from self._emit(data)
        if tail and self._at_eof_complete:
            if len(tail) > self._line_bytes_max:
                yield self._oversize(bytes(tail[:RAW_BYTES_MAX]), len(tail))
            else:
                yield from self._emit(tail)

    def _more(self, tail: bytearray) -> bytearray | None:
        """`tail` and what one read gives, None at the end. Streams that can read into a buffer fill it without another copy."""
        if self._readinto is None:
            chunk = self._stream.read(self._block_bytes)
            return tail + chunk if chunk else None
        data = bytearray(len(tail) + self._block_bytes)
        data[: len(tail)] = tail
        view = memoryview(data)[len(tail) :]
        try:
            count = self._readinto(view)
        finally:
            view.release()
        if not count:
            return None
        del data[len(tail) + count :]
        return data

    def _emit(self, data: bytes | bytearray) -> Iterator[Lines]:
        begin = len(BOM) if self._base == 0 and data.startswith(BOM) else 0
        lines = split(data, begin, self._record, self._base)
        self._base += len(data)
        self._record += len(lines)
        if len(lines):
            yield lines

    def _skip_line(self, head: bytes | bytearray, chunk: bytes | bytearray) -> Generator[Lines, None, bytearray]:
        """Pass over the rest of a line that is too long; returns what follows its newline.

        A generator whose return value is the remainder. Where the stream ends first and may still grow, nothing is consumed.
        """
        raw, length = bytes(head[:RAW_BYTES_MAX]), len(head)
        while True:
            cut = chunk.find(b"\n") + 1
            length += cut or len(chunk)
            if cut:
                yield self._oversize(raw, length)
                return bytearray(chunk[cut:])
            chunk = self._stream.read(self._block_bytes)
            if not chunk:
                if self._at_eof_complete:
                    yield self._oversize(raw, length)
                return bytearray()

    def _oversize(self, raw: bytes, length: int) -> Lines:
        return self._refused(
            raw, length, ("line.too_long", f"the record is {length} bytes long, more than the {self._line_bytes_max} that are read")
        )

    def _refused(self, raw: bytes, length: int, why: tuple[str, str]) -> Lines:
        end = np.array([len(raw)], np.int64)
        lines = Lines(raw, np.zeros(1, np.int64), end, self._record, self._base, self._base + length, why)
        self._base += length
        self._record += 1
        return lines
