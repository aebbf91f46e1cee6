"""Sessions: who a client is between two calls, and what it left open.

Flight SQL has no session id of its own, so the session of a call is

1. the one its cookie names (`arrow_flight_session_id`, minted here: JDBC always keeps it, ADBC and pyarrow where asked to);
2. else the one of its connection, by the peer's address and port: every ADBC and pyarrow client has a connection of its own.

A cookie that is unknown (it expired, or the server was restarted) counts as none. Statement handles are unguessable and global:
they work from any connection, and using one keeps the session alive that made it. docs/adr/0010-flight-sessions.md says why.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.clock import Clock
from catalog.errors import InvalidRequest, NotFound, Unavailable
from flight.engine.api import Engine, EngineSession
from flight.statements import Prepared

__all__ = ["COOKIE", "Limits", "Session", "Sessions", "session_cookie"]

COOKIE: Final = "arrow_flight_session_id"


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may hold open. A limit that is reached is Unavailable (sessions, streams) or InvalidRequest (the rest)."""

    max_sessions: int = 1000
    max_statements_per_session: int = 1000
    max_streams: int = 256
    session_idle_s: float = 3600.0
    ticket_idle_s: float = 300.0
    statement_chars: int = 4 << 20
    parameter_bytes: int = 8 << 20
    batch_bytes: int = 8 << 20


def session_cookie(headers: Iterable[str]) -> str | None:
    """Our session id among the `cookie` headers of a call."""
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == COOKIE and value:
                return value.strip('"')
    return None


class Session:
    """One client's engine session, options and statements. Thread safe."""

    def __init__(self, session_id: str, peer: str, engine: Engine, state: EngineSession, now_s: float) -> None:
        self.id: Final = session_id
        self.peer: Final = peer
        self.engine = engine
        self.state = state
        self.initial_options: Final = dict(state.options())
        self.last_used_s = now_s
        self.busy = 0
        self.statements: dict[bytes, Prepared] = {}
        self.lock: Final = threading.RLock()

    def options(self) -> dict[str, str]:
        """Every option and its value."""
        return self.state.options()

    def set_option(self, engines: Sequence[Engine], name: str, value: str | None) -> None:
        """Set an option; None sets its initial value again. Raises NotFound (name, catalog or schema), InvalidRequest (value).

        Setting `catalog` to that of another scope moves the session there: options that both know are kept, the schema is not.
        """
        with self.lock:
            if name not in self.initial_options:
                known = ", ".join(sorted(self.initial_options))
                raise NotFound(f"no session option {name!r}; there are {known}")
            value = self.initial_options[name] if value is None else value
            if name == "catalog":
                self._use(engines, value)
            else:
                self.state.set_option(name, value)

    def _use(self, engines: Sequence[Engine], catalog: str) -> None:
        if catalog.lower() == self.engine.catalog.lower():
            return
        engine = next((engine for engine in engines if engine.catalog.lower() == catalog.lower()), None)
        if engine is None:
            known = ", ".join(repr(engine.catalog) for engine in engines)
            raise NotFound(f"no catalog {catalog!r}; there are {known}")
        state = engine.open_session()
        for name, value in self.state.options().items():
            if name not in ("catalog", "schema") and name in state.options():
                state.set_option(name, value)
        self.state, old, self.engine = state, self.state, engine
        old.close()

    def disposable(self) -> bool:
        """Whether it holds nothing: a session made anew would be the same."""
        return not self.busy and not self.statements and self.options() == self.initial_options

    def close(self) -> None:
        """Free everything of the engine; running statements are interrupted by whoever runs them."""
        with self.lock:
            statements = list(self.statements.values())
            self.statements.clear()
        for prepared in statements:
            prepared.close()
        self.state.close()


