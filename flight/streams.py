"""Running statements: sliced for the wire, stopped when the client goes away, counted for shutdown.

A stream is a Python generator that pyarrow pulls from the RPC's own thread, one batch per write, so that a slow reader holds one
batch and the engine waits. Everything is acquired after the first pull and released in the generator's `finally`: a stream that
is never pulled (the client was gone by then) holds nothing.

A generator that waits for the engine cannot see that its client vanished. One watcher thread asks for all of them, at
most `POLL_S` late. The call's context is a raw pointer that dies with the RPC, so the watcher touches it only under the lock
under which the generator takes it away from the watcher again, in its `finally`, on the RPC's thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.flight as fl

from catalog.errors import Internal, Unavailable
from flight.engine.api import RowStream
from flight.sessions import Limits, Session, Sessions
from flight.statements import Binding, Prepared
from flight.status import QUERY_CANCELLED, SHUTTING_DOWN, to_flight

__all__ = ["POLL_S", "CancelWatcher", "Run", "Streams", "slices"]

POLL_S: Final = 0.1
_QUIET_POLLS: Final = 50  # polls without any stream before the watcher sleeps for good
_log = logging.getLogger("skippr.flight")


class Context(Protocol):
    """The one method of pyarrow's call context the watcher uses."""

    def is_cancelled(self) -> bool: ...


class Run:
    """One execution that can be cancelled from any thread, before, while and after it has a stream of the engine."""

    def __init__(self, ticket: bytes, session: Session) -> None:
        self.ticket: Final = ticket
        self.session: Final = session
        self.cancelled = False
        self.stopping = False
        self._stream: RowStream | None = None
        self._lock = threading.Lock()

    def attach(self, stream: RowStream) -> None:
        """The engine's stream of now; interrupted at once where the run was cancelled already."""
        with self._lock:
            self._stream = stream
            cancelled = self.cancelled
        if cancelled:
            stream.cancel()

    def error(self) -> Exception:
        """What the client of a cancelled run is told."""
        kind = fl.FlightUnavailableError if self.stopping else fl.FlightCancelledError
        error: Exception = kind(SHUTTING_DOWN if self.stopping else QUERY_CANCELLED)
        return error

    def detach(self) -> None:
        """Close the engine's stream, if there is one."""
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def cancel(self, *, stopping: bool = False) -> None:
        """Interrupt the engine; idempotent. `stopping`: because the server stops, not because somebody asked."""
        with self._lock:
            self.stopping = stopping or self.stopping
            self.cancelled = True
            stream = self._stream
        if stream is not None:
            stream.cancel()


class CancelWatcher:
    """One thread that cancels the runs whose client is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._watched: dict[Run, Context] = {}
        self._asleep = False
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="flight-cancel-watcher", daemon=True)
        self._thread.start()

    def add(self, run: Run, context: Context) -> None:
        """Watch from now on; call on the RPC's thread."""
        with self._lock:
            self._watched[run] = context
            if self._asleep:
                self._wake.notify()

    def remove(self, run: Run) -> None:
        """Never touch the run's context again; call on the RPC's thread, before the RPC ends."""
        with self._lock:
            self._watched.pop(run, None)

    def stop(self) -> None:
        """End the thread."""
        with self._lock:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def _watch(self) -> None:
        quiet = 0
        with self._lock:
            while not self._stopped:
                quiet = 0 if self._watched else quiet + 1
                self._asleep = quiet > _QUIET_POLLS
                self._wake.wait(None if self._asleep else POLL_S)
                self._asleep = False
                gone = [run for run, context in self._watched.items() if not run.cancelled and context.is_cancelled()]
                if not gone:
                    continue
                self._lock.release()
                try:
                    for run in gone:
                        _cancel(run)
                finally:
                    self._lock.acquire()


def _cancel(run: Run, *, stopping: bool = False) -> None:
    try:
        run.cancel(stopping=stopping)
    except Exception:  # noqa: BLE001
        # An engine that cannot be interrupted must not end the watcher of all the others.
        _log.exception("a statement could not be interrupted")


