"""Keys of every row, and the names they are made of. Reversible; no path or host of one machine is part of any of them (I10).

    PK                                            SK
    {tenant}#{workspace}#{pipeline}               offset#{namespace}#{partition}
                                                  checkpoint#{logical key}
                                                  log#{wal id}                     (embedded store only)
    catalog#{sha256 of the warehouse}             namespace#{encoded namespace}
    catalog#{sha256}#namespace#{encoded ns}       table#{encoded table}

Inside namespace and partition of an offset row `#` and `%` are percent-encoded. A sort key that would pass `SK_BYTES_MAX` keeps
the first bytes of its last part, `~` and the sha256 of the full name; the row then carries the full name in `partition_name`.
Names in the catalog are encoded per level as `{byte length}:{name}`, levels concatenated, so that they reverse exactly and the
encoding of a namespace is a prefix of the encoding of everything below it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from catalog.errors import ConfigurationError, DataCorruption, InvalidRequest

__all__ = [
    "CHECKPOINT_PREFIX", "LOG_PREFIX", "NAMESPACE_PREFIX", "NAME_PATTERN", "OFFSET_PREFIX", "SK_BYTES_MAX", "TABLE_PREFIX",
    "PipelineKey", "SortKey", "catalog_pk", "check_name", "checkpoint_sk", "decode_name", "encode_name", "log_sk",
    "namespace_sk", "normalize_warehouse", "offset_sk", "parse_checkpoint_sk", "parse_log_sk", "parse_namespace_sk",
    "parse_offset_sk", "parse_table_sk", "table_sk", "tables_pk",
]

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")

OFFSET_PREFIX: Final = "offset#"
CHECKPOINT_PREFIX: Final = "checkpoint#"
LOG_PREFIX: Final = "log#"
NAMESPACE_PREFIX: Final = "namespace#"
TABLE_PREFIX: Final = "table#"

SK_BYTES_MAX: Final = 1000
"""Longest sort key we make, in UTF-8 bytes; DynamoDB refuses more than 1,024."""
_KEPT_BYTES: Final = 400

_T = TypeVar("_T")


def check_name(kind: str, value: str, origin: str) -> str:
    """`value` if it may name a tenant, workspace or pipeline, else ConfigurationError naming value and origin."""
    if not NAME_PATTERN.fullmatch(value):
        raise ConfigurationError(
            f"{kind} {value!r} (from {origin}) is not allowed: use 1 to 128 of A-Z a-z 0-9 _ . -, starting with a letter or digit"
        )
    return value


@dataclass(frozen=True, slots=True, order=True)
class PipelineKey:
    """Identity of a pipeline, and the partition key of all its rows."""

    tenant: str
    workspace: str
    pipeline: str

    def __post_init__(self) -> None:
        check_name("tenant", self.tenant, "pipeline key")
        check_name("workspace", self.workspace, "pipeline key")
        check_name("pipeline", self.pipeline, "pipeline key")

    def __str__(self) -> str:
        return f"{self.tenant}#{self.workspace}#{self.pipeline}"

    @staticmethod
    def parse(text: str) -> PipelineKey:
        """Inverse of `str`. Raises ConfigurationError."""
        parts = text.split("#")
        if len(parts) != 3:
            raise ConfigurationError(f"{text!r} is not a pipeline key of the form tenant#workspace#pipeline")
        return PipelineKey(*parts)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A sort key, and the full name the row has to carry in `partition_name` where the key holds only a digest of it."""

    sk: str
    partition_name: str | None = None


def offset_sk(namespace: str, partition: str) -> SortKey:
    """Sort key of a partition's offset row. Raises InvalidRequest for a name that no row can have."""
    prefix = f"{OFFSET_PREFIX}{_escape(namespace)}#"
    return _fit(prefix, _escape(partition), partition, "partition")


def parse_offset_sk(sk: str, partition_name: str | None) -> tuple[str, str]:
    """(namespace, partition) of an offset row. Raises DataCorruption where key and `partition_name` do not belong together."""
    namespace, hash_sign, partition = sk.removeprefix(OFFSET_PREFIX).partition("#")
    if not sk.startswith(OFFSET_PREFIX) or not hash_sign:
        raise DataCorruption(f"{sk!r} is not the sort key of an offset row")
    name = (_unescape(namespace, sk), _unescape(partition, sk) if partition_name is None else partition_name)
    return _same_key(sk, partition_name, offset_sk(*name), name)


def checkpoint_sk(logical_key: str) -> SortKey:
    """Sort key of a checkpoint row. The logical key is the last part, so it stands there as it is."""
    return _fit(CHECKPOINT_PREFIX, logical_key, logical_key, "checkpoint key")


def parse_checkpoint_sk(sk: str, partition_name: str | None) -> str:
    """The logical key of a checkpoint row. Raises DataCorruption where key and `partition_name` do not belong together."""
    if not sk.startswith(CHECKPOINT_PREFIX):
        raise DataCorruption(f"{sk!r} is not the sort key of a checkpoint row")
    name = sk.removeprefix(CHECKPOINT_PREFIX) if partition_name is None else partition_name
    return _same_key(sk, partition_name, checkpoint_sk(name), name)


