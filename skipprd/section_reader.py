"""Reading maps of skippr.yml with findings instead of exceptions."""

from __future__ import annotations

from skipprd.config import Origin, Resolved, near
from skipprd.plugins import Field, PluginValue
from skipprd.resolver import Resolver
from skipprd.yaml_file import Entry, ListNode, MapNode, Node, Scalar

__all__ = ["NOT_YET", "SectionReader"]

NOT_YET = "is not available in this version"


class SectionReader:
    """Helpers over one resolver. `scope` "" makes a finding concern every command, `data_sources.x` only users of that entry."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver

    def error(self, line: int, key: str, message: str, scope: str = "") -> None:
        self.resolver.error(f"{self.resolver.place(line, key)}: {message}", scope)

    def entries(self, node: Node, key: str) -> tuple[Entry, ...]:
        """Entries of a map; an empty value is an empty map."""
        if isinstance(node, MapNode):
            return node.entries
        if not (isinstance(node, Scalar) and node.is_null):
            self.error(node.line, key, f"expected a map, found a {'list' if isinstance(node, ListNode) else 'single value'}")
        return ()

    def only_entry(self, entry: Entry, key: str, example: str) -> Entry | None:
        """The single `Kind: {...}` inside a source or sink."""
        kinds = self.entries(entry.value, key)
        if len(kinds) == 1:
            return kinds[0]
        self.error(entry.line, key, f"expected exactly one kind inside, such as {example}; found {len(kinds)}")
        return None

    def fields(self, entries: tuple[Entry, ...], fields: tuple[Field, ...], key: str, scope: str) -> dict[str, Resolved]:
        """Values of the keys that are there; unknown keys and bad values become findings."""
        known = {field.name: field for field in fields}
        found: dict[str, Resolved] = {}
        for entry in entries:
            at = f"{key}.{entry.key}"
            if entry.key not in known:
                self.error(entry.line, at, f"unknown key {entry.key!r}; {near(entry.key, list(known))}")
                continue
            value = self._value(entry, known[entry.key], at, scope)
            if value is not None:
                found[entry.key] = value
        return found

    def options(self, node: Node, key: str, scope: str) -> PluginValue:
        """A plugin's own map as plain values, `${NAME}` replaced."""
        if isinstance(node, MapNode):
            return {e.key: self.options(e.value, f"{key}.{e.key}", scope) for e in node.entries}
        if isinstance(node, ListNode):
            return [self.options(item, f"{key}[{at}]", scope) for at, item in enumerate(node.items)]
        return self.resolver.scalar(node, key, scope)

    def _value(self, entry: Entry, field: Field, key: str, scope: str) -> Resolved | None:
        text = self.resolver.text(entry.value, key, field.type, scope)
        if text is None:
            return None
        place = self.resolver.place(entry.line, key)
        value = self.resolver.parse(field.type, text, place)
        return None if value is None else Resolved(value, Origin(place, self.resolver.folder))
