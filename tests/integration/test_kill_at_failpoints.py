"""SIGKILL at every failpoint of a real `sync`, then a run that is left alone: every input line is there once, as a row or a dead letter.

The folder a run starts from has been through a crash already, so recovery has entries to find and compaction has some to finish; what it
reads brings a new table, a new column and a bad line, so that those steps are taken too.
"""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from skipprd import failpoints
from tests.cli import Project

CONFIG = """\
pipelines:
  events: {data_source: data_sources.files, data_sink: data_sinks.lake, deadletter_sink: data_sinks.lake}
data_sources:
  files: {File: {path: ./in, block_bytes: 8KiB}}
data_sinks:
  lake: {Iceberg: {table_namespace: bronze}}
"""
SMALL = {"BUFFER_THRESHOLD_BYTES": "8000", "SKIPPR_COMPACTION_COMMIT_BYTES": "20000", "TRANSFORM_NAMESPACE_FIELDS": "kind"}
BEFORE = {"recovery.cleaned": "wal.segment.written", "recovery.unlinked": "wal.segment.written"}
"""Steps that only a start after another crash takes."""
WITH = {"ingest.reset": {"RESET_OFFSETS": "true"}}
KINDS = ("click", "view", "sale")


def lines(first: int, count: int, kinds: int, extra: str = "") -> str:
    return "".join(f'{{"id": {n}, "kind": "{KINDS[n % kinds]}", "text": "{n:0100d}"{extra}}}\n' for n in range(first, first + count))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A project after one good run and one that died between publishing and compacting: where it was made, and a copy of it."""
    home = tmp_path_factory.mktemp("killed")
    project = made(home / "p")
    (project.input / "a.jsonl").write_text(lines(0, 200, 2))
    assert project.sync(**SMALL)["read"] == 200
    (project.input / "b.jsonl").write_text(lines(200, 200, 2) + '{"id": bad\n')
    done = project.run("sync", "--pipeline", "events", "--once", SKIPPR_FAILPOINTS="wal.segment.published=kill@2", **SMALL)
    assert done.code == -signal.SIGKILL, done
    shutil.copytree(project.folder, home / "copy")
    return project.folder, home / "copy"


@pytest.fixture
def project(template: tuple[Path, Path]) -> Project:
    """The template at the place it was made: tables name their files by absolute path."""
    folder, copy = template
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return Project(folder, CONFIG)


def made(folder: Path) -> Project:
    folder.mkdir()
    return Project(folder, CONFIG)


def found(project: Project) -> tuple[list[int], int]:
    """Ids over all tables in order, and dead letters; live rows included."""
    union = " UNION ALL ".join(f"SELECT id FROM bronze.{kind}" for kind in KINDS)
    ids = [int(str(row["id"])) for row in project.select(f"SELECT id FROM ({union}) ORDER BY id")]
    return ids, len(project.select("SELECT raw FROM bronze._dl_events"))


@pytest.mark.parametrize("name", sorted(failpoints.ALL))
def test_killed_at(name: str, project: Project) -> None:
    (project.input / "c.jsonl").write_text(lines(400, 140, 3, ', "late": 1.5') + "not json\n")
    for n in range(540, 600):
        (project.input / f"d{n}.jsonl").write_text(f'{{"id": {n}, "kind": "{KINDS[n % 3]}"}}\n')
    first = BEFORE.get(name)
    if first is not None:
        assert killed(project, first), f"{first} was not reached"
    assert killed(project, name, **WITH.get(name, {})), f"{name} was not reached"
    summary = project.sync("events", "--log-level", "error", **SMALL)
    assert summary["read"] == summary["landed_rows"] + summary["dead_letters"], json.dumps(summary)  # type: ignore[operator]
    ids, dead = found(project)
    if (ids, dead) != (list(range(600)), 2):
        assert name == "ingest.reset", (name, len(ids), len(set(ids)), dead)
        assert (ids, dead) == (sorted([*range(600), *range(400)]), 3), "a reset reads everything again, once"
    assert list(project.data.glob("*/*/events/segments/*")) == [], "reclaim left something"


def killed(project: Project, name: str, **env: str) -> bool:
    """Whether a run reached the failpoint and died there; an error is neither."""
    command = ("sync", "--pipeline", "events", "--once", "--log-level", "error")
    done = project.run(*command, SKIPPR_FAILPOINTS=f"{name}=kill", **(SMALL | env))
    assert done.code in (0, -signal.SIGKILL), done
    return done.code == -signal.SIGKILL
