"""CSV records, framed by a real state machine: a newline inside quotes does not end a record.

Quoting is that of RFC 4180: a quote opens at the start of a field, two quotes inside stand for one, anything after the closing quote
belongs to the field. `\\n`, `\\r\\n` and a lone `\\r` end a record; an empty line is no record. Where every quote of a block stands
where it should, record ends are found by counting quotes, else by a regular expression, field by field.

A quoted field that never ends (end of file, or more than `line_bytes_max`) makes its first line a bad record `csv.quote`; reading goes
on with the line after it, so a stray quote costs one line, not the rest of the file.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt

from ingest.decode.base import RAW_BYTES_MAX, ByteStream
from ingest.decode.framing import BOM, LineReader, Lines, Offsets

__all__ = ["CsvReader", "record_ends"]

_LF, _CR = 10, 13


class CsvReader(LineReader):
    """Blocks of whole CSV records; the header is a record like any other here."""

    def __init__(
        self, stream: ByteStream, *, delimiter: str, quote: str, block_bytes: int, line_bytes_max: int, base: int, first_record: int,
        at_eof_complete: bool,
    ) -> None:
        super().__init__(
            stream, block_bytes=block_bytes, line_bytes_max=line_bytes_max, base=base, first_record=first_record,
            at_eof_complete=at_eof_complete,
        )
        self._delimiter, self._quote = delimiter, quote

    def _blocks(self) -> Iterator[Lines]:
        tail = b""
        while True:
            chunk = self._stream.read(max(self._block_bytes, len(tail)))
            final = not chunk and self._at_eof_complete
            if self._base == 0 and (tail or chunk).startswith(BOM):
                chunk, self._base = chunk[len(BOM) :], len(BOM)
            tail = yield from self._whole(tail + chunk, final)
            while tail and (final or len(tail) > self._line_bytes_max):
                end = _line_end(tail)
                if end < 0 and not final:
                    rest = yield from self._skip_line(tail, self._stream.read(self._block_bytes))
                    tail = yield from self._whole(bytes(rest), final)
                    break
                end = len(tail) if end < 0 else end
                raw = tail[: min(end, RAW_BYTES_MAX)].rstrip(b"\r\n")
                yield self._refused(raw, end, ("csv.quote", "a quoted field of this record never ends"))
                tail = yield from self._whole(tail[end:], final)
            if not chunk:
                return

    def _whole(self, data: bytes, final: bool) -> Generator[Lines, None, bytes]:
        """Give out the whole records of `data`; returns what is left."""
        ends, complete = record_ends(data, self._delimiter, self._quote, final)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        if final and complete and cut < len(data):
            cut = len(data)
            ends = np.append(ends, cut)
        if cut:
            lines = _records(data[:cut], ends, self._record, self._base)
            self._base += cut
            self._record += len(lines)
            if len(lines):
                yield lines
        return data[cut:]


def _line_end(data: bytes) -> int:
    """Offset after the first physical line, -1 where the data holds no line end."""
    found = re.search(rb"\r\n?|\n", data)
    return found.end() if found else -1


def _records(data: bytes, ends: Offsets, first_record: int, base: int) -> Lines:
    view = np.frombuffer(data, np.uint8)
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    stops = ends.copy()
    crlf = (stops < len(data)) & (stops > starts)
    crlf[crlf] = (view[stops[crlf]] == _LF) & (view[stops[crlf] - 1] == _CR)
    stops -= crlf
    full = stops > starts
    return Lines(data, starts[full], stops[full], first_record, base, base + len(data))


def record_ends(data: bytes, delimiter: str, quote: str, final: bool) -> tuple[Offsets, bool]:
    """Positions of the bytes that end a record, and whether the data ends outside quotes."""
    view = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(view == _LF)
    if b"\r" in data:
        returns = np.flatnonzero(view == _CR)
        following = np.append(view, 0)[returns + 1]
        lone = returns[(following != _LF) & ((returns + 1 < len(data)) | final)]
        breaks = np.sort(np.concatenate([breaks, lone]))
    if not quote or quote.encode() not in data:
        return breaks, True
    quotes = np.flatnonzero(view == ord(quote))
    if not _well_placed(view, quotes, ord(delimiter), ord(quote)):
        return _scan(data, delimiter, quote, breaks)
    outside = (np.searchsorted(quotes, breaks) & 1) == 0
    return breaks[outside], len(quotes) % 2 == 0


def _well_placed(view: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int, quote: int) -> bool:
    """Whether every opening quote starts a field and every closing one ends it, doubled quotes being both."""
    edge = np.zeros(256, np.bool_)
    edge[[delimiter, _LF, _CR, quote]] = True
    opening, closing = quotes[0::2], quotes[1::2]
    before = view[np.maximum(opening - 1, 0)]
    last = len(view) - 1
    after = view[np.minimum(closing + 1, last)]
    return bool((edge[before] | (opening == 0)).all() and (edge[after] | (closing == last)).all())


def _scan(data: bytes, delimiter: str, quote: str, breaks: Offsets) -> tuple[Offsets, bool]:
    """The state machine itself, for blocks with quotes in unusual places."""
    mark, between = re.escape(quote.encode()), re.escape(delimiter.encode())
    quoted = re.compile(mark + rb"(?:[^" + mark + rb"]|" + mark * 2 + rb")*+" + mark)
    plain = re.compile(rb"[^" + between + rb"\r\n]*+")
    ends: list[int] = []
    at, size, known = 0, len(data), set(breaks.tolist())
    opens = quote.encode()
    while at < size:
        if data.startswith(opens, at):
            found = quoted.match(data, at)
            if found is None:
                return np.array(ends, np.int64), False
            at = found.end()
        at = plain.match(data, at).end()  # type: ignore[union-attr]
        if at < size and data[at] in (_LF, _CR):
            at += data[at] == _CR and data[at + 1 : at + 2] == b"\n"
            if at in known:
                ends.append(at)
        at += 1
    return np.array(ends, np.int64), True
