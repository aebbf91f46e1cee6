"""Tables from fields, partitions, times, flattening, dead letters, and schemas that grow or may not."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import ConfigurationError, Conflict
from ingest.pipeline import SchemaChangeRefused
from ingest.settings import BufferSettings, DecodeSettings, FileSourceSettings, TransformSettings
from tests.helpers_ingest import World, lines


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _transform(**settings: Any) -> dict[str, Any]:
    return {"transform": TransformSettings(**settings)}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_fields_choose_the_table_and_their_types_do_not_conflict(world: World) -> None:
    world.write("a.jsonl", lines([
        {"id": 1, "type": "push", "v": 1}, {"id": 2, "type": "pull", "v": "text"}, {"id": 3, "type": "push", "v": 3},
        {"id": 4, "type": "pull", "v": "more", "extra": {"a": 1}}, {"id": 5, "type": None}, {"id": 6}, {"id": 7, "type": ["x"]},
        {"id": 8, "type": "_dl_events"}, '{"type": "push", broken', {"id": 9, "type": "push", "v": "not a number"}, {"id": 10, "type": ""},
    ]))
    summary = world.run(**_transform(namespace_fields=("type",)))
    assert summary.landed == {"bronze.push": 2, "bronze.pull": 2, "bronze.~5Fdl_events": 1, "bronze.~": 1}
    assert summary.dead_letters_by_code == {"namespace.missing": 2, "namespace.type": 1, "json.syntax": 1, "type.conflict": 1}
    assert [row["v"] for row in _rows(world.scan("push"))] == [1, 3]
    assert [row["v"] for row in _rows(world.scan("pull"))] == ["text", "more"]
    dead = world.scan("_dl_events").sort_by("record").to_pylist()
    assert [row["record"] for row in dead] == [4, 5, 6, 8, 9]
    text = (world.source / "a.jsonl").read_bytes()
    for row in dead:
        assert text[row["byte_offset"]:].startswith(row["raw"] + b"\n")
    assert not world.exists("events")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json"])
def test_fields_choose_the_table_in_every_format(world: World, name: str) -> None:
    rows = [{"id": i, "kind": "odd" if i % 2 else "even", "n": i} for i in range(20)] + [{"id": 20, "kind": None, "n": 1}]
    table = pa.Table.from_pylist(rows)
    if name == "a.csv":
        text = "id,kind,n\n" + "".join(f"{r['id']},{r['kind'] or ''},{r['n']}\n" for r in rows)
        world.write(name, text)
    elif name == "a.parquet":
        sink = io.BytesIO()
        pq.write_table(table, sink)
        world.write(name, sink.getvalue())
    else:
        world.write(name, "[" + ",".join(lines([row]).strip() for row in rows) + "]")
    summary = world.run(**_transform(namespace_fields=("kind",)))
    assert summary.landed == {"bronze.even": 10, "bronze.odd": 10}
    assert summary.dead_letters_by_code == {"namespace.missing": 1}
    assert world.ids("odd") == list(range(1, 20, 2))
    assert world.run(**_transform(namespace_fields=("kind",))).read == 0


def test_dotted_and_several_namespace_fields(world: World) -> None:
    world.write("a.jsonl", lines([
        {"id": 1, "geo": {"c": "de"}, "k": 1}, {"id": 2, "geo": {"c": "fr"}, "k": True}, {"id": 3, "geo": 5, "k": 1},
    ]))
    summary = world.run(**_transform(namespace_fields=("geo.c", "k")))
    assert summary.landed == {"bronze.de__1": 1, "bronze.fr__true": 1}
    assert summary.dead_letters_by_code == {"namespace.missing": 1}


def test_times_partition_and_what_is_no_time_is_a_dead_letter(world: World) -> None:
    world.write("a.jsonl", lines([
        {"id": 1, "at": "2024-05-06T12:00:00Z", "c": "de"}, {"id": 2, "at": "2024-05-07 00:00:00", "c": "fr"},
        {"id": 3, "at": "noon", "c": "de"},
        {"id": 4, "at": None, "c": "de"},
    ]))
    settings = _transform(time_fields=("at",), partition_fields=("c",), order_fields=("id",))
    summary = world.run(**settings)
    assert summary.dead_letters_by_code == {"time.invalid": 1}
    table = world.scan()
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert [row["at"] for row in _rows(table)] == [datetime(2024, 5, 6, 12, tzinfo=UTC), datetime(2024, 5, 7, tzinfo=UTC), None]
    items = world.items("catalog")
    try:
        loaded = world.catalog(items).load_table(("bronze", "events"))
        assert [field.name for field in loaded.spec().fields] == ["c", "at_day"]
        assert [loaded.schema().find_column_name(field.source_id) for field in loaded.sort_order().fields] == ["id"]
    finally:
        items.close()
    (dead,) = world.scan("_dl_events").to_pylist()
    assert (dead["record"], dead["raw"]) == (2, b'{"id": 3, "at": "noon", "c": "de"}')
    world.write("b.jsonl", lines([{"id": 5, "at": 1714996800, "c": "de"}]))
    assert world.run(**settings).dead_letters == 0
    assert _rows(world.scan())[-1]["at"] == datetime(2024, 5, 6, 12, tzinfo=UTC)


def test_a_partition_field_that_nobody_has_is_an_error_before_anything_lands(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1, "country": "de"}]))
    with pytest.raises(ConfigurationError, match=r"'contry'.*country"):
        world.run(**_transform(partition_fields=("contry",)))
    assert world.run(**_transform(partition_fields=("country",))).read == 1


def test_flattening_gives_dotted_columns_across_runs(world: World) -> None:
    settings = _transform(flatten_events=True, time_fields=("a.t",))
    world.write("a.jsonl", lines([{"id": 1, "a": {"b": {"c": 1}, "t": "2024-05-06T12:00:00Z", "l": [{"x": 1}]}}, {"id": 2, "a": None}]))
    world.run(**settings)
    world.write("b.jsonl", lines([{"id": 3, "a": {"b": {"c": 3, "d": "new"}, "t": 0}}, {"id": 4, "a": {"b": {"c": "no number"}}}]))
    summary = world.run(**settings)
    assert summary.dead_letters_by_code == {"type.conflict": 1}
    table = world.scan()
    assert set(table.column_names) == {"id", "a.b.c", "a.t", "a.l", "a.b.d"}
    assert [row["a.b.c"] for row in _rows(table)] == [1, None, 3]
    assert _rows(table)[2]["a.t"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_change_that_is_not_approved_stops_the_run_with_its_diff(world: World) -> None:
    small = {"buffer": BufferSettings(threshold_bytes=1)}
    world.write("a.jsonl", lines([{"id": 1, "s": {"x": 1}}]))
    world.run(schema_auto_approve=False)
    world.write("b.jsonl", lines([{"id": 2, "s": {"x": 1}, "nothing": None}]))
    world.write("c.jsonl", lines([{"id": 3, "s": {"x": 1, "y": "new"}, "z": 1.5}]))
    world.write("d.jsonl", lines([{"id": 4, "s": {"x": 2}}]))
    with pytest.raises(SchemaChangeRefused) as refused:
        world.run(schema_auto_approve=False, **small)
    assert refused.value.diff == ("+ s.y: string", "+ z: double")
    assert "SCHEMA_AUTO_APPROVE=true" in str(refused.value)
    assert world.ids() == [1, 2]
    assert world.run().read == 2
    assert world.ids() == [1, 2, 3, 4]


def test_a_refused_change_ends_a_run_whose_queues_are_full(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1}]))
    world.run()
    world.write("b.jsonl", lines([{"id": 2}, *({"id": i, "new": "x" * 50} for i in range(3, 5000))]))
    source = FileSourceSettings(path=str(world.source), decode=DecodeSettings(block_bytes=10))
    with pytest.raises(SchemaChangeRefused):
        world.run(source=source, schema_auto_approve=False, buffer=BufferSettings(queue_bytes_max=5000))
    assert world.ids() == [1, 2]


def test_null_only_columns_wait_for_a_type(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1, "n": None, "o": {}, "l": [], "s": {"m": None}}]))
    world.run()
    assert world.scan().column_names == ["id"]
    world.write("b.jsonl", lines([{"id": 2, "n": 1.5, "o": {"k": 1}, "l": ["x"], "s": {"m": True}}]))
    assert world.run().dead_letters == 0
    assert _rows(world.scan()) == [
        {"id": 1, "n": None, "o": None, "l": None, "s": None}, {"id": 2, "n": 1.5, "o": {"k": 1}, "l": ["x"], "s": {"m": True}},
    ]


def test_types_widen_inside_a_run_and_conflict_after_they_landed(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1, "v": 1}, {"id": 2, "v": 1.5}]))
    world.run()
    assert [row["v"] for row in _rows(world.scan())] == [1.0, 1.5]
    world.write("b.jsonl", lines([{"id": 3, "v": 2}, {"id": 4, "v": "x"}, {"id": 5.5, "v": 1}]))
    summary = world.run()
    assert (summary.landed_rows, summary.dead_letters_by_code) == (1, {"type.conflict": 2})


def test_a_dropped_column_stays_dropped(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1, "secret": "x"}]))
    world.run()
    items = world.items("catalog")
    try:
        with world.catalog(items).load_table(("bronze", "events")).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("secret")
    finally:
        items.close()
    world.write("b.jsonl", lines([{"id": 2, "secret": "y", "new": 1}]))
    assert world.run(schema_auto_approve=True).landed_rows == 1
    assert set(world.scan().column_names) == {"id", "new"}
    world.write("c.jsonl", lines([{"id": 3, "secret": "z"}]))
    assert world.run(schema_auto_approve=False).landed_rows == 1


def test_a_table_that_was_dropped_from_outside_is_a_conflict(world: World) -> None:
    world.write("a.jsonl", lines([{"id": 1}]))
    world.run()
    items = world.items("catalog")
    try:
        world.catalog(items).drop_table(("bronze", "events"))
    finally:
        items.close()
    world.write("b.jsonl", lines([{"id": 2}]))
    with pytest.raises(Conflict, match=r"bronze\.events is gone.*tables recreate bronze\.events"):
        world.run()
    assert not world.exists("events")
