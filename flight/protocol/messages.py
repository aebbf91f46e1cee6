"""The Flight SQL and Flight messages this server speaks, and the envelope they travel in.

Commands and Flight SQL actions are wrapped in `google.protobuf.Any`; the session and cancel actions of core Flight are bare.
`unwrap` reads both shapes. Numbers and names are those of FlightSql.proto and Flight.proto.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, ClassVar, Final, TypeVar

from catalog.errors import InvalidRequest, Unsupported
from flight.protocol.wire import Message, Proto, decode, encode

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
    type_url: Annotated[str, Proto(1, "string")] = ""
    value: Annotated[bytes, Proto(2, "bytes")] = b""


# Statements

class CommandStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementQuery"
    query: Annotated[str, Proto(1, "string")] = ""
    transaction_id: Annotated[bytes | None, Proto(2, "bytes", "optional")] = None


class CommandStatementUpdate(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementUpdate"
    query: Annotated[str, Proto(1, "string")] = ""
    transaction_id: Annotated[bytes | None, Proto(2, "bytes", "optional")] = None


class CommandStatementSubstraitPlan(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementSubstraitPlan"


class CommandStatementIngest(Message):
    NAME: ClassVar[str] = _SQL + "CommandStatementIngest"
    table: Annotated[str, Proto(2, "string")] = ""


class CommandPreparedStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementQuery"
    prepared_statement_handle: Annotated[bytes, Proto(1, "bytes")] = b""


class CommandPreparedStatementUpdate(Message):
    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementUpdate"
    prepared_statement_handle: Annotated[bytes, Proto(1, "bytes")] = b""


class TicketStatementQuery(Message):
    NAME: ClassVar[str] = _SQL + "TicketStatementQuery"
    statement_handle: Annotated[bytes, Proto(1, "bytes")] = b""


class DoPutUpdateResult(Message):
    NAME: ClassVar[str] = _SQL + "DoPutUpdateResult"
    record_count: Annotated[int, Proto(1, "int64")] = 0


class DoPutPreparedStatementResult(Message):
    NAME: ClassVar[str] = _SQL + "DoPutPreparedStatementResult"
    prepared_statement_handle: Annotated[bytes | None, Proto(1, "bytes", "optional")] = None


# Metadata

class CommandGetSqlInfo(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetSqlInfo"
    info: Annotated[tuple[int, ...], Proto(1, "uint32", "repeated")] = ()


class CommandGetXdbcTypeInfo(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetXdbcTypeInfo"
    data_type: Annotated[int | None, Proto(1, "int32", "optional")] = None


class CommandGetCatalogs(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetCatalogs"


class CommandGetDbSchemas(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetDbSchemas"
    catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    db_schema_filter_pattern: Annotated[str | None, Proto(2, "string", "optional")] = None


class CommandGetTables(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetTables"
    catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    db_schema_filter_pattern: Annotated[str | None, Proto(2, "string", "optional")] = None
    table_name_filter_pattern: Annotated[str | None, Proto(3, "string", "optional")] = None
    table_types: Annotated[tuple[str, ...], Proto(4, "string", "repeated")] = ()
    include_schema: Annotated[bool, Proto(5, "bool")] = False


class CommandGetTableTypes(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetTableTypes"


class CommandGetPrimaryKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetPrimaryKeys"
    catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    db_schema: Annotated[str | None, Proto(2, "string", "optional")] = None
    table: Annotated[str, Proto(3, "string")] = ""


class CommandGetExportedKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetExportedKeys"
    catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    db_schema: Annotated[str | None, Proto(2, "string", "optional")] = None
    table: Annotated[str, Proto(3, "string")] = ""


class CommandGetImportedKeys(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetImportedKeys"
    catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    db_schema: Annotated[str | None, Proto(2, "string", "optional")] = None
    table: Annotated[str, Proto(3, "string")] = ""


class CommandGetCrossReference(Message):
    NAME: ClassVar[str] = _SQL + "CommandGetCrossReference"
    pk_catalog: Annotated[str | None, Proto(1, "string", "optional")] = None
    pk_db_schema: Annotated[str | None, Proto(2, "string", "optional")] = None
    pk_table: Annotated[str, Proto(3, "string")] = ""
    fk_catalog: Annotated[str | None, Proto(4, "string", "optional")] = None
    fk_db_schema: Annotated[str | None, Proto(5, "string", "optional")] = None
    fk_table: Annotated[str, Proto(6, "string")] = ""


# Actions of Flight SQL, wrapped in Any both ways

class ActionCreatePreparedStatementRequest(Message):
    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementRequest"
    query: Annotated[str, Proto(1, "string")] = ""
    transaction_id: Annotated[bytes | None, Proto(2, "bytes", "optional")] = None


class ActionCreatePreparedStatementResult(Message):
    """`dataset_schema` and `parameter_schema` are IPC schema messages, present even where they have no field."""

    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementResult"
    prepared_statement_handle: Annotated[bytes, Proto(1, "bytes")] = b""
    dataset_schema: Annotated[bytes, Proto(2, "bytes")] = b""
    parameter_schema: Annotated[bytes, Proto(3, "bytes")] = b""
    is_update: Annotated[bool | None, Proto(4, "bool", "optional")] = None


class ActionClosePreparedStatementRequest(Message):
    NAME: ClassVar[str] = _SQL + "ActionClosePreparedStatementRequest"
    prepared_statement_handle: Annotated[bytes, Proto(1, "bytes")] = b""


class ActionBeginTransactionResult(Message):
    NAME: ClassVar[str] = _SQL + "ActionBeginTransactionResult"
    transaction_id: Annotated[bytes, Proto(1, "bytes")] = b""


class ActionEndTransactionRequest(Message):
    """`action`: 1 commit, 2 rollback."""

    NAME: ClassVar[str] = _SQL + "ActionEndTransactionRequest"
    transaction_id: Annotated[bytes, Proto(1, "bytes")] = b""
    action: Annotated[int, Proto(2, "int32")] = 0


class ActionCancelQueryRequest(Message):
    """`info` is a serialized FlightInfo."""

    NAME: ClassVar[str] = _SQL + "ActionCancelQueryRequest"
    info: Annotated[bytes, Proto(1, "bytes")] = b""


class ActionCancelQueryResult(Message):
    NAME: ClassVar[str] = _SQL + "ActionCancelQueryResult"
    result: Annotated[int, Proto(1, "int32")] = 0


# Core Flight, bare

class Ticket(Message):
    NAME: ClassVar[str] = _FLIGHT + "Ticket"
    ticket: Annotated[bytes, Proto(1, "bytes")] = b""


class FlightEndpoint(Message):
    NAME: ClassVar[str] = _FLIGHT + "FlightEndpoint"
    ticket: Annotated[Ticket | None, Proto(1, Ticket)] = None


class FlightInfo(Message):
    NAME: ClassVar[str] = _FLIGHT + "FlightInfo"
    endpoint: Annotated[tuple[FlightEndpoint, ...], Proto(3, FlightEndpoint, "repeated")] = ()


class CancelFlightInfoRequest(Message):
    NAME: ClassVar[str] = _FLIGHT + "CancelFlightInfoRequest"
    info: Annotated[FlightInfo | None, Proto(1, FlightInfo)] = None


class CancelFlightInfoResult(Message):
    """`status`: 1 cancelled, 2 cancelling, 3 not cancellable."""

    NAME: ClassVar[str] = _FLIGHT + "CancelFlightInfoResult"
    status: Annotated[int, Proto(1, "int32")] = 0


class StringListValue(Message):
    NAME: ClassVar[str] = _FLIGHT + "SessionOptionValue.StringListValue"
    values: Annotated[tuple[str, ...], Proto(1, "string", "repeated")] = ()


class SessionOptionValue(Message):
    """At most one field is set; none asks for the option's initial value."""

    NAME: ClassVar[str] = _FLIGHT + "SessionOptionValue"
    string_value: Annotated[str | None, Proto(1, "string", "optional")] = None
    bool_value: Annotated[bool | None, Proto(2, "bool", "optional")] = None
    int64_value: Annotated[int | None, Proto(3, "sfixed64", "optional")] = None
    double_value: Annotated[float | None, Proto(4, "double", "optional")] = None
    string_list_value: Annotated[StringListValue | None, Proto(5, StringListValue)] = None


class SetSessionOptionsRequest(Message):
    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsRequest"
    session_options: Annotated[dict[str, SessionOptionValue], Proto(1, SessionOptionValue, "map")] = field(default_factory=dict)


class SetSessionOptionsError(Message):
    """`value`: 1 invalid name, 2 invalid value, 3 cannot be set."""

    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsResult.Error"
    value: Annotated[int, Proto(1, "int32")] = 0


class SetSessionOptionsResult(Message):
    NAME: ClassVar[str] = _FLIGHT + "SetSessionOptionsResult"
    errors: Annotated[dict[str, SetSessionOptionsError], Proto(1, SetSessionOptionsError, "map")] = field(default_factory=dict)


class GetSessionOptionsResult(Message):
    NAME: ClassVar[str] = _FLIGHT + "GetSessionOptionsResult"
    session_options: Annotated[dict[str, SessionOptionValue], Proto(1, SessionOptionValue, "map")] = field(default_factory=dict)


class CloseSessionResult(Message):
    """`status`: 1 closed, 2 closing, 3 not closeable."""

    NAME: ClassVar[str] = _FLIGHT + "CloseSessionResult"
    status: Annotated[int, Proto(1, "int32")] = 0


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
