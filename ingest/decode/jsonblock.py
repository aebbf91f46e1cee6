"""A block of lines to rows: the fast path, and the way back from it for the lines that need one.

1. Shape: every line starts with `{` and ends with `}`; the block is UTF-8. Lines that fail are out, the rest stays together.
2. pyarrow.json with the schema made explicit and unknown fields as errors. Two objects on one line or one object on two lines
   cannot pass: inside an object `}` is never followed by `{`, so every newline between `}` and `{` is between records, and the row
   count is asserted against the line count.
3. What the parser accepts and JSON does not: NaN and infinities, integers that a double column would round. Both show as doubles
   of 2^53 or more, or not finite; only those rows are looked at again.
4. Where the parser refuses: lines that the per-line checker refuses too are read one by one, each widens the schema or is a bad
   record; the rest is parsed again. If the parser still refuses (a key given twice, which the checker cannot see), every line is read one
   by one, and in the end the block is halved until single lines are left: one bad line never stops a file.

Memory: the block, its rows, and a copy of the block's good lines where some are bad.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from catalog.errors import Internal
from ingest.arrays import bits
from ingest.conform import conform
from ingest.decode.base import RAW_BYTES_MAX, decoded
from ingest.decode.framing import Lines, not_utf8
from ingest.decode.jsoninfer import Rejected, Rules, read_record, widen_record
from ingest.decode.jsonplan import JsonPlan, plan_for
from ingest.exact import leaf_has_values, leaf_rows_beyond
from ingest.sources.base import BadRecord, Decoded
from ingest.typetree import ListOf, Node, Scalar, Struct, mark_wide, to_arrow

__all__ = ["Health", "decode_lines"]

Indices = npt.NDArray[np.int64]
_PIECE_BYTES: Final = 1024 * 1024
_REMEMBER_BLOCKS: Final = 16
_BATCH: Final = 32


@dataclass(slots=True)
class Health:
    """How a file's blocks have fared; decides only in how large pieces the next ones are parsed. Races are harmless."""

    cautious_blocks: int = 0

    def failed(self) -> None:
        self.cautious_blocks = _REMEMBER_BLOCKS

    def pieces(self, size_bytes: int) -> int:
        """Into how many pieces to cut a block: a refused piece costs its own parse only."""
        if self.cautious_blocks <= 0:
            return 1
        self.cautious_blocks -= 1
        return max(1, size_bytes // _PIECE_BYTES)


def decode_lines(lines: Lines, schema: pa.Schema, rules: Rules, health: Health, line_bytes_max: int) -> Decoded:
    """Rows and bad records of a block; `rows + bad == len(lines)` always. Thread safe."""
    block = _Block(lines, rules)
    good = block.shaped(line_bytes_max)
    plan = plan_for(schema)
    parsed: list[tuple[pa.Table, Indices]] = []
    for piece in np.array_split(good, min(health.pieces(len(lines.data)), max(1, len(good)))):
        plan, table, left = block.parse_piece(plan, piece)
        parsed.append((table, left))
    if block.retried and block.bad:
        health.failed()
    tables = [_lifted(table, plan) for table, _ in parsed]
    rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    left = parsed[0][1] if len(parsed) == 1 else np.concatenate([kept for _, kept in parsed])
    if rows.num_rows + len(block.bad) != len(lines):
        raise Internal(f"{len(lines)} lines became {rows.num_rows} rows and {len(block.bad)} bad records")
    return decoded(rows, block.bad_records(), lines.first_record, len(lines), left)


def _lifted(table: pa.Table, plan: JsonPlan) -> pa.Table:
    """A piece parsed before a later one widened the plan; widening is exact for every row already read."""
    lifted = conform(table, plan.schema)
    if lifted.problems:
        raise Internal(f"a row already read does not fit the widened schema: {lifted.problems[0].error}")
    return lifted.table


class _Block:
    """One call of `decode_lines`. `bad` maps line index to (code, words)."""

    def __init__(self, lines: Lines, rules: Rules) -> None:
        self._lines = lines
        self._rules = rules
        self.bad: dict[int, tuple[str, str]] = {}
        self.retried = False

    def bad_records(self) -> list[BadRecord]:
        lines = self._lines
        return [
            BadRecord(lines.first_record + i, code, error, lines.line(i)[:RAW_BYTES_MAX], lines.base + int(lines.starts[i]))
            for i, (code, error) in self.bad.items()
        ]

    # -------------------------------------------------------------------------------------------- what bytes show

    def shaped(self, line_bytes_max: int) -> Indices:
        """Lines that look like one object of UTF-8 text; the others are examined at once."""
        lines = self._lines
        if lines.refused is not None:
            self.bad[0] = lines.refused
            return np.zeros(0, np.int64)
        view = np.frombuffer(lines.data, np.uint8)
        good = (view[lines.starts] == ord("{")) & (view[lines.ends - 1] == ord("}"))
        for i in np.flatnonzero(~good).tolist():
            self._reject_unshaped(i)
        long = np.flatnonzero(lines.ends - lines.starts > line_bytes_max)
        for i in long.tolist():
            length = lines.ends[i] - lines.starts[i]
            self.bad[i] = ("line.too_long", f"the record is {length} bytes long, more than the {line_bytes_max} that are read")
        good[long] = False
        self._reject_other_encodings(good)
        return np.flatnonzero(good)

    def _reject_unshaped(self, index: int) -> None:
        try:
            read_record(self._lines.line(index))
        except Rejected as rejected:
            self.bad[index] = (rejected.code, rejected.error)
        else:
            raise Internal("a line that is no object was read as one")

    def _reject_other_encodings(self, good: npt.NDArray[np.bool_]) -> None:
        for index, words in not_utf8(self._lines):
            self.bad[index] = ("utf8", words)
            good[index] = False

    # -------------------------------------------------------------------------------------------- parsing

    def parse_piece(self, plan: JsonPlan, wanted: Indices) -> tuple[JsonPlan, pa.Table, Indices]:
        """Rows of the wanted lines, the plan they needed, and the lines that became rows; the others are in `bad`."""
        try:
            table = self._parse(plan, wanted)
        except pa.ArrowInvalid:
            self.retried = True
            plan, table, wanted = self._resolve(plan, wanted)
        table, wanted = self._without_inexact(plan, table, wanted)
        if plan.converts:
            fitted = conform(table, plan.schema, plan.parse_root)
            for problem in fitted.problems:
                self.bad[int(wanted[problem.row])] = (problem.code, problem.error)
            table = fitted.table
            wanted = wanted if fitted.kept is None else wanted[fitted.kept]
        elif plan.schema.names:
            table = pa.Table.from_arrays(table.columns, schema=plan.schema)
        wide = [path for path in plan.longs if len(leaf_rows_beyond(table, path))] if table.num_rows else []
        if wide:
            root = plan.root
            for path in wide:
                root = mark_wide(root, path)
            plan = plan_for(to_arrow(root))
            table = pa.Table.from_arrays(table.columns, schema=plan.schema)
        return plan, table, wanted

    def _parse(self, plan: JsonPlan, wanted: Indices) -> pa.Table:
        """Raises ArrowInvalid where any of the lines does not fit the plan."""
        if not len(wanted):
            return plan.parse_schema.empty_table()
        text = self._lines.text(wanted) if plan.splicer is None else _spliced(plan.splicer, self._lines, wanted)
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(explicit_schema=plan.parse_schema, unexpected_field_behavior="error"),
        )
        if table.num_rows != len(wanted):
            raise pa.ArrowInvalid(f"{len(wanted)} lines gave {table.num_rows} rows")
        if any(leaf_has_values(table, path) for path in plan.untyped):
            raise pa.ArrowInvalid("a list that only held nulls now holds a value")
        return table

    # -------------------------------------------------------------------------------------------- the lines in question

    def _resolve(self, plan: JsonPlan, wanted: Indices) -> tuple[JsonPlan, pa.Table, Indices]:
        suspects = self._suspects(plan, wanted.tolist())
        root, refused = self._examine(plan, suspects, recheck=True)
        if _floated(plan.root, root):
            # Whether a column of integers may become doubles depends on the integers before: read the block in order.
            root, refused = self._examine(plan, wanted.tolist(), recheck=False)
        for _ in range(2):
            left = np.array([i for i in wanted.tolist() if i not in refused], np.int64)
            grown = plan if root is plan.root else plan_for(to_arrow(root))
            try:
                table = self._parse(grown, left)
            except pa.ArrowInvalid:
                root, refused = self._examine(plan, wanted.tolist(), recheck=False)
            else:
                self.bad |= refused
                return grown, table, left
        self.bad |= refused
        table, left = self._halved(grown, left)
        return grown, table, left

    def _suspects(self, plan: JsonPlan, wanted: list[int]) -> list[int]:
        check, data = plan.checker.decode, memoryview(self._lines.data)
        starts, ends = self._lines.starts.tolist(), self._lines.ends.tolist()
        found = []
        for i in wanted:
            try:
                check(data[starts[i] : ends[i]])
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                found.append(i)
        return found

    def _examine(self, plan: JsonPlan, pending: list[int], *, recheck: bool) -> tuple[Struct, dict[int, tuple[str, str]]]:
        """Read lines one by one, in order. `recheck`: ask the grown schema's checker before reading on."""
        root, refused = plan.root, {}
        size = _BATCH
        while pending:
            batch, pending = pending[:size], pending[size:]
            before = root
            for i in batch:
                try:
                    root = widen_record(root, read_record(self._lines.line(i)), self._rules)
                except Rejected as rejected:
                    refused[i] = (rejected.code, rejected.error)
            if recheck and root is not before and pending:
                pending = self._suspects(plan_for(to_arrow(root)), pending)
            size = min(2 * size, 1024)
        return root, refused

    def _halved(self, plan: JsonPlan, wanted: Indices) -> tuple[pa.Table, Indices]:
        """The net below everything else: halve until the lines that the parser refuses stand alone."""
        try:
            return self._parse(plan, wanted), wanted
        except pa.ArrowInvalid as error:
            if len(wanted) == 1:
                self.bad[int(wanted[0])] = ("json.unreadable", str(error))
                return plan.parse_schema.empty_table(), wanted[:0]
        middle = len(wanted) // 2
        first, left = self._halved(plan, wanted[:middle])
        second, right = self._halved(plan, wanted[middle:])
        return pa.concat_tables([first, second]), np.concatenate([left, right])

    def _without_inexact(self, plan: JsonPlan, table: pa.Table, wanted: Indices) -> tuple[pa.Table, Indices]:
        """Without rows whose doubles stand for NaN, infinity or an integer that was rounded."""
        if not table.num_rows or not plan.doubles:
            return table, wanted
        beyond = [leaf_rows_beyond(table, path) for path in plan.doubles]
        keep = np.ones(table.num_rows, np.bool_)
        for row in sorted({int(r) for rows in beyond for r in rows}):
            index = int(wanted[row])
            try:
                widen_record(plan.root, read_record(self._lines.line(index)), self._rules)
            except Rejected as rejected:
                self.bad[index] = (rejected.code, rejected.error)
                keep[row] = False
        return (table, wanted) if keep.all() else (table.filter(bits(keep)), wanted[keep])


