"""Whole runs in process: files in, Iceberg out, over SQLite and a local warehouse."""

from __future__ import annotations

from pathlib import Path

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
