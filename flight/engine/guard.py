"""What a statement may be: one statement that reads tables, and nothing else on the machine.

The guard judges DuckDB's own syntax tree (`json_serialize_sql`), so that comments, quoting and odd spellings cannot hide
anything from it. It works by allow lists throughout: a kind of node or a function that nobody reviewed is refused. The instance's
lock-down (`flight.engine.duckdb`) is the second wall behind it.

Everything here is pure and thread safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from catalog.errors import InvalidRequest
from flight.engine.functions import ALLOWED_FUNCTIONS, ALLOWED_TABLE_FUNCTIONS
from flight.engine.lexer import Token, first_word, tokens

__all__ = [
    "READ_ONLY", "SetOption", "check_tree", "describe_refusal", "explain_prefix", "parse_set", "refuse_statement", "shown_listing",
]

READ_ONLY: Final = "this server is read-only: it runs one SELECT, EXPLAIN, DESCRIBE, SHOW or SUMMARIZE at a time"

_PARTS: Final = frozenset(
    [
        "SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE",
        "BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "SUBQUERY",
        "DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER", "ORDER_DEFAULT", "ASCENDING", "DESCENDING",
    ]
)
_EXPRESSIONS: Final = frozenset(
    [
        "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
        "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW",
    ]
)
_SCHEMAS_OF_TABLE_FUNCTIONS: Final = frozenset(["", "main"])
_SHOWN: Final = frozenset(["tables", "__show_tables_expanded", "schemas", "databases"])

_EXPLAIN_OPTIONS: Final = frozenset(["(", ",", "ANALYZE", "FORMAT", "JSON", "TEXT", "HTML", "GRAPHVIZ", "YAML", "MERMAID"])


@dataclass(frozen=True, slots=True)
class SetOption:
    """A SET, USE or RESET of one of the session's own options. `value` None means: back to the default."""

    name: str
    value: str | None


def refuse_statement(kind: str) -> NoReturn:
    """Raise InvalidRequest for a statement of another kind than those that read."""
    raise InvalidRequest(f"{kind} is not allowed: {READ_ONLY}")


def explain_prefix(sql: str) -> int:
    """Length in bytes of the EXPLAIN [ANALYZE] [(options)] in front of the statement that is explained.

    Raises InvalidRequest for options nobody reviewed.
    """
    found = list(tokens(sql.encode()))
    at = 1
    if at < len(found) and found[at].value.upper() == "ANALYZE":
        at += 1
    if at + 1 < len(found) and found[at].value == "(" and found[at + 1].value.upper() in ("FORMAT", "ANALYZE"):
        while found[at].value != ")":
            option = found[at].value.strip("'").upper()
            if option not in _EXPLAIN_OPTIONS:
                raise InvalidRequest(f"EXPLAIN option {found[at].value} is not allowed: use FORMAT json, text, html, yaml or graphviz")
            at += 1
            if at == len(found):
                raise InvalidRequest("EXPLAIN: its options end without a closing parenthesis")
        at += 1
    if at >= len(found):
        raise InvalidRequest("EXPLAIN needs a statement after it")
    return found[at].start


def parse_set(sql: str) -> SetOption:
    """The session option that a USE, SET or RESET statement names. Raises InvalidRequest for any other setting."""
    found = [token for token in tokens(sql.encode()) if token.value != ";" or token.kind != "other"]
    verb = found[0].value.upper() if found else ""
    words = found[1:]
    if verb == "USE":
        return SetOption("schema", _path(words))
    if words and words[0].kind == "word" and words[0].value.upper() in ("SESSION", "LOCAL"):
        words = words[1:]
    name = words[0].value.lower() if words else ""
    if name == "search_path":
        name = "schema"
    if verb == "RESET" and len(words) == 1:
        return SetOption(name, None)
    if verb != "SET" or len(words) < 3 or words[1].value.upper() not in ("=", "TO"):
        refuse_statement(f"{verb} {name}".strip() or "This statement")
    return SetOption(name, _path(words[2:]))