def _floated(before: Struct, after: Struct) -> bool:
    """Whether any column of integers became one of doubles."""
    for key, one in before.fields.items():
        old: Node = one.node
        new: Node = after.fields[key].node
        while isinstance(old, ListOf) and isinstance(new, ListOf):
            old, new = old.item, new.item
        if isinstance(old, Struct) and isinstance(new, Struct) and _floated(old, new):
            return True
        if isinstance(old, Scalar) and isinstance(new, Scalar) and pa.types.is_integer(old.type) and pa.types.is_floating(new.type):
            return True
    return False


def _spliced(splicer: msgspec.json.Decoder[Any], lines: Lines, wanted: Indices) -> pa.Buffer:
    """The wanted lines with the values of JSON text columns replaced by strings that hold them, word for word."""
    view = memoryview(lines.data)
    base = pa.py_buffer(lines.data).address
    parts: list[bytes | memoryview] = []
    for i in wanted.tolist():
        at, end = int(lines.starts[i]), int(lines.ends[i])
        try:
            raws = list(_raws(splicer.decode(view[at:end])))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raws = []  # the parser or the checker will say what is wrong with this line
        places = sorted((pa.py_buffer(raw).address - base, len(raw)) for raw in raws)
        for place, length in places:
            text = str(view[place : place + length], "utf-8")
            if text != "null":
                parts += (view[at:place], msgspec.json.encode(text))
                at = place + length
        parts += (view[at:end], b"\n")
    return pa.py_buffer(b"".join(parts))


def _raws(found: Any) -> Iterable[memoryview]:
    if isinstance(found, msgspec.Raw):
        yield memoryview(found)
    elif isinstance(found, list):
        for one in found:
            yield from _raws(one)
    elif isinstance(found, msgspec.Struct):
        for name in found.__struct_fields__:
            yield from _raws(getattr(found, name))
