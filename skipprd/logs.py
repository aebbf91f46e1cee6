"""One line per event on stderr, as text or JSON. Never row data, never a secret: only the fields below and the message are written."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Protocol

__all__ = ["FIELDS", "LineWriter", "StderrWriter", "bind", "setup"]

_bound: dict[str, object] = {}

FIELDS: Final = ("pipeline", "wal_id", "epoch", "index", "node", "table", "partition", "session", "duration_ms", "rows", "size_bytes")
"""What a record's `extra` may carry into the log."""


class LineWriter(Protocol):
    """Where lines for people go; keeps a live progress line and log lines apart."""

    def write_line(self, line: str) -> None: ...


class StderrWriter:
    """Lines straight to stderr."""

    def write_line(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class _Handler(logging.Handler):
    def __init__(self, writer: LineWriter, formatter: logging.Formatter) -> None:
        super().__init__()
        self._writer = writer
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.write_line(self.format(record))
        except (OSError, ValueError):
            self.handleError(record)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return f"{_time(record)} {record.levelname.lower():7} {_one_line(record)}{fields}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name, "message": _one_line(record)}
        return json.dumps(line | _fields(record), default=str)


def _one_line(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text += f" [{record.exc_info[0].__name__}: {record.exc_info[1]}]"
    return " ".join(text.split())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name in FIELDS if (value := record.__dict__.get(name, _bound.get(name))) is not None}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bind(**fields: object) -> None:
    """Fields of every record from now on that does not bring its own: a `sync` process has one pipeline."""
    _bound.clear()
    _bound.update(fields)


def setup(form: str, level: str, writer: LineWriter | None = None) -> None:
    """Send every log record of the process at `level` or above to `writer` (stderr). Replaces an earlier setup."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_Handler(writer or StderrWriter(), _Json() if form == "json" else _Text()))
    root.setLevel(level.upper())
    for noisy in ("pyiceberg", "botocore", "fsspec", "urllib3"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    logging.raiseExceptions = False
