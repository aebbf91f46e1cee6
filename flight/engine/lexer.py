"""Just enough of DuckDB's lexical rules to edit a statement in place.

Nothing here decides what a statement may do: the guard works on DuckDB's own syntax tree, and every edited text is parsed again
and compared with the tree it should have. A mistake here costs the nicer of two texts, never correctness.
All offsets are in bytes of the UTF-8 text, as DuckDB's `query_location`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

__all__ = ["Token", "first_word", "quote", "quote_as_needed", "read_path", "strip_semicolons", "tokens"]

Kind = Literal["word", "quoted", "string", "other"]

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_SPACE: Final = re.compile(rb"(?:[ \t\n\r\f\v]|--[^\n\r]*)+")
_TOKEN: Final = re.compile(
    rb"""(?P<quoted>"(?:[^"]|"")*")"""
    rb"""|(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|[xXbB]?'(?:[^']|'')*')"""
    rb"""|(?P<dollar>\$(?P<tag>[A-Za-z_\x80-\xff][A-Za-z_0-9\x80-\xff]*)?\$.*?\$(?P=tag)\$|\$\$.*?\$\$)"""
    rb"""|(?P<word>[A-Za-z_\x80-\xff][A-Za-z_0-9$\x80-\xff]*)"""
    rb"""|(?P<other>[0-9][0-9A-Za-z_.]*|.)""",
    re.DOTALL,
)


class Token(NamedTuple):
    """One token: what it is, its value (identifiers without quotes; other kinds as written) and where it stands."""

    kind: Kind
    value: str
    start: int
    end: int


def tokens(text: bytes, at: int = 0) -> Iterator[Token]:
    """Tokens from byte `at` on, comments and white space left out."""
    end = len(text)
    while True:
        at = _skip_space(text, at)
        match = _TOKEN.match(text, at) if at < end else None
        if match is None:
            return
        raw = match.group()
        at = match.end()
        if match.group("quoted") is not None:
            yield Token("quoted", raw[1:-1].decode(errors="replace").replace('""', '"'), match.start(), at)
        elif match.group("word") is not None:
            yield Token("word", raw.decode(errors="replace"), match.start(), at)
        elif match.group("string") is not None or match.group("dollar") is not None:
            yield Token("string", raw.decode(errors="replace"), match.start(), at)
        else:
            yield Token("other", raw.decode(errors="replace"), match.start(), at)


def read_path(text: bytes, at: int, parts: int) -> list[Token] | None:
    """`parts` identifiers joined by dots, starting exactly at byte `at`; None where something else stands there."""
    names: list[Token] = []
    dot_next = False
    for token in tokens(text, at):
        if dot_next:
            if token.value != "." or token.kind != "other":
                return None
            dot_next = False
            continue
        if token.kind not in ("word", "quoted") or (not names and token.start != at):
            return None
        names.append(token)
        if len(names) == parts:
            return names
        dot_next = True
    return None


def first_word(sql: str) -> str:
    """The first keyword of the statement, upper case; empty where there is none."""
    for token in tokens(sql.encode()):
        if token.kind == "word":
            return token.value.upper()
        if token.value not in ("(", ";"):
            return ""
    return ""


def strip_semicolons(sql: str) -> str:
    """The statement without the semicolons before and after it."""
    text = sql.encode()
    start, end = 0, len(text)
    leading = True
    trailing: int | None = None
    for token in tokens(text):
        if token.value == ";" and token.kind == "other":
            if leading:
                start = token.end
            elif trailing is None:
                trailing = token.start
        else:
            leading, trailing = False, None
    return text[start:end if trailing is None else trailing].decode()


def quote(name: str) -> str:
    """The name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_as_needed(name: str) -> str:
    """The name as an identifier, quoted unless it is plain lower case."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def _skip_space(text: bytes, at: int) -> int:
    while True:
        match = _SPACE.match(text, at)
        if match is not None:
            at = match.end()
        if text[at:at + 2] != b"/*":
            return at
        at = _skip_block_comment(text, at)


def _skip_block_comment(text: bytes, at: int) -> int:
    depth = 0
    while True:
        opened, closed = text.find(b"/*", at), text.find(b"*/", at)
        if closed < 0:
            return len(text)
        if 0 <= opened < closed:
            depth, at = depth + 1, opened + 2
            continue
        depth, at = depth - 1, closed + 2
        if depth == 0:
            return at
