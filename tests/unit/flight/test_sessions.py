"""Sessions: how a call finds its own, limits, and idle eviction."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.clock import ManualClock
from catalog.errors import InvalidRequest, NotFound, Unavailable
from flight.sessions import COOKIE, Limits, Sessions, session_cookie
from flight.statements import split_ticket
from tests.helpers_flight import FakeEngine

LIMITS = Limits(max_sessions=2, max_statements_per_session=2, session_idle_s=100, ticket_idle_s=10)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(engine: FakeEngine, clock: ManualClock) -> Sessions:
    return Sessions([engine], clock, LIMITS)


@pytest.mark.parametrize(("headers", "cookie"), [
    ([], None), ([f"{COOKIE}=abc"], "abc"), ([f'x=1; {COOKIE}="abc"'], "abc"), (["x=1", f"{COOKIE}=a; y=2"], "a"), ([f"{COOKIE}="], None),
    ([f"other{COOKIE}=abc"], None), (["nonsense"], None),
])
def test_cookie(headers: list[str], cookie: str | None) -> None:
    assert session_cookie(headers) == cookie


def test_a_call_is_known_by_cookie_then_by_connection(sessions: Sessions) -> None:
    first = sessions.get(None, "peer:1")
    assert sessions.get(None, "peer:1") is first, "a client without cookies"
    assert sessions.get(first.id, "peer:2") is first, "a client with cookies, connected anew"
    second = sessions.get("forged or expired", "peer:3")
    assert second is not first
    assert second.id != "forged or expired", "an id is minted here or nowhere"


def test_options_are_not_shared(sessions: Sessions, engine: FakeEngine) -> None:
    first, second = sessions.get(None, "peer:1"), sessions.get(None, "peer:2")
    first.set_option([engine], "live_wal", "off")
    assert first.options()["live_wal"] == "off"
    assert second.options()["live_wal"] == "required"
    first.set_option([engine], "live_wal", None)
    assert first.options()["live_wal"] == "required", "no value means the initial one"
    with pytest.raises(NotFound, match="no session option 'color'"):
        first.set_option([engine], "color", "red")


def test_another_catalog_moves_the_session_to_its_engine(clock: ManualClock) -> None:
    lake, other = FakeEngine("lake"), FakeEngine("other")
    sessions = Sessions([lake, other], clock, LIMITS)
    session = sessions.get(None, "p")
    session.set_option(sessions.engines, "live_wal", "off")
    session.set_option(sessions.engines, "catalog", "other")
    assert session.engine is other
    assert session.options() == {"catalog": "other", "schema": "", "live_wal": "off"}
    assert (lake.open_sessions, other.open_sessions) == (0, 1)
    with pytest.raises(NotFound, match="no catalog 'third'; there are 'lake', 'other'"):
        session.set_option(sessions.engines, "catalog", "third")


def test_idle_sessions_are_closed_with_all_they_hold(sessions: Sessions, engine: FakeEngine, clock: ManualClock) -> None:
    idle, used = sessions.get(None, "a"), sessions.get(None, "b")
    handle = sessions.prepare(idle, "SELECT 42").handle
    kept = sessions.prepare(used, "SELECT 42")
    clock.advance(90)
    sessions.statement(kept.handle)
    clock.advance(90)
    assert sessions.evict() == 1
    assert (engine.open_sessions, engine.open_statements) == (1, 1), "using a handle keeps the session that made it"
    with pytest.raises(NotFound, match="prepare it again"):
        sessions.statement(handle)


def test_a_session_that_runs_a_statement_is_not_idle(sessions: Sessions, engine: FakeEngine, clock: ManualClock) -> None:
    session = sessions.get(None, "a")
    prepared = sessions.prepare(session, "SELECT 42")
    sessions.use(prepared)
    clock.advance(1000)
    assert sessions.evict() == 0
    sessions.release(prepared)
    assert sessions.evict() == 0, "the end of a statement counts as use"
    clock.advance(1000)
    assert sessions.evict() == 1
    assert (engine.open_sessions, engine.open_statements) == (0, 0)


def test_tickets_never_fetched_expire(sessions: Sessions, engine: FakeEngine, clock: ManualClock) -> None:
    session = sessions.get(None, "a")
    sessions.prepare(session, "SELECT 42", one_shot=True)
    kept = sessions.prepare(session, "SELECT 42")
    clock.advance(11)
    assert sessions.evict() == 1
    assert engine.open_statements == 1
    assert sessions.statement(kept.handle) is kept


def test_at_the_limit_a_session_that_holds_nothing_makes_room(sessions: Sessions, engine: FakeEngine, clock: ManualClock) -> None:
    holding = sessions.get(None, "a")
    handle = sessions.prepare(holding, "SELECT 42").handle
    clock.advance(1)
    sessions.get(None, "b")
    third = sessions.get(None, "c")
    assert sessions.counts() == (2, 1)
    third.set_option([engine], "schema", "bronze")
    with pytest.raises(Unavailable, match="all 2 sessions"):
        sessions.get(None, "d")
    sessions.close_statement(handle)
    assert sessions.get(None, "d") is not holding


def test_statements_of_a_session_are_limited(sessions: Sessions) -> None:
    session = sessions.get(None, "a")
    handle = sessions.prepare(session, "SELECT 42").handle
    sessions.prepare(session, "SELECT 42")
    with pytest.raises(InvalidRequest, match="holds 2 statements"):
        sessions.prepare(session, "SELECT 42")
    sessions.close_statement(handle)
    sessions.close_statement(handle)  # closing twice is as good as once
    sessions.prepare(session, "SELECT 42")


def test_a_statement_may_be_too_long() -> None:
    sessions = Sessions([FakeEngine()], ManualClock(), Limits(statement_chars=20))
    session = sessions.get(None, "a")
    sessions.prepare(session, "SELECT 42")
    with pytest.raises(InvalidRequest, match="a statement of 29 characters; at most 20"):
        sessions.prepare(session, "SELECT 42" + " " * 20)


def test_a_statement_closed_while_it_runs_stays_open_until_it_ends(sessions: Sessions, engine: FakeEngine) -> None:
    prepared = sessions.prepare(sessions.get(None, "a"), "SELECT 42")
    sessions.use(prepared)
    sessions.close_statement(prepared.handle)
    assert engine.open_statements == 1
    with pytest.raises(NotFound):
        sessions.use(prepared)
    sessions.release(prepared)
    assert engine.open_statements == 0


def test_a_ticket_is_used_up_by_its_first_fetch(sessions: Sessions, engine: FakeEngine) -> None:
    prepared = sessions.prepare(sessions.get(None, "a"), "SELECT 42", one_shot=True)
    sessions.use(prepared)
    with pytest.raises(NotFound):
        sessions.statement(prepared.handle)
    sessions.release(prepared)
    assert engine.open_statements == 0


def test_no_statement_is_left_in_a_session_that_was_closed_meanwhile(sessions: Sessions, engine: FakeEngine) -> None:
    session = sessions.get(None, "a")
    sessions.close(session)
    with pytest.raises(Unavailable, match="reconnect"):
        sessions.prepare(session, "SELECT 42")
    assert engine.open_statements == 0


def test_bindings() -> None:
    sessions = Sessions([FakeEngine()], ManualClock(), LIMITS)
    prepared = sessions.prepare(sessions.get(None, "a"), "ECHO ? ?")
    with pytest.raises(InvalidRequest, match="2 parameters and none was bound"):
        prepared.binding_number()
    with pytest.raises(InvalidRequest, match="2 parameters and 1 were bound"):
        prepared.bind(pa.schema([("a", pa.int64())]), [])
    batch = pa.record_batch([pa.array([1.5, 2.5]), pa.array(["a", "b"])], ["same", "same"])
    prepared.bind(batch.schema, [batch])
    handle, first = split_ticket(prepared.ticket(prepared.binding_number()))
    assert handle == prepared.handle
    assert list(prepared.rows(prepared.bound(first))) == [(1.5, "a"), (2.5, "b")]
    assert prepared.bound(first).schema.field("number").type == pa.float64(), "the values decide"
    for _ in range(3):
        prepared.bind(batch.schema, [])
    assert list(prepared.rows(prepared.bound(first))) == [(1.5, "a"), (2.5, "b")], "a ticket keeps its parameters"
    prepared.bind(batch.schema, [])
    with pytest.raises(NotFound, match="replaced by later ones"):
        prepared.bound(first)


def test_a_parameter_python_cannot_hold() -> None:
    sessions = Sessions([FakeEngine()], ManualClock(), LIMITS)
    prepared = sessions.prepare(sessions.get(None, "a"), "ECHO ? ?")
    batch = pa.record_batch([pa.array([2**62], pa.timestamp("s")), pa.array(["a"])], ["a", "b"])
    with pytest.raises(InvalidRequest, match="a parameter cannot be read"):
        prepared.bind(batch.schema, [batch])
