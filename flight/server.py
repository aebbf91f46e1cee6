"""The Flight SQL server: which command goes where, and the life of the process around it.

A statement is prepared once, in GetFlightInfo or CreatePreparedStatement, and its schema is what the client is told; it starts in DoGet,
where a client can stop it. Nothing here writes: updates are refused. One endpoint per result, without a location, so a
client fetches from where it asked.

There is no authentication yet, so a server beyond loopback refuses to start. A client that sends a user name and a
password is told so by Arrow ("no authentication mechanism"): give none.
"""

from __future__ import annotations

import importlib.metadata
import ipaddress
import logging
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from catalog.clock import Clock, SystemClock
from catalog.errors import ConfigurationError, InvalidRequest, Unavailable, Unsupported
from flight.actions import ALLOWED_WHILE_STOPPING, Actions, check_transaction
from flight.connections import cut_connections
from flight.engine.api import Engine
from flight.metadata import Metadata, Rows
from flight.protocol import messages as m
from flight.protocol.wire import Message, encode
from flight.sessions import COOKIE, Limits, Session, Sessions, session_cookie
from flight.statements import Prepared, split_ticket
from flight.status import SHUTTING_DOWN, guarded, to_flight
from flight.streams import Streams, slices

__all__ = ["FlightSqlServer", "parse_bind"]

_MIDDLEWARE: Final = "skippr"
_SWEEP_S: Final = 30.0
_CLOSE_S: Final = 1.0
_READ_ONLY: Final = ("this server is read-only: it runs queries and no updates; rows come in through `skipprd sync`")
_log = logging.getLogger("skippr.flight")


