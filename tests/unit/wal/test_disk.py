"""The control file: one spelling, a checksum, formats once written stay readable; and the names in the folder."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from catalog.errors import ConfigurationError, DataCorruption
from catalog.keys import PipelineKey
from ingest.wal.disk import Base, Control, LogFolder, decode_control, encode_control, read_control, write_control
from ingest.wal.fields import canonical_json
from ingest.wal.filesystem import LocalFileSystem, disk_error
from tests.unit.wal.samples import KEY

GOLDEN = Path(__file__).parent / "golden" / "log-format-1.json"
CONTROL = Control(KEY, "0" * 31 + "1", 7, Base(6, 41, "ab" * 32), {("bronze", "rides"): 41, ("bronze", "a", "ä"): 3})


def test_format_1_stays_readable() -> None:
    assert decode_control(GOLDEN.read_bytes(), "log.json") == CONTROL
    assert encode_control(CONTROL) == GOLDEN.read_bytes()


def test_every_flipped_byte_and_every_cut_is_noticed() -> None:
    data = bytearray(encode_control(CONTROL))
    for at in range(len(data)):
        data[at] ^= 0x15
        with pytest.raises(DataCorruption, match=r"the control file log\.json is damaged"):
            decode_control(bytes(data), "log.json")
        data[at] ^= 0x15
        with pytest.raises(DataCorruption):
            decode_control(bytes(data[:at]), "log.json")


def test_a_newer_format_is_refused_by_name() -> None:
    plain = {"format": 2, "something": "else"}
    data = canonical_json(plain | {"sha256": hashlib.sha256(canonical_json(plain)).hexdigest()})
    with pytest.raises(ConfigurationError, match=r"log\.json has format 2; this skipprd reads formats up to 1: run the newer"):
        decode_control(data, "log.json")


def test_written_and_read_back_over_whatever_a_crash_left(tmp_path: Path) -> None:
    folder, filesystem = LogFolder.of(tmp_path, KEY), LocalFileSystem()
    filesystem.make_folder(folder.path)
    assert read_control(filesystem, folder) is None
    (folder.path / "log.json.partial").write_bytes(b"half")
    write_control(filesystem, folder, CONTROL)
    assert read_control(filesystem, folder) == CONTROL
    assert os.listdir(folder.path) == ["log.json"]


def test_names_sort_like_indexes_and_nothing_else_is_an_entry() -> None:
    folder = LogFolder.of(Path("/data"), PipelineKey("t", "w", "p"))
    assert str(folder.segment(12)) == "/data/t/w/p/segments/00000000000000000012.seg"
    assert folder.segment(99) < folder.segment(100)
    assert LogFolder.index_of(folder.segment(12).name) == 12
    names = (folder.partial(12).name, folder.broken(12).name, "12.seg", "x.seg", "00000000000000000012.segment")
    assert [LogFolder.index_of(name) for name in names] == [None] * 5


def test_a_disk_error_names_path_and_remedy_whatever_it_is() -> None:
    for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EBUSY):
        text = str(disk_error(OSError(number, os.strerror(number)), "writing", Path("/data/x.seg")))
        assert "writing /data/x.seg failed: " + os.strerror(number) in text
        assert "; " in text
