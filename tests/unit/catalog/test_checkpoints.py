"""The checkpoint envelope: its bytes, and that anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.control.checkpoints import ENVELOPE_BYTES_MAX, CheckpointEnvelope
from catalog.errors import DataCorruption, InvalidRequest

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
ENVELOPES = st.builds(CheckpointEnvelope, TEXT, TEXT, st.integers(0, 2**32 - 1), st.binary(max_size=50))


def test_envelope_is_bincode_1() -> None:
    encoded = CheckpointEnvelope("file", "ż", 258, b"\x09").encode()
    assert encoded == (
        b"\x04\0\0\0\0\0\0\0file\x02\0\0\0\0\0\0\0\xc5\xbc\x02\x01\0\0\x01\0\0\0\0\0\0\0\x09"
    )


@given(ENVELOPES)
def test_envelope_reverses(envelope: CheckpointEnvelope) -> None:
    assert CheckpointEnvelope.decode(envelope.encode(), "here") == envelope


@given(ENVELOPES, st.data())
def test_a_cut_or_continued_envelope_is_corruption(envelope: CheckpointEnvelope, data: st.DataObject) -> None:
    encoded = envelope.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DataCorruption, match="here"):
        CheckpointEnvelope.decode(encoded[:cut], "here")
    with pytest.raises(DataCorruption, match="after its end"):
        CheckpointEnvelope.decode(encoded + b"\0", "here")


@given(st.binary(max_size=80))
def test_any_bytes_reverse_or_are_corruption(data: bytes) -> None:
    try:
        envelope = CheckpointEnvelope.decode(data, "here")
    except DataCorruption:
        return
    assert envelope.encode() == data


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff" * 8 + b"x" * 40, "authority"), (b"\x01\0\0\0\0\0\0\0\xff" + bytes(20), "not UTF-8"),
        (bytes(8) + b"\x01\0\0\0\0\0\0\0\xff" + bytes(12), "not UTF-8"), (bytes(16), "payload_version"),
        (bytes(20) + b"\x05\0\0\0\0\0\0\0x", "payload"),
    ],
)
def test_broken_envelopes_say_what_is_wrong(data: bytes, told: str) -> None:
    with pytest.raises(DataCorruption, match=told):
        CheckpointEnvelope.decode(data, "here")


@pytest.mark.parametrize(
    "envelope",
    [
        CheckpointEnvelope("a", "k", -1, b""), CheckpointEnvelope("a", "k", 2**32, b""), CheckpointEnvelope("\udcff", "k", 1, b""),
        CheckpointEnvelope("a", "k", 1, bytes(ENVELOPE_BYTES_MAX)),
    ],
)
def test_envelopes_no_row_can_hold_are_refused_when_made(envelope: CheckpointEnvelope) -> None:
    with pytest.raises(InvalidRequest):
        envelope.encode()