class _Headers(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no type stubs
    """The session cookie of one call."""

    def __init__(self, cookie: str | None) -> None:
        self.cookie = cookie


class _ReadHeaders(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    def start_call(self, info: object, headers: Mapping[str, Sequence[str]]) -> _Headers:
        cookies = headers.get("cookie")
        return _Headers(session_cookie(cookies) if cookies else None)


class _Caller:
    """The session of one call. A cookie is set where the call did not bring the right one."""

    __slots__ = ("_context", "_sessions")

    def __init__(self, context: Any, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions

    def session(self) -> Session:
        cookie = self._context.get_middleware(_MIDDLEWARE).cookie
        session = self._sessions.get(cookie, self._context.peer())
        if session.id != cookie:
            self._context.add_header("set-cookie", f"{COOKIE}={session.id}")
        return session

    def known_session(self) -> Session | None:
        return self._sessions.find(self._context.get_middleware(_MIDDLEWARE).cookie, self._context.peer())


def parse_bind(bind: str) -> tuple[str, int]:
    """Host and port of `host:port` (IPv6 as `[::1]:port`). Raises ConfigurationError, also for a host beyond loopback."""
    host, separator, port_text = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ConfigurationError(f"cannot bind to {bind!r}: write host:port, such as 127.0.0.1:31337 or [::1]:31337")
    try:
        addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise ConfigurationError(f"cannot bind to {bind!r}: the host {host!r} has no address ({error.strerror})") from error
    if not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
        raise ConfigurationError(
            f"cannot bind to {bind!r}: beyond loopback a server needs TLS and authentication, which this version does not have; "
            "bind to 127.0.0.1 and put a proxy of yours in front")
    return host, int(port_text)


class _Service(fl.FlightServerBase):  # type: ignore[misc]
    """The RPCs. Every handler is `guarded`: what leaves it is a status without a traceback."""

    def __init__(self, location: str, sessions: Sessions, streams: Streams, metadata: Metadata, limits: Limits) -> None:
        self.stopping = False
        self._sessions = sessions
        self._streams = streams
        self._metadata = metadata
        self._actions = Actions(sessions, streams)
        self._limits = limits
        super().__init__(location, middleware={_MIDDLEWARE: _ReadHeaders()})

    def _check_open(self) -> None:
        if self.stopping:
            raise Unavailable(SHUTTING_DOWN)

    def _prepared(self, command: Message, context: Any) -> Prepared | None:
        """The statement of a query command, prepared now or before; None for another command."""
        if isinstance(command, m.CommandStatementQuery):
            check_transaction(command.transaction_id)
            return self._sessions.prepare(_Caller(context, self._sessions).session(), command.query, one_shot=True)
        if isinstance(command, m.CommandPreparedStatementQuery):
            prepared = self._sessions.statement(command.prepared_statement_handle)
            prepared.renew()
            return prepared
        return None

    @guarded
    def get_flight_info(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        self._check_open()
        command = _command(descriptor)
        schema, ticket = self._metadata.schema(command), descriptor.command
        if schema is None:
            prepared = self._prepared(command, context)
            if prepared is None:
                raise _not_a_query(command)
            schema, ticket = self._ticket(prepared)
        return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(ticket, [])], -1, -1)

    def _ticket(self, prepared: Prepared) -> tuple[pa.Schema, bytes]:
        """Schema and ticket of the rows under the present binding; what takes effect at once is executed here."""
        try:
            if prepared.statement.immediate:
                prepared.statement.execute().close()
            number = prepared.binding_number()
            return prepared.bound(number).schema, m.wrap(m.TicketStatementQuery(prepared.ticket(number)))
        except BaseException:
            if prepared.one_shot:
                self._sessions.close_statement(prepared.handle)
            raise

    @guarded
    def get_schema(self, context: Any, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        self._check_open()
        command = _command(descriptor)
        schema = self._metadata.schema(command)
        if schema is None:
            prepared = self._prepared(command, context)
            if prepared is None:
                raise _not_a_query(command)
            schema = prepared.schema
            if prepared.one_shot:
                self._sessions.close_statement(prepared.handle)
        return fl.SchemaResult(schema)

    @guarded
    def do_get(self, context: Any, ticket: fl.Ticket) -> fl.FlightDataStream:
        self._check_open()
        command = m.parse_command(ticket.ticket)
        if isinstance(command, m.TicketStatementQuery):
            handle, number = split_ticket(command.statement_handle)
            prepared = self._sessions.statement(handle)
            if prepared.statement.immediate:  # executed when its ticket was made
                return fl.RecordBatchStream(prepared.schema.empty_table())
            return self._streams.open(context, prepared, number)
        if self._metadata.schema(command) is not None:
            rows = self._metadata.rows(command)
            return fl.GeneratorStream(rows.schema, _sliced(rows, self._limits.batch_bytes))
        direct = self._prepared(command, context)
        if direct is None:
            raise _not_a_query(command)
        return self._streams.open(context, direct, direct.binding_number())

    @guarded
    def do_put(self, context: Any, descriptor: fl.FlightDescriptor, reader: Any, writer: Any) -> None:
        self._check_open()
        command = _command(descriptor)
        if not isinstance(command, m.CommandPreparedStatementQuery):
            raise _not_a_query(command)
        prepared = self._sessions.statement(command.prepared_statement_handle)
        schema, batches = _parameters(reader, self._limits.parameter_bytes)
        prepared.bind(schema, batches)
        writer.write(pa.py_buffer(encode(m.DoPutPreparedStatementResult(prepared.handle))))

    @guarded
    def do_action(self, context: Any, action: fl.Action) -> list[bytes]:
        if action.type not in ALLOWED_WHILE_STOPPING:
            self._check_open()
        body = action.body.to_pybytes() if action.body is not None else b""
        return self._actions.run(action.type, body, _Caller(context, self._sessions))

    @guarded
    def list_actions(self, context: Any) -> list[fl.ActionType]:
        return self._actions.describe()

    @guarded
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[fl.FlightInfo]:
        raise Unsupported("there are no flights to list: ask for tables with the Flight SQL command GetTables")

    @guarded
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        raise Unsupported("Flight SQL has no DoExchange")


def _command(descriptor: fl.FlightDescriptor) -> Message:
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise InvalidRequest("not a Flight SQL request: the descriptor holds a path instead of a command")
    return m.parse_command(descriptor.command)


def _not_a_query(command: Message) -> Exception:
    """The error for a command that asks for something else than rows."""
    if isinstance(command, m.CommandStatementSubstraitPlan):
        return Unsupported("this server runs SQL and no Substrait plans")
    if isinstance(command, m.CommandStatementUpdate | m.CommandPreparedStatementUpdate | m.CommandStatementIngest):
        return InvalidRequest(_READ_ONLY)
    return InvalidRequest(f"{type(command).__name__} cannot be used in this call")


def _parameters(reader: Any, limit_bytes: int) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """All parameter rows of a DoPut. Raises InvalidRequest where they are unreadable or more than `limit_bytes`."""
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    try:
        schema = reader.schema
        for chunk in reader:
            if chunk.data is None:
                continue
            size_bytes += chunk.data.nbytes
            if size_bytes > limit_bytes:
                raise InvalidRequest(f"the parameters of one statement take more than {limit_bytes} bytes; send fewer rows at a time")
            batches.append(chunk.data)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"the stream of parameters is unreadable: {error}") from error
    return schema, batches


def _sliced(rows: Rows, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    try:
        for batch in rows.batches:
            yield from slices(batch, limit_bytes)
    except Exception as error:  # noqa: BLE001  the boundary: it leaves as a status
        raise to_flight(error) from None


class FlightSqlServer:
    """A running Flight SQL server over one engine per scope.

    It answers as soon as the constructor returns. The engines stay the caller's, who closes them after `shutdown`.

    Args:
        engines: one per scope, with different catalogs; new sessions start in the first.
        bind: `host:port` on loopback; port 0 takes a free one.
        clock: for idle times.
        limits: what clients may hold open.

    Raises ConfigurationError for a bind that is malformed, beyond loopback, or in use.
    """

    def __init__(self, engines: Sequence[Engine], bind: str = "127.0.0.1:31337", *, clock: Clock | None = None,
                 limits: Limits | None = None) -> None:
        limits = limits or Limits()
        if not engines or len({engine.catalog for engine in engines}) != len(engines):
            names = [engine.catalog for engine in engines]
            raise ConfigurationError(f"a server needs one engine or more, each with a catalog of its own; it got {names}")
        host, port = parse_bind(bind)
        self.sessions: Final = Sessions(engines, clock or SystemClock(), limits)
        version = importlib.metadata.version("skipprd")
        metadata = Metadata(engines, version, limits)
        self.streams: Final = Streams(self.sessions, limits)
        self._host = f"[{host}]" if ":" in host else host
        try:
            self._service = _Service(f"grpc://{self._host}:{port}", self.sessions, self.streams, metadata, limits)
        except (pa.ArrowException, OSError) as error:
            self.streams.stop()
            raise ConfigurationError(f"cannot bind to {bind!r}: the address is in use or not of this machine ({error})") from error
        self._stopped = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="flight-session-sweeper", daemon=True)
        self._sweeper.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._service.port)

    @property
    def address(self) -> str:
        """`grpc://host:port`, as a client takes it."""
        return f"grpc://{self._host}:{self.port}"

    @property
    def stopping(self) -> bool:
        """Whether `shutdown` was called: new calls are refused."""
        return bool(self._service.stopping)

    def _sweep(self) -> None:
        while not self._stopped.wait(_SWEEP_S):
            try:
                self.sessions.evict()
            except Exception:  # noqa: BLE001
                # The next round tries again; a sweep that fails must not end all sweeps.
                _log.exception("idle sessions could not be closed")

    def shutdown(self, grace_s: float = 10.0) -> bool:
        """Stop: refuse what is new (Unavailable), give what runs `grace_s`, then interrupt it, then cut the connections of clients
        that do not read, then close sessions and port.

        True where every call ended, False where one still holds a thread. Call it from a thread of your own, never from
        a handler. Idempotent.
        """
        self._service.stopping = True
        if self._stopped.is_set():
            return True
        if not self.streams.wait_idle(grace_s):
            interrupted = self.streams.cancel_all()
            _log.warning("interrupted %d statements that still ran after %s s", interrupted, grace_s)
        self._stopped.set()
        port = self.port
        closing = threading.Thread(target=self._service.shutdown, name="flight-shutdown", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            _log.warning("cut %d connections whose clients did not end their calls", cut_connections(port))
            closing.join(_CLOSE_S)
        self.sessions.close_all()
        if closing.is_alive():
            _log.error("calls did not end; they end with this process")
            return False
        self.streams.stop()
        self._sweeper.join()
        return True
