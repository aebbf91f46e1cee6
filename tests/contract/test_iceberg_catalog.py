"""What anyone may expect of a pyiceberg catalog, on every item table that can carry ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import catalog as catalog_package
from catalog.errors import ConfigurationError, DataCorruption
from catalog.iceberg.skippr_catalog import SkipprCatalog
from catalog.items.table import ItemTable
from tests.helpers_items import BACKENDS, open_table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(params=list(BACKENDS))
def items(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ItemTable]:
    table = open_table(request.param, tmp_path)
    yield table
    table.close()


@pytest.fixture
def catalog(items: ItemTable, tmp_path: Path) -> SkipprCatalog:
    return SkipprCatalog.over(items, "test", str(tmp_path / "lake"))


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "name": ["x"] * count}, schema=SCHEMA)


def metadata_files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.metadata.json")}


def test_rows_have_the_documented_keys_and_attributes(catalog: SkipprCatalog, items: ItemTable, tmp_path: Path) -> None:
    catalog.create_namespace(("a", "b"), {"k": "v"})
    table = catalog.create_table(("a", "b", "täble"), SCHEMA)
    table.append(rows(0, 1))
    pk = "catalog#" + sha256(f"file://{tmp_path}/lake".encode()).hexdigest()
    namespace = items.get(pk, "namespace#1:a1:b")
    assert namespace is not None
    assert (json.loads(str(namespace["properties"])), namespace["table_count"]) == ({"k": "v"}, 1)
    row = items.get(f"{pk}#namespace#1:a1:b", "table#6:täble")
    assert row is not None
    assert row["table_uuid"] == str(table.metadata.table_uuid)
    assert row["metadata_location"] == table.metadata_location
    assert row["previous_metadata_location"] == table.metadata.metadata_log[-1].metadata_file
    assert row["generation"] == 2
    assert table.metadata.format_version == 2


@pytest.mark.parametrize("levels", [("one",), ("one", "two"), ("one", "two", "three")])
def test_namespaces_of_one_to_three_levels(catalog: SkipprCatalog, levels: tuple[str, ...]) -> None:
    catalog.create_namespace(levels, {"owner": "me"})
    assert catalog.namespace_exists(levels)
    assert catalog.load_namespace_properties(levels) == {"owner": "me"}
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace(levels)
    assert catalog.list_namespaces() == [("one",)]
    for depth in range(1, len(levels)):
        assert catalog.list_namespaces(levels[:depth]) == [levels[: depth + 1]]
        with pytest.raises(NamespaceNotEmptyError):
            catalog.drop_namespace(levels[:depth])
    assert catalog.list_namespaces(levels) == []
    for depth in range(len(levels), 0, -1):
        catalog.drop_namespace(levels[:depth])
    assert catalog.list_namespaces() == []
    with pytest.raises(NoSuchNamespaceError):
        catalog.drop_namespace(levels)


@pytest.mark.parametrize("name", ["", " ", ("",), ("a", ""), ("a", "b", "c", "d")])
def test_names_that_name_no_namespace(catalog: SkipprCatalog, name: str | tuple[str, ...]) -> None:
    for call in (catalog.create_namespace, catalog.drop_namespace, catalog.load_namespace_properties, catalog.list_namespaces):
        with pytest.raises(NoSuchNamespaceError):
            call(name)
    assert not catalog.namespace_exists(name)


def test_siblings_whose_names_begin_alike_are_told_apart(catalog: SkipprCatalog) -> None:
    for levels in (("a",), ("ab",), ("a.b",), ("a", "b"), ("1:a",)):
        catalog.create_namespace(levels)
        catalog.create_table((*levels, "t"), SCHEMA)
    assert sorted(catalog.list_namespaces()) == [("1:a",), ("a",), ("a.b",), ("ab",)]
    assert catalog.list_namespaces(("a",)) == [("a", "b")]
    assert catalog.list_tables(("a",)) == [("a", "t")]
    locations = {catalog.load_table((*levels, "t")).location() for levels in (("a",), ("ab",), ("a.b",), ("a", "b"), ("1:a",))}
    assert len(locations) == 5


def test_namespace_properties_merge_and_remove(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns", {"a": "1", "b": "2"})
    summary = catalog.update_namespace_properties("ns", removals={"a", "gone"}, updates={"b": "3", "c": "4"})
    assert (summary.removed, sorted(summary.updated), summary.missing) == (["a"], ["b", "c"], ["gone"])
    assert catalog.load_namespace_properties("ns") == {"b": "3", "c": "4"}
    with pytest.raises(ValueError, match="overlap"):
        catalog.update_namespace_properties("ns", removals={"b"}, updates={"b": "5"})
    with pytest.raises(NoSuchNamespaceError):
        catalog.update_namespace_properties("other", updates={"x": "y"})


def test_create_load_list_drop(catalog: SkipprCatalog) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("ns.t", SCHEMA)
    catalog.create_namespace("ns")
    created = catalog.create_table("ns.t", SCHEMA, properties={"p": "q"})
    assert created.properties["p"] == "q"
    assert catalog.load_table("ns.t") == created
    assert catalog.table_exists("ns.t")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("ns.t", SCHEMA)
    assert catalog.create_table_if_not_exists("ns.t", SCHEMA) == created
    assert catalog.list_tables("ns") == [("ns", "t")]
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("other")
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("ns")
    catalog.drop_table("ns.t")
    assert not catalog.table_exists("ns.t")
    for call in (catalog.load_table, catalog.drop_table, catalog.purge_table, catalog.pointer):
        with pytest.raises(NoSuchTableError):
            call("ns.t")
    catalog.drop_namespace("ns")


def test_a_refused_create_leaves_no_file(catalog: SkipprCatalog, tmp_path: Path) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("ns.t", SCHEMA)
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", SCHEMA)
    before = metadata_files(tmp_path)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("ns.t", SCHEMA)
    assert metadata_files(tmp_path) == before


def test_version_1_tables_and_no_version_3(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.one", SCHEMA, properties={"format-version": "1"})
    table.append(rows(0, 3))
    assert catalog.load_table("ns.one").metadata.format_version == 1
    with pytest.raises(ConfigurationError, match="format-version '3'"):
        catalog.create_table("ns.three", SCHEMA, properties={"format-version": "3"})


def test_appends_schema_changes_and_properties_through_pyiceberg(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = catalog.create_table("ns.t", schema, partition_spec=spec)
    table.append(rows(0, 2))
    with table.update_schema() as update:
        update.add_column("extra", LongType())
    with table.transaction() as transaction:
        transaction.set_properties({"k": "v"})
    table.append(pa.table({"id": [7], "name": ["y"], "extra": [1]}))
    table.delete("id = 0")
    fresh = catalog.load_table("ns.t")
    assert sorted(fresh.scan().to_arrow()["id"].to_pylist()) == [1, 7]
    assert fresh.properties["k"] == "v"
    pointer = catalog.pointer("ns.t")
    assert (pointer.generation, pointer.metadata_location) == (6, fresh.metadata_location)


def test_a_commit_from_a_stale_table_fails_or_is_rebuilt(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", SCHEMA)
    one, other = catalog.load_table("ns.t"), catalog.load_table("ns.t")
    with one.update_schema() as update:
        update.add_column("a", LongType())
    with pytest.raises(CommitFailedException, match="schema"):
        with other.update_schema() as update:
            update.add_column("b", LongType())
    stale = catalog.load_table("ns.t")
    catalog.load_table("ns.t").append(rows(0, 2))
    stale.append(rows(2, 2))
    assert sorted(catalog.load_table("ns.t").scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]


def test_a_table_dropped_and_made_anew_is_another_table(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    old = catalog.create_table("ns.t", SCHEMA)
    catalog.drop_table("ns.t")
    catalog.create_table("ns.t", SCHEMA)
    with pytest.raises((CommitFailedException, ValueError), match=r"[Uu][Uu][Ii][Dd]"):
        old.append(rows(0, 1))


def test_rename_keeps_the_table_and_moves_the_count(catalog: SkipprCatalog) -> None:
    for name in ("a", "b"):
        catalog.create_namespace(name)
    table = catalog.create_table("a.t", SCHEMA)
    table.append(rows(0, 2))
    catalog.create_table("b.taken", SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table("a.t", "b.taken")
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table("a.t", "c.t")
    with pytest.raises(NoSuchTableError):
        catalog.rename_table("a.missing", "b.t")
    renamed = catalog.rename_table("a.t", "b.t")
    assert renamed.metadata.table_uuid == table.metadata.table_uuid
    assert not catalog.table_exists("a.t")
    catalog.drop_namespace("a")
    renamed.append(rows(2, 1))
    assert catalog.load_table("b.t").scan().to_arrow().num_rows == 3
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("b")


def test_register_and_overwrite(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA)
    table.append(rows(0, 2))
    location = table.metadata_location
    catalog.drop_table("ns.t")
    catalog.register_table("ns.again", location).append(rows(2, 1))
    assert catalog.load_table("ns.again").scan().to_arrow().num_rows == 3
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table("ns.again", location)
    catalog.register_table("ns.again", location, overwrite=True)
    assert catalog.load_table("ns.again").scan().to_arrow().num_rows == 2
    with pytest.raises(NoSuchNamespaceError):
        catalog.register_table("other.t", location)


def test_purge_leaves_no_file_of_the_table(catalog: SkipprCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", SCHEMA)
    for first in (0, 10):
        table.append(rows(first, 5))
    table.delete("id = 3")
    catalog.create_table("ns.other", SCHEMA)
    catalog.purge_table("ns.t")
    assert not [path for path in (tmp_path / "lake" / "ns" / "t").rglob("*") if path.is_file()]
    assert catalog.list_tables("ns") == [("ns", "other")]


def test_create_transaction_creates_with_rows_or_not_at_all(catalog: SkipprCatalog) -> None:
    catalog.create_namespace(("a", "b"))
    transaction = catalog.create_table_transaction(("a", "b", "t"), SCHEMA)
    transaction.append(rows(0, 3))
    assert not catalog.table_exists(("a", "b", "t"))
    transaction.commit_transaction()
    assert catalog.load_table(("a", "b", "t")).scan().to_arrow().num_rows == 3
    late = catalog.create_table_transaction(("a", "b", "u"), SCHEMA)
    catalog.create_table(("a", "b", "u"), SCHEMA)
    with pytest.raises(CommitFailedException):
        late.commit_transaction()


def test_views_are_answered_or_refused_in_a_sentence(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    assert catalog.list_views("ns") == []
    assert not catalog.view_exists("ns.v")
    with pytest.raises(NotImplementedError, match="keeps tables only"):
        catalog.load_view("ns.v")


def test_names_cannot_leave_the_warehouse(catalog: SkipprCatalog, tmp_path: Path) -> None:
    catalog.create_namespace(("..", ".."))
    for name in ("../../../outside", "a/b", "x" * 300, "#%? ü"):
        table = catalog.create_table(("..", "..", name), SCHEMA)
        table.append(rows(0, 1))
        assert catalog.load_table(("..", "..", name)).scan().to_arrow().num_rows == 1
    written = {path for path in tmp_path.rglob("*") if path.is_file() and "control.db" not in path.name}
    assert written
    assert all(path.is_relative_to(tmp_path / "lake") for path in written)


def test_a_metadata_file_that_is_gone_or_broken_is_named(catalog: SkipprCatalog) -> None:
    catalog.create_namespace("ns")
    for name, content in (("gone", None), ("broken", b"{")):
        location = Path(catalog.create_table(f"ns.{name}", SCHEMA).metadata_location)
        location.unlink()
        if content is not None:
            location.write_bytes(content)
        fresh = SkipprCatalog.over(catalog.rows.items, "fresh", catalog.warehouse)
        with pytest.raises(DataCorruption, match=location.name):
            fresh.load_table(f"ns.{name}")


def test_through_pyicebergs_own_loader(tmp_path: Path) -> None:
    options = {"py-catalog-impl": "catalog.SkipprCatalog", "item_store": str(tmp_path / "c.db"), "warehouse": str(tmp_path / "lake")}
    with load_catalog("mine", **options) as loaded:
        loaded.create_namespace("ns")
        loaded.create_table("ns.t", SCHEMA).append(rows(0, 2))
        assert loaded.load_table("ns.t").scan().to_arrow().num_rows == 2


def test_a_warehouse_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    broken = SkipprCatalog("c", item_store=str(tmp_path / "c.db"), warehouse=str(tmp_path / "file" / "lake"))
    broken.create_namespace("ns")
    with pytest.raises(ConfigurationError, match="file/lake"):
        broken.create_table("ns.t", SCHEMA)
    broken.close()


def test_from_properties_and_lazily_exported(tmp_path: Path) -> None:
    made = catalog_package.SkipprCatalog("c", item_store=str(tmp_path / "c.db"), warehouse=f"file://{tmp_path}/w a/")
    made.create_namespace("ns")
    made.create_table("ns.t", SCHEMA).append(rows(0, 4))
    made.close()
    made.close()
    again = SkipprCatalog("c", item_store=str(tmp_path / "c.db"), warehouse=str(tmp_path / "w a"))
    assert again.load_table("ns.t").scan().to_arrow().num_rows == 4
    again.close()
    with pytest.raises(ConfigurationError, match="item_store"):
        SkipprCatalog("c", warehouse=str(tmp_path))
    with pytest.raises(ConfigurationError, match="warehouse"):
        SkipprCatalog("c", item_store=str(tmp_path / "c.db"))
    with pytest.raises(ConfigurationError, match="plain folder"):
        SkipprCatalog("c", item_store=str(tmp_path / "c.db"), warehouse="file://host/lake")
