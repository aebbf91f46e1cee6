"""The parameters of a statement: their order, and what the text around them says about their types.

DuckDB types a parameter by the value it is given and tells nothing before. Clients that send typed values (JDBC) need a type
earlier, so it is read off the place where the parameter stands: a cast, LIMIT, LIKE, or a comparison with a column or literal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Parameter", "find_parameters"]

Node = Mapping[str, object]

_LIKE: Final = frozenset(
    ["~~", "!~~", "~~*", "!~~*", "~~~", "~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape",
     "regexp_full_match", "starts_with", "ends_with", "contains", "prefix", "suffix", "upper", "lower"]
)
_IN: Final = frozenset(["COMPARE_IN", "COMPARE_NOT_IN"])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. At most one of `type_name` (DuckDB's) and `column` (it is compared with a column of this name) is set."""

    name: str
    type_name: str | None = None
    column: str | None = None


def find_parameters(root: Node) -> tuple[Parameter, ...]:
    """All parameters in the order in which values are given: by number, or named ones as they first appear."""
    order: dict[str, int] = {}
    hints: dict[str, Parameter] = {}
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            for entry in _entries(node.get("named_param_map")):
                order[str(entry["key"])] = int(str(entry["value"]))
            for parameter in _hints(node):
                hints.setdefault(parameter.name, parameter)
            stack.extend(value for value in node.values() if isinstance(value, dict | list))
    return tuple(hints.get(name, Parameter(name)) for name in sorted(order, key=order.__getitem__))


def _entries(value: object) -> list[Node]:
    return value if isinstance(value, list) else []


def _hints(node: Node) -> Iterator[Parameter]:
    kind = node.get("class")
    if kind == "CAST":
        yield from _typed([node["child"]], _type_name(node.get("cast_type")))
    elif kind == "COMPARISON":
        yield from _alike([node["left"], node["right"]])
    elif kind == "BETWEEN":
        yield from _alike([node["input"], node["lower"], node["upper"]])
    elif kind == "OPERATOR" and node.get("type") in _IN:
        yield from _alike(list(_entries(node["children"])))
    elif kind == "FUNCTION" and node.get("function_name") in _LIKE:
        yield from _typed(list(_entries(node["children"])), "VARCHAR")
    elif node.get("type") == "LIMIT_MODIFIER":
        yield from _typed([node.get("limit"), node.get("offset")], "BIGINT")


def _typed(children: list[object], type_name: str | None) -> Iterator[Parameter]:
    if type_name is not None:
        for child in children:
            name = _parameter(child)
            if name is not None:
                yield Parameter(name, type_name=type_name)


def _alike(children: list[object]) -> Iterator[Parameter]:
    """Parameters among operands that are compared with each other have the type of the first other operand that tells its own."""
    for other in children:
        if not isinstance(other, dict) or other.get("class") == "PARAMETER":
            continue
        column = _column(other)
        type_name = _own_type(other)
        if column is None and type_name is None:
            continue
        for child in children:
            name = _parameter(child)
            if name is not None:
                yield Parameter(name, type_name, column)
        return


def _parameter(node: object) -> str | None:
    return str(node["identifier"]) if isinstance(node, dict) and node.get("class") == "PARAMETER" else None


def _column(node: Node) -> str | None:
    names = node.get("column_names")
    return str(names[-1]).lower() if isinstance(names, list) else None


def _own_type(node: Node) -> str | None:
    if node.get("class") == "CAST":
        return _type_name(node.get("cast_type"))
    value = node.get("value")
    if node.get("class") == "CONSTANT" and isinstance(value, dict) and not value.get("is_null"):
        return _type_name(value.get("type"))
    return None


def _type_name(kind: object) -> str | None:
    """A type without parameters of its own, or a DECIMAL, by its name in SQL."""
    if not isinstance(kind, dict):
        return None
    info = kind.get("type_info")
    if info is None:
        return str(kind["id"])
    if isinstance(info, dict) and info.get("type") == "DECIMAL_TYPE_INFO":
        return f"DECIMAL({info['width']},{info['scale']})"
    return None
