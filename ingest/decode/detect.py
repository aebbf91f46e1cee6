"""Which format a file has: what its name says, checked against what its first bytes say.

The name decides between formats that look alike (a CSV file may start with `{`), the content decides between JSON lines and a JSON
array, and reveals binary formats under any name. A name that is silent leaves it to the content; text that starts with neither `{`
nor `[` is CSV only where the name says so: guessing would turn a log file into a table of nonsense.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import msgspec

from catalog.errors import ConfigurationError

__all__ = ["detect_format", "name_format"]

_BY_NAME: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".jsonlines": "jsonl", ".json": "json", ".geojson": "json", ".csv": "csv", ".tsv": "tsv",
    ".tab": "tsv", ".parquet": "parquet", ".parq": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}
_PACKED: Final = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".zip")
_BOM: Final = b"\xef\xbb\xbf"


def name_format(name: str) -> str | None:
    """The format a file name stands for, compression endings left out; None where it stands for none."""
    suffixes = [s.lower() for s in PurePosixPath(name).suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return _BY_NAME.get(suffixes[-1]) if suffixes else None


def detect_format(name: str, head: bytes, uri: str) -> str:
    """`jsonl`, `json`, `csv`, `tsv`, `parquet` or `arrow`. Raises ConfigurationError where neither name nor content tells."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    named = name_format(name)
    if named in ("csv", "tsv", "parquet", "arrow"):
        return named
    text = head.removeprefix(_BOM).lstrip()
    start = text[:1]
    if named == "jsonl" or not start:
        return "jsonl"
    if start == b"[":
        return "json"
    if start == b"{":
        return "jsonl" if _one_object(text.partition(b"\n")) else "json"
    if named is not None:
        return named
    raise ConfigurationError(
        f"{uri}: cannot tell the format from the name {name!r} or its first bytes {head[:16]!r}; name it .jsonl, .json, .csv, .tsv, "
        ".parquet or .arrow, or set the source's format"
    )


def _one_object(parts: tuple[bytes, bytes, bytes]) -> bool:
    """Whether the first line is a whole object, or too long to see its end: then it is taken for a line."""
    line, newline, _ = parts
    if not newline and len(line) >= 4000:
        return True
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return not line.rstrip().endswith((b"{", b",", b"[", b":")) and len(line.strip()) > 1
    return True
