"""JSON documents as lines: the elements of top-level arrays, and objects written over several lines.

`ArrayLines` rewrites the bytes as they stream through, each byte in its place, so that offsets stay those of the file: a newline
outside strings becomes a space unless it is between documents, a comma between elements of a top-level array becomes a newline, and
the array's own brackets become a space and a newline. What comes out are JSON lines, decoded like any others. Only three numbers are kept
between blocks (depth, inside a string, inside an escape), whatever the file's size.

Empty elements are passed over. A raw newline inside a string, which is not JSON, becomes a control character, so that the record is
refused instead of being cut in two. An array or object that the end of the file leaves open, or a bracket too many, is DataCorruption:
everything before the element it is in has been given out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.errors import DataCorruption
from ingest.decode.base import ByteStream

__all__ = ["ArrayLines"]

_QUOTE, _BACKSLASH, _NEWLINE, _COMMA, _SPACE, _ILLEGAL = 34, 92, 10, 44, 32, 1
_OPEN_LIST: Final = ord("[")
_STEP: Final = np.zeros(256, np.int8)
for _byte, _by in ((b"{", 1), (b"[", 1), (b"}", -1), (b"]", -1)):
    _STEP[_byte[0]] = _by
_MARKS: Final = np.zeros(256, np.bool_)
_MARKS[[ord(c) for c in "{}[],\n"]] = True

Positions = npt.NDArray[np.int64]


class ArrayLines:
    """A ByteStream of lines over a ByteStream of JSON documents."""

    def __init__(self, stream: ByteStream, uri: str) -> None:
        self._stream = stream
        self._uri = uri
        self._at = 0
        self._depth = 0
        self._in_list = False
        self._in_string = False
        self._escaped = False

    def read(self, size: int = -1, /) -> bytes:
        """As many bytes as the stream below gives. Raises DataCorruption at an end inside a document."""
        chunk = self._stream.read(size)
        if not chunk:
            if self._depth or self._in_string:
                what = "a string" if self._in_string else "an array or object"
                raise DataCorruption(
                    f"{self._uri}: the JSON breaks off after {self._at} bytes inside {what}; the records before that are kept; replace the "
                    "file by a whole copy and run again"
                )
            return b""
        out = np.frombuffer(chunk, np.uint8).copy()
        self._rewrite(out)
        self._at += len(out)
        return out.tobytes()

    def _rewrite(self, out: npt.NDArray[np.uint8]) -> None:
        quotes = self._quotes(out)
        marks = np.flatnonzero(_MARKS[out])
        inside = ((np.searchsorted(quotes, marks) + self._in_string) & 1).astype(np.bool_)
        raw = marks[inside]
        out[raw[out[raw] == _NEWLINE]] = _ILLEGAL
        marks = marks[~inside]
        kinds = out[marks]
        steps = _STEP[kinds].astype(np.int64)
        after = self._depth + np.cumsum(steps)
        before = after - steps
        if len(after) and after.min() < 0:
            at = self._at + int(marks[np.argmax(after < 0)])
            raise DataCorruption(f"{self._uri}: byte {at} closes an array or object that was never opened; correct the file and run again")
        tops = np.flatnonzero((steps == 1) & (before == 0))
        in_list = self._listed(tops, kinds, len(marks))
        out[marks[(kinds == _NEWLINE) & (after > 0)]] = _SPACE
        out[marks[(kinds == _COMMA) & (after == 1) & in_list]] = _NEWLINE
        out[marks[(steps == -1) & (after == 0) & in_list]] = _NEWLINE
        out[marks[tops[kinds[tops] == _OPEN_LIST]]] = _SPACE
        if len(after):
            self._depth = int(after[-1])
            self._in_list = bool(in_list[-1])
        self._in_string ^= bool(len(quotes) & 1)

    def _listed(self, tops: Positions, kinds: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.bool_]:
        """For each mark: whether the document it is in is an array."""
        listed = np.concatenate([[self._in_list], kinds[tops] == _OPEN_LIST])
        return listed[np.searchsorted(tops, np.arange(count), "right")]

    def _quotes(self, out: npt.NDArray[np.uint8]) -> Positions:
        """Quotes that open or close a string: those not escaped by a backslash."""
        quotes = np.flatnonzero(out == _QUOTE)
        slashes = np.flatnonzero(out == _BACKSLASH)
        escaped, self._escaped = self._escaped, False
        if not len(slashes):
            return quotes[1:] if escaped and len(quotes) and quotes[0] == 0 else quotes
        # A byte is escaped when the run of backslashes before it is of odd length; runs may begin in the block before.
        heads = np.concatenate([[0], np.flatnonzero(np.diff(slashes) != 1) + 1])
        lengths = np.diff(np.concatenate([heads, [len(slashes)]]))
        begins = slashes[heads]
        if escaped and begins[0] == 0:
            lengths[0] += 1
        targets = begins + np.diff(np.concatenate([heads, [len(slashes)]]))
        odd = targets[lengths & 1 == 1]
        if escaped and begins[0] != 0:
            odd = np.concatenate([[0], odd])
        self._escaped = bool(len(odd) and odd[-1] == len(out))
        return quotes[~np.isin(quotes, odd)]
