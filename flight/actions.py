"""The actions: prepared statements, transactions, cancellation and session options."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, Protocol

import pyarrow.flight as fl

from catalog.errors import InvalidRequest, NotFound, SkipprError, Unsupported
from flight.protocol import messages as m
from flight.protocol.wire import decode, encode
from flight.sessions import Session, Sessions
from flight.statements import split_ticket
from flight.streams import Streams

__all__ = ["ALLOWED_WHILE_STOPPING", "Actions", "Caller", "check_transaction"]

_TRANSACTION: Final = b"read-only:"
_COMMIT, _ROLLBACK = 1, 2
_CANCELLED, _NOT_CANCELLABLE = 1, 3
_CLOSED: Final = 1
_INVALID_NAME, _INVALID_VALUE, _ERROR = 1, 2, 3

ALLOWED_WHILE_STOPPING: Final = frozenset({"ClosePreparedStatement", "CloseSession", "CancelFlightInfo", "CancelQuery",
                                           "EndTransaction"})


class Caller(Protocol):
    """Whose call it is."""

    def session(self) -> Session:
        """The caller's session, opened where there is none yet."""
        ...

    def known_session(self) -> Session | None:
        """The caller's session, None where there is none."""
        ...


def check_transaction(transaction_id: bytes | None) -> None:
    """Raises NotFound for an id this kind of server never gave out.

    A transaction here only reads, each statement its own snapshot, so it has no state: an id stays good across evictions and
    restarts, and a notebook left open over night goes on.
    """
    if transaction_id is not None and not transaction_id.startswith(_TRANSACTION):
        raise NotFound(f"no transaction {transaction_id.hex()[:64]!r}; begin one first")


class Actions:
    """What DoAction answers. Thread safe."""

    def __init__(self, sessions: Sessions, streams: Streams) -> None:
        self._sessions = sessions
        self._streams = streams
        self._actions: Final[dict[str, tuple[Callable[[bytes, Caller], list[bytes]], str]]] = {
            "CreatePreparedStatement": (self._create_prepared, "Check and plan a query once, to run it many times."),
            "ClosePreparedStatement": (self._close_prepared, "Forget a prepared statement."),
            "BeginTransaction": (self._begin_transaction, "Begin a transaction that can only read."),
            "EndTransaction": (self._end_transaction, "Commit or roll back: nothing to do for one that only read."),
            "CancelFlightInfo": (self._cancel_flight_info, "Stop the query of a FlightInfo."),
            "CancelQuery": (self._cancel_query, "Stop the query of a FlightInfo (the older form)."),
            "SetSessionOptions": (self._set_options, "Set catalog, schema, live_wal of this session."),
            "GetSessionOptions": (self._get_options, "All options of this session."),
            "CloseSession": (self._close_session, "End this session and all it holds."),
        }

    def describe(self) -> list[fl.ActionType]:
        """Every action with its description."""
        return [fl.ActionType(name, text) for name, (_, text) in self._actions.items()]

    def run(self, name: str, body: bytes, caller: Caller) -> list[bytes]:
        """Bodies of the results. Raises Unsupported for an action there is not."""
        action = self._actions.get(name)
        if action is None:
            raise Unsupported(f"the action {name[:200]!r} is not supported by this server; there are {', '.join(self._actions)}")
        return action[0](body, caller)

    def _create_prepared(self, body: bytes, caller: Caller) -> list[bytes]:
        request = m.unwrap(m.ActionCreatePreparedStatementRequest, body)
        check_transaction(request.transaction_id)
        prepared = self._sessions.prepare(caller.session(), request.query)
        return [m.wrap(m.ActionCreatePreparedStatementResult(
            prepared_statement_handle=prepared.handle,
            dataset_schema=prepared.schema.serialize().to_pybytes(),
            parameter_schema=prepared.statement.parameter_schema.serialize().to_pybytes(),
            is_update=False,
        ))]

    def _close_prepared(self, body: bytes, caller: Caller) -> list[bytes]:
        self._sessions.close_statement(m.unwrap(m.ActionClosePreparedStatementRequest, body).prepared_statement_handle)
        return []

    def _begin_transaction(self, body: bytes, caller: Caller) -> list[bytes]:
        return [m.wrap(m.ActionBeginTransactionResult(_TRANSACTION + secrets.token_bytes(16)))]

    def _end_transaction(self, body: bytes, caller: Caller) -> list[bytes]:
        request = m.unwrap(m.ActionEndTransactionRequest, body)
        check_transaction(request.transaction_id)
        if request.action not in (_COMMIT, _ROLLBACK):
            raise InvalidRequest(f"EndTransaction with action {request.action}: say 1 to commit or 2 to roll back")
        return []

    def _cancel_flight_info(self, body: bytes, caller: Caller) -> list[bytes]:
        request = m.unwrap(m.CancelFlightInfoRequest, body)
        return [encode(m.CancelFlightInfoResult(self._cancel(request.info)))]

    def _cancel_query(self, body: bytes, caller: Caller) -> list[bytes]:
        info = decode(m.FlightInfo, m.unwrap(m.ActionCancelQueryRequest, body).info)
        return [m.wrap(m.ActionCancelQueryResult(self._cancel(info)))]

    def _cancel(self, info: m.FlightInfo | None) -> int:
        """Stop what the tickets of a FlightInfo started, and forget a statement that waited to be fetched. Raises NotFound."""
        tickets = [endpoint.ticket.ticket for endpoint in (info.endpoint if info else ()) if endpoint.ticket]
        if not tickets:
            raise InvalidRequest("the FlightInfo to cancel has no endpoint with a ticket")
        cancelled = 0
        for ticket in tickets:
            command = m.parse_command(ticket)
            if not isinstance(command, m.TicketStatementQuery):
                return _NOT_CANCELLABLE
            cancelled += self._streams.cancel(command.statement_handle)
            cancelled += self._sessions.discard_ticket(split_ticket(command.statement_handle)[0])
        if not cancelled:
            raise NotFound("nothing to cancel: the query of this FlightInfo does not run")
        return _CANCELLED

    def _set_options(self, body: bytes, caller: Caller) -> list[bytes]:
        request = m.unwrap(m.SetSessionOptionsRequest, body)
        session = caller.session()
        errors = {}
        for name, option in request.session_options.items():
            code = self._set_option(session, name, option)
            if code:
                errors[name] = m.SetSessionOptionsError(code)
        return [encode(m.SetSessionOptionsResult(errors))]

    def _set_option(self, session: Session, name: str, option: m.SessionOptionValue) -> int:
        """Set one option; the code of its error, 0 for none."""
        if name not in session.initial_options:
            return _INVALID_NAME
        others = (option.bool_value, option.int64_value, option.double_value, option.string_list_value)
        if any(value is not None for value in others):
            return _INVALID_VALUE
        try:
            session.set_option(self._sessions.engines, name, option.string_value)
        except (InvalidRequest, NotFound):
            return _INVALID_VALUE
        except SkipprError:
            return _ERROR
        return 0

    def _get_options(self, body: bytes, caller: Caller) -> list[bytes]:
        options = caller.session().options()
        return [encode(m.GetSessionOptionsResult(
            {name: m.SessionOptionValue(string_value=value) for name, value in options.items()}))]

    def _close_session(self, body: bytes, caller: Caller) -> list[bytes]:
        session = caller.known_session()
        if session is not None:
            self._streams.cancel_session(session)
            self._sessions.close(session)
        return [encode(m.CloseSessionResult(_CLOSED))]
