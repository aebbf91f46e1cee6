"""GetSqlInfo: every code a driver may ask for, each in the union child the drivers read it from.

A code in another child makes drivers throw or panic; a missing one makes JDBC throw; one its enum does not know makes JDBC
fail for all. So the table holds 0-5, 8-11, 100, 101 and 500-576, no less and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import pyarrow as pa

from flight.protocol.patterns import ESCAPE
from flight.protocol.schemas import SQL_INFO, SQL_INFO_VALUE

__all__ = ["SqlInfoValue", "sql_info_table", "sql_info_values"]

SqlInfoValue = str | bool | int | list[str] | dict[int, list[int]]
Functions = Mapping[Literal["numeric", "string", "system", "datetime", "keywords"], list[str]]

_TEXT, _BOOL, _BIGINT, _INT32, _TEXTS, _MAP = range(6)

# SqlSupportsConvert: what CAST accepts. Numbers convert among each other, everything converts to and from text.
_NUMBERS: Final = [0, 5, 6, 7, 12, 13, 14, 17]  # BIGINT DECIMAL FLOAT INTEGER NUMERIC REAL SMALLINT TINYINT
_BIT, _CHAR, _DATE, _TIME, _TIMESTAMP, _VARBINARY, _VARCHAR = 2, 3, 4, 15, 16, 18, 19
_CONVERT: Final[dict[int, list[int]]] = {
    **{number: sorted([*_NUMBERS, _BIT, _CHAR, _VARCHAR]) for number in _NUMBERS},
    _BIT: sorted([*_NUMBERS, _CHAR, _VARCHAR]),
    _DATE: [_CHAR, _TIMESTAMP, _VARCHAR],
    _TIME: [_CHAR, _VARCHAR],
    _TIMESTAMP: [_CHAR, _DATE, _TIME, _VARCHAR],
    _VARBINARY: [_CHAR, _VARCHAR],
    _CHAR: sorted([*_NUMBERS, _BIT, _DATE, _TIME, _TIMESTAMP, _VARBINARY, _VARCHAR]),
    _VARCHAR: sorted([*_NUMBERS, _BIT, _CHAR, _DATE, _TIME, _TIMESTAMP, _VARBINARY]),
}

# A bitmask has bit n set where the enum's value n is supported; an ordinal is the enum's value itself.
_FIXED: Final[dict[int, tuple[int, SqlInfoValue]]] = {
    3: (_BOOL, True),             # read only
    4: (_BOOL, True),             # SQL
    5: (_BOOL, False),            # Substrait
    8: (_INT32, 1),               # BeginTransaction and EndTransaction are answered, savepoints are not
    9: (_BOOL, True),             # cancellation
    10: (_BOOL, False),           # bulk ingestion
    11: (_BOOL, False),           # transactions of bulk ingestion
    101: (_INT32, 0),             # transactions do not time out
    503: (_INT32, 1),             # identifiers: case-insensitive
    504: (_TEXT, '"'),
    505: (_INT32, 1),             # quoted identifiers: case-insensitive too
    506: (_BOOL, True),           # all tables are selectable
    507: (_INT32, 3),             # nulls sort at the end
    513: (_TEXT, ESCAPE),
    514: (_TEXT, ""),             # no further characters in unquoted names
    515: (_BOOL, True),           # column aliases
    516: (_BOOL, True),           # null || text is null
    517: (_MAP, _CONVERT),
    518: (_BOOL, True),           # table aliases
    519: (_BOOL, False),          # which may repeat the names of tables
    520: (_BOOL, True),           # expressions in ORDER BY
    521: (_BOOL, True),           # ORDER BY a column that is not selected
    522: (_INT32, 0b11),          # GROUP BY: unrelated, beyond select
    523: (_BOOL, True),           # LIKE ... ESCAPE
    524: (_BOOL, True),           # columns may be NOT NULL
    525: (_INT32, 0b11),          # grammar: minimum, core
    526: (_INT32, 0b1),           # ANSI 92: entry level
    527: (_BOOL, False),          # integrity enhancement
    528: (_INT32, 2),             # outer joins: full
    529: (_TEXT, "schema"),
    530: (_TEXT, "procedure"),
    531: (_TEXT, "catalog"),
    532: (_BOOL, True),           # the catalog starts a qualified name
    538: (_INT32, 0b1111),        # subqueries: comparisons, EXISTS, IN, quantified
    539: (_BOOL, True),           # correlated subqueries
    540: (_INT32, 0b11),          # UNION, UNION ALL
    562: (_BIGINT, 0),            # default isolation: none
    564: (_INT32, 0b1),           # isolation levels: none
    567: (_INT32, 0b10),          # result sets: forward only
    568: (_INT32, 0b10),          # concurrency of an unspecified result set: read only
    569: (_INT32, 0b10),          # of a forward-only one: read only
    **dict.fromkeys((533, 534, 535, 570, 571), (_INT32, 0)),
    **dict.fromkeys((*range(541, 556), *range(557, 562)), (_BIGINT, 0)),  # limits: none or unknown
    **dict.fromkeys((500, 501, 502, 536, 537, 556, 563, 565, 566, *range(572, 577)), (_BOOL, False)),
}


def sql_info_values(version: str, functions: Functions, statement_timeout_ms: int, max_sessions: int,
                    max_statement_length: int) -> dict[int, tuple[int, SqlInfoValue]]:
    """code -> (union child, value), ordered by code.

    `statement_timeout_ms`: how long an unused prepared statement lives; `max_sessions`: at most so many connections;
    `max_statement_length`: in characters.
    """
    values: dict[int, tuple[int, SqlInfoValue]] = {
        **_FIXED,
        0: (_TEXT, "skippr"),
        1: (_TEXT, version),
        2: (_TEXT, pa.__version__),
        100: (_INT32, min(statement_timeout_ms, 2**31 - 1)),
        508: (_TEXTS, functions.get("keywords", [])),
        509: (_TEXTS, functions.get("numeric", [])),
        510: (_TEXTS, functions.get("string", [])),
        511: (_TEXTS, functions.get("system", [])),
        512: (_TEXTS, functions.get("datetime", [])),
        549: (_BIGINT, max_sessions),
        557: (_BIGINT, max_statement_length),
    }
    return dict(sorted(values.items()))


def sql_info_table(values: Mapping[int, tuple[int, SqlInfoValue]], codes: Iterable[int]) -> pa.Table:
    """The requested codes that exist, each once, in the order asked; all where none is named. Schema: SQL_INFO."""
    wanted = [code for code in dict.fromkeys(codes) if code in values]
    if not any(True for _ in codes):
        wanted = list(values)
    children: list[list[SqlInfoValue | list[tuple[int, list[int]]]]] = [[] for _ in range(6)]
    kinds, offsets = [], []
    for code in wanted:
        kind, value = values[code]
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(list(value.items()) if isinstance(value, dict) else value)
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()),
        [pa.array(child, SQL_INFO_VALUE.field(at).type) for at, child in enumerate(children)],
        [SQL_INFO_VALUE.field(at).name for at in range(6)],
    )
    return pa.Table.from_arrays([pa.array(wanted, pa.uint32()), union], schema=SQL_INFO)
