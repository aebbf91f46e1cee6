"""Data sources and data sinks of skippr.yml as typed values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from ingest.settings import DecodeSettings, FileSourceSettings, StdinSourceSettings
from skipprd.config import Resolved, Values, near
from skipprd.plugins import CATALOG_FIELDS, LATER_SOURCES, SINKS, SOURCES, PluginValue, plugin_sources
from skipprd.section_reader import NOT_YET, SectionReader
from skipprd.yaml_file import Entry

__all__ = ["PluginSourceSettings", "SinkConfig", "SourceConfig", "default_sink", "read_sink", "read_source"]

_DECODE_NAMES: Final = {field.name for field in fields(DecodeSettings)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSourceSettings:
    """Options of a third-party source, as written, `${NAME}` replaced."""

    plugin: str
    options: Mapping[str, PluginValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """`place` is where the source stands in the file, for messages."""

    name: str
    kind: str
    settings: FileSourceSettings | StdinSourceSettings | PluginSourceSettings
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """`warehouse` is an absolute local folder; `namespace` holds the levels."""

    name: str
    namespace: tuple[str, ...]
    warehouse: Path
    place: str


def default_sink(values: Values) -> SinkConfig:
    """What is queried where no sink is configured."""
    return SinkConfig(name="(default)", namespace=("default",), warehouse=values.path("data_dir") / "warehouse", place="default")


def read_source(reader: SectionReader, values: Values, name: str, entry: Entry) -> SourceConfig | None:
    """The source; None after a finding that leaves nothing to use."""
    scope = f"data_sources.{name}"
    place = reader.resolver.place(entry.line, scope)
    kind = reader.only_entry(entry, scope, "{File: {path: ./in}}")
    if kind is None:
        return None
    key = f"{scope}.{kind.key}"
    if kind.key in LATER_SOURCES:
        reader.error(kind.line, key, f"the source {kind.key} {NOT_YET}; use {' or '.join(SOURCES)}", scope)
        return None
    if kind.key not in SOURCES:
        return _plugin_source(reader, name, kind, place)
    found = reader.fields(reader.entries(kind.value, key), SOURCES[kind.key], key, scope)
    written = {e.key for e in reader.entries(kind.value, key)}
    missing = [field.name for field in SOURCES[kind.key] if field.required and field.name not in found]
    for needed in missing:
        if needed not in written:
            reader.error(kind.line, key, f"{needed} is missing; write {needed}: ...")
    if missing:
        return None
    settings = _stdin(values, found) if kind.key == "Stdin" else _file(values, found)
    return SourceConfig(name=name, kind=kind.key, settings=settings, place=place)


def _plugin_source(reader: SectionReader, name: str, kind: Entry, place: str) -> SourceConfig | None:
    scope = f"data_sources.{name}"
    key = f"{scope}.{kind.key}"
    plugins = plugin_sources()
    if kind.key not in plugins:
        known = [*SOURCES, *LATER_SOURCES, *plugins]
        hint = f"{near(kind.key, known)} (plugins register under the entry-point group skippr.sources)"
        reader.error(kind.line, key, f"there is no source plugin {kind.key!r}; {hint}", scope)
        return None
    options = {e.key: reader.options(e.value, f"{key}.{e.key}", scope) for e in reader.entries(kind.value, key)}
    return SourceConfig(name=name, kind=kind.key, settings=PluginSourceSettings(plugin=kind.key, options=options), place=place)


def _decode(values: Values, found: Mapping[str, Resolved]) -> DecodeSettings:
    given: dict[str, Any] = {name: r.value for name, r in found.items() if name in _DECODE_NAMES}
    return DecodeSettings(threads=values.count("decode_threads"), **given)


def _stdin(values: Values, found: Mapping[str, Resolved]) -> StdinSourceSettings:
    written = found.get("stdin_id")
    stdin_id = values.text_or_none("stdin_id") or (str(written.value) if written else None)
    return StdinSourceSettings(stdin_id=stdin_id, decode=_decode(values, found))


def _file(values: Values, found: Mapping[str, Resolved]) -> FileSourceSettings:
    given: dict[str, Any] = {}
    if "recursive" in found:
        given["recursive"] = found["recursive"].value
    for key, name in (("poll_interval", "poll_ms"), ("idle_close", "idle_close_ms")):
        seconds = found[key].value if key in found else None
        if isinstance(seconds, float):
            given[name] = max(1, round(seconds * 1000))
    path = os.path.abspath(found["path"].origin.base / Path(str(found["path"].value)).expanduser())
    return FileSourceSettings(path=path, decode=_decode(values, found), **given)


def read_sink(reader: SectionReader, values: Values, name: str, entry: Entry) -> SinkConfig | None:
    """The sink; None after a finding that leaves nothing to use."""
    scope = f"data_sinks.{name}"
    kind = reader.only_entry(entry, scope, "{Iceberg: {table_namespace: bronze}}")
    if kind is None:
        return None
    key = f"{scope}.{kind.key}"
    if kind.key not in SINKS:
        reader.error(kind.line, key, f"there is no sink {kind.key!r}; {near(kind.key, list(SINKS))}")
        return None
    entries = reader.entries(kind.value, key)
    own = tuple(e for e in entries if e.key != "catalog")
    found = reader.fields(own, SINKS[kind.key], key, scope)
    catalog: dict[str, Resolved] = {}
    for nested in entries:
        if nested.key == "catalog":
            catalog = reader.fields(reader.entries(nested.value, f"{key}.catalog"), CATALOG_FIELDS, f"{key}.catalog", scope)
    levels: tuple[str, ...] = ("default",)
    if (given := found.get("table_namespace")) is not None:
        levels = tuple(str(given.value).split("."))
        if not all(levels):
            reader.resolver.error(f"table_namespace {given.value!r} (from {given.origin}) has an empty level; write a or a.b")
    if (table := catalog.get("table")) is not None:
        reader.resolver.error(f"{table.origin}: a catalog in DynamoDB {NOT_YET}; remove it: the embedded store holds the catalog", scope)
    warehouse = _warehouse(reader, values, catalog.get("warehouse"), scope)
    return SinkConfig(name=name, namespace=levels, warehouse=warehouse, place=reader.resolver.place(entry.line, scope))


def _warehouse(reader: SectionReader, values: Values, given: Resolved | None, scope: str) -> Path:
    built_in = values.path("data_dir") / "warehouse"
    if given is None:
        return built_in
    text = str(given.value)
    scheme, colon, rest = text.partition("://")
    if colon and scheme != "file":
        reader.resolver.error(f"{given.origin}: warehouse {text!r}: {scheme}:// {NOT_YET}; name a local folder", scope)
        return built_in
    return Path(os.path.abspath(given.origin.base / Path(rest if colon else text).expanduser()))