def slices(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `limit_bytes` on the wire each, without copying; a single row may be larger."""
    if batch.nbytes <= limit_bytes or batch.num_rows <= 1:
        yield batch
        return
    size_bytes = pa.ipc.get_record_batch_size(batch)  # nbytes counts dictionaries, which travel once, beside the batches
    if size_bytes <= limit_bytes:
        yield batch
        return
    parts = min(-(-size_bytes // limit_bytes), batch.num_rows)
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield from slices(batch.slice(start, step), limit_bytes)


class Streams:
    """All runs of a server. Thread safe."""

    def __init__(self, sessions: Sessions, limits: Limits) -> None:
        self._sessions = sessions
        self._limits = limits
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._runs: set[Run] = set()
        self._watcher = CancelWatcher()

    def open(self, context: Context, prepared: Prepared, number: int) -> fl.FlightDataStream:
        """The rows of a statement under a binding for pyarrow to pull; the engine starts at the first pull. Raises NotFound."""
        binding = prepared.bound(number)
        run = Run(prepared.ticket(number), prepared.session)
        return fl.GeneratorStream(binding.schema, self._rows(run, context, prepared, binding))

    def _rows(self, run: Run, context: Context, prepared: Prepared, binding: Binding) -> Iterator[pa.RecordBatch]:
        try:
            self._sessions.use(prepared)
        except Exception as error:  # noqa: BLE001  the boundary: it leaves as a status
            raise to_flight(error) from None
        try:
            self._start(run)
            self._watcher.add(run, context)
            for parameters in prepared.rows(binding):
                yield from self._execute(run, prepared, parameters, binding.schema)
        except Exception as error:  # noqa: BLE001  the boundary: it leaves as a status
            if run.cancelled:
                raise run.error() from None
            raise to_flight(error) from None
        finally:
            self._watcher.remove(run)
            self._end(run, prepared)

    def _execute(self, run: Run, prepared: Prepared, parameters: tuple[object, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        stream = prepared.statement.execute(parameters, schema=schema)
        run.attach(stream)
        if not stream.schema.equals(schema):
            raise Internal(f"the statement was planned with the schema {schema} and returned {stream.schema}")
        limit_bytes = self._limits.batch_bytes
        for batch in stream:
            yield from slices(batch, limit_bytes)
            if run.cancelled:
                raise run.error()
        if run.cancelled:
            raise run.error()
        run.detach()

    def _start(self, run: Run) -> None:
        with self._lock:
            if len(self._runs) >= self._limits.max_streams:
                raise Unavailable(f"{self._limits.max_streams} statements run on this server, the most it takes; try again later")
            self._runs.add(run)

    def _end(self, run: Run, prepared: Prepared) -> None:
        try:
            run.detach()
        except Exception:  # noqa: BLE001
            # The rows are out already, or another error is: this one can only be told to the log.
            _log.exception("a statement could not be closed")
        finally:
            self._sessions.release(prepared)
            with self._lock:
                self._runs.discard(run)
                if not self._runs:
                    self._idle.notify_all()

    def cancel(self, ticket: bytes) -> int:
        """Cancel every run of a ticket; how many there were."""
        return self._cancel_where(lambda run: run.ticket == ticket)

    def cancel_session(self, session: Session) -> int:
        """Cancel every run of a session; how many there were."""
        return self._cancel_where(lambda run: run.session is session)

    def cancel_all(self) -> int:
        """Cancel every run because the server stops; how many there were."""
        return self._cancel_where(lambda _: True, stopping=True)

    def _cancel_where(self, chosen: Callable[[Run], bool], *, stopping: bool = False) -> int:
        with self._lock:
            runs = [run for run in self._runs if chosen(run)]
        for run in runs:
            _cancel(run, stopping=stopping)
        return len(runs)

    def count(self) -> int:
        """How many statements run now."""
        with self._lock:
            return len(self._runs)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing runs; False where something still does after `timeout_s`."""
        with self._lock:
            return self._idle.wait_for(lambda: not self._runs, timeout_s)

    def stop(self) -> None:
        """End the watcher. Only after the last RPC."""
        self._watcher.stop()
