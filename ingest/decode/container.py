"""What a file is packed in: plain, gzip, zstd, bz2, or a zip of one file.

All members of a gzip and all frames of a zstd or bz2 file are read as one stream. A container that breaks off or does not match its
checksum raises DataCorruption naming the file and the place: everything before that place has been given out as whole lines and
may land, nothing of the rest is. Started again, such a file goes on from the position reached and fails at the same place until it is
replaced by a whole one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from typing import BinaryIO, Final, Protocol, cast

import pyarrow as pa

from catalog.errors import ConfigurationError, DataCorruption
from ingest.decode.base import ByteStream

__all__ = ["Peekable", "detect_compression", "seekable", "unpack"]

_MAGIC: Final = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bz2"), (b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"))
_SKIPPABLE_ZSTD: Final = frozenset(bytes([0x50 + i, 0x2A, 0x4D, 0x18]) for i in range(16))
PEEK_BYTES: Final = 4096


class Peekable:
    """A byte stream whose beginning can be looked at. Closes what it wraps."""

    def __init__(self, stream: ByteStream, close: Callable[[], None]) -> None:
        self._stream = stream
        self._close = close
        self._ahead = b""

    def peek(self, size: int = PEEK_BYTES) -> bytes:
        """Up to `size` bytes that the next reads will give; fewer only where a short read or the end says so."""
        while len(self._ahead) < size:
            more = self._stream.read(size - len(self._ahead))
            if not more:
                break
            self._ahead += more
            if b"\n" in more:
                break
        return self._ahead[:size]

    def read(self, size: int = -1, /) -> bytes:
        if not self._ahead:
            return self._stream.read(size)
        ahead, self._ahead = (self._ahead, b"") if size < 0 else (self._ahead[:size], self._ahead[size:])
        return ahead + self._stream.read() if size < 0 else ahead

    def close(self) -> None:
        self._close()


def detect_compression(name: str, head: bytes) -> str:
    """By content first: a name may lie, the first bytes do not."""
    for magic, compression in _MAGIC:
        if head.startswith(magic):
            return compression
    return "zstd" if head[:4] in _SKIPPABLE_ZSTD else "none"


class _Failing(Protocol):
    def __call__(self, size: int, /) -> bytes: ...


class _Guarded:
    """Turns a codec's errors into DataCorruption with name and place."""

    def __init__(self, read: _Failing, uri: str, compression: str) -> None:
        self._read = read
        self._uri = uri
        self._compression = compression
        self._given = 0

    def read(self, size: int = -1, /) -> bytes:
        try:
            chunk = self._read(size)
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
            raise DataCorruption(
                f"{self._uri}: the {self._compression} data breaks off or is damaged {self._given} unpacked bytes in ({error}); what "
                "came before is kept; replace the file by a whole copy and run again"
            ) from error
        self._given += len(chunk)
        return chunk


def unpack(stream: BinaryIO, compression: str, uri: str) -> Peekable:
    """The unpacked bytes. Raises ConfigurationError for a zip of no or several files; closing closes `stream` too."""
    match compression:
        case "none":
            return Peekable(stream, stream.close)
        case "gzip":
            return _peekable(_Guarded(gzip.GzipFile(fileobj=stream, mode="rb").read, uri, "gzip"), stream)
        case "bz2":
            return _peekable(_Guarded(bz2.BZ2File(stream, "rb").read, uri, "bz2"), stream)
        case "zstd":
            source = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
            return _peekable(_Guarded(source.read, uri, "zstd"), stream)
        case "zip":
            return _peekable(_Guarded(_zip_member(stream, uri).read, uri, "zip"), stream)
    raise ConfigurationError(f"{uri}: unknown compression {compression!r}; one of none, gzip, zstd, bz2, zip")


def _peekable(guarded: _Guarded, stream: BinaryIO) -> Peekable:
    return Peekable(guarded, stream.close)


def _zip_member(stream: BinaryIO, uri: str) -> io.BufferedIOBase:
    try:
        archive = zipfile.ZipFile(seekable(stream))
    except zipfile.BadZipFile as error:
        raise DataCorruption(f"{uri}: the zip archive is damaged or breaks off ({error}); replace it by a whole copy") from error
    members = [one for one in archive.infolist() if not one.is_dir()]
    if len(members) != 1:
        names = ", ".join(one.filename for one in members[:10]) or "none"
        raise ConfigurationError(f"{uri}: a zip must hold exactly one file, this one holds {len(members)} ({names}); unpack it first")
    if members[0].flag_bits & 1:
        raise ConfigurationError(f"{uri}: {members[0].filename} inside the zip is encrypted; unpack it first")
    return cast(io.BufferedIOBase, archive.open(members[0]))


def seekable(stream: ByteStream) -> BinaryIO:
    """The stream itself, or a temporary file with all its bytes where it cannot seek (stdin, compressed Parquet)."""
    if isinstance(stream, io.IOBase) and stream.seekable():
        return cast(BinaryIO, stream)
    spooled = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller, gone when closed
    shutil.copyfileobj(cast(BinaryIO, stream), spooled, 1 << 20)
    spooled.seek(0)
    return cast(BinaryIO, spooled)
