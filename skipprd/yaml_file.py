"""YAML with places: every key and value keeps its line, duplicate keys are refused, and nothing but text, lists and maps exists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.errors import ConfigurationError

__all__ = ["Entry", "ListNode", "MapNode", "Node", "Scalar", "parse_yaml", "read_yaml"]

_DEPTH_MAX: Final = 32
_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` as written; `is_null` for an empty value or an unquoted null. Its type is decided by the setting it belongs to."""

    text: str
    line: int
    is_null: bool = False


@dataclass(frozen=True, slots=True)
class ListNode:
    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a map; `line` is the key's."""

    key: str
    value: Node
    line: int


@dataclass(frozen=True, slots=True)
class MapNode:
    entries: tuple[Entry, ...]
    line: int

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


Node = Scalar | ListNode | MapNode


def read_yaml(path: Path) -> MapNode:
    """The map in a file. Raises ConfigurationError naming file and line."""
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ConfigurationError(f"{path}: larger than {_BYTES_MAX} bytes; this is not a configuration file")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; name one with --config, or write a starter with: skipprd init") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{path}:{line}: not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> MapNode:
    """The map in `text`; an empty document is an empty map. Raises ConfigurationError naming `where` and the line."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigurationError(f"{place}: not valid YAML ({what})") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where}: not valid YAML ({' '.join(str(error).split())})") from None
    if root is None:
        return MapNode((), 1)
    node = _convert(root, where, 0)
    if isinstance(node, Scalar) and node.is_null:
        return MapNode((), 1)
    if not isinstance(node, MapNode):
        raise ConfigurationError(f"{where}:{node.line}: the file must be a map with keys such as pipelines, data_sources, data_sinks")
    return node


def _convert(node: object, where: str, depth: int) -> Node:
    from yaml import MappingNode, ScalarNode, SequenceNode

    assert isinstance(node, ScalarNode | SequenceNode | MappingNode)
    line = node.start_mark.line + 1
    if depth > _DEPTH_MAX:
        raise ConfigurationError(f"{where}:{line}: nested more than {_DEPTH_MAX} levels deep (an alias may point at itself)")
    if isinstance(node, ScalarNode):
        return Scalar(str(node.value), line, is_null=node.tag == "tag:yaml.org,2002:null")
    if isinstance(node, SequenceNode):
        return ListNode(tuple(_convert(item, where, depth + 1) for item in node.value), line)
    entries: dict[str, Entry] = {}
    for key, value in node.value:
        key_line = key.start_mark.line + 1
        if not isinstance(key, ScalarNode):
            raise ConfigurationError(f"{where}:{key_line}: a key must be plain text")
        name = str(key.value)
        if name in entries:
            raise ConfigurationError(f"{where}:{key_line}: the key {name!r} is there twice (first on line {entries[name].line}); keep one")
        entries[name] = Entry(name, _convert(value, where, depth + 1), key_line)
    return MapNode(tuple(entries.values()), line)
