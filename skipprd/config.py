"""The one table of settings, and how a setting gets its value.

Each row of `SETTINGS` gives a setting its three names: `SKIPPR_X` in the environment, `skippr.x` in the file, `--x` on the command line
(the rows with `prefixed=False` have no SKIPPR_ in the environment). The command line's parser, `--help` and docs/configuration.md are
made from this table. Flags > environment > `.env` beside the file > skippr.yml > default; a value remembers where it came from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skipprd.setting_types import (
    ADDRESS,
    BOOLEAN,
    BYTES,
    COUNT,
    PATH,
    SECONDS,
    TEXT,
    TEXTS,
    SettingType,
    Value,
    choice,
)

__all__ = ["BY_NAME", "CONFIG_FILE", "FILE_ALIASES", "SETTINGS", "Finding", "Origin", "Resolved", "Setting", "Values", "near"]

CONFIG_FILE: Final = "skippr.yml"
_SYNC: Final = frozenset({"sync"})
_SERVE: Final = frozenset({"serve"})
_ENGINE: Final = frozenset({"serve", "query"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row. `commands` empty = every command. `default` is text, parsed like any other; None = not set."""

    name: str
    type: SettingType
    help: str
    default: str | None = None
    commands: frozenset[str] = frozenset()
    prefixed: bool = True
    group: str = "General"
    in_file: bool = True
    in_flags: bool = True
    transform: str | None = None
    """Key under `pipelines.{name}.transform`; the setting's name without `transform_` is accepted there too."""
    later: str | None = None
    """Set in this version it does nothing: the sentence says what it belongs to."""

    @property
    def env(self) -> str:
        return f"SKIPPR_{self.name.upper()}" if self.prefixed else self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        return f"skippr.{self.name}"

    def on(self, command: str) -> bool:
        return self.later is None and (not self.commands or command in self.commands)


def _s(
    name: str, type_: SettingType, help_: str, default: str | None = None, *, commands: frozenset[str] = frozenset(), prefixed: bool = True,
    group: str = "General", in_file: bool = True, in_flags: bool = True,
) -> Setting:
    return Setting(
        name=name, type=type_, help=help_, default=default, commands=commands, prefixed=prefixed, group=group, in_file=in_file,
        in_flags=in_flags,
    )


def _buffer(name: str, type_: SettingType, help_: str, default: str, *, prefixed: bool = True) -> Setting:
    return _s(name, type_, help_, default, commands=_SYNC, prefixed=prefixed, group="Buffers and compaction")


def _transform(name: str, type_: SettingType, help_: str, key: str, default: str | None = None) -> Setting:
    return Setting(
        name=name, type=type_, help=help_, default=default, commands=_SYNC, prefixed=False, group="Transforms", transform=key
    )


def _query(name: str, type_: SettingType, help_: str, default: str | None = None, *, commands: frozenset[str] = _ENGINE) -> Setting:
    return _s(name, type_, help_, default, commands=commands, group="Query")


def _later(name: str, type_: SettingType, help_: str, belongs_to: str) -> Setting:
    return Setting(name=name, type=type_, help=help_, later=belongs_to, group="Known, not in this version")


