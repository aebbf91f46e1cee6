"""I10: what is stored for ever says nothing of where the machine keeps its files."""

from __future__ import annotations

import base64
from pathlib import Path

from ingest.wal.disk import LogFolder
from tests.helpers_ingest import KEY, World, lines


def stored(world: World) -> dict[str, bytes]:
    """Sort key to payload of every offset and checkpoint row."""
    items = world.items("offsets")
    try:
        rows = [row for row in items.query(str(KEY)) if not str(row["SK"]).startswith("log#")]
    finally:
        items.close()
    return {str(row["SK"]): base64.b64decode(str(row["payload_b64"])) for row in rows}


def test_two_machines_store_the_same_rows_for_the_same_source(tmp_path: Path) -> None:
    found = []
    for place in ("here", "somewhere/quite/else"):
        world = World(tmp_path / place)
        world.write("day/a.jsonl", lines({"id": i} for i in range(10)))
        world.write("b.jsonl", lines({"id": i} for i in range(10, 20)))
        world.run()
        found.append(stored(world))
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) >= 4
    everything = b"".join(sk.encode() + payload for sk, payload in found[0].items())
    assert str(tmp_path).encode() not in everything


def test_a_source_and_its_data_folder_may_move(tmp_path: Path) -> None:
    world = World(tmp_path / "old")
    world.write("a.jsonl", lines({"id": i} for i in range(10)))
    world.run(once=True)
    header = LogFolder.of(world.root / "data", KEY)
    assert header.path.exists()
    moved = World(tmp_path / "old")
    moved.source.rename(tmp_path / "new-input")
    summary = moved.run(path=str(tmp_path / "new-input"))
    assert summary.read == 0