class Sessions:
    """All sessions and statement handles of a server. Thread safe; no engine call is made under its lock but `options`."""

    def __init__(self, engines: Sequence[Engine], clock: Clock, limits: Limits) -> None:
        self.engines: Final = engines
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._by_id: dict[str, Session] = {}
        self._by_peer: dict[str, Session] = {}
        self._handles: dict[bytes, Prepared] = {}

    def find(self, cookie: str | None, peer: str) -> Session | None:
        """The session of a call, None where it has none yet."""
        with self._lock:
            session = self._by_id.get(cookie) if cookie else None
            session = session or self._by_peer.get(peer)
            if session is not None:
                session.last_used_s = self._clock.monotonic()
            return session

    def get(self, cookie: str | None, peer: str) -> Session:
        """The session of a call, opened where it has none yet. Raises Unavailable at `max_sessions`."""
        session = self.find(cookie, peer)
        if session is not None:
            return session
        self._make_room()
        engine = self.engines[0]
        opened = Session(secrets.token_urlsafe(24), peer, engine, engine.open_session(), self._clock.monotonic())
        with self._lock:
            session = self._by_peer.setdefault(peer, opened)
            if session is opened:
                self._by_id[opened.id] = opened
        if session is not opened:
            opened.close()
        return session

    def _make_room(self) -> None:
        with self._lock:
            if len(self._by_id) < self._limits.max_sessions:
                return
        self.evict()
        with self._lock:
            if len(self._by_id) < self._limits.max_sessions:
                return
            oldest_first = sorted(self._by_id.values(), key=lambda session: session.last_used_s)
            victim = next((session for session in oldest_first if session.disposable()), None)
            if victim is not None:
                self._forget(victim)
        if victim is None:
            raise Unavailable(f"all {self._limits.max_sessions} sessions of this server are in use; close one or try again later")
        victim.close()

    def _forget(self, session: Session) -> None:
        self._by_id.pop(session.id, None)
        if self._by_peer.get(session.peer) is session:
            del self._by_peer[session.peer]
        for handle in session.statements:
            self._handles.pop(handle, None)

    def close(self, session: Session) -> None:
        """End a session: its statements are closed and their handles are unknown from now on. Idempotent."""
        with self._lock:
            self._forget(session)
        session.close()

    def evict(self) -> int:
        """Close sessions idle for `session_idle_s` and drop tickets never fetched for `ticket_idle_s`; how many of both."""
        now_s = self._clock.monotonic()
        with self._lock:
            idle = [session for session in self._by_id.values()
                    if not session.busy and now_s - session.last_used_s > self._limits.session_idle_s]
            for session in idle:
                self._forget(session)
            stale = [prepared for prepared in self._handles.values()
                     if prepared.one_shot and now_s - prepared.created_s > self._limits.ticket_idle_s]
            for prepared in stale:
                self._drop(prepared)
        for session in idle:
            session.close()
        for prepared in stale:
            prepared.close()
        return len(idle) + len(stale)

    def prepare(self, session: Session, sql: str, *, one_shot: bool = False) -> Prepared:
        """Check, resolve and plan a statement. Raises what EngineSession.prepare raises, InvalidRequest at the limit."""
        if len(sql) > self._limits.statement_chars:
            raise InvalidRequest(f"a statement of {len(sql)} characters; at most {self._limits.statement_chars} are taken")
        if len(session.statements) >= self._limits.max_statements_per_session:
            raise InvalidRequest(
                f"this session holds {len(session.statements)} statements, the most it may; close some of them first")
        prepared = Prepared(session, session.state.prepare(sql), one_shot, self._clock.monotonic())
        with self._lock:
            open_still = session.id in self._by_id
            if open_still:
                session.statements[prepared.handle] = prepared
                self._handles[prepared.handle] = prepared
        if not open_still:
            prepared.close()
            raise Unavailable("the session was closed while the statement was prepared; reconnect and try again")
        return prepared

    def statement(self, handle: bytes) -> Prepared:
        """The statement behind a handle; its session counts as used. Raises NotFound."""
        with self._lock:
            prepared = self._handles.get(handle)
            if prepared is None:
                raise NotFound(f"no statement with handle {handle.hex()[:64] or '(empty)'}: it was closed, used up or has expired; "
                               "prepare it again")
            prepared.session.last_used_s = self._clock.monotonic()
            return prepared

    def _drop(self, prepared: Prepared) -> None:
        self._handles.pop(prepared.handle, None)
        prepared.session.statements.pop(prepared.handle, None)

    def close_statement(self, handle: bytes) -> None:
        """Forget a statement and close it once nothing runs it; an unknown handle is as good as closed."""
        with self._lock:
            prepared = self._handles.get(handle)
            if prepared is None:
                return
            self._drop(prepared)
        prepared.close()

    def discard_ticket(self, handle: bytes) -> bool:
        """Forget a one-shot statement whose rows nobody fetched yet; whether there was one."""
        with self._lock:
            prepared = self._handles.get(handle)
            if prepared is None or not prepared.one_shot:
                return False
            self._drop(prepared)
        prepared.close()
        return True

    def use(self, prepared: Prepared) -> None:
        """Mark the start of a stream; a one-shot statement is used up by it. Raises NotFound where it was closed meanwhile."""
        with self._lock:
            if self._handles.get(prepared.handle) is not prepared:
                raise NotFound("the statement was closed before its rows were asked for; prepare it again")
            if prepared.one_shot:
                self._drop(prepared)
            prepared.acquire()
            prepared.session.busy += 1

    def release(self, prepared: Prepared) -> None:
        """Mark the end of a stream."""
        with self._lock:
            prepared.session.busy -= 1
            prepared.session.last_used_s = self._clock.monotonic()
        prepared.release(close=prepared.one_shot)

    def counts(self) -> tuple[int, int]:
        """(sessions, statement handles) now."""
        with self._lock:
            return len(self._by_id), len(self._handles)

    def close_all(self) -> None:
        """End every session."""
        with self._lock:
            sessions = list(self._by_id.values())
        for session in sessions:
            self.close(session)
