"""The Flight SQL and Flight messages this server speaks, and the envelope they travel in.

Commands and Flight SQL actions are wrapped in `google.protobuf.Any`; the session and cancel actions of core Flight are bare.
`unwrap` reads both shapes. Numbers and names are those of FlightSql.proto and Flight.proto.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from catalog.errors import InvalidRequest, Unsupported
from flight.protocol.wire import Message, decode, encode, proto

__all__ = [
    "COMMANDS", "PREFIX",
    "ActionBeginTransactionResult", "ActionCancelQueryRequest", "ActionCancelQueryResult",
    "ActionClosePreparedStatementRequest", "ActionCreatePreparedStatementRequest", "ActionCreatePreparedStatementResult",
    "ActionEndTransactionRequest", "AnyMessage", "CancelFlightInfoRequest", "CancelFlightInfoResult", "CloseSessionResult",
    "CommandGetCatalogs", "CommandGetCrossReference", "CommandGetDbSchemas", "CommandGetExportedKeys",
    "CommandGetImportedKeys", "CommandGetPrimaryKeys", "CommandGetSqlInfo", "CommandGetTableTypes", "CommandGetTables",
    "CommandGetXdbcTypeInfo", "CommandPreparedStatementQuery", "CommandPreparedStatementUpdate", "CommandStatementIngest",
    "CommandStatementQuery", "CommandStatementSubstraitPlan", "CommandStatementUpdate", "DoPutPreparedStatementResult",
    "DoPutUpdateResult", "FlightEndpoint", "FlightInfo", "GetSessionOptionsResult", "SessionOptionValue",
    "SetSessionOptionsError", "SetSessionOptionsRequest", "SetSessionOptionsResult", "StringListValue", "Ticket",
    "TicketStatementQuery", "parse_command", "unwrap", "wrap",
]

PREFIX: Final = "type.googleapis.com/"
_SQL: Final = "arrow.flight.protocol.sql."
_FLIGHT: Final = "arrow.flight.protocol."
M = TypeVar("M", bound=Message)


class AnyMessage(Message):
    """google.protobuf.Any."""

    NAME: ClassVar[str] = "google.protobuf.Any"
    type_url: str = proto(1, "string")
    value: bytes = proto(2, "bytes")


# Statements

class CommandStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementQuery"
    query: str = proto(1, "string")
    transaction_id: bytes | None = proto(2, "bytes", "optional")


class CommandStatementUpdate(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementUpdate"
    query: str = proto(1, "string")
    transaction_id: bytes | None = proto(2, "bytes", "optional")


class CommandStatementSubstraitPlan(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementSubstraitPlan"


class CommandStatementIngest(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementIngest"
    table: str = proto(2, "string")


class CommandPreparedStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementQuery"
    prepared_statement_handle: bytes = proto(1, "bytes")


class CommandPreparedStatementUpdate(Message):
    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementUpdate"
    prepared_statement_handle: bytes = proto(1, "bytes")


class TicketStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "TicketStatementQuery"
    statement_handle: bytes = proto(1, "bytes")


class DoPutUpdateResult(Message):
    NAME: ClassVar[str] = _SQL + "DoPutUpdateResult"
    record_count: int = proto(1, "int64")


class DoPutPreparedStatementResult(Message):
    NAME: ClassVar[str] = _SQL + "DoPutPreparedStatementResult"
    prepared_statement_handle: bytes | None = proto(1, "bytes", "optional")


# Metadata

class CommandGetSqlInfo(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetSqlInfo"
    info: tuple[int, ...] = proto(1, "uint32", "repeated")


class CommandGetXdbcTypeInfo(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetXdbcTypeInfo"
    data_type: int | None = proto(1, "int32", "optional")


class CommandGetCatalogs(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetCatalogs"


class CommandGetDbSchemas(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetDbSchemas"
    catalog: str | None = proto(1, "string", "optional")
    db_schema_filter_pattern: str | None = proto(2, "string", "optional")


class CommandGetTables(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetTables"
    catalog: str | None = proto(1, "string", "optional")
    db_schema_filter_pattern: str | None = proto(2, "string", "optional")
    table_name_filter_pattern: str | None = proto(3, "string", "optional")
    table_types: tuple[str, ...] = proto(4, "string", "repeated")
    include_schema: bool = proto(5, "bool")


class CommandGetTableTypes(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetTableTypes"


class CommandGetPrimaryKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetPrimaryKeys"
    catalog: str | None = proto(1, "string", "optional")
    db_schema: str | None = proto(2, "string", "optional")
    table: str = proto(3, "string")


class CommandGetExportedKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetExportedKeys"
    catalog: str | None = proto(1, "string", "optional")
    db_schema: str | None = proto(2, "string", "optional")
    table: str = proto(3, "string")


class CommandGetImportedKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetImportedKeys"
    catalog: str | None = proto(1, "string", "optional")
    db_schema: str | None = proto(2, "string", "optional")
    table: str = proto(3, "string")


class CommandGetCrossReference(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetCrossReference"
    pk_catalog: str | None = proto(1, "string", "optional")
    pk_db_schema: str | None = proto(2, "string", "optional")
    pk_table: str = proto(3, "string")
    fk_catalog: str | None = proto(4, "string", "optional")
    fk_db_schema: str | None = proto(5, "string", "optional")
    fk_table: str = proto(6, "string")


# Actions of Flight SQL, wrapped in Any both ways

class ActionCreatePreparedStatementRequest(Message):
    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementRequest"
    query: str = proto(1, "string")
    transaction_id: bytes | None = proto(2, "bytes", "optional")


class ActionCreatePreparedStatementResult(Message):
    """`dataset_schema` and `parameter_schema` are IPC schema messages, present even where they have no field."""

    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementResult"
    prepared_statement_handle: bytes = proto(1, "bytes")
    dataset_schema: bytes = proto(2, "bytes")
    parameter_schema: bytes = proto(3, "bytes")
    is_update: bool | None = proto(4, "bool", "optional")


class ActionClosePreparedStatementRequest(Message):
    NAME: ClassVar[str] = _SQL + "ActionClosePreparedStatementRequest"
    prepared_statement_handle: bytes = proto(1, "bytes")


class ActionBeginTransactionResult(Message):
    NAME: ClassVar[str] = _SQL + "ActionBeginTransactionResult"
    transaction_id: bytes = proto(1, "bytes")


class ActionEndTransactionRequest(Message):
    """`action`: 1 commit, 2 rollback."""

    NAME: ClassVar[str] = _SQL + "ActionEndTransactionRequest"
    transaction_id: bytes = proto(1, "bytes")
    action: int = proto(2, "int32")


class ActionCancelQueryRequest(Message):
    """`info` is a serialized FlightInfo."""

    NAME: ClassVar[str] = _SQL + "ActionCancelQueryRequest"
    info: bytes = proto(1, "bytes")


class ActionCancelQueryResult(Message):
    NAME: ClassVar[str] = _SQL + "ActionCancelQueryResult"
    result: int = proto(1, "int32")


# Core Flight, bare

class Ticket(Message):
    NAME: ClassVar[str] = _FLIGHT + "Ticket"
    ticket: bytes = proto(1, "bytes")


class FlightEndpoint(Message):
    NAME: ClassVar[str] = _FLIGHT + "FlightEndpoint"
    ticket: Ticket | None = proto(1, Ticket)


class FlightInfo(Message):
    NAME: ClassVar[str] = _FLIGHT + "FlightInfo"
    endpoint: tuple[FlightEndpoint, ...] = proto(3, FlightEndpoint, "repeated")


class CancelFlightInfoRequest(Message):
    NAME: ClassVar[str] = _FLIGHT + "CancelFlightInfoRequest"
    info: FlightInfo | None = proto(1, FlightInfo)


class CancelFlightInfoResult(Message):
    """`status`: 1 cancelled, 2 cancelling, 3 not cancellable."""

    NAME: ClassVar[str] = _FLIGHT + "CancelFlightInfoResult"
    status: int = proto(1, "int32")


class StringListValue(Message):
    NAME: ClassVar[str] = _FLIGHT + "SessionOptionValue.StringListValue"
    values: tuple[str, ...] = proto(1, "string", "repeated")


class SessionOptionValue(Message):
    """At most one field is set; none asks for the option's initial value."""

    NAME: ClassVar[str] = _FLIGHT + "SessionOptionValue"
    string_value: str | None = proto(1, "string", "optional")
    bool_value: bool | None = proto(2, "bool", "optional")
    int64_value: int | None = proto(3, "sfixed64", "optional")
    double_value: float | None = proto(4, "double", "optional")
    string_list_value: StringListValue | None = proto(5, StringListValue)


