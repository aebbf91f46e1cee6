"""Whole runs in process: files in, Iceberg out, over SQLite and a local warehouse."""

from __future__ import annotations

from pathlib import Path

from ingest.settings import BufferSettings
from tests.helpers_ingest import World, lines


def test_lines_land_once_and_a_second_run_reads_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a.jsonl", lines({"id": i, "deep": {"a": [i], "b": {"c": f"x{i}"}}} for i in range(100)))
    world.write("sub/b.jsonl", lines({"id": i, "late": 1.5} for i in range(100, 150)))
    summary = world.run()
    assert (summary.read, summary.landed, summary.dead_letters) == (150, {"bronze.events": 150}, 0)
    assert world.ids() == list(range(150))
    assert world.segments() == []
    again = world.run()
    assert (again.read, again.partitions, again.segments) == (0, 0, 0)
    assert world.ids() == list(range(150))


def test_records_without_any_typed_field_never_stop_the_table_they_would_make(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a.jsonl", lines([{}, {"id": None}, {"id": {}}, {"other": []}, "bad"]))
    summary = world.run()
    assert (summary.read, summary.landed, summary.dead_letters) == (5, {}, 5)
    assert summary.dead_letters_by_code == {"object.no_columns": 4, "json.syntax": 1}
    world.write("b.jsonl", lines([{}, {"id": 1}, {"id": None}]))
    summary = world.run()
    assert (summary.read, summary.landed, summary.dead_letters) == (3, {"bronze.events": 3}, 0)


def test_a_record_larger_than_the_queue_passes_when_a_few_rows_wait_in_the_buffer(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a.jsonl", lines([{"id": 1}, {"id": 2, "text": "x" * (6 << 20)}, {"id": 3}]))
    summary = world.run(buffer=BufferSettings(queue_bytes_max=5 << 20, segment_bytes_max=16 << 20))
    assert (summary.read, summary.landed) == (3, {"bronze.events": 3})
    assert world.ids() == [1, 2, 3]
