"""Syntax trees as `json_serialize_sql` gives them: what is made of, read off and compared in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from catalog.errors import InvalidRequest

__all__ = [
    "NOWHERE", "Node", "TimeTravel", "base_table", "equal_trees", "function_name", "is_bare_star", "location", "select_star", "time_travel",
]

Node = dict[str, object]

NOWHERE: Final = 18446744073709551615
"""The place of a node that stands nowhere in the text."""


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """An AT clause: `option` of iceberg_scan and its value as SQL."""

    option: Literal["snapshot_from_id", "snapshot_from_timestamp"]
    value: str


def equal_trees(one: object, other: object) -> bool:
    """Whether two trees are equal apart from where things stand in the text."""
    stack: list[tuple[object, object]] = [(one, other)]
    while stack:
        left, right = stack.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            keys = left.keys() - {"query_location"}
            if keys != right.keys() - {"query_location"}:
                return False
            stack.extend((left[key], right[key]) for key in keys)
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right, strict=True))
        elif type(left) is not type(right) or left != right:
            return False
    return True


def time_travel(node: Node) -> TimeTravel | None:
    """The AT clause as an option of iceberg_scan. Raises InvalidRequest unless it is a literal."""
    clause = node.get("at_clause")
    if not isinstance(clause, dict):
        return None
    value = _literal(clause["expr"])
    unit = str(clause["unit"]).upper()
    if unit == "VERSION" and value is not None and value.isdigit():
        return TimeTravel("snapshot_from_id", value)
    if unit == "TIMESTAMP" and value is not None:
        return TimeTravel("snapshot_from_timestamp", "TIMESTAMP '" + value.replace("'", "''") + "'")
    raise InvalidRequest("AT takes (VERSION => snapshot id) or (TIMESTAMP => 'YYYY-MM-DD HH:MM:SS'), each a literal")


def _literal(expression: object) -> str | None:
    if not isinstance(expression, dict):
        return None
    if expression.get("class") == "CAST":
        return _literal(expression.get("child"))
    value = expression.get("value")
    if expression.get("class") != "CONSTANT" or not isinstance(value, dict) or value.get("is_null"):
        return None
    return str(value["value"])


def function_name(node: Node) -> str:
    """The table function's name, lower case."""
    function = node["function"]
    assert isinstance(function, dict)
    return str(function["function_name"]).lower()


def location(node: Node) -> int:
    """Where the node stands in the text, in bytes; NOWHERE where DuckDB made it."""
    location = node["query_location"]
    assert isinstance(location, int)
    return location


def is_bare_star(query: Node) -> bool:
    """Whether the query is the SELECT * that DESCRIBE and SUMMARIZE put around a table's name."""
    columns = query.get("select_list")
    return (
        query.get("type") == "SELECT_NODE"
        and isinstance(columns, list)
        and len(columns) == 1
        and columns[0].get("class") == "STAR"
        and columns[0].get("query_location") == NOWHERE
    )


def select_star(table: Node) -> Node:
    """SELECT * FROM table."""
    star: Node = {
        "class": "STAR", "type": "STAR", "alias": "", "query_location": NOWHERE, "relation_name": "", "exclude_list": [],
        "replace_list": [], "columns": False, "expr": None, "qualified_exclude_list": [], "rename_list": [],
    }
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [star], "from_table": table,
        "where_clause": None, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING",
        "having": None, "sample": None, "qualify": None,
    }


def base_table(catalog: str, schema: str, table: str) -> Node:
    """A reference to a table by its name."""
    return {
        "type": "BASE_TABLE", "alias": "", "sample": None, "query_location": NOWHERE, "schema_name": schema, "table_name": table,
        "column_name_alias": [], "catalog_name": catalog, "at_clause": None,
    }