def _path(words: list[Token]) -> str:
    """Identifiers or one string as the text of a (dotted) name, identifiers quoted where they need it."""
    if len(words) == 1 and words[0].kind == "string":
        return words[0].value[1:-1].replace("''", "'")
    if not words or any(token.kind == "string" for token in words):
        raise InvalidRequest("a session option takes one name or one string as its value")
    return "".join(_quoted(token) if token.kind == "quoted" else token.value for token in words)


def _quoted(token: Token) -> str:
    return '"' + token.value.replace('"', '""') + '"'


def check_tree(root: object) -> None:
    """Raise InvalidRequest unless every node of the syntax tree is allowed.

    `root` is the decoded answer of `json_serialize_sql`. Names of tables are not judged here: `flight.engine.resolve` accepts
    tables of the scope, CTEs and reviewed system views, and refuses everything else.
    """
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            _check_node(node)
            stack.extend(_children(node))


def _children(node: Mapping[str, object]) -> list[object]:
    if node.get("type") != "TABLE_FUNCTION":
        return [value for value in node.values() if isinstance(value, dict | list)]
    function = node["function"]
    rest: list[object] = [value for key, value in node.items() if key != "function" and isinstance(value, dict | list)]
    if isinstance(function, dict):
        rest.extend(value for value in function.values() if isinstance(value, dict | list))
    return rest


def _check_node(node: Mapping[str, object]) -> None:
    kind = node.get("type")
    expression = node.get("class")
    if expression is not None:
        if expression not in _EXPRESSIONS:
            raise InvalidRequest(f"an expression of kind {expression} is not allowed here")
        if "function_name" in node:
            _check_function(node)
    elif kind == "TABLE_FUNCTION":
        _check_table_function(node["function"])
    elif kind == "SHOW_REF":
        _check_show(node)
    elif kind == "PIVOT":
        _check_pivot(node)
    elif isinstance(kind, str) and kind not in _PARTS and not kind.endswith("TYPE_INFO"):
        raise InvalidRequest(f"a part of kind {kind} is not allowed in a statement")


def _check_function(node: Mapping[str, object]) -> None:
    # `b.upper()` parses as function upper of schema b. No schema holds functions of its own, so the name alone decides.
    name = str(node["function_name"]).lower()
    if name not in ALLOWED_FUNCTIONS:
        raise InvalidRequest(f"function {name} is not allowed: it is unknown, or reads more than tables")
    if node.get("export_state"):
        raise InvalidRequest(f"function {name}: EXPORT_STATE is not allowed")


def _check_table_function(function: object) -> None:
    if not isinstance(function, dict) or function.get("class") != "FUNCTION":
        raise InvalidRequest("a table function is not allowed in this form")
    name = str(function["function_name"]).lower()
    schema = str(function.get("schema", "")).lower()
    if name not in ALLOWED_TABLE_FUNCTIONS or schema not in _SCHEMAS_OF_TABLE_FUNCTIONS or function.get("catalog") not in ("", "system"):
        raise InvalidRequest(f"table function {name} is not allowed: name tables as schema.table; files cannot be read here")


def _check_show(node: Mapping[str, object]) -> None:
    kind = node.get("show_type")
    if kind not in ("DESCRIBE", "SUMMARY", "SHOW_FROM", "SHOW_UNQUALIFIED"):
        raise InvalidRequest(f"SHOW of kind {kind} is not allowed")


def shown_listing(node: Mapping[str, object]) -> Literal["names", "columns"] | None:
    """What a SHOW_REF lists, or None where it describes one table or query instead."""
    if node.get("query") is not None:
        return None
    if node.get("show_type") == "SHOW_FROM":
        return "names"
    name = str(node.get("table_name", "")).strip('"').lower()
    if name not in _SHOWN:
        return None
    return "columns" if name == "__show_tables_expanded" else "names"


def _check_pivot(node: Mapping[str, object]) -> None:
    pivots = node.get("pivots")
    for pivot in pivots if isinstance(pivots, list) else []:
        if pivot.get("pivot_enum") or pivot.get("subquery"):
            raise InvalidRequest("PIVOT needs its IN list written out")


def describe_refusal(sql: str) -> str:
    """How to name, in a refusal, a statement that is no SELECT."""
    word = first_word(sql)
    return "PIVOT without a written IN list" if word in ("PIVOT", "PIVOT_WIDER", "FROM", "SELECT", "WITH") else word or "This statement"
