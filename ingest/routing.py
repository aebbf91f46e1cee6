"""Which table each record of a block goes to (`TRANSFORM_NAMESPACE_FIELDS`), decided before the block is decoded.

Tables of one pipeline have schemas of their own: a field may be a number in one and text in another, and neither is a conflict. So
lines are sorted by table first, and each table's lines are decoded against that table's schema. Formats whose records cannot be told
apart before decoding are decoded once per table in the block, and each table keeps its own records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errors import Internal
from catalog.lake import Identifier
from ingest.decode.base import RawUnit
from ingest.decode.binary import TableUnit
from ingest.decode.csvrows import CsvUnit
from ingest.decode.framing import Lines
from ingest.decode.jsoninfer import Rejected, read_record
from ingest.decode.jsonl import JsonUnit
from ingest.sources.base import BadRecord, Decoded, Unit
from ingest.transform import column_at, table_name

__all__ = ["Part", "Routed", "Router"]

Records = npt.NDArray[np.int64]
_EMPTY: Final = pa.schema([])
_MISSING: Final = "namespace.missing"
_TYPE: Final = "namespace.type"


@dataclass(frozen=True, slots=True)
class Part:
    """The records of one block that go to one table. `decode` gives rows and bad records under their numbers in the partition."""

    identifier: Identifier
    records: int
    decode: Callable[[pa.Schema], Decoded]


@dataclass(frozen=True, slots=True)
class Routed:
    """A block by table, and the records that go to none. Parts and `bad` together are `records`."""

    parts: tuple[Part, ...]
    bad: tuple[BadRecord, ...]
    records: int


class Router:
    """Pure and thread safe."""

    def __init__(self, namespace: tuple[str, ...], table: str, fields: tuple[str, ...]) -> None:
        self._namespace = namespace
        self._table = table
        self._fields = fields
        self._keys = _key_decoder(fields) if fields else None

    @property
    def several(self) -> bool:
        """Whether the pipeline may feed more than one table."""
        return bool(self._fields)

    @property
    def only_table(self) -> Identifier | None:
        """The one table, where there is but one."""
        return None if self._fields else (*self._namespace, self._table)

    def route(self, unit: Unit, raw_unit: object, records: int) -> Routed:
        """Sort a unit of `records` records; `raw_unit` is the decoder's unit inside it. Raises DataCorruption as decoding does."""
        if not records:
            return Routed((), (), 0)
        if not self._fields:
            return Routed((Part((*self._namespace, self._table), records, unit.decode),), (), records)
        if isinstance(raw_unit, JsonUnit):
            return self._route_lines(raw_unit)
        return self._route_decoded(unit, raw_unit, records)

    def _identifier(self, values: tuple[str, ...]) -> Identifier:
        return (*self._namespace, table_name(values))

    # ---- lines

    def _route_lines(self, unit: JsonUnit) -> Routed:
        lines = unit.lines
        if lines.refused is not None:
            return Routed((Part((*self._namespace, self._table), 1, unit.decode),), (), 1)
        names, bad = self._names_of_lines(lines)
        known = pa.array(names, pa.string()).dictionary_encode()
        codes = np.asarray(known.indices.fill_null(-1))
        parts: list[Part] = []
        for code, name in enumerate(known.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            whole = len(chosen) == len(lines)
            decode = unit.decode if whole else _lines_decoder(unit, chosen)
            parts.append(Part((*self._namespace, name), len(chosen), decode))
        return Routed(tuple(parts), tuple(bad), len(lines))

    def _names_of_lines(self, lines: Lines) -> tuple[list[str | None], list[BadRecord]]:
        assert self._keys is not None
        names: list[str | None] = []
        bad: list[BadRecord] = []
        cache: dict[tuple[Any, ...], str] = {}
        for index, found in enumerate(_decode_all(self._keys, lines)):
            try:
                if found is None:
                    found = self._keys.convert(read_record(lines.line(index)))
                values = self._keys.values(found)
                key = (values, tuple(map(type, values)))
                name = cache.get(key)
                if name is None:
                    name = cache[key] = table_name(tuple(map(self._text, values, self._fields)))
                names.append(name)
            except Rejected as problem:
                names.append(None)
                record, at = lines.first_record + index, lines.base + int(lines.starts[index])
                bad.append(BadRecord(record, problem.code, problem.error, lines.line(index)[: 1 << 20], at))
        return names, bad

    @staticmethod
    def _text(value: Any, field: str) -> str:
        if value is None:
            raise Rejected(_MISSING, f"field {field}, which names the table (TRANSFORM_NAMESPACE_FIELDS), is missing or null")
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        raise Rejected(_TYPE, f"field {field}, which names the table, is neither text nor a number")

    # ---- anything else

    def _route_decoded(self, unit: Unit, raw_unit: object, records: int) -> Routed:
        hint = pa.schema([(field, pa.string()) for field in self._fields]) if isinstance(raw_unit, CsvUnit) else _EMPTY
        base = unit.decode(hint)
        numbers = _numbers(base)
        texts = [_as_text(column_at(base.rows, field), len(numbers)) for field in self._fields]
        missing = np.zeros(len(numbers), np.bool_)
        for text in texts:
            missing |= np.asarray(text.is_null())
        bad = list(base.bad)
        for row in np.flatnonzero(missing).tolist():
            field = next(f for f, text in zip(self._fields, texts, strict=True) if not text[row].is_valid)
            record = int(numbers[row])
            error = f"field {field}, which names the table (TRANSFORM_NAMESPACE_FIELDS), is missing, null or nested"
            bad.append(BadRecord(record, _MISSING, error, unit.raw(record)))
        keys = [str(i) for i in range(len(texts))]
        groups = pa.table([*texts, pa.array(np.arange(len(numbers)))], [*keys, "row"]).filter(pa.array(~missing))
        parts = []
        for row in groups.group_by(keys, use_threads=False).aggregate([("row", "list")]).to_pylist():
            wanted = numbers[np.asarray(row["row_list"], np.int64)]
            decode = _records_decoder(unit, raw_unit, wanted)
            parts.append(Part(self._identifier(tuple(row[key] for key in keys)), len(wanted), decode))
        return Routed(tuple(parts), tuple(bad), records)


def _as_text(column: Any, rows: int) -> Any:
    if column is None or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return pa.nulls(rows, pa.string())
    return pa.chunked_array(column.cast(pa.string()).chunks, pa.string()).combine_chunks()


def _numbers(decoded: Decoded) -> Records:
    """The record number of each row."""
    if decoded.row_records is not None:
        return np.asarray(decoded.row_records).astype(np.int64)
    return np.arange(decoded.first_record, decoded.first_record + decoded.rows.num_rows, dtype=np.int64)


def _records_decoder(unit: Unit, raw_unit: object, wanted: Records) -> Callable[[pa.Schema], Decoded]:
    """Decodes the wanted records alone where the unit can be cut, else the whole unit, of which the others are dropped."""
    if len(wanted) == unit.end.line - unit.first_record:
        return unit.decode
    chosen = wanted - unit.first_record
    if isinstance(raw_unit, CsvUnit):
        return _lines_decoder(raw_unit, chosen)
    if isinstance(raw_unit, TableUnit):
        return _renumbered(replace(raw_unit, table=raw_unit.table.take(pa.array(chosen)), first_record=0), wanted, lambda at: -1)

    def decode(schema: pa.Schema) -> Decoded:
        decoded = unit.decode(schema)
        numbers = _numbers(decoded)
        mine = np.isin(numbers, wanted)
        bad = tuple(one for one in decoded.bad if one.record in set(wanted.tolist()))
        return Decoded(decoded.rows.filter(pa.array(mine)), bad, decoded.first_record, len(wanted), pa.array(numbers[mine]))

    return decode


def _lines_decoder(unit: JsonUnit | CsvUnit, chosen: Records) -> Callable[[pa.Schema], Decoded]:
    """Decodes the chosen lines as a block of their own, and gives them back their numbers and places."""
    lines = unit.lines
    starts, ends = lines.starts[chosen], lines.ends[chosen]
    data = b"\n".join([lines.data[s:e] for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]) + b"\n"
    new_ends = np.cumsum(ends - starts + 1) - 1
    own = Lines(data, new_ends - (ends - starts), new_ends, 0, 0, len(data))
    return _renumbered(replace(unit, lines=own), chosen + lines.first_record, lambda at: lines.base + int(starts[at]))


def _renumbered(own: RawUnit, records: Records, place: Callable[[int], int]) -> Callable[[pa.Schema], Decoded]:
    """Decodes a unit cut out of another; record i of it is `records[i]` of the partition and begins at byte `place(i)`."""

    def decode(schema: pa.Schema) -> Decoded:
        decoded = own.decode(schema)
        bad = tuple(replace(one, record=int(records[one.record]), byte_offset=place(one.record)) for one in decoded.bad)
        first = int(records[0])
        return Decoded(decoded.rows, bad, first, len(records), pa.array(records[_numbers(decoded)]))

    return decode


class _KeyDecoder:
    """Reads only the namespace fields of a line; everything else is skipped."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._paths = [_steps(field) for field in fields]
        heads = sorted({key for path in self._paths for key in (path[0], ".".join(path))})
        self._attributes = {key: f"f{i}" for i, key in enumerate(heads)}
        self.kind = msgspec.defstruct(
            "Keys", [(name, Any, None) for name in self._attributes.values()],
            rename={name: key for key, name in self._attributes.items()}, gc=False,
        )
        self.decoder = msgspec.json.Decoder(self.kind)
        self._simple = [self._attributes[path[0]] for path in self._paths] if all(len(p) == 1 for p in self._paths) else None

    def convert(self, record: dict[str, Any]) -> Any:
        return self.kind(**{name: record.get(key) for key, name in self._attributes.items()})

    def values(self, found: Any) -> tuple[Any, ...]:
        """The values in order of the fields; what is nested is marked by a tuple, so that it can be told and hashed."""
        if self._simple is not None:
            made = [getattr(found, name) for name in self._simple]
        else:
            made = [self._walk(found, path) for path in self._paths]
        return tuple([() if isinstance(value, list | dict) else value for value in made])

    def _walk(self, found: Any, path: Sequence[str]) -> Any:
        whole = getattr(found, self._attributes[".".join(path)])
        if whole is not None:
            return whole
        value = getattr(found, self._attributes[path[0]])
        for step in path[1:]:
            value = value.get(step) if isinstance(value, dict) else None
        return value


def _key_decoder(fields: tuple[str, ...]) -> _KeyDecoder:
    return _KeyDecoder(fields)


def _steps(field: str) -> tuple[str, ...]:
    steps = tuple(field.split("."))
    return steps if all(steps) else (field,)


def _decode_all(keys: _KeyDecoder, lines: Lines) -> list[Any]:
    """The keys of every line; None for a line that has to be looked at alone."""
    try:
        found = keys.decoder.decode_lines(lines.data[int(lines.starts[0]):])
    except (msgspec.DecodeError, RecursionError):
        found = []
    if len(found) == len(lines):
        return found
    made: list[Any] = []
    for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
        try:
            made.append(keys.decoder.decode(lines.data[start:end]))
        except (msgspec.DecodeError, RecursionError):
            made.append(None)
    if len(made) != len(lines):
        raise Internal(f"{len(lines)} lines gave {len(made)} keys")
    return made
