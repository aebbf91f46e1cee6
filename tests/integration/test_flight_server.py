"""The server on the wire: what no ADBC call can send, as JDBC, C++ and hand-written clients may."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from catalog.clock import ManualClock
from catalog.errors import ConfigurationError
from flight.protocol import messages as m
from flight.protocol import schemas
from flight.protocol.wire import Message, decode, encode
from flight.server import FlightSqlServer, parse_bind
from flight.sessions import COOKIE, Limits
from tests.helpers_flight import FakeEngine

LIMITS = Limits(max_streams=2, max_statements_per_session=20, parameter_bytes=10_000)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(engine: FakeEngine, clock: ManualClock) -> Iterator[FlightSqlServer]:
    server = FlightSqlServer([engine], "127.0.0.1:0", clock=clock, limits=LIMITS)
    yield server
    assert server.shutdown(0.1)
    assert (engine.open_sessions, engine.open_statements, engine.open_streams) == (0, 0, 0), "nothing leaks"


@pytest.fixture
def client(server: FlightSqlServer) -> Iterator[fl.FlightClient]:
    with fl.connect(server.address) as client:
        yield client


def info(client: fl.FlightClient, command: Message) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_command(m.wrap(command)))


def fetch(client: fl.FlightClient, command: Message) -> pa.Table:
    """GetFlightInfo and DoGet; both must tell the same schema."""
    found = info(client, command)
    table = client.do_get(found.endpoints[0].ticket).read_all()
    assert found.schema.equals(table.schema)
    assert found.endpoints[0].locations == []
    return table


def act(client: fl.FlightClient, name: str, message: Message | bytes = b"", options: fl.FlightCallOptions | None = None) -> list[bytes]:
    body = message if isinstance(message, bytes) else m.wrap(message)
    return [result.body.to_pybytes() for result in client.do_action(fl.Action(name, body), options)]


def prepare(client: fl.FlightClient, sql: str) -> m.ActionCreatePreparedStatementResult:
    [body] = act(client, "CreatePreparedStatement", m.ActionCreatePreparedStatementRequest(sql))
    return m.unwrap(m.ActionCreatePreparedStatementResult, body)


def bind(client: fl.FlightClient, handle: bytes, batch: pa.RecordBatch) -> bytes:
    descriptor = fl.FlightDescriptor.for_command(m.wrap(m.CommandPreparedStatementQuery(handle)))
    writer, reader = client.do_put(descriptor, batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    answer = reader.read()
    writer.close()
    return answer.to_pybytes()


def drain(reader: fl.FlightStreamReader) -> int:
    """Read to the end; how many rows. Not with `read_all`, which turns CANCELLED into a KeyboardInterrupt."""
    return sum(chunk.data.num_rows for chunk in reader)


# What there is

def test_every_metadata_command_has_its_exact_schema(client: fl.FlightClient) -> None:
    expected: list[tuple[Message, pa.Schema, int]] = [
        (m.CommandGetSqlInfo(), schemas.SQL_INFO, 89), (m.CommandGetSqlInfo((0, 8)), schemas.SQL_INFO, 2),
        (m.CommandGetXdbcTypeInfo(), schemas.XDBC_TYPE_INFO, 24), (m.CommandGetXdbcTypeInfo(12), schemas.XDBC_TYPE_INFO, 1),
        (m.CommandGetCatalogs(), schemas.CATALOGS, 1), (m.CommandGetDbSchemas(), schemas.DB_SCHEMAS, 3),
        (m.CommandGetTables(), schemas.TABLES, 4), (m.CommandGetTables(include_schema=True), schemas.TABLES_WITH_SCHEMA, 4),
        (m.CommandGetTableTypes(), schemas.TABLE_TYPES, 2), (m.CommandGetPrimaryKeys(table="rides"), schemas.PRIMARY_KEYS, 0),
        (m.CommandGetImportedKeys(table="rides"), schemas.FOREIGN_KEYS, 0),
        (m.CommandGetExportedKeys(table="rides"), schemas.FOREIGN_KEYS, 0),
        (m.CommandGetCrossReference(pk_table="a", fk_table="b"), schemas.FOREIGN_KEYS, 0),
    ]
    for command, schema, rows in expected:
        table = fetch(client, command)
        assert table.schema.equals(schema), type(command).__name__
        assert table.num_rows == rows, type(command).__name__
        described = client.get_schema(fl.FlightDescriptor.for_command(m.wrap(command))).schema
        assert described.equals(schema), type(command).__name__


@pytest.mark.parametrize(("command", "names"), [
    (m.CommandGetTables(catalog="lake"), ["rides", "rides_v", "a_b", "axb"]),
    (m.CommandGetTables(catalog=""), []),
    (m.CommandGetTables(catalog="la%"), []),
    (m.CommandGetTables(db_schema_filter_pattern="silver%"), ["a_b", "axb"]),
    (m.CommandGetTables(db_schema_filter_pattern=""), []),
    (m.CommandGetTables(table_name_filter_pattern="a_b"), ["a_b", "axb"]),
    (m.CommandGetTables(table_name_filter_pattern="a\\_b"), ["a_b"]),
    (m.CommandGetTables(table_types=("VIEW",)), ["rides_v"]),
    (m.CommandGetTables(table_types=("BASE TABLE",)), ["rides", "a_b", "axb"]),
    (m.CommandGetTables(table_types=("SYSTEM TABLE",)), []),
    (m.CommandGetTables(table_name_filter_pattern="rides", include_schema=True), ["rides"]),
])
def test_table_filters(client: fl.FlightClient, command: m.CommandGetTables, names: list[str]) -> None:
    assert fetch(client, command)["table_name"].to_pylist() == names


def test_table_schema_is_an_ipc_message_with_column_metadata(client: fl.FlightClient) -> None:
    table = fetch(client, m.CommandGetTables(table_name_filter_pattern="rides", include_schema=True))
    schema = pa.ipc.read_schema(pa.py_buffer(table["table_schema"][0].as_py()))
    assert schema.field("price").metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"DECIMAL"
    assert schema.field("id").metadata[b"ARROW:FLIGHT:SQL:TABLE_NAME"] == b"rides"


def test_list_actions(client: fl.FlightClient) -> None:
    names = {action.type for action in client.list_actions()}
    assert {"CreatePreparedStatement", "CancelFlightInfo", "CancelQuery", "CloseSession", "SetSessionOptions"} <= names


# Statements

def test_a_statement_and_its_ticket_are_used_once(client: fl.FlightClient, engine: FakeEngine) -> None:
    found = info(client, m.CommandStatementQuery("SELECT 42"))
    assert (found.total_records, found.total_bytes) == (-1, -1)
    assert client.do_get(found.endpoints[0].ticket).read_all().to_pylist() == [{"answer": 42}]
    assert engine.open_statements == 0
    with pytest.raises(pa.ArrowKeyError, match="prepare it again"):
        client.do_get(found.endpoints[0].ticket).read_all()


def test_a_prepared_statement_runs_again_and_from_another_connection(client: fl.FlightClient, server: FlightSqlServer) -> None:
    result = prepare(client, "SELECT 42")
    assert result.is_update is False
    assert pa.ipc.read_schema(pa.py_buffer(result.dataset_schema)).names == ["answer"]
    assert len(pa.ipc.read_schema(pa.py_buffer(result.parameter_schema))) == 0
    command = m.CommandPreparedStatementQuery(result.prepared_statement_handle)
    with fl.connect(server.address) as other:
        for where in (client, other, client):
            assert fetch(where, command).num_rows == 1
        assert other.do_get(fl.Ticket(m.wrap(command))).read_all().num_rows == 1, "the command itself may be the ticket"
    for _ in range(2):
        assert act(client, "ClosePreparedStatement", m.ActionClosePreparedStatementRequest(result.prepared_statement_handle)) == []
    with pytest.raises(pa.ArrowKeyError, match=r"no statement with handle \w+: it was closed"):
        info(client, command)


def test_parameters_are_bound_over_and_over(client: fl.FlightClient) -> None:
    result = prepare(client, "ECHO ? ?")
    assert pa.ipc.read_schema(pa.py_buffer(result.parameter_schema)).types == [pa.int64(), pa.string()]
    handle = result.prepared_statement_handle
    command = m.CommandPreparedStatementQuery(handle)
    with pytest.raises(pa.ArrowInvalid, match="2 parameters and none was bound"):
        info(client, command)
    answer = bind(client, handle, pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"])], ["x", "y"]))
    assert decode(m.DoPutPreparedStatementResult, answer).prepared_statement_handle == handle
    early = info(client, command)
    bind(client, handle, pa.record_batch([pa.array([3.5]), pa.array(["c"])], ["x", "y"]))
    assert fetch(client, command).to_pylist() == [{"number": 3.5, "text": "c"}]
    assert client.do_get(early.endpoints[0].ticket).read_all()["number"].to_pylist() == [1, 2], "a ticket keeps its parameters"
    bind(client, handle, pa.record_batch([pa.array([], pa.int64()), pa.array([], pa.string())], ["x", "y"]))
    assert fetch(client, command).num_rows == 0, "no row of parameters, no execution"
    with pytest.raises(pa.ArrowInvalid, match="more than 10000 bytes"):
        bind(client, handle, pa.record_batch([pa.array([1]), pa.array(["x" * 20_000])], ["x", "y"]))


def test_statements_per_session_are_limited(client: fl.FlightClient, server: FlightSqlServer) -> None:
    for _ in range(20):
        prepare(client, "SELECT 42")
    with pytest.raises(pa.ArrowInvalid, match="holds 20 statements"):
        prepare(client, "SELECT 42")
    with fl.connect(server.address) as other:
        prepare(other, "SELECT 42")


def test_streams_are_limited(client: fl.FlightClient, engine: FakeEngine) -> None:
    readers = []
    for _ in range(2):
        readers.append(client.do_get(info(client, m.CommandStatementQuery("BLOCK")).endpoints[0].ticket))
        assert engine.blocked.wait(10)
        engine.blocked.clear()
    with pytest.raises(fl.FlightUnavailableError, match="2 statements run on this server"):
        fetch(client, m.CommandStatementQuery("SELECT 42"))
    for reader in readers:
        reader.cancel()


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda c: info(c, m.CommandStatementUpdate("DELETE FROM t")), pa.ArrowInvalid, "read-only"),
    (lambda c: info(c, m.CommandStatementSubstraitPlan()), pa.ArrowNotImplementedError, "no Substrait"),
    (lambda c: info(c, m.CommandPreparedStatementQuery(b"nonsense")), pa.ArrowKeyError, "no statement with handle"),
    (lambda c: info(c, m.CommandStatementQuery("ECHO ? ?")), pa.ArrowInvalid, "none was bound"),
    (lambda c: info(c, m.CommandStatementQuery("SELECT 42", b"made up")), pa.ArrowKeyError, "no transaction"),
    (lambda c: c.get_flight_info(fl.FlightDescriptor.for_command(b"\xff")), pa.ArrowInvalid, "malformed"),
    (lambda c: c.get_flight_info(fl.FlightDescriptor.for_path("a")), pa.ArrowInvalid, "path instead of a command"),
    (lambda c: c.get_schema(fl.FlightDescriptor.for_command(b"")), pa.ArrowInvalid, r"no google\.protobuf\.Any"),
    (lambda c: c.do_get(fl.Ticket(b"\x00")).read_all(), pa.ArrowInvalid, "malformed"),
    (lambda c: c.do_get(fl.Ticket(m.wrap(m.CommandStatementIngest("t")))).read_all(), pa.ArrowInvalid, "read-only"),
    (lambda c: list(c.list_flights()), pa.ArrowNotImplementedError, "no flights to list"),
    (lambda c: c.do_exchange(fl.FlightDescriptor.for_command(b"x"))[1].read_all(), pa.ArrowNotImplementedError, "no DoExchange"),
    (lambda c: act(c, "BeginSavepoint"), pa.ArrowNotImplementedError, "'BeginSavepoint' is not supported"),
    (lambda c: act(c, "CreatePreparedStatement", b"\x80"), pa.ArrowInvalid, "malformed"),
    (lambda c: act(c, "CreatePreparedStatement", m.ActionCreatePreparedStatementRequest("BUG")), fl.FlightInternalError, "reference"),
    (lambda c: act(c, "EndTransaction", m.ActionEndTransactionRequest(b"read-only:", 0)), pa.ArrowInvalid, "say 1 to commit"),
    (lambda c: act(c, "EndTransaction", m.ActionEndTransactionRequest(b"x", 1)), pa.ArrowKeyError, "no transaction"),
    (lambda c: act(c, "CancelFlightInfo"), pa.ArrowInvalid, "no endpoint"),
])
def test_refusals_say_what_is_wrong_and_leak_nothing(client: fl.FlightClient, call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(client)  # type: ignore[operator]
    for secret in ("Traceback", ".py", "pyx", "ZeroDivision"):
        assert secret not in str(caught.value)
    assert not str(caught.value).startswith("'"), "the message comes first, unquoted"


def test_get_schema_leaves_nothing_open(client: fl.FlightClient, engine: FakeEngine) -> None:
    descriptor = fl.FlightDescriptor.for_command(m.wrap(m.CommandStatementQuery("SELECT 42")))
    assert client.get_schema(descriptor).schema.names == ["answer"]
    assert engine.open_statements == 0


# Cancellation

@pytest.mark.parametrize("name", ["CancelFlightInfo", "CancelFlightInfo wrapped", "CancelQuery"])
def test_a_query_is_cancelled_by_its_flight_info(client: fl.FlightClient, engine: FakeEngine, server: FlightSqlServer, name: str) -> None:
    found = info(client, m.CommandStatementQuery("BLOCK"))
    reader = client.do_get(found.endpoints[0].ticket)
    assert engine.blocked.wait(10)

    def cancel() -> int:
        serialized = found.serialize()
        if name == "CancelQuery":
            [body] = act(client, name, m.ActionCancelQueryRequest(serialized))
            return m.unwrap(m.ActionCancelQueryResult, body).result
        request = m.CancelFlightInfoRequest(decode(m.FlightInfo, serialized))
        [body] = act(client, "CancelFlightInfo", request if "wrapped" in name else encode(request))
        return decode(m.CancelFlightInfoResult, body).status

    assert cancel() == 1
    with pytest.raises(fl.FlightCancelledError, match="the query was cancelled"):
        drain(reader)
    assert engine.interrupted.is_set()
    assert server.streams.wait_idle(10)
    with pytest.raises(pa.ArrowKeyError, match="nothing to cancel"):
        cancel()


def test_cancelling_before_the_fetch_forgets_the_statement(client: fl.FlightClient, engine: FakeEngine) -> None:
    found = info(client, m.CommandStatementQuery("SELECT 42"))
    [body] = act(client, "CancelFlightInfo", encode(m.CancelFlightInfoRequest(decode(m.FlightInfo, found.serialize()))))
    assert decode(m.CancelFlightInfoResult, body).status == 1
    assert engine.open_statements == 0
    listing = info(client, m.CommandGetCatalogs())
    [body] = act(client, "CancelFlightInfo", encode(m.CancelFlightInfoRequest(decode(m.FlightInfo, listing.serialize()))))
    assert decode(m.CancelFlightInfoResult, body).status == 3, "metadata cannot be cancelled"


def test_a_vanished_client_stops_the_engine(server: FlightSqlServer, engine: FakeEngine) -> None:
    program = ("import sys, pyarrow.flight as fl\n"
               "c = fl.connect(sys.argv[1])\n"
               "i = c.get_flight_info(fl.FlightDescriptor.for_command(bytes.fromhex(sys.argv[2])))\n"
               "c.do_get(i.endpoints[0].ticket).read_all()\n")
    command = m.wrap(m.CommandStatementQuery("BLOCK")).hex()
    process = subprocess.Popen([sys.executable, "-c", program, server.address, command])
    try:
        assert engine.blocked.wait(20)
        os.kill(process.pid, signal.SIGKILL)
        assert engine.interrupted.wait(10)
        assert server.streams.wait_idle(10)
    finally:
        process.kill()
        process.wait()


def test_streams_never_pulled_or_dropped_leave_nothing(client: fl.FlightClient, server: FlightSqlServer, engine: FakeEngine,
                                                      clock: ManualClock) -> None:
    for _ in range(15):
        found = info(client, m.CommandStatementQuery("ROWS 1000 1000 100"))
        reader = client.do_get(found.endpoints[0].ticket)
        reader.cancel()
        del reader
    assert server.streams.wait_idle(10)
    clock.advance(LIMITS.ticket_idle_s + 1)  # those cancelled before the server pulled still hold their ticket
    server.sessions.evict()
    assert engine.open_statements == engine.open_streams == 0


# Sessions

def test_a_cookie_is_set_once_and_names_the_session(server: FlightSqlServer) -> None:
    seen: list[str] = []

    class Keep(fl.ClientMiddleware):
        def received_headers(self, headers: dict[str, list[str]]) -> None:
            seen.extend(headers.get("set-cookie", []))

    class Factory(fl.ClientMiddlewareFactory):
        def start_call(self, info: object) -> fl.ClientMiddleware:
            return Keep()

    option = m.SetSessionOptionsRequest({"live_wal": m.SessionOptionValue(string_value="off")})
    with fl.connect(server.address, middleware=[Factory()]) as one, fl.connect(server.address) as two:
        assert act(one, "SetSessionOptions", encode(option)) == [b""]
        [cookie] = seen
        assert cookie.startswith(COOKIE + "=")
        options = fl.FlightCallOptions(headers=[(b"cookie", cookie.encode())])
        [body] = act(two, "GetSessionOptions", b"", options)
        assert decode(m.GetSessionOptionsResult, body).session_options["live_wal"].string_value == "off"
        [body] = act(two, "GetSessionOptions")
        assert decode(m.GetSessionOptionsResult, body).session_options["live_wal"].string_value == "required"
        act(one, "GetSessionOptions", b"", fl.FlightCallOptions(headers=[(b"cookie", b"x=1; " + cookie.encode())]))
        assert len(seen) == 1, "a client that sends the cookie gets no other"
        assert act(two, "CloseSession", b"", options) == [encode(m.CloseSessionResult(1))]
        assert act(two, "CloseSession", b"", options) == [encode(m.CloseSessionResult(1))], "its own session, then none: closed is closed"


def test_session_option_errors_are_told_one_by_one(client: fl.FlightClient) -> None:
    [body] = act(client, "SetSessionOptions", encode(m.SetSessionOptionsRequest({
        "schema": m.SessionOptionValue(string_value="bronze"),
        "color": m.SessionOptionValue(string_value="red"),
        "live_wal": m.SessionOptionValue(string_value="sometimes"),
        "catalog": m.SessionOptionValue(int64_value=-5),
    })))
    errors = decode(m.SetSessionOptionsResult, body).errors
    assert {name: error.value for name, error in errors.items()} == {"color": 1, "live_wal": 2, "catalog": 2}
    assert act(client, "SetSessionOptions", encode(m.SetSessionOptionsRequest({"schema": m.SessionOptionValue()}))) == [b""]
    [body] = act(client, "GetSessionOptions")
    assert decode(m.GetSessionOptionsResult, body).session_options["schema"].string_value == "", "no value: as it was at first"


def test_closing_a_session_stops_what_it_runs(client: fl.FlightClient, engine: FakeEngine, server: FlightSqlServer) -> None:
    reader = client.do_get(info(client, m.CommandStatementQuery("BLOCK")).endpoints[0].ticket)
    assert engine.blocked.wait(10)
    act(client, "CloseSession")
    with pytest.raises(fl.FlightCancelledError):
        drain(reader)
    assert server.streams.wait_idle(10)


def test_a_transaction_outlives_its_session(client: fl.FlightClient) -> None:
    [body] = act(client, "BeginTransaction")
    transaction = m.unwrap(m.ActionBeginTransactionResult, body).transaction_id
    act(client, "CloseSession")
    assert fetch(client, m.CommandStatementQuery("SELECT 42", transaction)).num_rows == 1
    for action in (1, 2):
        assert act(client, "EndTransaction", m.ActionEndTransactionRequest(transaction, action)) == []


# The process around it

@pytest.mark.parametrize("bind_text", ["", "31337", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", ":31337", "no host:1"])
def test_a_malformed_bind_is_refused(bind_text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot bind to"):
        parse_bind(bind_text)


@pytest.mark.parametrize("bind_text", ["0.0.0.0:31337", "[::]:31337", "192.0.2.1:0"])
def test_a_bind_beyond_loopback_is_refused(bind_text: str, engine: FakeEngine) -> None:
    with pytest.raises(ConfigurationError, match="beyond loopback a server needs TLS and authentication"):
        FlightSqlServer([engine], bind_text)


def test_good_binds() -> None:
    assert parse_bind("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_bind("[::1]:5") == ("::1", 5)
    assert parse_bind("127.9.9.9:5") == ("127.9.9.9", 5)


def test_a_port_in_use_is_refused(server: FlightSqlServer, engine: FakeEngine) -> None:
    with pytest.raises(ConfigurationError, match="in use"):
        FlightSqlServer([engine], f"127.0.0.1:{server.port}")


def test_engines_need_catalogs_of_their_own(engine: FakeEngine) -> None:
    for engines in ([], [engine, engine]):
        with pytest.raises(ConfigurationError, match="each with a catalog of its own"):
            FlightSqlServer(engines, "127.0.0.1:0")


def test_shutdown_lets_running_statements_end_and_refuses_new_ones(server: FlightSqlServer, client: fl.FlightClient,
                                                                   engine: FakeEngine) -> None:
    found = info(client, m.CommandStatementQuery("SELECT 42"))
    reader = client.do_get(info(client, m.CommandStatementQuery("ROWS 100000 20 100")).endpoints[0].ticket)
    reader.read_chunk()
    done: list[bool] = []
    stopper = threading.Thread(target=lambda: done.append(server.shutdown(30)))
    stopper.start()
    while not server.stopping:
        stopper.join(0.01)
    with pytest.raises(fl.FlightUnavailableError, match="shutting down"):
        client.do_get(found.endpoints[0].ticket).read_all()
    with pytest.raises(fl.FlightUnavailableError, match="shutting down"):
        prepare(client, "SELECT 42")
    assert act(client, "ClosePreparedStatement", m.ActionClosePreparedStatementRequest(b"x")) == [], "what frees is allowed"
    rest = drain(reader)
    stopper.join()
    assert rest > 0
    assert done == [True]


def test_shutdown_interrupts_what_runs_beyond_the_grace(server: FlightSqlServer, client: fl.FlightClient, engine: FakeEngine) -> None:
    reader = client.do_get(info(client, m.CommandStatementQuery("BLOCK")).endpoints[0].ticket)
    assert engine.blocked.wait(10)
    assert server.shutdown(0.05)
    assert engine.interrupted.is_set()
    with pytest.raises(fl.FlightUnavailableError, match="shutting down"):
        drain(reader)
    assert server.shutdown(0.05), "once more changes nothing"


def test_shutdown_cuts_off_a_client_that_reads_nothing(engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    server = FlightSqlServer([engine], "127.0.0.1:0")
    with fl.connect(server.address) as client, caplog.at_level(logging.WARNING):
        reader = client.do_get(info(client, m.CommandStatementQuery("ROWS 100000 1000000 100")).endpoints[0].ticket)
        reader.read_chunk()
        engine.stands_still()
        assert server.shutdown(0.05)
        assert "cut 1 connections" in caplog.text
        with pytest.raises(fl.FlightUnavailableError):
            drain(reader)
    assert (engine.open_sessions, engine.open_statements, engine.open_streams) == (0, 0, 0)
