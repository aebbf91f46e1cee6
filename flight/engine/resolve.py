"""From a client's statement to a template in which every table of the scope is a hole.

A statement is parsed once with `json_serialize_sql`. The guard judges the tree; then each reference to a table of the scope becomes
a subquery over a placeholder, and qualified column references (`gold.rides.id`) lose the parts that the subquery's alias no longer
has. The template is the client's own text edited in place, so that column names and messages stay the client's; it is parsed again
and must equal the rewritten tree node by node. Where it does not (TABLE x, AT (...), unusual grammar), the text DuckDB makes from
the rewritten tree takes its place, under the same test. A pin then only fills the holes: see `flight.engine.session`.

Names resolve as in DuckDB: CTEs shadow, then the current schema, then reviewed system views; one to three parts; without regard to
case. A name that is none of these is refused here, so a stub view is never scanned.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import duckdb

from catalog.errors import Internal, InvalidRequest
from catalog.lake import Identifier
from flight.engine import guard
from flight.engine.duckdb import Connection
from flight.engine.failures import translate
from flight.engine.lexer import strip_semicolons
from flight.engine.parameters import Parameter, find_parameters
from flight.engine.rewrite import Rewriter, Tables
from flight.engine.trees import Node, TimeTravel, equal_trees

__all__ = ["Hole", "Template", "analyze"]

Listed = Literal["nothing", "names", "columns"]
_EXPRESSION_DEPTH: Final = "this statement is nested too deeply; split it with WITH"


_REFERENCE: Final = re.compile(r'\(SELECT \* FROM (__skippr_[0-9a-f]+_[hv][0-9]+_)\) AS ("(?:[^"]|"")*"|[A-Za-z_0-9]+)')


@dataclass(frozen=True, slots=True)
class Hole:
    """A place where a table of the scope stands. Every reference to one table (and one moment of it) shares a hole."""

    schema: str
    table: str
    identifier: Identifier
    at: TimeTravel | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A checked statement. `parts` is its text; a number stands for the hole of that number, an option for SET and USE."""

    sql: str
    kind: Literal["select", "explain", "set"]
    parts: tuple[str | int, ...] = ()
    holes: tuple[Hole, ...] = ()
    listed: Listed = "nothing"
    prefix: str = ""
    parameters: tuple[Parameter, ...] = ()
    option: guard.SetOption | None = None
    nonce: str = ""
    spellings: Mapping[tuple[str, str], str] = field(default_factory=dict, compare=False, hash=False)
    probes: dict[object, object] = field(default_factory=dict, compare=False, hash=False)
    """Schemas found for this template by what filled its holes; filled by the session."""

    def text(self, fill: Callable[[int], str]) -> str:
        """The statement with `fill(i)` in hole i; each is read after FROM."""
        if not self.holes:
            return self.prefix + "".join(part for part in self.parts if isinstance(part, str))
        return self.prefix + "".join(part if isinstance(part, str) else fill(part) for part in self.parts)

    def placeholder(self, hole: int) -> str:
        """A name for the hole that the statement does not use otherwise."""
        return f"__skippr_{self.nonce}_h{hole}_"

    def column_name(self, name: str) -> str:
        """A column named after its expression, with the client's tables again where placeholders stand."""
        if self.nonce not in name or not self.nonce:
            return name
        return _REFERENCE.sub(lambda found: self.spellings.get((found[1], _unquoted(found[2])), found[0]), name)

    @property
    def rewritten(self) -> bool:
        """Whether DuckDB sees another text than the client wrote."""
        return bool(self.holes)


def analyze(sql: str, connection: Connection, tables: Tables) -> Template:
    """Check one statement and find its tables.

    Raises InvalidRequest (syntax, another kind of statement, anything the guard refuses) and NotFound (a table).
    """
    kind = _statement_kind(sql, connection)
    if kind == "SET":
        return Template(sql=sql, kind="set", option=guard.parse_set(sql))
    prefix, body = "", sql
    if kind == "EXPLAIN":
        cut = guard.explain_prefix(sql)
        prefix, body = sql.encode()[:cut].decode(), sql.encode()[cut:].decode()
    body = strip_semicolons(body)
    root = _parse(body, connection)
    try:
        guard.check_tree(root)
        template = _rewrite(sql, body, root, connection, tables)
    except RecursionError:
        raise InvalidRequest(_EXPRESSION_DEPTH) from None
    return Template(
        sql=sql, kind="explain" if prefix else "select", parts=template.parts, holes=template.holes, listed=template.listed,
        prefix=prefix, parameters=find_parameters(root), nonce=template.nonce, spellings=template.spellings,
    )


