"""The schema of a statement's rows and of its parameters, without reading a manifest.

A statement is planned on empty stand-ins that have the columns its tables have, so preparing costs two small binds whatever the
tables' size; the only bind over real manifests is that of the execution. What was found is kept with the template, by the shapes
of the tables, so a statement seen before costs nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from flight.engine.duckdb import Connection
from flight.engine.failures import translate
from flight.engine.pins import Pin, Pins
from flight.engine.portable import portable_schema, read_as_text, wrap_as_text
from flight.engine.resolve import Template
from flight.engine.types import TypeTexts, empty_select

__all__ = ["Plan", "bind_values", "plan", "plan_with", "scan"]

_PROBES_KEPT: Final = 64
_RENAMED: Final = re.compile(r"_[0-9]+\Z")
_EXPLAIN_SCHEMA: Final = pa.schema([("explain_key", pa.string()), ("explain_value", pa.string())])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is promised about a statement. `as_text` marks the columns that a SELECT around it casts to text."""

    schema: pa.Schema
    parameter_schema: pa.Schema
    as_text: tuple[bool, ...] = ()

    def final(self, sql: str) -> str:
        """The text to run."""
        return wrap_as_text(sql, self.schema.names, self.as_text) if any(self.as_text) else sql


def plan(template: Template, pins: Pins, types: TypeTexts, connection: Connection) -> Plan:
    """The plan for tables of these shapes. Raises InvalidRequest for what DuckDB's binder refuses."""
    key = pins.shape
    known = template.probes.get(key)
    if isinstance(known, Plan):
        return known
    try:
        found = _probe(template, pins, types, connection)
    except duckdb.Error as error:
        raise translate(error, rewritten=template.rewritten) from error
    if len(template.probes) >= _PROBES_KEPT:
        template.probes.clear()
    template.probes[key] = found
    return found


def plan_with(template: Template, pins: Pins, values: Sequence[object], types: TypeTexts, connection: Connection) -> pa.Schema:
    """The schema the rows have with exactly these parameter values. Raises InvalidRequest."""
    try:
        return _Probe(template, pins, types, connection).result(bind_values(template, values))[0]
    except duckdb.Error as error:
        raise translate(error, rewritten=template.rewritten) from error


def scan(pin: Pin, live_name: str | None) -> str:
    """What stands after FROM for a pinned table."""
    location = pin.state.metadata_location.replace("'", "''")
    at = pin.hole.at
    travel = "" if at is None else f", {at.option} => {at.value}"
    table = f"iceberg_scan('{location}'{travel})"
    return table if live_name is None else f"(SELECT * FROM {table} UNION ALL BY NAME SELECT * FROM {live_name})"


def bind_values(template: Template, values: Sequence[object]) -> object:
    """Parameter values as DuckDB's client takes them."""
    if template.parameters and not template.parameters[0].name.isdigit():
        return {parameter.name: value for parameter, value in zip(template.parameters, values, strict=True)}
    return list(values)


def _probe(template: Template, pins: Pins, types: TypeTexts, connection: Connection) -> Plan:
    probe = _Probe(template, pins, types, connection)
    kinds = _parameter_types(template, pins, types, connection)
    parameter_schema = pa.schema(
        [
            pa.field(parameter.name, pa.string() if kind is None else _arrow_type(kind, connection))
            for parameter, kind in zip(template.parameters, kinds, strict=True)
        ]
    )
    schema, as_text = probe.result(probe.values(kinds))
    if template.kind == "explain":
        return Plan(_EXPLAIN_SCHEMA, parameter_schema)
    return Plan(schema, parameter_schema, as_text)


class _Probe:
    """A statement over empty stand-ins. Their names are the template's placeholders, so names of columns can be put right."""

    def __init__(self, template: Template, pins: Pins, types: TypeTexts, connection: Connection) -> None:
        self._template = template
        self._connection = connection
        stand_ins = [_stand_in(pin, types, connection) for pin in pins.pins]
        self._body = template.text(template.placeholder)[len(template.prefix):]
        self._inline = template.text(lambda at: f"({stand_ins[at]})")[len(template.prefix):]
        named = [f"{template.placeholder(at)} AS ({text})" for at, text in enumerate(stand_ins)]
        self._with = f"WITH {', '.join(named)} " if named else ""
        self._nothing = f"{self._with}SELECT * FROM (\n{self._body}\n) LIMIT 0"

    def values(self, kinds: Sequence[str | None]) -> object:
        """Values to plan with: NULL where the type is known; else text, as is promised, or NULL where text does not bind."""
        if not kinds:
            return None
        as_text = bind_values(self._template, ["" if kind is None else None for kind in kinds])
        if None not in kinds:
            return as_text
        try:
            self._connection.execute(self._nothing, as_text)
            return as_text
        except duckdb.Error:
            return bind_values(self._template, [None] * len(kinds))

    def result(self, values: object) -> tuple[pa.Schema, tuple[bool, ...]]:
        """(portable schema, which columns are read as text). Raises duckdb.Error."""
        described = self._connection.execute(self._nothing, values).description or []
        names = [self._template.column_name(str(column[0])) for column in described]
        as_text = tuple(read_as_text(str(column[1])) for column in described)
        schema = None if any(as_text) else self._connection.raw.to_arrow_reader(1).schema
        if any(_RENAMED.search(name) for name in names):
            # A subquery renames columns of equal name; DESCRIBE tells what they are called.
            own = [str(row[0]) for row in self._connection.execute(f"DESCRIBE {self._inline}", values).fetchall()]
            names = [real if _RENAMED.sub("", name) == real else name for name, real in zip(names, own, strict=True)]
        if schema is None:
            wrapped = f"{self._with}SELECT * FROM ({wrap_as_text(self._body, names, as_text)}) LIMIT 0"
            schema = self._connection.execute(wrapped, values).to_arrow_reader(1).schema
        return portable_schema(schema, names), as_text


def _stand_in(pin: Pin, types: TypeTexts, connection: Connection) -> str:
    if pin.hole.at is not None:
        return f"FROM {scan(pin, None)}"  # the columns of an old snapshot: only its metadata knows them
    text = empty_select(types.columns(pin.state.schema, connection))
    if pin.live is not None:
        text += f" UNION ALL BY NAME {empty_select(types.columns(pin.live.schema, connection))}"
    return text


def _parameter_types(template: Template, pins: Pins, types: TypeTexts, connection: Connection) -> list[str | None]:
    """DuckDB type of each parameter, None where its place does not tell."""
    if not template.parameters:
        return []
    columns: dict[str, set[str]] = {}
    for pin in pins.pins:
        for schema in (pin.state.schema, *([pin.live.schema] if pin.live is not None else [])):
            for name, kind in types.columns(schema, connection):
                columns.setdefault(name.lower(), set()).add(kind)
    found: list[str | None] = []
    for parameter in template.parameters:
        alike = columns.get(parameter.column or "", set())
        found.append(next(iter(alike)) if len(alike) == 1 else parameter.type_name)
    return found


def _arrow_type(kind: str, connection: Connection) -> pa.DataType:
    if read_as_text(kind):
        return pa.string()
    return portable_schema(connection.execute(f"SELECT NULL::{kind}").to_arrow_reader(1).schema).field(0).type
