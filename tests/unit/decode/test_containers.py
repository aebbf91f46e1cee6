"""Compressed files, Parquet and Arrow: all of it is read, and what is broken says where."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import zipfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import ConfigurationError, DataCorruption
from ingest.decode import open_decoder
from ingest.schema import TableSchema
from ingest.settings import DecodeSettings
from tests.helpers_decode import decode, lines

RECORDS = [f'{{"a":{i},"t":"{"x" * (i % 50)}"}}' for i in range(3000)]
DATA = lines(*RECORDS)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _zip(data: bytes, *names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return out.getvalue()


PACKERS: dict[str, Any] = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": _zstd}


class _Pipe(io.RawIOBase):
    """Bytes that cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 1000) if size >= 0 else -1)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("seekable", [True, False])
def test_every_member_and_frame_is_read(packer: str, seekable: bool) -> None:
    pack = PACKERS[packer]
    middle = DATA.index(b"\n", 40_000) - 5
    packed = pack(DATA[:middle]) + pack(b"") + pack(DATA[middle:])
    out = decode(packed, "a.jsonl", stream=None if seekable else _Pipe(packed))
    assert out.compression == packer
    assert not out.appendable
    assert [row["a"] for row in out.rows] == list(range(3000))


@pytest.mark.parametrize("packer", PACKERS)
def test_a_packed_file_that_breaks_off_gives_what_came_before_and_says_where(packer: str) -> None:
    packed = PACKERS[packer](DATA)
    for cut in (len(packed) - 1, len(packed) * 2 // 3):
        counts: list[int] = []
        with pytest.raises(DataCorruption, match=rf"file:///in/a.jsonl: the {packer} data breaks off.*whole copy"):
            _count(packed[:cut], counts)
        assert sum(counts) < 3000 or cut == len(packed) - 1
        assert sum(counts) > 1000 or packer != "gzip"


def _count(packed: bytes, counts: list[int]) -> None:
    """Records of each unit, noted as they come."""
    stream = open_decoder(io.BytesIO(packed), name="a.jsonl", uri="file:///in/a.jsonl", settings=DecodeSettings(block_bytes=1 << 14))
    for unit in stream.units():
        assert not unit.decode(pa.schema([])).bad
        counts.append(unit.records)


def test_damage_at_the_start_of_a_later_bz2_stream_is_not_taken_for_padding() -> None:
    packed = bytearray(bz2.compress(DATA) + bz2.compress(DATA))
    packed[packed.index(b"BZh", 10)] ^= 0xFF
    with pytest.raises(DataCorruption, match="bz2"):
        decode(bytes(packed), "a.jsonl.bz2")


def test_a_gzip_with_a_wrong_checksum_is_corrupt() -> None:
    packed = bytearray(gzip.compress(DATA))
    packed[-6] ^= 0xFF
    with pytest.raises(DataCorruption, match="gzip"):
        decode(bytes(packed), "a.jsonl.gz")


def test_reading_a_packed_file_goes_on_by_record() -> None:
    out = decode(gzip.compress(DATA), "a.jsonl.gz", start_record=2990, start_byte=77)
    assert out.at == list(range(2990, 3000))


def test_a_zip_holds_exactly_one_file() -> None:
    assert decode(_zip(DATA, "data.jsonl"), "a.zip").records == 3000
    with pytest.raises(ConfigurationError, match=r"exactly one file, this one holds 2 \(x.jsonl, y.jsonl\)"):
        decode(_zip(DATA, "x.jsonl", "y.jsonl"), "a.zip")
    with pytest.raises(ConfigurationError, match="holds 0"):
        decode(_zip(DATA), "a.zip")
    with pytest.raises(DataCorruption, match="zip archive is damaged"):
        decode(_zip(DATA, "data.jsonl")[:2000], "a.zip")


def test_a_csv_inside_a_zip_is_known_by_the_name_inside() -> None:
    assert decode(_zip(b"a,b\n1,2\n", "flights.csv"), "flights.csv.zip").rows == [{"a": 1, "b": 2}]
    assert decode(_zip(b"a,b\n1,2\n", "flights.csv"), "download.zip").rows == [{"a": 1, "b": 2}]


def test_content_tells_the_compression_whatever_the_name() -> None:
    assert decode(gzip.compress(DATA), "a.jsonl").compression == "gzip"
    assert decode(DATA, "a.jsonl.gz").compression == "none"


def test_settings_win_over_detection() -> None:
    assert decode(b"a,b\n1,2\n", "a.jsonl", format="csv").rows == [{"a": 1, "b": 2}]
    with pytest.raises(ConfigurationError, match="cannot tell the format"):
        decode(b"2024-01-01 hello\n", "app.log")


def _table(rows: int = 1000) -> pa.Table:
    at = [datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=i) for i in range(rows)]
    return pa.table(
        {
            "i": pa.array(range(rows), pa.int32()),
            "s": pa.array([f"s{i}" for i in range(rows)], pa.large_string()),
            "d": pa.array([f"k{i % 3}" for i in range(rows)]).dictionary_encode(),
            "l": [[i, None] for i in range(rows)],
            "o": [{"x": i, "y": {"z": str(i)}} if i % 2 else None for i in range(rows)],
            "t": pa.array(at, pa.timestamp("ns")),
            "n": pa.nulls(rows),
            "u": pa.array(list(range(rows)), pa.uint16()),
        }
    )


