"""The codec: protobuf's rules, and InvalidRequest for every byte string that is no message."""

from __future__ import annotations

import contextlib
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidRequest, Unsupported
from flight.protocol import messages as m
from flight.protocol.wire import Message, Proto, decode, encode

ALL_MESSAGES = sorted({cls for cls in vars(m).values() if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message},
                      key=lambda cls: cls.__name__)


class Inner(Message):
    a: Annotated[int, Proto(1, "int32")] = 0
    b: Annotated[str, Proto(2, "string")] = ""


class Outer(Message):
    packed: Annotated[tuple[int, ...], Proto(1, "uint32", "repeated")] = ()
    inner: Annotated[Inner | None, Proto(2, Inner)] = None
    fixed: Annotated[tuple[int, ...], Proto(3, "sfixed64", "repeated")] = ()
    real: Annotated[float, Proto(4, "double")] = 0.0
    big: Annotated[int, Proto(5, "int64")] = 0
    many: Annotated[tuple[Inner, ...], Proto(6, Inner, "repeated")] = ()


@given(st.sampled_from(ALL_MESSAGES), st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_invalid_request(cls: type[Message], data: bytes) -> None:
    for read in (lambda: decode(cls, data), lambda: m.unwrap(cls, data), lambda: m.parse_command(data)):
        with contextlib.suppress(InvalidRequest, Unsupported):
            read()


@given(st.sampled_from(ALL_MESSAGES), st.data())
def test_damaged_messages_raise_nothing_but_invalid_request(cls: type[Message], data: st.DataObject) -> None:
    body = bytearray(m.wrap(m.CommandGetTables("lake", "a%", "b", ("TABLE", "VIEW"), True)))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRequest, Unsupported):
        m.parse_command(bytes(body[:data.draw(st.integers(0, len(body)))]))
    with contextlib.suppress(InvalidRequest):
        decode(cls, bytes(body))


@given(
    st.lists(st.integers(0, 2**32 - 1)), st.integers(-2**31, 2**31 - 1), st.text(), st.lists(st.integers(-2**63, 2**63 - 1)),
    st.floats(allow_nan=False), st.integers(-2**63, 2**63 - 1), st.lists(st.text()),
)
def test_round_trip(packed: list[int], a: int, b: str, fixed: list[int], real: float, big: int, many: list[str]) -> None:
    message = Outer(tuple(packed), Inner(a, b), tuple(fixed), real, big, tuple(Inner(1, text) for text in many))
    assert decode(Outer, encode(message)) == message


@given(st.none() | st.text(), st.none() | st.text(), st.none() | st.text(), st.lists(st.text()), st.booleans())
def test_round_trip_of_a_command(catalog: str | None, schema: str | None, table: str | None, types: list[str], include: bool) -> None:
    command = m.CommandGetTables(catalog, schema, table, tuple(types), include)
    assert m.parse_command(m.wrap(command)) == command


def test_known_bytes() -> None:
    # 1: "lake", 4: "TABLE", 5: true, as any protobuf library writes them
    data = b"\x0a\x04lake\x22\x05TABLE\x28\x01"
    assert decode(m.CommandGetTables, data) == m.CommandGetTables(catalog="lake", table_types=("TABLE",), include_schema=True)
    assert encode(m.CommandGetTables(catalog="lake", table_types=("TABLE",), include_schema=True)) == data
    assert encode(m.DoPutUpdateResult(-1)) == b"\x08" + b"\xff" * 9 + b"\x01"
    assert decode(m.DoPutUpdateResult, encode(m.DoPutUpdateResult(-1))).record_count == -1


def test_absent_and_empty_are_two_things() -> None:
    assert decode(m.CommandGetTables, b"").catalog is None
    assert decode(m.CommandGetTables, b"\x0a\x00").catalog == ""
    assert encode(m.CommandGetTables(catalog="")) == b"\x0a\x00"


def test_packed_and_unpacked_numbers_are_both_read() -> None:
    assert decode(Outer, b"\x0a\x03\x01\x02\x7f" + b"\x08\x05").packed == (1, 2, 127, 5)


def test_parts_of_one_message_are_merged_and_the_last_scalar_wins() -> None:
    assert decode(Outer, b"\x12\x02\x08\x01" + b"\x12\x03\x12\x01x").inner == Inner(1, "x")
    assert decode(Inner, b"\x08\x01\x08\x02").a == 2


@pytest.mark.parametrize("unknown", [b"\x78\x01", b"\x7a\x02ab", b"\x79" + b"0" * 8, b"\x7d" + b"0" * 4, b"\x7b\x08\x01\x7c"])
def test_unknown_fields_of_every_wire_type_are_skipped(unknown: bytes) -> None:
    assert decode(Inner, unknown + b"\x08\x07" + unknown) == Inner(7)


def test_a_known_number_of_another_wire_type_is_unknown() -> None:
    assert decode(Inner, b"\x0a\x01x" + b"\x10\x05") == Inner()


@pytest.mark.parametrize("data", [
    b"\x08", b"\x0a\x05abc", b"\x80" * 11, b"\x00\x00", b"\x12\x01\xff", b"\x7b" * 40, b"\x7c", b"\x7f\x01", b"\x7b\x74",
])
def test_malformed(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="malformed protobuf message"):
        decode(Inner, data)


def test_deep_nesting_is_refused() -> None:
    class Deep(Message):
        NAME = "deep"

    Deep.FIELDS = {1: type(next(iter(Outer.FIELDS.values())))("inner", 1, Deep, "singular", 2)}
    data = b""
    for _ in range(40):
        data = b"\x0a" + bytes([len(data)]) + data
    with pytest.raises(InvalidRequest, match="nested deeper"):
        decode(Deep, data)


def test_wrapped_and_bare_bodies_are_both_read() -> None:
    request = m.CancelFlightInfoRequest(m.FlightInfo((m.FlightEndpoint(m.Ticket(b"t")),)))
    assert m.unwrap(m.CancelFlightInfoRequest, encode(request)) == request
    assert m.unwrap(m.CancelFlightInfoRequest, m.wrap(request)) == request
    long = m.ActionCreatePreparedStatementRequest("x" * 70_000)
    assert m.unwrap(m.ActionCreatePreparedStatementRequest, m.wrap(long)) == long
    assert m.unwrap(m.ActionCreatePreparedStatementRequest, encode(long)) == long
    with pytest.raises(InvalidRequest, match="expected a message"):
        m.unwrap(m.ActionEndTransactionRequest, m.wrap(long))


def test_commands_that_are_none() -> None:
    with pytest.raises(InvalidRequest, match=r"no google\.protobuf\.Any"):
        m.parse_command(b"")
    with pytest.raises(Unsupported, match="CommandOfTomorrow"):
        m.parse_command(encode(m.AnyMessage(m.PREFIX + "arrow.flight.protocol.sql.CommandOfTomorrow")))