def _statement_kind(sql: str, connection: Connection) -> str:
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the statement is not valid Unicode text at character {error.start}") from None
    try:
        statements = connection.raw.extract_statements(sql)
    except duckdb.Error as error:
        raise translate(error, rewritten=False) from error
    if not statements:
        raise InvalidRequest("the statement is empty")
    kinds = [statement.type.name for statement in statements]
    if kinds == ["SELECT"] or kinds == ["EXPLAIN"] or kinds == ["SET"]:
        return kinds[0]
    if len(statements) > 1 and "CREATE" in kinds and guard.describe_refusal(sql).startswith("PIVOT"):
        raise InvalidRequest("PIVOT needs its IN list written out: PIVOT t ON column IN ('a', 'b') USING sum(x)")
    if len(statements) > 1:
        raise InvalidRequest(f"{len(statements)} statements at once are not allowed: {guard.READ_ONLY}")
    guard.refuse_statement(guard.describe_refusal(sql))


def _parse(body: str, connection: Connection) -> Node:
    answer = connection.raw.execute("SELECT json_serialize_sql($1::VARCHAR)", [body]).fetchone()
    if answer is None:
        raise Internal("json_serialize_sql gave no row")
    try:
        root = json.loads(answer[0])
    except RecursionError:
        raise InvalidRequest(_EXPRESSION_DEPTH) from None
    if not isinstance(root, dict):
        raise Internal("json_serialize_sql gave no object")
    if root.get("error"):
        message = str(root.get("error_message", ""))
        if message.startswith("Only SELECT"):
            guard.refuse_statement(guard.describe_refusal(body))
        raise InvalidRequest(f"Parser Error: {message}")
    if len(root["statements"]) != 1:
        raise InvalidRequest(f"{len(root['statements'])} statements at once are not allowed: {guard.READ_ONLY}")
    return root


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


@dataclass(frozen=True, slots=True)
class _Draft:
    parts: tuple[str | int, ...]
    holes: tuple[Hole, ...]
    listed: Listed
    nonce: str = ""
    spellings: Mapping[tuple[str, str], str] = field(default_factory=dict)


def _rewrite(sql: str, body: str, root: Node, connection: Connection, tables: Tables) -> _Draft:
    nonce = secrets.token_hex(6)
    while nonce in sql:
        nonce = secrets.token_hex(6)
    rewriter = Rewriter(body, nonce, tables)
    rewriter.rewrite(root)
    holes = tuple(Hole(found.schema, found.table, found.identifier, found.at) for found in rewriter.holes)
    if not holes and not rewriter.views and not rewriter.changed:
        return _Draft((body,), (), rewriter.listed)
    text = rewriter.edited_text()
    if text is None or not _same(text, root, connection):
        text = _deserialize(root, connection)
        if not _same(text, root, connection):
            raise InvalidRequest("this statement cannot be tied to a snapshot: write its tables as plain FROM schema.table")
    pieces = re.split(rewriter.placeholder_pattern(), text)
    parts: list[str | int] = []
    for at, piece in enumerate(pieces):
        if at % 2 == 0:
            parts.append(piece)
        elif piece[0] == "v":
            parts.append(rewriter.views[int(piece[1:])])
        else:
            parts.append(int(piece[1:]))
    return _Draft(tuple(parts), holes, rewriter.listed, nonce, rewriter.spellings)


def _same(text: str, expected: Node, connection: Connection) -> bool:
    try:
        parsed = _parse(text, connection)
    except InvalidRequest:
        return False
    return equal_trees(parsed, expected)


def _deserialize(root: Node, connection: Connection) -> str:
    try:
        answer = connection.raw.execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(root)]).fetchone()
    except duckdb.Error as error:
        raise InvalidRequest(
            "this statement cannot be tied to a snapshot: write its tables as plain FROM schema.table"
        ) from error
    if answer is None:
        raise Internal("json_deserialize_sql gave no row")
    return str(answer[0])
