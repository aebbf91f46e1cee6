"""docs/configuration.md, made from the tables of settings, sources and sinks: `python -m skipprd.config_docs > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from skipprd.config import SETTINGS, Setting
from skipprd.plugins import CATALOG_FIELDS, LATER_SOURCES, SINKS, SOURCES, Field

__all__ = ["page"]

_HEAD = """\
# Configuration

This page is made from the program's own tables (`python -m skipprd.config_docs`); a test fails when it is stale.

A setting has three names: on the command line, in the environment, and in `skippr.yml`. The first that is given counts, in this order:

1. the flag: `--buffer-threshold-bytes 20MiB`
2. the environment: `BUFFER_THRESHOLD_BYTES=20MiB`
3. the file `.env` beside `skippr.yml`: lines of `NAME=value`
4. `skippr.yml`: `skippr: {buffer_threshold_bytes: 20MiB}`
5. the default

`skipprd doctor` checks everything without connecting to anything, prints every finding, and says where each value came from.
Unknown and duplicate keys are errors that name the line and what was probably meant. An unknown environment variable that starts
with `SKIPPR_` is a warning only, since platforms inject some of their own.

The file is `skippr.yml` in the current folder, or what `--config` or `SKIPPR_CONFIG` names. `skipprd init` writes a commented
starter. Relative paths in it start at its own folder, those of flags and environment at the current folder. A whole value may be
`${NAME}`: it is taken from the environment or `.env`, and it is an error where a command needs it and it is not set.

Sizes are `10MiB` (2^20), `64MB` (10^6) or plain bytes; durations `250ms`, `60s`, `5m`, `1h`, `PT60S` or plain seconds; lists `a,b`,
in the file also `[a, b]`; booleans `true` and `false`.

```yaml
skippr:
  workspace: dev
pipelines:
  bikehire: {data_source: data_sources.rides, data_sink: data_sinks.lake, deadletter_sink: data_sinks.lake}
data_sources:
  rides: {File: {path: ./data/in}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze, catalog: {type: skippr, warehouse: ./lake}}}
```
"""
_PIPELINES = """\
## pipelines

`pipelines.NAME` (NAME: 1 to 128 of `A-Z a-z 0-9 _ . -`, starting with a letter or digit) has:

| key | meaning |
|---|---|
| `data_source` | required: `data_sources.NAME` |
| `data_sink` | required: `data_sinks.NAME`; the table is named after the pipeline |
| `deadletter_sink` | where `_dl_{pipeline}` lies [the data sink]; in the same warehouse |
| `transform` | the transforms above for this pipeline alone, without `transform_` or in short; they come before `skippr.transform_*` |
"""


def page() -> str:
    """The whole page."""
    groups: dict[str, list[Setting]] = {}
    for setting in SETTINGS:
        groups.setdefault(setting.group, []).append(setting)
    parts = [_HEAD]
    for group, settings in groups.items():
        if group == "Transforms":
            parts.append(f"## {group}\n\nIn `pipelines.NAME.transform` also by the short key.\n\n" + _settings(settings, short=True))
        elif settings[0].later:
            parts.append(f"## {group}\n\n" + _later(settings))
        else:
            parts.append(f"## {group}\n\n" + _settings(settings, short=False))
    parts.append(_PIPELINES)
    parts += [f"## data_sources: {kind}\n\n" + _fields(fields) for kind, fields in SOURCES.items()]
    later = ", ".join(LATER_SOURCES)
    parts.append(
        f"Known, not in this version: {later}. Third-party sources register a callable `(options, offsets, once) -> Source` under the "
        "entry-point group `skippr.sources`; the entry point's name is the key in `data_sources`.\n"
    )
    for kind, fields in SINKS.items():
        parts.append(f"## data_sinks: {kind}\n\n" + _fields(fields) + "\nand `catalog`, a map:\n\n" + _fields(CATALOG_FIELDS))
    parts.append("## source_coordination\n\nKnown, not in this version: an error at start.\n")
    return "\n".join(parts)


def _settings(settings: Iterable[Setting], *, short: bool) -> str:
    lines = ["| flag | environment | file | value | default | meaning |", "|---|---|---|---|---|---|"]
    for s in settings:
        flag = f"`{s.flag}`" if s.in_flags else ""
        key = f"`{s.key}`" if s.in_file else ""
        if short and s.transform:
            key += f", `{s.transform}`"
        commands = f" ({', '.join(sorted(s.commands))})" if s.commands else ""
        default = f"`{s.default}`" if s.default is not None else ""
        lines.append(f"| {flag} | `{s.env}` | {key} | {s.type.description} | {default} | {_cell(s.help)}{commands} |")
    return "\n".join(lines) + "\n"


def _later(settings: Iterable[Setting]) -> str:
    lines = ["| environment | file | belongs to |", "|---|---|---|"]
    lines += [f"| `{s.env}` | `{s.key}` | {s.later} |" for s in settings]
    return "\n".join(lines) + "\n"


def _fields(fields: Iterable[Field]) -> str:
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for f in fields:
        default = "required" if f.required else f"`{f.default}`" if f.default else ""
        lines.append(f"| `{f.name}` | {f.type.description} | {default} | {_cell(f.help)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
