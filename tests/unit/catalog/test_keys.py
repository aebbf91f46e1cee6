"""Row keys: their literal form, and that every one of them reverses."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import keys
from catalog.errors import ConfigurationError, DataCorruption, InvalidRequest
from catalog.keys import PipelineKey

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
AWKWARD = st.text(st.sampled_from("#%~:/0123ł\U0001f600a2.-"))
NAMES = TEXT | AWKWARD
LONG_NAMES = st.builds(lambda s, n: (s or "x") * n, AWKWARD, st.integers(1, 400))


def test_pipeline_key_is_the_partition_key() -> None:
    key = PipelineKey("acme", "dev", "bikes-2.x")
    assert str(key) == "acme#dev#bikes-2.x"
    assert PipelineKey.parse(str(key)) == key


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a#b", "a/b", "ä", "a" * 129, "a\n"])
def test_names_that_cannot_be_part_of_a_key_name_value_and_origin(name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        keys.check_name("workspace", name, "skippr.yml, skippr.workspace")
    assert repr(name) in str(refused.value)
    assert "skippr.yml" in str(refused.value)
    with pytest.raises(ConfigurationError):
        PipelineKey("default", name, "p")


def test_offset_keys_are_literal() -> None:
    assert keys.offset_sk("bronze", "a/b.jsonl~2") == keys.SortKey("offset#bronze#a/b.jsonl~2")
    assert keys.offset_sk("n#s", "100%#x") == keys.SortKey("offset#n%23s#100%25%23x")
    assert keys.checkpoint_sk("file#a#b%") == keys.SortKey("checkpoint#file#a#b%")
    assert keys.log_sk("0a1b") == "log#0a1b"


def test_long_partition_is_its_first_400_bytes_and_a_digest() -> None:
    partition = "ł" * 600
    key = keys.offset_sk("ns", partition)
    assert key.sk == "offset#ns#" + "ł" * 200 + "~" + hashlib.sha256(partition.encode()).hexdigest()
    assert key.partition_name == partition
    assert keys.offset_sk("ns", "x" + "ł" * 300).sk.startswith("offset#ns#x" + "ł" * 300)
    assert len(keys.offset_sk("ns", "x" + "ł" * 600).sk.split("~")[0].encode()) == len(b"offset#ns#") + 399  # no half character


def test_limit_of_a_plain_key_is_1000_bytes() -> None:
    fits = "x" * (1000 - len("offset#ns#"))
    assert keys.offset_sk("ns", fits).partition_name is None
    assert keys.offset_sk("ns", fits + "x").partition_name == fits + "x"


@given(namespace=NAMES, partition=NAMES | LONG_NAMES)
def test_offset_keys_reverse(namespace: str, partition: str) -> None:
    key = keys.offset_sk(namespace, partition)
    assert len(key.sk.encode()) <= keys.SK_BYTES_MAX
    assert keys.parse_offset_sk(key.sk, key.partition_name) == (namespace, partition)


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_different_partitions_have_different_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (keys.offset_sk(*one) == keys.offset_sk(*other)) == (one == other)


@given(NAMES | LONG_NAMES)
def test_checkpoint_keys_reverse(logical_key: str) -> None:
    key = keys.checkpoint_sk(logical_key)
    assert len(key.sk.encode()) <= keys.SK_BYTES_MAX
    assert keys.parse_checkpoint_sk(key.sk, key.partition_name) == logical_key


@pytest.mark.parametrize(
    ("sk", "partition_name"),
    [
        ("offset#ns", None), ("offset", None), ("checkpoint#ns#p", None), ("offset#ns#100%", None), ("offset#ns#%2", None),
        ("offset#ns#a#b", None), ("offset#ns#%41", None), ("offset#ns#p", "p"), ("offset#ns#p", "q"), ("offset#ns#p", "q" * 2000),
    ],
)
def test_offset_keys_nobody_can_have_written_are_corruption(sk: str, partition_name: str | None) -> None:
    with pytest.raises(DataCorruption):
        keys.parse_offset_sk(sk, partition_name)


def test_other_broken_keys_are_corruption() -> None:
    for parse, sk in [
        (keys.parse_log_sk, "log#"), (keys.parse_log_sk, "wal#x"), (keys.parse_namespace_sk, "table#1:a"),
        (keys.parse_table_sk, "table#1:a1:b"), (keys.parse_table_sk, "namespace#1:a"), (keys.parse_namespace_sk, "namespace#"),
    ]:
        with pytest.raises(DataCorruption):
            parse(sk)
    with pytest.raises(DataCorruption):
        keys.parse_checkpoint_sk("offset#a#b", None)
    with pytest.raises(DataCorruption):
        keys.parse_checkpoint_sk("checkpoint#a", "b")


def test_names_no_row_can_have_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        keys.offset_sk("ns", "name-\udcff")
    with pytest.raises(InvalidRequest, match="1000"):
        keys.offset_sk("n" * 1000, "p")
    for wal_id in ("", "a#b"):
        with pytest.raises(InvalidRequest):
            keys.log_sk(wal_id)


def test_catalog_keys_are_literal() -> None:
    digest = hashlib.sha256(b"s3://lake/dev").hexdigest()
    assert keys.catalog_pk("s3://lake/dev/") == keys.catalog_pk("s3://lake/dev") == f"catalog#{digest}"
    assert keys.namespace_sk(("bronze", "żółw")) == "namespace#6:bronze7:żółw"
    assert keys.tables_pk("s3://lake/dev", ("bronze",)) == f"catalog#{digest}#namespace#6:bronze"
    assert keys.table_sk("rides") == "table#5:rides"


@pytest.mark.parametrize("uri", ["", "/", "///", "s3://", "file:///"])
def test_a_warehouse_without_a_place_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="warehouse"):
        keys.normalize_warehouse(uri)


@given(st.lists(NAMES.filter(bool), min_size=1, max_size=5))
def test_names_of_the_catalog_reverse(levels: list[str]) -> None:
    assert keys.parse_namespace_sk(keys.namespace_sk(levels)) == tuple(levels)
    assert keys.parse_table_sk(keys.table_sk(levels[0])) == levels[0]


@given(st.lists(NAMES.filter(bool), min_size=1, max_size=3), st.lists(NAMES.filter(bool), min_size=1, max_size=4))
def test_a_namespace_is_a_prefix_of_exactly_what_is_below_it(parent: list[str], other: list[str]) -> None:
    below = other[: len(parent)] == parent
    assert keys.namespace_sk(other).startswith(keys.namespace_sk(parent)) == below


@given(TEXT | st.text(st.sampled_from("0123456789:ab")))
def test_decoding_any_text_reverses_or_is_corruption(text: str) -> None:
    try:
        levels = keys.decode_name(text, "here")
    except DataCorruption as error:
        assert "here" in str(error)
    else:
        assert keys.encode_name(levels) == text


@pytest.mark.parametrize("levels", [(), ("",), ("a", ""), ("\udcff",)])
def test_names_that_are_none_are_refused(levels: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        keys.encode_name(levels)
