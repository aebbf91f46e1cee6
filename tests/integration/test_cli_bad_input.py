"""Bad input and broken surroundings: a message that names the thing, the place and the remedy, a non-zero exit, and nothing lost."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.iceberg.skippr_catalog import SkipprCatalog
from tests.cli import Finished, Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def sync(project: Project, **env: str) -> Finished:
    return project.run("sync", "--pipeline", "events", "--once", "--log-level", "error", **env)


def refused(done: Finished, code: int, *parts: str) -> None:
    """One error line with all parts."""
    assert done.code == code, done
    line = done.err.splitlines()[-1]
    assert line.startswith("error: ")
    for part in parts:
        assert part in line, (part, line)


def count(project: Project) -> int:
    return int(str(project.select("SELECT count(*) AS n FROM bronze.events")[0]["n"]))


def edit(project: Project, before: str, after: str) -> None:
    path = project.folder / "skippr.yml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_missing_path(project: Project) -> None:
    edit(project, "path: ./in", "path: ./nowhere")
    refused(sync(project), 3, str(project.folder / "nowhere"))


def test_unreadable_folder(project: Project) -> None:
    """A link that points at itself can be read by nobody, root included."""
    (project.folder / "loop").symlink_to("loop")
    edit(project, "path: ./in", "path: ./loop")
    refused(sync(project), 3, str(project.folder / "loop"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_one_unreadable_file_fails_alone(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.write("b.jsonl", 20, 10).chmod(0)
    project.write("c.jsonl", 10, 10)
    refused(sync(project), 3, "b.jsonl", "give this user the right to read it")
    assert count(project) == 20
    (project.input / "b.jsonl").chmod(0o600)
    assert sync(project).code == 0
    assert count(project) == 30


def test_unknown_plugin_and_key(project: Project) -> None:
    edit(project, "{File: {path: ./in", "{Flie: {path: ./in")
    refused(sync(project), 3, "skippr.yml:6 (data_sources.files.Flie)", "there is no source plugin 'Flie'; did you mean File?")
    edit(project, "{Flie: {path: ./in", "{File: {path: ./in, formt: csv")
    refused(sync(project), 3, "skippr.yml:6 (data_sources.files.File.formt)", "unknown key 'formt'; did you mean format?")


def test_variable_that_is_not_set(project: Project) -> None:
    edit(project, "path: ./in", "path: '${IN_FOLDER}'")
    refused(sync(project), 3, "skippr.yml:6", "${IN_FOLDER}", "is not set; export IN_FOLDER")
    project.write("a.jsonl", 0, 10)
    assert sync(project, IN_FOLDER=str(project.input)).code == 0
    assert count(project) == 10


def test_data_dir_that_cannot_be_written(project: Project) -> None:
    refused(sync(project, DATA_DIR="/proc/nowhere"), 3, "data_dir '/proc/nowhere' (from environment variable DATA_DIR) cannot be made")


def interrupted(project: Project) -> Path:
    """10 rows in the table, 10 published in the log and nowhere else; the entry that holds them."""
    project.write("a.jsonl", 0, 10)
    project.sync()
    project.write("b.jsonl", 10, 10)
    assert sync(project, SKIPPR_FAILPOINTS="wal.segment.published=kill").code == -signal.SIGKILL
    assert count(project) == 20
    (segment,) = project.data.glob("*/*/events/segments/*.seg")
    return segment


def test_corrupt_segment(project: Project) -> None:
    segment = interrupted(project)
    good = segment.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 0xFF
    segment.write_bytes(bad)
    refused(sync(project), 6, str(segment))
    for share in (0.5, 0.85):  # in the schema of its rows, and in the rows
        damaged = bytearray(good)
        damaged[int(len(good) * share)] ^= 0xFF
        segment.write_bytes(damaged)
        refused(project.run("query", "--sql", "SELECT sum(id) FROM bronze.events"), 6, str(segment))
    segment.write_bytes(good)
    assert sync(project).code == 0
    assert count(project) == 20


def test_segment_of_a_newer_format(project: Project) -> None:
    segment = interrupted(project)
    good = segment.read_bytes()
    segment.write_bytes(good[:8] + struct.pack("<I", 99) + good[12:])
    refused(sync(project), 3, str(segment), "format 99", "newer skipprd")
    segment.write_bytes(good)
    assert sync(project).code == 0
    assert count(project) == 20


def test_corrupt_parquet_fails_alone(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    pq.write_table(pa.table({"id": list(range(10, 2010))}), project.input / "b.parquet", compression="none", row_group_size=1000)
    good = (project.input / "b.parquet").read_bytes()
    (project.input / "b.parquet").write_bytes(good[: len(good) // 2])
    refused(sync(project), 6, "b.parquet")
    assert count(project) == 10
    (project.input / "b.parquet").write_bytes(good)
    assert sync(project).code == 0
    assert count(project) == 2010


def test_truncated_gzip_lands_what_is_whole_and_says_where(project: Project) -> None:
    lines = "".join(json.dumps({"id": n, "text": str(n * 7919)}) + "\n" for n in range(20_000))
    packed = gzip.compress(lines.encode())
    (project.input / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    refused(sync(project), 6, "a.jsonl.gz")
    (project.input / "a.jsonl.gz").write_bytes(packed)
    assert sync(project).code == 0
    assert project.select("SELECT count(*) AS n, count(DISTINCT id) AS d FROM bronze.events") == [{"n": 20_000, "d": 20_000}]


def drop(project: Project, table: str) -> None:
    """Another program drops the table through the catalog."""
    catalog = SkipprCatalog("test", item_store=str(project.data / "skippr.db"), warehouse=str(project.data / "warehouse"))
    catalog.drop_table(table)
    catalog.close()


def test_a_table_another_writer_dropped_stops_the_pipeline_until_it_is_made_anew(project: Project) -> None:
    interrupted(project)
    drop(project, "bronze.events")
    refused(sync(project), 5, "bronze.events", "skipprd tables recreate bronze.events")
    refused(sync(project), 5, "bronze.events")
    told = project.ok("tables", "recreate", "bronze.events")
    assert "what its entries up to 1 gave to the dropped table is gone; 10 rows of 1 entries wait" in told
    assert sync(project).code == 0
    assert project.select("SELECT count(*) AS n, min(id) AS a FROM bronze.events") == [{"n": 10, "a": 10}]
    refused(project.run("tables", "recreate", "bronze.events"), 5, "exists")


def test_a_dropped_table_of_which_nothing_waits(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    project.sync()
    drop(project, "bronze.events")
    project.write("a.jsonl", 10, 5, append=True)
    refused(sync(project), 5, "skipprd tables recreate bronze.events")
    project.ok("tables", "recreate", "bronze.events")
    assert sync(project).code == 0
    assert project.select("SELECT count(*) AS n, min(id) AS a FROM bronze.events") == [{"n": 5, "a": 10}]


def test_full_disk_and_fsync_error_acknowledge_nothing(project: Project) -> None:
    project.write("a.jsonl", 0, 10)
    for failpoint in ("wal.segment.written=error", "wal.segment.written=error:ENOSPC", "lake.data_written=error:ENOSPC"):
        done = sync(project, SKIPPR_FAILPOINTS=failpoint)
        assert done.code in (1, 4), done
        assert done.err.startswith("error: ")
    assert sync(project).code == 0
    assert project.select("SELECT count(*) AS n, count(DISTINCT id) AS d FROM bronze.events") == [{"n": 10, "d": 10}]


def test_a_source_that_holds_skippr_s_own_folders_reads_everything_but_them(project: Project) -> None:
    project.write("a.jsonl", 0, 5)
    inside = {"DATA_DIR": str(project.input / "own")}
    for _ in range(2):
        assert sync(project, **inside).code == 0
    (project.input / "again").symlink_to(project.input / "own")
    project.write("b.jsonl", 5, 5)
    assert json.loads(project.run("sync", "--pipeline", "events", "--once", "--output", "json", **inside).out.splitlines()[-1])["read"] == 5
    refused(sync(project, DATA_DIR=str(project.input)), 3, "File.path", str(project.input), "skippr writes itself", "another one")


def test_nul_in_a_path_and_a_field_named_twice(project: Project) -> None:
    edit(project, "path: ./in", 'path: "in\\0"')
    refused(sync(project), 3, "File.path", "skippr.yml", "NUL")
    edit(project, 'path: "in\\0"', "path: ./in")
    refused(sync(project, TRANSFORM_BATCH_PARTITION_FIELDS="text,id,text"), 3, "transform_batch_partition_fields", "'text' twice")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(project: Project, closed: str) -> None:
    project.write("a.jsonl", 0, 5)
    for arguments in ("sync --pipeline piped --once", "sync --pipeline events --once --output json", "query --sql 'SELECT 1'"):
        command = f"{sys.executable} -m skipprd {arguments} {closed}"
        done = subprocess.run(
            command, shell=True, cwd=project.folder, env=project.environment(), capture_output=True, text=True, input="", check=False
        )
        assert (done.returncode, "error" in done.stderr) == (0, False), (command, done)
    assert count(project) == 5
