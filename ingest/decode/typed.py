"""Rows that come with types (Parquet, Arrow, typed CSV columns) against a running schema."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.conform import RowProblem, conform
from ingest.decode.base import RAW_BYTES_MAX, decoded
from ingest.decode.jsonplan import leaves
from ingest.exact import leaf_rows_beyond
from ingest.growth import merge_roots
from ingest.sources.base import BadRecord, Decoded
from ingest.typetree import Struct, TypeConflict, from_arrow, mark_wide, to_arrow

__all__ = ["decode_table", "row_text", "with_wide"]

_encode = msgspec.json.Encoder(decimal_format="string", enc_hook=str).encode


def decode_table(
    table: pa.Table, schema: pa.Schema, first_record: int, keys_max: int, raw: Callable[[int], bytes],
    bad: list[BadRecord] | None = None, numbers: npt.NDArray[np.int64] | None = None, records: int | None = None,
) -> Decoded:
    """The table widened into `schema`; rows it cannot take are bad records with `raw(record)`.

    `numbers` are the records of the rows relative to `first_record` (None: in order), `bad` what was refused before.
    """
    running = from_arrow(schema)
    conflicts: list[TypeConflict] = []  # told by conform, row by row
    root = merge_roots(running, with_wide(from_arrow(table.schema), table), keys_max, conflicts)
    rows, problems, kept = conform(table, to_arrow(root))
    bad = list(bad or ())
    at = np.arange(table.num_rows, dtype=np.int64) if numbers is None else numbers
    bad += [_bad(problem, first_record + int(at[problem.row]), raw) for problem in problems]
    left = at if kept is None else at[kept]
    return decoded(rows, bad, first_record, table.num_rows if records is None else records, left)


def _bad(problem: RowProblem, record: int, raw: Callable[[int], bytes]) -> BadRecord:
    return BadRecord(record, problem.code, problem.error, raw(record))


def with_wide(root: Struct, table: pa.Table) -> Struct:
    """The tree with the integer columns marked that hold values beyond 2^53."""
    if table.num_rows:
        for path in leaves(root, pa.int64()):
            if len(leaf_rows_beyond(table, path)):
                root = mark_wide(root, path)
    return root


def row_text(table: pa.Table, row: int) -> bytes:
    """A row as JSON text: what a dead letter keeps of a binary record. Bytes are base64, decimals strings."""
    return _encode(table.slice(row, 1).to_pylist()[0])[:RAW_BYTES_MAX]