SETTINGS: Final[tuple[Setting, ...]] = (
    _s("config", PATH, "the configuration file; by default skippr.yml in the current folder, where there is one", in_file=False),
    _s("tenant", TEXT, "tenant part of every pipeline's identity", "default"),
    _s("workspace", TEXT, "workspace part of every pipeline's identity, and name of the Flight SQL catalog", "default"),
    _s("data_dir", PATH, "folder of the write-ahead logs, the embedded store and the default warehouse", "skippr-data", prefixed=False),
    _s("wal_storage", choice("disk", "s3", "clustered"), "where the write-ahead log lives; `disk` in this version", "disk", prefixed=False),
    _s("offset_store", choice("local", "sled", "dynamodb"), "where offsets live; `local` and `sled` both mean the embedded store", "local"),
    _s("log_format", choice("text", "json"), "one line per event on stderr, as text or JSON", "text"),
    _s("log_level", choice("debug", "info", "warning", "error"), "least severity that is logged", "info"),
    _s("http_bind", ADDRESS, "serve /healthz, /readyz and /metrics here (loopback only)", commands=_SYNC | _SERVE),
    _s("schema_auto_approve", BOOLEAN, "apply schema changes; `false` stops the run at one and prints it", "true", commands=_SYNC,
       prefixed=False, group="Ingest"),
    _s("reset_offsets", BOOLEAN, "read every partition of the pipeline from its start again", "false", commands=_SYNC, prefixed=False,
       group="Ingest"),
    _s("fail_on_deadletter", BOOLEAN, "end with exit code 6 where records went to dead letters", "false", commands=_SYNC, group="Ingest"),
    _s("stdin_id", TEXT, "name of the stream on standard input, so that a second run goes on where the first ended", commands=_SYNC,
       group="Ingest"),
    _s("decode_threads", COUNT, "threads that decode", "2", commands=_SYNC, group="Ingest"),
    _buffer("buffer_threshold_bytes", BYTES, "seal the buffer into a segment at this size", "10MiB", prefixed=False),
    _buffer("buffer_threshold_seconds", SECONDS, "seal the buffer into a segment at this age", "60s", prefixed=False),
    _buffer("buffer_partitions_max", COUNT, "most partitions in one segment", "500"),
    _buffer("wal_bytes_per_file", BYTES, "largest segment", "64MiB", prefixed=False),
    _buffer("queue_bytes_max", BYTES, "most bytes between source and log", "48MiB"),
    _buffer("compaction_commit_bytes", BYTES, "commit a table when this much waits for it", "128MiB"),
    _buffer("compaction_commit_seconds", SECONDS, "commit a table when its oldest waiting row is this old", "5m"),
    _buffer("compaction_memory_bytes", BYTES, "most rows a compaction holds in memory", "48MiB"),
    _buffer("compaction_backlog_bytes", BYTES, "slow the source down while more log than this waits for compaction", "2GiB"),
    _transform("transform_namespace_fields", TEXTS, "split the pipeline into tables by the values of these fields", "namespace_fields"),
    _transform("transform_batch_partition_fields", TEXTS, "identity partition fields of new tables", "partition_fields"),
    _transform("transform_batch_time_fields", TEXTS, "time partition fields of new tables", "time_fields"),
    _transform("transform_batch_time_unit", choice("year", "month", "day", "hour"), "unit of the time partitions", "time_unit", "day"),
    _transform("transform_batch_order_fields", TEXTS, "sort order inside data files", "order_fields"),
    _transform("transform_flatten_events", BOOLEAN, "flatten nested objects to dotted names", "flatten_events", "false"),
    _query("flight_bind", ADDRESS, "address of the Flight SQL server (loopback only in this version; port 0 takes a free one)",
       "127.0.0.1:31337", commands=_SERVE),
    _query("ready_file", PATH, "written when the server answers: {\"flight\": \"grpc://host:port\"}", commands=_SERVE),
    _query("sink", TEXT, "data sink whose warehouse is queried, where data_sinks name more than one",
       commands=_ENGINE | {"tables", "schema"}),
    _query("live_wal", choice("required", "best_effort", "off"), "rows that are in the log and not yet in Iceberg", "required",
       commands=frozenset({"query"})),
    _query("memory_limit", BYTES, "memory DuckDB may use before it spills", "1GiB"),
    _query("threads", COUNT, "threads DuckDB uses; by default one per core"),
    _query("spill_dir", PATH, "folder for what does not fit in memory; by default DATA_DIR/spill"),
    _s("failpoints", TEXT, "for tests: name=action[@n],... (see `skipprd debug failpoints`)", commands=_SYNC | _SERVE, in_file=False,
       in_flags=False, group="Testing"),
    _later("offset_dynamodb_table", TEXT, "table of the DynamoDB offset store", "offset_store: dynamodb"),
    _later("s3_bucket", TEXT, "bucket of S3 sources and logs", "S3 sources and wal_storage: s3"),
    _later("wal_s3_bucket", TEXT, "bucket of the log on S3", "wal_storage: s3"),
    _later("cluster_id", TEXT, "the cluster a node belongs to", "wal_storage: clustered"),
    _later("cluster_tls_ca", PATH, "certificate authority of the cluster", "wal_storage: clustered"),
    _later("cluster_tls_cert", PATH, "certificate of this node", "wal_storage: clustered"),
    _later("cluster_tls_key", PATH, "key of this node", "wal_storage: clustered"),
)
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}
FILE_ALIASES: Final = {"skippr_s3_bucket": "s3_bucket"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from, for messages, and the folder that a relative path in it starts at."""

    text: str
    base: Path

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Resolved:
    value: Value | None
    origin: Origin
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with the configuration. `scope` "" concerns every command, else only users of that section entry."""

    message: str
    scope: str = ""
    severity: str = "error"


def near(word: str, known: list[str]) -> str:
    """", did you mean x?" or the known words."""
    from difflib import get_close_matches

    found = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else f"known here: {', '.join(sorted(known))}"


class Values:
    """Resolved settings by name, each read as the type its row has."""

    def __init__(self, resolved: Mapping[str, Resolved]) -> None:
        self._resolved = resolved

    def resolved(self, name: str) -> Resolved:
        return self._resolved[name]

    def origin(self, name: str) -> str:
        return str(self._resolved[name].origin)

    def text(self, name: str) -> str:
        value = self._resolved[name].value
        assert isinstance(value, str), name
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._resolved[name].value is None else self.text(name)

    def count(self, name: str) -> int:
        value = self._resolved[name].value
        assert type(value) is int, name
        return value

    def count_or_none(self, name: str) -> int | None:
        return None if self._resolved[name].value is None else self.count(name)

    def seconds(self, name: str) -> float:
        value = self._resolved[name].value
        assert isinstance(value, float), name
        return value

    def on(self, name: str) -> bool:
        value = self._resolved[name].value
        assert isinstance(value, bool), name
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._resolved[name].value
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def path(self, name: str) -> Path:
        """Absolute; relative to the folder the value's origin says."""
        found = self._resolved[name]
        return Path(os.path.abspath(found.origin.base / Path(self.text(name)).expanduser()))

    def path_or_none(self, name: str) -> Path | None:
        return None if self._resolved[name].value is None else self.path(name)
