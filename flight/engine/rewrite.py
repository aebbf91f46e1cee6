"""The walk over a syntax tree that turns references to tables of the scope into placeholders.

It changes the tree in place and, in step, collects the edits that do the same to the client's text. `resolve` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from catalog.errors import InvalidRequest, NotFound
from catalog.lake import Identifier
from flight.engine import guard
from flight.engine.lexer import quote, quote_as_needed, read_path
from flight.engine.trees import NOWHERE, Node, TimeTravel, base_table, function_name, is_bare_star, location, select_star, time_travel

__all__ = ["Found", "Rewriter", "SystemView", "Tables"]

_QUERY_NODES: Final = frozenset(["SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"])


@dataclass(frozen=True, slots=True)
class Found:
    """A table of the scope and the schema and name it really has."""

    schema: str
    table: str
    identifier: Identifier
    at: TimeTravel | None = None


@dataclass(frozen=True, slots=True)
class SystemView:
    """A reviewed system view. `replacement` is a subquery to read instead, None where it is read as it is."""

    listed: Literal["names", "columns"]
    replacement: str | None = None


class Tables(Protocol):
    """Where names lead."""

    @property
    def catalog(self) -> str: ...

    def find(self, catalog: str, schema: str, table: str) -> Found | None:
        """The table of the scope that the (1 to 3 part) name means; empty parts were not written."""
        ...

    def system_view(self, catalog: str, schema: str, table: str) -> SystemView | None: ...

    def listing_function(self, name: str) -> Literal["nothing", "names", "columns"]:
        """What a table function lists of the catalog."""
        ...

    def missing(self, catalog: str, schema: str, table: str) -> NotFound | InvalidRequest:
        """The error for a name that leads nowhere."""
        ...


@dataclass(slots=True)
class _Scope:
    """Tables of one FROM clause that have no alias: (schema, table) as they resolve, lower case -> alias now."""

    tables: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Context:
    ctes: frozenset[str] = frozenset()
    recurring: frozenset[str] = frozenset()
    scopes: tuple[_Scope, ...] = ()


class Rewriter:
    """One rewrite of one statement. Not thread safe."""

    def __init__(self, text: str, nonce: str, tables: Tables) -> None:
        self._text = text.encode()
        self._nonce = nonce
        self._tables = tables
        self._catalog = tables.catalog.lower()
        self._edits: list[tuple[int, int, str]] = []
        self._editable = True
        self._numbers: dict[Found, int] = {}
        self.spellings: dict[tuple[str, str], str] = {}
        """(placeholder, alias) -> the reference as DuckDB writes it in the name of a column."""
        self.holes: list[Found] = []
        self.views: list[str] = []
        self.changed = False
        self.listed: Literal["nothing", "names", "columns"] = "nothing"

    def rewrite(self, root: Node) -> None:
        """Change the tree of `json_serialize_sql` in place. Raises NotFound, InvalidRequest."""
        statements = root["statements"]
        assert isinstance(statements, list)
        for statement in statements:
            statement["node"] = self._query(statement["node"], _Context())

    def edited_text(self) -> str | None:
        """The text with the same changes, or None where an edit could not be placed."""
        if not self._editable:
            return None
        pieces: list[bytes] = []
        at = 0
        for start, end, replacement in sorted(self._edits):
            if start < at:
                return None
            pieces += [self._text[at:start], replacement.encode()]
            at = end
        pieces.append(self._text[at:])
        try:
            return b"".join(pieces).decode()
        except UnicodeDecodeError:
            return None

    def placeholder_pattern(self) -> str:
        """Regular expression for a placeholder; its group is `h` or `v` and a number."""
        return f'"?__skippr_{self._nonce}_([hv][0-9]+)_"?'

    # --- queries ---------------------------------------------------------------------------------------------------

    def _query(self, node: Node, context: _Context) -> Node:
        context = self._with_ctes(node, context)
        kind = node["type"]
        if kind == "SELECT_NODE":
            return self._select(node, context)
        if kind == "RECURSIVE_CTE_NODE":
            name = str(node["cte_name"]).lower()
            inner = _Context(context.ctes | {name}, context.recurring | {name}, context.scopes)
            for key, value in node.items():
                if key not in ("cte_map", "left"):
                    node[key] = self._any(value, inner)
            node["left"] = self._any(node["left"], context)
            return node
        if kind == "CTE_NODE":
            node["query"] = self._any(node["query"], context)
            inner = _Context(context.ctes | {str(node["cte_name"]).lower()}, context.recurring, context.scopes)
            node["child"] = self._any(node["child"], inner)
            return node
        for key, value in node.items():
            if key != "cte_map":
                node[key] = self._any(value, context)
        return node

    def _with_ctes(self, node: Node, context: _Context) -> _Context:
        """Walk the WITH list in order; each name is visible to what follows it, not to itself."""
        cte_map = node.get("cte_map")
        entries = cte_map.get("map", []) if isinstance(cte_map, dict) else []
        for entry in entries:
            entry["value"] = self._any(entry["value"], context)
            context = _Context(context.ctes | {str(entry["key"]).lower()}, context.recurring, context.scopes)
        return context

    def _select(self, node: Node, context: _Context) -> Node:
        scope = _Scope()
        inner = _Context(context.ctes, context.recurring, (scope, *context.scopes))
        taken: dict[str, str] = {}
        self._collect(node.get("from_table"), inner, scope, taken)
        for key, value in node.items():
            if key != "cte_map":
                node[key] = self._any(value, inner)
        return node

    def _collect(self, node: object, context: _Context, scope: _Scope, taken: dict[str, str]) -> None:
        """Note the tables without alias of one FROM clause, before anything refers to them."""
        if not isinstance(node, dict):
            return
        kind = node.get("type")
        if kind == "JOIN":
            self._collect(node["left"], context, scope, taken)
            self._collect(node["right"], context, scope, taken)
        elif kind == "PIVOT":
            self._collect(node["source"], context, scope, taken)
        elif kind == "BASE_TABLE" and not node["alias"] and not self._is_cte(node, context):
            found = self._find(node)
            if found is None:
                return
            name = str(node["table_name"])
            alias = name if taken.get(name.lower(), found.schema) == found.schema else f"{found.schema}.{found.table}"
            taken.setdefault(name.lower(), found.schema)
            scope.tables[found.schema.lower(), found.table.lower()] = alias

    # --- everything else -------------------------------------------------------------------------------------------

    def _any(self, value: object, context: _Context) -> object:
        if isinstance(value, list):
            for at, element in enumerate(value):
                if isinstance(element, dict | list):
                    value[at] = self._any(element, context)
            return value
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        expression = value.get("class")
        if expression == "COLUMN_REF":
            self._column(value, context)
            return value
        if expression == "STAR":
            self._star(value, context)
        if expression is None and isinstance(kind, str):
            if kind in _QUERY_NODES:
                return self._query(value, context)
            if kind == "BASE_TABLE":
                return self._table(value, context, described=False)
            if kind == "SHOW_REF":
                return self._show(value, context)
            if kind == "TABLE_FUNCTION":
                self._list(self._tables.listing_function(function_name(value)))
        for key, element in value.items():
            if isinstance(element, dict | list):
                value[key] = self._any(element, context)
        return value

    def _show(self, node: Node, context: _Context) -> Node:
        listed = guard.shown_listing(node)
        if listed is not None:
            self._list(listed)
            return node
        query = node.get("query")
        if query is None:
            # SHOW x describes a table x; anything else it could show is a setting.
            name = str(node["table_name"]).strip('"')
            node["query"] = select_star(base_table("", str(node["schema_name"]), name))
            node["show_type"], node["table_name"], node["schema_name"] = "DESCRIBE", "", ""
            self._editable, self.changed = False, True
            query = node["query"]
        assert isinstance(query, dict)
        table = query.get("from_table")
        if is_bare_star(query) and isinstance(table, dict) and table.get("type") == "BASE_TABLE":
            query["from_table"] = self._table(table, context, described=True)
        else:
            node["query"] = self._query(query, context)
        return node

    def _list(self, listed: Literal["nothing", "names", "columns"]) -> None:
        if listed == "columns" or self.listed == "nothing":
            self.listed = listed

    def _is_cte(self, node: Node, context: _Context) -> bool:
        if node["catalog_name"]:
            return False
        name = str(node["table_name"]).lower()
        if node["schema_name"]:
            return str(node["schema_name"]).lower() == "recurring" and name in context.recurring
        return name in context.ctes

    def _find(self, node: Node) -> Found | None:
        return self._tables.find(str(node["catalog_name"]), str(node["schema_name"]), str(node["table_name"]))

    def _table(self, node: Node, context: _Context, *, described: bool) -> Node:
        if self._is_cte(node, context):
            return node
        names = str(node["catalog_name"]), str(node["schema_name"]), str(node["table_name"])
        found = self._tables.find(*names)
        if found is not None:
            at = time_travel(node)
            placeholder = self._hole(Found(found.schema, found.table, found.identifier, at))
            alias = str(node["alias"]) or self._alias(found, names[2], context, described)
            if at is not None:
                self._editable = False
            return self._subquery(node, placeholder, alias, described)
        view = self._tables.system_view(*names)
        if view is None:
            raise self._tables.missing(*names)
        self._list(view.listed)
        if view.replacement is None:
            return node
        self.views.append(view.replacement)
        placeholder = f"__skippr_{self._nonce}_v{len(self.views) - 1}_"
        return self._subquery(node, placeholder, str(node["alias"]) or names[2], described)

    def _alias(self, found: Found, written: str, context: _Context, described: bool) -> str:
        if described or not context.scopes:
            return written
        return context.scopes[0].tables.get((found.schema.lower(), found.table.lower()), written)

    def _hole(self, found: Found) -> str:
        number = self._numbers.get(found)
        if number is None:
            number = self._numbers[found] = len(self.holes)
            self.holes.append(found)
        return f"__skippr_{self._nonce}_h{number}_"

    def _subquery(self, node: Node, placeholder: str, alias: str, described: bool) -> Node:
        written = [str(node[part]) for part in ("catalog_name", "schema_name", "table_name") if node[part]]
        spelling = ".".join(quote_as_needed(name) for name in written)
        self.spellings.setdefault(
            (placeholder, alias), f"{spelling} AS {quote_as_needed(alias)}" if node["alias"] else spelling
        )
        path = read_path(self._text, location(node), len(written))
        if path is None or path[-1].value != node["table_name"]:
            self._editable = False
        else:
            text = f"(FROM {placeholder})" if node["alias"] else f"(FROM {placeholder}) AS {quote(alias)}"
            self._edits.append((path[0].start, path[-1].end, f"SELECT * FROM {text}" if described else text))
        return {
            "type": "SUBQUERY", "alias": alias, "sample": node["sample"], "query_location": NOWHERE,
            "subquery": {"node": select_star(base_table("", "", placeholder)), "named_param_map": []},
            "column_name_alias": node["column_name_alias"],
        }

    def _column(self, node: Node, context: _Context) -> None:
        names = node["column_names"]
        assert isinstance(names, list)
        alias, drop = self._qualifier([str(name).lower() for name in names], context)
        if drop == 0:
            return
        path = read_path(self._text, location(node), len(names)) if location(node) != NOWHERE else None
        if path is None or [token.value for token in path] != names:
            self._editable = False
        else:
            self._edits.append((path[0].start, path[drop].end, quote(alias)))
        node["column_names"] = [alias, *names[drop + 1:]]
        self.changed = True

    def _qualifier(self, names: list[str], context: _Context) -> tuple[str, int]:
        """(alias, position of the table's own part) of a qualified column; 0 where it stays. A schema may be several parts."""
        starts = (1, 0) if names[0] == self._catalog else (0,)
        for scope in context.scopes:
            for start in starts:
                for at in range(start + 1, len(names) - 1):
                    alias = scope.tables.get((".".join(names[start:at]), names[at]))
                    if alias is not None:
                        return alias, at
        return "", 0

    def _star(self, node: Node, context: _Context) -> None:
        """EXCLUDE (gold.rides.id) names its column by parts, without a place in the text."""
        excluded = node.get("qualified_exclude_list")
        for column in excluded if isinstance(excluded, list) else []:
            if not column.get("schema"):
                continue
            for scope in context.scopes:
                alias = scope.tables.get((str(column["schema"]).lower(), str(column["table"]).lower()))
                if alias is not None:
                    column["catalog"], column["schema"], column["table"] = "", "", alias
                    self._editable, self.changed = False, True
                    break
