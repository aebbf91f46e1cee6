"""Which files a path, folder or glob names, and what their partitions are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog.errors import ConfigurationError
from ingest.sources.listing import Listing, base_name, partition_name, relative_name


def _names(path: Path | str, *, recursive: bool = True) -> list[str]:
    return [found.name for found in Listing(str(path), recursive=recursive).files()]


def _tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def test_a_folder_gives_every_file_below_it_in_the_order_of_bytes(tmp_path: Path) -> None:
    _tree(tmp_path, "b.jsonl", "a/z.jsonl", "a.jsonl", "a/é.jsonl", ".hidden", "a/.git/x", "B.jsonl")
    assert _names(tmp_path) == ["B.jsonl", "a.jsonl", "a/z.jsonl", "a/é.jsonl", "b.jsonl"]
    assert _names(tmp_path, recursive=False) == ["B.jsonl", "a.jsonl", "b.jsonl"]


def test_a_file_is_named_relative_to_its_folder(tmp_path: Path) -> None:
    _tree(tmp_path, "logs/app.log")
    assert _names(tmp_path / "logs/app.log") == ["app.log"]


@pytest.mark.parametrize(("pattern", "names"), [
    ("*.jsonl", ["a.jsonl", "b.jsonl"]),
    ("**/*.jsonl", ["a.jsonl", "b.jsonl", "x/c.jsonl", "x/y/d.jsonl"]),
    ("x/**", ["c.jsonl", "e.csv", "y/d.jsonl"]),
    ("?.jsonl", ["a.jsonl", "b.jsonl"]),
    ("[!a].jsonl", ["b.jsonl"]),
    ("*/*.csv", ["x/e.csv"]),
    ("none*", []),
])
def test_globs_are_relative_to_the_part_without_wildcards(tmp_path: Path, pattern: str, names: list[str]) -> None:
    _tree(tmp_path, "a.jsonl", "b.jsonl", "x/c.jsonl", "x/y/d.jsonl", "x/e.csv", ".z.jsonl")
    assert sorted(_names(tmp_path / pattern)) == names


def test_a_name_with_brackets_that_exists_is_a_name(tmp_path: Path) -> None:
    _tree(tmp_path, "a[1].jsonl", "a1.jsonl")
    assert _names(tmp_path / "a[1].jsonl") == ["a[1].jsonl"]


def test_loops_of_links_end_and_links_to_listed_files_count_once(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    _tree(tmp_path, "root/a.jsonl", "root/sub/b.jsonl", "outside/c.jsonl")
    (root / "sub/loop").symlink_to(root)
    (root / "current.jsonl").symlink_to(root / "a.jsonl")
    (root / "linked").symlink_to(outside)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "self").symlink_to(root / "self")
    assert _names(root) == ["a.jsonl", "linked/c.jsonl", "sub/b.jsonl"]


def test_pipes_are_left_out_of_folders_and_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert _names(tmp_path) == []
    with pytest.raises(ConfigurationError, match="Stdin source"):
        Listing(str(tmp_path / "pipe"), recursive=True).check()


def test_what_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    for path in (tmp_path / "no.jsonl", tmp_path / "no" / "*.jsonl"):
        with pytest.raises(ConfigurationError, match="does not exist: create it or correct the path"):
            Listing(str(path), recursive=True).check()
    with pytest.raises(ConfigurationError, match="empty"):
        Listing("", recursive=True)


def test_a_folder_that_cannot_be_read_is_in_the_list_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(tmp_path, "a.jsonl", "locked/b.jsonl")
    scan = os.scandir

    def deny(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr("ingest.sources.listing.os.scandir", deny)
    found = Listing(str(tmp_path), recursive=True).files()
    assert [(f.name, f.error is None) for f in found] == [("a.jsonl", True), ("locked", False)]


@pytest.mark.parametrize("name", ["a.log", "a.log~1", "a.log~0", "a~raw", "a~raw~2", "x~1~0", "a~b", "ä", "a%20~raw"])
def test_no_file_and_incarnation_share_a_name(name: str) -> None:
    base = relative_name(f"/srv/in/{name}", "/srv/in")
    made = [partition_name(base, n) for n in range(4)]
    assert len(set(made)) == 4
    assert {base_name(one) for one in made} == {base}
    others = ["a.log", "a.log~1", "a.log~2", "a.log~0", "a~raw", "a~raw~2", "x", "x~1", "x~1~0", "x~1~1", "a~b", "a"]
    for other in others:
        if other != name:
            assert not {partition_name(relative_name(f"/srv/in/{other}", "/srv/in"), n) for n in range(4)} & set(made)


def test_names_that_are_not_text_have_a_name_all_the_same() -> None:
    odd = os.fsdecode(b"/srv/in/caf\xe9.jsonl")
    assert relative_name(odd, "/srv/in") == "caf%E9.jsonl~raw"
    assert relative_name("/srv/in/caf%E9.jsonl~raw", "/srv/in") != relative_name(odd, "/srv/in")
