"""What a file is packed in: plain, gzip, zstd, bz2, or a zip of one file.

All members of a gzip and all frames of a zstd or bz2 file are read as one stream. A container that breaks off or does not match its
checksum raises DataCorruption naming the file and the place: everything before that place has been given out as whole records and
may land, nothing of the rest is. Started again, such a file goes on from the position reached and fails at the same place until it is
replaced by a whole one.
"""

from __future__ import annotations

import bz2
import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from catalog.errors import ConfigurationError, DataCorruption
from ingest.decode.base import ByteStream

__all__ = ["Source", "detect_compression", "unpack"]

_MAGIC: Final = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bz2"), (b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"))
_SKIPPABLE_ZSTD: Final = frozenset(bytes([0x50 + i, 0x2A, 0x4D, 0x18]) for i in range(16))
_PIECE_BYTES: Final = 64 * 1024
PEEK_BYTES: Final = 4096


class Source(io.RawIOBase):
    """Bytes whose beginning can be looked at, and that can be made seekable. Closing it closes what it reads from.

    `name` is the file's name with its endings; of the file inside for a zip.
    """

    def __init__(self, stream: ByteStream, name: str, below: Callable[[], None] | None = None) -> None:
        self._stream = stream
        self._below = below
        self._ahead = b""
        self._spooled: BinaryIO | None = None
        self.name = name

    def readable(self) -> bool:
        return True

    def peek(self, size: int = PEEK_BYTES) -> bytes:
        """Up to `size` bytes that the next reads will give; fewer where a short read with a newline in it or the end comes first."""
        while len(self._ahead) < size and b"\n" not in self._ahead:
            more = self._stream.read(size - len(self._ahead))
            self._ahead += more
            if not more:
                break
        return self._ahead[:size]

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, b"" at the end: short only where the stream below is, and never waiting for more than has been seen."""
        if not self._ahead:
            return self._stream.read(size)
        ahead, self._ahead = (self._ahead, b"") if size < 0 else (self._ahead[:size], self._ahead[size:])
        if size < 0:
            return ahead + self._stream.read()
        if len(ahead) < size and (self._can_seek() or isinstance(self._stream, _Unpacked)):
            ahead += self._stream.read(size - len(ahead))
        return ahead

    def readinto(self, buffer: Any, /) -> int:
        if not self._ahead and isinstance(self._stream, io.FileIO):
            return self._stream.readinto(buffer) or 0
        chunk = self.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def whole(self) -> BinaryIO:
        """All the bytes from the start, seekable: the file itself where it can seek, else a temporary file."""
        if self._spooled is None:
            if self._can_seek():
                self._spooled = cast(BinaryIO, self._stream)
            else:
                self._spooled = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by close()
                shutil.copyfileobj(cast(BinaryIO, self), self._spooled, 1 << 20)
        self._ahead = b""
        self._spooled.seek(0)
        return self._spooled

    def seek_to(self, offset: int) -> bool:
        """Go to a byte offset; False where the stream cannot."""
        if not self._can_seek():
            return False
        self._ahead = b""
        cast(BinaryIO, self._stream).seek(offset)
        return True

    def _can_seek(self) -> bool:
        return isinstance(self._stream, io.IOBase) and self._stream.seekable()

    def close(self) -> None:
        if not self.closed:
            if self._spooled is not None and self._spooled is not self._stream:
                self._spooled.close()
            if self._below is not None:
                self._below()
        super().close()


def detect_compression(head: bytes) -> str:
    """By content: a name may lie, the first bytes do not."""
    for magic, compression in _MAGIC:
        if head.startswith(magic):
            return compression
    return "zstd" if head[:4] in _SKIPPABLE_ZSTD else "none"


class _Unpacked:
    """Turns a codec's errors into DataCorruption with name and place, after everything that could be unpacked was given."""

    def __init__(self, read: Callable[[int], bytes], uri: str, compression: str) -> None:
        self._read = read
        self._uri = uri
        self._compression = compression
        self._given = 0
        self._error: Exception | None = None

    def read(self, size: int = -1, /) -> bytes:
        parts: list[bytes] = []
        wanted = size
        while wanted and self._error is None:
            try:
                chunk = self._read(_PIECE_BYTES if wanted < 0 else min(wanted, _PIECE_BYTES))
            except (EOFError, OSError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
                self._error = error
                break
            if not chunk:
                break
            parts.append(chunk)
            wanted -= len(chunk) if wanted > 0 else 0
        given = b"".join(parts)
        if not given and self._error is not None:
            raise DataCorruption(
                f"{self._uri}: the {self._compression} data breaks off or is damaged after {self._given} unpacked bytes ({self._error}); "
                "the records before that are kept; replace the file by a whole copy and run again"
            ) from self._error
        self._given += len(given)
        return given


class _Bz2:
    """All streams of a bz2 file. The standard library's reader takes damage at the start of a later stream for padding."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decompressor = bz2.BZ2Decompressor()
        self._begun = False

    def read(self, size: int) -> bytes:
        while True:
            given = b""
            if self._decompressor.eof:
                given, self._decompressor, self._begun = self._decompressor.unused_data, bz2.BZ2Decompressor(), False
            if not given and self._decompressor.needs_input:
                given = self._source.read(_PIECE_BYTES)
                if not given:
                    if self._begun:
                        raise EOFError("the end-of-stream marker is missing")
                    return b""
            self._begun |= bool(given)
            chunk = self._decompressor.decompress(given, size)
            if chunk:
                return chunk


def unpack(source: Source, compression: str, uri: str) -> Source:
    """The unpacked bytes; closing them closes `source`. Raises ConfigurationError for a zip of no or several files."""
    match compression:
        case "none":
            return source
        case "bz2":
            return Source(_Unpacked(_Bz2(source).read, uri, compression), source.name, source.close)
        case "gzip" | "zstd":
            stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), compression)
            return Source(_Unpacked(stream.read, uri, compression), source.name, source.close)
        case "zip":
            member = _zip_member(source.whole(), uri)
            return Source(_Unpacked(member.read, uri, "zip"), member.name, source.close)
    raise ConfigurationError(f"{uri}: unknown compression {compression!r}; one of none, gzip, zstd, bz2, zip")


def _zip_member(stream: BinaryIO, uri: str) -> BinaryIO:
    try:
        archive = zipfile.ZipFile(stream)
        members = [one for one in archive.infolist() if not one.is_dir()]
        if len(members) == 1 and not members[0].flag_bits & 1:
            return cast(BinaryIO, archive.open(members[0]))
    except (zipfile.BadZipFile, NotImplementedError) as error:  # the latter: zipfile's word for a method or version it does not know
        raise DataCorruption(f"{uri}: the zip archive is damaged or breaks off ({error}); replace it by a whole copy") from error
    if len(members) == 1:
        raise ConfigurationError(f"{uri}: {members[0].filename} inside the zip is encrypted; unpack it first")
    names = ", ".join(one.filename for one in members[:10]) or "none"
    raise ConfigurationError(f"{uri}: a zip must hold exactly one file, this one holds {len(members)} ({names}); unpack it first")
