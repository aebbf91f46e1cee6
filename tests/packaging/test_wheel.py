"""The distribution as a stranger installs it: the wheel alone, in an empty environment, on the interpreter given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"skipprd", "ingest", "flight", "catalog"}
pytestmark = pytest.mark.packaging


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run to success; its output."""
    clean = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}} | env
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def python(dist: Path, interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that holds the wheel and what it requires, nothing else."""
    home = tmp_path_factory.mktemp("env")
    run(interpreter, "-m", "venv", home / "venv", cwd=home)
    inside = home / "venv" / "bin" / "python"
    wheel = next(dist.glob("*.whl"))
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", wheel, cwd=home)
    return inside


def test_wheel_holds_what_the_sdist_holds(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        in_wheel = {n for n in wheel.namelist() if n.split("/")[0] in PACKAGES}
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        names = {m.name.split("/", 1)[1] for m in sdist.getmembers() if m.isfile() and "/" in m.name}
    in_sdist = {n for n in names if n.split("/")[0] in PACKAGES}
    assert in_wheel == in_sdist
    in_tree = {
        str(p.relative_to(ROOT)) for package in PACKAGES for p in (ROOT / package).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert in_wheel == in_tree


def test_exactly_our_packages_and_nothing_shadows_them(python: Path, tmp_path: Path) -> None:
    code = """
import importlib, importlib.metadata as m, json
owners = m.packages_distributions()
ours = sorted(name for name, dists in owners.items() if "skipprd" in dists)
files = {name: importlib.import_module(name).__file__ for name in ours}
print(json.dumps({"ours": ours, "owners": {n: sorted(set(owners[n])) for n in ours}, "files": files}))
"""
    seen = json.loads(run(python, "-c", code, cwd=tmp_path))
    assert set(seen["ours"]) == PACKAGES
    assert all(owners == ["skipprd"] for owners in seen["owners"].values())
    assert all("site-packages" in path for path in seen["files"].values())


def test_laptop_path_from_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps({"id": i, "tag": {"k": str(i % 7)}}) + "\n" for i in range(1000)))
    (tmp_path / "skippr.yml").write_text(
        "pipelines:\n  events: {data_source: data_sources.files, data_sink: data_sinks.lake}\n"
        "data_sources:\n  files: {File: {path: ./in}}\n"
        "data_sinks:\n  lake: {Iceberg: {table_namespace: bronze}}\n"
    )
    assert "skipprd" in run(python, "-m", "skipprd", "--version", cwd=tmp_path)
    run(python, "-m", "skipprd", "sync", "--pipeline", "events", "--once", cwd=tmp_path, DATA_DIR=str(tmp_path / "data"))
    script = python.parent / "skipprd"
    sql = "SELECT count(*) AS n, sum(id) AS s FROM bronze.events WHERE tag.k <> 'x'"
    out = run(script, "query", "--sql", sql, "--output", "json", cwd=tmp_path, DATA_DIR=str(tmp_path / "data"))
    assert json.loads(out) == [{"n": 1000, "s": 499500}]
