"""Names of tables from values, and times from whatever the data calls a time."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.transform import convert_times, has_path, table_name, table_values

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.mark.parametrize(("values", "name"), [
    (("PushEvent",), "PushEvent"), (("us-east-1",), "us-east-1"), (("a/b",), "a~2Fb"), (("",), "~"), (("a.b",), "a~2Eb"),
    (("_dl_x",), "~5Fdl_x"), (("a", "b"), "a__b"), (("a_", "b"), "a~5F__b"), (("a__b",), "a__b"), (("ä",), "~C3~A4"),
])
def test_names_of_tables(values: tuple[str, ...], name: str) -> None:
    assert table_name(values) == name


@given(st.lists(_TEXT, min_size=2, max_size=3).map(tuple))
def test_several_values_come_back(values: tuple[str, ...]) -> None:
    name = table_name(values)
    assert table_values(name) in (values, None)
    assert not name.startswith("_dl_")


@given(_TEXT, _TEXT)
def test_two_values_never_share_a_table(one: str, other: str) -> None:
    assert (table_name((one,)) == table_name((other,))) == (one == other)


def test_long_values_get_short_names_of_their_own() -> None:
    long = [table_name(("x" * 300 + end,)) for end in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 200


def _convert(values: list[object], kind: pa.DataType | None = None) -> tuple[list[datetime | None], list[bool]]:
    table, invalid = convert_times(pa.table({"t": pa.array(values, kind)}), ("t",))
    assert table.schema.field("t").type == pa.timestamp("us", tz="UTC")
    return table["t"].to_pylist(), [False] * len(values) if invalid is None else invalid.to_pylist()


NOON = datetime(2024, 5, 6, 12, 0, tzinfo=UTC)


def test_text_with_and_without_offsets() -> None:
    times, invalid = _convert([
        "2024-05-06T12:00:00Z", "2024-05-06T14:00:00+02:00", "2024-05-06 12:00:00", "2024-05-06T12:00",
        "2024-05-06T12:00:00.000000999Z", None,
        "2024-13-01", "noon", "",
    ])
    assert times == [NOON] * 5 + [None] * 4
    assert invalid == [False] * 6 + [True] * 3


def test_dates() -> None:
    assert _convert(["2024-05-06"])[0] == [datetime(2024, 5, 6, tzinfo=UTC)]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_numbers_are_told_apart_by_magnitude(kind: pa.DataType) -> None:
    number = int if kind == pa.int64() else float
    seconds = int(NOON.timestamp())
    times, invalid = _convert([number(seconds * 10**n) for n in (0, 3, 6, 9)] + [None, number(0), number(-86400)], kind)
    assert times == [NOON] * 4 + [None, datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)]
    assert not any(invalid)


def test_what_is_no_number_is_no_time() -> None:
    times, invalid = _convert([float("nan"), float("inf"), 1e30, 1.5], pa.float64())
    assert times[:3] == [None] * 3
    assert invalid == [True, True, True, False]


def test_other_types_are_no_times() -> None:
    assert _convert([True, None])[1] == [True, False]


def test_times_inside_structs_leave_their_neighbours_alone() -> None:
    rows = [{"k": 1, "m": {"t": "2024-05-06T12:00:00Z", "x": "a"}}, {"k": 2, "m": None}, None]
    table, invalid = convert_times(pa.table({"s": pa.array(rows)}), ("s.m.t", "s.none"))
    assert invalid is None
    assert table.to_pylist() == [{"s": {"k": 1, "m": {"t": NOON, "x": "a"}}}, {"s": {"k": 2, "m": None}}, {"s": None}]


def test_paths_prefer_the_whole_name() -> None:
    schema = pa.schema([("a.b", pa.string()), ("a", pa.struct([("c.d", pa.int64())]))])
    assert [has_path(schema, path) for path in ("a.b", "a.c.d", "a.c", "b")] == [True, True, False, False]
