"""Everything the configuration says: settings, pipelines, data sources and data sinks, as typed values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from catalog.errors import ConfigurationError
from catalog.keys import NAME_PATTERN, PipelineKey, check_name
from ingest.settings import FileSourceSettings, TransformSettings
from skipprd.config import SETTINGS, Finding, Setting, Values, near
from skipprd.endpoints import SinkConfig, SourceConfig, default_sink, read_sink, read_source
from skipprd.resolver import Resolver
from skipprd.section_reader import NOT_YET, SectionReader
from skipprd.setting_types import is_loopback, split_address
from skipprd.yaml_file import Entry, Scalar

__all__ = ["Configuration", "PipelineSpec"]

_T = TypeVar("_T")
_SECTIONS: Final = ("skippr", "pipelines", "data_sources", "data_sinks", "source_coordination")
_PIPELINE_KEYS: Final = ("data_source", "data_sink", "deadletter_sink", "transform")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """One pipeline with its source and sinks resolved."""

    key: PipelineKey
    source: SourceConfig
    sink: SinkConfig
    deadletter_sink: SinkConfig
    transform: TransformSettings
    place: str


class Configuration:
    """Everything that flags, environment and file say. Reading it touches nothing but the file and `.env`.

    Raises ConfigurationError only where the file cannot be read; everything else becomes a finding. `check` raises the findings that
    concern every command; a pipeline, source or sink raises its own when it is asked for.
    """

    def __init__(self, flags: Mapping[str, str], environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._resolver = Resolver(flags, os.environ if environ is None else environ, cwd or Path.cwd())
        self._reader = SectionReader(self._resolver)
        self.values = Values(self._resolver.settings())
        self.path = self._resolver.path if self._resolver.exists else None
        self._entries = self._read_sections()
        sources = {name: read_source(self._reader, self.values, name, e) for name, e in self._entries["data_sources"].items()}
        sinks = {name: read_sink(self._reader, self.values, name, e) for name, e in self._entries["data_sinks"].items()}
        self.sources = {name: source for name, source in sources.items() if source}
        self.sinks = {name: sink for name, sink in sinks.items() if sink}
        self._check_values()
        self.pipelines = {n: p for n, e in self._entries["pipelines"].items() if (p := self._pipeline(n, e))}

    @property
    def pipeline_names(self) -> list[str]:
        """Of every pipeline in the file, usable or not."""
        return sorted(self._entries["pipelines"])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, warnings last."""
        warnings = [Finding(text, severity="warning") for text in self._resolver.unknown_variables()]
        for setting in SETTINGS:
            resolved = self.values.resolved(setting.name)
            if setting.later and not resolved.is_default and setting.name != "cluster_id":
                text = f"{setting.name} (from {resolved.origin}) belongs to {setting.later}, which {NOT_YET}; it has no effect"
                warnings.append(Finding(text, severity="warning"))
        return (*self._resolver.findings, *warnings)

    def check(self, *scopes: str) -> None:
        """Raise the first error that concerns every command or one of `scopes` (`data_sources.x`)."""
        errors = [f for f in self._resolver.findings if f.scope == "" or f.scope in scopes]
        if errors:
            more = f" (and {len(errors) - 1} more: skipprd doctor shows all)" if len(errors) > 1 else ""
            raise ConfigurationError(errors[0].message + more)

    def pipeline(self, name: str) -> PipelineSpec:
        """The pipeline, usable. Raises ConfigurationError."""
        check_name("pipeline", name, "flag --pipeline")
        self.check()
        entry = self._entries["pipelines"].get(name)
        if entry is None:
            where = str(self.path) if self.path else f"{self._resolver.path}, which does not exist (write one with: skipprd init)"
            hint = near(name, self.pipeline_names) if self.pipeline_names else "it has no pipelines"
            raise ConfigurationError(f"there is no pipeline {name!r} in {where}; {hint}")
        references = [self._reference(entry, key) for key in _PIPELINE_KEYS[:3]]
        self.check(f"pipelines.{name}", *[reference for reference in references if reference])
        if name not in self.pipelines:
            raise ConfigurationError(f"{self._resolver.place(entry.line, f'pipelines.{name}')}: not usable; run: skipprd doctor")
        return self.pipelines[name]

    def query_sink(self) -> SinkConfig:
        """The sink whose warehouse is queried: --sink, else the only warehouse; the built-in default where no sink is configured."""
        self.check()
        wanted = self.values.text_or_none("sink")
        names = sorted(self._entries["data_sinks"])
        if wanted is not None:
            name = wanted.removeprefix("data_sinks.")
            self.check(f"data_sinks.{name}")
            if name not in self.sinks:
                hint = near(name, names) if names else "the file has none"
                raise ConfigurationError(f"{wanted!r} (from {self.values.origin('sink')}) is not one of the data_sinks; {hint}")
            return self.sinks[name]
        self.check(*[f"data_sinks.{name}" for name in names])
        if len({sink.warehouse for sink in self.sinks.values()}) > 1:
            raise ConfigurationError(f"data_sinks name more than one warehouse; say which to query: --sink {' or --sink '.join(names)}")
        return next(iter(self.sinks.values()), default_sink(self.values))

    def _read_sections(self) -> dict[str, dict[str, Entry]]:
        found: dict[str, dict[str, Entry]] = {section: {} for section in _SECTIONS}
        for entry in self._resolver.root.entries:
            if entry.key not in _SECTIONS:
                self._reader.error(entry.line, entry.key, f"unknown key {entry.key!r}; {near(entry.key, list(_SECTIONS))}")
            elif entry.key == "source_coordination":
                if not (isinstance(entry.value, Scalar) and entry.value.is_null):
                    self._reader.error(entry.line, entry.key, f"source_coordination {NOT_YET}; remove it: one node runs a pipeline")
            elif entry.key != "skippr":
                found[entry.key] = {e.key: e for e in self._reader.entries(entry.value, entry.key)}
        return found

    def _check_values(self) -> None:
        values = self.values
        for name in ("tenant", "workspace"):
            self._check_name(name, values.text(name), values.origin(name))
        for name, allowed in (("wal_storage", ("disk",)), ("offset_store", ("local", "sled"))):
            if values.text(name) not in allowed:
                self._resolver.error(f"{name} {values.text(name)!r} (from {values.origin(name)}) {NOT_YET}; use {allowed[0]}")
        if values.text_or_none("cluster_id") is not None:
            self._resolver.error(f"cluster_id (from {values.origin('cluster_id')}) asks for a cluster, which {NOT_YET}; remove it")
        bind = values.text("flight_bind")
        if not is_loopback(split_address(bind)[0]):
            self._resolver.error(
                f"flight_bind {bind!r} (from {values.origin('flight_bind')}) is reachable from other machines, which needs TLS and users; "
                f"both are not available in this version. Use a loopback address such as 127.0.0.1:31337"
            )

    def _check_name(self, kind: str, name: str, origin: str) -> bool:
        if NAME_PATTERN.fullmatch(name):
            return True
        try:
            check_name(kind, name, origin)
        except ConfigurationError as error:
            self._resolver.error(str(error))
        return False

    def _reference(self, entry: Entry, key: str) -> str | None:
        """`data_sources.x`, as the pipeline's entry names it."""
        for inner in self._reader.entries(entry.value, entry.key):
            if inner.key == key and isinstance(inner.value, Scalar) and not inner.value.is_null:
                section = "data_sources" if key == "data_source" else "data_sinks"
                return f"{section}.{inner.value.text.removeprefix(section + '.')}"
        return None

    def _pipeline(self, name: str, entry: Entry) -> PipelineSpec | None:
        scope = f"pipelines.{name}"
        place = self._resolver.place(entry.line, scope)
        entries = {e.key: e for e in self._reader.entries(entry.value, scope)}
        for key, inner in entries.items():
            if key not in _PIPELINE_KEYS:
                self._reader.error(inner.line, f"{scope}.{key}", f"unknown key {key!r}; {near(key, list(_PIPELINE_KEYS))}")
        for key in ("data_source", "data_sink"):
            if key not in entries:
                self._reader.error(entry.line, scope, f"{key} is missing; write {key}: {key}s.NAME")
        transform = self._transform(entries.get("transform"), f"{scope}.transform")
        source = self._named(entries.get("data_source"), scope, "data_sources", self.sources)
        sink = self._named(entries.get("data_sink"), scope, "data_sinks", self.sinks)
        dead = self._named(entries.get("deadletter_sink"), scope, "data_sinks", self.sinks) if "deadletter_sink" in entries else sink
        named = self._check_name("pipeline", name, place)
        if not named or not all(NAME_PATTERN.fullmatch(self.values.text(part)) for part in ("tenant", "workspace")):
            return None
        if source is None or sink is None or dead is None:
            return None
        if dead.warehouse != sink.warehouse:
            line = entries["deadletter_sink"].line
            self._reader.error(line, f"{scope}.deadletter_sink", f"another warehouse than data_sink's for dead letters {NOT_YET}", scope)
        key_ = PipelineKey(self.values.text("tenant"), self.values.text("workspace"), name)
        if isinstance(source.settings, FileSourceSettings):
            own = (str(self.values.path("data_dir")), str(sink.warehouse))
            source = replace(source, settings=replace(source.settings, own_folders=own))
        return PipelineSpec(key=key_, source=source, sink=sink, deadletter_sink=dead, transform=transform, place=place)

    def _named(self, entry: Entry | None, scope: str, section: str, known: Mapping[str, _T]) -> _T | None:
        if entry is None:
            return None
        key = f"{scope}.{entry.key}"
        text = self._resolver.scalar(entry.value, key)
        if text is None:
            return None
        name = text.removeprefix(f"{section}.")
        if name not in self._entries[section]:
            names = [f"{section}.{n}" for n in self._entries[section]]
            hint = near(text, names) if names else f"the file has no {section}"
            self._reader.error(entry.line, key, f"{text!r} is not one of the {section}; {hint}")
        return known.get(name)

    def _transform(self, entry: Entry | None, key: str) -> TransformSettings:
        """Flags and environment, then `pipelines.x.transform`, then `skippr.transform_*`, then the default."""
        settings: dict[str, Setting] = {}
        for setting in SETTINGS:
            if setting.transform:
                settings[setting.transform] = settings[setting.name.removeprefix("transform_")] = setting
        here: dict[str, Entry] = {}
        for e in self._reader.entries(entry.value, key) if entry else ():
            if e.key not in settings:
                self._reader.error(e.line, f"{key}.{e.key}", f"unknown key {e.key!r}; {near(e.key, list(settings))}")
            elif (name := settings[e.key].name) in here:
                self._reader.error(e.line, f"{key}.{e.key}", f"means the same as {here[name].key}; keep one")
            else:
                here[name] = e
        found: dict[str, Any] = {}
        for setting in settings.values():
            resolved = self._resolver.override(setting)
            if resolved is None and setting.name in here:
                resolved = self._resolver.from_entry(setting, here[setting.name], f"{key}.{here[setting.name].key}")
            value = (resolved or self.values.resolved(setting.name)).value
            found[str(setting.transform)] = () if value is None else value
        return TransformSettings(**found)
