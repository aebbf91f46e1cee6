"""`skipprd query`: one SQL statement, on the tables of this machine or on a server."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from skipprd.render import RowSource

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sql", metavar="SQL", help="the statement; without --sql and --file it is read from standard input")
    parser.add_argument("--file", metavar="PATH", help="read the statement from a file; - is standard input")
    parser.add_argument("--to", metavar="URI", help="ask this server (grpc://host:port) instead of reading the tables here")
    parser.add_argument("--output", choices=("table", "json", "csv", "arrow"), default="table",
                        help="table for people, a JSON array, CSV with a header, or an Arrow IPC stream [table]")
    parser.add_argument("--param", metavar="VALUE", action="append", default=[],
                        help="value of the next ? in the statement; a JSON number, true, false, null or \"text\", else text as it is")


def run(options: argparse.Namespace) -> int:
    from skipprd.cli.common import start
    from skipprd.lifecycle import exit_on_interrupt

    exit_on_interrupt()
    sql = statement_text(options.sql, options.file)
    parameters = [parameter(text) for text in options.param]
    if options.to:
        config = start(options)
        from skipprd.remote import ask

        with ask(options.to, sql, parameters, config.values.text("live_wal")) as reader:
            _show(options.output, reader)
        return 0
    from skipprd.app import App

    with App(start(options)) as app:
        session = app.open_session()
        statement = session.prepare(sql)
        rows = statement.execute(parameters, schema=statement.schema_for(parameters))
        try:
            _show(options.output, rows)
        finally:
            rows.close()
    return 0


def statement_text(sql: str | None, file: str | None) -> str:
    """The statement of --sql, --file or standard input. Raises InvalidRequest, NotFound."""
    if sql is not None and file is not None:
        raise InvalidRequest("give the statement with --sql or with --file, not both")
    if sql is None:
        if file is None and sys.stdin.isatty():
            raise InvalidRequest("no statement: give --sql, --file, or pipe it in")
        try:
            sql = sys.stdin.read() if file in (None, "-") else Path(str(file)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NotFound(f"--file {file}: cannot be read as UTF-8 text ({error})") from None
    if not sql.strip():
        raise InvalidRequest("the statement is empty")
    return sql


def parameter(text: str) -> object:
    """A JSON scalar where the text is one, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"--param {text}: not Unicode text") from None
    return text if isinstance(value, list | dict) else value


def _show(form: str, rows: RowSource) -> None:
    from skipprd import render

    render.write(form, rows, sys.stdout)