class SetSessionOptionsRequest(Message):
    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsRequest"
    session_options: dict[str, SessionOptionValue] = proto(1, SessionOptionValue, "map")


class SetSessionOptionsError(Message):
    """`value`: 1 invalid name, 2 invalid value, 3 cannot be set."""

    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsResult.Error"
    value: int = proto(1, "int32")


class SetSessionOptionsResult(Message):
    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsResult"
    errors: dict[str, SetSessionOptionsError] = proto(1, SetSessionOptionsError, "map")


class GetSessionOptionsResult(Message):
    NAME: ClassVar[str] = _FLIGHT + "GetSessionOptionsResult"
    session_options: dict[str, SessionOptionValue] = proto(1, SessionOptionValue, "map")


class CloseSessionResult(Message):
    """`status`: 1 closed, 2 closing, 3 not closeable."""

    NAME: ClassVar[str] = _FLIGHT + "CloseSessionResult"
    status: int = proto(1, "int32")


COMMANDS: Final[dict[str, type[Message]]] = {
    PREFIX + cls.NAME: cls for cls in (
        CommandStatementQuery, CommandStatementUpdate, CommandStatementSubstraitPlan, CommandStatementIngest,
        CommandPreparedStatementQuery, CommandPreparedStatementUpdate, TicketStatementQuery, CommandGetSqlInfo,
        CommandGetXdbcTypeInfo, CommandGetCatalogs, CommandGetDbSchemas, CommandGetTables, CommandGetTableTypes,
        CommandGetPrimaryKeys, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetCrossReference,
    )
}


