"""/healthz, /readyz and /metrics of a long-running command, on loopback, from one thread of the standard library's server."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from catalog.errors import ConfigurationError
from skipprd.setting_types import is_loopback, split_address

__all__ = ["Metric", "Telemetry", "exposition"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Metric:
    """One Prometheus sample. `kind` is counter or gauge; a counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


def exposition(metrics: Iterable[Metric]) -> str:
    """The samples in the Prometheus text format, HELP and TYPE once per name."""
    lines: list[str] = []
    seen: set[str] = set()
    for metric in sorted(metrics, key=lambda m: m.name):
        if metric.name not in seen:
            seen.add(metric.name)
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in metric.labels)
        lines.append(f"{metric.name}{{{labels}}} {_number(metric.value)}" if labels else f"{metric.name} {_number(metric.value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Telemetry:
    """The HTTP server; starts on `__enter__`, stops on exit. `metrics` and `ready` are called from its threads.

    `/healthz` answers 200 while the process lives, `/readyz` 200 or 503, `/metrics` the samples. Raises ConfigurationError where the
    address is not loopback or is taken.
    """

    def __init__(self, bind: str, ready: Callable[[], bool], metrics: Callable[[], Iterable[Metric]], origin: str) -> None:
        host, port = split_address(bind)
        if not is_loopback(host):
            raise ConfigurationError(f"http_bind {bind!r} (from {origin}) is reachable from other machines; use 127.0.0.1:{port}")
        try:
            self._server = _Server((host, port), _handler(ready, metrics))
        except OSError as error:
            raise ConfigurationError(f"http_bind {bind!r} (from {origin}) cannot be bound: {error.strerror}; choose another port") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="telemetry", daemon=True)

    @property
    def address(self) -> str:
        """`host:port` as bound."""
        host, port = self._server.server_address[:2]
        return f"{host if isinstance(host, str) else host.decode()}:{port}"

    def __enter__(self) -> Telemetry:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """One line, where the standard library would print a traceback."""
        _log.warning("a request for health or metrics failed", exc_info=True)


def _handler(ready: Callable[[], bool], metrics: Callable[[], Iterable[Metric]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/healthz":
                    self._answer(200, "ok\n")
                case "/readyz":
                    is_ready = ready()
                    self._answer(200 if is_ready else 503, "ready\n" if is_ready else "not ready\n")
                case "/metrics":
                    self._answer(200, exposition(metrics()), "text/plain; version=0.0.4; charset=utf-8")
                case _:
                    self._answer(404, "there is /healthz, /readyz and /metrics\n")

        def _answer(self, status: int, body: str, kind: str = "text/plain; charset=utf-8") -> None:
            data = body.encode()
            with contextlib.suppress(ConnectionError):  # the asker has gone; nobody is left to tell
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Requests for health are not events."""

    return Handler
