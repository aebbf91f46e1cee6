"""Which partition a file is: the fingerprint's format, and the decisions that need a clock."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from catalog.clock import ManualClock
from catalog.control.checkpoints import CheckpointEnvelope, CheckpointUpdate
from catalog.control.offsets import OffsetPayload, OffsetStore, OffsetUpdate
from catalog.control.rows import EntryRef
from catalog.errors import ConfigurationError, DataCorruption
from catalog.items.memory import MemoryItemTable
from catalog.keys import PipelineKey
from ingest.sources.fingerprint import FilePosition, read_seen
from ingest.sources.identity import Identities, Known


def _store() -> OffsetStore:
    return OffsetStore(MemoryItemTable("offsets"), PipelineKey("t", "w", "p"), ManualClock())


def _publish(store: OffsetStore, name: str, payload: OffsetPayload, envelope: bytes, index: int = 1) -> None:
    entry = EntryRef("log", 1, index, "0" * 64)
    store.publish(entry, [OffsetUpdate("file", name, payload)], [CheckpointUpdate(f"file#{name}", envelope)], log_base=0)


def _take(path: Path, consumed: int) -> FilePosition:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return FilePosition.take(descriptor, os.pread(descriptor, 4096, 0), consumed, consumed)
    finally:
        os.close(descriptor)


def test_the_envelope_is_112_bytes_of_little_endian_numbers_and_digests() -> None:
    position = FilePosition(5, b"p" * 32, 7, 9, 4, b"t" * 32, 11, 13)
    envelope = CheckpointEnvelope.decode(position.encode(), "here")
    assert (envelope.authority, envelope.kind, envelope.payload_version) == ("skippr.file", "position", 1)
    numbers = [value.to_bytes(8, "little") for value in (5, 7, 9, 4, 11, 13)]
    assert envelope.payload == numbers[0] + b"p" * 32 + b"".join(numbers[1:4]) + b"t" * 32 + b"".join(numbers[4:])


@pytest.mark.parametrize(("authority", "version", "payload", "error"), [
    ("skippr.file", 2, bytes(112), ConfigurationError),
    ("skippr.file", 1, bytes(111), DataCorruption),
    ("other", 1, bytes(112), DataCorruption),
])
def test_what_is_no_position_is_refused(authority: str, version: int, payload: bytes, error: type[Exception]) -> None:
    store = _store()
    _publish(store, "a", OffsetPayload(1, 1, False), CheckpointEnvelope(authority, "position", version, payload).encode())
    with pytest.raises(error, match="file#a"):
        Identities(store, ManualClock(), None)


def test_a_fingerprint_covers_prefix_and_what_was_consumed_last(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"h" * 5000 + b"m" * 5000 + b"t" * 5000)
    position = _take(path, 12_000)
    assert (position.prefix_bytes, position.tail_end, position.tail_bytes) == (4096, 12_000, 4096)
    assert position.prefix_sha256 == hashlib.sha256(b"h" * 4096).digest()
    known = Known("a", OffsetPayload(15_000, 3, False), position=position)
    assert known.is_file(read_seen(str(path)))
    for at, same in ((0, False), (4999, True), (11_999, False), (12_001, True)):
        changed = bytearray(path.read_bytes())
        changed[at] ^= 1
        other = tmp_path / "b"
        other.write_bytes(changed)
        assert known.is_file(read_seen(str(other))) is same, at
    (tmp_path / "c").write_bytes(path.read_bytes()[:11_999])
    assert not known.is_file(read_seen(str(tmp_path / "c")))


def test_a_copy_waits_while_its_original_may_still_be_truncated(tmp_path: Path) -> None:
    original, copy = tmp_path / "app.log", tmp_path / "app.log.1"
    original.write_bytes(b"line\n" * 10)
    copy.write_bytes(original.read_bytes())
    clock = ManualClock()
    store = _store()
    _publish(store, "app.log", OffsetPayload(50, 10, False), _take(original, 50).encode())
    identities = Identities(store, clock, 5.0)

    def settle() -> list[tuple[str, str]]:
        files = [(p.name, read_seen(str(p))) for p in (original, copy)]
        return [(base, known.name) for base, _, known in identities.settle(files, frozenset(p.name for p in (original, copy)))]

    assert settle() == [("app.log", "app.log")]
    clock.advance(4)
    assert settle() == [("app.log", "app.log")]
    original.write_bytes(b"")
    assert settle() == [("app.log", "app.log~1"), ("app.log.1", "app.log")]


def test_a_copy_that_stays_counts_after_the_wait(tmp_path: Path) -> None:
    original, copy = tmp_path / "a", tmp_path / "b"
    for path in (original, copy):
        path.write_bytes(b"line\n" * 10)
    clock = ManualClock()
    store = _store()
    _publish(store, "a", OffsetPayload(50, 10, False), _take(original, 50).encode())
    identities = Identities(store, clock, 5.0)
    for seconds, expected in ((0, ["a"]), (5, ["a", "b"])):
        clock.advance(seconds)
        files = [(p.name, read_seen(str(p))) for p in (original, copy)]
        assert [known.name for *_, known in identities.settle(files, frozenset("ab"))] == expected


def test_the_latest_of_many_incarnations_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"the newest\n")
    store = _store()
    for number in range(37):
        name = "a" if number == 0 else f"a~{number}"
        payload = OffsetPayload(11, 1, False)
        position = _take(path, 11) if number == 36 else FilePosition(3, bytes(32), 3, 3, 3, bytes(32), 0, 0)
        _publish(store, name, payload, position.encode(), number + 1)
    identities = Identities(store, ManualClock(), None)
    assert [known.name for *_, known in identities.settle([("a", read_seen(str(path)))], frozenset("a"))] == ["a~36"]
    path.write_bytes(b"other\n")
    assert [known.name for *_, known in identities.settle([("a", read_seen(str(path)))], frozenset("a"))] == ["a~37"]
    assert identities.incarnations == 1