def wrap(message: Message) -> bytes:
    """The message inside an Any, serialized."""
    return encode(AnyMessage(PREFIX + message.NAME, encode(message)))


def unwrap(cls: type[M], body: bytes) -> M:
    """Read a message of class `cls`, bare or inside an Any. Raises InvalidRequest.

    The two cannot be confused: no bare message here has a first field that is text starting with the prefix of a type URL.
    """
    if body[2:2 + len(PREFIX)] == PREFIX.encode() or body[3:3 + len(PREFIX)] == PREFIX.encode():
        envelope = decode(AnyMessage, body)
        if envelope.type_url != PREFIX + cls.NAME:
            raise InvalidRequest(f"expected a message {cls.NAME}, got {envelope.type_url!r}")
        body = envelope.value
    return decode(cls, body)


def parse_command(body: bytes) -> Message:
    """The Flight SQL command in a descriptor or a ticket.

    Raises InvalidRequest where it is no Any at all, Unsupported for a command this server does not know.
    """
    envelope = decode(AnyMessage, body)
    cls = COMMANDS.get(envelope.type_url)
    if cls is not None:
        return decode(cls, envelope.value)
    if not envelope.type_url:
        raise InvalidRequest("not a Flight SQL command: the descriptor or ticket holds no google.protobuf.Any")
    raise Unsupported(f"the command {envelope.type_url.removeprefix(PREFIX)[:200]!r} is not supported by this server")
