"""Commands that need no data: help, usage errors, init, doctor, debug."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skipprd import failpoints
from skipprd.cli.main import COMMANDS
from tests.cli import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_help_names_every_command_and_exit_code(project: Project) -> None:
    text = project.ok("--help")
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "exit codes: 0 ok;" in text
    assert project.run().code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(project: Project, name: str) -> None:
    assert project.ok(name, "--help").startswith(f"usage: skipprd {name}")


def test_version(project: Project) -> None:
    assert project.ok("--version").startswith("skipprd 0.")


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["snyc"], 2, "error: there is no command 'snyc'; did you mean sync?"),
    (["sync"], 2, "error: the following arguments are required: --pipeline"),
    (["sync", "--pipeline", "events", "--onec"], 2, "error: unrecognized arguments: --onec"),
    (["sync", "--pipeline", "evnts", "--once"], 3, "error: there is no pipeline 'evnts' in "),
    (["sync", "--pipeline", "a b", "--once"], 3, "error: pipeline 'a b' (from flag --pipeline) is not allowed"),
    (["sync", "--pipeline", "events", "--tenant", "#"], 3, "error: tenant '#' (from flag --tenant) is not allowed"),
    (["sync", "--pipeline", "events", "--config", "no.yml"], 3, "no.yml: there is no such file"),
    (["sync", "--pipeline", "events", "--buffer-threshold-bytes", "0"], 3, "from flag --buffer-threshold-bytes"),
    (["sync", "--pipeline", "events", "--data-dir", "skippr.yml/x"], 3, "(from flag --data-dir) cannot be made: Not a directory"),
    (["sync", "--pipeline", "events", "--data-dir", "skippr.yml"], 3, "skippr.yml' (from flag --data-dir)"),
    (["query", "--sql", "SELECT 1"], 3, "does not exist, so there is nothing to read; run skipprd sync first"),
    (["query", "--sql", "SELECT 1", "--file", "x.sql"], 2, "error: give the statement with --sql or with --file, not both"),
    (["query", "--file", "x.sql"], 2, "error: --file x.sql: cannot be read"),
    (["serve", "--flight-bind", "0.0.0.0:31337"], 3, "needs TLS and users"),
    (["serve", "--flight-bind", "31337"], 3, "'31337' is not allowed: write host:port"),
])
def test_errors_are_one_line_with_an_exit_code(project: Project, arguments: list[str], code: int, message: str) -> None:
    done = project.run(*arguments)
    assert (done.code, message in done.err, done.out) == (code, True, ""), done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_errors_as_json(project: Project) -> None:
    done = project.run("sync", "--pipeline", "evnts", "--once", "--output", "json")
    error = json.loads(done.err)["error"]
    assert (done.code, error["exit_code"], error["kind"]) == (3, 3, "ConfigurationError")
    assert "did you mean events?" in error["message"]


def test_debug_adds_the_traceback(project: Project) -> None:
    done = project.run("sync", "--pipeline", "evnts", "--debug")
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("error: ")


def test_init_writes_a_valid_file_and_never_overwrites(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "skippr.yml").unlink()
    assert "wrote skippr.yml" in project.ok("init")
    assert "pipeline default#dev#events: File files -> bronze.events" in project.ok("doctor")
    before = (tmp_path / "skippr.yml").read_text()
    done = project.run("init")
    assert (done.code, (tmp_path / "skippr.yml").read_text()) == (5, before)
    assert "is there already and is not overwritten" in done.err


def test_doctor_shows_every_finding_and_makes_nothing(project: Project) -> None:
    text = (project.folder / "skippr.yml").read_text()
    wrong = text.replace("workspace: test", "workspce: test").replace("path: ./in", "path: ./no, colour: red")
    (project.folder / "skippr.yml").write_text(wrong)
    done = project.run("doctor", SKIPPR_OFFSET_STORE="dynamodb", SKIPPR_TENNANT="x")
    assert done.code == 3
    for part in ("'workspce'; did you mean workspace?", "unknown key 'colour'", "offset_store 'dynamodb' (from environment variable",
                 "no' does not exist", "warning: environment variable SKIPPR_TENNANT"):
        assert part in done.out, done.out
    assert not project.data.exists()
    as_json = json.loads(project.run("doctor", "--output", "json").out)
    assert as_json["errors"] == 3


def test_debug_lists_the_failpoints(project: Project) -> None:
    assert project.ok("debug", "failpoints").split() == sorted(failpoints.ALL)
    done = project.run("sync", "--pipeline", "events", "--once", SKIPPR_FAILPOINTS="wal.nothing=kill")
    assert done.code == 3
    assert "there is no failpoint 'wal.nothing' (from environment variable SKIPPR_FAILPOINTS)" in done.err
