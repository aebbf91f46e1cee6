"""The segment format: what is written is read back, what is damaged or newer is refused by name, formats once written stay readable."""

from __future__ import annotations

import hashlib
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errors import ConfigurationError, DataCorruption, InvalidRequest
from ingest.wal.header import SegmentDraft
from ingest.wal.segment import GENESIS_HASH, SegmentReader, read_header, require_chain, schema_fingerprint
from tests.unit.wal.samples import DEAD, TABLE, draft, joined, numbers, rich_draft, sealed

GOLDEN = Path(__file__).parent / "golden" / "segment-format-1.seg"


def reader(data: bytes) -> SegmentReader:
    return SegmentReader(pa.py_buffer(data), "00001.seg")


def test_rich_batches_come_back_as_they_went_in() -> None:
    content = rich_draft()
    segment = sealed(content)
    back = reader(joined(segment))
    back.verify()
    assert list(back.batches(TABLE)) == list(content.groups[0][2])
    assert list(back.batches(DEAD)) == list(content.groups[1][2])
    assert list(back.batches(("bronze", "other"))) == []
    assert back.header == segment.header
    assert [(g.identifier, g.kind, g.rows) for g in back.header.groups] == [(TABLE, "rows", 4), (DEAD, "dead_letter", 1)]
    assert back.header.offsets == tuple(content.offsets)
    assert back.header.checkpoints == tuple(content.checkpoints)
    assert back.schema(back.header.groups[0]) == content.groups[0][2][0].schema
    assert back.size_bytes == segment.size_bytes == len(joined(segment))


def test_a_table_may_have_several_groups_with_schemas_of_their_own() -> None:
    wide = pa.record_batch({"id": pa.array([7], pa.int64()), "name": pa.array(["x"])})
    segment = sealed(SegmentDraft([(TABLE, "rows", [numbers(0, 2)]), (TABLE, "rows", [wide])]))
    assert [b.num_rows for b in reader(joined(segment)).batches(TABLE)] == [2, 1]
    with pytest.raises(InvalidRequest, match=r"bronze\.rides differ in schema"):
        sealed(SegmentDraft([(TABLE, "rows", [numbers(0, 2), wide])]))


def test_an_entry_without_rows_has_its_positions() -> None:
    segment = sealed(SegmentDraft([], draft(0, 5).offsets))
    back = reader(joined(segment))
    back.verify()
    assert back.header.rows == 0
    assert back.header.offsets[0].payload.line == 5


def test_the_hash_is_a_chain_over_header_and_payload() -> None:
    first = sealed(draft(0, 3)).header
    second = sealed(draft(3, 3), index=2, previous_hash=first.entry_hash).header
    by_hand = hashlib.sha256(bytes.fromhex(first.entry_hash) + second.canonical + bytes.fromhex(second.payload_sha256)).hexdigest()
    assert second.entry_hash == by_hand == second.ref.entry_hash
    require_chain(first.entry_hash, second, "2.seg")
    with pytest.raises(DataCorruption, match=r"2\.seg follows the entry"):
        require_chain(GENESIS_HASH, second, "2.seg")


def test_a_header_alone_is_readable_and_hashes_the_same() -> None:
    segment = sealed(rich_draft())
    alone = read_header(segment.header_chunk, "reclaimed.seg")
    assert alone == segment.header
    assert alone.entry_hash == segment.header.entry_hash
    assert len(segment.header_chunk) < segment.size_bytes


def test_every_flipped_byte_is_noticed() -> None:
    data = bytearray(joined(sealed(draft(0, 5))))
    for at in range(len(data)):
        data[at] ^= 0x5A
        with pytest.raises((DataCorruption, ConfigurationError), match=r"00001\.seg"):
            reader(bytes(data)).verify()
        data[at] ^= 0x5A
    reader(bytes(data)).verify()


def test_every_torn_length_is_noticed() -> None:
    data = joined(sealed(draft(0, 5)))
    for size in range(len(data)):
        with pytest.raises(DataCorruption, match=r"segment 00001\.seg is damaged"):
            reader(data[:size]).verify()
    with pytest.raises(DataCorruption, match="promises"):
        reader(data + b"\0")


def test_a_header_length_beyond_the_file_is_refused_before_anything_is_allocated() -> None:
    data = bytearray(joined(sealed(draft(0, 5))))
    struct.pack_into("<I", data, 12, 2**32 - 1)
    with pytest.raises(DataCorruption, match="a header of 4294967295 bytes"):
        read_header(bytes(data), "x.seg")


def test_a_newer_format_is_refused_by_name() -> None:
    data = bytearray(joined(sealed(draft(0, 5))))
    struct.pack_into("<I", data, 8, 2)
    with pytest.raises(ConfigurationError, match=r"x\.seg has segment format 2; this skipprd reads formats up to 1: run the newer"):
        read_header(bytes(data), "x.seg")


@pytest.mark.parametrize(("old", "new"), [
    (b'"kind":"reset"', b'"kind":"later"'), (b'"index":1', b'"index":-'), (b'"epoch":3', b'"epoch":"'), (b'"claim":0', b'"claim":-'),
])
def test_a_header_with_a_good_checksum_and_nonsense_inside_is_refused(old: bytes, new: bytes) -> None:
    data = sealed(SegmentDraft([], draft(0, 5).offsets, kind="reset")).header_chunk[:-4]
    assert old in data
    damaged = data.replace(old, new)
    with pytest.raises(DataCorruption, match=r"x\.seg: its header is not"):
        read_header(damaged + struct.pack("<I", zlib.crc32(damaged)), "x.seg")


def test_a_header_in_another_spelling_is_refused() -> None:
    data = sealed(draft(0, 5)).header_chunk[:-4]
    damaged = data.replace(b'"index":1,', b'"index":1 ')[:-1] + b"}"
    other = data[:12] + struct.pack("<I", len(data) - 16 + 1) + data[16:-1] + b" }"
    for spelling in (damaged, other):
        with pytest.raises(DataCorruption, match="its header is not"):
            read_header(spelling + struct.pack("<I", zlib.crc32(spelling)), "x.seg")


def test_equal_schemas_have_equal_fingerprints() -> None:
    assert schema_fingerprint(numbers(0, 1).schema) == schema_fingerprint(numbers(5, 2).schema.with_metadata({"k": "v"}))
    assert schema_fingerprint(numbers(0, 1).schema) != schema_fingerprint(pa.schema({"id": pa.int32()}))


def test_format_1_stays_readable() -> None:
    back = SegmentReader(pa.py_buffer(GOLDEN.read_bytes()), GOLDEN.name)
    back.verify()
    content = rich_draft()
    assert back.header.entry_hash == "e3e7f29e053510cbb39555ac224b83a2aaecef16bbdbc7d953b68f9ab551abbd"
    assert list(back.batches(TABLE)) == list(content.groups[0][2])
    assert list(back.batches(DEAD)) == list(content.groups[1][2])
    assert back.header.offsets == tuple(content.offsets)
    assert back.header.checkpoints == tuple(content.checkpoints)
