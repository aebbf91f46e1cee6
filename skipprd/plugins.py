"""Kinds of sources and sinks and the keys each has in skippr.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from catalog.errors import ConfigurationError
from skipprd.setting_types import BOOLEAN, BYTES, CHARACTER, COUNT, PATH, RAW_TEXTS, SECONDS, TEXT, SettingType, choice

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from catalog.control.offsets import OffsetStore
    from ingest.pipeline import SourceFactory
    from ingest.sources.base import Source

__all__ = ["CATALOG_FIELDS", "GROUP", "LATER_SOURCES", "SINKS", "SOURCES", "Field", "PluginValue", "plugin_factory", "plugin_sources"]

GROUP: Final = "skippr.sources"
"""Entry-point group of third-party sources. An entry point named K makes `data_sources: {x: {K: {...}}}` work: it is loaded, called with
the map under K (scalars as text), the pipeline's `OffsetStore` and whether this is a run with --once, and returns an
`ingest.sources.base.Source`."""

PluginValue = str | None | list["PluginValue"] | dict[str, "PluginValue"]


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a kind of source or sink."""

    name: str
    type: SettingType
    help: str
    required: bool = False
    default: str = ""


_DECODE: Final = (
    Field("format", choice("jsonl", "json", "csv", "tsv", "parquet", "arrow"), "format of every file", default="by name and content"),
    Field("compression", choice("none", "gzip", "zstd", "bz2", "zip"), "compression of every file", default="by name and content"),
    Field("infer_dates", BOOLEAN, "make timestamps of text that is one everywhere", default="false"),
    Field("line_bytes_max", BYTES, "a longer line goes to dead letters", default="64MiB"),
    Field("block_bytes", BYTES, "size of one unit of decoding", default="4MiB"),
    Field("object_keys_max", COUNT, "an object with more distinct keys becomes one JSON text column", default="500"),
    Field("csv_delimiter", CHARACTER, "delimiter", default=", or tab"),
    Field("csv_quote", CHARACTER, "quote", default='"'),
    Field("csv_header", BOOLEAN, "the first line names the columns", default="true"),
    Field("csv_null_values", RAW_TEXTS, "cells that mean NULL", default='[""]'),
)

SOURCES: Final[Mapping[str, tuple[Field, ...]]] = {
    "File": (
        Field("path", PATH, "a file, a folder or a glob; relative to the folder of skippr.yml", required=True),
        Field("recursive", BOOLEAN, "look into sub-folders", default="true"),
        Field("poll_interval", SECONDS, "without --once: time between two looks for new and grown files", default="1s"),
        Field("idle_close", SECONDS, "without --once: a last line without newline counts once the file stood still so long", default="5s"),
        *_DECODE,
    ),
    "Stdin": (
        Field("stdin_id", TEXT, "name of the stream across runs; --stdin-id and SKIPPR_STDIN_ID come first", default="not set"), *_DECODE,
    ),
}
LATER_SOURCES: Final = ("S3", "HttpClient", "HttpServer")

SINKS: Final[Mapping[str, tuple[Field, ...]]] = {
    "Iceberg": (Field("table_namespace", TEXT, "namespace of the tables; levels joined by dots", default="default"),),
}
CATALOG_FIELDS: Final = (
    Field("type", choice("skippr"), "the catalog; this version has `skippr`", default="skippr"),
    Field("warehouse", PATH, "local folder of the tables, or file:// URI", default="DATA_DIR/warehouse"),
    Field("table", TEXT, "DynamoDB table of the catalog; not in this version"),
)


@cache
def plugin_sources() -> Mapping[str, EntryPoint]:
    """Third-party sources that are installed, by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def plugin_factory(name: str, options: Mapping[str, PluginValue], place: str) -> SourceFactory:
    """How the third-party source `name` is opened. Raises ConfigurationError naming plugin and place where it cannot be loaded."""
    point = plugin_sources()[name]
    try:
        factory = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{place}: the source plugin {name} ({point.value}) cannot be loaded: {error}") from error
    if not callable(factory):
        raise ConfigurationError(f"{place}: the source plugin {name} ({point.value}) must be callable: (options, offsets, once) -> Source")

    def open_source(offsets: OffsetStore, once: bool) -> Source:
        source: Source = factory(options, offsets, once)
        return source

    return open_source