def log_sk(wal_id: str) -> str:
    """Sort key of the row that says how far a log is published and reclaimed."""
    if not wal_id or "#" in wal_id:
        raise InvalidRequest(f"{wal_id!r} is not the id of a log: it is empty or holds a '#'")
    return f"{LOG_PREFIX}{wal_id}"


def parse_log_sk(sk: str) -> str:
    """Inverse of `log_sk`. Raises DataCorruption."""
    wal_id = sk.removeprefix(LOG_PREFIX)
    if not sk.startswith(LOG_PREFIX) or not wal_id or "#" in wal_id:
        raise DataCorruption(f"{sk!r} is not the sort key of a log row")
    return wal_id


def normalize_warehouse(uri: str) -> str:
    """The warehouse URI without trailing slashes: the identity of a catalog. Raises ConfigurationError where nothing is left."""
    normal = uri.rstrip("/")
    if not normal or normal.endswith(":"):
        raise ConfigurationError(f"warehouse {uri!r} names no folder or bucket: give one, such as s3://lake or file:///srv/lake")
    return normal


def catalog_pk(warehouse: str) -> str:
    """Partition key of a catalog's namespaces."""
    return f"catalog#{_sha256_hex(normalize_warehouse(warehouse))}"


def namespace_sk(levels: Sequence[str]) -> str:
    """Sort key of a namespace; as a prefix it finds the namespace and everything below it."""
    return f"{NAMESPACE_PREFIX}{encode_name(levels)}"


def parse_namespace_sk(sk: str) -> tuple[str, ...]:
    """Inverse of `namespace_sk`. Raises DataCorruption."""
    if not sk.startswith(NAMESPACE_PREFIX):
        raise DataCorruption(f"{sk!r} is not the sort key of a namespace")
    return decode_name(sk.removeprefix(NAMESPACE_PREFIX), sk)


def tables_pk(warehouse: str, levels: Sequence[str]) -> str:
    """Partition key of the tables of one namespace."""
    return f"{catalog_pk(warehouse)}#{namespace_sk(levels)}"


def table_sk(table: str) -> str:
    """Sort key of a table's pointer."""
    return f"{TABLE_PREFIX}{encode_name((table,))}"


def parse_table_sk(sk: str) -> str:
    """Inverse of `table_sk`. Raises DataCorruption."""
    levels = decode_name(sk.removeprefix(TABLE_PREFIX), sk) if sk.startswith(TABLE_PREFIX) else ()
    if len(levels) != 1:
        raise DataCorruption(f"{sk!r} is not the sort key of a table")
    return levels[0]


def encode_name(levels: Sequence[str]) -> str:
    """Levels as `{byte length}:{name}`, concatenated. Raises InvalidRequest for no level or an empty one."""
    if not levels or not all(levels):
        raise InvalidRequest(f"the name {tuple(levels)!r} has no level or an empty one")
    return "".join(f"{len(_utf8(level))}:{level}" for level in levels)


def decode_name(encoded: str, where: str) -> tuple[str, ...]:
    """Inverse of `encode_name`. Raises DataCorruption naming `where`."""
    data = encoded.encode()
    levels: list[str] = []
    at = 0
    while at < len(data):
        colon = data.find(b":", at)
        digits = data[at:colon] if colon > at else b""
        end = colon + 1 + (int(digits) if digits.isdigit() and not digits.startswith(b"0") and len(digits) <= 5 else 0)
        if end == colon + 1 or end > len(data):
            raise DataCorruption(f"{where}: {encoded!r} is not a name encoded as length:name per level (at byte {at})")
        try:
            levels.append(data[colon + 1:end].decode())
        except UnicodeDecodeError:
            raise DataCorruption(f"{where}: {encoded!r} cuts a character in two (at byte {end})") from None
        at = end
    if not levels:
        raise DataCorruption(f"{where}: an encoded name has no level")
    return tuple(levels)


def _fit(prefix: str, part: str, full_name: str, kind: str) -> SortKey:
    sk = prefix + part
    if len(_utf8(sk)) <= SK_BYTES_MAX:
        return SortKey(sk)
    kept = _utf8(part)[:_KEPT_BYTES].decode(errors="ignore")
    sk = f"{prefix}{kept}~{_sha256_hex(full_name)}"
    if len(_utf8(sk)) > SK_BYTES_MAX:
        raise InvalidRequest(f"no row key of {SK_BYTES_MAX} bytes can hold {kind} {full_name[:80]!r}... under {prefix[:80]!r}...")
    return SortKey(sk, full_name)


def _same_key(sk: str, partition_name: str | None, expected: SortKey, name: _T) -> _T:
    if expected != SortKey(sk, partition_name):
        raise DataCorruption(f"row {sk!r}: its key and its partition_name {partition_name!r} do not belong together")
    return name


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("#", "%23")


def _unescape(text: str, where: str) -> str:
    name = text.replace("%23", "#").replace("%25", "%")
    if _escape(name) != text:
        raise DataCorruption(f"{where}: {text!r} is not percent-encoded as %23 and %25")
    return name


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{text[:120]!r} cannot be part of a row key: it is not valid Unicode text") from None


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(_utf8(text)).hexdigest()