def _parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def _arrow(table: pa.Table, file: bool, rows: int = 100) -> bytes:
    out = io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


FILES = {
    "a.parquet": _parquet(_table(), row_group_size=300),
    "a.arrow": _arrow(_table(), True),
    "a.arrows": _arrow(_table(), False),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("start", [0, 1, 299, 300, 555, 1000])
def test_typed_files_are_read_from_any_record(name: str, start: int) -> None:
    out = decode(FILES[name], name, start_record=start, block_bytes=20_000)
    assert out.at == list(range(start, 1000))
    if start < 1000:
        assert out.rows[-1]["o"] == {"x": 999, "y": {"z": "999"}}
        assert out.rows[-1]["l"] == [999, None]
        assert [out.type(c) for c in "isdtnu"] == ["int32", "string", "string", "timestamp[us]", "null", "int32"]
        assert out.units > 1 or start > 555


@pytest.mark.parametrize("name", FILES)
def test_typed_files_are_read_through_compression_and_pipes(name: str) -> None:
    assert decode(gzip.compress(FILES[name]), name + ".gz").records == 1000
    assert decode(FILES[name], "", stream=_Pipe(FILES[name])).records == 1000


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_typed_file_names_file_and_place(name: str) -> None:
    whole = FILES[name]
    with pytest.raises(DataCorruption, match=rf"mem:{name}: the (Parquet|Arrow) file is damaged or breaks off"):
        decode(whole[: len(whole) // 2], name)


def test_a_flipped_page_names_the_row_group() -> None:
    data = bytearray(_parquet(_table(), row_group_size=300, compression="zstd", write_page_checksum=True))
    data[len(data) // 3] ^= 0xFF
    with pytest.raises(DataCorruption, match=r"row group \d"):
        decode(bytes(data), "a.parquet")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.json", "a.csv", "a.jsonl", "x"])
def test_an_empty_file_is_no_rows(name: str) -> None:
    assert decode(b"", name).records == 0


def test_values_a_table_cannot_hold_exactly_are_dead_letters() -> None:
    table = pa.table({"t": pa.array([1_000, 1_001], pa.timestamp("ns")), "u": pa.array([1, 2**64 - 1], pa.uint64())})
    out = decode(_parquet(table), "a.parquet")
    assert out.codes == [(1, "timestamp.precision")]
    assert b'"t":' in out.bad[0].raw
    assert out.type("u") == "decimal128(20, 0)"
    table = pa.table({"v": pa.array([2**53, 2**53 + 1])})
    out = decode(_parquet(table), "a.parquet", schema=TableSchema.landed(pa.schema([("v", pa.float64())])))
    assert out.codes == [(1, "number.range")]


def test_a_column_of_another_type_than_the_tables_is_refused_row_by_row() -> None:
    table = pa.table({"v": pa.array(["x", None, "y"]), "k": [1, 2, 3]})
    out = decode(_parquet(table), "a.parquet", schema=TableSchema.landed(pa.schema([("v", pa.int64())])))
    assert out.codes == [(0, "type.conflict"), (2, "type.conflict")]
    assert out.rows == [{"v": None, "k": 2}]
    assert out.bad[0].raw == b'{"v":"x","k":1}'


def test_a_type_no_table_holds_is_refused_by_name() -> None:
    table = pa.table({"d": pa.array([1], pa.duration("s"))})
    with pytest.raises(ConfigurationError, match=r"mem:a.arrow: field d: no table column can hold the type duration\[s\]"):
        decode(_arrow(table, True), "a.arrow")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, _zstd])
def test_looking_at_the_beginning_does_not_shorten_the_first_block(pack: Any) -> None:
    stream = open_decoder(io.BytesIO(pack(DATA)), name="a.jsonl", uri="", settings=DecodeSettings())
    assert [unit.records for unit in stream.units()] == [3000]
