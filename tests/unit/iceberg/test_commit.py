"""What a lost answer, a late write and another writer do to a pointer move (rule 17)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from catalog.iceberg.rows import Pointer, Verdict, judge
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.items.memory import MemoryItemTable
from tests.helpers_faults import Fault, FaultyTable

SCHEMA = pa.schema([("id", pa.int64())])
BASE = Pointer("old.json", "uuid", 4)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (None, Verdict.UNKNOWN),
        (BASE, Verdict.UNKNOWN),
        (Pointer("mine.json", "uuid", 5), Verdict.MOVED),
        (Pointer("theirs.json", "uuid", 5), Verdict.LOST),
        (Pointer("theirs.json", "uuid", 6), Verdict.UNKNOWN),
        (Pointer("mine.json", "uuid", 6), Verdict.UNKNOWN),
        (Pointer("theirs.json", "another uuid", 5), Verdict.UNKNOWN),
    ],
)
def test_only_the_next_generation_tells_what_became_of_a_move(row: Pointer | None, verdict: Verdict) -> None:
    assert judge(BASE, "mine.json", row) is verdict


class Setting:
    """A table with one row, read through a table of items whose answers can be spoilt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.items = FaultyTable(MemoryItemTable("catalog"))
        self.catalog = SkipprCatalog.over(self.items, "test", str(folder / "lake"))
        self.catalog.create_namespace("ns")
        self.table = self.catalog.create_table("ns.t", SCHEMA)
        self.other = SkipprCatalog.over(self.items._table, "other", str(folder / "lake"))

    def set_property(self, *script: Fault) -> None:
        """One commit that pyiceberg never repeats by itself."""
        self.items.script = list(script)
        with self.table.transaction() as transaction:
            transaction.set_properties({"mine": "1"})

    def others(self, count: int = 1) -> None:
        for _ in range(count):
            self.other.load_table("ns.t").append(pa.table({"id": [1]}))

    def metadata_files(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*.metadata.json")}

    def reachable(self) -> set[str]:
        table = self.other.load_table("ns.t")
        return {Path(p).name for p in [table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)]}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


@pytest.mark.parametrize("script", [("lost_after",), ("sdk_retry",), ("lost_before",), ("lost_before", "lost_after"), ("down",), ("late",)])
def test_a_lost_answer_is_settled_by_sending_the_same_write_again(setting: Setting, script: tuple[Fault, ...]) -> None:
    setting.set_property(*script)
    setting.items.deliver()
    assert setting.other.load_table("ns.t").properties["mine"] == "1"
    assert setting.other.pointer("ns.t").generation == 2
    assert setting.metadata_files() == setting.reachable()


@pytest.mark.parametrize("fault", ["lost_before", "down", "late"])
def test_what_stays_in_doubt_deletes_nothing(setting: Setting, fault: Fault) -> None:
    with pytest.raises(CommitStateUnknownException, match=r"ns\.t"):
        setting.set_property(fault, fault, fault)
    assert len(setting.metadata_files() - setting.reachable()) == 1
    setting.items.deliver()
    if fault == "late":
        assert setting.other.load_table("ns.t").properties["mine"] == "1"


def test_a_certain_loss_deletes_the_file_written_for_it(setting: Setting) -> None:
    pointer, metadata = setting.catalog.load("ns.t")
    setting.others()
    with pytest.raises(CommitFailedException):
        setting.catalog.committer.commit(("ns", "t"), pointer, metadata.model_copy(update={"last_updated_ms": 1}))
    assert setting.metadata_files() == setting.reachable()


def test_a_move_below_others_is_recognised_as_lost_but_its_file_is_kept(setting: Setting) -> None:
    pointer, metadata = setting.catalog.load("ns.t")
    setting.others(3)
    with pytest.raises(CommitFailedException, match="several"):
        setting.catalog.committer.commit(("ns", "t"), pointer, metadata.model_copy(update={"last_updated_ms": 1}))
    assert len(setting.metadata_files() - setting.reachable()) == 1


def test_an_applied_move_with_others_on_top_is_never_called_lost(setting: Setting) -> None:
    """The answer is lost, others commit on top, and the retry meets a foreign location (CE-15, docs/protocol.md)."""
    pointer, metadata = setting.catalog.load("ns.t")
    changed = metadata.model_copy(update={"properties": {"mine": "1"}})
    location = setting.catalog.committer.next_location(changed, pointer.metadata_location)
    setting.catalog.files.write(changed, location)
    setting.other.rows.move(("ns", "t"), pointer, location)
    setting.others(2)
    with pytest.raises(CommitStateUnknownException):
        setting.catalog.committer.move(("ns", "t"), pointer, location)
    assert Path(location).exists()


@pytest.mark.parametrize("script", [("lost_after",), ("sdk_retry",)])
def test_a_create_whose_answer_is_lost_is_recognised(setting: Setting, script: tuple[Fault, ...]) -> None:
    setting.items.script = list(script)
    created = setting.catalog.create_table("ns.u", SCHEMA)
    assert setting.other.load_table("ns.u").metadata.table_uuid == created.metadata.table_uuid
    setting.other.drop_table("ns.u")
    setting.other.drop_table("ns.t")
    setting.other.drop_namespace("ns")


def test_a_create_in_doubt_keeps_its_file(setting: Setting) -> None:
    setting.items.script = ["late"]
    with pytest.raises(CommitStateUnknownException):
        setting.catalog.create_table("ns.u", SCHEMA)
    setting.items.deliver()
    assert setting.other.load_table("ns.u").schema().column_names == ["id"]


@pytest.mark.parametrize("script", [("lost_after",), ("sdk_retry",)])
def test_a_drop_whose_answer_is_lost_counts_once(setting: Setting, script: tuple[Fault, ...]) -> None:
    setting.items.script = list(script)
    setting.catalog.drop_table("ns.t")
    setting.other.drop_namespace("ns")


def test_metadata_is_parsed_once_per_location(setting: Setting) -> None:
    first = setting.catalog.load_table("ns.t").metadata
    assert setting.catalog.load_table("ns.t").metadata is first
    gets = len(setting.items.gets)
    setting.catalog.load_table("ns.t")
    assert len(setting.items.gets) == gets + 1
